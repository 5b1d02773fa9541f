"""Forget a trajectory or a source, in the warehouse and in the exported training rows."""

import logging
from typing import Any

import polars as pl

from tasks.errors import WrongUsage
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.forget import forget_source, forget_trajectory

log = logging.getLogger("toolatlas")


def forget(settings: Settings, trajectory: str | None, source: str | None) -> dict[str, Any]:
    """Remove rows, evidence, events, frozen requests and quarantined text.

    Exported training rows that hold it are removed too; the next graph build makes them anew.
    Graph versions hold counts only, and models no text.

    Raises:
        WrongUsage: Neither is named.
    """
    if trajectory is None and source is None:
        raise WrongUsage("expected a trajectory's id or --source NAME, got neither.")
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        if trajectory is not None:
            gone = forget_trajectory(con, trajectory, source)
        else:
            gone = forget_source(con, str(source))
    exports = 0
    for path in sorted(settings.examples.glob("*.parquet")):
        if pl.read_parquet(path, columns=["id"])["id"].is_in(list(gone.trajectory_ids)).any():
            path.unlink()
            exports += 1
    result = {**gone.to_json(), "exports": exports}
    log.info("forgotten: %s", ", ".join(f"{count} {name}" for name, count in result.items()))
    if trajectory is None and settings.ingest_paths:
        log.warning(
            "the setting ingest_paths is %s: the next night brings back what is still there.",
            ", ".join(settings.ingest_paths),
        )
    return result
