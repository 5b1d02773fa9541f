"""Spans of a trace to the trajectory they tell: which calls ran, in which turns, inside which.

Readers make events of their spans with ``span_event`` and ``llm_events``; ``assemble`` takes the
set of all events of a trace. Kinds of event:

* ``tool``, ``llm``, ``span``: a span; ``maybe``: a tool if an LLM of the trace knows its name;
* ``asked``: a call in an LLM's output; ``answer``: a result that an LLM was shown;
* ``trace``: facts of the trace as a whole.

A call that an LLM asked for and the tool span that ran it are one call. The order of calls follows
the LLM spans that asked for them and only then the clock, because clocks of two hosts differ.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec

from warehouse.readers import payloads
from warehouse.readers.clock import moment_of
from warehouse.records import UNRECORDED, Call, Record, TrajectoryRecord

Event = dict[str, Any]

_REQUEST_LIMIT = 4_000
"""Characters of the first user message that each LLM span carries along."""
_LATE = 2**63 - 1
"""Where a span without a time stands among the others."""
_WRAPPERS = {"tools", "tool", "ToolNode", "tool_node", "call_tools", "execute_tools", "run_tools"}
"""Names of steps that only hand calls on to the tools."""
_KINDS = {None: 0, "span": 1, "maybe": 2, "llm": 3, "tool": 4}
_ERROR_LIMIT = 2_000
_SCANNED = 64
"""Spans of a tool that are looked at for one call that an LLM asked for."""

# --- events ---------------------------------------------------------------------------------------


def span_event(
    span_id: str,
    kind: str | None,
    *,
    parent: str | None = None,
    start: int | None = None,
    end: int | None = None,
    **more: Any,
) -> Event:
    """One span; what is None is left out, so that a fuller telling adds it."""
    told: Event = {"id": span_id, "kind": kind, "parent": parent, "start": start, "end": end}
    told.update(more)
    return {key: value for key, value in told.items() if value is not None}


def tool_fields(inputs: Any, outputs: Any) -> Event:
    """What a tool span's event says of its input and output; ``UNRECORDED`` where absent."""
    told: Event = {}
    arguments = UNRECORDED if inputs is UNRECORDED else payloads.arguments_of(inputs)
    if isinstance(inputs, dict) and inputs.get("type") == "tool_call" and inputs.get("id"):
        told["call_id"] = str(inputs["id"])
    if arguments is not UNRECORDED:
        told["arguments"] = arguments
        told["same"] = payloads.fingerprint(arguments)
    if outputs is not UNRECORDED:
        result = payloads.result_of(outputs)
        if result.text is not None:
            told["result"] = result.text
            told["prints"] = result.prints
        if result.error:
            told["error"] = result.error[:_ERROR_LIMIT]
        if result.call_id:
            told["call_id"] = result.call_id
    return told


def llm_events(span_id: str, inputs: Any, outputs: Any) -> tuple[Event, list[Event]]:
    """Fields for an LLM span's own event, and events of what it asked for and was shown."""
    messages = payloads.messages_of(inputs)
    asked, own, copies = payloads.asked_calls(outputs)
    fields: Event = {}
    if copies:
        fields["copies"] = copies
    request = payloads.user_text(messages)
    if request:
        fields["request"] = request[:_REQUEST_LIMIT]
    events: list[Event] = []
    for index, call in enumerate(asked):
        event: Event = {
            "id": f"{span_id}:asked:{index}",
            "kind": "asked",
            "span": span_id,
            "index": index,
            "name": call.name,
            "call_id": call.call_id,
        }
        if call.arguments is not UNRECORDED:
            event["arguments"] = call.arguments
            event["same"] = payloads.fingerprint(call.arguments)
        events.append({key: value for key, value in event.items() if value is not None})
    told = [(answer, False) for answer in payloads.new_answers(messages)]
    told += [(answer, True) for answer in own]
    for index, (answer, is_own) in enumerate(told):
        event = {
            "id": f"{span_id}:answer:{index}",
            "kind": "answer",
            "span": span_id,
            "index": index,
            "call_id": answer.call_id,
            "result": answer.result,
            "error": answer.error and answer.error[:_ERROR_LIMIT],
            "own": is_own or None,
        }
        events.append({key: value for key, value in event.items() if value is not None})
    return fields, events


# --- one telling of several -----------------------------------------------------------------------


def _canonical(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr(value).encode(errors="replace")


def _weight(value: Any) -> tuple[int, bytes]:
    text = _canonical(value)
    return len(text), text


def _better(key: str, one: Any, other: Any) -> Any:
    if key == "kind":
        return max(one, other, key=lambda kind: _KINDS.get(kind, 0))
    if key == "status":
        return "error" if "error" in (one, other) else max(one, other)
    if key in ("start", "end", "copies") and isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    return max(one, other, key=_weight)


def _merged(events: list[Event]) -> dict[str, Event]:
    """One event an id; spans that share an id and began at different times stay apart."""
    groups: dict[str, list[Event]] = {}
    for event in events:
        group = groups.setdefault(event["id"], [])
        if event not in group:
            group.append(event)
    told: dict[str, Event] = {}
    for identity, group in groups.items():
        if len(group) == 1:
            told[identity] = group[0]
        elif group[0].get("kind") in ("asked", "answer"):
            told[identity] = max(group, key=_weight)
        else:
            for number, event in enumerate(_tellings(group)):
                event["id"] = f"{identity}#{number + 1}" if number else identity
                told[event["id"]] = event
    return told


def _tellings(group: list[Event]) -> list[Event]:
    # Products round times to milliseconds in one export and not in another.
    starts = sorted({event["start"] // 1_000_000 for event in group if "start" in event})
    parts: dict[int, Event] = {start: {} for start in starts or [0]}
    first = next(iter(parts))
    for event in group:
        part = parts[event["start"] // 1_000_000 if "start" in event else first]
        for key, value in event.items():
            part[key] = _better(key, part[key], value) if key in part else value
    return list(parts.values())


# --- the tree -------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Node:
    """A call: a tool span, or one that an LLM asked for and no span shows."""

    event: Event
    span: str | None
    rank: tuple[int, int, int, str]
    llm: str | None = None
    asked: Event | None = None
    answer: Event | None = None
    attempts: int = 1
    parent: "_Node | None" = None
    position: int = -1

    @property
    def call_id(self) -> str | None:
        found = self.event.get("call_id") or (self.asked or {}).get("call_id")
        return None if found is None else str(found)


@dataclass(slots=True)
class _Block:
    """Turns of calls inside one span: those of spans that overlap it go side by side."""

    levels: list[list[_Node]]
    rank: tuple[int, int, int, str]
    begun: int
    end: int
    llms: set[str] = field(default_factory=set)


class _Trace:
    def __init__(self, events: list[Event], tolerance: int):
        told = _merged(events)
        self.tolerance = tolerance
        self.facts = [e for e in told.values() if e.get("kind") == "trace"]
        self.spans = {
            identity: event
            for identity, event in told.items()
            if event.get("kind") not in ("trace", "asked", "answer")
        }
        for identity, event in self.spans.items():
            if "start" not in event and "about" in event:
                self.spans[identity] = {**event, "start": event["about"]}
        self.asked = [e for e in told.values() if e.get("kind") == "asked" and self._of_llm(e)]
        self.answers = [e for e in told.values() if e.get("kind") == "answer" and self._of_llm(e)]
        self.duplicates = sum(event.get("copies", 0) for event in self.spans.values())
        known = {event["name"] for event in self.asked}
        for event in self.spans.values():
            known.update(event.get("tools") or ())
        self.known = known
        self.tools = {
            identity: event
            for identity, event in self.spans.items()
            if event.get("kind") == "tool"
            or (event.get("kind") == "maybe" and event.get("name") in known)
        }
        self._grow()
        self._drop_wrappers()
        self._drop_mentions()
        self.nodes: list[_Node] = []
        self.seen_by: dict[str, set[int]] = {}
        self.orphans: list[Event] = []

    # - structure -

    def _grow(self) -> None:
        """Children of each span, spans in an order with parents first, and the nearest tool."""
        self.children: dict[str | None, list[str]] = {None: []}
        self.dangling = False
        for identity, event in self.spans.items():
            parent = event.get("parent")
            if parent == identity:
                parent = None
            if parent is not None and parent not in self.spans:
                self.dangling = True
                self.children[None] += [] if parent in self.children else [parent]
            self.children.setdefault(parent, []).append(identity)
        self.order: list[str] = []
        self.within: dict[str, str | None] = {}
        self.llm_above: dict[str, str | None] = {}
        self.depth_first(list(self.children[None]), None)
        # Parents that go round in a circle: the earliest span of it is taken as the root.
        left = [identity for identity in self.spans if identity not in self.within]
        for root in sorted(left, key=lambda i: (self.spans[i].get("start", _LATE), i)):
            if root not in self.within:
                self.children[self.spans[root]["parent"]].remove(root)
                self.children[None].append(root)
                self.depth_first([root], None)

    def depth_first(self, roots: list[str], above: str | None) -> None:
        stack: list[tuple[str, str | None, str | None]] = [(root, above, None) for root in roots]
        while stack:
            identity, tool, llm = stack.pop()
            if identity in self.within:
                continue
            self.within[identity] = tool
            self.llm_above[identity] = llm
            self.order.append(identity)
            if identity in self.tools:
                tool, llm = identity, None  # an agent in a tool asks for calls of its own
            if self.spans.get(identity, {}).get("kind") == "llm":
                llm = identity
            stack += [(child, tool, llm) for child in self.children.get(identity, ())]

    def _drop_wrappers(self) -> None:
        """Tool spans that only hand one call on to another tool span are told twice."""
        inner: dict[str, list[str]] = {}
        for identity in self.order:
            tool = self.within[identity]
            if tool is not None and identity in self.tools:
                inner.setdefault(tool, []).append(identity)
        for outer in [identity for identity in reversed(self.order) if identity in inner]:
            event = self.tools[outer]
            kept = [i for i in inner[outer] if i in self.tools]
            if not kept:
                continue
            prints = set(event.get("prints") or ())
            of_inner = {p for i in kept for p in self.tools[i].get("prints") or ()}
            names = {self.tools[i].get("name") for i in kept}
            is_step = event.get("name") in _WRAPPERS or (
                event.get("name") not in self.known and names <= self.known
            )
            if is_step and prints and prints <= of_inner:
                gone, merged = outer, None
            elif (
                len(kept) == 1
                and event.get("name") in names
                and _is_same(event, self.tools[kept[0]])
            ):
                gone, merged = kept[0], {**self.tools[kept[0]], **event}
            else:
                continue
            self.duplicates += 1
            del self.tools[gone]
            if merged is not None:
                if "error" in (self.tools[outer].get("status"), event.get("status")):
                    merged["status"] = "error"
                self.tools[outer] = self.spans[outer] = merged
        if inner:
            for identity in self.order:
                tool = self.within[identity]
                while tool is not None and tool not in self.tools:
                    tool = self.within[tool]
                self.within[identity] = tool

    def _drop_mentions(self) -> None:
        """Calls that an LLM span repeats from the LLM spans inside it."""
        if not any(self.llm_above[i] is not None for i in self.order if self._is_llm(i)):
            return
        inside: dict[str, set[Any]] = {}
        for event in self.asked:
            above = self.llm_above.get(event["span"])
            while above is not None:
                inside.setdefault(above, set()).update(_marks(event))
                above = self.llm_above.get(above)
        self.asked = [
            event
            for event in self.asked
            if not inside.get(event["span"], set()) & set(_marks(event)[:1])
        ]

    def _of_llm(self, event: Event) -> bool:
        return self._is_llm(event["span"])

    def _is_llm(self, identity: str) -> bool:
        return self.spans.get(identity, {}).get("kind") == "llm"

    # - who ran what was asked for -

    def join(self) -> None:
        """Nodes of all calls: each tool span with the call of an LLM that it ran, if any."""
        llms = sorted(
            {e["span"] for e in self.asked + self.answers if self._is_llm(e["span"])},
            key=lambda i: (self.spans[i].get("start", _LATE), i),
        )
        numbers = {identity: number for number, identity in enumerate(llms)}
        asked = sorted(
            (e for e in self.asked if e["span"] in numbers),
            key=lambda e: (numbers[e["span"]], e.get("index", 0), e["id"]),
        )
        nodes = [
            _Node(
                event, identity, (event.get("start", _LATE), 0, event.get("start", _LATE), identity)
            )
            for identity, event in self.tools.items()
        ]
        nodes.sort(key=lambda node: (node.rank, node.event.get("order") or ""))
        nodes = self._attempts(nodes, asked)
        free = {id(node) for node in nodes}
        waiting = asked
        for key in (_by_id, _by_content):
            pools: dict[Any, list[_Node]] = {}
            for node in nodes:
                if id(node) in free:
                    mark = key(node.event)
                    if mark is not None:
                        pools.setdefault(mark, []).append(node)
            for pool in pools.values():
                pool.reverse()
            left = []
            for event in waiting:
                mark = key(event)
                pool = pools.get(mark, []) if mark is not None else []
                index = self._latest_fit(pool, event)
                if index is None:
                    left.append(event)
                    continue
                node = pool.pop(index)
                self._wed(node, event, strong=True)
                free.discard(id(node))
            waiting = left
        waiting = self._join_by_name(nodes, free, waiting, llms, numbers)
        for event in waiting:
            start = self.spans[event["span"]].get("start", _LATE)
            rank = (start, event.get("index", 0), start, event["id"])
            nodes.append(_Node(event, None, rank, event["span"], event))
        self.nodes = nodes
        self._answer(llms)

    def _latest_fit(self, pool: list[_Node], event: Event) -> int | None:
        """Position in a reversed pool of the earliest span that fits: names must not differ."""
        for index in range(len(pool) - 1, max(-1, len(pool) - 9), -1):
            told, wanted = pool[index].event.get("name"), event["name"]
            if told == wanted or _bare(told) == _bare(wanted):
                return index
        return None

    def _wed(self, node: _Node, event: Event, *, strong: bool) -> None:
        node.asked = event
        if strong:
            node.llm = event["span"]
            start = self.spans[event["span"]].get("start", node.rank[0])
            node.rank = (start, event.get("index", 0), node.rank[2], node.rank[3])

    def _join_by_name(
        self,
        nodes: list[_Node],
        free: set[int],
        waiting: list[Event],
        llms: list[str],
        numbers: dict[str, int],
    ) -> list[Event]:
        """By name and order: first what began before the next LLM did, then anything later.

        Tracers add defaults to arguments or leave them out, so that content does not always tell.
        """
        if not waiting or not free:
            return waiting
        pools: dict[str | None, list[_Node]] = {}
        for node in sorted((n for n in nodes if id(n) in free), key=lambda n: n.rank[2]):
            pools.setdefault(_bare(node.event.get("name")), []).append(node)
        starts = [self.spans[i].get("start", _LATE) for i in llms]
        for is_near in (True, False):
            left = []
            for event in waiting:
                own = self.spans[event["span"]]
                begun = own.get("start", 0)
                later = bisect_left(starts, own.get("end", begun), numbers[event["span"]] + 1)
                until = starts[later] if is_near and later < len(starts) else _LATE + 1
                pool = pools.get(_bare(event["name"]), [])
                first = bisect_left(pool, begun - self.tolerance, key=lambda n: n.rank[2])
                for index in range(first, min(first + _SCANNED, len(pool))):
                    if pool[index].rank[2] >= until:
                        index = -1
                    elif _contradict(pool[index].event, event):
                        continue
                    break
                else:
                    index = -1
                if index < 0:
                    left.append(event)
                else:
                    self._wed(pool.pop(index), event, strong=is_near)
            waiting = left
        return waiting

    def _attempts(self, nodes: list[_Node], asked: list[Event]) -> list[_Node]:
        """A call that was run again, from a checkpoint or after a failure, is one call."""
        times: dict[Any, int] = {}
        for event in asked:
            if event.get("call_id") is not None:
                content = (event["call_id"], event.get("same"))
                times[content] = times.get(content, 0) + 1
        groups: dict[Any, list[_Node]] = {}
        for node in nodes:
            if node.event.get("call_id") is not None:
                event = node.event
                mark = (event["call_id"], event.get("same"), event.get("name"))
                groups.setdefault(mark, []).append(node)
        gone: set[int] = set()
        for mark, group in groups.items():
            wanted = times.get(mark[:2])
            left = len(group)
            for earlier, later in pairwise(group):
                end = earlier.event.get("end")
                if end is not None and later.rank[2] < end:
                    continue  # side by side: two executions
                failed = end is None or _failure(earlier.event) is not None
                if failed if wanted is None else left > wanted:
                    later.attempts += earlier.attempts
                    gone.add(id(earlier))
                    left -= 1
        return [node for node in nodes if id(node) not in gone]

    def _answer(self, llms: list[str]) -> None:
        """Results that later LLMs were shown, to the calls that they are the results of.

        A result belongs to the nearest earlier LLM that asked with its id; equal ids of one LLM
        are answered in order.
        """
        named = [node for node in self.nodes if node.call_id is not None]
        of_llm: dict[str, list[_Node]] = {}
        loose = []
        for node in sorted(named, key=lambda node: node.rank):
            if node.llm is None:
                loose.append(node)
            else:
                of_llm.setdefault(node.llm, []).append(node)
        told: dict[str, list[Event]] = {}
        for event in self.answers:
            told.setdefault(event["span"], []).append(event)
        ids = {node.call_id for node in named}
        waiting: dict[str, list[deque[_Node]]] = {}
        next_loose = 0
        for llm in llms:
            answers = sorted(told.get(llm, ()), key=lambda e: (e.get("index", 0), e["id"]))
            start = self.spans[llm].get("start", _LATE)
            while next_loose < len(loose) and loose[next_loose].rank[2] < start:
                node = loose[next_loose]
                waiting.setdefault(str(node.call_id), []).append(deque([node]))
                next_loose += 1
            for event in answers:
                if not event.get("own"):
                    answered = _take(waiting, event)
                    if answered is not None:
                        self.seen_by.setdefault(llm, set()).add(id(answered))
                    elif str(event["call_id"]) not in ids:
                        self.orphans.append(event)
            together: dict[str, deque[_Node]] = {}
            for node in of_llm.get(llm, ()):
                together.setdefault(str(node.call_id), deque()).append(node)
            for call_id, group in together.items():
                waiting.setdefault(call_id, []).append(group)
            for event in answers:
                if event.get("own"):
                    _take(waiting, event)

    # - turns -

    def blocks(self) -> list[list[_Node]]:
        """All calls in turns."""
        by_span: dict[str, list[_Node]] = {}
        for node in self.nodes:
            by_span.setdefault(node.span or str(node.llm), []).append(node)
        done: dict[str, _Block] = {}
        for identity in reversed(self.order):
            children, nodes = self.children.get(identity), by_span.get(identity, ())
            if not children and not nodes:
                continue
            parts = [done.pop(c) for c in children or () if c in done]
            own = [n for n in nodes if n.span is not None]
            asked = [n for n in nodes if n.span is None]
            if asked:
                parts.append(self._asked_block(asked))
            block = self._in_turns(parts)
            if own:
                block = self._around(own[0], block)
            if block is not None:
                event = self.spans.get(identity, {})
                block.begun = min(block.begun, event.get("start", _LATE))
                block.end = max(block.end, event.get("end", 0))
                done[identity] = block
        roots = [done[c] for c in dict.fromkeys(self.children[None]) if c in done]
        whole = self._in_turns(roots)
        return whole.levels if whole else []

    def _asked_block(self, nodes: list[_Node]) -> _Block:
        event = self.spans[str(nodes[0].llm)]
        rank = min(node.rank for node in nodes)
        end = event.get("end") or rank[0]
        return _Block([nodes], rank, rank[0], end, {str(nodes[0].llm)})

    def _around(self, node: _Node, inner: _Block | None) -> _Block:
        """A tool span: its own call first, what it called after it."""
        begun = node.rank[0]
        end = max(node.event.get("end") or node.rank[2], node.rank[2])
        end = begun if end == _LATE else end
        llms = {node.llm} if node.llm else set()
        block = _Block([[node]], node.rank, begun, end, llms)
        if inner is not None:
            block.levels += inner.levels
            block.end = max(end, inner.end)
        return block

    def _in_turns(self, parts: list[_Block]) -> _Block | None:
        """Blocks under one parent: those that overlap side by side, the others in sequence."""
        if len(parts) < 2:
            return parts[0] if parts else None
        parts.sort(key=lambda block: block.rank)
        groups: list[list[_Block]] = []
        reached, asked_by, last = 0, set[str](), -1
        nodes: set[int] = set()
        for block in parts:
            if groups and self._overlaps(block, reached, asked_by, last, nodes):
                groups[-1].append(block)
            else:
                groups.append([block])
                reached, asked_by, nodes = 0, set(), set()
            reached, last = max(reached, block.end), block.begun
            asked_by |= block.llms
            if self.seen_by:
                nodes.update(id(node) for level in block.levels for node in level)
        levels: list[list[_Node]] = []
        for group in groups:
            depth = max(len(block.levels) for block in group)
            for level in range(depth):
                turn = [
                    node
                    for block in group
                    if level < len(block.levels)
                    for node in block.levels[level]
                ]
                levels.append(turn)
        return _Block(
            levels,
            parts[0].rank,
            min(block.begun for block in parts),
            max(block.end for block in parts),
            set().union(*(block.llms for block in groups[0])),
        )

    def _overlaps(
        self, block: _Block, reached: int, asked_by: set[str], last: int, nodes: set[int]
    ) -> bool:
        """Whether a block shares its turns with the blocks before it."""
        if not block.llms.isdisjoint(asked_by):
            return True
        for llm in block.llms:
            if not nodes.isdisjoint(self.seen_by.get(llm, ())):
                return False  # the LLM that asked for these calls knew a result of those
        if block.begun + self.tolerance < reached:
            return True
        return block.begun == last and block.begun < reached

    # - calls -

    def calls(self) -> list[Call]:
        """All calls in order, each with its turn."""
        levels = self.blocks()
        by_span = {node.span: node for node in self.nodes if node.span is not None}
        ordered: list[tuple[int, _Node]] = []
        for turn, nodes in enumerate(levels):
            for node in sorted(nodes, key=lambda node: node.rank):
                node.position = len(ordered)
                ordered.append((turn, node))
        calls = []
        for turn, node in ordered:
            call = self._call(turn, node)
            outer = self.within.get(node.span) if node.span is not None else None
            if node.span is None:
                outer = self.within.get(str(node.llm))
            if outer is not None and outer in by_span:
                call.parent = by_span[outer].position
            calls.append(call)
        return calls

    def _call(self, turn: int, node: _Node) -> Call:
        event, asked, answer = node.event, node.asked or {}, node.answer or {}
        flags: list[str] = []
        arguments = event.get("arguments", asked.get("arguments", UNRECORDED))
        result = event.get("result", answer.get("result"))
        if node.span is None:
            error = answer.get("error")
            status = "no_result" if node.answer is None else "error" if error else "ok"
            flags.append("not_executed" if node.answer is None else "untraced")
            return Call(
                name=event["name"],
                turn=turn,
                arguments=arguments,
                result=result,
                status=status,
                error=error,
                call_id=node.call_id,
                flags=tuple(flags),
            )
        failure = _failure(event)
        error = event.get("error") or answer.get("error")
        start, end = event.get("start"), event.get("end")
        if failure is not None or error:
            status, error = "error", error or failure
        elif end is None:
            status = "incomplete"
        else:
            status = "ok"
        if end is None:
            flags.append("open")
        parent = self.spans.get(event.get("parent") or "", {})
        if start is not None:
            begun = parent.get("start")
            early = begun is not None and start < begun - self.tolerance
            backwards = end is not None and end < start
            if early or backwards:
                flags.append("clock_skew")
            if backwards:
                end = None
        return Call(
            name=event.get("name") or asked.get("name") or "unknown",
            turn=turn,
            arguments=arguments,
            result=result,
            status=status,
            error=error or None,
            call_id=node.call_id,
            started_at=start,
            ended_at=end,
            attempts=node.attempts,
            flags=tuple(flags),
        )


def _take(waiting: dict[str, list[deque[_Node]]], event: Event) -> _Node | None:
    """The waiting call that a result answers, now answered: the first of the latest LLM's."""
    groups = waiting.get(str(event["call_id"]))
    if not groups:
        return None
    node = groups[-1].popleft()
    if not groups[-1]:
        groups.pop()
    node.answer = event
    return node


def _failure(event: Event) -> str | None:
    """What the span itself says went wrong."""
    if event.get("status") == "error" or event.get("error"):
        return str(event.get("error") or "the span ended with an error")
    return None


def _is_same(outer: Event, inner: Event) -> bool:
    """Whether a tool span and the one inside it, of the same name, tell one call."""
    if outer.get("same") is not None and outer.get("same") == inner.get("same"):
        return True
    prints = outer.get("prints")
    return bool(prints) and prints == inner.get("prints")


def _marks(event: Event) -> list[Any]:
    """What tells a call again: its id, and its name and arguments."""
    content = (event["name"], event.get("same"))
    return [content] if event.get("call_id") is None else [event["call_id"], content]


def _by_id(event: Event) -> Any:
    return event.get("call_id")


def _by_content(event: Event) -> Any:
    same = event.get("same")
    return None if same is None else (_bare(event.get("name")), same)


def _contradict(span: Event, asked: Event) -> bool:
    """Whether both name a call id, and not the same."""
    ids = span.get("call_id"), asked.get("call_id")
    return None not in ids and ids[0] != ids[1]


def _bare(name: str | None) -> str | None:
    """A tool's name without the prefix that an MCP client puts before it."""
    if name is not None and name.startswith("mcp__"):
        return name.split("__", 2)[-1]
    return name


# --- the trajectory -------------------------------------------------------------------------------


def assemble(
    conversation: str, events: list[Event], *, tolerance: int = 0
) -> Iterator[TrajectoryRecord]:
    """The trajectory that the events of one trace tell.

    Args:
        conversation: The trace's id, or ``session ID`` for tools without a trace of their own.
        events: Events in any order, however often told.
        tolerance: Nanoseconds by which the format rounds its times.
    """
    trace = _Trace(events, tolerance)
    trace.join()
    calls = trace.calls()
    spans = trace.spans
    roots = [spans[i] for i in trace.children[None] if i in spans]
    roots.sort(key=lambda e: (e.get("start", _LATE), e["id"]))
    facts = {key: _first(trace.facts, key) for key in ("request", "session", "start", "name")}
    sessions = [
        facts["session"],
        *sorted({str(e["session"]) for e in spans.values() if "session" in e}),
    ]
    starts = [e["start"] for e in spans.values() if "start" in e]
    flags = []
    running = any(fact.get("running") for fact in trace.facts)
    running = running and not any(fact.get("closed") for fact in trace.facts)
    if running or any("end" not in root for root in roots if root.get("kind") != "maybe"):
        flags.append("open")
    if trace.dangling or (roots and all(root["id"] in trace.tools for root in roots)):
        flags.append("rootless")
    start = facts["start"] if isinstance(facts["start"], int) else min(starts, default=None)
    yield TrajectoryRecord(
        request=facts["request"] or _request(roots, spans),
        calls=calls,
        native_id=conversation,
        started_at=moment_of(start),
        meta={"name": facts["name"]} if facts["name"] else {},
        orphans=[_told(e) for e in trace.orphans if not _is_mention(trace)],
        duplicates=trace.duplicates,
        conversation=next((s for s in sessions if s), None),
        flags=tuple(flags),
    )


def _first(facts: list[Event], key: str) -> Any:
    found = [fact[key] for fact in facts if fact.get(key)]
    return max(found, key=_weight) if found else None


def _request(roots: list[Event], spans: dict[str, Event]) -> str:
    """What the user asked: the root's input, or the first user message of the first LLM."""
    for root in roots:
        if root.get("request") and root.get("kind") != "llm":
            return str(root["request"])
    llms = [e for e in spans.values() if e.get("kind") == "llm" and e.get("request")]
    first = min(llms, key=lambda e: (e.get("start", _LATE), e["id"]), default=None)
    return str(first["request"]) if first else ""


def _is_mention(trace: _Trace) -> bool:
    """Whether a shown result may belong to a tool span that does not tell its call's id."""
    return any(node.call_id is None for node in trace.nodes)


def _told(event: Event) -> str:
    result = event.get("result")
    return result if isinstance(result, str) else _canonical(result).decode(errors="replace")


# --- whose events these are -----------------------------------------------------------------------


def keyed(trace_id: str, session: str | None, *, is_lone: bool) -> tuple[str, str]:
    """(conversation key, prefix of span ids): tools that are traces of their own go by session.

    A tool that runs in a thread pool loses its parent, and its span becomes a trace.
    """
    if session and is_lone:
        return f"session {session}", f"{trace_id}/"
    return trace_id, ""


def assembler(tolerance: int = 0) -> Callable[[str, list[Event]], Iterator[Record]]:
    """``assemble`` for a format that rounds its times."""

    def of_format(conversation: str, events: list[Event]) -> Iterator[Record]:
        yield from assemble(conversation, events, tolerance=tolerance)

    return of_format
