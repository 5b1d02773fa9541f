"""Bytes of any size to JSON values, one at a time, each with its place and raw text.

A file may be JSON lines, one JSON list, or one JSON document. Lists are cut into their elements
as they are read, so that memory follows the largest element, not the file. msgspec parses, because
it keeps integers of any size exact; what it refuses (lone surrogates, NaN) Python's own parser
reads.
"""

import gzip
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

_CHUNK = 4 << 20
_GZIP_CHUNK = 1 << 16
LARGEST = 64 << 20
"""Bytes of a record that is read as a whole; a larger document is cut into parts."""
_NEXT = re.compile(r"\}\s*,\s*(?=\{)")
"""Where the next object of a list begins, most likely."""
_BLANK = " \t\r\n"
_SHOWN = 1 << 20
"""Bytes of a record that is too large to read which are shown."""


@dataclass(frozen=True, slots=True)
class Item:
    """One JSON value of a file; ``error`` is set instead of ``value`` where it cannot be parsed.

    ``end`` is the (byte, line) behind it, where a later reading can go on; lines have one.
    """

    place: str
    text: str | bytes
    value: Any = None
    error: str | None = None
    end: tuple[int, int] | None = None

    @property
    def raw(self) -> str:
        """The record as text, for messages and quarantine."""
        return self.text if isinstance(self.text, str) else self.text.decode(errors="replace")


def open_bytes(path: Path) -> BinaryIO:
    """The file's content, unpacked when it is gzip (told by its first bytes, not its name)."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of the file as delivered."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def buffered(file: BinaryIO) -> io.BufferedReader:
    """The file with a buffer whose beginning can be looked at."""
    # What a broken gzip file held in its last buffer is lost with it: keep that small.
    size = _GZIP_CHUNK if isinstance(file, gzip.GzipFile) else _CHUNK
    return io.BufferedReader(cast(Any, file), buffer_size=size)


def iter_json(buffered: io.BufferedReader) -> Iterator[Item]:
    """The JSON values of a file in order; broken ones come as items with ``error``."""
    head = buffered.peek(_CHUNK)[:_CHUNK].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] == b"[" and not _first_line_is_json(head):
        yield from _list_items(buffered)
    elif _first_line_is_json(head) or head[:1] not in (b"{", b"["):
        yield from iter_lines(buffered)
    else:
        yield from _document_or_lines(buffered)


def _first_line_is_json(head: bytes) -> bool:
    line, newline, rest = head.partition(b"\n")
    if not newline or not rest.strip():
        return False
    return _parse(line.decode(errors="replace").strip())[1] is None


def parse(text: str | bytes) -> Any:
    """A JSON value, integers of any size exact.

    Raises:
        ValueError: It is no JSON (a ``json.JSONDecodeError``), or too deep.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return json.loads(text)


def _parse(text: str | bytes) -> tuple[Any, str | None]:
    try:
        return parse(text), None
    except json.JSONDecodeError as error:
        return None, f"{error.msg} at character {error.pos}"
    except (RecursionError, ValueError) as error:
        return None, f"{type(error).__name__}: {str(error)[:200]}"


def parse_item(place: str, raw: str | bytes) -> Item:
    """One record of text as an item."""
    value, failure = _parse(raw)
    return Item(place, raw, value, failure and f"not JSON: {failure}")


def iter_lines(file: io.BufferedReader, at_byte: int = 0, at_line: int = 0) -> Iterator[Item]:
    """One item a line; ``at_byte`` and ``at_line`` say what lies before the file's position."""
    end, number = at_byte, at_line
    while line := file.readline(LARGEST):
        end, number = end + len(line), number + 1
        text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
        if not text:
            continue
        place = f"line {number}"
        if len(line) == LARGEST and line[-1:] != b"\n":
            while line[-1:] != b"\n" and (line := file.readline(LARGEST)):
                end += len(line)
            size = f"a record of more than {LARGEST >> 20} MiB"
            yield Item(place, text[:_SHOWN], None, size, (end, number))
            continue
        behind = (end, number)
        try:
            yield Item(place, text, msgspec.json.decode(text), None, behind)
            continue
        except (msgspec.DecodeError, RecursionError, ValueError):
            pass
        try:
            decoded = text.decode()
        except UnicodeDecodeError as error:
            failure = f"not UTF-8: {error.reason} at byte {error.start}"
            yield Item(place, text, None, failure, behind)
            continue
        value, broken = _parse(decoded)
        yield Item(place, decoded, value, broken and f"not JSON: {broken}", behind)


def _document_or_lines(file: io.BufferedReader) -> Iterator[Item]:
    """One document, or JSON lines whose first line is broken or the only one."""
    data = file.read(LARGEST)
    if len(data) == LARGEST and file.peek(1):
        yield from _large(file, data)
        return
    try:
        text = data.decode("utf-8-sig")
        value, failure = _parse(text)
    except UnicodeDecodeError as error:
        text, value = data.decode(errors="replace"), None
        failure = f"not UTF-8: {error.reason} at byte {error.start}"
    if failure is None:
        yield Item("document", text, value)
        return
    lines = list(iter_lines(io.BufferedReader(cast(Any, io.BytesIO(data)))))
    if any(item.error is None and isinstance(item.value, dict) for item in lines):
        yield from lines
    elif failure.startswith("Extra data"):
        yield from _documents_in_a_row(text)
    else:
        yield Item("document", text, error=f"not JSON: {failure}")


def _large(file: io.BufferedReader, data: bytes) -> Iterator[Item]:
    """More than can be held: a document in parts, or lines where some line is JSON by itself."""
    from warehouse.readers.large import iter_parts

    file.seek(0)
    if any(_parse(line)[1] is None and line[:1] == b"{" for line in data.split(b"\n")[1:20]):
        yield from iter_lines(file)
    else:
        yield from iter_parts(file)


def _documents_in_a_row(text: str) -> Iterator[Item]:
    """Documents over many lines one after another; after a broken one the next unindented ``{``."""
    decoder = json.JSONDecoder()
    at, number = 0, 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
            continue
        number += 1
        try:
            value, end = decoder.raw_decode(text, at)
            yield Item(f"document {number}", text[at:end], value)
        except (RecursionError, ValueError) as error:
            found = text.find("\n{", at + 1)
            end = len(text) if found < 0 else found
            failure = f"not JSON: {type(error).__name__}: {str(error)[:200]}"
            yield Item(f"document {number}", text[at:end], error=failure)
        at = end


def _list_items(file: BinaryIO) -> Iterator[Item]:
    """Elements of one list or of several in a row; after a broken one the next ``}, {`` goes on."""
    decoder = json.JSONDecoder()
    reader = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    text = reader.read(_CHUNK)
    at = text.index("[") + 1
    number = 0
    ended = False

    def more() -> None:
        nonlocal text, at, ended
        added = reader.read(max(_CHUNK, len(text) - at))
        text, at, ended = text[at:] + added, 0, not added

    while True:
        while at < len(text) and text[at] in _BLANK + ",":
            at += 1
        if at == len(text) and not ended:
            more()
            continue
        if at == len(text):
            yield Item(f"record {number + 1}", "", error="not JSON: the list is not closed")
            return
        if text[at] == "]":
            at += 1
            while not ended and not text[at:].strip():
                more()
            rest = text[at:].lstrip()
            if not rest:
                return
            if rest[0] == "[":  # lists in a row
                at = text.index("[", at) + 1
                continue
            after = "not JSON: content after the end of the list"
            yield Item(f"after record {number}", _shown(rest + reader.read()), error=after)
            return
        number += 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (RecursionError, ValueError) as error:
            # What is merely cut by the buffer fails near its end, or in a text that began before.
            broken_at = error.pos if isinstance(error, json.JSONDecodeError) else at
            is_cut = broken_at > len(text) - 64 or "Unterminated" in str(error)
            if is_cut and not ended and len(text) - at <= LARGEST:
                number -= 1
                more()
                continue
            found = _NEXT.search(text, max(broken_at, at))
            while found is None and not ended:
                offset = max(broken_at, at) - at
                more()
                found = _NEXT.search(text, offset)
            stop = found.end() if found else len(text)
            if is_cut and stop - at > LARGEST:
                text, at, stop = text[at : at + _SHOWN] + text[stop:], 0, _SHOWN
            failure = f"not JSON: {type(error).__name__}: {str(error)[:200]}"
            yield Item(f"record {number}", _shown(text[at:stop].rstrip(", \r\n\t")), error=failure)
            at = stop
            if found is None:
                return
            continue
        # A number or word at the very end of the buffer may go on in the next chunk.
        if end == len(text) and not ended:
            number -= 1
            more()
            continue
        raw = text[at:end]
        at = end
        if raw.isascii() or _is_text(raw):
            yield Item(f"record {number}", raw, value)
        else:
            yield Item(f"record {number}", _shown(raw), error="not UTF-8 in some of its text")


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
