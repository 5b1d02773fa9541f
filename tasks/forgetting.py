"""Forget a trajectory or a source."""

import contextlib
import logging
import shutil
from typing import Any

from tasks.errors import WrongUsage
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.errors import UnreadableInput
from warehouse.forget import forget_source, forget_trajectory

log = logging.getLogger("toolatlas")


def forget(settings: Settings, trajectory: str | None, source: str | None) -> dict[str, Any]:
    """Remove rows, evidence, events, frozen requests and quarantined text.

    Training rows of past graph versions are removed too. Graph versions hold counts only, and
    models no text.

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
    for path in settings.split_warehouses:
        with (
            open_warehouse(path, wait_s=settings.lock_wait_s) as con,
            contextlib.suppress(UnreadableInput),  # it was not copied there
        ):
            if trajectory is not None:
                forget_trajectory(con, trajectory, source)
            else:
                forget_source(con, str(source))
    # Where earlier releases kept training rows.
    shutil.rmtree(settings.home / "examples", ignore_errors=True)
    result = gone.to_json()
    log.info("forgotten: %s", ", ".join(f"{count} {name}" for name, count in result.items()))
    if trajectory is None and settings.ingest_paths:
        log.warning(
            "the setting ingest_paths is %s: the next night brings back what is still there.",
            ", ".join(settings.ingest_paths),
        )
    return result
