"""What execution asks of the tools it runs: one call at a time, and what kind of tool it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from models.fields import Field


@dataclass(frozen=True, slots=True)
class Traits:
    """What a tool says about its effects (MCP's annotations, with MCP's careful defaults).

    Attributes:
        is_read_only: Changes nothing.
        is_idempotent: A second call with the same arguments changes nothing more.
        is_destructive: May destroy what was there.
    """

    is_read_only: bool = False
    is_idempotent: bool = False
    is_destructive: bool = True

    @property
    def is_repeatable(self) -> bool:
        """Whether a second call does no harm."""
        return self.is_read_only or self.is_idempotent


@dataclass(frozen=True, slots=True)
class Signature:
    """What a tool takes and returns, as its catalogue entry states it."""

    takes: tuple[Field, ...]
    returns: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Resource:
    """A value that is known at a point of a plan.

    Attributes:
        value: A JSON value.
        type: Its type in the catalogue's words ("image.mask"), "" unknown.
        origin: "request", or the id of the call that gave it.
    """

    value: Any
    type: str
    origin: str = "request"


@runtime_checkable
class Toolset(Protocol):
    """Tools that can be called, from several threads at once."""

    def traits(self, key: str) -> Traits:
        """What kind of tool it is."""
        ...

    def call(self, key: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """The result as a JSON value: an object of named fields where the tool has several.

        Args:
            key: ``namespace/name``.
            arguments: By parameter, JSON values.
            timeout_s: Seconds after which the call is given up.

        Raises:
            ToolFailed: No result; the error says whether another try makes sense.
        """
        ...
