"""What the attributes of a span say of agents and tools, in one table for all spellings.

OpenTelemetry GenAI old and new, OpenInference, ADK, traceloop, Vercel's AI SDK, Langfuse and
LangSmith write the same facts under different keys. Values are AnyValue objects as OTLP/JSON has
them; readers of other carriers wrap theirs as ``{"stringValue": value}``.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from warehouse.readers.genai_messages import (
    Asked,
    Message,
    canonical,
    failed_payload,
    failed_value,
    joined,
    joined_parts,
    messages_of,
    nested,
    pairs,
    request_of,
    result_text,
)
from warehouse.readers.schema import parameters_of
from warehouse.readers.stream import parse
from warehouse.records import ToolRecord

Attributes = dict[str, Any]
Event = dict[str, Any]

_NAME = (
    "gen_ai.tool.name",
    "tool.name",
    "tool_call.function.name",
    "ai.toolCall.name",
    "mcp.tool.name",
    "spring.ai.tool.definition.name",
    "traceloop.entity.name",
)
_CALL_ID = (
    "gen_ai.tool.call.id",
    "gen_ai.tool.id",
    "tool.id",
    "tool_call.id",
    "ai.toolCall.id",
)
_ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.parameters",
    "gen_ai.tool.arguments",
    "gen_ai.tool.input",
    "gcp.vertex.agent.tool_call_args",
    "input.value",
    "tool_call.function.arguments",
    "ai.toolCall.args",
    "tool_arguments",
    "spring.ai.tool.call.arguments",
    "traceloop.entity.input",
    "langfuse.observation.input",
    "gen_ai.prompt",
)
_RESULT = (
    "gen_ai.tool.call.result",
    "gen_ai.tool.result",
    "gen_ai.tool.output",
    "gcp.vertex.agent.tool_response",
    "output.value",
    "ai.toolCall.result",
    "tool_response",
    "spring.ai.tool.call.result",
    "traceloop.entity.output",
    "langfuse.observation.output",
    "gen_ai.completion",
)
_CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "traceloop.association.properties.conversation_id",
    "langsmith.metadata.session_id",
    "langsmith.metadata.thread_id",
    "langsmith.metadata.conversation_id",
    "gcp.vertex.agent.session_id",
    "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.threadId",
    "ai.telemetry.metadata.conversationId",
    "ai.telemetry.metadata.chatId",
)
_PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_OUTPUT = ("gen_ai.output.messages", "gcp.vertex.agent.llm_response", "ai.response.toolCalls")
_INPUT = (
    "gen_ai.input.messages",
    "gcp.vertex.agent.llm_request",
    "ai.prompt.messages",
    "pydantic_ai.all_messages",
    "all_messages_events",
)
_TOLD = "events"
"""Where Pydantic AI writes the messages of a model, what came back among them."""
_OUTPUT_NESTED = ("llm.output_messages.", "gen_ai.completion.")
_INPUT_NESTED = ("llm.input_messages.", "gen_ai.prompt.")
_REQUEST = (
    "input.value",
    "traceloop.entity.input",
    "langfuse.observation.input",
    "ai.prompt",
    "gen_ai.prompt",
)

_OPERATIONS = {
    "execute_tool": "tool",
    "chat": "llm",
    "text_completion": "llm",
    "generate_content": "llm",
    "completion": "llm",
    "invoke_agent": "agent",
    "create_agent": "chain",
    "invoke_workflow": "chain",
    "embeddings": "chain",
    "retrieval": "chain",
}
_STEPS = {
    "tool": "tool",
    "llm": "llm",
    "generation": "llm",
    "agent": "agent",
    **dict.fromkeys(
        ("chain", "workflow", "task", "retriever", "embedding", "reranker", "guardrail"), "chain"
    ),
    **dict.fromkeys(("evaluator", "prompt", "span", "parser"), "chain"),
}
_MARKS = (
    "openinference.span.kind",
    "traceloop.span.kind",
    "langfuse.observation.type",
    "langsmith.span.kind",
)
_AI_SDK = {
    "ai.toolCall": "tool",
    "ai.generateText": "agent",
    "ai.streamText": "agent",
    "ai.generateText.doGenerate": "llm",
    "ai.streamText.doStream": "llm",
}
_FAILURES = ("error.type", "langfuse.observation.level", "gen_ai.tool.status")
_SCHEMA = (
    "tool.json_schema",
    "tool.parameters",
    "gen_ai.tool.json_schema",
    "spring.ai.tool.definition.schema",
)
_DESCRIPTION = (
    "gen_ai.tool.description",
    "tool.description",
    "spring.ai.tool.definition.description",
)
_DEFINITIONS = (
    "gen_ai.tool.definitions",
    "ai.prompt.tools",
    "model_request_parameters",
    "gcp.vertex.agent.llm_request",
)
_TOOLS = (*_SCHEMA, *_DESCRIPTION, *_DEFINITIONS)
_TOOLS_NESTED = ("llm.tools.", "llm.request.functions.")
_FAILED_CODES = (2, "2", "STATUS_CODE_ERROR", "ERROR", "Error", "error")


def plain(value: Any) -> Any:
    """The value that an AnyValue object holds, integers exact."""
    if type(value) is not dict:
        return value
    text = value.get("stringValue")
    if text is not None:
        return text
    for kind, inner in value.items():
        match kind:
            case "intValue" | "int_value":
                return int(inner) if isinstance(inner, str) else inner
            case "arrayValue" | "array_value":
                return [plain(one) for one in (inner or {}).get("values") or ()]
            case "kvlistValue" | "kvlist_value":
                return {
                    one["key"]: plain(one.get("value")) for one in (inner or {}).get("values") or ()
                }
            case "doubleValue" | "double_value" | "boolValue" | "bool_value":
                return inner
            case "bytesValue" | "bytes_value" | "string_value":
                return inner
    return None


def _first(found: Attributes, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = found.get(key)
        if value is not None:
            value = plain(value)
            if value is not None:
                return value
    return None


def kind_of(found: Attributes) -> str | None:
    """tool, llm, agent, or chain; None for a span that has nothing to do with agents."""
    value = found.get("gen_ai.operation.name")
    if value is not None:
        operation = value.get("stringValue")
        kind = _OPERATIONS.get(operation) if type(operation) is str else None
        if kind is not None:
            return "chain" if found.get("gen_ai.tool.name") == _MERGED else kind
    for mark in _MARKS:
        value = found.get(mark)
        if value is not None:
            return _STEPS.get(str(plain(value)).lower(), "chain")
    value = found.get("ai.operationId")
    if value is not None:
        return _AI_SDK.get(str(plain(value)), "chain")
    if "gen_ai.tool.name" in found or "gen_ai.tool.call.id" in found:
        return "chain" if found.get("gen_ai.tool.name") == _MERGED else "tool"
    if "spring.ai.tool.definition.name" in found:
        return "tool"
    if "mcp.method.name" in found and plain(found["mcp.method.name"]) == "tools/call":
        return "tool"
    if "gen_ai.request.model" in found or "llm.request.type" in found:
        return "llm"
    if any(key.startswith(("gen_ai.", "llm.")) for key in found):
        return "chain"
    return None


_MERGED = {"stringValue": "(merged tools)"}
"""ADK writes one more span that repeats the results of parallel calls."""


class Plan(NamedTuple):
    """Which of a span's keys says what; of several spellings the first that is there."""

    name: str | None
    call_id: str | None
    arguments: str | None
    result: str | None
    conversation: str | None
    provider: str | None
    failure: bool
    tools: bool
    messages: bool


@lru_cache(maxsize=4096)
def plan_of(keys: tuple[str, ...]) -> Plan:
    """The plan for spans with these keys: most spans of a source have one of a few sets of keys."""
    known = set(keys)

    def first(spellings: tuple[str, ...]) -> str | None:
        return next((key for key in spellings if key in known), None)

    return Plan(
        first(_NAME),
        first(_CALL_ID),
        first(_ARGUMENTS),
        first(_RESULT),
        first(_CONVERSATION),
        first(_PROVIDER),
        not known.isdisjoint(_FAILURES),
        not known.isdisjoint(_TOOLS) or any(key.startswith(_TOOLS_NESTED) for key in keys),
        not known.isdisjoint((*_INPUT, *_OUTPUT, *_REQUEST, _TOLD, "llm.function_call"))
        or any(key.startswith(_INPUT_NESTED + _OUTPUT_NESTED) for key in keys),
    )


def describe(event: Event, found: Attributes, plan: Plan) -> None:
    """Add what every span of an agent may say."""
    if plan.conversation is not None:
        value = found[plan.conversation]
        conversation = value.get("stringValue") or plain(value)
        if conversation:
            event["conversation"] = str(conversation)
    if plan.provider is not None:
        provider = plain(found[plan.provider])
        if provider:
            event["provider"] = str(provider)


def describe_tool(event: Event, found: Attributes, span: dict[str, Any], plan: Plan) -> None:
    """Add what the span of one execution says."""
    name = found[plan.name].get("stringValue") if plan.name is not None else None
    event["name"] = name if type(name) is str and name else _name_of(span)
    if plan.call_id is not None:
        value = found[plan.call_id]
        call_id = value.get("stringValue")
        if call_id is None:
            call_id = plain(value)
        if call_id is not None and call_id != "":
            event["call_id"] = call_id if type(call_id) is str else str(call_id)
    told = span.get("events")
    arguments_key, result_key = plan.arguments, plan.result
    if told:
        found = {**_from_events(told, of_tool=True), **found}
        arguments_key = arguments_key or next((k for k in _ARGUMENTS if k in found), None)
        result_key = result_key or next((k for k in _RESULT if k in found), None)
    if arguments_key is not None:
        value = found[arguments_key]
        arguments = value.get("stringValue")
        if arguments is None:
            arguments = plain(value)
        elif type(arguments) is str and (
            arguments[:2] == "{'" or (arguments_key in _WRAPPED and arguments.startswith(_WRAPS))
        ):
            arguments = _unwrapped(arguments)
        if arguments is not None:
            event["arguments"] = arguments
    failed = False
    if result_key is not None:
        value = found[result_key]
        result = value.get("stringValue")
        if result is None:
            result = plain(value)
        if type(result) is str:
            failed = ("rror" in result or "RROR" in result) and failed_payload(result)
            if result_key in _WRAPPED and result[:1] in ("{", '"'):
                result = _inner_result(result, event, tracer=result_key != "output.value")
            elif result.startswith('[{"t'):
                result = joined_parts(result)
        elif result is not None:
            failed = failed_value(result)
            result = result_text(result)
        if result is not None:
            event["result"] = result
    status = span.get("status")
    if failed or told or plan.failure or (status and status.get("code")):
        error = _error(found, status or {}, told or (), failed)
        if error is not None:
            event["status"] = "error"
            if error:
                event["error"] = error


_WRAPPED = frozenset(
    {
        "input.value",
        "output.value",
        "traceloop.entity.input",
        "traceloop.entity.output",
        "gen_ai.prompt",
        "gen_ai.completion",
    }
)
"""Keys under which libraries write what they were called with, arguments somewhere inside."""


def is_handoff(span: dict[str, Any]) -> bool:
    """A step from agent to agent, which OpenInference marks as a tool without a name."""
    name = span.get("name")
    return isinstance(name, str) and name.startswith("handoff to ")


def _name_of(span: dict[str, Any]) -> str:
    """The tool by the span's name: ``execute_tool NAME``, ``tools/call NAME``, or NAME."""
    name = str(span.get("name") or "")
    for prefix in ("execute_tool ", "tools/call ", "running tool: "):
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name or "unnamed tool"


def _error(found: Attributes, status: dict[str, Any], told: Any, failed_result: bool) -> str | None:
    """What went wrong, empty where that is not said; None where nothing did."""
    message = status.get("message")
    failed = failed_result or status.get("code") in _FAILED_CODES
    kind = _first(found, ("error.type", "exception.type"))
    if kind and "error.type" in found:
        failed = True
    for key in ("langfuse.observation.level", "gen_ai.tool.status"):
        failed = failed or str(_first(found, (key,))).lower() == "error"
    for event in told:
        if isinstance(event, dict) and event.get("name") == "exception":
            failed = True
            attributes = attributes_of(event.get("attributes"))
            message = message or _first(attributes, ("exception.message",))
            kind = kind or _first(attributes, ("exception.type",))
    return str(message or kind or "") if failed else None


def attributes_of(told: Any) -> Attributes:
    """Attributes by key, whether told as a list of keys and values or as an object."""
    if isinstance(told, list):
        return {
            one["key"]: _camel(one.get("value"))
            for one in told
            if isinstance(one, dict) and isinstance(one.get("key"), str)
        }
    if isinstance(told, dict):
        return {key: {"stringValue": value} for key, value in _flat(told)}
    return {}


def _camel(value: Any) -> dict[str, Any]:
    """An AnyValue as OTLP/JSON spells it."""
    if not isinstance(value, dict):
        return {"stringValue": value}
    return {"stringValue": value["string_value"]} if "string_value" in value else value


_FAMILIES = ("gen_ai", "llm", "openinference", "input", "output", "tool", "session", "traceloop")


def _flat(told: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Attributes with dotted keys; Phoenix nests them in its exports."""
    for key, value in told.items():
        if key in _FAMILIES and isinstance(value, dict):
            yield from _leaves(key, value)
        else:
            yield key, value


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}", inner)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for position, inner in enumerate(value):
            yield from _leaves(f"{prefix}.{position}", inner)
    else:
        yield prefix, value


_WRAPS = ('{"args"', '{"kwargs"', '{"inputs"', '{"input"', '{"input_str"', '{"tool_name"')
_CALLED = frozenset({"args", "kwargs", "sanitize_inputs_outputs"})


def _unwrapped(text: str) -> Any:
    """The named arguments inside what libraries and LangChain's strings put around them."""
    if text[:2] == "{'":
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return text
        return value if isinstance(value, dict) and _is_json(value) else text
    value = _parsed(text)
    if not isinstance(value, dict):
        return text
    keys = value.keys()
    if isinstance(value.get("inputs"), dict):
        return value["inputs"]
    if keys <= _CALLED and not value.get("args"):
        return value.get("kwargs") or {}
    if keys == {"tool_name", "arguments"}:
        return value["arguments"]
    if keys == {"input"}:  # a tool of one parameter, or a tracer's own around the arguments
        inner = value["input"]
        if isinstance(inner, str) and inner[:1] == "{":
            found = _unwrapped(inner)
            return found if isinstance(found, dict) or _parsed(inner) is not None else text
    return text


def _inner_result(text: str, event: Event, *, tracer: bool) -> str:
    """What a tool gave back, out of a tool message, which says the call's id too.

    With ``tracer`` also out of the JSON that tracers make of any result.
    """
    value = inner = _parsed(text)
    if isinstance(value, dict) and "output" in value and value.keys() <= {"output", "kwargs"}:
        inner = value["output"]
    message = inner
    for key in ("kwargs", "data"):  # of LangChain's dumps
        if isinstance(message, dict) and isinstance(message.get(key), dict):
            message = message[key]
    if isinstance(message, dict) and "tool_call_id" in message and "content" in message:
        if isinstance(message["tool_call_id"], str):
            event.setdefault("call_id", message["tool_call_id"])
        return result_text(message["content"]) or ""
    if not tracer or inner is None:
        return text
    return inner if isinstance(inner, str) else text if inner is value else result_text(inner) or ""


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or isinstance(value, (str, int, float, bool))


def _from_events(told: Any, *, of_tool: bool = False) -> Attributes:
    """Contents that some libraries write as events of the span instead of attributes."""
    found: Attributes = {}
    for event in told if isinstance(told, list) else ():
        if not isinstance(event, dict):
            continue
        name = event.get("name")
        if name == "gen_ai.client.inference.operation.details":
            found.update(attributes_of(event.get("attributes")))
        elif name == "gen_ai.tool.message":
            content = attributes_of(event.get("attributes")).get("content")
            if content is not None:
                found.setdefault("gen_ai.tool.input", content)
        elif name == "gen_ai.choice":
            message = attributes_of(event.get("attributes")).get("message")
            if message is not None:
                found.setdefault("gen_ai.tool.output", message)
    if of_tool and "gen_ai.input.messages" in found:
        for message in messages_of(plain(found["gen_ai.input.messages"])):
            for call in message.asked:
                found.setdefault("gen_ai.tool.input", {"stringValue": call.arguments})
    if of_tool and "gen_ai.output.messages" in found:
        for message in messages_of(plain(found["gen_ai.output.messages"])):
            for answer in message.answered:
                found.setdefault("gen_ai.tool.output", {"stringValue": answer.result})
    return found


# --- models and agents ----------------------------------------------------------------------------


def describe_model(event: Event, found: Attributes, span: dict[str, Any]) -> list[Event]:
    """Add the request of a model's or an agent's span.

    Gives the calls it lists and the results it saw as events of their own, so that the store may
    shorten their payloads.
    """
    told = span.get("events")
    inputs: list[Message] = []
    outputs: list[Message] = []
    if told:
        found = {**_from_events(told), **found}
        inputs, outputs = _messages_in_events(told)
    for key in _INPUT:
        if key in found:
            inputs += messages_of(plain(found[key]))
            if inputs:
                break
    if not inputs and _TOLD in found:
        inputs, outputs = _events_told(_parsed(plain(found[_TOLD])))
    flat = [(key, plain(value)) for key, value in pairs(found, _INPUT_NESTED + _OUTPUT_NESTED)]
    if flat:
        for prefix in _INPUT_NESTED:
            inputs = inputs or messages_of(nested(flat, prefix))
    variants: list[list[Message]] = [outputs] if outputs else []
    variants += [messages_of(plain(found[key])) for key in _OUTPUT if key in found]
    if flat:
        variants += [messages_of(nested(flat, prefix)) for prefix in _OUTPUT_NESTED]
    old = found.get("llm.function_call")
    if old is not None:
        variants.append(messages_of(plain(old)))
    asked: list[Asked] = []
    for variant in variants:
        asked = joined(asked, [call for message in variant for call in message.asked])
    request = request_of(inputs)
    if request:
        event["request"] = request
    elif (value := _first(found, _REQUEST)) is not None:
        text, rank = request_in(value)
        if text:
            event["request"] = text
            if rank:
                event["rank"] = rank
    listed = [_listed(event["id"], number, call) for number, call in enumerate(asked)]
    history = [*inputs, *(message for variant in variants[:1] for message in variant)]
    return [*listed, *_answers(event["id"], history)]


def _listed(span_id: str, number: int, call: Asked) -> Event:
    event: Event = {
        "id": f"{span_id} asks {number}",
        "kind": "listed",
        "span": span_id,
        "number": number,
        "name": call.name,
    }
    if call.call_id is not None:
        event["call_id"] = call.call_id
    if call.arguments is not None:
        event["arguments"] = call.arguments
    return event


def _answers(span_id: str, history: list[Message]) -> Iterator[Event]:
    """Results in the order of the messages; equal ids are told apart by their occurrence."""
    seen: dict[str, int] = {}
    known: set[str | None] = set()
    for message in history:
        known.update(call.call_id for call in message.asked)
        for answer in message.answered:
            key = answer.call_id or f"name {answer.name}"
            occurrence = seen.get(key, 0)
            seen[key] = occurrence + 1
            event: Event = {
                "id": f"{span_id} saw {key} {occurrence}",
                "kind": "answer",
                "span": span_id,
                "key": key,
                "occurrence": occurrence,
            }
            if answer.result is not None:
                event["result"] = answer.result
                if not answer.failed and "rror" in answer.result.lower():
                    answer.failed = failed_payload(answer.result)
            if answer.failed:
                event["status"] = "error"
            if answer.call_id is not None and answer.call_id not in known:
                event["orphan"] = True
            yield event


def _messages_in_events(told: Any) -> tuple[list[Message], list[Message]]:
    """Messages of the conventions up to 1.36: one event of the span each."""
    inputs: list[Message] = []
    outputs: list[Message] = []
    for event in told if isinstance(told, list) else ():
        name = event.get("name") if isinstance(event, dict) else None
        if not isinstance(name, str) or not name.startswith("gen_ai."):
            continue
        attributes = attributes_of(event.get("attributes"))
        values = {key: plain(value) for key, value in attributes.items()}
        if name == "gen_ai.choice":
            outputs += messages_of(_spread({"role": "assistant", **values}, "message"))
        elif name.endswith(".message"):
            role = name.removeprefix("gen_ai.").removesuffix(".message")
            inputs += messages_of(_spread({"role": role, **values}, "content"))
    return inputs, outputs


def _events_told(told: Any) -> tuple[list[Message], list[Message]]:
    """Messages of a model in the list of events that Pydantic AI writes."""
    events = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    choices = [one for one in events if one.get("event.name") == "gen_ai.choice"]
    return messages_of([one for one in events if one not in choices]), messages_of(choices)


def _spread(message: dict[str, Any], key: str) -> dict[str, Any]:
    """The message with its JSON text parsed."""
    message = dict(message)
    for name in (key, "tool_calls"):
        text = message.get(name)
        if isinstance(text, str) and text[:1] in ("[", "{"):
            try:
                message[name] = parse(text)
            except (ValueError, RecursionError):
                continue
    if key == "message":
        inner = message.pop("message", None)
        if isinstance(inner, dict):
            message = {**message, **inner}
        else:
            message["content"] = inner
    if isinstance(message.get("content"), dict) and message["role"] != "tool":
        message["content"] = [message["content"]]
    return message


_LONGEST_REQUEST = 4000
"""A structure longer than this is a program's state, not what somebody asked."""
_PLAIN_REQUEST = (
    "input",
    "query",
    "question",
    "prompt",
    "user_input",
    "request",
    "text",
    "content",
)


def request_in(value: Any) -> tuple[str, int]:
    """What a root span was given, as the request; 1 beside it where it is a whole structure."""
    if isinstance(value, str):
        if value.lstrip()[:1] not in ("{", "["):
            return value, 0
        try:
            parsed = parse(value)
        except (ValueError, RecursionError):
            return value, 0
    else:
        parsed = value
    if isinstance(parsed, list) and len(parsed) == 1 and isinstance(parsed[0], str):
        return parsed[0], 0
    if isinstance(parsed, dict):
        for key in ("inputs", "kwargs"):
            if isinstance(parsed.get(key), dict):
                parsed = {**parsed[key], **{k: v for k, v in parsed.items() if k != key}}
        for key in _PLAIN_REQUEST:
            if isinstance(parsed.get(key), str) and parsed[key]:
                return parsed[key], 0
    asked = request_of(messages_of(parsed))
    if asked:
        return asked, 0
    whole = value if isinstance(value, str) else canonical(value)
    return (whole, 1) if len(whole) <= _LONGEST_REQUEST else ("", 1)


# --- tool definitions -----------------------------------------------------------------------------


def tools_of(found: Attributes, kind: str) -> Iterator[ToolRecord]:
    """The contracts that a span carries: of the tool it runs, or of those its model may choose."""
    if kind == "tool":
        value = next((found[key] for key in _DESCRIPTION if key in found), None)
        schema = next((found[key] for key in _SCHEMA if key in found), None)
        name = _first(found, _NAME)
        if isinstance(name, str) and name and (value or schema):
            told = _parsed(plain(schema))
            made = definition(told) if isinstance(told, dict) and "function" in told else None
            described = str(plain(value) or "") if value else (made.description if made else "")
            if not described and isinstance(told, dict):
                described = str(told.get("description") or "")
            parameters = made.parameters if made else _declared(told)
            if described or parameters:
                yield ToolRecord(name, described, parameters)
        return
    for key in _DEFINITIONS:
        if key in found:
            for told in _offered(_parsed(plain(found[key]))):
                made = definition(_parsed(told))
                if made is not None:
                    yield made
    flat = [(key, plain(value)) for key, value in pairs(found, _TOOLS_NESTED)]
    if not flat:
        return
    for told in nested(flat, "llm.tools."):
        tool = told.get("tool") if isinstance(told, dict) else None
        made = definition(_parsed(tool.get("json_schema"))) if isinstance(tool, dict) else None
        if made is not None:
            yield made
    for told in nested(flat, "llm.request.functions."):
        if isinstance(told, dict):
            made = definition({**told, "parameters": _parsed(told.get("parameters"))})
            if made is not None:
                yield made


def _offered(told: Any) -> Iterator[Any]:
    """The definitions in a list, in a request of Gemini's, or in Pydantic AI's parameters."""
    if isinstance(told, list):
        yield from told
    elif isinstance(told, dict):
        for key in ("function_tools", "output_tools"):
            yield from _list(told.get(key))
        config = told.get("config")
        for group in _list(config.get("tools")) if isinstance(config, dict) else ():
            if isinstance(group, dict):
                yield from _list(
                    group.get("function_declarations", group.get("functionDeclarations"))
                )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _declared(told: Any) -> tuple[dict[str, Any], ...]:
    """The parameters of a schema, or of what smolagents writes: each with its type, by name."""
    if isinstance(told, dict) and all(
        isinstance(one, dict) and isinstance(one.get("type"), str) for one in told.values()
    ):
        needed = [name for name, one in told.items() if not one.get("nullable")]
        told = {"properties": told, "required": needed}
    return parameters_of(told)


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse(value)
        except (ValueError, RecursionError):
            return None
    return value


def definition(told: Any) -> ToolRecord | None:
    """A tool definition as models take it: OpenAI chat or flat, Anthropic, MCP."""
    if not isinstance(told, dict):
        return None
    inner = told.get("function")
    if isinstance(inner, dict):
        told = inner
    if not isinstance(told.get("name"), str) or not told["name"]:
        return None
    keys = ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "jsonSchema")
    schema = next((told[key] for key in keys if told.get(key) is not None), None)
    return ToolRecord(told["name"], str(told.get("description") or ""), parameters_of(schema))
