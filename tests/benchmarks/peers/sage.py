"""GNN4TaskPlan's trained selection: GraphSAGE tool vectors, greedy picks along the graph."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from models.baselines import encode, legal_tools, with_tools
from models.links import plan_links
from models.sgc import encode_clauses, greedy_picks, out_neighbours
from models.types import Embedder, Example, Plan, ToolGraph

_NEAREST = 5


class SageEncoder(nn.Module):
    """One SAGE layer; a tool is the mean of its text vector and the layer's output.

    Args:
        channels: Of the text encoder.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = SAGEConv(channels, channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Tool vectors, shape ``[num_tools, channels]``."""
        return (x + self.conv(x, edge_index)) / 2


class SagePlanner:
    """GNN4TaskPlan's GraphSAGE (arXiv 2405.19119) without an LLM to decompose requests.

    Steps are the clauses of a request. For training, clauses and gold tools are aligned one to one
    in order, so that the sum of their text similarities is highest (see :func:`align`); the paper
    has LLM steps with a gold tool each. The loss is BPR, ``softplus(negative - positive)`` of inner
    products with the frozen text vectors, with two negatives a pair: one random tool, and one of
    the tool's neighbours in the graph or among the five most similar texts. Adam at 1e-3, ten
    epochs in batches of 512; the epoch with the lowest loss on validation rows is kept.
    Selection and ranks are those of ``models.sgc``. Score: mean inner product of the picks.

    Args:
        graph: Its tools, their texts and its edges.
        training: Rows of the splits train and validation; without validation rows the last epoch
            is kept.
        embed: Text encoder; all clauses of training requests are encoded once, here.
        allowed: Keys that may be offered; default: all of the graph.
        dataflow_namespaces: See ``models.links.plan_links``.
        epochs: Passes over the pairs.
        seed: Of weights, order and negatives.

    Raises:
        NotEnoughData: No training example has a plan.
    """

    name = "sage"

    def __init__(
        self,
        graph: ToolGraph,
        training: Sequence[Example],
        embed: Embedder,
        *,
        allowed: Collection[str] | None = None,
        dataflow_namespaces: frozenset[str] = frozenset(),
        epochs: int = 10,
        seed: int = 0,
    ) -> None:
        self.graph = graph
        self.dataflow_namespaces = dataflow_namespaces
        self._embed = embed
        legal = legal_tools(graph, allowed)
        self._first = np.array([row for row, key in enumerate(graph.keys) if key in legal], int)
        self._next = out_neighbours(graph, legal)
        x = encode(embed, graph.texts)
        usable = with_tools(training)
        pairs = {
            validation: _pairs(
                graph, x, embed, [e for e in usable if (e.split == "validation") == validation]
            )
            for validation in (False, True)
        }
        self._tool_x = train_sage(graph, x, pairs[False], pairs[True], epochs, seed)

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top``; none without legal tools."""
        if not self._first.size or top < 1:
            return [[] for _ in requests]
        plans = []
        for step_x in encode_clauses(self._embed, requests):
            scores = (step_x @ self._tool_x.T).numpy()
            picks = greedy_picks(scores, self._first, self._next, top)
            plans.append([self._plan(rows, score) for rows, score in picks])
        return plans

    def _plan(self, rows: Sequence[int], score: float) -> Plan:
        tools = tuple(self.graph.keys[row] for row in rows)
        links = plan_links(tools, self.graph, self.dataflow_namespaces)
        return Plan(tools, links, score, self.name)


Pairs = tuple[Tensor, Tensor]
"""Step vectors, shape ``[num_pairs, channels]``, and the row of each step's tool."""


def train_sage(
    graph: ToolGraph, x: Tensor, pairs: Pairs, validation: Pairs, epochs: int, seed: int
) -> Tensor:
    """The tool vectors of the best epoch, shape ``[num_tools, channels]``."""
    generator = torch.Generator().manual_seed(seed)
    hard = _confusable(graph, x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SageEncoder(x.size(1))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    held_out = _negatives(validation[1], hard, generator)
    best, lowest = x, float("inf")
    for _ in range(epochs):
        for at in torch.randperm(len(pairs[1]), generator=generator).split(512):
            negatives = _negatives(pairs[1][at], hard, generator)
            tool_x = model(x, graph.edge_index)
            loss = _bpr(tool_x, pairs[0][at], pairs[1][at], negatives)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            tool_x = model(x, graph.edge_index)
            loss = _bpr(tool_x, *validation, held_out) if len(validation[1]) else -torch.inf
        if loss < lowest or not len(validation[1]):
            best, lowest = tool_x, float(loss)
    return best


def align(similarity: npt.NDArray[np.float32]) -> list[tuple[int, int]]:
    """(row, column) pairs that rise in both and have the highest sum; none is worth less than 0.

    Args:
        similarity: Of clauses (rows) and gold tools (columns).
    """
    rows, columns = similarity.shape
    best = np.zeros((rows + 1, columns + 1))
    for i in range(rows):
        for j in range(columns):
            both = best[i, j] + similarity[i, j]
            best[i + 1, j + 1] = max(best[i, j + 1], best[i + 1, j], both)
    found = []
    i, j = rows, columns
    while i and j:
        if best[i, j] == best[i - 1, j]:
            i -= 1
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found.append((i, j))
    return found[::-1]


def _pairs(graph: ToolGraph, x: Tensor, embed: Embedder, examples: Sequence[Example]) -> Pairs:
    """Aligned clauses and tools of all examples whose tools the graph has."""
    steps, tools = [x[:0]], []
    known = [e for e in examples if graph.index.keys() >= set(e.tools)]
    vectors = encode_clauses(embed, [example.request for example in known])
    for example, step_x in zip(known, vectors, strict=True):
        rows = [graph.index[key] for key in example.tools]
        found = align((step_x @ x[rows].T).numpy())
        steps.append(step_x[[i for i, _ in found]])
        tools += [rows[j] for _, j in found]
    return torch.cat(steps), torch.tensor(tools, dtype=torch.int64)


def _confusable(graph: ToolGraph, x: Tensor) -> list[Tensor]:
    """For each tool its neighbours in the graph and the tools with the most similar texts."""
    near = (x @ x.T).fill_diagonal_(-2).topk(min(_NEAREST, graph.num_tools - 1)).indices
    found = [set(rows) for rows in near.tolist()]
    for source, target in graph.edge_index.T.tolist():
        found[source].add(target)
        found[target].add(source)
    return [torch.tensor(sorted(rows), dtype=torch.int64) for rows in found]


def _negatives(tools: Tensor, hard: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    """A random other tool and a confusable one for each tool, shape ``[num_pairs, 2]``."""
    total = len(hard)
    shift = torch.randint(1, max(total, 2), tools.shape, generator=generator)
    draws = torch.rand(tools.shape, generator=generator)
    near = [hard[t][int(d * len(hard[t]))] for t, d in zip(tools.tolist(), draws, strict=True)]
    return torch.stack([(tools + shift) % total, tools.new_tensor(near)], dim=1)


def _bpr(tool_x: Tensor, step_x: Tensor, tools: Tensor, negatives: Tensor) -> Tensor:
    positive = (step_x * tool_x[tools]).sum(-1, keepdim=True)
    negative = (step_x.unsqueeze(1) * tool_x[negatives]).sum(-1)
    return functional.softplus(negative - positive).mean()
