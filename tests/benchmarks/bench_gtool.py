"""GTool's graph readout against the nearest past plan, on one set of trajectories.

python tests/benchmarks/bench_gtool.py --data FOLDER [--seed 0] [--split own|by-sequence]

FOLDER holds tools.jsonl and trajectories.jsonl (both also as .gz). Prints one JSON object.
"""

import argparse
import gzip
import hashlib
import json
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from models.baselines import NearestPlanner
from models.graph import tool_text
from models.gtool import GToolConfig, GToolPlanner
from models.metrics import score_plans
from models.text import RememberingEmbedder, SentenceEmbedder
from models.training import train_gtool
from models.types import Example, ToolGraph, empty_edges

METRICS = ("n_f1", "l_f1", "ned", "exact")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All records of a JSON-lines file, plain or gzipped."""
    if not path.exists():
        return [json.loads(line) for line in gzip.open(f"{path}.gz", "rt") if line.strip()]
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def share(tools: tuple[str, ...], seed: int = 0) -> float:
    """A number in 0..1 that depends on seed and tool sequence alone."""
    digest = hashlib.sha256(json.dumps([seed, *tools]).encode()).hexdigest()
    return int(digest[:8], 16) / 2**32


def read_examples(folder: Path, split: str, seed: int = 0) -> list[Example]:
    """Examples with a validation part by tool sequence (10 %)."""
    out = []
    for row in read_lines(folder / "trajectories.jsonl"):
        tools = tuple(f"{folder.name}/{step['tool']}" for step in row["steps"])
        place = share(tools, seed)
        if split == "own":
            drawn = share((row["id"],), seed)
            part = "test" if row["split"] == "test" else "validation" if drawn < 0.1 else "train"
        else:
            part = "test" if place < 0.2 else "validation" if place < 0.3 else "train"
        links = tuple((link["source"], link["target"]) for link in row["links"])
        gold = row["meta"]["links"] in ("gold", "dataflow")
        group = row["id"] if split == "own" else json.dumps(tools)
        out.append(Example(row["id"], row["request"], tools, links, gold, part, group))
    return out


def mine_graph(folder: Path, examples: list[Example], dataflow: bool) -> ToolGraph:
    """Tools of the catalogue with the edges of the training rows."""
    tools = {
        f"{folder.name}/{tool['name']}": tool_text(
            tool["name"], tool.get("description") or "", json.dumps(tool.get("parameters") or [])
        )
        for tool in read_lines(folder / "tools.jsonl")
    }
    keys = tuple(sorted(tools))
    index = {key: i for i, key in enumerate(keys)}
    counts: Counter[tuple[int, int, int]] = Counter()
    for example in examples:
        rows = [index.get(key, -1) for key in example.tools]
        if example.split != "train" or -1 in rows:
            continue
        counts.update((a, b, 0) for a, b in pairwise(rows) if a != b)
        if dataflow:
            pairs = {(rows[a], rows[b]) for a, b in example.links if rows[a] != rows[b]}
            counts.update((a, b, 1) for a, b in pairs)
    pairs_seen = sorted({(a, b) for a, b, _ in counts})
    edge_index, edge_counts = empty_edges()
    if pairs_seen:
        edge_index = torch.tensor(pairs_seen).T.contiguous()
        edge_counts = torch.tensor(
            [[float(counts[a, b, k]) for k in (0, 1)] for a, b in pairs_seen]
        )
    return ToolGraph("bench", keys, tuple(tools[key] for key in keys), edge_index, edge_counts)


def main() -> None:
    """Train, plan, score, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of one set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="more only lose time on busy cores")
    parser.add_argument("--split", choices=("own", "by-sequence"), default=None)
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="GToolConfig")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = read_lines(args.data / "trajectories.jsonl")
    split = args.split or ("own" if any("split" in row for row in rows) else "by-sequence")
    dataflow = any(row["meta"]["links"] == "dataflow" for row in rows)
    flows = frozenset({args.data.name} if dataflow else ())

    examples = read_examples(args.data, split)
    graph = mine_graph(args.data, examples, dataflow)
    examples = [example for example in examples if set(example.tools) <= set(graph.keys)]
    examples = [example for example in examples if example.tools]
    embed = RememberingEmbedder(SentenceEmbedder())
    started = time.perf_counter()
    tool_x, request_x = embed(graph.texts), embed([example.request for example in examples])
    embedded = time.perf_counter()
    config = GToolConfig(**dict((f, json.loads(v)) for f, v in (s.split("=") for s in args.set)))
    result = train_gtool(
        graph, tool_x, examples, request_x, config, seed=args.seed, code_version="bench"
    )
    trained = time.perf_counter()

    test = [example for example in examples if example.split == "test"]
    past = [example for example in examples if example.split != "test"]
    planners = {
        "gtool-graph": GToolPlanner(result.model, graph, tool_x, embed, flows),
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
