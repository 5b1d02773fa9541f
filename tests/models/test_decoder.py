import itertools
import math
from collections import Counter

import pytest
import torch
from torch.nn.functional import normalize

from models.candidates import Candidates
from models.decoder import (
    PointerDecoder,
    RequestSide,
    _votes,
    beam_search,
    plan_agreement,
    rank_by_agreement,
)
from models.edges import EdgeTable
from models.memory import PAD, padded_plans
from models.types import empty_edges

TEXT, STATE, HIDDEN, TOOLS = 4, 6, 8, 5
EDGES = torch.tensor([[2, 0, 0, 4, 1], [1, 2, 1, 0, 0]])
COUNTS = torch.tensor([[4.0, 1.0], [2.0, 0.0], [3.0, 5.0], [1.0, 1.0], [2.0, 0.0]])
PAST = [[0, 1], [2, 1, 2], [4], [3, 0, 0, 1], [1, 2]]


def shuffled(module, seed=0):
    """The module with weights that leave nothing at zero."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=draw)
    return module


def candidates_of(batch=2, tools=((0, 1, 2), (0, 2, 4)), neighbours=4, seed=0):
    """Shortlists with random features, and random past plans beside them."""
    draw = torch.Generator().manual_seed(seed)
    listed = torch.tensor([tools[i % len(tools)] for i in range(batch)]).view(batch, -1)
    size = listed.size(1)
    found = Candidates(
        normalize(torch.randn(batch, TEXT, generator=draw), dim=1),
        listed,
        torch.rand(batch, size, 5, generator=draw),
        torch.rand(batch, size, 2, generator=draw),
        torch.rand(batch, neighbours, generator=draw).sort(dim=1, descending=True).values,
        torch.zeros(batch, neighbours, 0, dtype=torch.int64),
        torch.rand(batch, 1, generator=draw),
        _clauses(batch, size, draw),
    )
    pick = torch.randint(len(PAST), (batch, neighbours), generator=draw).tolist()
    plans = padded_plans([PAST[i] for row in pick for i in row]).view(batch, neighbours, -1)
    return found._replace(plans=found.positions(plans.flatten(1)).view_as(plans))


def _clauses(batch, size, draw):
    """Cosines with three clauses, of which every second request has two."""
    cosines = torch.rand(batch, size, 3, generator=draw)
    cosines[::2, :, 2] = -1.0
    return cosines


def sides(candidates, edges=(EDGES, COUNTS), seed=0, **kwargs):
    """A decoder with what it reads of tools and requests."""
    torch.manual_seed(seed)
    decoder = shuffled(PointerDecoder(TEXT, STATE, HIDDEN, dropout=0.3), seed).eval()
    table = EdgeTable.from_edges(*edges, TOOLS)
    draw = torch.Generator().manual_seed(7)
    x, state = torch.randn(TOOLS, TEXT, generator=draw), torch.randn(TOOLS, STATE, generator=draw)
    use = torch.randint(5, (TOOLS, 4), generator=draw).float()
    tools = decoder.read_tools(x, state, 0.3 * state, table, use)
    h = torch.randn(len(candidates.x), STATE, generator=draw)
    return decoder, tools, decoder.read_requests(candidates.x, h)


def one_of(requests, candidates, row):
    return RequestSide(*(part[row : row + 1] for part in requests)), candidates.rows(
        slice(row, row + 1)
    )


def likelihood(log_probs, plan):
    """Log probability of one plan, END included."""
    steps = [*plan, log_probs.size(1) - 1]
    return sum(log_probs[k, choice].item() for k, choice in enumerate(steps))


def unpad(plans):
    return [tuple(tool for tool in plan if tool >= 0) for plan in plans.tolist()]


def search(candidates, width, max_length, sides_=None):
    decoder, tools, requests = sides_ or sides(candidates)
    return beam_search([decoder], [tools], [requests], candidates, width, max_length)


# Probabilities.


def test_every_step_is_a_distribution_and_no_plan_is_empty():
    candidates = candidates_of()
    decoder, tools, requests = sides(candidates)
    plans = torch.tensor([[0, 1, 1], [2, -1, -1]])
    log_probs = decoder.log_probs(tools, requests, candidates, plans)
    assert log_probs.shape == (2, 4, 4)
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(2, 4))
    assert torch.isneginf(log_probs[:, 0, -1]).all()
    assert not torch.isneginf(log_probs[:, 1:]).any()


def test_padding_does_not_change_a_plan():
    candidates = candidates_of(1)
    decoder, tools, requests = sides(candidates)
    short = decoder.log_probs(tools, requests, candidates, torch.tensor([[2, 0]]))
    long = decoder.log_probs(tools, requests, candidates, torch.tensor([[2, 0, -1, -1]]))
    assert torch.allclose(short, long[:, :3], atol=1e-6)


def test_padding_of_past_plans_and_what_is_missing_change_nothing():
    candidates = candidates_of()
    padded = candidates._replace(
        clauses=torch.nn.functional.pad(candidates.clauses, (0, 2), value=-1.0),
        similarity=torch.cat([candidates.similarity, torch.full((2, 3), -2.0)], dim=1),
        plans=torch.nn.functional.pad(candidates.plans, (0, 2, 0, 3), value=PAD),
    )
    decoder, tools, requests = sides(candidates)
    plans = torch.tensor([[0, 1, 1], [2, -1, -1]])
    expected = decoder.log_probs(tools, requests, candidates, plans)
    found = decoder.log_probs(tools, requests, padded, plans)
    assert torch.allclose(found[0], expected[0], atol=1e-5)
    assert torch.allclose(found[1, :2], expected[1, :2], atol=1e-5)


def test_without_past_plans_every_step_is_still_a_distribution():
    candidates = candidates_of()
    nothing = candidates._replace(
        similarity=torch.full((2, 1), -2.0), plans=torch.full((2, 1, 1), PAD)
    )
    decoder, tools, requests = sides(nothing)
    log_probs = decoder.log_probs(tools, requests, nothing, torch.tensor([[0, 1], [2, 2]]))
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(2, 3))


def test_a_plan_scores_alone_as_in_a_batch():
    candidates = candidates_of(4)
    decoder, tools, requests = sides(candidates)
    plans = torch.tensor([[0, 1], [2, 0], [1, 1], [0, 2]])
    together = decoder.log_probs(tools, requests, candidates, plans)
    for row in range(4):
        request, listed = one_of(requests, candidates, row)
        alone = decoder.log_probs(tools, request, listed, plans[row : row + 1])
        assert torch.allclose(alone[0], together[row], atol=1e-5)


@pytest.mark.parametrize("what", ["edges", "text", "memory", "plans", "clauses", "use"])
def test_every_source_of_knowledge_is_heard(what):
    candidates = candidates_of()
    decoder, tools, requests = sides(candidates)
    plans = torch.tensor([[0, 1], [2, 0]])
    before = decoder.log_probs(tools, requests, candidates, plans)
    if what == "edges":
        tools = tools._replace(edges=EdgeTable.from_edges(*empty_edges(), TOOLS))
    elif what == "use":
        tools = tools._replace(use=torch.zeros(TOOLS, 4))
    else:
        changed = torch.zeros_like(getattr(candidates, what))
        candidates = candidates._replace(**{what: changed})
    after = decoder.log_probs(tools, requests, candidates, plans)
    assert (after - before).abs()[:, 1:].max() > 1e-3


def test_every_weight_learns():
    candidates = candidates_of()
    decoder, _, _ = sides(candidates)
    decoder.train()
    x, h = torch.randn(TOOLS, TEXT), torch.randn(TOOLS, STATE)
    edges, use = EdgeTable.from_edges(EDGES, COUNTS, TOOLS), torch.ones(TOOLS, 4)
    tools = decoder.read_tools(x, h, h, edges, use)
    requests = decoder.read_requests(candidates.x, h[:2])
    plans = torch.tensor([[0, 1, 0], [2, 1, -1]])
    log_probs = decoder.log_probs(tools, requests, candidates, plans)
    (log_probs[:, 0, 0] + log_probs[:, 1, 1] + log_probs[:, 2, -1]).sum().backward()
    for name, weight in decoder.named_parameters():
        assert weight.grad is not None, name
        assert torch.isfinite(weight.grad).all(), name
        assert weight.grad.abs().sum() > 0, name


# Beam search.


def test_a_wide_beam_finds_exactly_the_likeliest_plans():
    candidates = candidates_of()
    decoder, tools, requests = sides(candidates)
    every = [p for n in (1, 2, 3) for p in itertools.product(range(3), repeat=n)]
    plans, log_prob = search(candidates, 60, 3)
    for row in range(2):
        request, listed = one_of(requests, candidates, row)
        scored = {
            p: likelihood(decoder.log_probs(tools, request, listed, torch.tensor([p]))[0], p)
            for p in every
        }
        alive = log_prob[row].isfinite()
        found = dict(zip(unpad(plans[row, alive]), log_prob[row, alive].tolist(), strict=True))
        assert found == pytest.approx(scored, abs=1e-4)


def test_all_plans_have_probability_one_together():
    """Those up to the longest one, and all that would go on behind it."""
    candidates = candidates_of(1, tools=((1,),))
    plans, log_prob = search(candidates, 60, 40)
    assert len(set(unpad(plans[0, log_prob[0].isfinite()]))) == 40
    decoder, tools, requests = sides(candidates)
    along = decoder.log_probs(tools, requests, candidates, torch.zeros(1, 41, dtype=torch.int64))
    further = along[0, :41, 0].sum().exp()
    assert log_prob.exp().sum() + further == pytest.approx(1.0, abs=1e-4)


def test_several_decoders_plan_with_their_mean_probability():
    candidates = candidates_of(1)
    pair = [sides(candidates, seed=seed) for seed in (0, 1)]
    decoders, tools, requests = map(list, zip(*pair, strict=True))
    plans, log_prob = beam_search(decoders, tools, requests, candidates, 60, 3)
    alive = log_prob[0].isfinite()
    found = dict(zip(unpad(plans[0, alive]), log_prob[0, alive].tolist(), strict=True))
    for plan in [(0,), (2,), (0, 1), (1, 1)]:
        said = [
            decoder.log_probs(tool, request, candidates, torch.tensor([plan]))[0].exp()
            for decoder, tool, request in pair
        ]
        expected = likelihood(((said[0] + said[1]) / 2).log(), plan)
        assert found[plan] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_plans_come_likeliest_first_and_no_plan_comes_twice(width):
    plans, log_prob = search(candidates_of(3), width, 4)
    assert plans.shape == (3, width, 4)
    assert torch.equal(log_prob, log_prob.sort(dim=1, descending=True).values)
    for row in range(3):
        alive = unpad(plans[row, log_prob[row].isfinite()])
        assert len(set(alive)) == len(alive)
        assert all(alive)


def test_a_narrow_beam_scores_its_plans_rightly():
    candidates = candidates_of(2)
    decoder, tools, requests = sides(candidates)
    plans, log_prob = search(candidates, 2, 4)
    for row in range(2):
        request, listed = one_of(requests, candidates, row)
        for plan, value in zip(unpad(plans[row]), log_prob[row].tolist(), strict=True):
            if len(plan) < 4:
                said = decoder.log_probs(tools, request, listed, torch.tensor([plan]))[0]
                assert value == pytest.approx(likelihood(said, plan), abs=1e-4)


def test_without_candidates_there_is_no_plan():
    candidates = candidates_of(2, tools=((), ()))
    plans, log_prob = search(candidates, 4, 3)
    _, score = rank_by_agreement(plans, log_prob)
    assert torch.isneginf(score).all()


def test_one_tool_may_be_repeated_up_to_the_longest_plan():
    candidates = candidates_of(1, tools=((3,),))
    plans, log_prob = search(candidates, 9, 3)
    found = {p for p, v in zip(unpad(plans[0]), log_prob[0].tolist(), strict=True) if v > -1e9}
    assert found == {(0,), (0, 0), (0, 0, 0)}


def test_one_request_plans_alone_as_in_a_batch():
    candidates = candidates_of(4)
    decoder, tools, requests = sides(candidates)
    together, _ = search(candidates, 4, 3)
    for row in range(4):
        request, listed = one_of(requests, candidates, row)
        alone, _ = search(listed, 4, 3, (decoder, tools, request))
        assert torch.equal(alone[0], together[row])


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


def test_the_score_is_the_agreement_to_be_expected():
    plans = torch.tensor([[[0, 1, -1], [1, 2, 0], [1, -1, -1]]])
    weights = [0.5, 0.3, 0.2]
    order, score = rank_by_agreement(plans, torch.tensor([weights]).log())
    every = unpad(plans[0])
    expected = {
        i: sum(
            w * sum(slow_agreement(one, other)) / 3 for w, other in zip(weights, every, strict=True)
        )
        for i, one in enumerate(every)
    }
    assert score[0].tolist() == pytest.approx([expected[i] for i in order[0].tolist()])
    assert score[0].tolist() == sorted(score[0].tolist(), reverse=True)


def test_a_certain_plan_scores_one():
    plans = torch.tensor([[[0, 1], [2, -1]]])
    order, score = rank_by_agreement(plans, torch.tensor([[0.0, -torch.inf]]))
    assert order.tolist() == [[0, 1]]
    assert score.tolist() == [[1.0, -torch.inf]]


# Votes.


def slow_votes(candidates, row, prefix, weights):
    """Weighted votes of the past plans after one beginning, written out; END is the last one."""
    size = candidates.size
    left, follow, equal = ([0.0] * (size + 1) for _ in range(3))
    for plan, weight in zip(unpad(candidates.plans[row]), weights, strict=True):
        for tool in range(size):
            left[tool] += weight * (plan.count(tool) > prefix.count(tool))
        for i, tool in enumerate(plan):
            after = plan[i + 1] if i + 1 < len(plan) else size
            if prefix and tool == prefix[-1] and after <= size:
                follow[after] += weight
        if plan[: len(prefix)] == prefix:
            after = plan[len(prefix)] if len(plan) > len(prefix) else size
            if after <= size:
                equal[after] += weight
    return left, follow, equal


def test_votes_equal_the_slow_obvious_version():
    candidates = candidates_of(3, neighbours=6)
    decoder, tools, _ = sides(candidates)
    with torch.no_grad():
        decoder.sharpness.fill_(0.05)
    fixed = decoder.fix(tools, candidates)
    for prefix in [(), (0,), (2, 1), (0, 0, 1), (1, 1, 1, 1, 1)]:
        beginning = torch.tensor(prefix, dtype=torch.int64).expand(3, 1, -1)
        last = torch.full((3, 1), prefix[-1] if prefix else PAD)
        times = torch.tensor([[[float(prefix.count(tool)) for tool in range(3)]]] * 3)
        votes = _votes(fixed, beginning, torch.full((3, 1), len(prefix)), last, times)
        for row in range(3):
            similarity = candidates.similarity[row].tolist()
            weights = [math.exp(1.5 * s) for s in similarity]
            weights = [weight / sum(weights) for weight in weights]
            left, follow, equal = slow_votes(candidates, row, prefix, weights)
            assert votes.left[row, 0].tolist() == pytest.approx(left[:3], abs=1e-5)
            assert votes.follow[row, 0].tolist() == pytest.approx(follow, abs=1e-5)
            assert votes.equal[row, 0].tolist() == pytest.approx(equal, abs=1e-5)
