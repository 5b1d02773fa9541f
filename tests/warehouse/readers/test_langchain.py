"""LangChain messages: three dumps, threads told by snapshots, calls run again."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.readers.reading import read_file, read_items
from warehouse.readers.stream import Item
from warehouse.records import Ignored, TrajectoryRecord

SAMPLE = (
    Path(__file__).parents[3].parent
    / "shared/samples/langchain/messages_langchain_core_1.8.3_generated.json"
)


def read(*values):
    items = [Item(f"line {n}", json.dumps(v), v) for n, v in enumerate(values, start=1)]
    return list(read_items(items))


def trajectories(*values):
    found = [pair for pair in read(*values) if isinstance(pair[1], TrajectoryRecord)]
    assert {name for name, _ in found} <= {"langchain"}
    return [record for _, record in found]


def one(*values):
    (record,) = trajectories(*values)
    return record


def human(text, **more):
    return {"type": "human", "content": text, "additional_kwargs": {}, **more}


def ai(*calls, **more):
    return {"type": "ai", "content": "", "tool_calls": list(calls), **more}


def call(call_id, name="search", **args):
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def tool(call_id, content="done", **more):
    return {"type": "tool", "tool_call_id": call_id, "content": content, **more}


def nested(message):
    return {"type": message["type"], "data": message}


def constructed(message):
    name = {"human": "Human", "ai": "AI", "tool": "Tool"}[message["type"]] + "Message"
    path = ["langchain", "schema", "messages", name]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": message}


def snapshot(messages, thread="th", at="2026-01-01T00:00:00+00:00"):
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": "c"}}
    return {"values": {"messages": messages}, "next": [], "config": config, "created_at": at}


def told(record):
    return [(c.call_id, c.turn, c.status, c.result) for c in record.calls]


LIST = [
    human("weather?", id="h1"),
    ai(call("a", q=1), call("b", q=2), id="i1"),
    tool("b", "rain", id="r1"),
    tool("a", "boom", status="error", id="r2"),
    ai(id="i2"),
]
EXPECTED = [("a", 0, "error", "boom"), ("b", 0, "ok", "rain")]


@pytest.mark.parametrize("dump", [lambda m: m, nested, constructed])
@pytest.mark.parametrize("wrap", [lambda ms: ms, lambda ms: {"messages": ms}])
def test_the_three_dumps_give_the_same_calls_paired_by_id_92(dump, wrap):
    record = one(wrap([dump(message) for message in LIST]))
    assert told(record) == EXPECTED
    assert (record.request, record.calls[0].error) == ("weather?", "boom")


@pytest.mark.parametrize("dump", [lambda m: m, nested, constructed])
def test_messages_on_lines_of_their_own_are_one_conversation(dump):
    lines = [dump({"response_metadata": {}, **message}) for message in LIST]
    assert told(one(*lines)) == EXPECTED


def test_lists_side_by_side_are_one_conversation_if_they_tell_the_same():
    other = [human("else?"), ai(call("z"))]
    same = {"one": LIST, "two": [constructed(m) for m in LIST]}
    record = one({**same, "note": "x"})
    assert (told(record), record.duplicates) == (EXPECTED, 2)
    assert [r.request for r in trajectories({**same, "three": other})] == ["weather?", "else?"]


def test_copies_of_calls_in_provider_fields_count_once():
    function = {"name": "search", "arguments": '{"q": 1}'}
    extra = {"tool_calls": [{"id": "a", "type": "function", "function": function}]}
    blocks = [{"type": "tool_use", "id": "a", "name": "search", "input": {"q": 1}}]
    message = {**ai(call("a", q=1), additional_kwargs=extra), "content": blocks}
    assert [c.arguments for c in one([human("x"), message]).calls] == [{"q": 1}]
    message["tool_calls"] = []
    assert [c.arguments for c in one([human("x"), message]).calls] == ['{"q": 1}']
    message["additional_kwargs"] = {}
    assert [c.arguments for c in one([human("x"), message]).calls] == [{"q": 1}]


def test_invalid_calls_keep_their_raw_text_and_error():
    bad = {"name": "f", "args": '{"city": "Par', "id": "c", "error": "Expecting value"}
    record = one([human("x"), ai(call("a"), invalid_tool_calls=[bad])])
    assert [(c.name, c.arguments, c.error) for c in record.calls] == [
        ("search", {}, None),
        ("f", '{"city": "Par', "Expecting value"),
    ]


def test_results_without_an_id_answer_their_turn_by_name():
    record = one(
        [
            human("x"),
            ai(call(None, "f"), call(None, "g")),
            {"type": "function", "name": "g", "content": "G"},
            {"type": "function", "name": "f", "content": "F"},
        ]
    )
    assert [(c.name, c.result) for c in record.calls] == [("f", "F"), ("g", "G")]


@pytest.mark.parametrize("word", ["error", "ERROR"])
def test_a_result_object_that_says_error_is_an_error_9332(word):
    record = one([human("x"), ai(call("a")), tool("a", f'{{"status": "{word}", "why": "x"}}')])
    assert record.calls[0].status == "error"


def test_an_artifact_stands_in_for_an_empty_content():
    record = one([human("x"), ai(call("a")), tool("a", "", artifact={"rows": 2})])
    assert record.calls[0].result == '{"rows": 2}'


def test_repeated_ids_and_results_without_a_call_28305_4006():
    record = one(
        [
            human("x"),
            ai(call("i", n=1)),
            tool("i", "first"),
            ai(call("i", n=2)),
            tool("i", "second"),
            tool("fc-9", "lost"),
        ]
    )
    assert [c.result for c in record.calls] == ["first", "second"]
    assert record.orphans == ["lost"]


def test_equal_messages_without_ids_are_not_merged():
    turn = [ai(call("i", n=1)), tool("i", "same")]
    record = one([human("x"), *turn, *turn])
    assert told(record) == [("i", 0, "ok", "same"), ("i", 1, "ok", "same")]


def test_unknown_messages_are_ignored_by_name_4118():
    records = read([human("x"), ai(call("a")), {"type": "hologram"}, 3, tool("a")])
    assert {r.what for _, r in records if isinstance(r, Ignored)} == {
        "message of type hologram",
        "message of type int",
    }
    assert told(records[-1][1]) == [("a", 0, "ok", "done")]


def test_streamed_chunks_are_put_together():
    def chunk(args, name=None, call_id=None):
        piece = {"name": name, "args": args, "id": call_id, "index": 0}
        return {"type": "AIMessageChunk", "content": "", "id": "r", "tool_call_chunks": [piece]}

    record = one([human("x"), chunk('{"q"', "f", "a"), chunk(": 1}"), tool("a")])
    assert [(c.name, c.arguments, c.status) for c in record.calls] == [("f", '{"q": 1}', "ok")]


# --- threads --------------------------------------------------------------------------------------


def test_growing_snapshots_of_a_thread_are_one_trajectory():
    record = one(*(snapshot(LIST[:n]) for n in range(1, 6)))
    assert told(record) == EXPECTED
    assert (record.native_id, record.conversation, record.duplicates) == ("th", "th", 0)


@pytest.mark.parametrize("has_ids", [True, False])
def test_snapshots_of_a_trimmed_history_go_on_where_the_others_ended(has_ids):
    late = [ai(call("c"), id="i3"), tool("c", "late", id="r3")]
    lists = [LIST, [*LIST[3:], *late]]
    if not has_ids:
        lists = [[{k: v for k, v in m.items() if k != "id"} for m in ms] for ms in lists]
    record = one(*(snapshot(messages) for messages in reversed(lists)))
    assert told(record) == [*EXPECTED, ("c", 1, "ok", "late")]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda config, point: {"config": config, "checkpoint": point, "metadata": {}},
        lambda config, point: [config, point, {"step": 1}, None],
    ],
)
def test_checkpoints_name_their_thread(wrap):
    config = {"configurable": {"thread_id": 7}}
    point = {"v": 4, "ts": "2026-01-01T00:00:00Z", "channel_values": {"messages": LIST}}
    record = one(wrap(config, point), wrap(config, point))
    assert (told(record), record.native_id) == (EXPECTED, "7")


def test_sub_graphs_have_a_thread_of_their_own():
    inner = snapshot([human("inner"), ai(call("z"))])
    inner["config"]["configurable"]["checkpoint_ns"] = "sub:1"
    assert [r.native_id for r in trajectories(snapshot(LIST), inner)] == ["th", "th/sub:1"]


def test_an_answer_of_the_server_names_thread_and_sub_graph_in_its_checkpoint():
    def state(messages, space, metadata):
        return {
            "values": {"messages": messages},
            "next": [],
            "metadata": metadata,
            "checkpoint": {"thread_id": "th", "checkpoint_ns": space, "checkpoint_id": "c"},
        }

    inner = state([human("inner"), ai(call("z"))], "sub:1", {"thread_id": "th"})
    records = trajectories(state(LIST, "", {"thread_id": "th"}), inner, state(LIST, "", {}))
    assert [(r.native_id, len(r.calls)) for r in records] == [("th", 2), ("th/sub:1", 1)]


def test_the_id_of_a_checkpoint_is_not_that_of_its_conversation():
    opening = "00000001-1111-2222-3333-444444444444"
    messages = [{**LIST[0], "id": opening}, *LIST[1:]]
    points = [
        {"id": i, "channel_values": {"messages": messages[:n]}} for i, n in (("a", 3), ("b", 5))
    ]
    assert {r.native_id for r in trajectories(*points)} == {f"opening {opening}"}


def test_a_call_run_again_from_a_checkpoint_is_one_call_7417():
    before = [human("x", id="h"), ai(call("a"), id="i")]
    first = snapshot([*before, tool("a", "one", id="r1")], at="2026-01-01T00:00:00Z")
    again = [*before, tool("a", "two", id="r2"), ai(call("b"), id="i2")]
    second = snapshot(again, at="2026-01-01T00:03:00Z")
    for order in ([first, second], [second, first]):
        record = one(*order)
        assert [(c.call_id, c.attempts) for c in record.calls] == [("a", 2), ("b", 1)]
    both = [*before, tool("a", "one", id="r1"), tool("a", "two", id="r2")]
    assert [(c.attempts, c.result) for c in one(both).calls] == [(2, "two")]


def test_a_way_taken_from_an_earlier_state_is_a_branch():
    first = [*LIST, human("go on", id="h2"), ai(call("c"), id="i3")]
    second = [*LIST, human("go back", id="h3"), ai(call("d"), id="i4")]
    trunk, branch = trajectories(
        snapshot(second, at="2026-01-02T00:00:00Z"), snapshot(first), snapshot(first[:-1])
    )
    assert [c.call_id for c in (*trunk.calls, *branch.calls)] == ["a", "b", "c", "d"]
    assert (branch.request, branch.conversation) == ("go back", "th")


def test_an_answer_edited_before_its_call_ran_is_replaced():
    proposed = [human("x", id="h"), ai(call("a", q="bad"), id="i")]
    edited = [human("x", id="h"), ai(call("a", q="good"), id="i"), tool("a", id="r")]
    record = one(snapshot(proposed), snapshot(edited))
    assert [(c.arguments, c.status) for c in record.calls] == [({"q": "good"}, "ok")]


def test_a_list_that_is_saved_again_longer_keeps_its_id():
    own = "1f0e7c1a-0000-4000-8000-000000000001"
    short, long = ([human("x", id=own), *LIST[1:n]] for n in (2, 5))
    assert one(short).native_id == one(long).native_id == f"opening {own}"


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_order_repetition_and_split_of_snapshots_do_not_matter(data):
    later = [*LIST, human("go back", id="h3"), ai(call("d"), id="i4"), tool("d", id="r4")]
    rerun = [*LIST[:3], tool("a", "again", id="r9"), ai(call("e"), id="i9")]
    points = [snapshot(LIST[:n], at=f"2026-01-01T00:00:0{n}Z") for n in range(1, 6)]
    points += [snapshot(later, at="2026-01-03T00:00:00Z"), snapshot(rerun)]
    expected = trajectories(*points)
    shuffled = data.draw(st.permutations(points))
    repeated = shuffled + data.draw(st.lists(st.sampled_from(points), max_size=3))
    assert trajectories(*repeated) == expected


def test_lone_surrogates_and_nul_pass_through():
    odd = "a\ud800b\x00c"
    record = one(snapshot([human(odd), ai(call("a", t=odd)), tool("a", odd)]))
    assert (record.request, record.calls[0].result) == (odd, odd)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the sample file is not here")
def test_sample_of_three_dumps_is_one_conversation():
    ((name, record),) = read_file(SAMPLE)
    assert (name, record.duplicates) == ("langchain", 6)
    assert [(c.call_id, c.status) for c in record.calls] == [
        ("call_1", "error"),
        ("call_2", "ok"),
        ("call_3", "no_result"),
    ]
