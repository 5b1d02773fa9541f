"""What the graph readout says of a request, as the LLM readout is told it."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.candidates import Candidates, RequestVectors, embed_requests, find_candidates
from models.edges import Evidence, links_within, row_evidence, tool_use
from models.gtool import PLAN_BATCH, GTool, GToolPlanner, ToolStates
from models.memory import PAD, Recalled, RequestMemory, padded_plans
from models.types import Link, ToolGraph


class Rows(NamedTuple):
    """Requests of one split: texts, vectors, gold plans as tool rows, links, groups."""

    texts: list[str]
    vectors: RequestVectors
    plans: list[list[int]]
    links: list[tuple[Link, ...]]
    groups: list[str]

    @property
    def x(self) -> Float[Tensor, "rows text_channels"]:
        """Text vectors of the requests."""
        return self.vectors.x

    def cut(self, length: int | None) -> "Rows":
        """The rows with the first tools of their plans alone."""
        plans = [plan[:length] for plan in self.plans]
        pairs = zip(self.links, plans, strict=True)
        links = [links_within(some, len(plan)) for some, plan in pairs]
        return self._replace(plans=plans, links=links)


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
    return read_vectors(planner, requests, embed_requests(requests, planner.embed), count)


@torch.no_grad()
def read_vectors(
    planner: GToolPlanner, requests: Sequence[str], vectors: RequestVectors, count: int
) -> Readings:
    """As :func:`read_requests`, with the requests' text vectors at hand."""
    found = []
    for start in range(0, len(requests), PLAN_BATCH):
        part = slice(start, start + PLAN_BATCH)
        some = vectors.rows(part).to(planner.device)
        candidates, said = planner.candidates(requests[part], some), planner.recall(some.x)
        found.append(_read(planner.model, planner.tools, candidates, said, count))
    return _joined(found)


@torch.no_grad()
def read_rows(
    planner: GToolPlanner, rows: Mapping[str, Rows], count: int
) -> tuple[dict[str, Readings], GToolPlanner]:
    """What the planner would say of the rows it was trained with, had it not known them.

    A training row is read without the evidence of its group, as in training: none of the group's
    requests is remembered, and the graph is one that the groups of its batch were not mined for.
    Validation rows are read with the training rows' evidence alone.

    Args:
        planner: The trained graph readout.
        rows: Its rows by split, ``train`` and ``validation``.
        count: Candidates of each, at most.

    Returns:
        The readings by split, and the planner that read the validation rows.
    """
    train, validation = rows["train"], rows["validation"]
    model, config = copy.deepcopy(planner.model), planner.model.config
    device, num_tools = planner.device, planner.graph.num_tools
    vectors, plans = train.vectors.to(device), padded_plans(train.plans).to(device)
    model.memory = RequestMemory(
        model.text_channels,
        num_tools,
        scale=config.memory_scale,
        ridge=config.memory_ridge,
        neighbours=config.neighbours,
    ).to(device)
    recalled = model.memory.fit(vectors.x, plans, train.groups, config.memory_rows)
    whole = model.use = tool_use(plans, num_tools)
    edges = planner.edges.without(_evidence(validation, num_tools))
    index, counts = edges.edge_index.cpu(), edges.counts.cpu()
    honest = with_edges(
        planner, replace(planner.graph, edge_index=index, edge_counts=counts), model
    )

    evidence = _evidence(train, num_tools)
    rows_of: dict[str, list[int]] = {}
    for row, group in enumerate(train.groups):
        rows_of.setdefault(group, []).append(row)
    ordered = [row for group in rows_of.values() for row in group]
    size = max(1, min(PLAN_BATCH, len(ordered) // config.min_steps))
    tool_x, found = planner.tool_x.float().to(device), []
    for start in range(0, len(ordered), size):
        batch = ordered[start : start + size]
        groups = dict.fromkeys(train.groups[row] for row in batch)
        gone = [row for group in groups for row in rows_of[group]]
        left = edges.without([evidence[row] for row in gone])
        model.use = whole - tool_use(plans[gone], num_tools)
        said = Recalled(*(part[batch] for part in recalled))
        candidates = find_candidates(
            [train.texts[row] for row in batch],
            vectors.rows(batch),
            tool_x,
            said,
            left,
            planner.lexicon,
            config.shortlist,
            allowed=planner.allowed,
        )
        found.append(_read(model, model.encode_tools(tool_x, left), candidates, said, count))
    model.use = whole
    back = torch.tensor(ordered).argsort().tolist()
    return {
        "train": _joined(found).take(back),
        "validation": read_vectors(honest, validation.texts, validation.vectors, count),
    }, honest


def with_edges(planner: GToolPlanner, graph: ToolGraph, model: GTool | None = None) -> GToolPlanner:
    """The planner with other edges among the same tools, or with another model."""
    return GToolPlanner(
        model or planner.model,
        graph,
        planner.tool_x,
        planner.embed,
        planner.link_scorer,
        None if planner.allowed is None else {graph.keys[row] for row in offered(planner)},
    )


def offered(planner: GToolPlanner) -> tuple[int, ...]:
    """Rows of the tools that its plans may hold."""
    if planner.allowed is None:
        return tuple(range(planner.graph.num_tools))
    return tuple(planner.allowed.nonzero().flatten().tolist())


def _evidence(rows: Rows, num_tools: int) -> list[Evidence]:
    """What each row has added to the graph."""
    return [row_evidence(*row, num_tools) for row in zip(rows.plans, rows.links, strict=True)]


def _read(
    model: GTool,
    tools: Sequence[ToolStates],
    candidates: Candidates,
    recalled: Recalled,
    count: int,
) -> Readings:
    """Readings of requests: the tools of the likeliest plans first, then those that fit best."""
    plans, scores = model.rank_plans(tools, candidates)
    batch, num_tools = recalled.relevance.shape
    flat = plans.masked_fill(scores.isneginf().unsqueeze(2), PAD).flatten(1)
    place = torch.arange(flat.size(1), 0, -1, device=flat.device).float().expand(flat.shape)
    rank = torch.full((batch, num_tools + 1), -torch.inf, device=flat.device)
    fits = candidates.memory[..., 0].clamp(0.0, 1.0) + candidates.text[..., 3].sigmoid()
    rank.scatter_(1, candidates.tools, fits / 3.0)
    rank = rank.scatter_reduce(1, flat.where(flat >= 0, num_tools), place, "amax")[:, :-1]
    value, chosen = rank.sort(dim=1, descending=True, stable=True)
    value, chosen = value[:, :count], chosen[:, :count]
    said = (recalled.relevance.gather(1, chosen), recalled.first.gather(1, chosen))
    missing = value.isneginf()
    return Readings(
        chosen.masked_fill(missing, PAD),
        torch.stack(said, dim=2).masked_fill(missing.unsqueeze(2), 0.0),
        plans[:, 0],
    )


def _joined(parts: Sequence[Readings]) -> Readings:
    """One after the other."""
    return Readings(
        torch.cat([part.candidates for part in parts]),
        torch.cat([part.votes for part in parts]),
        torch.cat([part.plans for part in parts]),
    )
