"""Every delivery into the warehouse. Leaves rows; runs every few minutes or on demand."""

import logging
from typing import Any

from prefect import flow

from tasks import steps
from tasks.events import announce, note_process
from tasks.settings import run_settings
from tasks.watching import dated

log = logging.getLogger("toolatlas")


@flow(
    name="ingest_trajectories",
    flow_run_name=dated("ingest_trajectories"),
    on_running=[note_process],
)
def ingest_trajectories(
    paths: list[str] | None = None, source: str | None = None
) -> dict[str, Any] | None:
    """Ingest the paths given, or those of the setting ``ingest_paths``; None without any."""
    settings = run_settings()
    paths = paths or list(settings.ingest_paths)
    if not paths:
        log.info("nothing to ingest: the setting ingest_paths is empty")
        return None
    ingested = steps.ingest(settings, paths, source)
    totals = ingested["totals"]
    if any(counts["new"] or counts.get("updated") for counts in totals.values()):
        announce("ingest.stored", totals=totals)
    return ingested


if __name__ == "__main__":
    ingest_trajectories()
