"""Plans out of a frozen LLM: beam search on the token trie, forced tokens fed without a choice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from models.llm import Reader
from models.trie import ROOT, TokenTrie


class Ranked(NamedTuple):
    """One plan as tool rows, with the log probability of its choices and their number."""

    plan: tuple[int, ...]
    log_prob: float
    choices: int

    @property
    def mean_probability(self) -> float:
        """Geometric mean of the probabilities of its choices; 1 where there was none."""
        return math.exp(self.log_prob / max(1, self.choices))


@dataclass(slots=True)
class DecodeStats:
    """What decoding cost: tokens of the best plans, those without a choice, and passes."""

    tokens: int = 0
    forced: int = 0
    passes: int = 0

    @property
    def forced_share(self) -> float:
        """Share of tokens that the trie left no choice about."""
        return self.forced / self.tokens if self.tokens else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Beam:
    """A plan in the making: where it was read to, where it stands in the trie."""

    segment: int
    node: int = ROOT
    plan: tuple[int, ...] = ()
    log_prob: float = 0.0
    tokens: int = 0
    choices: int = 0
    pending: tuple[int, ...] = ()
    done: bool = False


class _Search:
    """One search: the trie, the end of answers, and the limits."""

    def __init__(self, trie: TokenTrie, end: int, width: int, max_length: int) -> None:
        self.trie, self.end, self.width, self.max_length = trie, end, width, max_length

    def grown(self, group: list[_Beam], row_of: dict[int, Tensor]) -> list[_Beam]:
        """One choice for each open beam of a request; the best ``width`` of all stay."""
        found: list[tuple[float, _Beam, int | None]] = []
        for beam in group:
            if beam.done:
                found.append((beam.log_prob, beam, None))
                continue
            legal = self.legal(beam)
            row = row_of[beam.segment]
            log_prob = row[torch.tensor(legal, device=row.device)].log_softmax(dim=0)
            best = log_prob.sort(descending=True, stable=True)
            values, places = best.values[: self.width], best.indices[: self.width]
            for value, place in zip(values.tolist(), places.tolist(), strict=True):
                found.append((beam.log_prob + value, beam, legal[place]))
        found.sort(key=lambda item: -item[0])
        return [
            beam if token is None else self.forced(self._chosen(beam, token, total))
            for total, beam, token in found[: self.width]
        ]

    def forced(self, beam: _Beam) -> _Beam:
        """The beam with every token that has no alternative."""
        while not beam.done and len(legal := self.legal(beam)) == 1:
            beam = self._stepped(beam, legal[0])
        return beam

    def legal(self, beam: _Beam) -> list[int]:
        """Tokens that may follow."""
        return self.trie.legal(beam.node, len(beam.plan), self.end, self.max_length)

    def _chosen(self, beam: _Beam, token: int, log_prob: float) -> _Beam:
        """The beam with one more choice."""
        return self._stepped(replace(beam, log_prob=log_prob, choices=beam.choices + 1), token)

    def _stepped(self, beam: _Beam, token: int) -> _Beam:
        """The beam with one more token."""
        pending, tokens = (*beam.pending, token), beam.tokens + 1
        if beam.node == ROOT and token == self.end:
            return replace(beam, pending=pending, tokens=tokens, done=True)
        node = self.trie.children[beam.node][token]
        tool = self.trie.tool[node]
        if tool is None:
            return replace(beam, pending=pending, tokens=tokens, node=node)
        plan = (*beam.plan, tool)
        return replace(beam, pending=pending, tokens=tokens, node=ROOT, plan=plan)


def constrained_search(
    reader: Reader,
    starts: Sequence[int],
    logits: Float[Tensor, "requests vocabulary"],
    trie: TokenTrie,
    end: int,
    *,
    width: int,
    max_length: int,
    stats: DecodeStats | None = None,
) -> list[list[Ranked]]:
    """The likeliest plans of each request, best first; every tool in them is in the trie.

    A choice is made only where the trie leaves more than one token. Its probability is that of the
    model among the legal tokens. What follows without a choice is fed together with the chosen
    token, so a pass of the model is paid for each choice, not for each token; the beams of all
    requests share a pass.

    Args:
        reader: Holds the prompts; the answers are read into it.
        starts: Segment that each prompt ends with.
        logits: What the model says after each prompt.
        trie: The tools that may be written.
        end: Token that ends an answer.
        width: Plans kept for each request.
        max_length: Most tools of a plan.
        stats: Counts are added to it.
    """
    stats = stats if stats is not None else DecodeStats()
    search = _Search(trie, end, width, max_length)
    row_of = dict(zip(starts, logits, strict=True))
    beams = [[search.forced(_Beam(segment))] for segment in starts]
    beams = _read(reader, beams, row_of, stats)
    while any(not beam.done for group in beams for beam in group):
        beams = [search.grown(group, row_of) for group in beams]
        beams = _read(reader, beams, row_of, stats)
    for group in beams:
        if group:
            stats.tokens += group[0].tokens
            stats.forced += group[0].tokens - group[0].choices
    return [[Ranked(b.plan, b.log_prob, b.choices) for b in group] for group in beams]


def _read(
    reader: Reader, beams: list[list[_Beam]], row_of: dict[int, Tensor], stats: DecodeStats
) -> list[list[_Beam]]:
    """Feed what every open beam has written since its last choice, all in one pass.

    ``row_of`` then holds what the model says after each, by segment.
    """
    waiting = [beam for group in beams for beam in group if not beam.done and beam.pending]
    if not waiting:
        return beams
    made, logits = reader.read([(b.segment, reader.llm.embed(b.pending)) for b in waiting])
    stats.passes += 1
    row_of.clear()
    row_of.update(zip(made, logits, strict=True))
    read = {
        beam: replace(beam, segment=segment, pending=())
        for beam, segment in zip(waiting, made, strict=True)
    }
    return [[read.get(beam, beam) for beam in group] for group in beams]
