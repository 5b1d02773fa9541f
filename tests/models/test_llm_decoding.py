"""Constrained search: only real tools, the same plans as the slow and obvious way, fewer passes."""

import itertools

import pytest
import torch

from models.llm import Reader
from models.llm_decoding import DecodeStats, constrained_search
from models.prompt import PLANNING, Names, frame, plan_tokens
from models.trie import ROOT, TokenTrie
from tests.factories import tiny_llm

KEYS = ("a/book", "a/bookmark", "a/find", "a/fine", "a/mail")
REQUESTS = ("book a flight", "is there mail", "find me a fine hotel and book it", "x")


@pytest.fixture(scope="module")
def setup():
    llm = tiny_llm()
    names = Names.of(llm, KEYS)
    cut = frame(llm, PLANNING, names.written)
    return llm, names, cut, TokenTrie(dict(enumerate(names.lines)))


def search(setup, requests, width=1, max_length=3, trie=None, stats=None):
    llm, _, cut, whole = setup
    reader = Reader(llm).start(cut.before)
    pieces = [(0, llm.embed([*llm.tokens(text), *cut.after])) for text in requests]
    segments, logits = reader.read(pieces)
    return constrained_search(
        reader,
        segments,
        logits,
        trie or whole,
        cut.end,
        width=width,
        max_length=max_length,
        stats=stats,
    )


@torch.no_grad()
def log_prob_of(setup, request, plan, max_length=3):
    """Log probability of a plan's choices, token by token on the whole prompt."""
    llm, names, cut, trie = setup
    ids = [*cut.before, *llm.tokens(request), *cut.after]
    total, node, written = 0.0, ROOT, 0
    for token in plan_tokens(names.lines, plan, cut.end):
        legal = trie.legal(node, written, cut.end, max_length)
        if len(legal) > 1:
            row = llm.model(input_ids=torch.tensor([ids])).logits[0, -1]
            total += float(row[legal].log_softmax(0)[legal.index(token)])
        ids.append(token)
        if token != cut.end:
            node = trie.children[node][token]
            if trie.tool[node] is not None:
                node, written = ROOT, written + 1
    return total


def test_a_wide_beam_finds_the_likeliest_of_all_plans(setup):
    plans = [p for n in (1, 2) for p in itertools.product(range(len(KEYS)), repeat=n)]
    for request in REQUESTS[:2]:
        (found,) = search(setup, [request], width=len(plans), max_length=2)
        exact = {plan: log_prob_of(setup, request, plan, 2) for plan in plans}
        assert found[0].plan == max(exact, key=exact.get)
        for plan, log_prob, _ in found[:8]:
            assert log_prob == pytest.approx(exact[plan], abs=1e-3)
        assert len({ranked.plan for ranked in found}) == len(found)


def test_all_probability_is_shared_among_legal_plans(setup):
    (found,) = search(setup, [REQUESTS[0]], width=10_000, max_length=2)
    assert len(found) == 5 + 25
    assert sum(torch.tensor([r.log_prob for r in found]).exp()) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("width", [1, 3])
def test_requests_decoded_together_get_what_each_gets_alone(setup, width):
    together = search(setup, REQUESTS, width=width)
    for request, group in zip(REQUESTS, together, strict=True):
        (alone,) = search(setup, [request], width=width)
        assert [r.plan for r in group] == [r.plan for r in alone]
        assert [r.log_prob for r in group] == pytest.approx([r.log_prob for r in alone], abs=1e-4)


def test_forced_tokens_cost_no_pass(setup):
    stats = DecodeStats()
    search(setup, REQUESTS[:1], stats=stats)
    assert 0 < stats.forced < stats.tokens
    assert stats.passes <= stats.tokens - stats.forced


def test_a_plan_is_never_longer_than_allowed_and_never_empty(setup):
    for group in search(setup, REQUESTS, width=4, max_length=1):
        assert all(len(ranked.plan) == 1 for ranked in group)


def test_one_tool_and_one_place_leave_no_choice_at_all(setup):
    _, names, _, _ = setup
    stats = DecodeStats()
    trie = TokenTrie({2: names.lines[2]})
    (group,) = search(setup, ["x"], trie=trie, max_length=1, stats=stats)
    assert group[0].plan == (2,)
    assert group[0].log_prob == 0.0
    assert stats.passes == 0


def test_one_tool_is_written_as_often_as_the_model_wants(setup):
    _, names, _, _ = setup
    (group,) = search(setup, ["x"], trie=TokenTrie({2: names.lines[2]}), width=5, max_length=4)
    assert {r.plan for r in group} == {(2,) * n for n in (1, 2, 3, 4)}
