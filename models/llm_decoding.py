"""Plans out of a frozen LLM: beam search on the token trie, forced tokens fed without a choice."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from models.llm import Reader
from models.trie import ROOT, TokenTrie


class Ranked(NamedTuple):
    """One plan as tool rows with the log probability of its choices."""

    plan: tuple[int, ...]
    log_prob: float


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


@dataclass(frozen=True, slots=True)
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
    beams = [[_forced(_Beam(segment), trie, end, max_length)] for segment in starts]
    unread = [b for group in beams for b in group if b.pending and not b.done]
    row_of: dict[int, Tensor] = dict(zip(starts, logits, strict=True))
    if unread:  # a catalogue whose first token is the same for all
        beams = _read(reader, beams, row_of, stats)
    while any(not beam.done for group in beams for beam in group):
        beams = [_grown(group, row_of, trie, end, width, max_length) for group in beams]
        beams = _read(reader, beams, row_of, stats)
    for group in beams:
        if group:
            stats.tokens += group[0].tokens
            stats.forced += group[0].tokens - group[0].choices
    return [[Ranked(beam.plan, beam.log_prob) for beam in group] for group in beams]


def _grown(
    group: list[_Beam],
    row_of: dict[int, Tensor],
    trie: TokenTrie,
    end: int,
    width: int,
    max_length: int,
) -> list[_Beam]:
    """One choice for each open beam of a request; the best ``width`` of all stay."""
    found: list[tuple[float, _Beam, int | None]] = []
    for beam in group:
        if beam.done:
            found.append((beam.log_prob, beam, None))
            continue
        legal = trie.legal(beam.node, len(beam.plan), end, max_length)
        row = row_of[beam.segment]
        log_prob = row[torch.tensor(legal, device=row.device)].log_softmax(dim=0)
        best = log_prob.sort(descending=True, stable=True)
        for value, place in zip(
            best.values[:width].tolist(), best.indices[:width].tolist(), strict=True
        ):
            found.append((beam.log_prob + value, beam, legal[place]))
    found.sort(key=lambda item: -item[0])
    return [
        beam
        if token is None
        else _forced(_chosen(beam, token, total, trie, end), trie, end, max_length)
        for total, beam, token in found[:width]
    ]


def _chosen(beam: _Beam, token: int, log_prob: float, trie: TokenTrie, end: int) -> _Beam:
    """The beam with one more choice."""
    beam = _Beam(
        beam.segment, beam.node, beam.plan, log_prob, beam.tokens, beam.choices + 1, beam.pending
    )
    return _stepped(beam, token, trie, end)


def _stepped(beam: _Beam, token: int, trie: TokenTrie, end: int) -> _Beam:
    """The beam with one more token."""
    plan, node, done = beam.plan, beam.node, False
    if node == ROOT and token == end:
        done = True
    else:
        node = trie.children[node][token]
        tool = trie.tool[node]
        if tool is not None:
            plan, node = (*plan, tool), ROOT
    pending = (*beam.pending, token)
    return _Beam(
        beam.segment, node, plan, beam.log_prob, beam.tokens + 1, beam.choices, pending, done
    )


def _forced(beam: _Beam, trie: TokenTrie, end: int, max_length: int) -> _Beam:
    """The beam with every token that has no alternative."""
    while not beam.done:
        legal = trie.legal(beam.node, len(beam.plan), end, max_length)
        if len(legal) != 1:
            break
        beam = _stepped(beam, legal[0], trie, end)
    return beam


def _read(
    reader: Reader,
    beams: list[list[_Beam]],
    row_of: dict[int, Tensor],
    stats: DecodeStats,
) -> list[list[_Beam]]:
    """Feed what every open beam has written since its last choice, all in one pass."""
    waiting = [beam for group in beams for beam in group if not beam.done and beam.pending]
    if not waiting:
        return beams
    made, logits = reader.read([(b.segment, reader.llm.embed(b.pending)) for b in waiting])
    stats.passes += 1
    row_of.clear()
    row_of.update(zip(made, logits, strict=True))
    segment_of = dict(zip(map(id, waiting), made, strict=True))
    return [
        [
            beam
            if id(beam) not in segment_of
            else _Beam(
                segment_of[id(beam)],
                beam.node,
                beam.plan,
                beam.log_prob,
                beam.tokens,
                beam.choices,
            )
            for beam in group
        ]
        for group in beams
    ]
