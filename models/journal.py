"""Calls as they are recorded, and the file that remembers them when the process is killed."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from models.errors import ToolFailed, UnusableJournal
from models.toolset import Resource
from models.types import Plan


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a call.

    Attributes:
        started_at: UTC.
        ended_at: None while nobody knows how it ended.
        error: What went wrong, None where nothing did.
        has_run: Whether the tool did its work; None: unknown.
    """

    started_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    has_run: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {
            "started_at": to_text(self.started_at),
            "ended_at": to_text(self.ended_at),
            "error": self.error,
            "has_run": self.has_run,
        }


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call of a tool, with all its tries.

    Attributes:
        id: ``RUN.PLAN.STEP``, unique in a journal.
        plan: Place of the plan among the ranked ones.
        step: Position in it.
        tool: Key.
        arguments: As sent.
        status: "ok", "error", "cancelled" or "timed_out" (given up), "unanswered" (the run was
            killed), "running".
        result: A JSON value, where it is ok.
        error: What went wrong, else None.
        started_at: UTC.
        ended_at: UTC; None where it never did.
        attempts: In order; empty where it failed before the tool was asked.
    """

    id: str
    plan: int
    step: int
    tool: str
    arguments: Mapping[str, Any]
    status: str
    started_at: datetime
    ended_at: datetime | None = None
    result: Any = None
    error: str | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def has_run(self) -> bool | None:
        """Whether the tool did its work in some attempt; None: unknown."""
        states = {attempt.has_run for attempt in self.attempts}
        if self.status == "ok" or True in states:
            return True
        return None if self.status == "running" or None in states else False

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {
            "id": self.id,
            "plan": self.plan,
            "step": self.step,
            "tool": self.tool,
            "arguments": dict(self.arguments),
            "status": self.status,
            "result": self.result,
            "error": self.error,
            "started_at": to_text(self.started_at),
            "ended_at": to_text(self.ended_at),
            "attempts": [attempt.to_json() for attempt in self.attempts],
        }


class Journal:
    """An append-only file of JSON lines: what a request's runs were about to do, and did.

    An event is on the disk before the call that it announces starts, so a run that was killed
    leaves a call without an end at worst. Arguments and results stand in it in plain text; only its
    owner may read it. One process at a time holds it. Events: ``run_started`` (request, plans,
    resources), ``call_started`` and ``call_ended`` (one pair a try), ``run_ended`` (status).

    Attributes:
        calls: Of earlier runs, in the order of their start.
        request: Of the earlier runs, None in a new journal.
        plans: Of the last run, as :meth:`Plan.to_json` has them.
        resources: That the last run was given.
        status: How the last run ended; None: it did not, or there was none.
        num_runs: Started so far.
    """

    def __init__(self, path: Path, events: Sequence[Mapping[str, Any]], lock: FileLock) -> None:
        self.path = path
        self.calls = _read_calls(events)
        runs = [event for event in events if event["event"] == "run_started"]
        last = runs[-1] if runs else {}
        self.request: str | None = last.get("request")
        self.plans: tuple[Mapping[str, Any], ...] = tuple(last.get("plans", ()))
        self.resources = tuple(Resource(**resource) for resource in last.get("resources", ()))
        self.num_runs = len(runs)
        ends = {event["run"]: event["status"] for event in events if event["event"] == "run_ended"}
        self.status: str | None = ends.get(self.num_runs)
        self._lock = lock
        self._writing = Lock()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    @classmethod
    def open(cls, path: Path) -> "Journal":
        """A new journal, or an earlier one to go on with; a torn last line is cut off.

        Raises:
            UnusableJournal: Another process holds it, or a line other than the last is damaged.
        """
        lock = FileLock(path.with_name(f"{path.name}.lock"), thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UnusableJournal(
                f"expected a journal that no run holds, got {path}; wait for that run's end."
            ) from None
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            _sync_folder(path.parent)
            return cls(path, _read_events(path), lock)
        except (KeyError, TypeError) as error:
            lock.release()
            raise UnusableJournal(
                f"expected a journal of calls, got {path}, in which an event lacks {error}; name "
                "another file."
            ) from error
        except BaseException:
            lock.release()
            raise

    def close(self) -> None:
        """Let it go; what a call left behind would still write is refused."""
        with self._writing:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
        self._lock.release()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start_run(self, request: str, plans: Iterable[Plan], resources: Iterable[Resource]) -> None:
        """Say that a run starts.

        Raises:
            UnusableJournal: Earlier runs were for another request.
        """
        if self.request is not None and self.request != request:
            raise UnusableJournal(
                f"expected the journal of {request!r}, got {self.path}, which holds calls of "
                f"{self.request!r}; give every request a journal of its own."
            )
        self.num_runs += 1
        self.request = request
        given = [{"value": r.value, "type": r.type, "origin": r.origin} for r in resources]
        self._write(
            "run_started",
            run=self.num_runs,
            request=request,
            plans=[plan.to_json() for plan in plans],
            resources=given,
        )

    def end_run(self, status: str) -> None:
        """Say how the run ended."""
        self._write("run_ended", run=self.num_runs, status=status)

    def start_call(self, call: CallRecord, attempt: int) -> None:
        """Say that a call is about to be sent, its ``attempt``-th time, 1-based."""
        self._write(
            "call_started",
            id=call.id,
            plan=call.plan,
            step=call.step,
            tool=call.tool,
            arguments=call.arguments,
            attempt=attempt,
        )

    def end_call(self, call: CallRecord, attempt: int, result: Any) -> None:
        """Say what a call gave."""
        self._write("call_ended", id=call.id, attempt=attempt, result=result)

    def fail_call(self, call: CallRecord, attempt: int, error: BaseException) -> None:
        """Say that a call gave nothing."""
        self._write(
            "call_ended",
            id=call.id,
            attempt=attempt,
            error=describe_error(error),
            has_run=has_run(error),
        )

    def _write(self, event: str, **rest: Any) -> None:
        """Append one line; it is on the disk when this returns, or not in the file at all."""
        line = json.dumps({"event": event, "at": to_text(datetime.now(UTC)), **rest})
        with self._writing:
            if self._file < 0:
                raise UnusableJournal(f"expected an open journal, got {self.path}, now closed.")
            size = os.fstat(self._file).st_size
            try:
                left = memoryview(f"{line}\n".encode())
                while left:
                    left = left[os.write(self._file, left) :]
                os.fsync(self._file)
            except OSError:  # a full disk: the next line must not follow half a line
                os.ftruncate(self._file, size)
                raise


def describe_error(error: BaseException) -> str:
    """An error as records keep it; a tool's own sentence needs no class name."""
    if isinstance(error, ToolFailed):
        return str(error) or "ToolFailed"
    return f"{type(error).__name__}: {error}".rstrip(": ")


def has_run(error: BaseException) -> bool | None:
    """Whether a call that ended in this error did its work all the same; None: unknown."""
    return error.has_run if isinstance(error, ToolFailed) else None


def to_text(moment: datetime | None) -> str | None:
    """A time in JSON."""
    return moment.isoformat() if moment else None


def _sync_folder(folder: Path) -> None:
    """Put a new file's name on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_events(path: Path) -> list[dict[str, Any]]:
    """All events; the file is cut where a torn last line begins."""
    *lines, torn = path.read_bytes().split(b"\n")
    lines += [torn] if torn else []
    events: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        event = None if line is torn else _parse(line)
        if event is None and number < len(lines):
            raise UnusableJournal(
                f"expected an event in line {number} of {path}, got {line[:60]!r}; the file was "
                "changed by something else, so nobody knows which calls ran. Move it away."
            )
        if event is None:
            os.truncate(path, sum(len(other) + 1 for other in lines[:-1]))
        else:
            events.append(event)
    return events


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _read_calls(events: Iterable[Mapping[str, Any]]) -> tuple[CallRecord, ...]:
    """The calls of all runs; one that has no end is unanswered."""
    calls: dict[str, CallRecord] = {}
    for event in events:
        if event["event"] not in ("call_started", "call_ended"):
            continue
        at = datetime.fromisoformat(event["at"])
        if event["event"] == "call_started":
            old = calls.get(event["id"]) or CallRecord(
                event["id"],
                event["plan"],
                event["step"],
                event["tool"],
                event["arguments"],
                "unanswered",
                at,
            )
            attempts = (*old.attempts, Attempt(at))
            calls[old.id] = replace(old, status="unanswered", attempts=attempts)
            continue
        old = calls[event["id"]]
        error = event.get("error")
        ended = replace(
            old.attempts[event["attempt"] - 1],
            ended_at=at,
            error=error,
            has_run=True if error is None else event["has_run"],
        )
        attempts = (*old.attempts[: event["attempt"] - 1], ended, *old.attempts[event["attempt"] :])
        status = "ok" if error is None else "error"
        calls[old.id] = replace(
            old,
            status=status,
            result=event.get("result"),
            error=error,
            ended_at=at,
            attempts=attempts,
        )
    return tuple(calls.values())
