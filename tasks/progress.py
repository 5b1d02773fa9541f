"""Progress of long steps: one live line on a terminal, a log line now and then elsewhere."""

import logging
import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.status import Status

log = logging.getLogger("toolatlas")

_EVERY_S = 10.0


class Bar(Protocol):
    """Another place that shows how far a step is: the page of its run."""

    def show(self, share: float, text: str) -> None:
        """How far it is, from 0 to 1, and where."""

    def finish(self, text: str) -> None:
        """All of it is done."""


class Progress:
    """Tells how far a step is; quiet steps of a few seconds stay quiet in logs."""

    def __init__(self, step: str, bar: Bar | None = None):
        """Start the clock.

        Args:
            step: Name of the step.
            bar: Also told, where the share that is done is known.
        """
        self._step = step
        self._bar = bar
        self._console = Console(stderr=True)
        self._live: Status | None = None
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        """Show the live line where there is a terminal."""
        if self._console.is_terminal:
            self._live = self._console.status(self._step)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the live line away."""
        if self._live:
            self._live.stop()
        if self._bar and error is None:
            self._bar.finish(f"{self._step}: done")

    def say(self, text: str, share: float | None = None) -> None:
        """Where the step is now, and which share of it is done."""
        if self._bar and share is not None:
            self._bar.show(share, f"{self._step}: {text}")
        if self._live:
            self._live.update(f"{self._step}: {text}")
        elif time.monotonic() - self._last >= _EVERY_S:
            log.info("%s: %s", self._step, text)
            self._last = time.monotonic()

    def records(self, path: str, count: int, share: float | None = None) -> None:
        """Trajectories read of a file, and the share of it that is done, where that is known."""
        done = "" if share is None else f", {share:.0%}"
        self.say(f"{path}, {count:,} trajectories{done}", share)
