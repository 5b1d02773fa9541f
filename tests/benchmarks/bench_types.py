"""The type graph against what is known of real catalogues, and what it costs; never a test.

Precision and recall are over distinct ordered pairs of two tools: against the declared graph, or
against the pairs that gold trajectories link. The latter hold what was asked for, not all that
fits, so precision is a lower bound. The last rows are the first 5,000 and 10,000, and all, of
20,027 AWS operations, each in a process of its own; the memory is that which the graph adds at its
peak. The machine may be shared: compare times with each other.

Usage: python tests/benchmarks/bench_types.py [--data ../shared/data]
"""

import argparse
import gzip
import json
import multiprocessing
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from models.resources import ResourceGraph, resource_graph
from models.type_edges import summarise_types, type_edges

Pairs = set[tuple[str, str]]


def rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The records of a file, packed or not."""
    path = folder / name
    with path.open("rb") if path.exists() else gzip.open(f"{path}.gz") as file:
        yield from map(json.loads, file)


def nodes(folder: Path, num_tools: int | None = None) -> pl.DataFrame:
    """A catalogue as the nodes of a graph version."""
    return pl.DataFrame(
        {
            "namespace": folder.name,
            "name": tool["name"],
            "parameters": json.dumps(tool["parameters"]),
            "input_types": json.dumps(tool.get("input_types") or []),
            "output_types": json.dumps(tool.get("output_types") or []),
            "status": "active",
        }
        for tool in list(rows(folder, "tools.jsonl"))[:num_tools]
    )


def declared(folder: Path, kind: str = "") -> Pairs:
    """Pairs of the graph that a set declares."""
    return {
        (edge["source"], edge["target"])
        for edge in rows(folder, "graph.jsonl")
        if edge["type"].startswith(kind)
    }


def linked(folder: Path) -> Pairs:
    """Pairs that the trajectories of a set link."""
    return {
        (row["steps"][link["source"]]["tool"], row["steps"][link["target"]]["tool"])
        for row in rows(folder, "trajectories.jsonl")
        for link in row["links"]
    }


def found(graph: ResourceGraph, strict_only: bool) -> Pairs:
    """Pairs of the type graph, by the tools' names."""
    edges = type_edges(graph, strict_only=strict_only).rows()
    return {(s.split("/", 1)[1], t.split("/", 1)[1]) for s, t, _ in edges}


def agreement(pairs: Pairs, gold: Pairs) -> str:
    """Precision and recall as text."""
    hits = len(pairs & gold)
    if not pairs or not gold:
        return "-"
    return f"{hits / len(pairs):.2f} / {hits / len(gold):.2f}"


def line(graph: ResourceGraph, name: str, gold: Pairs, label: str, cost: str) -> str:
    """One row of the table."""
    names = {key.split("/", 1)[1] for key in graph.tools}
    gold = {(s, t) for s, t in gold if s != t and s in names and t in names}
    n = summarise_types(graph)
    cells = [
        name,
        f"{n.tools:,}",
        f"{n.resources:,}",
        f"{n.strict_takes:,} + {n.takes - n.strict_takes:,}",
        f"{n.strict_returns:,} + {n.returns - n.strict_returns:,}",
        f"{n.strict_pairs:,} + {n.partial_pairs:,}",
        f"{label}, {len(gold):,}" if gold else "-",
        agreement(found(graph, True), gold),
        agreement(found(graph, False), gold),
        cost,
    ]
    return f"| {' | '.join(cells)} |"


def measured(folder: Path, num_tools: int) -> str:
    """The row of a catalogue's first tools, with time and memory."""
    frame = nodes(folder, num_tools)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    graph = resource_graph(frame)
    seconds = time.process_time() - start
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return line(graph, folder.name, set(), "", f"{seconds:.1f} s, {added:.0f} MiB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data: Path = parser.parse_args().data
    print(
        "| catalogue | tools | resources | takes | returns | pairs | against "
        "| strict: precision / recall | all: precision / recall | CPU time, memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    sets: dict[str, tuple[Pairs, str]] = {
        "controlllm": (set(), ""),
        "taskbench_huggingface": (declared(data / "taskbench_huggingface"), "declared"),
        "taskbench_multimedia": (declared(data / "taskbench_multimedia"), "declared"),
        "complexfuncbench": (linked(data / "complexfuncbench"), "linked"),
        "nestful": (linked(data / "nestful"), "linked"),
        "seal_tools": (linked(data / "seal_tools"), "linked"),
        "toollinkos": (declared(data / "toollinkos", "PARAMETER"), "declared"),
    }
    for name, (gold, label) in sets.items():
        print(line(resource_graph(nodes(data / name)), name, gold, label, "-"), flush=True)
    context = multiprocessing.get_context("spawn")
    for num_tools in (5_000, 10_000, 20_027):
        with context.Pool(1) as pool:
            print(pool.apply(measured, (data / "aws_operations", num_tools)), flush=True)


if __name__ == "__main__":
    main()
