"""Words that a request shares with a tool: how many, how rare, and where in the request they stand.

Text vectors blur names. A tool that a request calls by its name, or by a rare word of its
description, is found by the words themselves, and where they stand tells the order of a plan.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_STEM = 6
_SATURATION = 1.2
"""A word that stands c times in a text counts c / (c + this)."""


class WordMatch(NamedTuple):
    """What the words of requests say of every tool.

    Attributes:
        likeness: Cosine of weighted words, 0..1.
        named: Share of the tool's name that the request says, 0..1.
        position: Mean place of the shared words in the request, 0 (first) to 1 (last).
    """

    likeness: Float[Tensor, "batch num_tools"]
    named: Float[Tensor, "batch num_tools"]
    position: Float[Tensor, "batch num_tools"]


class Lexicon:
    """The words of a graph's tools, each weighted by its rareness.

    Words are cut to six letters, so that most endings fall off; scripts without spaces are read
    in pairs of characters.

    Args:
        texts: What is read of each tool.
        names: Name of each tool; its words count once more.
    """

    def __init__(self, texts: Sequence[str], names: Sequence[str]) -> None:
        self.num_tools = len(texts)
        read = [Counter(words(text)) for text in texts]
        frequency = Counter(word for counts in read for word in counts)
        self.rareness = {word: math.log(1 + self.num_tools / n) for word, n in frequency.items()}
        weights: dict[str, list[tuple[int, float, float]]] = {word: [] for word in self.rareness}
        for tool, (counts, name) in enumerate(zip(read, names, strict=True)):
            parts = [word for word in dict.fromkeys(words(name)) if word in self.rareness]
            whole = sum(self.rareness[word] for word in parts)
            row = {
                word: self.rareness[word] * (count / (count + _SATURATION) + (word in parts))
                for word, count in counts.items()
            }
            norm = math.hypot(*row.values()) or 1.0
            for word, weight in row.items():
                named = self.rareness[word] / whole if word in parts else 0.0
                weights[word].append((tool, weight / norm, named))
        self._place = {word: i for i, word in enumerate(weights)}
        postings = [posting for word in weights for posting in weights[word]]
        self._start = torch.tensor([0, *(len(weights[w]) for w in weights)]).cumsum(0)
        self._tool = torch.tensor([p[0] for p in postings], dtype=torch.int64)
        self._weight = torch.tensor([p[1:] for p in postings]).reshape(-1, 2)

    def __call__(self, requests: Sequence[str]) -> WordMatch:
        """What the words of these requests say; all zero for a request that shares none."""
        row: list[int] = []
        word: list[int] = []
        weight: list[float] = []
        place: list[float] = []
        for i, request in enumerate(requests):
            said = words(request)
            known: dict[str, list[float]] = {}
            for k, one in enumerate(said):
                if one in self._place:
                    known.setdefault(one, []).append(k / max(1, len(said) - 1))
            norm = math.hypot(*(self.rareness[one] for one in known)) or 1.0
            for one, places in known.items():
                row.append(i)
                word.append(self._place[one])
                weight.append(self.rareness[one] / norm)
                place.append(sum(places) / len(places))
        return self._match(len(requests), row, word, weight, place)

    def _match(
        self,
        batch: int,
        row: list[int],
        word: list[int],
        weight: list[float],
        place: list[float],
    ) -> WordMatch:
        words_ = torch.tensor(word, dtype=torch.int64)
        count = self._start[words_ + 1] - self._start[words_]
        which = torch.repeat_interleave(torch.arange(len(word)), count)
        within = torch.arange(which.numel()) - (count.cumsum(0) - count)[which]
        posting = self._start[words_][which] + within
        cell = torch.tensor(row, dtype=torch.int64)[which] * self.num_tools + self._tool[posting]
        shared = self._weight[posting, 0] * torch.tensor(weight)[which]
        out = torch.zeros(4, batch * self.num_tools)
        strength = shared.square()
        parts = (
            shared,
            self._weight[posting, 1],
            strength * torch.tensor(place)[which],
            strength,
        )
        for target, part in zip(out, parts, strict=True):
            target.index_add_(0, cell, part)
        likeness, named, moment, total = out.view(4, batch, self.num_tools)
        return WordMatch(likeness, named, moment / total.clamp_min(1e-9))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_tools} tools, {len(self.rareness)} words)"


def words(text: str) -> list[str]:
    """The words of a text, lower-cased and cut, in order.

    Example:
        ``get_userName, 天气预报`` is read as get, user, name, 天气, 气预, 预报.
    """
    out: list[str] = []
    for word in _WORD.findall(_CAMEL.sub(" ", text).lower()):
        if _UNSPACED.search(word):
            out += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        elif len(word) > 1:
            out.append(word[:_STEM])
    return out
