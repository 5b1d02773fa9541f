"""Which reader takes which record, told by the record's own keys and never by the file's name.

A format is one module with a test for its records and a function that reads one; it is added here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from warehouse.readers import nestful, normalised, openai_chat, taskbench
from warehouse.readers.stream import Item
from warehouse.records import Record


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of record: its format, the test for it, its reader, and what it never carries."""

    format: str
    matches: Callable[[Any], bool]
    read: Callable[[Item], Iterator[Record]]
    losses: tuple[str, ...] = ()


_NO_CLOCK = ("started_at", "ended_at")

SHAPES: tuple[Shape, ...] = (
    Shape(
        "normalised",
        normalised.is_trajectory,
        normalised.read_trajectory,
        losses=("call_id", *_NO_CLOCK),
    ),
    Shape(
        "taskbench",
        taskbench.is_plan,
        taskbench.read_plan,
        losses=("result", "status", "call_id", *_NO_CLOCK),
    ),
    Shape("taskbench", taskbench.is_catalogue, taskbench.read_catalogue),
    Shape(
        "nestful",
        nestful.is_trajectory,
        nestful.read_trajectory,
        losses=("native_id", *_NO_CLOCK),
    ),
    Shape(
        "openai",
        openai_chat.is_conversation,
        openai_chat.read_conversation,
        losses=("links", *_NO_CLOCK),
    ),
    Shape("nestful", nestful.is_tool, nestful.read_tool),
    Shape("normalised", normalised.is_tool, normalised.read_tool),
    Shape("normalised", normalised.is_edge, normalised.read_edge),
    Shape("normalised", normalised.is_request, normalised.read_request),
)

FORMATS: tuple[str, ...] = tuple(dict.fromkeys(shape.format for shape in SHAPES))

READER_VERSION = 1
"""Grows when a reader yields something else for the same bytes; known files are then read again."""


def shape_of(value: Any, format: str = "auto") -> Shape | None:
    """The first shape whose test the value passes, among those of one format unless it is auto."""
    for shape in SHAPES:
        if format in ("auto", shape.format) and shape.matches(value):
            return shape
    return None
