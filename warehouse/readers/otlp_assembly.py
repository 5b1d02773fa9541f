"""Events of one trace to a trajectory: a pure function of the set of events.

Clocks of different machines disagree, so order is taken from what caused what: a span runs inside
its parent, after the model that asked for it, and before the model that saw its result. Everything
is linear in the number of events but for sorting.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from warehouse.readers.clock import moment_of
from warehouse.readers.genai import Event
from warehouse.readers.genai_messages import canonical
from warehouse.readers.normalised import as_text
from warehouse.records import UNRECORDED, Call, Ignored, Record, TrajectoryRecord

_NO_MEANING = "trace without spans of agents or tools"
_SAME_START = 1_000_000
"""Carriers round times to microseconds or to what a float holds: within this spans are the same."""
_UNIQUE_ID = 16
"""Call ids of this length are not made by counting: they hold across traces of a session."""


class _Place(NamedTuple):
    """Where a span stands, for those inside it.

    ``start`` is when it began, never before its parent; ``scope`` the nearest tool, model or agent,
    and ``tool`` the nearest tool, both counting the span itself.
    """

    start: int
    depth: int
    scope: str | None
    tool: str | None


_NOWHERE = _Place(0, 0, None, None)

_Row = tuple[int, int, int, str, Call, Event | None, Event | None, _Place, int]
"""A call on its way: start, depth, start as told and a unique name (by which rows sort), the call,
its span, the model's request for it, what it ran inside, and when it ended."""


class _Tree:
    """The spans of a trace with their places.

    Attributes:
        spans: By id.
        meant: Those that tell of agents and tools.
        starts: When each of these began, corrected for clocks and never before its parent.
        above: What each of these ran inside.
        skewed: Those whose clock contradicts their parent's.
        shift: What to add to each machine's times.
    """

    def __init__(
        self, spans: dict[str, Event], meant: list[Event], shift: dict[str | None, int]
    ) -> None:
        self.spans = spans
        self.meant = meant
        self.shift = shift
        self.starts: dict[str, int] = {}
        self.above: dict[str, _Place] = {}
        self.skewed: set[str] = set()
        self._places: dict[str, _Place] = {}
        places, starts = self._places, self.starts
        for span in meant:
            name = span["id"]
            if name in starts:
                continue
            parent = span.get("parent")
            if parent is None:
                above = _NOWHERE
            else:
                known = places.get(parent)
                above = self._place(parent, name) if known is None else known
            self._enter(span, name, above)

    def _enter(self, span: Event, name: str, above: _Place) -> int:
        start = span.get("start")
        if start is None:
            start = above.start
        elif self.shift:
            start += self.shift.get(span.get("host"), 0)
        if start < above.start:
            start = above.start
            self.skewed.add(name)
        self.starts[name] = start
        self.above[name] = above
        return int(start)

    def _place(self, name: str, child: str) -> _Place:
        """The place of a span that others ran inside, after those of its own parents."""
        spans, places = self.spans, self._places
        chain: list[str] = []
        waiting = {child}
        at: str | None = name
        while at is not None and at in spans and at not in places and at not in waiting:
            waiting.add(at)
            chain.append(at)
            at = spans[at].get("parent")
        above = _NOWHERE
        if at is not None:
            # A parent that is not told (or is in a circle) still holds those inside it together.
            above = places.get(at) or _Place(0, 0, at, None)
        if not chain:
            places[name] = above
        for one in reversed(chain):
            span = spans[one]
            start = self._enter(span, one, above)
            kind = span.get("kind")
            if kind is None or kind == "chain":
                above = _Place(start, above.depth + 1, above.scope, above.tool)
            else:
                tool = one if kind == "tool" else above.tool
                above = _Place(start, above.depth + 1, one, tool)
            places[one] = above
        return above

    def kind(self, name: str | None) -> str | None:
        """What a span is; None where it is not told."""
        span = self.spans.get(name) if name is not None else None
        return span.get("kind") if span is not None else None

    def start(self, name: str) -> int:
        """When a span began, 0 where it is not told."""
        return self.starts.get(name, 0)

    def inside(self, name: str) -> _Place:
        """What a span ran inside."""
        return self.above.get(name, _NOWHERE)


def assemble(conversation: str, events: list[Event]) -> Iterator[Record]:
    """The trajectory of a trace, or of the tools of a session that lost their parents."""
    spans, listed, answers = _merged(events)
    meant = [span for span in spans.values() if "kind" in span]
    if not meant:
        yield Ignored(_NO_MEANING)
        return
    tree = _Tree(spans, meant, _shifts(spans, listed, answers))
    if listed:
        listed = _innermost(listed, tree)
    tools, absorbed = _without_copies([s for s in meant if s["kind"] == "tool"], tree)
    moved = [span for span in tools if "moved" in span]
    if moved:
        asked = _asked(moved, listed, tree) if listed else {}
        tools = [span for span in tools if "moved" not in span or span["id"] in asked]
        if not tools and not listed and not any(s["kind"] in ("llm", "agent") for s in meant):
            return  # all of it is told with its session
    rows = _calls(tools, listed, answers, tree)
    rows.sort()
    if answers:
        _answer(rows, answers, tree)
    order = _ordered(rows, tree)
    calls = [rows[number][4] for number in order]
    _nest(rows, order, absorbed)
    known = _earliest("conversation", tree)
    rootless = bool(tools) and all("parent" not in span for span in tools)
    if known is None and conversation.startswith("session "):
        known = conversation.removeprefix("session ")
    if known is not None and (rootless or listed):
        for row in rows:
            if rootless or row[5] is None or "moved" in row[5]:
                _identify(row, known)
    provider = _earliest("provider", tree)
    began = min((at for at in tree.starts.values() if at), default=None)
    yield TrajectoryRecord(
        request=_request(tree),
        calls=calls,
        native_id=conversation,
        started_at=moment_of(began),
        meta={"provider": provider} if provider else {},
        orphans=_orphans(answers, calls) if answers else [],
        duplicates=len(absorbed),
        conversation=known,
        flags=("rootless",) if rootless else (),
    )


def _earliest(key: str, tree: _Tree) -> str | None:
    """What the span that began first says."""
    told = {span[key] for span in tree.meant if key in span}
    if len(told) < 2:
        return next(iter(told), None)
    first = min((s for s in tree.meant if key in s), key=lambda span: _rank(span, tree))
    return str(first[key])


def _rank(span: Event, tree: _Tree) -> tuple[int, int, str]:
    name = span["id"]
    return tree.starts[name], tree.above[name].depth, name


def _request(tree: _Tree) -> str:
    """The earliest user message, or what the root was given."""
    asked = [span for span in tree.meant if "request" in span]
    if not asked:
        return ""
    first = min(asked, key=lambda span: (span.get("rank", 0), _rank(span, tree)))
    return str(first["request"])


# --- the set of events ----------------------------------------------------------------------------


def _merged(events: list[Event]) -> tuple[dict[str, Event], list[Event], list[Event]]:
    """Spans by id, listed calls, and answers; what is told twice is one."""
    known = {event["id"]: event for event in events}
    if len(known) < len(events):
        known = _once(events)
    loose = [event for event in known.values() if "span" in event]
    if not loose:
        return known, loose, loose
    spans = {name: event for name, event in known.items() if "span" not in event}
    listed = [event for event in loose if event["kind"] == "listed"]
    return spans, listed, [event for event in loose if event["kind"] == "answer"]


def _once(events: list[Event]) -> dict[str, Event]:
    """Events by id, those of one span merged."""
    known: dict[str, Event] = {}
    again: dict[str, list[Event]] = {}
    for event in events:
        first = known.setdefault(event["id"], event)
        if first is not event and first != event:
            again.setdefault(event["id"], [first]).append(event)
    for name, told in again.items():
        for number, event in enumerate(_clusters(told)):
            if number:
                event = {**event, "id": f"{name} {number}"}
            known[event["id"]] = event
    return known


def _clusters(told: list[Event]) -> list[Event]:
    """Tellings of one id, merged where they are of one span: the more complete one wins."""
    spelt = {_spelt(event): event for event in told}
    order = sorted(
        spelt.items(),
        key=lambda pair: (pair[1].get("start", 0), str(pair[1].get("name", "")), pair[0]),
    )
    groups: list[list[tuple[str, Event]]] = []
    for text, event in order:
        for group in groups:
            if _is_same(group[0][1], event):
                group.append((text, event))
                break
        else:
            groups.append([(text, event)])
    merged = []
    for group in groups:
        whole: Event = {}
        for _, event in sorted(
            group, key=lambda pair: ("end" in pair[1], len(pair[1]), len(pair[0]), pair[0])
        ):
            whole.update(event)
        merged.append(whole)
    return merged


def _spelt(event: Event) -> str:
    return json.dumps(event, sort_keys=True, ensure_ascii=False, default=str)


def _is_same(one: Event, other: Event) -> bool:
    for key in ("name", "call_id", "kind"):
        if key in one and key in other and one[key] != other[key]:
            return False
    if "start" in one and "start" in other:
        return bool(abs(one["start"] - other["start"]) <= _SAME_START)
    return True


# --- when things happened -------------------------------------------------------------------------


def _shifts(
    spans: dict[str, Event], listed: list[Event], answers: list[Event]
) -> dict[str | None, int]:
    """Nanoseconds to add to each machine's times so that causes come before effects.

    Between two machines every parent and child, every request and its execution, every result and
    the model that saw it bounds the difference of the clocks. Zero where it is within the bounds.
    """
    hosts = {span.get("host") for span in spans.values()}
    if len(hosts) < 2:
        return {}
    bounds: dict[tuple[str | None, str | None], list[float]] = {}

    def bound(cause: Event, effect: Event, least: int | None, most: int | None) -> None:
        """Bounds of what to add to the effect's clock, relative to the cause's."""
        one, other = cause.get("host"), effect.get("host")
        low, high = float("-inf"), float("inf")
        if least is not None:
            low = least
        if most is not None:
            high = most
        known = bounds.setdefault((one, other), [float("-inf"), float("inf")])
        known[0], known[1] = max(known[0], low), min(known[1], high)
        back = bounds.setdefault((other, one), [float("-inf"), float("inf")])
        back[0], back[1] = max(back[0], -high), min(back[1], -low)

    for span in spans.values():
        above = spans.get(span.get("parent", ""))
        if above is None or above.get("host") == span.get("host"):
            continue
        if "start" not in span or "start" not in above:
            continue
        most = None
        if "end" in above and span["start"] > above["end"]:
            most = above["end"] - span.get("end", span["start"])
        bound(above, span, above["start"] - span["start"], most)
    by_id: dict[str, list[Event]] = {}
    for span in spans.values():
        if span.get("kind") == "tool" and "call_id" in span:
            by_id.setdefault(span["call_id"], []).append(span)
    askers: dict[str, list[Event]] = {}
    for one in listed:
        if "call_id" in one:
            askers.setdefault(one["call_id"], []).append(one)
    for call_id, tools in by_id.items():
        # An id that is used again does not say which model asked or saw.
        if len(tools) > 1:
            continue
        tool = tools[0]
        if len(askers.get(call_id, ())) == 1:
            model = spans.get(askers[call_id][0]["span"])
            apart = model is not None and model.get("host") != tool.get("host")
            if model is not None and apart and "start" in model and "start" in tool:
                bound(model, tool, model["start"] - tool["start"], None)
    for answer in answers:
        tools = by_id.get(answer["key"], [])
        model = spans.get(answer["span"])
        if len(tools) != 1 or model is None or "start" not in model:
            continue
        tool = tools[0]
        at = tool.get("end", tool.get("start"))
        if model.get("kind") == "llm" and at is not None and model.get("host") != tool.get("host"):
            bound(model, tool, None, model["start"] - at)
    return _spread_out(spans, bounds)


def _spread_out(
    spans: dict[str, Event], bounds: dict[tuple[str | None, str | None], list[float]]
) -> dict[str | None, int]:
    """From the machine that the models or the root ran on, what to add to each other one."""
    weight: dict[str | None, int] = {}
    for span in spans.values():
        counts = span.get("kind") in ("llm", "agent") or "parent" not in span
        weight[span.get("host")] = weight.get(span.get("host"), 0) + counts
    near: dict[str | None, list[str | None]] = {}
    for one, other in bounds:
        near.setdefault(one, []).append(other)
    shift: dict[str | None, int] = {}
    for first in sorted(weight, key=lambda host: (-weight[host], host or "")):
        if first in shift:
            continue
        shift[first] = 0
        waiting = [first]
        for one in waiting:
            for other in sorted(near.get(one, ()), key=lambda host: host or ""):
                if other in shift:
                    continue
                low, high = bounds[one, other]
                step = 0 if low <= 0 <= high else low if low > 0 else high
                shift[other] = shift[one] + int(step)
                waiting.append(other)
    return shift


# --- what was executed ----------------------------------------------------------------------------


def _innermost(listed: list[Event], tree: _Tree) -> list[Event]:
    """Listed calls without those that a span repeats of the spans inside it."""
    by_span: dict[str, list[Event]] = {}
    for one in listed:
        by_span.setdefault(one["span"], []).append(one)
    if len(by_span) == 1:
        return listed
    spans = tree.spans
    above: dict[str, str | None] = {}

    def lister_above(name: str) -> str | None:
        chain = []
        at = spans.get(name, {}).get("parent")
        while at is not None and at not in above and at in spans and at not in by_span:
            above[at] = None  # also ends circles
            chain.append(at)
            at = spans[at].get("parent")
        found = at if at in by_span else above.get(at) if at is not None else None
        for one in chain:
            above[one] = found
        return found

    inner: dict[str, dict[str, int]] = {}
    kept: list[Event] = []
    depth = {name: tree.inside(name).depth for name in by_span}
    for name in sorted(by_span, key=lambda name: (-depth[name], name)):
        told = inner.pop(name, {})
        own = by_span[name]
        total = dict(told)
        for one in sorted(own, key=lambda one: (one["number"], one["id"])):
            key = one.get("call_id") or f"{one['name']} {canonical(one.get('arguments'))}"
            if told.get(key, 0):
                told[key] -= 1
                continue
            total[key] = total.get(key, 0) + 1
            kept.append(one)
        outer = lister_above(name)
        if outer is not None and depth[outer] < depth[name]:
            counts = inner.setdefault(outer, {})
            for key, count in total.items():
                counts[key] = counts.get(key, 0) + count
    return kept


def _without_copies(tools: list[Event], tree: _Tree) -> tuple[list[Event], dict[str, str]]:
    """Executions without those that a client or server inside tells once more, and these.

    A tool's span directly inside one of the same tool, with nothing said to the contrary, is the
    same call: agents, MCP clients and MCP servers each write a span of it.
    """
    copies: dict[str, list[Event]] = {}
    absorbed: dict[str, str] = {}
    for span in tools:
        above = tree.above[span["id"]]
        if above.tool is None or above.tool != above.scope:
            continue
        outer = tree.spans[above.tool]
        if (
            outer["name"] == span["name"]
            and _agree(outer.get("call_id"), span.get("call_id"))
            and _agree(outer.get("arguments"), span.get("arguments"), spelt=True)
        ):
            absorbed[span["id"]] = outer["id"]
            copies.setdefault(outer["id"], []).append(span)
    if not absorbed:
        return tools, absorbed
    whole = {span["id"]: span for span in tools}
    for span in sorted(tools, key=lambda span: -tree.above[span["id"]].depth):
        inner = sorted(copies.get(span["id"], ()), key=lambda one: _rank(one, tree))
        for copy in inner:
            copy = whole[copy["id"]]
            said = {k: v for k, v in copy.items() if k in ("call_id", "arguments", "result")}
            if "status" not in span and copy["id"] == inner[-1]["id"]:
                # Agents hand a failure of a server on as a result; after a retry the last counts.
                said |= {k: v for k, v in copy.items() if k in ("status", "error")}
            whole[span["id"]] = {**said, **whole[span["id"]]}
    return [whole[span["id"]] for span in tools if span["id"] not in absorbed], absorbed


def _agree(one: Any, other: Any, *, spelt: bool = False) -> bool:
    if one is None or other is None or one == other:
        return True
    return spelt and canonical(one) == canonical(other)


def _calls(
    tools: list[Event], listed: list[Event], answers: list[Event], tree: _Tree
) -> list[_Row]:
    """Each call once: executions joined with the requests of models, attempts with each other."""
    asked = _asked(tools, listed, tree) if listed and tools else {}
    starts, skewed, shift = tree.starts, tree.skewed, tree.shift
    if asked or answers:
        starts = _corrected(tools, asked, answers, tree)
    rows: list[_Row] = []
    attempts = _Attempts(tools, starts, tree)
    for span in attempts.order:
        name = span["id"]
        start, above = starts[name], tree.above[name]
        request = asked.get(name) if asked else None
        call = _call(span, request)
        if name in skewed or (shift and shift.get(span.get("host"))):
            call.flags = ("clock_skew", *(f for f in call.flags if f != "clock_skew"))
        if attempts.repeated and attempts.is_another(span, call, request, start):
            continue
        told, end = call.started_at, call.ended_at
        until = start + (end - told) if end is not None and told is not None else start
        rows.append((start, above.depth, told or 0, name, call, span, request, above, until))
    taken = {request["id"] for request in asked.values()}
    for request in listed:
        if request["id"] not in taken:
            rows.append(_not_executed(request, tree))
    return rows


def _call(span: Event, request: Event | None) -> Call:
    start, end = span.get("start"), span.get("end")
    status = span.get("status")
    flags: tuple[str, ...] = ()
    if end is None:
        flags = ("open",)
        status = status or "incomplete"
    elif start is not None and end < start:
        flags, end = ("clock_skew",), None
    arguments = span.get("arguments", UNRECORDED)
    call_id = span.get("call_id")
    if request is not None:
        if arguments is UNRECORDED:
            arguments = request.get("arguments", UNRECORDED)
        if call_id is None:
            call_id = request.get("call_id")
    result, error = span.get("result"), span.get("error")
    # By position, because keywords take three times as long.
    return Call(
        span["name"], 0, arguments, result, status or "ok", error,
        call_id, start, end, None, 1, None, flags,
    )  # fmt: skip


def _not_executed(request: Event, tree: _Tree) -> _Row:
    """A call that a model asked for and no span tells of."""
    model = tree.spans.get(request["span"], {})
    above = tree.inside(request["span"])
    call = Call(
        name=request["name"],
        turn=0,
        arguments=request.get("arguments", UNRECORDED),
        call_id=request.get("call_id"),
        flags=("not_executed",),
    )
    start = tree.start(request["span"])
    if "end" in model and "start" in model and model.get("kind") == "llm":
        start += max(0, model["end"] - model["start"])
    depth = above.depth + 1
    return start, depth, request["number"], request["id"], call, None, request, above, start


class _Attempts:
    """Executions that repeat one call: the same id and arguments, asked for once."""

    def __init__(self, tools: list[Event], starts: dict[str, int], tree: _Tree) -> None:
        self.order = tools
        ids = [span["call_id"] for span in tools if "call_id" in span]
        self.repeated = len(set(ids)) < len(ids)
        if not self.repeated:
            return
        self._tree = tree
        self._counts: dict[str, int] = {}
        for call_id in ids:
            self._counts[call_id] = self._counts.get(call_id, 0) + 1
        self.order = sorted(tools, key=lambda s: (starts[s["id"]], s.get("start", 0), s["id"]))
        self._first: dict[tuple[Any, ...], Call] = {}
        self._models: dict[str | None, list[int]] = {}
        for span in tree.meant:
            if span["kind"] == "llm":
                scope = tree.above[span["id"]].scope
                self._models.setdefault(scope, []).append(tree.starts[span["id"]])
        for begun in self._models.values():
            begun.sort()

    def is_another(self, span: Event, call: Call, request: Event | None, start: int) -> bool:
        """Whether an execution is one more attempt of an earlier call, which then tells so."""
        call_id = span.get("call_id")
        if call_id is None or self._counts[call_id] < 2:
            return False
        asker: Any = request["id"] if request is not None else self._asker(span, start)
        key = (call_id, span["name"], canonical(span.get("arguments")), asker)
        first = self._first.setdefault(key, call)
        if first is call:
            return False
        _again(first, call)
        return True

    def _asker(self, span: Event, start: int) -> tuple[str | None, int]:
        """Which model most likely asked, where no output says so."""
        scope = self._tree.above[span["id"]].scope
        if scope not in self._tree.spans:
            scope = None
        return scope, bisect_right(self._models.get(scope, []), start)


def _again(first: Call, later: Call) -> None:
    """Add one more attempt to a call."""
    first.attempts += 1
    first.status, first.error = later.status, later.error
    if later.result is not None or later.status == "error":
        first.result = later.result
    first.ended_at = later.ended_at
    flags = [f for f in (*first.flags, *later.flags) if f != "open" or f in later.flags]
    first.flags = tuple(dict.fromkeys(flags))


def _asked(tools: list[Event], listed: list[Event], tree: _Tree) -> dict[str, Event]:
    """The request of each execution: by call id, else by name and arguments in one scope."""
    only = {one["call_id"]: one for one in listed if "call_id" in one}
    if len(only) == len(listed):  # ids that tell requests apart: no more evidence is needed
        asked = {
            span["id"]: only[call_id] for span in tools if (call_id := span.get("call_id")) in only
        }
        if len(asked) == len(tools) or len(only) == len(asked):
            return asked
    begun = {one["span"]: tree.start(one["span"]) for one in listed}
    listed = sorted(listed, key=lambda one: (begun[one["span"]], one["span"], one["number"]))
    ordered = sorted(tools, key=lambda span: (tree.starts[span["id"]], span["id"]))
    asked = {}
    by_id: dict[str, list[Event]] = {}
    for one in listed:
        if "call_id" in one:
            by_id.setdefault(one["call_id"], []).append(one)
    used: dict[str, int] = {}
    for span in ordered:
        known = by_id.get(span.get("call_id", ""))
        if known:
            one = known[0] if len(known) == 1 else _latest(known, span, begun, used, tree)
            asked[span["id"]] = one
            used[one["id"]] = used.get(one["id"], 0) + 1
    left = [span for span in ordered if span["id"] not in asked]
    free = [one for one in listed if one["id"] not in used]
    for spelt in (True, False):
        if not left or not free:
            break
        _ask_by_name(left, free, asked, begun, tree, spelt=spelt)
        taken = {one["id"] for one in asked.values()}
        left = [span for span in left if span["id"] not in asked]
        free = [one for one in free if one["id"] not in taken]
    return asked


def _latest(
    known: list[Event],
    span: Event,
    begun: dict[str, int],
    used: dict[str, int],
    tree: _Tree,
) -> Event:
    """Of several requests with one id, the one that an execution most likely serves.

    The latest model that began before it; within its output equal ids are served in order.
    """
    start = tree.starts[span["id"]]
    at = bisect_right(known, start, key=lambda one: begun[one["span"]])
    model = known[max(at - 1, 0)]["span"]
    same = []
    for one in reversed(known[: max(at, 1)]):
        if one["span"] != model:
            break
        same.append(one)
    if at == 0:
        same = [one for one in known if one["span"] == model]
    else:
        same.reverse()
    named = [one for one in same if one["name"] == span["name"]] or same
    return next((one for one in named if one["id"] not in used), named[-1])


def _ask_by_name(
    left: list[Event],
    free: list[Event],
    asked: dict[str, Event],
    begun: dict[str, int],
    tree: _Tree,
    *,
    spelt: bool,
) -> None:
    """Join what has no common id: an execution serves the latest free request before it."""

    def key(event: Event, scope: str | None) -> tuple[Any, ...]:
        return (scope, event["name"], canonical(event.get("arguments")) if spelt else None)

    steps: list[tuple[int, int, int, Event]] = []
    for number, one in enumerate(reversed(free)):
        steps.append((begun[one["span"]], 0, number, one))
    for number, span in enumerate(left):
        steps.append((tree.starts[span["id"]], 1, number, span))
    steps.sort(key=lambda step: step[:3])
    waiting: dict[tuple[Any, ...], list[Event]] = {}
    for _, is_execution, _, event in steps:
        if is_execution:
            scope = tree.above[event["id"]].scope
            if scope is not None and tree.kind(scope) == "llm":
                scope = tree.inside(scope).scope
            stack = waiting.get(key(event, scope))
            if stack and not (event.get("call_id") and stack[-1].get("call_id")):
                asked[event["id"]] = stack.pop()
        else:
            model = event["span"]
            scope = model if tree.kind(model) == "agent" else tree.inside(model).scope
            waiting.setdefault(key(event, scope), []).append(event)


def _corrected(
    tools: list[Event], asked: dict[str, Event], answers: list[Event], tree: _Tree
) -> dict[str, int]:
    """Starts of executions: not before the model that asked, nor after the one that saw."""
    saw: dict[str, int] = {}
    for answer in answers:
        if answer["occurrence"] == 0 and tree.kind(answer["span"]) == "llm":
            start = tree.start(answer["span"])
            saw[answer["key"]] = min(start, saw.get(answer["key"], start))
    if saw:
        ids = Counter(span["call_id"] for span in tools if "call_id" in span)
        # An id that is used again does not say which of its results was seen.
        saw = {call_id: at for call_id, at in saw.items() if ids[call_id] == 1}
    begun = {one["span"]: tree.start(one["span"]) for one in asked.values()}
    # Agents list calls too, but list those of their models again when they end.
    begun = {name: at for name, at in begun.items() if tree.kind(name) == "llm"}
    starts = tree.starts
    above = tree.above
    if any(above[span["id"]].tool is not None for span in tools):
        tools = sorted(tools, key=lambda span: above[span["id"]].depth)
    changed: dict[str, int] = {}
    for span in tools:
        name = span["id"]
        start = starts[name]
        least = changed.get(above[name].tool or "", 0)
        if name in asked:
            least = max(least, begun.get(asked[name]["span"], 0))
        if saw:
            seen = saw.get(span.get("call_id", ""))
            if seen is not None and start > seen:
                start = seen - 1
                changed[name] = start
        if start < least:
            changed[name] = least
    if not changed:
        return starts
    tree.skewed.update(changed)
    return {**starts, **changed}


def _answer(rows: list[_Row], answers: list[Event], tree: _Tree) -> None:
    """Give calls without a result of their own the one that a later model saw."""
    told: dict[str, dict[int, Event]] = {}
    for answer in sorted(
        answers,
        key=lambda one: (tree.start(one["span"]), one["span"], one["id"]),
    ):
        results = told.setdefault(answer["key"], {})
        known = results.setdefault(answer["occurrence"], answer)
        if "result" not in known and "result" in answer:
            results[answer["occurrence"]] = {**known, **answer}
    calls: dict[str, list[Call]] = {}
    for row in rows:
        call = row[4]
        calls.setdefault(call.call_id or f"name {call.name}", []).append(call)
    for key, found in told.items():
        same = calls.get(key, [])
        for occurrence, call in enumerate(same):
            if occurrence not in found and len(same) > 1:
                continue
            seen = found[occurrence if occurrence in found else min(found)]
            if call.result is None:
                call.result = seen.get("result")
            if seen.get("status") == "error":
                call.status = "error"
            elif call.status in ("no_result", "incomplete"):
                call.status = "ok"
            call.flags = tuple("untraced" if f == "not_executed" else f for f in call.flags)


# --- turns and order ------------------------------------------------------------------------------


def _ordered(rows: list[_Row], tree: _Tree) -> list[int]:
    """The order of the rows; gives each call its turn."""
    groups = _groups(rows, tree)
    if groups is None:
        for number, row in enumerate(rows):
            row[4].turn = number
        return list(range(len(rows)))
    order = sorted(range(len(rows)), key=lambda number: (groups[number], number))
    turn, last = -1, -1
    for number in order:
        if groups[number] != last:
            turn, last = turn + 1, groups[number]
        rows[number][4].turn = turn
    return order


def _groups(rows: list[_Row], tree: _Tree) -> list[int] | None:
    """For each row the first of its turn, or None where every call is a turn of its own.

    One turn: what one output lists, what ran inside one model's span, and what overlaps in time
    inside one parent.
    """
    joins: list[tuple[int, int]] = []
    models = {span["id"] for span in tree.meant if span["kind"] == "llm"}
    # A span around several models' is no single output.
    models -= {tree.above[name].scope or "" for name in models}
    together: dict[str, int] = {}
    running: dict[str | None, tuple[int, int]] = {}
    for number, row in enumerate(rows):
        start, _, _, _, _, span, request, above, until = row
        if request is not None:
            first = together.setdefault(request["span"], number)
            if first != number:
                joins.append((first, number))
        if span is None:
            continue
        scope = above.scope
        if scope in models:
            first = together.setdefault(scope or "", number)
            if first != number:
                joins.append((first, number))
        before = running.get(scope)
        if before is None or start >= before[0]:
            running[scope] = (until, number)
        else:
            joins.append((before[1], number))
            if until > before[0]:
                running[scope] = (until, number)
    if not joins:
        return None
    groups = list(range(len(rows)))

    def root(at: int) -> int:
        while groups[at] != at:
            groups[at] = groups[groups[at]]
            at = groups[at]
        return at

    for one, other in joins:
        one, other = root(one), root(other)
        groups[max(one, other)] = min(one, other)  # the first of a group is its root
    return [root(number) for number in range(len(rows))]


def _nest(rows: list[_Row], order: list[int], absorbed: dict[str, str]) -> None:
    """Give calls that ran inside others the position of these."""
    if all(row[7].tool is None for row in rows):
        return
    positions = {rows[number][3]: position for position, number in enumerate(order)}
    for row in rows:
        outer = row[7].tool
        while outer in absorbed:
            outer = absorbed[outer]
        if outer is not None and outer != row[3]:
            row[4].parent = positions.get(outer)


def _identify(row: _Row, conversation: str) -> None:
    """Name a call that another trace of the session, or its lost roots, may tell of too."""
    call, span = row[4], row[5]
    if call.call_id is not None and len(call.call_id) >= _UNIQUE_ID:
        call.uid = f"{conversation} {call.call_id}"
    elif span is not None:
        call.uid = f"{conversation} {span['id']}"


def _orphans(answers: list[Event], calls: list[Call]) -> list[str]:
    """Results of calls that neither the history nor a span nor an output tells of."""
    loose = [answer for answer in answers if answer.get("orphan")]
    if not loose:
        return []
    known = {call.call_id for call in calls}
    found: dict[str, str] = {}
    for answer in sorted(loose, key=lambda one: one["id"]):
        if answer["key"] not in known:
            name = f"{answer['key']} {answer['occurrence']}"
            found.setdefault(name, as_text(answer.get("result")) or "")
    return [found[name] for name in sorted(found)]
