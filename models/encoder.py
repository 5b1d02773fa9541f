"""The graph encoder of GTool: tool states once per graph, request states once per request."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.nn import TransformerConv

EDGE_CHANNELS = 3
"""Channels of an edge: log1p(adjacent count), log1p(dataflow count), 1 for tool-to-request."""


def edge_features(
    edge_counts: Float[Tensor, "num_edges 2"],
) -> Float[Tensor, "num_edges 3"]:
    """Attributes of mined edges: the log1p of both counts, and 0 for "not a request edge"."""
    logs = edge_counts.clamp_min(0).log1p()
    return torch.cat([logs, logs.new_zeros(logs.size(0), 1)], dim=1)


class ToolLayers(list[Tensor]):
    """Tool states before each layer and after the last, with each layer's keys and values.

    Requests attend to the very keys and values that tools attend to; here they are found again,
    laid out for that.

    Attributes:
        keys: One tensor a layer, of shape ``[heads, channels, num_tools]``.
        values: One tensor a layer, of shape ``[heads, num_tools, channels]``.
        request_edges: What an edge to a request adds to its state, of shape ``[1, out_channels]``.
    """

    def __init__(self, x: Float[Tensor, "num_tools in_channels"]) -> None:
        super().__init__([x])
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.request_edges: list[Tensor] = []


class GToolEncoder(nn.Module):
    r"""The request-specific graph encoder of GTool <https://arxiv.org/abs/2508.12725>.

    Every request has a graph of its own: the :math:`n` tools with their mined edges, one request
    node, and an edge from every tool to that node. No edge leaves the request node, so tool states
    are the same for every request. They are computed once (:meth:`encode_tools`), and a request is
    then one attention over the :math:`n` tools in each layer (:meth:`encode_requests`)

    .. math::
        r^{(l+1)} = W_s r + \sum_i \alpha_i (W_v t_i + W_e e), \quad
        \alpha = \mathrm{softmax}_i \frac{(W_q r)^T (W_k t_i + W_e e)}{\sqrt{d}}

    with the weights of the very :class:`~torch_geometric.nn.TransformerConv` layers that
    :meth:`forward_explicit` runs on the graph of :math:`n + 1` nodes. LayerNorm, ReLU and dropout
    stand between the layers; BatchNorm would tie the tools of different requests together.

    Args:
        in_channels: Channels of text vectors, of tools and requests alike.
        hidden_channels: Channels between layers; a multiple of ``heads``.
        out_channels: Channels of the states returned; a multiple of ``heads``.
        num_layers: Number of layers. (default: 3)
        heads: Attention heads of each layer, concatenated. (default: 4)
        edge_dim: Channels of edge attributes. (default: 3)
        dropout: Share of channels dropped between layers in training. (default: 0.0)
    """

    request_edge: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 3,
        heads: int = 4,
        edge_dim: int = EDGE_CHANNELS,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"expected num_layers >= 1, got {num_layers}")
        if hidden_channels % heads or out_channels % heads:
            raise ValueError(
                f"expected hidden_channels and out_channels to be multiples of heads={heads}, got "
                f"{hidden_channels} and {out_channels}"
            )
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.heads = heads
        sizes = [in_channels] + [hidden_channels] * (num_layers - 1) + [out_channels]
        self.convs = nn.ModuleList(
            TransformerConv(source, target // heads, heads=heads, edge_dim=edge_dim)
            for source, target in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for size in sizes[1:-1])
        self.dropout = nn.Dropout(dropout)
        request_edge = torch.zeros(1, edge_dim)
        request_edge[0, -1] = 1.0
        self.register_buffer("request_edge", request_edge, persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        for module in [*self.convs, *self.norms]:
            module.reset_parameters()

    def encode_tools(
        self,
        x: Float[Tensor, "num_tools in_channels"],
        edge_index: Int[Tensor, "2 num_edges"],
        edge_attr: Float[Tensor, "num_edges edge_dim"],
    ) -> ToolLayers:
        """Tool states before each layer and after the last: ``num_layers + 1`` tensors."""
        states = ToolLayers(x)
        for layer, conv in enumerate(self.convs):
            assert isinstance(conv, TransformerConv)
            h = states[-1]
            query, key, value = (
                lin(h).view(-1, conv.heads, conv.out_channels)
                for lin in (conv.lin_query, conv.lin_key, conv.lin_value)
            )
            message = conv.propagate(
                edge_index, query=query, key=key, value=value, edge_attr=edge_attr
            )
            conv._alpha = None  # or the layer would keep its attention, as its forward does not
            states.keys.append(key.permute(1, 2, 0).contiguous())
            states.values.append(value.transpose(0, 1).contiguous())
            states.request_edges.append(conv.lin_edge(self.request_edge))
            states.append(self._between(layer, message.flatten(1) + conv.lin_skip(h)))
        return states

    def encode_requests(
        self, r: Float[Tensor, "batch in_channels"], states: Sequence[Tensor]
    ) -> Float[Tensor, "batch out_channels"]:
        """Request states, given the tool states of :meth:`encode_tools`.

        The request edges are identical, so their projection is computed once a layer; it moves all
        attention scores of a request by the same amount, which softmax takes out again.
        """
        assert isinstance(states, ToolLayers), "expected what encode_tools gave"
        for layer, conv in enumerate(self.convs):
            assert isinstance(conv, TransformerConv)
            query = conv.lin_query(r) / conv.out_channels**0.5
            query = query.view(-1, conv.heads, conv.out_channels).transpose(0, 1)
            share = (query @ states.keys[layer]).softmax(dim=-1)
            message = (share @ states.values[layer]).transpose(0, 1).flatten(1)
            out = message + states.request_edges[layer] + conv.lin_skip(r)
            r = self._between(layer, out)
        return r

    def forward_explicit(
        self,
        x: Float[Tensor, "num_tools in_channels"],
        edge_index: Int[Tensor, "2 num_edges"],
        edge_attr: Float[Tensor, "num_edges edge_dim"],
        r: Float[Tensor, " in_channels"],
    ) -> Float[Tensor, "num_nodes out_channels"]:
        """States of all ``num_tools + 1`` nodes of one request's graph, the request node last.

        The slow and obvious way, with nothing but PyG's own layers; what the other two methods
        must agree with in eval mode.
        """
        num_tools = x.size(0)
        tools = torch.arange(num_tools, device=x.device)
        to_request = torch.stack([tools, torch.full_like(tools, num_tools)])
        h = torch.cat([x, r.unsqueeze(0)])
        edge_index = torch.cat([edge_index, to_request], dim=1)
        edge_attr = torch.cat([edge_attr, self.request_edge.expand(num_tools, -1)])
        for layer, conv in enumerate(self.convs):
            h = self._between(layer, conv(h, edge_index, edge_attr))
        return h

    def _between(self, layer: int, h: Tensor) -> Tensor:
        """What stands between two layers; nothing follows the last one."""
        if layer == len(self.norms):
            return h
        out: Tensor = self.dropout(self.norms[layer](h).relu())
        return out

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.hidden_channels}, "
            f"{self.out_channels}, num_layers={len(self.convs)}, heads={self.heads})"
        )
