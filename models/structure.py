"""What a graph version looks like: hubs, groups, loops, unused tools, weak spots, warnings.

It describes what was observed, held-out rows and failures included, and is no input of learning.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl

from models.connectivity import (
    communities,
    components,
    cuts,
    mutual_pairs,
    strongest_triangles,
)
from models.errors import GraphMismatch

T = TypeVar("T")

OBSERVED = ("adjacent", "dataflow")
"""Kinds of edges that trajectories show; the others are stated by somebody."""

HUB_FACTOR = 3.0
"""A hub has so many times the evidence of the average tool, on one side."""

MIN_EVIDENCE = 20
"""A tool with fewer neighbours in trajectories, each counted as often as it was one, is neither hub
nor ceremonial."""

MIN_BREADTH = {"opens": 0.4, "ends": 0.4, "between": 0.6}
"""From here on a tool's neighbours are hardly told from tools at random. Those that open
or end runs meet fewer, since not every tool comes first or last."""

_MIN_NEIGHBOURS = 5
_ONE_SIDED = 0.1  # at most this share of a tool's evidence lies on its weak side
_MAX_FLOW = 0.02  # dataflow per adjacent evidence that may be chance
_MAX_CEREMONIAL = 0.25  # where more of the tools look ceremonial, breadth tells nothing
_MIN_LABEL = 0.5
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """How many there are, and the first of them."""

    num: int
    first: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Hub:
    """A tool with far more neighbours' evidence than the average tool.

    ``num_in`` and ``num_out`` count calls seen before and after it, ``share_in`` and ``share_out``
    are their shares of all pairs seen, ``sources`` and ``targets`` count different tools.
    """

    tool: str
    num_in: int
    num_out: int
    share_in: float
    share_out: float
    sources: int
    targets: int


@dataclass(frozen=True, slots=True)
class Ceremony:
    """A tool that is called whatever the task, and hands nothing on.

    ``role`` is opens, between or ends. ``breadth`` says how its neighbours compare with tools drawn
    at random from all calls: the number of equally frequent tools that would scatter as much, over
    that of all calls, at most 1. ``has_dataflow``: whether its namespace shows dataflow elsewhere;
    without any, that this tool has none says nothing.
    """

    tool: str
    role: str
    calls: int
    sources: int
    targets: int
    breadth: float
    has_dataflow: bool


@dataclass(frozen=True, slots=True)
class Community:
    """Tools that are used together more than with others; ``inside``: share of their evidence."""

    name: str
    size: int
    namespaces: tuple[str, ...]
    strongest: tuple[str, ...]
    num_seen: int
    inside: float


@dataclass(frozen=True, slots=True)
class Tools:
    """A set of tools, the first of them by key."""

    size: int
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cycle:
    """Tools that lead to one another in this order; ``num_seen`` is that of the weakest edge."""

    tools: tuple[str, ...]
    num_seen: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """A tool called again at once: how often, how often after it had failed, share of its calls."""

    tool: str
    calls: int
    num_repeats: int
    num_retries: int
    share: float


@dataclass(frozen=True, slots=True)
class Unseen:
    """A tool nobody called beside another one lately, and the last day somebody did."""

    tool: str
    last_seen: date


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a namespace's active tools was ever called."""

    namespace: str
    active: int
    called: int
    deprecated: int
    share: float


@dataclass(frozen=True, slots=True)
class Cut:
    """One tool, or two that only their edge joins: how many tools lose the rest without it."""

    tools: tuple[str, ...]
    cuts_off: int


@dataclass(frozen=True, slots=True)
class Warned:
    """A target that mostly fails after its source; ``usual``: its failures per call anyway."""

    source: str
    target: str
    kind: str
    num_failed: int
    num_succeeded: int
    usual: float


@dataclass(frozen=True, slots=True)
class Fallback:
    """The target was only seen after the source had failed."""

    source: str
    target: str
    kind: str
    num_after_failure: int


@dataclass(frozen=True, slots=True)
class Structure:
    """The picture of a graph version; counts are complete, lists show the first few.

    Communities, cycles, components, cut tools and bridges are those of the observed graph without
    its ceremonial tools, which would join everything with everything.

    Attributes:
        mark: The day it is told for; null where no evidence has a day.
        quiet_days: As asked for.
        num_tools, num_active, num_called, num_calls: Tools listed, active, ever called; calls.
        num_pairs: Ordered pairs of tools observed, of whatever kind.
        standings: How many edges have which standing.
        hubs: Most evidence first.
        ceremonial: Most calls first.
        communities: Of two tools and more, the largest first.
        modularity: Of the communities, at most 1; above 0.3 they are real.
        components: Of two tools and more, directions ignored, the largest first.
        isolated: Active tools that were called, and never beside another one.
        strong: Of two tools and more, where each leads to each, the largest first.
        mutual: Two tools that follow each other, the most seen first.
        triangles: The most seen cycles of three; ``num`` counts those listed.
        num_repeats, num_retries: Calls of a tool again at once; those after it had failed.
        repeats: The most repeats first.
        never_called: Active tools without a call.
        only_failed: Active tools whose calls all failed.
        not_lately: Active tools last seen ``quiet_days`` or more before the mark, longest first.
        coverage: By namespace, the largest first.
        cut_tools, bridges: What holds most tools together first.
        warnings: Most failures beyond what is usual for the target first.
        fallbacks: The most seen first.
    """

    mark: date | None
    quiet_days: int
    num_tools: int
    num_active: int
    num_called: int
    num_calls: int
    num_pairs: int
    standings: dict[str, int]
    hubs: Listed[Hub]
    ceremonial: Listed[Ceremony]
    communities: Listed[Community]
    modularity: float
    components: Listed[Tools]
    isolated: Listed[str]
    strong: Listed[Tools]
    mutual: Listed[Cycle]
    triangles: Listed[Cycle]
    num_repeats: int
    num_retries: int
    repeats: Listed[Repeat]
    never_called: Listed[str]
    only_failed: Listed[str]
    not_lately: Listed[Unseen]
    coverage: Listed[Coverage]
    cut_tools: Listed[Cut]
    bridges: Listed[Cut]
    warnings: Listed[Warned]
    fallbacks: Listed[Fallback]

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values; days in ISO form."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def analyse(
    nodes: pl.DataFrame,
    summary: pl.DataFrame,
    *,
    mark: date | None = None,
    quiet_days: int = 30,
    most: int = 10,
) -> Structure:
    """Look at a graph version.

    Args:
        nodes: key, namespace, name, status, num_ok, num_unrecorded, num_failed, num_repeats,
            num_retries.
        summary: One row per (source, target, kind) of the version's edges: num_ok, num_unrecorded,
            num_failed, num_after_failure, num_seen, last_seen, standing.
        mark: The day it is told for; default: the last day in the summary.
        quiet_days: After so many days without evidence a tool is not used lately.
        most: How many of each kind are listed.

    Raises:
        GraphMismatch: An edge names a tool that is no node.
        ValueError: ``most`` or ``quiet_days`` is below 1.
    """
    if most < 1 or quiet_days < 1:
        raise ValueError(f"expected most and quiet_days of 1 or more, got {most} and {quiet_days}")
    tools = _tools(nodes)
    keys = tools["key"].to_list()
    edges = _indexed(summary, keys)
    observed = edges.filter(_IS_OBSERVED)
    if mark is None:
        mark = observed["last_seen"].max()  # type: ignore[assignment]
    pairs = _pairs(observed)
    ceremonial = _ceremonial(tools, observed)
    backbone = _backbone(pairs, keys, ceremonial)
    source, target, seen = _arrays(backbone)
    labels, modularity = communities(source, target, seen.astype(np.float64), len(keys))
    falls = cuts(source, target, len(keys))
    mutual = mutual_pairs(source, target, seen, len(keys))
    triangles = strongest_triangles(source, target, seen, most)
    active = tools.filter(pl.col("status") == "active")
    joined = set(pairs["s"].to_list()) | set(pairs["t"].to_list())
    repeats = tools.filter(pl.col("num_repeats") > 0).sort(
        "num_repeats", "key", descending=[True, False]
    )
    return Structure(
        mark=mark,
        quiet_days=quiet_days,
        num_tools=len(tools),
        num_active=len(active),
        num_called=int((tools["calls"] > 0).sum()),
        num_calls=int(tools["calls"].sum()),
        num_pairs=len(pairs),
        standings={
            str(standing): int(num)
            for standing, num in summary.group_by("standing").len().sort("standing").iter_rows()
        },
        hubs=_listed(_hubs(keys, pairs), most),
        ceremonial=_listed(ceremonial, most),
        communities=_listed(_communities(tools, backbone, labels), most),
        modularity=modularity,
        components=_groups(keys, components(source, target, len(keys)), most),
        isolated=_listed(
            [
                key
                for i, key, status, calls in tools.select("i", "key", "status", "calls").iter_rows()
                if status == "active" and calls and i not in joined
            ],
            most,
        ),
        strong=_groups(keys, components(source, target, len(keys), strong=True), most),
        mutual=Listed(
            len(mutual), tuple(Cycle((keys[a], keys[b]), num) for a, b, num in mutual[:most])
        ),
        triangles=_listed(
            [Cycle((keys[a], keys[b], keys[c]), n) for a, b, c, n in triangles], most
        ),
        num_repeats=int(tools["num_repeats"].sum()),
        num_retries=int(tools["num_retries"].sum()),
        repeats=_rows(
            repeats.select(
                "key",
                "calls",
                "num_repeats",
                "num_retries",
                share=pl.col("num_repeats") / pl.col("calls"),
            ),
            Repeat,
            most,
        ),
        never_called=_listed(active.filter(pl.col("calls") == 0)["key"].to_list(), most),
        only_failed=_listed(
            active.filter((pl.col("calls") > 0) & (pl.col("calls") == pl.col("num_failed")))[
                "key"
            ].to_list(),
            most,
        ),
        not_lately=_rows(_not_lately(active, observed, mark, quiet_days), Unseen, most),
        coverage=_rows(_coverage(tools), Coverage, most),
        cut_tools=_listed(
            [
                Cut((keys[v],), cut_off)
                for v, (cut_off, _) in sorted(
                    falls.vertices.items(), key=lambda item: (-item[1][0], item[0])
                )
            ],
            most,
        ),
        bridges=_listed(
            [
                Cut((keys[a], keys[b]), cut_off)
                for (a, b), cut_off in sorted(
                    falls.bridges.items(), key=lambda item: (-item[1], item[0])
                )
            ],
            most,
        ),
        warnings=_rows(_warnings(tools, edges), Warned, most),
        fallbacks=_rows(
            edges.filter(pl.col("standing") == "fallback")
            .sort("num_after_failure", "s", "t", "kind", descending=[True] + [False] * 3)
            .select("source", "target", "kind", "num_after_failure"),
            Fallback,
            most,
        ),
    )


def groups_of(nodes: pl.DataFrame, summary: pl.DataFrame) -> dict[str, int]:
    """The community of every tool by key, without what ceremonial tools would join.

    Args:
        nodes: As for ``analyse``.
        summary: As for ``analyse``.
    """
    tools = _tools(nodes)
    keys = tools["key"].to_list()
    observed = _indexed(summary, keys).filter(_IS_OBSERVED)
    backbone = _backbone(_pairs(observed), keys, _ceremonial(tools, observed))
    source, target, seen = _arrays(backbone)
    labels, _ = communities(source, target, seen.astype(np.float64), len(keys))
    return dict(zip(keys, map(int, labels), strict=True))


_IS_OBSERVED = pl.col("kind").is_in(OBSERVED) & (pl.col("s") != pl.col("t"))


def _pairs(observed: pl.DataFrame) -> pl.DataFrame:
    """One row per pair. Its kinds tell of the same calls, so that their counts do not add up."""
    return observed.group_by("s", "t").agg(pl.col("num_seen").max()).sort("s", "t")


def _backbone(
    pairs: pl.DataFrame, keys: Sequence[str], ceremonial: Sequence[Ceremony]
) -> pl.DataFrame:
    """The pairs without ceremonial tools."""
    names = {found.tool for found in ceremonial}
    without = [i for i, key in enumerate(keys) if key in names]
    return pairs.filter(~pl.col("s").is_in(without) & ~pl.col("t").is_in(without))


def _arrays(pairs: pl.DataFrame) -> tuple[Any, Any, Any]:
    """Sources, targets and counts as int64 [num_pairs] each."""
    source, target, seen = (
        pairs[column].to_numpy().astype(np.int64) for column in ("s", "t", "num_seen")
    )
    return source, target, seen


def _tools(nodes: pl.DataFrame) -> pl.DataFrame:
    """The nodes by key, with their number and how often they were called."""
    counts = ("num_ok", "num_unrecorded", "num_failed", "num_repeats", "num_retries")
    return (
        nodes.select("key", "namespace", "name", "status", *counts)
        .sort("key")
        .with_row_index("i")
        .with_columns(
            pl.col("i").cast(pl.Int64),
            calls=pl.col("num_ok") + pl.col("num_unrecorded") + pl.col("num_failed"),
        )
    )


def _indexed(summary: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """The edges with the numbers of their tools, ``s`` and ``t``."""
    numbers = pl.DataFrame(
        {"key": keys, "i": range(len(keys))}, schema={"key": pl.String, "i": pl.Int64}
    )
    edges = summary
    for column, number in (("source", "s"), ("target", "t")):
        edges = edges.join(
            numbers.rename({"key": column, "i": number}),
            on=column,
            how="left",
            maintain_order="left",
        )
    lost = edges.filter(pl.col("s").is_null() | pl.col("t").is_null())
    if len(lost):
        raise GraphMismatch(
            f"expected every edge to join tools of the graph, got {lost['source'][0]} -> "
            f"{lost['target'][0]} ({len(lost)} edges): give nodes and edges of one version."
        )
    return edges


def _hubs(keys: Sequence[str], pairs: pl.DataFrame) -> list[Hub]:
    """Tools with ``HUB_FACTOR`` times the average tool's evidence on a side."""
    total = int(pairs["num_seen"].sum())
    sides = []
    for end, num, others in (("t", "num_in", "sources"), ("s", "num_out", "targets")):
        sides.append(
            pairs.group_by(pl.col(end).alias("i")).agg(
                pl.col("num_seen").sum().alias(num), pl.len().cast(pl.Int64).alias(others)
            )
        )
    both = sides[0].join(sides[1], on="i", how="full", coalesce=True).fill_null(0)
    if not total:
        return []
    bound = max(HUB_FACTOR * total / len(both), MIN_EVIDENCE)
    rows = (
        both.filter(pl.max_horizontal("num_in", "num_out") >= bound)
        .with_columns(all=pl.col("num_in") + pl.col("num_out"))
        .sort("all", "i", descending=[True, False])
        .select("i", "num_in", "num_out", "sources", "targets")
        .iter_rows()
    )
    return [
        Hub(keys[i], num_in, num_out, num_in / total, num_out / total, sources, targets)
        for i, num_in, num_out, sources, targets in rows
    ]


def _ceremonial(tools: pl.DataFrame, observed: pl.DataFrame) -> list[Ceremony]:
    """Tools that are called whatever the task, by behaviour.

    The neighbours on each side that matters scatter like calls drawn at random, and next to no
    dataflow starts or ends at the tool. Scatter is the chance that two calls are of one tool,
    without bias for small samples (Simpson 1949), compared within the namespaces of the neighbours.
    Where many tools look like that, the tools tell nothing of each other, and none is named.
    """
    adjacent = observed.filter(pl.col("kind") == "adjacent")
    flow = observed.filter(pl.col("kind") == "dataflow")
    spaces = tools["namespace"].to_list()
    sides = {end: _sides(tools, adjacent, end) for end in ("s", "t")}
    flows = Counter[int]()
    for source, target, num in flow.select("s", "t", "num_seen").iter_rows():
        flows[source] += num
        flows[target] += num
    flowing = {spaces[i] for i, num in flows.items() if num}
    keys, calls = tools["key"].to_list(), tools["calls"].to_list()
    met = sorted(sides["s"].keys() | sides["t"].keys())
    found = []
    for i in met:
        before, after = sides["t"].get(i, _NOBODY), sides["s"].get(i, _NOBODY)
        total = before.num + after.num
        if total < MIN_EVIDENCE:
            continue
        if after.num <= _ONE_SIDED * total:
            role, looked = "ends", [before]
        elif before.num <= _ONE_SIDED * total:
            role, looked = "opens", [after]
        else:
            role, looked = "between", [before, after]
        breadth = min(side.breadth for side in looked)
        if (
            breadth >= MIN_BREADTH[role]
            and min(side.tools for side in looked) >= _MIN_NEIGHBOURS
            and flows[i] <= _MAX_FLOW * total
        ):
            found.append(
                Ceremony(
                    keys[i],
                    role,
                    calls[i],
                    before.tools,
                    after.tools,
                    breadth,
                    spaces[i] in flowing,
                )
            )
    if len(found) > max(1, _MAX_CEREMONIAL * len(met)):
        return []
    return sorted(found, key=lambda tool: (-tool.calls, tool.tool))


@dataclass(frozen=True, slots=True)
class _Side:
    """The neighbours of a tool on one side: how many calls, of how many tools, how scattered."""

    num: int
    tools: int
    breadth: float


_NOBODY = _Side(0, 0, 0.0)


def _sides(tools: pl.DataFrame, adjacent: pl.DataFrame, end: str) -> dict[int, _Side]:
    """What is known of the neighbours of each tool that is at this end (``s`` or ``t``)."""
    other = "t" if end == "s" else "s"
    called = tools.select("i", "namespace", n=pl.col("calls") - pl.col("num_repeats"))
    spaces = called.group_by("namespace").agg(
        all=pl.col("n").sum(), same=(pl.col("n") * (pl.col("n") - 1)).sum()
    )
    per_space = (
        adjacent.join(called.select(pl.col("i").alias(other), "namespace"), on=other)
        .group_by(pl.col(end).alias("i"), "namespace")
        .agg(
            num=pl.col("num_seen").sum(),
            tools=pl.len(),
            same=(pl.col("num_seen") * (pl.col("num_seen") - 1)).sum(),
        )
        .join(spaces, on="namespace", suffix="_all")
        .join(called.rename({"namespace": "own"}), on="i")
        .sort("i", "namespace")
    )
    # A tool is no neighbour of its own: it does not count among those at random either.
    mine = pl.when(pl.col("own") == pl.col("namespace")).then(pl.col("n")).otherwise(0)
    others = (pl.col("all") - mine).cast(pl.Float64)
    chance = (pl.col("same_all") - mine * (mine - 1)) / (others * (others - 1))
    rows = (
        per_space.with_columns(chance=pl.when(others > 1).then(chance).otherwise(1.0))
        .group_by("i", maintain_order=True)
        .agg(
            pl.col("num").sum(),
            pl.col("tools").sum(),
            pl.col("same").sum(),
            expected=((pl.col("num") / pl.col("num").sum()) ** 2 * pl.col("chance")).sum(),
        )
        .iter_rows()
    )
    return {
        i: _Side(num, count, _breadth(num, same, expected))
        for i, num, count, same, expected in rows
    }


def _breadth(num: int, same: int, expected: float) -> float:
    """The chance of meeting one tool twice at random over that among the neighbours, at most 1."""
    if num < 2:
        return 0.0
    return min(1.0, expected * num * (num - 1) / same) if same else 1.0


def _communities(tools: pl.DataFrame, pairs: pl.DataFrame, labels: Any) -> list[Community]:
    """Groups of two tools and more, the largest first, then the most seen."""
    group = pl.Series("group", labels, dtype=pl.Int64)
    of = tools.select("i", "key", "namespace", "name").with_columns(group)
    ends = pairs.with_columns(
        from_group=group.gather(pairs["s"]), to_group=group.gather(pairs["t"])
    ).with_columns(is_inside=pl.col("from_group") == pl.col("to_group"))
    halves = pl.concat(
        [ends.select(i=end, num="num_seen", is_inside="is_inside") for end in ("s", "t")]
    )
    strength = halves.group_by("i").agg(
        all=pl.col("num").sum(), inside=pl.col("num").filter("is_inside").sum()
    )
    members = (
        of.join(strength, on="i", how="left")
        .with_columns(pl.col("all", "inside").fill_null(0))
        .sort("group", "inside", "key", descending=[False, True, False])
    )
    words: dict[str, Counter[str]] = {}
    for namespace, name in of.select("namespace", "name").iter_rows():
        words.setdefault(namespace, Counter()).update(_words(name))
    sizes = Counter(of["namespace"].to_list())
    found = []
    for part in members.partition_by("group", maintain_order=True):
        if len(part) < 2:
            continue
        spaces = sorted(set(part["namespace"]))
        around = sum((words[space] for space in spaces), Counter[str]())
        inside, total = int(part["inside"].sum()), int(part["all"].sum())
        found.append(
            Community(
                name=_label(part, around, sum(sizes[space] for space in spaces)),
                size=len(part),
                namespaces=tuple(spaces),
                strongest=tuple(part["key"].head(3)),
                num_seen=inside // 2,
                inside=inside / total if total else 0.0,
            )
        )
    return sorted(found, key=lambda c: (-c.size, -c.num_seen, c.strongest))


def _label(members: pl.DataFrame, around: Counter[str], num_tools: int) -> str:
    """A word that most names of a group share and others do not, else its strongest tool's name.

    ``around`` counts words over the ``num_tools`` tools of the group's namespaces.
    """
    here = Counter(word for name in members["name"].to_list() for word in _words(name))
    size = len(members)
    marked = [
        (count / size - around[word] / num_tools, word)
        for word, count in here.items()
        if count > 1 and count / size >= _MIN_LABEL
    ]
    lead, word = min(((-lead, word) for lead, word in marked), default=(0.0, ""))
    return word if -lead >= _MIN_LABEL / 2 else str(members["name"][0])


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def _groups(keys: Sequence[str], labels: Any, most: int) -> Listed[Tools]:
    """Components of two vertices and more, the largest first."""
    members: dict[int, list[int]] = {}
    for i, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(i)
    groups = sorted(
        (group for group in members.values() if len(group) > 1), key=lambda g: (-len(g), g)
    )
    return _listed(
        [Tools(len(group), tuple(keys[i] for i in group[:most])) for group in groups], most
    )


def _not_lately(
    active: pl.DataFrame, observed: pl.DataFrame, mark: date | None, quiet_days: int
) -> pl.DataFrame:
    """Active tools with a last day, which lies ``quiet_days`` or more before the mark."""
    last = pl.lit(None if mark is None else mark - timedelta(days=quiet_days), pl.Date)
    ends = pl.concat([observed.select(i=end, day="last_seen") for end in ("s", "t")])
    return (
        ends.group_by("i")
        .agg(pl.col("day").max())
        .filter(pl.col("day") <= last)
        .join(active, on="i")
        .sort("day", "key")
        .select("key", "day")
    )


def _coverage(tools: pl.DataFrame) -> pl.DataFrame:
    is_active = pl.col("status") == "active"
    return (
        tools.group_by("namespace")
        .agg(
            active=is_active.sum().cast(pl.Int64),
            called=(is_active & (pl.col("calls") > 0)).sum().cast(pl.Int64),
            deprecated=(~is_active).sum().cast(pl.Int64),
        )
        .with_columns(
            share=pl.when(pl.col("active") > 0)
            .then(pl.col("called") / pl.col("active"))
            .otherwise(0.0)
        )
        .sort("active", "namespace", descending=[True, False])
    )


def _warnings(tools: pl.DataFrame, edges: pl.DataFrame) -> pl.DataFrame:
    """Edges before which the target mostly fails, by failures beyond those usual for the target."""
    usual = tools.select(
        t="i", usual=pl.when(pl.col("calls") > 0).then(pl.col("num_failed") / pl.col("calls"))
    ).with_columns(pl.col("usual").fill_null(0.0))
    succeeded = pl.col("num_ok") + pl.col("num_unrecorded")
    return (
        edges.filter(pl.col("standing") == "warning")
        .join(usual, on="t")
        .with_columns(succeeded=succeeded)
        .with_columns(
            beyond=pl.col("num_failed")
            - pl.col("usual") * (pl.col("num_failed") + pl.col("succeeded"))
        )
        .sort("beyond", "num_failed", "s", "t", "kind", descending=[True, True] + [False] * 3)
        .select("source", "target", "kind", "num_failed", "succeeded", "usual")
    )


def _rows(frame: pl.DataFrame, kind: Callable[..., T], most: int) -> Listed[T]:
    """The first rows, each made a ``kind`` of its columns in their order."""
    return Listed(len(frame), tuple(kind(*row) for row in frame.head(most).iter_rows()))


def _listed(items: Sequence[T], most: int) -> Listed[T]:
    return Listed(len(items), tuple(items[:most]))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
