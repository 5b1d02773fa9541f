"""Harbor's Agent Trajectory Interchange Format (ATIF v1.0 to v1.8): one document a trajectory.

Sub-agents are trajectories of their own: embedded documents (``subagent_trajectories``) and steps
that Claude Code's converter marks ``is_sidechain``. Steps that were copied from an earlier document
(``is_copied_context``) are history, not execution.
"""

from collections.abc import Iterator
from typing import Any

from warehouse.readers.clock import iso_nanoseconds, moment_of
from warehouse.readers.evidence import (
    Waiting,
    answer,
    fingerprint,
    is_failure,
    text_of,
    tool_of,
)
from warehouse.readers.stream import Item
from warehouse.records import UNRECORDED, Call, Ignored, Record, Rejected, TrajectoryRecord

_SOURCES = {"system", "user", "agent"}
_FLAGS = ("is_error", "isError", "error")


def is_trajectory(value: Any) -> bool:
    """A document of any version."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("schema_version"), str)
        and value["schema_version"].startswith("ATIF")
        and "steps" in value
    )


def read_trajectory(item: Item) -> Iterator[Record]:
    """One document with the sub-agents in it; the tools that its agents were given come first."""
    yield from _read(item, item.value, None, None)


def _read(
    item: Item, value: dict[str, Any], parent: str | None, session: str | None
) -> Iterator[Record]:
    steps = value.get("steps")
    if not isinstance(steps, list):
        got = type(steps).__name__
        yield Rejected(item.place, f"expected steps to be a list, got {got}", item.raw)
        return
    agent = value.get("agent")
    agent = agent if isinstance(agent, dict) else {}
    definitions = agent.get("tool_definitions")
    for definition in definitions if isinstance(definitions, list) else ():
        tool = tool_of(definition)
        if tool is not None:
            yield tool
    session = _text(value.get("session_id")) or session
    native_id = _text(value.get("trajectory_id")) or (
        session if parent is None else f"{parent}/{fingerprint(steps)}"
    )
    meta: dict[str, Any] = {"schema_version": value["schema_version"]} if parent is None else {}
    for key, name in (("name", "agent"), ("version", "agent_version"), ("model_name", "model")):
        if isinstance(agent.get(key), str):
            meta[name] = agent[key]
    if isinstance(value.get("continued_trajectory_ref"), str):
        meta["continued_in"] = value["continued_trajectory_ref"]
    if parent is not None:
        meta["parent_trajectory"] = parent
    own: list[dict[str, Any]] = []
    aside: list[dict[str, Any]] = []
    for step in steps:
        source = step.get("source") if isinstance(step, dict) else type(step).__name__
        if not isinstance(step, dict) or str(source) not in _SOURCES:
            yield Ignored(f"step of source {str(source)[:40]}")
            continue
        extra = step.get("extra")
        is_side = isinstance(extra, dict) and extra.get("is_sidechain") is True
        (aside if is_side else own).append(step)
    yield _trajectory(own, native_id, session, meta)
    if aside:
        side_meta = {**meta, "sidechain": True, "parent_trajectory": native_id}
        side_id = None if native_id is None else f"{native_id}/sidechain"
        yield _trajectory(aside, side_id, session, side_meta)
    embedded = value.get("subagent_trajectories")
    for inner in embedded if isinstance(embedded, list) else ():
        if isinstance(inner, dict):
            yield from _read(item, inner, native_id or "", session)
        else:
            yield Ignored("sub-agent trajectory that is no object")


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) and value != "" else None


def _trajectory(
    steps: list[dict[str, Any]],
    native_id: str | None,
    session: str | None,
    meta: dict[str, Any],
) -> TrajectoryRecord:
    record = TrajectoryRecord("", [], native_id=native_id, conversation=session, meta=meta)
    waiting = Waiting()
    latest: dict[str | None, Call] = {}
    times: list[int] = []
    flags: dict[str, None] = {}
    copied_request = ""
    for turn, step in enumerate(steps):
        copied = step.get("is_copied_context") is True
        if step["source"] == "user":
            text = text_of(step.get("message")) or ""
            if copied:
                copied_request = copied_request or text
            else:
                record.request = record.request or text
        if copied:
            calls = step.get("tool_calls")
            record.duplicates += len(calls) if isinstance(calls, list) else 0
            continue
        at = iso_nanoseconds(step.get("timestamp"))
        if at is not None:
            times.append(at)
            if not _has_zone(step["timestamp"]):
                flags["no_zone"] = None
        made = _calls(step, turn, at, record, latest)
        for call in made:
            latest[call.call_id] = call
            record.calls.append(call)
            waiting.add(call)
        _results(step, turn, made, waiting, record)
    record.request = record.request or copied_request
    record.started_at = moment_of(min(times, default=None))
    record.flags = tuple(flags)
    return record


def _has_zone(text: str) -> bool:
    tail = text.strip()[10:]
    return tail.endswith(("Z", "z")) or "+" in tail or "-" in tail


def _calls(
    step: dict[str, Any],
    turn: int,
    at: int | None,
    record: TrajectoryRecord,
    latest: dict[str | None, Call],
) -> list[Call]:
    told = step.get("tool_calls")
    calls: list[Call] = []
    for one in told if isinstance(told, list) else ():
        name = one.get("function_name") if isinstance(one, dict) else None
        if not isinstance(name, str) or not name:
            continue
        call = Call(
            name=name,
            turn=turn,
            arguments=one.get("arguments", UNRECORDED),
            call_id=_text(one.get("tool_call_id")),
            started_at=at,
        )
        # A converter that gives every event a step tells the call again beside its result.
        before = latest.get(call.call_id)
        if (
            before is not None
            and call.call_id is not None
            and before.status == "no_result"
            and _key(before) == _key(call)
        ):
            record.duplicates += 1
            continue
        calls.append(call)
    if len(calls) < 2:
        return calls
    # Equal blocks of one step are copies, unless as many results come back.
    kept: list[Call] = []
    results = [_text(r.get("source_call_id")) for r in _observed(step)]
    for call in calls:
        same = sum(_key(call) == _key(one) for one in kept)
        if call.call_id is None or same < max(1, results.count(call.call_id)):
            kept.append(call)
        else:
            record.duplicates += 1
    return kept


def _key(call: Call) -> tuple[Any, ...]:
    return call.call_id, call.name, call.arguments


def _observed(step: dict[str, Any]) -> list[dict[str, Any]]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    return [r for r in results if isinstance(r, dict)] if isinstance(results, list) else []


def _results(
    step: dict[str, Any], turn: int, made: list[Call], waiting: Waiting, record: TrajectoryRecord
) -> None:
    results = _observed(step)
    for result in results:
        call_id = _text(result.get("source_call_id"))
        text = text_of(result.get("content"))
        if call_id is not None:
            call = waiting.take(call_id)
            if call is None:
                record.orphans.append(text or "")
                continue
        elif len(made) == 1 and len(results) == 1:  # no id is needed to tell
            call = waiting.take_named(turn, None)
            if call is None:
                continue
        else:
            continue  # what the environment says by itself
        reference = result.get("subagent_trajectory_ref")
        if text is None and reference is not None:
            text = text_of(reference)
        answer(call, text, failed=_failed(result, text))


def _failed(result: dict[str, Any], text: str | None) -> bool:
    extra = result.get("extra")
    for told in (result, extra if isinstance(extra, dict) else {}):
        if any(told.get(flag) not in (None, False, "", 0) for flag in _FLAGS):
            return True
        if told.get("status") == "error":
            return True
    return is_failure(text)
