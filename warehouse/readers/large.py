"""One JSON document too large to hold: cut at its lists of traces, spans and runs as it is read.

Each part looks like a document of its own with what stood before the list, such as the resource of
its spans; formats told in fragments put the parts together again.
"""

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import ijson
import msgspec

from warehouse.readers.stream import Item

_LISTS = frozenset(
    {
        "resourceSpans", "resource_spans", "batches", "scopeSpans", "scope_spans",
        "instrumentationLibrarySpans", "spans", "traces", "runs", "observations", "data",
    }
)  # fmt: skip
"""Lists whose elements mean the same apart."""
_OBJECTS = frozenset({"data", "trace"})
"""Objects that may hold such a list."""
_PART = 500
"""Elements of one part."""
_MAX_VALUES = 5_000_000
"""Values that one part may hold."""

_BROKEN = (ijson.JSONError, RuntimeError, StopIteration, ValueError)
"""What a document raises that ends too early or is none; StopIteration inside a generator is a
RuntimeError."""

_Events = Iterator[tuple[str, Any]]
_Wrap = Callable[[Any], Any]


def iter_parts(file: io.BufferedReader) -> Iterator[Item]:
    """The parts of one large document; one item with an error where it is not JSON."""
    number = 0
    try:
        events: _Events = iter(ijson.basic_parse(file, buf_size=1 << 18))
        event, _ = next(events)
        if event != "start_map":
            raise ValueError(f"expected an object, got {event}")
        for part in _object(events, lambda value: value):
            number += 1
            yield Item(f"part {number}", msgspec.json.encode(part), part)
    except _BROKEN as error:
        yield Item(f"after part {number}", "", error=f"not JSON: {str(error)[:200]}")


def _object(events: _Events, wrap: _Wrap) -> Iterator[Any]:
    """Parts of the object whose beginning was read; the object itself where it holds no list."""
    known: dict[str, Any] = {}
    was_cut = False
    for event, key in events:
        if event == "end_map":
            break
        event, value = next(events)
        inside = _within(wrap, known, key)
        if event == "start_array" and key in _LISTS:
            was_cut = True
            yield from _list(events, inside)
        elif event == "start_map" and key in _OBJECTS:
            was_cut = True
            yield from _object(events, inside)
        else:
            known[key] = _value(event, value, events, [0])
    if not was_cut:
        yield wrap(known)


def _within(wrap: _Wrap, known: dict[str, Any], key: str) -> _Wrap:
    return lambda value: wrap({**known, key: value})


def _list(events: _Events, wrap: _Wrap) -> Iterator[Any]:
    part: list[Any] = []
    count = [0]
    try:
        for event, value in events:
            if event == "end_array":
                break
            if event == "start_map":
                for element in _object(events, lambda value: value):
                    part.append(element)
                    if len(part) >= _PART or _is_wrapped(element):
                        yield wrap(part)
                        part, count = [], [0]
            else:
                part.append(_value(event, value, events, count))
    except _BROKEN:
        if part:  # what was whole before the break is kept
            yield wrap(part)
        raise
    if part:
        yield wrap(part)


def _is_wrapped(element: Any) -> bool:
    """Whether the element holds a list of parts itself: those are long enough."""
    return isinstance(element, dict) and not _LISTS.isdisjoint(element)


def _value(event: str, value: Any, events: _Events, count: list[int]) -> Any:
    count[0] += 1
    if count[0] > _MAX_VALUES:
        raise ValueError(f"one record holds more than {_MAX_VALUES:,} values")
    if event == "start_map":
        found = {}
        for inner, key in events:
            if inner == "end_map":
                break
            following, item = next(events)
            found[key] = _value(following, item, events, count)
        return found
    if event == "start_array":
        items = []
        for inner, item in events:
            if inner == "end_array":
                break
            items.append(_value(inner, item, events, count))
        return items
    return float(value) if isinstance(value, Decimal) else value
