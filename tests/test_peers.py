"""The re-implemented peers of the accuracy benchmark do what their publications say."""

from itertools import combinations, pairwise
from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from models.sgc import SgcPlanner
from models.types import Planner, ToolGraph
from tests.benchmarks.peers import (
    DenseRetriever,
    PlannedTools,
    node_recall,
    peer_planners,
    peer_retrievers,
)
from tests.benchmarks.peers import graph_tool_call as product
from tests.benchmarks.peers.dependency_walk import BM25, BM25Walk, words
from tests.benchmarks.peers.sage import align, train_sage
from tests.models.test_baselines import ask, embed, example, tools_of
from tests.models.test_sgc import TRAINING, graph_of, steps

TEXTS = ("open the door", "close the door, the big door", "paint a wall", "")


def test_words_are_taken_apart():
    assert words("get_userName, v2") == ["get", "user", "name", "v2"]


def test_bm25_is_its_formula():
    documents = [words(text) for text in TEXTS]
    mean = sum(map(len, documents)) / len(documents)
    expected = [
        sum(
            log(1 + (4 - found + 0.5) / (found + 0.5))
            * document.count(word)
            / (document.count(word) + 1.5 * (0.25 + 0.75 * len(document) / mean))
            for word in words("The door, the wall")
            for found in [sum(word in other for other in documents)]
        )
        for document in documents
    ]
    assert BM25(TEXTS).scores("The door, the wall") == pytest.approx(expected, rel=1e-5)
    assert BM25(TEXTS).scores("nothing known").tolist() == [0, 0, 0, 0]


DECLARED = [("s/c", "s/d"), ("s/a", "s/c"), ("s/b", "s/c"), ("s/b", "s/a"), ("s/gone", "s/a")]


def walk(declared=DECLARED):
    texts = ("alpha", "beta", "gamma", "delta")
    return BM25Walk(ToolGraph("v1", graph_of().keys, texts, *graph_tensors()), declared)


def graph_tensors():
    graph = graph_of()
    return graph.edge_index, graph.edge_counts


def test_a_found_tool_brings_what_it_needs_behind_it():
    assert walk().retrieve(["gamma"], 4) == [["s/c", "s/a", "s/b", "s/d"]]
    assert walk().retrieve(["delta"], 3) == [["s/d", "s/c", "s/a"]]
    assert walk().retrieve(["delta", "beta"], 2) == [["s/d", "s/c"], ["s/b", "s/a"]]
    assert walk([]).retrieve(["gamma"], 2) == [["s/c", "s/a"]]
    assert walk().retrieve(["gamma"], 0) == [[]]


def test_a_plan_puts_prerequisites_first_and_links_them():
    (plan,) = ask(walk(), "delta")
    assert tools_of([plan]) == ["bacd"]
    assert plan.links == ((0, 1), (0, 2), (1, 2), (2, 3))
    assert plan.planner == "bm25-walk"
    assert [plan.score > 0 for plan in ask(walk(), "delta", top=9)] == [True, False, False, False]


def test_a_cycle_is_walked_once_and_gives_one_plan():
    planner = walk([("s/a", "s/b"), ("s/b", "s/a")])
    assert tools_of(ask(planner, "beta", top=9)) == ["ab", "c", "d"]
    assert ask(planner, "beta")[0].links == ((0, 1),)


@given(
    arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(0, 3)),
           elements=st.sampled_from([-0.5, 0.25, 0.5, 1.0]))
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_the_alignment_is_the_best_there_is(similarity):
    rows, columns = similarity.shape
    best = max(
        sum(similarity[i, j] for i, j in zip(rs, cs, strict=True))
        for size in range(min(rows, columns) + 1)
        for rs in combinations(range(rows), size)
        for cs in combinations(range(columns), size)
    )
    found = align(similarity)
    assert sum(similarity[i, j] for i, j in found) == best
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))


def sage_margin(epochs, validation=""):
    """By how much step "h" prefers tool "c", trained for that; validation rows want another."""
    step_x = embed(["h"] * 16)
    graph = graph_of()
    wanted = torch.tensor([graph.index[f"s/{letter}"] for letter in validation], dtype=torch.int64)
    held_out = (step_x[: len(wanted)], wanted)
    pairs = (step_x, torch.full((16,), graph.index["s/c"]))
    tool_x = train_sage(graph, embed(graph.texts), pairs, held_out, epochs, seed=0)
    scores = tool_x @ step_x[0]
    return float(scores[2] - scores[[0, 1, 3]].mean())


def test_sage_learns_which_tool_a_step_means():
    assert sage_margin(1) < sage_margin(5) < sage_margin(20)
    assert sage_margin(5) == sage_margin(5)


def test_sage_keeps_the_epoch_that_is_best_on_validation_rows():
    assert sage_margin(8, "a" * 16) == sage_margin(1, "a" * 16) < sage_margin(8, "c" * 16)


def test_all_peers_are_planners_with_their_names():
    graph = graph_of()
    planners = peer_planners(graph, TRAINING, embed, frozenset())
    assert list(planners) == ["sgc", "sage"]
    planners |= peer_planners(graph, TRAINING, embed, frozenset(), DECLARED)
    assert list(planners) == ["sgc", "sage", "bm25-walk"]
    for name, planner in planners.items():
        assert isinstance(planner, Planner)
        (plan,) = ask(planner, steps("a", "b"))
        assert plan.planner == name == planner.name


def test_recall_counts_distinct_tools_among_the_first_k():
    graph = graph_of()
    rows = [example("aab", "aba"), example("ccd", "ad")]
    (row,) = node_recall({"dense": DenseRetriever(graph, embed)}, rows, ks=(1, 2))
    assert row.pop("ms") > 0
    assert row == {
        "name": "dense", "n": 2, "recall@1": 0.25, "all@1": 0.0, "recall@2": 0.75, "all@2": 0.5,
    }  # fmt: skip


def test_a_planner_retrieves_the_tools_of_its_plans():
    planner = SgcPlanner(graph_of(), TRAINING, embed)
    assert PlannedTools(planner).retrieve([steps("a", "c")], 3) == [["s/a", "s/c", "s/b"]]


CATALOGUE = [
    {"name": "a", "description": "open a door"},
    {"name": "b", "description": "paint a wall",
     "parameters": [{"name": "colour", "type": "string", "required": True}]},
    {"name": "gone", "description": "paint a wall"},
]  # fmt: skip


def test_graph_tool_call_is_left_out_with_a_reason_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(product.importlib.util, "find_spec", lambda name: None)
    retrievers, missing = peer_retrievers(graph_of(), CATALOGUE, embed, DECLARED)
    assert list(retrievers) == ["dense", "bm25", "bm25-walk"]
    assert "pip install" in missing["graph-tool-call"]


def test_graph_tool_call_ranks_the_tools_of_the_graph():
    if reason := product.missing_graph_tool_call():
        pytest.skip(reason)
    retrievers, missing = peer_retrievers(graph_of("ab"), CATALOGUE, embed)
    assert not missing
    for name in ("graph-tool-call", "graph-tool-call, embedding"):
        assert retrievers[name].retrieve(["paint the wall"], 1) == [["s/b"]]
