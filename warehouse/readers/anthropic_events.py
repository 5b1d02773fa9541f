"""Events of Anthropic's managed-agent sessions, as the API streams them and clients send them.

Lines are events, or recordings ``[method, payload]`` of a client that name the session; the events
of a file that names none are a session of their own, known by its first event. A result names the
event of its call. What a client sends (a result, a message) comes back as an event: one result,
counted once. Threads of sub-agents are trajectories of their own.
"""

import re
from collections.abc import Iterator
from typing import Any

from warehouse.readers.clock import iso_nanoseconds, moment_of
from warehouse.readers.evidence import (
    answer,
    fingerprint,
    is_failure,
    orphan,
    shown,
    text_of,
    tool_of,
    unified,
)
from warehouse.readers.stream import Item
from warehouse.records import (
    UNRECORDED,
    Call,
    Fragment,
    Gathered,
    Ignored,
    Record,
    TrajectoryRecord,
    server_tool,
)

_TYPE = re.compile(r"(agent|user|session|span|system)\.[a-z_]+\Z")
_RECORDED = "client.beta.sessions"
_CALLS = {"agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"}
_RESULTS = {
    "agent.tool_result": "tool_use_id",
    "agent.mcp_tool_result": "mcp_tool_use_id",
    "user.custom_tool_result": "custom_tool_use_id",
    "user.tool_result": "tool_use_id",
}
_QUIET = ("session.", "span.", "agent.message", "agent.thinking", "agent.thread_", "user.interrupt")

Event = dict[str, Any]


def is_event(value: Any) -> bool:
    """An event, or what a client recorded of a session."""
    if isinstance(value, list):
        return len(value) == 2 and isinstance(value[0], str) and value[0].startswith(_RECORDED)
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("type"), str):
        is_ours = "processed_at" in value or str(value.get("id", "sevt_")).startswith("sevt_")
        return is_ours and _TYPE.match(value["type"]) is not None
    for key in ("events", "data"):
        events = value.get(key)
        if isinstance(events, list) and events and isinstance(events[0], dict):
            return "type" in events[0] and is_event(events[0])
    return False


def read_events(item: Item) -> Iterator[Record]:
    """The events of one file, under the session that a recording names."""
    told: Gathered = item.value
    sessions: dict[str | None, list[Event]] = {}
    session = told.conversation
    for value in told.values:
        events = [value]
        if isinstance(value, list):
            named, events = _recorded(value[1])
            session = named or session
            yield from _tools(value[1])
        elif "type" not in value:
            events = value.get("events") or value.get("data")
        for event in events:
            found = _event(event)
            if found is None:
                what = event.get("type") if isinstance(event, dict) else type(event).__name__
                if not str(what).startswith(_QUIET):
                    yield Ignored(f"event of type {what}")
                continue
            own = event.get("session_id")
            sessions.setdefault(own if isinstance(own, str) else session, []).append(found)
    if not sessions:
        yield Ignored("events of a session without a call, a result or a request")
    for name, found_events in sessions.items():
        if name is None:
            timed = [event for event in found_events if event["at"] is not None]
            first = min(timed or found_events, key=lambda event: (event["at"] or 0, event["id"]))
            name = f"opening {first['id']}"
        yield Fragment(name, found_events)


def _recorded(payload: Any) -> tuple[str | None, list[Any]]:
    """(session, events) of the payload of a recorded request or answer."""
    if isinstance(payload, list):  # the arguments of a request
        session = next((one for one in payload if isinstance(one, str)), None)
        bodies = (one.get("events") for one in payload if isinstance(one, dict))
        return session, [e for body in bodies if isinstance(body, list) for e in body]
    if isinstance(payload, dict):
        if payload.get("type") == "session" or isinstance(payload.get("agent"), dict):
            return (payload["id"] if isinstance(payload.get("id"), str) else None), []
        events = payload.get("events", payload.get("data"))
        return None, events if isinstance(events, list) else [payload]
    return None, []


def _tools(payload: Any) -> Iterator[Record]:
    agent = payload.get("agent") if isinstance(payload, dict) else None
    tools = agent.get("tools") if isinstance(agent, dict) else None
    for definition in tools if isinstance(tools, list) else ():
        tool = tool_of(definition)
        if tool is not None:
            yield tool


def _event(value: Any) -> Event | None:
    """What an event says of calls, results, requests and turns; None where it says nothing."""
    if not isinstance(value, dict):
        return None
    kind = str(value.get("type"))
    thread = value.get("session_thread_id")
    given = value.get("id")
    event: Event = {
        "id": given if isinstance(given, str) else f"sent {fingerprint(value)}",
        "at": iso_nanoseconds(value.get("processed_at")),
        "thread": thread if isinstance(thread, str) else None,
    }
    if kind in _CALLS and isinstance(value.get("name"), str) and isinstance(given, str):
        server = value.get("mcp_server_name")
        event["call"] = server_tool(server if isinstance(server, str) else None, value["name"])
        if "input" in value:
            event["arguments"] = value["input"]
        event["key"] = given
        event["id"] += f":{fingerprint(event['call'], value.get('input'))}"
        return event
    if kind in _RESULTS and isinstance(value.get(_RESULTS[kind]), str):
        text = text_of(value.get("content"))
        failed = value.get("is_error") is True or is_failure(text)
        event.update(answers=value[_RESULTS[kind]], result=text or "", failed=failed)
        if failed:
            event["error"] = shown(text)
        event["id"] += f":{fingerprint(text)}"
        return event
    if kind == "user.tool_confirmation" and isinstance(value.get("tool_use_id"), str):
        if value.get("result") != "deny":
            return {**event, "allows": value["tool_use_id"]}
        reason = text_of(value.get("deny_message"))
        return {**event, "denies": value["tool_use_id"], "error": shown(reason)}
    if kind == "user.message":
        return {**event, "asked": text_of(value.get("content")) or ""}
    if kind == "span.model_request_start":
        return {**event, "turn": True}
    return None


def assemble(conversation: str, events: list[Event]) -> Iterator[Record]:
    """The trajectories of a session: the main thread, and each thread of a sub-agent."""
    told = sorted(
        unified(events).values(),
        key=lambda event: (event["at"] is None, event["at"] or 0, event["id"]),
    )
    records: dict[str | None, TrajectoryRecord] = {}
    calls: dict[str, list[Call]] = {}
    turns: dict[str | None, int] = {}
    open_turns: set[str | None] = set()
    threads: dict[str, str | None] = {}
    for event in told:
        thread = event["thread"]
        if "turn" in event or "answers" in event:
            open_turns.discard(threads.get(event.get("answers", ""), thread))
        elif "call" in event:
            if thread not in open_turns:
                turns[thread] = turns.get(thread, -1) + 1
                open_turns.add(thread)
            threads[event["key"]] = thread
            record = _record(conversation, thread, records)
            call = Call(
                name=event["call"],
                turn=turns[thread],
                arguments=event.get("arguments", UNRECORDED),
                call_id=event["key"],
                started_at=event["at"],
                uid=fingerprint("anthropic_events", event["id"]),
            )
            record.calls.append(call)
            calls.setdefault(event["key"], []).append(call)
            record.started_at = record.started_at or moment_of(event["at"])
        elif event.get("asked"):
            record = _record(conversation, thread, records)
            record.request = record.request or event["asked"]
            record.started_at = record.started_at or moment_of(event["at"])
    for event in told:
        if "answers" in event or "denies" in event:
            _settle(event, calls, records, conversation)
    if not records:
        yield Ignored("session without a call or request")
    yield from (records[thread] for thread in sorted(records, key=lambda thread: thread or ""))


def _record(
    conversation: str, thread: str | None, records: dict[str | None, TrajectoryRecord]
) -> TrajectoryRecord:
    if thread not in records:
        native_id = conversation if thread is None else f"{conversation}/{thread}"
        meta = {} if thread is None else {"thread": thread, "parent_session": conversation}
        records[thread] = TrajectoryRecord(
            "", [], native_id=native_id, conversation=conversation, meta=meta
        )
    return records[thread]


def _settle(
    event: Event,
    calls: dict[str, list[Call]],
    records: dict[str | None, TrajectoryRecord],
    conversation: str,
) -> None:
    named = calls.get(event["answers"] if "answers" in event else event["denies"], [])
    call = next((one for one in named if one.result is None), None)
    if "denies" in event:
        if call is not None and call.status == "no_result":
            call.status, call.error = "error", event.get("error")
            call.flags = (*call.flags, "rejected")
        return
    if any(one.result == event["result"] for one in named):  # what was sent, and its echo
        return
    if call is None:
        record = _record(conversation, event["thread"], records)
        record.orphans.append(orphan(event["result"]))
        return
    answer(call, event["result"], failed=event["failed"], error=event.get("error"))
    call.ended_at = event["at"]
    if call.started_at is not None and event["at"] is not None and event["at"] < call.started_at:
        call.flags = (*call.flags, "clock_skew")
