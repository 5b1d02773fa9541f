"""A catalogue brought up to what its source says. Leaves tool contracts."""

import logging
from typing import Any

from prefect import flow

from tasks import steps
from tasks.errors import SourceFailed, TaskError
from tasks.events import announce, note_process
from tasks.settings import run_settings
from tasks.watching import dated
from warehouse.errors import WarehouseError

log = logging.getLogger("toolatlas")


@flow(name="sync_catalogue", flow_run_name=dated("sync_catalogue"), on_running=[note_process])
def sync_catalogue(path: str | None = None, source: str | None = None) -> dict[str, Any]:
    """Sync the catalogue given, or those of the setting ``catalogue_paths``; changes by path.

    A path is any source that ``toolatlas catalogue sync`` takes. A change of wording alone is no
    event. A source that fails changes nothing, keeps no other from being followed, and fails the
    run at its end.
    """
    settings = run_settings()
    paths = [path] if path else list(settings.catalogue_paths)
    if not paths:
        log.info("no catalogue to follow: the setting catalogue_paths is empty")
    changes: dict[str, Any] = {}
    failures: list[str] = []
    for path in paths:
        try:
            changes[path] = steps.sync_catalogue(settings, path, source)
        except (TaskError, WarehouseError) as error:
            failures.append(str(error))
            log.error("%s", error)
    if any(change["alarm"] for change in changes.values()):
        announce("catalogue.changed", paths=paths)
    if failures:
        raise SourceFailed(" ".join(failures))
    return changes
