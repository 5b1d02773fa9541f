"""Anthropic messages: blocks and their results, tools of the server, streams, odd parts."""

import json

import pytest

from warehouse.readers.anthropic import calls_of, glued, pair_messages
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Rejected, ToolRecord, TrajectoryRecord

USER = {"role": "user", "content": "do it"}


def use(call_id, name="a", kind="tool_use", **more):
    return {"type": kind, "id": call_id, "name": name, "input": {}, **more}


def back(call_id, content="ok", kind="tool_result", **more):
    return {"type": kind, "tool_use_id": call_id, "content": content, **more}


def assistant(*blocks, **more):
    return {"role": "assistant", "content": list(blocks), **more}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def read(*values):
    items = [Item(f"line {i}", json.dumps(v), v) for i, v in enumerate(values, 1)]
    return list(read_items(items))


def told(*messages):
    calls, orphans, _ = calls_of(list(messages))
    return [(c.call_id, c.turn, c.result, c.status) for c in calls], orphans


def test_parallel_calls_share_a_turn_and_are_paired_by_id_92():
    assert told(
        USER,
        assistant({"type": "thinking", "thinking": "hm"}, use("1"), use("2")),
        user(back("2", "two"), {"type": "text", "text": "and"}, back("1", "one")),
        assistant(use("3")),
    ) == (
        [("1", 0, "one", "ok"), ("2", 0, "two", "ok"), ("3", 1, None, "no_result")],
        [],
    )


def test_ids_that_come_again_keep_each_result_28305():
    assert told(
        assistant(use("x")), user(back("x", "1")), assistant(use("x")), user(back("x", "2"))
    )[0] == [("x", 0, "1", "ok"), ("x", 1, "2", "ok")]


def test_two_calls_with_one_id_and_two_results_are_two_calls_2055():
    assert told(
        assistant(use("x", input={"a": 1}), use("x", input={"a": 2})),
        user(back("x", "1"), back("x", "2")),
    )[0] == [("x", 0, "1", "ok"), ("x", 0, "2", "ok")]


def test_blocks_that_a_proxy_repeats_are_counted_once_528():
    one, two = use("1", input={"q": 1}), use("2", input={"q": 2})
    pairing = pair_messages([assistant(one, one, two, two), user(back("1"), back("2"))])
    assert [c.call_id for c in pairing.calls] == ["1", "2"]
    assert pairing.duplicates == 2


def test_growing_snapshots_are_three_calls_53():
    one, two, three = use("t1"), use("t2"), use("t3")
    for messages in (
        [assistant(one, one, two, one, two, three)],
        [assistant(one), assistant(one, two), assistant(one, two, three)],
    ):
        calls, _, duplicates = calls_of([*messages, user(back("t1"), back("t2"), back("t3"))])
        assert [(c.call_id, c.turn, c.status) for c in calls] == [
            ("t1", 0, "ok"),
            ("t2", 0, "ok"),
            ("t3", 0, "ok"),
        ]
        assert duplicates == 3


def test_a_crash_leaves_one_call_unanswered_3308():
    assert [s for *_, s in told(assistant(use("1"), use("2")), user(back("2")))[0]] == [
        "no_result",
        "ok",
    ]


def test_a_result_without_a_call_is_kept_aside_4006():
    assert told(assistant(use("1")), user(back("fc-9", "?"))) == (
        [("1", 0, None, "no_result")],
        ["?"],
    )


def test_an_answer_in_an_earlier_turn_does_not_serve_a_later_call_664():
    calls, _ = told(
        assistant(use("a")),
        user(back("a")),
        assistant(use("b")),
        user(back("b")),
        assistant(use("a")),
    )
    assert [status for *_, status in calls] == ["ok", "ok", "no_result"]


@pytest.mark.parametrize(
    "result",
    [
        back("1", "boom", is_error=True),
        back("1", [{"type": "text", "text": '{"isError": true}'}]),
        back("1", '{"status": "error"}'),
    ],
)
def test_a_failed_call_is_an_error_296(result):
    assert told(assistant(use("1")), user(result))[0][0][3] == "error"


def test_an_error_of_words_alone_is_a_result():
    calls, _ = told(assistant(use("1")), user(back("1", "Error: no", is_error=False)))
    assert calls[0][2:] == ("Error: no", "ok")


def test_tools_of_the_server_have_their_results_inside_the_message():
    hits = [{"type": "web_search_result", "title": "t", "url": "u"}]
    refused = {"type": "web_fetch_tool_result_error", "error_code": "url_not_allowed"}
    pairing = pair_messages(
        [
            USER,
            assistant(
                use("srvtoolu_1", "web_search", "server_tool_use", input={"query": "q"}),
                back("srvtoolu_1", hits, "web_search_tool_result"),
                use("srvtoolu_2", "web_fetch", "server_tool_use"),
                back("srvtoolu_2", refused, "web_fetch_tool_result"),
                use("toolu_3", "add"),
            ),
            user(back("toolu_3", "4")),
        ]
    )
    assert [(c.name, c.turn, c.status, c.error) for c in pairing.calls] == [
        ("web_search", 0, "ok", None),
        ("web_fetch", 1, "error", "url_not_allowed"),
        ("add", 2, "ok", None),
    ]
    assert pairing.ignored == []


def test_tools_of_an_mcp_server_carry_its_name():
    pairing = pair_messages(
        [
            assistant(
                use("m", "ask", "mcp_tool_use", server_name="wiki"),
                back("m", [{"type": "text", "text": "no"}], "mcp_tool_result", is_error=True),
            )
        ]
    )
    assert [(c.name, c.status, c.error) for c in pairing.calls] == [
        ("mcp__wiki__ask", "error", "no")
    ]


def test_calls_out_of_running_code_know_their_parent():
    pairing = pair_messages(
        [
            assistant(
                use("srvtoolu_1", "code_execution", "server_tool_use"),
                use("toolu_2", caller={"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}),
                use("toolu_3", caller={"type": "direct"}),
            ),
            user(back("toolu_2"), back("toolu_3")),
        ]
    )
    assert [(c.name, c.parent, c.turn) for c in pairing.calls] == [
        ("code_execution", None, 0),
        ("a", 0, 0),
        ("a", None, 0),
    ]


def test_a_message_cut_inside_a_call_leaves_it_incomplete():
    cut = pair_messages([assistant(use("1"), use("2"), stop_reason="max_tokens")])
    assert [c.status for c in cut.calls] == ["no_result", "incomplete"]
    text = {"type": "text", "text": "and then"}
    whole = pair_messages([assistant(use("1"), text, stop_reason="max_tokens")])
    assert [c.status for c in whole.calls] == ["no_result"]


def test_odd_blocks_and_messages_are_skipped_one_by_one_4118():
    messages = [
        USER,
        "text",
        {"role": "robot", "content": []},
        assistant({"type": "hologram"}, "x", {"type": "tool_use", "id": "0"}, use("1")),
        user(back("1")),
    ]
    found = read({"messages": messages})
    (record,) = [r for _, r in found if isinstance(r, TrajectoryRecord)]
    assert [(c.name, c.status) for c in record.calls] == [("a", "ok")]
    assert len([r for _, r in found if isinstance(r, Ignored)]) == 5
    assert not [r for _, r in found if isinstance(r, Rejected)]


def test_integers_and_odd_characters_in_arguments_stay_exact():
    arguments = {"n": 2**64, "s": "\ud800\u0000"}
    calls, _, _ = calls_of([assistant(use("1", input=arguments))])
    assert calls[0].arguments == arguments


# --- wrappers -------------------------------------------------------------------------------------

MESSAGES = [USER, assistant(use("1")), user(back("1")), {"role": "assistant", "content": "done"}]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda m: [m],
        lambda m: [{"messages": m}],
        lambda m: [{"id": "7", "system": "s", "messages": m, "tools": []}],
        lambda m: m,
    ],
)
def test_every_wrapper_is_recognised(wrap):
    ((name, record),) = read(*wrap(MESSAGES))
    assert (name, record.request, len(record.calls)) == ("anthropic", "do it", 1)
    assert record.calls[0].status == "ok"


def test_a_list_of_messages_in_a_file_is_one_conversation(tmp_path):
    path = tmp_path / "messages.json"
    path.write_text(json.dumps(MESSAGES))
    ((name, record),) = read_file(path)
    assert (name, record.request, len(record.calls)) == ("anthropic", "do it", 1)


def test_sampling_of_mcp_is_left_to_its_own_reader():
    value = {"messages": MESSAGES, "maxTokens": 5}
    shape = shape_of(value)
    assert shape is None or shape.format not in ("anthropic", "openai")


def test_tools_of_a_request_are_told_also_before_any_call():
    value = {
        "messages": [USER],
        "tools": [
            {"name": "a", "description": "d", "input_schema": {"properties": {"x": {}}}},
            {"type": "bash_20250124", "name": "bash"},
        ],
    }
    assert shape_of(value).format == "anthropic"
    tools = [r for _, r in read(value) if isinstance(r, ToolRecord)]
    assert [(t.name, t.description, len(t.parameters)) for t in tools] == [
        ("a", "d", 1),
        ("bash", "", 0),
    ]


# --- streams --------------------------------------------------------------------------------------


def events(*blocks, stop="tool_use"):
    yield {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": []}}
    for index, (block, *parts) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "ping"}
        for text in parts:
            delta = {"type": "input_json_delta", "partial_json": text}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": stop}}
    yield {"type": "message_stop"}


@pytest.mark.parametrize("as_lines", [True, False])
def test_deltas_spell_the_input_and_none_is_an_empty_one(as_lines):
    told = list(
        events((use("1"), "", '{"q"', ": 18446744073709551616}"), (use("2"),), (use("3"), ""))
    )
    ((name, record),) = read(*told) if as_lines else read(told)
    assert name == "anthropic"
    assert record.native_id == "msg_1"
    assert [c.arguments for c in record.calls] == [{"q": 2**64}, {}, {}]
    assert {c.turn for c in record.calls} == {0}


def test_a_stream_that_breaks_off_leaves_an_incomplete_call():
    told = list(events((use("1"), '{"q": "lo')))[:-3]
    ((_, record),) = read(told)
    assert [(c.arguments, c.status) for c in record.calls] == [('{"q": "lo', "incomplete")]
    assert glued([]) is None


def test_two_streams_of_one_file_are_two_messages():
    assert len(read([*events((use("1"),)), *events((use("2"),))])) == 2


def test_messages_of_bedrock_are_understood():
    def use(call_id):
        return {"toolUse": {"toolUseId": call_id, "name": "a", "input": {"x": 1}}}

    def back(call_id, text, status="success"):
        return {"toolResult": {"toolUseId": call_id, "content": [{"text": text}], "status": status}}

    conversation = [
        {"role": "user", "content": [{"text": "do it"}]},
        {"role": "assistant", "content": [{"text": "hm"}, use("1"), use("2")]},
        {"role": "user", "content": [back("2", "no", "error"), back("1", "yes")]},
    ]
    for value in (conversation, {"messages": conversation}):
        ((name, record),) = read(value)
        assert (name, record.request) == ("anthropic", "do it")
        assert [(c.turn, c.arguments, c.result, c.status) for c in record.calls] == [
            (0, {"x": 1}, "yes", "ok"),
            (0, {"x": 1}, "no", "error"),
        ]
