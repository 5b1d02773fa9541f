"""Recorded exchanges: one conversation each, whatever order, split or repetition they come in."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.readers.exchanges import assemble
from warehouse.readers.reading import read_file, read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import Fragment, Ignored, ToolRecord, TrajectoryRecord

SAMPLES = Path(__file__).resolve().parents[3].parent / "shared/samples"
ASK = {"role": "user", "content": "find and book"}


def read(*values, format="auto"):
    items = [Item(f"line {i}", json.dumps(v), v) for i, v in enumerate(values, 1)]
    return list(read_items(items, format))


def trajectories(*values):
    return [record for _, record in read(*values) if isinstance(record, TrajectoryRecord)]


def calls_of(record):
    return [(c.name, c.turn, c.result, c.status) for c in record.calls]


def fragments(*values):
    """(conversation, events) of each pair."""
    found = []
    for value in values:
        shape = shape_of(value)
        for record in shape.read(Item("line 1", json.dumps(value), value)):
            if isinstance(record, Fragment):
                found.append((record.conversation, record.events))
    return found


def sample(*parts):
    path = SAMPLES.joinpath(*parts)
    if not path.exists():
        pytest.skip("the sample files are not beside this checkout (../shared/samples)")
    return path


# --- chat -----------------------------------------------------------------------------------------


def sent(*calls):
    tools = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, name, arguments in calls
    ]
    return {"role": "assistant", "content": None, "tool_calls": tools}


def back(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def pair(messages, answer, created=None, **more):
    response = {"object": "chat.completion", "choices": [{"index": 0, "message": answer}]}
    if created is not None:
        response["created"] = created
    return {"request": {"model": "m", "messages": messages}, "response": response, **more}


def conversation(ids=("c1", "c2", "c3"), results=("one", "two", "three"), ask=ASK):
    """Four pairs of one conversation: two parallel calls, one more, the answer."""
    messages = [ask]
    pairs = []
    first = sent((ids[0], "find", '{"q": 1}'), (ids[1], "find", '{"q": 2}'))
    pairs.append(pair(list(messages), first, 1_700_000_000))
    messages += [first, back(ids[0], results[0]), back(ids[1], results[1])]
    second = sent((ids[2], "book", '{"n": 18446744073709551616}'))
    pairs.append(pair(list(messages), second, 1_700_000_060))
    messages += [second, back(ids[2], results[2])]
    pairs.append(pair(list(messages), {"role": "assistant", "content": "done"}, 1_700_000_120))
    return pairs


WHOLE = [("find", 0, "one", "ok"), ("find", 0, "two", "ok"), ("book", 1, "three", "ok")]


def test_pairs_of_one_conversation_are_one_trajectory():
    (record,) = trajectories(*conversation())
    assert calls_of(record) == WHOLE
    assert record.request == "find and book"
    assert record.started_at.isoformat() == "2023-11-14T22:13:20"


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 5), st.sampled_from(["c", "call_4fa9b2c81d"]))
def test_order_split_and_repetition_change_nothing(order, again, prefix):
    one = conversation(tuple(f"{prefix}{i}" for i in range(3)))
    other = conversation(tuple(f"{prefix}{i}" for i in range(3)), results=("1", "2", "3"))
    pairs = one + other
    expected = read(*pairs)
    shuffled = [pairs[i] for i in order]
    assert trajectories_of(read(*shuffled, shuffled[again])) == trajectories_of(expected)


def trajectories_of(found):
    return sorted(repr(record) for _, record in found if isinstance(record, TrajectoryRecord))


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_assembling_depends_on_the_set_of_events_only(random):
    told = fragments(*conversation(), *conversation(("c1", "c2", "c9")))
    assert len({name for name, _ in told}) == 1
    events = [event for _, events in told for event in events]
    expected = list(assemble(told[0][0], events))
    mixed = events + random.sample(events, 3)
    random.shuffle(mixed)
    assert list(assemble(told[0][0], mixed)) == expected
    assert len(expected) == 2


def test_the_last_pair_alone_tells_the_whole_conversation():
    assert calls_of(trajectories(conversation()[-1])[0]) == WHOLE


def test_the_first_pair_alone_leaves_its_calls_unanswered():
    (record,) = trajectories(conversation()[0])
    assert [c.status for c in record.calls] == ["no_result", "no_result"]


def test_a_conversation_keeps_its_name_while_it_goes_on():
    for ids in (("c1", "c2", "c3"), ("call_4fa9b2c81d1", "call_4fa9b2c81d2", "call_4fa9b2c81d3")):
        pairs = conversation(ids)
        names = {trajectories(*pairs[: n + 1])[0].native_id for n in range(3)}
        assert len(names) == 1


def test_other_conversations_stay_apart():
    other = conversation(ask={"role": "user", "content": "something else"})
    assert len(trajectories(*conversation(), *other)) == 2
    runs = [conversation((f"x{i}", f"y{i}", f"z{i}")) for i in range(5)]
    found = trajectories(*(p for run in runs for p in run))
    assert len(found) == len({record.native_id for record in found}) == 5
    assert all(calls_of(record) == WHOLE for record in found)


def test_runs_with_the_same_ids_and_other_results_stay_apart():
    found = trajectories(*conversation(), *conversation(results=("one", "two", "other")))
    assert sorted(record.calls[2].result for record in found) == ["other", "three"]
    assert len({record.native_id for record in found}) == 2


def test_a_result_that_a_client_cleared_later_is_still_known():
    ids = ("call_4fa9b2c81d1", "call_4fa9b2c81d2", "call_4fa9b2c81d3")
    cleared = conversation(ids, results=("[cleared]"[:2], "[cleared]"[:2], "three"))[-1]
    (record,) = trajectories(*conversation(ids)[:2], cleared)
    assert calls_of(record) == WHOLE


def test_arguments_that_a_client_writes_anew_are_the_same_call():
    pairs = conversation()
    again = json.loads(json.dumps(pairs[-1]).replace('{\\"q\\": 1}', '{\\"q\\":1}'))
    (record,) = trajectories(*pairs[:2], again)
    assert calls_of(record) == WHOLE


def test_a_history_without_its_beginning_is_joined_by_the_ids_of_its_calls():
    ids = ("call_4fa9b2c81d1", "call_4fa9b2c81d2", "call_4fa9b2c81d3")
    pairs = conversation(ids)
    short = pair([ASK, *pairs[-1]["request"]["messages"][4:]], {"role": "assistant"})
    for order in ([*pairs, short], [short, *pairs[::-1]]):
        (record,) = trajectories(*order)
        assert calls_of(record) == WHOLE


def test_a_request_that_was_sent_again_makes_no_call_of_the_answer_that_led_nowhere_twice():
    pairs = conversation()
    tried = pair([ASK], sent(("other", "find", "{}")))
    found = trajectories(*pairs, tried)
    assert sorted(len(record.calls) for record in found) == [1, 3]


def test_a_conversation_that_its_record_names_is_joined_by_that():
    first, *_, last = conversation()
    last["request"]["messages"][0] = {"role": "user", "content": "summary of what was asked"}
    for value in (first, last):
        value["conversation_id"] = "thread-1"
    (record,) = trajectories(first, last)
    assert record.conversation == "thread-1"
    assert calls_of(record) == WHOLE


def test_a_conversation_without_calls_is_kept_once():
    hello = {"role": "user", "content": "hello"}
    one = pair([hello], {"role": "assistant", "content": "hi"})
    two = pair([hello, {"role": "assistant", "content": "hi"}, hello], {"role": "assistant"})
    assert [calls_of(r) for r in trajectories(one, two, one)] == [[]]


def test_a_failed_exchange_still_tells_its_history():
    pairs = conversation()
    failed = {**pairs[-1], "status": 500, "response": {"error": {"message": "overloaded"}}}
    (record,) = trajectories(failed, *pairs[:1])
    assert calls_of(record) == WHOLE
    assert len(trajectories({**pairs[-1], "response": None})) == 1


def test_odd_characters_and_long_integers_are_no_hindrance():
    text = '{"n": 36893488147419103232, "s": "\\ud800 \\u0000", "f": NaN}'
    ask = {"role": "user", "content": "\ud800\x00"}
    first = pair([ask], sent(("c", "find", text)))
    then = pair([ask, sent(("c", "find", text)), back("c", "\udfff")], {"role": "assistant"})
    (record,) = trajectories(then, first)
    assert [(c.arguments, c.result) for c in record.calls] == [(text, "\udfff")]


def test_a_cut_call_of_a_pair_is_incomplete():
    value = pair([ASK], sent(("c", "find", '{"q": ')))
    value["response"]["choices"][0]["finish_reason"] = "length"
    (record,) = trajectories(value)
    assert [c.status for c in record.calls] == ["incomplete"]


def test_results_without_a_call_are_reported_4006():
    value = pair([ASK, back("fc-9", "?"), back("fc-8", "!")], sent(("c", "find", "{}")))
    (record,) = trajectories(value)
    assert sorted(record.orphans) == ["!", "?"]
    assert len(record.calls) == 1


def test_copies_are_counted_once_528():
    twice = ("c", "find", "{}")
    (record,) = trajectories(pair([ASK], sent(twice, twice)))
    assert (len(record.calls), record.duplicates) == (1, 1)


# --- wrappers -------------------------------------------------------------------------------------


def test_bodies_as_text_and_in_archives_are_found():
    value = conversation()[-1]
    request, response = value["request"], value["response"]
    har = {
        "log": {
            "entries": [
                {"request": {"url": "http://x"}, "response": {"content": {"text": "<html>"}}},
                {
                    "request": {"url": "u", "postData": {"text": json.dumps(request)}},
                    "response": {"status": 200, "content": {"text": json.dumps(response)}},
                },
            ]
        }
    }
    cassette = {
        "version": 1,
        "interactions": [
            {
                "request": {"uri": "u", "body": json.dumps(request)},
                "response": {"body": {"string": json.dumps(response)}},
            }
        ],
    }
    flat = {**request, "response": response}
    for wrapped in (
        har,
        cassette,
        flat,
        {"request": {"body": request}, "response": {"body": response}},
    ):
        (record,) = trajectories(wrapped)
        assert calls_of(record) == WHOLE
    assert len([r for _, r in read(har) if isinstance(r, Ignored)]) == 1


@pytest.mark.parametrize(
    "value",
    [
        {"request": "what is asked", "response": "text"},
        {"request": {"q": 1}, "response": {"answer": 2}},
        {"request": {"messages": [{"type": "human"}]}, "response": {"messages": []}},
        {"request": {"url": "x"}, "response": {"output": []}},
        {"request": {}, "response": {"choices": []}},
        {"log": {"entries": []}},
        {"interactions": "x"},
    ],
)
def test_other_requests_and_responses_are_left_alone(value):
    shape = shape_of(value)
    assert shape is None or not shape.format.startswith(("openai", "anthropic"))


# --- Responses ------------------------------------------------------------------------------------


def response(name, *output, previous=None, given=(), **more):
    request = {"model": "m", "input": list(given)} | more.pop("request", {})
    answer = {"id": name, "object": "response", "output": list(output), "status": "completed"}
    return {
        "request": request | {"previous_response_id": previous},
        "response": answer | {"previous_response_id": previous} | more,
    }


def asked(call_id, name="a", **more):
    told = {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}
    return told | more


def output(call_id, text):
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def chain(ids=("call_0", "call_0", "call_0"), names="abc"):
    """Responses that go on from one another and repeat nothing."""
    return [
        response("r1", asked(ids[0], names[0]), given=[ASK], created_at=1_700_000_000),
        response("r2", previous="r1", given=[output(ids[0], "A")], created_at=1_700_000_001),
        response("r3", asked(ids[1], names[1]), asked(ids[2], names[2]), previous="r2"),
        response("r4", previous="r3", given=[output(ids[1], "B"), output(ids[2], "C")]),
    ]


@settings(max_examples=25, deadline=None)
@given(
    st.permutations(range(4)),
    st.sampled_from([("call_0",) * 3, ("call_8b1f0e77a1", "call_8b1f0e77a2", "call_8b1f0e77a3")]),
)
def test_responses_that_go_on_from_another_are_one_trajectory(order, ids):
    pairs = chain(ids)
    (record,) = trajectories(*(pairs[i] for i in order))
    assert calls_of(record) == [("a", 0, "A", "ok"), ("b", 1, "B", "ok"), ("c", 1, "C", "ok")]
    assert record.request == "find and book"
    assert record.orphans == []
    assert record.started_at.isoformat() == "2023-11-14T22:13:20"


def test_chains_stay_apart_from_one_another_and_from_repeated_histories():
    others = json.loads(re.sub(r'"r(\d)"', r'"s\1"', json.dumps(chain(names="xyz"))))
    full = [
        response("q1", asked("k1", "f"), given=[{"role": "user", "content": "other"}]),
        response(
            "q2",
            asked("k2", "g"),
            given=[{"role": "user", "content": "other"}, asked("k1", "f"), output("k1", "F")],
        ),
    ]
    found = trajectories(*chain(), *others, *full)
    assert sorted("".join(c.name for c in record.calls) for record in found) == ["abc", "fg", "xyz"]
    assert len({record.native_id for record in found}) == 3


def test_a_chain_whose_beginning_is_missing_is_kept_with_its_results_aside():
    (record,) = trajectories(*chain()[1:])
    assert calls_of(record) == [("b", 0, "B", "ok"), ("c", 0, "C", "ok")]
    assert record.orphans == ["A"]


def test_a_chain_that_forks_is_two_trajectories():
    other = response("r9", asked("call_0", "z"), previous="r2")
    found = trajectories(*chain(), other)
    assert sorted("".join(c.name for c in record.calls) for record in found) == ["abc", "az"]
    assert len({record.native_id for record in found}) == 2


def test_responses_of_one_conversation_object_belong_together():
    def in_conversation(*told, name, given, at):
        more = {"conversation": {"id": "conv_1"}}
        return response(name, *told, given=given, request=more, created_at=at, **more)

    pairs = [
        in_conversation(asked("call_0"), name="r2", given=[ASK], at=1),
        in_conversation(asked("call_0", "b"), name="r1", given=[output("call_0", "A")], at=2),
        in_conversation(name="r3", given=[output("call_0", "B")], at=3),
    ]
    for order in (pairs, pairs[::-1]):
        (record,) = trajectories(*order)
        assert record.conversation == "conv_1"
        assert calls_of(record) == [("a", 0, "A", "ok"), ("b", 1, "B", "ok")]


def test_responses_alone_are_read_too():
    (record,) = trajectories(*(value["response"] for value in chain()))
    assert [c.name for c in record.calls] == ["a", "b", "c"]


# --- Anthropic ------------------------------------------------------------------------------------


def test_a_message_without_its_type_is_told_by_why_it_stopped():
    use = {"type": "tool_use", "id": "1", "name": "a", "input": {}}
    answer = {"role": "assistant", "content": [use], "stop_reason": "tool_use"}
    pair = {"messages": [{"role": "user", "content": "go"}], "response": answer}
    ((name, record),) = read_items([Item("line 1", "", pair)])
    assert (name, [call.name for call in record.calls]) == ("anthropic", ["a"])


def test_pairs_of_the_messages_api_are_one_trajectory():
    use = {"type": "tool_use", "id": "toolu_1", "name": "a", "input": {"b": 1, "a": 2}}
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no", "is_error": True}
    first = {
        "request": {"messages": [ASK], "max_tokens": 5},
        "response": {"type": "message", "role": "assistant", "content": [use], "id": "msg_1"},
    }
    told = {**use, "input": {"a": 2, "b": 1}, "cache_control": {"type": "ephemeral"}}
    second = {
        "request": {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "find and book"}]},
                {"role": "assistant", "content": [told]},
                {"role": "user", "content": [answer]},
            ]
        },
        "response": {"type": "error", "error": {"type": "overloaded_error"}},
    }
    for order in ([first, second], [second, first]):
        found = read(*order)
        assert {name for name, _ in found} == {"anthropic"}
        (record,) = [r for _, r in found if isinstance(r, TrajectoryRecord)]
        assert calls_of(record) == [("a", 0, "no", "error")]


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "name", "expected"),
    [
        ("openai_chat", "cassette_parallel_two_calls", ["delete_file 0 ok", "create_file 0 ok"]),
        (
            "openai_chat",
            "cassette_stream_sse",
            [
                "get_country 0 ok",
                "get_product_name 0 ok",
                "get_weather 1 ok",
                "final_result 2 no_result",
            ],
        ),
        ("openai_responses", "cassette_function_call", ["get_capital 0 ok"]),
        ("openai_responses", "cassette_mcp_call", ["mcp__deepwiki__ask_question 0 ok"]),
        ("openai_responses", "cassette_reasoning_tool_calls", ["update_plan 0 ok"]),
        (
            "openai_responses",
            "cassette_reused_tool_call_ids",
            ["first_tool 0 ok", "second_tool 1 ok"],
        ),
        ("openai_responses", "cassette_stream_sse_deepseek", ["get_temperature 0 ok"]),
        ("anthropic", "cassette_mcp_tool_stream_sse", ["mcp__deepwiki__ask_question 0 ok"]),
        ("anthropic", "cassette_parallel_four_calls", ["retrieve_entity_info 0 ok"] * 4),
        ("anthropic", "cassette_thinking_tool", ["get_user_country 0 ok"]),
        ("anthropic", "cassette_unpaired_server_tool_use", ["add 0 ok"]),
    ],
)
def test_each_recorded_cassette_is_one_conversation(folder, name, expected):
    found = read_file(sample(folder, f"{name}.json"))
    assert {format for format, _ in found} == {folder.replace("_chat", "")}
    (record,) = [r for _, r in found if isinstance(r, TrajectoryRecord)]
    assert [f"{c.name} {c.turn} {c.status}" for c in record.calls] == expected
    assert record.orphans == []
    assert record.duplicates == 0
    assert not [r for _, r in found if not isinstance(r, TrajectoryRecord | ToolRecord)]
