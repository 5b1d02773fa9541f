"""OpenAI chat messages and training lines: pairing, wrappers, streams, odd and broken parts."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from warehouse.readers.openai_chat import glued, pair_calls, pair_messages
from warehouse.readers.pairing import request_of
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Rejected, ToolRecord, TrajectoryRecord

SHARED = Path(__file__).resolve().parents[3].parent / "shared"
USER = {"role": "user", "content": "do it"}


def call(call_id, name, arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def read(*values, format="auto"):
    """The records of values that stand in one file."""
    items = [Item(f"line {i}", json.dumps(v), v) for i, v in enumerate(values, 1)]
    return list(read_items(items, format))


def read_one(*values):
    """The only trajectory among the records, with its format."""
    found = [(name, r) for name, r in read(*values) if isinstance(r, TrajectoryRecord)]
    assert len(found) == 1
    return found[0]


def told(messages):
    calls, orphans = pair_calls(messages)
    return [(c.name, c.turn, c.result) for c in calls], orphans


def sample(*parts):
    path = SHARED.joinpath("samples", *parts)
    if not path.exists():
        pytest.skip("the sample files are not beside this checkout (../shared/samples)")
    return path


# --- pairing --------------------------------------------------------------------------------------


def test_an_unanswered_call_among_parallel_ones_stays_unanswered_3308():
    calls, _ = pair_calls([assistant(call("a", "s"), call("b", "t")), result("b", "done")])
    assert [(c.call_id, c.status, c.result) for c in calls] == [
        ("a", "no_result", None),
        ("b", "ok", "done"),
    ]


def test_growing_snapshots_in_one_message_are_three_calls_53():
    one, two, three = (call(f"t{i}", "a", json.dumps({"i": i})) for i in (1, 2, 3))
    pairing = pair_messages([assistant(one, one, two, one, two, three), result("t2", "2")])
    assert [(c.call_id, c.result) for c in pairing.calls] == [
        ("t1", None),
        ("t2", "2"),
        ("t3", None),
    ]
    assert pairing.duplicates == 3
    assert {c.turn for c in pairing.calls} == {0}


def test_growing_snapshots_as_messages_are_three_calls_of_one_turn_53():
    one, two, three = (call(f"t{i}", "a", json.dumps({"i": i})) for i in (1, 2, 3))
    pairing = pair_messages(
        [assistant(one), assistant(one, two), assistant(one, two, three)]
        + [result(f"t{i}", str(i)) for i in (3, 1, 2)]
    )
    assert [(c.call_id, c.turn, c.result) for c in pairing.calls] == [
        ("t1", 0, "1"),
        ("t2", 0, "2"),
        ("t3", 0, "3"),
    ]
    assert pairing.duplicates == 3


def test_doubled_blocks_are_two_calls_and_two_copies_528():
    one, two = call("t1", "a", '{"x":1}'), call("t2", "a", '{"x":2}')
    pairing = pair_messages(
        [assistant(one, one, two, two), result("t1", "1"), result("t2", "2"), USER]
    )
    assert [c.result for c in pairing.calls] == ["1", "2"]
    assert pairing.duplicates == 2


def test_fifty_equal_calls_stay_fifty_rows_1715():
    messages = []
    for _ in range(50):
        messages += [assistant(call("c", "poll")), result("c", "ok")]
    calls, orphans = pair_calls(messages)
    assert len(calls) == 50
    assert [c.turn for c in calls] == list(range(50))
    assert {c.status for c in calls} == {"ok"}
    assert orphans == []


def test_two_calls_of_one_tool_with_other_arguments_are_both_kept_1431():
    calls, _ = told([assistant(call("1", "s", '"x"'), call("2", "s", '"y"'))])
    assert len(calls) == 2


def test_pairing_stays_linear_for_one_id_used_throughout():
    messages = []
    for i in range(3000):
        messages += [assistant(call("call_id", "a", str(i)))]
    messages += [result("call_id", str(i)) for i in range(3000)]
    calls, orphans = pair_calls(messages)
    assert len(calls) == 3000
    assert calls[-1].result == "0"  # the nearest one first
    assert orphans == []


def test_calls_without_an_id_are_answered_by_name_and_order():
    messages = [
        {"role": "assistant", "tool_calls": [{"function": {"name": n}} for n in ("a", "b", "a")]},
        {"role": "tool", "name": "b", "content": "B"},
        {"role": "tool", "name": "a", "content": "A1"},
        {"role": "tool", "name": "a", "content": "A2"},
        {"role": "tool", "name": "a", "content": "more"},
    ]
    assert told(messages) == ([("a", 0, "A1"), ("b", 0, "B"), ("a", 0, "A2")], ["more"])


def test_an_id_that_is_a_number_pairs():
    messages = [assistant(call(7, "a")), {"role": "tool", "tool_call_id": 7, "content": "x"}]
    assert told(messages) == ([("a", 0, "x")], [])


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ('{"isError": true, "content": []}', "error"),
        ('{"status": "error", "message": "no"}', "error"),
        ('{"jsonrpc": "2.0", "error": {"code": -32602, "message": "no"}}', "error"),
        ('{"is_error": false, "error": null}', "ok"),
        ('{"errors": [], "status": "ok"}', "ok"),
        ("Error: the words alone do not count", "ok"),
        ('{"note": "isError', "ok"),
        ("", "ok"),
    ],
)
def test_a_failure_is_a_flag_in_the_payload_and_never_words_296(content, status):
    (found,), _ = pair_calls([assistant(call("1", "a")), result("1", content)])
    assert (found.status, found.result) == (status, content)


def test_flags_beside_the_content_count_first():
    (found,), _ = pair_calls(
        [assistant(call("1", "a")), {**result("1", "fine"), "name": "a", "is_error": True}]
    )
    assert (found.status, found.error) == ("error", "fine")


def test_cut_arguments_are_incomplete_only_where_the_model_was_cut():
    def completion(finish):
        message = assistant(call("1", "a", '{"x": 1}'), call("2", "b", '{"path": "/tm'))
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion", "choices": [choice]}

    _, cut = read_one(completion("length"))
    assert [(c.status, c.arguments) for c in cut.calls] == [
        ("no_result", '{"x": 1}'),
        ("incomplete", '{"path": "/tm'),
    ]
    _, whole = read_one(completion("tool_calls"))
    assert [c.status for c in whole.calls] == ["no_result", "no_result"]


def test_arguments_stay_exactly_as_they_were_sent():
    texts = [
        '{"n": 18446744073709551616}',
        '"{\\"location\\": \\"current\\"}"',
        '{"s": "\\ud800 \\u0000"}',
        '{"broken": ',
        "",
    ]
    messages = [assistant(*(call(str(i), "a", text) for i, text in enumerate(texts)))]
    line = json.dumps({"messages": [USER, *messages]})
    _, record = read_one(json.loads(line))
    assert [c.arguments for c in record.calls] == texts


def test_parsed_arguments_and_missing_ones_pass():
    messages = [assistant(call("1", "a", {"n": 2**70}), {"id": "2", "function": {"name": "b"}})]
    calls, _ = pair_calls(messages)
    assert [c.arguments for c in calls] == [{"n": 2**70}, None]


# --- odd parts ------------------------------------------------------------------------------------


def test_odd_messages_and_calls_are_skipped_one_by_one_4118():
    messages = [
        USER,
        {"role": "narrator", "content": "meanwhile"},
        "text",
        None,
        {"content": "no role"},
        assistant({"id": "0"}, {"id": "1", "function": {"name": 5}}, "x", call("2", "a")),
        result("2", "ok"),
        {"role": "assistant", "content": "done", "tool_calls": None},
    ]
    found = read({"messages": messages})
    (record,) = [r for _, r in found if isinstance(r, TrajectoryRecord)]
    assert [(c.name, c.status) for c in record.calls] == [("a", "ok")]
    assert len([r for _, r in found if isinstance(r, Ignored)]) == 7
    assert not [r for _, r in found if isinstance(r, Rejected)]


def test_custom_tools_and_refusals():
    custom = {"id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls"}}
    refusal = {"role": "assistant", "content": None, "refusal": "no"}
    calls, _ = pair_calls([assistant(custom), result("1", "a b"), refusal])
    assert [(c.name, c.arguments, c.result) for c in calls] == [("sh", {"input": "ls"}, "a b")]


def test_text_parts_are_joined_and_other_parts_kept_as_json():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    calls, _ = pair_calls(
        [assistant(call("1", "a"), call("2", "b")), result("1", parts), result("2", image)]
    )
    assert [c.result for c in calls] == ["a\nb", json.dumps(image)]


def test_blocks_of_another_provider_late_in_a_conversation_are_not_lost():
    chat = [USER, {"role": "assistant", "content": "hm"}] * 8
    use = {"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1}}
    back = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    messages = [
        *chat,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [back]},
    ]
    _, record = read_one({"messages": messages})
    assert [(c.name, c.arguments, c.result) for c in record.calls] == [("a", {"x": 1}, "ok")]


# --- wrappers -------------------------------------------------------------------------------------


def test_single_messages_of_a_file_are_one_conversation_each():
    lines = [
        {**message, "session_id": session}
        for message in (USER, assistant(call("1", "a")), result("1", "ok"))
        for session in ("x", "y")
    ]
    records = [record for _, record in read(*lines)]
    assert [(r.native_id, r.conversation, len(r.calls)) for r in records] == [
        ("x", "x", 1),
        ("y", "y", 1),
    ]
    name, record = read_one(USER, assistant(call("1", "a")), result("1", "ok"))
    assert (name, record.request, record.calls[0].result) == ("openai", "do it", "ok")
    assert record.native_id is None


def test_a_list_of_messages_in_a_file_is_one_conversation(tmp_path):
    path = tmp_path / "messages.json"
    path.write_text(json.dumps([USER, assistant(call("1", "a")), result("1", "ok")], indent=1))
    ((name, record),) = read_file(path)
    assert name == "openai"
    assert [c.result for c in record.calls] == ["ok"]


def test_a_trajectory_is_named_by_its_own_id_only_without_a_conversation():
    _, record = read_one({"id": 5, "messages": [USER]})
    assert (record.native_id, record.conversation) == ("5", None)
    _, record = read_one({"thread_id": "t", "messages": [USER]})
    assert (record.native_id, record.conversation) == ("t", "t")


@pytest.mark.parametrize(
    "value",
    [
        {"messages": []},
        {"messages": "text"},
        {"messages": [{"type": "human", "content": "x"}]},
        {"messages": [{"type": "ai", "data": {"content": "x"}}]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}]},
        {"role": "user"},
        {"role": "president", "content": "x"},
        [{"role": 5, "content": "x"}],
    ],
)
def test_records_of_other_formats_are_left_alone(value):
    shape = shape_of(value)
    assert shape is None or shape.format == "langchain"


# --- training lines -------------------------------------------------------------------------------


def test_training_lines_are_told_by_their_own_keys():
    tools = [{"type": "function", "function": {"name": "a", "parameters": {"properties": {}}}}]
    lines = [
        {"messages": [USER], "tools": tools},
        {"messages": [USER], "functions": [{"name": "a"}]},
        {"messages": [USER, {**assistant(call("1", "a")), "weight": 0}]},
        {"messages": [USER], "parallel_tool_calls": False},
    ]
    assert [shape_of(line).format for line in lines] == ["openai_finetune"] * 4
    logged = {"messages": [USER], "tools": tools, "model": "m"}
    assert shape_of(logged).format == "openai"
    assert shape_of({"messages": [USER]}).format == "openai"
    assert [r.name for _, r in read(lines[1]) if isinstance(r, ToolRecord)] == ["a"]


def test_the_sample_of_training_lines_keeps_arguments_encoded_twice():
    found = read_file(sample("openai_finetune", "drone_training_excerpt.jsonl"))
    assert {name for name, _ in found} == {"openai_finetune"}
    records = [r for _, r in found if isinstance(r, TrajectoryRecord)]
    assert [c.arguments for r in records for c in r.calls] == [
        '{"altitude": 100}',
        '"{\\"location\\": \\"current\\"}"',
    ]
    assert {c.call_id for r in records for c in r.calls} == {"call_id"}
    assert len([r for _, r in found if isinstance(r, ToolRecord)]) == 8


# --- streams --------------------------------------------------------------------------------------


def chunk(*parts, finish=None, **delta):
    delta = delta | ({"tool_calls": list(parts)} if parts else {})
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "s", "object": "chat.completion.chunk", "choices": [choice]}


def part(index, arguments=None, name=None, call_id=None):
    told = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in told.items() if value is not None}


def streamed(*chunks):
    _, record = read_one(list(chunks))
    return [(c.call_id, c.name, c.arguments, c.status) for c in record.calls]


def test_fragments_are_glued_by_index():
    assert streamed(
        chunk(part(0, "", "a", "x"), role="assistant"),
        chunk(part(0, '{"q"')),
        chunk(part(1, "", "b", "y")),
        chunk(part(0, ":1}"), part(1, "{}")),
        chunk(finish="tool_calls"),
    ) == [("x", "a", '{"q":1}', "no_result"), ("y", "b", "{}", "no_result")]


def test_a_call_without_arguments_has_none():
    assert streamed(chunk(part(0, None, "a", "x")), chunk(finish="tool_calls")) == [
        ("x", "a", "", "no_result")
    ]


def test_snapshots_that_grow_are_no_deltas_53():
    one = part(None, '{"i":1}', "a", "t1")
    two = part(None, '{"i":2}', "a", "t2")
    three = part(None, '{"i":3}', "a", "t3")
    expected = [(f"t{i}", "a", f'{{"i":{i}}}', "no_result") for i in (1, 2, 3)]
    assert (
        streamed(chunk(one), chunk(one, two), chunk(one, two, three), chunk(finish="stop"))
        == expected
    )
    growing = [part(0, '{"x":12345}'[:n], "a", "t1") for n in (3, 6, 11)]
    assert streamed(*map(chunk, growing), chunk(finish="stop")) == [
        ("t1", "a", '{"x":12345}', "no_result")
    ]


def test_a_stream_may_begin_with_a_chunk_about_filters(tmp_path):
    prelude = {"id": "", "object": "", "choices": [], "prompt_filter_results": []}
    delta = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "a", "arguments": "{}"}}]}
    whole = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1_754_000_000,
        "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}],
    }
    path = tmp_path / "stream.txt"
    path.write_text("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in (prelude, whole)))
    for records in (read(prelude, whole), read([prelude, whole]), read_file(path)):
        ((name, record),) = records
        assert (name, record.native_id) == ("openai", "x")
        assert record.started_at == datetime(2025, 7, 31, 22, 13, 20)
        assert [c.name for c in record.calls] == ["a"]


def test_two_calls_at_one_index_are_told_apart_by_their_ids():
    assert streamed(
        chunk(part(0, "{}", "a", "x")), chunk(part(0, "{}", "b", "y")), chunk(finish="stop")
    ) == [("x", "a", "{}", "no_result"), ("y", "b", "{}", "no_result")]


def test_a_stream_that_breaks_off_leaves_an_incomplete_call():
    assert streamed(chunk(part(0, '{"q": "lon', "a", "x"))) == [
        ("x", "a", '{"q": "lon', "incomplete")
    ]


def test_only_the_first_choice_of_a_stream_counts():
    other = chunk(part(0, "{}", "b", "y"))
    other["choices"][0]["index"] = 1
    assert len(streamed(chunk(part(0, "{}", "a", "x")), other, chunk(finish="stop"))) == 1
    old = [chunk(function_call={"name": "a"}), chunk(function_call={"arguments": '{"x":1}'})]
    assert glued([*old, {"odd": 1}, None])["choices"][0]["message"]["function_call"] == {
        "name": "a",
        "arguments": '{"x":1}',
    }


# --- real data ------------------------------------------------------------------------------------


def test_the_tau_bench_sample_keeps_ids_that_come_again():
    ((name, record),) = read_file(
        sample("openai_chat", "tau_bench_airline_task0_trial0_duplicate_call_ids.json")
    )
    assert (name, record.native_id, len(record.calls)) == ("openai", "task0-trial0", 8)
    assert len({c.call_id for c in record.calls}) < 8
    assert [c.status for c in record.calls].count("error") == 1
    assert all(c.result is not None for c in record.calls)


def test_all_of_tau_bench():
    folder = SHARED / "data/raw/tau_bench/historical_trajectories"
    if not folder.is_dir():
        pytest.skip("the real trajectory sets are not beside this checkout (../shared/data)")
    records = [r for path in sorted(folder.iterdir()) for _, r in read_file(path)]
    calls = [c for r in records for c in r.calls]
    assert (len(records), len(calls)) == (200, 1164)
    assert [c.status for c in calls].count("error") == 73
    assert sum(len(r.orphans) for r in records) == 0


def test_a_message_of_its_own_may_have_a_result_that_is_no_text():
    _, record = read_one(USER, assistant(call("1", "a")), result("1", {"x": 1}))
    assert [(c.status, c.result) for c in record.calls] == [("ok", '{"x": 1}')]


def test_two_results_of_one_id_in_a_turn_are_told_apart_by_name_or_else_by_order_2055():
    calls = assistant(call("1", "a"), call("1", "b"))
    named = [{**result("1", "of b"), "name": "b"}, {**result("1", "of a"), "name": "a"}]
    assert [r for _, _, r in told([USER, calls, *named])[0]] == ["of a", "of b"]
    plain = [result("1", "first"), result("1", "second")]
    assert [r for _, _, r in told([USER, calls, *plain])[0]] == ["first", "second"]
    late = [USER, calls, USER, assistant(call("2", "c")), *plain]
    assert [r for _, _, r in told(late)[0]] == ["first", "second", None], "a turn later too"


REMINDER = "<system-reminder>\nToday is Monday.\n</system-reminder>"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "fix it"}],
        [{"role": "user", "content": f"{REMINDER}\n\n{REMINDER}\nfix it"}],
        [{"role": "user", "content": [{"type": "text", "text": t} for t in (REMINDER, "fix it")]}],
        [{"role": "user", "content": REMINDER}, {"role": "user", "content": "fix it"}],
        [
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
            {"role": "user", "content": "fix it"},
        ],
        [{"role": "user", "content": ""}, {"role": "user", "content": "fix it"}],
        [
            {"role": "user", "content": "<environment_context>x</environment_context>"},
            {"role": "user", "content": "fix it"},
        ],
    ],
)
def test_the_request_is_what_the_user_wrote(messages):
    assert request_of(messages) == "fix it"


@pytest.mark.parametrize("text", ["  <b>bold</b> words ", "<system-reminder-tool> is odd", "< 3"])
def test_a_request_keeps_its_own_marks(text):
    assert request_of([{"role": "user", "content": text}]) == text
