"""Paths finished into solutions, equal steps merged, the cheapest first."""

from hypothesis import given
from hypothesis import strategies as st

from models.solutions import Solution, Step, finish, merged, ranked
from tests.models.typed_tools import term, typed

GRAPH = typed("big: image -> image", "mix: image image -> y", "small: image -> image")
BIG, MIX, SMALL = range(3)
IMAGE = GRAPH.of_type("image")


def test_open_needs_take_the_newest_output_that_nobody_uses_then_the_one_before():
    path = [Step(BIG, (0,)), Step(SMALL, (1,)), Step(MIX, (None, None))]
    assert finish(GRAPH, path, [IMAGE, IMAGE], 2) == (*path[:2], Step(MIX, (-2, -1)))


def test_where_all_is_used_an_open_need_takes_the_newest_again():
    path = [Step(BIG, (0,)), Step(MIX, (None, None))]
    assert finish(GRAPH, path, [IMAGE], 1) == (path[0], Step(MIX, (-1, -1)))


def test_an_output_or_an_argument_that_serves_nothing_spoils_a_path():
    aside = [Step(BIG, (0,)), Step(SMALL, (1,))]
    assert finish(GRAPH, aside, [IMAGE, IMAGE], 2) is None
    assert finish(GRAPH, [Step(BIG, (0,))], [IMAGE, IMAGE], 2) is None
    assert finish(GRAPH, [Step(BIG, (0,))], [IMAGE, IMAGE], 1) == (Step(BIG, (0,)),)


def test_a_need_that_nothing_fits_spoils_a_path():
    assert finish(GRAPH, [Step(BIG, (None,))], [], 0) is None


def test_equal_steps_are_done_once():
    twice = (Step(BIG, (0,)), Step(BIG, (0,)), Step(MIX, (-1, -2)))
    assert merged(twice) == (Step(BIG, (0,)), Step(MIX, (-1, -1)))


def test_steps_on_what_became_one_become_one_too():
    once = (Step(BIG, (0,)), Step(SMALL, (-1,)))
    twice = (*once, Step(BIG, (0,)), Step(SMALL, (-3,)), Step(MIX, (-2, -4)))
    assert merged(twice) == (*once, Step(MIX, (-2, -2)))


def test_steps_with_other_sources_stay_apart():
    apart = (Step(BIG, (0,)), Step(BIG, (1,)), Step(MIX, (-1, -2)))
    assert merged(apart) == apart


@st.composite
def paths(draw):
    steps = []
    for place in range(draw(st.integers(1, 6))):
        source = st.integers(-place, 1) if place else st.integers(0, 1)
        steps.append(Step(BIG, (draw(source),)))
        if draw(st.booleans()):
            steps[-1] = Step(MIX, (steps[-1].sources[0], draw(source)))
    return [*steps, Step(SMALL, (-len(steps),))]


@given(paths())
def test_merging_changes_nothing_that_a_path_does(steps):
    once = merged(steps)
    assert term(GRAPH, once) == term(GRAPH, steps)
    assert merged(once) == once
    assert len(set(once)) == len(once) <= len(steps)


def test_the_cheapest_comes_first_then_the_shortest_and_each_once():
    one, two = (Step(BIG, (0,)),), (Step(SMALL, (0,)), Step(BIG, (-1,)))
    told = [Solution(two, 1.0), Solution(one, 2.0), Solution(one, 1.0), Solution(one[:1], 3.0)]
    assert ranked(told, 5) == [Solution(one, 1.0), Solution(two, 1.0)]
    assert ranked(told, 1) == [Solution(one, 1.0)]
    assert ranked([], 1) == []
