"""Which reader takes which record, told by the record's own keys and never by the file's name.

A format is one module with a test for its records and a function that reads one; it is added here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from warehouse.readers import mcp_tools, nestful, normalised, openai_chat, openapi, taskbench
from warehouse.readers.stream import Item
from warehouse.records import Record


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of record.

    Attributes:
        format: The format's name, as ``--format`` takes it.
        matches: Whether a parsed JSON value is a record of this kind. Cheap, by keys, and never
            wrong about another format's record.
        read: Its records. What valid JSON of an unforeseen shape raises (KeyError, TypeError, ...)
            sets that record aside.
        losses: Our fields that the format can never carry.
        gathered: The values of one file that tell one conversation come to ``read`` together, as
            an item whose value is ``Gathered``.
        assemble: Trajectories of all events of one conversation, for kinds whose ``read`` yields
            fragments: a pure function of the set of events, whatever their order.
    """

    format: str
    matches: Callable[[Any], bool]
    read: Callable[[Item], Iterator[Record]]
    losses: tuple[str, ...] = ()
    gathered: bool = False
    assemble: Callable[[str, list[dict[str, Any]]], Iterator[Record]] | None = None


_NO_CLOCK = ("started_at", "ended_at")

SHAPES: tuple[Shape, ...] = (
    Shape(
        "normalised",
        normalised.is_trajectory,
        normalised.read_trajectory,
        losses=("call_id", "conversation", "parent", *_NO_CLOCK),
    ),
    Shape(
        "taskbench",
        taskbench.is_plan,
        taskbench.read_plan,
        losses=("result", "status", "call_id", "conversation", "parent", *_NO_CLOCK),
    ),
    Shape("taskbench", taskbench.is_catalogue, taskbench.read_catalogue),
    Shape(
        "nestful",
        nestful.is_trajectory,
        nestful.read_trajectory,
        losses=("native_id", "conversation", "parent", *_NO_CLOCK),
    ),
    Shape(
        "openai",
        openai_chat.is_conversation,
        openai_chat.read_conversation,
        losses=("links", "parent", *_NO_CLOCK),
    ),
    Shape(
        "openai",
        openai_chat.is_message,
        openai_chat.read_messages,
        losses=("links", "parent", *_NO_CLOCK),
        gathered=True,
    ),
    Shape("openapi", openapi.is_document, openapi.read_document),
    Shape("mcp_tools", mcp_tools.is_tool_list, mcp_tools.read_tool_list),
    Shape("nestful", nestful.is_tool, nestful.read_tool),
    Shape("normalised", normalised.is_tool, normalised.read_tool),
    Shape("normalised", normalised.is_edge, normalised.read_edge),
    Shape("normalised", normalised.is_request, normalised.read_request),
)

FORMATS: tuple[str, ...] = tuple(dict.fromkeys(shape.format for shape in SHAPES))

READER_VERSION = 2
"""Grows when a reader yields something else for the same bytes; known files are then read again."""


def shape_of(value: Any, format: str = "auto") -> Shape | None:
    """The first shape whose test the value passes, among those of one format unless it is auto."""
    for shape in SHAPES:
        if format in ("auto", shape.format) and shape.matches(value):
            return shape
    return None


_CONVERSATION = ("conversation_id", "thread_id", "session_id", "conversation", "thread", "session")


def conversation_of(value: Any) -> str | None:
    """The conversation that a single message or event names itself, if it does."""
    if isinstance(value, dict):
        for key in _CONVERSATION:
            if isinstance(value.get(key), (str, int)):
                return str(value[key])
    return None


def assembler_of(format: str) -> Callable[[str, list[dict[str, Any]]], Iterator[Record]]:
    """How the events of a format become trajectories."""
    for shape in SHAPES:
        if shape.format == format and shape.assemble is not None:
            return shape.assemble
    raise KeyError(f"expected a format that is told in fragments, got {format!r}")
