"""What a stored graph version looks like, and how use drifted from one to another."""

from typing import Any

import polars as pl

from models.drift import drift
from models.findings import findings
from models.structure import analyse
from tasks.graphs import find
from tasks.settings import Settings
from warehouse.evidence import summarise
from warehouse.graph import read_version


def structure(
    settings: Settings, name: str = "latest", *, quiet_days: int = 30, most: int = 10
) -> dict[str, Any]:
    """One version: its id, findings in sentences, and its structure."""
    version = find(settings, name).version
    nodes, edges = read_version(settings.graphs, version)
    found = analyse(_with_repeats(nodes), summarise(edges), quiet_days=quiet_days, most=most)
    return {"version": version, "findings": list(findings(found)), **found.to_json()}


def drifted(settings: Settings, old: str, new: str = "latest", *, most: int = 10) -> dict[str, Any]:
    """Use since the older version against use up to it; ``from`` and ``to`` are their ids."""
    before, after = find(settings, old).version, find(settings, new).version
    old_nodes, old_edges = read_version(settings.graphs, before)
    new_nodes, new_edges = read_version(settings.graphs, after)
    found = drift(old_nodes, old_edges, new_nodes, new_edges, most=most)
    return {"from": before, "to": after, **found.to_json()}


def _with_repeats(nodes: pl.DataFrame) -> pl.DataFrame:
    """Versions of earlier rules do not count repeats."""
    missing = [name for name in ("num_repeats", "num_retries") if name not in nodes.columns]
    return nodes.with_columns(pl.lit(0, pl.Int64).alias(name) for name in missing)
