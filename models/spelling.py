"""What each token of a language model writes, in bytes, and which of them go into a JSON string."""

import json
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from models.llm import FrozenLLM

START = (0, 0, 0)
"""Between two characters; see :data:`Within`."""

Within = tuple[int, int, int]
"""A place in a UTF-8 character: bytes missing, and the range of the next one."""

_TAIL = (0x80, 0xBF)
_LEADS = {
    0xC2: (1, 0xA0, 0xBF),  # from 0x80 on these are control characters
    0xE0: (2, 0xA0, 0xBF),
    0xED: (2, 0x80, 0x9F),
    0xF0: (3, 0x90, 0xBF),
    0xF4: (3, 0x80, 0x8F),
}


class Content(NamedTuple):
    """Tokens that may go on a string from one place.

    Attributes:
        ids: The tokens.
        chars: How many characters each begins.
        ends: Where each leaves off.
    """

    ids: Tensor
    chars: Tensor
    ends: list[Within]


class Spelling:
    """What the tokens of one model write.

    Args:
        llm: The model; control tokens, added tokens and those without text are left out.
    """

    def __init__(self, llm: FrozenLLM) -> None:
        self.written = _bytes_of(llm)
        beginning: dict[int, list[int]] = {}
        self._exact: dict[bytes, list[int]] = {}
        for token, text in self.written.items():
            beginning.setdefault(text[0], []).append(token)
            self._exact.setdefault(text, []).append(token)
        self._device = llm.device
        self._beginning = {first: self._tensor(ids) for first, ids in beginning.items()}
        self._splits = all(bytes([b]) in self._exact for b in range(_TAIL[0], _TAIL[1] + 1))
        self._contents: dict[Within, Content] = {}

    def best_of(self, row: Tensor, firsts: str) -> float:
        """The highest logit of any token that begins with one of these ASCII characters."""
        found = [self._beginning[b] for b in firsts.encode() if b in self._beginning]
        return max((float(row[ids].max()) for ids in found), default=float("-inf"))

    def exactly(self, text: str) -> list[int]:
        """Tokens that write this text and nothing else."""
        return self._exact.get(text.encode(), [])

    def content(self, within: Within) -> Content:
        """Tokens that a JSON string may go on with: no quote, escape or control character."""
        if within not in self._contents:
            ids, chars, ends = [], [], []
            for token, text in self.written.items():
                end = _after(within, text)
                if end is not None and (end == START or self._splits):
                    ids.append(token)
                    chars.append(sum(not _TAIL[0] <= b <= _TAIL[1] for b in text))
                    ends.append(end)
            self._contents[within] = Content(self._tensor(ids), self._tensor(chars), ends)
        return self._contents[within]

    def _tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)


@lru_cache(maxsize=1)
def spelling_of(llm: FrozenLLM) -> Spelling:
    """The spelling of a model, made once."""
    return Spelling(llm)


def _after(within: Within, text: bytes) -> Within | None:
    """Where a string stands after these bytes; None where they may not follow."""
    for byte in text:
        missing, low, high = within
        if missing:
            if not low <= byte <= high:
                return None
            within = (missing - 1, *_TAIL) if missing > 1 else START
        elif byte < 0x80:
            if byte < 0x20 or byte in b'"\\\x7f':
                return None
        elif byte in _LEADS:
            within = _LEADS[byte]
        elif 0xC2 < byte <= 0xF4:
            within = (1 + (byte >= 0xE0) + (byte >= 0xF0), *_TAIL)
        else:
            return None
    return within


def _bytes_of(llm: FrozenLLM) -> dict[int, bytes]:
    """The bytes of every plain token, for byte-level vocabularies and those with byte fallback."""
    tokenizer = llm.tokenizer
    left_out = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    size = min(len(tokenizer), int(llm.config.vocab_size))
    ids = [token for token in range(size) if token not in left_out]
    names = tokenizer.convert_ids_to_tokens(ids)
    letters = _byte_letters() if _is_byte_level(tokenizer) else {}
    found: dict[int, bytes] = {}
    for token, name in zip(ids, names, strict=True):
        if not name:
            continue
        if letters:
            if all(letter in letters for letter in name):
                found[token] = bytes(letters[letter] for letter in name)
        elif len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            found[token] = bytes([int(name[3:5], 16)])
        else:
            found[token] = name.replace("▁", " ").encode()
    return found


def _is_byte_level(tokenizer: object) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend is not None and '"ByteLevel"' in json.dumps(
        json.loads(backend.to_str()).get("decoder")
    )


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones are themselves, the others come from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}
