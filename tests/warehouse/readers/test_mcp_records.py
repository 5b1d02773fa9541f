"""MCP traffic and sampling, and the events of managed-agent sessions."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Rejected, ToolRecord, TrajectoryRecord

SAMPLES = Path(__file__).parents[3].parent / "shared" / "samples"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the sample files are not here")


def read(format, *values):
    items = [Item(f"line {n}", json.dumps(v), v) for n, v in enumerate(values, start=1)]
    found = list(read_items(items))
    assert {name for name, _ in found} <= {format}, "another reader takes the record"
    return [record for _, record in found]


def trajectories(format, *values):
    return [r for r in read(format, *values) if isinstance(r, TrajectoryRecord)]


def one(format, *values):
    (record,) = trajectories(format, *values)
    return record


def told(record):
    return [(c.name, c.turn, c.status, c.result) for c in record.calls]


# --- JSON-RPC -------------------------------------------------------------------------------------


def rpc(**more):
    return {"jsonrpc": "2.0", **more}


def call(number, name="search", **arguments):
    params = {"name": name, "arguments": arguments}
    return rpc(id=number, method="tools/call", params=params)


def answered(number, text="done", **more):
    return rpc(id=number, result={"content": [{"type": "text", "text": text}], **more})


def test_requests_and_responses_of_a_log_pair_by_id_and_position():
    record = one(
        "mcp",
        rpc(id=0, method="initialize", params={}),
        rpc(id=0, result={"protocolVersion": "2025-06-18", "serverInfo": {"name": "x"}}),
        call(1, q=1),
        call(2, q=2),
        rpc(method="notifications/progress", params={"progressToken": 1, "progress": 3}),
        answered(2, "two"),
        answered(1, "one"),
        call(1, q=3),
        answered(1, "three"),
        call(3),
    )
    assert told(record) == [
        ("search", 0, "ok", "one"),
        ("search", 0, "ok", "two"),
        ("search", 1, "ok", "three"),
        ("search", 2, "no_result", None),
    ]
    assert record.orphans == []


def test_text_and_number_ids_are_different_ids():
    record = one("mcp", call(1, q=1), answered("1", "lost"), answered(1, "found"))
    assert (told(record)[0][3], record.orphans) == ("found", ["lost"])


def test_a_response_to_another_request_with_the_same_id_is_no_result():
    record = one(
        "mcp",
        call(1),
        rpc(id=1, method="sampling/createMessage", params={}),
        rpc(id=1, result={"role": "assistant", "content": {"type": "text", "text": "said"}}),
        answered(1, "real"),
    )
    assert told(record) == [("search", 0, "ok", "real")]


@pytest.mark.parametrize(
    ("result", "status", "text"),
    [
        ({"content": [], "structuredContent": {"t": 1}}, "ok", '{"t": 1}'),
        ({"content": [{"type": "text", "text": "bad"}], "isError": True}, "error", "bad"),
        (
            {"content": [{"type": "text", "text": '{"isError": true}'}]},
            "error",
            '{"isError": true}',
        ),
        ({"content": [{"type": "text", "text": "Error: x"}], "isError": False}, "ok", "Error: x"),
        ({"content": [], "resultType": "input_required"}, "incomplete", None),
    ],
)
def test_results_and_their_errors_9332(result, status, text):
    (made,) = one("mcp", call(1), rpc(id=1, result=result)).calls
    assert made.status == status
    assert text is None or made.result == text


def test_an_rpc_error_is_the_calls_error():
    error = {"code": -32602, "message": "Unknown tool: x"}
    (made,) = one("mcp", call(1, "x"), rpc(id=1, error=error)).calls
    assert (made.status, made.error) == ("error", "Unknown tool: x")


def test_a_cancelled_call_is_incomplete():
    cancel = rpc(method="notifications/cancelled", params={"requestId": 1, "reason": "late"})
    record = one("mcp", call(1), cancel, call(2), answered(2))
    assert [(c.status, c.turn) for c in record.calls] == [("incomplete", 0), ("ok", 1)]
    assert record.calls[0].flags == ("cancelled",)


def test_pairs_and_batches():
    pair = {"request": call(1, q=1), "response": answered(1, "one")}
    bare = {
        "request": {"method": "tools/call", "params": {"name": "f"}},
        "response": {"content": "x"},
    }
    batch = [call(2), call(3), rpc(method="notifications/initialized")]
    record = one("mcp", pair, bare, batch, [answered(3, "three"), answered(2, "two")])
    assert told(record) == [
        ("search", 0, "ok", "one"),
        ("f", 1, "ok", "x"),
        ("search", 2, "ok", "two"),
        ("search", 2, "ok", "three"),
    ]


def test_a_message_that_both_sides_log_counts_once():
    record = one("mcp", call(1), call(1), answered(1), answered(1))
    assert (len(record.calls), record.orphans, record.duplicates) == (1, [], 2)


def logged(second, message, session="s", **more):
    time = f"2026-01-01T00:00:{second:02}.25Z"
    return {"timestamp": time, "session_id": session, "server": "git", "message": message, **more}


LOG = [
    logged(0, rpc(id=0, method="initialize", params={})),
    logged(1, rpc(id=0, result={})),
    logged(2, call(1, q=1)),
    logged(3, call(2, q=2)),
    logged(4, answered(2, "two")),
    logged(5, answered(1, "one")),
    logged(6, call(1, q=3)),
    logged(7, answered(1, "three", isError=True)),
]


def test_log_lines_carry_time_server_and_session():
    record = one("mcp", *LOG)
    assert told(record) == [
        ("mcp__git__search", 0, "ok", "one"),
        ("mcp__git__search", 0, "ok", "two"),
        ("mcp__git__search", 1, "error", "three"),
    ]
    assert (record.native_id, record.conversation) == ("s", "s")
    assert record.calls[0].ended_at - record.calls[0].started_at == 3_000_000_000
    assert record.started_at.isoformat() == "2026-01-01T00:00:00.250000"


def test_sessions_of_one_log_stay_apart():
    other = [logged(n, m["message"], session="t") for n, m in enumerate(LOG[2:6])]
    assert [len(r.calls) for r in trajectories("mcp", *LOG, *other)] == [3, 2]


@pytest.mark.parametrize("time", [1767225600.25, 1767225600250, "2026-01-01T00:00:00.25Z"])
def test_times_of_a_log_are_exact(time):
    record = one("mcp", {"ts": time, "payload": call(1)})
    assert record.calls[0].started_at == 1767225600250000000


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_order_repetition_and_cut_of_a_log_do_not_matter(data):
    expected = one("mcp", *LOG)
    lines = data.draw(st.permutations(LOG)) + data.draw(st.lists(st.sampled_from(LOG), max_size=3))
    assert one("mcp", *lines) == expected


@pytest.mark.parametrize(
    "value",
    [
        answered(1),
        {"content": [{"type": "text", "text": "x"}], "isError": False},
        {"code": -32602, "message": "Unknown tool"},
        {"type": "tool_result", "toolUseId": "a", "content": []},
    ],
)
def test_a_result_without_its_request_is_rejected_with_the_reason(value):
    (record,) = read("mcp", value)
    assert isinstance(record, Rejected)
    assert "the tools/call request" in record.reason


def test_catalogues_and_other_records_are_left_to_others():
    tool = {"name": "f", "inputSchema": {"type": "object"}}
    for value in (
        rpc(id=1, result={"tools": [tool]}),
        {"tools": [tool]},
        tool,
        {"code": 404, "message": "not found"},
        {"content": [{"type": "text", "text": "x"}], "role": "user"},
        {"messages": [{"role": "user", "content": "x"}]},
    ):
        assert shape_of(value, "mcp") is None


def test_servers_of_one_log_number_their_requests_apart():
    def logged(second, server, message):
        return {"ts": f"2026-01-01T00:00:0{second}Z", "server": server, "message": message}

    record = one(
        "mcp",
        logged(1, "weather", call(1)),
        logged(2, "files", call(1, "read")),
        logged(3, "files", answered(1, "text")),
        logged(4, "weather", answered(1, "rain")),
        logged(5, "files", call(2, "read")),
        logged(6, None, answered(2, "more")),
    )
    assert [(c.name, c.result) for c in record.calls] == [
        ("mcp__weather__search", "rain"),
        ("mcp__files__read", "text"),
        ("mcp__files__read", "more"),
    ]


def test_a_log_that_grows_or_repeats_its_lines_is_one_trajectory():
    lines = [
        {"ts": f"2026-01-01T00:00:0{n}Z", "msg": json.dumps(message)}
        for n, message in enumerate([call(1), answered(1), call(2), answered(2)])
    ]
    short, whole = one("mcp", *lines[:2]), one("mcp", *lines, *lines)
    assert short.native_id == whole.native_id
    assert (len(short.calls), len(whole.calls)) == (1, 2)


def test_messages_that_are_text_inside_a_line_are_read():
    pair = {"request": json.dumps(call(1, q=2**70)), "response": json.dumps(answered(1)["result"])}
    record = one("mcp", pair)
    assert (told(record), record.calls[0].arguments) == (
        [("search", 0, "ok", "done")],
        {"q": 2**70},
    )


def test_tools_that_a_server_lists_in_a_log_are_its_catalogue():
    listed = rpc(id=1, result={"tools": [{"name": "f", "inputSchema": {"type": "object"}}]})
    for message in (listed, json.dumps(listed)):
        (named,) = read("mcp", {"server": "s", "message": message})
        assert (named.namespace, named.name) == ("s", "f")


@pytest.mark.parametrize("prefix", ["[info] [weather]", "[weather] [info]"])
@pytest.mark.parametrize("tail", ["", " { metadata: undefined }"])
def test_text_logs_of_a_host_are_read(tmp_path, prefix, tail):
    path = tmp_path / "mcp.log"
    lines = [
        f"2026-01-01T00:00:01.500Z {prefix} Initializing server...{tail}",
        "Traceback of a server:",
        f"2026-01-01T00:00:02.500Z {prefix} Message from client: {json.dumps(call(4))}{tail}",
        f"2026-01-01T00:00:03.500Z {prefix} Message from server: {json.dumps(answered(4))}{tail}",
        f'2026-01-01T00:00:04.500Z {prefix} Message from server: {{"id":5,"result":"...{tail}',
    ]
    path.write_text("\n".join(lines) + "\n")
    rejected, record = (record for _, record in read_file(path))
    assert rejected.place == "line 5"
    (made,) = record.calls
    assert (made.name, made.result) == ("mcp__weather__search", "done")
    assert made.ended_at - made.started_at == 1_000_000_000


def test_a_text_log_without_messages_says_so(tmp_path):
    path = tmp_path / "other.log"
    path.write_text("2026-01-01T00:00:01Z [info] [web] started\n")
    ((_, rejected),) = read_file(path)
    assert "expected messages" in rejected.reason


def test_sampling_messages_and_their_tools():
    value = {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "weather?"}},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"c": 1}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {"c": 2}},
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"c": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "toolUseId": "b", "content": [], "isError": True},
                    {"type": "tool_result", "toolUseId": "z", "content": [{"text": "lost"}]},
                ],
            },
        ],
        "tools": [{"name": "f", "description": "d", "inputSchema": {"type": "object"}}],
        "maxTokens": 10,
    }
    request = rpc(id=1, method="sampling/createMessage", params=value)
    for record in (value, request):
        tool, trajectory = read("mcp", record)
        assert tool == ToolRecord("f", "d")
        assert [(c.arguments, c.status) for c in trajectory.calls] == [
            ({"c": 1}, "no_result"),
            ({"c": 2}, "error"),
        ]
        assert (trajectory.request, trajectory.orphans) == ("weather?", ["lost"])
        assert trajectory.duplicates == 1


@needs_samples
def test_sample_messages_of_mcp():
    counts = {}
    for path in sorted((SAMPLES / "mcp").glob("*.json")):
        found = [r for name, r in read_file(path) if name == "mcp"]
        counts[path.name.split("_")[0]] = [
            len(r.calls) if isinstance(r, TrajectoryRecord) else type(r).__name__ for r in found
        ]
    assert counts["CallToolRequest"] == [1]
    assert counts["CreateMessageRequestParams"] == ["ToolRecord", 2]
    assert counts["CallToolResult"] == counts["CallToolResultResponse"] == ["Rejected"]


@pytest.mark.parametrize("odd", [None, 3, "x", [], {}, [None], {"type": "x"}, "\ud800\x00"])
@pytest.mark.parametrize("key", ["id", "params", "result", "error"])
def test_an_odd_field_of_one_message_leaves_its_neighbours_alone(key, odd):
    record = one("mcp", call(1), answered(1), {**rpc(id=2, method="ping"), key: odd}, call(3))
    assert [(c.call_id, c.status) for c in record.calls[:1]] == [("1", "ok")]
    assert record.calls[-1].call_id == "3"


# --- managed-agent events -------------------------------------------------------------------------


def event(key, kind, second, **more):
    return {
        "id": f"sevt_{key}",
        "type": kind,
        "processed_at": f"2026-01-01T00:00:{second:02}Z",
        **more,
    }


def streamed(value):
    return ["client.beta.sessions.events.stream", value]


SENT = {
    "type": "user.custom_tool_result",
    "custom_tool_use_id": "sevt_c1",
    "content": [{"type": "text", "text": "sunny"}],
}
EVENTS = [
    event("u", "user.message", 0, content=[{"type": "text", "text": "weather?"}]),
    event("m1", "span.model_request_start", 1),
    event("c1", "agent.custom_tool_use", 2, name="get_weather", input={"city": "Prague"}),
    event("c2", "agent.mcp_tool_use", 3, name="list", mcp_server_name="git", input={}),
    event("r2", "agent.mcp_tool_result", 4, mcp_tool_use_id="sevt_c2", is_error=True, content="no"),
    event("r1", "user.custom_tool_result", 5, **{k: SENT[k] for k in list(SENT)[1:]}),
    event("m2", "span.model_request_start", 6),
    event("c3", "agent.tool_use", 7, name="bash", input={"command": "rm"}),
    event("n3", "user.tool_confirmation", 8, tool_use_id="sevt_c3", result="deny"),
    event("c4", "agent.tool_use", 8, name="bash", input={}, session_thread_id="sthr_1"),
    event("x", "agent.hologram", 9),
    event("r9", "agent.tool_result", 9, tool_use_id="sevt_zz", content="lost"),
]


def test_events_pair_by_event_id_and_make_a_trajectory_a_thread():
    records = read("anthropic_events", *map(streamed, EVENTS))
    assert Ignored("event of type agent.hologram") in records
    main, thread = (r for r in records if isinstance(r, TrajectoryRecord))
    assert told(main) == [
        ("get_weather", 0, "ok", "sunny"),
        ("mcp__git__list", 0, "error", "no"),
        ("bash", 1, "error", None),
    ]
    assert main.calls[2].flags == ("rejected",)
    assert (main.request, main.orphans) == ("weather?", ["lost"])
    assert told(thread) == [("bash", 0, "no_result", None)]
    assert thread.native_id == f"{main.native_id}/sthr_1"


def test_a_result_that_was_sent_and_its_echo_are_one():
    send = ["client.beta.sessions.events.send", ["sesn_1", {"events": [SENT]}]]
    created = ["client.beta.sessions.create", {"id": "sesn_1", "type": "session", "agent": {}}]
    lines = [created, *map(streamed, EVENTS[:4]), send, *map(streamed, EVENTS[4:6])]
    record = one("anthropic_events", *lines)
    assert [c.result for c in record.calls] == ["sunny", "no"]
    assert (record.orphans, record.native_id) == ([], "sesn_1")
    assert record.calls[0].ended_at is not None
    not_echoed = one("anthropic_events", *lines[:6])
    assert [(c.result, c.ended_at) for c in not_echoed.calls] == [("sunny", None), (None, None)]


def test_events_on_their_own_lines_or_in_a_page_say_the_same():
    expected = trajectories("anthropic_events", *map(streamed, EVENTS))
    assert trajectories("anthropic_events", *EVENTS) == expected
    assert trajectories("anthropic_events", {"data": EVENTS, "next_page": None}) == expected


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_order_and_repetition_of_events_do_not_matter(data):
    expected = trajectories("anthropic_events", *EVENTS)
    more = data.draw(st.lists(st.sampled_from(EVENTS), max_size=3))
    assert trajectories("anthropic_events", *data.draw(st.permutations(EVENTS)), *more) == expected


@needs_samples
def test_sample_events_of_a_managed_session():
    records = [r for _, r in read_file(SAMPLES / "langsmith/anthropic_managed_custom_tools.jsonl")]
    tool, record = records
    assert tool.name == "get_weather"
    assert told(record) == [("get_weather", 0, "ok", "It's 23°C and sunny in Prague.")]
    assert record.request == "What's the weather in Prague?"
    assert record.native_id == "sesn_014fc5Q6rWwrXD3vWBfPRUes"
