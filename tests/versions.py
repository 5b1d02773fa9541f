"""Frames of a graph version, made by hand: tools, edges by day, and a diff between two."""

from datetime import date, timedelta

import numpy as np
import polars as pl

from warehouse.evidence import summarise

FIRST = date(2024, 3, 1)


def node(key, **fields):
    """A row of nodes."""
    return {
        "key": key,
        "namespace": key.partition("/")[0],
        "name": key.partition("/")[2],
        "contract_hash": "c",
        "description": "does it",
        "parameters": "[]",
        "input_types": "[]",
        "output_types": "[]",
        "status": "active",
        "num_ok": 0,
        "num_unrecorded": 0,
        "num_failed": 0,
        "num_repeats": 0,
        "num_retries": 0,
        **fields,
    }


def node_frame(rows):
    """Nodes in key order."""
    return pl.DataFrame(rows).sort("key")


def edge_frame(rows):
    """Edges from (source, target, kind, outcome, day, is held out, times)."""
    columns = {
        "source": pl.String,
        "target": pl.String,
        "kind": pl.String,
        "outcome": pl.String,
        "on_day": pl.Date,
        "is_held_out": pl.Boolean,
        "num_seen": pl.Int64,
    }
    return pl.DataFrame(rows, columns, orient="row")


def small(names=("a", "b", "c", "d"), space="s"):
    """(nodes, summary, daily): four tools, three kinds, a warning, a fallback, untimed evidence."""
    a, b, c, d = (f"{space}/{name}" for name in names)
    rows = [
        (a, b, "adjacent", "ok", FIRST, False, 5),
        (a, b, "adjacent", "ok", FIRST + timedelta(days=9), True, 2),
        (a, b, "dataflow", "ok", None, False, 3),
        (b, c, "adjacent", "failed", FIRST, False, 4),
        (b, a, "adjacent", "after_failure", FIRST + timedelta(days=1), False, 1),
        (c, a, "declared", "ok", None, False, 1),
    ]
    nodes = [node(a, num_ok=9, num_failed=2), node(b, num_ok=7), node(c), node(d)]
    return version(nodes, rows)


def version(nodes, rows):
    """(nodes, summary, daily) of these rows."""
    edges = edge_frame(rows)
    daily = (
        edges.group_by("source", "target", "kind", "on_day")
        .agg(pl.col("num_seen").sum())
        .sort("source", "target", "kind", "on_day")
    )
    return node_frame(nodes), summarise(edges), daily


def planted(num_tools, num_edges, num_groups, seed=0):
    """A version with planted communities, one a namespace: nine edges of ten stay inside."""
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(num_groups, size=num_tools))
    keys = [f"space_{g}/tool_{i}_of_{g}" for i, g in enumerate(group)]
    members = [np.flatnonzero(group == g) for g in range(num_groups)]
    pairs = set()
    while len(pairs) < num_edges:
        a = int(rng.integers(num_tools))
        b = (
            int(rng.choice(members[group[a]]))
            if rng.random() < 0.9
            else int(rng.integers(num_tools))
        )
        if a != b:
            pairs.add((a, b))
    kinds = ("adjacent", "adjacent", "dataflow", "declared", "predicted")
    outcomes = ("ok", "ok", "ok", "failed", "after_failure")
    rows = []
    for a, b in sorted(pairs):
        outcome, kind = outcomes[int(rng.integers(5))], kinds[int(rng.integers(5))]
        stated = kind in ("declared", "predicted")
        for _ in range(int(rng.integers(1, 4))):
            day = None if stated else FIRST + timedelta(days=int(rng.integers(60)))
            times = int(rng.geometric(0.2))
            rows.append((keys[a], keys[b], kind, "ok" if stated else outcome, day, False, times))
    nodes = [
        node(key, num_ok=int(n), description=f"What {key} does, in a sentence.")
        for key, n in zip(keys, rng.geometric(0.02, size=num_tools), strict=True)
    ]
    return version(nodes, rows)


def changes(**parts):
    """A diff in which nothing changed but these: tools by name of change, edges likewise."""
    edges = ("strengthened", "weakened")
    empty = {"added": [], "removed": []}
    return {
        "from": "a" * 64,
        "to": "b" * 64,
        "tools": {**empty, "changed": [], "renamed": [], **parts.get("tools", {})},
        "edges": {**empty, **dict.fromkeys(edges, ()), **parts.get("edges", {})},
    }
