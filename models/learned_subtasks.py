"""Subtasks out of a trained planner's plan: it gives tools and cut points, types follow."""

from collections.abc import Sequence

from models.search_graph import SearchGraph
from models.subtasks import Subtask
from models.toolset import Resource
from models.types import Plan, Planner


class LearnedDecomposer:
    """Decomposes a request by the best plan of a trained planner, such as GTool.

    Tools that the plan links are one subtask: what its last tool gives is wanted, and it works on
    the resources of the request that its tools take.

    Args:
        planner: Who plans.
        graph: Tells what tools take and give.
    """

    def __init__(self, planner: Planner, graph: SearchGraph) -> None:
        self._planner = planner
        self._graph = graph

    def __call__(self, request: str, resources: Sequence[Resource]) -> tuple[Subtask, ...]:
        """The subtasks of a request; none where the planner has no plan."""
        ranked = self._planner.plan([request])[0]
        return subtasks_of_plan(ranked[0], self._graph, request, resources) if ranked else ()


def subtasks_of_plan(
    plan: Plan, graph: SearchGraph, request: str, resources: Sequence[Resource]
) -> tuple[Subtask, ...]:
    """The subtasks that a plan shows, in the order of their last tools.

    A part that needs a type which no resource of the request has, and an earlier part gives, works
    on the result of that part. Tools outside the graph, and parts whose last tool states no type,
    are left out.
    """
    found: list[Subtask] = []
    for part in _parts(plan):
        keys = [plan.tools[step] for step in part if plan.tools[step] in graph.index]
        if not keys:
            continue
        returns = tuple(kind for f in graph.signatures[keys[-1]].returns for kind in f.types)
        if not returns:
            continue
        needed = {
            node for key in keys for need in graph.needs[graph.index[key]] for node in need.nodes
        }
        args = [r for r in resources if graph.of_type(r.type) & needed]
        at_hand = frozenset().union(*(graph.of_type(r.type) for r in args))
        own = frozenset().union(*(graph.given(graph.index[key]) for key in keys[:-1]))
        lacking = needed - at_hand - own
        earlier = [o for o in reversed(found) if graph.of_type(o.returns[0]) & lacking]
        dependencies = tuple(other.id for other in earlier[:1])
        args += [Resource(f"<GENERATED>-{o.id}", o.returns[0], str(o.id)) for o in earlier[:1]]
        found.append(Subtask(len(found), request, tuple(args), returns, dependencies=dependencies))
    return tuple(found)


def _parts(plan: Plan) -> list[list[int]]:
    """Steps that links join, each part in order, parts by their last step."""
    part_of = list(range(len(plan.tools)))

    def root(step: int) -> int:
        while part_of[step] != step:
            step = part_of[step]
        return step

    for source, target in plan.links:
        part_of[root(source)] = root(target)
    parts: dict[int, list[int]] = {}
    for step in range(len(plan.tools)):
        parts.setdefault(root(step), []).append(step)
    return sorted(parts.values(), key=lambda steps: steps[-1])
