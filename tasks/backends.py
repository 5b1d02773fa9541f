"""What the backends of execution share: what a tool says of its effects, and a loop to wait on."""

import contextlib
import json
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any, Self, TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from models.errors import ToolFailed
from models.toolset import Traits

_Result = TypeVar("_Result")
_Arguments = TypeVarTuple("_Arguments")

_SAID = 300
"""Characters of a server's own words that an error repeats."""
_GRACE_S = 2.0
"""Seconds that a call which is given up may take to clear up before nobody waits for it."""
_CLOSE_S = 10.0
"""Seconds that closing a loop may take: a server that ignores its end gets four of them."""
REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Hints:
    """What a tool states of its effects, in MCP's words; None where it says nothing."""

    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None

    @property
    def is_destructive(self) -> bool | None:
        """Whether it may destroy something, None where nothing is said that would tell.

        As in MCP, a tool that only says that it writes may destroy, and one that only reads does
        not, whatever else it says.
        """
        if self.read_only:
            return False
        if self.destructive is not None:
            return self.destructive
        return None if self.read_only is None else True

    @property
    def traits(self) -> Traits:
        """With MCP's careful defaults for what is not said."""
        return Traits(
            is_read_only=self.read_only is True,
            is_idempotent=self.idempotent is True,
            is_destructive=self.is_destructive is not False,
        )


class Backend(ABC):
    """A toolset of one namespace: opens at its first use, closes as a context manager.

    Attributes:
        namespace: What stands before the slash in the keys of its tools.
    """

    namespace: str

    @abstractmethod
    def hints(self, key: str) -> Hints:
        """What a tool states of its effects.

        Raises:
            ToolFailed: There is no such tool, or nobody to ask.
        """

    @abstractmethod
    def call(self, key: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """As ``models.toolset.Toolset.call``."""

    def close(self) -> None:  # noqa: B027 (most have something to close, functions have not)
        """Give up what is still running, and let go of servers and connections."""

    def traits(self, key: str) -> Traits:
        """What kind of tool it is: the careful defaults where that cannot be found out."""
        try:
            return self.hints(key).traits
        except ToolFailed:
            return Traits()

    def __enter__(self) -> Self:
        """Nothing is opened yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


class Background:
    """An event loop in a thread of its own, started at the first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._portal: BlockingPortal | None = None
        self._is_closed = False

    def start(
        self, function: Callable[[*_Arguments], Awaitable[_Result]], *arguments: *_Arguments
    ) -> "Future[_Result]":
        """Run a coroutine function on the loop; cancelling the future cancels it.

        Raises:
            ToolFailed: The loop was closed.
        """
        with self._lock:
            if self._is_closed:
                raise ToolFailed(
                    "expected open tools, but they were closed: nothing was called.", has_run=False
                )
            if self._portal is None:
                self._portal = self._stack.enter_context(start_blocking_portal())
            return self._portal.start_task_soon(function, *arguments)

    def run(
        self,
        timeout_s: float,
        function: Callable[[*_Arguments], Awaitable[_Result]],
        *arguments: *_Arguments,
    ) -> _Result:
        """The result of a coroutine function, which is cancelled when its time is over.

        Raises:
            TimeoutError: It took longer.
            ToolFailed: The loop was closed meanwhile.
        """

        async def limited() -> _Result:
            with anyio.fail_after(timeout_s):
                return await function(*arguments)

        future = self.start(limited)
        try:
            return future.result(timeout_s + _GRACE_S)
        except CancelledError as error:
            raise ToolFailed(
                "expected a result, but the tools were closed during the call: nobody knows "
                "whether it did its work."
            ) from error
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what is running and end the thread, or leave it where it does not end."""
        with self._lock:
            self._is_closed = True
            portal, self._portal = self._portal, None
        if portal is None:
            return

        def stop() -> None:
            with contextlib.suppress(RuntimeError):
                portal.call(portal.stop, True)
            self._stack.close()

        stopping = threading.Thread(target=stop, daemon=True)
        stopping.start()
        stopping.join(_CLOSE_S)


def tool_name(key: str, namespace: str) -> str:
    """The name of a tool of a namespace.

    Raises:
        ToolFailed: The key is of another namespace.
    """
    own, slash, name = key.partition("/")
    if not slash or own != namespace:
        raise ToolFailed(f"expected a tool of {namespace}, got {key}.", has_run=False)
    return name


def unknown(key: str, names: Iterable[str]) -> ToolFailed:
    """The error of a tool that its server does not have."""
    known = sorted(names)
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    return ToolFailed(
        f"expected a tool that its server has, got {key}; it has: "
        f"{', '.join(known[:10]) or 'none'}{more}. Sync the catalogue if it has changed.",
        has_run=False,
    )


def timed_out(key: str, timeout_s: float) -> ToolFailed:
    """The error of a tool that was not ready in time."""
    return ToolFailed(
        f"expected a result of {key} within {timeout_s:g} s, got none: nobody knows whether it "
        "did its work.",
        is_transient=True,
    )


def shortened(text: str, secrets: Iterable[str] = ()) -> str:
    """A server's own words, in one line, without secrets."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    line = " ".join(text.split())
    return line if len(line) <= _SAID else f"{line[:_SAID]}..."


def seconds(value: Any) -> float | None:
    """A time to wait; None where the value is none."""
    try:
        wait_s = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        return None
    return wait_s if math.isfinite(wait_s) and wait_s >= 0 else None


def json_object(text: str) -> dict[str, Any] | None:
    """The object that a text is in JSON; None where it is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
