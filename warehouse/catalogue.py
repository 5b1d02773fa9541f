"""The tools known at a time: synced from a source, compared over time, and listed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from warehouse.aliases import list_nodes
from warehouse.connection import transaction
from warehouse.contracts import (
    Contract,
    common_spellings,
    compare,
    contract_of,
    likely_renames,
    same_contracts,
)
from warehouse.delivery import check_source
from warehouse.errors import UnreadableInput, UnsafeSync
from warehouse.graph import unlisted_tools
from warehouse.readers.carriers import iter_items
from warehouse.readers.mcp_tools import MORE_PAGES
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item, open_bytes
from warehouse.records import DeclaredEdge, Ignored, Rejected, ToolRecord
from warehouse.storing import append_tools, store_edges, tool_row

SMALL = 5
"""Catalogues with fewer tools may change by more than the share that is allowed."""


@dataclass(slots=True)
class Listing:
    """What a source lists.

    Attributes:
        tools: The last contract of each name.
        edges: Declared edges among them.
        notes: What was passed over, and odd things about the source.
        is_complete: False where the source says that there is more than this.
        ttl_ms: For how long the source says that the list stays as it is.
        server: The name that the source gives itself.
    """

    tools: list[ToolRecord] = field(default_factory=list)
    edges: list[DeclaredEdge] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_complete: bool = True
    ttl_ms: int | None = None
    server: str | None = None


def read_tools(path: Path) -> list[ToolRecord]:
    """The tools of a catalogue file, the last contract of each name.

    Raises:
        UnreadableInput: The file holds no tool, or a record that is none.
    """
    return read_listing(path).tools


def read_listing(path: Path) -> Listing:
    """Everything that a catalogue file lists: tools.jsonl, tool_desc, OpenAPI, tools/list, ...

    Raises:
        UnreadableInput: The file holds no tool, or a record that is none.
    """
    with open_bytes(path) as file:
        return listing_of(iter_items(file), str(path))


def listing_of(items: Iterable[Item], name: str) -> Listing:
    """The tools and edges of some items.

    Raises:
        UnreadableInput: They hold no tool, or a record that is none.
    """
    tools: dict[tuple[str | None, str], ToolRecord] = {}
    listing = Listing()
    for item in items:
        shape = shape_of(item.value) if item.error is None else None
        found = False
        if shape is not None and shape.gathered:
            raise _not_tools(name, item, f"a record of {shape.format}")
        for record in shape.read(item) if shape else ():
            match record:
                case ToolRecord():
                    tools[record.namespace, record.name] = record
                    listing.is_complete = found = True
                case DeclaredEdge():
                    listing.edges.append(record)
                    found = True
                case Ignored():
                    listing.notes.append(record.what)
                    if record.what == MORE_PAGES:
                        listing.is_complete = False
                case Rejected():
                    raise _not_tools(name, item, record.reason)
                case _:
                    raise _not_tools(name, item, "another record")
        if not found:
            what = "; ".join(listing.notes) if shape and listing.notes else "another record"
            raise _not_tools(name, item, item.error or what)
    if not tools:
        raise UnreadableInput(f"expected tools in {name}, the file is empty: nothing was changed.")
    listing.tools = list(tools.values())
    return listing


def _not_tools(name: str, item: Item, got: str) -> UnreadableInput:
    return UnreadableInput(
        f"expected tools in {name}, got {got} at {item.place}: nothing was changed."
    )


# --- sync -----------------------------------------------------------------------------------------


def sync_catalogue(
    con: duckdb.DuckDBPyConnection, path: Path, namespace: str, *, force: bool = False
) -> dict[str, Any]:
    """Make the catalogue of a namespace exactly what a file says; see ``sync_listing``."""
    return sync_listing(con, read_listing(path), namespace, source=str(path), force=force)


def sync_listing(
    con: duckdb.DuckDBPyConnection,
    listing: Listing,
    namespace: str,
    *,
    source: str = "",
    force: bool = False,
    max_removed: float = 0.5,
) -> dict[str, Any]:
    """Make the catalogue of a namespace exactly what a source lists.

    Args:
        con: A writing connection.
        listing: What the source lists. One that is not complete removes nothing.
        namespace: Of the tools whose record names no server.
        source: Noted with the change.
        force: Remove as many tools as the source no longer lists.
        max_removed: Share of a catalogue's tools that one sync may remove.

    Returns:
        ``added`` (``returned``: those of them that were there before), ``removed``, ``changed``
        (names by kind, see ``contracts.KINDS``), ``renamed`` ([old, new]: a removed and an added
        tool that differ in nothing but the name), ``deprecated`` (newly, by the source),
        ``declared_edges``, ``alarm`` (whether more than wording changed), ``notes``.

    Raises:
        UnsafeSync: More tools would go than ``max_removed`` allows, or all of them.
    """
    check_source(namespace)
    result: dict[str, Any] = {"added": [], "removed": [], "changed": {}, "renamed": []}
    by_namespace: dict[str, dict[str, ToolRecord]] = {}
    for tool in listing.tools:
        by_namespace.setdefault(tool.namespace or namespace, {})[tool.name] = tool
    with transaction(con):
        delivery = con.execute("select nextval('delivery_number')").fetchall()[0][0]
        for owner, tools in sorted((by_namespace or {namespace: {}}).items()):
            check_source(owner)
            one = _sync(
                con, tools, owner, delivery, source, listing.is_complete, force, max_removed
            )
            _merge(result, one, "" if owner == namespace else f"{owner}/")
        if listing.edges:
            con.execute("delete from declared_edge where source = ?", [namespace])
            store_edges(con, listing.edges, namespace)
    changed = {kind: names for kind, names in result["changed"].items() if kind != "description"}
    return {
        **result,
        "declared_edges": len(set(listing.edges)),
        "alarm": bool(result["added"] or result["removed"] or any(changed.values())),
        "notes": list(dict.fromkeys(listing.notes)),
    }


def _merge(result: dict[str, Any], one: Mapping[str, Any], prefix: str) -> None:
    for key, value in one.items():
        if isinstance(value, dict):
            _merge(result.setdefault(key, {}), value, prefix)
        else:
            result.setdefault(key, []).extend(_prefixed(entry, prefix) for entry in value)


def _prefixed(entry: Any, prefix: str) -> Any:
    return [prefix + part for part in entry] if isinstance(entry, list) else prefix + entry


def _sync(
    con: duckdb.DuckDBPyConnection,
    tools: Mapping[str, ToolRecord],
    namespace: str,
    delivery: int,
    source: str,
    is_complete: bool,
    force: bool,
    max_removed: float,
) -> dict[str, Any]:
    """One namespace inside the caller's transaction."""
    current = read_state(con, namespace, with_removed=True)
    before = {name: c for name, c in current.items() if c.status != "removed"}
    rows = {row[1]: row for row in (tool_row(namespace, t, delivery) for t in tools.values())}
    after = {name: contract_of(row) for name, row in rows.items()}
    if not is_complete:
        after = {**before, **after}
    found = compare(before, after)
    gone = {name: before[name] for name in found["removed"]}
    new = {name: after[name] for name in found["added"]}
    renamed = same_contracts(gone, new)
    if not force:
        _check_safe(namespace, before, after, len(gone) - len(renamed), max_removed)
    stored = [
        row
        for name, row in sorted(rows.items())
        if name not in current
        or (current[name].contract_hash, current[name].status) != (row[2], row[7])
    ]
    for name, c in gone.items():
        contents = [c.contract_hash, c.description, c.parameters, c.input_types, c.output_types]
        stored.append([namespace, name, *contents, "removed", delivery])
    append_tools(con, stored, source or None)
    deprecated = sorted(
        name
        for name, contract in after.items()
        if contract.status == "deprecated"
        and (name not in before or before[name].status != "deprecated")
    )
    returned = [name for name in found["added"] if name in current]
    return {**found, "renamed": renamed, "returned": returned, "deprecated": deprecated}


def _check_safe(
    namespace: str,
    before: Mapping[str, Contract],
    after: Mapping[str, Contract],
    num_lost: int,
    max_removed: float,
) -> None:
    """A source that fails half-way must not empty a catalogue."""
    is_all = bool(before) and (not after or (len(before) > 1 and num_lost == len(before)))
    is_much = len(before) >= SMALL and num_lost > max_removed * len(before)
    if is_all or is_much:
        raise UnsafeSync(
            f"expected the catalogue of {namespace} to keep most of its {len(before)} tools, but "
            f"the source lists {len(after)} tools and would remove {num_lost}: nothing was "
            "changed. If that is right, sync with --force."
        )
    if not before and not after:
        raise UnreadableInput(
            f"expected tools for the catalogue of {namespace}, got an empty list: nothing was "
            "changed."
        )


# --- states and their difference ------------------------------------------------------------------


def read_state(
    con: duckdb.DuckDBPyConnection,
    namespace: str | None,
    delivery: int | None = None,
    *,
    with_removed: bool = False,
) -> dict[str, Contract]:
    """Contracts as they were after a delivery (now: None), by name, or by key of all namespaces."""
    rows = con.execute(
        "select case when ? is null then namespace || '/' || name else name end, description, "
        "parameters, input_types, output_types, contract_hash, status from tool_version "
        "where (? is null or namespace = ?) and (? is null or delivery <= ?) "
        "qualify row_number() over "
        "(partition by namespace, name order by delivery desc, parameters <> '[]' desc, "
        "contract_hash desc) = 1",
        [namespace, namespace, namespace, delivery, delivery],
    ).fetchall()
    return {row[0]: Contract(*row[1:]) for row in rows if with_removed or row[6] != "removed"}


@dataclass(frozen=True, slots=True)
class State:
    """A catalogue at a time, with how to call it."""

    label: str
    tools: Mapping[str, Contract]


def find_state(con: duckdb.DuckDBPyConnection, text: str) -> State | None:
    """The state that a text names; None where it is nothing of ours.

    ``NAMESPACE`` (as it is now), ``NAMESPACE@WHEN`` or ``WHEN`` (all namespaces), where WHEN is
    ``latest``, ``previous``, the number of a delivery, or a UTC time.
    """
    namespaces = {
        row[0] for row in con.execute("select distinct namespace from tool_version").fetchall()
    }
    if text in namespaces:
        return State(text, read_state(con, text))
    namespace, at, when = text.rpartition("@")
    if at and namespace not in namespaces:
        return None
    delivery = _delivery(con, namespace if at else None, when)
    if delivery is None:
        return None
    owner = namespace if at else None
    label = f"{namespace}@{delivery}" if at else str(delivery)
    return State(label, read_state(con, owner, delivery))


def _delivery(con: duckdb.DuckDBPyConnection, namespace: str | None, when: str) -> int | None:
    """The delivery that a text means; 0 is before the first."""
    changes = [
        row[0]
        for row in con.execute(
            "select distinct delivery from tool_version where ? is null or namespace = ? "
            "order by delivery desc",
            [namespace, namespace],
        ).fetchall()
    ]
    if when == "latest":
        return changes[0] if changes else None
    if when == "previous":
        return changes[1] if len(changes) > 1 else 0 if changes else None
    if when.isdigit() and len(when) < 19:
        return int(when)
    try:
        moment = datetime.fromisoformat(when)
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    found = con.execute(
        "select coalesce(max(delivery), 0) from catalogue_delivery "
        "where (? is null or namespace = ?) and delivered_at <= ?",
        [namespace, namespace, moment],
    ).fetchall()
    return int(found[0][0])


def deliveries(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Every change of a catalogue, the newest first."""
    rows = con.execute(
        "select v.namespace, v.delivery, d.delivered_at, d.source, count(*) from tool_version v "
        "left join catalogue_delivery d using (namespace, delivery) "
        "group by all order by v.delivery desc, v.namespace"
    ).fetchall()
    names = ("namespace", "delivery", "delivered_at", "source", "tools")
    return [dict(zip(names, row, strict=True)) for row in rows]


def diff_states(con: duckdb.DuckDBPyConnection, old: State, new: State) -> dict[str, Any]:
    """What came, went and changed from one state to another, and what was likely renamed."""
    found = compare(old.tools, new.tools)
    gone = {name: old.tools[name] for name in found["removed"]}
    came = {name: new.tools[name] for name in found["added"]}
    touched = sorted({name for names in found["changed"].values() for name in names})
    return {
        "from": old.label,
        "to": new.label,
        **found,
        "likely_renames": likely_renames(con, gone, came),
        "deprecated": sorted(
            name
            for name, contract in new.tools.items()
            if contract.status == "deprecated"
            and (name not in old.tools or old.tools[name].status != "deprecated")
        ),
        "details": {name: _details(old.tools[name], new.tools[name]) for name in touched},
    }


def _details(old: Contract, new: Contract) -> dict[str, Any]:
    """Which parameters changed, and the fingerprints of both contracts."""
    before = {str(p.get("name")): p for p in old.declared}
    after = {str(p.get("name")): p for p in new.declared}
    return {
        "parameters_added": [name for name in new.names if name not in before],
        "parameters_removed": [name for name in old.names if name not in after],
        "parameters_changed": [
            name for name in new.names if name in before and before[name] != after[name]
        ],
        "from": old.fingerprints(),
        "to": new.fingerprints(),
    }


# --- the list -------------------------------------------------------------------------------------


def list_tools(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Every tool with its status and calls; unlisted ones with their nearest listed names.

    ``versions`` counts the contracts that a tool has had, under former names too.
    """
    list_nodes(con)
    rows = con.execute(
        "with version as ("
        "  select coalesce(r.target_namespace, v.namespace) as namespace, "
        "    coalesce(r.target_name, v.name) as name, count(distinct v.contract_hash) as versions "
        "  from tool_version v left join tool_rename r using (namespace, name) group by 1, 2"
        ") select namespace, name, status, description, "
        "coalesce(num_succeeded, 0), coalesce(num_calls - num_succeeded, 0), coalesce(versions, 0) "
        "from node left join version using (namespace, name) "
        "left join called_tool using (namespace, name) order by key"
    ).fetchall()
    names = ("namespace", "name", "status", "description", "calls", "failed", "versions")
    listed = [dict(zip(names, row, strict=True)) for row in rows]
    return listed + [
        {
            "namespace": tool["namespace"],
            "name": tool["name"],
            "status": "unlisted",
            "description": "",
            "calls": tool["calls"] - tool["failed"],
            "failed": tool["failed"],
            "nearest": tool["nearest"],
        }
        for tool in unlisted_tools(con)
    ]


def list_names(
    con: duckdb.DuckDBPyConnection, tools: Sequence[Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """What is odd about names: ``ambiguous``, ``likely_aliases``, ``renamed``.

    Args:
        con: A connection.
        tools: As ``list_tools`` gives them.
    """
    ambiguous = con.execute(
        "select n.call_namespace, n.call_name, n.fitting, count(*) from client_name n "
        "join call c on c.namespace = n.call_namespace and c.name = n.call_name "
        "where n.num_fitting > 1 group by all order by 1, 2"
    ).fetchall()
    by_namespace: dict[str, list[str]] = {}
    for tool in tools:
        by_namespace.setdefault(tool["namespace"], []).append(tool["name"])
    renamed = con.execute(
        "select namespace || '/' || name, target_namespace || '/' || target_name, renamed_at "
        "from tool_alias where kind <> 'undone' order by 1"
    ).fetchall()
    return {
        "ambiguous": [
            {"namespace": namespace, "name": name, "fits": fits, "calls": calls}
            for namespace, name, fits, calls in ambiguous
        ],
        "likely_aliases": [
            {"namespace": namespace, "names": group}
            for namespace, names in sorted(by_namespace.items())
            for group in common_spellings(names)
        ],
        "renamed": [
            {"old": old, "new": new, "renamed_at": when.isoformat()} for old, new, when in renamed
        ],
    }
