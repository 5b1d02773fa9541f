"""Anthropic messages: plain lists, ``{"messages"}``, single messages, and streams of events.

Request and response pairs are read by ``exchanges``. Calls of one assistant message share a turn,
except that what follows a result inside the message (tools that the server runs) was asked for
with that result known, and so begins the next turn.
"""

from collections.abc import Iterator
from typing import Any

from warehouse.readers.evidence import text_of
from warehouse.readers.pairing import Pairing, request_of, settle
from warehouse.readers.schema import parameters_of
from warehouse.readers.sse import sound_events, split_streams
from warehouse.readers.stream import Item, parse
from warehouse.records import (
    Call,
    Ignored,
    Record,
    ToolRecord,
    TrajectoryRecord,
    server_tool,
)

_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_RESULT = "tool_result"
_SILENT = frozenset(
    {
        "text",
        "thinking",
        "redacted_thinking",
        "image",
        "document",
        "search_result",
        "container_upload",
        "compaction",
        "fallback",
    }
)
"""Blocks that are known and hold no call."""
_BEDROCK_USE, _BEDROCK_RESULT = "toolUse", "toolResult"
_BEDROCK_SILENT = frozenset({"text", "reasoningContent", "image", "document", "cachePoint"})
_LOOKED_AT = 8
_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
    }
)


def is_tool_block(block: dict[str, Any]) -> bool:
    """A block that holds a call or its result; Bedrock's Converse API names it by its key."""
    kind = block.get("type")
    if kind is None:
        return _BEDROCK_USE in block or _BEDROCK_RESULT in block
    return type(kind) is str and (kind in _USES or kind.endswith(_RESULT))


def is_use(block: dict[str, Any]) -> bool:
    """A block that calls a tool."""
    kind = block.get("type")
    return type(kind) is str and kind in _USES


def has_tool_block(message: Any) -> bool:
    """A message with at least one such block."""
    content = message.get("content") if isinstance(message, dict) else None
    return type(content) is list and any(
        isinstance(block, dict) and is_tool_block(block) for block in content
    )


def is_request(value: dict[str, Any]) -> bool:
    """The body of a request to the messages API, told by its own keys beside the messages."""
    tools = value.get("tools")
    if isinstance(tools, list) and tools and isinstance(tools[0], dict):
        return "input_schema" in tools[0] and "function" not in tools[0]
    return "mcp_servers" in value or "anthropic_version" in value


def is_messages(value: Any) -> bool:
    """A list of messages of which one of the first holds a call or a result."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and "role" in value[0]
        and any(has_tool_block(message) for message in value[:_LOOKED_AT])
    )


def is_conversation(value: Any) -> bool:
    """A conversation as a list or in a wrapper, or a response on its own."""
    if not isinstance(value, dict):
        return is_messages(value)
    if isinstance(value.get("request"), dict) or "maxTokens" in value:
        return False  # a pair, or MCP's sampling, which has the same blocks
    messages = value.get("messages")
    if messages is None:
        return (
            value.get("type") == "message"
            and value.get("role") == "assistant"
            and isinstance(value.get("content"), list)
            and "stop_reason" in value
        )
    return is_messages(messages) or (
        isinstance(messages, list)
        and bool(messages)
        and isinstance(messages[0], dict)
        and messages[0].get("role") in ("user", "assistant")
        and is_request(value)
    )


def is_event(value: Any) -> bool:
    """One event of a streamed message."""
    kind = value.get("type") if isinstance(value, dict) else None
    if type(kind) is not str or kind not in _EVENTS:
        return False
    if kind == "message_start":
        return isinstance(value.get("message"), dict)
    if kind == "message_delta":
        return isinstance(value.get("delta"), dict)
    return "index" in value or kind in ("message_stop", "ping")


def is_stream(value: Any) -> bool:
    """The events of a streamed message, in order."""
    return isinstance(value, list) and any(
        isinstance(event, dict) and event.get("type") == "message_start" and is_event(event)
        for event in value[:3]
    )


def read_conversation(item: Item) -> Iterator[Record]:
    """One conversation; the tools that it offers come first."""
    value = item.value
    wrapper: dict[str, Any] = value if isinstance(value, dict) else {}
    messages: list[Any] = value if not wrapper else wrapper.get("messages") or [wrapper]
    yield from tool_records(wrapper.get("tools"))
    pairing = pair_messages(messages)
    for what in pairing.ignored:
        yield Ignored(what)
    conversation = next(
        (
            str(wrapper[key])
            for key in ("conversation_id", "thread_id", "session_id")
            if wrapper.get(key) and isinstance(wrapper[key], (str, int))
        ),
        None,
    )
    yield TrajectoryRecord(
        request=request_of(messages),
        calls=pairing.calls,
        native_id=conversation or (str(wrapper["id"]) if wrapper.get("id") else None),
        orphans=pairing.orphans,
        duplicates=pairing.duplicates,
        conversation=conversation,
    )


def read_events(item: Item) -> Iterator[Record]:
    """Single events of one file, in order."""
    yield from read_stream(Item(item.place, item.text, item.value.values))


def read_stream(item: Item) -> Iterator[Record]:
    """One streamed message or several in a row."""
    sound, odd = sound_events(item.value)
    yield from odd
    for events in split_streams(sound):
        message = glued(events)
        if message is None:
            yield Ignored("end of a stream without its beginning")
        else:
            yield from read_conversation(Item(item.place, item.text, message))


def tool_records(tools: Any) -> Iterator[ToolRecord]:
    """Tool definitions of a request; built-in ones have a dated type and no schema."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        told = tool["custom"] if isinstance(tool.get("custom"), dict) else tool
        if isinstance(told.get("name"), str):
            yield ToolRecord(
                told["name"],
                str(told.get("description") or ""),
                parameters_of(told.get("input_schema")),
            )


def pair_messages(messages: list[Any]) -> Pairing:
    """The calls of a list of messages with their results; OpenAI's in between are understood."""
    pairing = Pairing()
    for message in messages:
        add_message(pairing, message)
    return pairing


def calls_of(messages: list[Any]) -> tuple[list[Call], list[str], int]:
    """(calls, results without a call, copies not counted) of a list of messages."""
    pairing = pair_messages(messages)
    return pairing.calls, pairing.orphans, pairing.duplicates


def add_message(pairing: Pairing, message: Any) -> None:
    """One message: its calls, its results, in the order of its blocks."""
    if not isinstance(message, dict):
        pairing.ignored.append("message that is no object")
        return
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        pairing.ignored.append(f"message of the role {str(role)[:40]}")
        return
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        if role == "user":
            pairing.heard()
        return
    sent: list[Call] = []
    callers: list[tuple[Call, str]] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind is None and isinstance(block, dict):
            block = _from_bedrock(block)
            kind = block.get("type")
        if type(kind) is not str:
            pairing.ignored.append(f"block of the type {str(kind)[:40]}")
        elif kind in _USES:
            call = _call(block)
            if call is None:
                pairing.ignored.append(f"block {kind} without a name")
                continue
            sent.append(call)
            caller = block.get("caller")
            if isinstance(caller, dict) and caller.get("tool_id") is not None:
                callers.append((call, str(caller["tool_id"])))
        elif kind.endswith(_RESULT):
            if sent:
                pairing.add(sent)
                sent = []
            _answer(pairing, block)
        elif kind not in _SILENT:
            pairing.ignored.append(f"block of the type {str(kind)[:40]}")
    if sent:
        pairing.add(sent)
        if message.get("stop_reason") in ("max_tokens", "model_context_window_exceeded"):
            _mark_cut(content, sent)
    for call, caller_id in callers:  # known only now: it may stand in this message
        call.parent = pairing.position_of(caller_id)
    if role == "user":
        pairing.heard()


def _from_bedrock(block: dict[str, Any]) -> dict[str, Any]:
    """A block of Bedrock's Converse API as one of the messages API."""
    use, result = block.get(_BEDROCK_USE), block.get(_BEDROCK_RESULT)
    if isinstance(use, dict):
        return {**use, "type": "tool_use", "id": use.get("toolUseId")}
    if isinstance(result, dict):
        return {**result, "type": _RESULT, "is_error": result.get("status") == "error"}
    return {"type": "text"} if _BEDROCK_SILENT & block.keys() else block


def _call(block: dict[str, Any]) -> Call | None:
    name = block.get("name")
    if not isinstance(name, str):
        return None
    server = block.get("server_name") if block["type"] == "mcp_tool_use" else None
    call_id = block.get("id")
    arguments = block.get("input")
    return Call(
        server_tool(server if isinstance(server, str) else None, name),
        0,
        {} if arguments is None else arguments,
        call_id=None if call_id is None else str(call_id),
    )


def _mark_cut(content: list[Any], sent: list[Call]) -> None:
    """A message that ends in a call, cut by the limit: its input was never complete."""
    last = next((block for block in reversed(content) if isinstance(block, dict)), {})
    call = sent[-1]
    if is_use(last) and call.status == "no_result":
        call.status = "incomplete"


def _answer(pairing: Pairing, block: dict[str, Any]) -> None:
    call_id = block.get("tool_use_id", block.get("toolUseId"))
    content = block.get("content")
    result = text_of(content)
    error = None
    if isinstance(content, dict) and str(content.get("type", "")).endswith("_error"):
        error = content.get("error_code") or content.get("error_message") or result
    call_id = None if call_id is None else str(call_id)
    failed = block.get("is_error") is True
    call = pairing.answer(call_id)
    if call is None:
        pairing.lose(call_id, result, failed=failed, error=error)
    else:
        settle(call, result or "", failed=failed, error=error)


def glued(events: list[Any]) -> dict[str, Any] | None:
    """The message that a stream of events amounts to; None where it never began."""
    message: dict[str, Any] | None = None
    blocks: dict[Any, dict[str, Any]] = {}
    parts: dict[Any, list[str]] = {}
    open_blocks: set[Any] = set()
    for event in events:
        kind = event.get("type")
        if kind == "message_start" and isinstance(event.get("message"), dict):
            message = dict(event["message"])
            content = message.get("content")
            for at, block in enumerate(content if isinstance(content, list) else ()):
                if isinstance(block, dict):
                    blocks[at] = block
        elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
            index = event.get("index")
            blocks[index] = dict(event["content_block"])
            open_blocks.add(index)
            parts[index] = []
        elif kind == "content_block_delta" and isinstance(event.get("delta"), dict):
            delta, index = event["delta"], event.get("index")
            if isinstance(delta.get("partial_json"), str):
                parts.setdefault(index, []).append(delta["partial_json"])
            elif isinstance(delta.get("text"), str) and index in blocks:
                blocks[index]["text"] = str(blocks[index].get("text") or "") + delta["text"]
        elif kind == "content_block_stop":
            open_blocks.discard(event.get("index"))
        elif kind == "message_delta" and message is not None:
            message.update(event["delta"] if isinstance(event.get("delta"), dict) else {})
    if message is None and not blocks:
        return None
    for index, block in blocks.items():
        text = "".join(parts.get(index) or ())
        if text.strip() and is_use(block):
            block["input"] = _input(text)
    whole = message or {}
    if open_blocks:  # the stream broke off inside a block
        whole["stop_reason"] = whole.get("stop_reason") or "max_tokens"
    return {
        **whole,
        "type": "message",
        "role": "assistant",
        "content": [blocks[index] for index in sorted(blocks, key=_order)],
    }


def _order(index: Any) -> int:
    return index if isinstance(index, int) else 1 << 30


def _input(text: str) -> Any:
    """The arguments that the deltas spell; what was cut stays text."""
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text
