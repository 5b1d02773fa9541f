"""What readers yield: the records of one delivered file, before they are stored."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolRecord:
    """A tool's contract as a catalogue states it.

    ``parameters`` is a list of objects with name, type, description, required.
    """

    name: str
    description: str = ""
    parameters: tuple[dict[str, Any], ...] = ()
    input_types: tuple[str, ...] = ()
    output_types: tuple[str, ...] = ()


@dataclass(slots=True)
class Call:
    """One executed tool call.

    Attributes:
        name: The tool as the agent named it.
        turn: Number of the turn; calls of one assistant message share it.
        arguments: The arguments as sent: raw text, or a value that was already parsed, or
            ``UNRECORDED`` where the source does not carry them.
        result: The result as text, or None where there is none.
        status: ok, error, incomplete, or no_result. ``invalid`` is set by the store when the
            arguments are no JSON object.
        error: What the source says went wrong.
    """

    name: str
    turn: int
    arguments: Any
    result: str | None = None
    status: str = "no_result"
    error: str | None = None
    call_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None


class _Unrecorded:
    def __repr__(self) -> str:
        return "UNRECORDED"


UNRECORDED = _Unrecorded()
"""Stands for arguments that the source does not carry; ``{}`` means "called with none"."""


@dataclass(slots=True)
class TrajectoryRecord:
    """What one agent did for one request.

    ``links`` are pairs of call positions; ``links_kind`` says what they are worth
    (gold, dataflow, adjacent, predicted, inferred, none).
    """

    request: str
    calls: list[Call]
    native_id: str | None = None
    split: str | None = None
    links: list[tuple[int, int]] = field(default_factory=list)
    links_kind: str = "none"
    started_at: datetime | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    orphans: int = 0


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


Record = ToolRecord | TrajectoryRecord | DeclaredEdge | Rejected | Ignored
