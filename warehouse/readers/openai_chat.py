"""OpenAI chat messages: a plain list, ``{"messages"}``, a request and response pair, or tau-bench.

Calls are paired with results by position: a result belongs to the nearest earlier call with its id
that has none yet, because ids repeat in practice.
"""

import json
from collections.abc import Iterator
from typing import Any

from warehouse.identity import digest
from warehouse.readers.normalised import as_text
from warehouse.readers.stream import Item
from warehouse.records import Call, Gathered, Record, Rejected, ToolRecord, TrajectoryRecord

_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(m, dict) and m.get("role") in _ROLES and _is_ours(m) for m in value)
    )


def _is_ours(message: dict[str, Any]) -> bool:
    """Content as OpenAI has it: text, nothing, or parts; tool blocks in it are Anthropic's."""
    content = message.get("content")
    if isinstance(content, list):
        kinds = {part.get("type") for part in content if isinstance(part, dict)}
        return not kinds & {"tool_use", "tool_result", "server_tool_use"}
    return content is None or isinstance(content, str)


def is_conversation(value: Any) -> bool:
    """A conversation in any of the wrappers."""
    if not isinstance(value, dict):
        return _is_messages(value)
    pair = isinstance(value.get("request"), dict) and isinstance(value.get("response"), dict)
    return (
        _is_messages(value.get("messages"))
        or _is_messages(value.get("traj"))
        or (
            pair
            and "choices" in value["response"]
            and _is_messages(value["request"].get("messages"))
        )
    )


def is_message(value: Any) -> bool:
    """A single message: the file is one conversation."""
    return (
        isinstance(value, dict)
        and value.get("role") in _ROLES
        and "content" in value
        and _is_ours(value)
    )


def read_conversation(item: Item) -> Iterator[Record]:
    """One conversation; the tools that its request offers come first."""
    value = item.value
    wrapper = value if isinstance(value, dict) else {}
    tau = "traj" in wrapper
    is_pair = isinstance(wrapper.get("request"), dict) and "messages" not in wrapper and not tau
    request = wrapper["request"] if is_pair else wrapper
    if isinstance(value, list):
        messages = value
    elif tau:
        messages = wrapper["traj"]
    else:
        messages = list(request["messages"])
    if isinstance(wrapper.get("response"), dict):
        choices = wrapper["response"].get("choices") or []
        messages += [c["message"] for c in choices[:1] if isinstance(c.get("message"), dict)]
    for tool in request.get("tools") or []:
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            yield _tool(function)
    try:
        calls, orphans = pair_calls(messages, errors_by_text=tau)
    except (KeyError, TypeError, AttributeError) as error:
        yield Rejected(
            item.place,
            f"expected OpenAI chat messages, got {type(error).__name__}: {error}",
            item.raw,
        )
        return
    native_id = next(
        (str(wrapper[key]) for key in ("conversation_id", "thread_id", "id") if wrapper.get(key)),
        None,
    )
    if tau and "task_id" in wrapper:
        native_id = f"task{wrapper['task_id']}-trial{wrapper.get('trial', 0)}"
    if native_id is None and "response" in wrapper:
        # Each later request of a conversation repeats its history: one trajectory that grows.
        opening = [m for m in messages[:8] if m["role"] in ("system", "developer", "user")][:2]
        native_id = f"opening {digest(opening)[:16]}"
    yield TrajectoryRecord(
        request=next((_text(m) for m in messages if m["role"] == "user"), ""),
        calls=calls,
        native_id=native_id,
        meta={key: wrapper[key] for key in ("task_id", "trial", "reward") if key in wrapper},
        orphans=orphans,
    )


def read_messages(item: Item) -> Iterator[Record]:
    """Single messages of one file that make a conversation."""
    told: Gathered = item.value
    value: Any = told.values
    if told.conversation is not None:
        value = {"conversation_id": told.conversation, "messages": told.values}
    yield from read_conversation(Item(item.place, item.text, value))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") or "" for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if part)
    return as_text(content) or ""


def _tool(function: dict[str, Any]) -> ToolRecord:
    schema = function.get("parameters") or {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    required = schema.get("required") or [] if isinstance(schema, dict) else []
    return ToolRecord(
        name=function["name"],
        description=str(function.get("description") or ""),
        parameters=tuple(
            {
                "name": name,
                "type": str(spec.get("type", "")) if isinstance(spec, dict) else "",
                "description": str(spec.get("description", "")) if isinstance(spec, dict) else "",
                "required": name in required,
            }
            for name, spec in (properties or {}).items()
        ),
    )


def pair_calls(
    messages: list[dict[str, Any]], *, errors_by_text: bool = False
) -> tuple[list[Call], list[str]]:
    """The calls of a conversation with their results, and the results that had no call.

    Args:
        messages: OpenAI chat messages in order.
        errors_by_text: tau-bench's tools report failure as text that begins with ``Error``; chat
            messages have no other field for it.
    """
    calls: list[Call] = []
    orphans: list[str] = []
    turn = -1
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            sent = _sent(message)
            if not sent:
                continue
            turn += 1
            for name, arguments, call_id in _without_copies(sent, messages[index + 1 :]):
                calls.append(Call(name=name, turn=turn, arguments=arguments, call_id=call_id))
        elif message["role"] in ("tool", "function"):
            call = _answered(calls, turn, message)
            if call is None:
                orphans.append(_text(message))
                continue
            call.result = _text(message)
            failed = errors_by_text and call.result.startswith("Error")
            call.status = "error" if failed else "ok"
            call.error = call.result[:500] if failed else None
    return calls, orphans


def _sent(message: dict[str, Any]) -> list[tuple[str, Any, str | None]]:
    """(tool, arguments, id) of each call in an assistant message."""
    sent: list[tuple[str, Any, str | None]] = []
    for call in message.get("tool_calls") or []:
        custom = call.get("custom")
        if custom:
            sent.append((custom["name"], {"input": custom.get("input")}, call.get("id")))
        else:
            function = call["function"]
            sent.append((function["name"], function.get("arguments"), call.get("id")))
    old = message.get("function_call")
    if old and not sent:
        sent.append((old["name"], old.get("arguments"), None))
    return sent


def _without_copies(
    sent: list[tuple[str, Any, str | None]], later: list[dict[str, Any]]
) -> list[tuple[str, Any, str | None]]:
    """Calls of one message, equal ones only as often as results come back for their id."""
    results: dict[str | None, int] = {}
    for message in later:
        if message["role"] == "assistant":
            break
        if message["role"] == "tool":
            call_id = message.get("tool_call_id")
            results[call_id] = results.get(call_id, 0) + 1
    kept: list[tuple[str, Any, str | None]] = []
    seen: dict[str, int] = {}
    for name, arguments, call_id in sent:
        same = json.dumps([name, arguments, call_id], sort_keys=True, default=str)
        seen[same] = seen.get(same, 0) + 1
        if call_id is None or seen[same] <= max(1, results.get(call_id, 0)):
            kept.append((name, arguments, call_id))
    return kept


def _answered(calls: list[Call], turn: int, message: dict[str, Any]) -> Call | None:
    """The call that a result message answers, or None.

    Within the latest turn equal ids are answered in order; before it the nearest one counts.
    """
    if message["role"] == "function" or message.get("tool_call_id") is None:
        open_calls = [c for c in calls if c.status == "no_result" and c.turn == turn]
        named = [c for c in open_calls if c.name == message.get("name")]
        return next(iter(named or open_calls), None)
    waiting = [c for c in calls if c.call_id == message["tool_call_id"] and c.status == "no_result"]
    latest = [c for c in waiting if c.turn == turn]
    return latest[0] if latest else waiting[-1] if waiting else None
