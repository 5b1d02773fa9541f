"""Claude Code session files: one line an entry, a tree by ``parentUuid``, results in user lines.

A session's lines may stand in several files (resumed, sub-agents of their own), so they are read
as fragments under the ``sessionId``. The line's uuid is not trusted to be unique: a line is known
by its uuid and content. A resumed session repeats earlier lines under a new session id; their
calls carry the same ``uid`` (API message, call id, content) and so count once.

A sub-agent (``isSidechain``, ``agentId``) is a trajectory of its own, and so is each further
continuation where the user went back: its id is ``session#uuid`` of its first line.

What the client prints as a stream has neither tree nor times: each line follows the one before it.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from warehouse.readers.clock import iso_nanoseconds, moment_of
from warehouse.readers.evidence import fingerprint, is_failure, shown, text_of, unified
from warehouse.readers.forks import Branch, Event, branches_of
from warehouse.readers.stream import Item
from warehouse.records import (
    Fragment,
    Gathered,
    Ignored,
    Record,
    Rejected,
    TrajectoryRecord,
    server_tool,
)

_FOREIGN = ("traceId", "trace_id", "observations", "spans", "messages", "role")
_QUIET = {
    "text",
    "thinking",
    "redacted_thinking",
    "image",
    "document",
    "search_result",
    "container_upload",
}
_CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}
_STREAMED = ("system", "result", "stream_event", "rate_limit_event", "tool_progress")
_NOT_ASKED = (
    "<command-",
    "<local-command-",
    "<bash-",
    "<system-reminder>",
    "<user-memory-input>",
    "<task-notification>",
    "<ide_",
    "Caveat: The messages below were generated",
    "[Request interrupted",
)
"""How texts begin that stand in user lines but were not typed as a request."""


def is_line(value: Any) -> bool:
    """A line of a session file, whatever its type."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if any(key in value for key in _FOREIGN):
        return False
    kind = value["type"]
    if kind in ("user", "assistant"):
        return "message" in value and ("sessionId" in value or "parentUuid" in value)
    if kind == "summary":
        return "leafUuid" in value
    if kind == "file-history-snapshot":
        return "snapshot" in value
    return isinstance(value.get("sessionId"), str) and kind[:1].islower()


def read_line(item: Item) -> Iterator[Record]:
    """The events of one line: itself, its calls, its results."""
    line = item.value
    kind, session = line["type"], line.get("sessionId")
    if kind not in ("user", "assistant"):
        if isinstance(session, str) and isinstance(line.get("uuid"), str):
            # Others hang below it in the tree.
            yield Fragment(session, [_message(line, "other", fingerprint(kind))])
        yield Ignored(f"{kind} line")
        return
    if not isinstance(session, str) or not session:
        yield Rejected(item.place, f"expected a sessionId, got {session!r}", item.raw)
        return
    yield from _read_entry(item, line, session)


def _read_entry(item: Item, line: dict[str, Any], session: str) -> Iterator[Record]:
    message = line["message"]
    content = message.get("content") if isinstance(message, dict) else None
    reason = _why_broken(message, content)
    if reason:
        if isinstance(line.get("uuid"), str):
            yield Fragment(session, [_message(line, "other", fingerprint(line["type"]))])
        yield Rejected(item.place, reason, item.raw)
        return
    yield from _read_content(line, message, content, session)


def is_streamed(value: Any) -> bool:
    """A line that the client prints with ``--output-format stream-json``, or an SDK hands over."""
    if not isinstance(value, dict) or not isinstance(value.get("session_id"), str):
        return False
    if value.get("type") in ("user", "assistant"):
        return "parent_tool_use_id" in value and "message" in value
    return value.get("type") in _STREAMED and ("uuid" in value or "subtype" in value)


def read_streamed(item: Item) -> Iterator[Record]:
    """The lines of one stream, whose order alone tells what follows what."""
    told: Gathered = item.value
    latest: dict[str | None, str] = {}
    for number, value in enumerate(told.values):
        if value["type"] not in ("user", "assistant"):
            yield Ignored(f"{value['type']} line")
            continue
        agent, uuid = value["parent_tool_use_id"], value.get("uuid") or f"line {number}"
        line = {**value, "uuid": uuid, "agentId": agent, "parentUuid": latest.get(agent)}
        latest[agent] = uuid
        yield from _read_entry(item, line, value["session_id"])


def _why_broken(message: Any, content: Any) -> str | None:
    if not isinstance(message, dict):
        return f"expected message to be an object, got {type(message).__name__}"
    if not isinstance(content, (str, list)):
        return f"expected message.content, got the keys {', '.join(sorted(map(str, message))[:8])}"
    if isinstance(content, list) and content and not any(isinstance(b, dict) for b in content):
        return f"expected content blocks to be objects, got {type(content[0]).__name__}"
    return None


def _read_content(
    line: dict[str, Any], message: dict[str, Any], content: Any, session: str
) -> Iterator[Record]:
    kind = line["type"]
    event = _message(line, "", fingerprint(kind, content))
    reply = message.get("id")
    events = [event]
    texts = [content] if isinstance(content, str) else []
    results = 0
    for n, block in enumerate(content if isinstance(content, list) else ()):
        what = str(block.get("type")) if isinstance(block, dict) else ""
        if what == "text" and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif what in _CALLS and isinstance(block.get("name"), str):
            events.append(_call(event, n, block, reply or line.get("uuid")))
        elif what.endswith("tool_result") and "tool_use_id" in block:
            results += 1
            events.append(_result(event, n, block, line.get("toolUseResult")))
        elif what not in _QUIET:
            yield Ignored(f"content block of type {what[:40] or type(block).__name__}")
    if kind == "assistant":
        event["message"] = "reply"
        request = line.get("requestId")
        event["reply"] = fingerprint(reply, request) if reply or request else None
        event["model"] = message.get("model")
    else:
        event["message"] = "result" if results else "prompt"
        texts = [text.strip() for text in texts]
        asked = [text for text in texts if text and not text.startswith(_NOT_ASKED)]
        commands = [text for text in texts if text.startswith("<command-")]
        if not (line.get("isMeta") or line.get("isCompactSummary")):
            if asked:
                event["text"] = "\n".join(asked)
            elif commands:
                event["command"] = "\n".join(commands)
    yield Fragment(session, events)


def _message(line: dict[str, Any], message: str, content: str) -> Event:
    uuid, at = line.get("uuid"), iso_nanoseconds(line.get("timestamp"))
    parent = line.get("parentUuid") or line.get("logicalParentUuid")
    agent = line.get("agentId")
    if not isinstance(uuid, str):
        uuid = fingerprint("no uuid", line.get("timestamp"), parent)
    return {
        "id": f"{uuid}:{content}",
        "message": message,
        "uuid": uuid,
        "parent": parent if isinstance(parent, str) else None,
        "at": at,
        "side": line.get("isSidechain") is True or isinstance(agent, str),
        "agent": agent if isinstance(agent, str) else None,
        "version": line.get("version"),
    }


def _call(message: Event, n: int, block: dict[str, Any], reply: Any) -> Event:
    server = block.get("server_name")
    call_id = block.get("id")
    same = fingerprint(call_id, block["name"], block.get("input"))
    event = {
        "id": f"{message['id']}/{n}",
        "of": message["id"],
        "n": n,
        "call": server_tool(server if isinstance(server, str) else None, block["name"]),
        "call_id": None if call_id is None else str(call_id),
        "same": same,
        "uid": fingerprint("claude_code", reply, same),
    }
    if "input" in block:
        event["arguments"] = block["input"]
    return event


def _result(message: Event, n: int, block: dict[str, Any], told: Any) -> Event:
    content = block.get("content")
    text = text_of(content)
    if not text and told is not None:
        text = text_of(told)
    failed = block.get("is_error") is True or is_failure(text)
    if isinstance(content, dict) and str(content.get("type")).endswith("_error"):
        failed = True  # of a server-side tool
    call_id = block["tool_use_id"]
    event = {
        "id": f"{message['id']}/{n}",
        "of": message["id"],
        "n": n,
        "answers": None if call_id is None else str(call_id),
        "same": fingerprint(call_id, content),
        "result": text or "",
        "failed": failed,
    }
    if failed:
        event["error"] = shown(text)
    if isinstance(told, dict):
        if told.get("interrupted") is True and not failed:
            event["cut"], event["flags"] = True, ["interrupted"]
        if isinstance(told.get("agentId"), str):
            event["agent"] = told["agentId"]
    return event


# --- sessions -------------------------------------------------------------------------------------


def assemble(conversation: str, events: list[Event]) -> Iterator[Record]:
    """The trajectories of a session: its trunk, its branches, its sub-agents."""
    known = unified(events)
    messages = [event for event in known.values() if "message" in event]
    parts = [event for event in known.values() if "message" not in event]
    linked = _linked(messages)
    side = _sidechains(linked)
    groups: dict[str | None, list[Event]] = {}
    for event in linked:
        groups.setdefault(side.get(event["id"]), []).append(event)
    called = {p["agent"]: p["answers"] for p in sorted(parts, key=_id) if p.get("agent")}
    taken: set[str] = set()
    for agent, members in sorted(groups.items(), key=lambda group: group[0] or ""):
        name = conversation if agent is None else f"{conversation}/{agent}"
        meta: dict[str, Any] = {}
        if agent is not None:
            meta = {"sidechain": True, "parent_session": conversation}
            if agent in called:
                meta["parent_call"] = called[agent]
        mine = {event["id"] for event in members}
        branches = branches_of(members, [part for part in parts if part["of"] in mine])
        yield from _records(conversation, name, branches, meta, taken)


def _id(event: Event) -> str:
    return str(event["id"])


def _order(event: Event) -> tuple[int, str]:
    return event["at"] or 0, event["id"]


def _linked(messages: list[Event]) -> list[Event]:
    """Messages whose ``parent`` is the id of an event: of several with its uuid the latest."""
    by_uuid: dict[str, list[Event]] = {}
    for event in sorted(messages, key=_order):
        by_uuid.setdefault(event["uuid"], []).append(event)
    linked = []
    for event in messages:
        parent = None
        candidates = by_uuid.get(event["parent"] or "", [])
        if candidates:
            earlier = bisect_left(candidates, _order(event), key=_order)
            parent = candidates[max(0, earlier - 1)]
        linked.append(
            {
                **event,
                "parent": None if parent is None else parent["id"],
                "rank": None if event["at"] is None else [event["at"]],
                "origin": event["uuid"],
            }
        )
    return linked


def _sidechains(messages: list[Event]) -> dict[str, str]:
    """Which sub-agent each message of one belongs to: its agentId, else its first line's uuid."""
    by_id = {event["id"]: event for event in messages if event["side"] and not event["agent"]}
    groups = {event["id"]: event["agent"] for event in messages if event["agent"]}
    root_of: dict[str, str] = {}
    roots: dict[str, list[Event]] = {}
    for event in sorted(by_id.values(), key=_order):
        path: dict[str, None] = {}
        at = event["id"]
        while at not in root_of and at not in path:
            path[at] = None
            parent = by_id[at]["parent"]
            if parent not in by_id:
                root_of[at] = at
            else:
                at = parent
        if at not in root_of:  # a circle: it begins with its earliest line
            root_of[at] = min(path, key=lambda one: _order(by_id[one]))
        for one in path:
            root_of[one] = root_of[at]
        roots.setdefault(root_of[at], []).append(event)
    # Without a tree every line is a root: it goes on with the prompt before it.
    current: str | None = None
    for root in sorted((by_id[one] for one in roots), key=_order):
        if root["message"] == "prompt" or root["parent"] is not None or current is None:
            current = root["uuid"]
        for event in roots[root["id"]]:
            groups[event["id"]] = current
    return groups


def _records(
    conversation: str,
    name: str,
    branches: list[Branch],
    meta: dict[str, Any],
    taken: set[str],
) -> Iterator[Record]:
    told_request = ""
    for branch in branches:
        is_trunk = branch.parent is None
        request = _first(branch.messages, "text") or _first(branch.messages, "command") or ""
        if is_trunk:
            told_request = request
        asked = any(event["message"] != "other" for event in branch.messages)
        if not (branch.calls or branch.orphans) and not (is_trunk and asked and not meta):
            continue
        native_id = name if is_trunk else f"{name}#{branch.start['uuid']}"
        if native_id in taken:  # a uuid that several lines share
            native_id = f"{native_id}~{fingerprint(branch.start['id'])[:8]}"
        taken.add(native_id)
        more = dict(meta)
        for key in ("model", "version"):
            value = _first(branch.messages, key)
            if value is not None:
                more[key] = value
        if not is_trunk:
            more["branch"] = True
        started = [event["at"] for event in branch.messages if event["at"] is not None]
        yield TrajectoryRecord(
            request=request or told_request,
            calls=branch.calls,
            native_id=native_id,
            started_at=moment_of(min(started, default=None)),
            meta=more,
            orphans=branch.orphans,
            duplicates=branch.duplicates,
            conversation=conversation,
        )


def _first(messages: list[Event], key: str) -> Any:
    return next((event[key] for event in messages if event.get(key)), None)
