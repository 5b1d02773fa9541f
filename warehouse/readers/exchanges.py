"""Recorded pairs of request and response, of any of the three APIs, as one conversation each.

Every later request repeats the history so far, so the same execution is told many times, over
lines, files and days, in any order, sometimes shortened or written anew. Pairs therefore become
fragments and not trajectories that replace each other: an event is one telling of one call with
the call before it, and the union of the events gives the same conversation in whatever order they
come, also where a telling lacks the beginning, lacks a result, or names the call by another id.

A call is the same call where its random id says so, or else where everything before it is the same.
A conversation is known by the id it names, or by its first user message. Responses that go on from
``previous_response_id`` repeat nothing and name no beginning: each is a piece of its own, known by
its id, by that of the response before it, and by the first user message where it has one.
"""

import hashlib
import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from warehouse.readers import anthropic, openai_chat, openai_responses
from warehouse.readers.clock import moment_of
from warehouse.readers.pairing import Pairing, is_telling, mark_cut, request_of
from warehouse.readers.sse import is_stream, parse_events
from warehouse.readers.stream import Item, parse
from warehouse.records import Call, Fragment, Ignored, Record, ToolRecord, TrajectoryRecord

CHAT, RESPONSES, ANTHROPIC = "openai", "openai_responses", "anthropic"
_BODY = ("messages", "input", "choices", "output", "object", "error")
_NESTED = ("body", "json", "postData", "content", "data")
_TEXT = ("string", "text")
_CHAINED = "response "
"""How the name of a piece begins that may go on from another."""


# --- which API ------------------------------------------------------------------------------------


def is_chat(value: Any) -> bool:
    """A pair of the chat completions API."""
    return _family(value) == CHAT


def is_responses(value: Any) -> bool:
    """A pair of the Responses API, or one of its responses alone."""
    return _family(value) == RESPONSES or openai_responses.is_response(value)


def is_anthropic(value: Any) -> bool:
    """A pair of the Anthropic messages API."""
    return _family(value) == ANTHROPIC


def is_archive(value: Any, api: str) -> bool:
    """Pairs in one document (a cassette's interactions, an HTTP archive), the first of this API."""
    pairs = _archived(value)
    if not isinstance(pairs, list):
        return False
    return next((found for found in map(_family, pairs[:64]) if found), None) == api


def _archived(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    log = value.get("log")
    if isinstance(log, dict):
        return log.get("entries")
    return value.get("interactions")


def _family(value: Any) -> str | None:
    """The API of a pair, told by its response, or else by its request."""
    if not isinstance(value, dict) or "response" not in value:
        return None
    request, response = _request(value), value["response"]
    if not isinstance(request, dict) or not isinstance(response, (dict, str, list, type(None))):
        return None
    body, answer = _body(request), _body(response)
    if not isinstance(body, dict):
        return None
    if isinstance(answer, dict):
        if isinstance(answer.get("choices"), list):
            return CHAT if isinstance(body.get("messages"), list) else None
        if answer.get("object") == "response" or openai_responses.is_response(answer):
            return RESPONSES
        if isinstance(answer.get("content"), list) and (
            answer.get("type") == "message" or "stop_reason" in answer
        ):
            return ANTHROPIC
    elif isinstance(answer, str):
        head = answer[:4096]
        if "message_start" in head:
            return ANTHROPIC
        if "response.created" in head or '"response.' in head:
            return RESPONSES
        if "chat.completion.chunk" in head:
            return CHAT
    # No usable response (an error, nothing recorded): the request still tells the history.
    messages = body.get("messages")
    if isinstance(messages, list) and messages:
        if anthropic.is_request(body) or anthropic.is_messages(messages):
            return ANTHROPIC
        return CHAT if openai_chat.is_messages(messages) else None
    told = body.get("input")
    return RESPONSES if openai_responses.is_items(told) or "previous_response_id" in body else None


def _request(value: dict[str, Any]) -> Any:
    """The request of a pair; some loggers write the response into the request itself."""
    if "request" in value:
        return value["request"]
    return value if "messages" in value or "input" in value else None


def _body(side: Any) -> Any:
    """The body of a request or response, wherever a recorder puts it: an object or a stream."""
    for _ in range(4):
        if isinstance(side, list):
            return side
        if isinstance(side, str):
            text = side.strip()
            if is_stream(text) or not text.startswith("{"):
                return text
            try:
                side = parse(text)
            except (ValueError, RecursionError):
                return None
        if not isinstance(side, dict):
            return None
        if any(key in side for key in _BODY) or side.get("type") == "message":
            return side
        for key in (*_NESTED, *_TEXT):
            if isinstance(side.get(key), (dict, str)) and side[key]:
                side = side[key]
                break
        else:
            return side
    return side


# --- one pair to events ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Told:
    """What one pair tells."""

    request: str
    pairing: Pairing
    history: int
    tools: list[ToolRecord]
    created: int | None = None
    response_id: str | None = None
    previous: str | None = None
    conversation: str | None = None
    within: str | None = None
    by_opening: bool = True
    broken: int = 0
    ignored: list[str] = field(default_factory=list)


def read_archive(item: Item) -> Iterator[Record]:
    """All pairs of a document, each as what it is."""
    for number, pair in enumerate(_archived(item.value)):
        reader = _READERS.get(_family(pair) or "")
        if reader is None:
            yield Ignored("recorded exchange with something else than an LLM")
        else:
            yield from reader(Item(f"{item.place}, exchange {number + 1}", "", pair))


def read_chat(item: Item) -> Iterator[Record]:
    """One pair of the chat completions API."""
    body, answer, broken = _sides(item.value, openai_chat.glued)
    pairing = openai_chat.pair_messages(body.get("messages") or [])
    history = len(pairing.calls)
    choices = answer.get("choices") or []
    message = openai_chat.message_of(choices)
    if message is not None:
        openai_chat.pair_messages([message], into=pairing)
        if openai_chat.is_cut(choices):
            mark_cut(pairing.calls[history:])
    tools = [
        tool for key in ("tools", "functions") for tool in openai_chat.tool_records(body.get(key))
    ]
    yield from _records(
        _Told(
            request_of(body.get("messages") or []),
            pairing,
            history,
            tools,
            openai_responses.created_of(answer),
            _text(answer.get("id")),
            conversation=_named(item.value, body),
            broken=broken,
        )
    )


def read_anthropic(item: Item) -> Iterator[Record]:
    """One pair of the messages API."""
    body, answer, broken = _sides(item.value, anthropic.glued)
    messages = body.get("messages") or []
    pairing = anthropic.pair_messages(messages)
    history = len(pairing.calls)
    if isinstance(answer.get("content"), list):
        anthropic.add_message(pairing, {**answer, "role": "assistant"})
    yield from _records(
        _Told(
            request_of(messages),
            pairing,
            history,
            list(anthropic.tool_records(body.get("tools"))),
            None,
            _text(answer.get("id")),
            conversation=_named(item.value, body),
            broken=broken,
        )
    )


def read_responses(item: Item) -> Iterator[Record]:
    """One pair of the Responses API, or a response alone."""
    value = item.value
    if "response" in value:
        body, answer, broken = _sides(value, openai_responses.glued)
    else:
        body, answer, broken = {}, value, 0
    given = openai_responses.items_of(body.get("input"))
    output = openai_responses.items_of(answer.get("output"))
    pairing = openai_responses.pair_items(given)
    history = len(pairing.calls)
    openai_responses.pair_items(output, into=pairing)
    openai_responses.mark_cut(pairing.calls[history:], answer.get("status"))
    response_id = _text(answer.get("id"))
    previous = _text(body.get("previous_response_id") or answer.get("previous_response_id"))
    # A conversation that the service keeps: its requests repeat nothing either.
    kept = openai_responses.conversation_of(body) or openai_responses.conversation_of(answer)
    by_service = bool(body.get("conversation") or answer.get("conversation"))
    stored = body.get("store") is not False and answer.get("store") is not False
    yield from _records(
        _Told(
            request_of(given),
            pairing,
            history,
            [
                *openai_responses.tool_records(body.get("tools") or answer.get("tools")),
                *openai_responses.listed_tools([*given, *output]),
            ],
            openai_responses.created_of(answer),
            response_id,
            previous,
            _named(value, body) or kept,
            response_id if by_service and previous is None and not history else None,
            by_opening=response_id is None or not stored,
            broken=broken,
        )
    )


_READERS: dict[str, Callable[[Item], Iterator[Record]]] = {
    CHAT: read_chat,
    RESPONSES: read_responses,
    ANTHROPIC: read_anthropic,
}


def _sides(
    value: dict[str, Any], glue: Callable[[list[Any]], dict[str, Any] | None]
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Request, response (a stream glued together), and how many of its events are broken."""
    body, answer = _body(_request(value)), _body(value["response"])
    broken = 0
    if isinstance(answer, str):
        events, bad = parse_events(answer)
        answer, broken = glue(events) if events else None, len(bad)
    elif isinstance(answer, list):
        answer = glue([event for event in answer if isinstance(event, dict)])
    return body, answer if isinstance(answer, dict) else {}, broken


def _text(value: Any) -> str | None:
    return str(value) if value and isinstance(value, (str, int)) else None


_CONVERSATION = ("conversation_id", "thread_id", "session_id")


def _named(value: dict[str, Any], body: dict[str, Any]) -> str | None:
    """The conversation that the record or the request's metadata names."""
    metadata = body.get("metadata")
    for place in (value, body, metadata if isinstance(metadata, dict) else {}):
        found = openai_chat.first_text(place, _CONVERSATION)
        if found:
            return found
    return None


def _records(told: _Told) -> Iterator[Record]:
    yield from told.tools
    for what in told.pairing.ignored:
        yield Ignored(what)
    for _ in range(told.broken):
        yield Ignored("event of a stream that is no JSON")
    opening = f"opening {_hash(' '.join(told.request.split()))[:24]}"
    aliases: tuple[str, ...] = ()
    if told.conversation is not None:
        conversation = f"conversation {told.conversation}"
    elif told.by_opening:
        conversation = opening
    else:
        conversation = f"{_CHAINED}{told.response_id}"
        names = [told.response_id, told.previous, opening if told.request else None]
        aliases = tuple(name for name in names if name)
    yield Fragment(conversation, _events(told, opening), aliases)


def _events(told: _Told, opening: str) -> list[dict[str, Any]]:
    """Each call as this pair tells it, and what the pair adds to the conversation."""
    calls = told.pairing.calls
    keys: list[str] = []
    events: list[dict[str, Any]] = []
    # What a call without a telling id comes after, as far as this pair knows.
    if told.previous is not None:
        chain = base = f"after {told.previous}"
    elif told.within is not None:
        chain = base = f"in {told.within}"
    else:
        chain = base = told.conversation or opening
    seen: dict[str, int] = {}
    before, turn = None, -1
    for at, call in enumerate(calls):
        what = _hash(call.name, _canonical(call.arguments))[:16]
        ids = [i for i in dict.fromkeys((call.uid, call.call_id)) if is_telling(i)]
        if ids:
            count = seen[f"{ids[0]} {what}"] = seen.get(f"{ids[0]} {what}", 0) + 1
            again = f" {count}" if count > 1 else ""
            aliases = [f"{i} {what}{again}" for i in ids]
            chain = base = aliases[0]
        else:
            base = _hash(base, what, call.call_id)[:32]
            chain = _hash(chain, what, call.call_id, call.result)[:32]
            aliases = []
        keys.append(chain)
        event = {
            "kind": "call",
            "key": chain,
            "base": base,
            "aliases": aliases,
            "before": before,
            "after": told.previous if before is None else None,
            "within": told.within if before is None else None,
            "same_turn": call.turn == turn,
            "name": call.name,
            "arguments": call.arguments,
            "result": call.result,
            "size": len(call.result) if isinstance(call.result, str) else 0,
            "status": call.status,
            "error": call.error,
            "call_id": call.call_id,
            "uid": ids[0] if ids else None,
            "inside": None,
            "created": told.created if at >= told.history else None,
        }
        events.append(event)
        before, turn = chain, call.turn
    for event, call in zip(events, calls, strict=True):
        if call.parent is not None:
            event["inside"] = keys[call.parent]
    if told.pairing.duplicates and events:
        events[-1]["copies"] = told.pairing.duplicates
    for nth, lost in enumerate(told.pairing.lost):
        events.append(
            {
                "kind": "answer",
                "call_id": lost.call_id,
                "after": told.previous,
                "within": told.within,
                "nth": nth,
                "result": lost.result,
                "status": lost.status,
                "error": lost.error,
            }
        )
    events.append(
        {
            "kind": "reply",
            "response": told.response_id,
            "previous": told.previous,
            "within": told.within,
            "opening": opening,
            "request": told.request,
            "conversation": told.conversation,
            "first": keys[0] if keys else None,
            "last": keys[-1] if keys else None,
            "created": told.created,
        }
    )
    for event in events:
        event["id"] = _hash(event)[:32]
    return events


def _hash(*parts: Any) -> str:
    """A digest of JSON values, whatever is in their text."""
    try:
        data = msgspec.json.encode(parts, order="sorted")
    except (OverflowError, TypeError, ValueError):  # long integers, lone surrogates
        data = json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(data).hexdigest()


def _canonical(arguments: Any) -> Any:
    """Arguments however clients write them anew: as the value they stand for."""
    if isinstance(arguments, str) and arguments:
        try:
            return parse(arguments)
        except (ValueError, RecursionError):
            return arguments
    return arguments or {}


# --- events to trajectories -----------------------------------------------------------------------

_RANK = {"no_result": 0, "incomplete": 1, "ok": 2, "error": 3}
_Event = dict[str, Any]


@dataclass(slots=True)
class _Node:
    """One call, as all its tellings together have it."""

    key: str
    event: _Event
    tellings: list[_Event]
    parent: "_Node | None" = None
    same_turn: bool = False
    depth: int = 0
    children: list["_Node"] = field(default_factory=list)
    status: str = ""
    result: Any = None
    error: str | None = None
    copies: int = 0
    created: int | None = None
    orphans: list[str] = field(default_factory=list)


def assemble(conversation: str, events: list[_Event]) -> Iterator[Record]:
    """The trajectories that a set of events tells."""
    by_id = {event["id"]: event for event in events}
    told = [by_id[key] for key in sorted(by_id)]
    replies = [event for event in told if event["kind"] == "reply"]
    nodes, names = _merged([event for event in told if event["kind"] == "call"])
    chain = _Chain(replies, nodes, names)
    _join(nodes, names, chain)
    lost = _give_answers([event for event in told if event["kind"] == "answer"], chain)
    leaves = _leaves(nodes)
    yield from _trajectories(conversation, leaves, replies, names, chain, lost)


def _merged(told: list[_Event]) -> tuple[dict[str, _Node], dict[str, str]]:
    """One node for all tellings of a call, and the node's key for each name it goes by."""
    top: dict[str, str] = {}

    def find(name: str) -> str:
        while top.setdefault(name, name) != name:
            top[name] = top[top[name]]
            name = top[name]
        return name

    for event in told:
        for alias in event["aliases"]:
            one, other = sorted((find(event["key"]), find(alias)))
            top[other] = one
    grouped: dict[str, list[_Event]] = {}
    for event in told:
        grouped.setdefault(find(event["key"]), []).append(event)
    nodes = {}
    for key, tellings in grouped.items():
        best = max(tellings, key=_fullness)
        node = nodes[key] = _Node(key, best, tellings)
        node.status, node.result, node.error = best["status"], best["result"], best["error"]
        node.copies = max(event.get("copies") or 0 for event in tellings)
        times = [event["created"] for event in tellings if event["created"] is not None]
        node.created = min(times, default=None)
    return nodes, {name: find(name) for name in list(top)} | {key: key for key in nodes}


def _fullness(event: _Event) -> tuple[Any, ...]:
    """The telling that says most; equally full ones by their id."""
    return (
        _RANK.get(event["status"], 0),
        event["result"] is not None,
        event["size"],
        event["before"] is not None,
        event["id"],
    )


class _Chain:
    """Where the conversation stood after a response, followed by ``previous_response_id``."""

    def __init__(
        self, replies: list[_Event], nodes: dict[str, _Node], names: dict[str, str]
    ) -> None:
        self._nodes, self._names = nodes, names
        self._replies: dict[str, _Event] = {}
        for reply in replies:
            key = reply["response"]
            if key is not None and (key not in self._replies or reply["last"] is not None):
                self._replies[key] = reply
        # In a conversation that the service keeps, the response before is the one made before.
        kept = [r for r in self._replies.values() if r["within"] is not None]
        kept.sort(key=lambda r: (r["created"] is None, r["created"] or 0, r["response"]))
        self._made_after = {
            reply["response"]: kept[at - 1]["response"] if at else None
            for at, reply in enumerate(kept)
        }

    def previous_of(self, event: _Event) -> str | None:
        """The response that what an event tells goes on from."""
        previous: str | None = event["after" if "after" in event else "previous"]
        if previous is None and event["within"] is not None:
            previous = self._made_after.get(event["within"])
        return previous

    def last_of(self, response: str | None) -> _Node | None:
        """The last call before and in a response."""
        for reply in self._back(response):
            if reply["last"] is not None:
                return self._nodes[self._names[reply["last"]]]
        return None

    def beginning(self, response: str | None) -> _Event | None:
        """The earliest known response that this one goes on from."""
        return next(reversed(list(self._back(response))), None)

    def _back(self, response: str | None) -> Iterator[_Event]:
        seen = set()
        while response is not None and response not in seen and response in self._replies:
            seen.add(response)
            yield self._replies[response]
            response = self.previous_of(self._replies[response])


def _join(nodes: dict[str, _Node], names: dict[str, str], chain: _Chain) -> None:
    """Give each call the one before it: of those told, the one furthest from the beginning."""
    before: dict[str, dict[str, bool]] = {key: {} for key in nodes}
    after: dict[str, list[str]] = {key: [] for key in nodes}
    for key, node in nodes.items():
        for event in node.tellings:
            if event["before"] is not None:
                earlier: str | None = names.get(event["before"])
            else:
                found = chain.last_of(chain.previous_of(event))
                earlier = found.key if found else None
            if earlier is not None and earlier != key and earlier in nodes:
                same_turn = before[key].get(earlier, False)
                if earlier not in before[key]:
                    after[earlier].append(key)
                before[key][earlier] = same_turn or bool(event["same_turn"])
    waiting = {key: len(earlier) for key, earlier in before.items()}
    ready = [key for key, count in waiting.items() if not count]
    heapq.heapify(ready)
    done: set[str] = set()
    rest = sorted(nodes, reverse=True)
    while len(done) < len(nodes):
        if not ready:  # told in both orders: the smaller key goes first, whatever came first
            while rest[-1] in done:
                rest.pop()
            ready.append(rest[-1])
        key = heapq.heappop(ready)
        if key in done:
            continue
        done.add(key)
        node = nodes[key]
        candidates = [nodes[earlier] for earlier in before[key] if earlier in done]
        candidates = [other for other in candidates if other.key != key]
        if candidates:
            parent = max(candidates, key=lambda other: (other.depth, other.key))
            node.parent, node.depth = parent, parent.depth + 1
            node.same_turn = before[key][parent.key]
            parent.children.append(node)
        for later in after[key]:
            waiting[later] -= 1
            if waiting[later] == 0 and later not in done:
                heapq.heappush(ready, later)


def _give_answers(answers: list[_Event], chain: _Chain) -> list[_Event]:
    """Results that were told apart from their calls; those that find none are returned."""
    lost = []
    for event in sorted(answers, key=lambda e: (str(e["after"]), e["nth"], e["id"])):
        node = chain.last_of(chain.previous_of(event))
        found = None
        while node is not None:
            if node.event["call_id"] == event["call_id"] and node.status == "no_result":
                found = node
            if found is not None and not node.same_turn:
                break
            node = node.parent
        if found is None:
            lost.append(event)
            continue
        found.status, found.result, found.error = event["status"], event["result"], event["error"]
    return lost


def _leaves(nodes: dict[str, _Node]) -> list[_Node]:
    """Where tellings end, without those that another one tells more fully."""
    by_base: dict[str, list[_Node]] = {}
    for node in nodes.values():
        by_base.setdefault(node.event["base"], []).append(node)
    kept: list[_Node] = []
    dropped: list[tuple[_Node, list[_Node]]] = []
    for key in sorted(nodes):
        node = nodes[key]
        if node.children:
            continue
        if all(one.result is not None for one in _path(node)):
            kept.append(node)  # nothing can be told more fully
            continue
        rivals = by_base[node.event["base"]]
        fuller = [other for other in rivals if other is not node and _tells(other, node)]
        if fuller:
            dropped.append((node, fuller))
        else:
            kept.append(node)
    for node, others in dropped:
        for other in others:
            _add_times(other, node)
    for node, _ in dropped:
        last: _Node | None = node
        while last is not None and not last.children and last.parent is not None:
            last.parent.children.remove(last)
            last = last.parent
    return kept


def _add_times(fuller: _Node, node: _Node) -> None:
    """What a poorer telling knows better: when its calls were first told."""
    one: _Node | None = fuller
    other: _Node | None = node
    while one is not None and other is not None and one is not other:
        if other.created is not None:
            one.created = min(other.created, one.created or other.created)
        one, other = one.parent, other.parent


def _tells(fuller: _Node, node: _Node) -> bool:
    """Whether the calls up to ``fuller`` are those up to ``node``, none with less of a result."""
    one: _Node | None = fuller
    other: _Node | None = node
    more = False
    while one is not None and other is not None:
        if one is other:
            return more
        if one.event["base"] != other.event["base"]:
            return False
        if other.result is None and other.status in ("no_result", "incomplete"):
            more = more or one.result is not None
        elif one.event["key"] != other.event["key"] and one.result != other.result:
            return False
        one, other = one.parent, other.parent
    return more and one is None and other is None


def _path(leaf: _Node) -> list[_Node]:
    path = []
    node: _Node | None = leaf
    while node is not None:
        path.append(node)
        node = node.parent
    return path[::-1]


def _trajectories(
    conversation: str,
    leaves: list[_Node],
    replies: list[_Event],
    names: dict[str, str],
    chain: _Chain,
    lost: list[_Event],
) -> Iterator[Record]:
    first_of: dict[str, list[_Event]] = {}
    for reply in replies:
        if reply["first"] is not None:
            first_of.setdefault(names[reply["first"]], []).append(reply)
    spoken: set[str] = set()
    idents: set[str | None] = set()
    for leaf in leaves:
        path = _path(leaf)
        heads = sorted(first_of.get(path[0].key, ()), key=_order)
        beginnings = [chain.beginning(chain.previous_of(head)) or head for head in heads]
        head = min(beginnings, key=_order, default=None)
        spoken.update(reply["opening"] for reply in [*heads, *beginnings])
        record = _trajectory(conversation, path, head, lost)
        lost = []
        if record.native_id in idents:  # other results for the same calls: another run
            record.native_id = f"{record.native_id} {_hash(leaf.key)[:12]}"
        idents.add(record.native_id)
        yield record
    # What was said without any call is a conversation of its own only where no call belongs to it.
    for reply in sorted(replies, key=_order):
        if reply["first"] is not None or reply["previous"] is not None:
            continue
        if leaves and not conversation.startswith(_CHAINED):
            continue
        if reply["opening"] not in spoken:
            spoken.add(reply["opening"])
            yield _trajectory(conversation, [], reply, lost)
            lost = []


def _order(reply: _Event) -> tuple[bool, bool, int, str]:
    created = reply["created"]
    return (reply["previous"] is not None, created is None, created or 0, reply["id"])


def _trajectory(
    conversation: str, path: list[_Node], head: _Event | None, lost: list[_Event]
) -> TrajectoryRecord:
    at = {node.key: position for position, node in enumerate(path)}
    names = {event["key"]: node.key for node in path for event in node.tellings}
    calls: list[Call] = []
    turn = -1
    for node in path:
        turn += not (node.same_turn and calls)
        event = node.event
        inside = event["inside"] and names.get(event["inside"])
        calls.append(
            Call(
                event["name"],
                turn,
                event["arguments"],
                node.result,
                node.status,
                node.error,
                event["call_id"],
                parent=at.get(inside) if inside else None,
                uid=event["uid"],
            )
        )
    named = head["conversation"] if head else None
    opening = head["opening"] if head else conversation
    ident = whole = opening if conversation.startswith(_CHAINED) else conversation
    fork = next((n for n in reversed(path) if n.parent is None or len(n.parent.children) > 1), None)
    if fork is not None:
        # The result is no part of it, so that a conversation keeps its name while it goes on.
        ident = f"{ident} {_hash(fork.key if fork.event['aliases'] else fork.event['base'])[:12]}"
    times = [node.created for node in path if node.created is not None]
    if head and head["created"] is not None:
        times.append(head["created"])
    return TrajectoryRecord(
        request=head["request"] if head else "",
        calls=calls,
        native_id=ident,
        started_at=moment_of(min(times, default=None)),
        orphans=[event["result"] for event in lost if isinstance(event["result"], str)],
        duplicates=max((node.copies for node in path), default=0),
        conversation=named or whole,
    )
