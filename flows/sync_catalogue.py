"""A catalogue brought up to what its source says. Leaves tool contracts."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.settings import read_settings


@flow(name="sync_catalogue")
def sync_catalogue(path: str, source: str | None = None) -> dict[str, Any]:
    """Sync one catalogue file; what was added, removed and changed."""
    return steps.sync_catalogue(read_settings(), path, source)
