import json
import math

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2, chi2_contingency

from models import drift as tested
from models.drift import drift


def counts(values, prefix="t"):
    return {(f"{prefix}{i}",): int(value) for i, value in enumerate(values) if value}


def compare(old, new, known=None):
    cells = sorted({*old, *new})
    uses = pl.DataFrame(
        {
            "tool": [cell[0] for cell in cells],
            "num_old": [old.get(cell, 0) for cell in cells],
            "num_new": [new.get(cell, 0) for cell in cells],
        },
        schema={"tool": pl.String, "num_old": pl.Int64, "num_new": pl.Int64},
    )
    return tested.compare(uses, known=None if known is None else pl.Series(known))


def zipf(num, power=1.0):
    weights = 1 / np.arange(1, num + 1) ** power
    return weights / weights.sum()


def nodes(**calls):
    return pl.DataFrame(
        {"key": list(calls), "num_ok": list(calls.values())},
        schema={"key": pl.String, "num_ok": pl.Int64},
    ).with_columns(num_unrecorded=pl.lit(0, pl.Int64), num_failed=pl.lit(0, pl.Int64))


def edges(*rows):
    return pl.DataFrame(
        rows,
        schema={
            "source": pl.String,
            "target": pl.String,
            "kind": pl.String,
            "num_seen": pl.Int64,
        },
        orient="row",
    )


@pytest.mark.parametrize(
    ("shares", "num_old", "num_new"),
    [
        (np.array([0.6, 0.3, 0.1]), 400, 60),
        pytest.param(zipf(150), 3_000, 1_000, marks=pytest.mark.slow),
    ],
)
def test_two_samples_of_one_source_raise_as_many_alarms_as_alpha_says(shares, num_old, num_new):
    drawn = np.random.default_rng(0)
    found = [
        compare(
            counts(drawn.multinomial(num_old, shares)), counts(drawn.multinomial(num_new, shares))
        )
        for _ in range(500)
    ]
    # 500 draws at 5 %: 25 expected, with a standard deviation of 5.
    assert 10 <= sum(c.p_value < 0.05 for c in found) <= 40
    assert sum(c.unseen_p < 0.05 for c in found) <= 40
    assert sum(c.verdict == "drifted" for c in found) <= 10
    assert np.mean([c.unseen_share - c.unseen_expected for c in found]) == pytest.approx(
        0, abs=0.005
    )


def test_g_is_that_of_scipy_with_williams_correction():
    old, new = [40, 30, 20, 10], [20, 30, 30, 40]
    found = compare(counts(old), counts(new))
    told = chi2_contingency([old, new], correction=False, lambda_="log-likelihood")
    n, rows, columns = 220, (100, 120), (60, 60, 50, 50)
    scatter = (sum(n / r for r in rows) - 1) * (sum(n / c for c in columns) - 1)
    assert found.degrees == told.dof
    assert found.g == pytest.approx(told.statistic / (1 + scatter / (6 * n * 3)))
    assert found.p_value == pytest.approx(chi2.sf(found.g, 3))


def test_planted_drift_is_found_and_named():
    drawn = np.random.default_rng(1)
    before, after = zipf(30), zipf(30).copy()
    after[[2, 7]] += [-0.06, 0.06]
    found = compare(
        counts(drawn.multinomial(20_000, before)), counts(drawn.multinomial(5_000, after))
    )
    assert found.verdict == "drifted"
    first, second = found.contributors[:2]
    assert {first.what, second.what} == {("t2",), ("t7",)}
    rose = first if first.what == ("t7",) else second
    assert rose.change == pytest.approx(0.06, abs=0.01)
    assert "t7 rose from 3.1% to" in found.reason


def test_a_sample_of_the_needed_size_finds_the_drift_it_was_computed_for():
    drawn = np.random.default_rng(2)
    shares = np.ones(10) / 10
    moved = shares * np.where(np.arange(10) < 5, 1.236, 0.764)  # 50 to 50 becomes 62 to 38
    before = counts(drawn.multinomial(50_000, shares))
    needed = compare(before, counts(drawn.multinomial(9_000, shares))).needed
    hits = sum(
        compare(before, counts(drawn.multinomial(needed, moved))).p_value < 0.005
        for _ in range(100)
    )
    assert 70 <= hits <= 95


def test_disjoint_samples_are_as_far_apart_as_can_be():
    found = compare(counts([50] * 10), counts([50] * 10, prefix="u"))
    assert found.verdict == "drifted"
    assert found.distance == pytest.approx(1)
    assert found.unseen_share == 1
    assert (found.unseen_cells, found.cells_old, found.cells_new) == (10, 10, 10)


def test_a_new_tool_is_seen_though_all_others_go_on_as_before():
    old = counts([1_000] * 10)
    found = compare(old, {**counts([190] * 10), ("fresh",): 100}, known=["t0"])
    assert found.verdict == "drifted"
    assert found.unseen_share == pytest.approx(0.05)
    assert found.unseen_expected < 1e-6
    assert found.contributors[0].what == ("fresh",)
    assert (found.contributors[0].num_old, found.contributors[0].is_new) == (0, True)


def test_many_rare_new_tools_are_drift_though_each_is_too_rare_to_test():
    old = {**counts([500] * 10), **counts([1] * 100, prefix="rare")}
    new = {**counts([490] * 10), **counts([2] * 400, prefix="fresh")}
    found = compare(old, new)
    assert found.verdict == "drifted"
    assert found.unseen_p < 1e-3
    assert found.unseen_cells == 400


def test_rare_tools_that_turn_up_late_are_no_drift():
    drawn = np.random.default_rng(3)
    shares = zipf(5_000)
    found = compare(
        counts(drawn.multinomial(3_000, shares)), counts(drawn.multinomial(3_000, shares))
    )
    assert found.unseen_share > 0.15
    assert found.unseen_share == pytest.approx(found.unseen_expected, abs=0.02)
    assert found.verdict != "drifted"


def test_equal_shares_have_no_distance():
    found = compare(counts([300, 200, 100]), counts([600, 400, 200]))
    assert (found.verdict, found.g, found.distance) == ("stable", 0, 0)
    assert found.contributors == ()


@pytest.mark.parametrize(
    ("old", "new"), [({}, {}), ({}, {("a",): 5}), ({("a",): 5}, {}), ({("a",): 3}, {("b",): 3})]
)
def test_too_little_is_said_and_nothing_is_not_a_number(old, new):
    found = compare(old, new)
    assert found.verdict == "too_little"
    assert "too little to tell" in found.reason
    numbers = [found.g, found.p_value, found.distance, found.unseen_p, found.unseen_expected]
    assert all(math.isfinite(number) for number in numbers)


def test_one_tool_alone_cannot_drift_but_may_be_seen_too_seldom():
    assert compare({("a",): 5_000}, {("a",): 5_000}).verdict == "stable"
    small = compare({("a",): 5_000}, {("a",): 10})
    assert small.verdict == "too_little"
    assert f"from {small.needed:,} on" in small.reason
    assert compare({("a",): 10}, {("a",): 10**6}).needed is None


def test_with_millions_of_calls_a_small_difference_is_significant_and_no_drift():
    found = compare({("a",): 10**9, ("b",): 10**9}, {("a",): 10**9, ("b",): 10**9 + 10**6})
    assert found.p_value < 1e-6
    assert found.verdict == "stable"
    assert "measurable but small" in found.reason
    huge = compare({("a",): 10**15, ("b",): 10**15}, {("a",): 10**15, ("b",): 2 * 10**15})
    assert huge.verdict == "drifted"
    assert math.isfinite(huge.g)


def test_only_what_came_since_is_compared():
    old = nodes(a=5_000, b=5_000)
    new = nodes(a=5_000, b=7_000)
    found = drift(old, edges(), new, edges())
    assert (found.tools.num_old, found.tools.num_new) == (10_000, 2_000)
    assert found.tools.contributors[0].share_new in (0, 1)
    assert found.verdict == "drifted"
    whole = drift(old, edges(), new, edges(), is_continued=False)
    assert whole.tools.num_new == 12_000
    assert whole.tools.beyond_chance < found.tools.beyond_chance
    same = drift(old, edges(), old, edges())
    assert (same.verdict, same.tools.num_new) == ("too_little", 0)


def test_edges_are_compared_by_kind_over_outcomes_and_days():
    tools = nodes(a=5_000, b=5_000, c=5_000)
    later = nodes(a=10_000, b=10_000, c=10_000)
    old = edges(
        ("a", "b", "adjacent", 1_500), ("a", "b", "adjacent", 1_500), ("b", "c", "adjacent", 3_000)
    )
    new = edges(
        ("a", "b", "adjacent", 3_000), ("b", "c", "adjacent", 3_000), ("c", "a", "adjacent", 2_000)
    )
    found = drift(tools, old, later, new)
    assert found.tools.verdict == "stable"
    assert found.dataflow is None
    assert found.adjacent.verdict == "drifted"
    assert found.adjacent.unseen_share == 1
    assert found.adjacent.contributors[0].what == ("c", "a")
    assert found.verdict == "drifted"
    assert [reason.split(":")[0] for reason in found.reasons] == [
        "Calls of tools",
        "Adjacent edges",
    ]
    declared = edges(("a", "b", "declared", 9))
    assert drift(tools, declared, later, declared).adjacent is None


def test_calls_that_were_taken_back_are_told():
    found = drift(nodes(a=100, b=100), edges(), nodes(a=90, b=300), edges())
    assert found.taken_back == 10
    assert found.tools.num_new == 200
    assert "10 calls of the older version are not in the newer one" in found.reasons[-1]


def test_drift_is_plain_json_whatever_the_order_of_rows():
    old, new = nodes(a=500, b=400, c=1), nodes(a=900, b=1_800, c=2, d=50)
    told = drift(old, edges(("a", "b", "adjacent", 9)), new, edges(("a", "b", "adjacent", 50)))
    again = drift(
        old.reverse(),
        edges(("a", "b", "adjacent", 9)),
        new.reverse(),
        edges(("a", "b", "adjacent", 50)),
    )
    assert json.dumps(told.to_json()) == json.dumps(again.to_json())
    assert told.to_json()["tools"]["contributors"][0]["what"] in (["a"], ["b"], ["d"])


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="alpha"):
        drift(nodes(), edges(), nodes(), edges(), alpha=0.0)
    with pytest.raises(ValueError, match="most"):
        drift(nodes(), edges(), nodes(), edges(), most=0)
