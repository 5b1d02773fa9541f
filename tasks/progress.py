"""Progress of long steps: one live line on a terminal, a log line now and then elsewhere."""

import logging
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

log = logging.getLogger("toolatlas")

_EVERY_S = 10.0


class Progress:
    """Tells how far a step is; quiet steps of a few seconds stay quiet in logs."""

    def __init__(self, step: str):
        """Start the clock."""
        self._step = step
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

    def say(self, text: str) -> None:
        """Where the step is now."""
        if self._live:
            self._live.update(f"{self._step}: {text}")
        elif time.monotonic() - self._last >= _EVERY_S:
            log.info("%s: %s", self._step, text)
            self._last = time.monotonic()

    def records(self, path: str, count: int) -> None:
        """Trajectories read of a file."""
        self.say(f"{path}, {count} trajectories")

    def epoch(self, epoch: int, metrics: dict[str, float]) -> None:
        """Metrics of a training epoch."""
        shown = ", ".join(f"{name} {value:.3f}" for name, value in sorted(metrics.items()))
        self.say(f"epoch {epoch}, {shown}")
