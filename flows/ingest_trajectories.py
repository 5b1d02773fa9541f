"""Every delivery into the warehouse. Leaves rows; runs every few minutes or on demand."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.settings import read_settings
from tasks.watching import dated


@flow(name="ingest_trajectories", flow_run_name=dated("ingest_trajectories"))
def ingest_trajectories(
    paths: list[str] | None = None, source: str | None = None
) -> dict[str, Any]:
    """Ingest the paths given, or those of the setting ``ingest_paths``."""
    settings = read_settings()
    return steps.ingest(settings, paths or list(settings.ingest_paths), source)


if __name__ == "__main__":
    ingest_trajectories()
