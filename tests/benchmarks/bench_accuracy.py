"""How good the default planner is, beside baselines and peers, on real sets of trajectories.

python tests/benchmarks/bench_accuracy.py [--out FOLDER] [--sets NAME ...] [--seeds 0 1 2]

Trains GTool's graph readout once for each set, split and seed of ``CELLS``, scores it and all
others on the test rows, and once more with the features of each group silenced. Every finished run
is one line of FOLDER/results.jsonl and is not done again; FOLDER/accuracy.md and the plots beside
it are written anew after each, so an interrupted benchmark goes on where it stopped.
"""

import argparse
import hashlib
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import torch
from accuracy_report import CELLS, METRICS, write_report
from peers import peer_planners
from sets import Case, read_case, read_lines

from models.baselines import NearestPlanner, PopularityPlanner, RetrievalPlanner
from models.candidates import embed_requests
from models.decoder import FEATURES, PointerDecoder
from models.gtool import GToolConfig, GToolPlanner
from models.links import LinkScorer
from models.metrics import score_plans
from models.text import RememberingEmbedder, SentenceEmbedder
from models.training import TrainResult, train_gtool
from models.types import Embedder, Planner

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
DECLARED = ("toollinkos",)
"""Sets whose declared dependencies are shown to the walk over them; their gold comes from these."""


class Bench:
    """What all runs share: where results lie, how texts are encoded, how trainings are set.

    Args:
        out: Folder of results.
        data: Folder of sets.
        settings: Fields of GToolConfig that differ from the default.
        threads: Of torch.
    """

    def __init__(
        self, out: Path, data: Path, settings: Mapping[str, Any], threads: int = 1
    ) -> None:
        torch.set_num_threads(threads)
        self.out, self.data, self.settings = out, data, dict(settings)
        self.embed: Embedder = RememberingEmbedder(SentenceEmbedder(), out / "embeddings")
        self.code = code_version()
        self.threads = threads
        out.mkdir(parents=True, exist_ok=True)
        self.file = out / "results.jsonl"
        self.records = read_lines(self.file) if self.file.exists() else []

    def config(self, **changes: Any) -> GToolConfig:
        """The configuration of a run."""
        return GToolConfig(**{**self.settings, **changes})

    def is_done(self, key: Mapping[str, Any]) -> bool:
        """Whether the file has a run of this code and key."""
        wanted = {"code": self.code, **key}
        return any(all(r.get(k) == v for k, v in wanted.items()) for r in self.records)

    def add(self, key: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Append a finished run, say so in a line, and write the report anew."""
        record = {"code": self.code, **key, **found, **surroundings(self.threads)}
        with self.file.open("a") as opened:
            opened.write(json.dumps(record) + "\n")
        self.records.append(json.loads(json.dumps(record)))
        where = " ".join(str(key[k]) for k in ("study", "set", "split", "variant") if key.get(k))
        line = f"{where} seed {key['seed']}: {progress(record)}"
        print(f"{datetime.now():%H:%M:%S} {line}", flush=True)
        write_report(self.records, self.out)


def progress(record: Mapping[str, Any]) -> str:
    """The scores of a run in short."""
    parts = [
        f"{name} {mean(scores['n_f1']):.3f}/{mean(scores['l_f1_adjacent']):.3f}"
        f"/{mean(scores['ned']):.3f}"
        for name, scores in record["planners"].items()
    ]
    return f"{', '.join(parts)} (n-F1/l-F1/NED), trained in {record.get('train_s', 0)} s"


def mean(values: list[float]) -> float:
    """Of some values."""
    return sum(values) / len(values)


def surroundings(threads: int) -> dict[str, Any]:
    """When, with what and on what a run was done."""
    cores, memory = psutil.cpu_count(), psutil.virtual_memory().total / 2**30
    names = ("torch", "torch-geometric", "sentence-transformers", "numpy")
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{n: version(n) for n in names}},
        "machine": f"{platform.machine()}, {cores} cores, {memory:.0f} GiB, torch threads "
        f"{threads}",
    }


def code_version() -> str:
    """Hash of the sources that decide what a run gives: models, sets and peers as loaded."""
    files = {
        Path(file)
        for name, module in list(sys.modules.items())
        if name.split(".", 1)[0] in ("models", "sets", "peers")
        and (file := getattr(module, "__file__", None))
    }
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.name}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def trained(
    bench: Bench, case: Case, config: GToolConfig, seed: int
) -> tuple[TrainResult, dict[str, Any]]:
    """A model, and how its training went."""
    tool_x = bench.embed(case.graph.texts)
    vectors = embed_requests([example.request for example in case.examples], bench.embed)
    started = time.perf_counter()
    result = train_gtool(case.graph, tool_x, case.examples, vectors, config, seed=seed)
    best = result.history[result.best_epoch]
    return result, {
        "train_s": round(time.perf_counter() - started, 1),
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "validation": {name: best[name] for name in ("n_f1", "l_f1", "ned")},
        "weights_hash": result.weights_hash[:12],
    }


def new_planner(bench: Bench, case: Case, result: TrainResult) -> GToolPlanner:
    """The planner that users get of a training."""
    tool_x = bench.embed(case.graph.texts)
    return GToolPlanner(
        result.model, case.graph, tool_x, bench.embed, LinkScorer.fit(case.graph, case.past, tool_x)
    )


def scored(case: Case, planner: Planner) -> dict[str, list[float]]:
    """What each test row scores under each metric."""
    test = case.test
    ranked = planner.plan([example.request for example in test])
    scores = score_plans(test, [plans[0] if plans else None for plans in ranked])
    return {metric: scores.values(metric).round(5).tolist() for metric in METRICS}


def described(case: Case) -> dict[str, Any]:
    """What a record says of the rows."""
    test = case.test
    return {
        "rows": dict(Counter(example.split for example in case.examples)),
        "dropped": case.dropped,
        "tools": case.graph.num_tools,
        "unseen": round(case.unseen_pairs, 4),
        "has_links": all(example.has_links for example in test),
        "ids": [example.id for example in test],
        "groups": [hashlib.sha256(e.group.encode()).hexdigest()[:12] for e in test],
    }


@contextmanager
def silenced(group: str) -> Iterator[None]:
    """The features of one group say the same of all candidates: their mean over them.

    END keeps its features, and the shortlist is drawn up as before.
    """
    names = [name for part in FEATURES.values() for name in part]
    columns = [names.index(name) for name in FEATURES[group]]
    loud = PointerDecoder._features

    def quiet(*args: Any) -> Any:
        phi, end = loud(*args)
        phi[..., columns] = phi[..., columns].mean(dim=2, keepdim=True)
        return phi, end

    with patch.object(PointerDecoder, "_features", quiet):
        yield


def without_states(planner: GToolPlanner) -> None:
    """Let the keys that queries are held against say the same of all tools: their mean."""
    planner.tools = [
        states._replace(side=states.side._replace(key=states.side.key.mean(0).expand_as(key)))
        for states in planner.tools
        for key in [states.side.key]
    ]


def run_table(bench: Bench, sets: list[str], seeds: list[int], only: list[str]) -> None:
    """The main table, run by run."""
    config = bench.config()
    for seed in seeds:
        for cell in CELLS:
            if cell.set not in sets or (only and cell.split not in only):
                continue
            key = {"study": "table", "set": cell.set, "split": cell.split, "seed": seed}
            key |= {"base": bench.settings, "config": asdict(config)}
            if bench.is_done(key):
                continue
            folder = bench.data / cell.set
            case = read_case(folder, cell.split, 0 if cell.split == "own" else seed)
            result, training = trained(bench, case, config, seed)
            planner = new_planner(bench, case, result)
            planners: dict[str, Planner] = {"gtool": planner} | others(bench, case, folder)
            scores = {name: scored(case, one) for name, one in planners.items()}
            parts = {}
            for group in FEATURES:
                with silenced(group):
                    parts[group] = scored(case, planner)
            without_states(planner)
            parts["states"] = scored(case, planner)
            bench.add(
                key,
                {
                    **described(case),
                    **training,
                    "planners": scores,
                    "silenced": {
                        group: {metric: round(mean(row), 4) for metric, row in part.items()}
                        for group, part in parts.items()
                    },
                    "evaluations": len(scores) + len(parts),
                },
            )


def others(bench: Bench, case: Case, folder: Path) -> dict[str, Planner]:
    """Baselines and peers."""
    flows = case.dataflow_namespaces
    found: dict[str, Planner] = {
        kind.name: kind(case.graph, case.past, bench.embed, dataflow_namespaces=flows)
        for kind in (RetrievalPlanner, NearestPlanner, PopularityPlanner)
    }
    declared = []
    if case.name in DECLARED:
        declared = [
            (f"{case.name}/{edge['source']}", f"{case.name}/{edge['target']}")
            for edge in read_lines(folder / "graph.jsonl")
        ]
    return found | peer_planners(case.graph, case.past, bench.embed, flows, declared)


def setting(text: str) -> tuple[str, Any]:
    """A field of GToolConfig with its value, JSON or a plain word."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = list(dict.fromkeys(cell.set for cell in CELLS))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the sets")
    parser.add_argument("--out", type=Path, default=Path("build/accuracy"), help="of results")
    parser.add_argument("--sets", nargs="+", choices=names, default=names)
    parser.add_argument("--splits", nargs="+", default=[], help="only these splits")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1, help="more only lose time on busy cores")
    parser.add_argument("--epochs", type=int, help="of each training")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="GToolConfig")
    args = parser.parse_args()
    settings = dict(setting(text) for text in args.set)
    if args.epochs:
        settings["epochs"] = args.epochs
    bench = Bench(args.out, args.data, settings, args.threads)
    run_table(bench, args.sets, args.seeds, args.splits)
    write_report(bench.records, bench.out)


if __name__ == "__main__":
    main()
