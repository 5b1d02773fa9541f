"""GTool's graph readout against the nearest past plan, on one set of trajectories.

python tests/benchmarks/bench_gtool.py --data FOLDER [--seed 0] [--split own|by-sequence]

FOLDER holds tools.jsonl and trajectories.jsonl (both also as .gz). Prints one JSON object.
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from sets import SPLITS, read_case, read_lines

from models.baselines import NearestPlanner
from models.candidates import embed_requests
from models.gtool import GToolConfig, GToolPlanner
from models.links import LinkScorer
from models.metrics import score_plans
from models.text import RememberingEmbedder, SentenceEmbedder
from models.training import train_gtool

METRICS = ("n_f1", "l_f1", "ned", "exact")


def main() -> None:
    """Train, plan, score, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of one set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more only lose time on busy cores")
    parser.add_argument("--split", choices=SPLITS, default=None)
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="GToolConfig")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = read_lines(args.data / "trajectories.jsonl")
    split = args.split or ("own" if any("split" in row for row in rows) else "by-sequence")
    case = read_case(args.data, split)
    graph, examples, flows = case.graph, case.examples, case.dataflow_namespaces
    embed = RememberingEmbedder(SentenceEmbedder())
    started = time.perf_counter()
    tool_x = embed(graph.texts)
    vectors = embed_requests([example.request for example in examples], embed)
    embedded = time.perf_counter()
    config = GToolConfig(**dict((f, json.loads(v)) for f, v in (s.split("=") for s in args.set)))
    result = train_gtool(
        graph, tool_x, examples, vectors, config, seed=args.seed, code_version="bench"
    )
    trained = time.perf_counter()

    test, past = case.test, case.past
    planners = {
        "gtool-graph": GToolPlanner(
            result.model, graph, tool_x, embed, LinkScorer.fit(graph, past, tool_x)
        ),
        "nearest": NearestPlanner(graph, past, embed, dataflow_namespaces=flows),
    }
    report: dict[str, Any] = {
        "set": args.data.name,
        "split": split,
        "rows": dict(Counter(example.split for example in examples)),
        "embed_s": round(embedded - started, 1),
        "train_s": round(trained - embedded, 1),
        "best_epoch": result.best_epoch,
        "weights_hash": result.weights_hash[:12],
        "validation": {
            k: round(v, 4) for k, v in result.history[result.best_epoch].items() if k in METRICS
        },
    }
    for name, planner in planners.items():
        started = time.perf_counter()
        plans = [(p or [None])[0] for p in planner.plan([example.request for example in test])]
        means = score_plans(test, plans).means
        report[name] = {metric: round(means[metric], 4) for metric in METRICS}
        report[name]["plan_s"] = round(time.perf_counter() - started, 2)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
