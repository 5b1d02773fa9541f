"""The trainable half of GTool's LLM readout: graph states as input vectors of a frozen LLM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from models.encoder import GToolEncoder, edge_features
from models.gtool import GTool, GToolConfig
from models.llm import FrozenLLM


@dataclass(frozen=True)
class LLMConfig:
    """Everything that changes the numbers of the LLM readout besides data, seed and LLM."""

    candidates: int = 8  # tool tokens after the request token; 0: the paper's single token
    tool_list: Literal["all", "none"] = "all"  # names in the prompt
    loss: Literal["choices", "tokens"] = "choices"  # of plans: legal choices, or all tokens
    name_vectors: bool = True  # a tool's token starts as the mean of its name's word embeddings
    projector_channels: int = 512  # hidden channels of the projectors, >= 1
    mask_rate: float = 0.1  # rho of MDPL: share of edges hidden in a step, 0..1
    mdpl_weight: float = 0.1  # lambda of MDPL: its weight beside the planning loss, >= 0
    mdpl_pairs: int = 4  # alpha of MDPL: hidden edges, and as many pairs without one, >= 0
    learning_rate: float = 1e-3  # peak step of AdamW for projectors and markers, > 0
    encoder_rate: float = 0.1  # step of the encoder as a share of that, >= 0
    weight_decay: float = 0.01  # of AdamW, >= 0
    max_grad_norm: float = 1.0  # gradients are clipped to this norm, > 0
    batch_size: int = 8  # requests (or tools, when aligning) of a step, >= 1
    align_steps: int = 200  # steps of the alignment stage: a node's token says its name, >= 0
    plan_steps: int = 400  # steps of the planning stage, >= 0
    save_every: int = 20  # steps between two stored states, >= 1
    validate_every: int = 100  # steps between two looks at the validation rows, >= 1
    validation_rows: int = 32  # most validation rows looked at, >= 1
    max_request_tokens: int = 512  # a longer request is cut behind them, >= 1
    beam_width: int = 4  # plans kept while decoding, >= 1
    max_length: int | None = None  # most tools of a plan; None: the longest plan trained on

    def __post_init__(self) -> None:
        """Check every range."""
        counts = ("projector_channels", "batch_size", "save_every", "validate_every")
        for name in (*counts, "validation_rows", "max_request_tokens", "beam_width"):
            self._check(name, getattr(self, name) >= 1, ">= 1")
        not_negative = ("candidates", "mdpl_pairs", "align_steps", "plan_steps", "mdpl_weight")
        for name in (*not_negative, "encoder_rate", "weight_decay"):
            self._check(name, getattr(self, name) >= 0, ">= 0")
        for name in ("learning_rate", "max_grad_norm"):
            self._check(name, getattr(self, name) > 0, "> 0")
        self._check("mask_rate", 0.0 <= self.mask_rate < 1.0, "in 0..1, 1 excluded")
        self._check("max_length", self.max_length is None or self.max_length >= 1, "None or >= 1")

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
        out: Tensor = self.norm(self.lin_out(nn.functional.gelu(self.lin_in(x))))
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.lin_in.in_features}, {self.lin_out.out_features})"


class GraphTokens(nn.Module):
    """Graph encoder, projectors and markers: all that trains for the LLM readout.

    The encoder starts as a copy of the graph readout's, and is a copy so that what the LLM teaches
    it leaves the graph readout as it was measured. Markers stand around graph and nodes, as the
    paper's identifiers do; they are parameters at the scale of word embeddings.

    Args:
        config: Of the readout.
        gtool: Configuration of the graph readout whose encoder this one copies.
        text_channels: Channels of text vectors.
        scale: Root mean square of the LLM's word embeddings.
        name_x: Mean word embedding of each tool's name; not stored, since the LLM has it.
    """

    name_x: Tensor

    def __init__(
        self,
        config: LLMConfig,
        gtool: GToolConfig,
        text_channels: int,
        scale: float,
        name_x: Float[Tensor, "num_tools width"],
    ) -> None:
        super().__init__()
        self.config = config
        width = name_x.size(1)
        length = name_x.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-12)
        self.register_buffer("name_x", name_x / length * scale, persistent=False)
        hidden = gtool.hidden_channels
        self.encoder = GToolEncoder(text_channels, hidden, hidden, gtool.num_layers, gtool.heads)
        # A tool token also says how strongly past requests vote for the tool, and as the first one.
        channels = config.projector_channels
        self.tool_projector = Projector(hidden + text_channels + 2, channels, width, scale)
        self.request_projector = Projector(hidden + text_channels, channels, width, scale)
        self.graph_marker = nn.Parameter(torch.randn(2, width) * scale)
        self.node_marker = nn.Parameter(torch.randn(2, width) * scale)

    def encode_tools(
        self,
        tool_x: Float[Tensor, "num_tools text_channels"],
        edge_index: Int[Tensor, "2 num_edges"],
        edge_counts: Float[Tensor, "num_edges 2"],
    ) -> list[Tensor]:
        """Tool states before each layer and after the last."""
        return self.encoder.encode_tools(tool_x, edge_index, edge_features(edge_counts))

    def graph_pieces(
        self,
        request_x: Float[Tensor, "batch text_channels"],
        layers: Sequence[Tensor],
        memory: Float[Tensor, "batch two_num_tools"],
        most: int | None = None,
    ) -> Float[Tensor, "batch tokens width"]:
        """What stands after each request: marker, request token, candidate tools, marker.

        Candidates are the tools that similar past requests vote for, the likeliest first.

        Args:
            request_x: Text vectors of the requests.
            layers: What :meth:`encode_tools` gave.
            memory: What the memory says of each request, see ``RequestMemory``.
            most: Most candidates, where fewer tools than usual may be planned with.
        """
        batch = request_x.size(0)
        states = torch.cat([self.encoder.encode_requests(request_x, layers), request_x], dim=1)
        request = self.request_projector(states).unsqueeze(1)
        parts = [self.graph_marker[:1].expand(batch, 1, -1), request]
        num_tools = layers[0].size(0)
        count = min(self.config.candidates, num_tools if most is None else most)
        if count:
            relevance, first = memory.chunk(2, dim=1)
            chosen = candidates(relevance, count)
            votes = torch.stack([relevance.gather(1, chosen), first.gather(1, chosen)], dim=2)
            parts.append(self._tools(layers, chosen, votes))
        parts.append(self.graph_marker[1:].expand(batch, 1, -1))
        return torch.cat(parts, dim=1)

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


def candidates(
    relevance: Float[Tensor, "batch num_tools"], count: int
) -> Int[Tensor, "batch count"]:
    """The tools with the highest votes, best first; equal votes in row order."""
    return relevance.sort(dim=1, descending=True, stable=True).indices[:, :count]


def new_graph_tokens(
    config: LLMConfig, model: GTool, llm: FrozenLLM, lines: Sequence[Sequence[int]]
) -> GraphTokens:
    """Fresh tokens whose encoder is a copy of a trained graph readout's.

    Args:
        config: Of the readout.
        model: The trained graph readout.
        llm: The frozen language model.
        lines: Tokens of each tool's name with its line break.
    """
    name_x = torch.stack([llm.embed(line[:-1] or line).float().mean(dim=0) for line in lines])
    tokens = GraphTokens(config, model.config, model.text_channels, llm.embedding_rms, name_x)
    tokens.encoder.load_state_dict(model.member(0).encoder.state_dict())
    return tokens
