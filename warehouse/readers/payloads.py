"""What the inputs and outputs of traced LLMs and tools say, in the shapes of the usual libraries.

Observability products store whatever the traced library handed over: OpenAI, Anthropic, Google and
LangChain messages, OpenTelemetry parts, results as dumped tool messages. These functions take any
of them and never raise on others.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from warehouse.readers.clock import iso_nanoseconds, nanoseconds
from warehouse.readers.evidence import is_failure
from warehouse.readers.normalised import as_text
from warehouse.readers.schema import parameters_of
from warehouse.readers.stream import parse
from warehouse.records import UNRECORDED, ToolRecord, server_tool

_LITERAL_LIMIT = 10_000
"""Characters of a Python literal that are parsed: its parser takes long for long texts."""
_OF_FUNCTIONS = {"args", "kwargs"}
"""Inputs of a traced Python function."""
_DEPTH = 6
"""Wrappers around a message that are opened."""


@dataclass(slots=True)
class Asked:
    """A tool call in an LLM's output."""

    name: str
    arguments: Any
    call_id: str | None = None


@dataclass(slots=True)
class Answer:
    """A tool's result among messages."""

    call_id: str
    result: str | None
    error: str | None = None


# --- values ---------------------------------------------------------------------------------------


def decoded(value: Any) -> Any:
    """The value that a text beginning with ``{`` or ``[`` stands for; anything else as it is."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return parse(value)
        except (ValueError, RecursionError):
            return value
    return value


def unquoted(value: Any) -> Any:
    """Text that is the JSON of a text, as that text; anything else as ``decoded`` has it."""
    if isinstance(value, str) and value[:1] == '"' and value[-1:] == '"' and len(value) > 1:
        try:
            return parse(value)
        except (ValueError, RecursionError):
            return value
    return decoded(value)


def when(value: Any) -> int | None:
    """UTC nanoseconds from ISO text or from a number of seconds, milli-, micro- or nanoseconds."""
    found = iso_nanoseconds(value)
    if found is not None:
        return found
    number = nanoseconds(value)
    if number is None:
        return None
    size = abs(number)
    unit = 10**9 if size < 10**11 else 10**6 if size < 10**14 else 10**3 if size < 10**17 else 1
    return number * unit


def fingerprint(value: Any) -> str:
    """Short hash of a payload, the same for a value and for its JSON text."""
    try:
        data = msgspec.json.encode(decoded(value), order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        data = repr(value).encode(errors="replace")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def arguments_of(value: Any) -> Any:
    """A tool's recorded input as arguments.

    Objects stay. Text stays where it is JSON; a short Python literal is read as what it shows; any
    other text is the tool's one free input. ``{"input": x}`` around an object is a tracer's own.
    """
    if isinstance(value, dict):
        if value.get("type") == "tool_call" and isinstance(value.get("args"), dict):
            return value["args"]
        if value.keys() == _OF_FUNCTIONS and not value["args"]:
            return value["kwargs"]
        if len(value) == 1 and "input" in value:
            inner = value["input"]
            if isinstance(inner, dict):
                return inner
            if isinstance(inner, str) and inner.lstrip()[:1] == "{":
                found = arguments_of(inner)
                return found if isinstance(decoded(found), dict) else value
        return value
    if value is None:
        return UNRECORDED
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return ""
    if text[0] not in "{[":
        return {"input": value} if text[0] != '"' else value
    try:
        told = parse(text)
    except (ValueError, RecursionError):
        told = _literal(text)
        return value if told is None else arguments_of(told)
    unwrapped = arguments_of(told) if isinstance(told, dict) else told
    return value if unwrapped is told else unwrapped


def _literal(text: str) -> Any:
    if len(text) > _LITERAL_LIMIT:
        return None
    try:
        told = ast.literal_eval(text)
        msgspec.json.encode(told)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError):
        return None
    return told if isinstance(told, dict) else None


def text_of(content: Any) -> str | None:
    """Message content as text: parts joined by newlines, anything else as JSON."""
    if isinstance(content, list) and content:
        parts = [_part_text(part) for part in content]
        if all(part is not None for part in parts):
            return "\n".join(part for part in parts if part is not None)
    return as_text(content)


def _part_text(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text", None):
        text = part.get("text")
        return text if isinstance(text, str) else None
    return None


def hidden_error(value: Any) -> str | None:
    """What a result object says went wrong: isError, is_error, status error, a JSON-RPC error."""
    value = decoded(value)
    if not isinstance(value, dict) or not is_failure(value):
        return None
    for key in ("error", "message", "detail", "content", "result"):
        told = value.get(key)
        if isinstance(told, dict) and isinstance(told.get("message"), str):
            told = told["message"]
        if told:
            return (text_of(told) or "")[:2000]
    return "the result is marked as an error"


# --- results --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Result:
    """A tool's recorded output.

    ``prints`` are fingerprints of the results in it, one unless it is a list of tool messages.
    """

    text: str | None
    error: str | None
    call_id: str | None
    prints: list[str]
    is_message: bool = False


def result_of(output: Any) -> Result:
    """A tool's output, taken out of ``{"output"}``, dumped tool messages and MCP content."""
    value = decoded(output)
    for _ in range(_DEPTH):
        if not isinstance(value, dict):
            break
        if len(value) == 1 and "output" in value:
            value = decoded(value["output"])
            continue
        inner = value.get("messages")
        if isinstance(inner, list) and inner and all(is_tool_message(m) for m in inner):
            answers = [_tool_message(m) for m in inner]
            if len(answers) == 1:
                value = inner[0]
                continue
            texts = [answer.result or "" for answer in answers]
            prints = [fingerprint(text) for text in texts]
            failed = next((answer.error for answer in answers if answer.error), None)
            return Result("\n".join(texts), failed, None, prints, True)
        break
    if is_tool_message(value):
        answer = _tool_message(value)
        error = answer.error or hidden_error(answer.result)
        call_id = answer.call_id or None
        return Result(answer.result, error, call_id, [fingerprint(answer.result or "")], True)
    if value is None:
        return Result(None, None, None, [])
    error = hidden_error(value)
    text: str | None
    if isinstance(value, dict) and isinstance(value.get("content"), list):
        only = value.keys() <= {"content", "isError", "is_error", "_meta", "structuredContent"}
        text = text_of(value["content"]) if only else as_text(value)
        error = error or (only and hidden_error(text)) or None
    elif isinstance(value, list):
        text = text_of(value)
    else:
        text = output if isinstance(output, str) and value is not output else as_text(value)
        if isinstance(output, str) and isinstance(value, str):
            text = value
    return Result(text, error, None, [fingerprint(text)])


def is_tool_message(value: Any) -> bool:
    """A LangChain tool message in one of its dumps."""
    fields = _message(value)
    return fields.get("type") in ("tool", "ToolMessage") and "tool_call_id" in fields


def _tool_message(value: Any) -> Answer:
    fields = _message(value)
    text = text_of(fields.get("content"))
    failed = fields.get("status") == "error"
    return Answer(
        str(fields.get("tool_call_id") or ""), text, (text or "error") if failed else None
    )


_DUMPED = {
    "AIMessage": "ai",
    "AIMessageChunk": "ai",
    "HumanMessage": "human",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
}


def _message(value: Any) -> dict[str, Any]:
    """The fields of a LangChain message, whichever dump it is; other messages as they are."""
    if not isinstance(value, dict):
        return {}
    kwargs = value.get("kwargs")
    if value.get("lc") and isinstance(kwargs, dict):
        path = value.get("id")
        name = path[-1] if isinstance(path, list) and path else None
        return {**kwargs, "type": _DUMPED.get(str(name), kwargs.get("type"))}
    data = value.get("data")
    if isinstance(data, dict) and isinstance(value.get("type"), str) and len(value) == 2:
        return {**data, "type": value["type"]}
    return value


# --- what an LLM asked for ------------------------------------------------------------------------


def asked_calls(output: Any) -> tuple[list[Asked], list[Answer], int]:
    """Calls in an LLM's output, results that came with them, and copies that were left out."""
    asked: list[Asked] = []
    answers: list[Answer] = []
    for message in _output_messages(decoded(output), 0):
        _read_message(message, asked, answers)
    if len(asked) < 2:
        return asked, answers, 0
    kept, seen = [], set()
    for call in asked:
        key = (call.call_id, call.name, fingerprint(call.arguments))
        if call.call_id is None or key not in seen:
            seen.add(key)
            kept.append(call)
    return kept, answers, len(asked) - len(kept)


_INNER = ("message", "messages", "output", "outputs", "response", "generation")


def _output_messages(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """The messages of an output; of several alternatives the first."""
    if depth > _DEPTH:
        return
    if isinstance(value, list):
        for part in value:
            yield from _output_messages(decoded(part), depth + 1)
        return
    if not isinstance(value, dict):
        return
    fields = _message(value)
    for many in ("choices", "candidates", "generations"):
        found = fields.get(many)
        if isinstance(found, list):
            if found:
                yield from _output_messages(
                    found[0] if not isinstance(found[0], list) else found[0][:1], depth + 1
                )
            return
    kind = fields.get("type")
    if isinstance(fields.get("toolName"), str):  # the AI SDK lists calls alone
        yield {"toolCalls": [fields]}
        return
    if (
        "role" in fields
        or "tool_calls" in fields
        or "toolCalls" in fields
        or "additional_kwargs" in fields
        or "parts" in fields
        or (isinstance(kind, str) and kind in _BLOCKS)
    ):
        yield fields
        return
    if isinstance(fields.get("content"), (list, dict)):
        content = fields["content"]
        yield (
            {"parts": content["parts"]}
            if isinstance(content, dict) and isinstance(content.get("parts"), list)
            else {"content": content}
        )
        return
    for key in _INNER:
        inner = decoded(fields.get(key))
        if isinstance(inner, (dict, list)):
            yield from _output_messages(inner, depth + 1)
            return


_BLOCKS = (
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "function_call",
    "custom_tool_call",
    "mcp_call",
    "tool_call",
    "function_call_output",
    "custom_tool_call_output",
)


def _read_message(message: dict[str, Any], asked: list[Asked], answers: list[Answer]) -> None:
    """Calls and results of one message or block."""
    if message.get("type") in _BLOCKS:
        _read_block(message, asked, answers)
        return
    before = len(asked)
    extra = message.get("additional_kwargs")
    for source in (message, extra):
        calls = source.get("tool_calls") if isinstance(source, dict) else None
        if source is message and not calls:
            calls = decoded(message.get("toolCalls"))
        if isinstance(calls, list) and calls:
            asked += filter(None, map(_tool_call, calls))
        invalid = source.get("invalid_tool_calls") if isinstance(source, dict) else None
        if isinstance(invalid, list) and invalid:
            asked += filter(None, map(_tool_call, invalid))
        if len(asked) > before:
            return
        old = source.get("function_call") if isinstance(source, dict) else None
        if isinstance(old, dict) and isinstance(old.get("name"), str):
            asked.append(Asked(old["name"], old.get("arguments", UNRECORDED)))
            return
    for key in ("content", "parts"):
        blocks = decoded(message.get(key))
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict):
                _read_block(block, asked, answers)


def _tool_call(call: Any) -> Asked | None:
    """A call in OpenAI's or LangChain's form."""
    call = decoded(call)
    if not isinstance(call, dict):
        return None
    function = call.get("function") or call.get("custom")
    if isinstance(function, dict):
        name = function.get("name")
        arguments = function.get("arguments", UNRECORDED)
        if "custom" in call and "input" in function:
            arguments = {"input": function["input"]}
    else:
        name = call.get("name", call.get("toolName"))
        arguments = call.get("args", call.get("arguments", call.get("input", UNRECORDED)))
    if not isinstance(name, str) or not name:
        return None
    call_id = call.get("id") or call.get("call_id") or call.get("toolCallId")
    return Asked(name, arguments, _id(call_id))


def _id(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and value != "" else None


def _read_block(block: dict[str, Any], asked: list[Asked], answers: list[Answer]) -> None:
    kind = block.get("type")
    for key in ("functionCall", "function_call", "toolUse"):
        inner = block.get(key)
        if isinstance(inner, dict) and isinstance(inner.get("name"), str):
            arguments = inner.get("args", inner.get("input", inner.get("arguments", UNRECORDED)))
            call_id = _id(inner.get("id") or inner.get("toolUseId"))
            asked.append(Asked(inner["name"], arguments, call_id))
            return
    if block.get("part_kind") == "tool-call" and isinstance(block.get("tool_name"), str):
        call_id = _id(block.get("tool_call_id"))
        asked.append(Asked(block["tool_name"], block.get("args", UNRECORDED), call_id))
        return
    if kind == "tool-call":  # of the AI SDK
        asked += filter(None, [_tool_call(block)])
        return
    name = block.get("name")
    if isinstance(kind, str) and isinstance(name, str):
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            name = server_tool(_id(block.get("server_name")), name)
            asked.append(Asked(name, block.get("input", UNRECORDED), _id(block.get("id"))))
        elif kind in ("function_call", "tool_call"):
            call_id = _id(block.get("call_id") or block.get("id"))
            arguments = block.get("arguments", block.get("args", UNRECORDED))
            asked.append(Asked(name, arguments, call_id))
        elif kind == "custom_tool_call":
            call_id = _id(block.get("call_id") or block.get("id"))
            asked.append(Asked(name, {"input": block.get("input")}, call_id))
        elif kind == "mcp_call":
            call_id = _id(block.get("id"))
            name = server_tool(_id(block.get("server_label")), name)
            asked.append(Asked(name, block.get("arguments", UNRECORDED), call_id))
            error, output = block.get("error"), block.get("output")
            if call_id and (error or output is not None):
                told = text_of(error) if error else hidden_error(output)
                answers.append(Answer(call_id, text_of(output), told))
            return
    answer = _answer_block(block)
    if answer is not None:
        answers.append(answer)


def _answer_block(block: dict[str, Any]) -> Answer | None:
    """A result as Anthropic, OpenAI Responses, OpenTelemetry and others write it."""
    told = block.get("toolResult")
    if isinstance(told, dict) and told.get("toolUseId"):
        text = text_of(told.get("content"))
        error = (text or "error") if told.get("status") == "error" else hidden_error(text)
        return Answer(str(told["toolUseId"]), text, error)
    kind = block.get("type", block.get("part_kind"))
    if not isinstance(kind, str):
        return None
    if kind.endswith("tool_result") and block.get("tool_use_id"):
        content = block.get("content")
        text = text_of(content)
        failed = block.get("is_error") is True or (
            isinstance(content, dict) and str(content.get("type")).endswith("_error")
        )
        error = (text or "error") if failed else hidden_error(text)
        return Answer(str(block["tool_use_id"]), text, error)
    if kind in ("function_call_output", "custom_tool_call_output") and block.get("call_id"):
        text = text_of(block.get("output"))
        return Answer(str(block["call_id"]), text, hidden_error(text))
    if kind in ("tool-return", "retry-prompt") and block.get("tool_call_id"):
        text = text_of(block.get("content"))
        failed = kind == "retry-prompt" or block.get("outcome") in ("failed", "denied")
        error = (text or "error") if failed else hidden_error(text)
        return Answer(str(block["tool_call_id"]), text, error)
    if kind == "tool-result" and block.get("toolCallId"):
        output, failed = block.get("output", block.get("result")), block.get("isError") is True
        if isinstance(output, dict) and "value" in output and isinstance(output.get("type"), str):
            failed = failed or output["type"].startswith("error")
            output = output["value"]
        text = text_of(output)
        error = (text or "error") if failed else hidden_error(text)
        return Answer(str(block["toolCallId"]), text, error)
    if kind == "tool_call_response" and block.get("id"):
        response = decoded(block.get("response", block.get("result")))
        if isinstance(response, dict) and response.get("type") == "function_result":
            error = response.get("exception") or hidden_error(response)
            text = text_of(response.get("result"))
            return Answer(str(block["id"]), text, error and str(error))
        return Answer(str(block["id"]), text_of(response), hidden_error(response))
    return None


# --- what an LLM was shown ------------------------------------------------------------------------


def messages_of(value: Any) -> list[Any]:
    """The messages of an LLM's input, whatever wraps them."""
    value = decoded(value)
    for _ in range(_DEPTH):
        if isinstance(value, dict):
            inner = next(
                (value[k] for k in ("messages", "input", "contents", "prompt") if k in value), None
            )
            inner = decoded(inner)
            if not isinstance(inner, (list, dict)):
                return [value] if "role" in value or _message(value) is not value else []
            value = inner
        elif isinstance(value, list) and len(value) >= 1 and isinstance(value[0], list):
            value = value[0]
        else:
            break
    return value if isinstance(value, list) else []


def new_answers(messages: list[Any]) -> list[Answer]:
    """Results that come after the last assistant message: those before were told earlier."""
    found: list[Answer] = []
    for message in reversed(messages):
        fields = _message(message)
        role = fields.get("role") or fields.get("type") or fields.get("kind")
        if role in ("assistant", "ai", "model", "AIMessageChunk", "function_call", "response"):
            break
        call_id = fields.get("tool_call_id")
        if call_id and role in ("tool", "ToolMessage"):
            answer = _tool_message({**fields, "type": "tool"})
            answer.error = answer.error or hidden_error(answer.result)
            found.append(answer)
            continue
        blocks = [fields] if fields.get("type") in _BLOCKS else None
        for key in ("content", "parts"):
            inner = decoded(fields.get(key)) if blocks is None else None
            if isinstance(inner, list):
                blocks = inner
        told = [_answer_block(b) for b in blocks or () if isinstance(b, dict)]
        found += [answer for answer in reversed(told) if answer is not None]
    return found[::-1]


_ASKS = (
    "input",
    "question",
    "query",
    "q",
    "prompt",
    "request",
    "message",
    "user_input",
    "user_message",
    "user_query",
    "text",
    "task",
    "content",
)


def request_of(value: Any) -> str:
    """What the user asked, from the input of a whole run."""
    value = decoded(value)
    if isinstance(value, str):
        if value[:1] == '"':
            try:
                inner = parse(value)
            except (ValueError, RecursionError):
                return value
            return request_of(inner) if isinstance(inner, str) else value
        return value
    text = user_text(messages_of(value))
    if text:
        return text
    if isinstance(value, dict):
        if value.keys() == _OF_FUNCTIONS and isinstance(value["args"], list):
            value = value["args"][0] if value["args"] else value["kwargs"]
            return request_of(value)
        for key in _ASKS:
            inner = value.get(key)
            if isinstance(inner, str) and inner:
                return inner
            if isinstance(inner, dict):
                return request_of(inner)
        texts = [inner for inner in value.values() if isinstance(inner, str) and inner]
        if len(texts) == 1:
            return texts[0]
    return "" if value in (None, {}, []) else as_text(value) or ""


def user_text(messages: list[Any]) -> str:
    """The first user message."""
    for message in messages:
        if isinstance(message, str):
            return message
        fields = _message(message)
        role = fields.get("role") or fields.get("type")
        is_mixed = "role" not in fields and fields.get("kind") == "request"  # of Pydantic AI
        if role in ("user", "human") or is_mixed:
            content = fields.get("content", fields.get("parts"))
            if isinstance(content, list):
                parts = []
                for part in content:
                    text = part if isinstance(part, str) else None
                    if isinstance(part, dict):
                        if is_mixed and part.get("part_kind") != "user-prompt":
                            continue
                        text = part.get("text", part.get("content"))
                    if isinstance(text, str) and text:
                        parts.append(text)
                content = "\n".join(parts)
            if isinstance(content, str) and content:
                return content
        elif (
            isinstance(message, (list, tuple))
            and len(message) == 2
            and message[0]
            in (
                "user",
                "human",
            )
        ):
            return str(message[1])
    return ""


# --- tools that an LLM was offered ----------------------------------------------------------------


def offered_tools(values: Iterable[Any]) -> Iterator[ToolRecord]:
    """Tool definitions in OpenAI's, Anthropic's, Google's or LangChain's form."""
    for value in values:
        value = decoded(value)
        if not isinstance(value, dict):
            continue
        nested = value.get("functionDeclarations") or value.get("function_declarations")
        if isinstance(nested, list):
            yield from offered_tools(nested)
            continue
        spec = value.get("toolSpec")
        function = value.get("function")
        inner = (
            function if isinstance(function, dict) else spec if isinstance(spec, dict) else value
        )
        name = inner.get("name")
        if not isinstance(name, str) or not name:
            continue
        schema = inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema")
        schema = decoded(schema)
        if isinstance(schema, dict) and isinstance(schema.get("json"), dict):
            schema = schema["json"]
        yield ToolRecord(
            name=name,
            description=str(inner.get("description") or ""),
            parameters=parameters_of(schema) if isinstance(schema, dict) else (),
        )
