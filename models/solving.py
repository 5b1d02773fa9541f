"""From subtasks to plans: each subtask searched, the solutions joined, arguments filled.

ControlLLM's solution expert keeps several solutions of each subtask and its resource expert fills
their arguments (arXiv 2310.17796, 3.2.3). Here the search binds resources already, and plans are
ranked as wholes, by the sum of their costs.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.best_first import best_first
from models.search_graph import SearchGraph
from models.solutions import Found, Solution, Step, ranked
from models.subtasks import GENERATED, Subtask
from models.thoughts_on_graph import (
    Scores,
    SearchConfig,
    Strategy,
    search,
    tool_costs,
)
from models.toolset import Resource
from models.types import Argument, Plan


class Suits(NamedTuple):
    """How well tools suit one subtask, 1 (unrelated) to 5 (closely related).

    Attributes:
        tools: Of every tool, shape ``[num_tools]``.
        pieces: For each piece of the subtask's description, shape ``[num_pieces, num_tools]``.
    """

    tools: Scores
    pieces: Scores


Scorer = Callable[[Sequence[Subtask]], Sequence[Suits]]
"""How well every tool suits each of the subtasks."""


@dataclass(frozen=True)
class SolvingConfig:
    """How subtasks are solved.

    Attributes:
        strategy: ``best-first``, or one of the paper's.
        search: Limits and weights; its own ``strategy`` is set from the one above.
        failure_rates: Of each tool, from its executions.
        conflicts: Groups of tools of which a solution holds one at most.
        use_domains: Whether a subtask's domains limit the tools.
        coverage_weight: What the solution expert adds for pieces of the description that no tool
            of a solution suits: up to this for each.
    """

    strategy: Strategy | Literal["best-first"] = "best-first"
    search: SearchConfig = field(default_factory=SearchConfig)
    failure_rates: Scores | None = None
    conflicts: Sequence[Collection[int]] = ()
    use_domains: bool = True
    coverage_weight: float = 0.5


GENERAL = "general"
"""The domain whose tools any subtask may use."""


def solve(graph: SearchGraph, subtask: Subtask, suits: Suits, config: SolvingConfig) -> Found:
    """The solutions of one subtask, best first; none where its type is out of reach.

    A subtask that wants several types is solved for the first one.
    """
    targets = graph.of_type(subtask.returns[0]) if subtask.returns else frozenset()
    if not targets:
        return Found([], 0)
    resources = graph.of_resources([*subtask.args, *subtask.known])
    usable = _allowed(graph, subtask.domains) if config.use_domains else None
    prices = tool_costs(suits.tools, config.search, config.failure_rates)
    if config.strategy == "best-first":
        found = best_first(
            graph, resources, targets, prices, config.search,
            num_args=len(subtask.args), allowed=usable, conflicts=config.conflicts,
        )  # fmt: skip
    else:
        found = search(
            graph, resources, targets, suits.tools, prices,
            replace(config.search, strategy=config.strategy),
            num_args=len(subtask.args), allowed=usable, conflicts=config.conflicts,
        )  # fmt: skip
    weighed = [judged(solution, suits.pieces, config) for solution in found.solutions]
    return found._replace(solutions=ranked(weighed, config.search.keep))


def judged(solution: Solution, pieces: Scores, config: SolvingConfig) -> Solution:
    """The solution with what the expert holds against it: parts of the task it leaves undone."""
    best = pieces[:, list(solution.tools)].max(axis=1)
    missing = float(((5.0 - best) / 4.0).sum())
    return replace(solution, cost=solution.cost + config.coverage_weight * missing)


def _allowed(graph: SearchGraph, domains: Collection[str]) -> NDArray[np.bool_] | None:
    """Tools of the domains and of the general one; all where nothing is said or known."""
    if not domains or not any(graph.domains):
        return None
    wanted = {GENERAL, *domains}
    return np.array([domain in wanted for domain in graph.domains], dtype=np.bool_)


class Solved(NamedTuple):
    """What became of a request's subtasks.

    Attributes:
        plans: Ranked; none where a subtask has no solution.
        found: Of each subtask.
        unsolved: Ids of subtasks without a solution.
    """

    plans: list[Plan]
    found: list[Found]
    unsolved: list[int]

    @property
    def visits(self) -> int:
        """Tools visited over all subtasks."""
        return sum(found.visits for found in self.found)


def solve_all(
    graph: SearchGraph,
    subtasks: Sequence[Subtask],
    suits: Sequence[Suits],
    config: SolvingConfig,
    *,
    top: int = 1,
    name: str = "tog",
) -> Solved:
    """Plans for the subtasks of one request, cheapest first.

    Args:
        graph: Tools and resource nodes.
        subtasks: In any order that their dependencies allow.
        suits: How tools suit each subtask.
        config: Strategy and weights.
        top: Plans at most.
        name: Of the planner, for the plans.
    """
    found = [
        solve(graph, subtask, one, config) for subtask, one in zip(subtasks, suits, strict=True)
    ]
    unsolved = [
        subtask.id for subtask, one in zip(subtasks, found, strict=True) if not one.solutions
    ]
    choices = [] if unsolved else [one.solutions for one in found]
    plans = [plan for plan, _ in join_solutions(graph, subtasks, choices, top, name)]
    return Solved(plans, found, unsolved)


def join_solutions(
    graph: SearchGraph,
    subtasks: Sequence[Subtask],
    choices: Sequence[Sequence[Solution]],
    top: int,
    name: str,
) -> list[tuple[Plan, list[int]]]:
    """Plans out of one solution a subtask, cheapest first, with the subtask id of each step.

    Args:
        graph: Tools and resource nodes.
        subtasks: In an order that their dependencies allow.
        choices: Of each subtask, its solutions, best first.
        top: Plans at most.
        name: Of the planner.
    """
    if not choices:
        return []
    return [_join(graph, subtasks, chosen, -cost, name) for cost, chosen in _cheapest(choices, top)]


def _cheapest(
    choices: Sequence[Sequence[Solution]], top: int
) -> Iterator[tuple[float, tuple[Solution, ...]]]:
    """Choices of one solution each, in order of their sum, at most ``top``."""

    def price(picks: tuple[int, ...]) -> float:
        return sum(ways[i].cost for ways, i in zip(choices, picks, strict=True))

    start = (0,) * len(choices)
    queue, seen = [(price(start), start)], {start}
    while queue and top > 0:
        cost, picks = heapq.heappop(queue)
        yield cost, tuple(ways[i] for ways, i in zip(choices, picks, strict=True))
        top -= 1
        for at, ways in enumerate(choices):
            following = (*picks[:at], picks[at] + 1, *picks[at + 1 :])
            if following[at] < len(ways) and following not in seen:
                seen.add(following)
                heapq.heappush(queue, (price(following), following))


def _join(
    graph: SearchGraph,
    subtasks: Sequence[Subtask],
    chosen: Sequence[Solution],
    score: float,
    name: str,
) -> tuple[Plan, list[int]]:
    """One plan out of the solutions of all subtasks, and the subtask of each step."""
    tools: list[str] = []
    arguments: list[tuple[Argument, ...]] = []
    ends: dict[int, int] = {}
    done: dict[str, int] = {}
    edges: set[tuple[int, int]] = set()
    owners: list[int] = []
    for subtask, solution in zip(subtasks, chosen, strict=True):
        resources = [*subtask.args, *subtask.known]
        moved: dict[int, int] = {}
        for at, step in enumerate(solution.steps):
            key = graph.keys[step.tool]
            if only_fills_edges(graph, solution.steps, at) and key in done:
                moved[at] = done[key]  # it has run already, for another subtask
                continue
            moved[at] = len(tools)
            done.setdefault(key, len(tools))
            bound = {}
            for need, source in zip(graph.needs[step.tool], step.sources, strict=True):
                bound[need.parameter] = source
                if need.is_edge and source is not None and source < 0:
                    edges.add((moved[-1 - source], len(tools)))
            filled = []
            for f in graph.signatures[key].takes:
                kind = "|".join(f.types)
                source = bound.get(f.name)
                if source is None:
                    filled.append(Argument(f.name, kind))
                elif source < 0:
                    filled.append(Argument(f.name, kind, step=moved[-1 - source]))
                else:
                    filled.append(_given(f.name, kind, resources[source], ends))
            tools.append(key)
            arguments.append(tuple(filled))
            owners.append(subtask.id)
        ends[subtask.id] = moved[len(solution.steps) - 1]
    edges |= {(a.step, at) for at, step in enumerate(arguments) for a in step if a.step is not None}
    plan = Plan(tuple(tools), tuple(sorted(edges)), score, name, tuple(arguments))
    return plan, owners


def only_fills_edges(graph: SearchGraph, steps: Sequence[Step], at: int) -> bool:
    """Whether a step is there because of likely edges alone, and takes no input of its own."""
    users = [
        need.is_edge
        for step in steps
        for need, source in zip(graph.needs[step.tool], step.sources, strict=True)
        if source == -1 - at
    ]
    return bool(users) and all(users)


def _given(parameter: str, kind: str, resource: Resource, ends: Mapping[int, int]) -> Argument:
    """An argument that a resource of the subtask fills: a value, or another subtask's output."""
    made = GENERATED.fullmatch(str(resource.value))
    if made and int(made[1]) in ends:
        return Argument(parameter, kind, step=ends[int(made[1])])
    return Argument(parameter, kind, resource.value)
