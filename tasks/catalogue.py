"""The catalogue: what is listed, and a sync that follows its source."""

import logging
from typing import Any

from tasks.settings import Settings
from warehouse.catalogue import list_tools, sync_catalogue
from warehouse.connection import open_warehouse
from warehouse.delivery import find_files

log = logging.getLogger("toolatlas")


def sync(settings: Settings, path: str, source: str | None = None) -> dict[str, Any]:
    """Make a namespace's catalogue what a tools.jsonl, tool_desc or specification file says."""
    file, name, _ = find_files([path])[0]
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        result = sync_catalogue(con, file, source or name)
    log.info(
        "catalogue %s: %d added, %d removed, %d changed",
        source or name,
        len(result["added"]),
        len(result["removed"]),
        len({tool for tools in result["changed"].values() for tool in tools}),
    )
    return result


def tools(settings: Settings) -> list[dict[str, Any]]:
    """Every tool of every catalogue, and those that traces call beyond it."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return list_tools(con)
