"""MCP traffic: JSON-RPC messages of ``tools/call``, as a log, in pairs, or in batches.

A response belongs to the nearest earlier request with its id that has none, whatever its method,
because each side of a session numbers its own requests and numbers start again. Log lines may wrap
a message with its time, direction, server and session. Messages of a named session that all carry
a time are fragments, so that a log may be cut and rotated; others make the conversation of their
file. Sampling messages (``sampling/createMessage``) are a conversation of their own.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from warehouse.readers.clock import any_nanoseconds, moment_of
from warehouse.readers.evidence import (
    Waiting,
    answer,
    fingerprint,
    is_failure,
    orphan,
    shown,
    text_of,
    tool_of,
    unified,
)
from warehouse.readers.mcp_tools import read_tool_list
from warehouse.readers.normalised import as_text
from warehouse.readers.payloads import decoded
from warehouse.readers.stream import Item
from warehouse.records import (
    UNRECORDED,
    Call,
    Fragment,
    Gathered,
    Ignored,
    Record,
    Rejected,
    TrajectoryRecord,
    server_tool,
)

_WRAPPED = ("message", "payload", "data", "msg", "body", "jsonrpc_message", "frame")
_TIMES = ("timestamp", "time", "ts", "@timestamp", "at")
_SERVERS = ("server", "server_name", "serverName", "mcp_server")
_SESSIONS = ("session_id", "session", "conversation_id", "thread_id", "sessionId", "mcpSessionId")
_ALONE = "expected the tools/call request that this result answers, got the result alone"

Event = dict[str, Any]
_Key = tuple[str | None, str | None]


# --- which records --------------------------------------------------------------------------------


def is_message(value: Any) -> bool:
    """A JSON-RPC message, bare, wrapped, paired or in a batch, that lists no tools."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(v, dict) and _is_rpc(v) for v in value[:3])
    if not isinstance(value, dict):
        return False
    return _is_rpc(value) or _is_lone(value) or any(True for _ in _inside(value))


def _is_rpc(value: dict[str, Any]) -> bool:
    if "jsonrpc" not in value:
        return value.get("method") == "tools/call" and isinstance(value.get("params"), dict)
    result = value.get("result")
    if isinstance(result, dict) and "tools" in result:
        return False
    return isinstance(value.get("method"), str) or "result" in value or "error" in value


def _is_lone(value: dict[str, Any]) -> bool:
    """A result, an error or a content block without its envelope."""
    content = value.get("content")
    if value.get("type") == "tool_result":
        return "toolUseId" in value
    if value.get("type") == "tool_use":
        return value.keys() <= {"type", "id", "name", "input", "_meta"} and "input" in value
    if isinstance(content, list) and "role" not in value and "type" not in value:
        return any(key in value for key in ("isError", "structuredContent", "resultType"))
    return (
        isinstance(value.get("code"), int)
        and -32768 <= value["code"] <= -32000
        and "message" in value
        and value.keys() <= {"code", "message", "data"}
    )


def _inside(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages that a wrapper holds."""
    request, response = _opened(value.get("request")), decoded(value.get("response"))
    if isinstance(request, dict) and _is_rpc(request):
        yield request
        if isinstance(response, dict):
            is_whole = "jsonrpc" in response and _is_rpc(response)
            yield response if is_whole else {"id": request.get("id"), "result": response}
    if request is None and response is None:
        for key in _WRAPPED:
            one = _opened(value.get(key))
            for message in one if isinstance(one, list) else (one,):
                if isinstance(message, dict) and "jsonrpc" in message and _is_rpc(message):
                    yield message


def _opened(message: Any) -> Any:
    """A message that a logger wrote as text."""
    if isinstance(message, str) and message[:1] == "{" and '"method"' in message:
        return decoded(message)
    if isinstance(message, str) and message[:1] in ("{", "[") and '"jsonrpc"' in message:
        return decoded(message)
    return message


def is_catalogue(value: Any) -> bool:
    """A line of a log that holds an answer to ``tools/list``."""
    return isinstance(value, dict) and "jsonrpc" not in value and _listed(value) is not None


def _listed(value: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to ``tools/list`` inside a wrapper."""
    for key in (*_WRAPPED, "response"):
        one = _opened(value.get(key))
        result = one.get("result") if isinstance(one, dict) and "jsonrpc" in one else None
        if isinstance(result, dict) and isinstance(result.get("tools"), list):
            return result
    return None


def read_catalogue(item: Item) -> Iterator[Record]:
    """The tools that a server offers."""
    server = _first_text(item.value, _SERVERS)
    listed = {**(_listed(item.value) or {}), **({"server": server} if server else {})}
    yield from read_tool_list(replace(item, value=listed))


def is_sampling(value: Any) -> bool:
    """Messages that a server asks the client's model to continue, with tool blocks of MCP."""
    params = _sampling(value)
    if params is None:
        return False
    if "maxTokens" in params:
        return True
    blocks = (b for m in params["messages"][:8] if isinstance(m, dict) for b in _blocks(m))
    return any("toolUseId" in block for block in blocks)


def _sampling(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    params = value.get("params") if value.get("method") == "sampling/createMessage" else value
    if not isinstance(params, dict) or not isinstance(params.get("messages"), list):
        return None
    return params if params["messages"] else None


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content]
    return [block for block in blocks if isinstance(block, dict)]


# --- traffic --------------------------------------------------------------------------------------


def read_messages(item: Item) -> Iterator[Record]:
    """The messages of one file and session."""
    told: Gathered = item.value
    sessions: dict[str | None, list[Event]] = {}
    for value in told.values:
        for found in _events(value):
            if isinstance(found, Ignored):
                yield found
            else:
                session = found["session"] or told.conversation
                sessions.setdefault(session, []).append(found)
    for session, events in sessions.items():
        if session is not None and all(event["at"] is not None for event in events):
            yield Fragment(session, events)  # time alone tells their order
        elif any("call" in event for event in events):
            # What is told twice at one moment, word for word, was said once.
            timed = {e["id"] if e["at"] is not None else n: e for n, e in enumerate(events)}
            record = _trajectory(list(timed.values()), session)
            if session is None and events[0]["at"] is not None:
                record.native_id = f"opening {events[0]['id']}"  # of a log that grows
            yield record
        elif any("result" in event for event in events):
            yield Rejected(item.place, _ALONE, item.raw)
        else:
            yield Ignored("MCP messages without a tool call")


def _events(value: Any) -> Iterator[Event | Ignored]:
    if isinstance(value, list):
        batch = fingerprint(value)
        for one in value:
            if isinstance(one, dict) and _is_rpc(one):
                yield _event(one, {}, batch)
            else:
                yield Ignored("part of a batch that is no call")
        return
    if _is_rpc(value):
        yield _event(value, value, None)
        return
    inside = list(_inside(value))
    for message in inside:
        yield _event(message, value, None)
    if not inside:
        yield _lone(value)


def _event(message: dict[str, Any], wrapper: dict[str, Any], batch: str | None) -> Event:
    """What a message says; requests of other methods are kept to take their responses."""
    event: Event = {
        "at": _time(wrapper),
        "session": _first_text(wrapper, _SESSIONS),
        "server": _first_text(wrapper, _SERVERS),
        "rpc": None if message.get("id") is None else fingerprint(message["id"]),
    }
    if batch is not None:
        event["batch"] = batch
    method = message.get("method")
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    if method == "tools/call" and isinstance(params.get("name"), str):
        event["call"] = server_tool(event["server"], params["name"])
        event["call_id"] = None if message.get("id") is None else str(message["id"])
        if "arguments" in params:
            event["arguments"] = params["arguments"]
        else:
            event["arguments"] = {}  # optional, and then none were given
        event["same"] = fingerprint(event["call"], event["arguments"])
    elif method == "notifications/cancelled":
        event["cancels"] = fingerprint(params.get("requestId"))
    elif isinstance(method, str):
        event["request"] = method
    elif message.get("error") is not None:
        error = message["error"]
        told = error.get("message") if isinstance(error, dict) else error
        event.update(result=text_of(told) or "", failed=True, error=shown(text_of(told)))
    else:
        event.update(_result(message.get("result")))
    event["id"] = fingerprint(message, event["at"], event["session"], event["server"], batch)
    return event


def _result(result: Any) -> Event:
    fields = result if isinstance(result, dict) else {"content": result}
    content = fields.get("content")
    text = text_of(content)
    if not content:
        text = as_text(fields.get("structuredContent", fields))
    failed = fields.get("isError") is True or is_failure(text)
    event: Event = {"result": text or "", "failed": failed}
    if failed:
        event["error"] = shown(text)
    kind = fields.get("resultType")
    if isinstance(kind, str) and kind != "complete":
        event["cut"] = True  # the server asks for more before it goes on
    return event


def _lone(value: dict[str, Any]) -> Event | Ignored:
    event: Event = {"id": fingerprint(value), "at": None, "session": None, "server": None}
    event["rpc"] = None
    kind = value.get("type")
    if kind == "tool_use":
        if not isinstance(value.get("name"), str):
            return Ignored("tool_use block without a name")
        call_id = value.get("id")
        event.update(call=value["name"], arguments=value["input"], call_id=str(call_id))
        event["same"] = fingerprint(value["name"], value["input"])
        event["rpc"] = fingerprint("block", call_id)
    elif kind == "tool_result":
        event.update(_result(value))
        event["rpc"] = fingerprint("block", value["toolUseId"])
    elif "code" in value:
        event.update(result=text_of(value["message"]) or "", failed=True)
        event["error"] = shown(event["result"])
    else:
        event.update(_result(value))
    return event


def _first_text(wrapper: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        if isinstance(wrapper.get(key), (str, int)) and wrapper[key] != "":
            return str(wrapper[key])
    return None


def _time(wrapper: dict[str, Any]) -> int | None:
    for key in _TIMES:
        value = wrapper.get(key)
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return any_nanoseconds(value)
    return None


def assemble(conversation: str, events: list[Event]) -> Iterator[Record]:
    """The trajectory of a session."""
    told = sorted(
        unified(events).values(),
        key=lambda event: (event["at"] or 0, "result" in event, event["id"]),
    )
    record = _trajectory(told, conversation)
    if record.calls or record.orphans:
        yield record
    else:
        yield Ignored("MCP session without a tool call")


def _trajectory(events: list[Event], session: str | None) -> TrajectoryRecord:
    record = TrajectoryRecord("", [], native_id=session, conversation=session)
    # One list of open requests for each server and id, of calls and of other methods alike.
    waiting: dict[_Key, list[Call | None]] = {}
    sent: dict[_Key, str] = {}
    answered: dict[_Key, Any] = {}
    latest: dict[str | None, _Key] = {}
    turn, open_turn, batch = -1, False, None
    for event in events:
        rpc = event["server"], event["rpc"]
        if "call" in event or "request" in event:
            latest[event["rpc"]] = rpc
        elif not waiting.get(rpc):  # a log may name the server on one side only
            rpc = latest.get(event["rpc"], rpc)
        if record.started_at is None:
            record.started_at = moment_of(event["at"])
        if "call" in event:
            if event["rpc"] is not None and waiting.get(rpc) and sent.get(rpc) == event["same"]:
                record.duplicates += 1  # sent again, or seen by both sides
                continue
            sent[rpc] = event["same"]
            together = event.get("batch") is not None and event.get("batch") == batch
            if not (open_turn or together):
                turn += 1
            open_turn, batch = True, event.get("batch")
            call = Call(
                name=event["call"],
                turn=turn,
                arguments=event.get("arguments", UNRECORDED),
                call_id=event["call_id"],
                started_at=event["at"],
            )
            record.calls.append(call)
            waiting.setdefault(rpc, []).append(call)
        elif "request" in event:
            if event["rpc"] is not None:
                waiting.setdefault(rpc, []).append(None)
                sent.pop(rpc, None)
        elif "cancels" in event:
            key = event["server"], event["cancels"]
            key = key if waiting.get(key) else latest.get(event["cancels"], key)
            for one in waiting.get(key, [])[-1:]:
                if one is not None:
                    one.status, one.flags = "incomplete", (*one.flags, "cancelled")
                    open_turn = False
        elif not waiting.get(rpc):
            if rpc in answered and answered[rpc] == event["result"]:
                record.duplicates += 1
            else:
                record.orphans.append(orphan(event["result"]))
        else:
            one = _taken(waiting[rpc])
            answered[rpc] = event["result"]
            if one is not None:
                open_turn = False
                _answer(one, event)
    return record


def _taken(requests: list[Call | None]) -> Call | None:
    """The latest open request with an id; of calls of its turn the first."""
    last = requests[-1]
    if last is not None:
        for position, one in enumerate(requests):
            if one is not None and one.turn == last.turn:
                return requests.pop(position)
    return requests.pop()


def _answer(call: Call, event: Event) -> None:
    answer(call, event["result"], failed=event["failed"], error=event.get("error"))
    if event.get("cut"):
        call.status = "incomplete"
    call.ended_at = event["at"]
    if call.started_at is not None and event["at"] is not None and event["at"] < call.started_at:
        call.flags = (*call.flags, "clock_skew")


# --- sampling -------------------------------------------------------------------------------------


def read_sampling(item: Item) -> Iterator[Record]:
    """A conversation that a server asks the client's model to go on with, and its tools."""
    params = _sampling(item.value)
    assert params is not None
    tools = params.get("tools")
    for definition in tools if isinstance(tools, list) else ():
        tool = tool_of(definition)
        if tool is not None:
            yield tool
    record = TrajectoryRecord("", [])
    waiting = Waiting()
    turn = -1
    opening: list[Any] = []
    for message in params["messages"]:
        if not isinstance(message, dict):
            yield Ignored("sampling message that is no object")
            continue
        if len(opening) < 2:
            opening.append(message.get("content"))
        blocks = _blocks(message)
        if any(block.get("type") == "tool_use" for block in blocks):
            turn += 1
        if message.get("role") == "user" and not record.request:
            texts = [block for block in blocks if block.get("type") == "text"]
            given = message.get("content")
            record.request = given if isinstance(given, str) else text_of(texts) or ""
        for block in blocks:
            kind = block.get("type")
            if kind == "tool_use" and isinstance(block.get("name"), str):
                call_id = block.get("id")
                call = Call(
                    name=block["name"],
                    turn=turn,
                    arguments=block.get("input", UNRECORDED),
                    call_id=None if call_id is None else str(call_id),
                )
                if any(c.turn == turn and _same(c, call) for c in record.calls[-16:]) and not (
                    _results(params["messages"], call.call_id) > 1
                ):
                    record.duplicates += 1
                    continue
                record.calls.append(call)
                waiting.add(call)
            elif kind == "tool_result":
                told = _result(block)
                answered = waiting.take(str(block.get("toolUseId", block.get("tool_use_id"))))
                if answered is None:
                    record.orphans.append(told["result"])
                else:
                    answer(answered, told["result"], failed=told["failed"])
    # A later request of the same conversation repeats its history: one trajectory that grows.
    record.native_id = f"opening {fingerprint(opening)}"
    yield record


def _same(one: Call, other: Call) -> bool:
    return (one.call_id, one.name, one.arguments) == (other.call_id, other.name, other.arguments)


def _results(messages: list[Any], call_id: str | None) -> int:
    return sum(
        str(block.get("toolUseId")) == call_id
        for message in messages
        if isinstance(message, dict)
        for block in _blocks(message)
        if block.get("type") == "tool_result"
    )
