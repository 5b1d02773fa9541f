"""Bytes of any size to JSON values, one at a time, each with its place and raw text.

A file may be JSON lines, one JSON list, or one JSON document. Lists are cut into their elements
as they are read, so that memory follows the largest element, not the file. Python's own parser is
used because it keeps integers of any size exact.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

_CHUNK = 4 << 20
_GZIP_CHUNK = 1 << 16
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Item:
    """One JSON value of a file; ``error`` is set instead of ``value`` where it cannot be parsed."""

    place: str
    raw: str
    value: Any = None
    error: str | None = None


def open_bytes(path: Path) -> BinaryIO:
    """The file's content, unpacked when it is gzip (told by its first bytes, not its name)."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of the file as delivered."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def iter_items(file: BinaryIO) -> Iterator[Item]:
    """The JSON values of a file in order; broken ones come as items with ``error``."""
    # What a broken gzip file held in its last buffer is lost with it: keep that small.
    size = _GZIP_CHUNK if isinstance(file, gzip.GzipFile) else _CHUNK
    buffered = io.BufferedReader(cast(Any, file), buffer_size=size)
    try:
        head = buffered.peek(size)[:size].lstrip(b"\xef\xbb\xbf \t\r\n")
        if head[:1] == b"[" and not _first_line_is_json(head):
            yield from _list_items(buffered)
        elif _first_line_is_json(head) or b"\n" not in head or head[:1] not in (b"{", b"["):
            yield from _line_items(buffered)
        else:
            yield from _document_or_lines(buffered)
    except (EOFError, OSError, zlib.error) as error:
        yield Item("end of file", "", error=f"the file cannot be read to its end: {error}")


def _first_line_is_json(head: bytes) -> bool:
    line, newline, rest = head.partition(b"\n")
    if not newline or not rest.strip():
        return False
    return _parse(line.decode(errors="replace").strip())[1] is None


def _parse(text: str) -> tuple[Any, str | None]:
    try:
        return json.loads(text), None
    except json.JSONDecodeError as error:
        return None, f"{error.msg} at character {error.pos}"
    except (RecursionError, ValueError) as error:
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def parse_item(place: str, raw: str) -> Item:
    """One record of text as an item."""
    value, failure = _parse(raw)
    return Item(place, raw, value, failure and f"not JSON: {failure}")


def _line_items(file: BinaryIO) -> Iterator[Item]:
    for number, line in enumerate(file, start=1):
        place = f"line {number}"
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raw = line.decode(errors="replace").strip()
            yield Item(place, raw, error=f"not UTF-8: {error.reason} at byte {error.start}")
            continue
        if text:
            yield parse_item(place, text)


def _document_or_lines(file: BinaryIO) -> Iterator[Item]:
    """One document over many lines, or JSON lines whose first line is broken."""
    data = file.read()
    try:
        text = data.decode("utf-8-sig")
        value, failure = _parse(text)
    except UnicodeDecodeError as error:
        text, value = data.decode(errors="replace"), None
        failure = f"not UTF-8: {error.reason} at byte {error.start}"
    if failure is None:
        yield Item("document", text, value)
        return
    lines = list(_line_items(io.BytesIO(data)))
    if any(item.error is None and isinstance(item.value, dict) for item in lines):
        yield from lines
    else:
        yield Item("document", text, error=f"not JSON: {failure}")


def _list_items(file: BinaryIO) -> Iterator[Item]:
    decoder = json.JSONDecoder()
    reader = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    text = reader.read(_CHUNK)
    at = text.index("[") + 1
    number = 0
    ended = False
    while True:
        while at < len(text) and text[at] in _BLANK + ",":
            at += 1
        if at < len(text) and text[at] == "]":
            rest = (text[at + 1 :] + reader.read(_CHUNK)).strip()
            if rest:
                after = "not JSON: content after the end of the list"
                yield Item(f"after record {number}", _shown(rest), error=after)
            return
        value: Any = None
        failure: str | None = "the list ends before it is closed"
        if at < len(text):
            try:
                value, end = decoder.raw_decode(text, at)
                failure = None
            except json.JSONDecodeError as error:
                failure = f"{error.msg} at character {error.pos - at} of the record"
            except (RecursionError, ValueError) as error:
                failure, ended = f"{type(error).__name__}: {str(error)[:200]}", True
        # A number or word at the very end of the buffer may go on in the next chunk.
        if failure is None and (end < len(text) or ended):
            number += 1
            raw = text[at:end]
            if raw.isascii() or _is_text(raw):
                yield Item(f"record {number}", raw, value)
            else:
                yield Item(f"record {number}", _shown(raw), error="not UTF-8 in some of its text")
            at = end
            continue
        if not ended:
            more = reader.read(max(_CHUNK, len(text) - at))
            ended = not more
            text = text[at:] + more
            at = 0
            continue
        rest = text[at:]
        if rest or failure:
            yield Item(f"record {number + 1}", _shown(rest), error=f"not JSON: {failure}")
        return


def _is_text(raw: str) -> bool:
    """Whether every byte could be decoded."""
    try:
        raw.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(text: str) -> str:
    """Text that was decoded with surrogate escapes, with replacement characters instead."""
    return text.encode(errors="surrogateescape").decode(errors="replace")
