"""The values inside a payload: leaves of JSON, or words of text."""

import re
from collections.abc import Iterator
from typing import Any

from warehouse.readers.stream import parse
from warehouse.redact import REDACTED

_TOKEN = re.compile(r"[^\s\"'{}\[\](),;]{4,}")
_MAX_TEXT = 200_000
"""Characters of a text that is no JSON that are looked at."""
_MIN_TEXT = 4
_MIN_NUMBER = 1000


def leaves(value: Any) -> Iterator[str]:
    """Text and numbers (as JSON writes them) at any depth of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield repr(value)


def values_in(text: str) -> frozenset[str]:
    """Every value of a result: the leaves where it is JSON, else its words."""
    if text[:1] in '{["0123456789-tfn \n':
        try:
            return frozenset(leaves(parse(text)))
        except (ValueError, RecursionError):
            pass
    return frozenset(token.strip(".:") for token in _TOKEN.findall(text[:_MAX_TEXT]))


def is_telling(value: str) -> bool:
    """Whether two uses of the value are hardly chance: no short text, no small number."""
    if value[:1] <= "9":  # digits, signs, blanks: it may be a number
        try:
            return abs(float(value)) >= _MIN_NUMBER
        except ValueError:
            pass
    return len(value) >= _MIN_TEXT and REDACTED not in value
