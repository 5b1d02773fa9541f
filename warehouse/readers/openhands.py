"""OpenHands: lists of events (V0), and one event a line or file (V1).

V0 pairs an observation with its action by ``cause``; the tool's name is the model's
(``tool_call_metadata.function_name``), not the action's. V1 pairs by ``action_id``.

A V1 event does not name its conversation. The events of one file are one conversation, known by an
id that one of them tells (a full state, a stored output), else by its first event. A file with a
single event (the folder form, one file an event) can only be joined with the file that names the
same action: call and result meet, but which calls make a conversation, and in what order, such
files do not tell. The call's ``uid`` is the action's id, so that both forms count once.

Times have no zone; they are taken as UTC and flagged ``no_zone``.
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
)

_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SOURCES = {"user", "agent", "environment", "hook"}
_ACTIONS = {
    "run",
    "run_ipython",
    "read",
    "write",
    "edit",
    "browse",
    "browse_interactive",
    "call_tool_mcp",
    "mcp",
    "delegate",
    "task_tracking",
}
"""V0 actions of the agent that are tool calls even without the model's own words beside them."""
_NO_RESULTS = {"null", "agent_state_changed", "recall", "loop_detection", "message", "chat"}
_QUIET_V0 = {
    "message",
    "system",
    "null",
    "initialize",
    "change_agent_state",
    "agent_state_changed",
    "recall",
    "condensation",
    "condensation_request",
    "pause",
    "resume",
    "stop",
    "start",
    "finish",
    "reject",
    "think",
    "summarize",
}
_QUIET_V1 = {
    "MessageEvent",
    "ConversationStateUpdateEvent",
    "PauseEvent",
    "Condensation",
    "CondensationRequest",
    "CondensationSummaryEvent",
    "TokenEvent",
    "LLMCompletionLogEvent",
}


# --- V0 -------------------------------------------------------------------------------------------


def is_event(value: Any) -> bool:
    """A V0 event: an action or an observation with its source."""
    return (
        isinstance(value, dict)
        and "kind" not in value
        and isinstance(value.get("source"), str)
        and value["source"] in _SOURCES
        and ("timestamp" in value or "id" in value)
        and (isinstance(value.get("action"), str) or isinstance(value.get("observation"), str))
    )


def is_conversation(value: Any) -> bool:
    """Events of V0 or V1 in one value: a list, or a wrapper's ``history`` or ``events``."""
    return _events_in(value) is not None


def _events_in(value: Any) -> list[Any] | None:
    lists = (
        [value]
        if isinstance(value, list)
        else [value.get(key) for key in ("history", "trajectory", "events", "items")]
        if isinstance(value, dict)
        else []
    )
    for events in lists:
        if isinstance(events, list) and events:
            flat = events[:3]
            if isinstance(flat[0], list):  # pairs of action and observation
                flat = [one for pair in flat if isinstance(pair, list) for one in pair]
            if any(is_event(one) or is_v1_event(one) for one in flat):
                return events
    return None


def read_conversation(item: Item) -> Iterator[Record]:
    """The events of one value."""
    value = item.value
    events: list[Any] = []
    for one in _events_in(value) or ():
        events += one if isinstance(one, list) else [one]
    wrapper = value if isinstance(value, dict) else {}
    named = (wrapper.get(key) for key in ("conversation_id", "instance_id", "id"))
    name = next((str(n) for n in named if isinstance(n, (str, int))), None)
    if any(is_v1_event(event) for event in events):
        yield from _read_v1(events, name)
    else:
        meta = {"instance_id": name} if "instance_id" in wrapper and name is not None else {}
        yield from _read_v0(events, name, meta, wrapper.get("instruction"))


def read_events(item: Item) -> Iterator[Record]:
    """The V0 events of one file."""
    told: Gathered = item.value
    yield from _read_v0(told.values, told.conversation, {}, None)


def _read_v0(
    events: list[Any], name: str | None, meta: dict[str, Any], instruction: Any
) -> Iterator[Record]:
    calls: dict[int, Call | None] = {}
    by_call_id: dict[str, Call] = {}
    turns: dict[Any, int] = {}
    record = TrajectoryRecord(
        text_of(instruction) or "", [], native_id=name, conversation=name, meta=meta
    )
    opening: str | None = None
    flags: dict[str, None] = {}
    for event in _in_order(events):
        at = iso_nanoseconds(event.get("timestamp"))
        if at is not None:
            record.started_at = record.started_at or moment_of(at)
            if not _has_zone(event["timestamp"]):
                flags["no_zone"] = None
        action, observation = event.get("action"), event.get("observation")
        if isinstance(action, str):
            args = event.get("args")
            args = args if isinstance(args, dict) else {}
            if action == "system":
                tools = args.get("tools")
                for definition in tools if isinstance(tools, list) else ():
                    tool = tool_of(definition)
                    if tool is not None:
                        yield tool
            if action == "message" and event.get("source") == "user":
                record.request = record.request or text_of(args.get("content")) or ""
            if opening is None and at is not None:
                opening = fingerprint(event["timestamp"], action, args.get("content"))
            call = _action(event, action, args, turns)
            number = _number(event.get("id"))
            if number is not None:
                calls[number] = call
            if call is not None:
                call.started_at = at
                record.calls.append(call)
                if call.call_id is not None:
                    by_call_id[call.call_id] = call
            elif action not in _QUIET_V0 and action not in _ACTIONS:
                yield Ignored(f"action {action}")
        elif isinstance(observation, str):
            _observe(event, observation, at, calls, by_call_id, record)
        else:
            yield Ignored("event that is neither action nor observation")
    if record.native_id is None and opening is not None:
        # A file that is written anew as the run goes on is the same run.
        record.native_id = f"opening {opening}"
    record.flags = tuple(flags)
    yield record


def _in_order(events: list[Any]) -> list[dict[str, Any]]:
    """V0 events by their number, each once; as they stand where numbers repeat or lack."""
    known = {
        (_number(event.get("id")), fingerprint(event)): event
        for event in events
        if isinstance(event, dict)
    }
    numbers = {number for number, _ in known if number is not None}
    if len(numbers) == len(known):
        return sorted(known.values(), key=lambda event: int(event["id"]))
    return [event for event in events if isinstance(event, dict)]


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _action(
    event: dict[str, Any], action: str, args: dict[str, Any], turns: dict[Any, int]
) -> Call | None:
    told = event.get("tool_call_metadata")
    if not isinstance(told, dict) or not isinstance(told.get("function_name"), str):
        if action not in _ACTIONS or event.get("source") != "agent":
            return None
        arguments = {key: value for key, value in args.items() if key != "thought"}
        return Call(action, turns.setdefault(("event", len(turns)), len(turns)), arguments)
    call_id = told.get("tool_call_id")
    response = told.get("model_response")
    response = response if isinstance(response, dict) else {}
    answer_id = _str(response.get("id")) or ("event", len(turns))
    arguments = _arguments_in(response, call_id)
    if arguments is None:
        arguments = {key: value for key, value in args.items() if key != "thought"}
    return Call(
        name=told["function_name"],
        turn=turns.setdefault(answer_id, len(turns)),
        arguments=arguments,
        call_id=None if call_id is None else str(call_id),
    )


def _arguments_in(response: dict[str, Any], call_id: Any) -> Any:
    """The arguments of a call as the model sent them."""
    choices = response.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        message = choice.get("message") if isinstance(choice, dict) else None
        sent = message.get("tool_calls") if isinstance(message, dict) else None
        for call in sent if isinstance(sent, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and call.get("id") == call_id:
                return function.get("arguments")
    return None


def _observe(
    event: dict[str, Any],
    observation: str,
    at: int | None,
    calls: dict[int, Call | None],
    by_call_id: dict[str, Call],
    record: TrajectoryRecord,
) -> None:
    cause = _number(event.get("cause"))
    call = None if cause is None else calls.get(cause)
    told = event.get("tool_call_metadata")
    if call is None and isinstance(told, dict):
        call = by_call_id.get(str(told.get("tool_call_id")))
    text = text_of(event.get("content"))
    if call is None:
        # What a user ran by hand is known, and is no call of the agent.
        if observation not in _NO_RESULTS and cause is not None and cause not in calls:
            record.orphans.append(text or "")
        return
    if observation == "agent_state_changed":
        return
    if call.status != "no_result":  # a second observation of one action
        if call.result == text:
            record.duplicates += 1
        else:
            record.orphans.append(text or "")
        return
    extras = event.get("extras")
    extras = extras if isinstance(extras, dict) else {}
    rejected = observation == "user_rejected"
    failed = (
        observation == "error"
        or rejected
        or event.get("success") is False
        or extras.get("error") is True
        or is_failure(text)
    )
    answer(call, text or "", failed=failed)
    call.ended_at = at
    flags = dict.fromkeys(call.flags)
    if rejected:
        flags["rejected"] = None
    if at is not None and call.started_at is not None and at < call.started_at:
        flags["clock_skew"] = None
    call.flags = tuple(flags)


def _has_zone(text: Any) -> bool:
    tail = str(text).strip()[10:]
    return tail.endswith(("Z", "z")) or "+" in tail or "-" in tail


# --- V1 -------------------------------------------------------------------------------------------


def is_v1_event(value: Any) -> bool:
    """A V1 event of any kind, known or not."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("id"), str)
        and isinstance(value.get("source"), str)
        and value["source"] in _SOURCES
        and "timestamp" in value
    )


def read_v1_events(item: Item) -> Iterator[Record]:
    """The V1 events of one file."""
    told: Gathered = item.value
    yield from _read_v1(told.values, told.conversation)


def _read_v1(values: list[Any], name: str | None) -> Iterator[Record]:
    events: list[dict[str, Any]] = []
    found: list[str] = []
    for value in values:
        if not is_v1_event(value):
            yield Ignored("event without id, kind and source")
            continue
        own = _conversation_in(value)
        if own is not None:
            found.append(own)
        kind = value["kind"]
        if kind == "SystemPromptEvent":
            tools = value.get("tools")
            for definition in tools if isinstance(tools, list) else ():
                tool = tool_of(_named(definition))
                if tool is not None:
                    yield tool
        event = _v1_event(value)
        if event is not None:
            events.append(event)
        elif kind not in _QUIET_V1 and kind != "SystemPromptEvent":
            yield Ignored(f"event of kind {kind}")
    if not events:
        yield Ignored("events without an action or observation")
        return
    if name is None and len(values) == 1:
        name = f"action {events[0].get('action') or events[0]['id']}"
    elif name is None and found:
        name = min(found)
    elif name is None:
        first = min(events, key=lambda event: (event["at"] or 0, event["id"]))
        name = f"opening {first['id']}"
    yield Fragment(name, events)


def _named(definition: Any) -> Any:
    """A tool that is dumped as an object of its class is named after it."""
    if not isinstance(definition, dict) or "function" in definition or "name" in definition:
        return definition
    kind = definition.get("kind")
    if not isinstance(kind, str) or not kind.endswith("Tool"):
        return definition
    return {**definition, "name": _INNER_CAPITAL.sub("_", kind.removesuffix("Tool")).lower()}


def _conversation_in(value: dict[str, Any]) -> str | None:
    """The conversation that an event tells in passing."""
    for key in ("conversation_id", "session_id"):
        if isinstance(value.get(key), str):
            return str(value[key])
    state = value.get("value")
    if value.get("key") == "full_state" and isinstance(state, dict):
        return str(state["id"]) if isinstance(state.get("id"), str) else None
    observation = value.get("observation")
    kept = observation.get("full_output_save_dir") if isinstance(observation, dict) else None
    if isinstance(kept, str) and "/conversations/" in kept:
        return kept.partition("/conversations/")[2].split("/")[0] or None
    return None


def _v1_event(value: dict[str, Any]) -> dict[str, Any] | None:
    kind = value["kind"]
    event: dict[str, Any] = {
        "id": f"{value['id']}:{fingerprint(kind, value.get('action_id'))}",
        "at": iso_nanoseconds(value.get("timestamp")),
        "zone": _has_zone(value.get("timestamp")),
    }
    call_id = value.get("tool_call_id")
    if kind == "MessageEvent" and value.get("source") == "user":
        message = value.get("llm_message")
        text = text_of(message.get("content")) if isinstance(message, dict) else None
        return {**event, "asked": text} if text else None
    if kind == "ActionEvent" and isinstance(value.get("tool_name"), str):
        sent = value.get("tool_call")
        event.update(
            call=value["tool_name"],
            action=value["id"],
            call_id=None if call_id is None else str(call_id),
            turn=_str(value.get("llm_response_id")) or value["id"],
            executed=value.get("action") is not None,
        )
        if isinstance(sent, dict) and "arguments" in sent:
            event["arguments"] = sent["arguments"]
        elif isinstance(value.get("action"), dict):
            action = value["action"]
            event["arguments"] = {key: action[key] for key in action if key != "kind"}
        event["id"] += fingerprint(call_id, value["tool_name"], event.get("arguments"))
        return event
    if kind == "ObservationEvent" or "observation" in value:
        observation = value.get("observation")
        fields = observation if isinstance(observation, dict) else {"content": observation}
        text = text_of(fields.get("content", fields.get("output")))
        if text is None:
            rest = {key: fields[key] for key in fields if key not in ("kind", "is_error")}
            text = text_of(rest)
        failed = fields.get("is_error") is True or is_failure(text)
        return _v1_result(event, value, text, failed)
    if kind == "UserRejectObservation":
        result = _v1_result(event, value, text_of(value.get("rejection_reason")), True)
        return {**result, "flags": ["rejected"]}
    if kind == "AgentErrorEvent":
        return _v1_result(event, value, text_of(value.get("error")), True)
    return None


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _v1_result(
    event: dict[str, Any], value: dict[str, Any], text: str | None, failed: bool
) -> dict[str, Any]:
    call_id = value.get("tool_call_id")
    event.update(
        action=_str(value.get("action_id")),
        answers=None if call_id is None else str(call_id),
        result=text or "",
        failed=failed,
    )
    event["id"] += fingerprint(call_id, text)
    if failed:
        event["error"] = shown(text)
    return event


def assemble(conversation: str, events: list[dict[str, Any]]) -> Iterator[Record]:
    """The trajectory of a V1 conversation."""
    told = sorted(unified(events).values(), key=lambda e: (e["at"] or 0, "call" not in e, e["id"]))
    record = TrajectoryRecord("", [], native_id=conversation, conversation=conversation)
    by_action: dict[str, Call] = {}
    by_call_id: dict[str, list[Call]] = {}
    turns: dict[str, int] = {}
    for event in told:
        if event["at"] is not None:
            record.started_at = record.started_at or moment_of(event["at"])
            if not event["zone"]:
                record.flags = ("no_zone",)
        if "asked" in event:
            record.request = record.request or event["asked"]
        elif "call" in event:
            call = Call(
                name=event["call"],
                turn=turns.setdefault(event["turn"], len(turns)),
                arguments=event.get("arguments", UNRECORDED),
                call_id=event["call_id"],
                started_at=event["at"],
                uid=fingerprint("openhands", event["id"]),
                flags=() if event["executed"] else ("not_executed",),
            )
            record.calls.append(call)
            by_action.setdefault(event["action"], call)
            if call.call_id is not None:
                by_call_id.setdefault(call.call_id, []).append(call)
    for event in told:
        if "result" in event:
            _answer_v1(event, by_action, by_call_id, record)
    if not (record.calls or record.orphans or record.request):
        yield Ignored("OpenHands events without a call or request")
        return
    if conversation.startswith("action "):
        record.conversation = None
    yield record


def _answer_v1(
    event: dict[str, Any],
    by_action: dict[str, Call],
    by_call_id: dict[str, list[Call]],
    record: TrajectoryRecord,
) -> None:
    call = by_action.get(event["action"] or "")
    if call is None and event["action"] is None:  # an error names the call only
        waiting = [c for c in by_call_id.get(event["answers"] or "", []) if c.status == "no_result"]
        before = [c for c in waiting if (c.started_at or 0) <= (event["at"] or 0)]
        call = before[-1] if before else waiting[0] if waiting else None
    if call is None:
        record.orphans.append(orphan(event["result"]))
        return
    if call.status != "no_result":
        if call.result == event["result"]:
            record.duplicates += 1
        else:
            call.attempts += 1
        return
    answer(call, event["result"], failed=event["failed"], error=event.get("error"))
    call.ended_at = event["at"]
    flags = dict.fromkeys((*call.flags, *event.get("flags", ())))
    if call.started_at is not None and event["at"] is not None and event["at"] < call.started_at:
        flags["clock_skew"] = None
    call.flags = tuple(flags)
