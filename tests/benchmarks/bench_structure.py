"""How long looking at a graph version and comparing two take as graphs grow.

python tests/benchmarks/bench_structure.py [--sizes 2000x200000 ...] [--networkx-up-to 200000]

Made-up graphs: a hundred tools a group, seven edges of ten inside it, few tools used much. Prints
one JSON object a size: CPU seconds of ``analyse`` and ``drift``, of its graph algorithms and of the
same in networkx, which is left out above so many edges.
"""

import argparse
import json
import time
from collections.abc import Callable
from datetime import date
from typing import Any

import networkx as nx
import numpy as np
import polars as pl

from models.connectivity import communities, components, cuts
from models.drift import drift
from models.structure import analyse


def made_up(num_tools: int, num_edges: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Nodes, and a summary with as many different edges."""
    drawn = np.random.default_rng(0)
    keys = np.array([f"made/tool{i}" for i in range(num_tools)])
    group = drawn.permutation(num_tools) // 100
    order = np.argsort(group, kind="stable")
    start = np.searchsorted(group[order], np.arange(group.max() + 2))
    found = np.zeros(0, dtype=np.int64)
    while len(found) < num_edges:
        source = (num_tools * drawn.random(num_edges) ** 1.5).astype(np.int64)
        target = (num_tools * drawn.random(num_edges) ** 1.5).astype(np.int64)
        size = np.diff(start)[group[source]]
        near = order[start[group[source]] + (drawn.random(num_edges) * size).astype(np.int64)]
        target = np.where(drawn.random(num_edges) < 0.7, near, target)
        pairs = (source * num_tools + target)[source != target]
        found = np.unique(np.concatenate([found, pairs]))
    source, target = np.divmod(np.sort(drawn.choice(found, num_edges, replace=False)), num_tools)
    seen = drawn.zipf(1.8, num_edges).clip(max=10**6)
    failed = drawn.random(num_edges) < 0.1
    summary = pl.DataFrame({"source": keys[source], "target": keys[target], "num_seen": seen})
    summary = summary.with_columns(
        kind=pl.lit("adjacent"),
        num_ok=pl.Series(np.where(failed, 0, seen)),
        num_unrecorded=pl.lit(0, pl.Int64),
        num_failed=pl.Series(np.where(failed, seen, 0)),
        num_after_failure=pl.lit(0, pl.Int64),
        last_seen=pl.lit(date(2026, 1, 1)),
        standing=pl.Series(np.where(failed, "warning", "dependency")),
    )
    calls = np.bincount(target, seen, num_tools).astype(np.int64)
    nodes = pl.DataFrame({"key": keys, "name": keys, "num_ok": calls}).with_columns(
        pl.col("name").str.strip_prefix("made/"),
        namespace=pl.lit("made"),
        status=pl.lit("active"),
        num_unrecorded=pl.lit(0, pl.Int64),
        num_failed=pl.lit(0, pl.Int64),
        num_repeats=pl.lit(0, pl.Int64),
        num_retries=pl.lit(0, pl.Int64),
    )
    return nodes, summary


def seconds(work: Callable[[], Any]) -> float:
    """CPU time of all threads, once: what else runs on the machine matters less."""
    start = time.process_time()
    work()
    return round(time.process_time() - start, 2)


def measure(num_tools: int, num_edges: int, with_networkx: bool) -> dict[str, Any]:
    """One size."""
    nodes, summary = made_up(num_tools, num_edges)
    later = summary.with_columns(pl.col("num_seen") * 2)
    more = nodes.with_columns(pl.col("num_ok") * 2)
    index = {key: i for i, key in enumerate(nodes["key"].to_list())}
    source = summary["source"].replace_strict(index).to_numpy().astype(np.int64)
    target = summary["target"].replace_strict(index).to_numpy().astype(np.int64)
    weight = summary["num_seen"].to_numpy().astype(np.float64)
    found: dict[str, Any] = {
        "tools": num_tools,
        "edges": num_edges,
        "analyse": seconds(lambda: analyse(nodes, summary)),
        "drift": seconds(lambda: drift(nodes, summary, more, later)),
        "communities": seconds(lambda: communities(source, target, weight, num_tools)),
        "strong": seconds(lambda: components(source, target, num_tools, strong=True)),
        "cuts": seconds(lambda: cuts(source, target, num_tools)),
    }
    if with_networkx:
        graph = nx.DiGraph()
        graph.add_weighted_edges_from(zip(source, target, weight, strict=True))
        plain = nx.Graph(graph)
        theirs = {
            "communities": seconds(lambda: nx.community.louvain_communities(plain, seed=0)),
            "strong": seconds(lambda: list(nx.strongly_connected_components(graph))),
            "cuts": seconds(lambda: (list(nx.articulation_points(plain)), list(nx.bridges(plain)))),
        }
        found["networkx"] = theirs
        found["times faster"] = {
            part: round(took / max(found[part], 0.01), 1) for part, took in theirs.items()
        }
    return found


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes", nargs="+", default=["2000x200000", "10000x1000000", "20000x2000000"]
    )
    parser.add_argument("--networkx-up-to", type=int, default=200_000)
    asked = parser.parse_args()
    for size in asked.sizes:
        num_tools, num_edges = map(int, size.split("x"))
        print(
            json.dumps(measure(num_tools, num_edges, num_edges <= asked.networkx_up_to)), flush=True
        )


if __name__ == "__main__":
    main()
