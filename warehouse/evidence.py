"""The edges of a graph version in one line each: counts by outcome, decayed weight, standing.

Evidence is stored as integer counts by outcome and UTC day. What time takes off its weight is
computed here, when it is read, at the mark of the data, so that an edge nobody touches costs
nothing and sums do not depend on the order of arrival.
"""

from datetime import date

import polars as pl

HALF_LIFE_DAYS = 30.0
"""Days after which evidence counts half, unless told otherwise."""

SUCCESS = ("ok", "unrecorded")
"""Outcomes that count for a dependency: the target worked, or its source records no results."""

STATED = ("declared", "predicted")
"""Kinds that nobody observed."""


def summarise(
    edges: pl.DataFrame, mark: date | None = None, *, half_life_days: float = HALF_LIFE_DAYS
) -> pl.DataFrame:
    """One row per (source, target, kind), sorted by them.

    Args:
        edges: Of a version: source, target, kind, outcome, on_day, is_held_out, num_seen.
        mark: The day the weight is told for; default: the last day in the edges. Later evidence
            has its full weight.
        half_life_days: After so many days evidence counts half; untimed evidence does not decay.

    Returns:
        source, target, kind; num_ok, num_unrecorded, num_failed (the target failed after a source
        that did not), num_after_failure (the source had failed, whatever the target did), num_seen
        (their sum), num_learning (successes that are not held out); first_seen and last_seen (days,
        null without a clock); weight (successes, decayed); standing:

        dependency: seen mostly to succeed. warning: seen mostly before errors. fallback: seen only
        after the source had failed. stated: of a kind that nobody observed.
    """
    if mark is None:
        mark = edges["on_day"].max()  # type: ignore[assignment]
    is_success = pl.col("outcome").is_in(SUCCESS)
    age = (pl.lit(mark, pl.Date) - pl.col("on_day")).dt.total_days().clip(lower_bound=0)
    decay = (0.5 ** (age / half_life_days)).fill_null(1.0)

    def times(outcome: str) -> pl.Expr:
        seen = pl.col("num_seen").filter(pl.col("outcome") == outcome)
        return seen.sum().cast(pl.Int64).alias(f"num_{outcome}")

    num_success = pl.col("num_ok") + pl.col("num_unrecorded")
    return (
        # Sums of floats depend on their order.
        edges.sort("source", "target", "kind", "outcome", "on_day", "is_held_out")
        .with_columns(decay.alias("decay"))
        .group_by("source", "target", "kind", maintain_order=True)
        .agg(
            times("ok"),
            times("unrecorded"),
            times("failed"),
            times("after_failure"),
            pl.col("num_seen").sum().cast(pl.Int64),
            pl.col("num_seen")
            .filter(is_success & ~pl.col("is_held_out"))
            .sum()
            .cast(pl.Int64)
            .alias("num_learning"),
            pl.col("on_day").min().alias("first_seen"),
            pl.col("on_day").max().alias("last_seen"),
            (pl.col("num_seen") * pl.col("decay")).filter(is_success).sum().alias("weight"),
        )
        .with_columns(
            pl.when(pl.col("kind").is_in(STATED))
            .then(pl.lit("stated"))
            .when(num_success + pl.col("num_failed") == 0)
            .then(pl.lit("fallback"))
            .when(pl.col("num_failed") > num_success)
            .then(pl.lit("warning"))
            .otherwise(pl.lit("dependency"))
            .alias("standing")
        )
        .sort("source", "target", "kind")
    )
