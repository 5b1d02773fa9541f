"""Solutions of a subtask: which tools, and which resource fills which of their needs."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from models.search_graph import SearchGraph


class Step(NamedTuple):
    """One tool of a solution.

    Attributes:
        tool: Its number in the search graph.
        sources: Of each of its needs, where the resource comes from: ``i >= 0`` is resource ``i``
            of the subtask, ``-1 - s`` the output of step ``s``, None still open.
    """

    tool: int
    sources: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Solution:
    """A way to a wanted type.

    Attributes:
        steps: In an order in which they can run; the last one gives what is wanted.
        cost: Of its tools, of what it leaves open and uses besides; lower is better.
    """

    steps: tuple[Step, ...]
    cost: float

    @property
    def tools(self) -> tuple[int, ...]:
        """Its tools in order."""
        return tuple(step.tool for step in self.steps)


class Found(NamedTuple):
    """What a search found.

    Attributes:
        solutions: Best first.
        visits: Tools that the search descended into, the paper's "visited tools".
        touched: Tools that computing the bound looked at (best-first only), each time.
        is_cut: Whether a limit ended the search early.
    """

    solutions: list[Solution]
    visits: int
    touched: int = 0
    is_cut: bool = False


def finish(
    graph: SearchGraph,
    path: Sequence[Step],
    resources: Sequence[frozenset[int]],
    num_args: int,
) -> tuple[Step, ...] | None:
    """A path with every need filled; None where a step or an argument serves nothing.

    Open needs take the newest resource of a fitting kind that nobody uses yet, then the newest
    at all. What is left unused makes the path a detour (ControlLLM's filter, walked forward).

    Args:
        graph: Of the tools.
        path: Steps as found, the last one giving what is wanted.
        resources: What each resource of the subtask may fill.
        num_args: How many of them, from the first on, have to be used.
    """
    used = {source for step in path for source in step.sources if source is not None}
    steps = []
    for place, step in enumerate(path):
        sources = list(step.sources)
        for i, need in enumerate(graph.needs[step.tool]):
            if sources[i] is None:
                fitting = [
                    -1 - s
                    for s in range(place - 1, -1, -1)
                    if graph.given(path[s].tool) & need.nodes
                ]
                fitting += [r for r, nodes in enumerate(resources) if nodes & need.nodes]
                if not fitting and need.skip < math.inf:
                    continue
                if not fitting:
                    return None
                chosen = next((r for r in fitting if r not in used), fitting[0])
                sources[i] = chosen
                used.add(chosen)
        steps.append(Step(step.tool, tuple(sources)))
    serves = all(-1 - place in used for place in range(len(path) - 1))
    return tuple(steps) if serves and used.issuperset(range(num_args)) else None


def merged(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps with equal ones (same tool, same sources) done once."""
    place: dict[Step, int] = {}
    moved: dict[int, int] = {}
    kept: list[Step] = []
    for at, step in enumerate(steps):
        now = Step(
            step.tool,
            tuple(
                -1 - moved[-1 - source] if source is not None and source < 0 else source
                for source in step.sources
            ),
        )
        if now not in place:
            place[now] = len(kept)
            kept.append(now)
        moved[at] = place[now]
    return tuple(kept)


def ranked(solutions: Iterable[Solution], keep: int) -> list[Solution]:
    """Distinct solutions, cheapest first, then shortest, then by tools: ControlLLM's expert."""
    best: dict[tuple[Step, ...], Solution] = {}
    for solution in solutions:
        known = best.get(solution.steps)
        if known is None or solution.cost < known.cost:
            best[solution.steps] = solution
    order = sorted(best.values(), key=lambda s: (s.cost, len(s.steps), s.tools, str(s.steps)))
    return order[:keep]
