"""Published planners and retrievers beside ours, on the same graph, rows and text encoder.

Scripts in the folder above import it as ``peers``.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.baselines import best_first, encode
from models.sgc import SgcPlanner
from models.types import Embedder, Example, Planner, ToolGraph

from .dependency_walk import BM25Walk
from .graph_tool_call import GraphToolCall, missing_graph_tool_call
from .sage import SagePlanner


class Retriever(Protocol):
    """Anything that ranks tools for requests."""

    name: str

    def retrieve(self, requests: Sequence[str], k: int) -> list[list[str]]:
        """The keys of at most ``k`` tools for each request, best first."""
        ...


class DenseRetriever:
    """The tools whose texts are most similar to the request."""

    name = "dense"

    def __init__(self, graph: ToolGraph, embed: Embedder) -> None:
        self.keys = graph.keys
        self._embed = embed
        self._tool_x = encode(embed, graph.texts)

    def retrieve(self, requests: Sequence[str], k: int) -> list[list[str]]:
        """The keys of at most ``k`` tools for each request, best first."""
        scores = (encode(self._embed, requests) @ self._tool_x.T).numpy()
        return [[self.keys[row] for row in rows] for rows in best_first(scores, k)]


@dataclass(frozen=True)
class PlannedTools:
    """A planner as a retriever: the distinct tools of its ranked plans, best plan first."""

    planner: Planner
    plans: int = 10

    @property
    def name(self) -> str:
        """The planner's name."""
        return self.planner.name

    def retrieve(self, requests: Sequence[str], k: int) -> list[list[str]]:
        """The keys of at most ``k`` tools for each request, best first."""
        return [
            list(dict.fromkeys(key for plan in plans for key in plan.tools))[:k]
            for plans in self.planner.plan(requests, self.plans)
        ]


def peer_planners(
    graph: ToolGraph,
    training: Sequence[Example],
    embed: Embedder,
    dataflow_namespaces: frozenset[str],
    declared: Sequence[tuple[str, str]] = (),
) -> dict[str, Planner]:
    """Planners by name; the walk over declared dependencies only where some are given.

    Args:
        graph: Mined from training rows.
        training: Rows of the splits train and validation.
        embed: Text encoder of all of them.
        dataflow_namespaces: See ``models.links.plan_links``.
        declared: (prerequisite, dependent) keys that the set declares. Where its gold plans were
            made of them, as in toollinkos, the walk knows what planners have to learn.
    """
    planners: list[Planner] = [
        SgcPlanner(graph, training, embed, dataflow_namespaces=dataflow_namespaces),
        SagePlanner(graph, training, embed, dataflow_namespaces=dataflow_namespaces),
    ]
    if declared:
        planners.append(BM25Walk(graph, declared))
    return {planner.name: planner for planner in planners}


def peer_retrievers(
    graph: ToolGraph,
    catalogue: Sequence[Mapping[str, Any]],
    embed: Embedder,
    declared: Sequence[tuple[str, str]] = (),
) -> tuple[dict[str, Retriever], dict[str, str]]:
    """Retrievers by name, and why others are left out.

    Args:
        graph: Its tools are ranked.
        catalogue: The set's tool records: name, description, parameters.
        embed: Text encoder.
        declared: See ``peer_planners``; without any, BM25 ranks alone.
    """
    retrievers: list[Retriever] = [DenseRetriever(graph, embed), BM25Walk(graph)]
    if declared:
        retrievers.append(BM25Walk(graph, declared))
    reason = missing_graph_tool_call()
    if reason is None:
        retrievers += [
            GraphToolCall(graph, catalogue),
            GraphToolCall(graph, catalogue, embed),
        ]
    found = {retriever.name: retriever for retriever in retrievers}
    return found, {} if reason is None else {"graph-tool-call": reason}


def node_recall(
    retrievers: Mapping[str, Retriever], examples: Sequence[Example], ks: Sequence[int] = (5, 10)
) -> list[dict[str, Any]]:
    """One row a retriever: how many of a request's tools are among its first ``k``.

    Returns:
        ``name``, ``n``; for each k ``recall@k`` (mean share of a request's distinct tools) and
        ``all@k`` (share of requests with all of them); ``ms`` (median time of one request; an
        embedder that remembers its texts takes no part in it).
    """
    rows = []
    for name, retriever in retrievers.items():
        row: dict[str, Any] = {"name": name, "n": len(examples)}
        took = []
        for k in ks:
            shares = []
            for example in examples:
                started = time.perf_counter()
                (found,) = retriever.retrieve([example.request], k)
                took.append(time.perf_counter() - started)
                shares.append(len(set(found[:k]) & set(example.tools)) / len(set(example.tools)))
            row[f"recall@{k}"] = statistics.fmean(shares)
            row[f"all@{k}"] = statistics.fmean(share == 1 for share in shares)
        rows.append({**row, "ms": statistics.median(took) * 1000})
    return rows
