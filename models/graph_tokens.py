"""The trainable half of GTool's LLM readout: graph states as input vectors of a frozen LLM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from models.ablation import Ablation
from models.encoder import GToolEncoder, edge_features
from models.gtool import GTool, GToolConfig
from models.llm import FrozenLLM
from models.readings import Readings
from models.types import ToolGraph

NAME_SCALE = 3.0
"""Root mean square of a name's vector, in that of the LLM's word embeddings."""

LINK_THRESHOLD = 0.5
"""Least probability of a predicted dependency that joins the graph."""


@dataclass(frozen=True)
class LLMConfig:
    """Everything that changes the numbers of the LLM readout besides data, seed and LLM."""

    mode: Literal["steps", "single"] = "steps"  # a token a step of the graph's plan, or only one
    ablation: Ablation = Ablation.FULL  # what is left out
    tool_list: Literal["all", "topk", "none"] = "topk"  # names in the prompt: all, candidates, none
    candidates: int = 8  # tools that the graph readout proposes, >= 1
    honest_share: float = 0.5  # of training rows: shown the graph's plan instead of gold, 0..1
    disturbed_share: float = 0.3  # of the gold plans shown: with a step dropped or changed, 0..1
    loss: Literal["choices", "tokens"] = "choices"  # of plans: legal choices, or all tokens
    name_vectors: bool = True  # a tool's token starts out of its name's word embeddings
    projector_channels: int = 512  # hidden channels of the projectors, >= 1
    mask_rate: float = 0.1  # rho of MDPL: share of edges hidden in a step, 0..1
    mdpl_weight: float = 0.1  # lambda of MDPL: its weight beside the planning loss, >= 0
    mdpl_pairs: int = 4  # alpha of MDPL: hidden edges, and as many pairs without one, >= 0
    link_pairs: int = 256  # pairs put to the LLM by the ablation llm_links, >= 1
    learning_rate: float = 1e-2  # peak step of AdamW for projectors and markers, > 0
    encoder_rate: float = 0.1  # step of the encoder as a share of that, >= 0
    weight_decay: float = 0.01  # of AdamW, >= 0
    max_grad_norm: float = 1.0  # gradients are clipped to this norm, > 0
    batch_size: int = 8  # requests (or tools, when aligning) of a pass, >= 1
    accumulate: int = 1  # passes whose gradients make one step, >= 1
    align_steps: int = 200  # steps of the alignment stage: a node's token says its name, >= 0
    plan_steps: int = 400  # steps of the planning stage, >= 0
    save_every: int = 20  # steps between two stored states, >= 1
    validate_every: int = 100  # steps between two looks at the validation rows, >= 1
    validation_rows: int = 32  # most validation rows looked at, >= 1
    patience: int = 3  # looks without a better one that end the training, >= 1
    max_request_tokens: int = 512  # a longer request is cut behind them, >= 1
    beam_width: int = 4  # plans kept while decoding, >= 1
    max_length: int | None = None  # most tools of a plan; None: the longest plan trained on
    fusion_rows: int = 32  # validation rows that choose the weight of the fusion, >= 0
    fusion_weight: float = 0.0  # w of the fusion, 0..1; chosen in training

    def __post_init__(self) -> None:
        """Check every range."""
        counts = ("projector_channels", "batch_size", "accumulate", "save_every", "validate_every")
        sizes = ("validation_rows", "patience", "max_request_tokens", "beam_width", "candidates")
        for name in (*counts, *sizes, "link_pairs"):
            self._check(name, getattr(self, name) >= 1, ">= 1")
        not_negative = ("mdpl_pairs", "align_steps", "plan_steps", "mdpl_weight", "fusion_rows")
        for name in (*not_negative, "encoder_rate", "weight_decay"):
            self._check(name, getattr(self, name) >= 0, ">= 0")
        for name in ("learning_rate", "max_grad_norm"):
            self._check(name, getattr(self, name) > 0, "> 0")
        for name in ("honest_share", "disturbed_share", "fusion_weight"):
            self._check(name, 0.0 <= getattr(self, name) <= 1.0, "in 0..1")
        self._check("mask_rate", 0.0 <= self.mask_rate < 1.0, "in 0..1, 1 excluded")
        self._check("max_length", self.max_length is None or self.max_length >= 1, "None or >= 1")

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "LLMConfig":
        """What ``dataclasses.asdict`` made of a configuration and JSON gave back."""
        return LLMConfig(**{**values, "ablation": Ablation(values["ablation"])})

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"expected {name} {expected}, got {getattr(self, name)!r}")


class Projector(nn.Module):
    """Graph states to input vectors of the LLM, at the scale of its word embeddings.

    Args:
        in_channels: Channels of what comes in.
        hidden_channels: Channels between the two layers.
        width: Channels of the LLM's input vectors.
        scale: Root mean square of the vectors at the start of training.
    """

    def __init__(self, in_channels: int, hidden_channels: int, width: int, scale: float) -> None:
        super().__init__()
        self.lin_in = nn.Linear(in_channels, hidden_channels)
        self.lin_out = nn.Linear(hidden_channels, width)
        self.norm = nn.RMSNorm(width, eps=1e-6)
        nn.init.constant_(self.norm.weight, scale)

    def forward(self, x: Float[Tensor, "*batch channels"]) -> Float[Tensor, "*batch width"]:
        """Input vectors."""
        out: Tensor = self.norm(self.lin_out(nn.functional.gelu(self.lin_in(x))).float())
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.lin_in.in_features}, {self.lin_out.out_features})"


class GraphTokens(nn.Module):
    """Graph encoder, projectors and markers: all that trains for the LLM readout.

    The encoder starts as a copy of the graph readout's, and is a copy so that what the LLM teaches
    it leaves the graph readout as it was measured. Markers stand around graph and nodes, as the
    paper's identifiers do; they are parameters that start as a line break, so that node tokens
    stand like words on lines of their own.

    Args:
        config: Of the readout.
        gtool: Configuration of the graph readout whose encoder this one copies.
        text_channels: Channels of text vectors.
        scale: Root mean square of the LLM's word embeddings.
        name_x: What each tool's token starts as, see :func:`name_vectors`; not stored, since the
            LLM has it.
        line_break: The LLM's input vector of a line break.
    """

    name_x: Tensor
    links: Tensor
    link_probability: Tensor

    def __init__(
        self,
        config: LLMConfig,
        gtool: GToolConfig,
        text_channels: int,
        scale: float,
        name_x: Float[Tensor, "num_tools width"],
        line_break: Float[Tensor, " width"],
    ) -> None:
        super().__init__()
        self.config = config
        width = name_x.size(1)
        self.register_buffer("name_x", name_x, persistent=False)
        num_links = config.link_pairs if config.ablation is Ablation.LLM_LINKS else 0
        self.register_buffer("links", torch.zeros(2, num_links, dtype=torch.long))
        self.register_buffer("link_probability", torch.zeros(num_links))
        hidden = gtool.hidden_channels
        self.encoder = GToolEncoder(text_channels, hidden, hidden, gtool.num_layers, gtool.heads)
        # A tool token also says how strongly past requests vote for the tool, and as the first one.
        channels = config.projector_channels
        self.tool_projector = Projector(hidden + text_channels + 2, channels, width, scale)
        self.request_projector = Projector(hidden + text_channels, channels, width, scale)
        self.graph_marker = nn.Parameter(line_break.repeat(3, 1))
        self.node_marker = nn.Parameter(line_break.repeat(2, 1))
        if config.mode == "steps":
            self.step_position = nn.Parameter(torch.zeros(config.max_length or 1, width))

    def encode_tools(
        self,
        tool_x: Float[Tensor, "num_tools text_channels"],
        edge_index: Int[Tensor, "2 num_edges"],
        edge_counts: Float[Tensor, "num_edges 2"],
    ) -> list[Tensor]:
        """Tool states before each layer and after the last."""
        return self.encoder.encode_tools(tool_x, edge_index, edge_features(edge_counts))

    def with_links(self, graph: ToolGraph) -> ToolGraph:
        """The graph with the dependencies that the LLM predicted, see ``predict_links``.

        An edge that nobody has called counts as often as it is probable.
        """
        likely = (self.link_probability >= LINK_THRESHOLD).cpu()
        counts = self.link_probability.cpu()[likely].unsqueeze(1)
        counts = torch.cat([counts, torch.zeros_like(counts)], dim=1)
        return replace(
            graph,
            edge_index=torch.cat([graph.edge_index, self.links.cpu()[:, likely]], dim=1),
            edge_counts=torch.cat([graph.edge_counts, counts]),
        )

    def graph_pieces(
        self,
        request_x: Float[Tensor, "batch text_channels"],
        layers: Sequence[Tensor],
        readings: Readings,
    ) -> list[Float[Tensor, "_ width"]]:
        """What stands after each request: marker, request token, step tokens, marker.

        The request token is the paper's graph token. A step token stands for one step of the graph
        readout's plan, a node's marker before it: the chosen tool's state, its text vector, its
        votes and the step's place.

        Args:
            request_x: Text vectors of the requests.
            layers: What :meth:`encode_tools` gave.
            readings: What the graph readout says of each request, on any device.
        """
        batch = request_x.size(0)
        if self.config.ablation.request_node:
            states = self.encoder.encode_requests(request_x, layers)
            states = torch.cat([states, request_x], dim=1)
        else:
            states = torch.cat([layers[-1], layers[0]], dim=1).mean(dim=0).expand(batch, -1)
        first, middle, last = (marker[None] for marker in self.graph_marker)
        request = self.request_projector(states) + middle
        if self.config.mode == "single":
            return [torch.cat([first, token[None], last]) for token in request]
        lengths = (readings.plans >= 0).sum(dim=1).tolist()
        readings = readings.to(request.device)
        plans = readings.plans
        place = torch.arange(plans.size(1), device=plans.device)
        place = place.clamp_max(self.step_position.size(0) - 1)
        steps = self._tools(layers, plans.clamp_min(0), readings.votes_of(plans))
        steps = steps + self.step_position[place]
        marked = torch.stack([self.node_marker[0].expand_as(steps), steps], dim=2).flatten(1, 2)
        return [
            torch.cat([first, request[i : i + 1], marked[i, : 2 * length], last])
            for i, length in enumerate(lengths)
        ]

    def node_pieces(
        self, layers: Sequence[Tensor], rows: Int[Tensor, "batch nodes"]
    ) -> Float[Tensor, "batch tokens width"]:
        """Marker, tool token, marker for each node, one after the other."""
        batch, nodes = rows.shape
        tokens = self._tools(layers, rows, layers[0].new_zeros(batch, nodes, 2)).unsqueeze(2)
        before = self.node_marker[0].expand(batch, nodes, 1, -1)
        after = self.node_marker[1].expand(batch, nodes, 1, -1)
        return torch.cat([before, tokens, after], dim=2).flatten(1, 2)

    def _tools(self, layers: Sequence[Tensor], rows: Tensor, votes: Tensor) -> Tensor:
        """Tokens of tools with the votes for each."""
        out: Tensor = self.tool_projector(torch.cat([layers[-1][rows], layers[0][rows], votes], -1))
        return out + self.name_x[rows] if self.config.name_vectors else out


def name_vectors(
    llm: FrozenLLM, lines: Sequence[Sequence[int]]
) -> Float[Tensor, "num_tools width"]:
    r"""One input vector for each name that a frozen LLM takes for the name as far as it can.

    .. math::
        x_t = \frac{1}{\sum_k k^{-2}} \sum_k k^{-2} e(w_k), \quad x_t - \bar x

    over the tokens :math:`w_k` of a name, with the mean over all names taken out and brought to
    :data:`NAME_SCALE` times the scale of word embeddings. The first token is what an answer turns
    on; what all names share (underscores) says nothing.

    Args:
        llm: The frozen language model.
        lines: Tokens of each name with its line break.
    """
    rows = []
    for line in lines:
        words = llm.embed(line[:-1] or line).float()
        weight = torch.arange(1.0, len(words) + 1, device=words.device) ** -2
        rows.append(weight @ words / weight.sum())
    out = torch.stack(rows)
    if len(rows) > 1:
        out = out - out.mean(dim=0)
    length = out.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-12)
    return out / length * llm.embedding_rms * NAME_SCALE


def new_graph_tokens(
    config: LLMConfig, model: GTool, llm: FrozenLLM, lines: Sequence[Sequence[int]]
) -> GraphTokens:
    """Fresh tokens whose encoder is a copy of a trained graph readout's.

    Args:
        config: Of the readout, ``max_length`` filled in.
        model: The trained graph readout.
        llm: The frozen language model.
        lines: Tokens of each tool's name with its line break.
    """
    line_break = llm.embed(llm.tokens("\n")).float()[-1]
    names, scale = name_vectors(llm, lines), llm.embedding_rms
    tokens = GraphTokens(config, model.config, model.text_channels, scale, names, line_break)
    tokens.encoder.load_state_dict(model.member(0).encoder.state_dict())
    return tokens
