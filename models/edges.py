"""Mined evidence that learning looks up by pair of tools, and can see without some of its rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.types import Link

ADJACENT, DATAFLOW = 0, 1
"""Columns of the counts of an edge."""

Evidence = tuple[Int[Tensor, " _pairs"], Float[Tensor, "_pairs 2"]]
"""What one row adds to a table: codes of pairs (see :class:`EdgeTable`) and their counts."""


@dataclass(frozen=True)
class EdgeTable:
    """Edges sorted by code, ``source * num_tools + target``: any pair is found by bisection.

    Attributes:
        num_tools: Number of tools.
        code: Ascending codes of the edges.
        counts: Adjacent and dataflow counts of each edge.
    """

    num_tools: int
    code: Int[Tensor, " num_edges"]
    counts: Float[Tensor, "num_edges 2"]

    @staticmethod
    def from_edges(
        edge_index: Int[Tensor, "2 num_edges"],
        edge_counts: Float[Tensor, "num_edges 2"],
        num_tools: int,
    ) -> "EdgeTable":
        """The edges of a graph."""
        code, order = (edge_index[0] * num_tools + edge_index[1]).sort()
        return EdgeTable(num_tools, code, edge_counts[order])

    @property
    def edge_index(self) -> Int[Tensor, "2 num_edges"]:
        """Sources and targets, as PyG wants them."""
        return torch.stack([self.code // self.num_tools, self.code % self.num_tools])

    @cached_property
    def out_count(self) -> Float[Tensor, " num_tools"]:
        """Adjacent calls seen after each tool."""
        out = self.counts.new_zeros(self.num_tools)
        return out.index_add_(0, self.code // self.num_tools, self.counts[:, ADJACENT])

    @cached_property
    def share(self) -> Float[Tensor, " num_edges"]:
        """Share of what was seen after the source, in one kind or the other, 0..1."""
        strength = self.counts.amax(dim=1)
        source = self.code // self.num_tools
        total = self.counts.new_zeros(self.num_tools).index_add_(0, source, strength)
        return strength / (total[source] + 1.0)

    @cached_property
    def _by_target(self) -> tuple[Tensor, Tensor]:
        """Order of the edges by target, and where each target starts in it."""
        target, order = (self.code % self.num_tools).sort(stable=True)
        every = torch.arange(self.num_tools + 1, device=target.device)
        return order, torch.searchsorted(target, every)

    def of(self, pairs: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape 2"]:
        """Counts of pairs by code; zeros where there is no edge."""
        if self.code.numel() == 0:
            return self.counts.new_zeros(*pairs.shape, 2)
        at = torch.searchsorted(self.code, pairs.contiguous()).clamp_max(self.code.numel() - 1)
        return self.counts[at] * (self.code[at] == pairs).unsqueeze(-1)

    def without(self, rows: Sequence[Evidence]) -> "EdgeTable":
        """The table as if these rows had not been mined; edges left with nothing are gone."""
        counts = self.counts.clone()
        if rows and self.code.numel():
            code = torch.cat([row[0] for row in rows]).to(self.code.device)
            gone = torch.cat([row[1] for row in rows]).to(self.code.device)
            at = torch.searchsorted(self.code, code).clamp_max(self.code.numel() - 1)
            counts.index_add_(0, at, -gone * (self.code[at] == code).unsqueeze(1))
        counts = counts.clamp_min(0.0)
        left = counts.amax(dim=1) > 0 if counts.numel() else counts.new_zeros(0).bool()
        return EdgeTable(self.num_tools, self.code[left], counts[left])

    def keep(self, some: Bool[Tensor, " num_edges"]) -> "EdgeTable":
        """The table with some of its edges."""
        return EdgeTable(self.num_tools, self.code[some], self.counts[some])

    def spread(
        self, score: Float[Tensor, "batch num_tools"], sources: int, *, backward: bool = False
    ) -> Float[Tensor, "batch num_tools"]:
        """Score of each tool as a neighbour of the best-scored tools.

        Args:
            score: Score of each tool, >= 0.
            sources: How many of the best tools pass their score on.
            backward: From targets to sources instead of along the edges.

        Returns:
            The best score of a neighbour times the edge's share; 0 for tools without one.
        """
        batch, num_tools = score.shape
        out = score.new_zeros(batch * num_tools)
        if self.code.numel() == 0:
            return out.view(batch, num_tools)
        value, tool = score.topk(min(sources, num_tools), dim=1)
        tool, value = tool.flatten(), value.flatten()
        if backward:
            order, start = self._by_target
            first, last = start[tool], start[tool + 1]
        else:
            first = torch.searchsorted(self.code, tool * num_tools)
            last = torch.searchsorted(self.code, (tool + 1) * num_tools)
        degree = last - first
        which = torch.repeat_interleave(torch.arange(tool.numel(), device=tool.device), degree)
        within = (
            torch.arange(which.numel(), device=tool.device) - (degree.cumsum(0) - degree)[which]
        )
        edge = first[which] + within
        if backward:
            edge = order[edge]
        other = self.code[edge] // num_tools if backward else self.code[edge] % num_tools
        row = which // min(sources, num_tools)
        out.scatter_reduce_(0, row * num_tools + other, value[which] * self.share[edge], "amax")
        return out.view(batch, num_tools)


def row_evidence(plan: Sequence[int], links: Sequence[Link], num_tools: int) -> Evidence:
    """What one trajectory adds to the counts: neighbours in its plan, and its links.

    Args:
        plan: Tool rows in order.
        links: Dataflow as (source position, target position).
        num_tools: Number of tools.
    """
    neighbours = Counter(a * num_tools + b for a, b in pairwise(plan) if a != b)
    flows = Counter(plan[a] * num_tools + plan[b] for a, b in links if plan[a] != plan[b])
    code = sorted(neighbours | flows)
    counts = [[float(neighbours[pair]), float(flows[pair])] for pair in code]
    return torch.tensor(code, dtype=torch.int64), torch.tensor(counts).reshape(-1, 2)


def links_within(links: Sequence[Link], length: int) -> tuple[Link, ...]:
    """The links among the first steps of a plan."""
    return tuple(link for link in links if max(link) < length)


def tool_use(plans: Int[Tensor, "rows length"], num_tools: int) -> Float[Tensor, "num_tools 4"]:
    """How often each tool is in a plan, comes first, comes last, and follows itself at once."""
    out = torch.zeros(4, num_tools + 1, device=plans.device)
    rows = torch.arange(plans.size(0), device=plans.device)
    inside = torch.zeros(plans.size(0), num_tools + 1, device=plans.device)
    inside[rows.unsqueeze(1), plans] = 1.0
    out[0] = inside.sum(dim=0)
    last = plans.gather(1, ((plans >= 0).sum(dim=1) - 1).clamp_min(0).unsqueeze(1))
    again = torch.where(plans[:, 1:] == plans[:, :-1], plans[:, 1:], -1)
    for column, tools in ((1, plans[:, :1]), (2, last), (3, again)):
        ones = torch.ones(tools.numel(), device=plans.device)
        out[column].index_add_(0, tools.flatten() % (num_tools + 1), ones)
    return out[:, :-1].T.contiguous()
