"""Langfuse: a trace as the page downloads it, as the API gives it, and rows of observations.

Observations are unsorted and, in rows, apart from their trace: they are events of the trace's id.
The page's file holds inputs, outputs and metadata as JSON text; what came through OpenTelemetry
keeps the span's attributes in ``metadata.attributes``.
"""

from collections.abc import Iterator
from typing import Any

from warehouse.readers import payloads
from warehouse.readers.payloads import decoded, unquoted, when
from warehouse.readers.spans import Event, assembler, keyed, llm_events, span_event, tool_fields
from warehouse.readers.stream import Item
from warehouse.records import UNRECORDED, Fragment, Ignored, Record, Rejected, ToolRecord

_TYPES = (
    "SPAN",
    "EVENT",
    "GENERATION",
    "AGENT",
    "TOOL",
    "CHAIN",
    "RETRIEVER",
    "EVALUATOR",
    "EMBEDDING",
    "GUARDRAIL",
)
_SNAKE = {
    "traceId": "trace_id",
    "parentObservationId": "parent_observation_id",
    "startTime": "start_time",
    "endTime": "end_time",
    "statusMessage": "status_message",
    "sessionId": "session_id",
    "toolDefinitions": "tool_definitions",
    "toolCalls": "tool_calls",
    "toolCallNames": "tool_call_names",
}
"""Field names of the exports to object storage."""
_TOLERANCE = 1_000_000
"""Langfuse's times are rounded to milliseconds."""
_TOOL_SPANS = (
    ("openinference.span.kind", "TOOL"),
    ("gen_ai.operation.name", "execute_tool"),
    ("langsmith.span.kind", "tool"),
    ("traceloop.span.kind", "tool"),
    ("ai.operationId", "ai.toolCall"),
)
_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")
_CALL_IDS = ("gen_ai.tool.call.id", "tool.id", "tool_call.id", "ai.toolCall.id")
_SESSIONS = (
    "session.id",
    "langfuse.session.id",
    "langsmith.metadata.thread_id",
    "langsmith.metadata.session_id",
    "gen_ai.conversation.id",
)


def _field(value: dict[str, Any], name: str) -> Any:
    found = value.get(name)
    return value.get(_SNAKE[name]) if found is None and name in _SNAKE else found


def is_observation(value: Any) -> bool:
    """A row of observations."""
    return (
        isinstance(value, dict)
        and value.get("type") in _TYPES
        and isinstance(value.get("id"), str)
        and (
            ("traceId" in value and "startTime" in value)
            or {"trace_id", "start_time", "parent_observation_id"} <= value.keys()
        )
    )


def is_trace(value: Any) -> bool:
    """A trace, with or without its observations."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return False
    if "timestamp" not in value:
        return False
    told = "sessionId" in value or "session_id" in value
    return isinstance(value.get("observations"), list) or (
        told and ("tags" in value or "userId" in value or "user_id" in value)
    )


def is_export(value: Any) -> bool:
    """Any of the shapes, or a page of them."""
    if isinstance(value, list):
        return bool(value) and (is_observation(value[0]) or is_trace(value[0]))
    if not isinstance(value, dict):
        return False
    trace, rows = value.get("trace"), value.get("observations")
    if isinstance(trace, dict) and isinstance(rows, list):
        return is_trace(trace) or bool(rows and is_observation(rows[0]))
    if isinstance(value.get("data"), list) and "meta" in value:
        return is_export(value["data"])
    return is_observation(value) or is_trace(value)


def read_export(item: Item) -> Iterator[Record]:
    """Traces and observations of one record, each trace's as a fragment."""
    value = item.value
    if isinstance(value, dict) and isinstance(value.get("data"), list) and "meta" in value:
        value = value["data"]
    tools: dict[str, ToolRecord] = {}
    told: dict[str, list[Event]] = {}
    for part in value if isinstance(value, list) else [value]:
        if is_observation(part):
            yield from _rows(item, None, [part], told, tools)
        elif isinstance(part, dict) and isinstance(part.get("trace"), dict):
            yield from _rows(item, part["trace"], part["observations"], told, tools)
        elif is_trace(part):
            yield from _rows(item, part, part.get("observations") or (), told, tools)
        else:
            yield Ignored("record that is neither a trace nor an observation")
    yield from tools.values()
    for conversation, events in told.items():
        yield Fragment(conversation, events)


def _rows(
    item: Item,
    trace: dict[str, Any] | None,
    rows: Any,
    told: dict[str, list[Event]],
    tools: dict[str, ToolRecord],
) -> Iterator[Record]:
    sessions = [_field(trace, "sessionId")] if trace else []
    by_trace: dict[str, list[Event]] = {}
    if trace and isinstance(trace.get("id"), str):
        by_trace[trace["id"]] = []
    for row in rows:
        if isinstance(row, str):
            continue  # a list of traces names observations by id
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            yield Ignored("observation without an id")
            continue
        trace_id = _field(row, "traceId") or (trace or {}).get("id")
        if not isinstance(trace_id, str):
            reason = f"expected a traceId on observation {row['id']}, got {trace_id!r}"
            yield Rejected(item.place, reason, item.raw)
            continue
        sessions.append(_field(row, "sessionId"))
        by_trace.setdefault(trace_id, []).extend(_events(row, tools))
    session = next((str(s) for s in sessions if s), None)
    for trace_id, events in by_trace.items():
        roots = [e for e in events if "parent" not in e and e["kind"] not in ("asked", "answer")]
        is_lone = bool(roots) and all(root["kind"] == "tool" for root in roots)
        key, prefix = keyed(trace_id, session, is_lone=is_lone)
        for event in events if prefix else ():
            for name in ("id", "parent", "span"):
                if name in event:
                    event[name] = prefix + event[name]
        if (trace and trace.get("id") == trace_id) or session:
            mine = trace if trace and trace.get("id") == trace_id else {}
            facts = {
                "id": f"{prefix}trace",
                "kind": "trace",
                "session": session,
                "start": when(mine.get("timestamp")),
                "name": None if is_lone else mine.get("name"),
                "request": None if is_lone else payloads.request_of(unquoted(mine.get("input"))),
            }
            events.append({name: fact for name, fact in facts.items() if fact})
        told.setdefault(key, []).extend(events)


def _events(row: dict[str, Any], tools: dict[str, ToolRecord]) -> list[Event]:
    identity = row["id"]
    metadata = decoded(row.get("metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    attributes = decoded(metadata.get("attributes"))
    attributes = attributes if isinstance(attributes, dict) else {}
    inputs, outputs = unquoted(row.get("input")), unquoted(row.get("output"))
    parent = _field(row, "parentObservationId")
    kind = _kind(row, attributes, inputs, outputs)
    fields: Event = {}
    more: list[Event] = []
    if kind in ("tool", "maybe"):
        fields = _tool(row, metadata, attributes, inputs, outputs)
    elif kind == "llm":
        fields, more = _llm(row, attributes, inputs, outputs, tools)
    if not parent and kind != "tool":
        fields["request"] = payloads.request_of(inputs) or None
    if row.get("level") == "ERROR":
        fields["status"] = "error"
        message = _field(row, "statusMessage")
        fields["error"] = (str(message) if message else fields.get("error") or "error")[:2_000]
    elif fields.get("error"):
        fields["status"] = "error"
    event = span_event(
        identity,
        kind,
        parent=str(parent) if parent else None,
        start=when(_field(row, "startTime")),
        end=when(_field(row, "endTime")),
        session=_session(metadata, attributes),
        **fields,
    )
    return [event, *more]


def _session(metadata: dict[str, Any], attributes: dict[str, Any]) -> str | None:
    if metadata.get("thread_id"):
        return str(metadata["thread_id"])
    for key in _SESSIONS:
        found = attributes.get(key)
        # Some agents write the id of the response before this one where the conversation belongs.
        if found and not str(found).startswith("resp_"):
            return str(found)
    return None


def _kind(row: dict[str, Any], attributes: dict[str, Any], inputs: Any, outputs: Any) -> str:
    told = row.get("type")
    if told == "TOOL" or any(attributes.get(key) == kind for key, kind in _TOOL_SPANS):
        return "tool"
    if told == "GENERATION" or attributes.get("openinference.span.kind") == "LLM":
        return "llm"
    if told != "SPAN":
        return "span"
    if isinstance(outputs, dict) and payloads.is_tool_message(outputs.get("output", outputs)):
        return "tool"
    if isinstance(inputs, dict) and "messages" in inputs:
        return "span"  # a step of a graph with the whole state
    return "maybe"


def _tool(
    row: dict[str, Any],
    metadata: dict[str, Any],
    attributes: dict[str, Any],
    inputs: Any,
    outputs: Any,
) -> Event:
    if inputs is None:
        inputs = unquoted(_first(attributes, "gen_ai.tool.call.arguments", "input.value"))
    if outputs is None:
        outputs = unquoted(_first(attributes, "gen_ai.tool.call.result", "output.value"))
    arguments = UNRECORDED if inputs is None else payloads.arguments_of(inputs)
    if isinstance(arguments, str) and isinstance(metadata.get("inputs"), dict):
        inputs = metadata["inputs"]  # LangChain's own record beside the text
    fields = tool_fields(
        UNRECORDED if inputs is None else inputs, UNRECORDED if outputs is None else outputs
    )
    name = _first(attributes, *_NAMES) or row.get("name")
    fields["name"] = str(name or "unknown").removeprefix("execute_tool ")
    call_id = _first(attributes, *_CALL_IDS)
    call_id = call_id or metadata.get("tool_call_id")
    if call_id:
        fields["call_id"] = str(call_id)
    return fields


def _first(attributes: dict[str, Any], *names: str) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def _llm(
    row: dict[str, Any],
    attributes: dict[str, Any],
    inputs: Any,
    outputs: Any,
    tools: dict[str, ToolRecord],
) -> tuple[Event, list[Event]]:
    fields, more = llm_events(row["id"], inputs, outputs)
    calls = _field(row, "toolCalls")
    if isinstance(calls, list) and calls and not any(e["kind"] == "asked" for e in more):
        names = _field(row, "toolCallNames")
        names = names if isinstance(names, list) else []
        listed = []
        for index, call in enumerate(map(decoded, calls)):
            if isinstance(call, dict):
                name = call.get("name") or (names[index] if index < len(names) else None)
                listed.append({**call, "name": name})
        more += llm_events(row["id"], None, {"role": "assistant", "tool_calls": listed})[1]
    offered = {tool.name: tool for tool in _offered(row, attributes, inputs, outputs)}
    for name, tool in offered.items():
        tools.setdefault(name, tool)
    if offered:
        fields["tools"] = sorted(offered)
    return fields, more


def _offered(
    row: dict[str, Any], attributes: dict[str, Any], inputs: Any, outputs: Any
) -> Iterator[ToolRecord]:
    """The tools that an LLM was given, wherever the library wrote them."""
    defined = decoded(_field(row, "toolDefinitions"))
    if isinstance(defined, dict):
        for name, told in defined.items():
            spec = decoded(told)
            spec = spec if isinstance(spec, dict) else {"description": str(told)}
            yield from payloads.offered_tools([{"name": name, **spec}])
    elif isinstance(defined, list):
        yield from payloads.offered_tools(defined)
    for holder in (inputs, outputs):
        found = holder.get("tools") if isinstance(holder, dict) else None
        if isinstance(found, list):
            yield from payloads.offered_tools(found)
    for message in payloads.messages_of(inputs):
        # LangChain's integration appends the tools to the messages.
        if isinstance(message, dict) and message.get("role") == "tool":
            content = message.get("content")
            if "tool_call_id" not in message and isinstance(content, dict):
                yield from payloads.offered_tools([content])
    told = decoded(attributes.get("gen_ai.tool.definitions"))
    if isinstance(told, list):
        yield from payloads.offered_tools(told)
    for key, schema in attributes.items():
        if key.startswith("llm.tools.") and key.endswith("json_schema"):
            yield from payloads.offered_tools([schema])


assemble = assembler(_TOLERANCE)
