"""Both readouts of GTool together: each proposes plans, both judge them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.gtool import GToolPlanner
from models.llm_planner import LLMPlanner
from models.metrics import score_plans
from models.types import Example, Plan

WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Weights of the LLM that are tried on validation rows."""

PROPOSALS = 4
"""Plans that each readout proposes where it is not asked for more."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One proposed plan: tool rows and what either readout says of it, both in 0..1."""

    plan: tuple[int, ...]
    graph: float
    llm: float

    def score(self, weight: float) -> float:
        """Both together."""
        return (1.0 - weight) * self.graph + weight * self.llm


class Chosen(NamedTuple):
    """The weight that validation rows chose, and what each weight reached on them."""

    weight: float
    scores: Mapping[float, float]


class Agreement(NamedTuple):
    """How often two planners give the same tools in the same order, and their mean node F1."""

    equal: float
    n_f1: float


class FusionPlanner:
    r"""Plans by :math:`(1 - w) s_{graph} + w\, s_{LLM}` over the proposals of both readouts.

    :math:`s_{graph}` is the graph readout's score; a plan that only the LLM proposes gets the score
    of the graph's plan that is nearest to it, times their likeness. :math:`s_{LLM}` is the
    geometric mean of the probabilities of the choices that spell the plan. With :math:`w = 0` the
    LLM is not asked at all, and the plans are the graph readout's.

    Args:
        graph: The graph readout.
        llm: The LLM readout beside it.
        weight: The LLM's say :math:`w`, 0..1; default: what its training chose.
    """

    name = "gtool-fusion"

    def __init__(self, graph: GToolPlanner, llm: LLMPlanner, weight: float | None = None) -> None:
        weight = llm.config.fusion_weight if weight is None else weight
        if not 0.0 <= weight <= 1.0:
            raise ValueError(f"expected a weight in 0..1, got {weight}")
        self.graph, self.llm, self.weight = graph, llm, weight

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``."""
        if self.weight == 0.0:
            return [
                [Plan(plan.tools, plan.links, plan.score, self.name) for plan in ranked]
                for ranked in self.graph.plan(requests, top)
            ]
        return [
            [self._named(judged) for judged in ranked_by(group, self.weight)[:top]]
            for group in proposals(self.graph, self.llm, requests, max(top, PROPOSALS))
        ]

    def _named(self, judged: Judged) -> Plan:
        plan = self.llm.named(judged.plan, judged.score(self.weight))
        return Plan(plan.tools, plan.links, plan.score, self.name)


def ranked_by(group: Sequence[Judged], weight: float) -> list[Judged]:
    """Proposals, the best one under a weight first; equal ones as they came."""
    return sorted(group, key=lambda judged: -judged.score(weight))


def proposals(
    graph: GToolPlanner, llm: LLMPlanner, requests: Sequence[str], count: int
) -> list[list[Judged]]:
    """The plans that either readout proposes, judged by both; the graph's come first.

    Args:
        graph: The graph readout.
        llm: The LLM readout.
        requests: The requests.
        count: Plans that each proposes.
    """
    index = llm.graph.index
    drawn = [
        {tuple(index[key] for key in plan.tools): plan.score for plan in ranked}
        for ranked in graph.plan(requests, top=count)
    ]
    # A plan that is longer than the LLM may write cannot be judged by it.
    drawn = [
        {plan: score for plan, score in some.items() if len(plan) <= llm.max_length}
        for some in drawn
    ]
    spoken = [
        [ranked for ranked in group[:count] if ranked.plan not in known]
        for group, known in zip(llm.search(requests, count), drawn, strict=True)
    ]
    judged = llm.judge(requests, [list(some) for some in drawn])
    found = []
    for known, said, new in zip(drawn, judged, spoken, strict=True):
        group = [Judged(r.plan, known[r.plan], r.mean_probability) for r in said]
        for ranked in new:
            near = [score * likeness(ranked.plan, plan) for plan, score in known.items()]
            group.append(Judged(ranked.plan, max(near, default=0.0), ranked.mean_probability))
        found.append(group)
    return found


def likeness(a: Sequence[int], b: Sequence[int]) -> float:
    """How well two plans agree: mean of node F1, F1 of neighbours and 1 - NED, in 0..1."""
    return float(_qualities([tuple(map(str, a))], [tuple(map(str, b))])[0])


def choose_weight(
    graph: GToolPlanner,
    llm: LLMPlanner,
    examples: Sequence[Example],
    weights: Sequence[float] = WEIGHTS,
) -> Chosen:
    """The smallest weight of the LLM that serves validation rows about as well as the best one.

    That is within two standard errors of the difference, row by row: a few dozen rows would choose
    by chance between two readouts of which one is better.

    Args:
        graph: A graph readout that has not learnt the examples' plans, see ``read_rows``.
        llm: The LLM readout beside it.
        examples: Validation rows with gold plans.
        weights: Weights to try.
    """
    requests = [example.request for example in examples]
    groups = proposals(graph, llm, requests, PROPOSALS)
    keys, gold = llm.graph.keys, [example.tools for example in examples]
    reached: dict[float, NDArray[np.float64]] = {}
    for weight in sorted(weights):
        plans = [ranked_by(group, weight)[:1] for group in groups]
        reached[weight] = _qualities(
            gold, [tuple(keys[row] for judged in best for row in judged.plan) for best in plans]
        )
    scores = {weight: float(values.mean()) for weight, values in reached.items()}
    best = reached[max(scores, key=lambda weight: (scores[weight], -weight))]
    behind = {weight: best - values for weight, values in reached.items()}
    close = (w for w, gap in behind.items() if gap.mean() <= 2 * _standard_error(gap))
    return Chosen(next(close), scores)


def agreement(a: Sequence[Plan | None], b: Sequence[Plan | None]) -> Agreement:
    """How far two planners agree on the same requests."""
    pairs = [(x.tools if x else (), y.tools if y else ()) for x, y in zip(a, b, strict=True)]
    both = [(x, y) for x, y in pairs if x and y]
    common = _scored([x for x, _ in both], [y for _, y in both])["n_f1"].mean() if both else 0.0
    count = max(1, len(pairs))
    return Agreement(sum(x == y for x, y in pairs) / count, common * len(both) / count)


def _qualities(
    gold: Sequence[tuple[str, ...]], plans: Sequence[tuple[str, ...]]
) -> NDArray[np.float64]:
    """Mean of node F1, F1 of neighbours and 1 - NED, of each row."""
    values = _scored(gold, plans)
    return (values["n_f1"] + values["l_f1_adjacent"] + 1.0 - values["ned"]) / 3


def _standard_error(values: NDArray[np.float64]) -> float:
    """Of the mean; 0 of a single value."""
    return float(values.std(ddof=min(1, len(values) - 1)) / len(values) ** 0.5)


def _scored(
    gold: Sequence[tuple[str, ...]], plans: Sequence[tuple[str, ...]]
) -> dict[str, NDArray[np.float64]]:
    """Strict metrics of tool lists, of each row."""
    scores = score_plans(
        [Example(str(i), "", tools) for i, tools in enumerate(gold)],
        [Plan(tools, (), 0.0, "") if tools else None for tools in plans],
    )
    return {metric: scores.values(metric) for metric in ("n_f1", "l_f1_adjacent", "ned")}
