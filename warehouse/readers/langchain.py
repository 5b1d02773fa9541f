"""LangChain messages in their three dumps, alone, in lists, or in LangGraph states and checkpoints.

A list with a thread id is told in fragments: every snapshot of a thread repeats its messages, so
they are joined by message id (without one, by content and occurrence), and a thread is one
trajectory however often, in whatever order and in how many files its snapshots come. Where two
snapshots go different ways after a common message, the later way is a branch of its own.

A record that holds several message lists side by side (such as one list dumped in three ways) tells
one conversation if all of them come to the same calls, results and request: the copies are counted
as duplicates. Lists that differ are conversations of their own. What a dump leaves out (a default
status) makes no difference, because lists are compared after reading.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from warehouse.readers.clock import iso_nanoseconds
from warehouse.readers.evidence import fingerprint, is_failure, shown, text_of, unified
from warehouse.readers.forks import Event, branches_of
from warehouse.readers.normalised import as_text
from warehouse.readers.stream import Item
from warehouse.records import Fragment, Gathered, Ignored, Record, Rejected, TrajectoryRecord

_KINDS = {
    "human": "human",
    "ai": "ai",
    "system": "other",
    "developer": "other",
    "chat": "other",
    "generic": "other",
    "remove": "other",
    "tool": "tool",
    "function": "tool",
}
_SINGLE = ("additional_kwargs", "response_metadata", "tool_calls", "tool_call_id", "example")
"""Keys that a flat message has beside type and content, when it stands alone."""
_PROBED = 4
_UNIQUE = 32
"""Characters of a message id from which on it is taken for one that is unique in the world."""
_CHANNELS = ("values", "channel_values")


def _unwrapped(message: Any) -> tuple[str, dict[str, Any]] | None:
    """(kind, fields) of a message in any dump; None for anything else."""
    if not isinstance(message, dict):
        return None
    kind = message.get("type")
    if kind == "constructor":
        path = message.get("id")
        fields = message.get("kwargs")
        if not (isinstance(path, list) and path and isinstance(fields, dict)):
            return None
        name = str(path[-1])
        if not name.endswith(("Message", "MessageChunk")):
            return None
        return _kind_of(name), fields
    if not isinstance(kind, str) or "role" in message or "sessionId" in message:
        return None
    data = message.get("data")
    if isinstance(data, dict) and "content" not in message:
        return (_kind_of(kind), data) if _is_known(kind) and "content" in data else None
    return (_kind_of(kind), message) if _is_known(kind) and "content" in message else None


def _is_known(kind: str) -> bool:
    return kind in _KINDS or kind.endswith("MessageChunk")


def _kind_of(name: str) -> str:
    name = name.removesuffix("Chunk").removesuffix("Message").lower()
    return _KINDS.get(name, "other")


def _is_messages(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    found = (_unwrapped(message) for message in value[:_PROBED])
    return any(one is not None and one[0] != "tool" for one in found)


def is_message(value: Any) -> bool:
    """A single message: the file, or the thread that it names, is one conversation."""
    if _unwrapped(value) is None:
        return False
    return value["type"] == "constructor" or "data" in value or any(k in value for k in _SINGLE)


def is_conversation(value: Any) -> bool:
    """A message list, a wrapper of one or several, a state snapshot or a checkpoint."""
    return next(_lists(value), None) is not None


def _lists(value: Any) -> Iterator[tuple[str, list[Any]]]:
    """(where it stands, messages) of every message list in a record."""
    if isinstance(value, list):
        if _is_messages(value):
            yield "messages", value
            return
        if 2 <= len(value) <= 5 and all(isinstance(one, (dict, type(None))) for one in value):
            for part in value[:2]:  # a checkpoint tuple: config, checkpoint, metadata, ...
                if isinstance(part, dict) and isinstance(part.get("channel_values"), dict):
                    yield from _lists(part)
        return
    if not isinstance(value, dict):
        return
    if _is_messages(value.get("messages")):
        yield "messages", value["messages"]
        return
    for key in _CHANNELS:
        if isinstance(value.get(key), dict):
            yield from _lists(value[key])
            return
    if isinstance(value.get("checkpoint"), dict):
        yield from _lists(value["checkpoint"])
        return
    if "id" not in value and "trace_id" not in value and "type" not in value:
        for key, inner in value.items():
            if _is_messages(inner):
                yield key, inner


def read_conversation(item: Item) -> Iterator[Record]:
    """The conversation of a record, as fragment where it names its thread."""
    value = item.value
    thread, at = _thread(value), _time(value)
    told: list[tuple[str, list[Event]]] = []
    for name, messages in _lists(value):
        events, ignored = _events(messages, at)
        yield from ignored
        told.append((name, events))
    if thread is not None:
        for _, events in told:
            yield Fragment(thread, events)
        return
    records = [(name, next(_trajectories(None, events), None)) for name, events in told]
    kept: list[tuple[str, TrajectoryRecord]] = []
    for name, record in records:
        if record is None:
            continue
        same = next((one for _, one in kept if _told(one) == _told(record)), None)
        if same is None:
            kept.append((name, record))
        else:
            same.duplicates += len(record.calls)
    if not kept:
        yield Rejected(item.place, "expected LangChain messages, got none", item.raw)
    given = value.get("id") if isinstance(value, dict) else None
    if isinstance(value, dict) and any(key in value for key in _CHANNELS):
        given = None  # a snapshot's own id, another at each step
    for name, record in kept:
        if isinstance(given, (str, int)):
            record.native_id = str(given) if len(kept) == 1 else f"{given}/{name}"
        yield record


def _told(record: TrajectoryRecord) -> tuple[Any, ...]:
    calls = [(c.name, c.turn, c.arguments, c.result, c.status, c.call_id) for c in record.calls]
    return record.request, calls, record.orphans


def read_messages(item: Item) -> Iterator[Record]:
    """Single messages of one file that make a conversation."""
    told: Gathered = item.value
    events, ignored = _events(told.values, None)
    yield from ignored
    if told.conversation is not None:
        yield Fragment(told.conversation, events)
    else:
        yield from _trajectories(None, events)


def _thread(value: Any) -> str | None:
    """The thread that a record names: ``configurable.thread_id``, or its own."""
    if isinstance(value, list):
        return next((t for t in map(_thread, value[:3]) if t is not None), None)
    if not isinstance(value, dict):
        return None
    thread = space = None
    for place in (*map(value.get, ("config", "checkpoint", "metadata")), value):
        if not isinstance(place, dict):
            continue
        for one in (place.get("configurable"), place):
            if isinstance(one, dict):
                thread = thread or one.get("thread_id") or one.get("conversation_id")
                space = space or one.get("checkpoint_ns")
    thread = thread or value.get("session_id")
    if not isinstance(thread, (str, int)):
        return None
    # A sub-graph has messages of its own under the thread of its parent.
    return f"{thread}/{space}" if isinstance(space, str) and space else str(thread)


def _time(value: Any) -> int | None:
    """When a snapshot was taken."""
    if isinstance(value, list):
        return next((t for t in map(_time, value[:3]) if t is not None), None)
    if not isinstance(value, dict):
        return None
    inner = value.get("checkpoint")
    text = value.get("created_at") or value.get("ts")
    if text is None and isinstance(inner, dict):
        text = inner.get("ts")
    return iso_nanoseconds(text)


# --- messages to events ---------------------------------------------------------------------------


def _events(messages: list[Any], at: int | None) -> tuple[list[Event], list[Ignored]]:
    events: list[Event] = []
    ignored: list[Ignored] = []
    seen: dict[str, int] = {}
    previous: str | None = None
    whole: list[tuple[str, dict[str, Any]]] = []
    for message in messages:
        found = _unwrapped(message)
        if found is None:
            what = message.get("type") if isinstance(message, dict) else type(message).__name__
            ignored.append(Ignored(f"message of type {what}"))
        else:
            whole.append(found)
    for position, (kind, fields) in enumerate(_glued(whole)):
        key = _key(kind, fields)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            key = f"{key}*{seen[key]}"
        parts = list(_parts(key, kind, fields))
        events.append(
            {
                "id": key,
                "message": {"human": "prompt", "ai": "reply", "tool": "result"}.get(kind, kind),
                "origin": fields["id"] if isinstance(fields.get("id"), str) else None,
                "text": (text_of(fields.get("content")) or None) if kind == "human" else None,
            }
        )
        seat = {"id": f"{key}@{position}<{previous or ''}", "seat": key, "pos": position}
        events.append({**seat, "before": previous})
        events += parts
        previous = key
    if previous is not None and at is not None:
        events.append({"id": f"{previous}@@{at}", "seen": previous, "at": at})
    return events, ignored


def _glued(messages: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Messages whose streamed chunks, told one by one, are put together again."""
    at = 0
    while at < len(messages):
        kind, fields = messages[at]
        end = at + 1
        if kind == "ai" and "tool_call_chunks" in fields and fields.get("id") is not None:
            while end < len(messages) and _goes_on(messages[end], fields["id"]):
                end += 1
        chunks = [message[1] for message in messages[at:end]]
        yield kind, fields if len(chunks) == 1 else _whole(chunks)
        at = end


def _goes_on(message: tuple[str, dict[str, Any]], message_id: Any) -> bool:
    kind, fields = message
    return kind == "ai" and fields.get("id") == message_id and "tool_call_chunks" in fields


def _whole(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    calls: dict[Any, dict[str, Any]] = {}
    for chunk in chunks:
        for piece in _dicts(chunk.get("tool_call_chunks")):
            call = calls.setdefault(piece.get("index"), {"name": None, "id": None, "args": ""})
            call["name"] = call["name"] or piece.get("name")
            call["id"] = call["id"] or piece.get("id")
            call["args"] += piece.get("args") or ""
    content = "".join(text_of(chunk.get("content")) or "" for chunk in chunks)
    return {"id": chunks[0]["id"], "content": content, "tool_calls": list(calls.values())}


def _key(kind: str, fields: dict[str, Any]) -> str:
    """What a message is known by. A message may grow under one id (streamed, retried)."""
    own = fields.get("id")
    shape = [
        kind,
        fields.get("content"),
        fields.get("tool_call_id"),
        fields.get("tool_calls") or None,
        fields.get("invalid_tool_calls") or None,
    ]
    return f"{own if isinstance(own, str) else ''}:{fingerprint(shape)}"


def _parts(key: str, kind: str, fields: dict[str, Any]) -> Iterator[Event]:
    if kind == "tool":
        yield _result(key, fields)
    if kind != "ai":
        return
    for n, (name, arguments, call_id, error) in enumerate(_sent(fields)):
        event: Event = {
            "id": f"{key}/{n}",
            "of": key,
            "n": n,
            "call": name,
            "call_id": None if call_id is None else str(call_id),
            "arguments": arguments,
            "same": fingerprint(name, arguments, call_id),
        }
        own = fields.get("id")
        if isinstance(own, str) and len(own) >= _UNIQUE:
            event["uid"] = fingerprint("langchain", own, event["same"])
        if error is not None:
            event["error"] = shown(error)
        yield event


def _sent(fields: dict[str, Any]) -> list[tuple[str, Any, Any, Any]]:
    """(tool, arguments, id, error) of each call of an AI message.

    Calls stand in ``tool_calls`` and ``invalid_tool_calls``; what the provider sent, in
    ``additional_kwargs`` or content blocks, tells the same again and counts where nothing else is.
    """
    sent: list[tuple[str, Any, Any, Any]] = []
    for call in _dicts(fields.get("tool_calls")):
        if isinstance(call.get("name"), str):
            sent.append((call["name"], call.get("args"), call.get("id"), None))
    for call in _dicts(fields.get("invalid_tool_calls")):
        if isinstance(call.get("name"), str):
            sent.append((call["name"], call.get("args"), call.get("id"), call.get("error")))
    if sent:
        return sent
    extra = fields.get("additional_kwargs")
    for call in _dicts(extra.get("tool_calls") if isinstance(extra, dict) else None):
        function = call.get("function")
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            sent.append((function["name"], function.get("arguments"), call.get("id"), None))
    for block in () if sent else _dicts(fields.get("content")):
        if block.get("type") in ("tool_use", "tool_call") and isinstance(block.get("name"), str):
            arguments = block.get("input", block.get("args"))
            sent.append((block["name"], arguments, block.get("id"), None))
    old = extra.get("function_call") if isinstance(extra, dict) and not sent else None
    if isinstance(old, dict) and isinstance(old.get("name"), str):
        sent.append((old["name"], old.get("arguments"), None, None))
    return sent


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _result(key: str, fields: dict[str, Any]) -> Event:
    text = text_of(fields.get("content"))
    if not text and fields.get("artifact") is not None:
        text = as_text(fields["artifact"])
    failed = fields.get("status") == "error" or is_failure(text)
    call_id = fields.get("tool_call_id")
    event: Event = {
        "id": f"{key}/0",
        "of": key,
        "n": 0,
        "answers": None if call_id is None else str(call_id),
        "name": fields.get("name"),
        "same": fingerprint(text, call_id, fields.get("id")),
        "result": text or "",
        "failed": failed,
    }
    if failed:
        event["error"] = shown(text)
    return event


# --- threads --------------------------------------------------------------------------------------


def assemble(conversation: str, events: list[Event]) -> Iterator[Record]:
    """The trajectories of a thread."""
    yield from _trajectories(conversation, events)


def _trajectories(thread: str | None, events: list[Event]) -> Iterator[TrajectoryRecord]:
    known = unified(events)
    seats: dict[str, Event] = {}
    first_seen: dict[str, int] = {}
    for event in known.values():
        if "seat" in event:
            best = seats.get(event["seat"])
            # Of several places the one with the longest history before it.
            if best is None or (-event["pos"], event["id"]) < (-best["pos"], best["id"]):
                seats[event["seat"]] = event
        elif "seen" in event:
            key = event["seen"]
            first_seen[key] = min(event["at"], first_seen.get(key, event["at"]))
    _carry_up(first_seen, seats)
    gone = _replaced(known.values(), seats, first_seen)
    messages = [
        {
            **event,
            "parent": seats[event["id"]]["before"],
            "rank": [first_seen.get(event["id"], 0), seats[event["id"]]["pos"]],
        }
        for event in known.values()
        if "message" in event and event["id"] not in gone
    ]
    branches = branches_of(
        messages, [e for e in known.values() if "of" in e and e["of"] not in gone]
    )
    request = ""
    for number, branch in enumerate(branches):
        asked = next((e["text"] for e in branch.messages if e.get("text")), "")
        request = request or asked
        if number and not branch.calls:
            continue
        native_id = thread
        if number and thread is not None:
            native_id = f"{thread}#{branch.start['id']}"
        elif thread is None:
            opening = next((e["origin"] for e in branch.messages if e.get("text")), None)
            if opening is not None and len(opening) >= _UNIQUE:
                native_id = f"opening {opening}"
        yield TrajectoryRecord(
            request=asked or request,
            calls=branch.calls,
            native_id=native_id,
            meta={"branch": True} if number else {},
            orphans=branch.orphans,
            duplicates=branch.duplicates,
            conversation=thread,
        )


def _carry_up(first_seen: dict[str, int], seats: dict[str, Event]) -> None:
    """A snapshot was taken after all of its messages, not only after its last one."""
    done: set[str] = set()
    for start, at in sorted(first_seen.items(), key=lambda seen: (seen[1], seen[0])):
        key: str | None = start
        while key is not None and key not in done:
            done.add(key)
            first_seen[key] = at
            key = seats[key]["before"] if key in seats else None


def _replaced(
    events: Iterable[Event], seats: dict[str, Event], first_seen: dict[str, int]
) -> set[str]:
    """Earlier forms of model answers that were replaced under their id, and went no further."""
    forms: dict[str, list[str]] = {}
    for event in events:
        if event.get("origin") is not None and event.get("message") == "reply":
            forms.setdefault(event["origin"], []).append(event["id"])
    followed = {seat["before"] for seat in seats.values()}
    gone: set[str] = set()
    for keys in forms.values():
        keys = [key for key in keys if "*" not in key]
        if len(keys) < 2:
            continue
        kept = followed.intersection(keys) or {max(keys, key=lambda k: (first_seen.get(k, 0), k))}
        gone.update(key for key in keys if key not in kept)
    return gone
