from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.baselines import NearestPlanner, PopularityPlanner, RetrievalPlanner, best_first
from models.errors import GraphMismatch, NotEnoughData
from models.links import plan_links
from models.types import Example, ToolGraph, empty_edges

LETTERS = "abcdefgh"


def embed(texts):
    """A text is the direction of its letters, so similarities can be worked out by eye."""
    counts = torch.tensor([[float(text.count(letter)) for letter in LETTERS] for text in texts])
    return torch.nn.functional.normalize(counts, dim=1)


def graph_of(names="abcd"):
    """One tool a letter, and its text is that letter."""
    return ToolGraph("v1", tuple(f"s/{name}" for name in names), tuple(names), *empty_edges())


def example(request, tools, links=None, id="1"):
    keys = tuple(f"s/{tool}" for tool in tools)
    return Example(id, request, keys, tuple(links or ()), has_links=links is not None)


def tools_of(plans):
    return ["".join(key.removeprefix("s/") for key in plan.tools) for plan in plans]


def ask(planner, request, top=1):
    (plans,) = planner.plan([request], top)
    return plans


TRAINING = [
    example("aab", "ab"),
    example("bbc", "bc"),
    example("ccc", "bc"),
    example("dda", "dab", links=[(0, 2)]),
]
ALL = [RetrievalPlanner, NearestPlanner, PopularityPlanner]


# Retrieval.


def test_retrieval_ranks_tools_by_similarity_and_takes_the_usual_length():
    assert tools_of(ask(RetrievalPlanner(graph_of(), TRAINING, embed), "cca")) == ["ca"]


def test_retrieval_swaps_the_last_tool_for_further_plans():
    planner = RetrievalPlanner(graph_of(), TRAINING, embed)
    plans = ask(planner, "dddccb", top=5)
    assert tools_of(plans) == ["dc", "db", "da"]
    scores = [plan.score for plan in plans]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx((3 + 2) / 14**0.5 / 2)


def test_retrieval_prefers_the_shorter_of_two_usual_lengths_and_the_first_key_of_equal_tools():
    training = [example("a", "abc"), example("a", "ab")]
    assert tools_of(ask(RetrievalPlanner(graph_of(), training, embed), "h")) == ["ab"]


def test_retrieval_offers_all_tools_when_there_are_fewer_than_usual():
    planner = RetrievalPlanner(graph_of("c"), [example("a", "abc")], embed)
    assert tools_of(ask(planner, "a", top=3)) == ["c"]


# Nearest.


def test_nearest_repeats_the_plan_of_the_most_similar_request():
    planner = NearestPlanner(graph_of(), TRAINING, embed)
    (plan,) = ask(planner, "bbc")
    assert plan.tools == ("s/b", "s/c")
    assert plan.score == pytest.approx(1)
    assert plan.planner == "nearest"


def test_nearest_gives_each_plan_once_ranked_by_its_nearest_request():
    plans = ask(NearestPlanner(graph_of(), TRAINING, embed), "ccb", top=9)
    assert tools_of(plans) == ["bc", "ab", "dab"]


def test_nearest_keeps_stated_links_and_derives_the_others():
    planner = NearestPlanner(graph_of(), TRAINING, embed)
    assert ask(planner, "dda")[0].links == ((0, 2),)
    assert ask(planner, "aab")[0].links == plan_links(("s/a", "s/b"), graph_of(), frozenset())


def test_nearest_keeps_the_statement_that_there_is_no_link():
    planner = NearestPlanner(graph_of(), [example("a", "ab", links=[])], embed)
    assert ask(planner, "a")[0].links == ()


def test_nearest_falls_to_the_next_plan_when_a_tool_is_gone():
    planner = NearestPlanner(graph_of("bcd"), TRAINING, embed)
    assert tools_of(ask(planner, "aab", top=9)) == ["bc"]


def test_nearest_ranks_equal_requests_by_their_plan_whatever_the_order_of_training():
    training = [example("a", "cb"), example("a", "ba"), example("a", "ab")]
    for rows in (training, training[::-1]):
        assert tools_of(ask(NearestPlanner(graph_of(), rows, embed), "a", top=2)) == ["ab", "ba"]


# Popularity.


def test_popularity_ranks_plans_by_frequency_then_sequence():
    plans = ask(PopularityPlanner(graph_of(), TRAINING), "anything", top=9)
    assert tools_of(plans) == ["bc", "ab", "dab"]
    assert [plan.score for plan in plans] == [0.5, 0.25, 0.25]


def test_popularity_takes_the_most_frequent_links_of_equal_tools():
    training = [example("a", "ab", []), example("b", "ab", [(0, 1)]), example("c", "ab", [(0, 1)])]
    (plan,) = ask(PopularityPlanner(graph_of(), training), "a")
    assert plan.links == ((0, 1),)
    assert plan.score == 1


def test_popularity_skips_plans_whose_tools_are_gone():
    assert tools_of(ask(PopularityPlanner(graph_of("ab"), TRAINING), "a", top=9)) == ["ab"]


# All three.


@pytest.mark.parametrize("kind", ALL)
def test_only_allowed_tools_are_offered(kind):
    allowed = {"s/b", "s/c", "s/not-in-the-graph"}
    planner = kind(graph_of(), TRAINING, embed, allowed=allowed)
    assert tools_of(ask(planner, "aab")) == ["bc"]


@pytest.mark.parametrize("kind", ALL)
def test_nothing_legal_gives_no_plan(kind):
    planner = kind(graph_of(), TRAINING, embed, allowed=[])
    assert planner.plan(["a", "b"], 3) == [[], []]


@pytest.mark.parametrize("kind", ALL)
def test_no_request_gives_no_answer_and_top_0_no_plan(kind):
    planner = kind(graph_of(), TRAINING, embed)
    assert planner.plan([]) == []
    assert planner.plan(["a"], top=0) == [[]]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("training", [[], [example("a", "")]])
def test_a_planner_needs_a_training_plan(kind, training):
    with pytest.raises(NotEnoughData, match=f"got none among {len(training)}; ingest"):
        kind(graph_of(), training, embed)


@pytest.mark.parametrize("kind", [RetrievalPlanner, NearestPlanner])
def test_an_encoder_that_loses_texts_is_refused(kind):
    with pytest.raises(GraphMismatch, match=r"shape \[\d, channels\] .* got \[1, 8\]"):
        kind(graph_of(), TRAINING, lambda texts: embed(texts)[:1])


@pytest.mark.parametrize("kind", ALL)
def test_batches_answer_as_single_requests_do(kind, monkeypatch):
    monkeypatch.setattr("models.baselines._REQUESTS_AT_ONCE", 2)
    planner = kind(graph_of(), TRAINING, embed)
    requests = ["abc", "ddb", "a", "cb", "dca"]
    together, alone = planner.plan(requests, 3), [ask(planner, r, 3) for r in requests]
    assert [tools_of(plans) for plans in together] == [tools_of(plans) for plans in alone]


@given(
    st.lists(st.tuples(st.text("abcd", max_size=4), st.text("abcd", min_size=1, max_size=3)),
             min_size=1, max_size=8),
    st.text("abcd", min_size=1, max_size=5),
    st.sets(st.sampled_from("abcd")),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_plans_are_distinct_ranked_and_legal(rows, request, names):
    graph = graph_of(sorted(names))
    training = [example(text, tools) for text, tools in rows]
    for kind in ALL:
        plans = ask(kind(graph, training, embed), request, top=4)
        assert len({plan.tools for plan in plans}) == len(plans) <= 4
        assert all(graph.index.keys() >= set(plan.tools) for plan in plans)
        scores = [plan.score for plan in plans]
        assert all(a >= b - 1e-6 for a, b in pairwise(scores))
        assert {plan.planner for plan in plans} <= {kind.name}


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4),
    st.integers(1, 7),
)
@settings(max_examples=60, deadline=None)
def test_best_first_equals_sorting_everything(rows, top):
    slow = [sorted(range(5), key=lambda i: (-row[i], i))[:top] for row in rows]
    assert best_first(np.array(rows, dtype=np.float32), top) == slow
