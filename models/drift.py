"""Whether the use of tools and edges changed between two graph versions, and what changed it.

Counts of a version are cumulative, so that the newer one holds the older. What came in between is
their difference, and that is compared with the older version: two samples, each of calls.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import special

ALPHA = 0.01
"""Chance that all tests together call something drift that is none."""

MIN_DISTANCE = 0.1
"""Jensen-Shannon distance beyond chance below which a difference is no drift: that of two tools
used half and half that come to be used 62 to 38."""

MIN_UNSEEN = 0.05
"""Share of unseen tools or edges beyond chance below which they are no drift."""

POWER = 0.8
"""Chance to find a drift of ``MIN_DISTANCE`` that a sample must give to be called stable."""

KINDS = ("adjacent", "dataflow")

_MIN_EXPECTED = 5.0
_WORST = ("drifted", "too_little", "stable")

Counts = npt.NDArray[np.float64]
"""How often each tool or edge was used, whole numbers, shape ``[num_cells]``."""


@dataclass(frozen=True, slots=True)
class Contributor:
    """A tool, or an edge as source and target, whose share of use changed.

    ``change`` is the new share minus the old one; ``weight`` its part of G before cells are
    pooled; ``is_new``: the older version does not list the tool, or one of the edge's tools.
    """

    what: tuple[str, ...]
    num_old: int
    num_new: int
    share_old: float
    share_new: float
    change: float
    weight: float
    is_new: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two samples of use compared.

    Attributes:
        verdict: drifted, stable or too_little.
        reason: Why, in a sentence.
        num_old, num_new: Calls or edges seen: in the older version, and since.
        cells_old, cells_new: Different tools or edges used in each.
        cells_pooled: How many were too rare to be told apart, and count as one in the test.
        g, degrees, p_value: The test of homogeneity.
        distance: Jensen-Shannon distance, base 2, from 0 to 1; what the older sample lacks counts
            as one.
        beyond_chance: The distance of what was tested, without what two samples of one source
            differ by.
        unseen_cells, unseen_share: Tools or edges that the older sample lacks, and their share of
            the newer.
        unseen_expected: The share that two samples of one source would show.
        unseen_p: The chance of so many unseen tools or edges there.
        needed: Size of the newer sample from which a drift of ``MIN_DISTANCE`` is found in
            ``POWER`` of cases; null where the older one is too small for any.
        contributors: Those that changed most, first.
    """

    verdict: str
    reason: str
    num_old: int
    num_new: int
    cells_old: int
    cells_new: int
    cells_pooled: int
    g: float
    degrees: int
    p_value: float
    distance: float
    beyond_chance: float
    unseen_cells: int
    unseen_share: float
    unseen_expected: float
    unseen_p: float
    needed: int | None
    contributors: tuple[Contributor, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """Use of tools and of both observed kinds of edges, compared.

    Attributes:
        verdict: The worst of the comparisons: drifted, else too_little, else stable.
        reasons: A sentence a comparison, and one where counts fell.
        tools, adjacent, dataflow: The comparisons; null where neither version has such evidence.
        taken_back: Calls that the older version has and the newer one lacks.
    """

    verdict: str
    reasons: tuple[str, ...]
    tools: Comparison
    adjacent: Comparison | None
    dataflow: Comparison | None
    taken_back: int

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        plain = asdict(self)
        plain["reasons"] = list(self.reasons)
        for name in ("tools", *KINDS):
            if plain[name] is not None:
                plain[name]["contributors"] = [
                    {**told, "what": list(told["what"])} for told in plain[name]["contributors"]
                ]
        return plain


def drift(
    old_nodes: pl.DataFrame,
    old_edges: pl.DataFrame,
    new_nodes: pl.DataFrame,
    new_edges: pl.DataFrame,
    *,
    is_continued: bool = True,
    alpha: float = ALPHA,
    most: int = 10,
) -> Drift:
    """Compare the use of tools and edges in two graph versions.

    Args:
        old_nodes: key, num_ok, num_unrecorded, num_failed of the older version.
        old_edges: source, target, kind, num_seen; the version's edges or their summary.
        new_nodes: The same of the newer version.
        new_edges: The same of the newer version.
        is_continued: Whether the newer version holds the older one's calls, which are taken off
            it; false compares the versions as they are.
        alpha: Chance of a false alarm, over all tests together.
        most: How many contributors each comparison names.

    Raises:
        ValueError: ``alpha`` is not between 0 and 1, or ``most`` is below 1.
    """
    if not 0 < alpha < 1 or most < 1:
        raise ValueError(
            f"expected alpha between 0 and 1 and most of 1 or more, got {alpha} and {most}"
        )
    known = old_nodes["key"]
    uses = {"tools": _uses(_calls(old_nodes), _calls(new_nodes), ["tool"])}
    for kind in KINDS:
        uses[kind] = _uses(_seen(old_edges, kind), _seen(new_edges, kind), ["source", "target"])
    present = [name for name, use in uses.items() if name == "tools" or len(use)]
    found: dict[str, Comparison | None] = dict.fromkeys(uses)
    for name in present:
        use = uses[name]
        if is_continued:
            use = use.with_columns((pl.col("num_new") - pl.col("num_old")).clip(lower_bound=0))
        found[name] = compare(
            use,
            known=known,
            alpha=alpha / len(present),
            most=most,
            what="Calls of tools" if name == "tools" else f"{name.capitalize()} edges",
        )
    told = [comparison for comparison in found.values() if comparison]
    verdict = next(v for v in _WORST if any(comparison.verdict == v for comparison in told))
    reasons = [comparison.reason for comparison in told]
    taken_back = 0
    if is_continued:
        fallen = uses["tools"]["num_old"] - uses["tools"]["num_new"]
        taken_back = int(fallen.clip(lower_bound=0).sum())
    if taken_back:
        reasons.append(
            f"{taken_back:,} calls of the older version are not in the newer one (forgotten, "
            "replaced, or of other tools now) and were left out."
        )
    assert found["tools"] is not None
    return Drift(
        verdict, tuple(reasons), found["tools"], found["adjacent"], found["dataflow"], taken_back
    )


def compare(
    uses: pl.DataFrame,
    *,
    known: pl.Series | None = None,
    alpha: float = ALPHA,
    most: int = 10,
    what: str = "use",
) -> Comparison:
    """Compare two samples of use, each as counts by cell (a tool, or source and target).

    Two tests share ``alpha``. The first is the G-test of homogeneity (Sokal and Rohlf, Biometry,
    chapter 17), with Williams' correction, of cells with 5 expected uses in either sample; rarer
    ones, chosen by the sum of both samples, are pooled into one cell. The second counts the cells
    that the older sample lacks: were both of one source, each cell of ``t`` uses would be among
    them with the chance that all ``t`` fall into the newer sample, and their number is at most as
    scattered as a Poisson variable of that mean. So what is new does not raise an alarm merely
    because rare tools always turn up late.

    With many calls any difference is significant: a verdict of drift needs an effect as well.
    Calls of one conversation depend on each other, so that p-values are somewhat too small.

    Args:
        uses: A row a cell: its tools, then num_old and num_new, its counts in both samples.
        known: Keys of the tools that the older version lists; default: any.
        alpha: Chance of a false alarm.
        most: How many contributors are named.
        what: What is counted, as the sentence begins.
    """
    cells = [column for column in uses.columns if column not in ("num_old", "num_new")]
    uses = uses.filter(pl.col("num_old") + pl.col("num_new") > 0).sort(cells)
    before, after = (uses[name].to_numpy().astype(np.float64) for name in ("num_old", "num_new"))
    num_old, num_new = int(before.sum()), int(after.sum())
    is_unseen = before == 0
    table, pooled = _pooled(before, after)
    g, p_value, degrees = _g_test(table)
    noise = 0.0
    if num_old and num_new:
        noise = degrees / (8 * math.log(2)) * (1 / num_old + 1 / num_new)
    beyond = math.sqrt(max(0.0, _divergence(*table) - noise))
    unseen_share = float(after[is_unseen].sum() / num_new) if num_new else 0.0
    expected_cells, expected_share = _expected_unseen(before, after)
    unseen_cells = int(is_unseen.sum())
    unseen_p = float(special.pdtrc(unseen_cells - 1, expected_cells)) if unseen_cells else 1.0
    merged = [np.append(counts[~is_unseen], counts[is_unseen].sum()) for counts in (before, after)]
    found = Comparison(
        verdict="",
        reason="",
        num_old=num_old,
        num_new=num_new,
        cells_old=int((before > 0).sum()),
        cells_new=int((after > 0).sum()),
        cells_pooled=pooled,
        g=g,
        degrees=degrees,
        p_value=p_value,
        distance=math.sqrt(_divergence(*merged)),
        beyond_chance=beyond,
        unseen_cells=unseen_cells,
        unseen_share=unseen_share,
        unseen_expected=expected_share,
        unseen_p=unseen_p,
        needed=_needed(num_old, max(degrees, 1), alpha / 2),
        contributors=_contributors(uses.select(cells), before, after, known, most),
    )
    verdict = _verdict(found, alpha / 2)
    return replace(found, verdict=verdict, reason=_reason(found, verdict, alpha / 2, what))


def _verdict(c: Comparison, alpha: float) -> str:
    if _is_moved(c, alpha) or _is_novel(c, alpha):
        return "drifted"
    return "too_little" if c.needed is None or c.num_new < c.needed else "stable"


def _is_moved(c: Comparison, alpha: float) -> bool:
    return c.p_value < alpha and c.beyond_chance >= MIN_DISTANCE


def _is_novel(c: Comparison, alpha: float) -> bool:
    return c.unseen_p < alpha and c.unseen_share - c.unseen_expected >= MIN_UNSEEN


def _reason(c: Comparison, verdict: str, alpha: float, what: str) -> str:
    """The verdict with what it rests on, in a sentence or two."""
    sizes = f"{c.num_new:,} since against {c.num_old:,} before"
    if not c.num_old or not c.num_new:
        return f"{what}: too little to tell, {sizes}."
    effect = f"distance {c.beyond_chance:.2f} beyond chance, {_p(c.p_value)}"
    novel = f"{c.unseen_share:.1%} are new to the older version, {c.unseen_expected:.1%} by chance"
    if verdict == "drifted":
        grounds = [effect] if _is_moved(c, alpha) else []
        grounds += [f"{novel}, {_p(c.unseen_p)}"] if _is_novel(c, alpha) else []
        most = "; ".join(
            f"{' -> '.join(told.what)} {'rose' if told.change > 0 else 'fell'} from "
            f"{told.share_old:.1%} to {told.share_new:.1%}"
            for told in c.contributors[:3]
        )
        return f"{what}: drifted, {sizes} ({'; '.join(grounds)}). Most of all, {most}."
    if verdict == "too_little":
        wanted = (
            f"a drift of distance {MIN_DISTANCE} would show from {c.needed:,} on"
            if c.needed
            else "the older version is too small to compare with"
        )
        return f"{what}: too little to tell, {sizes}; {wanted}."
    small = ", measurable but small" if min(c.p_value, c.unseen_p) < alpha else ""
    return f"{what}: stable, {sizes} ({effect}{small}; {novel})."


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _contributors(
    cells: pl.DataFrame, before: Counts, after: Counts, known: pl.Series | None, most: int
) -> tuple[Contributor, ...]:
    """The cells with the largest part of G, none where a sample is empty."""
    num_old, num_new = before.sum(), after.sum()
    if not num_old or not num_new:
        return ()
    both = (before + after) / (num_old + num_new)
    # kl_div(o, e) = o log(o/e) - o + e, never negative; the linear terms cancel out over both rows.
    weight = 2 * (special.kl_div(before, both * num_old) + special.kl_div(after, both * num_new))
    order = np.lexsort((np.arange(len(cells)), -weight))[:most]
    listed = set() if known is None else set(known.to_list())
    return tuple(
        Contributor(
            what=cells.row(i),
            num_old=int(before[i]),
            num_new=int(after[i]),
            share_old=float(before[i] / num_old),
            share_new=float(after[i] / num_new),
            change=float(after[i] / num_new - before[i] / num_old),
            weight=float(weight[i]),
            is_new=known is not None and any(tool not in listed for tool in cells.row(i)),
        )
        for i in order.tolist()
        if weight[i] > 1e-9
    )


def _calls(nodes: pl.DataFrame) -> pl.DataFrame:
    return nodes.select(
        tool="key", num=pl.col("num_ok") + pl.col("num_unrecorded") + pl.col("num_failed")
    )


def _seen(edges: pl.DataFrame, kind: str) -> pl.DataFrame:
    of_kind = edges.filter(pl.col("kind") == kind)
    return of_kind.group_by("source", "target").agg(num=pl.col("num_seen").sum())


def _uses(old: pl.DataFrame, new: pl.DataFrame, cell: list[str]) -> pl.DataFrame:
    """Both counts by cell, 0 where a version lacks it."""
    return (
        old.rename({"num": "num_old"})
        .join(new.rename({"num": "num_new"}), on=cell, how="full", coalesce=True)
        .with_columns(pl.col("num_old", "num_new").fill_null(0))
    )


def _pooled(before: Counts, after: Counts) -> tuple[Counts, int]:
    """Both samples over the cells of the test, shape ``[2, num_cells]``, and how many were pooled.

    Which cells are pooled depends on the sums of both samples alone, so that it favours neither.
    """
    both = before + after
    total = both.sum()
    if not len(both):
        return np.zeros((2, 0)), 0
    expected = both * min(before.sum(), after.sum()) / total
    order = np.argsort(expected, kind="stable")
    num_rare = int((expected < _MIN_EXPECTED).sum())
    # The pool needs as many expected uses as a cell of its own.
    while 0 < num_rare < len(both) and expected[order[:num_rare]].sum() < _MIN_EXPECTED:
        num_rare += 1
    rare, kept = order[:num_rare], np.sort(order[num_rare:])
    rows = []
    for counts in (before, after):
        pool = [counts[rare].sum()] if num_rare else []
        rows.append(np.concatenate([counts[kept], pool]))
    return np.array(rows), num_rare


def _g_test(table: Counts) -> tuple[float, float, int]:
    """G with Williams' correction (1976), its p-value, its degrees of freedom.

    They are 0, 1 and 0 where there is nothing to compare.
    """
    if table.shape[1] < 2 or not table.sum(axis=1).all():
        return 0.0, 1.0, 0
    total, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
    degrees = len(columns) - 1
    g = 2 * special.rel_entr(table, np.outer(rows, columns) / total).sum()
    scatter = ((total / rows).sum() - 1) * ((total / columns).sum() - 1)
    g = max(0.0, float(g / (1 + scatter / (6 * total * degrees))))
    return g, float(special.chdtrc(degrees, g)), degrees


def _divergence(before: Counts, after: Counts) -> float:
    """Jensen-Shannon divergence in bits, from 0 to 1; 0 where a sample is empty."""
    if not before.sum() or not after.sum():
        return 0.0
    p, q = before / before.sum(), after / after.sum()
    middle = (p + q) / 2
    nats = (special.rel_entr(p, middle).sum() + special.rel_entr(q, middle).sum()) / 2
    return min(1.0, max(0.0, float(nats) / math.log(2)))


def _expected_unseen(before: Counts, after: Counts) -> tuple[float, float]:
    """How many cells the older sample would lack were both of one source, and their share."""
    num_old, num_new = before.sum(), after.sum()
    if not num_new:
        return 0.0, 0.0
    uses = before + after
    fits = uses <= num_new
    t = uses[fits]
    # All t uses of a cell lie among the num_new of num_old + num_new.
    log_chance = (
        special.gammaln(num_new + 1)
        - special.gammaln(num_new - t + 1)
        - special.gammaln(num_old + num_new + 1)
        + special.gammaln(num_old + num_new - t + 1)
    )
    chance = np.exp(np.minimum(log_chance, 0.0))
    return float(chance.sum()), float((chance * t).sum() / num_new)


def _needed(num_old: int, degrees: int, alpha: float) -> int | None:
    """The newer sample that finds a drift of ``MIN_DISTANCE`` in ``POWER`` of cases.

    G is then noncentral chi-squared; its noncentrality is 8 divergences (in nats) over the sum of
    the inverse sample sizes, to second order.
    """
    if not num_old:
        return None
    bound = special.chdtri(degrees, alpha)
    noncentrality = float(special.chndtrinc(bound, degrees, 1 - POWER))
    inverse = 8 * math.log(2) * MIN_DISTANCE**2 / noncentrality - 1 / num_old
    return math.ceil(1 / inverse) if inverse > 0 else None
