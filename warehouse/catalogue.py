"""The tools known at a time: synced from a source, with what changed."""

import json
from pathlib import Path
from typing import Any

import duckdb

from warehouse.connection import query, transaction
from warehouse.errors import UnreadableInput
from warehouse.graph import unlisted_tools
from warehouse.readers.carriers import iter_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import open_bytes
from warehouse.records import ToolRecord
from warehouse.storing import append_tools, tool_row


def read_tools(path: Path) -> list[ToolRecord]:
    """The tools of a catalogue file, the last contract of each name.

    Raises:
        UnreadableInput: The file holds no tool, or a record that is none.
    """
    tools: dict[str, ToolRecord] = {}
    with open_bytes(path) as file:
        for item in iter_items(file):
            shape = shape_of(item.value) if item.error is None else None
            records = list(shape.read(item)) if shape else []
            found = [record for record in records if isinstance(record, ToolRecord)]
            if not found:
                raise UnreadableInput(
                    f"expected tools in {path}, got {item.error or 'another record'} at "
                    f"{item.place}: nothing was changed."
                )
            tools.update({tool.name: tool for tool in found})
    if not tools:
        raise UnreadableInput(f"expected tools in {path}, the file is empty: nothing was changed.")
    return list(tools.values())


def sync_catalogue(con: duckdb.DuckDBPyConnection, path: Path, namespace: str) -> dict[str, Any]:
    """Make the catalogue of a namespace exactly what the file says.

    Returns:
        ``added``, ``removed``, ``changed`` (``parameters``, ``required``, ``description``: names by
        what changed) and ``renamed`` ([old, new]: a removed and an added tool that differ in
        nothing but the name).
    """
    wanted = {tool.name: tool for tool in read_tools(path)}
    current = _current(con, namespace)
    listed = {name for name, row in current.items() if row["status"] != "removed"}
    added, removed = sorted(wanted.keys() - listed), sorted(listed - wanted.keys())
    changed: dict[str, list[str]] = {"parameters": [], "required": [], "description": []}
    with transaction(con):
        delivery = con.execute("select nextval('delivery_number')").fetchall()[0][0]
        contracts: dict[str, str] = {}
        rows: list[list[Any]] = []
        for name, tool in sorted(wanted.items()):
            row = tool_row(namespace, tool, delivery)
            contracts[name] = row[2]
            old = current.get(name)
            if old and old["contract_hash"] == row[2] and old["status"] == "active":
                continue
            if name in listed and old:
                for kind in _changes(old, row):
                    changed[kind].append(name)
            rows.append(row)
        for name in removed:
            contract = [current[name][column] for column in _COLUMNS[:-1]]
            rows.append([namespace, name, *contract, "removed", delivery])
        append_tools(con, rows)
    renamed = [
        [old, new]
        for old in removed
        for new in added
        if contracts[new] == current[old]["contract_hash"]
    ]
    return {"added": added, "removed": removed, "changed": changed, "renamed": renamed}


_COLUMNS = (
    "contract_hash",
    "description",
    "parameters",
    "input_types",
    "output_types",
    "status",
)


def _current(con: duckdb.DuckDBPyConnection, namespace: str) -> dict[str, dict[str, Any]]:
    rows = con.execute(
        "select name, contract_hash, description, parameters, input_types, output_types, status "
        "from tool_version where namespace = ? qualify row_number() over "
        "(partition by name order by delivery desc, contract_hash desc) = 1",
        [namespace],
    ).fetchall()
    return {row[0]: dict(zip(_COLUMNS, row[1:], strict=True)) for row in rows}


def _changes(old: dict[str, Any], new: list[Any]) -> list[str]:
    """What kind of change lies between two contracts."""
    kinds = []
    before, after = json.loads(old["parameters"]), json.loads(new[4])
    if (
        _shape(before) != _shape(after)
        or old["input_types"] != new[5]
        or old["output_types"] != new[6]
    ):
        kinds.append("parameters")
    if _required(before) != _required(after):
        kinds.append("required")
    told = [p.get("description") for p in before] != [p.get("description") for p in after]
    if old["description"] != new[3] or (told and not kinds):
        kinds.append("description")
    return kinds


def _shape(parameters: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((str(p.get("name")), str(p.get("type"))) for p in parameters)


def _required(parameters: list[dict[str, Any]]) -> set[str]:
    return {str(p.get("name")) for p in parameters if p.get("required")}


def list_tools(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Every tool with its status and calls; unlisted ones with their nearest listed names."""
    con.execute(query("node"))
    rows = con.execute(
        "select namespace, name, status, description, num_ok + num_unrecorded, num_failed "
        "from node order by key"
    ).fetchall()
    names = ("namespace", "name", "status", "description", "calls", "failed")
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
