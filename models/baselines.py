"""Three planners that a trained one has to beat: retrieval, nearest and popularity.

All are built from the training examples of one graph and never offer a tool outside it. A past
plan that uses a tool which is gone, or not allowed, is skipped; the next one takes its place.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import GraphMismatch, NotEnoughData
from models.links import plan_links
from models.types import Embedder, Example, Link, Plan, ToolGraph

_REQUESTS_AT_ONCE = 256  # bounds the memory of a similarity matrix

_Candidate = tuple[tuple[str, ...], tuple[Link, ...]]


class RetrievalPlanner:
    """Offers the tools whose texts are most similar to the request, most similar first.

    The length of a plan is the most frequent length of the training plans, the shorter one of two
    equally frequent. The plan of rank ``r`` swaps the last tool for the one ``r - 1`` places
    further down. Score: mean cosine similarity of the tools, -1 to 1. Equal similarities are
    ranked by key.

    Args:
        graph: Its tools and their texts.
        training: Examples that tell the usual length of a plan.
        embed: Text encoder; the texts of the tools are encoded once, here.
        allowed: Keys that may be offered; default: all of the graph.
        dataflow_namespaces: Namespaces whose links are not simply the neighbours; see
            ``models.links.plan_links``.

    Raises:
        NotEnoughData: No training example has a plan.
        GraphMismatch: The encoder does not give one vector a text.
    """

    name = "retrieval"

    def __init__(
        self,
        graph: ToolGraph,
        training: Sequence[Example],
        embed: Embedder,
        *,
        allowed: Collection[str] | None = None,
        dataflow_namespaces: frozenset[str] = frozenset(),
    ) -> None:
        lengths = Counter(len(example.tools) for example in with_tools(training))
        self.length = min(lengths, key=lambda length: (-lengths[length], length))
        self.graph = graph
        self.dataflow_namespaces = dataflow_namespaces
        legal = legal_tools(graph, allowed)
        rows = [row for row, key in enumerate(graph.keys) if key in legal]
        self.keys = [graph.keys[row] for row in rows]
        self._embed = embed
        self._vectors = encode(embed, [graph.texts[row] for row in rows])

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``; none without legal tools."""
        if not self.keys or top < 1:
            return [[] for _ in requests]
        length = min(self.length, len(self.keys))
        plans: list[list[Plan]] = []
        for vectors in _encoded_batches(self._embed, requests):
            scores = (vectors @ self._vectors.T).numpy()
            for order, row in zip(best_first(scores, length + top - 1), scores, strict=True):
                ranks = range(length - 1, min(len(order), length + top - 1))
                picks = [[*order[: length - 1], order[last]] for last in ranks]
                plans.append([self._plan(pick, row) for pick in picks])
        return plans

    def _plan(self, pick: Sequence[int], similarities: npt.NDArray[np.float32]) -> Plan:
        tools = tuple(self.keys[tool] for tool in pick)
        return Plan(
            tools=tools,
            links=plan_links(tools, self.graph, self.dataflow_namespaces),
            score=float(similarities[list(pick)].mean()),
            planner=self.name,
        )


class NearestPlanner:
    """Repeats the plan of the most similar training request.

    Further ranks are the plans of the next nearest requests; two plans are distinct when their
    tools or links differ. Links are those of the example where it states them, else by
    ``plan_links``. Score: cosine similarity of the nearest request that had the plan, -1 to 1.
    Equal similarities are ranked by the plan's tool sequence, so the order of the training
    examples never matters.

    Args:
        graph: Plans with a tool outside it are skipped.
        training: Past requests and their plans.
        embed: Text encoder; each training request is encoded once, here.
        allowed: Keys that may be offered; default: all of the graph.
        dataflow_namespaces: See ``models.links.plan_links``.

    Raises:
        NotEnoughData: No training example has a plan.
        GraphMismatch: The encoder does not give one vector a text.
    """

    name = "nearest"

    def __init__(
        self,
        graph: ToolGraph,
        training: Sequence[Example],
        embed: Embedder,
        *,
        allowed: Collection[str] | None = None,
        dataflow_namespaces: frozenset[str] = frozenset(),
    ) -> None:
        past = _legal_plans(training, graph, allowed, dataflow_namespaces)
        self.candidates = sorted({candidate for _, candidate in past})
        place = {candidate: i for i, candidate in enumerate(self.candidates)}
        # Each past request once per plan, those of one plan side by side: a plan's similarity is
        # then the maximum over one stretch of columns.
        pairs = sorted({(place[candidate], request) for request, candidate in past})
        owners = np.array([owner for owner, _ in pairs], dtype=np.int64)
        self._starts = np.searchsorted(owners, np.arange(len(self.candidates)))
        self._embed = embed
        self._vectors = encode(embed, [request for _, request in pairs])

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``; none without legal plans."""
        if not self.candidates or top < 1:
            return [[] for _ in requests]
        plans: list[list[Plan]] = []
        for vectors in _encoded_batches(self._embed, requests):
            similarities = (vectors @ self._vectors.T).numpy()
            scores = np.maximum.reduceat(similarities, self._starts, axis=1)
            for order, row in zip(best_first(scores, top), scores, strict=True):
                plans.append(
                    [
                        Plan(*self.candidates[i], score=float(row[i]), planner=self.name)
                        for i in order
                    ]
                )
        return plans


class PopularityPlanner:
    """Offers the most frequent training plans, whatever the request.

    Plans are counted by their tools; the links are the most frequent ones among equal tools.
    Score: share of all training plans, above 0, up to 1. Equally frequent plans are ranked by
    their tool sequence.

    Args:
        graph: Plans with a tool outside it are skipped.
        training: Examples whose plans are counted.
        embed: Not used; there so that all baselines are built alike.
        allowed: Keys that may be offered; default: all of the graph.
        dataflow_namespaces: See ``models.links.plan_links``.

    Raises:
        NotEnoughData: No training example has a plan.
    """

    name = "popularity"

    def __init__(
        self,
        graph: ToolGraph,
        training: Sequence[Example],
        embed: Embedder | None = None,  # noqa: ARG002
        *,
        allowed: Collection[str] | None = None,
        dataflow_namespaces: frozenset[str] = frozenset(),
    ) -> None:
        total = len(with_tools(training))
        counts: defaultdict[tuple[str, ...], Counter[tuple[Link, ...]]] = defaultdict(Counter)
        for _, (tools, links) in _legal_plans(training, graph, allowed, dataflow_namespaces):
            counts[tools][links] += 1
        self.ranked = [
            Plan(
                tools=tools,
                links=min(counts[tools], key=lambda links: (-counts[tools][links], links)),
                score=counts[tools].total() / total,
                planner=self.name,
            )
            for tools in sorted(counts, key=lambda tools: (-counts[tools].total(), tools))
        ]

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """The same ranked plans for each request, at most ``top``; none without legal plans."""
        return [self.ranked[: max(top, 0)] for _ in requests]


def best_first(scores: npt.NDArray[np.float32], top: int) -> list[list[int]]:
    """The columns of the ``top`` highest scores of each row, best first, ties by column.

    Sorts only what reaches the ``top``-th score, so wide rows stay cheap.

    Args:
        scores: Shape ``[num_rows, num_columns]``.
        top: At least 1; rows shorter than that are ranked whole.
    """
    top = min(top, scores.shape[1])
    floor = np.partition(scores, -top, axis=1)[:, -top]
    ranked = []
    for row, least in zip(scores, floor, strict=True):
        columns = np.flatnonzero(row >= least)
        ranked.append(columns[np.argsort(-row[columns], kind="stable")][:top].tolist())
    return ranked


def with_tools(training: Sequence[Example]) -> list[Example]:
    """The training examples that have a plan."""
    usable = [example for example in training if example.tools]
    if not usable:
        raise NotEnoughData(
            f"expected at least one training example with tools, got none among {len(training)}; "
            "ingest trajectories of the training split, then build the planner again"
        )
    return usable


def legal_tools(graph: ToolGraph, allowed: Collection[str] | None) -> frozenset[str]:
    """The tools of the graph that may be offered."""
    return frozenset(graph.keys) if allowed is None else frozenset(graph.keys) & frozenset(allowed)


def _legal_plans(
    training: Sequence[Example],
    graph: ToolGraph,
    allowed: Collection[str] | None,
    dataflow_namespaces: frozenset[str],
) -> list[tuple[str, _Candidate]]:
    """Request and plan of each training example all of whose tools may be offered."""
    legal = legal_tools(graph, allowed)
    return [
        (
            example.request,
            (
                example.tools,
                example.links
                if example.has_links
                else plan_links(example.tools, graph, dataflow_namespaces),
            ),
        )
        for example in with_tools(training)
        if legal.issuperset(example.tools)
    ]


def encode(embed: Embedder, texts: Sequence[str]) -> Float[Tensor, "num_texts channels"]:
    """Unit vectors of the texts; no text is encoded when there is none."""
    if not texts:
        return torch.zeros((0, 0))
    vectors = embed(texts)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise GraphMismatch(
            f"expected vectors of shape [{len(texts)}, channels] from the text encoder, "
            f"got {list(vectors.shape)}"
        )
    return vectors.detach()


def _encoded_batches(
    embed: Embedder, requests: Sequence[str]
) -> Iterator[Float[Tensor, "batch channels"]]:
    """Vectors of the requests, a bounded number at a time."""
    for start in range(0, len(requests), _REQUESTS_AT_ONCE):
        yield encode(embed, requests[start : start + _REQUESTS_AT_ONCE])
