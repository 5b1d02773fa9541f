"""One run of the accuracy benchmark: trained, scored on the test rows, kept as a line of JSON."""

import hashlib
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch
from accuracy_report import METRICS, write_report
from peers import peer_planners
from sets import Case, read_case, read_lines

from models.baselines import NearestPlanner, PopularityPlanner, RetrievalPlanner
from models.candidates import embed_requests
from models.gtool import GToolConfig, GToolPlanner
from models.links import LinkScorer
from models.metrics import score_plans
from models.text import RememberingEmbedder, SentenceEmbedder
from models.training import TrainResult, train_gtool
from models.types import Embedder, Example, Planner

DECLARED = ("toollinkos",)
"""Sets whose declared dependencies are shown to the walk over them; their gold comes from these."""


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


CODE = code_version()


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
        self.threads = threads
        out.mkdir(parents=True, exist_ok=True)
        self.file = out / "results.jsonl"
        self.records = read_lines(self.file) if self.file.exists() else []

    def config(self, **changes: Any) -> GToolConfig:
        """The configuration of a run."""
        return GToolConfig(**{**self.settings, **changes})

    def find(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The run of this code and key in the file."""
        wanted = {"code": CODE, **key}
        found = (r for r in self.records if all(r.get(k) == v for k, v in wanted.items()))
        return next(found, None)

    def key(
        self, study: str, case: tuple[str, str], variant: str, seed: int, config: GToolConfig
    ) -> dict[str, Any]:
        """What tells a run from others, ``case`` being set and split."""
        found = {"study": study, "set": case[0], "split": case[1], "variant": variant, "seed": seed}
        return found | {"base": self.settings, "config": asdict(config)}

    def case(self, of: tuple[str, str], seed: int) -> Case:
        """A set under a split; one that ships its split is divided the same for every seed."""
        return read_case(self.data / of[0], of[1], 0 if of[1] == "own" else seed)

    def add(self, key: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Append a finished run, say so in a line, and write the report anew."""
        record = {"code": CODE, **key, **found, **surroundings(self.threads)}
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
        f"{name} n-F1 {mean(scores['n_f1']):.3f}, l-F1 {mean(scores['l_f1_adjacent']):.3f}, "
        f"NED {mean(scores['ned']):.3f}"
        for name, scores in record["planners"].items()
    ]
    if not parts:
        parts = [f"{name} {value:.3f}" for name, value in record["validation"].items()]
    return f"{'; '.join(parts)}; trained in {record.get('train_s', 0)} s"


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
    links = LinkScorer.fit(case.graph, case.past, tool_x)
    return GToolPlanner(result.model, case.graph, tool_x, bench.embed, links)


def scored(rows: Sequence[Example], planner: Planner) -> dict[str, list[float]]:
    """What each row scores under each metric."""
    ranked = planner.plan([example.request for example in rows])
    scores = score_plans(rows, [plans[0] if plans else None for plans in ranked])
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


def others(bench: Bench, case: Case) -> dict[str, Planner]:
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
            for edge in read_lines(bench.data / case.name / "graph.jsonl")
        ]
    return found | peer_planners(case.graph, case.past, bench.embed, flows, declared)
