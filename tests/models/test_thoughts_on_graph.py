"""Depth-first search: the paper's four strategies, what they follow and what they leave out."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.thoughts_on_graph import SearchConfig, search, tool_costs
from tests.models.typed_tools import names, typed

MANY = 100_000


def find(graph, args, target, strategy="exhaustive", scores=None, *, conflicts=(), **config):
    scores = np.full(len(graph.keys), 3.0) if scores is None else np.array(scores, dtype=float)
    return search(
        graph,
        [graph.of_type(name) for name in args],
        graph.of_type(target),
        scores,
        tool_costs(scores, SearchConfig()),
        SearchConfig(strategy, **{"keep": MANY, **config}),
        conflicts=conflicts,
    )


def plans(graph, found):
    return [names(graph, solution.tools) for solution in found.solutions]


PICTURES = (
    "caption: image -> text",
    "cut: image mask -> image",
    "draw: text -> image",
    "refine: mask -> mask",
    "segment: image -> mask",
)


def test_exhaustive_search_finds_every_way():
    graph = typed(*PICTURES)
    assert plans(graph, find(graph, ["image"], "mask", max_tools=3)) == [
        ["segment"],
        ["segment", "refine"],
        ["caption", "draw", "segment"],
    ]


def test_a_path_goes_on_beyond_what_is_wanted():
    graph = typed(*PICTURES)
    assert ["segment", "refine"] in plans(graph, find(graph, ["image"], "mask", max_tools=2))


def test_a_step_that_serves_nothing_makes_no_solution():
    graph = typed("a: x -> y", "aside: x -> w", "b: y -> z")
    assert plans(graph, find(graph, ["x"], "z")) == [["a", "b"]]


def test_greedy_follows_the_best_tool_alone():
    graph = typed("long: x -> w", "more: w -> y", "short: x -> y")
    assert plans(graph, find(graph, ["x"], "y", "greedy", [5, 2, 4])) == []
    assert plans(graph, find(graph, ["x"], "y", "greedy", [1, 2, 4])) == [["short"]]


def test_adaptive_follows_the_best_tool_where_none_is_good_enough():
    graph = typed("a: x -> y", "b: x -> y")
    assert plans(graph, find(graph, ["x"], "y", "adaptive", [1, 2])) == [["b"]]
    assert plans(graph, find(graph, ["x"], "y", "adaptive", [3, 4])) == [["b"], ["a"]]


def test_of_a_group_a_path_holds_one_tool():
    graph = typed("a: x -> y", "b: y -> z", "c: y -> z")
    assert plans(graph, find(graph, ["x"], "z", conflicts=[(0, 1)])) == [["a", "c"]]


@pytest.mark.parametrize("strategy", ["greedy", "beam", "adaptive", "exhaustive"])
def test_without_tools_or_a_way_nothing_is_found(strategy):
    for lines, args in [((), ["x"]), (("a: y -> z",), ["x"]), (("a: x y -> z",), ["x"])]:
        found = find(typed(*lines), args, "z", strategy)
        assert (found.solutions, found.visits) == ([], 0)


def test_a_limit_that_ends_a_search_is_told():
    graph = typed(*(f"t{i}: x -> y" for i in range(5)))
    cut = find(graph, ["x"], "y", max_tools=1, max_visits=3)
    assert (cut.visits, cut.is_cut, len(cut.solutions)) == (3, True, 3)
    whole = find(graph, ["x"], "y", max_tools=1, max_visits=5)
    assert (whole.visits, whole.is_cut) == (5, False)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"max_tools": 0}, "max_tools of at least 1, got 0"),
        ({"keep": 0}, "keep of at least 1"),
        ({"max_visits": 0}, "max_visits of at least 1"),
        ({"step_cost": -0.1}, "step_cost of at least 0, got -0.1"),
        ({"spare_cost": -1.0}, "spare_cost of at least 0"),
    ],
)
def test_a_limit_out_of_range_is_refused(wrong, told):
    with pytest.raises(ValueError, match=told):
        SearchConfig(**wrong)


def test_costs_fall_with_the_score_and_rise_with_failures():
    config = SearchConfig(step_cost=0.5)
    assert tool_costs(np.array([5.0, 3.0, 1.0, -9.0]), config).tolist() == [0.5, 1.0, 1.5, 1.5]
    failing = tool_costs(np.full(3, 5.0), config, np.array([0.0, 0.5, 1.0]))
    assert failing[0] == 0.5
    assert failing[1] == pytest.approx(0.5 + np.log(2))
    assert failing[1] < failing[2] < 10  # a tool that always failed is dear, not forbidden


@st.composite
def worlds(draw):
    kinds = st.sampled_from("wxyz")
    lines = [
        f"{letter}: {' '.join(draw(st.lists(kinds, max_size=2)))} -> {draw(kinds)}"
        for letter in "abcdef"[: draw(st.integers(1, 6))]
    ]
    scores = [draw(st.integers(4, 20)) / 4 for _ in lines]
    return lines, draw(st.lists(kinds, max_size=2)), draw(kinds), scores, draw(st.integers(1, 4))


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_strategies_nest(world):
    """What one finds, the wider one finds too; greedy never visits more than a plan may hold."""
    lines, args, target, scores, max_tools = world
    graph = typed(*lines)
    found = {
        strategy: find(
            graph, args, target, strategy, scores, max_tools=max_tools, max_visits=20_000
        )
        for strategy in ("greedy", "beam", "adaptive", "exhaustive")
    }
    assume(not found["exhaustive"].is_cut)
    steps = {name: {s.steps for s in one.solutions} for name, one in found.items()}
    assert steps["greedy"] <= steps["beam"] <= steps["exhaustive"]
    assert steps["greedy"] <= steps["adaptive"] <= steps["exhaustive"]
    visits = [found[name].visits for name in ("greedy", "beam", "exhaustive")]
    assert visits == sorted(visits)
    assert found["greedy"].visits <= max_tools
    for one in found.values():
        assert [s.cost for s in one.solutions] == sorted(s.cost for s in one.solutions)
        for solution in one.solutions:
            assert len(set(solution.tools)) == len(solution.tools) <= max_tools
            used = {i for step in solution.steps for i in step.sources if i is not None}
            assert used.issuperset(range(len(args)))
            assert all(-1 - place in used for place in range(len(solution.steps) - 1))
