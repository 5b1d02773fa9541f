"""Readings: what the graph readout says of requests, honest about the rows it was trained with."""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from models import readings as readings_module
from models.candidates import embed_requests
from models.gtool import GToolPlanner
from models.readings import Readings, Rows, offered, read_requests, read_rows, with_edges
from tests.factories import chores_planner, letter_vectors

REQUESTS = ["find_hotel then book_hotel in Oslo", "translate it", ""]


def by_plan(example):
    """A group for all rows with the same plan."""
    return " ".join(example.tools)


def rows_of(group=by_plan, validation=lambda example: example.split == "validation"):
    """Rows of the examples by split."""
    drawn, examples, vectors = chores_planner()
    parts = {}
    for split in ("train", "validation"):
        some = [i for i, e in enumerate(examples) if validation(e) == (split == "validation")]
        parts[split] = Rows(
            [examples[i].request for i in some],
            vectors.rows(some),
            [[drawn.graph.index[key] for key in examples[i].tools] for i in some],
            [()] * len(some),
            [group(examples[i]) for i in some],
        )
    return parts


def row_by_row():
    """The planner with steps so small in training that a batch is one row."""
    drawn = chores_planner()[0]
    model = copy.deepcopy(drawn.model)
    model.config = replace(model.config, min_steps=100)
    return with_edges(drawn, drawn.graph, model)


def without_pad(plan):
    return [row for row in plan.tolist() if row >= 0]


def test_the_plan_is_the_graph_readouts_and_its_tools_lead_the_candidates():
    drawn = chores_planner()[0]
    readings = read_requests(drawn, REQUESTS, 6)
    assert readings.candidates.shape == (3, 6)
    assert readings.votes.shape == (3, 6, 2)
    for plan, candidates, (best,) in zip(
        readings.plans, readings.candidates.tolist(), drawn.plan(REQUESTS), strict=True
    ):
        rows = without_pad(plan)
        assert tuple(drawn.graph.keys[row] for row in rows) == best.tools
        assert candidates[: len(set(rows))] == list(dict.fromkeys(rows))
        assert len(set(candidates)) == 6


def test_behind_the_plans_candidates_come_by_how_well_they_fit():
    drawn = chores_planner()[0]
    readings = read_requests(drawn, REQUESTS, 10)
    vectors = embed_requests(REQUESTS, letter_vectors)
    plans, _ = drawn.rank_rows(REQUESTS, vectors)
    listed, recalled = drawn.candidates(REQUESTS, vectors), drawn.recall(vectors.x)
    fits = listed.memory[..., 0].clamp(0, 1) + listed.text[..., 3].sigmoid()
    assert listed.tools.tolist() == [list(range(10))] * 3
    assert torch.equal(readings.votes[..., 0], recalled.relevance.gather(1, readings.candidates))
    assert torch.equal(readings.votes[..., 1], recalled.first.gather(1, readings.candidates))
    for ranked, candidates, fit in zip(plans, readings.candidates.tolist(), fits, strict=True):
        proposed = list(dict.fromkeys(without_pad(ranked.flatten())))
        assert candidates[: len(proposed)] == proposed
        rest = fit[candidates[len(proposed) :]].tolist()
        assert rest == sorted(rest, reverse=True)


def test_blocked_tools_are_no_candidates():
    drawn = chores_planner()[0]
    allowed = set(drawn.graph.keys[2:4])
    few = GToolPlanner(drawn.model, drawn.graph, drawn.tool_x, letter_vectors, None, allowed)
    assert offered(few) == (2, 3)
    assert offered(drawn) == tuple(range(10))
    readings = read_requests(few, REQUESTS, 4)
    assert set(readings.candidates.flatten().tolist()) == {2, 3, -1}
    assert set(readings.plans.flatten().tolist()) <= {2, 3, -1}
    assert (readings.votes[:, 2:] == 0).all()
    assert offered(with_edges(few, few.graph)) == (2, 3)


def test_votes_of_tools_are_those_of_the_candidates():
    readings = Readings(
        torch.tensor([[4, 2, -1]]),
        torch.tensor([[[0.5, 0.1], [0.3, 0.2], [0.0, 0.0]]]),
        torch.tensor([[2, -1]]),
    )
    votes = readings.votes_of(torch.tensor([[2, 9, 4, -1]]))
    expected = torch.tensor([[[0.3, 0.2], [0.0, 0.0], [0.5, 0.1], [0.0, 0.0]]])
    assert torch.equal(votes, expected)
    assert torch.equal(readings.take([0, 0]).candidates, readings.candidates.repeat(2, 1))


@pytest.mark.parametrize("group", [by_plan, lambda example: example.id], ids=["plan", "row"])
def test_a_training_row_is_read_as_if_its_group_had_not_been_there(group):
    """Each group is left out in turn: its rows as validation rows read the same."""
    drawn, rows, examples = row_by_row(), rows_of(group), chores_planner()[1]
    readings, honest = read_rows(drawn, rows, 5)
    train = [example for example in examples if example.split == "train"]
    for place in (0, 4, 11):
        gone = group(train[place])
        left = rows_of(group, lambda e, gone=gone: e.split == "validation" or group(e) == gone)
        alone = read_rows(drawn, left, 5)[0]["validation"]
        mine = readings["train"].take([place])
        theirs = alone.take([left["validation"].texts.index(train[place].request)])
        assert torch.equal(theirs.plans, mine.plans)
        assert torch.equal(theirs.candidates, mine.candidates)
        assert torch.allclose(theirs.votes, mine.votes, atol=1e-4)
    validation = read_requests(honest, rows["validation"].texts, 5)
    assert torch.equal(readings["validation"].candidates, validation.candidates)
    assert torch.equal(readings["validation"].plans, validation.plans)


def test_nothing_votes_for_a_plan_that_only_its_group_has():
    drawn, rows = chores_planner()[0], rows_of()
    known = read_requests(drawn, rows["train"].texts, 10)
    honest = read_rows(drawn, rows, 10)[0]["train"]
    for row, plan in enumerate(rows["train"].plans):
        tools = torch.tensor([plan])
        assert (known.take([row]).votes_of(tools)[..., 0] > 0.3).all()
        assert honest.take([row]).votes_of(tools).abs().max() < 1e-4


def test_the_graph_and_the_use_of_tools_lack_what_the_row_and_validation_rows_have_added(
    monkeypatch,
):
    drawn, graphs, uses = row_by_row(), [], []
    find, read = readings_module.find_candidates, readings_module._read

    def spy_find(requests, vectors, tool_x, recalled, edges, *rest, **options):
        graphs.append((requests, edges))
        return find(requests, vectors, tool_x, recalled, edges, *rest, **options)

    def spy_read(model, tools, *rest):
        uses.append(tools[0].side.use[:, 0])
        return read(model, tools, *rest)

    monkeypatch.setattr(readings_module, "find_candidates", spy_find)
    monkeypatch.setattr(readings_module, "_read", spy_read)
    for group, left in ((lambda example: example.id, 2.0), (by_plan, 0.0)):
        graphs.clear()
        uses.clear()
        rows = rows_of(group)
        _, honest = read_rows(drawn, rows, 3)
        of_row = dict(zip(rows["train"].texts, rows["train"].plans, strict=True))
        assert [len(requests) for requests, _ in graphs] == [1] * 12
        for ((request,), edges), use in zip(graphs, uses[:12], strict=True):
            plan = of_row[request]
            pairs = torch.tensor([a * 10 + b for a, b in pairwise(plan)], dtype=torch.long)
            assert (edges.of(pairs)[:, 0] == left).all()
            assert use[plan].tolist() == [left] * len(plan)
        assert honest.graph.edge_counts[:, 0].tolist() == [3.0] * 4
        assert uses[12].sum() == sum(map(len, rows["train"].plans))


def test_readings_come_in_the_order_of_the_rows_and_in_parts(monkeypatch):
    drawn, rows = row_by_row(), rows_of()
    whole = read_rows(drawn, rows, 5)[0]
    monkeypatch.setattr(readings_module, "PLAN_BATCH", 3)
    parts = read_rows(drawn, rows, 5)[0]
    back = {
        split: part._replace(
            texts=part.texts[::-1],
            vectors=part.vectors.rows(list(range(len(part.texts)))[::-1]),
            plans=part.plans[::-1],
            groups=part.groups[::-1],
        )
        for split, part in rows.items()
    }
    turned = read_rows(drawn, back, 5)[0]
    for split, mine in whole.items():
        assert torch.equal(parts[split].plans, mine.plans)
        assert torch.allclose(parts[split].votes, mine.votes, atol=1e-5)
        assert torch.equal(turned[split].plans.flip(0), mine.plans)
        assert torch.allclose(turned[split].votes.flip(0), mine.votes, atol=1e-4)


def test_rows_are_cut_to_a_length_with_their_links():
    rows = Rows(
        ["a"],
        embed_requests(["a"], letter_vectors),
        [[4, 2, 7]],
        [((0, 1), (1, 2))],
        ["g"],
    )
    assert rows.cut(2).plans == [[4, 2]]
    assert rows.cut(2).links == [((0, 1),)]
    assert rows.cut(None).plans == rows.plans


def test_the_planner_stays_as_it_was():
    drawn = chores_planner()[0]
    before = drawn.plan(REQUESTS)
    read_rows(drawn, rows_of(), 3)
    assert drawn.plan(REQUESTS) == before
