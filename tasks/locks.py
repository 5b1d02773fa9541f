"""Work that one process of a home does at a time: the lock goes with the process that holds it."""

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from tasks.settings import Settings

log = logging.getLogger("toolatlas")


@contextlib.contextmanager
def alone(settings: Settings, work: str) -> Iterator[None]:
    """Wait until no other process of this home does the same work; say once who does it."""
    folder = settings.home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / f"{work}.lock")
    note = folder / f"{work}.json"
    try:
        lock.acquire(timeout=0)
    except Timeout:
        log.info("%s waits: %s is at the same work", work, _holder(note))
        lock.acquire(poll_interval=0.5)
    try:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        note.write_text(json.dumps({"pid": os.getpid(), "since": since}))
        yield
    finally:
        note.unlink(missing_ok=True)
        lock.release()


def _holder(note: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError):
        held = json.loads(note.read_text())
        return f"process {held['pid']} (since {held['since']})"
    return "another process"
