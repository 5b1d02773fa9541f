"""GNN4TaskPlan's training-free planner: each clause of a request picks a tool along the graph."""

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from models.baselines import best_first, encode, legal_tools, with_tools
from models.clauses import clauses
from models.links import plan_links
from models.metrics import score_plans
from models.types import Embedder, Example, Plan, ToolGraph

MIXTURES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5)
"""The values of a that GNN4TaskPlan tries."""

_MOST_ROWS = 200  # training rows that choose the mixture, so that a night encodes few more texts

Pick = tuple[tuple[int, ...], float]
"""Rows of the picked tools in order, and the mean score of the picks."""


class SgcPlanner:
    r"""Lets each step of the request pick the nearest tool that the graph allows next.

    Tool vectors are smoothed once over the edges of the graph (SGC with one hop),

    .. math::
        h' = a h + (1 - a) D^{-1/2} A D^{-1/2} h

    with :math:`A` from source to target and :math:`D` the out-degrees. The first step picks among
    all tools, a later one among the out-neighbours of the tool before it; where it has none, the
    step is left out. GNN4TaskPlan (arXiv 2405.19119, its training-free GNNs) lets an LLM write the
    steps and reads :math:`a` off the test set. Here the steps are the clauses of the request,
    tools are read as the graph words them, and :math:`a` is the value of :data:`MIXTURES` with the
    best node F1 on training rows; of equal ones the largest. Of its two measures this is the inner
    product: by distance, smoothing only pushes well-connected tools away.

    The plan of rank ``r`` gives the last step its ``r``-th best tool. Score: mean inner product of
    steps and their tools; near -1 to 1, but smoothed vectors may reach further. Equal products are
    ranked by key.

    Args:
        graph: Its tools, their texts and its edges.
        training: Examples that choose the mixture.
        embed: Text encoder; the tools and the clauses of at most 200 training requests are
            encoded once, here.
        allowed: Keys that may be offered; default: all of the graph.
        dataflow_namespaces: See ``models.links.plan_links``.

    Raises:
        NotEnoughData: No training example has a plan.
        GraphMismatch: The encoder does not give one vector a text.
    """

    name = "sgc"

    def __init__(
        self,
        graph: ToolGraph,
        training: Sequence[Example],
        embed: Embedder,
        *,
        allowed: Collection[str] | None = None,
        dataflow_namespaces: frozenset[str] = frozenset(),
    ) -> None:
        usable = with_tools(training)
        self.graph = graph
        self.dataflow_namespaces = dataflow_namespaces
        self._embed = embed
        legal = legal_tools(graph, allowed)
        self._first = np.array([row for row, key in enumerate(graph.keys) if key in legal], int)
        self._next = out_neighbours(graph, legal)
        self.mixture = MIXTURES[0]
        if self._first.size:
            x = encode(embed, graph.texts)
            around = neighbour_mean(graph, x)
            self.mixture = self._choose(evenly(usable, _MOST_ROWS), x, around)
            self._tool_x = self.mixture * x + (1 - self.mixture) * around

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``; none without legal tools."""
        if not self._first.size or top < 1:
            return [[] for _ in requests]
        return [
            [self._plan(tools, score) for tools, score in self._picks(step_x, self._tool_x, top)]
            for step_x in encode_clauses(self._embed, requests)
        ]

    def _choose(self, examples: Sequence[Example], x: Tensor, around: Tensor) -> float:
        """The mixture with the best node F1 on the examples."""
        steps = encode_clauses(self._embed, [example.request for example in examples])

        def node_f1(mixture: float) -> float:
            tool_x = mixture * x + (1 - mixture) * around
            plans = [self._plan(*self._picks(step_x, tool_x, 1)[0]) for step_x in steps]
            return score_plans(examples, plans).means["n_f1"]

        return max(MIXTURES, key=node_f1)

    def _picks(self, step_x: Tensor, tool_x: Tensor, top: int) -> list[Pick]:
        return greedy_picks((step_x @ tool_x.T).numpy(), self._first, self._next, top)

    def _plan(self, rows: Sequence[int], score: float) -> Plan:
        tools = tuple(self.graph.keys[row] for row in rows)
        links = plan_links(tools, self.graph, self.dataflow_namespaces)
        return Plan(tools, links, score, self.name)


def neighbour_mean(
    graph: ToolGraph, x: Float[Tensor, "num_tools channels"]
) -> Float[Tensor, "num_tools channels"]:
    """What SGC adds to each tool from its out-neighbours: ``D^-1/2 A D^-1/2 x``, D out-degrees.

    A tool without out-neighbours adds nothing, to itself or to others.
    """
    source, target = graph.edge_index
    degree = torch.bincount(source, minlength=graph.num_tools).to(x.dtype)
    scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
    weights = (scale[source] * scale[target]).unsqueeze(1)
    return torch.zeros_like(x).index_add_(0, source, weights * x[target])


def out_neighbours(graph: ToolGraph, legal: Collection[str]) -> dict[int, npt.NDArray[np.int64]]:
    """Row of a tool to the sorted rows of the legal tools that its edges lead to."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in sorted(graph.edge_index.T.tolist()):
        if graph.keys[target] in legal:
            found[source].append(target)
    return {source: np.array(targets, int) for source, targets in found.items()}


def encode_clauses(embed: Embedder, requests: Sequence[str]) -> list[Tensor]:
    """The vectors of each request's clauses, shape ``[num_clauses, channels]`` each."""
    steps = [clauses(request) for request in requests]
    vectors = encode(embed, [text for texts in steps for text in texts])
    return list(torch.split(vectors, [len(texts) for texts in steps])) if steps else []


def greedy_picks(
    scores: npt.NDArray[np.float32],
    first: npt.NDArray[np.int64],
    following: dict[int, npt.NDArray[np.int64]],
    top: int,
) -> list[Pick]:
    """GNN4TaskPlan's greedy selection, with further choices for the last step.

    Args:
        scores: Of every tool at every step, shape ``[num_steps, num_tools]``, at least one step.
        first: Rows from which the first step picks, not empty.
        following: Rows that may follow a picked one; a step without any is left out.
        top: How many tools to take for the last step, at least 1.

    Returns:
        At most ``top`` picks, best first.
    """
    picked: list[int] = []
    total = 0.0
    candidates, at = first, 0
    for step, row in enumerate(scores):
        choice = following.get(picked[-1]) if picked else first
        if choice is None:
            break
        candidates, at = choice, step
        picked.append(int(choice[row[choice].argmax()]))
        total += float(row[picked[-1]])
    total -= float(scores[at, picked.pop()])
    last = candidates[best_first(scores[at][None, candidates], top)[0]]
    return [
        ((*picked, int(row)), (total + float(scores[at, row])) / (len(picked) + 1)) for row in last
    ]


def evenly(examples: Sequence[Example], most: int) -> list[Example]:
    """At most so many examples, spread over all of them in the order of their ids."""
    ordered = sorted(examples, key=lambda example: (example.id, example.request))
    at = np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int)
    return [ordered[i] for i in at]
