"""What a graph version looks like, and how use drifted from one to another."""

from datetime import date, datetime
from typing import Any

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
    """One version: its id, findings in sentences, and its structure."""
    version, nodes, edges = frames(settings, name)
    mark = mark_of(version)
    summary = summarise(edges, mark, half_life_days=settings.half_life_days)
    found = analyse(nodes, summary, mark=mark, quiet_days=quiet_days, most=most)
    return {"version": version.version, "findings": list(findings(found)), **found.to_json()}


def drifted(settings: Settings, old: str, new: str = "latest", *, most: int = 10) -> dict[str, Any]:
    """Use since the older version against use up to it; ``from`` and ``to`` are their ids."""
    before, *earlier = frames(settings, old)
    after, *later = frames(settings, new)
    found = drift(*earlier, *later, most=most)
    return {"from": before.version, "to": after.version, **found.to_json()}


def mark_of(version: GraphVersion) -> date | None:
    """The last day of the data that a version was built from."""
    last = version.mark["last"]
    return datetime.fromisoformat(last).date() if last else None
