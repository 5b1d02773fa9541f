"""The tools that a request may need, few out of many, and what text and memory say of each."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from models.clauses import clauses
from models.edges import EdgeTable
from models.lexicon import Lexicon, WordMatch, words
from models.memory import PAD, Recalled
from models.types import Embedder

RARE = 0.01
"""Scores below this count as this when their logarithm is taken."""

_SOURCES = 24
"""Tools whose neighbours in the graph join the shortlist."""


MAX_CLAUSES = 16
"""Clauses of a request that are looked at one by one; those behind are read as one."""


class RequestVectors(NamedTuple):
    """Text vectors of requests.

    Attributes:
        x: Of each request as a whole.
        clauses: Of its clauses in order, zero behind the last one.
    """

    x: Float[Tensor, "batch text_channels"]
    clauses: Float[Tensor, "batch clauses text_channels"]

    def rows(self, some: Sequence[int] | slice) -> "RequestVectors":
        """The vectors of some requests."""
        return RequestVectors(*(part[some] for part in self))

    def to(self, device: torch.device) -> "RequestVectors":
        """The vectors on another device."""
        return RequestVectors(*(part.float().to(device) for part in self))


def embed_requests(requests: Sequence[str], embed: Embedder) -> RequestVectors:
    """Text vectors of requests and of their clauses."""
    cut = [clauses(request) for request in requests]
    cut = [
        [*c[: MAX_CLAUSES - 1], ". ".join(c[MAX_CLAUSES - 1 :])] if len(c) > MAX_CLAUSES else c
        for c in cut
    ]
    texts = list(dict.fromkeys([*requests, *(one for parts in cut for one in parts)]))
    place = {text: i for i, text in enumerate(texts)}
    vectors = embed(texts)
    most = max(map(len, cut), default=1)
    out = vectors.new_zeros(len(requests), most, vectors.size(1))
    for row, parts in enumerate(cut):
        out[row, : len(parts)] = vectors[[place[one] for one in parts]]
    return RequestVectors(vectors[[place[request] for request in requests]], out)


class Candidates(NamedTuple):
    """A shortlist of tools for each request; everything a plan is written from, but the graph.

    Positions in the shortlist stand for tools from here on: ``size`` is END, ``size + 1`` any tool
    outside, -1 nothing.

    Attributes:
        x: Text vectors of the requests.
        tools: Tool rows of the shortlist, ascending.
        text: For each tool cosine of vectors, likeness of words, share of the name said, a blend
            of the former within the request (mean 0), place of the shared words.
        memory: Relevance and first-score of each tool, see :class:`~models.memory.Recalled`.
        similarity: Of the nearest past requests.
        plans: Their plans as positions.
        length: Logarithm of 1 + the request's number of words.
        clauses: Cosine of each tool with each clause of the request; -1 behind the last clause.
    """

    x: Float[Tensor, "batch text_channels"]
    tools: Int[Tensor, "batch size"]
    text: Float[Tensor, "batch size 5"]
    memory: Float[Tensor, "batch size 2"]
    similarity: Float[Tensor, "batch neighbours"]
    plans: Int[Tensor, "batch neighbours length"]
    length: Float[Tensor, "batch 1"]
    clauses: Float[Tensor, "batch size clauses"]

    @property
    def size(self) -> int:
        """Tools of a shortlist."""
        return self.tools.size(1)

    def rows(self, some: Int[Tensor, " rows"] | slice) -> "Candidates":
        """The candidates of some requests."""
        return Candidates(*(part[some] for part in self))

    def forget(self, tools: Bool[Tensor, " num_tools"], neighbours: int) -> "Candidates":
        """The candidates as if some tools had come after all past requests.

        Past plans that hold one are gone; of the others the nearest ``neighbours`` are left.
        """
        gone = tools[self.tools]
        known = nn.functional.pad(~gone, (0, 2), value=True)
        plans = self.plans.flatten(1)
        stays = (known.gather(1, plans.clamp_min(0)) | (plans < 0)).view_as(self.plans).all(dim=2)
        order = stays.int().sort(dim=1, descending=True, stable=True).indices[:, :neighbours]
        stays, similarity = stays.gather(1, order), self.similarity.gather(1, order)
        plans = self.plans.gather(1, order.unsqueeze(2).expand(-1, -1, self.plans.size(2)))
        return self._replace(
            memory=self.memory.masked_fill(gone.unsqueeze(2), 0.0),
            similarity=similarity.masked_fill(~stays, -2.0),
            plans=plans.masked_fill(~stays.unsqueeze(2), PAD),
        )

    def positions(self, plans: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
        """Plans of tool rows (padded with -1) as plans of positions."""
        if self.size == 0:
            return torch.where(plans < 0, PAD, 1)
        at = torch.searchsorted(self.tools, plans.contiguous()).clamp_max(self.size - 1)
        found = self.tools.gather(1, at) == plans
        return torch.where(plans < 0, PAD, torch.where(found, at, self.size + 1))


def find_candidates(
    requests: Sequence[str],
    vectors: RequestVectors,
    tool_x: Float[Tensor, "num_tools text_channels"],
    recalled: Recalled,
    edges: EdgeTable,
    lexicon: Lexicon,
    size: int,
    *,
    allowed: Bool[Tensor, " num_tools"] | None = None,
    gold: Int[Tensor, "batch length"] | None = None,
) -> Candidates:
    """Shortlists by text, past plans and neighbours in the graph.

    Args:
        requests: The requests.
        vectors: Their text vectors.
        tool_x: Text vectors of all tools.
        recalled: What the memory says of the requests.
        edges: The graph.
        lexicon: The words of its tools.
        size: Most tools of a shortlist; graphs with fewer are listed whole. Where a plan of
            ``gold`` is longer, its length.
        allowed: Tools that may be listed; ``None``: all.
        gold: Plans whose tools are listed in any case (training).
    """
    request_x = vectors.x
    matched = WordMatch(*(part.to(request_x.device) for part in lexicon(requests)))
    cosine = request_x @ tool_x.T
    by_clause = torch.einsum("bmc,nc->bnm", vectors.clauses, tool_x)
    missing = (vectors.clauses == 0.0).all(dim=2).unsqueeze(1)
    by_clause = by_clause.masked_fill(missing, -1.0)
    blend = _standard(cosine) + _standard(matched.likeness) + 0.5 * _standard(by_clause.amax(dim=2))
    num_tools = tool_x.size(0)
    size = size if gold is None else max(size, gold.size(1))
    if size < num_tools or allowed is not None:
        score = blend + 6.0 * recalled.relevance.clamp(0.0, 1.0) + 6.0 * _votes(recalled, num_tools)
        if allowed is not None:
            score = score.masked_fill(~allowed, -torch.inf)
        strength = (score - score.amax(dim=1, keepdim=True)).exp()
        after = edges.spread(strength.sqrt(), _SOURCES)
        further = edges.spread(after, _SOURCES)
        before = edges.spread(strength.sqrt(), _SOURCES, backward=True)
        score = score + 12.0 * (after + further) + 6.0 * before
        if gold is not None:
            listed = torch.where(gold >= 0, gold, gold[:, :1])
            score = score.scatter(1, listed, torch.inf)
        most = num_tools if allowed is None else int(allowed.sum())
        tools = score.topk(min(size, most), dim=1).indices.sort(dim=1).values
    else:
        tools = torch.arange(num_tools, device=request_x.device).repeat(len(requests), 1)

    def of(part: Tensor) -> Tensor:
        return part.gather(1, tools)

    parts = (cosine, matched.likeness, matched.named, blend, matched.position)
    lengths = [float(1 + len(words(request))) for request in requests]
    found = Candidates(
        request_x,
        tools,
        torch.stack([of(part) for part in parts], dim=2),
        torch.stack([of(recalled.relevance), of(recalled.first)], dim=2),
        recalled.similarity,
        recalled.plans,
        torch.tensor(lengths, device=request_x.device).log().unsqueeze(1),
        by_clause.gather(1, tools.unsqueeze(2).expand(-1, -1, by_clause.size(2))),
    )
    return found._replace(plans=found.positions(recalled.plans.flatten(1)).view_as(found.plans))


def _votes(recalled: Recalled, num_tools: int) -> Float[Tensor, "batch num_tools"]:
    """Weighted share of the nearest past plans that hold each tool."""
    weight = (15.0 * (recalled.similarity - recalled.similarity[:, :1])).exp()
    weight = weight / weight.sum(dim=1, keepdim=True)
    plans = recalled.plans
    earlier = torch.ones(plans.size(2), plans.size(2), device=plans.device).tril(-1).bool()
    again = ((plans.unsqueeze(3) == plans.unsqueeze(2)) & earlier).any(dim=3)
    tools = plans.where((plans >= 0) & ~again, num_tools).flatten(1)
    votes = weight.new_zeros(plans.size(0), num_tools + 1)
    votes.scatter_add_(1, tools, weight.unsqueeze(2).expand_as(plans).flatten(1))
    return votes[:, :-1]


def _standard(score: Float[Tensor, "batch num_tools"]) -> Float[Tensor, "batch num_tools"]:
    """Mean 0 and standard deviation 1 within each request."""
    centred = score - score.mean(dim=1, keepdim=True)
    return centred / centred.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-6)
