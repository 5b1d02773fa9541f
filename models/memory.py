"""What past requests say about a new one: kernel ridge regression from request to tools."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class RequestMemory(nn.Module):
    r"""Scores every tool for a request by its likeness to training requests, in closed form.

    .. math::
        f(x) = k(x)^T (K + \lambda I)^{-1} Y, \quad k(x, x') = e^{s (x^T x' - 1)}

    with two sets of targets, "is in the plan" and "comes first". What a training row would get
    without itself has a closed form too, with :math:`G = (K + \lambda I)^{-1}`:
    :math:`y_i - (G Y)_i / G_{ii}`. So the decoder learns from scores as honest as those of a new
    request.

    Args:
        text_channels: Channels of request vectors.
        num_tools: Number of tools.
        num_rows: Training requests remembered.
        scale: Sharpness :math:`s` of the kernel; 0 makes all requests alike. (default: 1.5)
        ridge: Penalty :math:`\lambda`; small values trust single requests more. (default: 0.1)
    """

    requests: Tensor
    weights: Tensor

    def __init__(
        self,
        text_channels: int,
        num_tools: int,
        num_rows: int = 0,
        scale: float = 1.5,
        ridge: float = 0.1,
    ) -> None:
        super().__init__()
        self.num_tools = num_tools
        self.scale = scale
        self.ridge = ridge
        self.register_buffer("requests", torch.zeros(num_rows, text_channels))
        self.register_buffer("weights", torch.zeros(num_rows, 2 * num_tools))

    def fit(
        self,
        request_x: Float[Tensor, "rows text_channels"],
        plans: Int[Tensor, "rows length"],
    ) -> Float[Tensor, "rows two_num_tools"]:
        """Remember requests and their plans (padded with -1).

        Returns:
            The scores of each row as if it alone had not been remembered.
        """
        rows = request_x.size(0)
        inside = request_x.new_zeros(rows, self.num_tools + 1)
        inside.scatter_(1, plans.where(plans >= 0, self.num_tools), 1.0)
        first = request_x.new_zeros(rows, self.num_tools)
        first.scatter_(1, plans[:, :1], 1.0)
        y = torch.cat([inside[:, :-1], first], dim=1).double()
        kernel = self._kernel(request_x, request_x).double()
        inverse = torch.linalg.inv(kernel + self.ridge * torch.eye(rows, device=y.device).double())
        dual = inverse @ y
        self.requests, self.weights = request_x.clone(), dual.to(request_x.dtype)
        left_out: Tensor = y - dual / inverse.diagonal().unsqueeze(1)
        return left_out.to(request_x.dtype)

    def fit_evenly(
        self,
        request_x: Float[Tensor, "rows text_channels"],
        plans: Int[Tensor, "rows length"],
        most: int,
    ) -> Float[Tensor, "rows two_num_tools"]:
        """Fit on at most so many rows, evenly spread; what is said of each row without itself."""
        num_rows = request_x.size(0)
        kept = torch.arange(num_rows, device=request_x.device)
        if num_rows > most:
            kept = torch.linspace(0, num_rows - 1, most).round().long().to(request_x.device)
        left_out = self.fit(request_x[kept], plans[kept])
        said: Tensor = self(request_x)
        said[kept] = left_out
        return said

    def forward(
        self, request_x: Float[Tensor, "batch text_channels"]
    ) -> Float[Tensor, "batch two_num_tools"]:
        """Scores near 0..1: columns "in the plan" for all tools, then "comes first" for all."""
        return self._kernel(request_x, self.requests) @ self.weights

    def _kernel(self, a: Tensor, b: Tensor) -> Tensor:
        out: Tensor = (self.scale * (a @ b.T - 1)).exp()
        return out

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.requests.size(0)}, num_tools={self.num_tools})"
