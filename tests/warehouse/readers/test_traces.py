"""Exports of observability products: MLflow, LangSmith, Langfuse, and Parquet files of them."""

import base64
import copy
import io
import itertools
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.readers import langfuse, langsmith, mlflow_traces, payloads
from warehouse.readers.carriers import iter_items
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import UNRECORDED, Fragment, Ignored, Rejected, ToolRecord, TrajectoryRecord

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared" / "samples"


def sample(name):
    path = SAMPLES / name
    if not path.is_file():
        pytest.skip("the sample files are not beside this checkout (../shared/samples)")
    return path


def items(*values):
    return [Item(f"line {i}", json.dumps(v), v) for i, v in enumerate(values, start=1)]


def records(*values, format="auto"):
    return [record for _, record in read_items(items(*copy.deepcopy(values)), format)]


def trajectories(*values):
    return [r for r in records(*values) if isinstance(r, TrajectoryRecord)]


def one(*values):
    (trajectory,) = trajectories(*values)
    return trajectory


def names(trajectory):
    return [call.name for call in trajectory.calls]


def turns(trajectory):
    return [call.turn for call in trajectory.calls]


def outcomes(trajectory):
    return [call.status for call in trajectory.calls]


# --- builders -------------------------------------------------------------------------------------


def span(
    id,
    kind="TOOL",
    parent=None,
    start=None,
    end=None,
    name=None,
    inputs=UNRECORDED,
    outputs=UNRECORDED,
    status="STATUS_CODE_OK",
    **more,
):
    """A span of MLflow 3."""
    number = abs(hash(id)) % 2**63 if not isinstance(id, int) else id
    attributes = {"mlflow.spanType": json.dumps(kind)}
    if inputs is not UNRECORDED:
        attributes["mlflow.spanInputs"] = json.dumps(inputs)
    if outputs is not UNRECORDED:
        attributes["mlflow.spanOutputs"] = json.dumps(outputs)
    attributes.update({key: json.dumps(value) for key, value in more.pop("attributes", {}).items()})
    return {
        "span_id": b64(number),
        "parent_span_id": None if parent is None else b64(parent),
        "name": name or "tool",
        "start_time_unix_nano": start,
        "end_time_unix_nano": end,
        "status": {"code": status, "message": ""},
        "events": [],
        "attributes": attributes,
        **more,
    }


def b64(number):
    return base64.b64encode(number.to_bytes(8, "big")).decode()


def trace(*spans, id="tr-1", state="OK", session=None, **info):
    metadata = {"mlflow.trace.session": session} if session else {}
    return {
        "info": {
            "trace_id": id,
            "trace_location": {"type": "MLFLOW_EXPERIMENT"},
            "request_time": "2026-01-01T00:00:00.000Z",
            "state": state,
            "trace_metadata": metadata,
            **info,
        },
        "data": {"spans": list(spans)},
    }


def agent(end=10_000, **more):
    return span(1, "AGENT", start=1, end=end, name="agent", inputs={"q": "do it"}, **more)


def asks(id, *calls, start, end, inputs=None, parent=1):
    """A CHAT_MODEL span of MLflow; calls are (call id, tool, arguments)."""
    told = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
        for i, n, a in calls
    ]
    outputs = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": told}}]}
    return span(
        id, "CHAT_MODEL", parent, start, end, "chat", {"messages": inputs or []}, outputs=outputs
    )


def run(id, kind="tool", parent=None, start=0, end=1, trace="r", thread=None, **more):
    """A run of LangSmith."""
    stamp = f"2026-01-01T00:00:{start:02d}.000000"
    told = {
        "id": id,
        "run_type": kind,
        "name": more.pop("name", id),
        "trace_id": trace,
        "parent_run_id": parent,
        "start_time": stamp,
        "end_time": None if end is None else f"2026-01-01T00:00:{end:02d}.000000",
        "extra": {"metadata": {"thread_id": thread}} if thread else {},
        "session_id": "the project",
        "inputs": {},
        "outputs": {"output": "fine"},
    }
    told.update(more)
    return told


def observation(id, kind="TOOL", parent=None, start=0, end=1, trace="t", **more):
    """An observation of Langfuse."""
    return {
        "id": id,
        "traceId": trace,
        "type": kind,
        "name": more.pop("name", id),
        "parentObservationId": parent,
        "startTime": f"2026-01-01T00:00:{start:02d}.000Z",
        "endTime": None if end is None else f"2026-01-01T00:00:{end:02d}.000Z",
        "level": "DEFAULT",
        "statusMessage": None,
        "input": more.pop("input", {}),
        "output": more.pop("output", "fine"),
        "metadata": {},
        **more,
    }


# --- the samples, counted by hand -----------------------------------------------------------------


def test_the_mlflow_sample_has_a_call_that_went_well_and_one_that_raised():
    told = read_file(sample("mlflow/trace_to_json_mlflow_3.17.2.json"))
    (tool, trajectory) = [record for _, record in told]
    assert isinstance(tool, ToolRecord)
    assert tool.name == "get_weather"
    assert tool.parameters[0]["name"] == "city"
    assert (trajectory.conversation, trajectory.request) == ("sess-1", "weather?")
    first, second = trajectory.calls
    assert (first.name, first.status, first.call_id) == ("get_weather", "ok", "call_1")
    assert first.arguments == {"city": "Zürich"}
    assert json.loads(first.result) == {"temp": 18, "city": "Zürich"}
    assert (second.name, second.status) == ("book_flight", "error")
    assert "no seats" in second.error
    assert turns(trajectory) == [0, 1]
    assert first.started_at == 1796002964782354775


def test_the_langsmith_sample_has_three_tool_runs_of_one_thread():
    ((_, trajectory),) = read_file(sample("langsmith/runs_langsmith_sdk_generated.json"))
    assert names(trajectory) == ["get_weather", "get_weather", "book_flight"]
    assert [call.arguments for call in trajectory.calls[:2]] == [
        {"city": "Paris"},
        {"city": "Rome"},
    ]
    assert outcomes(trajectory) == ["ok", "ok", "error"]
    assert trajectory.conversation == "thread-1"
    assert trajectory.request == "weather?"


LANGFUSE = {
    "claude-agent-2025-12-22": [
        ("mcp__weather__get_weather", {"city": "Berlin"}, "Weather in Berlin: Cloudy, 59°F", 0),
        ("mcp__weather__get_weather", {"city": "New York"}, "Weather in New York: Sunny, 75°F", 0),
    ],
    "langgraph-python-2025-08-22": [
        (
            "Web-Search",
            {"query": "example"},
            '[{"url": "https://example.com", "title": "Example Result", "q": "example"}]',
            0,
        )
    ],
    "microsoft-agent-2025-12-17": [
        (
            "get_weather",
            {"location": "Tokyo, Japan"},
            "The weather in Tokyo, Japan is stormy with a high of 23°C.",
            0,
        )
    ],
    "openai-agents-2025-09-30": [
        ("get_weather", {"city": "Tokyo"}, "The weather in Tokyo is sunny.", 0)
    ],
}


@pytest.mark.parametrize("file", LANGFUSE)
def test_the_langfuse_samples_have_the_calls_that_their_agents_made(file):
    told = [record for _, record in read_file(sample(f"langfuse/{file}.trace.json"))]
    (trajectory,) = [record for record in told if isinstance(record, TrajectoryRecord)]
    assert [
        (call.name, call.arguments, call.result, call.turn) for call in trajectory.calls
    ] == LANGFUSE[file]
    assert {call.status for call in trajectory.calls} == {"ok"}
    assert all(
        call.call_id and call.call_id.startswith(("call_", "toolu_")) for call in trajectory.calls
    )
    assert trajectory.request.startswith(("What's the weather", "Search the web"))
    assert not trajectory.flags


def test_langfuse_rows_in_any_order_tell_what_the_downloaded_file_tells():
    whole = json.loads(sample("langfuse/microsoft-agent-2025-12-17.trace.json").read_text())
    rows = [*whole["observations"][::-1], whole["trace"]]
    assert one(*rows) == one(whole)


# --- MLflow ---------------------------------------------------------------------------------------


def test_the_shapes_of_mlflow_tell_the_same():
    tool = {"name": "t", "inputs": {"big": 2**70}, "outputs": "fine"}
    now = trace(agent(), span(2, parent=1, start=10, end=20, **tool))
    old_style = copy.deepcopy(now)
    for number, told in enumerate(old_style["data"]["spans"], start=1):  # MLflow 3.5.0
        told["span_id"] = f"{number:016x}"
        told["parent_span_id"] = told["parent_span_id"] and f"{1:016x}"
        told["status"]["code"] = "OK"
    row = {
        "trace_id": "tr-1",
        "trace": json.dumps(now),
        "state": "OK",
        "request_time": 1767225600000,
        "trace_metadata": {},
    }
    listed = {**row, "spans": now["data"]["spans"]}
    del listed["trace"]
    as_text = {**listed, "spans": json.dumps(listed["spans"]), "trace_metadata": "{}"}
    expected = one(now)
    assert expected.calls[0].arguments == {"big": 2**70}
    for other in (old_style, row, listed, as_text):
        assert one(other) == expected


def test_a_trace_of_mlflow_2_is_read():
    context = {"trace_id": "0xab", "span_id": "0x1234567890abcdef"}
    attributes = {
        "mlflow.spanType": '"TOOL"',
        "mlflow.spanInputs": '{"a": 1}',
        "mlflow.spanOutputs": '"x"',
    }
    told = {
        "info": {
            "request_id": "tr-9",
            "experiment_id": "0",
            "timestamp_ms": 1700000000123,
            "status": "OK",
            "request_metadata": {"mlflow.trace.session": "s"},
            "tags": {},
        },
        "data": {
            "request": '{"question": "why?"}',
            "response": '"so"',
            "spans": [
                {
                    "name": "root",
                    "context": {**context, "span_id": "0x01"},
                    "parent_id": None,
                    "start_time": 5,
                    "end_time": 90,
                    "status_code": "OK",
                    "status_message": "",
                    "attributes": {"mlflow.spanType": '"CHAIN"'},
                    "events": [],
                },
                {
                    "name": "t",
                    "context": context,
                    "parent_id": "0x01",
                    "start_time": 10,
                    "end_time": 20,
                    "status_code": "OK",
                    "status_message": "",
                    "attributes": attributes,
                    "events": [],
                },
            ],
        },
    }
    trajectory = one(told)
    assert (trajectory.native_id, trajectory.conversation) == ("tr-9", "s")
    assert trajectory.request == "why?"
    assert trajectory.started_at.isoformat() == "2023-11-14T22:13:20.123000"
    assert [(c.name, c.arguments, c.result, c.status) for c in trajectory.calls] == [
        ("t", {"a": 1}, "x", "ok")
    ]


def test_a_trace_that_came_over_otlp_is_read_by_its_gen_ai_attributes():
    attributes = {
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"q": "x"}',
        "gen_ai.tool.call.result": "found",
    }
    told = trace(
        agent(), span(2, parent=1, start=5, end=6, name="execute_tool", attributes=attributes)
    )
    (call,) = one(told).calls
    assert (call.name, call.call_id, call.result) == ("search", "c1", "found")
    assert json.loads(call.arguments) == {"q": "x"}


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "attributes", "expected"),
    [
        (
            "tool_Bash",
            {"command": "ls"},
            {"result": "x.py"},
            {"tool_name": "Bash", "tool_id": "toolu_1"},
            ("Bash", {"command": "ls"}, "x.py", "toolu_1"),
        ),
        (
            "search",
            {"tool_name": "search", "tool_args": {"q": "x"}},
            {"result": "found"},
            {},
            ("search", {"q": "x"}, "found", None),
        ),
        (
            "ToolManager.handle_call",
            {"call": {"tool_name": "roll", "args": '{"n": 6}', "tool_call_id": "p1"}},
            "4",
            {},
            ("roll", '{"n": 6}', "4", "p1"),
        ),
        (
            "MCPServerStdio.call_tool",
            {"name": "roll", "tool_args": {"n": 6}},
            "4",
            {},
            ("roll", {"n": 6}, "4", None),
        ),
        ("Tool.find", {"q": "z"}, "r", {"name": "find"}, ("find", {"q": "z"}, "r", None)),
        (
            "FunctionTool.call",
            {"kwargs": {"a": 1}},
            "5",
            {"name": "add"},
            ("add", {"a": 1}, "5", None),
        ),
        (
            "run_tool",
            {"tool_name": "x", "args": {}},
            {"result": 5},
            {},
            ("run_tool", {"tool_name": "x", "args": {}}, '{"result": 5}', None),
        ),
    ],
)
def test_the_tools_behind_the_methods_that_mlflows_integrations_trace(
    name, inputs, outputs, attributes, expected
):
    told = span(2, parent=1, start=5, end=9, name=name, inputs=inputs, outputs=outputs)
    told["attributes"] |= {key: json.dumps(value) for key, value in attributes.items()}
    (call,) = one(trace(agent(), told)).calls
    assert (call.name, call.arguments, call.result, call.call_id) == expected


def test_a_tool_of_a_server_that_a_tool_manager_calls_counts_once():
    call = {"tool_name": "roll", "args": '{"n": 6}', "tool_call_id": "p1", "part_kind": "tool-call"}
    prompt = {"parts": [{"content": "roll", "part_kind": "user-prompt"}], "kind": "request"}
    record = one(
        trace(
            span(1, "AGENT", start=1, end=99, name="Agent.run", inputs={"user_prompt": "roll"}),
            span(2, "TOOL", 1, 2, 3, "MCPServerStdio.list_tools", {}, outputs=[{"name": "roll"}]),
            span(
                3,
                "LLM",
                1,
                4,
                5,
                "Model.request",
                {"messages": [prompt]},
                outputs={"parts": [call], "kind": "response"},
            ),
            span(4, "TOOL", 1, 6, 9, "ToolManager.handle_call", {"call": call}, outputs="4"),
            span(
                5,
                "TOOL",
                4,
                7,
                8,
                "MCPServerStdio.call_tool",
                {"name": "roll", "tool_args": {"n": 6}},
                outputs="4",
            ),
        ),
    )
    assert [(c.name, c.call_id, c.result, c.flags) for c in record.calls] == [
        ("roll", "p1", "4", ())
    ]
    assert (record.request, record.duplicates) == ("roll", 1)


def test_results_that_pydantic_ai_shows_its_llm_answer_their_calls():
    sent = [
        {"part_kind": "tool-call", "tool_name": "f", "args": {"a": n}, "tool_call_id": f"c{n}"}
        for n in (1, 2)
    ]
    seen = [
        {"part_kind": "tool-return", "tool_name": "f", "content": {"b": 1}, "tool_call_id": "c1"},
        {"part_kind": "retry-prompt", "tool_name": "f", "content": "bad", "tool_call_id": "c2"},
    ]
    asked = {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "go"}]}
    reply = {"kind": "response", "parts": sent}
    messages = {"messages": [asked, reply, {"kind": "request", "parts": seen}]}
    record = one(
        trace(
            span(1, "AGENT", start=1, end=99, name="Agent.run"),
            span(2, "LLM", 1, 2, 3, "request", {"messages": [asked]}, outputs=reply),
            span(3, "LLM", 1, 4, 5, "request", messages, outputs={"kind": "response", "parts": []}),
        ),
    )
    assert [(c.call_id, c.status, c.result) for c in record.calls] == [
        ("c1", "ok", '{"b": 1}'),
        ("c2", "error", "bad"),
    ]
    assert record.request == "go"


def test_a_running_trace_is_replaced_by_its_fuller_form_whatever_came_first():
    early = trace(
        agent(end=None), span(2, parent=1, start=5, end=None, inputs={"a": 1}), state="IN_PROGRESS"
    )
    late = trace(
        agent(),
        span(2, parent=1, start=5, end=6, inputs={"a": 1}, outputs="x"),
        span(3, parent=1, start=7, end=8, inputs={"a": 2}, outputs="y"),
    )
    running = one(early)
    assert outcomes(running) == ["incomplete"]
    assert running.flags == ("open",)
    assert one(early, late) == one(late, early) == one(late, late) == one(late)
    assert outcomes(one(late)) == ["ok", "ok"]


@pytest.mark.parametrize("never", [None, 0, "0"])
def test_a_span_that_never_ended_is_incomplete_2568_211(never):
    told = trace(agent(), span(2, parent=1, start=5, end=never, outputs="x"))
    (call,) = one(told).calls
    assert (call.status, call.ended_at, call.flags) == ("incomplete", None, ("open",))


def test_a_span_before_its_parent_is_flagged_and_kept_2568():
    told = trace(
        span(1, "AGENT", start=1_000, end=9_000, inputs="r"),
        span(2, parent=1, start=10, end=20, name="early"),
        span(3, parent=1, start=2_000, end=2_100, name="late"),
    )
    trajectory = one(told)
    assert names(trajectory) == ["early", "late"]
    assert [call.flags for call in trajectory.calls] == [("clock_skew",), ()]


def test_clocks_of_two_hosts_do_not_turn_the_order_round_240415():
    told = trace(
        agent(),
        asks(2, ("a", "first", {}), start=100, end=110),
        asks(
            3,
            ("b", "second", {}),
            start=200,
            end=210,
            inputs=[
                {"role": "assistant", "tool_calls": []},
                {"role": "tool", "tool_call_id": "a", "content": "x"},
            ],
        ),
        span(4, parent=1, start=2_115, end=2_150, name="first", inputs={}, outputs="x"),
        span(5, parent=1, start=215, end=250, name="second", inputs={}, outputs="y"),
    )
    trajectory = one(told)
    assert names(trajectory) == ["first", "second"]
    assert turns(trajectory) == [0, 1]


def test_a_span_that_ends_before_it_starts_has_no_duration_240415():
    (call,) = one(trace(agent(), span(2, parent=1, start=50, end=20, outputs="x"))).calls
    assert (call.status, call.ended_at, call.flags) == ("ok", None, ("clock_skew",))


def test_lone_tool_traces_of_a_session_are_one_trajectory_1840():
    told = [
        trace(span(7, start=i, end=i + 5, name=f"t{i}"), id=f"tr-{i}", session="s")
        for i in (1, 2, 3)
    ]
    trajectory = one(*told)
    assert names(trajectory) == ["t1", "t2", "t3"]
    assert set(turns(trajectory)) == {0}
    assert (trajectory.conversation, trajectory.flags) == ("s", ("rootless",))
    assert one(*told[::-1], *told) == trajectory


def test_calls_without_a_tool_span_are_flagged_not_executed_3939():
    told = trace(
        agent(),
        asks(2, ("a", "x", {"n": 1}), ("b", "x", {"n": 2}), ("c", "y", {}), start=10, end=20),
        span(3, parent=1, start=30, end=40, name="x", inputs={"n": 2}, outputs="two"),
    )
    trajectory = one(told)
    assert [(c.call_id, c.status, c.flags) for c in trajectory.calls] == [
        ("a", "no_result", ("not_executed",)),
        ("b", "ok", ()),
        ("c", "no_result", ("not_executed",)),
    ]
    assert set(turns(trajectory)) == {0}


def test_a_call_whose_result_a_later_llm_was_shown_did_run():
    shown = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "tool_calls": []},
        {"role": "tool", "tool_call_id": "a", "content": "42"},
    ]
    told = trace(
        agent(),
        asks(2, ("a", "x", {}), ("b", "x", {}), start=10, end=20),
        asks(3, start=30, end=40, inputs=shown),
    )
    assert [(c.call_id, c.status, c.result, c.flags) for c in one(told).calls] == [
        ("a", "ok", "42", ("untraced",)),
        ("b", "no_result", None, ("not_executed",)),
    ]


def test_ids_that_come_again_in_a_later_turn_are_two_calls_28305():
    def shown(text):
        return [
            {"role": "assistant", "tool_calls": []},
            {"role": "tool", "tool_call_id": "1", "content": text},
        ]

    told = trace(
        agent(),
        asks(2, ("1", "x", {"n": 1}), start=10, end=20),
        asks(3, ("1", "x", {"n": 2}), start=30, end=40, inputs=shown("one")),
        asks(4, start=50, end=60, inputs=shown("two")),
    )
    trajectory = one(told)
    assert [(c.arguments, c.result) for c in trajectory.calls] == [
        ('{"n": 1}', "one"),
        ('{"n": 2}', "two"),
    ]
    assert turns(trajectory) == [0, 1]


def test_parallel_tools_share_a_turn_and_nested_ones_name_their_parent():
    told = trace(
        agent(),
        span(2, parent=1, start=10, end=50, name="a"),
        span(3, parent=1, start=20, end=40, name="b"),
        span(4, "CHAIN", parent=1, start=60, end=90, name="step"),
        span(5, parent=4, start=65, end=80, name="c"),
        span(6, "CHAIN", parent=5, start=66, end=79, name="inside"),
        span(7, parent=6, start=67, end=70, name="d"),
    )
    trajectory = one(told)
    assert names(trajectory) == ["a", "b", "c", "d"]
    assert turns(trajectory) == [0, 0, 1, 2]
    assert [call.parent for call in trajectory.calls] == [None, None, None, 2]


def test_a_call_asked_for_before_a_result_was_known_shares_its_turn():
    told = trace(
        agent(),
        asks(2, ("a", "x", {}), start=10, end=20),
        asks(3, ("b", "y", {}), start=20, end=90),
        span(4, parent=1, start=30, end=40, name="x"),
        span(5, parent=1, start=50, end=60, name="y"),
    )
    assert turns(one(told)) == [0, 0]


def test_a_call_run_again_from_a_checkpoint_is_one_with_two_attempts_7417():
    def ran(id, start):
        attributes = {"gen_ai.tool.call.id": "a"}
        return span(id, parent=1, start=start, end=start + 5, name="x", inputs={},
                    outputs=start, attributes=attributes)  # fmt: skip

    told = trace(agent(), asks(2, ("a", "x", {}), start=10, end=20), ran(3, 30), ran(4, 300))
    (call,) = one(told).calls
    assert (call.attempts, call.result) == (2, "300")
    twice = trace(
        agent(),
        asks(2, ("a", "x", {}), start=10, end=20),
        ran(3, 30),
        asks(5, ("a", "x", {}), start=100, end=120),
        ran(4, 300),
    )
    assert [call.attempts for call in one(twice).calls] == [1, 1]


@pytest.mark.parametrize(
    "payload",
    [
        {"isError": True, "content": [{"type": "text", "text": "no"}]},
        {"is_error": True, "content": "no"},
        {"status": "error", "content": [{"text": "no"}]},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}},
        json.dumps({"status": "error", "message": "no"}),
        {"type": "tool", "tool_call_id": "x", "status": "error", "content": "no"},
        {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"],
         "kwargs": {"tool_call_id": "x", "status": "error", "content": "no"}},
        {"type": "tool", "data": {"tool_call_id": "x", "status": "error", "content": "no"}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", ["mlflow", "langsmith", "langfuse"])
def test_an_error_inside_a_result_counts_9332_296_2027(make, payload):
    if make == "mlflow":
        told = trace(agent(), span(2, parent=1, start=5, end=6, outputs=payload, status="UNSET"))
    elif make == "langsmith":
        told = run("a", outputs=payload if isinstance(payload, dict) else {"output": payload})
    else:
        told = observation("a", output=payload)
    (call,) = one(told).calls
    assert call.status == "error"
    assert "no" in call.error


@pytest.mark.parametrize("text", ["Error: no such file", '{"error": null}', '{"errors": 3}'])
def test_free_text_alone_is_no_error(text):
    (call,) = one(trace(agent(), span(2, parent=1, start=5, end=6, outputs=text))).calls
    assert (call.status, call.error) == ("ok", None)


@pytest.mark.parametrize("size", [4_000, pytest.param(33_000, marks=pytest.mark.slow)])
def test_a_trace_of_33000_spans_is_read_in_bounded_time_24314(size):
    spans = [agent(end=10**9)]
    for i in range(2, size):
        kind = "TOOL" if i % 2 else "CHAIN"
        spans.append(span(i, kind, 1, i * 10, i * 10 + 5, f"t{i}", {"i": i}, outputs="x"))
    (item,) = items(trace(*spans))
    begun = time.process_time()
    ((_, trajectory),) = read_items([item])
    assert time.process_time() - begun < size / 2_000, "500 microseconds a span"
    assert len(trajectory.calls) == size // 2 - 1
    assert len(set(turns(trajectory))) == size // 2 - 1


def test_thousands_of_equal_ids_in_one_answer_are_answered_in_bounded_time_2055():
    told = [("c", "f", {"n": n}) for n in range(12_000)]
    seen = [{"role": "tool", "tool_call_id": "c", "content": str(n)} for n in range(12_000)]
    value = trace(agent(), asks(2, *told, start=2, end=3), asks(3, start=5, end=6, inputs=seen))
    begun = time.perf_counter()
    calls = one(value).calls
    assert time.perf_counter() - begun < 5
    assert [call.result for call in calls] == [str(n) for n in range(12_000)]


def test_an_agent_inside_a_tool_asks_for_calls_of_its_own():
    def asked_without_id(id, start, end, parent, tool):
        told = {"role": "assistant", "tool_calls": [{"name": tool, "args": {}}]}
        return span(id, "LLM", parent, start, end, "llm", outputs=told)

    record = one(
        trace(
            agent(),
            asked_without_id(2, 2, 9, 1, "f"),
            span(3, "TOOL", 2, 3, 8, "delegate", {"x": 1}, outputs="y"),
            asked_without_id(4, 4, 5, 3, "f"),
        )
    )
    assert sorted(names(record)) == ["delegate", "f", "f"]


def test_odd_spans_do_not_lose_the_trace():
    told = trace(
        agent(),
        None,
        "text",
        {"name": "no id"},
        span(2, "SOMETHING_NEW", parent=1, start=5, end=6),
        span(3, parent=3, start=7, end=8, name="own parent"),
        span(4, parent=5, start=9, end=10, name="round"),
        span(5, parent=4, start=9, end=10, name="and round"),
        span(6, parent=99, start=11, end=12, name="lost parent"),
    )
    told["data"]["spans"][5]["attributes"]["mlflow.spanInputs"] = "{broken"
    found = records(told)
    assert sum(isinstance(r, Ignored) for r in found) == 2
    (trajectory,) = [r for r in found if isinstance(r, TrajectoryRecord)]
    assert sorted(names(trajectory)) == ["and round", "lost parent", "own parent", "round"]
    assert "rootless" in trajectory.flags


def test_a_trace_without_an_id_is_rejected_with_the_reason():
    told = trace(agent())
    told["info"]["trace_id"] = 5
    (rejected,) = records(told)
    assert isinstance(rejected, Rejected)
    assert "trace_id" in rejected.reason


# --- LangSmith ------------------------------------------------------------------------------------


def langsmith_trace():
    tool_call = {"name": "a", "args": {"q": 1}, "id": "c1", "type": "tool_call"}
    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "AIMessage"],
        "kwargs": {
            "content": "",
            "tool_calls": [tool_call, {**tool_call, "name": "b", "id": "c2"}],
        },
    }
    answer = {"type": "tool", "tool_call_id": "c1", "content": "one", "status": "success"}
    definition = {"type": "function", "function": {"name": "a", "parameters": {}}}
    return [
        run("r", "chain", end=9, thread="th", inputs={"input": "please"}),
        run("llm", "llm", "r", 1, 2, thread="th", inputs={"messages": [[]]},
            outputs={"generations": [[{"message": message}]]},
            extra={"invocation_params": {"tools": [definition]}}),
        run("tools", "chain", "r", 3, 5),
        run("a", "tool", "tools", 3, 4, inputs={"input": "{'q': 1}"}, outputs={"output": answer}),
    ]  # fmt: skip


def test_langsmith_calls_get_id_thread_and_tools():
    found = records(*langsmith_trace())
    assert [r.name for r in found if isinstance(r, ToolRecord)] == ["a"]
    (trajectory,) = [r for r in found if isinstance(r, TrajectoryRecord)]
    assert (trajectory.native_id, trajectory.conversation) == ("r", "th")
    assert trajectory.request == "please"
    assert [(c.name, c.call_id, c.status, c.result, c.flags) for c in trajectory.calls] == [
        ("a", "c1", "ok", "one", ()),
        ("b", "c2", "no_result", None, ("not_executed",)),
    ]
    assert trajectory.calls[0].arguments == {"q": 1}
    assert turns(trajectory) == [0, 0]


def test_a_run_that_is_created_and_updated_is_one():
    whole = run("a", "tool", "r", 3, 4, inputs={"x": 1}, outputs={"output": "y"},
                dotted_order="20260101T000000000000Zr.20260101T000003000000Za")  # fmt: skip
    created = {**whole, "end_time": None, "outputs": None, "status": "pending"}
    updated = {key: whole[key] for key in ("id", "trace_id", "dotted_order", "end_time", "outputs")}
    root = run("r", "chain", end=9)
    assert outcomes(one(root, created)) == ["incomplete"]
    expected = one(root, whole)
    assert expected.calls[0].status == "ok"
    assert one(root, created, updated) == one(updated, created, root) == expected
    assert trajectories(root, updated)[0].calls == []


@pytest.mark.parametrize("wrap", ["lines", "runs", "ingest", "tree", "list"])
def test_the_wrappers_of_langsmith_tell_the_same(wrap):
    runs = langsmith_trace()
    expected = one(*runs)
    if wrap == "runs":
        told = [{"runs": runs}]
    elif wrap == "ingest":
        told = [{"post": runs[:2], "patch": runs[2:]}]
    elif wrap == "list":
        told = [runs]
    elif wrap == "tree":
        root, llm, tools, tool = runs
        for child in (llm, tools, tool):
            del child["trace_id"], child["parent_run_id"]
        told = [{**root, "child_runs": [llm, {**tools, "child_runs": [tool]}]}]
    else:
        told = runs[::-1]
    assert one(*told) == expected


def test_a_wrapper_run_with_the_same_result_counts_once():
    answer = {"type": "tool", "tool_call_id": "c", "content": "one", "status": "success"}
    told = [
        run("r", "chain", end=9),
        run("w", "tool", "r", 1, 5, name="tools", outputs={"messages": [answer]}),
        run("a", "tool", "w", 2, 4, name="search", inputs={"q": 1}, outputs={"output": answer}),
        run("i", "tool", "a", 2, 3, name="search", inputs={"q": 1}, outputs={"output": "one"}),
        run("o", "tool", "a", 3, 4, name="fetch", inputs={"q": 1}, outputs={"output": "page"}),
    ]
    first = one(*told[:4])
    assert names(first) == ["search"]
    assert first.duplicates == 2
    nested = one(*told[:3], told[4])
    assert names(nested) == ["search", "fetch"]
    assert nested.calls[1].parent == 0


def test_a_failed_run_says_why_and_the_project_is_no_conversation():
    told = run("a", error="ValueError('no')\n\nTraceback", outputs={"output": None})
    trajectory = one(told)
    assert trajectory.conversation is None
    (call,) = trajectory.calls
    assert (call.status, call.result) == ("error", None)
    assert call.error.startswith("ValueError")


def test_a_uuid_used_again_for_another_run_stays_apart_22178():
    told = [
        run("r", "chain", end=59),
        run("a", parent="r", start=3, end=4, name="x"),
        run("a", parent="r", start=30, end=31, name="y"),
    ]
    assert names(one(*told)) == ["x", "y"]


def test_a_run_without_a_trace_is_rejected_with_the_reason():
    told = run("a", parent="b")
    del told["trace_id"]
    (rejected,) = records(told)
    assert "dotted_order" in rejected.reason


# --- Langfuse -------------------------------------------------------------------------------------


def test_a_span_named_like_an_offered_tool_is_a_call_and_its_wrapper_is_not():
    told = [
        observation("g", "GENERATION", "r", 1, 2, input=[], output={"role": "assistant"},
                    toolDefinitions={"search": '{"description": "d", "parameters": {}}'},
                    toolCalls=['{"id": "c1", "arguments": "{\\"q\\": 1}"}'],
                    toolCallNames=["search"]),
        observation("s", "SPAN", "w", 3, 4, name="search", input="{'q': 1}"),
        observation("w", "SPAN", "r", 3, 5, name="tools"),
        observation("o", "SPAN", "r", 6, 7, name="should_continue"),
        observation("r", "SPAN", None, 0, 9, name="agent", input="hello"),
    ]  # fmt: skip
    for order in itertools.islice(itertools.permutations(told), 0, 120, 17):
        found = records(*order)
        assert [r.name for r in found if isinstance(r, ToolRecord)] == ["search"]
        (trajectory,) = [r for r in found if isinstance(r, TrajectoryRecord)]
        assert [(c.name, c.call_id, c.arguments) for c in trajectory.calls] == [
            ("search", "c1", {"q": 1})
        ]
        assert trajectory.request == "hello"


def test_langfuse_errors_open_observations_and_sessions():
    whole = {
        "id": "t",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "name": "run",
        "sessionId": "s",
        "tags": [],
        "input": {"messages": [{"role": "user", "content": "hi"}]},
        "observations": [
            observation("b", parent="x", start=5, end=None, output=None),
            observation("a", parent="x", level="ERROR", statusMessage="boom", output=None),
            observation("x", "AGENT", end=9),
        ],
    }
    trajectory = one(whole)
    assert [(c.name, c.status, c.error) for c in trajectory.calls] == [
        ("a", "error", "boom"),
        ("b", "incomplete", None),
    ]
    assert (trajectory.conversation, trajectory.request) == ("s", "hi")
    listed = {**whole, "observations": ["b", "a", "x"]}
    assert one(*whole["observations"], listed) == trajectory
    page = {"data": whole["observations"], "meta": {"page": 1}}
    assert one({"data": [listed], "meta": {}}, page) == trajectory


def test_tool_spans_of_the_ai_sdk_in_langfuse_are_calls():
    attributes = {
        "ai.operationId": "ai.toolCall",
        "ai.toolCall.name": "get",
        "ai.toolCall.id": "c",
    }
    told = observation("s", "SPAN", "r", 1, 2, name="ai.toolCall", input={"x": 1}, output={"y": 2})
    told["metadata"] = {"attributes": attributes}
    (call,) = one(observation("r", "SPAN", end=9, input="hi"), told).calls
    assert (call.name, call.call_id, call.arguments, call.result) == (
        "get",
        "c",
        {"x": 1},
        '{"y": 2}',
    )


def test_a_request_given_to_a_traced_function_is_its_first_argument():
    root = observation("r", "SPAN", end=9, input={"args": ["hi"], "kwargs": {}})
    assert one(root, observation("t", "TOOL", "r", 1, 2)).request == "hi"


def test_langfuse_rows_of_an_export_to_object_storage_are_read():
    snake = {
        "traceId": "trace_id",
        "parentObservationId": "parent_observation_id",
        "startTime": "start_time",
        "endTime": "end_time",
        "statusMessage": "status_message",
    }
    told = [observation("a", parent="r", start=2, end=3), observation("r", "AGENT", end=9)]
    renamed = [{snake.get(key, key): value for key, value in row.items()} for row in told]
    assert one(*renamed) == one(*told)


# --- payloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{'query': 'x', 'n': None}", {"query": "x", "n": None}),
        ('{"query": "x"}', '{"query": "x"}'),
        ({"input": {"city": "B"}}, {"city": "B"}),
        ('{"input": {"city": "B"}}', {"city": "B"}),
        ({"input": "{'a': 1}"}, {"a": 1}),
        ({"input": "free text"}, {"input": "free text"}),
        ("free text", {"input": "free text"}),
        ("{'a': open('x')}", "{'a': open('x')}"),
        ("{" + "'a':1," * 5000 + "}", "{" + "'a':1," * 5000 + "}"),
        ({}, {}),
        ("", ""),
        (None, UNRECORDED),
        ({"name": "t", "args": {"a": 1}, "id": "c", "type": "tool_call"}, {"a": 1}),
        ({"args": [], "kwargs": {"a": 1}}, {"a": 1}),
        ({"args": [2], "kwargs": {"a": 1}}, {"args": [2], "kwargs": {"a": 1}}),
    ],
)
def test_recorded_inputs_become_arguments(given, expected):
    assert payloads.arguments_of(given) == expected


def test_every_library_says_what_its_llm_asked_for():
    call = {"name": "t", "args": {"a": 1}, "id": "c", "type": "tool_call"}
    openai = {"id": "c", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}}
    outputs = [
        {"choices": [{"message": {"role": "assistant", "tool_calls": [openai]}}]},
        {"role": "assistant", "tool_calls": [openai]},
        {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [openai]}},
        {"type": "ai", "content": "", "tool_calls": [call],
         "additional_kwargs": {"tool_calls": [openai]}},
        {"type": "ai", "data": {"content": "", "tool_calls": [call]}},
        {"generations": [[{"text": "", "message": {"kwargs": {"tool_calls": [call]}, "lc": 1,
                                                   "id": ["AIMessage"]}}]]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t",
                                           "input": {"a": 1}}]},
        {"output": [{"type": "function_call", "call_id": "c", "id": "f", "name": "t",
                     "arguments": '{"a": 1}'}]},
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "t",
                                          "arguments": {"a": 1}}]}],
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "t", "id": "c",
                                                                 "args": {"a": 1}}}]}}]},
        {"output": {"message": {"role": "assistant", "content": [
            {"toolUse": {"toolUseId": "c", "name": "t", "input": {"a": 1}}}]}}},
        {"toolCalls": [{"toolCallId": "c", "toolName": "t", "args": '{"a": 1}'}]},
        [{"toolCallId": "c", "toolName": "t", "input": {"a": 1}}],
        {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "t",
                                           "input": {"a": 1}}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "t",
                                        "tool_call_id": "c", "args": {"a": 1}}]},
        {"messages": [{"role": "assistant", "tool_calls": [openai, openai]}]},
    ]  # fmt: skip
    for output in outputs:
        for told in (output, json.dumps(output)):
            asked, _, copies = payloads.asked_calls(told)
            assert [(a.name, a.call_id) for a in asked] == [("t", "c")], output
            assert payloads.decoded(asked[0].arguments) == {"a": 1}
            assert copies == (1 if "messages" in output else 0)


@pytest.mark.parametrize(
    ("block", "error"),
    [
        ({"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": True}, "x"),
        ({"type": "tool_call_response", "id": "c", "response": "x"}, None),
        ({"part_kind": "tool-return", "tool_call_id": "c", "content": "x"}, None),
        ({"part_kind": "retry-prompt", "tool_call_id": "c", "content": "x"}, "x"),
        ({"type": "tool-result", "toolCallId": "c", "result": "x"}, None),
        (
            {
                "type": "tool-result",
                "toolCallId": "c",
                "output": {"type": "error-text", "value": "x"},
            },
            "x",
        ),
        ({"toolResult": {"toolUseId": "c", "content": [{"text": "x"}]}}, None),
        ({"toolResult": {"toolUseId": "c", "content": [{"text": "x"}], "status": "error"}}, "x"),
    ],
)
def test_every_library_says_what_its_llm_was_shown(block, error):
    messages = [{"role": "assistant", "content": "hm"}, {"role": "user", "content": [block]}]
    (answer,) = payloads.new_answers(messages)
    assert (answer.call_id, answer.result, answer.error) == ("c", "x", error)


@pytest.mark.parametrize("value", [None, 3, "x", [], {}, [[]], {"choices": []}, {"content": "x"}])
def test_outputs_without_calls_ask_for_nothing(value):
    assert payloads.asked_calls(value) == ([], [], 0)


# --- assembling: a function of the set of events ------------------------------------------------


def _events(*values):
    found = []
    for item in items(*values):
        shape = shape_of(item.value)
        found += [(shape, record) for record in shape.read(item) if isinstance(record, Fragment)]
    (shape, _), *_ = found
    return shape, found[0][1].conversation, [e for _, f in found for e in f.events]


def _busy_mlflow():
    shown = [
        {"role": "assistant", "tool_calls": []},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    return [
        trace(
            agent(),
            asks(2, ("a", "x", {}), ("b", "y", {"n": 1}), start=10, end=20),
            span(3, parent=1, start=30, end=40, name="x", inputs={}, outputs="x"),
            span(4, parent=1, start=30, end=None, name="y", inputs={"n": 1}),
            asks(5, ("a", "x", {}), start=50, end=60, inputs=shown),
            span(6, parent=3, start=32, end=38, name="z"),
            span(7, parent=77, start=70, end=80, name="z"),
        ),
        trace(agent(), span(4, parent=1, start=30, end=45, name="y", inputs={"n": 1}, outputs=2)),
    ]


@pytest.mark.parametrize("values", [_busy_mlflow(), langsmith_trace()], ids=["mlflow", "langsmith"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_order_and_repetition_of_events_do_not_matter(values, data):
    shape, conversation, events = _events(*values)
    expected = list(shape.assemble(conversation, copy.deepcopy(events)))
    again = data.draw(st.lists(st.sampled_from(events), max_size=6))
    shuffled = data.draw(st.permutations(events + again))
    before = copy.deepcopy(shuffled)
    assert list(shape.assemble(conversation, shuffled)) == expected
    assert shuffled == before, "the store's events were changed"


def test_a_shortened_payload_is_passed_on_unread():
    shape, conversation, events = _events(*langsmith_trace())
    cut = {"size": 10**9, "hash": "h", "text": "one..."}
    for event in events:
        if "result" in event:
            event["result"] = cut
        if "arguments" in event:
            event["arguments"] = cut
    (trajectory,) = shape.assemble(conversation, events)
    assert trajectory.calls[0].result == cut
    assert trajectory.calls[0].arguments == cut


def test_the_formats_do_not_take_each_others_records():
    told = {
        "mlflow": trace(agent()),
        "langsmith": run("a"),
        "langfuse": observation("a"),
    }
    readers = {
        "mlflow": mlflow_traces.is_trace,
        "langsmith": langsmith.is_runs,
        "langfuse": langfuse.is_export,
    }
    for name, value in told.items():
        assert [other for other, takes in readers.items() if takes(value)] == [name]
        assert shape_of(value).format == name


def test_a_row_of_search_traces_is_no_openai_request_and_response():
    row = {
        "trace_id": "tr-1",
        "trace": json.dumps(trace(agent(), span(2, parent=1, start=5, end=6, name="x"))),
        "trace_metadata": {},
        "request": {"messages": [{"role": "user", "content": "hi"}]},
        "response": {"choices": [{"message": {"role": "assistant", "content": "ho"}}]},
    }
    assert shape_of(row).format == "mlflow"
    assert (one(row).request, names(one(row))) == ("hi", ["x"])


# --- Parquet --------------------------------------------------------------------------------------


def _parquet(rows, **options):
    data = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), data, **options)
    return data.getvalue()


def test_a_bulk_export_of_langsmith_as_parquet_tells_what_the_runs_tell():
    rows = [
        {
            key: json.dumps(value) if isinstance(value, (dict, list)) else value
            for key, value in told.items()
        }
        for told in langsmith_trace()
    ]
    found = list(read_items(iter_items(io.BytesIO(_parquet(rows, row_group_size=1)))))
    (trajectory,) = [r for _, r in found if isinstance(r, TrajectoryRecord)]
    assert trajectory == one(*langsmith_trace())


def test_rows_have_places_and_times_keep_their_nanoseconds():
    table = pa.table(
        {
            "at": pa.array([1767225600_000000001, None], pa.timestamp("ns", tz="UTC")),
            "us": pa.array([1767225600_000001, None], pa.timestamp("us")),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    data = io.BytesIO()
    pq.write_table(table, data)
    first, second = iter_items(io.BytesIO(data.getvalue()))
    assert (first.place, second.place) == ("row 1", "row 2")
    assert payloads.when(first.value["at"]) == 1767225600_000000001
    assert payloads.when(first.value["us"]) == 1767225600_000001000
    assert first.value["map"] == {"k": 1}
    assert second.value == {}
    assert json.loads(first.raw) == first.value


def test_a_truncated_parquet_file_is_one_item_with_an_error():
    data = _parquet([{"a": i} for i in range(100)])
    (item,) = iter_items(io.BytesIO(data[:-20]))
    assert "Parquet" in item.error
    broken = bytearray(
        _parquet([{"a": "x" * 50 + str(i)} for i in range(2000)], row_group_size=500)
    )
    broken[len(broken) // 2 : len(broken) // 2 + 2000] = bytes(2000)
    found = list(iter_items(io.BytesIO(bytes(broken))))
    assert sum(item.error is not None for item in found) == 1
    assert found[-1].error
