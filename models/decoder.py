"""The graph readout of GTool: a pointer decoder that writes a plan tool by tool."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

PAD = -1
"""Fills a batch of plans behind the last tool of the shorter ones."""


@dataclass(frozen=True)
class EdgeRows:
    """Mined edges sorted by source, so that the edges of any tool are one slice.

    Attributes:
        start: Edges of tool ``i`` are ``start[i]:start[i + 1]``.
        target: Tool that each edge leads to.
        counts: Adjacent and dataflow counts of each edge.
    """

    start: Int[Tensor, " num_tools_and_one"]
    target: Int[Tensor, " num_edges"]
    counts: Float[Tensor, "num_edges 2"]

    @staticmethod
    def from_edges(
        edge_index: Int[Tensor, "2 num_edges"],
        edge_counts: Float[Tensor, "num_edges 2"],
        num_tools: int,
    ) -> "EdgeRows":
        """Sort the edges of a graph by source."""
        order = edge_index[0].argsort(stable=True)
        degree = torch.bincount(edge_index[0], minlength=num_tools)
        start = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        return EdgeRows(start, edge_index[1, order], edge_counts[order])

    def dense(self, tools: Int[Tensor, " rows"]) -> Float[Tensor, "rows num_tools 2"]:
        """Counts from each given tool to all tools; zeros for ``PAD``."""
        num_tools = self.start.numel() - 1
        out = self.counts.new_zeros(tools.numel(), num_tools, 2)
        source = tools.clamp_min(0)
        degree = (self.start[source + 1] - self.start[source]) * (tools != PAD)
        row = torch.repeat_interleave(torch.arange(tools.numel(), device=tools.device), degree)
        offset = torch.arange(row.numel(), device=row.device) - (degree.cumsum(0) - degree)[row]
        edge = self.start[source][row] + offset
        out[row, self.target[edge]] = self.counts[edge]
        return out


class PointerDecoder(nn.Module):
    r"""Writes a plan as a walk over tool states that ends with END.

    A GRU starts from the request and reads the tools chosen so far. Step :math:`k` scores tool
    :math:`t` after the previous tool :math:`p` by

    .. math::
        s_k(t) = q_k^T \kappa_t + w_s \cos(r, x_t) + w_e^T \log(1 + c_{pt}) + w_c [t \in \tau_{<k}]

    with :math:`q_k` from GRU state and request, :math:`\kappa_t` from tool state, tool text and a
    vector of its own for each tool seen in training, and :math:`c_{pt}` the mined counts.

    Args:
        text_channels: Channels of text vectors.
        state_channels: Channels of encoder states.
        hidden_channels: Channels of the GRU and of the keys.
        dropout: Share of channels dropped in training. (default: 0.0)
    """

    def __init__(
        self, text_channels: int, state_channels: int, hidden_channels: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.text_channels = text_channels
        self.state_channels = state_channels
        self.hidden_channels = hidden_channels
        both = text_channels + state_channels
        self.lin_start = nn.Linear(both, hidden_channels)
        self.lin_input = nn.Linear(both, hidden_channels)
        self.lin_query = nn.Linear(hidden_channels + both, hidden_channels)
        self.lin_key = nn.Linear(both, hidden_channels)
        self.lin_end = nn.Linear(hidden_channels, 1)
        self.gru = nn.GRUCell(hidden_channels, hidden_channels)
        self.similarity_weight = nn.Parameter(torch.empty(1))
        self.edge_weight = nn.Parameter(torch.empty(3))
        self.chosen_weight = nn.Parameter(torch.empty(1))
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew; the scalar weights start where they help a little."""
        for module in self.children():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        nn.init.constant_(self.similarity_weight, 5.0)
        nn.init.constant_(self.edge_weight, 0.5)
        nn.init.constant_(self.chosen_weight, -1.0)
