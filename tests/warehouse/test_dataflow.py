import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warehouse.dataflow import Used, _by_hash, _by_index, _by_search, mine_links
from warehouse.payload import dropped
from warehouse.records import Call, TrajectoryRecord
from warehouse.staging import Handling, stage
from warehouse.values import is_telling, leaves, values_in

SALT = b"pepper"


def used(*calls, turns=None, labels=None, names=None):
    """Calls as (arguments, result); results that are not text become JSON."""
    arguments = [call[0] for call in calls]
    return Used(
        turns=turns or list(range(len(calls))),
        texts=[None if a is None else json.dumps(a) for a in arguments],
        arguments=arguments,
        results=[r if r is None or isinstance(r, str) else json.dumps(r) for _, r in calls],
        call_ids=labels or [None] * len(calls),
        names=names or [f"tool_{at}" for at in range(len(calls))],
    )


def without_payloads(given):
    return Used(
        given.turns,
        [None] * len(given.texts),
        [a and dropped(json.dumps(a), "object", SALT) for a in given.arguments],
        [r and dropped(r, "", SALT) for r in given.results],
        given.call_ids,
        given.names,
    )


# --- references -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("$var1.city.id$", 0),
        ("$var_2$", 1),
        ("<node-1>", 1),
        ("{{steps.2.output}}", 1),
        ("{{ steps[1].output.id }}", 0),
        ("{{1.output}}", 0),
        ("{{step_2.output | upper}}", 1),
        ("{{find.hotel.id}}", 0),
        ("{{toolu_b}}", 1),
        ("https://x/${steps.toolu_a.outputs.id}/rooms", 0),
        ("${steps['toolu_b'].outputs.id}", 1),
        ("${find.hotel.id}", 0),
    ],
)
def test_references_name_a_step_a_label_or_a_tool(text, source):
    calls = used(
        ({}, None),
        ({}, None),
        ({"id": text}, None),
        labels=["toolu_a", "toolu_b", "toolu_c"],
        names=["find.hotel", "rate", "book"],
    )
    assert mine_links("", calls) == [(source, 2)]


def test_labels_win_over_the_numbers_in_them():
    calls = used(({}, None), ({}, None), ({"id": "$var1$"}, None), labels=["var3", "var1", "var2"])
    assert mine_links("", calls) == [(1, 2)]


def test_a_tool_that_ran_twice_is_meant_as_it_ran_last():
    calls = used(
        ({}, None), ({}, None), ({"id": "{{a.id}}"}, None), ({}, None), names=["a", "a", "b", "a"]
    )
    assert mine_links("", calls) == [(1, 2)]


@pytest.mark.parametrize(
    ("texts", "links"),
    [
        ([{}, {"x": "<node-0>"}, {"x": "<node-1>"}], [(0, 1), (1, 2)]),
        ([{}, {"x": "<node-1>"}, {"x": "<node-2>"}], [(0, 1), (1, 2)]),
        ([{}, {"x": "{{steps.0.x}}"}, {"x": "{{steps.1.x}}"}], [(0, 1), (1, 2)]),
        ([{}, {"x": "{{steps.1.x}}"}, {"x": "{{steps.2.x}}"}], [(0, 1), (1, 2)]),
    ],
)
def test_steps_count_from_zero_or_from_one(texts, links):
    assert mine_links("", used(*((arguments, None) for arguments in texts))) == links


@pytest.mark.parametrize(
    "text",
    ["$var9.id$", "{{later.id}}", "{{name}}", "${HOME}", "\\d{{2}}", "$variable$", "{{1.5}}",
     "${arr[0]}", "$var" + "9" * 5000, "<node-" + "9" * 5000 + ">"],
)  # fmt: skip
def test_what_only_looks_like_a_reference_leaves_values_to_be_looked_up(text):
    calls = used(
        ({}, {"id": "H-4711"}), ({"a": text, "id": "H-4711"}, None), ({}, None),
        names=["a", "b", "later"],
    )  # fmt: skip
    assert mine_links("", calls) == [(0, 1)]


def test_references_silence_values_nowhere():
    calls = used(
        ({}, {"id": "H-4711"}),
        ({}, {"key": "K-0815"}),
        ({"a": "$var1.id$", "key": "K-0815"}, None),
        ({"id": "H-4711"}, None),
    )
    assert mine_links("", calls) == [(0, 2), (0, 3), (1, 2)]
    assert mine_links("", calls, by_value=False) == [(0, 2)]


def test_ingest_mines_what_stands_in_templates_and_in_results():
    calls = [
        Call("find", 0, {}, result='{"id": 5281.0}', status="ok", call_id="c1"),
        Call("rate", 1, {"hotel": "{{find.id}}"}, result='{"rate": "R-0815"}', status="error"),
        Call("book", 2, {"hotel": "5281", "rate": "R-0815"}),
    ]
    (staged,), _ = stage([("normalised", TrajectoryRecord("", calls))], "shop", Handling())
    assert staged.links == [(0, 1, "mined"), (0, 2, "mined")]


# --- values ---------------------------------------------------------------------------------------

FOUND = {
    "text": ({"id": "H-4711"}, {"id": "H-4711"}),
    "in a list": ([["a", "H-4711"]], {"ids": ["x", "H-4711"]}),
    "number and text": ({"id": 4711}, {"id": "4711"}),
    "text and number": ({"id": "4711"}, {"id": 4711}),
    "decimals and text": ({"lat": 32.873055}, {"lat": "32.873055"}),
    "float and integer": ({"id": 5281.0}, {"id": 5281}),
    "integer and float": ({"id": 5281}, {"id": 5281.0}),
    "negative": ({"id": -553173}, {"id": "-553173"}),
    "zeros in front": ({"id": "00000199"}, {"id": "00000199"}),
    "JSON in the result": ({"text": '{"id": "H-4711"}'}, {"id": "H-4711"}),
    "JSON in the argument": ({"id": "H-4711"}, {"legs": '[{"id": "H-4711"}]'}),
    "JSON in JSON in both": ({"text": '[{"lat": 32.873055}]'}, {"legs": '{"lat": "32.873055"}'}),
    "part of a URL": ({"id": "TCK-12345"}, {"url": "https://x.com/t/TCK-12345?all=1"}),
    "part of a letter": ({"id": "TCK-12345"}, {"body": "Your ticket is TCK-12345."}),
    "part of the result": ({"message": "Created TCK-12345 for you."}, {"id": "TCK-12345"}),
    "plain text": ("Created TCK-12345 for you.", {"id": "TCK-12345"}),
    "Python's notation": ("[{'mail': 'lena.schmidt@atlas.com'}]", {"to": "lena.schmidt@atlas.com"}),
    "escaped": ({"name": 'the "Ritz" in Łódź'}, {"query": 'the "Ritz" in Łódź'}),
}

NOT_FOUND = {
    "short": ({"currency": "USD"}, {"currency": "USD"}),
    "small number": ({"count": 27}, {"count": 27}),
    "few digits": ({"rate": 0.25}, {"rate": 0.25}),
    "round number": ({"limit": 5000}, {"limit": 5000}),
    "year": ({"year": 2024}, {"year": "2024"}),
    "boolean": ({"free": True}, {"free": "True"}),
    "locale": ({"language": "en-us"}, {"language": "en-us"}),
    "date": ({"date": "2024-10-14"}, {"date": "2024-10-14"}),
    "time": ({"at": "2024-10-14 08:00:00"}, {"at": "2024-10-14 08:00:00"}),
    "part of a file": ({"id": "TCK-12345"}, {"content": "a TCK-12345 " * 1000}),
    "part of another": ({"id": "H-47112"}, {"id": "H-4711"}),
    "a key": ({"H-4711": 1}, {"id": "H-4711"}),
    "said": ({"town": "Oslo"}, {"town": "Oslo"}),
    "said with blanks": ({"field": "total_visits"}, {"field": "total_visits"}),
    "said with a comma": ({"price": 12345}, {"price": 12345}),
}

REQUEST = "Show the total visits in Oslo on October 14th, 2024 for 12,345 dollars"


@pytest.mark.parametrize(("result", "arguments"), FOUND.values(), ids=FOUND)
def test_a_telling_value_is_found(result, arguments):
    for calls in (used(({}, result), (arguments, None)), _many(({}, result), (arguments, None))):
        assert mine_links(REQUEST, calls)[-1:] == [(0, len(calls.turns) - 1)]
        assert mine_links(REQUEST, without_payloads(calls), salt=SALT) == mine_links("", calls)


@pytest.mark.parametrize(("result", "arguments"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_a_value_that_proves_nothing_is_not(result, arguments):
    for calls in (used(({}, result), (arguments, None)), _many(({}, result), (arguments, None))):
        assert mine_links(REQUEST, calls) == []


def _many(first, last):
    """So many calls that results are not looked through one by one."""
    return used(first, *([({}, "{}")] * 100), last)


def test_a_value_comes_from_the_earliest_result_that_holds_it():
    calls = used(({}, {"id": "H-4711"}), ({}, ["H-4711"]), ({"id": "H-4711"}, None))
    assert mine_links("", calls) == [(0, 2)]


def test_a_result_that_repeats_an_argument_is_no_source():
    calls = used(
        ({"id": "H-4711"}, {"id": "H-4711", "owner": "O-0815"}),
        ({"id": "H-4711", "owner": "O-0815"}, {"owner": "O-0815"}),
        ({"owner": "O-0815"}, None),
    )
    assert mine_links("", calls) == [(0, 1), (0, 2)]


def test_only_results_of_earlier_turns_are_sources():
    held = {"id": "H-4711"}
    calls = used(({}, held), (held, None), (held, None), turns=[0, 0, 1])
    assert mine_links("", calls) == []  # the second call carried it before any result was seen
    calls = used(({}, held), ({}, None), (held, None), turns=[0, 0, 1])
    assert mine_links("", calls) == [(0, 2)]


def test_turns_count_and_not_the_order_of_the_calls():
    held = {"id": "H-4711"}
    calls = used((held, None), ({}, held), turns=[1, 0])
    assert mine_links("", calls) == [(1, 0)]


def test_failed_calls_give_nothing():
    assert mine_links("", used(({}, None), ({"id": "H-4711"}, None))) == []


_TEXTS = st.sampled_from(
    ["H-4711", "K-0815", "Oslo", "Bergen", "see H-4711 there", "4711", "5281.25", "00000199",
     '{"id": "K-0815"}', "2024-10-14", "en-us", "a b", "x=H-47112", 'say "H-4711"', "Łódź 4711"]
)  # fmt: skip
_LEAVES = _TEXTS | st.sampled_from([4711, 4711.0, 5281.25, 27, True, None]) | st.integers(999, 1005)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
_CALLS = st.tuples(
    st.dictionaries(st.sampled_from(["id", "H-4711"]), _VALUES, max_size=2),
    st.none() | _VALUES | st.just("Created H-4711 in Bergen: 5281.25"),
    st.integers(0, 2),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(_CALLS, max_size=6), st.sampled_from(["", "to Oslo", "about 4711 and K-0815"]))
def test_every_way_of_looking_finds_the_same(calls, request):
    given_ = used(*((a, r) for a, r, _ in calls), turns=[turn for *_, turn in calls])
    found = mine_links(request, given_)
    assert found == sorted(set(found))
    assert all(given_.turns[s] < given_.turns[t] for s, t in found)
    assert set(_by_search(request, given_)) == set(found)
    assert set(_by_index(request, given_)) == set(found)
    assert set(_by_hash(request, given_, SALT)) == set(found)


@settings(max_examples=60, deadline=None)
@given(_VALUES)
def test_values_of_a_text_are_those_of_what_it_encodes(value):
    assert values_in(json.dumps(value)) == frozenset(leaves(value))


@pytest.mark.parametrize("value", ["4711", "-4711.5", "0.12345", "0012", "TRUST", "1e16", "+4712"])
def test_telling(value):
    assert is_telling(value)


@pytest.mark.parametrize("value", ["4700", "1999", "0000", "1.500", "True", "10:30 am", "1/2/2024"])
def test_not_telling(value):
    assert not is_telling(value)
