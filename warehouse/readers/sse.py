"""Server-sent events: the text of a recorded stream to its JSON objects, and files of such text."""

import io
import re
from collections.abc import Iterator
from typing import Any

from warehouse.readers.stream import Item, parse
from warehouse.records import Ignored

_FIELD = re.compile(rb"(?:data|event|id|retry):|:")
_DATA = re.compile(rb"^data:[ \t]*(?:[{\[]|\[DONE\])", re.MULTILINE)
_STARTS = {"message_start", "response.created"}


def recognises(head: bytes) -> bool:
    """A file that begins with a field of an event, and whose data is JSON."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bool(_FIELD.match(text)) and bool(_DATA.search(text))


def items(file: io.BufferedReader) -> Iterator[Item]:
    """One item a stream, its value the list of the stream's events; broken lines beside them."""
    values: list[Any] = []
    raws: list[str] = []
    start = 1

    def whole() -> Item:
        return Item(f"stream at line {start}", "\n\n".join(raws), list(values))

    lines = (line.decode(errors="replace") for line in file)
    for number, value, raw, error in _events(lines):
        if error is not None:
            yield Item(f"line {number}", raw, error=error)
            continue
        if values and (value is None or _begins(value, values)):
            yield whole()
            values, raws = [], []
        if value is None:
            continue
        if not values:
            start = number
        values.append(value)
        raws.append(raw)
    if values:
        yield whole()


def parse_events(text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The JSON objects of a stream in order, and what of its data is none."""
    values: list[dict[str, Any]] = []
    broken: list[str] = []
    for _, value, raw, error in _events(text.splitlines()):
        if error is not None:
            broken.append(raw)
        elif value is not None:
            values.append(value)
    return values, broken


def is_stream(text: Any) -> bool:
    """Whether a text is a recorded stream rather than one JSON value."""
    if not isinstance(text, str):
        return False
    head = text[:4096].encode(errors="replace")
    return recognises(head)


def split_streams(values: list[Any]) -> list[list[Any]]:
    """Events of one file as one list a stream."""
    streams: list[list[Any]] = []
    for value in values:
        if not streams or _begins(value, streams[-1]):
            streams.append([])
        streams[-1].append(value)
    return streams


def sound_events(values: list[Any]) -> tuple[list[dict[str, Any]], list[Ignored]]:
    """The events of a stream that are objects with a place in it, and what the others are."""
    sound, odd = [], []
    for value in values:
        if isinstance(value, dict) and not any(
            isinstance(value.get(key), (dict, list)) for key in ("index", "output_index")
        ):
            sound.append(value)
        else:
            odd.append(Ignored("odd event of a stream"))
    return sound, odd


def _begins(value: dict[str, Any], before: list[Any]) -> bool:
    """Whether an event is the first of a stream, others having come before it."""
    kind = value.get("type")
    if type(kind) is str and kind in _STARTS:
        return True
    chunk, last = value.get("id"), before[-1].get("id")
    return bool(value.get("object") == "chat.completion.chunk" and chunk and last and chunk != last)


def _events(
    lines: Iterator[str] | list[str],
) -> Iterator[tuple[int, dict[str, Any] | None, str, str | None]]:
    """(line, object, raw, error) of each event; an object of None is the end of a stream."""
    name = ""
    data: list[str] = []
    at = 0
    number = 0
    for line in [*lines, ""] if isinstance(lines, list) else _and_blank(lines):
        number += 1
        line = line.rstrip("\r\n").removeprefix("\ufeff")
        if not line.strip():
            yield from _event(at, name, data)
            name, data = "", []
            continue
        if line.startswith(":"):
            continue
        key, colon, content = line.partition(":")
        content = content.removeprefix(" ")
        if colon and key == "event":
            if data:  # no blank line in between
                yield from _event(at, name, data)
                data = []
            name = content.strip()
        elif colon and key == "data":
            at = at if data else number
            data.append(content)
        elif not (colon and key in ("id", "retry")):
            yield number, None, line, "expected a field of a server-sent event"


def _and_blank(lines: Iterator[str]) -> Iterator[str]:
    yield from lines
    yield ""


def _event(
    at: int, name: str, data: list[str]
) -> Iterator[tuple[int, dict[str, Any] | None, str, str | None]]:
    if not data:
        return
    texts = ["\n".join(data)]
    if len(data) > 1 and _object(texts[0])[1] is not None:
        texts = data  # one object a line, without blank lines between
    for text in texts:
        if text.strip() == "[DONE]":
            yield at, None, text, None
            continue
        value, error = _object(text)
        if value is not None and name and "type" not in value and "object" not in value:
            value["type"] = name
        yield at, value, text, error


def _object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    try:
        value = parse(text)
    except (ValueError, RecursionError) as error:
        return None, f"not JSON: {str(error)[:200]}"
    if not isinstance(value, dict):
        return None, "expected an object as the data of an event"
    return value, None
