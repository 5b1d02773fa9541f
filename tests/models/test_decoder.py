import itertools
from collections import Counter

import pytest
import torch

from models.decoder import EdgeRows, PointerDecoder, plan_agreement, rank_by_agreement
from models.types import empty_edges

EDGES = torch.tensor([[2, 0, 0], [1, 2, 1]])
COUNTS = torch.tensor([[4.0, 1.0], [2.0, 0.0], [3.0, 5.0]])


def sides(num_tools=3, batch=2, edges=(EDGES, COUNTS)):
    torch.manual_seed(0)
    model = PointerDecoder(4, 6, 8, dropout=0.3).eval()
    rows = EdgeRows.from_edges(*edges, num_tools)
    tools = model.read_tools(torch.randn(num_tools, 4), torch.randn(num_tools, 6), rows)
    memory = torch.rand(batch, 2 * num_tools)
    requests = model.read_requests(torch.randn(batch, 4), torch.randn(batch, 6), memory, tools)
    return model, tools, requests


def likelihood(log_probs, plan):
    """Log probability of one plan, END included."""
    steps = [*plan, log_probs.size(1) - 1]
    return sum(log_probs[k, choice].item() for k, choice in enumerate(steps))


def unpad(plans):
    return [tuple(tool for tool in plan if tool >= 0) for plan in plans.tolist()]


# Edges.


def test_edge_rows_give_the_counts_from_a_tool_to_all_others():
    rows = EdgeRows.from_edges(EDGES, COUNTS, 3).dense(torch.tensor([0, 2, -1, 1, 0]))
    assert rows[0].tolist() == rows[4].tolist() == [[0, 0], [3, 5], [2, 0]]
    assert rows[1].tolist() == [[0, 0], [4, 1], [0, 0]]
    assert not rows[2].any()
    assert not rows[3].any()


def test_edge_rows_without_edges_are_zero():
    rows = EdgeRows.from_edges(*empty_edges(), 3).dense(torch.tensor([0, -1]))
    assert rows.shape == (2, 3, 2)
    assert not rows.any()


# Probabilities.


def test_every_step_is_a_distribution_and_no_plan_is_empty():
    model, tools, requests = sides()
    log_probs = model.log_probs(tools, requests, torch.tensor([[0, 1, 1], [2, -1, -1]]))
    assert log_probs.shape == (2, 4, 4)
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(2, 4))
    assert torch.isneginf(log_probs[:, 0, -1]).all()


def test_padding_does_not_change_a_plan():
    model, tools, requests = sides(batch=1)
    short = model.log_probs(tools, requests, torch.tensor([[2, 0]]))
    long = model.log_probs(tools, requests, torch.tensor([[2, 0, -1, -1]]))
    assert torch.allclose(short, long[:, :3], atol=1e-6)


def test_a_plan_can_be_scored_without_its_own_edges():
    plan = torch.tensor([[0, 1, 0, 2]])
    fewer = (EDGES, COUNTS - torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]).clamp_min(0))
    model, tools, requests = sides(batch=1)
    _, without, _ = sides(batch=1, edges=(fewer[0], fewer[1].clamp_min(0)))
    left_out = model.log_probs(tools, requests, plan, leave_own_out=True)
    assert torch.allclose(left_out, model.log_probs(without, requests, plan), atol=1e-6)
    assert not torch.allclose(left_out, model.log_probs(tools, requests, plan))


def test_every_weight_learns():
    model, tools, requests = sides()
    model.train()
    x, h = torch.randn(3, 4), torch.randn(3, 6)
    tools = model.read_tools(x, h, tools.edges)
    requests = model.read_requests(x[:2], h[:2], torch.rand(2, 6), tools)
    plans = torch.tensor([[0, 1, 0], [2, 1, -1]])
    log_probs = model.log_probs(tools, requests, plans)
    (log_probs[:, 0, 0] + log_probs[:, 1, 1] + log_probs[:, 2, -1]).sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


# Beam search.


def test_a_wide_beam_finds_exactly_the_likeliest_plans():
    model, tools, requests = sides()
    every = [p for n in (1, 2, 3) for p in itertools.product(range(3), repeat=n)]
    plans, log_prob = model.beam_search(tools, requests, width=60, max_length=3)
    for row in range(2):
        one = type(requests)(*(part[row : row + 1] for part in requests))
        scored = {
            p: likelihood(model.log_probs(tools, one, torch.tensor([p]))[0], p)
            for p in every
            if len(p) < 3
        }
        alive = log_prob[row].isfinite()
        found = dict(zip(unpad(plans[row, alive]), log_prob[row, alive].tolist(), strict=True))
        for plan, value in scored.items():
            assert found[plan] == pytest.approx(value, abs=1e-4)


def test_all_plans_of_a_wide_beam_have_probability_one_together():
    model, tools, requests = sides()
    plans, log_prob = model.beam_search(tools, requests, width=60, max_length=3)
    assert log_prob.exp().sum(dim=1).tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
    assert len(set(unpad(plans[0, log_prob[0].isfinite()]))) == 3 + 9 + 27


def test_plans_come_likeliest_first_and_narrow_beams_keep_the_best_seen():
    model, tools, requests = sides()
    _, log_prob = model.beam_search(tools, requests, width=5, max_length=4)
    assert torch.equal(log_prob, log_prob.sort(dim=1, descending=True).values)


def test_only_allowed_tools_are_chosen():
    model, tools, requests = sides()
    allowed = torch.tensor([False, True, True])
    plans, log_prob = model.beam_search(tools, requests, 20, 3, allowed)
    used = {tool for plan in plans[log_prob.isfinite()].tolist() for tool in plan}
    assert used == {-1, 1, 2}


def test_without_allowed_tools_there_is_no_plan():
    model, tools, requests = sides()
    plans, log_prob = model.beam_search(tools, requests, 4, 3, torch.zeros(3, dtype=torch.bool))
    _, score = rank_by_agreement(plans, log_prob)
    assert torch.isneginf(score).all()


def test_one_tool_may_be_repeated_up_to_the_longest_plan():
    model, tools, requests = sides(num_tools=1, batch=1, edges=empty_edges())
    plans, log_prob = model.beam_search(tools, requests, 9, 3)
    found = {p for p, v in zip(unpad(plans[0]), log_prob[0].tolist(), strict=True) if v > -1e9}
    assert found == {(0,), (0, 0), (0, 0, 0)}


def test_one_request_plans_alone_as_in_a_batch():
    model, tools, requests = sides(batch=3)
    together, _ = model.beam_search(tools, requests, 4, 3)
    for row in range(3):
        one = type(requests)(*(part[row : row + 1] for part in requests))
        assert torch.equal(model.beam_search(tools, one, 4, 3)[0][0], together[row])


# Ranking.


def slow_agreement(a, b):
    """The three strict metrics, written out."""

    def f1(x, y):
        common = sum((Counter(x) & Counter(y)).values())
        return 2 * common / (len(x) + len(y)) if x or y else 1.0

    best = 0
    for size in range(min(len(a), len(b)) + 1):
        subsequences = set(itertools.combinations(a, size))
        if subsequences & set(itertools.combinations(b, size)):
            best = size
    order = 2 * best / (len(a) + len(b)) if a or b else 1.0
    return [f1(a, b), f1(list(itertools.pairwise(a)), list(itertools.pairwise(b))), order]


def test_agreement_equals_the_slow_obvious_version():
    torch.manual_seed(0)
    for _ in range(60):
        a, b = (torch.randint(3, (int(n),)) for n in torch.randint(0, 5, (2,)))
        padded = [torch.cat([p, torch.full((5 - len(p),), -1)]) for p in (a, b)]
        expected = slow_agreement(a.tolist(), b.tolist())
        assert plan_agreement(*padded).tolist() == pytest.approx(expected)


def test_the_plan_that_agrees_with_most_of_the_probability_comes_first():
    plans = torch.tensor([[[5, 6, 7], [0, 1, -1], [0, 1, 2], [0, 1, 3]]])
    order, score = rank_by_agreement(plans, torch.tensor([[0.28, 0.24, 0.24, 0.24]]).log())
    assert order[0, 0].item() == 1
    assert order[0, -1].item() == 0
    assert ((score >= 0) & (score <= 1)).all()


def test_a_certain_plan_scores_one():
    plans = torch.tensor([[[0, 1], [2, -1]]])
    order, score = rank_by_agreement(plans, torch.tensor([[0.0, -torch.inf]]))
    assert order.tolist() == [[0, 1]]
    assert score.tolist() == [[1.0, -torch.inf]]
