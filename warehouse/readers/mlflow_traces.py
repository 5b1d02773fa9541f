"""MLflow traces: ``Trace.to_json()`` of MLflow 3 and 2, and rows of ``mlflow.search_traces()``.

A trace may be exported while it runs, so its spans are told as events of the trace's id. Values of
attributes are JSON texts, and only those of tools, LLMs and roots are parsed.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from warehouse.readers import payloads
from warehouse.readers.clock import iso_nanoseconds, nanoseconds
from warehouse.readers.payloads import decoded
from warehouse.readers.spans import assembler, keyed, llm_events, span_event, tool_fields
from warehouse.readers.stream import Item, parse
from warehouse.records import UNRECORDED, Fragment, Ignored, Record, Rejected, ToolRecord

_LLM = ("CHAT_MODEL", "LLM")
_SESSION = "mlflow.trace.session"


def is_trace(value: Any) -> bool:
    """A trace, or a row of ``search_traces``."""
    if not isinstance(value, dict):
        return False
    info = value.get("info")
    if isinstance(info, dict):
        return isinstance(value.get("data"), dict) and (
            "trace_location" in info
            or "trace_metadata" in info
            or "request_metadata" in info
            or str(info.get("trace_id", info.get("request_id", ""))).startswith("tr-")
        )
    if not isinstance(value.get("trace_id", value.get("request_id")), str):
        return False
    if "trace" in value and ("trace_metadata" in value or "execution_duration" in value):
        return True
    return "spans" in value and ("trace_metadata" in value or "execution_duration" in value)


def read_trace(item: Item) -> Iterator[Record]:
    """One trace."""
    row = item.value
    value = row
    if "info" not in row:
        whole = decoded(row.get("trace"))
        value = whole if isinstance(whole, dict) and "info" in whole else {"info": row}
    info, data = value["info"], value.get("data") or {}
    trace_id = info.get("trace_id") or info.get("request_id")
    if not isinstance(trace_id, str):
        yield Rejected(item.place, f"expected a trace_id as text, got {trace_id!r}", item.raw)
        return
    spans = data.get("spans") if isinstance(data, dict) else None
    spans = decoded(row.get("spans") if spans is None else spans)
    if spans is None:
        spans = []
    if not isinstance(spans, list):
        reason = f"expected spans as a list, got {type(spans).__name__}"
        yield Rejected(item.place, reason, item.raw)
        return
    metadata = decoded(info.get("trace_metadata") or info.get("request_metadata"))
    metadata = metadata if isinstance(metadata, dict) else {}
    session = metadata.get(_SESSION)
    session = str(session) if session else None
    events: list[dict[str, Any]] = []
    tools: dict[str, ToolRecord] = {}
    strange = 0
    for span in map(decoded, spans):
        if not isinstance(span, dict):
            strange += 1
            continue
        told, offered = _events(span)
        events += told
        for tool in offered:
            tools.setdefault(tool.name, tool)
    roots = [e for e in events if "parent" not in e and e["kind"] in ("tool", "llm", "span")]
    is_lone = bool(roots) and all(root["kind"] == "tool" for root in roots)
    key, prefix = keyed(trace_id, session, is_lone=is_lone)
    if prefix:
        for event in events:
            for name in ("id", "parent", "span"):
                if name in event:
                    event[name] = prefix + event[name]
    state = str(info.get("state") or info.get("status") or "").rpartition(".")[2]
    events.append(
        {
            k: v
            for k, v in {
                "id": f"{prefix}trace",
                "kind": "trace",
                "session": session,
                "start": _started(info),
                "request": None if is_lone else _request(info, metadata, data, row),
                "closed": state in ("OK", "ERROR") or None,
                "running": state == "IN_PROGRESS" or None,
            }.items()
            if v
        }
    )
    yield from tools.values()
    yield Fragment(key, events)
    for _ in range(strange):
        yield Ignored("span that is no object")


def _started(info: dict[str, Any]) -> int | None:
    told = info.get("request_time", info.get("timestamp_ms"))
    found = iso_nanoseconds(told)
    if found is None:
        milliseconds = nanoseconds(told)
        found = None if milliseconds is None else milliseconds * 1_000_000
    return found


def _request(
    info: dict[str, Any], metadata: dict[str, Any], data: Any, row: dict[str, Any]
) -> str | None:
    """The whole trace's input; spans may tell it better where it was cut."""
    told = (data.get("request") if isinstance(data, dict) else None) or row.get("request")
    if told is not None:
        return payloads.request_of(told) or None
    for text in (metadata.get("mlflow.traceInputs"), info.get("request_preview")):
        if isinstance(text, str) and text:
            value = _attribute(text)
            if value is not text:
                return payloads.request_of(value) or None
    return None


def _attribute(text: Any) -> Any:
    """An attribute's value: JSON text, or what is no JSON as it is."""
    if not isinstance(text, str):
        return text
    try:
        return parse(text)
    except (ValueError, RecursionError):
        return text


def _identity(value: Any) -> str | None:
    """A span's id in hex; MLflow 3 writes base64 of eight bytes."""
    if value is None or value == "":
        return None
    text = str(value)
    if len(text) == 12 and text.endswith("="):
        try:
            return base64.b64decode(text, validate=True).hex()
        except (binascii.Error, ValueError):
            return text
    return text.removeprefix("0x").lower() if len(text) in (16, 18) else text


def _events(span: dict[str, Any]) -> tuple[list[dict[str, Any]], list[ToolRecord]]:
    context = span.get("context")
    context = context if isinstance(context, dict) else {}
    identity = _identity(span.get("span_id", context.get("span_id")))
    if identity is None:
        return [], []
    parent = _identity(span.get("parent_span_id", span.get("parent_id")))
    start = nanoseconds(span.get("start_time_unix_nano", span.get("start_time")))
    end = nanoseconds(span.get("end_time_unix_nano", span.get("end_time")))
    attributes = decoded(span.get("attributes"))
    attributes = attributes if isinstance(attributes, dict) else {}
    raw_kind = attributes.get("mlflow.spanType", span.get("span_type"))
    kind = raw_kind.strip('"') if isinstance(raw_kind, str) else "UNKNOWN"
    if str(span.get("name")).endswith(".list_tools"):
        kind = "UNKNOWN"  # tracers of MCP clients call this a tool
    fields: dict[str, Any] = {}
    more: list[dict[str, Any]] = []
    tools: list[ToolRecord] = []
    if kind == "TOOL":
        fields = _tool(span, attributes)
    elif kind in _LLM:
        inputs = _attribute(_first(attributes, _INPUTS))
        outputs = _attribute(_first(attributes, _OUTPUTS))
        fields, more = llm_events(identity, inputs, outputs)
        offered = _attribute(
            attributes.get("mlflow.chat.tools", attributes.get("gen_ai.tool.definitions"))
        )
        if isinstance(offered, list):
            tools = list(payloads.offered_tools(offered))
    told = _first(attributes, _INPUTS)
    if parent is None and kind != "TOOL" and told is not UNRECORDED:
        fields["request"] = payloads.request_of(_attribute(told)) or None
    name = "tool" if kind == "TOOL" else "llm" if kind in _LLM else "span"
    event = span_event(identity, name, parent=parent, start=start, end=end, **fields)
    return [event, *more], tools


_INPUTS = ("mlflow.spanInputs", "gen_ai.input.messages", "input.value")
_OUTPUTS = ("mlflow.spanOutputs", "gen_ai.output.messages", "output.value")
_TOOL_INPUTS = ("mlflow.spanInputs", "gen_ai.tool.call.arguments", "input.value")
_TOOL_OUTPUTS = ("mlflow.spanOutputs", "gen_ai.tool.call.result", "output.value")


def _first(attributes: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if name in attributes:
            return attributes[name]
    return UNRECORDED


_NAMES = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "tool_name", "name")
_IDS = ("gen_ai.tool.call.id", "tool.id", "ai.toolCall.id", "tool_id", "tool_call_id")


def _tool(span: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    inputs = _first(attributes, _TOOL_INPUTS)
    outputs = _first(attributes, _TOOL_OUTPUTS)
    inputs = inputs if inputs is UNRECORDED else _attribute(inputs)
    outputs = outputs if outputs is UNRECORDED else _attribute(outputs)
    named = _attribute(_first(attributes, _NAMES))
    call_id = _attribute(_first(attributes, _IDS))
    handed = _handed(span, inputs)
    if handed is not None:
        named, inputs, call_id = handed
    elif isinstance(inputs, dict) and inputs.keys() <= _OF_METHODS and not inputs.get("args"):
        inputs = inputs.get("kwargs", inputs)
    if ("tool_id" in attributes or handed) and isinstance(outputs, dict) and len(outputs) == 1:
        outputs = outputs.get("result", outputs)  # the tracer's own wrapper
    fields = tool_fields(inputs, outputs)
    if not isinstance(named, str) or not named:
        named = span.get("name")
    fields["name"] = str(named or "unknown")
    if isinstance(call_id, (str, int)) and call_id != "":
        fields["call_id"] = str(call_id)
    status = span.get("status")
    code, message = span.get("status_code"), span.get("status_message")
    if isinstance(status, dict):
        code, message = status.get("code"), status.get("message")
    elif status is not None:
        code = status
    error = fields.get("error")
    events = decoded(span.get("events"))
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("name") == "exception":
            told = decoded(event.get("attributes"))
            text = told.get("exception.message") if isinstance(told, dict) else None
            error = str(text) if text else error or "exception"
            if isinstance(told, dict) and told.get("exception.type"):
                error = f"{told['exception.type']}: {text or ''}".rstrip(": ")
    failed = code in (2, "2") or str(code).rpartition("_")[2].upper() == "ERROR"
    fields["status"] = "error" if failed or error else None
    if failed and not error and message:
        error = str(message)
    fields["error"] = error and error[:2_000]
    return fields


_OF_METHODS = {"args", "kwargs", "sanitize_inputs_outputs"}
"""Inputs of a traced ``__call__``."""
_HANDED = ("call", "message", "validated")
_ARGUMENTS = ("args", "tool_args", "arguments")


def _handed(span: dict[str, Any], inputs: Any) -> tuple[str, Any, Any] | None:
    """(tool, arguments, call id) where a span is a library's method that is given a call."""
    title = span.get("name")
    if not isinstance(inputs, dict) or not isinstance(title, str):
        return None
    call: Any = inputs
    name = inputs.get("tool_name") if inputs.get("tool_name") == title else None
    if "." in title:  # a class and its method
        for key in _HANDED:
            if isinstance(call.get(key), dict):
                call = call[key]
        name = call.get("name" if title.endswith("call_tool") else "tool_name")
    arguments = next((call[key] for key in _ARGUMENTS if key in call), None)
    if not isinstance(name, str) or not isinstance(arguments, (dict, str)):
        return None
    return name, arguments, call.get("tool_call_id")


assemble = assembler()
