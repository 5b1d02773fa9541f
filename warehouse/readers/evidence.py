"""What readers of messages and events share: pairing, evidence of failure, texts, digests."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import msgspec

from warehouse.readers.normalised import as_text
from warehouse.readers.schema import parameters_of
from warehouse.readers.stream import parse
from warehouse.records import Call, ToolRecord, server_tool

_SHOWN = 500
_ENCODER = msgspec.json.Encoder(order="deterministic")


def fingerprint(*parts: Any) -> str:
    """A short digest of JSON values, whatever is in their text (lone surrogates, NUL)."""
    try:
        data = _ENCODER.encode(parts)
    except (OverflowError, RecursionError, TypeError, ValueError):  # long integers, surrogates
        data = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str).encode()
    return hashlib.sha256(data).hexdigest()[:20]


def text_of(content: Any) -> str | None:
    """Text of a content: as it is, or its text parts joined by newline, or else as JSON."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])
    if isinstance(content, list):
        parts = []
        for part in content:
            if isinstance(part, str):
                parts.append(part)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                parts.append(part["text"])
        if parts or not content:
            return "\n".join(parts)
    return as_text(content)


def is_failure(payload: Any) -> bool:
    """Whether a payload that is a JSON object says itself that it is an error."""
    if isinstance(payload, str):
        # Part of every flag, and rare in other results.
        if "rror" not in payload and "RROR" not in payload:
            return False
        text = payload.strip()
        if not (text.startswith("{") and text.endswith("}")):
            return False
        try:
            payload = parse(text)
        except (ValueError, RecursionError):
            return False
    if not isinstance(payload, dict):
        return False
    if payload.get("isError") is True or payload.get("is_error") is True:
        return True
    error = payload.get("error")
    is_rpc = isinstance(error, dict) and isinstance(error.get("code"), int) and "message" in error
    status = payload.get("status")
    return is_rpc or (isinstance(status, str) and status.lower() == "error")


def shown(text: Any) -> str | None:
    """What an error says, short enough for a message."""
    return None if text is None else (as_text(text) or "")[:_SHOWN]


def answer(call: Call, result: Any, *, failed: bool, error: Any = None) -> None:
    """Give a call its result (which may be what the store made of one)."""
    call.result = result
    call.status = "error" if failed else "ok"
    if error is None and isinstance(result, str):
        error = result
    call.error = shown(error) if failed else None


def orphan(result: Any) -> str:
    """A result whose call is not known, as text; of a long one what the store kept of it."""
    if isinstance(result, dict):
        result = next((value for value in result.values() if isinstance(value, str)), "")
    return result or ""


class Waiting:
    """Calls that have no result yet.

    A result belongs to the nearest earlier call with its id, because ids repeat in practice;
    among calls of one turn with equal ids the first one comes first.
    """

    def __init__(self) -> None:
        self._calls: dict[str | None, list[Call]] = {}

    def add(self, call: Call) -> None:
        """A call that was made."""
        self._calls.setdefault(call.call_id, []).append(call)

    def take(self, call_id: str | None) -> Call | None:
        """The call that a result with this id answers, or None."""
        return self._first_of_last_turn(self._calls.get(call_id, []))

    def take_named(self, turn: int, name: str | None) -> Call | None:
        """The call of a turn that a result without an id answers: by name, or the first one."""
        mine = [c for calls in self._calls.values() for c in calls if c.turn == turn]
        named = [call for call in mine if call.name == name] or mine
        if not named:
            return None
        self._calls[named[0].call_id].remove(named[0])
        return named[0]

    def _first_of_last_turn(self, calls: list[Call]) -> Call | None:
        if not calls:
            return None
        turn = calls[-1].turn
        return calls.pop(next(i for i, call in enumerate(calls) if call.turn == turn))


def unified(events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Events by id; one that is told several times is merged by field, whatever the order.

    A field that is missing or null yields to one that is there; of two values the one whose JSON
    sorts first is kept.
    """
    merged: dict[str, dict[str, Any]] = {}
    for event in events:
        known = merged.get(event["id"])
        if known is None:
            merged[event["id"]] = event
        elif known != event:
            merged[event["id"]] = _merged(known, event)
    return merged


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = dict(one)
    for key, value in other.items():
        mine = both.get(key)
        if mine is None or (value is not None and value != mine and _text(value) < _text(mine)):
            both[key] = value
    return both


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def tool_of(definition: Any, server: str | None = None) -> ToolRecord | None:
    """A tool that a request or agent was given: OpenAI, Anthropic or MCP spelling."""
    if not isinstance(definition, dict):
        return None
    function = definition.get("function")
    inner = function if isinstance(function, dict) else definition
    name = inner.get("name")
    if not isinstance(name, str) or not name:
        return None
    schema = next(
        (inner[key] for key in ("parameters", "inputSchema", "input_schema") if inner.get(key)),
        None,
    )
    return ToolRecord(
        name=server_tool(server, name),
        description=as_text(inner.get("description")) or "",
        parameters=parameters_of(schema),
    )
