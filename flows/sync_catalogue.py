"""A catalogue brought up to what its source says. Leaves tool contracts."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.settings import read_settings
from tasks.watching import dated


@flow(name="sync_catalogue", flow_run_name=dated("sync_catalogue"))
def sync_catalogue(path: str, source: str | None = None) -> dict[str, Any]:
    """Sync one catalogue file; what was added, removed and changed."""
    return steps.sync_catalogue(read_settings(), path, source)
