"""Thoughts-on-Graph: the paths from the resources at hand to a wanted type (arXiv 2310.17796, 3.2).

Depth-first over tools whose needs the resources so far can fill, with the paper's four strategies
for which of them to follow. ``models/best_first.py`` finds the same solutions in order of cost.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from models.search_graph import SearchGraph
from models.solutions import Found, Solution, Step, finish, merged, ranked

Strategy = Literal["greedy", "beam", "adaptive", "exhaustive"]
STRATEGIES: tuple[Strategy, ...] = ("greedy", "beam", "adaptive", "exhaustive")

Scores = NDArray[np.float64]
"""How well each tool of a graph suits one subtask, 1 (unrelated) to 5; shape ``[num_tools]``."""


@dataclass(frozen=True, slots=True)
class SearchConfig:
    """Limits and weights of a search.

    Attributes:
        strategy: Which candidates depth-first search follows: the best one, the ``beam`` best,
            those that score ``threshold`` or more (or the best one, where none does), or all.
        max_tools: Tools of a solution. The paper says 10; its code, and its counts of visited
            tools, say 5.
        beam: The paper says 3, its code 5.
        threshold: Of the scores.
        keep: Solutions that the expert looks at; the paper's code stops at 15.
        max_visits: Where a search is cut: memory and time stay bounded.
        step_cost: What a tool costs beside its score.
        spare_cost: What it costs to use a resource that does not have to be used.
    """

    strategy: Strategy = "adaptive"
    max_tools: int = 5
    beam: int = 3
    threshold: float = 3.0
    keep: int = 15
    max_visits: int = 100_000
    step_cost: float = 0.25
    spare_cost: float = 0.05

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: A value is out of its range.
        """
        for name in ("max_tools", "beam", "keep", "max_visits"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}.")
        for name in ("step_cost", "spare_cost"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"expected {name} of at least 0, got {getattr(self, name)}.")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"expected a strategy of {STRATEGIES}, got {self.strategy!r}.")


def solution_cost(
    graph: SearchGraph,
    steps: Sequence[Step],
    costs: Scores,
    num_args: int,
    config: SearchConfig,
) -> float:
    """The cost of a solution, each step once, with what it uses beside the arguments.

    A step pays the largest share that one of its uses asks.

    Args:
        graph: Of the tools.
        steps: Givers first.
        costs: Of each tool, at least 0, as :func:`tool_costs` gives them.
        num_args: Resources, from the first on, that cost nothing.
        config: Gives the cost of the others.
    """
    shares = [0.0] * (len(steps) - 1) + [1.0]
    total = 0.0
    for step in steps:
        for need, source in zip(graph.needs[step.tool], step.sources, strict=True):
            if source is None:
                total += need.skip
            elif source >= num_args:
                total += config.spare_cost
            elif source < 0:
                at = -1 - source
                used = need.nodes & graph.given(steps[at].tool)
                shares[at] = max(shares[at], graph.share(used))
    for share, step in zip(shares, steps, strict=True):
        total += share * float(costs[step.tool])
    return total


def tool_costs(scores: Scores, config: SearchConfig, failure_rates: Scores | None = None) -> Scores:
    """Costs out of scores: a step's own, up to 1 more for a low score, and ``-log`` of success.

    Args:
        scores: 1 to 5.
        config: Gives the cost of a step.
        failure_rates: Of each tool, 0 to 1, from its executions.
    """
    costs = config.step_cost + (5.0 - np.clip(scores, 1.0, 5.0)) / 4.0
    if failure_rates is not None:
        costs = costs - np.log1p(-np.clip(failure_rates, 0.0, 0.99))
    return np.asarray(costs, dtype=np.float64)


def search(
    graph: SearchGraph,
    resources: Sequence[frozenset[int]],
    targets: frozenset[int],
    scores: Scores,
    costs: Scores,
    config: SearchConfig,
    *,
    num_args: int | None = None,
    allowed: NDArray[np.bool_] | None = None,
    conflicts: Sequence[Collection[int]] = (),
) -> Found:
    """Depth-first search with one of the paper's strategies, then filter and ranking.

    A tool comes once a path. A path that gives what is wanted is a solution, and goes on too (a
    mask may be what a better mask is made of), as in the paper's algorithm 1.

    Args:
        graph: Tools and resource nodes.
        resources: What each resource at hand may fill.
        targets: Nodes of the wanted type.
        scores: For the strategy.
        costs: Of each tool, at least 0, for the ranking; shape ``[num_tools]``.
        config: Strategy and limits.
        num_args: How many resources, from the first on, a solution has to use; default: all.
        allowed: Tools that may be used; default: all.
        conflicts: Groups of which a path holds one tool at most.
    """
    walk = _Walk(
        graph, list(resources), targets, scores, config,
        len(resources) if num_args is None else num_args, allowed, conflict_groups(conflicts),
    )  # fmt: skip
    walk.descend([], set())
    solutions = [
        Solution(steps, solution_cost(graph, steps, costs, walk.num_args, config))
        for steps in walk.paths
    ]
    return Found(ranked(solutions, config.keep), walk.visits, is_cut=walk.is_cut)


def conflict_groups(conflicts: Sequence[Collection[int]]) -> dict[int, set[int]]:
    """Of each tool in a group, the tools that may not stand on a path with it."""
    groups: dict[int, set[int]] = {}
    for group in conflicts:
        for tool in group:
            groups.setdefault(tool, set()).update(group)
    return groups


class _Walk:
    """One depth-first search: what is at hand, where it was, what it found."""

    def __init__(
        self,
        graph: SearchGraph,
        resources: list[frozenset[int]],
        targets: frozenset[int],
        scores: Scores,
        config: SearchConfig,
        num_args: int,
        allowed: NDArray[np.bool_] | None,
        groups: dict[int, set[int]],
    ) -> None:
        self.graph, self.given, self.targets = graph, resources, targets
        self.scores, self.config, self.num_args = scores, config, num_args
        self.allowed, self.groups = allowed, groups
        self.needless = [
            t
            for t, needs in enumerate(graph.needs)
            if all(need.skip < math.inf for need in needs) and self._is_allowed(t)
        ]
        self.visits = 0
        self.is_cut = False
        self.paths: dict[tuple[Step, ...], None] = {}

    def _is_allowed(self, tool: int) -> bool:
        return self.allowed is None or bool(self.allowed[tool])

    def descend(self, path: list[Step], closed: set[int]) -> None:
        if len(path) >= self.config.max_tools or self.is_cut:
            return
        for step in self._selected(self._candidates(path, closed)):
            if self.visits >= self.config.max_visits:
                self.is_cut = True
                return
            self.visits += 1
            path.append(step)
            if self.graph.given(step.tool) & self.targets:
                done = finish(self.graph, path, self.given, self.num_args)
                if done is not None:
                    self.paths.setdefault(merged(done))
            self.descend(path, closed | self.groups.get(step.tool, set()) | {step.tool})
            path.pop()

    def _candidates(self, path: list[Step], closed: set[int]) -> list[Step]:
        """Tools that can run now, once for each resource that they could be reached from."""
        at_hand = [(r, nodes) for r, nodes in enumerate(self.given)]
        at_hand += [(-1 - s, self.graph.given(step.tool)) for s, step in enumerate(path)]
        found: dict[Step, None] = {}
        for tool in self.needless:
            if tool not in closed:
                found[Step(tool, (None,) * len(self.graph.needs[tool]))] = None
        for name, nodes in at_hand:
            for tool in sorted({tool for node in nodes for tool in self.graph.takers[node]}):
                if tool in closed or not self._is_allowed(tool):
                    continue
                step = _bound(self.graph, tool, name, nodes, at_hand)
                if step is not None:
                    found[step] = None
        return list(found)

    def _selected(self, candidates: list[Step]) -> list[Step]:
        """The candidates that the strategy follows."""
        if self.config.strategy == "exhaustive" or not candidates:
            return candidates
        order = sorted(candidates, key=lambda step: (-self.scores[step.tool], step.tool))
        if self.config.strategy == "greedy":
            return order[:1]
        if self.config.strategy == "beam":
            return order[: self.config.beam]
        good = [s for s in candidates if self.scores[s.tool] >= self.config.threshold]
        return good or order[:1]


def _bound(
    graph: SearchGraph,
    tool: int,
    name: int,
    nodes: frozenset[int],
    at_hand: list[tuple[int, frozenset[int]]],
) -> Step | None:
    """The tool reached from one resource: it fills the first need that it can.

    Other needs are filled where one resource alone can, and stay open where several can.
    """
    sources: list[int | None] = []
    is_placed = False
    for need in graph.needs[tool]:
        if not is_placed and need.nodes & nodes:
            sources.append(name)
            is_placed = True
            continue
        fitting = [other for other, has in at_hand if has & need.nodes]
        if not fitting and need.skip == math.inf:
            return None
        sources.append(fitting[0] if len(fitting) == 1 else None)
    return Step(tool, tuple(sources))
