"""Chat messages inside span attributes: what the model asked for and what it was told came back.

The spellings in the field are all understood: GenAI parts, OpenAI and Anthropic messages, Gemini
contents, AI SDK parts, Responses items, and OpenInference's flattened keys.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from warehouse.readers.normalised import as_text
from warehouse.readers.pairing import own_text
from warehouse.readers.stream import parse


@dataclass(slots=True)
class Asked:
    """A call that a model's output lists; ``arguments`` is None where they are not recorded."""

    call_id: str | None
    name: str
    arguments: Any


@dataclass(slots=True)
class Answered:
    """A result that a message holds."""

    call_id: str | None
    name: str | None
    result: str | None
    failed: bool


@dataclass(slots=True)
class Message:
    """What matters of one message."""

    role: str
    text: str = ""
    asked: list[Asked] = field(default_factory=list)
    answered: list[Answered] = field(default_factory=list)


def messages_of(value: Any) -> list[Message]:
    """The messages of a value, which may be JSON text, a list, or one message."""
    if isinstance(value, str):
        text = value.lstrip()
        if text[:1] not in ("[", "{"):
            return [Message("user", value)] if text else []
        try:
            value = parse(text)
        except (ValueError, RecursionError):
            return []
    if isinstance(value, dict):
        inner = value.get("messages", value.get("contents"))
        value = inner if isinstance(inner, list) else [value]
    if not isinstance(value, list):
        return []
    if len(value) == 1 and isinstance(value[0], list):  # LangChain: a list of conversations
        value = value[0]
    return [_message(one) for one in value if isinstance(one, dict)]


def nested(attributes: Iterable[tuple[str, Any]], prefix: str) -> list[Any]:
    """What keys such as ``prefix0.message.role`` say, as nested objects in order."""
    tree: dict[str, Any] = {}
    for key, value in attributes:
        if not key.startswith(prefix):
            continue
        *steps, last = key[len(prefix) :].split(".")
        at = tree
        for step in steps:
            inner = at.get(step)
            if not isinstance(inner, dict):
                inner = at[step] = {}
            at = inner
        at[last] = value
    return _in_order(tree)


def _in_order(tree: Any) -> list[Any]:
    """A list, or the values of an object whose keys are positions."""
    if isinstance(tree, dict):
        numbered = [(int(key), value) for key, value in tree.items() if key.isdecimal()]
        return [value for _, value in sorted(numbered, key=lambda pair: pair[0])]
    return tree if isinstance(tree, list) else []


def _message(told: dict[str, Any]) -> Message:
    inner = told.get("message", told.get("data", told.get("kwargs")))
    if isinstance(inner, dict) and "role" not in told:
        told = {"role": _ROLE_OF_TYPE.get(str(told.get("type")), ""), **inner}
    role = str(told.get("role") or _ROLE_OF_TYPE.get(str(told.get("type")), "")).lower()
    message = Message(_ROLES.get(role, role))
    texts: list[str] = []
    parts = told.get("parts")
    content = told.get("content")
    if isinstance(content, dict) and parts is None:  # Gemini's response
        parts = content.get("parts", [content])
        message.role = message.role or "assistant"
    answers = role in ("tool", "function") and (
        parts is None or not any(map(_is_answer, _in_order(parts)))
    )
    for part in _in_order(parts) or _in_order(content) or _in_order(told.get("contents")):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            _add_part(part, message, texts)
    if isinstance(content, str):
        texts.append(content)
    listed = [asked for call in _in_order(told.get("tool_calls")) if (asked := _asked(call))]
    old = told.get("function_call")
    if not listed and told.get("function_call_name"):
        arguments = told.get("function_call_arguments_json")
        listed = [Asked(None, str(told["function_call_name"]), arguments)]
    elif not listed and isinstance(old, dict) and (asked := _asked(old)):
        listed = [asked]
    message.asked = joined(message.asked, listed) if listed else message.asked
    message.text = "\n".join(text for text in texts if text)
    if answers and not message.answered:
        call_id = told.get("tool_call_id", told.get("id"))
        message.answered.append(
            Answered(
                None if call_id is None else str(call_id),
                told.get("name"),
                message.text if texts else as_text(content),
                told.get("status") == "error" or told.get("is_error") is True,
            )
        )
    if told.get("type") in _ITEMS:
        _add_part(told, message, texts)
    elif not role and ("toolName" in told or ("name" in told and "arguments" in told)):
        _add_part({**told, "type": "tool_call"}, message, texts)
    return message


_ROLE_OF_TYPE = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"} | {
    role: role for role in ("system", "tool", "function")
}
_ROLES = {"model": "assistant", "ai": "assistant", "human": "user"}
_ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")
_CALLS = ("tool_call", "tool_use", "tool-call", "function_call", "custom_tool_call", "mcp_tool_use")
_ANSWERS = (
    "tool_call_response",
    "tool_result",
    "tool-result",
    "function_call_output",
    "custom_tool_call_output",
    "mcp_tool_result",
)


def _is_answer(part: Any) -> bool:
    return isinstance(part, dict) and (
        part.get("type") in _ANSWERS or "function_response" in part or "functionResponse" in part
    )


def _add_part(part: dict[str, Any], message: Message, texts: list[str]) -> None:
    kind = part.get("type")
    if kind == "tool_call" and "arguments" in part and type(part.get("name")) is str:
        call_id = part.get("id")  # the conventions' own spelling, by far the most frequent
        told = None if call_id in (None, "") else str(call_id)
        message.asked.append(Asked(told, part["name"], part["arguments"]))
        return
    inner = part.get("message_content")
    if isinstance(inner, dict):
        part = {**part, **inner}
    kind = part.get("type")
    for key in ("tool_call", "function_call", "functionCall", "toolUse"):
        if isinstance(part.get(key), dict):
            part, kind = {"id": part.get("id"), **part[key]}, "tool_call"
    for key in ("function_response", "functionResponse", "toolResult", "tool_result"):
        if isinstance(part.get(key), dict):
            part, kind = part[key], "tool_result"
    if kind in _CALLS:
        asked = _asked(part)
        if asked is not None:
            message.asked.append(asked)
    elif kind in _ANSWERS:
        call_id = _first(part, ("tool_use_id", "call_id", "toolCallId", "toolUseId", "id"))
        result = _first(part, ("response", "result", "output", "content", "text"))
        message.answered.append(
            Answered(
                None if call_id is None else str(call_id),
                _first(part, ("name", "toolName")),
                result_text(result),
                part.get("is_error") is True
                or part.get("isError") is True
                or part.get("status") == "error",
            )
        )
    elif kind in ("text", "input_text", "output_text", None):
        text = part.get("text", part.get("content"))
        if isinstance(text, str):
            texts.append(text)


def _asked(call: Any) -> Asked | None:
    if not isinstance(call, dict):
        return None
    if isinstance(call.get("tool_call"), dict):
        call = call["tool_call"]
    function = call.get("function")
    if not isinstance(function, dict):
        function = call
    name = _first(function, ("name", "toolName"))
    if not isinstance(name, str) or not name:
        return None
    call_id = _first(call, ("call_id", "id", "toolCallId", "toolUseId"))
    arguments = _first(function, ("arguments", "args", "input"))
    return Asked(None if call_id in (None, "") else str(call_id), name, arguments)


def _first(told: dict[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = told.get(key)
        if value is not None:
            return value
    return None


def result_text(value: Any) -> str | None:
    """A result as text; the text parts of a list joined by newlines."""
    if isinstance(value, list) and value and all(_is_text_part(part) for part in value):
        return "\n".join(part["text"] for part in value)
    return as_text(value)


_OF_TEXT = frozenset({"type", "text", "annotations", "meta", "_meta"})


def joined_parts(text: str) -> str:
    """The text in a result that is the JSON of text parts only; any other result as it is."""
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        return text
    if all(_is_text_part(part) and part.keys() <= _OF_TEXT for part in value):
        return result_text(value) or ""
    return text


def _is_text_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("text"), str)
        and part.get("type", "text") == "text"
    )


def joined(one: list[Asked], other: list[Asked]) -> list[Asked]:
    """Calls that two variants of one output list, each once.

    Equal ids within a variant are calls of their own; the same id in the other variant is not.
    """
    if not one or not other:
        return one or other
    unmatched = list(one)
    joined = list(one)
    for asked in other:
        same = next(
            (
                known
                for known in unmatched
                if known.call_id == asked.call_id
                or (known.name == asked.name and None in (known.call_id, asked.call_id))
            ),
            None,
        )
        if same is None:
            joined.append(asked)
        else:
            unmatched.remove(same)
    return joined


def request_of(messages: list[Message]) -> str:
    """What the user asked: the first user text after the last finished answer of the history.

    Where the history ends with an answer, what was asked before that.
    """
    asked, answered = "", True
    for message in messages:
        if message.role == "user" and message.text:
            if answered and (text := own_text(message.text)):
                asked, answered = text, False
        elif message.role == "assistant" and message.text and not message.asked:
            answered = True
    return asked


def failed_payload(text: str) -> bool:
    """Whether a result's text is a JSON object that says of itself that the call failed."""
    start = text[:64].lstrip()[:1]
    if start not in ("{", "["):
        return False
    try:
        return failed_value(parse(text))
    except (ValueError, RecursionError):
        return False


_WRAPPERS = ("result", "output", "toolResult", "kwargs", "response")


def failed_value(value: Any, depth: int = 0) -> bool:
    """Whether a result says of itself that the call failed: isError, status error, an MCP error.

    Inside a wrapper the word status counts only in what is a tool message: it may be plain data.
    """
    if isinstance(value, list):
        return len(value) <= 16 and any(
            part.get("is_error") is True or part.get("isError") is True
            for part in value
            if isinstance(part, dict)
        )
    if not isinstance(value, dict):
        return False
    if value.get("isError") is True or value.get("is_error") is True:
        return True
    status = value.get("status")
    if (
        isinstance(status, str)
        and status.lower() == "error"
        and (depth == 0 or "tool_call_id" in value or "toolUseId" in value)
    ):
        return True
    error = value.get("error")
    if isinstance(error, dict) and isinstance(error.get("code"), int) and "message" in error:
        return True
    return depth < 2 and any(
        isinstance(value.get(key), dict) and failed_value(value[key], depth + 1)
        for key in _WRAPPERS
    )


def canonical(value: Any) -> str:
    """Arguments in one spelling, for comparison: JSON text and the value it holds are equal."""
    if isinstance(value, str):
        text = value
        try:
            value = parse(text)
        except (ValueError, RecursionError):
            return text
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def pairs(found: dict[str, Any], prefixes: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The attributes whose keys begin with one of the prefixes."""
    for key, value in found.items():
        if key.startswith(prefixes):
            yield key, value
