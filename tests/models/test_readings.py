"""Readings: what the graph readout says of requests, honest about the rows it was trained with."""

import torch

from models.gtool import GToolPlanner
from models.readings import (
    Readings,
    Rows,
    _WithoutOwn,
    offered,
    on_graph,
    read_requests,
    read_rows,
)
from models.training import padded_plans
from tests.factories import chores_planner, letter_vectors

REQUESTS = ["find_hotel then book_hotel in Oslo", "translate it", ""]


def rows_of(splits):
    """Rows of the examples, each in the split that is named for it."""
    drawn, examples, request_x = chores_planner()
    parts = {}
    for split in ("train", "validation"):
        some = [i for i, named in enumerate(splits) if named == split]
        plans = [[drawn.graph.index[key] for key in examples[i].tools] for i in some]
        parts[split] = Rows([examples[i].request for i in some], request_x[some], plans)
    return parts


def test_the_plan_is_the_graph_readouts_and_its_tools_lead_the_candidates():
    drawn = chores_planner()[0]
    readings = read_requests(drawn, REQUESTS, 6)
    assert readings.candidates.shape == (3, 6)
    assert readings.votes.shape == (3, 6, 2)
    for plan, candidates, (best,) in zip(
        readings.plans.tolist(), readings.candidates.tolist(), drawn.plan(REQUESTS), strict=True
    ):
        plan = [row for row in plan if row >= 0]
        assert tuple(drawn.graph.keys[row] for row in plan) == best.tools
        assert candidates[: len(set(plan))] == list(dict.fromkeys(plan))
        assert len(set(candidates)) == 6


def test_behind_the_plan_candidates_come_by_their_votes():
    drawn = chores_planner()[0]
    readings = read_requests(drawn, REQUESTS, 10)
    relevance, first = drawn.model.memory(letter_vectors(REQUESTS)).chunk(2, dim=1)
    assert torch.equal(readings.votes[..., 0], relevance.gather(1, readings.candidates))
    assert torch.equal(readings.votes[..., 1], first.gather(1, readings.candidates))
    for i, plan in enumerate(readings.plans.tolist()):
        rest = readings.votes[i, len({row for row in plan if row >= 0}) :, 0].tolist()
        assert rest == sorted(rest, reverse=True)


def test_blocked_tools_are_no_candidates():
    drawn = chores_planner()[0]
    allowed = set(drawn.graph.keys[2:4])
    few = GToolPlanner(drawn.model, drawn.graph, drawn.tool_x, letter_vectors, (), allowed)
    assert offered(few) == (2, 3)
    assert offered(drawn) == tuple(range(10))
    readings = read_requests(few, REQUESTS, 4)
    assert set(readings.candidates.flatten().tolist()) == {2, 3, -1}
    assert set(readings.plans.flatten().tolist()) <= {2, 3, -1}
    assert (readings.votes[:, 2:] == 0).all()
    assert offered(on_graph(few, few.graph)) == (2, 3)


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


def test_a_training_row_is_read_as_a_new_request_to_the_others_would_be():
    """Left out one by one and read anew: the same votes, the same plan."""
    drawn, examples, _ = chores_planner()
    splits = [example.split for example in examples]
    rows = rows_of(splits)
    readings, honest = read_rows(drawn, rows, 5)
    validation = read_requests(honest, rows["validation"].texts, 5)
    assert torch.equal(readings["validation"].candidates, validation.candidates)
    assert torch.allclose(readings["validation"].votes, validation.votes, atol=1e-5)
    train = [i for i, split in enumerate(splits) if split == "train"]
    for place in (0, 5, 11):
        others = ["validation" if i == train[place] else splits[i] for i in range(len(splits))]
        others = [s if i == train[place] or s == "train" else "none" for i, s in enumerate(others)]
        alone, _ = read_rows(drawn, rows_of(others), 5)
        mine, theirs = readings["train"].take([place]), alone["validation"]
        both = (theirs.candidates.unsqueeze(2) == mine.candidates).any(dim=1)
        assert both.sum() >= 3
        votes = theirs.votes_of(mine.candidates)
        assert torch.allclose(votes[both], mine.votes[both], atol=1e-3)


def test_its_own_pairs_are_no_evidence_for_a_training_row():
    drawn, examples, _ = chores_planner()
    rows = rows_of([example.split for example in examples])
    edges, plans = drawn.tools.side.edges, padded_plans(rows["train"].plans)
    here = plans[:, 0].repeat_interleave(2)  # as two beams of each request would ask
    known, own = edges.dense(here), _WithoutOwn.of(edges, plans).dense(here)
    follower = plans[:, 1].repeat_interleave(2)
    for row in range(here.numel()):
        if follower[row] >= 0:  # every pair was counted once
            assert known[row, follower[row]].tolist() == [1.0, 1.0]
            assert own[row].sum() == 0
        else:
            assert torch.equal(own[row], known[row])


def test_the_planner_stays_as_it_was():
    drawn, examples, _ = chores_planner()
    before = drawn.plan(REQUESTS)
    read_rows(drawn, rows_of([example.split for example in examples]), 3)
    assert drawn.plan(REQUESTS) == before
