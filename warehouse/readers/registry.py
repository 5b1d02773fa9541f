"""Which reader takes which record, told by the record's own keys and never by the file's name.

A format is one module with a test for its records and a function that reads one; it is added here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from warehouse.readers import (
    anthropic,
    anthropic_events,
    atif,
    claude_code,
    exchanges,
    langchain,
    langfuse,
    langsmith,
    mcp_records,
    mcp_tools,
    mini_swe_agent,
    mlflow_traces,
    nestful,
    normalised,
    openai_chat,
    openai_finetune,
    openai_responses,
    openapi,
    openhands,
    otlp,
    otlp_assembly,
    swe_agent,
    taskbench,
)
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

_MESSAGES = ("links", "parent", *_NO_CLOCK)
_BLOCKS = ("links", *_NO_CLOCK)
_TUNING = ("native_id", "conversation", *_MESSAGES)


def _provider_shapes() -> tuple[Shape, ...]:
    """What the APIs of LLM providers send and receive."""
    chat, items, messages, pairs = openai_chat, openai_responses, anthropic, exchanges

    def told_in_pairs(
        api: str,
        matches: Callable[[Any], bool],
        read: Callable[[Item], Iterator[Record]],
        losses: tuple[str, ...],
    ) -> tuple[Shape, Shape]:
        archive = partial(pairs.is_archive, api=api)
        return (
            Shape(api, matches, read, losses, assemble=pairs.assemble),
            Shape(api, archive, pairs.read_archive, losses, assemble=pairs.assemble),
        )

    return (
        Shape("openai_finetune", openai_finetune.is_example, openai_finetune.read_example, _TUNING),
        *told_in_pairs(pairs.CHAT, pairs.is_chat, pairs.read_chat, _MESSAGES),
        *told_in_pairs(pairs.RESPONSES, pairs.is_responses, pairs.read_responses, _BLOCKS),
        *told_in_pairs(pairs.ANTHROPIC, pairs.is_anthropic, pairs.read_anthropic, _BLOCKS),
        Shape("openai", chat.is_conversation, chat.read_conversation, _MESSAGES),
        Shape("openai", chat.is_stream, chat.read_stream, _MESSAGES),
        Shape("openai_responses", items.is_conversation, items.read_items, _BLOCKS),
        Shape("openai_responses", items.is_stream, items.read_stream, _BLOCKS),
        Shape("anthropic", messages.is_conversation, messages.read_conversation, _BLOCKS),
        Shape("anthropic", messages.is_stream, messages.read_stream, _BLOCKS),
        Shape("openai", chat.is_chunk, chat.read_chunks, _MESSAGES, gathered=True),
        Shape("openai_responses", items.is_event, items.read_events, _BLOCKS, gathered=True),
        Shape("anthropic", messages.is_event, messages.read_events, _BLOCKS, gathered=True),
        Shape("openai", chat.is_message, chat.read_messages, _MESSAGES, gathered=True),
    )


SHAPES: tuple[Shape, ...] = (
    Shape(
        "otlp",
        otlp.is_spans,
        otlp.read_spans,
        losses=("links", "split"),
        assemble=otlp_assembly.assemble,
    ),
    Shape(
        "claude_code",
        claude_code.is_line,
        claude_code.read_line,
        losses=("links", "parent", "split"),
        assemble=claude_code.assemble,
    ),
    Shape(
        "claude_code",
        claude_code.is_streamed,
        claude_code.read_streamed,
        losses=("links", "parent", "split", *_NO_CLOCK),
        gathered=True,
        assemble=claude_code.assemble,
    ),
    Shape(
        "mcp",
        mcp_records.is_sampling,
        mcp_records.read_sampling,
        losses=("conversation", "links", "parent", "split", *_NO_CLOCK),
    ),
    Shape("mcp", mcp_records.is_catalogue, mcp_records.read_catalogue),
    Shape(
        "mcp",
        mcp_records.is_message,
        mcp_records.read_messages,
        losses=("request", "links", "parent", "split"),
        gathered=True,
        assemble=mcp_records.assemble,
    ),
    Shape(
        "anthropic_events",
        anthropic_events.is_event,
        anthropic_events.read_events,
        losses=("links", "parent", "split"),
        gathered=True,
        assemble=anthropic_events.assemble,
    ),
    Shape(
        "atif",
        atif.is_trajectory,
        atif.read_trajectory,
        losses=("ended_at", "links", "parent", "split"),
    ),
    Shape(
        "openhands",
        openhands.is_v1_event,
        openhands.read_v1_events,
        losses=("links", "parent", "split"),
        gathered=True,
        assemble=openhands.assemble,
    ),
    Shape(
        "openhands",
        openhands.is_event,
        openhands.read_events,
        losses=("conversation", "links", "parent", "split"),
        gathered=True,
    ),
    Shape(
        "openhands",
        openhands.is_conversation,
        openhands.read_conversation,
        losses=("links", "parent", "split"),
        assemble=openhands.assemble,
    ),
    Shape(
        "swe_agent",
        swe_agent.is_trajectory,
        swe_agent.read_trajectory,
        losses=("conversation", "links", "parent", "split", *_NO_CLOCK),
    ),
    Shape(
        "swe_agent",
        mini_swe_agent.is_trajectory,
        mini_swe_agent.read_trajectory,
        losses=("conversation", "links", "parent", "split"),
    ),
    Shape(
        "langchain",
        langchain.is_conversation,
        langchain.read_conversation,
        losses=("links", "parent", "split", *_NO_CLOCK),
        assemble=langchain.assemble,
    ),
    Shape(
        "langchain",
        langchain.is_message,
        langchain.read_messages,
        losses=("links", "parent", "split", *_NO_CLOCK),
        gathered=True,
        assemble=langchain.assemble,
    ),
    Shape(
        "normalised",
        normalised.is_trajectory,
        normalised.read_trajectory,
        losses=("call_id", "conversation", "parent", *_NO_CLOCK),
    ),
    Shape(
        "mlflow",
        mlflow_traces.is_trace,
        mlflow_traces.read_trace,
        losses=("links", "split"),
        assemble=mlflow_traces.assemble,
    ),
    Shape(
        "langsmith",
        langsmith.is_runs,
        langsmith.read_runs,
        losses=("links", "split"),
        assemble=langsmith.assemble,
    ),
    Shape(
        "langfuse",
        langfuse.is_export,
        langfuse.read_export,
        losses=("links", "split"),
        assemble=langfuse.assemble,
    ),
    Shape(
        "taskbench",
        taskbench.is_plan,
        taskbench.read_plan,
        losses=("result", "status", "call_id", "conversation", "parent", *_NO_CLOCK),
    ),
    Shape("taskbench", taskbench.is_catalogue, taskbench.read_catalogue),
    Shape("taskbench", taskbench.is_request, taskbench.read_request),
    Shape(
        "nestful",
        nestful.is_trajectory,
        nestful.read_trajectory,
        losses=("native_id", "conversation", "parent", *_NO_CLOCK),
    ),
    *_provider_shapes(),
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


_ONLY_MESSAGES = frozenset({"messages", "id", "conversation_id", "thread_id", "session_id"})
"""A record with no other keys holds messages and nothing else: most kinds need not be asked."""

_OF_MESSAGES: tuple[Shape, ...] = tuple(
    shape
    for shape in SHAPES
    if shape.matches in (openai_finetune.is_example, openai_chat.is_conversation)
)


def shape_of(value: Any, format: str = "auto") -> Shape | None:
    """The first shape whose test the value passes, among those of one format unless it is auto."""
    if type(value) is dict and value.keys() <= _ONLY_MESSAGES and format == "auto":
        for shape in _OF_MESSAGES:
            if shape.matches(value):
                return shape
    for shape in SHAPES:
        try:
            if format in ("auto", shape.format) and shape.matches(value):
                return shape
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            pass  # JSON so odd that a test stumbles over it is no record of that kind
    return None


_CONVERSATION = ("conversation_id", "thread_id", "session_id", "conversation", "thread", "session")


def conversation_of(value: Any) -> str | None:
    """The conversation that a single message or event names itself, if it does."""
    if isinstance(value, dict):
        for key in _CONVERSATION:
            if isinstance(value.get(key), (str, int)):
                return str(value[key])
    return None


def shape_of_whole(shape: Shape, values: list[Any], format: str = "auto") -> Shape:
    """The shape that takes gathered values as one list, where another than their own does.

    A message of plain text may be anybody's: only all of them together tell whose they are.
    """
    whole = shape_of(values, format)
    return shape if whole is None or whole.format == shape.format else whole


def assembler_of(format: str) -> Callable[[str, list[dict[str, Any]]], Iterator[Record]]:
    """How the events of a format become trajectories."""
    for shape in SHAPES:
        if shape.format == format and shape.assemble is not None:
            return shape.assemble
    raise KeyError(f"expected a format that is told in fragments, got {format!r}")
