"""Saved tool lists: MCP's tools/list results, and the lists that OpenAI and Anthropic take.

A list may stand alone, in a ``tools`` field, or in the JSON-RPC response that carried it; a tool is
told by where it keeps its input schema.
"""

import json
from collections.abc import Iterator
from typing import Any

from warehouse.readers.schema import parameters_of
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Record, Rejected, ToolRecord

MORE_PAGES = "a list of tools that goes on (nextCursor): the file holds only this page"

_RESULT_KEYS = {
    "tools", "nextCursor", "ttlMs", "cacheScope", "resultType", "_meta", "meta", "serverInfo",
    "functionDeclarations", "server", "server_name", "serverName", "name", "version", "title",
    "description", "$schema", "instructions", "protocolVersion", "capabilities",
}  # fmt: skip
"""A list of tools has no others: requests and conversations carry ``tools`` too."""

_TOOL_KEYS = {
    "name", "title", "description", "inputSchema", "input_schema", "outputSchema", "annotations",
    "icons", "execution", "_meta", "meta", "type", "cache_control", "function", "parameters",
    "strict", "server", "response", "parametersJsonSchema", "defer_loading", "input_examples",
    "allowed_callers",
}  # fmt: skip
_PROBED = 3


def is_tool_list(value: Any) -> bool:
    """A tools/list result, the JSON-RPC response around one, or a single tool with a schema."""
    if isinstance(value, list):
        return any(_is_tool(tool) for tool in value[:_PROBED])
    if not isinstance(value, dict):
        return False
    if _is_tool(value):
        return True
    result = value.get("result") if "jsonrpc" in value else value
    if not isinstance(result, dict) or not result.keys() <= _RESULT_KEYS:
        return False
    for key in ("tools", "functionDeclarations"):
        tools = result.get(key)
        if isinstance(tools, list):
            head = tools[:_PROBED]
            return not head or any(_is_tool(tool) or _is_tool_list_part(tool) for tool in head)
    return False


def _is_tool_list_part(value: Any) -> bool:
    """One of Gemini's groups of functions."""
    return isinstance(value, dict) and value.keys() == {"functionDeclarations"}


def _is_tool(value: Any) -> bool:
    if not isinstance(value, dict) or not value.keys() <= _TOOL_KEYS:
        return False
    function = value.get("function")
    if isinstance(function, dict):
        return isinstance(function.get("name"), str) and value.get("type", "function") == "function"
    if not isinstance(value.get("name"), str):
        return False
    if isinstance(value.get("inputSchema"), dict) or isinstance(value.get("input_schema"), dict):
        return True
    parameters = value.get("parameters")
    is_schema = isinstance(parameters, dict) and str(parameters.get("type")).lower() in _OBJECTS
    return is_schema or (value.get("type") == "function" and parameters in (None, {}))


_OBJECTS = ("object", "dict")


def read_tool_list(item: Item) -> Iterator[Record]:
    """Every tool of one list."""
    value = item.value
    result = value["result"] if isinstance(value, dict) and "jsonrpc" in value else value
    server, tools = None, result
    if isinstance(result, dict) and not _is_tool(result):
        tools = result.get("tools", result.get("functionDeclarations"))
        server = _server(result)
    elif isinstance(result, dict):
        tools = [result]
    for tool in tools:
        for one in tool["functionDeclarations"] if _is_tool_list_part(tool) else [tool]:
            record = tool_record(one, server)
            if record is not None:
                yield record
            elif isinstance(one, dict) and isinstance(one.get("type"), str):
                yield Ignored(f"a tool that its provider runs: {one['type']}")
            else:
                raw = json.dumps(one, ensure_ascii=False)
                yield Rejected(item.place, "expected a tool with a name and a schema", raw)
    if isinstance(result, dict) and result.get("nextCursor"):
        yield Ignored(MORE_PAGES)


def _server(result: dict[str, Any]) -> str | None:
    """The server that a saved list names itself."""
    info = result.get("serverInfo")
    named = (result.get(key) for key in ("server", "server_name", "serverName"))
    found = next((name for name in named if isinstance(name, str) and name), None)
    if found is None and isinstance(info, dict) and isinstance(info.get("name"), str):
        found = info["name"]
    return found and found.replace("/", "_")


def tool_record(tool: Any, server: str | None = None) -> ToolRecord | None:
    """One tool of any of the lists; None where it has no name."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    schema: Any = next(
        (
            function[key]
            for key in ("inputSchema", "input_schema", "parameters", "parametersJsonSchema")
            if isinstance(function.get(key), dict)
        ),
        {},
    )
    described = function.get("description") or _title(function)
    output = function.get("outputSchema", function.get("response"))
    return ToolRecord(
        name=function["name"],
        description=str(described or ""),
        parameters=parameters_of(schema),
        output_types=output_types_of(output),
        namespace=server
        or (function["server"] if isinstance(function.get("server"), str) else None),
    )


def _title(function: dict[str, Any]) -> Any:
    annotations = function.get("annotations")
    hinted = annotations.get("title") if isinstance(annotations, dict) else None
    return function.get("title") or hinted


def output_types_of(schema: Any) -> tuple[str, ...]:
    """What a result holds: ``name:type`` of an object's fields, or the type of anything else."""
    if not isinstance(schema, dict) or not schema:
        return ()
    fields = tuple(f"{p['name']}:{p['type']}" for p in parameters_of(schema))
    if fields:
        return fields
    wrapped = parameters_of({"properties": {"": schema}, **_definitions(schema)})
    return tuple(kind for p in wrapped for kind in str(p["type"]).split("|") if kind)


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}
