"""Why an edge is in the graph: what was seen, when, how it ended, and in which trajectories."""

import difflib
from datetime import date, datetime
from typing import Any

import duckdb
import polars as pl

from warehouse.aliases import renames
from warehouse.connection import query
from warehouse.errors import UnknownTool
from warehouse.evidence import HALF_LIFE_DAYS, summarise
from warehouse.graph import GraphVersion, version_edges, version_nodes


def explain_edge(
    con: duckdb.DuckDBPyConnection,
    version: GraphVersion,
    source: str,
    target: str,
    *,
    half_life_days: float = HALF_LIFE_DAYS,
    most: int = 20,
) -> dict[str, Any]:
    """The evidence for and against an edge of a version, and the trajectories that tell of it.

    Counts are the version's. Trajectories are those of the data as last mined: what was corrected
    or forgotten since is not among them.

    Args:
        con: A connection.
        version: Of the graph.
        source: A tool as ``namespace/name``, or a name that only one tool has.
        target: The same.
        half_life_days: Of the weight, which is decayed to the version's mark.
        most: How many trajectories are listed, the latest first.

    Returns:
        ``version``, ``source``, ``target``; ``evidence``: one entry per kind, as ``summarise``
        tells it, and ``reverse``: the same from target to source; ``days``: [day, kind, outcome,
        times]; ``declared``: how sources name the edge; ``num_trajectories`` and ``trajectories``.

    Raises:
        UnknownTool: The version has no such tool, or several.
    """
    nodes = version_nodes(con, version)
    names = renames(con)
    a, b = (_find(nodes["key"].to_list(), name, names) for name in (source, target))
    edges = version_edges(con, version, among=(a, b))
    there = edges.filter(source=a, target=b)
    back = edges.filter(source=b, target=a)
    mark = _day(version.mark["last"])
    days = (
        there.group_by("on_day", "kind", "outcome")
        .agg(pl.col("num_seen").sum())
        .sort("on_day", "kind", "outcome")
    )
    present = names.get(a, a), names.get(b, b)
    told = _told(con, *present)
    return {
        "version": version.version,
        "source": a,
        "target": b,
        "half_life_days": half_life_days,
        "mark": mark and mark.isoformat(),
        "evidence": _entries(summarise(there, mark, half_life_days=half_life_days)),
        "reverse": _entries(summarise(back, mark, half_life_days=half_life_days)),
        "days": [[day and day.isoformat(), *rest] for day, *rest in days.iter_rows()],
        "declared": _declared(con, *present),
        "num_trajectories": len({row["trajectory_id"] for row in told}),
        "trajectories": told[:most],
    }


def _day(moment: str | None) -> date | None:
    return datetime.fromisoformat(moment).date() if moment else None


def _find(keys: list[str], text: str, renamed: dict[str, str]) -> str:
    """The key of the version's tool that is meant."""
    found = [key for key in keys if key == text] or [
        key for key in keys if key.split("/", 1)[1] == text
    ]
    if not found:  # by a name of before or after a rename
        former = {new: old for old, new in renamed.items()}
        found = [
            key
            for key in keys
            for other in (renamed.get(key), former.get(key))
            if other is not None and text in (other, other.split("/", 1)[1])
        ]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownTool(
            f"expected one tool, but {text!r} is ambiguous: give one of {', '.join(found)}."
        )
    plain = {key.split("/", 1)[1]: key for key in keys} | {key: key for key in keys}
    near = difflib.get_close_matches(text, sorted(plain), n=3)
    hint = f"; the nearest are {', '.join(near)}" if near else ": see toolatlas catalogue list"
    raise UnknownTool(f"expected a tool of this graph version, got {text!r}{hint}.")


def _entries(summary: pl.DataFrame) -> list[dict[str, Any]]:
    rows = summary.drop("source", "target").to_dicts()
    for row in rows:
        for name in ("first_seen", "last_seen"):
            row[name] = row[name] and row[name].isoformat()
    return rows


def _told(con: duckdb.DuckDBPyConnection, source: str, target: str) -> list[dict[str, Any]]:
    """Each telling of the edge in the data as last mined, the latest first."""
    numbers = dict(
        con.execute(
            "select key, tool from mined_tool where list_contains(?, key)",
            [[source, target]],
        ).fetchall()
    )
    rows = con.execute(
        query("edge_told"), {"source": numbers.get(source), "target": numbers.get(target)}
    )
    columns = [column[0] for column in rows.description or ()]
    told = [dict(zip(columns, row, strict=True)) for row in rows.fetchall()]
    for entry in told:
        entry["on_day"] = entry["on_day"] and entry["on_day"].isoformat()
    return told


def _declared(con: duckdb.DuckDBPyConnection, source: str, target: str) -> list[str]:
    """The types under which sources declare the edge."""
    rows = con.execute(
        "select distinct e.type from declared_edge e "
        "left join tool_rename s on s.namespace = e.source and s.name = e.source_name "
        "left join tool_rename t on t.namespace = e.source and t.name = e.target_name "
        "where coalesce(s.target_namespace, e.source) || '/' "
        "|| coalesce(s.target_name, e.source_name) = ? "
        "and coalesce(t.target_namespace, e.source) || '/' "
        "|| coalesce(t.target_name, e.target_name) = ? order by 1",
        [source, target],
    ).fetchall()
    return [row[0] for row in rows]
