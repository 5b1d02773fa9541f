"""What the graph readout says of a request, as the LLM readout is told it."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.decoder import PAD, EdgeRows, rank_by_agreement
from models.gtool import PLAN_BATCH, GTool, GToolPlanner, ToolStates
from models.memory import RequestMemory
from models.training import padded_plans
from models.types import ToolGraph


class Rows(NamedTuple):
    """Requests of one split: texts, text vectors, gold plans as tool rows."""

    texts: list[str]
    x: Float[Tensor, "rows text_channels"]
    plans: list[list[int]]


@dataclass(frozen=True)
class Readings:
    """What the graph readout says of some requests.

    Attributes:
        candidates: Rows of the likeliest tools, best first, padded with -1; the same tool once.
        votes: How strongly similar past requests speak for each candidate, and for it as the first
            tool; 0 behind the last one.
        plans: The best plan of each request as tool rows, padded with -1.
    """

    candidates: Int[Tensor, "batch K"]
    votes: Float[Tensor, "batch K 2"]
    plans: Int[Tensor, "batch L"]

    def take(self, rows: Sequence[int]) -> "Readings":
        """The readings of some of the requests."""
        some = torch.tensor(list(rows), dtype=torch.long, device=self.plans.device)
        return Readings(self.candidates[some], self.votes[some], self.plans[some])

    def to(self, device: torch.device | str) -> "Readings":
        """The same on a device."""
        return Readings(*(part.to(device) for part in (self.candidates, self.votes, self.plans)))

    def votes_of(self, tools: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L 2"]:
        """The votes for given tools; 0 for one that is no candidate."""
        same = (tools.unsqueeze(2) == self.candidates.unsqueeze(1)) & (tools >= 0).unsqueeze(2)
        return same.to(self.votes.dtype) @ self.votes


@torch.no_grad()
def read_requests(planner: GToolPlanner, requests: Sequence[str], count: int) -> Readings:
    """What a planner says of new requests.

    Args:
        planner: The graph readout.
        requests: At least one.
        count: Candidates of each, at most.
    """
    found = []
    for start in range(0, len(requests), PLAN_BATCH):
        x = planner.embed(requests[start : start + PLAN_BATCH]).to(planner.device)
        memory = planner.model.memory(x)
        found.append(_read(planner, x, memory, planner.tools, count))
    return _joined(found)


@torch.no_grad()
def read_rows(
    planner: GToolPlanner, rows: Mapping[str, Rows], count: int
) -> tuple[dict[str, Readings], GToolPlanner]:
    """What the planner would say of the rows it was trained with, had it not known them.

    A training row is read without itself: its request is taken out of the memory and its pairs out
    of the counts that guide the decoder. Validation rows are read with a memory of the training
    rows alone.

    Args:
        planner: The trained graph readout.
        rows: Its rows by split, ``train`` and ``validation``.
        count: Candidates of each, at most.

    Returns:
        The readings by split, and the planner that read the validation rows.
    """
    train, validation = rows["train"], rows["validation"]
    model, config = copy.deepcopy(planner.model), planner.model.config
    model.memory = RequestMemory(
        model.text_channels,
        planner.graph.num_tools,
        scale=config.memory_scale,
        ridge=config.memory_ridge,
    ).to(planner.device)
    x, plans = train.x.float().to(planner.device), padded_plans(train.plans).to(planner.device)
    said = model.memory.fit_evenly(x, plans, config.memory_rows)
    honest = on_graph(planner, planner.graph, model)
    found = []
    for start in range(0, len(train.plans), PLAN_BATCH):
        part = slice(start, start + PLAN_BATCH)
        edges = _WithoutOwn.of(honest.tools.side.edges, plans[part])
        tools = honest.tools._replace(side=honest.tools.side._replace(edges=edges))
        found.append(_read(honest, x[part], said[part], tools, count))
    other = validation.x.float().to(planner.device)
    read = _read(honest, other, model.memory(other), honest.tools, count)
    return {"train": _joined(found), "validation": read}, honest


def on_graph(planner: GToolPlanner, graph: ToolGraph, model: GTool | None = None) -> GToolPlanner:
    """The planner with other edges among the same tools, or with another model."""
    return GToolPlanner(
        model or planner.model,
        graph,
        planner.tool_x,
        planner.embed,
        planner.dataflow_namespaces,
        None if planner.allowed is None else {graph.keys[row] for row in offered(planner)},
    )


def offered(planner: GToolPlanner) -> tuple[int, ...]:
    """Rows of the tools that its plans may hold."""
    if planner.allowed is None:
        return tuple(range(planner.graph.num_tools))
    return tuple(planner.allowed.nonzero().flatten().tolist())


def _read(
    planner: GToolPlanner, x: Tensor, memory: Tensor, tools: ToolStates, count: int
) -> Readings:
    """Readings of requests for which the memory says this; the tools of their plans come first."""
    model = planner.model
    if model.config.max_length is None:
        raise ValueError("expected a config with max_length, got None; take a trained model's")
    plans, log_prob = model.decoder.beam_search(
        tools.side,
        model.encode_requests(x, tools, memory),
        model.config.beam_width,
        model.config.max_length,
        planner.allowed,
    )
    best = rank_by_agreement(plans, log_prob)[0][:, 0]
    plans = plans[torch.arange(x.size(0), device=best.device), best]
    relevance, first = memory.chunk(2, dim=1)
    place = torch.arange(plans.size(1), 0, -1, device=x.device, dtype=x.dtype).expand(plans.shape)
    rank = torch.cat([relevance, relevance.new_zeros(x.size(0), 1)], dim=1)
    known = plans.where(plans >= 0, planner.graph.num_tools)
    rank = rank.scatter_reduce(1, known, place + rank.max(), "amax")[:, :-1]
    if planner.allowed is not None:
        rank = rank.masked_fill(~planner.allowed, -torch.inf)
    value, chosen = rank.sort(dim=1, descending=True, stable=True)
    value, chosen = value[:, :count], chosen[:, :count]
    votes = torch.stack([relevance.gather(1, chosen), first.gather(1, chosen)], dim=2)
    missing = value.isneginf()
    return Readings(
        chosen.masked_fill(missing, PAD), votes.masked_fill(missing.unsqueeze(2), 0.0), plans
    )


def _joined(parts: Sequence[Readings]) -> Readings:
    """One after the other."""
    return Readings(
        torch.cat([part.candidates for part in parts]),
        torch.cat([part.votes for part in parts]),
        torch.cat([part.plans for part in parts]),
    )


@dataclass(frozen=True)
class _WithoutOwn(EdgeRows):
    """Edges as each of some rows would find them had it not been mined."""

    plans: Int[Tensor, "batch length"]

    @staticmethod
    def of(edges: EdgeRows, plans: Tensor) -> "_WithoutOwn":
        return _WithoutOwn(edges.start, edges.target, edges.counts, plans)

    def dense(self, tools: Int[Tensor, " rows"]) -> Float[Tensor, "rows num_tools 2"]:
        counts = super().dense(tools)
        own = self.plans.repeat_interleave(tools.numel() // self.plans.size(0), dim=0)
        here = (own[:, :-1] == tools.unsqueeze(1)) & (own[:, 1:] >= 0) & (own[:, :-1] >= 0)
        gone = torch.zeros_like(counts[..., 0])
        gone.scatter_add_(1, own[:, 1:].clamp_min(0), here.to(gone.dtype))
        return (counts - gone.unsqueeze(2)).clamp_min(0.0)
