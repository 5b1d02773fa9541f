"""A graph version as one HTML file that works without network: cytoscape.js, data and styles.

Data travels as JSON in a script element that no browser runs; what could end that element is
escaped, and the page's own script writes every text as text. A policy in the file lets only the
two scripts run that were there when it was made, and lets nothing be loaded.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import polars as pl

from models.layout import place, separate

MOST_EDGES = 50_000
"""Most rows of the summary in a page, the most seen ones; the page says what it left out."""

CHANGES = ("added", "removed", "strengthened", "weakened")
"""What an edge can have done between two versions."""

_EPOCH = date(1970, 1, 1)
_EDGE = ["source", "target", "kind"]
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def render_page(
    title: str,
    facts: Mapping[str, str | int],
    nodes: pl.DataFrame,
    summary: pl.DataFrame,
    daily: pl.DataFrame,
    *,
    groups: Mapping[str, int] | None = None,
    diff: Mapping[str, Any] | None = None,
    resources: Sequence[tuple[str, str, str]] | None = None,
    trajectories: Mapping[tuple[str, str, str], Sequence[str]] | None = None,
) -> str:
    """The page; the same input gives the same text.

    Args:
        title: Heading and name of the page.
        facts: What the line under the heading tells, in its order: version, dates, counts.
        nodes: Of the version.
        summary: Its edges as ``warehouse.evidence.summarise`` tells them, predicted ones among
            them where there are any, with their ``probability``.
        daily: source, target, kind, on_day (null: untimed), num_seen (whatever the outcome).
        groups: Community of a tool by key, for its place; default: namespaces where there are
            several, else connected parts.
        diff: As ``warehouse.graph.diff_versions`` tells it, ending in this version. Tools and
            edges that went are drawn too.
        resources: (tool key, name of a type, ``input`` or ``output``): a layer that can be shown.
        trajectories: Ids that an edge was seen in, by (source, target, kind).
    """
    tools = _tools(nodes, summary, diff)
    lines, num_left_out = _lines(summary, diff)
    index = {key: row for row, key in enumerate(tools["key"])}
    placing = lines.filter(pl.col("kind") != "predicted")  # a model's guess moves no tool
    pairs = np.array(
        [(index[s], index[t]) for s, t in placing.select("source", "target").iter_rows()]
    )
    positions = place(
        tools["key"],
        pairs.reshape(-1, 2).astype(np.int64),
        placing["num_seen"].cast(pl.Float64).to_numpy(),
        _groups(tools, groups),
        seed=0,
    )
    days = _span(daily)
    kinds = sorted(lines["kind"].unique())
    standings = sorted(lines["standing"].unique())
    data: dict[str, Any] = {
        "facts": dict(facts),
        "spaces": tools.pop("spaces"),
        "nodes": {**tools, "x": _whole(positions[:, 0]), "y": _whole(positions[:, 1])},
        "kinds": kinds,
        "standings": standings,
        "edges": _edges(lines, index, kinds, standings, days),
        "days": {"first": days[0], "num": days[1]},
        "daily": _daily(lines, daily, days),
        "left_out": num_left_out,
        "diff": None if diff is None else _diff(diff, tools["key"], lines),
        "resources": _resources(resources, index, positions),
        "trajectories": None
        if trajectories is None
        else [list(trajectories.get(row, ())) for row in lines.select(_EDGE).iter_rows()],
    }
    if diff is not None:
        data["nodes"]["change"] = _tool_changes(diff, tools["key"])
        data["edges"]["change"] = lines["change"].to_list()
    library, script = asset("cytoscape.min.js"), asset("page.js")
    parts = {
        "title": html.escape(title),
        "policy": (
            "default-src 'none'; "
            f"script-src {_source(library)} {_source(script)}; style-src 'unsafe-inline'; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'"
        ),
        "style": asset("page.css"),
        "data": embed(data),
        "library": library,
        "script": script,
    }
    return _PLACEHOLDER.sub(lambda found: parts[found[1]], asset("page.html"))


@cache
def asset(name: str) -> str:
    """The text of a file beside this one."""
    return files("tasks.pictures").joinpath(name).read_text(encoding="utf-8")


def embed(data: object) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _source(script: str) -> str:
    """What a content security policy calls this script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


# --- tools ----------------------------------------------------------------------------------------


def _tools(
    nodes: pl.DataFrame, summary: pl.DataFrame, diff: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Columns of the tools in key order, those that only the diff or an edge names among them."""
    rows = {row["key"]: row for row in nodes.iter_rows(named=True)}
    named = {*summary["source"], *summary["target"]}
    if diff is not None:
        named |= {*diff["tools"]["added"], *diff["tools"]["removed"]}
        named |= {end for change in CHANGES for edge in diff["edges"][change] for end in edge[:2]}
    keys = sorted(rows.keys() | named)
    found = [rows.get(key, {}) for key in keys]
    spaces = [
        row.get("namespace", key.partition("/")[0]) for key, row in zip(keys, found, strict=True)
    ]
    names = [row.get("name", key.partition("/")[2]) for key, row in zip(keys, found, strict=True)]
    used = sorted(set(spaces))
    position = {space: i for i, space in enumerate(used)}
    return {
        "spaces": used,
        "key": keys,
        "name": names,
        "space": [position[space] for space in spaces],
        "status": [row.get("status", "gone") for row in found],
        "description": [row.get("description") or "" for row in found],
        "parameters": [_parameters(row.get("parameters")) for row in found],
        "takes": [_texts(row.get("input_types")) for row in found],
        "gives": [_texts(row.get("output_types")) for row in found],
        "ok": [row.get("num_ok") or 0 for row in found],
        "unrecorded": [row.get("num_unrecorded") or 0 for row in found],
        "failed": [row.get("num_failed") or 0 for row in found],
        "repeats": [row.get("num_repeats") for row in found],
        "retries": [row.get("num_retries") for row in found],
    }


def _parameters(text: str | None) -> list[list[Any]]:
    """(name, type, is required, description) of each."""
    return [
        [
            str(parameter.get("name", "")),
            str(parameter.get("type") or ""),
            int(bool(parameter.get("required"))),
            str(parameter.get("description") or ""),
        ]
        for parameter in json.loads(text or "[]")
    ]


def _texts(text: str | None) -> list[str]:
    return [str(item) for item in json.loads(text or "[]")]


def _groups(tools: Mapping[str, Any], groups: Mapping[str, int] | None) -> np.ndarray | None:
    """An int per tool; those the caller does not know get one together."""
    if groups is not None:
        return np.array([groups.get(key, -1) for key in tools["key"]])
    return np.array(tools["space"]) if len(set(tools["space"])) > 1 else None


# --- edges ----------------------------------------------------------------------------------------


def _lines(summary: pl.DataFrame, diff: Mapping[str, Any] | None) -> tuple[pl.DataFrame, int]:
    """The summary with what changed, the most seen rows of it; how many rows were left out."""
    if diff is None:
        lines = summary
    else:
        changed = [
            (*edge[:3], change, edge[3] if len(edge) > 3 else None)
            for change in CHANGES
            for edge in diff["edges"][change]
        ]
        columns = [*_EDGE, "change", "old_seen"]
        types = [pl.String] * 4 + [pl.Int64]
        changes = pl.DataFrame(changed, dict(zip(columns, types, strict=True)), orient="row")
        lines = summary.join(changes, on=_EDGE, how="full", coalesce=True)
        counts = [c for c in lines.columns if c.startswith("num_")]
        lines = lines.with_columns(
            pl.col(*counts).fill_null(0),
            pl.col("weight").fill_null(0.0),
            pl.col("standing").fill_null("dependency"),
        )
    order = [pl.col("num_seen") * -1, *_EDGE]
    kept = lines.sort(order).head(MOST_EDGES).sort(_EDGE)
    return kept, len(lines) - len(kept)


def _edges(
    lines: pl.DataFrame,
    index: Mapping[str, int],
    kinds: list[str],
    standings: list[str],
    days: tuple[int, int],
) -> dict[str, list[Any]]:
    """Columns; names as positions in their lists, days from the first, -1 where there is none."""

    def offset(column: str) -> list[int]:
        return [_day(day) - days[0] if day is not None else -1 for day in lines[column]]

    return {
        "source": [index[key] for key in lines["source"]],
        "target": [index[key] for key in lines["target"]],
        "kind": [kinds.index(kind) for kind in lines["kind"]],
        "standing": [standings.index(standing) for standing in lines["standing"]],
        "ok": lines["num_ok"].to_list(),
        "unrecorded": lines["num_unrecorded"].to_list(),
        "failed": lines["num_failed"].to_list(),
        "after": lines["num_after_failure"].to_list(),
        "seen": lines["num_seen"].to_list(),
        "learning": lines["num_learning"].to_list(),
        "weight": [round(weight, 4) for weight in lines["weight"]],
        "first": offset("first_seen"),
        "last": offset("last_seen"),
        "probability": [
            None if chance is None else round(chance, 4)
            for chance in (lines["probability"] if "probability" in lines.columns else ())
        ],
    }


def _day(day: date) -> int:
    return (day - _EPOCH).days


def _span(daily: pl.DataFrame) -> tuple[int, int]:
    """(first day since 1970, number of days to the last) of what is dated."""
    first, last = daily["on_day"].min(), daily["on_day"].max()
    if not isinstance(first, date) or not isinstance(last, date):
        return 0, 0
    return _day(first), _day(last) - _day(first) + 1


def _daily(lines: pl.DataFrame, daily: pl.DataFrame, days: tuple[int, int]) -> dict[str, list[int]]:
    """(edge, day, count) as columns; an edge is its position in ``lines``."""
    rows = (
        lines.select(*_EDGE, pl.int_range(pl.len()).alias("edge"))
        .join(daily, on=_EDGE, how="inner")
        .group_by("edge", "on_day")
        .agg(pl.col("num_seen").sum())
        .sort("edge", "on_day", nulls_last=False)
    )
    offset = pl.col("on_day").cast(pl.Int32) - days[0]
    return {
        "edge": rows["edge"].to_list(),
        "day": rows.select(offset.fill_null(-1))["on_day"].to_list(),
        "count": rows["num_seen"].to_list(),
    }


# --- what changed, and types ----------------------------------------------------------------------


def _tool_changes(diff: Mapping[str, Any], keys: Sequence[str]) -> list[str | None]:
    tools = diff["tools"]
    changes = {key: change for change in ("changed", "removed", "added") for key in tools[change]}
    changes |= {new: "renamed" for _, new in tools.get("renamed", ())}
    return [changes.get(key) for key in keys]


def _diff(diff: Mapping[str, Any], keys: Sequence[str], lines: pl.DataFrame) -> dict[str, Any]:
    """Counts for the legend, old names by position, and (old, new) counts by edge."""
    old = {new: key for key, new in diff["tools"].get("renamed", ())}
    return {
        "from": diff["from"],
        "tools": {
            change: len(diff["tools"].get(change, ()))
            for change in ("added", "removed", "changed", "renamed")
        },
        "edges": {change: len(diff["edges"][change]) for change in CHANGES},
        "was": [old.get(key) for key in keys],
        "counts": [
            None if before is None else [before, seen]
            for before, seen in lines.select("old_seen", "num_seen").iter_rows()
        ],
    }


def _resources(
    resources: Sequence[tuple[str, str, str]] | None,
    index: Mapping[str, int],
    positions: np.ndarray,
) -> dict[str, Any] | None:
    """Types in the middle of their tools, and links [type, tool, 1 where the tool gives it]."""
    links = sorted(
        {
            (name, index[key], int(role == "output"))
            for key, name, role in resources or ()
            if key in index
        }
    )
    if not links:
        return None
    names = sorted({name for name, _, _ in links})
    members = [[tool for name, tool, _ in links if name == wanted] for wanted in names]
    middles = np.array([positions[rows].mean(axis=0) for rows in members])
    middles = separate(middles, np.full((len(names), 2), (110.0, 60.0)))
    return {
        "name": names,
        "x": _whole(middles[:, 0]),
        "y": _whole(middles[:, 1]),
        "links": [[names.index(name), tool, given] for name, tool, given in links],
    }


def _whole(values: np.ndarray) -> list[int]:
    return [round(value) for value in values.tolist()]
