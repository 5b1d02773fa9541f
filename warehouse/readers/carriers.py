"""A file's bytes to items, whatever carries them: JSON in its shapes, or a binary format.

A carrier is told by the first bytes of the file. One that is not JSON is a module with
``recognises(head)`` and ``items(file)``; it is added to ``CARRIERS``.
"""

import io
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

from warehouse.readers import mcp_log, otlp_protobuf, parquet, sse
from warehouse.readers.stream import Item, buffered, iter_json, iter_lines

Carrier = tuple[Callable[[bytes], bool], Callable[[io.BufferedReader], Iterator[Item]]]

CARRIERS: tuple[Carrier, ...] = (
    (parquet.recognises, parquet.items),
    (sse.recognises, sse.items),
    (mcp_log.recognises, mcp_log.items),
    (otlp_protobuf.recognises, otlp_protobuf.items),
)
"""Tried in order; what none recognises is read as JSON."""

HEAD = 4096
"""Bytes a carrier is told by."""


def iter_items(file: BinaryIO, *, at_byte: int = 0, at_line: int = 0) -> Iterator[Item]:
    """The values of a file in order; broken ones come as items with ``error``.

    ``at_byte`` and ``at_line`` are the ``end`` of the last item of an earlier reading, to go on
    behind it.
    """
    try:
        if at_byte:
            file.seek(at_byte)
            yield from iter_lines(buffered(file), at_byte, at_line)
            return
        reader = buffered(file)
        head = reader.peek(HEAD)[:HEAD]
        carrier = next((items for recognises, items in CARRIERS if recognises(head)), iter_json)
        yield from carrier(reader)
    except (EOFError, OSError, zlib.error) as error:
        yield Item("end of file", "", error=f"the file cannot be read to its end: {error}")
