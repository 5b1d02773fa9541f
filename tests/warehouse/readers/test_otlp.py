"""Spans of agents and tools: carriers, spellings, what counts as a call, and in which order."""

import base64
import io
import json
import random
import time
from pathlib import Path

import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from warehouse.readers.carriers import iter_items
from warehouse.readers.otlp_assembly import assemble
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import (
    UNRECORDED,
    Fragment,
    Ignored,
    Rejected,
    ToolRecord,
    TrajectoryRecord,
)

SAMPLES = Path(__file__).parents[3].parent / "shared/samples"
T0 = 1_796_003_398_394_437_759
MS = 1_000_000
SECOND = 1000 * MS
TRACE = "d5f1e4921542d47f6a4fede7b07fc7fa"


def any_value(value):
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(one) for one in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {"stringValue": value}


def attributes(values):
    return [{"key": key, "value": any_value(value)} for key, value in values.items()]


def span(number, parent=None, at=0, length=MS, trace=TRACE, name="s", status=None, **values):
    """A span whose attributes are given with __ for dots; times in nanoseconds after T0."""
    told = {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(T0 + at),
        "endTimeUnixNano": "0" if length is None else str(T0 + at + length),
        "attributes": attributes({key.replace("__", "."): v for key, v in values.items()}),
        "status": status or {},
    }
    if parent is not None:
        told["parentSpanId"] = f"{parent:016x}"
    return told


def tool(number, parent=1, tool="search", call_id=None, arguments='{"q": 1}', result="r", **more):
    values = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": tool}
    if call_id is not None:
        values["gen_ai__tool__call__id"] = call_id
    if arguments is not None:
        values["gen_ai__tool__call__arguments"] = arguments
    if result is not None:
        values["gen_ai__tool__call__result"] = result
    return span(number, parent, **values, **more)


def agent(number=1, parent=None, length=100 * SECOND, **more):
    return span(number, parent, length=length, gen_ai__operation__name="invoke_agent", **more)


def chat(number, parent=1, asks=(), saw=(), user=None, **more):
    """A model's span: asks = (id, tool, arguments), saw = (id, result)."""
    values = {"gen_ai__operation__name": "chat"}
    if asks:
        parts = [
            {"type": "tool_call", "id": id_, "name": name, "arguments": arguments}
            for id_, name, arguments in asks
        ]
        values["gen_ai__output__messages"] = json.dumps([{"role": "assistant", "parts": parts}])
    told = [{"role": "user", "parts": [{"type": "text", "content": user}]}] if user else []
    told += [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": id_, "response": result}]}
        for id_, result in saw
    ]
    if told:
        values["gen_ai__input__messages"] = json.dumps(told)
    return span(number, parent, **values, **more)


def batch(*spans, **resource):
    resource = {key.replace("__", "."): value for key, value in resource.items()}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": attributes(resource)},
                "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}],
            }
        ]
    }


def records(*values):
    items = [Item(f"line {n}", "", v) for n, v in enumerate(values, start=1)]
    found = list(read_items(items))
    assert {name for name, _ in found} <= {"otlp"}, found
    return [record for _, record in found]


def trajectories(*values):
    return [r for r in records(*values) if isinstance(r, TrajectoryRecord)]


def read(*spans):
    (trajectory,) = trajectories(batch(*spans))
    return trajectory


def read_bytes(data):
    return [record for _, record in read_items(iter_items(io.BytesIO(data)))]


def names(trajectory):
    return [call.name for call in trajectory.calls]


def turns(trajectory):
    return [call.turn for call in trajectory.calls]


def statuses(trajectory):
    return [call.status for call in trajectory.calls]


# --- samples --------------------------------------------------------------------------------------


def sample(name):
    path = SAMPLES / name
    if not path.exists():
        pytest.skip("the folder of samples is not beside the project")
    return [record for _, record in read_file(path)]


def test_sample_of_genai_spans():
    (trajectory,) = sample("otel_genai/otlp_execute_tool_generated.json")
    assert names(trajectory) == ["get_weather", "get_weather", "book_flight"]
    assert statuses(trajectory) == ["ok", "ok", "error"]
    assert trajectory.calls[0].arguments == '{"city": "Paris"}'
    assert trajectory.calls[0].result == '{"temp": 18}'
    assert trajectory.calls[0].started_at == 1796003398394437759
    assert trajectory.calls[2].arguments is UNRECORDED
    assert trajectory.calls[2].error == "timed out"
    assert trajectory.conversation == "conv-1"
    assert trajectory.native_id == TRACE


def test_sample_of_tempo():
    tool_record, trajectory = sample("otel_genai/tempo_export_batches_genai_spans.json")
    assert tool_record == ToolRecord("helm_list_releases", "List Helm releases in a namespace")
    (call,) = trajectory.calls
    assert (call.name, call.arguments, call.status) == ("helm_list_releases", "{}", "ok")
    assert call.call_id == "call_w0eKlvnaE7S9GQJeSSs0gn05"
    assert call.started_at == 1777555055632028200
    assert trajectory.conversation == "ctx-eff35888-55ab-4eb0-b90d-7b21f711f91f"


def test_sample_without_agents():
    assert sample("otel_genai/otlp_trace_official_example.json") == [
        Ignored("trace without spans of agents or tools")
    ]


def test_sample_of_openinference():
    weather, flight, trajectory = sample("openinference/otlp_openinference_generated.json")
    assert weather.description == "Weather for a city"
    assert [p["name"] for p in flight.parameters] == ["o", "d"]
    assert names(trajectory) == ["get_weather", "book_flight"]
    assert statuses(trajectory) == ["ok", "error"]
    assert trajectory.calls[0].call_id == "call_1", "the id stands on the model's span only"
    assert trajectory.request == "weather in Paris?"
    assert trajectory.conversation == "sess-1"


# --- carriers -------------------------------------------------------------------------------------

SPANS = (
    agent(gen_ai__conversation__id="c"),
    chat(2, at=1 * MS, asks=[("a", "search", {"q": 1})], user="find it"),
    tool(3, call_id="a", at=5 * MS),
    tool(4, tool="book", call_id="b", at=9 * MS, result='{"isError": true}'),
)


def snake(value):
    if isinstance(value, dict):
        return {
            "".join(f"_{c.lower()}" if c.isupper() else c for c in key): snake(inner)
            for key, inner in value.items()
        }
    return [snake(one) for one in value] if isinstance(value, list) else value


def tempo(value):
    told = json.loads(json.dumps(value))
    told["batches"] = told.pop("resourceSpans")
    for one in told["batches"]:
        scopes = one.pop("scopeSpans")
        one["instrumentationLibrarySpans"] = scopes
        for span in scopes[0]["spans"]:
            span["kind"] = "SPAN_KIND_INTERNAL"
            for key in ("startTimeUnixNano", "endTimeUnixNano"):
                span[key] = int(span[key])
    return told


def message_of(value):
    """The protobuf message of an OTLP/JSON object, whose ids are hex."""
    told = json.loads(json.dumps(value))
    for one in told["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in one:
                one[key] = base64.b64encode(bytes.fromhex(one[key])).decode()
    return json_format.ParseDict(told, TracesData())


def console(told):
    """As the SDK's console exporter writes a span."""
    from warehouse.readers.genai import plain

    def iso(ns):
        seconds, rest = divmod(int(ns), SECOND)
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"

    parent = told.get("parentSpanId")
    return {
        "name": told["name"],
        "context": {
            "trace_id": "0x" + told["traceId"],
            "span_id": "0x" + told["spanId"],
            "trace_state": "[]",
        },
        "kind": "SpanKind.INTERNAL",
        "parent_id": parent and "0x" + parent,
        "start_time": iso(told["startTimeUnixNano"]),
        "end_time": iso(told["endTimeUnixNano"]),
        "status": {"status_code": "UNSET"},
        "attributes": {one["key"]: plain(one["value"]) for one in told["attributes"]},
        "events": [],
        "links": [],
        "resource": {"attributes": {"service.name": "x"}, "schema_url": ""},
    }


def jaeger(spans):
    def tag(one):
        (kind,) = one["value"]
        return {"key": one["key"], "type": "string", "value": one["value"][kind]}

    told = []
    for one in spans:
        start, end = int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"])
        parent = one.get("parentSpanId")
        reference = {"refType": "CHILD_OF", "traceID": one["traceId"], "spanID": parent}
        told.append(
            {
                "traceID": one["traceId"],
                "spanID": one["spanId"],
                "operationName": one["name"],
                "references": [reference] if parent else [],
                "startTime": start // 1000,
                "duration": (end - start) // 1000,
                "tags": [tag(attribute) for attribute in one["attributes"]],
                "logs": [],
                "processID": "p1",
            }
        )
    processes = {"p1": {"serviceName": "x", "tags": []}}
    return {"data": [{"traceID": TRACE, "spans": told, "processes": processes}]}


def plainly(trajectory):
    """A trajectory without the times, which carriers round."""
    return [
        (c.name, c.turn, c.arguments, c.result, c.status, c.call_id) for c in trajectory.calls
    ], (trajectory.request, trajectory.conversation, trajectory.native_id)


WHOLE = batch(*SPANS)


@pytest.mark.parametrize(
    "value",
    [
        snake(WHOLE),
        tempo(WHOLE),
        {"trace": WHOLE},
        {"result": WHOLE},
        {"data": [console(one) for one in SPANS], "next_cursor": None},
        [WHOLE],
        WHOLE["resourceSpans"],
        {"spans": list(SPANS)},
        list(SPANS),
        [console(one) for one in SPANS],
        jaeger(SPANS),
        jaeger(SPANS)["data"][0],
        json_format.MessageToDict(message_of(WHOLE)),
        batch(*[{**s, "traceId": TRACE.upper(), "spanId": s["spanId"].upper()} for s in SPANS]),
    ],
    ids=[
        "snake_case",
        "tempo",
        "tempo v2",
        "jaeger v3",
        "phoenix",
        "list of batches",
        "list of resources",
        "spans in an object",
        "list of spans",
        "console",
        "jaeger",
        "one jaeger trace",
        "base64 ids",
        "capital ids",
    ],
)
def test_every_carrier_tells_the_same(value):
    (expected,) = trajectories(WHOLE)
    (found,) = trajectories(value)
    assert plainly(found) == plainly(expected)
    assert statuses(found) == ["ok", "error"]


def test_single_spans_a_line_make_one_trajectory():
    assert trajectories(*SPANS) == trajectories(WHOLE)
    (found,) = trajectories(*map(console, SPANS))
    assert [c.started_at for c in found.calls] == [T0 + 5 * MS, T0 + 9 * MS]


def test_phoenix_nests_attributes():
    (found,) = trajectories(
        {
            "name": "search",
            "context": {"trace_id": TRACE, "span_id": "0000000000000002"},
            "span_kind": "TOOL",
            "parent_id": "0000000000000001",
            "start_time": "2026-11-30T01:49:58.394437+00:00",
            "end_time": "2026-11-30T01:49:58.494437+00:00",
            "status_code": "ERROR",
            "status_message": "no seats",
            "attributes": {"tool": {"name": "find"}, "input": {"value": '{"a": 1}'}},
            "events": [],
        }
    )
    (call,) = found.calls
    assert (call.name, call.arguments, call.status) == ("find", '{"a": 1}', "error")
    assert call.error == "no seats"


def test_the_console_exporter_writes_indented_objects_in_a_row():
    text = "".join(json.dumps(console(one), indent=4) + "\n" for one in SPANS)
    (found,) = read_bytes(text.encode())
    assert plainly(found) == plainly(read(*SPANS))


def test_other_formats_with_similar_keys_are_left_alone():
    for value in (
        {"data": [{"id": 1}]},
        {"batches": [{"requests": []}]},
        {"spans": [{"start": 0, "end": 3}]},
        {"trace_id": "tr-1", "spans": [{"name": "x", "trace_id": "a", "span_id": "b",
                                        "attributes": {"mlflow.spanType": '"TOOL"'}}]},
        {"info": {"trace_id": "tr-1"}, "data": {"spans": [{"trace_id": "a", "span_id": "b"}]}},
        {"trace": {"id": "t"}, "observations": []},
        {"id": "r", "trace_id": "t", "run_type": "tool", "name": "x"},
    ):  # fmt: skip
        shape = shape_of(value)
        assert shape is None or shape.format != "otlp", value


# --- protobuf -------------------------------------------------------------------------------------


def varint(value):
    told = b""
    while value > 127:
        told += bytes([value & 127 | 128])
        value >>= 7
    return told + bytes([value])


RAW = message_of(WHOLE).SerializeToString()
OTHER = message_of(
    batch(agent(trace="ab" * 16), tool(9, trace="ab" * 16, at=MS))
).SerializeToString()
FRAMINGS = {
    "none": lambda data: data,
    "varint": lambda data: varint(len(data)) + data,
    "four bytes": lambda data: len(data).to_bytes(4, "big") + data,
}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_protobuf_in_any_framing(framing):
    frame = FRAMINGS[framing]
    found = read_bytes(frame(RAW) + frame(OTHER))
    assert found[:1] == trajectories(WHOLE)
    assert [len(t.calls) for t in found] == [2, 1]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("kept", [1, 2, 3, 5, 40, 100])
def test_a_cut_protobuf_file_keeps_its_whole_records(framing, kept):
    frame = FRAMINGS[framing]
    found = read_bytes(frame(RAW) + frame(OTHER)[:kept])
    assert [r for r in found if isinstance(r, TrajectoryRecord)] == trajectories(WHOLE)
    (rejected,) = [r for r in found if isinstance(r, Rejected)]
    assert rejected.place == "record 2"
    assert "the file ends" in rejected.reason


def test_a_broken_record_among_whole_ones_is_set_aside():
    frame = FRAMINGS["four bytes"]
    broken = bytearray(OTHER)
    broken[2:6] = b"\xff\xff\xff\xff"
    found = read_bytes(frame(RAW) + frame(bytes(broken)) + frame(OTHER))
    assert sum(isinstance(r, TrajectoryRecord) for r in found) == 2
    (rejected,) = [r for r in found if isinstance(r, Rejected)]
    assert "protobuf" in rejected.reason
    assert base64.b64decode(rejected.raw) == bytes(broken)


@pytest.mark.parametrize("text", [b'\n{\n "resourceSpans": []}', b"\n\n\n[1]\n", b"\n\x0a", b"\n"])
def test_text_is_never_taken_for_protobuf(text):
    assert all("protobuf" not in (item.error or "") for item in iter_items(io.BytesIO(text)))


def test_protobuf_values_are_exact():
    values = {
        "gen_ai__tool__call__arguments": {"n": 2**63 - 1, "list": [1, True, {"x": "y"}]},
        "gen_ai__tool__name": "search",
    }
    data = message_of(batch(span(2, **values))).SerializeToString()
    (trajectory,) = read_bytes(data)
    assert trajectory.calls[0].arguments == {"n": 2**63 - 1, "list": [1, True, {"x": "y"}]}


# --- spellings ------------------------------------------------------------------------------------

FACTS = ("search", '{"q": 1}', "found", "call-1")


def test_old_and_new_spellings_give_the_same_row_28():
    new = tool(2, tool=FACTS[0], arguments=FACTS[1], result=FACTS[2], call_id=FACTS[3])
    old = span(
        2,
        1,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name=FACTS[0],
        gen_ai__tool__parameters=FACTS[1],
        gen_ai__tool__result=FACTS[2],
        gen_ai__tool__id=FACTS[3],
    )
    assert read(agent(), new) == read(agent(), old)
    both = {**new, "attributes": new["attributes"] + old["attributes"]}
    assert read(agent(), both) == read(agent(), new)
    assert read(agent(), new, old) == read(agent(), new), "one span, told in both spellings"


@pytest.mark.parametrize(
    "values",
    [
        {"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": '{"q": 1}',
         "output.value": "found", "tool.id": "call-1"},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
         "gcp.vertex.agent.tool_call_args": '{"q": 1}', "gen_ai.tool.call.id": "call-1",
         "gcp.vertex.agent.tool_response": "found"},
        {"gen_ai.tool.name": "search", "gen_ai.tool.input": '{"q": 1}',
         "gen_ai.tool.output": "found", "gen_ai.tool.call.id": "call-1"},
        {"gen_ai.tool.name": "search", "tool_arguments": '{"q": 1}', "tool_response": "found",
         "gen_ai.tool.call.id": "call-1"},
        {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "search", "ai.toolCall.id": "call-1",
         "ai.toolCall.args": '{"q": 1}', "ai.toolCall.result": "found"},
    ],
    ids=["openinference", "adk", "gen_ai.tool.input", "pydantic-ai", "ai sdk"],
)  # fmt: skip
def test_libraries_that_name_things_differently(values):
    (call,) = read(agent(), span(2, 1, **values)).calls
    assert (call.name, call.arguments, call.result, call.call_id) == FACTS
    assert call.status == "ok"


def test_traceloop_tools_give_their_named_arguments():
    told = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "search",
        "traceloop.entity.input": '{"args": [], "kwargs": {"q": 12345678901234567890123}}',
        "traceloop.entity.output": '"found"',
        "traceloop.association.properties.session_id": "s",
    }
    trajectory = read(agent(), span(2, 1, name="search.tool", **told))
    (call,) = trajectory.calls
    assert (call.name, call.arguments) == ("search", {"q": 12345678901234567890123})
    assert trajectory.conversation == "s"


@pytest.mark.parametrize(
    ("values", "arguments", "result", "call_id"),
    [
        ({"spring.ai.kind": "tool_call", "gen_ai.operation.name": "framework",
          "spring.ai.tool.definition.name": "search", "spring.ai.tool.call.arguments": '{"q": 1}',
          "spring.ai.tool.call.result": "found"}, '{"q": 1}', "found", None),
        ({"openinference.span.kind": "TOOL", "tool.name": "search", "input.value":
          '{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"q": 1}}',
          "output.value": "found"}, {"q": 1}, "found", None),
        ({"openinference.span.kind": "TOOL", "tool.name": "search",
          "input.value": '{"kwargs": {"q": 1}}', "output.value": '{"output": "found"}'},
         {"q": 1}, '{"output": "found"}', None),
        ({"openinference.span.kind": "TOOL", "tool.name": "search", "input.value": '{"input": "x"}',
          "output.value": '{"output": {"content": "found", "type": "tool", "tool_call_id": "c"}}'},
         '{"input": "x"}', "found", "c"),
        ({"traceloop.span.kind": "tool", "traceloop.entity.name": "search",
          "traceloop.entity.input": '{"input_str": "x", "inputs": {"q": 1}, "kwargs": {}}',
          "traceloop.entity.output": '{"output": {"lc": 1, "kwargs": {"content": "found", '
          '"tool_call_id": "c"}}, "kwargs": {}}'}, {"q": 1}, "found", "c"),
        ({"traceloop.span.kind": "tool", "traceloop.entity.name": "search",
          "traceloop.entity.input": '{"tool_name": "search", "arguments": {"q": 1}}',
          "traceloop.entity.output": '[{"type": "text", "text": "a"}, '
          '{"type": "text", "text": "b"}]'}, {"q": 1}, "a\nb", None),
        ({"langsmith.span.kind": "tool", "gen_ai.tool.name": "search",
          "gen_ai.prompt": '{"input": "{\'q\': 1}"}', "gen_ai.completion": '{"output": "found"}'},
         {"q": 1}, "found", None),
    ],
    ids=["spring", "smolagents", "llama-index", "langchain", "traceloop", "mcp", "langsmith"],
)  # fmt: skip
def test_what_libraries_put_around_arguments_and_results_is_taken_off(
    values, arguments, result, call_id
):
    (call,) = read(agent(), span(2, 1, name="x", **values)).calls
    assert (call.name, call.arguments, call.result) == ("search", arguments, result)
    assert call.call_id == call_id


def test_parts_of_a_result_that_say_more_than_text_stay():
    told = '[{"type": "text", "text": "a", "score": 1}]'
    (call,) = read(agent(), tool(2, result=told)).calls
    assert call.result == told


def test_contents_of_a_tool_in_the_events_of_its_span():
    def details(key, part):
        values = {key: json.dumps([{"role": "tool", "parts": [part]}])}
        return {
            "name": "gen_ai.client.inference.operation.details",
            "attributes": attributes(values),
        }

    asked = {"type": "tool_call", "id": "c", "name": "search", "arguments": {"q": 1}}
    came = {"type": "tool_call_response", "id": "c", "response": [{"text": "found"}]}
    events = [details("gen_ai.input.messages", asked), details("gen_ai.output.messages", came)]
    (call,) = read(agent(), {**tool(2, arguments=None, result=None), "events": events}).calls
    assert (call.arguments, call.result, call.status) == ({"q": 1}, "found", "ok")


def test_a_handoff_between_agents_is_no_tool():
    handoff = span(2, 1, name="handoff to Billing", openinference__span__kind="TOOL")
    assert read(agent(), handoff, tool(3, at=SECOND)).calls[0].name == "search"
    named = span(2, 1, name="handoff to x", openinference__span__kind="TOOL", tool__name="search")
    assert names(read(agent(), named)) == ["search"]


def test_messages_that_pydantic_ai_writes_as_events():
    asked = {"function": {"name": "search", "arguments": "{}"}, "id": "c1", "type": "function"}
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "go"},
        {
            "event.name": "gen_ai.choice",
            "message": {"role": "assistant", "tool_calls": [asked]},
        },
    ]
    trajectory = read(
        agent(), span(2, 1, gen_ai__operation__name="chat", events=json.dumps(events))
    )
    (call,) = trajectory.calls
    assert (call.name, call.call_id, call.flags) == ("search", "c1", ("not_executed",))
    assert trajectory.request == "go"


def test_a_whole_history_on_an_agent_gives_its_last_question():
    history = [
        {"role": "user", "parts": [{"type": "text", "content": "first"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "answer"}]},
        {"role": "user", "parts": [{"type": "text", "content": "second"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "done"}]},
    ]
    told = span(1, gen_ai__operation__name="invoke_agent")
    told["attributes"] += attributes({"pydantic_ai.all_messages": json.dumps(history)})
    assert read(told, tool(2)).request == "second"


@pytest.mark.parametrize(
    "key",
    ["gcp.vertex.agent.session_id", "ai.telemetry.metadata.sessionId", "langfuse.session.id"],
)
def test_a_conversation_is_known_under_the_names_of_several_libraries(key):
    model = chat(2)
    model["attributes"] += attributes({key: "s1"})
    assert read(agent(), model, tool(3)).conversation == "s1"


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
GEMINI = {"type": "OBJECT", "properties": {"q": {"type": "STRING"}}, "required": ["q"]}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("chat", {"ai.prompt.tools": [json.dumps(
            {"type": "function", "name": "search", "description": "d", "inputSchema": SCHEMA})]}),
        ("chat", {"model_request_parameters": json.dumps({"function_tools": [
            {"name": "search", "description": "d", "parameters_json_schema": SCHEMA}]})}),
        ("chat", {"gcp.vertex.agent.llm_request": json.dumps({"config": {"tools": [
            {"function_declarations": [
                {"name": "search", "description": "d", "parameters": GEMINI}]}]}})}),
        ("execute_tool", {"gen_ai.tool.name": "search", "gen_ai.tool.description": "d",
                          "gen_ai.tool.json_schema": json.dumps(SCHEMA)}),
        ("framework", {"spring.ai.tool.definition.name": "search",
                       "spring.ai.tool.definition.description": "d",
                       "spring.ai.tool.definition.schema": json.dumps(SCHEMA)}),
        ("execute_tool", {"tool.name": "search", "tool.description": "d",
                          "tool.parameters": '{"q": {"type": "string"}}'}),
    ],
    ids=["ai sdk", "pydantic-ai", "adk", "strands", "spring", "smolagents"],
)  # fmt: skip
def test_tool_definitions_of_several_libraries(kind, values):
    told = span(2, 1, gen_ai__operation__name=kind)
    told["attributes"] += attributes(values)
    (found,) = [r for r in records(batch(agent(), told)) if isinstance(r, ToolRecord)]
    assert (found.name, found.description) == ("search", "d")
    ((name, kind, needed),) = [(p["name"], p["type"], p["required"]) for p in found.parameters]
    assert (name, kind, needed) == ("q", "string", True)


def test_a_python_dict_as_input_is_understood():
    told = {"openinference.span.kind": "TOOL", "input.value": "{'q': 'it', 'n': None}"}
    (call,) = read(agent(), span(2, 1, name="search", **told)).calls
    assert call.name == "search"
    assert call.arguments == {"q": "it", "n": None}


@pytest.mark.parametrize("key", ["gen_ai.provider.name", "gen_ai.system"])
def test_either_name_of_the_provider_is_kept_29(key):
    assert read(agent(**{key: "openai"}), tool(2)).meta == {"provider": "openai"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"intValue": "18446744073709551615"}, 18446744073709551615),
        ({"intValue": -9007199254740993}, -9007199254740993),
        ({"kvlistValue": {"values": attributes({"n": 18446744073709551615})}},
         {"n": 18446744073709551615}),
        ({"arrayValue": {"values": [{"boolValue": True}, {"doubleValue": 1.5}]}}, [True, 1.5]),
        ({"arrayValue": {}}, []),
        ({"kvlistValue": {}}, {}),
        ({"bytesValue": "AAE="}, "AAE="),
        ({"stringValue": ""}, ""),
        ({}, UNRECORDED),
    ],
)  # fmt: skip
def test_attribute_values_are_exact_20(value, expected):
    told = tool(2, arguments=None)
    told["attributes"].append({"key": "gen_ai.tool.call.arguments", "value": value})
    (call,) = read(agent(), told).calls
    assert call.arguments == expected
    assert type(call.arguments) is type(expected)


def test_nanoseconds_are_exact_as_text_and_as_number_20():
    told = tool(2)
    told["startTimeUnixNano"] = 1796003398394437761
    told["endTimeUnixNano"] = "1796003398394437763"
    (call,) = read(agent(), told).calls
    assert (call.started_at, call.ended_at) == (1796003398394437761, 1796003398394437763)


# --- errors ---------------------------------------------------------------------------------------

EXCEPTION = {"name": "exception", "attributes": attributes({"exception.message": "no seats"})}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"result": '{"isError": true, "content": []}'}, None),
        ({"result": '{"is_error": true, "content": "no"}'}, None),
        ({"result": '{"status": "error", "content": [{"text": "boom"}]}'}, None),
        ({"result": ' {"status":"ERROR"}'}, None),
        ({"result": '[{"type": "tool_result", "is_error": true, "content": "no"}]'}, None),
        ({"result": '{"jsonrpc": "2.0", "error": {"code": -32602, "message": "x"}}'}, None),
        ({"result": '{"result": {"isError": true}}'}, None),
        ({"result": {"isError": True, "n": 1}}, None),
        ({"status": {"code": 2, "message": "timed out"}}, "timed out"),
        ({"status": {"code": "STATUS_CODE_ERROR"}}, None),
        ({"error__type": "timeout"}, "timeout"),
        ({"status": {"code": 1}, "result": '{"status": "error"}'}, None),
    ],
)
def test_failures_are_found_wherever_they_are_told_22_23_24(change, error):
    (call,) = read(agent(), tool(2, **change)).calls
    assert call.status == "error"
    assert call.error == error


def test_an_exception_event_is_a_failure():
    (call,) = read(agent(), {**tool(2, result=None), "events": [EXCEPTION]}).calls
    assert (call.status, call.error) == ("error", "no seats")


@pytest.mark.parametrize(
    "result",
    [
        "Error: this is only text",
        '{"isError": false, "text": "error"}',
        '{"errors": 0, "status": "ok"}',
        '{"data": {"status": "error"}}',
        '[{"id": 1, "status": "error"}]',
        '{"error": null}',
        '{"broken": "error',
    ],
)
def test_text_about_errors_is_no_failure(result):
    (call,) = read(agent(), tool(2, result=result)).calls
    assert (call.status, call.result) == ("ok", result)


def test_an_open_span_is_incomplete_15():
    for told in (tool(2, length=None), {**tool(2), "endTimeUnixNano": None}):
        (call,) = read(agent(), told).calls
        assert (call.status, call.ended_at, call.flags) == ("incomplete", None, ("open",))
    del told["endTimeUnixNano"]
    (call,) = read(agent(), told).calls
    assert call.status == "incomplete"


def test_a_span_without_recorded_contents_was_still_executed():
    (call,) = read(agent(), tool(2, arguments=None, result=None)).calls
    assert (call.status, call.arguments, call.result) == ("ok", UNRECORDED, None)


# --- one span, told several times -----------------------------------------------------------------


def test_the_same_span_in_two_batches_counts_once():
    expected = trajectories(WHOLE)
    assert trajectories(WHOLE, batch(SPANS[2], SPANS[1]), batch(*SPANS)) == expected
    (carriers,) = trajectories(WHOLE, jaeger(SPANS), tempo(WHOLE))
    assert plainly(carriers) == plainly(expected[0])


def test_an_open_span_is_completed_by_the_closed_one():
    opened, closed = tool(2, length=None, result=None), tool(2, length=5 * MS)
    for order in ([opened, closed], [closed, opened]):
        assert trajectories(batch(agent()), *map(batch, order)) == trajectories(
            batch(agent(), closed)
        )


def test_different_spans_with_one_id_stay_apart():
    trajectory = read(agent(), tool(2, tool="a"), tool(2, tool="b", at=SECOND))
    assert names(trajectory) == ["a", "b"]


def test_mcp_client_and_server_tell_of_one_call():
    values = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "search"}
    trajectory = read(
        agent(),
        tool(2, call_id="a", result=None, length=10 * MS, at=1 * MS),
        span(3, 2, at=2 * MS, length=8 * MS, **values),
        span(4, 3, at=3 * MS, length=6 * MS, http__method="POST"),
        span(5, 4, at=4 * MS, **values, gen_ai__tool__call__result="found"),
    )
    (call,) = trajectory.calls
    assert (call.result, call.started_at, trajectory.duplicates) == ("found", T0 + 1 * MS, 2)


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [("tool_error", None, "ok"), (None, "tool_error", "error"), ("a", "b", "error")],
)
def test_a_failure_that_only_the_server_tells_is_the_agents_too_9332(first, second, status):
    def server(number, at, failure):
        values = {"mcp__method__name": "tools/call", "gen_ai__tool__name": "search"}
        values |= {"error__type": failure} if failure else {}
        return span(number, 2, at=at, **values)

    trajectory = read(
        agent(),
        tool(2, result="Error: no", length=10 * MS, at=1 * MS),
        server(3, 2 * MS, first),
        server(4, 5 * MS, second),
    )
    (call,) = trajectory.calls
    assert (call.status, call.result) == (status, "Error: no")


# --- the model's view -----------------------------------------------------------------------------


def test_calls_without_a_span_are_known_from_the_model_14():
    asks = [(f"call-{n}", "search", {"q": n}) for n in range(3)]
    trajectory = read(
        agent(),
        chat(2, asks=asks, user="find", at=MS),
        tool(3, call_id="call-1", arguments='{"q": 1}', at=5 * MS),
    )
    assert sorted(c.call_id for c in trajectory.calls) == ["call-0", "call-1", "call-2"]
    by_id = {c.call_id: c for c in trajectory.calls}
    assert by_id["call-1"].status == "ok"
    assert by_id["call-1"].flags == ()
    for missing in ("call-0", "call-2"):
        assert by_id[missing].status == "no_result"
        assert by_id[missing].flags == ("not_executed",)
        assert by_id[missing].arguments == {"q": int(missing[-1])}
    assert turns(trajectory) == [0, 0, 0]
    assert trajectory.request == "find"


def test_a_later_input_holds_the_result_of_a_call_without_a_span_14():
    trajectory = read(
        agent(),
        chat(2, asks=[("a", "search", {}), ("b", "search", {})], at=MS),
        chat(3, saw=[("a", "found"), ("b", '{"isError": true}')], at=5 * MS),
        chat(4, saw=[("a", "[cleared]"), ("b", "[cleared]")], at=9 * MS),
    )
    assert [(c.status, c.result, c.flags) for c in trajectory.calls] == [
        ("ok", "found", ("untraced",)),
        ("error", '{"isError": true}', ("untraced",)),
    ]


def test_history_in_later_inputs_is_not_counted_again():
    asks = [("a", "search", {"q": 1})]
    history = [
        {"role": "user", "parts": [{"type": "text", "content": "find"}]},
        {"role": "assistant", "parts": [
            {"type": "tool_call", "id": "a", "name": "search", "arguments": {"q": 1}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "a", "response": "r"}]},
    ]  # fmt: skip
    later = [chat(n, at=n * SECOND) for n in (4, 5, 6)]
    for one in later:
        one["attributes"] += attributes({"gen_ai.input.messages": json.dumps(history)})
    trajectory = read(agent(), chat(2, asks=asks), tool(3, call_id="a", at=5 * MS), *later)
    assert len(trajectory.calls) == 1
    assert trajectory.orphans == []


@pytest.mark.parametrize("contents", [False, True])
@pytest.mark.parametrize("tool_calls", [False, True])
def test_openinference_lists_calls_in_two_variants_at_once(contents, tool_calls):
    values = {"openinference.span.kind": "LLM", "llm.output_messages.0.message.role": "assistant"}
    for n in range(2):
        call = {"id": f"c{n}", "function.name": "search", "function.arguments": f'{{"q": {n}}}'}
        prefix = "llm.output_messages.0.message"
        for key, value in call.items():
            if tool_calls:
                values[f"{prefix}.tool_calls.{n}.tool_call.{key}"] = value
            if contents:
                inner = f"{prefix}.contents.{n}.message_content"
                values[f"{inner}.type"] = "tool_use"
                values[f"{inner}.tool_call.{key}"] = value
    calls = read(agent(), span(2, 1, **values)).calls if values else []
    expected = [("c0", '{"q": 0}'), ("c1", '{"q": 1}')] if contents or tool_calls else []
    assert [(c.call_id, c.arguments) for c in calls] == expected


def test_numbered_completions_and_prompts():
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "find",
        "gen_ai.completion.0.tool_calls.0.id": "a",
        "gen_ai.completion.0.tool_calls.0.name": "search",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}",
    }
    saw = {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "find",
        "gen_ai.prompt.1.role": "tool",
        "gen_ai.prompt.1.tool_call_id": "a",
        "gen_ai.prompt.1.content": "found",
    }
    trajectory = read(agent(), span(2, 1, **asked), span(3, 1, at=SECOND, **saw))
    (call,) = trajectory.calls
    assert (call.name, call.arguments, call.result, call.status) == ("search", "{}", "found", "ok")
    assert trajectory.request == "find"


def test_a_tool_span_without_id_is_joined_by_name_and_arguments():
    trajectory = read(
        agent(),
        chat(2, asks=[("a", "search", {"q": 1}), ("b", "search", {"q": 2})], at=MS),
        tool(3, arguments='{"q":2}', at=5 * MS, result="two"),
        tool(4, arguments='{"q":1}', at=9 * MS, result="one"),
    )
    assert [(c.call_id, c.result) for c in trajectory.calls] == [("b", "two"), ("a", "one")]
    assert turns(trajectory) == [0, 0]


def test_a_tool_span_with_other_spelling_of_arguments_is_joined_by_name():
    trajectory = read(
        agent(),
        chat(2, asks=[("a", "search", {"q": "x"})], at=MS),
        tool(3, arguments="q = x", at=5 * MS),
    )
    assert [(c.call_id, c.arguments) for c in trajectory.calls] == [("a", "q = x")]


def test_an_agent_repeats_the_calls_of_its_models():
    asks = [("a", "search", {"q": 1})]
    outer = chat(1, None, asks=asks, length=SECOND)
    outer["attributes"][0] = attributes({"gen_ai.operation.name": "invoke_agent"})[0]
    trajectory = read(outer, chat(2, 1, asks=asks, at=MS))
    assert [(c.call_id, c.flags) for c in trajectory.calls] == [("a", ("not_executed",))]


def test_an_id_used_in_two_turns_names_two_calls_1():
    trajectory = read(
        agent(),
        chat(2, asks=[("call_0", "search", {"q": 1})], at=MS),
        tool(3, call_id="call_0", at=5 * MS, result="one"),
        chat(4, asks=[("call_0", "search", {"q": 1})], at=SECOND),
        tool(5, call_id="call_0", at=SECOND + 5 * MS, result="two"),
    )
    assert [(c.result, c.attempts, c.turn) for c in trajectory.calls] == [
        ("one", 1, 0),
        ("two", 1, 1),
    ]


def test_results_of_unknown_calls_are_kept_aside_9():
    trajectory = read(agent(), chat(2, saw=[("fc-9", "left over")]), tool(3, at=SECOND))
    assert len(trajectory.calls) == 1
    assert trajectory.orphans == ["left over"]


def test_a_retry_is_one_call_with_two_attempts_17():
    trajectory = read(
        agent(length=400 * SECOND),
        chat(2, asks=[("a", "slow", {"q": 1})], at=MS),
        tool(3, tool="slow", call_id="a", at=2 * MS, length=None, result=None),
        tool(4, tool="slow", call_id="a", at=180 * SECOND, length=SECOND, result="done"),
    )
    (call,) = trajectory.calls
    assert (call.attempts, call.status, call.result) == (2, "ok", "done")
    assert call.started_at == T0 + 2 * MS
    assert call.ended_at == T0 + 181 * SECOND
    without = read(
        agent(length=400 * SECOND),
        tool(3, tool="slow", call_id="a", at=2 * MS),
        tool(4, tool="slow", call_id="a", at=180 * SECOND),
        tool(5, tool="slow", call_id="a", arguments="{}", at=200 * SECOND),
    )
    assert [c.attempts for c in without.calls] == [2, 1]


# --- order, turns, parents ------------------------------------------------------------------------


def test_spans_that_overlap_under_one_parent_share_a_turn():
    trajectory = read(
        agent(),
        tool(2, tool="a", at=0, length=10),
        tool(3, tool="b", at=5, length=20),
        tool(4, tool="c", at=25, length=5),
        tool(5, tool="d", at=40, length=5),
    )
    assert list(zip(names(trajectory), turns(trajectory), strict=True)) == [
        ("a", 0), ("b", 0), ("c", 1), ("d", 2),
    ]  # fmt: skip


def test_tools_inside_one_chat_span_share_a_turn():
    trajectory = read(
        agent(),
        chat(2, length=SECOND),
        tool(3, 2, tool="a", at=10, length=5),
        tool(4, 2, tool="b", at=20, length=5),
        tool(5, 1, tool="c", at=2 * SECOND),
    )
    assert turns(trajectory) == [0, 0, 1]


def test_a_child_that_starts_before_its_parent_is_flagged_and_ordered_after_it_2568():
    trajectory = read(
        agent(),
        tool(2, tool="outer", at=60 * SECOND, length=10 * SECOND),
        tool(3, 2, tool="inner", at=1 * SECOND),
        tool(4, tool="first", at=30 * SECOND),
    )
    assert names(trajectory) == ["first", "outer", "inner"]
    assert trajectory.calls[2].flags == ("clock_skew",)
    assert trajectory.calls[2].parent == 1
    assert trajectory.calls[2].started_at == T0 + 1 * SECOND


def test_messages_tell_the_order_where_the_clock_does_not_2568():
    trajectory = read(
        agent(),
        chat(2, asks=[("a", "first", {})], at=10 * SECOND),
        tool(3, tool="first", call_id="a", at=9 * SECOND),
        chat(4, asks=[("b", "second", {})], saw=[("a", "r")], at=20 * SECOND),
        tool(5, tool="second", call_id="b", at=4 * SECOND),
    )
    assert names(trajectory) == ["first", "second"]
    assert [c.flags for c in trajectory.calls] == [("clock_skew",)] * 2


@pytest.mark.parametrize("offset", [-2 * SECOND, 2 * SECOND, 50 * SECOND])
def test_two_machines_with_clocks_apart_keep_the_order_240415(offset):
    """Machine B runs some tools; its clock is off, its parent and the models are on A."""

    def value(offset):
        ours = batch(
            agent(length=4 * SECOND),
            chat(2, asks=[("a", "far", {})], at=0, length=100 * MS),
            chat(4, asks=[("b", "near", {})], saw=[("a", "r")], at=500 * MS, length=100 * MS),
            tool(5, tool="near", call_id="b", at=700 * MS, length=100 * MS),
            chat(6, asks=[("c", "far2", {})], saw=[("b", "r")], at=900 * MS, length=100 * MS),
            host__name="a",
        )
        theirs = batch(
            tool(3, tool="far", call_id="a", at=200 * MS + offset, length=200 * MS),
            tool(7, tool="far2", call_id="c", at=1100 * MS + offset, length=200 * MS),
            host__name="b",
        )
        return {"resourceSpans": ours["resourceSpans"] + theirs["resourceSpans"]}

    (expected,) = trajectories(value(0))
    (trajectory,) = trajectories(value(offset))
    assert names(expected) == ["far", "near", "far2"]
    assert names(trajectory) == names(expected)
    assert turns(trajectory) == [0, 1, 2]
    assert all(c.ended_at > c.started_at for c in trajectory.calls)
    flagged = [c.name for c in trajectory.calls if "clock_skew" in c.flags]
    assert flagged == ["far", "far2"]
    assert all(c.flags == () for c in expected.calls)


def test_a_span_that_ends_before_it_starts_has_no_duration():
    (call,) = read(agent(), tool(2, at=SECOND, length=-5)).calls
    assert (call.ended_at, call.flags, call.status) == (None, ("clock_skew",), "ok")


def test_tools_inside_an_agent_inside_a_tool_know_their_parent():
    trajectory = read(
        agent(),
        tool(2, tool="research", at=MS, length=SECOND),
        agent(3, 2, at=2 * MS, length=500 * MS),
        span(4, 3, at=3 * MS, http__method="GET"),
        tool(5, 4, tool="search", at=4 * MS),
        tool(6, 1, tool="write", at=2 * SECOND),
    )
    assert [(c.name, c.parent) for c in trajectory.calls] == [
        ("research", None),
        ("search", 0),
        ("write", None),
    ]


def test_tools_that_became_roots_are_one_trajectory_of_their_session_1840():
    roots = [
        tool(n, None, tool=f"t{n}", trace=f"{n:032x}", at=n * 10 * MS, gen_ai__conversation__id="s")
        for n in (1, 2, 3)
    ]
    (trajectory,) = trajectories(*map(batch, roots))
    assert names(trajectory) == ["t1", "t2", "t3"]
    assert trajectory.flags == ("rootless",)
    assert (trajectory.conversation, trajectory.native_id) == ("s", "session s")


def test_what_ran_inside_a_lost_root_is_not_counted_again():
    root = tool(1, None, call_id="a", length=SECOND, session__id="s")
    server = span(2, 1, at=MS, mcp__method__name="tools/call", gen_ai__tool__name="search")
    other = tool(3, 1, tool="other", at=2 * MS)
    (session,) = trajectories(batch(root, server))
    assert names(session) == ["search"]
    for value in ([batch(root, server, other)], [batch(server), batch(other), batch(root)]):
        found = trajectories(*value)
        assert sorted(names(t) for t in found) == [["other"], ["search"]]


def test_calls_told_by_a_trace_and_by_lost_roots_carry_one_uid():
    call_id = "call_w0eKlvnaE7S9GQJeSSs0gn05"
    session = {"session__id": "s"}
    found = trajectories(
        batch(agent(**session), chat(2, asks=[(call_id, "search", '{"q": 1}')], at=MS)),
        batch(tool(3, None, call_id=call_id, trace="ab" * 16, at=5 * MS, **session)),
    )
    assert len({call.uid for t in found for call in t.calls}) == 1
    assert all(call.uid for t in found for call in t.calls)


@pytest.mark.parametrize("call_id", ["c1", None, "call_abcdefgh12345678"])
def test_a_root_that_the_models_of_its_trace_asked_for_is_one_execution_1840(call_id):
    conversation = {"gen_ai.conversation.id": "s"}
    told = [
        chat(1, None, asks=[(call_id or "c1", "search", '{"q": 1}')], user="go"),
        tool(2, None, call_id=call_id, at=SECOND),
        chat(3, None, saw=[(call_id or "c1", "r")], at=2 * SECOND),
    ]
    for one in told:
        one["attributes"] += attributes(conversation)
    of_trace, of_session = trajectories(batch(*told))
    assert of_trace.request == "go"
    (one,), (other,) = of_trace.calls, of_session.calls
    assert one.uid is not None
    assert (one.uid, one.result, one.started_at) == (other.uid, other.result, other.started_at)


def test_what_a_client_puts_before_the_words_of_the_user_is_no_request():
    text = "<system-reminder>Monday</system-reminder>\ngo"
    assert read(agent(), chat(2, user=text), tool(3)).request == "go"


def test_a_circle_of_parents_ends():
    trajectory = read(tool(1, 2, tool="a"), tool(2, 1, tool="b"), tool(3, 3, tool="c"))
    assert sorted(names(trajectory)) == ["a", "b", "c"]


# --- conversation, request, tools -----------------------------------------------------------------


def test_the_request_is_the_last_question_of_the_history():
    history = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "old question"},
        {"role": "assistant", "content": "old answer"},
        {"role": "user", "content": "new question"},
    ]
    told = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(history)}
    assert read(agent(), span(2, 1, **told)).request == "new question"


@pytest.mark.parametrize(
    "value",
    [
        "what now?",
        '{"messages": [{"role": "user", "content": "what now?"}]}',
        '{"messages": [{"type": "human", "content": "what now?"}]}',
        '{"input": "what now?", "chat_history": []}',
        '{"inputs": {"question": "what now?"}}',
        '[{"role": "user", "content": [{"type": "text", "text": "what now?"}]}]',
    ],
)
def test_the_request_may_stand_in_the_root_input(value):
    told = {"openinference.span.kind": "CHAIN", "input.value": value}
    assert read(span(1, **told), tool(2)).request == "what now?"


def test_tool_definitions_of_a_model():
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    flat = {"type": "function", "name": "a", "description": "A", "parameters": schema}
    function = {"type": "function", "function": {"name": "b", "parameters": schema}}
    told = chat(2, gen_ai__tool__definitions=json.dumps([flat, function, 7, {"x": 1}]))
    described = tool(3, tool="a", gen_ai__tool__description="short", at=SECOND)
    a, b, _ = records(batch(agent(), told, described))
    q = {"name": "q", "type": "string", "description": "", "required": True}
    assert a == ToolRecord("a", "A", (q,))
    assert b == ToolRecord("b", "", (q,))


# --- bad input ------------------------------------------------------------------------------------


def test_a_bad_span_is_set_aside_and_its_neighbours_are_kept():
    bad = [{"name": "no ids"}, {**tool(7), "spanId": None}, "text", {**tool(8), "traceId": 5}]
    found = records(batch(agent(), tool(2), *bad, tool(3, at=SECOND)))
    assert sum(isinstance(r, Rejected) for r in found) == 4
    assert len(found[-1].calls) == 2


def test_odd_attributes_do_not_lose_a_span():
    told = tool(2)
    told["attributes"] += [{"key": "x"}, {"value": {}}, None, {"key": 3, "value": {}}]
    assert len(read(agent(), told).calls) == 1


def test_messages_that_are_no_messages_do_not_lose_a_trace():
    for text in ("{", "[[[", '[1, "x", {"parts": 3}]', '{"parts": {"a": 1}}', "[" * 5000):
        told = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": text}
        assert len(read(agent(), span(2, 1, **told), tool(3)).calls) == 1


# --- the set of events ----------------------------------------------------------------------------

RICH = [
    agent(gen_ai__conversation__id="c"),
    chat(2, asks=[("a", "x", {"q": 1}), ("b", "y", {}), ("z", "w", {})], user="go", at=MS),
    tool(3, tool="x", call_id="a", arguments='{"q": 1}', at=5 * MS, length=None, result=None),
    tool(3, tool="x", call_id="a", arguments='{"q": 1}', at=5 * MS, length=4 * MS),
    tool(4, tool="y", call_id="b", at=6 * MS, length=9 * MS, result='{"isError": true}'),
    chat(5, saw=[("a", "r"), ("b", "e")], asks=[("a", "x", {"q": 1})], at=30 * MS),
    tool(6, tool="x", call_id="a", arguments='{"q": 1}', at=40 * MS),
    chat(7, saw=[("a", "r"), ("b", "e"), ("a", "r"), ("z", "late")], at=60 * MS),
    tool(8, 6, tool="inner", at=41 * MS, length=1000),
    span(9, 1, at=70 * MS, http__method="GET"),
    tool(10, 9, tool="y", at=70 * MS, length=None),
]


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_any_order_split_and_repetition_gives_the_same(data):
    expected = trajectories(batch(*RICH))
    spans = data.draw(st.permutations(RICH + data.draw(st.lists(st.sampled_from(RICH)))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(spans) - 1))))
    parts = [spans[a:b] for a, b in zip([0, *cuts], [*cuts, len(spans)], strict=True)]
    assert trajectories(*[batch(*part) for part in parts]) == expected


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_assemble_is_a_function_of_the_set_of_events(chance):
    value = batch(*RICH)
    shape = shape_of(value)
    (fragment,) = [r for r in shape.read(Item("x", "", value)) if isinstance(r, Fragment)]
    expected = list(assemble(fragment.conversation, fragment.events))
    events = fragment.events + chance.sample(fragment.events, 5)
    chance.shuffle(events)
    before = json.dumps(events, sort_keys=True)
    assert list(assemble(fragment.conversation, events)) == expected
    assert json.dumps(events, sort_keys=True) == before, "events are not changed"


def test_payloads_that_the_store_has_shortened_are_passed_on():
    value = batch(*RICH)
    (fragment,) = [r for r in shape_of(value).read(Item("x", "", value)) if isinstance(r, Fragment)]
    for event in fragment.events:
        for key in {"arguments", "result"} & event.keys():
            event[key] = {"cut": str(event[key])[:2], "sha256": str(hash(str(event[key])))}
    (trajectory,) = assemble(fragment.conversation, fragment.events)
    assert len(trajectory.calls) == len(read(*RICH).calls)
    assert all(isinstance(c.result, dict | None) for c in trajectory.calls)


# --- size -----------------------------------------------------------------------------------------


def test_no_span_of_a_long_trace_is_left_out_325():
    trajectory = read(agent(), *[tool(n, at=n * MS, length=10) for n in range(2, 602)])
    assert len(trajectory.calls) == 600
    assert turns(trajectory) == list(range(600))


@pytest.mark.parametrize(
    ("shape", "count"), [("wide", 33_000), ("deep", 3000), ("one name", 3000), ("one id", 3000)]
)
def test_a_trace_of_33000_spans_is_assembled_in_seconds_24314(shape, count):
    spans = [agent()]
    usual = tool(2, 1)
    for n in range(2, count + 1):
        at, length, parent = n * 1000, 500, 1
        call_id = {"one id": "c", "one name": None}.get(shape, f"c{n}")
        if shape == "deep":
            parent, length = n - 1, 10 * SECOND
        if shape == "wide":
            times = {"startTimeUnixNano": str(T0 + at), "endTimeUnixNano": str(T0 + at + length)}
            spans.append({**usual, "spanId": f"{n:016x}", **times})
        elif n % 11:
            spans.append(tool(n, parent, call_id=call_id, at=at, length=length))
        else:
            asked = call_id and (call_id if shape == "one id" else f"c{n + 1}")
            spans.append(chat(n, parent, asks=[(asked, "search", {"q": n})], at=at, length=length))
    random.Random(1).shuffle(spans)
    value = batch(*spans)
    begin = time.process_time()
    (trajectory,) = trajectories(value)
    assert time.process_time() - begin < count / 2000
    if shape == "wide":
        assert len(trajectory.calls) == 32_999
