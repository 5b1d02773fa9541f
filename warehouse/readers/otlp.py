"""Spans of agents and tools in every carrier of OpenTelemetry: the format ``otlp``.

It covers OpenTelemetry GenAI and OpenInference attributes (``genai`` knows both). Carriers are
OTLP/JSON, Grafana Tempo, Jaeger, single spans, the SDK's console exporter, Phoenix, and OTLP
protobuf (which ``otlp_protobuf`` turns into OTLP/JSON objects). Each trace becomes a fragment of
small events, because it may come in many batches; ``otlp_assembly`` makes trajectories of them.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any

from warehouse.readers.clock import iso_nanoseconds, nanoseconds
from warehouse.readers.genai import (
    Event,
    attributes_of,
    describe,
    describe_model,
    describe_tool,
    is_handoff,
    kind_of,
    plain,
    plan_of,
    tools_of,
)
from warehouse.readers.stream import Item
from warehouse.records import Fragment, Ignored, Record, Rejected, ToolRecord

_BATCHES = ("resourceSpans", "resource_spans", "batches")
_SCOPES = (
    "scopeSpans",
    "scope_spans",
    "instrumentationLibrarySpans",
    "instrumentation_library_spans",
)
_LISTS = ("spans", "data")
_MOST = 2**63 - 1


def is_spans(value: Any) -> bool:
    """A batch, a trace, or a single span, in any carrier's JSON."""
    if isinstance(value, list):
        return bool(value) and isinstance(value[0], dict) and is_spans(value[0])
    if not isinstance(value, dict):
        return False
    for key in _BATCHES:
        batches = value.get(key)
        if isinstance(batches, list):
            # Other products have batches too.
            return key != "batches" or not batches or _has_scopes(batches[0])
    return (
        _has_scopes(value)
        or _is_span(value)
        or _is_jaeger(value)
        or _is_jaeger_export(value)
        or _wrapped(value) is not None
        or _is_span_list(value)
    )


def _wrapped(value: dict[str, Any]) -> dict[str, Any] | None:
    """The batches inside an answer of Tempo (``trace``) or of Jaeger's newer API (``result``)."""
    for key in ("trace", "result"):
        inner = value.get(key)
        if isinstance(inner, dict) and any(isinstance(inner.get(k), list) for k in _BATCHES):
            return inner
    return None


def _has_scopes(value: Any) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(key), list) for key in _SCOPES)


def _is_span_list(value: dict[str, Any]) -> bool:
    """Spans in a list of their own: ``data`` in what Phoenix answers."""
    return any(
        isinstance(value.get(key), list) and value[key] and _is_span(value[key][0])
        for key in _LISTS
    )


def _is_span(value: Any) -> bool:
    """OTLP, the SDK's or Phoenix's span, and not one of MLflow's, which has its own reader."""
    if not isinstance(value, dict) or "name" not in value:
        return False
    context = value.get("context")
    if not (
        ("traceId" in value and "spanId" in value)
        or ("trace_id" in value and "span_id" in value)
        or (isinstance(context, dict) and "trace_id" in context and "span_id" in context)
    ):
        return False
    attributes = value.get("attributes")
    if isinstance(attributes, dict):
        return not any(key.startswith("mlflow.") for key in attributes)
    return attributes is None or isinstance(attributes, list)


def _is_jaeger(value: Any) -> bool:
    spans = value.get("spans") if isinstance(value, dict) else None
    return (
        isinstance(spans, list)
        and ("traceID" in value or "processes" in value)
        and (not spans or (isinstance(spans[0], dict) and "spanID" in spans[0]))
    ) or (isinstance(value, dict) and "traceID" in value and "spanID" in value)


def _is_jaeger_export(value: dict[str, Any]) -> bool:
    data = value.get("data")
    return isinstance(data, list) and bool(data) and _is_jaeger(data[0])


# --- spans of a record ----------------------------------------------------------------------------


def _spans_of(value: Any) -> Iterator[tuple[str | None, list[Any]]]:
    """(where they were made, spans as OTLP/JSON has them) of each batch in a record."""
    if isinstance(value, list):
        for one in value:
            yield from _spans_of(one)
        return
    value = _wrapped(value) or value
    for key in _BATCHES:
        if isinstance(value.get(key), list):
            for batch in value[key]:
                if isinstance(batch, dict):
                    yield from _spans_of_resource(batch)
                else:
                    yield None, [batch]  # set aside as a span that is none
            return
    if _has_scopes(value):
        yield from _spans_of_resource(value)
    elif _is_jaeger_export(value):
        for trace in value["data"]:
            if isinstance(trace, dict):
                yield from _spans_of_jaeger(trace)
            else:
                yield None, [trace]
    elif _is_jaeger(value):
        yield from _spans_of_jaeger(value)
    else:
        spans = next((value[k] for k in _LISTS if isinstance(value.get(k), list)), [value])
        for span in spans:
            resource = span.get("resource") if isinstance(span, dict) else None
            told = resource.get("attributes") if isinstance(resource, dict) else None
            yield _host(attributes_of(told)) if told else None, [span]


def _spans_of_resource(batch: dict[str, Any]) -> Iterator[tuple[str | None, list[Any]]]:
    resource = batch.get("resource")
    host = _host(attributes_of(resource.get("attributes"))) if isinstance(resource, dict) else None
    for key in _SCOPES:
        for scope in _listed(batch.get(key)):
            yield host, _listed(scope.get("spans")) if isinstance(scope, dict) else [scope]


def _listed(value: Any) -> list[Any]:
    """The parts of a batch; what should be a list of them and is none is one odd part."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_HOST_KEYS = (
    "host.name",
    "host.id",
    "hostname",
    "k8s.pod.name",
    "container.id",
    "service.instance.id",
    "service.name",
)


def _host(attributes: dict[str, Any]) -> str | None:
    """What tells one clock from another."""
    told = [str(plain(attributes[key])) for key in _HOST_KEYS if key in attributes]
    return "|".join(told) or None


def _spans_of_jaeger(trace: dict[str, Any]) -> Iterator[tuple[str | None, list[Any]]]:
    processes = trace.get("processes")
    hosts: dict[str, str | None] = {}
    for name, process in processes.items() if isinstance(processes, dict) else ():
        if isinstance(process, dict):
            told = (_host(_tags(process.get("tags"))), process.get("serviceName"))
            hosts[name] = "|".join(part for part in told if isinstance(part, str)) or None
    for span in trace["spans"] if isinstance(trace.get("spans"), list) else [trace]:
        process = span.get("processID") if isinstance(span, dict) else None
        yield hosts.get(process) if isinstance(process, str) else None, [span]


def _tags(tags: Any) -> dict[str, Any]:
    found = {}
    for tag in _list(tags):
        if isinstance(tag, dict) and isinstance(tag.get("key"), str):
            value = tag.get("value")
            if tag.get("type") == "int64" and isinstance(value, str):
                value = int(value)
            found[tag["key"]] = {"stringValue": value}
    return found


def _from_jaeger(span: dict[str, Any]) -> dict[str, Any]:
    """A Jaeger span as an OTLP one whose attributes are an object of AnyValues."""
    found = _tags(span.get("tags"))
    parent = span.get("parentSpanID")
    for reference in _list(span.get("references")):
        if reference.get("refType") == "CHILD_OF" and reference.get("traceID") == span["traceID"]:
            parent = reference.get("spanID")
            break
    start = span.get("startTime")
    start = start * 1000 if type(start) is int else None
    duration = span.get("duration")
    end = start + duration * 1000 if start is not None and type(duration) is int else None
    code: Any = plain(found.get("otel.status_code"))
    if plain(found.get("error")) in (True, "true"):
        code = "ERROR"
    events = []
    for log in _list(span.get("logs")):
        fields = _tags(log.get("fields"))
        name = plain(fields.get("event")) or plain(fields.get("name"))
        events.append({"name": name, "attributes": {k: plain(v) for k, v in fields.items()}})
    return {
        "traceId": span["traceID"],
        "spanId": span["spanID"],
        "parentSpanId": parent,
        "name": span.get("operationName"),
        "startTimeUnixNano": start,
        "endTimeUnixNano": end,
        "found": found,
        "status": {"code": code, "message": plain(found.get("otel.status_description"))},
        "events": events,
    }


def _from_snake(span: dict[str, Any]) -> dict[str, Any]:
    """A span with snake_case keys (SDK, Phoenix, protobuf's own JSON) as an OTLP one."""
    context = span.get("context")
    ids = context if isinstance(context, dict) else span
    status = span.get("status")
    if isinstance(status, str):
        status = {"code": status}
    if not isinstance(status, dict):
        status = {"code": span.get("status_code"), "message": span.get("status_message")}
    elif "status_code" in status:
        status = {"code": status["status_code"], "message": status.get("description")}
    found = attributes_of(span.get("attributes"))
    kind = span.get("span_kind")
    if kind is not None and "openinference.span.kind" not in found:
        found["openinference.span.kind"] = {"stringValue": kind}
    return {
        "traceId": ids["trace_id"],
        "spanId": ids["span_id"],
        "parentSpanId": span.get("parent_span_id", span.get("parent_id")),
        "name": span.get("name"),
        "startTimeUnixNano": _time(span, "start_time_unix_nano", "start_time"),
        "endTimeUnixNano": _time(span, "end_time_unix_nano", "end_time"),
        "found": found,
        "status": status,
        "events": span.get("events"),
    }


def _time(span: dict[str, Any], exact: str, iso: str) -> int | None:
    value = span.get(exact, span.get(iso))
    return nanoseconds(value) or iso_nanoseconds(value)


# --- events of a span -----------------------------------------------------------------------------


def read_spans(item: Item) -> Iterator[Record]:
    """The events of each trace in a record, and the tool definitions that its spans carry."""
    traces: dict[str, list[Event]] = {}
    tools: dict[str, ToolRecord] = {}
    with_models: dict[str, int] = {}
    is_empty = True
    for host, spans in _spans_of(item.value):
        is_empty = is_empty and not spans
        last, key = None, ""
        events: list[Event] = []
        for span in spans:
            try:
                trace_id = span.get("traceId")
                if trace_id is None:
                    span = _from_jaeger(span) if "traceID" in span else _from_snake(span)
                    trace_id = span["traceId"]
                if trace_id != last:
                    key = _hex(trace_id, 32)
                    last = trace_id
                    events = traces.setdefault(key, [])
                event = _event_of(span, host)
                found = span.get("found")
                if found is None:
                    told = span.get("attributes")
                    try:
                        found = {one["key"]: one["value"] for one in told} if told else {}
                    except (KeyError, TypeError):
                        found = attributes_of(told)
                kind = kind_of(found) if found else None
                if kind is None:
                    event.pop("end", None)  # only the chain of parents needs it
                    events.append(event)
                    continue
                plan = plan_of(tuple(found))
                if kind == "tool" and plan.name is None and is_handoff(span):
                    kind = "chain"
                event["kind"] = kind
                describe(event, found, plan)
                if plan.tools:
                    _keep(tools, found, kind)
                if kind == "tool":
                    describe_tool(event, found, span, plan)
                    if "parent" not in event and "conversation" in event:
                        # Tools in threads that lost their parent: the session holds them together.
                        traces.setdefault(f"session {event['conversation']}", []).append(event)
                        # What ran inside it is told by its own trace.
                        event = {k: v for k, v in event.items() if k != "result"} | {"moved": True}
                    events.append(event)
                elif kind == "chain" and "parent" in event:
                    events.append(event)  # one step of many, whose input repeats the state
                else:
                    events.append(event)
                    if plan.messages or span.get("events"):
                        events.extend(describe_model(event, found, span))
                        with_models[key] = with_models.get(key, 0) + 1
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                reason = f"expected a span with its ids, got {type(error).__name__}: {error}"
                raw = json.dumps(span, ensure_ascii=False, default=str)
                yield Rejected(item.place, reason, raw)
    if is_empty:
        yield Ignored("batch without spans")
    yield from tools.values()
    for key, events in traces.items():
        if events:
            yield Fragment(key, _without_repeats(events) if with_models.get(key, 0) > 1 else events)


def _hex(told: Any, digits: int) -> str:
    """An id in small hex digits; protobuf's own JSON has base64."""
    if not isinstance(told, str) or not told:
        raise ValueError(f"id {told!r}")
    if len(told) == digits:
        return told.lower()
    if told[:2] in ("0x", "0X"):
        return told[2:].lower()
    if told[-1] == "=" and len(told) == (digits // 2 + 2) // 3 * 4:
        try:
            return base64.b64decode(told, validate=True).hex()
        except (binascii.Error, ValueError):
            return told
    return told.lower()


def _event_of(span: dict[str, Any], host: str | None) -> Event:
    """Who and when, of any span."""
    span_id = span["spanId"]
    event: Event = {"id": span_id.lower() if len(span_id) == 16 else _hex(span_id, 16)}
    parent = span.get("parentSpanId")
    if parent and parent != "0000000000000000":
        parent = parent.lower() if len(parent) == 16 else _hex(parent, 16)
        if parent != event["id"]:
            event["parent"] = parent
    at = span.get("startTimeUnixNano")
    if at:
        at = int(at) if type(at) is str and at.isdecimal() else nanoseconds(at) or 0
        if 0 < at <= _MOST:
            event["start"] = at
    at = span.get("endTimeUnixNano")
    if at:
        at = int(at) if type(at) is str and at.isdecimal() else nanoseconds(at) or 0
        if 0 < at <= _MOST:
            event["end"] = at
    if host is not None:
        event["host"] = host
    return event


def _keep(tools: dict[str, ToolRecord], found: dict[str, Any], kind: str) -> None:
    """Keep the fullest contract of each tool: many spans say only part of it."""
    for tool in tools_of(found, kind):
        known = tools.get(tool.name)
        if known is None or _richness(tool) > _richness(known):
            tools[tool.name] = tool


def _richness(tool: ToolRecord) -> tuple[int, int, str]:
    return len(tool.parameters), len(tool.description), str(tool.parameters)


def _without_repeats(events: list[Event]) -> list[Event]:
    """The events of a trace without what later inputs of its models only repeat.

    Every later input holds the whole history: of each result the earliest telling is kept, and its
    text only where no tool's own span has it. Of the requests the earliest is kept.
    """
    starts = {event["id"]: event.get("start", 0) for event in events if "span" not in event}
    executed: dict[str, int] = {}
    earliest: dict[tuple[str, int], tuple[int, str]] = {}
    requests: dict[int, tuple[int, str]] = {}
    for event in events:
        kind = event.get("kind")
        if kind == "tool":
            if "result" in event and "call_id" in event:
                executed[event["call_id"]] = executed.get(event["call_id"], 0) + 1
        elif kind == "answer":
            place = (starts.get(event["span"], 0), event["span"])
            told = (event["key"], event["occurrence"])
            if told not in earliest or place < earliest[told]:
                earliest[told] = place
        elif "request" in event:
            rank, place = event.get("rank", 0), (event.get("start", 0), event["id"])
            if rank not in requests or place < requests[rank]:
                requests[rank] = place
    occurrences: dict[str, int] = {}
    for key, number in earliest:
        occurrences[key] = max(occurrences.get(key, 0), number + 1)
    kept = []
    for event in events:
        kind = event.get("kind")
        if kind == "answer":
            key = event["key"]
            if earliest[key, event["occurrence"]][1] != event["span"]:
                continue
            if executed.get(key, 0) >= occurrences[key]:
                event.pop("result", None)
        elif "request" in event and requests[event.get("rank", 0)][1] != event["id"]:
            event.pop("request")
            event.pop("rank", None)
        kept.append(event)
    return kept
