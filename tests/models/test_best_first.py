"""Search in order of cost, held against every solution there is and against depth-first search."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.best_first import best_first
from models.search_graph import search_graph
from models.thoughts_on_graph import SearchConfig, search
from tests.models.typed_tools import (
    all_terms,
    frame,
    names,
    parts_of,
    price,
    subterms,
    term,
    tool,
    typed,
)

TYPES = "wxyz"
MANY = 100_000


def find(graph, args, target, prices=None, *, spare=(), conflicts=(), **config):
    """Best-first over types by name; every tool costs 1 where nothing else is said."""
    return best_first(
        graph,
        [graph.of_type(name) for name in (*args, *spare)],
        graph.of_type(target),
        np.ones(len(graph.keys)) if prices is None else np.array(prices, dtype=float),
        SearchConfig(**{"keep": MANY, **config}),
        num_args=len(args),
        conflicts=conflicts,
    )


def plans(graph, found):
    return [names(graph, solution.tools) for solution in found.solutions]


def test_the_cheapest_of_two_ways_comes_first():
    graph = typed("ocr: image -> text", "read: text -> speech", "talk: image -> speech")
    assert plans(graph, find(graph, ["image"], "speech")) == [["talk"], ["ocr", "read"]]
    dear = find(graph, ["image"], "speech", [1, 1, 3])
    assert plans(graph, dear) == [["ocr", "read"], ["talk"]]
    assert [s.cost for s in dear.solutions] == [2, 3]


def test_a_solution_says_what_fills_each_need():
    graph = typed("cut: image mask -> image", "segment: image -> mask")
    found = find(graph, ["image"], "image", keep=1)
    assert [tuple(step) for step in found.solutions[0].steps] == [(1, (0,)), (0, (0, -1))]


def test_every_argument_is_used():
    graph = typed("one: image -> image", "both: image image -> image", "draw: text -> image")
    assert plans(graph, find(graph, ["image", "image"], "image", keep=1)) == [["both"]]
    assert find(graph, ["image", "image", "audio"], "image").solutions == []


def test_what_need_not_be_used_is_used_where_it_is_cheaper_than_a_tool():
    graph = typed("cut: image mask -> image", "segment: image -> mask")
    ways = find(graph, ["image"], "image", spare=["mask"], max_tools=2)
    assert plans(graph, ways)[0] == ["cut"]
    assert ways.solutions[0].cost == pytest.approx(1.05)


def test_a_need_that_two_arguments_could_fill_takes_either():
    graph = typed("swap: image image -> image")
    found = find(graph, ["image", "image"], "image")
    assert {s.steps[0].sources for s in found.solutions} == {(0, 1), (1, 0)}


def test_a_tool_without_needs_begins_a_solution():
    graph = typed("now: -> time", "say: time -> text")
    assert plans(graph, find(graph, [], "text")) == [["now", "say"]]


@pytest.mark.parametrize(
    ("lines", "args", "target"),
    [
        ([], ["image"], "image"),
        (["talk: text -> speech"], ["image"], "speech"),
        (["talk: text -> speech"], ["text"], "video"),
        (["talk: text -> speech"], ["text"], "text"),
        (["fit: image mask -> image", "refine: mask -> mask"], ["image"], "image"),
    ],
    ids=["no tools", "a need open", "a type nobody knows", "a type nobody makes", "out of reach"],
)
def test_what_cannot_be_reached_is_found_out_without_a_visit(lines, args, target):
    graph = typed(*lines)
    found = find(graph, args, target)
    assert (found.solutions, found.visits, found.is_cut) == ([], 0, False)


def test_a_need_that_can_stay_open_is_filled_where_that_is_cheaper():
    graph = search_graph(
        frame(
            tool("login", [], ["session_key:string"]),
            tool("fetch", ["session_key:string"], ["page:page"]),
        )
    )
    assert plans(graph, find(graph, [], "page", [1, 1])) == [["login", "fetch"], ["fetch"]]
    assert plans(graph, find(graph, [], "page", [1, 3])) == [["fetch"], ["login", "fetch"]]


def test_of_a_group_a_solution_holds_one_tool():
    graph = typed("a: x -> y", "b: y -> z", "c: y -> z")
    assert plans(graph, find(graph, ["x"], "z", conflicts=[(0, 1)])) == [["a", "c"]]
    assert find(graph, ["x"], "z", conflicts=[(0, 1), (0, 2)]).solutions == []


SHARED = (
    "load: path -> image",
    "edges: image -> edge",
    "depth: image -> depths",
    "mix: edge depths -> y",
)


def test_a_tool_whose_output_serves_twice_is_done_once():
    graph = typed(*SHARED)
    (solution,) = find(graph, ["path"], "y", max_tools=4).solutions
    assert names(graph, solution.tools) == ["load", "edges", "depth", "mix"] or names(
        graph, solution.tools
    ) == ["load", "depth", "edges", "mix"]
    assert solution.cost == 4


def test_a_shared_tool_may_be_of_a_group():
    graph = typed(*SHARED, "scan: path -> image")
    group = [graph.index["t/load"], graph.index["t/scan"]]
    found = find(graph, ["path"], "y", conflicts=[group], max_tools=4)
    assert [set(tools) & {"load", "scan"} for tools in plans(graph, found)] == [{"load"}, {"scan"}]


def test_a_tool_that_runs_twice_counts_twice():
    graph = typed("big: image -> large", "mix: large large -> y")
    found = find(graph, ["image", "image"], "y", max_tools=3)
    assert plans(graph, found) == [["big", "big", "mix"]] * 2
    assert find(graph, ["image", "image"], "y", max_tools=2).solutions == []


def test_more_arguments_than_the_bound_follows_are_still_all_used():
    kinds = [f"k{i}" for i in range(10)]
    graph = typed(f"most: {' '.join(kinds[:9])} -> y", f"all: {' '.join(kinds)} -> y")
    assert plans(graph, find(graph, kinds, "y")) == [["all"]]


def test_the_last_tool_pays_what_it_costs_to_end_there():
    graph = typed("a: x -> y", "b: x -> y")
    found = best_first(
        graph, [graph.of_type("x")], graph.of_type("y"), np.ones(2), SearchConfig(),
        end_costs=np.array([2.0, 0.5]),
    )  # fmt: skip
    assert [(names(graph, s.tools), s.cost) for s in found.solutions] == [(["b"], 1.5), (["a"], 3)]


def test_a_tool_outside_those_allowed_is_never_used():
    graph = typed("a: x -> y", "b: x -> y")
    found = best_first(
        graph, [graph.of_type("x")], graph.of_type("y"), np.ones(2), SearchConfig(),
        allowed=np.array([False, True]),
    )  # fmt: skip
    assert plans(graph, found) == [["b"]]


def test_a_limit_that_ends_a_search_is_told():
    graph = typed(*(f"t{i}: x -> y" for i in range(5)))
    cut = find(graph, ["x"], "y", max_visits=2)
    assert (cut.visits, cut.is_cut, len(cut.solutions)) == (2, True, 2)
    whole = find(graph, ["x"], "y", max_visits=5)
    assert (whole.visits, whole.is_cut, len(whole.solutions)) == (5, False, 5)
    enough = find(graph, ["x"], "y", max_visits=2, keep=2)
    assert (enough.is_cut, len(enough.solutions)) == (False, 2)


@st.composite
def worlds(draw):
    """A small graph over four types, what is at hand, and what is wanted."""
    kinds = st.sampled_from(TYPES)
    lines = []
    for letter in "abcde"[: draw(st.integers(1, 5))]:
        takes = " ".join(draw(st.lists(kinds, max_size=2)))
        gives = " ".join(draw(st.lists(kinds, min_size=1, max_size=2, unique=True)))
        lines.append(f"{letter}: {takes} -> {gives}")
    size = len(lines)
    quarters = st.integers(1, 8).map(lambda n: n / 4)
    at_hand = draw(st.lists(kinds, max_size=3))
    split = draw(st.integers(0, len(at_hand)))
    groups = []
    if size > 2 and draw(st.booleans()):
        groups = [draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))]
    return {
        "lines": lines,
        "args": at_hand[:split],
        "spare": at_hand[split:],
        "target": draw(kinds),
        "prices": draw(st.lists(quarters, min_size=size, max_size=size)),
        "max_tools": draw(st.integers(1, 4)),
        "groups": groups,
    }


def solve(world, graph, **config):
    return find(
        graph,
        world["args"],
        world["target"],
        world["prices"],
        spare=world["spare"],
        conflicts=world["groups"],
        **{"max_tools": world["max_tools"], "max_visits": 20_000, **config},
    )


def oracle(world, graph):
    resources = [graph.of_type(name) for name in (*world["args"], *world["spare"])]
    return set(
        all_terms(
            graph,
            resources,
            graph.of_type(world["target"]),
            world["max_tools"],
            len(world["args"]),
            world["groups"],
        )
    )


@settings(max_examples=35, deadline=None)
@given(worlds())
def test_it_finds_every_solution_there_is_and_no_other(world):
    graph = typed(*world["lines"])
    found = solve(world, graph)
    assume(not found.is_cut)
    assert {term(graph, s.steps) for s in found.solutions} == oracle(world, graph)
    assert len({term(graph, s.steps) for s in found.solutions}) == len(found.solutions)
    for solution in found.solutions:
        steps = subterms(term(graph, solution.steps))
        paid = price(graph, world["prices"], steps, len(world["args"]), 0.05)
        assert solution.cost == pytest.approx(paid)
    if found.solutions:
        assert found.visits >= max(len(set(s.tools)) for s in found.solutions)


@settings(max_examples=35, deadline=None)
@given(worlds(), st.integers(1, 4))
def test_solutions_come_in_the_order_of_what_they_cost_as_trees(world, keep):
    """The bound never overestimates: else a dearer tree would come before a cheaper one.

    A tool whose output serves twice is paid twice here, so a solution that shares may come later
    than its own cost says.
    """
    graph = typed(*world["lines"])
    found = solve(world, graph, keep=keep)
    assume(not found.is_cut)

    def as_tree(whole):
        return price(graph, world["prices"], parts_of(whole), len(world["args"]), 0.05)

    trees = sorted(map(as_tree, oracle(world, graph)))[:keep]
    assert sorted(as_tree(term(graph, s.steps)) for s in found.solutions) == pytest.approx(trees)


@settings(max_examples=35, deadline=None)
@given(worlds())
def test_it_is_never_dearer_than_exhaustive_search_and_finds_whenever_that_does(world):
    graph = typed(*world["lines"])
    resources = [graph.of_type(name) for name in (*world["args"], *world["spare"])]
    config = SearchConfig("exhaustive", max_tools=world["max_tools"], keep=MANY, max_visits=20_000)
    deep = search(
        graph, resources, graph.of_type(world["target"]), np.ones(len(graph.keys)),
        np.array(world["prices"]), config,
        num_args=len(world["args"]), conflicts=world["groups"],
    )  # fmt: skip
    every, first = solve(world, graph), solve(world, graph, keep=1)
    assume(not (deep.is_cut or every.is_cut or first.is_cut))
    assert {term(graph, s.steps) for s in deep.solutions} <= {
        term(graph, s.steps) for s in every.solutions
    }
    if deep.solutions:
        cheapest = deep.solutions[0]
        assert every.solutions[0].cost <= cheapest.cost + 1e-9
        whole = term(graph, cheapest.steps)
        if len(parts_of(whole)) == len(subterms(whole)):  # nothing serves twice: it is a tree
            assert first.solutions[0].cost <= cheapest.cost + 1e-9


@settings(max_examples=20, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_tools_changes_nothing(world, random):
    """Tools under other names, so in another order, and told in another order."""
    graph = typed(*world["lines"])
    renamed = list("vutsr"[: len(world["lines"])])
    random.shuffle(renamed)
    lines = [new + line[1:] for new, line in zip(renamed, world["lines"], strict=True)]
    other = typed(*random.sample(lines, len(lines)))
    at = [other.index[f"t/{new}"] for new in renamed]
    prices = [0.0] * len(at)
    for old, new in enumerate(at):
        prices[new] = world["prices"][old]
    moved = {
        **world,
        "prices": prices,
        "groups": [[at[tool] for tool in group] for group in world["groups"]],
    }
    before, after = solve(world, graph), solve(moved, other)
    assume(not (before.is_cut or after.is_cut))
    back = dict(zip((f"t/{new}" for new in renamed), graph.keys, strict=True))

    def told(whole):
        return back[whole[0]], tuple(told(p) if isinstance(p, tuple) else p for p in whole[1])

    assert {term(graph, s.steps): s.cost for s in before.solutions} == pytest.approx(
        {told(term(other, s.steps)): s.cost for s in after.solutions}
    )
    assert solve(world, graph) == before
