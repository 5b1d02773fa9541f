"""What readers yield: the records of one delivered file, before they are stored."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool's contract as a catalogue states it.

    ``parameters`` is a list of objects with name, type, description, required. ``namespace`` is
    None for a tool of the source itself, or the server that the record names. ``status`` is active,
    or deprecated where the source says so.
    """

    name: str
    description: str = ""
    parameters: tuple[dict[str, Any], ...] = ()
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()
    namespace: str | None = None
    status: str = "active"


@dataclass(slots=True)
class Call:
    """One executed tool call.

    Attributes:
        name: The tool as the agent named it. Where a server is known beside it, with the client's
            prefix: ``mcp__server__tool`` (see ``server_tool``).
        turn: Number of the turn; calls of one assistant message share it.
        arguments: The arguments as sent: raw text, or a value that was already parsed, or
            ``UNRECORDED`` where the source does not carry them.
        result: The result as text, or None where there is none. A stored event gives back what
            the store made of a long one (a mapping): readers pass it on unread.
        status: ok, error, incomplete, or no_result. ``invalid`` is set by the store when the
            arguments are no JSON object.
        error: What the source says went wrong.
        started_at: UTC, nanoseconds since 1970 (see ``warehouse.readers.clock``).
        ended_at: The same.
        parent: Position of the call inside which this one ran.
        attempts: How often this one call was executed (a retry from a checkpoint).
        uid: An id unique in the world, for formats that copy history under new conversation ids:
            equal calls with one uid are one execution, whatever conversation tells of it.
        flags: What is odd about it, such as ``clock_skew``, ``open``, ``not_executed``.
    """

    name: str
    turn: int
    arguments: Any
    result: str | dict[str, Any] | None = None
    status: str = "no_result"
    error: str | None = None
    call_id: str | None = None
    started_at: int | None = None
    ended_at: int | None = None
    parent: int | None = None
    attempts: int = 1
    uid: str | None = None
    flags: tuple[str, ...] = ()


def server_tool(server: str | None, tool: str) -> str:
    """A tool of a named server as MCP clients write it; the tool alone without a server."""
    return f"mcp__{server}__{tool}" if server else tool


class _Unrecorded:
    def __repr__(self) -> str:
        return "UNRECORDED"


UNRECORDED = _Unrecorded()
"""Stands for arguments that the source does not carry; ``{}`` means "called with none"."""


@dataclass(slots=True)
class TrajectoryRecord:
    """What one agent did for one request.

    Attributes:
        request: What the user asked; empty where the source does not say.
        calls: In order of execution.
        native_id: The source's own id, unique in the source; None where it has none.
        split: The source's own: train, validation, test.
        links: Pairs of call positions.
        links_kind: What they are worth: gold, dataflow, adjacent, predicted, inferred, none.
        started_at: UTC without a zone.
        meta: Anything else worth keeping, as a JSON object.
        orphans: Results whose call is not in the record, each as text.
        duplicates: Copies of calls that were told twice and counted once.
        conversation: The session or thread that this trajectory is part of.
        flags: What is odd about it as a whole, such as ``rootless``.
    """

    request: str
    calls: list[Call]
    native_id: str | None = None
    split: str | None = None
    links: list[tuple[int, int]] = field(default_factory=list)
    links_kind: str = "none"
    started_at: datetime | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    orphans: list[str] = field(default_factory=list)
    duplicates: int = 0
    conversation: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(slots=True)
class Fragment:
    """Events of a conversation that may be told over several records, files or days.

    The store keeps the union of all events of a conversation, whatever their order and however
    often they come, and the format's ``assemble`` makes trajectories of it. An event is a JSON
    object with string keys. Under the keys ``arguments`` and ``result`` stand what the call was
    given and what it gave: text of any size, which the store may shorten; ``assemble`` passes both
    on unread, so whatever must be seen in them (a hidden error) is written into the event first.

    ``aliases`` are other names of the conversation, for formats whose pieces know only the piece
    before them: fragments that share a name, directly or over others, are one conversation.
    """

    conversation: str
    events: list[dict[str, Any]]
    aliases: tuple[str, ...] = ()


@dataclass(slots=True)
class Gathered:
    """Values of one file that together tell one conversation, in the order of the file."""

    conversation: str | None
    values: list[Any]


@dataclass(frozen=True, slots=True)
class DeclaredEdge:
    """An edge of a tool graph that the source ships."""

    source_name: str
    target_name: str
    type: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that cannot be used: where it stands, why not, and its text."""

    place: str
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """A sound record with nothing to store, such as a request without a plan."""

    what: str


Record = ToolRecord | TrajectoryRecord | Fragment | DeclaredEdge | Rejected | Ignored
