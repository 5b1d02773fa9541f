"""Scores a planner on a suite, with intervals, and times it one request after the other."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from models.errors import MissingMetric, NotEnoughData
from models.metrics import Convention, Scores, score_plans
from models.statistics import Interval, bootstrap_mean
from models.types import Example, Plan, Planner

INTERVAL_METRICS = ("n_f1", "l_f1", "ned", "exact")
"""Metrics that an evaluation gives with an interval."""


@dataclass(frozen=True, eq=False)
class PlannerResult:
    """What one planner reached on one suite.

    Attributes:
        planner: Its name.
        scores: Per-request values, ids, failures and means.
        ci: Metric to mean and interval, for :data:`INTERVAL_METRICS`.
        ms_per_request: ``p50`` and ``p95`` in milliseconds, or None where it was not timed.
    """

    planner: str
    scores: Scores
    ci: Mapping[str, Interval]
    ms_per_request: Mapping[str, float] | None = None

    @property
    def n(self) -> int:
        """Number of requests."""
        return len(self.scores)

    @property
    def metrics(self) -> dict[str, float]:
        """Metric to mean, unrounded."""
        return self.scores.means

    @property
    def failures(self) -> int:
        """Requests that got no plan, or one without tools."""
        return self.scores.failures

    def to_json(self) -> dict[str, object]:
        """The result as ``toolatlas evaluate --json`` prints it, unrounded.

        ``ci`` maps a metric to the two ends of its interval; ``ms_per_request`` is null where the
        planner was not timed.
        """
        return {
            "planner": self.planner,
            "convention": self.scores.convention,
            "n": self.n,
            "failures": self.failures,
            **self.metrics,
            "ci": {metric: [interval.low, interval.high] for metric, interval in self.ci.items()},
            "ms_per_request": None if self.ms_per_request is None else dict(self.ms_per_request),
        }


def evaluate(
    planner: Planner,
    suite: Sequence[Example],
    convention: Convention = "strict",
    *,
    known_tools: Collection[str] | None = None,
    batch_size: int = 256,
    time_requests: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> PlannerResult:
    """Asks the planner for one plan a request and scores the answers.

    An exception of the planner ends the evaluation: a planner that breaks has no metrics. A
    request for which it returns no plan is a failure and counts as its convention says.

    Args:
        planner: Who is measured.
        suite: Requests with gold plans.
        convention: How to count; see ``models.metrics``.
        known_tools: Keys of the catalogue, needed by ``taskbench``.
        batch_size: Requests handed to the planner at once.
        time_requests: How many requests, from the first on, are timed one by one afterwards.
        resamples: Resamples of each interval.
        confidence: Share of the resampled means inside an interval.
        seed: Same seed, same intervals.

    Raises:
        NotEnoughData: The suite is empty.
        MissingMetric: The planner answers with more or fewer lists than it got requests.
    """
    if not suite:
        raise NotEnoughData(
            f"expected at least one example to evaluate {planner.name}, got an empty suite; "
            "ingest trajectories of its test split, or choose another suite"
        )
    requests = [example.request for example in suite]
    scores = score_plans(
        suite, _first_plans(planner, requests, batch_size), convention, known_tools
    )
    ci = {
        metric: bootstrap_mean(
            scores.values(metric),
            weights=scores.weights[metric],
            resamples=resamples,
            confidence=confidence,
            seed=seed,
        )
        for metric in INTERVAL_METRICS
    }
    timed = requests[:time_requests]
    return PlannerResult(
        planner=planner.name,
        scores=scores,
        ci=ci,
        ms_per_request=time_planner(planner, timed) if timed else None,
    )


def time_planner(
    planner: Planner, requests: Sequence[str], repeats: int = 1, warmup: int = 1
) -> dict[str, float]:
    """How long one request takes when it comes alone, as a user waits for it.

    Args:
        planner: Who is timed.
        requests: Asked one after the other.
        repeats: How often to go through all of them; every call counts.
        warmup: Calls before the clock starts.

    Returns:
        ``p50`` and ``p95`` of the calls in milliseconds.

    Raises:
        NotEnoughData: There is no request, or no repeat.
    """
    if not requests or repeats < 1:
        raise NotEnoughData(
            f"expected at least one request and one repeat to time {planner.name}, "
            f"got {len(requests)} and {repeats}"
        )
    for i in range(warmup):
        planner.plan([requests[i % len(requests)]])
    took = []
    for request in [*requests] * repeats:
        start = perf_counter()
        planner.plan([request])
        took.append((perf_counter() - start) * 1000)
    p50, p95 = np.percentile(took, [50, 95])
    return {"p50": float(p50), "p95": float(p95)}


def _first_plans(planner: Planner, requests: Sequence[str], batch_size: int) -> list[Plan | None]:
    """The best plan of each request, None where the planner gave none."""
    if batch_size < 1:
        raise ValueError(f"expected a batch_size of at least 1, got {batch_size}")
    plans: list[Plan | None] = []
    for start in range(0, len(requests), batch_size):
        batch = requests[start : start + batch_size]
        answers = planner.plan(batch)
        if len(answers) != len(batch):
            raise MissingMetric(
                f"expected {len(batch)} lists of plans from {planner.name}, got {len(answers)}"
            )
        plans.extend(ranked[0] if ranked else None for ranked in answers)
    return plans
