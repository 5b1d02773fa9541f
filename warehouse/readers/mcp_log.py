"""Text logs of MCP hosts to the messages in them, as Claude Desktop writes its ``mcp*.log``.

A line is a time, the level and the server in brackets in either order, and what happened; the lines
of messages end in their JSON. Other lines (starts, errors of a server) are no records.
"""

import io
import json
import re
from collections.abc import Iterator

from warehouse.readers.stream import Item

_LEVELS = ("trace", "debug", "info", "warn", "warning", "error")
_TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*Z?"
_LINE = re.compile(rb"(" + _TIME + rb") \[([^\]\n]+)\] \[([^\]\n]+)\] ")
_MESSAGE = re.compile(_LINE.pattern + rb"Message from (?:client|server): (\{.*)", re.DOTALL)
_DECODER = json.JSONDecoder()


def recognises(head: bytes) -> bool:
    """A file whose first line has a time, a level and a server."""
    found = _LINE.match(head.removeprefix(b"\xef\xbb\xbf").lstrip())
    return found is not None and not {found[2], found[3]}.isdisjoint(
        level.encode() for level in _LEVELS
    )


def items(file: io.BufferedReader) -> Iterator[Item]:
    """One item a message, wrapped with its time and its server."""
    found_any = False
    for number, line in enumerate(file, start=1):
        found = _MESSAGE.match(line.removeprefix(b"\xef\xbb\xbf"))
        if found is None:
            continue
        found_any = True
        time, one, other, text = (part.decode(errors="replace").strip() for part in found.groups())
        place = f"line {number}"
        try:
            message, _ = _DECODER.raw_decode(text)  # some versions write metadata behind it
        except (RecursionError, ValueError) as error:
            yield Item(place, line, error=f"not JSON, the log may have cut it: {str(error)[:200]}")
            continue
        server = other if one in _LEVELS else one
        yield Item(place, line, {"timestamp": time, "server": server, "message": message})
    if not found_any:
        yield Item("document", "", error="expected messages in the log of an MCP host, got none")
