"""Thoughts-on-Graph in order of cost: A* from the wanted type back to the resources at hand.

The paper's strategies walk forwards from what is at hand and look at every tool that could run.
Here an open need is filled at a time, beginning with the wanted type, and the cheapest unfinished
solution goes on. The bound of what is still open comes from Knuth's generalisation of Dijkstra's
algorithm to AND/OR graphs (Inf. Proc. Letters 6(1), 1977), over (node, arguments used): it is the
exact cost of the cheapest tree, so it never overestimates, and search descends into little but the
tools of solutions.
"""

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.search_graph import SearchGraph
from models.solutions import Found, Solution, Step, merged, ranked
from models.thoughts_on_graph import Scores, SearchConfig, conflict_groups, solution_cost

_MAX_ARGS = 8
"""Arguments whose use the bound follows; the others are checked when a solution is complete."""

_Table = dict[int, dict[int, float]]
"""Of each node, arguments used (a bit each) to the cost of the cheapest tree that gives it."""


class _Open(NamedTuple):
    """A need to fill: its nodes, the tools above it, and whose it is (place, which need)."""

    nodes: frozenset[int]
    above: tuple[int, ...]
    place: int
    slot: int
    skip: float


class _Partial(NamedTuple):
    """An unfinished tree.

    ``filled`` says of which need (place, slot) what fills it: a resource, or ``-1 -`` the place of
    a tool. ``is_new`` says that the last thing done was to add a tool.
    """

    tools: tuple[int, ...]
    filled: tuple[tuple[int, int, int], ...]
    open: tuple[_Open, ...]
    used: int
    cost: float
    is_new: bool


def best_first(
    graph: SearchGraph,
    resources: Sequence[frozenset[int]],
    targets: frozenset[int],
    costs: Scores,
    config: SearchConfig,
    *,
    num_args: int | None = None,
    allowed: NDArray[np.bool_] | None = None,
    conflicts: Sequence[Collection[int]] = (),
    end_costs: Scores | None = None,
) -> Found:
    """The cheapest solutions, best first, as :func:`models.thoughts_on_graph.search` takes it.

    Solutions are trees: a tool whose output serves twice is paid twice while searching, and done
    once afterwards. It stops when ``config.keep`` solutions are found or no other can be.
    ``end_costs`` are paid by the last tool of a solution beside its own, shape ``[num_tools]``.
    """
    num_args = len(resources) if num_args is None else num_args
    space = _Space(
        graph, resources, num_args, costs, config, conflict_groups(conflicts), allowed, targets,
        end_costs,
    )  # fmt: skip
    start = _Partial((), (), (_Open(targets, (), -1, 0, math.inf),), 0, 0.0, is_new=False)
    counter = itertools.count()
    queue = (
        [(estimate, 1, next(counter), start)] if (estimate := space.bound(start)) < math.inf else []
    )
    visits, is_cut = 0, False
    found: dict[tuple[Step, ...], Solution] = {}
    while queue and len(found) < config.keep:
        *_, partial = heapq.heappop(queue)
        if partial.is_new and visits >= config.max_visits:
            is_cut = True
            break
        visits += partial.is_new
        if not partial.open:
            solution = space.complete(partial)
            if solution is not None:
                found.setdefault(solution.steps, solution)
            continue
        for child in space.children(partial):
            estimate = child.cost + space.bound(child)
            if estimate < math.inf:  # of equal ones the nearest to its end first
                heapq.heappush(queue, (round(estimate, 9), len(child.open), next(counter), child))
    return Found(ranked(found.values(), config.keep), visits, space.touched, is_cut)


class _Space:
    """The solutions of one subtask: how a partial one goes on, and what it costs at least."""

    def __init__(
        self,
        graph: SearchGraph,
        resources: Sequence[frozenset[int]],
        num_args: int,
        costs: Scores,
        config: SearchConfig,
        groups: dict[int, set[int]],
        allowed: NDArray[np.bool_] | None,
        targets: frozenset[int],
        end_costs: Scores | None,
    ) -> None:
        self.graph, self.resources, self.num_args = graph, resources, num_args
        self.costs, self.config, self.groups = costs, config, groups
        self.end_costs = end_costs
        self.wanted = (1 << min(num_args, _MAX_ARGS)) - 1
        self.touched = 0
        self.within, self.asked = self._relevant(targets, allowed)
        self.table: _Table = defaultdict(dict)
        self._fill_table()
        self._best: dict[frozenset[int], dict[int, float]] = {}

    def _relevant(
        self, targets: frozenset[int], allowed: NDArray[np.bool_] | None
    ) -> tuple[set[int], set[int]]:
        """Tools from which the wanted type can be reached in so many steps, and what they need."""
        found: set[int] = set()
        seen, frontier = set(targets), set(targets)
        for _ in range(self.config.max_tools):
            tools = {tool for node in frontier for tool in self.graph.givers[node]} - found
            tools = {t for t in tools if allowed is None or allowed[t]}
            found |= tools
            nodes = {node for t in tools for need in self.graph.needs[t] for node in need.nodes}
            frontier = nodes - seen
            if not frontier:
                break
            seen |= frontier
        return found, seen

    def _bit(self, resource: int) -> int:
        return 1 << resource if resource < min(self.num_args, _MAX_ARGS) else 0

    def _price(self, resource: int) -> float:
        return 0.0 if resource < self.num_args else self.config.spare_cost

    def _fill_table(self) -> None:
        """Knuth's algorithm: labels (node, arguments used) settle in order of cost."""
        graph = self.graph
        heap: list[tuple[float, int, int]] = []

        def offer(tool: int, cost: float, used: int) -> None:
            price = float(self.costs[tool])
            for node, share in graph.fees(tool):
                if node in self.asked:
                    heapq.heappush(heap, (cost + share * price, node, used))

        for resource, nodes in enumerate(self.resources):
            for node in nodes & self.asked:
                heap.append((self._price(resource), node, self._bit(resource)))
        heapq.heapify(heap)
        for tool in self.within:
            skipped = sum((need.skip for need in graph.needs[tool]), 0.0)
            if skipped < math.inf:
                offer(tool, skipped, 0)
        ways: dict[int, list[dict[int, float]]] = {}
        while heap:
            cost, node, mask = heapq.heappop(heap)
            settled = self.table[node]
            if settled and any(mask & other == mask for other in settled):
                continue  # no dearer, and it uses as much
            settled[mask] = cost
            for tool in graph.takers[node]:
                if tool not in self.within:
                    continue
                needs = graph.needs[tool]
                into = ways.get(tool)
                if into is None:
                    into = [{0: need.skip} if need.skip < math.inf else {} for need in needs]
                    ways[tool] = into
                for slot, need in enumerate(needs):
                    if node not in need.nodes or into[slot].get(mask, math.inf) <= cost:
                        continue
                    into[slot][mask] = cost
                    self.touched += 1
                    others = [{mask: cost}, *into[:slot], *into[slot + 1 :]]
                    for used, total in _joined(others).items():
                        offer(tool, total, used)

    def bound(self, partial: _Partial) -> float:
        """What the open needs cost at least, all arguments that are left over used among them."""
        left = self.wanted & ~partial.used
        total = {0: 0.0}
        for need in partial.open:
            best = self._best.get(need.nodes)
            if best is None:
                best = {}
                for node in need.nodes:
                    for mask, cost in self.table[node].items():
                        best[mask] = min(cost, best.get(mask, math.inf))
                self._best[need.nodes] = best
            if need.skip < best.get(0, math.inf):
                best = {**best, 0: need.skip}
            total = _joined([total, best])
        return min((cost for mask, cost in total.items() if mask & left == left), default=math.inf)

    def children(self, partial: _Partial) -> Iterator[_Partial]:
        """The partial with its newest open need filled, in every way."""
        need, rest = partial.open[-1], partial.open[:-1]
        if need.skip < math.inf:
            yield partial._replace(open=rest, cost=partial.cost + need.skip, is_new=False)
        for resource, nodes in enumerate(self.resources):
            if nodes & need.nodes and need.place >= 0:
                yield _Partial(
                    partial.tools,
                    (*partial.filled, (need.place, need.slot, resource)),
                    rest,
                    partial.used | self._bit(resource),
                    partial.cost + self._price(resource),
                    is_new=False,
                )
        here = set(partial.tools)
        is_full = len(here) >= self.config.max_tools
        closed = {other for tool in here for other in self.groups.get(tool, ())}
        for tool in sorted({t for node in need.nodes for t in self.graph.givers[node]}):
            if tool not in self.within or tool in need.above:
                continue
            if tool not in here and (is_full or tool in closed):
                continue
            place, above = len(partial.tools), (*need.above, tool)
            share = 1.0
            if need.above:
                share = self.graph.share(need.nodes & self.graph.given(tool))
            cost = partial.cost + share * float(self.costs[tool])
            if not need.above and self.end_costs is not None:
                cost += float(self.end_costs[tool])
            opened = (
                _Open(n.nodes, above, place, slot, n.skip)
                for slot, n in enumerate(self.graph.needs[tool])
            )
            filled = partial.filled
            if need.place >= 0:
                filled = (*filled, (need.place, need.slot, -1 - place))
            yield _Partial(
                (*partial.tools, tool), filled, (*rest, *opened), partial.used, cost, is_new=True
            )

    def complete(self, partial: _Partial) -> Solution | None:
        """The solution of a tree without open needs, givers first; None where it is none after all.

        An argument beyond those that the bound follows may be left over, and a tool that is done
        twice, with other inputs, may be one step too many.
        """
        last = len(partial.tools) - 1
        sources: list[list[int | None]] = [
            [None] * len(self.graph.needs[tool]) for tool in partial.tools
        ]
        for place, slot, source in partial.filled:
            sources[place][slot] = source if source >= 0 else -1 - (last - (-1 - source))
        steps = merged(
            [
                Step(tool, tuple(filled))
                for tool, filled in zip(reversed(partial.tools), reversed(sources), strict=True)
            ]
        )
        used = {source for step in steps for source in step.sources}
        if not used.issuperset(range(self.num_args)) or len(steps) > self.config.max_tools:
            return None
        cost = solution_cost(self.graph, steps, self.costs, self.num_args, self.config)
        if self.end_costs is not None:
            cost += float(self.end_costs[steps[-1].tool])
        return Solution(steps, cost)


def _joined(ways: Sequence[dict[int, float]]) -> dict[int, float]:
    """The cheapest sum of one entry of each, by the arguments that they use together."""
    total = {0: 0.0}
    for way in ways:
        joined: dict[int, float] = {}
        for mask, cost in total.items():
            for other, more in way.items():
                both = mask | other
                if cost + more < joined.get(both, math.inf):
                    joined[both] = cost + more
        total = joined
    return total
