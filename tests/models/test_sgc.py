from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import GraphMismatch, NotEnoughData
from models.metrics import score_plans
from models.sgc import MIXTURES, SgcPlanner, neighbour_mean
from models.types import Example, Planner, ToolGraph, empty_edges
from tests.models.test_baselines import LETTERS, ask, embed, example, tools_of


def graph_of(names="abcd", edges=("ab", "bc", "ac", "cd")):
    """One tool a letter whose text is that letter, and the edges between those that are there."""
    pairs = [[names.index(s), names.index(t)] for s, t in edges if s in names and t in names]
    keys = tuple(f"s/{name}" for name in names)
    if not pairs:
        return ToolGraph("v1", keys, tuple(names), *empty_edges())
    return ToolGraph("v1", keys, tuple(names), torch.tensor(pairs).T, torch.ones(len(pairs), 2))


def steps(*clauses):
    """Clauses long enough to stand alone."""
    return "; ".join(clause * 8 for clause in clauses)


TRAINING = [example(steps("a", "b"), "ab"), example(steps("b", "c"), "bc")]


def planner_of(graph, training=TRAINING, **options):
    return SgcPlanner(graph, training, embed, **options)


def test_each_clause_picks_its_tool_along_the_edges():
    assert isinstance(planner_of(graph_of()), Planner)
    (plan,) = ask(planner_of(graph_of()), steps("a", "c", "d"))
    assert plan.tools == ("s/a", "s/c", "s/d")
    assert plan.links == ((0, 1), (1, 2))
    assert plan.planner == "sgc"
    assert plan.score == pytest.approx(1)


def test_a_step_without_an_edge_to_its_tool_takes_the_nearest_that_has_one():
    assert tools_of(ask(planner_of(graph_of()), steps("a", "ddb"))) == ["ab"]


def test_steps_after_a_tool_without_successor_are_left_out():
    assert tools_of(ask(planner_of(graph_of()), steps("d", "a", "b"))) == ["d"]


def test_further_plans_swap_the_last_tool_best_first():
    plans = ask(planner_of(graph_of()), steps("a", "cccb"), top=5)
    assert tools_of(plans) == ["ac", "ab"]
    assert plans[0].score > plans[1].score
    assert tools_of(ask(planner_of(graph_of()), "bbbbbbbba", top=3)) == ["b", "a", "c"]


def test_equal_tools_are_ranked_by_key():
    assert tools_of(ask(planner_of(graph_of()), "hhhhhhhh", top=2)) == ["a", "b"]


def test_the_neighbour_mean_is_the_formula_of_the_paper():
    graph = graph_of(edges=("ab", "ac", "bc", "cb"))
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    dense = torch.zeros(4, 4)
    dense[graph.edge_index[0], graph.edge_index[1]] = 1
    scale = dense.sum(1).pow(-0.5)
    scale[3] = 0
    expected = scale.diag() @ dense @ scale.diag() @ x
    assert torch.allclose(neighbour_mean(graph, x), expected, atol=1e-6)


def test_the_mixture_with_the_best_training_plans_is_chosen():
    # "b" says nothing of the tool "a", but "a" leads to "b": only smoothing makes it the first.
    graph = graph_of("abc", edges=("ab", "bc", "cb"))
    smooth = [example(steps("abbb", "b"), "ab", id=str(i)) for i in range(3)]
    smoothed, plain = planner_of(graph, smooth), planner_of(graph, [example("bbbbbbbb", "b")])
    assert plain.mixture == 1
    assert smoothed.mixture < 1

    def node_f1(mixture):
        candidate = planner_of(graph, smooth)
        candidate._tool_x = mixture * embed(graph.texts) + (1 - mixture) * neighbour_mean(
            graph, embed(graph.texts)
        )
        plans = [ask(candidate, row.request)[0] for row in smooth]
        return score_plans(smooth, plans).means["n_f1"]

    best = max(MIXTURES, key=node_f1)
    assert smoothed.mixture == best
    assert node_f1(best) > node_f1(1.0)


def test_few_training_requests_are_encoded_and_their_order_never_matters(monkeypatch):
    monkeypatch.setattr("models.sgc._MOST_ROWS", 3)
    asked = []

    def counting(texts):
        asked.extend(texts)
        return embed(texts)

    rows = [example(steps(letter), letter, id=letter) for letter in "abcdabcd"]
    planner = SgcPlanner(graph_of(), rows, counting)
    assert len(asked) == 4 + 3
    assert SgcPlanner(graph_of(), rows[::-1], embed).mixture == planner.mixture


def test_only_allowed_tools_are_offered():
    planner = planner_of(graph_of(), allowed={"s/a", "s/b", "s/gone"})
    assert tools_of(ask(planner, steps("a", "c"), top=9)) == ["ab"]
    assert planner_of(graph_of(), allowed=[]).plan(["a", "b"], 3) == [[], []]


def test_no_request_gives_no_answer_and_top_0_no_plan():
    assert planner_of(graph_of()).plan([]) == []
    assert planner_of(graph_of()).plan(["a"], top=0) == [[]]


def test_a_training_plan_and_a_whole_encoder_are_needed():
    with pytest.raises(NotEnoughData, match="got none among 1; ingest"):
        planner_of(graph_of(), [Example("1", "a", ())])
    with pytest.raises(GraphMismatch, match="expected vectors of shape"):
        SgcPlanner(graph_of(), TRAINING, lambda texts: embed(texts)[:1])


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=6),
    st.lists(st.text(LETTERS, min_size=1, max_size=3), min_size=1, max_size=3),
    st.sets(st.sampled_from("abcd")),
)
@settings(max_examples=60, deadline=None)
def test_plans_are_distinct_ranked_legal_and_follow_edges(edges, words, names):
    edges = {s + t for s, t in edges if s != t}
    graph = graph_of("".join(sorted(names)), edges)
    planner = planner_of(graph)
    plans = ask(planner, steps(*words), top=4)
    assert bool(plans) == bool(names)
    assert len({plan.tools for plan in plans}) == len(plans) <= 4
    assert {a + b for tools in tools_of(plans) for a, b in pairwise(tools)} <= edges
    assert {letter for tools in tools_of(plans) for letter in tools} <= names
    assert all(a.score >= b.score - 1e-6 for a, b in pairwise(plans))
    assert plans[:1] == ask(planner, steps(*words))
