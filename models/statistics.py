"""How sure a difference of two means is: paired bootstrap, exact McNemar, detectable drops.

Every function takes one number a request, float64, in the same order for both sides, and refuses
input that is empty, of two lengths or not a number: such input must never reach a decision.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from scipy.stats import binomtest  # type: ignore[import-untyped]

from models.errors import MissingMetric, NotEnoughData

Values = npt.NDArray[np.float64]
"""One number a request, float64, shape ``[num_requests]``."""

_DRAWS_AT_ONCE = 2_000_000  # bounds the memory of a bootstrap: 16 bytes a draw


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the ends of its confidence interval, in the unit of the values."""

    mean: float
    low: float
    high: float


def bootstrap_mean(
    values: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The mean over requests with its percentile bootstrap interval (Efron 1979).

    Requests are drawn with replacement. With weights, each resample gives a weighted mean, so that
    pooled scores, which are ratios of sums, get an interval as well.

    Args:
        values: One number a request, shape ``[num_requests]``.
        weights: Not negative, same shape; a request of weight 0 has no say. Default: all 1.
        resamples: How many resamples.
        confidence: Share of the resampled means that the interval holds, above 0 and below 1.
        seed: Same seed, same interval.

    Raises:
        MissingMetric: Values or weights are empty, not a number, or of two lengths.
        ValueError: ``resamples`` or ``confidence`` is out of range.
    """
    v = _checked(values, "values")
    w = None if weights is None else _checked(weights, "weights", len(v))
    if resamples < 1:
        raise ValueError(f"expected at least 1 resample, got {resamples}")
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence above 0 and below 1, got {confidence}")
    tail = (1 - confidence) / 2
    low, high = np.quantile(_resampled_means(v, w, resamples, seed), [tail, 1 - tail])
    return Interval(mean=weighted_mean(v, w), low=float(low), high=float(high))


def paired_bootstrap(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """The mean of ``a - b`` over the same requests with its percentile bootstrap interval.

    Whole pairs are drawn, so that how hard a request is cancels out and only the difference of the
    two planners is left.

    Args:
        a: One number a request, shape ``[num_requests]``.
        b: The other side, the same requests in the same order.
        resamples: How many resamples.
        confidence: Share of the resampled means that the interval holds.
        seed: Same seed, same interval.

    Raises:
        MissingMetric: A side is empty or not a number, or the lengths differ.
        ValueError: ``resamples`` or ``confidence`` is out of range.
    """
    first = _checked(a, "a")
    second = _checked(b, "b", len(first))
    return bootstrap_mean(first - second, resamples=resamples, confidence=confidence, seed=seed)


def mcnemar(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Two-sided p-value of McNemar's exact test on two series of right (1) and wrong (0).

    Only requests that exactly one side got right count; if the two were equally good, each would
    fall to either side with probability one half. No such request gives 1.0.

    Args:
        a: 1 where the first planner was right, else 0, shape ``[num_requests]``.
        b: The same of the second planner, same requests in the same order.

    Raises:
        MissingMetric: A side is empty, holds something but 0 and 1, or the lengths differ.
    """
    first = _checked(a, "a")
    second = _checked(b, "b", len(first))
    for name, side in (("a", first), ("b", second)):
        odd = side[(side != 0) & (side != 1)]
        if odd.size:
            raise MissingMetric(f"expected only 0 and 1 in {name}, got {odd[0]}")
    only_a = int(np.sum(first > second))
    only_b = int(np.sum(first < second))
    if only_a + only_b == 0:
        return 1.0
    return float(binomtest(only_a, only_a + only_b, 0.5).pvalue)


def smallest_detectable_drop(
    differences: npt.ArrayLike,
    *,
    n: int | None = None,
    power: float = 0.8,
    confidence: float = 0.95,
) -> float:
    """The smallest true drop of a mean that such a comparison would find.

    ``(z(confidence, two-sided) + z(power)) * sd / sqrt(n)``: a drop of this size is called
    significant in ``power`` of all repetitions, a smaller one less often.

    Args:
        differences: Paired differences, one a request, that show how much two planners scatter.
        n: Size of the suite asked about; default: as many as there are differences.
        power: Wanted chance to find the drop, above 0 and below 1.
        confidence: Of the two-sided interval that has to exclude 0.

    Returns:
        The drop, in the unit of the differences, 0 or more.

    Raises:
        MissingMetric: The differences are empty or not a number.
        NotEnoughData: Fewer than two differences have no scatter, or ``n`` is below 1.
        ValueError: ``power`` or ``confidence`` is out of range.
    """
    d = _checked(differences, "differences")
    if len(d) < 2:
        raise NotEnoughData(f"expected at least 2 differences to see their scatter, got {len(d)}")
    size = len(d) if n is None else n
    if size < 1:
        raise NotEnoughData(f"expected a suite of at least 1 request, got {size}")
    if not (0 < power < 1 and 0 < confidence < 1):
        raise ValueError(
            f"expected power and confidence above 0 and below 1, got {power} and {confidence}"
        )
    normal = NormalDist()
    z = normal.inv_cdf(1 - (1 - confidence) / 2) + normal.inv_cdf(power)
    return max(0.0, z * float(np.std(d, ddof=1)) / math.sqrt(size))


def weighted_mean(values: Values, weights: Values | None = None) -> float:
    """Mean of the values under the weights; the plain mean where nothing carries weight."""
    if weights is None or not weights.any():
        return float(values.mean())
    return float((values * weights).sum() / weights.sum())


def _resampled_means(values: Values, weights: Values | None, resamples: int, seed: int) -> Values:
    """Means of ``resamples`` draws with replacement, shape ``[resamples]``, a block at a time."""
    generator = np.random.default_rng(seed)
    n = len(values)
    rows = max(1, _DRAWS_AT_ONCE // n)
    means = np.empty(resamples)
    for start in range(0, resamples, rows):
        block = slice(start, min(start + rows, resamples))
        drawn = generator.integers(0, n, size=(block.stop - start, n))
        plain = values[drawn].mean(axis=1)
        if weights is None:
            means[block] = plain
            continue
        total = weights[drawn].sum(axis=1)
        weighted = (values * weights)[drawn].sum(axis=1)
        means[block] = np.where(total > 0, weighted / np.where(total > 0, total, 1.0), plain)
    return means


def _checked(values: npt.ArrayLike, name: str, length: int | None = None) -> Values:
    """The values as float64, or the reason why no statistic can be made of them."""
    array: Values = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise MissingMetric(f"expected one number a request in {name}, got shape {array.shape}")
    if not array.size:
        raise MissingMetric(f"expected at least one request in {name}, got none")
    if length is not None and len(array) != length:
        raise MissingMetric(
            f"expected {length} numbers in {name}, one for each request of the other side, "
            f"got {len(array)}"
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise MissingMetric(
            f"expected finite numbers in {name}, got {array[bad[0]]} at request {bad[0]} "
            f"({bad.size} of {len(array)})"
        )
    if name == "weights" and (array < 0).any():
        raise MissingMetric(f"expected weights of 0 or more, got {array.min()}")
    return array
