"""How good plans are: node F1, link F1, edit distance and exact matches, in four conventions.

Papers count repeated tools, unknown names, missing answers and empty link lists each in their own
way, and their numbers must not be mixed. One function, :func:`score_plans`, computes them all:

============ ================== ================ ================== ================
             ``strict``         ``gtool``        ``gnn4plan``       ``taskbench``
============ ================== ================ ================== ================
source       ours               LynnixZ/GTool    GNN4TaskPlan       JARVIS/taskbench
average      over requests      over requests    over requests      F1 pooled
repeats      multisets          inflate F1       deflate F1         sets
unknown tool wrong              wrong            wrong              no node; wrong link
links        gold, or adjacent  adjacent         gold, or adjacent  gold, or adjacent
no links     1                  0                0                  no contribution
no plan      0                  0                dropped            dropped
names        exact              exact            exact              case, ``_`` folded
============ ================== ================ ================== ================

"Gold, or adjacent": gold links against the links of the plan; where the example states none, the
pairs of neighbours on both sides. ``l_f1_adjacent`` takes the pairs of neighbours always. A link
is compared as (source tool, target tool). NED is ``1 - indel ratio`` of the tool lists, a
substitution costs 2, lower is better, always averaged over requests (``taskbench``: all unknown
tools are one and the same). ``exact`` is "the tool lists are equal", except in ``gnn4plan``, whose
accuracy is "node F1 of at least 0.99", whatever the order.

Two departures from the published scripts: ``gtool`` lower-cases names there (a tool here is its
exact key), and ``taskbench`` folds names in its temporal set as well.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from models.errors import GraphMismatch, MissingMetric, NotEnoughData
from models.statistics import Values, weighted_mean
from models.types import Example, Link, Plan

Convention = Literal["strict", "gtool", "gnn4plan", "taskbench"]
"""How to count; the table above tells the conventions apart."""

METRICS = ("n_f1", "l_f1", "l_f1_adjacent", "ned", "exact")
"""Every metric of :class:`Scores`, each between 0 and 1."""

_UNKNOWN = ""  # stands for every tool outside the catalogue in the edit distance of taskbench


@dataclass(frozen=True, eq=False)
class Scores:
    """What each request scored, in suite order, and the means.

    A mean is the mean of the per-request values under ``weights``. All weights are 1 where a
    convention averages over requests; 0 drops a missing plan; and a pooled F1 is exactly the mean
    of per-request F1 weighted by the number of gold and planned items, so ``taskbench`` needs no
    case of its own. Where nothing carries weight the mean is the plain one.

    Attributes:
        convention: How the scores were counted.
        ids: Ids of the examples.
        n_f1: F1 of the tools, float64, shape ``[num_requests]``.
        l_f1: F1 of the links, same shape.
        l_f1_adjacent: F1 of the pairs of neighbours, same shape.
        ned: Normalised edit distance, lower is better, same shape.
        exact: 1 where the plan is right, else 0, same shape.
        weights: Metric to the say of each request in its mean, same shape.
        failed: Whether the request got no plan, or one without tools, bool, same shape.
    """

    convention: Convention
    ids: tuple[str, ...]
    n_f1: Values
    l_f1: Values
    l_f1_adjacent: Values
    ned: Values
    exact: Values
    weights: Mapping[str, Values]
    failed: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)

    def values(self, metric: str) -> Values:
        """Per-request values of a metric.

        Raises:
            MissingMetric: There is no such metric.
        """
        if metric not in METRICS:
            raise MissingMetric(f"expected one of {', '.join(METRICS)}, got {metric!r}")
        array: Values = getattr(self, metric)
        return array

    def mean(self, metric: str) -> float:
        """Mean of one metric as its convention defines it."""
        return weighted_mean(self.values(metric), self.weights[metric])

    @property
    def means(self) -> dict[str, float]:
        """Metric to mean, unrounded."""
        return {metric: self.mean(metric) for metric in METRICS}

    @property
    def failures(self) -> int:
        """How many requests got no plan, or one without tools."""
        return int(self.failed.sum())

    def take(self, positions: Sequence[int]) -> "Scores":
        """The scores of some requests only, for instance of one namespace or plan length."""
        rows = np.asarray(positions, dtype=np.int64)
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            weights={metric: weight[rows] for metric, weight in self.weights.items()},
            failed=self.failed[rows],
            n_f1=self.n_f1[rows],
            l_f1=self.l_f1[rows],
            l_f1_adjacent=self.l_f1_adjacent[rows],
            ned=self.ned[rows],
            exact=self.exact[rows],
        )


def score_plans(
    gold: Sequence[Example],
    plans: Sequence[Plan | None],
    convention: Convention = "strict",
    known_tools: Collection[str] | None = None,
) -> Scores:
    """Scores of one plan for each example.

    Args:
        gold: The examples, shape ``[num_requests]``.
        plans: Their plans in the same order; None where the planner gave none. None and a plan
            without tools score 0 on every F1 and 1 on NED.
        convention: How to count.
        known_tools: Keys of the catalogue; only ``taskbench`` reads it, and needs it.

    Raises:
        NotEnoughData: There is no example, or one without tools.
        MissingMetric: The numbers of examples and plans differ, or ``taskbench`` has no catalogue.
        GraphMismatch: A link points outside its tool list.
        ValueError: The convention is unknown.

    Example:
        Gold a, b and plan a, a, a, b: n-F1 is 0.667 in ``strict``, 1.0 in ``gtool``.
    """
    if convention not in _RULES:
        raise ValueError(
            f"expected one of {', '.join(get_args(Convention))}, got convention {convention!r}"
        )
    if not gold:
        raise NotEnoughData("expected at least one example to score, got none; fill the suite")
    if len(gold) != len(plans):
        raise MissingMetric(
            f"expected {len(gold)} plans, one for each example, got {len(plans)}; "
            "put None where the planner gave none"
        )
    if convention == "taskbench" and known_tools is None:
        raise MissingMetric(
            "expected known_tools for the taskbench convention, got None; "
            "pass the keys of the catalogue"
        )
    rules = _RULES[convention]
    known = frozenset(map(_folded, known_tools or ()))
    values = {metric: np.zeros(len(gold)) for metric in METRICS}
    values["ned"][:] = 1.0
    weights = {metric: np.ones(len(gold)) for metric in METRICS}
    failed = np.zeros(len(gold), dtype=np.bool_)
    for row, (example, plan) in enumerate(zip(gold, plans, strict=True)):
        if not example.tools:
            raise NotEnoughData(
                f"expected at least one tool in example {example.id!r}, got none; "
                "leave it out of the suite"
            )
        failed[row] = plan is None or not plan.tools
        if plan is None:
            if rules.drops_missing:
                for weight in weights.values():
                    weight[row] = 0.0
            continue
        stated = rules.gold_links and example.has_links
        theirs = f"the plan for example {example.id!r}"
        left = _side(
            example.tools,
            example.links if stated else None,
            rules,
            known,
            f"example {example.id!r}",
        )
        right = _side(plan.tools, plan.links if stated else None, rules, known, theirs)
        if plan.tools:
            for metric, value in _score(left, right, rules).items():
                values[metric][row] = value
        if rules.pooled:
            weights["n_f1"][row] = _pooled_size(left.nodes, right.nodes)
            weights["l_f1"][row] = _pooled_size(left.links, right.links)
            weights["l_f1_adjacent"][row] = _pooled_size(left.pairs, right.pairs)
    ids = tuple(example.id for example in gold)
    return Scores(convention=convention, ids=ids, weights=weights, failed=failed, **values)


def normalised_edit_distance(gold: Sequence[Hashable], plan: Sequence[Hashable]) -> float:
    """``1 - indel ratio``: share of items to delete or insert, 0 equal, 1 nothing in common.

    The indel distance is ``len(gold) + len(plan) - 2 * LCS``; the longest common subsequence is
    found bit-parallel, one machine word operation an item (Hyyrö 2004). Two empty lists are equal.
    """
    total = len(gold) + len(plan)
    if not total:
        return 0.0
    return (total - 2 * _common_subsequence(gold, plan)) / total


F1 = Callable[[Sequence[Hashable], Sequence[Hashable]], float]
"""Agreement of two lists, gold first, between 0 and 1."""


def _strict_f1(gold: Sequence[Hashable], plan: Sequence[Hashable]) -> float:
    """F1 of two multisets; two empty ones agree."""
    if not gold or not plan:
        return float(not gold and not plan)
    return 2 * (Counter(gold) & Counter(plan)).total() / (len(gold) + len(plan))


def _gtool_f1(gold: Sequence[Hashable], plan: Sequence[Hashable]) -> float:
    """F1 of the public GTool script: each repetition of a right item counts as found."""
    gold_set, plan_set = set(gold), set(plan)
    found = sum(item in gold_set for item in plan)
    missed = sum(item not in plan_set for item in gold)
    return 2 * found / (found + len(plan) + missed) if found else 0.0


def _gnn4plan_f1(gold: Sequence[Hashable], plan: Sequence[Hashable]) -> float:
    """F1 of GNN4TaskPlan: common distinct items over the lengths of the lists."""
    common = len(set(gold) & set(plan))
    if not common:
        return 0.0
    precision, recall = common / len(plan), common / len(gold)
    return 2 * precision * recall / (precision + recall + 1e-9)


def _taskbench_f1(gold: Sequence[Hashable], plan: Sequence[Hashable]) -> float:
    """F1 of two sets, the share of one request in TaskBench's pooled F1; 1 where both are empty."""
    size = _pooled_size(gold, plan)
    return 2 * len(set(gold) & set(plan)) / size if size else 1.0


def _pooled_size(gold: Sequence[Hashable], plan: Sequence[Hashable]) -> int:
    """Denominator of a pooled F1, ``2 TP + FP + FN``: distinct items of both sides."""
    return len(set(gold)) + len(set(plan))


@dataclass(frozen=True, slots=True)
class _Rules:
    """What tells one convention from another."""

    f1: F1
    gold_links: bool = True  # links are the stated ones where there are any, else always neighbours
    drops_missing: bool = False  # a request without a plan leaves the mean
    pooled: bool = False  # F1 is a ratio of sums over all requests, on folded names
    accuracy: bool = False  # exact is "node F1 of at least 0.99"


_RULES: dict[str, _Rules] = {
    "strict": _Rules(_strict_f1),
    "gtool": _Rules(_gtool_f1, gold_links=False),
    "gnn4plan": _Rules(_gnn4plan_f1, drops_missing=True, accuracy=True),
    "taskbench": _Rules(_taskbench_f1, drops_missing=True, pooled=True),
}


@dataclass(frozen=True, slots=True)
class _Side:
    """What is compared of one plan, gold or proposed, under one convention."""

    tools: Sequence[str]
    order: Sequence[str]  # what the edit distance reads
    nodes: Sequence[str]
    links: Sequence[tuple[str, str]]
    pairs: Sequence[tuple[str, str]]


def _side(
    tools: Sequence[str],
    links: Sequence[Link] | None,
    rules: _Rules,
    known: frozenset[str],
    owner: str,
) -> _Side:
    """One side of a comparison; links None stands for the pairs of neighbours."""
    order = nodes = tools
    if rules.pooled:
        tools = [_folded(tool) for tool in tools]
        nodes = [tool for tool in tools if tool in known]
        order = [tool if tool in known else _UNKNOWN for tool in tools]
    pairs = [*pairwise(tools)]
    named = pairs if links is None else _named(links, tools, owner)
    return _Side(tools=tools, order=order, nodes=nodes, links=named, pairs=pairs)


def _score(gold: _Side, plan: _Side, rules: _Rules) -> dict[str, float]:
    """The five metrics of one request that got a plan."""
    n_f1 = rules.f1(gold.nodes, plan.nodes)
    adjacent = rules.f1(gold.pairs, plan.pairs)
    return {
        "n_f1": n_f1,
        "l_f1": adjacent if gold.links is gold.pairs else rules.f1(gold.links, plan.links),
        "l_f1_adjacent": adjacent,
        "ned": normalised_edit_distance(gold.order, plan.order),
        "exact": float(n_f1 >= 0.99 if rules.accuracy else [*gold.tools] == [*plan.tools]),
    }


def _named(links: Sequence[Link], tools: Sequence[str], owner: str) -> list[tuple[str, str]]:
    """Links between positions as links between tools."""
    for source, target in links:
        if not (0 <= source < len(tools) and 0 <= target < len(tools)):
            raise GraphMismatch(
                f"expected links between positions 0 and {len(tools) - 1} in {owner}, "
                f"got {(source, target)}"
            )
    return [(tools[source], tools[target]) for source, target in links]


@lru_cache(maxsize=1 << 16)
def _folded(key: str) -> str:
    """A key with the name in lower case and blanks for underscores; the namespace stays."""
    namespace, slash, name = key.partition("/")
    if not slash:
        namespace, name = "", key
    return namespace + slash + name.replace("_", " ").lower()


def _common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence; bit ``i`` of a row stands for ``a[i]``."""
    places: dict[Hashable, int] = {}
    for i, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << i
    full = (1 << len(a)) - 1
    row = full
    for item in b:
        hits = row & places.get(item, 0)
        row = ((row + hits) | (row - hits)) & full
    return len(a) - row.bit_count()
