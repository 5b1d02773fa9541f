import math
from itertools import product
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import MissingMetric, NotEnoughData
from models.statistics import (
    bootstrap_mean,
    mcnemar,
    paired_bootstrap,
    smallest_detectable_drop,
    weighted_mean,
)

unit = st.floats(0, 1, width=32)


def test_a_constant_difference_has_an_interval_of_no_width():
    interval = paired_bootstrap([0.75, 0.5, 1.0], [0.5, 0.25, 0.75], seed=3)
    assert (interval.mean, interval.low, interval.high) == (0.25, 0.25, 0.25)


def test_one_request_is_its_own_interval():
    interval = bootstrap_mean([0.5])
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    a, b = np.random.default_rng(0).random((2, 80))
    assert paired_bootstrap(a, b, seed=1) == paired_bootstrap(a, b, seed=1)
    assert paired_bootstrap(a, b, seed=1) != paired_bootstrap(a, b, seed=2)


def test_swapping_the_sides_mirrors_the_interval():
    a, b = np.random.default_rng(1).random((2, 60))
    there, back = paired_bootstrap(a, b), paired_bootstrap(b, a)
    assert there.low == pytest.approx(-back.high)
    assert there.high == pytest.approx(-back.low)


@given(st.lists(unit, min_size=1, max_size=12), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_the_interval_equals_a_slow_one_draw_by_draw(values, seed):
    drawn = np.random.default_rng(seed).integers(0, len(values), size=(200, len(values)))
    means = sorted(mean(values[i] for i in row) for row in drawn.tolist())
    interval = bootstrap_mean(values, resamples=200, confidence=0.9, seed=seed)
    assert interval.mean == pytest.approx(mean(values))
    assert interval.low == pytest.approx(np.quantile(means, 0.05), abs=1e-9)
    assert interval.high == pytest.approx(np.quantile(means, 0.95), abs=1e-9)


@given(st.lists(st.tuples(unit, st.integers(0, 4)), min_size=1, max_size=12))
@settings(max_examples=30, deadline=None)
def test_a_weighted_interval_equals_a_slow_one(pairs):
    drawn = np.random.default_rng(0).integers(0, len(pairs), size=(100, len(pairs)))

    def slow(rows):
        total = sum(weight for _, weight in rows)
        if total == 0:
            return mean(value for value, _ in rows)
        return sum(value * weight for value, weight in rows) / total

    means = [slow([pairs[i] for i in row]) for row in drawn.tolist()]
    values, weights = zip(*pairs, strict=True)
    values, weights = np.asarray(values, dtype=float), np.asarray(weights, dtype=float)
    interval = bootstrap_mean(values, weights=weights, resamples=100)
    assert interval.mean == pytest.approx(slow(pairs))
    assert interval.low == pytest.approx(np.quantile(means, 0.025), abs=1e-9)
    assert interval.high == pytest.approx(np.quantile(means, 0.975), abs=1e-9)


def test_resampling_in_blocks_changes_no_more_than_the_draws(monkeypatch):
    values = np.random.default_rng(2).random(50)
    whole = bootstrap_mean(values, resamples=3000)
    monkeypatch.setattr("models.statistics._DRAWS_AT_ONCE", 60)
    blocks = bootstrap_mean(values, resamples=3000)
    assert blocks.mean == whole.mean
    assert blocks.low == pytest.approx(whole.low, abs=0.01)
    assert blocks.high == pytest.approx(whole.high, abs=0.01)


def test_an_interval_of_95_percent_covers_the_true_mean_about_so_often():
    generator = np.random.default_rng(5)
    covered = 0
    for seed in range(300):
        a = generator.beta(4, 2, size=100)
        b = np.clip(a - 0.05 + generator.normal(0, 0.1, size=100), -1, 2)
        interval = paired_bootstrap(a, b, resamples=400, seed=seed)
        covered += interval.low <= 0.05 <= interval.high
    assert 0.90 <= covered / 300 <= 0.985


def test_the_interval_is_that_of_the_normal_theory_on_many_requests():
    values = np.random.default_rng(6).random(4000)
    half = 1.96 * values.std() / math.sqrt(4000)
    interval = bootstrap_mean(values)
    assert interval.low == pytest.approx(values.mean() - half, abs=half / 8)
    assert interval.high == pytest.approx(values.mean() + half, abs=half / 8)


def test_mcnemar_counts_only_the_requests_one_side_got_right():
    # 5 to 1: two-sided 2 * (C(6,5) + C(6,6)) / 2^6 = 14 / 64
    a = [1, 1, 1, 1, 1, 0, 1, 0]
    b = [0, 0, 0, 0, 0, 1, 1, 0]
    assert mcnemar(a, b) == pytest.approx(14 / 64)
    assert mcnemar(b, a) == pytest.approx(14 / 64)


def test_mcnemar_of_equal_answers_is_1():
    assert mcnemar([1, 0, 1], [1, 0, 1]) == 1.0


@given(st.integers(0, 7), st.integers(0, 7))
@settings(max_examples=25, deadline=None)
def test_mcnemar_equals_counting_all_coin_throws(only_a, only_b):
    n = only_a + only_b
    a, b = [1] * only_a + [0] * only_b + [1], [0] * only_a + [1] * only_b + [1]
    off = abs(only_a - n / 2)
    throws = product([0, 1], repeat=min(n, 14))
    assert mcnemar(a, b) == pytest.approx(mean(abs(sum(t) - n / 2) >= off for t in throws))


def test_mcnemar_refuses_anything_but_right_and_wrong():
    with pytest.raises(MissingMetric, match=r"only 0 and 1 in b, got 0\.5"):
        mcnemar([1, 0], [1, 0.5])


def test_four_times_the_requests_halve_the_detectable_drop():
    differences = [0.1, -0.1, 0.2, 0.0]
    drop = smallest_detectable_drop(differences)
    assert drop == pytest.approx((1.959964 + 0.841621) * np.std(differences, ddof=1) / 2)
    assert smallest_detectable_drop(differences, n=16) == pytest.approx(drop / 2)


def test_the_detectable_drop_is_found_about_as_often_as_its_power_says():
    generator = np.random.default_rng(8)
    drop = smallest_detectable_drop(generator.normal(0, 0.2, size=5000), n=100, power=0.8)
    found = sum(
        paired_bootstrap(
            generator.normal(-drop, 0.2, 100), np.zeros(100), resamples=300, seed=s
        ).high
        < 0
        for s in range(200)
    )
    assert 0.7 <= found / 200 <= 0.9


def test_no_scatter_is_detectable_at_once_and_one_difference_says_nothing():
    assert smallest_detectable_drop([0.1, 0.1]) == pytest.approx(0)
    with pytest.raises(NotEnoughData, match=r"at least 2 differences.* got 1"):
        smallest_detectable_drop([0.1])
    with pytest.raises(NotEnoughData, match="at least 1 request, got 0"):
        smallest_detectable_drop([0.1, 0.2], n=0)


def test_the_mean_is_plain_where_nothing_carries_weight():
    values = np.array([0.0, 1.0])
    assert weighted_mean(values) == 0.5
    assert weighted_mean(values, np.array([3.0, 1.0])) == 0.25
    assert weighted_mean(values, np.zeros(2)) == 0.5


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([], [], "at least one request in a, got none"),
        ([0.5], [0.5, 0.1], "1 numbers in b.* got 2"),
        ([0.5, math.nan], [0.5, 0.1], "finite numbers in a, got nan at request 1"),
        ([0.5, 0.1], [math.inf, 0.1], "finite numbers in b, got inf at request 0"),
        ([[0.5]], [0.5], r"one number a request in a, got shape \(1, 1\)"),
    ],
)
@pytest.mark.parametrize("test", [paired_bootstrap, mcnemar])
def test_what_is_not_a_pair_of_numbers_is_refused(test, a, b, message):
    with pytest.raises(MissingMetric, match=message):
        test(a, b)


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ValueError, match="at least 1 resample, got 0"):
        bootstrap_mean([1.0], resamples=0)
    with pytest.raises(ValueError, match="confidence above 0 and below 1, got 95"):
        bootstrap_mean([1.0], confidence=95.0)
    with pytest.raises(ValueError, match="power and confidence"):
        smallest_detectable_drop([0.1, 0.2], power=1.0)
    with pytest.raises(MissingMetric, match="weights of 0 or more, got -1"):
        bootstrap_mean([1.0, 0.0], weights=np.array([1.0, -1.0]))
