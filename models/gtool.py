"""GTool with its graph readout: the model and the planner around it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from models.ablation import Ablation
from models.candidates import Candidates, RequestVectors, embed_requests, find_candidates
from models.decoder import PointerDecoder, RequestSide, ToolSide, beam_search, rank_by_agreement
from models.dependency import BilinearDependency
from models.edges import EdgeTable
from models.encoder import GToolEncoder, edge_features
from models.errors import GraphMismatch
from models.lexicon import Lexicon
from models.links import LinkScorer, chain
from models.memory import PAD, Recalled, RequestMemory
from models.types import Embedder, Link, Plan, ToolGraph, empty_edges

PLAN_BATCH = 64
"""Requests decoded together; bounds the memory of a long request list."""


@dataclass(frozen=True)
class GToolConfig:
    """Everything that changes the numbers of a training besides data and seed."""

    hidden_channels: int = 128  # channels of encoder and decoder states, multiple of heads
    num_layers: int = 3  # TransformerConv layers, >= 1
    heads: int = 4  # attention heads of each layer, >= 1
    members: int = 1  # models trained from seeds of their own, which plan together, >= 1
    dropout: float = 0.3  # share of hidden channels dropped, 0..1
    text_dropout: float = 0.1  # share of text-vector channels dropped, 0..1
    shortlist: int = 96  # tools that a plan is chosen from, >= 1
    neighbours: int = 32  # past requests whose plans are looked at, >= 1
    memory_scale: float = 1.5  # sharpness of the request kernel, > 0
    memory_ridge: float = 0.1  # ridge penalty of the request memory, > 0
    memory_rows: int = 4096  # most training requests remembered, >= 1
    cold_rate: float = 0.2  # share of tools that a training step takes for new, without a past
    mask_rate: float = 0.1  # rho of MDPL: share of edges hidden in a step, 0..1
    mdpl_weight: float = 0.1  # lambda of MDPL: its weight beside the planning loss, >= 0
    mdpl_pairs: int = 512  # alpha of MDPL: most hidden edges, and as many others, in a step, >= 1
    label_smoothing: float = 0.05  # share of the target spread over all choices, 0..1
    learning_rate: float = 3e-3  # peak step of AdamW, > 0
    weight_decay: float = 0.05  # of AdamW, >= 0
    max_grad_norm: float = 1.0  # gradients are clipped to this norm, > 0
    ema_decay: float = 0.99  # memory of the averaged weights in steps, 0..1
    batch_size: int = 128  # most requests in a step, >= 1
    accumulate: int = 1  # parts that a batch is computed in, one after the other, >= 1
    precision: Literal["float32", "bfloat16"] = "float32"  # of the forward pass in training
    min_steps: int = 16  # steps of an epoch that small sets get by smaller batches, >= 1
    epochs: int = 12  # passes over the training rows, >= 1
    patience: int = 6  # epochs without a better one after which training ends, >= 1
    beam_width: int = 12  # plans kept while decoding, >= 1
    max_length: int | None = None  # most tools of a plan; None: the longest plan trained on
    ablation: Ablation = Ablation.FULL  # what is left out, for the paper's ablation table

    def __post_init__(self) -> None:
        """Check every range."""
        object.__setattr__(self, "ablation", Ablation(self.ablation))
        at_least_one = ("hidden_channels", "num_layers", "heads", "memory_rows", "batch_size")
        more = ("members", "shortlist", "neighbours", "mdpl_pairs", "accumulate", "patience")
        for name in (*at_least_one, *more, "min_steps", "epochs", "beam_width"):
            self._check(name, getattr(self, name) >= 1, ">= 1")
        for name in (
            "dropout",
            "text_dropout",
            "cold_rate",
            "mask_rate",
            "label_smoothing",
            "ema_decay",
        ):
            self._check(name, 0.0 <= getattr(self, name) < 1.0, "in 0..1, 1 excluded")
        for name in ("memory_scale", "memory_ridge", "learning_rate", "max_grad_norm"):
            self._check(name, getattr(self, name) > 0.0, "> 0")
        for name in ("mdpl_weight", "weight_decay"):
            self._check(name, getattr(self, name) >= 0.0, ">= 0")
        known = self.precision in ("float32", "bfloat16")
        self._check("precision", known, "one of float32, bfloat16")
        self._check(
            "ablation",
            self.ablation is not Ablation.LLM_LINKS,
            "of the graph readout; llm_links belongs to the LLM readout",
        )
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


class Member(nn.Module):
    """Graph encoder, missing-dependency prediction and pointer decoder.

    Args:
        config: Sizes and rates.
        text_channels: Channels of text vectors.
    """

    def __init__(self, config: GToolConfig, text_channels: int) -> None:
        super().__init__()
        self.config = config
        hidden, dropout = config.hidden_channels, config.dropout
        self.encoder = GToolEncoder(
            text_channels, hidden, hidden, config.num_layers, config.heads, dropout=dropout
        )
        self.dependency = BilinearDependency(hidden)
        self.decoder = PointerDecoder(text_channels, hidden, hidden, dropout)
        self.text_dropout = nn.Dropout(config.text_dropout)

    def encode_tools(
        self,
        tool_x: Float[Tensor, "num_tools text_channels"],
        edges: EdgeTable,
        use: Float[Tensor, "num_tools 4"],
    ) -> ToolStates:
        """States of all tools."""
        layers = self.encoder.encode_tools(
            self.text_dropout(tool_x), edges.edge_index, edge_features(edges.counts)
        )
        asked = self.dependency.ask(layers[-1])
        side = self.decoder.read_tools(self.text_dropout(tool_x), layers[-1], asked, edges, use)
        return ToolStates(layers, side)

    def encode_requests(
        self, request_x: Float[Tensor, "batch text_channels"], tools: ToolStates
    ) -> RequestSide:
        """States of requests."""
        x = self.text_dropout(request_x)
        if self.config.ablation.request_node:
            state = self.encoder.encode_requests(x, tools.layers)
        else:
            state = tools.layers[-1].mean(dim=0).expand(x.size(0), -1)
        return self.decoder.read_requests(x, state)

    def log_probs(
        self, tools: ToolStates, candidates: Candidates, plans: Int[Tensor, "batch length"]
    ) -> Float[Tensor, "batch steps size_and_end"]:
        """See :meth:`PointerDecoder.log_probs`."""
        requests = self.encode_requests(candidates.x, tools)
        return self.decoder.log_probs(tools.side, requests, candidates, plans)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config.hidden_channels})"


class GTool(nn.Module):
    """Members that plan together, the request memory that they share, and the use of each tool.

    Args:
        config: Sizes and rates.
        text_channels: Channels of text vectors.
        num_tools: Tools of the graph; only memory and use depend on it.
        memory_shape: Rows, used tools and plan length of the memory; needed to load stored weights.
    """

    use: Tensor
    temperature: Tensor
    calibration: Tensor

    def __init__(
        self,
        config: GToolConfig,
        text_channels: int,
        num_tools: int,
        memory_shape: tuple[int, int, int] = (0, 0, 1),
    ) -> None:
        super().__init__()
        self.config = config
        self.text_channels = text_channels
        self.members = nn.ModuleList(Member(config, text_channels) for _ in range(config.members))
        self.memory = RequestMemory(
            text_channels,
            num_tools,
            *memory_shape,
            scale=config.memory_scale,
            ridge=config.memory_ridge,
            neighbours=config.neighbours,
        )
        self.register_buffer("use", torch.zeros(num_tools, 4))
        self.register_buffer("temperature", torch.ones(1))
        self.register_buffer("calibration", torch.tensor([0.0, 1.0]))

    def encode_tools(
        self, tool_x: Float[Tensor, "num_tools text_channels"], edges: EdgeTable
    ) -> list[ToolStates]:
        """What each member makes of the tools."""
        return [self.member(i).encode_tools(tool_x, edges, self.use) for i in self._numbers()]

    @torch.no_grad()
    def rank_plans(
        self, tools: Sequence[ToolStates], candidates: Candidates
    ) -> tuple[Int[Tensor, "batch beams length"], Float[Tensor, "batch beams"]]:
        """Plans of each request, best first, as tool rows padded with -1, and their scores.

        A score in 0..1 is the agreement with the right plan that is to be expected: what the beams
        say, corrected by how that turned out on the validation rows. -inf marks no plan.
        """
        if self.config.max_length is None:
            raise ValueError("expected a config with max_length, got None; take a trained model's")
        plans, log_prob = beam_search(
            [self.member(i).decoder for i in self._numbers()],
            [states.side for states in tools],
            [self.member(i).encode_requests(candidates.x, tools[i]) for i in self._numbers()],
            candidates,
            self.config.beam_width,
            self.config.max_length,
        )
        if candidates.size == 0:
            return plans, log_prob
        order, score = rank_by_agreement(plans, log_prob / self.temperature)
        plans = plans.gather(1, order.unsqueeze(2).expand_as(plans))
        rows = candidates.tools.gather(1, plans.clamp_min(0).flatten(1)).view_as(plans)
        calibrated = (self.calibration[0] + self.calibration[1] * score).clamp(0.0, 1.0)
        return rows.where(plans >= 0, PAD), calibrated.where(~score.isneginf(), score)

    def member(self, number: int) -> Member:
        """One of the members."""
        member = self.members[number]
        assert isinstance(member, Member)
        return member

    def _numbers(self) -> range:
        return range(len(self.members))


class GToolPlanner:
    """Plans with a trained :class:`GTool` on one graph version.

    Args:
        model: The trained model.
        graph: The graph it was trained on.
        tool_x: Text vectors of the graph's tools, in its order.
        embed: The text encoder that made them.
        link_scorer: Decides which steps of a plan depend on which; ``None``: plans are chains.
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
        link_scorer: LinkScorer | None = None,
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
        self.link_scorer = link_scorer
        self.device = next(model.parameters()).device
        self.allowed: Bool[Tensor, " num_tools"] | None = None
        if allowed is not None and not graph.index.keys() <= set(allowed):
            self.allowed = torch.tensor([k in allowed for k in graph.keys], device=self.device)
        self.lexicon = graph_lexicon(graph)
        self._x = tool_x.to(self.device)
        self.edges = graph_edges(graph, model.config.ablation, self.device)
        with torch.no_grad():
            self.tools = model.encode_tools(self._x, self.edges)

    @torch.inference_mode()
    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top`` (and at most the beam)."""
        if top < 1:
            raise ValueError(f"expected top >= 1, got {top}")
        ranked: list[list[Plan]] = []
        for start in range(0, len(requests), PLAN_BATCH):
            part = requests[start : start + PLAN_BATCH]
            plans, scores = self.rank_rows(part, embed_requests(part, self.embed))
            rows = zip(plans[:, :top].tolist(), scores[:, :top].tolist(), strict=True)
            ranked += [self._named(*row) for row in rows]
        return ranked

    @torch.no_grad()
    def rank_rows(
        self, requests: Sequence[str], vectors: RequestVectors
    ) -> tuple[Int[Tensor, "batch beams length"], Float[Tensor, "batch beams"]]:
        """Ranked plans as tool rows padded with -1, and their scores; -inf where there is none."""
        return self.model.rank_plans(self.tools, self.candidates(requests, vectors))

    @torch.no_grad()
    def candidates(self, requests: Sequence[str], vectors: RequestVectors) -> Candidates:
        """The tools that these requests may need."""
        vectors = vectors.to(self.device)
        return find_candidates(
            requests,
            vectors,
            self._x,
            self.recall(vectors.x),
            self.edges,
            self.lexicon,
            self.model.config.shortlist,
            allowed=self.allowed,
        )

    def recall(self, request_x: Float[Tensor, "batch text_channels"]) -> Recalled:
        """What the memory says of requests."""
        recalled: Recalled = self.model.memory(request_x)
        return recalled

    def _named(self, plans: list[list[int]], scores: list[float]) -> list[Plan]:
        """Plans of one request by key, with links; places without a plan are left out."""
        out = []
        for rows, score in zip(plans, scores, strict=True):
            if score == -torch.inf:
                continue
            tools = tuple(self.graph.keys[row] for row in rows if row != PAD)
            out.append(Plan(tools, self.links(tools), score, self.name))
        return out

    def links(self, tools: Sequence[str]) -> tuple[Link, ...]:
        """Which steps of a plan depend on which earlier ones."""
        return self.link_scorer.links(tools) if self.link_scorer else chain(len(tools))


def graph_edges(graph: ToolGraph, ablation: Ablation, device: torch.device) -> EdgeTable:
    """The edges of a graph, none where the graph is left out."""
    index, counts = graph.edge_index, graph.edge_counts
    if ablation is Ablation.NO_GRAPH:
        index, counts = empty_edges()
    return EdgeTable.from_edges(index.to(device), counts.to(device), graph.num_tools)


def graph_lexicon(graph: ToolGraph) -> Lexicon:
    """The words of a graph's tools."""
    return Lexicon(graph.texts, [key.split("/", 1)[-1] for key in graph.keys])
