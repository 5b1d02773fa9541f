import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models.predicted as predicted
from models.errors import GraphMismatch
from models.predicted import (
    FEATURES,
    EdgeCalibrator,
    Evidence,
    PairFeatures,
    TextSide,
    agreement,
    edge_evidence,
    expected_new_edges,
    fit_calibrator,
    foretell,
    likeliest,
    predict_edges,
    reliability,
)
from models.types import Example, ToolGraph, empty_edges


def graph_of(edges, num_tools, counts=None):
    keys = tuple(f"s/t{i:03}" for i in range(num_tools))
    index, seen = empty_edges()
    if edges:
        index = torch.tensor(sorted(edges)).T.contiguous()
        times = [counts.get(e, 1) if counts else 1 for e in sorted(edges)]
        seen = torch.tensor([[float(t), 0.0] for t in times])
    return ToolGraph("v", keys, keys, index, seen)


def example(graph, *tools, links=()):
    return Example("x", "do it", tuple(graph.keys[t] for t in tools), tuple(links), bool(links))


def world(num_sequences, num_tools=90, seed=0):
    """(text, rates, evidence): sequences of one pair each, drawn by known rates.

    Pairs from the first to the second of three groups, which the texts tell apart, are common; the
    rates within are uneven, all others are rare.
    """
    rng = np.random.default_rng(seed)
    group = np.arange(num_tools) % 3
    centres = rng.normal(size=(3, 8))
    x = centres[group] + 0.3 * rng.normal(size=(num_tools, 8))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    rates = np.where((group[:, None] == 0) & (group[None] == 1), 1.0, 0.001)
    rates *= rng.gamma(4.0, 0.25, size=rates.shape)
    np.fill_diagonal(rates, 0.0)
    rates /= rates.sum()
    drawn = rng.choice(num_tools**2, size=num_sequences, p=rates.ravel())
    pairs = np.stack([drawn // num_tools, drawn % num_tools], axis=1).astype(np.int64)
    text = TextSide.of(torch.tensor(x).float(), [f"s/{i}" for i in range(num_tools)])
    return text, rates, Evidence(num_sequences, np.arange(num_sequences), pairs)


def test_known_probabilities_are_recovered():
    text, rates, evidence = world(1200)
    _, _, later = world(0)
    pairs, probability = foretell(text, evidence, later, np.random.default_rng(1))
    graph = PairFeatures(text, evidence.counts(len(text.x)))
    truth = 1 - np.exp(-1200 * rates[graph.free(np.arange(len(text.x)))])
    assert len(truth) == len(probability) == pairs.weight.sum()
    assert probability.sum() == pytest.approx(truth.sum(), rel=0.25)
    common = truth > 0.05
    assert probability[common].mean() == pytest.approx(truth[common].mean(), rel=0.3)
    assert probability[~common].mean() == pytest.approx(truth[~common].mean(), rel=0.5)


def test_what_is_foretold_comes_and_beats_the_base_rate_and_text_alone():
    text, _, evidence = world(1800)
    now, later = evidence.halves(np.random.default_rng(0))
    told = {}
    for name, features in {"all": FEATURES, "text": ("cosine",)}.items():
        pairs, probability = foretell(text, now, later, np.random.default_rng(0), features)
        told[name] = agreement(probability, pairs.is_edge, pairs.weight)
    best = told["all"]
    assert best["log_loss"] < 0.8 * best["base_log_loss"]
    assert best["brier"] < best["base_brier"]
    assert best["auc"] > 0.85
    assert best["relative_calibration_error"] < 0.4
    assert best["average_precision"] > told["text"]["average_precision"]
    assert best["log_loss"] < told["text"]["log_loss"]


def test_a_pair_that_comes_later_is_judged_without_it():
    text, _, evidence = world(200, num_tools=20)
    now, later = evidence.halves(np.random.default_rng(0))
    nothing = later.of(np.zeros(later.num_sequences, dtype=bool))
    found = [foretell(text, now, what, np.random.default_rng(0)) for what in (later, nothing)]
    assert found[0][0].is_edge.sum() > 0
    assert sorted(found[0][1]) == pytest.approx(sorted(found[1][1]))


@pytest.mark.parametrize("seed", range(3))
def test_the_number_of_new_edges_is_foreseen(seed):
    text, rates, evidence = world(1000, seed=seed)
    seen = evidence.counts(len(text.x)).toarray() > 0
    new = (1 - np.exp(-1000 * rates[~seen])).sum()
    assert expected_new_edges(evidence, len(text.x)) == pytest.approx(new, rel=0.35)


def test_evidence_is_counted_by_sequence():
    graph = graph_of([(0, 1), (1, 2), (0, 2)], 4, counts={(0, 2): 2})
    examples = [example(graph, 0, 1, 2), example(graph, 0, 1, 2), example(graph, 3, 0, 1)]
    evidence = edge_evidence(graph, examples)
    assert evidence.num_sequences == 4  # two, and the two tellings that no example accounts for
    expected = np.zeros((4, 4))
    expected[0, 1], expected[1, 2], expected[0, 2] = 2, 1, 2
    np.testing.assert_array_equal(evidence.counts(4).toarray(), expected)
    linked = edge_evidence(graph, [example(graph, 0, 3, 2, links=[(0, 2)])])
    assert linked.pairs[0].tolist() == [0, 2]


def scored(num_tools, edges, most, least=0.0, expected=10.0, seed=0):
    """Predictions of a made-up calibrator, and the evidence."""
    rng = np.random.default_rng(seed)
    x = torch.nn.functional.normalize(torch.tensor(rng.normal(size=(num_tools, 6))).float(), dim=1)
    text = TextSide.of(x, [f"s/{i}" for i in range(num_tools)])
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    evidence = Evidence(len(pairs), np.arange(len(pairs)), pairs)
    size = len(FEATURES)
    calibrator = EdgeCalibrator(np.zeros(size), np.ones(size), rng.normal(size=size), -3.0)
    counts = evidence.counts(num_tools)
    found = likeliest(text, counts, calibrator, expected, most=most, min_probability=least)
    return found, (text, counts, calibrator)


edge_lists = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda e: e[0] != e[1]), unique=True
)


@settings(max_examples=15, deadline=None)
@given(edge_lists, st.integers(0, 4), st.sampled_from([0.0, 0.2, 1.0]), st.integers(1, 40))
def test_what_is_predicted_is_new_likely_and_bounded(edges, most, least, at_once):
    found, parts = scored(11, edges, most, least)
    pairs = [tuple(pair) for pair in found.edge_index.T.tolist()]
    assert pairs == sorted(set(pairs) - set(edges))
    assert all(s != t for s, t in pairs)
    warm = {end for edge in edges for end in edge}
    cold = set(range(11)) - warm
    assert cold <= {s for s, _ in pairs}
    assert cold <= {t for _, t in pairs}
    for (source, target), p in zip(pairs, found.probability.tolist(), strict=True):
        assert 0 <= p <= 1
        assert p >= least - 1e-6 or {source, target} & cold
    leaving = [s for s, t in pairs if s in warm and t in warm]
    assert all(len(list(group)) <= most for _, group in itertools.groupby(leaving))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicted, "MOST_PAIRS", at_once)
        again = likeliest(*parts, 10.0, most=most, min_probability=least)
    assert torch.equal(found.edge_index, again.edge_index)
    torch.testing.assert_close(found.probability, again.probability)


def test_without_a_limit_probabilities_sum_to_what_is_expected():
    found, _ = scored(12, [(0, 1), (1, 2), (4, 5)], most=11, expected=6.0)
    assert found.edge_index.size(1) == 12 * 11 - 3
    assert found.probability.sum().item() == pytest.approx(6.0, rel=0.01)


def test_a_cold_tool_gets_the_edges_of_its_likest():
    text, _, evidence = world(1800)
    names = [f"s/t{i:03}" for i in range(90)]
    cold = 3  # of the group whose tools lead to the second group
    kept = ~(evidence.pairs == cold).any(axis=1)
    pairs = {tuple(p) for p in evidence.pairs[kept].tolist()}
    graph = graph_of(pairs, 90)
    rows = [example(graph, *pair) for pair in evidence.pairs[kept].tolist()]
    rows += [example(graph, cold)]
    assert graph.keys == tuple(names)
    found, metrics = predict_edges(
        graph, torch.tensor(text.x), rows, most=5, min_probability=0.05, seed=0
    )
    likely = (found.edge_index[0] == cold) & (found.probability > 0.5)
    targets = found.edge_index[1][likely].tolist()
    assert len(targets) == 5
    assert all(target % 3 == 1 for target in targets)
    assert metrics["auc"] > 0.5
    again, _ = predict_edges(
        graph, torch.tensor(text.x), rows, most=5, min_probability=0.05, seed=0
    )
    assert torch.equal(found.edge_index, again.edge_index)
    assert torch.equal(found.probability, again.probability)


@pytest.mark.parametrize("num_tools", [0, 1, 2, 5])
def test_graphs_with_next_to_nothing(num_tools):
    graph = graph_of([], num_tools)
    found, metrics = predict_edges(
        graph, torch.randn(num_tools, 4), [], most=3, min_probability=0.0, seed=0
    )
    each = num_tools * min(3, max(num_tools - 1, 0))
    assert each <= found.edge_index.size(1) <= each + num_tools
    assert all(np.isfinite(value) for value in metrics.values())


def test_vectors_must_be_those_of_the_graph():
    with pytest.raises(GraphMismatch, match="3 tools, got 2"):
        predict_edges(graph_of([], 3), torch.randn(2, 4), [], most=1, min_probability=0.0, seed=0)


scores = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1), st.integers(1, 3)), min_size=2)


@settings(max_examples=60, deadline=None)
@given(scores)
def test_agreement_counts_a_pair_as_often_as_it_weighs(rows):
    level, is_edge, weight = (np.array(column) for column in zip(*rows, strict=True))
    p = (level + 0.5) / 7
    told = agreement(p, is_edge.astype(float), weight.astype(float))
    flat = np.repeat(np.arange(len(rows)), weight)
    alone = agreement(p[flat], is_edge[flat].astype(float))
    for name in alone.keys() - {"calibration_error", "relative_calibration_error"}:
        assert told[name] == pytest.approx(alone[name])
    yes, no = p[flat][is_edge[flat] == 1], p[flat][is_edge[flat] == 0]
    assert ("auc" in told) == (len(yes) > 0 and len(no) > 0)
    if "auc" in told:
        wins = (yes[:, None] > no).sum() + (yes[:, None] == no).sum() / 2
        assert told["auc"] == pytest.approx(wins / (len(yes) * len(no)))
        precision = [is_edge[flat][p[flat] >= score].mean() for score in yes]
        assert told["average_precision"] == pytest.approx(np.mean(precision))


def test_calibration_error_of_the_truth_is_small_and_of_a_lie_large():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 3.0, size=20_000)
    came = (rng.random(20_000) < p).astype(float)
    assert agreement(p, came)["relative_calibration_error"] < 0.1
    assert agreement(p / 3, came)["relative_calibration_error"] > 1.0
    bins = reliability(p, came)
    assert sum(b.pairs for b in bins) == 20_000
    assert [b.highest for b in bins] == sorted((b.highest for b in bins), reverse=True)


def test_the_fit_uses_only_the_features_it_may():
    text, _, evidence = world(300, num_tools=20)
    fit = fit_calibrator(text, evidence, np.random.default_rng(0), ("cosine",))
    assert fit.weights[FEATURES.index("cosine")] != 0
    assert np.count_nonzero(fit.weights) == 1
