import json
import math
from dataclasses import replace

import numpy as np
import pytest

from models.errors import MissingMetric, NotEnoughData
from models.gate import Candidate, GatePolicy, decide_promotion
from models.metrics import METRICS, Scores

QUICK = GatePolicy(resamples=500)


def scores(n_f1, *, l_f1=None, ned=None, exact=None, ids=None, convention="strict"):
    """Scores with the other metrics derived from n_f1 where they are not given."""
    n_f1 = np.asarray(n_f1, dtype=float)
    return Scores(
        convention=convention,
        ids=tuple(ids or map(str, range(len(n_f1)))),
        n_f1=n_f1,
        l_f1=n_f1 if l_f1 is None else np.asarray(l_f1, dtype=float),
        l_f1_adjacent=n_f1,
        ned=1 - n_f1 if ned is None else np.asarray(ned, dtype=float),
        exact=(n_f1 == 1).astype(float) if exact is None else np.asarray(exact, dtype=float),
        weights={metric: np.ones(len(n_f1)) for metric in METRICS},
        failed=np.zeros(len(n_f1), dtype=bool),
    )


def new(**suites):
    return Candidate("gtool 7", suites)


def old(**suites):
    return Candidate("champion 6", suites)


def decide(challenger, champion, baselines=(), policy=QUICK, **options):
    return decide_promotion(challenger, champion, baselines, policy, **options)


def row(decision, suite, metric, against="champion 6"):
    (found,) = [
        r
        for r in decision.comparisons
        if (r.suite, r.metric, r.against, r.slice) == (suite, metric, against, None)
    ]
    return found


def planner(generator, quality, hard):
    """Per-request scores of a planner: hard requests are hard for everyone, the rest is luck."""
    n_f1 = np.clip(np.round(quality - hard + generator.normal(0, 0.15, len(hard)), 1), 0, 1)
    return scores(n_f1)


HALF = [0.5] * 40


def test_a_clear_gain_is_promoted_with_a_sentence_that_gives_the_numbers():
    better = np.where(np.arange(40) < 30, 0.6, 0.5)
    decision = decide(new(demo=scores(better)), old(demo=scores(HALF)))
    assert decision.verdict == "promote"
    assert decision.primary_suite == "demo"
    assert decision.reasons[0] == (
        "gtool 7 plans better than champion 6 on demo "
        "and on no suite significantly worse in n-F1, l-F1 or NED."
    )
    assert decision.reasons[1].startswith(
        "gtool 7 against champion 6 on demo: n-F1 +0.075 (95 % interval +0.0"
    )
    assert decision.reasons[1].endswith("), better.")
    assert decision.reasons[2] == (
        "Exact plans on demo: gtool 7 0.0 %, champion 6 0.0 % (McNemar p = 1.000)."
    )
    assert decision.reasons[3].startswith("With 40 requests, demo finds a drop in n-F1 of 0.0")
    assert row(decision, "demo", "ned").gain.mean == pytest.approx(0.075)  # more is better


def test_a_clear_loss_is_kept_out():
    worse = np.where(np.arange(40) < 30, 0.4, 0.5)
    decision = decide(new(demo=scores(worse)), old(demo=scores(HALF)))
    assert decision.verdict == "keep"
    assert decision.reasons[0] == (
        "champion 6 stays: gtool 7 is significantly worse in "
        "n-F1 on demo, l-F1 on demo and NED on demo."
    )
    assert any("NED +0.075" in r and "lower is better), worse." in r for r in decision.reasons)


def test_identical_plans_are_inconclusive():
    decision = decide(new(demo=scores(HALF)), old(demo=scores(HALF)))
    assert decision.verdict == "inconclusive"
    assert "score the same on every request" in decision.reasons[0]
    assert row(decision, "demo", "n_f1").smallest_detectable_drop is None
    assert row(decision, "demo", "exact").p_mcnemar == 1.0


def test_one_request_more_or_less_changes_nothing():
    for change in (0.5, -0.5):
        values = [0.5 + change, *HALF[1:]]
        decision = decide(new(demo=scores(values)), old(demo=scores(HALF)))
        assert decision.verdict == "inconclusive"
        assert any("Only 1 of 40 requests" in reason for reason in decision.reasons)


def test_five_gains_in_five_changes_can_be_chance_and_six_cannot():
    assert QUICK.least_changed == 6
    assert GatePolicy(confidence=0.99).least_changed == 8
    verdicts = [
        decide(
            new(demo=scores([0.9] * changed + [0.5] * (10 - changed))),
            old(demo=scores([0.5] * 10)),
        ).verdict
        for changed in (5, 6)
    ]
    assert verdicts == ["inconclusive", "promote"]


def test_a_gain_has_to_exceed_the_minimum():
    better = new(demo=scores(np.where(np.arange(40) < 30, 0.6, 0.5)))
    decision = decide(better, old(demo=scores(HALF)), policy=replace(QUICK, minimum_gain=0.08))
    assert decision.verdict == "inconclusive"
    assert any("surely above 0.080" in reason for reason in decision.reasons)


def test_a_loss_in_another_metric_blocks_a_gain():
    better = np.where(np.arange(40) < 30, 0.6, 0.5)
    decision = decide(new(demo=scores(better, l_f1=np.array(HALF) - 0.1)), old(demo=scores(HALF)))
    assert decision.verdict == "keep"
    assert "in l-F1 on demo." in decision.reasons[0]


def test_a_loss_on_a_small_suite_blocks_a_gain_on_the_large_one():
    better = np.where(np.arange(40) < 30, 0.6, 0.5)
    decision = decide(
        new(large=scores(better), small=scores([0.4] * 8)),
        old(large=scores(HALF), small=scores([0.5] * 8)),
    )
    assert decision.verdict == "keep"
    assert decision.primary_suite == "large"
    assert "on small" in decision.reasons[0]


def test_a_small_suite_without_a_loss_does_not_block():
    better = np.where(np.arange(40) < 30, 0.6, 0.5)
    wild, calm = [0.0, 1.0, 0.5, 0.5, 0.9, 0.1], [1.0, 0.0, 0.5, 0.5, 0.1, 0.9]
    decision = decide(
        new(large=scores(better), small=scores(wild)), old(large=scores(HALF), small=scores(calm))
    )
    assert row(decision, "small", "n_f1").gain.low < -0.1
    assert decision.verdict == "promote"


def test_a_small_suite_with_a_mean_loss_beyond_the_margin_is_inconclusive():
    better = np.where(np.arange(40) < 30, 0.6, 0.5)
    decision = decide(
        new(large=scores(better), small=scores([0.0, 1.0, 0.4])),
        old(large=scores(HALF), small=scores([1.0, 0.0, 0.5])),
    )
    assert decision.verdict == "inconclusive"
    assert any("On small the loss in n-F1 is 0.033" in reason for reason in decision.reasons)


def test_a_large_suite_has_to_exclude_a_loss_of_the_margin():
    better = np.where(np.arange(400) < 30, 0.6, 0.5)
    shaky = np.tile([0.55, 0.45, 0.45, 0.55], 100) - 0.003
    champion = old(a=scores([0.5] * 400), b=scores([0.5] * 399))
    challenger = new(a=scores(better), b=scores(shaky[:399]))
    strict = decide(challenger, champion, policy=replace(QUICK, margin=0.0075))
    assert row(strict, "b", "n_f1").smallest_detectable_drop < 0.0075
    assert strict.verdict == "inconclusive"
    assert any("On b the loss in n-F1 may be as large as 0.00" in r for r in strict.reasons)
    assert decide(challenger, champion, policy=replace(QUICK, margin=0.01)).verdict == "promote"


def test_the_primary_suite_is_a_choice():
    challenger = new(a=scores(np.where(np.arange(40) < 30, 0.6, 0.5)), b=scores([0.5] * 50))
    champion = old(a=scores(HALF), b=scores([0.5] * 50))
    assert decide(challenger, champion).verdict == "inconclusive"
    assert decide(challenger, champion, primary="a").verdict == "promote"


def test_the_first_champion_has_to_hold_against_the_strongest_baseline():
    weak = Candidate("popularity", {"demo": scores([0.1] * 40)})
    strong = Candidate("nearest", {"demo": scores(np.where(np.arange(40) < 30, 0.7, 0.5))})
    kept = decide(new(demo=scores(HALF)), None, [weak, strong])
    assert kept.verdict == "keep"
    assert kept.reasons[0] == (
        "There is no champion yet, but gtool 7 is significantly worse than the strongest "
        "baseline, nearest, on demo."
    )
    first = decide(new(demo=scores(HALF)), None, [weak])
    assert first.verdict == "promote"
    assert "baseline, popularity, on demo" in first.reasons[0]
    equal = decide(new(demo=scores(HALF)), None, [Candidate("nearest", {"demo": scores(HALF)})])
    assert equal.verdict == "promote"


def test_without_champion_and_baseline_nothing_is_decided():
    decision = decide(new(demo=scores(HALF)), None)
    assert decision.verdict == "inconclusive"
    assert decision.reasons == ("There is no champion and no baseline to measure gtool 7 against.",)


def test_a_better_baseline_is_mentioned_but_does_not_block():
    decision = decide(
        new(demo=scores(np.where(np.arange(40) < 30, 0.6, 0.5))),
        old(demo=scores(HALF)),
        [Candidate("nearest", {"demo": scores([0.9] * 40)})],
    )
    assert decision.verdict == "promote"
    assert any("The strongest baseline is still better: gtool 7" in r for r in decision.reasons)


def test_a_worse_slice_is_worded_but_does_not_decide():
    values = np.where(np.arange(40) < 30, 0.6, 0.5)
    values[-8:] = 0.4
    decision = decide(
        new(demo=scores(values)),
        old(demo=scores(HALF)),
        slices={"demo": {"new tools": range(32, 40), "none": []}},
    )
    assert decision.verdict == "promote"
    assert any("worth a look: gtool 7 against champion 6 on demo, new tools" in r
               for r in decision.reasons)  # fmt: skip
    assert {r.slice for r in decision.comparisons} == {None, "new tools"}
    with pytest.raises(MissingMetric, match="got slices of other"):
        decide(new(demo=scores(HALF)), old(demo=scores(HALF)), slices={"other": {}})


def test_the_decision_is_plain_json_and_repeats_exactly():
    generator = np.random.default_rng(3)
    hard = generator.random(60)
    a, b = planner(generator, 1.0, hard), planner(generator, 0.95, hard)
    first, second = (decide(new(demo=a), old(demo=b)) for _ in range(2))
    assert first == second
    table = json.loads(json.dumps(first.to_json(), allow_nan=False))
    assert table["decision"] == first.verdict
    assert [r["metric"] for r in table["comparisons"]] == ["n_f1", "l_f1", "ned", "exact"]
    assert set(table["comparisons"][0]["gain"]) == {"mean", "low", "high"}


# Many seeds: equal and worse models.


def test_equal_models_are_hardly_ever_promoted():
    verdicts = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        hard = generator.random(120)
        a, b = planner(generator, 1.1, hard), planner(generator, 1.1, hard)
        verdicts.append(decide(new(demo=a), old(demo=b), policy=replace(QUICK, seed=seed)).verdict)
    assert verdicts.count("promote") <= 10  # 5 %, twice the nominal 2.5 %
    assert verdicts.count("inconclusive") >= 180


def test_equal_models_that_rarely_differ_are_hardly_ever_promoted():
    promoted = 0
    for seed in range(300):
        generator = np.random.default_rng(seed)
        a = np.full(300, 0.5)
        changed = generator.choice(300, size=generator.integers(3, 9), replace=False)
        a[changed] += generator.choice([-0.5, 0.5], size=len(changed))
        decision = decide(new(demo=scores(a)), old(demo=scores([0.5] * 300)))
        promoted += decision.verdict == "promote"
    assert promoted <= 15


def test_a_planted_worse_model_is_never_promoted_and_a_better_one_is():
    worse, better = [], []
    for seed in range(40):
        generator = np.random.default_rng(seed)
        hard = generator.random(200)
        champion = planner(generator, 1.1, hard)
        loser, winner = planner(generator, 1.0, hard), planner(generator, 1.2, hard)
        worse.append(decide(new(demo=loser), old(demo=champion)).verdict)
        better.append(decide(new(demo=winner), old(demo=champion)).verdict)
    assert "promote" not in worse
    assert worse.count("keep") >= 38
    assert better.count("promote") >= 38


# What can never promote.


def broken(metric, value):
    good = scores(np.where(np.arange(40) < 30, 0.9, 0.5))
    values = good.values(metric).copy()
    values[3] = value
    return replace(good, **{metric: values})


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_a_number_is_an_error(metric, value):
    message = f"40 finite values of {metric} of gtool 7 on demo, got 40, 1 of them not a number"
    with pytest.raises(MissingMetric, match=message):
        decide(new(demo=broken(metric, value)), old(demo=scores(HALF)))
    with pytest.raises(MissingMetric, match="of nearest on demo"):
        decide(
            new(demo=scores(HALF)), None, [Candidate("nearest", {"demo": broken(metric, value)})]
        )


def test_an_array_that_is_too_short_is_an_error():
    short = replace(scores(HALF), n_f1=np.ones(39))
    with pytest.raises(MissingMetric, match=r"expected 40 finite values of n_f1 .* got 39"):
        decide(new(demo=short), old(demo=scores(HALF)))


def test_no_suite_and_an_empty_suite_are_errors():
    with pytest.raises(NotEnoughData, match="at least one suite scored by gtool 7, got none"):
        decide(new(), old(demo=scores(HALF)))
    with pytest.raises(NotEnoughData, match="at least one request in suite b, got none"):
        decide(new(a=scores(HALF), b=scores([])), old(a=scores(HALF), b=scores([])))


def test_a_missing_suite_is_an_error_on_either_side():
    both = {"a": scores(HALF), "b": scores(HALF)}
    with pytest.raises(MissingMetric, match="champion 6 on suite b, got only a"):
        decide(new(**both), old(a=scores(HALF)))
    with pytest.raises(MissingMetric, match="gtool 7 on suite b, got only a"):
        decide(new(a=scores(HALF)), old(**both))
    with pytest.raises(MissingMetric, match="gtool 7 on suite c, got only a and b"):
        decide(new(**both), old(**both), primary="c")
    with pytest.raises(MissingMetric, match="nearest on suite a, got only b"):
        decide(new(**both), old(**both), [Candidate("nearest", {"b": scores(HALF)})])


def test_other_requests_are_an_error():
    ids = [*map(str, range(39)), "x"]
    with pytest.raises(
        MissingMetric, match="in the same order from champion 6, got 'x' in place of '39'"
    ):
        decide(new(demo=scores(HALF)), old(demo=scores(HALF, ids=ids)))
    with pytest.raises(MissingMetric, match=r"expected the 40 requests .* got 39 requests"):
        decide(new(demo=scores(HALF)), old(demo=scores(HALF[:39])))


def test_conventions_do_not_mix_and_pooled_scores_are_refused():
    with pytest.raises(MissingMetric, match="strict convention of champion 6 on demo, got gtool"):
        decide(new(demo=scores(HALF)), old(demo=scores(HALF, convention="gtool")))
    pooled = scores(HALF, convention="taskbench")
    with pytest.raises(MissingMetric, match="got taskbench, which pools"):
        decide(new(demo=pooled), old(demo=pooled))


def test_a_policy_that_passes_anything_is_refused():
    with pytest.raises(MissingMetric, match="got 'f1'"):
        GatePolicy(primary_metric="f1")
    with pytest.raises(ValueError, match="margin and a minimum_gain of 0 or more, got nan"):
        GatePolicy(margin=math.nan)
    with pytest.raises(ValueError, match="confidence above 0 and below 1, got 95"):
        GatePolicy(confidence=95.0)


def test_surely_fewer_exact_plans_are_told_though_they_do_not_decide():
    better_but_never_exact = scores(n_f1=np.full(60, 0.9), exact=np.zeros(60))
    champion = scores(
        n_f1=np.full(60, 0.7) + np.tile([0.0, 0.1], 30), exact=np.tile([1.0, 0.0], 30)
    )
    decision = decide_promotion(
        Candidate("gtool 7", {"demo": better_but_never_exact}),
        Candidate("champion 6", {"demo": champion}),
    )
    assert decision.verdict == "promote"
    assert any("surely fewer, though this metric does not decide" in r for r in decision.reasons)
