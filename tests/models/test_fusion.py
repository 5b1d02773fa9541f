"""Fusion of both readouts: all proposals judged by both, the weight chosen on validation rows."""

from dataclasses import replace

import pytest
import torch

from models import fusion
from models.fusion import FusionPlanner, Judged, agreement, choose_weight, likeness, proposals
from models.graph_tokens import LLMConfig, new_graph_tokens
from models.gtool import GToolPlanner
from models.links import LinkScorer
from models.llm_planner import Catalogue, LLMPlanner
from models.types import Example, Plan
from tests.factories import chores_planner, letter_vectors, tiny_llm

CONFIG = LLMConfig(candidates=3, projector_channels=16, max_length=3, beam_width=2)
REQUESTS = ["find_hotel then book_hotel in Oslo", "translate it", ""]


@pytest.fixture(scope="module")
def readouts():
    """Both readouts; the LLM's has learnt nothing."""
    drawn, llm = chores_planner()[0], tiny_llm()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        lines = Catalogue.of(llm, drawn.graph).names.lines
        tokens = new_graph_tokens(CONFIG, drawn.model, llm, lines)
    return drawn, LLMPlanner(CONFIG, tokens, drawn, llm)


def test_both_propose_and_both_judge_all(readouts):
    drawn, spoken = readouts
    groups = proposals(drawn, spoken, REQUESTS, 2)
    ranked, found = drawn.plan(REQUESTS, top=2), spoken.search(REQUESTS, 2)
    for group, graphs, llms in zip(groups, ranked, found, strict=True):
        by_plan = {judged.plan: judged for judged in group}
        assert len(by_plan) == len(group)
        for plan in graphs:
            rows = tuple(drawn.graph.index[key] for key in plan.tools)
            assert by_plan[rows].graph == plan.score
        for said in llms:
            assert by_plan[said.plan].llm == pytest.approx(said.mean_probability, abs=1e-5)
        best = max(plan.score for plan in graphs)
        assert all(0 <= judged.graph <= best and 0 < judged.llm <= 1 for judged in group)


def test_weight_0_is_the_graph_readout_and_does_not_ask_the_language_model(readouts, monkeypatch):
    drawn, spoken = readouts
    monkeypatch.setattr(spoken, "search", None)
    assert FusionPlanner(drawn, spoken).weight == 0.0
    found = FusionPlanner(drawn, spoken).plan(REQUESTS, top=3)
    for ours, theirs in zip(found, drawn.plan(REQUESTS, top=3), strict=True):
        assert [(p.tools, p.links, p.score) for p in ours] == [
            (p.tools, p.links, p.score) for p in theirs
        ]
        assert {p.planner for p in ours} == {"gtool-fusion"}


def test_weight_1_ranks_as_the_language_model_judges(readouts):
    drawn, spoken = readouts
    for ranked, group in zip(
        FusionPlanner(drawn, spoken, 1.0).plan(REQUESTS, top=4),
        proposals(drawn, spoken, REQUESTS, 4),
        strict=True,
    ):
        expected = sorted((judged.llm for judged in group), reverse=True)[:4]
        assert [plan.score for plan in ranked] == pytest.approx(expected)


def test_a_weight_outside_0_to_1_is_refused(readouts):
    with pytest.raises(ValueError, match=r"expected a weight in 0..1, got 1.5"):
        FusionPlanner(*readouts, 1.5)


def test_validation_rows_choose_the_weight(readouts, monkeypatch):
    drawn, spoken = readouts
    _, examples, _ = chores_planner()
    rows = [[drawn.graph.index[key] for key in example.tools] for example in examples]
    wrong = [tuple(row for row in range(10) if row not in plan)[:2] for plan in rows]
    sets = {
        "graph is right": [
            [Judged(tuple(plan), 0.8, 0.1), Judged(other, 0.2, 0.9)]
            for plan, other in zip(rows, wrong, strict=True)
        ],
        "the language model is right": [
            [Judged(other, 0.6, 0.1), Judged(tuple(plan), 0.5, 0.9)]
            for plan, other in zip(rows, wrong, strict=True)
        ],
    }
    for name, expected in (("graph is right", 0.0), ("the language model is right", 0.2)):
        monkeypatch.setattr(fusion, "proposals", lambda *_, name=name: sets[name])
        chosen = choose_weight(drawn, spoken, examples)
        assert chosen.weight == expected
        assert set(chosen.scores) == set(fusion.WEIGHTS)
        assert max(chosen.scores.values()) == pytest.approx(1.0)


def test_a_gain_that_may_be_chance_gives_the_llm_no_say(readouts, monkeypatch):
    drawn, spoken = readouts
    keys = drawn.graph.keys
    rows = [Example(str(i), "", (keys[0], keys[1])) for i in range(9)]
    right, wrong = (0, 1), (2, 3)
    graph_is = {True: [Judged(right, 0.9, 0.0), Judged(wrong, 0.1, 0.9)]}
    graph_is[False] = [Judged(wrong, 0.6, 0.0), Judged(right, 0.5, 1.0)]
    for misses, expected in ((1, 0.0), (5, 0.2)):
        groups = [graph_is[i >= misses] for i in range(9)]
        monkeypatch.setattr(fusion, "proposals", lambda *_, groups=groups: groups)
        chosen = choose_weight(drawn, spoken, rows, (0.0, 0.2))
        assert chosen.weight == expected
        assert chosen.scores[0.2] > chosen.scores[0.0]


def test_the_weight_is_part_of_the_configuration(readouts):
    drawn, spoken = readouts
    other = LLMPlanner(replace(CONFIG, fusion_weight=0.3), spoken.tokens, drawn, spoken.llm)
    assert FusionPlanner(drawn, other).weight == 0.3


def test_without_a_tool_to_offer_there_is_no_plan(readouts):
    drawn, spoken = readouts
    none = GToolPlanner(drawn.model, drawn.graph, drawn.tool_x, letter_vectors, None, set())
    fused = FusionPlanner(none, LLMPlanner(CONFIG, spoken.tokens, none, spoken.llm), 0.5)
    assert fused.plan(REQUESTS) == [[], [], []]


def test_tools_that_were_renamed_are_linked_by_what_was_learnt_of_them(readouts):
    drawn, spoken = readouts
    row, new = drawn.graph.index["chores/book_hotel"], "chores/reserve_hotel"
    keys = tuple(new if i == row else key for i, key in enumerate(drawn.graph.keys))
    graphs = drawn.graph, replace(drawn.graph, keys=keys)
    before, after = (
        GToolPlanner(
            drawn.model,
            graph,
            drawn.tool_x,
            letter_vectors,
            LinkScorer.fit(graph, [], drawn.tool_x),
        )
        for graph in graphs
    )
    renamed = LLMPlanner(CONFIG, spoken.tokens, before, spoken.llm)
    renamed.graph = after.graph
    plan = renamed.named([drawn.graph.index["chores/find_hotel"], row], 1.0)
    assert plan.tools == ("chores/find_hotel", new)
    assert plan.links == ((0, 1),)
    for ranked in FusionPlanner(after, renamed, 0.5).plan(REQUESTS, top=8):
        assert all(set(plan.tools) <= set(keys) for plan in ranked)


def test_likeness_is_1_for_the_same_plan_alone():
    assert likeness((1, 2), (1, 2)) == pytest.approx(1.0)
    assert likeness((1, 2), (3, 4)) == pytest.approx(0.0)
    assert 0.3 < likeness((1, 2), (2, 1)) < 0.7


def test_agreement_counts_equal_lists_and_common_tools():
    def plan(*tools):
        return Plan(tools, (), 1.0, "x")

    assert agreement([plan("a", "b"), plan("a")], [plan("a", "b"), plan("b")]) == (0.5, 0.5)
    assert agreement([plan("a"), None], [plan("a", "b"), plan("c")]).equal == 0.0
    assert agreement([plan("a")], [plan("a", "b")]).n_f1 == pytest.approx(2 / 3)
