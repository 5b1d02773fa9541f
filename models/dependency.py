"""Missing-dependency prediction (MDPL): hide some mined edges and learn to tell them from none."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F


def mask_edges(
    num_edges: int, rho: float, generator: torch.Generator
) -> Bool[Tensor, " num_edges"]:
    """Which edges to hide in this step: each with probability ``rho``, independently."""
    return torch.rand(num_edges, generator=generator) < rho


def sample_negatives(
    edge_index: Int[Tensor, "2 num_edges"],
    num_nodes: int,
    count: int,
    generator: torch.Generator,
) -> Int[Tensor, "2 num_negatives"]:
    """Distinct ordered pairs of different nodes that are no edge, drawn evenly within one graph.

    ``edge_index`` holds all edges, the hidden ones too: a hidden edge is never a negative. Pairs
    are numbered from 0 to n(n-1)-1 so that self loops have no number; small graphs list what is
    free, large ones draw and throw away, in three rounds at most.

    Args:
        edge_index: All true edges of the graph.
        num_nodes: Number of nodes.
        count: Number of pairs wanted.
        generator: Source of randomness.

    Returns:
        At most ``count`` pairs; fewer where the graph has fewer (a complete graph has none).
    """
    num_pairs = num_nodes * (num_nodes - 1)
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    taken = torch.unique(source * (num_nodes - 1) + target - (target > source).long())
    num_free = num_pairs - taken.numel()
    if count <= 0 or num_free <= 0:
        return edge_index.new_zeros((2, 0))
    if num_pairs <= 4 * (count + taken.numel()):
        free = torch.ones(num_pairs, dtype=torch.bool)
        free[taken] = False
        codes = free.nonzero().squeeze(1)
        codes = codes[torch.randperm(codes.numel(), generator=generator)[:count]]
    else:
        codes = taken.new_zeros(0)
        for _ in range(3):
            drawn = torch.randint(num_pairs, (2 * count,), generator=generator)
            codes = torch.cat([codes, drawn[~torch.isin(drawn, taken)]])
            values, inverse = torch.unique(codes, return_inverse=True)
            first = torch.full_like(values, codes.numel())
            first.scatter_reduce_(0, inverse, torch.arange(codes.numel()), reduce="amin")
            codes = codes[first.sort().values]
            if codes.numel() >= count:
                break
        codes = codes[:count]
    source, rest = codes // (num_nodes - 1), codes % (num_nodes - 1)
    return torch.stack([source, rest + (rest >= source).long()])


class BilinearDependency(nn.Module):
    r"""Logit that one tool depends on another, from their states.

    .. math::
        s(i, j) = h_i^T W h_j / \sqrt{d} + b

    The paper asks its frozen LLM for a yes or no; this is the same question put to one matrix.
    ``W`` is not symmetric, since edges have a direction.

    Args:
        channels: Channels of tool states.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.empty(channels, channels))
        self.bias = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrix anew and set the bias to zero."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def ask(self, h: Float[Tensor, "num_tools channels"]) -> Float[Tensor, "num_tools channels"]:
        """Sources as they are multiplied with targets; the logit lacks the bias then."""
        out: Tensor = h @ self.weight / self.channels**0.5
        return out

    def forward(
        self, h: Float[Tensor, "num_tools channels"], pairs: Int[Tensor, "2 num_pairs"]
    ) -> Float[Tensor, " num_pairs"]:
        """Logits of the given (source, target) pairs."""
        source, target = h.index_select(0, pairs[0]), h.index_select(0, pairs[1])
        return (self.ask(source) * target).sum(dim=-1) + self.bias

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.channels})"


def mdpl_loss(
    positive: Float[Tensor, " num_positives"], negative: Float[Tensor, " num_negatives"]
) -> Float[Tensor, ""]:
    """Binary cross-entropy over hidden edges (true) and sampled pairs (false); 0 without either."""
    logits = torch.cat([positive, negative])
    if logits.numel() == 0:
        return logits.sum()
    labels = torch.cat([torch.ones_like(positive), torch.zeros_like(negative)])
    return F.binary_cross_entropy_with_logits(logits, labels)


def mdpl_auc(
    positive: Float[Tensor, " num_positives"], negative: Float[Tensor, " num_negatives"]
) -> float | None:
    """Chance that a hidden edge scores above a sampled pair, ties counting half.

    Returns:
        The rank AUC in 0..1, or ``None`` where one class is missing.
    """
    num_positives, num_negatives = positive.numel(), negative.numel()
    if num_positives == 0 or num_negatives == 0:
        return None
    ordered = negative.detach().sort().values
    scores = positive.detach().contiguous()
    below = torch.searchsorted(ordered, scores)
    upto = torch.searchsorted(ordered, scores, right=True)
    wins = (below + upto).double().sum() / 2
    return float(wins / (num_positives * num_negatives))
