"""OpenAI Responses: lists of typed items, responses on their own, and streams of events.

Request and response pairs are read by ``exchanges``. The items do not say where one response ends:
calls share a turn until a result, a thought or a message stands between them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from warehouse.readers import clock
from warehouse.readers.evidence import text_of
from warehouse.readers.normalised import as_text
from warehouse.readers.pairing import Pairing, is_telling, is_whole_json, request_of, settle
from warehouse.readers.schema import parameters_of
from warehouse.readers.sse import sound_events, split_streams
from warehouse.readers.stream import Item
from warehouse.records import (
    Call,
    Ignored,
    Record,
    ToolRecord,
    TrajectoryRecord,
    server_tool,
)

_BUILT_IN: dict[str, tuple[str, ...]] = {
    "web_search_call": ("action",),
    "file_search_call": ("queries",),
    "code_interpreter_call": ("code", "container_id"),
    "computer_call": ("action", "actions", "pending_safety_checks"),
    "local_shell_call": ("action",),
    "shell_call": ("action",),
    "apply_patch_call": ("operation",),
    "image_generation_call": ("action", "revised_prompt", "size", "quality", "background"),
    "tool_search_call": ("arguments",),
}
"""Calls that the service knows itself: where their arguments stand."""
_INSIDE: dict[str, tuple[str, ...]] = {
    "file_search_call": ("results",),
    "code_interpreter_call": ("outputs",),
    "web_search_call": ("results",),
}
"""Where a call of the service carries its own result."""
_OUTPUTS = frozenset(
    {
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
        "tool_search_output",
        "program_output",
    }
)
_SHELL_OUTPUT = "local_shell_call_output"
"""Its ``id`` is that of the call."""
_CALLS = frozenset({"function_call", "custom_tool_call", "mcp_call", "program", *_BUILT_IN})
_SILENT = frozenset(
    {
        "additional_tools",
        "compaction",
        "item_reference",
        "mcp_approval_request",
        "mcp_approval_response",
    }
)
"""Items that are known and hold no call of their own."""
_KINDS = _CALLS | _OUTPUTS | _SILENT | {"reasoning", "mcp_list_tools"}
_TELLING = _CALLS | _OUTPUTS | {"mcp_list_tools"}
_LOOKED_AT = 16


def is_item(value: Any) -> bool:
    """A single item that is no message."""
    kind = value.get("type") if isinstance(value, dict) else None
    if type(kind) is not str or kind not in _KINDS:
        return False
    if kind in ("function_call", "custom_tool_call"):
        return "call_id" in value and "name" in value
    if kind in _OUTPUTS:
        return "call_id" in value or kind == _SHELL_OUTPUT
    return "id" in value or "server_label" in value or "call_id" in value


def is_items(value: Any) -> bool:
    """A list of items of which one of the first is a call, a result or a list of tools."""
    return isinstance(value, list) and any(
        is_item(item) and item["type"] in _TELLING for item in value[:_LOOKED_AT]
    )


def is_response(value: Any) -> bool:
    """A response on its own."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("output"), list)
        and (value.get("object") == "response" or is_items(value["output"]))
        and "input" not in value
    )


def is_conversation(value: Any) -> bool:
    """Items as a list or in a wrapper of their own."""
    if not isinstance(value, dict):
        return is_items(value)
    if "request" in value or "response" in value:
        return False
    keys = ("items", "input", "messages", *(("data",) if value.get("object") == "list" else ()))
    return any(is_items(value.get(key)) for key in keys)


def is_event(value: Any) -> bool:
    """One event of a streamed response."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("type"), str)
        and value["type"].startswith("response.")
        and ("sequence_number" in value or "response" in value or "output_index" in value)
    )


def is_stream(value: Any) -> bool:
    """The events of a streamed response, in order."""
    return isinstance(value, list) and bool(value) and is_event(value[0])


def read_items(item: Item) -> Iterator[Record]:
    """A list of items, in a wrapper or plain, with an ``output`` after an ``input``."""
    value = item.value
    wrapper: dict[str, Any] = value if isinstance(value, dict) else {}
    keys = ("items", "messages", "input", "data")
    items: Any = next((wrapper[key] for key in keys if wrapper.get(key)), ())
    if wrapper.get("object") == "list":
        items = _oldest_first(items)
    items = [*items_of(items), *items_of(wrapper.get("output"))] if wrapper else value
    yield from tool_records(wrapper.get("tools"))
    yield from listed_tools(items)
    pairing = pair_items(items)
    for what in pairing.ignored:
        yield Ignored(what)
    conversation = conversation_of(wrapper)
    response_id = wrapper.get("id")
    yield TrajectoryRecord(
        request=request_of(items),
        calls=pairing.calls,
        native_id=conversation or (None if response_id is None else str(response_id)),
        orphans=pairing.orphans,
        duplicates=pairing.duplicates,
        conversation=conversation,
        started_at=clock.moment_of(created_of(wrapper)),
    )


def _oldest_first(items: list[Any]) -> list[Any]:
    """Items as the API lists them: the newest first unless it is asked otherwise."""
    answered: set[Any] = set()
    for item in items:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in _OUTPUTS:
            answered.add(item.get("call_id"))
        elif kind in _CALLS and item.get("call_id") in answered:
            return items[::-1]
    return items


def read_events(item: Item) -> Iterator[Record]:
    """Single events of one file; those of one response stand together."""
    yield from read_stream(Item(item.place, item.text, item.value.values))


def read_stream(item: Item) -> Iterator[Record]:
    """One streamed response or several in a row."""
    sound, odd = sound_events(item.value)
    yield from odd
    for events in split_streams(sound):
        yield from read_items(Item(item.place, item.text, glued(events)))


def conversation_of(value: dict[str, Any]) -> str | None:
    """The conversation that a request or response names: an id, or an object with one."""
    for key in ("conversation", "conversation_id", "thread_id", "session_id"):
        told = value.get(key)
        if isinstance(told, dict):
            told = told.get("id")
        if told and isinstance(told, (str, int)):
            return str(told)
    return None


def created_of(value: dict[str, Any]) -> int | None:
    """When a response was created, in nanoseconds; both APIs tell seconds."""
    for key in ("created_at", "created"):
        told = value.get(key)
        if isinstance(told, (int, float)) and not isinstance(told, bool) and told > 0:
            return clock.nanoseconds(int(told) * 1_000_000_000)
    return None


def items_of(value: Any) -> list[Any]:
    """Items of an input, which may be a mere text."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return value if isinstance(value, list) else []


def tool_records(tools: Any, namespace: str | None = None) -> Iterator[ToolRecord]:
    """Tool definitions of a request: functions, custom tools, and groups of them."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        name = tool.get("name")
        if tool.get("type") == "namespace":
            yield from tool_records(tool.get("tools"), name if isinstance(name, str) else None)
        elif isinstance(name, str):
            schema = tool.get("parameters") or tool.get("input_schema")
            parameters = parameters_of(schema)
            if tool.get("type") == "custom":
                parameters = (
                    {"name": "input", "type": "string", "description": "", "required": True},
                )
            yield ToolRecord(
                name, str(tool.get("description") or ""), parameters, namespace=namespace
            )


def listed_tools(items: Iterable[Any]) -> Iterator[ToolRecord]:
    """The tools that MCP servers listed."""
    for item in items:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in ("mcp_list_tools", "additional_tools", "tool_search_output"):
            label = item.get("server_label")
            yield from tool_records(item.get("tools"), label if isinstance(label, str) else None)


def pair_items(items: Iterable[Any], *, into: Pairing | None = None) -> Pairing:
    """The calls of a list of items with their results."""
    pairing = Pairing() if into is None else into
    sent: list[Call] = []
    callers: list[tuple[Call, str]] = []
    programs: dict[str, str] = {}

    def tell() -> None:
        nonlocal sent
        if sent:
            pairing.add(sent)
            sent = []

    for item in items:
        if not isinstance(item, dict):
            pairing.ignored.append("item that is no object")
            continue
        kind = item.get("type")
        if type(kind) is not str:
            kind = str(kind) if kind is not None else ""
        if kind in _CALLS:
            call = _call(item)
            if call is None:
                pairing.ignored.append(f"item {kind} without a name")
                continue
            sent.append(call)
            if kind == "program" and item.get("id") is not None and call.call_id is not None:
                programs[str(item["id"])] = call.call_id
            caller = item.get("caller")
            if isinstance(caller, dict) and caller.get("caller_id") is not None:
                callers.append((call, str(caller["caller_id"])))
        elif kind in _OUTPUTS:
            tell()
            _answer(pairing, item)
        elif kind == "reasoning" or kind == "message" or "role" in item:
            tell()
            pairing.heard()
        elif kind not in _KINDS:
            pairing.ignored.append(f"item of the type {str(kind)[:40]}")
    tell()
    for call, caller_id in callers:
        call.parent = pairing.position_of(programs.get(caller_id, caller_id))
    return pairing


def _call(item: dict[str, Any]) -> Call | None:
    kind: str = item["type"]
    name = item.get("name")
    result: Any = None
    error: Any = None
    if kind == "function_call":
        arguments = item.get("arguments")
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif kind == "mcp_call":
        arguments, result, error = item.get("arguments"), item.get("output"), item.get("error")
    elif kind == "program":
        name, arguments = "program", {"code": item.get("code")}
    else:
        name = kind.removesuffix("_call")
        arguments = {key: item[key] for key in _BUILT_IN[kind] if item.get(key) is not None}
        if kind == "tool_search_call":
            arguments = item.get("arguments")
        for key in _INSIDE.get(kind, ()):
            result = item.get(key) or result
    if not isinstance(name, str):
        return None
    server = item.get("server_label") if kind == "mcp_call" else item.get("namespace")
    call_id = item.get("call_id")
    if call_id is None:
        call_id = item.get("id")
    call = Call(
        server_tool(server if isinstance(server, str) else None, name),
        0,
        arguments,
        call_id=None if call_id is None else str(call_id),
        uid=str(item["id"]) if is_telling(item.get("id")) else None,
    )
    status = item.get("status")
    if error or status == "failed":
        settle(call, text_of(result), failed=True, error=error or None)
        if error:
            call.error = (_error_text(error) or "")[:500]
    elif result is not None:
        settle(call, text_of(result))
    elif status in ("in_progress", "incomplete", "searching", "interpreting", "generating"):
        call.status = "incomplete"
    elif status == "completed" and kind in _BUILT_IN and "call_id" not in item:
        call.status = "ok"  # the service ran it and shows nothing of the result
    return call


def _error_text(error: Any) -> str | None:
    if isinstance(error, dict):
        for key in ("message", "content"):
            if error.get(key):
                return text_of(error[key])
    return as_text(error)


def _answer(pairing: Pairing, item: dict[str, Any]) -> None:
    call_id = item.get("call_id")
    if call_id is None and item["type"] == _SHELL_OUTPUT:
        call_id = item.get("id")
    told = item.get("output") if item.get("output") is not None else item.get("result")
    if told is None and item["type"] == "tool_search_output":
        told = item.get("tools")
    if item["type"] == "shell_call_output":
        told = _shell_text(told)
    result = text_of(told)
    call_id = None if call_id is None else str(call_id)
    failed = item.get("status") == "failed" or item.get("is_error") is True
    call = pairing.answer(call_id)
    if call is None:
        pairing.lose(call_id, result, failed=failed, error=item.get("error"))
    elif item.get("status") in ("incomplete", "in_progress") and not result:
        call.status = "incomplete"
    else:
        settle(call, result or "", failed=failed, error=item.get("error"))


def _shell_text(output: Any) -> Any:
    """What a shell wrote, both of its streams."""
    if not isinstance(output, list):
        return output
    texts = [
        part[key]
        for part in output
        if isinstance(part, dict)
        for key in ("stdout", "stderr")
        if isinstance(part.get(key), str) and part[key]
    ]
    return "\n".join(texts) if texts else output


def mark_cut(calls: Iterable[Call], status: Any) -> None:
    """Calls of a response that was cut, with arguments that break off."""
    if status in ("incomplete", "in_progress", "cancelled"):
        for call in calls:
            if call.status == "no_result" and not is_whole_json(call.arguments):
                call.status = "incomplete"


def glued(events: list[Any]) -> dict[str, Any]:
    """The response that a stream of events amounts to, even if it broke off."""
    response: dict[str, Any] = {}
    items: dict[Any, dict[str, Any]] = {}
    parts: dict[tuple[Any, str], list[str]] = {}
    whole = False
    for event in events:
        kind = str(event.get("type"))
        if isinstance(event.get("response"), dict):
            response = {**response, **event["response"]}
            whole = kind in ("response.completed", "response.incomplete", "response.failed")
        elif kind in ("response.output_item.added", "response.output_item.done"):
            if isinstance(event.get("item"), dict):
                items[event.get("output_index")] = dict(event["item"])
                if kind.endswith("done"):
                    done = event.get("output_index")
                    parts = {key: texts for key, texts in parts.items() if key[0] != done}
        elif kind.endswith((".delta", ".done")) and _field_of(kind) is not None:
            index, field = event.get("output_index"), str(_field_of(kind))
            if kind.endswith(".done"):
                parts.pop((index, field), None)
                if index in items and isinstance(event.get(field), str):
                    items[index][field] = event[field]
            elif isinstance(event.get("delta"), str):
                parts.setdefault((index, field), []).append(event["delta"])
    for (index, field), texts in parts.items():  # told in pieces, and never as a whole
        if index in items:
            items[index][field] = "".join(texts)
    if whole and response.get("output"):
        return response
    output = [items[index] for index in sorted(items, key=_order)]
    for item in output:
        told = item.get("type")
        is_call = type(told) is str and told in _CALLS
        if is_call and not whole and item.get("status") is None:
            item["status"] = "incomplete"
    return {**response, "output": output, "object": "response"}


def _field_of(kind: str) -> str | None:
    """The field of an item that an event tells piece by piece."""
    if "_call_arguments." in kind:
        return "arguments"
    if "custom_tool_call_input." in kind:
        return "input"
    if "code_interpreter_call_code." in kind:
        return "code"
    return None


def _order(index: Any) -> int:
    return index if isinstance(index, int) else 1 << 30
