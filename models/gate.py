"""Whether a challenger may replace the champion: promote, keep or inconclusive.

The decision is a pure function of per-request scores on the very same requests, so it can be
repeated by anybody at any time. All gains are turned so that more is better.

With a champion:

* **keep** when the challenger is significantly worse anywhere: on some suite the whole interval of
  the primary metric or of a guard metric lies below zero. A small suite blocks as well as a large
  one, and a loss blocks even when it is smaller than the margin.
* **promote** when the gain of the primary metric on the primary suite is significant (the interval
  lies above ``minimum_gain``, and at least as many requests changed as a sign test needs to be
  significant at all, 6 at 95 %: a bootstrap of fewer is too sure of itself) and no guard metric
  on any suite leaves a loss beyond the margin open. Where a suite can find a loss of the margin,
  the lower end of the interval must lie above ``-margin``. Where it is too small for that (its
  smallest detectable drop exceeds the margin), the mean must not lie below ``-margin``: otherwise
  a suite of ten requests would block every challenger for ever.
* **inconclusive** otherwise, identical plans included.

Without a champion the challenger is measured against the strongest baseline (highest mean of the
primary metric on the primary suite): promote unless it is significantly worse there, then keep.
Without a baseline that is inconclusive.

Slices (new tools, plan length, namespace) are compared and worded, but never decide: among many
slices one is always unlucky.

Bad input never reaches a verdict. No suite, an empty one, a missing suite, metric or number, other
request ids, and scores of two conventions are errors, not reasons to be inconclusive: something
upstream is broken and has to be seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from models.errors import MissingMetric, NotEnoughData
from models.metrics import METRICS, Scores
from models.statistics import (
    Interval,
    Values,
    mcnemar,
    paired_bootstrap,
    smallest_detectable_drop,
)

Verdict = Literal["promote", "keep", "inconclusive"]

_LOWER_IS_BETTER = frozenset({"ned"})
_LABELS = {
    "n_f1": "n-F1",
    "l_f1": "l-F1",
    "l_f1_adjacent": "adjacent l-F1",
    "ned": "NED",
    "exact": "exact plans",
}
_ROUNDING = 1e-12  # sums that should be 0 come out as this much at most


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """What a challenger has to show.

    Attributes:
        primary_metric: The metric that has to gain.
        guard_metrics: The metrics that must not lose, on any suite.
        margin: Largest loss of a guard metric that is accepted as long as it is not significant.
        minimum_gain: The gain of the primary metric has to be above this, significantly.
        confidence: Of every two-sided interval.
        resamples: Of every bootstrap.
        power: Chance with which the stated smallest drop would be found.
        seed: Of every bootstrap; same seed, same decision.
    """

    primary_metric: str = "n_f1"
    guard_metrics: tuple[str, ...] = ("n_f1", "l_f1", "ned")
    margin: float = 0.01
    minimum_gain: float = 0.0
    confidence: float = 0.95
    resamples: int = 2000
    power: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a policy under which anything could pass."""
        for metric in (self.primary_metric, *self.guard_metrics):
            if metric not in METRICS:
                raise MissingMetric(f"expected one of {', '.join(METRICS)}, got {metric!r}")
        if not (0 <= self.margin < math.inf and 0 <= self.minimum_gain < math.inf):
            raise ValueError(
                "expected a margin and a minimum_gain of 0 or more, "
                f"got {self.margin} and {self.minimum_gain}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"expected a confidence above 0 and below 1, got {self.confidence}")

    @property
    def least_changed(self) -> int:
        """How many requests must differ before a one-sided result can be significant: 6 at 95 %."""
        return math.ceil(math.log2(2 / (1 - self.confidence)) - 1e-9)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A planner in the comparison: a name for sentences ("gtool 7") and suite to scores."""

    name: str
    scores: Mapping[str, Scores]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The challenger against one other planner, on one suite or slice of it, in one metric.

    Attributes:
        suite: Name of the suite.
        slice: Name of the slice, or None for the whole suite.
        metric: Name of the metric.
        against: Name of the other planner.
        n: Number of requests.
        changed: Requests on which the two score differently.
        challenger: Mean of the challenger, in the direction of the metric.
        other: Mean of the other planner.
        gain: Mean difference with its interval, turned so that more is better.
        p_mcnemar: Exact McNemar p-value, for the metric ``exact`` only.
        smallest_detectable_drop: Smallest true loss this comparison would find with the policy's
            power; None where the scores differ on no request or alike on all, and so show nothing
            of their scatter.
    """

    suite: str
    slice: str | None
    metric: str
    against: str
    n: int
    changed: int
    challenger: float
    other: float
    gain: Interval
    p_mcnemar: float | None
    smallest_detectable_drop: float | None

    @property
    def is_worse(self) -> bool:
        """The whole interval lies below zero."""
        return self.gain.high < -_ROUNDING

    @property
    def is_better(self) -> bool:
        """The whole interval lies above zero."""
        return self.gain.low > _ROUNDING

    def to_json(self) -> dict[str, object]:
        """The row as plain values, unrounded."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict, its reasons in whole sentences, and the table they rest on."""

    verdict: Verdict
    reasons: tuple[str, ...]
    primary_suite: str
    comparisons: tuple[Comparison, ...] = field(repr=False)

    def to_json(self) -> dict[str, object]:
        """The decision as plain values, unrounded."""
        return {
            "decision": self.verdict,
            "reasons": list(self.reasons),
            "suite": self.primary_suite,
            "comparisons": [row.to_json() for row in self.comparisons],
        }


def decide_promotion(
    challenger: Candidate,
    champion: Candidate | None,
    baselines: Sequence[Candidate] = (),
    policy: GatePolicy | None = None,
    *,
    primary: str | None = None,
    slices: Mapping[str, Mapping[str, Sequence[int]]] | None = None,
) -> Decision:
    """Decides whether the challenger may replace the champion; the rules are in the module text.

    Args:
        challenger: The new planner and its scores, suite by suite.
        champion: The present one, scored on the same suites and requests; None for none yet.
        baselines: Others, scored at least on the primary suite. They decide only without champion.
        policy: What has to be shown; default: ``GatePolicy()``.
        primary: The suite on which the gain is measured; default: the largest, the first by name
            of equally large ones.
        slices: Suite to slice name to positions of its requests; empty slices are left out, and,
            without a champion, those of other suites than the primary one.

    Raises:
        NotEnoughData: There is no suite, or an empty one.
        MissingMetric: A suite, metric or number is missing, the request ids differ, or the scores
            are of two conventions or pooled over requests.
    """
    policy = policy or GatePolicy()
    suite = _check_candidates(challenger, champion, baselines, primary)
    strongest = min(baselines, key=lambda other: _rank(other, suite, policy), default=None)
    opponent = champion or strongest
    if opponent is None:
        reason = f"There is no champion and no baseline to measure {challenger.name} against."
        return Decision("inconclusive", (reason,), suite, ())
    names = list(challenger.scores) if champion is not None else [suite]
    rows = [row for name in names for row in _compare(name, None, challenger, opponent, policy)]
    beside = []  # compared and worded, never decisive
    if champion is not None and strongest is not None:
        beside += _compare(suite, None, challenger, strongest, policy)
    for name, parts in (slices or {}).items():
        if name not in challenger.scores:
            raise MissingMetric(f"expected slices of a scored suite, got slices of {name}")
        for part, positions in parts.items():
            if len(positions) and name in names:
                beside += _compare(name, (part, positions), challenger, opponent, policy)
    if champion is not None:
        verdict, reasons = _decide(challenger, champion, rows, suite, policy)
    else:
        verdict, reasons = _decide_first(challenger, opponent, rows, suite, policy)
    reasons += _remarks(challenger, rows, beside, suite, policy)
    return Decision(verdict, tuple(reasons), suite, (*rows, *beside))


def _decide(
    challenger: Candidate,
    champion: Candidate,
    rows: Sequence[Comparison],
    suite: str,
    policy: GatePolicy,
) -> tuple[Verdict, list[str]]:
    """The verdict against a champion."""
    guards = [row for row in rows if row.metric in (policy.primary_metric, *policy.guard_metrics)]
    gain = _find(rows, suite, policy.primary_metric)
    losses = [row for row in guards if row.is_worse]
    open_losses = [row for row in guards if not _holds(row, policy)]
    told = _sentence(challenger, gain, policy)
    if losses:
        return "keep", [
            f"{champion.name} stays: {challenger.name} is significantly worse in "
            f"{_listed([f'{_LABELS[row.metric]} on {row.suite}' for row in losses])}.",
            told,
            *(_sentence(challenger, row, policy) for row in losses if row is not gain),
        ]
    if not any(row.changed for row in rows):
        return "inconclusive", [
            f"{challenger.name} and {champion.name} score the same on every request, "
            "so there is nothing to choose between them.",
        ]
    enough = gain.changed >= policy.least_changed
    if gain.gain.low > policy.minimum_gain + _ROUNDING and enough and not open_losses:
        return "promote", [
            f"{challenger.name} plans better than {champion.name} on {suite} "
            f"and on no suite significantly worse in "
            f"{_either([_LABELS[metric] for metric in policy.guard_metrics])}.",
            told,
        ]
    reasons = [f"Nothing is decided between {challenger.name} and {champion.name}.", told]
    if not enough:
        reasons.append(
            f"Only {gain.changed} of {gain.n} requests on {suite} changed their "
            f"{_LABELS[gain.metric]}; fewer than {policy.least_changed} can be chance."
        )
    elif gain.gain.low <= policy.minimum_gain + _ROUNDING:
        reasons.append(
            f"The gain has to be surely above {policy.minimum_gain:.3f} "
            f"and may be as small as {gain.gain.low:+.3f}."
        )
    for row in open_losses:
        lost = -row.gain.mean if _is_small(row, policy) else -row.gain.low
        reasons.append(
            f"On {row.suite} the loss in {_LABELS[row.metric]} "
            f"{'is' if _is_small(row, policy) else 'may be as large as'} {lost:.3f}, "
            f"beyond the margin of {policy.margin:.3f}."
        )
    return "inconclusive", reasons


def _decide_first(
    challenger: Candidate,
    strongest: Candidate,
    rows: Sequence[Comparison],
    suite: str,
    policy: GatePolicy,
) -> tuple[Verdict, list[str]]:
    """The verdict where there is no champion yet."""
    row = _find(rows, suite, policy.primary_metric)
    worse = "significantly worse than the strongest baseline"
    if row.is_worse:
        verdict: Verdict = "keep"
        reason = f"There is no champion yet, but {challenger.name} is {worse}"
    else:
        verdict = "promote"
        reason = f"There is no champion yet, and {challenger.name} is not {worse}"
    return verdict, [
        f"{reason}, {strongest.name}, on {suite}.",
        _sentence(challenger, row, policy),
    ]


def _remarks(
    challenger: Candidate,
    rows: Sequence[Comparison],
    beside: Sequence[Comparison],
    suite: str,
    policy: GatePolicy,
) -> list[str]:
    """What a reader should know beside the verdict."""
    primary = _find(rows, suite, policy.primary_metric)
    exact = _find(rows, suite, "exact")
    remarks = [
        f"Exact plans on {suite}: {challenger.name} {100 * exact.challenger:.1f} %, "
        f"{exact.against} {100 * exact.other:.1f} % (McNemar p {_p_value(exact.p_mcnemar)})"
        f"{_exact_note(exact, policy)}."
    ]
    if primary.smallest_detectable_drop is not None:
        remarks.append(
            f"With {primary.n} requests, {suite} finds a drop in {_LABELS[primary.metric]} of "
            f"{primary.smallest_detectable_drop:.3f} in {100 * policy.power:g} % of cases; "
            "a smaller one may go unseen."
        )
    for row in beside:
        if row.is_worse and row.metric == policy.primary_metric:
            told = _sentence(challenger, row, policy)
            remarks.append(
                f"The strongest baseline is still better: {told}"
                if row.slice is None
                else f"Not decisive, but worth a look: {told}"
            )
    return remarks


def _rank(candidate: Candidate, suite: str, policy: GatePolicy) -> tuple[float, str]:
    """Sort key: the best mean of the primary metric first, equal ones by name."""
    mean = candidate.scores[suite].mean(policy.primary_metric)
    return -_sign(policy.primary_metric) * mean, candidate.name


def _sign(metric: str) -> float:
    """1 where more is better, -1 where less is."""
    return -1.0 if metric in _LOWER_IS_BETTER else 1.0


def _compare(
    suite: str,
    part: tuple[str, Sequence[int]] | None,
    challenger: Candidate,
    other: Candidate,
    policy: GatePolicy,
) -> list[Comparison]:
    """One row for the primary metric, each guard metric and exact matches."""
    ours, theirs = challenger.scores[suite], other.scores[suite]
    if part is not None:
        ours, theirs = ours.take(part[1]), theirs.take(part[1])
    rows = []
    for metric in dict.fromkeys((policy.primary_metric, *policy.guard_metrics, "exact")):
        sign = _sign(metric)
        a, b = ours.values(metric), theirs.values(metric)
        rows.append(
            Comparison(
                suite=suite,
                slice=None if part is None else part[0],
                metric=metric,
                against=other.name,
                n=len(a),
                changed=int(np.sum(np.abs(a - b) > _ROUNDING)),
                challenger=float(a.mean()),
                other=float(b.mean()),
                gain=paired_bootstrap(
                    sign * a, sign * b, policy.resamples, policy.confidence, policy.seed
                ),
                p_mcnemar=mcnemar(a, b) if metric == "exact" else None,
                smallest_detectable_drop=_drop(a - b, policy),
            )
        )
    return rows


def _drop(differences: Values, policy: GatePolicy) -> float | None:
    """The smallest detectable drop, or None where the differences show no scatter."""
    if np.ptp(differences) <= _ROUNDING:
        return None
    return smallest_detectable_drop(differences, power=policy.power, confidence=policy.confidence)


def _is_small(row: Comparison, policy: GatePolicy) -> bool:
    """Whether the suite is too small to find a loss as large as the margin."""
    drop = row.smallest_detectable_drop
    return drop is None or drop > policy.margin


def _holds(row: Comparison, policy: GatePolicy) -> bool:
    """Whether a guard metric leaves no loss beyond the margin open, see the module text."""
    if row.gain.low > -policy.margin:
        return True
    return _is_small(row, policy) and row.gain.mean >= -policy.margin - _ROUNDING


def _check_candidates(
    challenger: Candidate,
    champion: Candidate | None,
    baselines: Sequence[Candidate],
    primary: str | None,
) -> str:
    """The primary suite, once all scores are known to be comparable."""
    if not challenger.scores:
        raise NotEnoughData(f"expected at least one suite scored by {challenger.name}, got none")
    for name, scores in challenger.scores.items():
        if not len(scores):
            raise NotEnoughData(f"expected at least one request in suite {name}, got none")
    suite = primary or min(
        challenger.scores, key=lambda name: (-len(challenger.scores[name]), name)
    )
    pairs = [(challenger, suite), *((baseline, suite) for baseline in baselines)]
    if champion is not None:
        every = sorted({*challenger.scores, *champion.scores})
        pairs += [(side, name) for side in (challenger, champion) for name in every]
    for candidate, name in pairs:
        if name not in candidate.scores:
            raise MissingMetric(
                f"expected scores of {candidate.name} on suite {name}, got only "
                f"{_listed(sorted(candidate.scores)) or 'none'}; evaluate it there first"
            )
    for candidate, name in pairs:
        _check_same(name, challenger, candidate)
    return suite


def _check_same(suite: str, challenger: Candidate, other: Candidate) -> None:
    """Refuse scores of other requests, of another convention, or without a value a request."""
    ours, theirs = challenger.scores[suite], other.scores[suite]
    if ours.convention != theirs.convention:
        raise MissingMetric(
            f"expected scores of the {ours.convention} convention of {other.name} on {suite}, "
            f"got {theirs.convention}"
        )
    if ours.convention == "taskbench":
        raise MissingMetric(
            f"expected scores that are means over requests on {suite}, got taskbench, which pools "
            "them; use strict"
        )
    if ours.ids != theirs.ids:
        odd = next(
            (pair for pair in zip(ours.ids, theirs.ids, strict=False) if len({*pair}) > 1), None
        )
        what = (
            f"{len(theirs.ids)} requests" if odd is None else f"{odd[1]!r} in place of {odd[0]!r}"
        )
        raise MissingMetric(
            f"expected the {len(ours.ids)} requests of {challenger.name} on {suite} "
            f"in the same order from {other.name}, got {what}"
        )
    for name, scores in ((challenger.name, ours), (other.name, theirs)):
        for metric in METRICS:
            values = scores.values(metric)
            if len(values) != len(scores.ids) or not np.isfinite(values).all():
                raise MissingMetric(
                    f"expected {len(scores.ids)} finite values of {metric} of {name} on {suite}, "
                    f"got {len(values)}, {int(np.sum(~np.isfinite(values)))} of them not a number"
                )


def _find(rows: Sequence[Comparison], suite: str, metric: str) -> Comparison:
    """The row of a whole suite and a metric."""
    return next(row for row in rows if row.suite == suite and row.metric == metric)


def _sentence(challenger: Candidate, row: Comparison, policy: GatePolicy) -> str:
    """One comparison as a sentence, in the direction of its metric."""
    low, mean, high = row.gain.low, row.gain.mean, row.gain.high
    note = ""
    if row.metric in _LOWER_IS_BETTER:
        low, mean, high, note = -high, -mean, -low, "; lower is better"
    where = row.suite if row.slice is None else f"{row.suite}, {row.slice}"
    result = "no clear difference"
    if row.is_better or row.is_worse:
        result = "better" if row.is_better else "worse"
    return (
        f"{challenger.name} against {row.against} on {where}: {_LABELS[row.metric]} {mean:+.3f} "
        f"({100 * policy.confidence:g} % interval {low:+.3f} to {high:+.3f}{note}), {result}."
    )


def _p_value(p: float | None) -> str:
    """A p-value as in a sentence: ``= 0.326``, or ``< 0.001``."""
    return "unknown" if p is None else "< 0.001" if p < 0.001 else f"= {p:.3f}"


def _exact_note(exact: Comparison, policy: GatePolicy) -> str:
    """Says so when the loss of exact plans is significant: it is shown, and no guard."""
    surely = exact.p_mcnemar is not None and exact.p_mcnemar < 1 - policy.confidence
    return (
        ", surely fewer, though this metric does not decide"
        if surely and exact.gain.mean < 0
        else ""
    )


def _either(words: Sequence[str]) -> str:
    """Words as in a sentence: a, b or c."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _listed(words: Sequence[str]) -> str:
    """Words as in a sentence: a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
