"""What a graph version looks like, and how use drifted from one to another."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import polars as pl

from models.drift import drift
from models.findings import findings
from models.structure import analyse
from warehouse.evidence import summarise
from warehouse.graph import GraphVersion

Frames = tuple[GraphVersion, pl.DataFrame, pl.DataFrame]
"""A version with its nodes and edges."""


def structure(
    frames: Frames, half_life_days: float, *, quiet_days: int = 30, most: int = 10
) -> dict[str, Any]:
    """One version: its findings in sentences, and its structure."""
    version, nodes, edges = frames
    mark = mark_of(version)
    summary = summarise(edges, mark, half_life_days=half_life_days)
    found = analyse(nodes, summary, mark=mark, quiet_days=quiet_days, most=most)
    return {"findings": list(findings(found)), **found.to_json()}


def drifted(
    old: Frames, new: Frames, renamed: Mapping[str, str], *, most: int = 10
) -> dict[str, Any]:
    """Use since the older of two versions against use up to it.

    Args:
        old: The older version.
        new: The newer one.
        renamed: New keys by old keys; tools count under the new ones.
        most: How many contributors are named.
    """
    _, nodes, edges = old
    nodes = nodes.with_columns(pl.col("key").replace(dict(renamed)))
    edges = edges.with_columns(pl.col("source", "target").replace(dict(renamed)))
    return drift(nodes, edges, *new[1:], most=most).to_json()


def mark_of(version: GraphVersion) -> date | None:
    """The last day of the data that a version was built from."""
    last = version.mark["last"]
    return datetime.fromisoformat(last).date() if last else None
