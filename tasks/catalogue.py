"""The catalogue: syncs that follow their sources, its states compared, names and what is in use."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

from tasks.addresses import shown
from tasks.errors import SourceFailed, WrongUsage
from tasks.settings import Settings
from tasks.tool_servers import default_namespace, is_remote, list_source
from warehouse import aliases
from warehouse.catalogue import (
    Listing,
    State,
    deliveries,
    diff_states,
    find_state,
    list_names,
    list_tools,
    read_state,
    sync_listing,
)
from warehouse.connection import open_warehouse, utc_now
from warehouse.contracts import contract_of
from warehouse.delivery import find_files
from warehouse.redact import redact_text
from warehouse.storing import tool_row

log = logging.getLogger("toolatlas")


def sync(
    settings: Settings, path: str, source: str | None = None, *, force: bool = False
) -> dict[str, Any]:
    """Make a namespace's catalogue what a file, a server or a module says.

    A server that would remove tools is asked twice: one that lists others the second time changes
    nothing.

    Args:
        settings: Where the warehouse is, how long a server may take, how much may go.
        path: A source as ``tool_servers.list_source`` takes it.
        source: The namespace; default the server's, file's or module's name.
        force: Remove as many tools as the source no longer lists.

    Returns:
        As ``sync_listing``, with ``namespace``, ``tools`` (listed now), and for servers that say
        it ``ttl_ms`` and ``fresh_until`` (UTC).

    Raises:
        SourceFailed: A server did not list its tools, or not twice the same.
    """
    path, name = _located(path)
    listing = list_source(path, timeout_s=settings.catalogue_timeout_s)
    namespace = source or default_namespace(path, listing) or name
    if is_remote(path) and _would_remove(settings, listing, namespace):
        again = list_source(path, timeout_s=settings.catalogue_timeout_s)
        _check_same(listing, again)
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        result = sync_listing(
            con,
            listing,
            namespace,
            source=redact_text(shown(path) if path.startswith("http") else path),
            force=force,
            max_removed=settings.max_removed_share,
        )
    result = {"namespace": namespace, "tools": len(listing.tools), **result}
    if listing.ttl_ms is not None:
        until = utc_now() + timedelta(milliseconds=min(listing.ttl_ms, 10**12))
        result |= {"ttl_ms": listing.ttl_ms, "fresh_until": until.isoformat()}
    log.info(
        "catalogue %s: %d added, %d removed, %d changed",
        namespace,
        len(result["added"]),
        len(result["removed"]),
        len({tool for tools in result["changed"].values() for tool in tools}),
    )
    return result


def _located(path: str) -> tuple[str, str]:
    """A source with its default namespace; files are found as ingest finds them."""
    if is_remote(path) or path.startswith(("python:", "entrypoint:")):
        return path, ""
    found = find_files([path.removeprefix("openapi:")])
    named = {file.name: (file, name) for file, name, _ in found}
    file, name = next(
        (named[key] for key in ("tools.jsonl", "tools.jsonl.gz", "tool_desc.json") if key in named),
        found[0][:2],
    )
    for ending in (".yaml", ".yml"):
        name = name.removesuffix(ending)
    return str(file), name


def _would_remove(settings: Settings, listing: Listing, namespace: str) -> bool:
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        known = read_state(con, namespace)
    return not known.keys() <= {tool.name for tool in listing.tools}


def _check_same(first: Listing, second: Listing) -> None:
    """A server that flaps is not believed."""
    one, two = ({tool.name for tool in listing.tools} for listing in (first, second))
    if one != two:
        odd = ", ".join(sorted(one ^ two)[:5])
        raise SourceFailed(
            f"expected the same tools from a server that was asked twice, got {len(one)} and then "
            f"{len(two)} ({odd} only once): nothing was changed. Try again when it is well."
        )


def diff(settings: Settings, old: str | None = None, new: str | None = None) -> dict[str, Any]:
    """What changed between two states of catalogues, or two files.

    Each is a namespace, ``NAMESPACE@WHEN``, WHEN (``latest``, ``previous``, a delivery's number, a
    UTC time; of all namespaces), or a source as ``sync`` takes it. A namespace alone is compared
    with what it was before its last change; without any, so is the whole catalogue.
    """
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        changes = deliveries(con)
        known = sorted({change["namespace"] for change in changes})
        if old is None:
            if not known:
                raise WrongUsage("expected a catalogue to compare, there is none yet.")
            old, new = (known[0], None) if len(known) == 1 else ("previous", "latest")
        if new is None:
            namespace = old.partition("@")[0]
            if namespace not in known:
                raise WrongUsage(f"expected a second state to compare {old} with, got none.")
            old, new = (f"{namespace}@previous" if old == namespace else old), namespace
        states = [find_state(con, text) for text in (old, new)]
    sides = [
        state or _state_of_source(settings, text, known)
        for state, text in zip(states, (old, new), strict=True)
    ]
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return diff_states(con, *sides)


def _state_of_source(settings: Settings, text: str, known: list[str]) -> State:
    """The tools of a file or server, compared without storing them."""
    if not (
        is_remote(text)
        or text.startswith(("python:", "entrypoint:", "openapi:"))
        or Path(text).exists()
    ):
        raise WrongUsage(
            "expected a namespace, NAMESPACE@WHEN, a delivery, a UTC time or a file, got "
            f"{text!r}; namespaces: {', '.join(known) or 'none yet'}."
        )
    path, _ = _located(text)
    listing = list_source(path, timeout_s=settings.catalogue_timeout_s)
    rows = [tool_row("", tool, 0) for tool in listing.tools]
    return State(text, {row[1]: contract_of(row) for row in rows})


def rename(settings: Settings, old: str, new: str, *, merge: bool = False) -> dict[str, Any]:
    """Let an old name stand for a new one in calls, plans and models; or take that back."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        result = aliases.rename(con, old, new, merge=merge)
    how = "is no longer" if result["undone"] else "now stands for"
    first, second = (
        (result["new"], result["old"]) if result["undone"] else (result["old"], result["new"])
    )
    log.info("catalogue: %s %s %s", first, how, second)
    return result


def deprecate(settings: Settings, name: str, *, undo: bool = False) -> dict[str, Any]:
    """Take a tool out of use, or put it back."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        result = aliases.deprecate(con, name, undo=undo)
    log.info("catalogue: %s is %s", result["tool"], result["status"])
    return result


def tools(settings: Settings) -> dict[str, Any]:
    """Every tool of every catalogue, those that traces call beyond it, and what is odd of names."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        listed = list_tools(con)
        return {"tools": listed, **list_names(con, listed)}
