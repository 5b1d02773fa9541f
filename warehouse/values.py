"""The values inside a payload: leaves of JSON, or words of text."""

import re
from typing import Any

from warehouse.readers.stream import parse
from warehouse.redact import REDACTED

_TOKEN = re.compile(r"[^\s\"'{}\[\](),;]{4,}")
_MAX_TEXT = 200_000
"""Characters of a text that is no JSON that are looked at."""
_MIN_TEXT = 4
_MIN_NUMBER = 1000
_JSON_BEGINS = frozenset('{["-0123456789tfn \n')


def leaves(value: Any) -> list[str]:
    """Text and numbers (as JSON writes them) inside a JSON value, but for those too short to tell.

    Short text and small numbers are the same everywhere by chance; see ``is_telling``.
    """
    found: list[str] = []
    waiting: list[Any] = [[value]]
    while waiting:
        items = waiting.pop()
        for item in items.values() if type(items) is dict else items:
            kind = type(item)
            if kind is str:
                if len(item) >= _MIN_TEXT:
                    found.append(item)
            elif kind is dict or kind is list:
                waiting.append(item)
            elif (kind is int or kind is float) and not -_MIN_NUMBER < item < _MIN_NUMBER:
                found.append(repr(item))
    return found


def values_in(text: str) -> frozenset[str]:
    """Every value of a result: the leaves where it is JSON, else its words."""
    if text[:1] in _JSON_BEGINS:
        try:
            return frozenset(leaves(parse(text)))
        except (ValueError, RecursionError):
            pass
    return frozenset(token.strip(".:") for token in _TOKEN.findall(text[:_MAX_TEXT]))


def holds(text: str, value: str) -> bool:
    """Whether ``value`` is one of ``values_in(text)``, mostly without taking the text apart."""
    if "\\" not in text:
        at = text.find(value)
        if at < 0:
            return False
        if text[0] in "{[" and text[-1] in "}]" and _is_quoted(text, value, at):
            return True
    return value in values_in(text)


def _is_quoted(text: str, value: str, at: int) -> bool:
    """Whether JSON text without escapes holds the value as a text of its own that is no key."""
    while at >= 0:
        end = at + len(value)
        if (
            text[at - 1] == '"'
            and text[end : end + 1] == '"'
            and text[end + 1 : end + 9].lstrip()[:1] != ":"
            and text.count('"', 0, at) % 2
        ):
            return True
        at = text.find(value, at + 1)
    return False


def is_telling(value: str) -> bool:
    """Whether two uses of the value are hardly chance: no short text, no small number."""
    if len(value) < _MIN_TEXT or REDACTED in value:
        return False
    if value[0] <= "9":  # digits, signs, blanks: it may be a number
        try:
            return abs(float(value)) >= _MIN_NUMBER
        except ValueError:
            pass
    return True
