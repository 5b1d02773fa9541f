"""GTool with its graph readout: the model and the planner around it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from models.decoder import (
    PAD,
    EdgeRows,
    PointerDecoder,
    RequestSide,
    ToolSide,
    rank_by_agreement,
)
from models.dependency import BilinearDependency
from models.encoder import GToolEncoder, edge_features
from models.errors import GraphMismatch
from models.links import plan_links
from models.memory import RequestMemory
from models.types import Embedder, Plan, ToolGraph

PLAN_BATCH = 64
"""Requests decoded together; bounds the memory of a long request list."""


@dataclass(frozen=True)
class GToolConfig:
    """Everything that changes the numbers of a training besides data and seed."""

    hidden_channels: int = 128  # channels of encoder and decoder states, multiple of heads
    num_layers: int = 3  # TransformerConv layers, >= 1
    heads: int = 4  # attention heads of each layer, >= 1
    dropout: float = 0.3  # share of hidden channels dropped, 0..1
    text_dropout: float = 0.1  # share of text-vector channels dropped, 0..1
    memory_scale: float = 1.5  # sharpness of the request kernel, > 0
    memory_ridge: float = 0.1  # ridge penalty of the request memory, > 0
    memory_rows: int = 4096  # most training requests remembered, >= 1
    mask_rate: float = 0.1  # rho of MDPL: share of edges hidden in a step, 0..1
    mdpl_weight: float = 0.1  # lambda of MDPL: its weight beside the planning loss, >= 0
    label_smoothing: float = 0.05  # share of the target spread over all choices, 0..1
    learning_rate: float = 3e-3  # peak step of AdamW, > 0
    weight_decay: float = 0.05  # of AdamW, >= 0
    max_grad_norm: float = 1.0  # gradients are clipped to this norm, > 0
    ema_decay: float = 0.99  # memory of the averaged weights in steps, 0..1
    batch_size: int = 128  # most requests in a step, >= 1
    min_steps: int = 16  # steps of an epoch that small sets get by smaller batches, >= 1
    epochs: int = 16  # passes over the training rows, >= 1
    beam_width: int = 16  # plans kept while decoding, >= 1
    max_length: int | None = None  # most tools of a plan; None: the longest plan trained on

    def __post_init__(self) -> None:
        """Check every range."""
        at_least_one = ("hidden_channels", "num_layers", "heads", "memory_rows", "batch_size")
        for name in (*at_least_one, "min_steps", "epochs", "beam_width"):
            self._check(name, getattr(self, name) >= 1, ">= 1")
        for name in ("dropout", "text_dropout", "mask_rate", "label_smoothing", "ema_decay"):
            self._check(name, 0.0 <= getattr(self, name) < 1.0, "in 0..1, 1 excluded")
        for name in ("memory_scale", "memory_ridge", "learning_rate", "max_grad_norm"):
            self._check(name, getattr(self, name) > 0.0, "> 0")
        for name in ("mdpl_weight", "weight_decay"):
            self._check(name, getattr(self, name) >= 0.0, ">= 0")
        multiple = self.hidden_channels % self.heads == 0
        self._check("hidden_channels", multiple, f"a multiple of heads={self.heads}")
        self._check("max_length", self.max_length is None or self.max_length >= 1, "None or >= 1")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"expected {name} {expected}, got {getattr(self, name)}")


class ToolStates(NamedTuple):
    """What one graph gives to every request: states before each layer, and the decoder's view."""

    layers: list[Tensor]
    side: ToolSide


class GTool(nn.Module):
    """Graph encoder, missing-dependency prediction, request memory and pointer decoder.

    Args:
        config: Sizes and rates.
        text_channels: Channels of text vectors.
        num_tools: Tools of the graph; only the request memory depends on it.
        num_memory: Requests that the memory holds; needed to load stored weights.
    """

    def __init__(
        self, config: GToolConfig, text_channels: int, num_tools: int, num_memory: int = 0
    ) -> None:
        super().__init__()
        self.config = config
        self.text_channels = text_channels
        hidden, dropout = config.hidden_channels, config.dropout
        self.encoder = GToolEncoder(
            text_channels, hidden, hidden, config.num_layers, config.heads, dropout=dropout
        )
        self.dependency = BilinearDependency(hidden)
        self.decoder = PointerDecoder(text_channels, hidden, hidden, dropout)
        self.memory = RequestMemory(
            text_channels, num_tools, num_memory, config.memory_scale, config.memory_ridge
        )
        self.text_dropout = nn.Dropout(config.text_dropout)

    def encode_tools(
        self,
        tool_x: Float[Tensor, "num_tools text_channels"],
        edge_index: Int[Tensor, "2 num_edges"],
        edge_counts: Float[Tensor, "num_edges 2"],
        edges: EdgeRows,
    ) -> ToolStates:
        """States of all tools; ``edges`` are the decoder's, the other edges carry messages."""
        layers = self.encoder.encode_tools(
            self.text_dropout(tool_x), edge_index, edge_features(edge_counts)
        )
        side = self.decoder.read_tools(self.text_dropout(tool_x), layers[-1], edges)
        return ToolStates(layers, side)

    def encode_requests(
        self,
        request_x: Float[Tensor, "batch text_channels"],
        tools: ToolStates,
        memory: Float[Tensor, "batch two_num_tools"],
    ) -> RequestSide:
        """States of requests, given what the memory says of them."""
        x = self.text_dropout(request_x)
        r = self.encoder.encode_requests(x, tools.layers)
        return self.decoder.read_requests(x, r, memory, tools.side)

    @torch.no_grad()
    def rank_plans(
        self,
        request_x: Float[Tensor, "batch text_channels"],
        tools: ToolStates,
        allowed: Bool[Tensor, " num_tools"] | None = None,
    ) -> tuple[Int[Tensor, "batch beams length"], Float[Tensor, "batch beams"]]:
        """Plans of each request, best first and padded with -1, and their scores in 0..1."""
        if self.config.max_length is None:
            raise ValueError("expected a config with max_length, got None; take a trained model's")
        requests = self.encode_requests(request_x, tools, self.memory(request_x))
        plans, log_prob = self.decoder.beam_search(
            tools.side, requests, self.config.beam_width, self.config.max_length, allowed
        )
        order, score = rank_by_agreement(plans, log_prob)
        return plans.gather(1, order.unsqueeze(2).expand_as(plans)), score


class GToolPlanner:
    """Plans with a trained :class:`GTool` on one graph version.

    Args:
        model: The trained model.
        graph: The graph it was trained on.
        tool_x: Text vectors of the graph's tools, in its order.
        embed: The text encoder that made them.
        dataflow_namespaces: Namespaces whose plans link by dataflow; see :func:`plan_links`.
        allowed: Keys of the tools that plans may hold, not the deprecated ones; ``None``: all.

    Raises:
        GraphMismatch: Model, graph and vectors do not fit each other.
    """

    name = "gtool-graph"

    def __init__(
        self,
        model: GTool,
        graph: ToolGraph,
        tool_x: Float[Tensor, "num_tools text_channels"],
        embed: Embedder,
        dataflow_namespaces: Collection[str] = (),
        allowed: Collection[str] | None = None,
    ) -> None:
        expected = (graph.num_tools, model.text_channels)
        if tuple(tool_x.shape) != expected or model.memory.num_tools != graph.num_tools:
            raise GraphMismatch(
                f"expected text vectors of shape {expected} and a model for {graph.num_tools} "
                f"tools, got {tuple(tool_x.shape)} and {model.memory.num_tools}; load model, graph "
                "and vectors from one checkpoint"
            )
        self.model = model.eval()
        self.graph = graph
        self.tool_x = tool_x
        self.embed = embed
        self.dataflow_namespaces = frozenset(dataflow_namespaces)
        device = next(model.parameters()).device
        self.device = device
        self.allowed: Tensor | None = None
        if allowed is not None:
            self.allowed = torch.tensor([key in allowed for key in graph.keys], device=device)
        index, counts = graph.edge_index.to(device), graph.edge_counts.to(device)
        with torch.no_grad():
            edges = EdgeRows.from_edges(index, counts, graph.num_tools)
            self.tools = model.encode_tools(tool_x.to(device), index, counts, edges)

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top`` (and at most the beam)."""
        if top < 1:
            raise ValueError(f"expected top >= 1, got {top}")
        ranked: list[list[Plan]] = []
        for start in range(0, len(requests), PLAN_BATCH):
            request_x = self.embed(requests[start : start + PLAN_BATCH]).to(self.device)
            plans, scores = self.model.rank_plans(request_x, self.tools, self.allowed)
            rows = zip(plans[:, :top].tolist(), scores[:, :top].tolist(), strict=True)
            ranked += [self._named(*row) for row in rows]
        return ranked

    def _named(self, plans: list[list[int]], scores: list[float]) -> list[Plan]:
        """Plans of one request by key, with links; places without a plan are left out."""
        out = []
        for rows, score in zip(plans, scores, strict=True):
            if score == -torch.inf:
                continue
            tools = tuple(self.graph.keys[row] for row in rows if row != PAD)
            links = plan_links(tools, self.graph, self.dataflow_namespaces)
            out.append(Plan(tools, links, score, self.name))
        return out
