import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from models.errors import GraphMismatch
from models.links import LinkScorer, plan_links
from models.types import Example, ToolGraph, empty_edges

GRAPH = ToolGraph(
    "v1",
    ("chain/a", "chain/b", "flow/a", "flow/b", "flow/c"),
    ("",) * 5,
    torch.tensor([[2, 3, 0, 3], [4, 4, 1, 2]]),
    torch.tensor([[0.0, 2.0], [1.0, 1.0], [7.0, 7.0], [5.0, 0.0]]),
)
FLOWS = frozenset({"flow"})


def links(*names, flows=FLOWS):
    return plan_links([f"flow/{n}" if "/" not in n else n for n in names], GRAPH, flows)


def test_a_dataflow_tool_depends_on_every_earlier_step_that_feeds_it():
    assert links("a", "b", "a", "c") == ((0, 3), (1, 3), (2, 3))


def test_adjacent_evidence_alone_is_no_dataflow():
    assert links("b", "a") == ()


def test_what_comes_later_feeds_nothing():
    assert links("c", "a", "b") == ()


def test_other_namespaces_are_chains():
    assert links("chain/b", "chain/a", "chain/a") == ((0, 1), (1, 2))
    assert links("a", "c", flows=()) == ((0, 1),)


def test_the_target_decides_in_mixed_plans():
    assert links("a", "chain/a", "c") == ((0, 1), (0, 2))


@pytest.mark.parametrize("names", [(), ("a",)])
def test_short_plans_have_no_links(names):
    assert links(*names) == ()


def test_a_graph_without_edges_gives_no_dataflow():
    graph = ToolGraph("v1", ("flow/a", "flow/b"), ("", ""), *empty_edges())
    assert plan_links(["flow/a", "flow/b"], graph, FLOWS) == ()


def test_a_tool_outside_the_graph_is_refused():
    with pytest.raises(GraphMismatch, match="flow/x"):
        links("a", "x")


# --- learnt links ---------------------------------------------------------------------------------


TOOLS = ("go/ask", "go/buy", "go/find", "go/log", "go/pay", "row/a", "row/b")
LEARNING = ToolGraph("v2", TOOLS, ("",) * len(TOOLS), *empty_edges())
UNIT = torch.eye(len(TOOLS))


def example(plan, links, group="", has_links=True):
    tools = tuple(f"go/{name}" for name in plan.split())
    name = f"{plan} {group}"
    return Example(name, name, tools, tuple(links), has_links, group=group or plan)


# What was found is bought and paid for; asking and logging serve nobody, wherever they stand.
PAST = [
    example("find buy", [(0, 1)]),
    example("find log buy", [(0, 2)]),
    example("ask find buy", [(1, 2)]),
    example("find buy log", [(0, 1)]),
    example("find buy pay", [(0, 1), (1, 2)]),
    example("find log buy pay", [(0, 2), (2, 3)]),
    example("find ask buy log", [(0, 2)]),
    example("find buy ask pay", [(0, 1), (1, 3)]),
    example("log ask", []),
    example("ask log find", []),
    example("buy log pay", [(0, 2)]),
    example("ask buy pay", [(1, 2)]),
]


@pytest.fixture(scope="module")
def scorer():
    return LinkScorer.fit(LEARNING, PAST, UNIT)


def learnt(scorer, plan):
    return scorer.links([name if "/" in name else f"go/{name}" for name in plan.split()])


def test_links_follow_what_was_linked_in_plans_never_seen(scorer):
    assert learnt(scorer, "log find ask log buy pay") == ((1, 4), (4, 5))
    assert learnt(scorer, "ask find log") == ()


def test_a_namespace_without_gold_links_is_a_chain(scorer):
    assert learnt(scorer, "row/b row/a row/a") == ((0, 1), (1, 2))
    unlinked = [replace(row, has_links=False) for row in PAST]
    assert learnt(LinkScorer.fit(LEARNING, unlinked, UNIT), "find log buy") == ((0, 1), (1, 2))


def test_the_namespace_of_the_target_decides(scorer):
    assert learnt(scorer, "find log buy row/a log") == ((0, 2), (2, 3))


@pytest.mark.parametrize("plan", ["", "find"])
def test_short_plans_have_no_learnt_links(scorer, plan):
    assert learnt(scorer, plan) == ()


@settings(max_examples=30)
@given(st.lists(st.sampled_from(TOOLS), max_size=9))
def test_learnt_links_go_forward_sorted_by_target(scorer, tools):
    found = scorer.links(tools)
    assert list(found) == sorted(set(found), key=lambda link: (link[1], link[0]))
    assert all(0 <= source < target < len(tools) for source, target in found)
    probability = scorer.probabilities(tools)
    assert probability.shape == (len(tools), len(tools))
    assert torch.equal(probability, probability.triu(1))
    assert ((probability >= 0) & (probability <= 1)).all()


def test_links_are_those_of_the_highest_expected_f1(scorer):
    tools = [f"go/{name}" for name in ("find", "log", "buy", "pay")]
    probability = scorer.probabilities(tools)
    pairs = [(i, j) for i in range(4) for j in range(i + 1, 4)]

    def expected(chosen):
        if not chosen:
            return math.prod(1 - float(probability[pair]) for pair in pairs)
        found = sum(float(probability[pair]) for pair in chosen)
        return 2 * found / (len(chosen) + float(probability.sum()))

    subsets = [[p for k, p in enumerate(pairs) if bits >> k & 1] for bits in range(64)]
    assert set(scorer.links(tools)) == set(max(subsets, key=expected))


def test_a_row_is_judged_without_its_own_group():
    # Each tool pair is linked in one group only: nothing that was learnt may rest on it.
    rows = [
        replace(row, id=f"{row.id}{copy}", group=f"{group}")
        for group, row in enumerate(
            [example("find buy log", [(0, 1)]), example("ask pay buy", [(1, 2)])]
        )
        for copy in range(20)
    ]
    scorer = LinkScorer.fit(LEARNING, rows, UNIT)
    once = LinkScorer.fit(LEARNING, rows[::20], UNIT)
    for row in rows[::20]:
        assert torch.allclose(scorer.probabilities(row.tools), once.probabilities(row.tools))


def test_rows_of_one_group_count_once(scorer):
    many = [replace(row, id=f"{row.id} {copy}") for row in PAST for copy in range(3)]
    again = LinkScorer.fit(LEARNING, many, UNIT)
    tools = ["go/find", "go/log", "go/buy", "go/pay"]
    assert torch.allclose(again.probabilities(tools), scorer.probabilities(tools))


def test_the_order_of_the_examples_does_not_matter(scorer):
    again = LinkScorer.fit(LEARNING, PAST[::-1], UNIT)
    for name, part in scorer.state().items():
        assert torch.equal(part, again.state()[name]), name


def test_a_stored_scorer_is_the_same(scorer, tmp_path):
    save_file(scorer.state(), tmp_path / "links.safetensors")
    loaded = LinkScorer.from_state(load_file(tmp_path / "links.safetensors"), LEARNING, UNIT)
    tools = ["go/find", "row/a", "go/log", "go/buy", "go/pay"]
    assert torch.equal(loaded.probabilities(tools), scorer.probabilities(tools))


def test_a_scorer_without_knowledge_can_be_stored():
    state = LinkScorer.fit(LEARNING, [], UNIT).state()
    assert learnt(LinkScorer.from_state(state, LEARNING, UNIT), "find buy") == ((0, 1),)


@pytest.mark.parametrize(
    ("name", "part", "message"),
    [
        ("weights", None, "'weights', got nothing"),
        ("pairs", torch.zeros(3, 3, dtype=torch.int64), r"\[\*, 2\] under 'pairs', got \[3, 3\]"),
        ("pairs", torch.tensor([[0, 7]]), "from 0 to 6, got 0 to 7"),
        ("models", torch.tensor([1] * 7), "from -1 to 0, got 1 to 1"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(scorer, name, part, message):
    state = {**scorer.state(), name: part}
    if part is None:
        del state[name]
    with pytest.raises(GraphMismatch, match=message):
        LinkScorer.from_state(state, LEARNING, UNIT)


def test_a_new_tool_is_linked_by_text_and_namespace(scorer):
    keys = ("go/acquire", *TOOLS[:3], *TOOLS[4:])
    graph = ToolGraph("v3", keys, ("",) * len(keys), *empty_edges())
    x = torch.stack([UNIT[1], *UNIT[:3], *UNIT[4:]])
    moved = scorer.on(graph, x)
    known = ["go/find", "go/ask", "go/buy", "go/pay"]
    assert torch.equal(moved.probabilities(known), scorer.probabilities(known))
    new = moved.probabilities(["go/ask", "go/find", "go/acquire"])
    assert new[1, 2] > 0
    assert not torch.equal(new, torch.eye(3, dtype=torch.float64).roll(1, 1).triu(1))
    with pytest.raises(GraphMismatch, match="go/log"):
        moved.links(["go/log"])


def test_vectors_of_another_graph_are_refused():
    with pytest.raises(GraphMismatch, match="7 tools, got 6"):
        LinkScorer.fit(LEARNING, PAST, UNIT[:6])
