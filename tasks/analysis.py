"""What a graph version looks like, and how use drifted from one to another."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import polars as pl

from models.drift import drift
from models.findings import findings
from models.structure import analyse
from tasks.graphs import frames
from tasks.settings import Settings
from warehouse.evidence import summarise
from warehouse.graph import GraphVersion


def structure(
    settings: Settings, name: str = "latest", *, quiet_days: int = 30, most: int = 10
) -> dict[str, Any]:
    """One version: its findings in sentences, and its structure."""
    version, nodes, edges = frames(settings, name)
    mark = mark_of(version)
    summary = summarise(edges, mark, half_life_days=settings.half_life_days)
    found = analyse(nodes, summary, mark=mark, quiet_days=quiet_days, most=most)
    return {"findings": list(findings(found)), **found.to_json()}


def drifted(settings: Settings, diff: Mapping[str, Any], *, most: int = 10) -> dict[str, Any]:
    """Use since the older of two versions against use up to it.

    Args:
        settings: Of the home.
        diff: Of the two, as ``graph diff`` gives it; renamed tools count under their new names.
        most: How many contributors are named.
    """
    _, old_nodes, old_edges = frames(settings, diff["from"])
    _, new_nodes, new_edges = frames(settings, diff["to"])
    renamed = dict(diff["tools"]["renamed"])
    old_nodes = old_nodes.with_columns(pl.col("key").replace(renamed))
    old_edges = old_edges.with_columns(pl.col("source", "target").replace(renamed))
    return drift(old_nodes, old_edges, new_nodes, new_edges, most=most).to_json()


def mark_of(version: GraphVersion) -> date | None:
    """The last day of the data that a version was built from."""
    last = version.mark["last"]
    return datetime.fromisoformat(last).date() if last else None
