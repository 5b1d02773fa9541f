"""A file's bytes to items, whatever carries them: JSON in its shapes, or a binary format.

A carrier is told by the first bytes of the file. One that is not JSON is a module with
``recognises(head)`` and ``items(file)``; it is added to ``CARRIERS``.
"""

import io
from collections.abc import Callable, Iterator
from typing import BinaryIO

from warehouse.readers import otlp_protobuf
from warehouse.readers.stream import Item, buffered, iter_json

Carrier = tuple[Callable[[bytes], bool], Callable[[io.BufferedReader], Iterator[Item]]]

CARRIERS: tuple[Carrier, ...] = ((otlp_protobuf.recognises, otlp_protobuf.items),)
"""Tried in order; what none recognises is read as JSON."""

HEAD = 4096
"""Bytes a carrier is told by."""


def iter_items(file: BinaryIO) -> Iterator[Item]:
    """The values of a file in order; broken ones come as items with ``error``."""
    reader = buffered(file)
    try:
        head = reader.peek(HEAD)[:HEAD]
    except (EOFError, OSError) as error:
        yield Item("start of file", "", error=f"the file cannot be read: {error}")
        return
    for recognises, items in CARRIERS:
        if recognises(head):
            yield from items(reader)
            return
    yield from iter_json(reader)
