"""The values inside a payload: leaves of JSON, ids in longer text, or words of text."""

import re
from typing import Any

from warehouse.readers.stream import parse
from warehouse.redact import REDACTED

_TOKEN = re.compile(r"[^\s\"'{}\[\](),;]{4,}")
_has_digit = re.compile(r"[0-9]").search
_MIN_PIECE = 6
_pieces = re.compile(r"[^\s\"'{}\[\](),;=&?<>/|]{6,}").findall
"""Part of a longer text, a URL or a path; one with a digit is an id."""
_DATE = re.compile(
    r"\d{4}-\d\d(-\d\d)?([T ]\d\d:\d\d(:\d\d(\.0+)?)?)? ?(Z|UTC|[+-]\d\d:?\d\d)?"
    r"|\d{1,4}[/.]\d{1,2}[/.]\d{1,4}"
    r"|\d{1,2}:\d\d(:\d\d)?( ?[AaPp]\.?[Mm]\.?)?"
)
_NUMBER = re.compile(r"[-+]?(\d+)(\.\d*)?")
_LOCALE = re.compile(r"[a-z]{2,3}[-_][A-Za-z]{2}")
_CONSTANTS = frozenset({"true", "false", "null", "none"})
_MAX_TEXT = 200_000
"""Characters of a text that is no JSON that are looked at."""
_MAX_LETTER = 4_000
"""Characters of a text inside JSON in which ids are looked for: a letter, but no file."""
_MIN_TEXT = 4
_MIN_NUMBER = 1000
_MIN_DIGITS = 4
_MIN_ROUND_DIGITS = 3
"""Digits of a whole number before its zeros at the end: 5000 is a limit, 5280 may be an id."""
_YEARS = range(1900, 2101)
_EXACT = 10**15
"""Below, a float without a fraction is written as the integer it equals."""
_JSON_BEGINS = frozenset('{["-0123456789tfn \n')
_JSON = re.compile(
    r"\{\s*[\"}]|\[\s*(?:[\[\]\"]|\{\s*[\"}]|-?[0-9.eE+-]+\s*[,\]]|(?:true|false|null)\b)"
)
_NUMBER_PARTS = frozenset("0123456789.eE+-")


def leaves(value: Any) -> list[str]:
    """Text and numbers inside a JSON value, but for those too short to tell, and ids in its texts.

    Numbers are as JSON writes them, 4711.0 as 4711, so that they compare with texts of digits. A
    text that is JSON itself is taken apart; of other text with digits, its parts that look like
    ids come too (``TCK-12345`` in a URL or a sentence). See ``is_telling``.
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
                    if item.isalnum():
                        continue
                    if item[0] in "{[" and (inner := _inner(item)) is not None:
                        waiting.append(inner)
                    elif (
                        _MIN_PIECE < len(item) <= _MAX_LETTER
                        and _has_digit(item)
                        and (pieces := _pieces(item))
                        and len(pieces[0]) < len(item)
                    ):
                        found += _ids(pieces)
            elif kind is dict or kind is list:
                waiting.append(item)
            elif kind is int:
                if not -_MIN_NUMBER < item < _MIN_NUMBER:
                    found.append(repr(item))
            elif kind is float:
                if item.is_integer() and -_EXACT < item < _EXACT:
                    item = int(item)
                if len(text := repr(item)) >= _MIN_DIGITS:
                    found.append(text)
    return found


def _inner(text: str) -> Any:
    """The object or list that a text encodes; None where it encodes none."""
    if text[0] in "{[" and text[-1] in "}]" and '"' in text:
        try:
            return parse(text)
        except (ValueError, RecursionError):
            pass
    return None


def _ids(pieces: list[str]) -> list[str]:
    return [piece.strip(".:!-") for piece in pieces if _has_digit(piece)]


def values_in(text: str) -> frozenset[str]:
    """Every value of a payload: the leaves where it is JSON, else its words and the ids in them."""
    if text[:1] in _JSON_BEGINS:
        try:
            return frozenset(leaves(parse(text)))
        except (ValueError, RecursionError):
            pass
    words = [token.strip(".:") for token in _TOKEN.findall(text[:_MAX_TEXT])]
    return frozenset(words).union(_ids(_pieces(text[:_MAX_TEXT])))


def is_plain_json(text: str) -> bool:
    """Whether the text looks like a JSON object or list in which nothing is escaped."""
    return text[-1:] in ("}", "]") and _JSON.match(text) is not None and "\\" not in text


def stands_in(text: str, value: str) -> bool:
    """Whether JSON text without escapes holds the value as a text of its own or a number.

    A quick look: False says only that the text would have to be taken apart to know.
    """
    if '"' in value:
        return False
    at = text.find(value)
    last = quotes = 0
    while at >= 0:
        quotes += text.count('"', last, at)
        last, end = at, at + len(value)
        before, after = text[at - 1], text[end : end + 1]
        if quotes % 2:
            if before == after == '"' and text[end + 1 : end + 9].lstrip()[:1] != ":":
                return True
        elif before not in _NUMBER_PARTS and after not in _NUMBER_PARTS:
            return True
        at = text.find(value, at + 1)
    return False


def is_telling(value: str) -> bool:
    """Whether two uses of the value are hardly chance.

    Chance are short texts, constants, locales (``en-us``), dates and times (users name them in
    many ways), years, and numbers of few digits; ids that begin with zeros are none of these.
    """
    if len(value) < _MIN_TEXT or REDACTED in value:
        return False
    if value[0] > "9":
        if len(value) > 6:
            return True
        return value.lower() not in _CONSTANTS and not _LOCALE.fullmatch(value)
    if _DATE.fullmatch(value):
        return False
    number = _NUMBER.fullmatch(value)
    if number is None:
        return True
    whole, fraction = number.groups()
    if fraction and fraction.strip(".0"):
        digits = whole.lstrip("0") + fraction[1:].rstrip("0")
        return len(digits.lstrip("0")) >= _MIN_DIGITS
    if whole[0] == "0":
        return len(set(whole)) > 1
    return (
        len(whole) >= _MIN_DIGITS
        and len(whole.rstrip("0")) >= _MIN_ROUND_DIGITS
        and int(whole[:5]) not in _YEARS
    )
