"""Data parallel training under torchrun: shares of a batch, one gradient, equal weights."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from models.errors import LostProcess, ProcessesDiffer

TIMEOUT_S = 1800.0
"""How long a process waits for the others; a process that died is noticed at once."""

Rows = TypeVar("Rows", Tensor, list[Any], range)


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train one model together, and which of them this one is.

    Each holds the whole model, draws the same batches and masks, and computes the loss of its
    :meth:`share` of a batch. :meth:`average` then gives each the gradient of the whole batch, so
    that equal optimizers make equal steps. Nothing wraps the model: a loss may call any of its
    methods. In a world of one process every method does nothing.

    Without dropout the steps are those of one process up to rounding; with dropout each process
    draws masks of its own.

    Attributes:
        rank: Number of this process, from 0.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        """Check that the number lies in the world."""
        if not 0 <= self.rank < self.size:
            raise ValueError(f"expected a rank in 0..{self.size - 1}, got {self.rank}")

    @staticmethod
    def current() -> "World":
        """The world that this process has joined; itself alone otherwise."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return World()
        return World(distributed.get_rank(), distributed.get_world_size())

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and logs."""
        return self.rank == 0

    def share(self, rows: Rows) -> Rows:
        """This process's part of a batch that all have drawn alike.

        The parts follow one another, together hold every row once, and differ by one row at most;
        some are empty where there are fewer rows than processes.
        """
        count = len(rows)
        return rows[count * self.rank // self.size : count * (self.rank + 1) // self.size]

    @torch.no_grad()
    def average(self, parameters: Iterable[Tensor], weight: float | int) -> None:
        r"""Give all processes the gradient of the whole batch, in place and in one exchange.

        .. math::
            g = \frac{\sum_r w_r g_r}{\sum_r w_r}

        This is the gradient that one process would compute on all rows, where the loss is a mean
        over :math:`w_r` things (rows, or choices of their plans) in process :math:`r`; a term that
        does not depend on the rows comes out as it is. A parameter that nobody has a gradient of
        keeps none.

        Args:
            parameters: The trainable parameters, in the same order everywhere.
            weight: Over how many things this process's loss is a mean; 0 for an empty share, whose
                gradients are then ignored.

        Raises:
            ValueError: All weights are 0.
            LostProcess: Another process has gone.
        """
        if self.size == 1:
            return
        weights = list(parameters)
        grads = [w.grad if weight else None for w in weights]
        parts = [
            w.new_zeros(w.numel(), dtype=torch.float32) if g is None else g.flatten().float()
            for w, g in zip(weights, grads, strict=True)
        ]
        counts = torch.tensor([*(float(g is not None) for g in grads), 1.0])
        bucket = torch.cat([*parts, counts.to(parts[0])]) * weight
        _exchange(lambda: distributed.all_reduce(bucket))
        if bucket[-1] == 0:
            raise ValueError("expected rows in some process, got an empty batch in all of them")
        bucket /= bucket[-1].clone()
        sums = torch.split(bucket, [*(w.numel() for w in weights), counts.numel()])
        for w, total, known in zip(weights, sums[:-1], sums[-1].tolist(), strict=False):
            w.grad = total.view_as(w).to(w.dtype) if known else None

    def total(self, values: Sequence[float | int]) -> list[float]:
        """The sum of each value over all processes, for losses and metrics of shares."""
        if self.size == 1:
            return [float(value) for value in values]
        sums = torch.tensor(values, dtype=torch.float64, device=_device())
        _exchange(lambda: distributed.all_reduce(sums))
        summed: list[float] = sums.tolist()
        return summed

    def tell(self, text: str = "") -> str:
        """What the first process says, in all of them; the others wait for it."""
        if self.size == 1:
            return text
        said = torch.tensor(list(text.encode()), dtype=torch.uint8, device=_device())
        length = torch.tensor([said.numel()], device=_device())
        _exchange(lambda: distributed.broadcast(length, src=0))
        if not self.first:
            said = torch.empty(int(length), dtype=torch.uint8, device=_device())
        _exchange(lambda: distributed.broadcast(said, src=0))
        return bytes(said.tolist()).decode()

    def check_same(self, what: str, value: str) -> None:
        """Make sure that all processes hold the same, such as the hash of equal weights.

        Args:
            what: What is compared, for the message.
            value: This process's, of any length.

        Raises:
            ProcessesDiffer: Some process holds another value than the first one.
            LostProcess: Another process has gone.
        """
        if self.size == 1:
            return
        digest = hashlib.sha256(value.encode()).digest()
        mine = torch.tensor(list(digest), dtype=torch.uint8, device=_device())
        every = [torch.empty_like(mine) for _ in range(self.size)]
        _exchange(lambda: distributed.all_gather(every, mine))
        apart = [rank for rank in range(self.size) if not torch.equal(every[rank], every[0])]
        if apart:
            raise ProcessesDiffer(
                f"expected {what} to be the same in all {self.size} processes, got others than "
                f"that of process 0 in {', '.join(map(str, apart))}; start all of them with the "
                "same code, data, settings and seed"
            )


@contextmanager
def join(device: torch.device | str = "cpu", timeout_s: float = TIMEOUT_S) -> Iterator[World]:
    """Join the processes that torchrun started, for the time of the block.

    A process that torchrun did not start, or that has joined already, stays as it is. Address,
    rank and size come from the environment that torchrun sets.

    Args:
        device: Where the model is: processes talk by NCCL on ``cuda``, each with the GPU of its
            local rank, and by gloo on ``cpu``.
        timeout_s: How long a process waits for the others.
    """
    alone = not distributed.is_available() or not distributed.is_torchelastic_launched()
    if alone or distributed.is_initialized():
        yield World.current()
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(distributed.get_node_local_rank(fallback_rank=0))
    wait = timedelta(seconds=timeout_s)
    _exchange(lambda: distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=wait))
    try:
        yield World.current()
    finally:
        distributed.destroy_process_group()


def _device() -> torch.device:
    """Where tensors must be to be exchanged."""
    if distributed.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _exchange(exchange: Callable[[], Any]) -> None:
    """Do it, or say that a process is gone."""
    try:
        exchange()
    except RuntimeError as error:
        raise LostProcess(
            "expected an answer of every process of this training, one is gone or takes too long: "
            f"{str(error).splitlines()[0][:300]}; see its own last message, and start all again"
        ) from error
