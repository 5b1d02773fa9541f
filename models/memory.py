"""What past requests say about a new one: which tools they needed, and their plans step by step."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PAD = -1
"""Fills a batch of plans behind the last tool of the shorter ones."""


class Recalled(NamedTuple):
    """What the memory says of each request.

    Attributes:
        relevance: Score of each tool to be in the plan, near 0..1.
        first: Score of each tool to come first, near 0..1.
        similarity: Cosine similarity of the nearest past requests, most similar first; -2 where
            there are fewer.
        plans: Their plans as tool rows, padded with -1.
    """

    relevance: Float[Tensor, "batch num_tools"]
    first: Float[Tensor, "batch num_tools"]
    similarity: Float[Tensor, "batch neighbours"]
    plans: Int[Tensor, "batch neighbours length"]


class RequestMemory(nn.Module):
    r"""Remembers training requests with their plans.

    Two readings. Kernel ridge regression from request to tools, in closed form:

    .. math::
        f(x) = k(x)^T (K + \lambda I)^{-1} Y, \quad k(x, x') = e^{s (x^T x' - 1)}

    with two sets of targets, "is in the plan" and "comes first"; and the plans of the nearest
    requests. Rows of one group, as the split draws them, never meet in use, so a training row must
    not see its group either. For the regression that has a closed form too: with
    :math:`G = (K + \lambda I)^{-1}` rows :math:`g` would get
    :math:`Y_g - G_{gg}^{-1} (G Y)_g` from a memory without them, and a row :math:`x` of the group
    that is not remembered :math:`k(x)^T (G Y - G_{\cdot g} G_{gg}^{-1} (G Y)_g)`.

    Args:
        text_channels: Channels of request vectors.
        num_tools: Number of tools.
        num_rows: Requests remembered; needed to load stored weights, as the next two are.
        num_used: Different tools in their plans.
        length: Tools of the longest plan.
        scale: Sharpness :math:`s` of the kernel; 0 makes all requests alike. (default: 1.5)
        ridge: Penalty :math:`\lambda`; small values trust single requests more. (default: 0.1)
        neighbours: Most nearest requests recalled. (default: 32)
    """

    requests: Tensor
    weights: Tensor
    used: Tensor
    plans: Tensor

    def __init__(
        self,
        text_channels: int,
        num_tools: int,
        num_rows: int = 0,
        num_used: int = 0,
        length: int = 1,
        scale: float = 1.5,
        ridge: float = 0.1,
        neighbours: int = 32,
    ) -> None:
        super().__init__()
        self.num_tools = num_tools
        self.scale = scale
        self.ridge = ridge
        self.neighbours = neighbours
        self.register_buffer("requests", torch.zeros(num_rows, text_channels))
        self.register_buffer("weights", torch.zeros(num_rows, 2 * num_used))
        self.register_buffer("used", torch.zeros(num_used, dtype=torch.int64))
        self.register_buffer("plans", torch.full((num_rows, length), PAD))

    def fit(
        self,
        request_x: Float[Tensor, "rows text_channels"],
        plans: Int[Tensor, "rows length"],
        groups: Sequence[str],
        most: int,
        spare: int = 1,
    ) -> Recalled:
        """Remember requests and their plans (padded with -1), at most so many, evenly spread.

        Args:
            request_x: Text vectors of the requests.
            plans: Their plans as tool rows.
            groups: Rows of one group never meet in use.
            most: Most rows that are remembered.
            spare: Times ``neighbours`` nearest requests that are told of each row.

        Returns:
            What the memory says of each row, had it not met the row's group.
        """
        num_rows, device = request_x.size(0), request_x.device
        kept = torch.arange(num_rows, device=device)
        if num_rows > most:
            kept = torch.linspace(0, num_rows - 1, most).round().long().to(device)
        self.requests, self.plans = request_x[kept].clone(), plans[kept].clone()
        self.used = torch.unique(plans[kept][plans[kept] >= 0])
        number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
        group = torch.tensor([number[one] for one in groups], device=device)
        scores = self._fit_weights(request_x, group, kept)
        same = group.unsqueeze(1) == group[kept].unsqueeze(0)
        cosine = (request_x @ self.requests.T).masked_fill(same, -2.0)
        return Recalled(*self._spread(scores), *self._nearest(cosine, spare))

    def forward(self, request_x: Float[Tensor, "batch text_channels"]) -> Recalled:
        """What the memory says of new requests."""
        cosine = request_x @ self.requests.T
        scores = self._kernel(cosine) @ self.weights
        return Recalled(*self._spread(scores), *self._nearest(cosine))

    def _fit_weights(
        self,
        request_x: Float[Tensor, "every text_channels"],
        group: Int[Tensor, " every"],
        kept: Int[Tensor, " rows"],
    ) -> Float[Tensor, "every two_num_used"]:
        """Solve for the weights; what each row, remembered or not, would get without its group."""
        rows, used = self.plans.size(0), self.used.numel()
        place = torch.full((self.num_tools + 1,), used, device=self.used.device)
        place[self.used] = torch.arange(used, device=self.used.device)
        inside = self.requests.new_zeros(rows, used + 1)
        inside.scatter_(1, place[self.plans], 1.0)
        first = self.requests.new_zeros(rows, used + 1)
        first.scatter_(1, place[self.plans[:, :1]], 1.0)
        y = torch.cat([inside[:, :-1], first[:, :-1]], dim=1).double()
        kernel = self._kernel(self.requests @ self.requests.T).double()
        inverse = torch.linalg.inv(kernel + self.ridge * torch.eye(rows, device=y.device).double())
        dual = inverse @ y
        self.weights = dual.float()
        left_out = y.new_empty(request_x.size(0), y.size(1))
        kept_at = torch.full_like(group, PAD)
        kept_at[kept] = torch.arange(rows, device=y.device)
        for members in _rows_by_group(group):
            is_kept = kept_at[members] != PAD
            own, others = kept_at[members[is_kept]], members[~is_kept]
            gone = torch.linalg.solve(inverse[own][:, own], dual[own])
            left_out[kept[own]] = y[own] - gone
            kernel = self._kernel(request_x[others] @ self.requests.T).double()
            left_out[others] = kernel @ dual - kernel @ inverse[:, own] @ gone
        return left_out.float()

    def _spread(self, scores: Float[Tensor, "batch two_num_used"]) -> tuple[Tensor, Tensor]:
        """Scores of used tools as scores of all tools."""
        out = scores.new_zeros(2, scores.size(0), self.num_tools)
        out[:, :, self.used] = torch.stack(scores.chunk(2, dim=1))
        return out[0], out[1]

    def _nearest(
        self, cosine: Float[Tensor, "batch rows"], times: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Similarity and plans of the nearest requests; -2 stands for none."""
        batch, count = cosine.size(0), min(times * self.neighbours, cosine.size(1))
        if count == 0:
            plans = self.plans.new_full((batch, 1, self.plans.size(1)), PAD)
            return cosine.new_full((batch, 1), -2.0), plans
        ordered, row = cosine.sort(dim=1, descending=True, stable=True)
        similarity, plans = ordered[:, :count], self.plans[row[:, :count]]
        return similarity, plans.masked_fill((similarity <= -2.0).unsqueeze(2), PAD)

    def _kernel(self, cosine: Tensor) -> Tensor:
        return (self.scale * (cosine - 1)).exp()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.requests.size(0)}, num_tools={self.num_tools})"


def padded_plans(plans: list[list[int]]) -> Int[Tensor, "rows length"]:
    """Plans as one tensor, padded with -1."""
    length = max(len(plan) for plan in plans)
    return torch.tensor([plan + [PAD] * (length - len(plan)) for plan in plans])


def _rows_by_group(group: Int[Tensor, " rows"]) -> list[Int[Tensor, " members"]]:
    """Row numbers of each group."""
    order = group.argsort(stable=True)
    sizes = torch.unique_consecutive(group[order], return_counts=True)[1]
    return list(torch.split(order, sizes.tolist()))
