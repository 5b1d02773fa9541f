"""What changed between two graph versions: tools and edges that came, went, grew or shrank."""

from collections import Counter
from collections.abc import Set
from typing import Any

import duckdb
import polars as pl

from warehouse.aliases import renames
from warehouse.connection import query
from warehouse.graph import GraphVersion

_NO_STATE = -1


def diff_versions(
    con: duckdb.DuckDBPyConnection, old: GraphVersion | None, new: GraphVersion
) -> dict[str, Any]:
    """Tools and edges that came, went or changed; from nothing where ``old`` is None.

    Edges are (source, target, kind). Strengthened and weakened compare how often they were seen,
    held-out rows and failures included. A tool that was renamed from a tool of the old version to
    one of the new is neither added nor removed, and its edges are compared under the new name.

    Returns:
        ``from``, ``to``, ``tools`` {added, removed, changed, renamed [[old, new]]} and ``edges``
        {added, removed [[source, target, kind]], strengthened, weakened [[source, target, kind,
        times before, times after]]}.
    """
    before, after = _tools(con, old), _tools(con, new)
    renamed = _renamed(con, before.keys() - after.keys(), after.keys() - before.keys())
    con.register(
        "new_name",
        pl.DataFrame(renamed, schema={"old_key": pl.String, "new_key": pl.String}, orient="row"),
    )
    rows = con.execute(
        query("changed_edge"), {"old": old.state if old else _NO_STATE, "new": new.state}
    ).fetchall()
    con.unregister("new_name")
    old_names, new_names = {a for a, _ in renamed}, {b for _, b in renamed}
    return {
        "from": old and old.version,
        "to": new.version,
        "tools": {
            "added": sorted(after.keys() - before.keys() - new_names),
            "removed": sorted(before.keys() - after.keys() - old_names),
            "changed": sorted(k for k in after.keys() & before.keys() if after[k] != before[k]),
            "renamed": [list(pair) for pair in renamed],
        },
        "edges": {
            "added": [[*edge] for *edge, x, _ in rows if not x],
            "removed": [[*edge] for *edge, _, y in rows if not y],
            "strengthened": [[*edge, x, y] for *edge, x, y in rows if 0 < x < y],
            "weakened": [[*edge, x, y] for *edge, x, y in rows if 0 < y < x],
        },
    }


def _renamed(
    con: duckdb.DuckDBPyConnection, gone: Set[str], came: Set[str]
) -> list[tuple[str, str]]:
    """Tools that went under one name and came under another."""
    known = renames(con)
    forth = [(a, b) for a, b in known.items() if a in gone and b in came]
    # Of a rename that was taken back, or from a later version to an earlier one.
    back = [(a, b) for b, a in known.items() if a in gone and b in came]
    parts = Counter(a for a, _ in back)  # a merge has no way back
    return sorted(forth + [(a, b) for a, b in back if parts[a] == 1])


def _tools(
    con: duckdb.DuckDBPyConnection, version: GraphVersion | None
) -> dict[str, tuple[str, str]]:
    """Contract and status by key."""
    if version is None:
        return {}
    nodes = con.execute(query("node_digest"), {"state": version.state}).fetchall()
    return {key: (contract, status) for key, contract, status, *_ in nodes}
