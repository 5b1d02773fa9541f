"""Events of one trace to a trajectory: a pure function of the set of events.

Clocks of different machines disagree, so order is taken from what caused what: a span runs inside
its parent, after the model that asked for it, and before the model that saw its result. Everything
is linear in the number of events but for sorting.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
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
    """What a span tells those inside it.

    ``start`` is when it began, never before its parent; ``scope`` the nearest tool, model or agent,
    and ``tool`` the nearest tool, both counting the span itself.
    """

    start: int
    depth: int
    scope: str | None
    tool: str | None


_NOWHERE = _Place(0, 0, None, None)


def assemble(conversation: str, events: list[Event]) -> Iterator[Record]:
    """The trajectory of a trace, or of the tools of a session that lost their parents."""
    spans, listed, answers = _merged(events)
    meant = [span for span in spans.values() if "kind" in span]
    if not meant:
        yield Ignored(_NO_MEANING)
        return
    shift = _shifts(spans, listed, answers)
    places, skewed = _places(spans, meant, shift)
    tools = [span for span in meant if span["kind"] == "tool"]
    listed = _innermost(listed, spans, places) if listed else listed
    tools, absorbed, duplicates = _without_copies(tools, spans, places)
    made = _calls(tools, listed, answers, spans, places, skewed, shift)
    _answer(made, answers, places)
    calls = _ordered(made, spans, places, absorbed)
    told = sorted(meant, key=lambda span: (places[span["id"]].start, places[span["id"]].depth))
    known = next((s["conversation"] for s in told if "conversation" in s), None)
    session = conversation.removeprefix("session ")
    rootless = bool(tools) and all("parent" not in span for span in tools)
    if session != conversation:
        known = known or session
    if known is not None:
        loose = rootless or any(one.span is None for one in made)
        if loose:
            _identify(calls, known, {one.position for one in made if one.span is None or rootless})
    starts = [at for span in told if (at := places[span["id"]].start)]
    provider = next((s["provider"] for s in told if "provider" in s), None)
    yield TrajectoryRecord(
        request=_request(told),
        calls=calls,
        native_id=conversation,
        started_at=moment_of(starts[0] if starts else None),
        meta={"provider": provider} if provider else {},
        orphans=_orphans(answers, calls),
        duplicates=duplicates,
        conversation=known,
        flags=("rootless",) if rootless else (),
    )


# --- the set of events ----------------------------------------------------------------------------


def _merged(events: list[Event]) -> tuple[dict[str, Event], list[Event], list[Event]]:
    """Spans by id, listed calls, and answers; what is told twice is one."""
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
    spans: dict[str, Event] = {}
    listed: list[Event] = []
    answers: list[Event] = []
    for name, event in known.items():
        kind = event.get("kind")
        if kind == "listed":
            listed.append(event)
        elif kind == "answer":
            answers.append(event)
        else:
            spans[name] = event
    return spans, listed, answers


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
            if model and model.get("host") != tool.get("host") and {"start"} <= model.keys():
                if "start" in tool:
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


def _places(
    spans: dict[str, Event], meant: list[Event], shift: dict[str | None, int]
) -> tuple[dict[str, _Place], set[str]]:
    """Where each span that matters stands, and those whose clock contradicts their parent's."""
    places: dict[str, _Place] = {}
    skewed: set[str] = set()
    for span in meant:
        if span["id"] in places:
            continue
        chain = [span]
        above = span.get("parent")
        if above is not None and above not in places:
            waiting = {span["id"]}
            while above in spans and above not in places and above not in waiting:
                waiting.add(above)
                chain.append(spans[above])
                above = spans[above].get("parent")
        for one in reversed(chain):
            name, parent = one["id"], one.get("parent")
            inside = places.get(parent) if parent is not None else _NOWHERE
            if inside is None:  # The parent is not told: those inside it still belong together.
                inside = _Place(0, 0, parent, None)
            start = one.get("start")
            if start is None:
                start = inside.start
            elif shift:
                start += shift.get(one.get("host"), 0)
            if start < inside.start:
                start = inside.start
                skewed.add(name)
            kind = one.get("kind")
            if kind is None or kind == "chain":
                places[name] = _Place(start, inside.depth + 1, inside.scope, inside.tool)
            else:
                tool = name if kind == "tool" else inside.tool
                places[name] = _Place(start, inside.depth + 1, name, tool)
    return places, skewed


def _inside(span: Event, places: dict[str, _Place]) -> _Place:
    """The place of a span's parent."""
    parent = span.get("parent")
    if parent is None:
        return _NOWHERE
    return places.get(parent) or _Place(0, 0, parent, None)


# --- what was executed ----------------------------------------------------------------------------


class _Made:
    """A call on its way: its span or the model's request, and where it belongs."""

    __slots__ = ("asked", "call", "group", "key", "length", "position", "scope", "span", "start")

    def __init__(
        self, call: Call, span: Event | None, asked: Event | None, start: int, scope: str | None
    ):
        self.call = call
        self.span = span
        self.asked = asked
        self.start = start
        self.scope = scope
        self.length = 0
        self.group: tuple[str, str | None] | None = None
        self.key: tuple[int, int, int, str] = (start, 0, 0, "")
        self.position = 0


def _innermost(
    listed: list[Event], spans: dict[str, Event], places: dict[str, _Place]
) -> list[Event]:
    """Listed calls without those that a span repeats of the spans inside it."""
    by_span: dict[str, list[Event]] = {}
    for one in listed:
        by_span.setdefault(one["span"], []).append(one)
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
    depth = {name: places[name].depth if name in places else 0 for name in by_span}
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


def _without_copies(
    tools: list[Event], spans: dict[str, Event], places: dict[str, _Place]
) -> tuple[list[Event], dict[str, str], int]:
    """Executions without those that a client or server inside tells once more.

    A tool's span directly inside one of the same tool, with nothing said to the contrary, is the
    same call: agents, MCP clients and MCP servers each write a span of it.
    """
    copies: dict[str, list[Event]] = {}
    absorbed: dict[str, str] = {}
    for span in tools:
        inside = _inside(span, places)
        outer = spans.get(inside.tool) if inside.tool is not None else None
        if (
            outer is not None
            and inside.scope == inside.tool
            and outer["name"] == span["name"]
            and _agree(outer.get("call_id"), span.get("call_id"))
            and _agree(outer.get("arguments"), span.get("arguments"), spelt=True)
        ):
            absorbed[span["id"]] = outer["id"]
            copies.setdefault(outer["id"], []).append(span)
    if not absorbed:
        return tools, absorbed, 0
    kept = []
    order = sorted(tools, key=lambda span: -places[span["id"]].depth)
    whole = {span["id"]: span for span in tools}
    for span in order:
        inner = [whole[copy["id"]] for copy in copies.get(span["id"], ())]
        for copy in sorted(inner, key=lambda one: (places[one["id"]].start, one["id"])):
            said = {k: v for k, v in copy.items() if k in ("call_id", "arguments", "result")}
            if "result" not in span and copy.get("status") and "status" not in span:
                said["status"] = copy["status"]
                said["error"] = copy.get("error")
            whole[span["id"]] = {**said, **whole[span["id"]]}
    kept = [whole[span["id"]] for span in tools if span["id"] not in absorbed]
    return kept, absorbed, len(absorbed)


def _agree(one: Any, other: Any, *, spelt: bool = False) -> bool:
    if one is None or other is None or one == other:
        return True
    return spelt and canonical(one) == canonical(other)


def _calls(
    tools: list[Event],
    listed: list[Event],
    answers: list[Event],
    spans: dict[str, Event],
    places: dict[str, _Place],
    skewed: set[str],
    shift: dict[str | None, int],
) -> list[_Made]:
    """Each call once: executions joined with the requests of models, attempts with each other."""
    asked = _asked(tools, listed, spans, places)
    starts = _corrected(tools, asked, answers, spans, places, skewed) if asked or answers else {}
    counts: dict[str, int] = {}
    for span in tools:
        call_id = span.get("call_id")
        if call_id is not None:
            counts[call_id] = counts.get(call_id, 0) + 1
    repeated = any(count > 1 for count in counts.values())
    models = _models_by_scope(spans, places) if repeated else {}
    made: list[_Made] = []
    attempts: dict[tuple[Any, ...], _Made] = {}
    order = [(starts.get(span["id"], places[span["id"]].start), span) for span in tools]
    if repeated:
        order.sort(key=lambda pair: (pair[0], pair[1].get("start", 0), pair[1]["id"]))
    for start, span in order:
        name = span["id"]
        scope = _inside(span, places).scope
        request = asked.get(name)
        call = _call(span, request)
        if name in skewed or (shift and shift.get(span.get("host"))):
            call.flags = ("clock_skew", *(f for f in call.flags if f != "clock_skew"))
        call_id = span.get("call_id")
        if call_id is not None and counts[call_id] > 1:
            asker: Any = request["id"] if request else _asker(start, scope, spans, models)
            key = (call_id, span["name"], canonical(span.get("arguments")), asker)
            first = attempts.get(key)
            if first is not None:
                _again(first.call, call)
                continue
        one = _Made(call, span, request, start, scope)
        if call_id is not None and counts[call_id] > 1:
            attempts[key] = one
        end = span.get("end")
        if end is not None and "start" in span and end > span["start"]:
            one.length = end - span["start"]
        one.key = (start, places[name].depth, span.get("start", 0), name)
        made.append(one)
    taken = {request["id"] for request in asked.values()}
    for request in listed:
        if request["id"] not in taken:
            made.append(_not_executed(request, spans, places))
    return made


def _call(span: Event, request: Event | None) -> Call:
    start, end = span.get("start"), span.get("end")
    status, flags = span.get("status"), ()
    if end is None:
        flags = ("open",)
        status = status or "incomplete"
    elif start is not None and end < start:
        flags, end = ("clock_skew",), None
    arguments = span.get("arguments", UNRECORDED)
    if arguments is UNRECORDED and request is not None:
        arguments = request.get("arguments", UNRECORDED)
    call_id = span.get("call_id")
    if call_id is None and request is not None:
        call_id = request.get("call_id")
    return Call(
        span["name"],
        0,
        arguments,
        span.get("result"),
        status or "ok",
        span.get("error"),
        call_id,
        start,
        end,
        None,
        1,
        None,
        flags,
    )


def _not_executed(request: Event, spans: dict[str, Event], places: dict[str, _Place]) -> _Made:
    """A call that a model asked for and no span tells of."""
    model = spans.get(request["span"], {})
    place = places.get(request["span"], _NOWHERE)
    call = Call(
        name=request["name"],
        turn=0,
        arguments=request.get("arguments", UNRECORDED),
        call_id=request.get("call_id"),
        flags=("not_executed",),
    )
    start = place.start
    if "end" in model and "start" in model and model.get("kind") == "llm":
        start += max(0, model["end"] - model["start"])
    one = _Made(call, None, request, start, _inside(model, places).scope)
    one.key = (start, place.depth, request["number"], request["id"])
    return one


def _again(first: Call, later: Call) -> None:
    """Add one more attempt to a call."""
    first.attempts += 1
    first.status, first.error = later.status, later.error
    if later.result is not None or later.status == "error":
        first.result = later.result
    first.ended_at = later.ended_at
    flags = [f for f in (*first.flags, *later.flags) if f != "open" or f in later.flags]
    first.flags = tuple(dict.fromkeys(flags))


def _models_by_scope(
    spans: dict[str, Event], places: dict[str, _Place]
) -> dict[str | None, list[int]]:
    """When models began, by what they ran inside."""
    models: dict[str | None, list[int]] = {}
    for name, span in spans.items():
        if span.get("kind") == "llm":
            models.setdefault(_inside(span, places).scope, []).append(places[name].start)
    for starts in models.values():
        starts.sort()
    return models


def _asker(
    start: int,
    scope: str | None,
    spans: dict[str, Event],
    models: dict[str | None, list[int]],
) -> tuple[str | None, int]:
    """Which model most likely asked for an execution, where no output says so."""
    if scope is not None and scope not in spans:
        scope = None
    return scope, bisect_right(models.get(scope, []), start)


def _asked(
    tools: list[Event],
    listed: list[Event],
    spans: dict[str, Event],
    places: dict[str, _Place],
) -> dict[str, Event]:
    """The request of each execution: by call id, else by name and arguments in one scope."""
    if not listed or not tools:
        return {}
    begun = {one["span"]: places.get(one["span"], _NOWHERE).start for one in listed}
    listed = sorted(listed, key=lambda one: (begun[one["span"]], one["span"], one["number"]))
    ordered = sorted(tools, key=lambda span: (places[span["id"]].start, span["id"]))
    asked: dict[str, Event] = {}
    by_id: dict[str, list[Event]] = {}
    for one in listed:
        if "call_id" in one:
            by_id.setdefault(one["call_id"], []).append(one)
    used: dict[str, int] = {}
    for span in ordered:
        known = by_id.get(span.get("call_id", ""))
        if known:
            one = known[0] if len(known) == 1 else _latest(known, span, begun, used, places)
            asked[span["id"]] = one
            used[one["id"]] = used.get(one["id"], 0) + 1
    left = [span for span in ordered if span["id"] not in asked]
    free = [one for one in listed if one["id"] not in used]
    for spelt in (True, False):
        if not left or not free:
            break
        _ask_by_name(left, free, asked, spans, places, begun, spelt=spelt)
        taken = {one["id"] for one in asked.values()}
        left = [span for span in left if span["id"] not in asked]
        free = [one for one in free if one["id"] not in taken]
    return asked


def _latest(
    known: list[Event],
    span: Event,
    begun: dict[str, int],
    used: dict[str, int],
    places: dict[str, _Place],
) -> Event:
    """Of several requests with one id, the one that an execution most likely serves.

    The latest model that began before it; within its output equal ids are served in order.
    """
    start = places[span["id"]].start
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
    spans: dict[str, Event],
    places: dict[str, _Place],
    begun: dict[str, int],
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
        steps.append((places[span["id"]].start, 1, number, span))
    steps.sort(key=lambda step: step[:3])
    waiting: dict[tuple[Any, ...], list[Event]] = {}
    for _, is_execution, _, event in steps:
        if is_execution:
            scope = _inside(event, places).scope
            if spans.get(scope or "", {}).get("kind") == "llm":
                scope = _inside(spans[scope or ""], places).scope
            stack = waiting.get(key(event, scope))
            if stack and not (event.get("call_id") and stack[-1].get("call_id")):
                asked[event["id"]] = stack.pop()
        else:
            model = spans.get(event["span"], {})
            agent = model.get("kind") == "agent"
            scope = event["span"] if agent else _inside(model, places).scope
            waiting.setdefault(key(event, scope), []).append(event)


def _corrected(
    tools: list[Event],
    asked: dict[str, Event],
    answers: list[Event],
    spans: dict[str, Event],
    places: dict[str, _Place],
    skewed: set[str],
) -> dict[str, int]:
    """Starts of executions: not before the model that asked, nor after the one that saw."""
    saw: dict[str, int] = {}
    for answer in answers:
        model = spans.get(answer["span"])
        if model is not None and model.get("kind") == "llm" and answer["occurrence"] == 0:
            start = places[answer["span"]].start
            saw[answer["key"]] = min(start, saw.get(answer["key"], start))
    counts: dict[str, int] = {}
    for span in tools:
        if "call_id" in span:
            counts[span["call_id"]] = counts.get(span["call_id"], 0) + 1
    starts: dict[str, int] = {}
    for span in sorted(tools, key=lambda span: places[span["id"]].depth):
        name = span["id"]
        start = places[name].start
        call_id = span.get("call_id", "")
        least = 0
        outer = _inside(span, places).tool
        if outer is not None and outer in starts:
            least = starts[outer]
        request = asked.get(name)
        if request is not None and spans.get(request["span"], {}).get("kind") == "llm":
            least = max(least, places[request["span"]].start)
        if call_id in saw and counts.get(call_id) == 1 and start > saw[call_id]:
            start = saw[call_id] - 1
            skewed.add(name)
        if start < least:
            start = least
            skewed.add(name)
        starts[name] = start
    return starts


def _answer(made: list[_Made], answers: list[Event], places: dict[str, _Place]) -> None:
    """Give calls without a result of their own the one that a later model saw."""
    if not answers:
        return
    told: dict[str, dict[int, Event]] = {}
    for answer in sorted(
        answers,
        key=lambda one: (
            places.get(one["span"], _NOWHERE).start,
            one["span"],
            "result" not in one,
            one["id"],
        ),
    ):
        known = told.setdefault(answer["key"], {}).setdefault(answer["occurrence"], answer)
        if "result" not in known and "result" in answer:
            told[answer["key"]][answer["occurrence"]] = {**known, **answer}
    calls: dict[str, list[_Made]] = {}
    for one in sorted(made, key=lambda one: one.key):
        calls.setdefault(one.call.call_id or f"name {one.call.name}", []).append(one)
    for key, same in calls.items():
        results = told.get(key)
        if not results:
            continue
        for occurrence, one in enumerate(same):
            found = results.get(occurrence)
            if found is None and len(same) == 1:
                found = results[min(results)]
            if found is None:
                continue
            call = one.call
            if call.result is None:
                call.result = found.get("result")
            if found.get("status") == "error":
                call.status = "error"
            elif call.status in ("no_result", "incomplete"):
                call.status = "ok"
            call.flags = tuple("no_span" if f == "not_executed" else f for f in call.flags)


# --- turns and order ------------------------------------------------------------------------------


def _ordered(
    made: list[_Made],
    spans: dict[str, Event],
    places: dict[str, _Place],
    absorbed: dict[str, str],
) -> list[Call]:
    """Calls in order with their turns and the calls they ran inside."""
    groups = list(range(len(made)))

    def root(at: int) -> int:
        while groups[at] != at:
            groups[at] = groups[groups[at]]
            at = groups[at]
        return at

    made.sort(key=lambda one: one.key)
    thinking = {
        _inside(span, places).scope for span in spans.values() if span.get("kind") == "llm"
    }
    together: dict[tuple[str, str | None], int] = {}
    running: dict[str | None, tuple[int, int]] = {}
    for number, one in enumerate(made):
        keys = []
        if one.asked is not None:
            keys.append(("model", one.asked["span"]))
        scope = one.scope
        if one.span is not None:
            is_model = spans.get(scope or "", {}).get("kind") == "llm"
            if is_model and scope not in thinking:
                keys.append(("model", scope))
            until, other = running.get(scope, (one.start, number))
            if one.start < until:
                groups[root(number)] = root(other)
            end = one.start + one.length
            if end >= until or other == number:
                running[scope] = (end, number)
        for key in keys:
            first = together.setdefault(key, number)
            if first != number:
                groups[root(number)] = root(first)
    least: dict[int, int] = {}
    for number in range(len(made)):  # in order of their keys, so the first is the least
        least.setdefault(root(number), number)
    order = sorted(range(len(made)), key=lambda number: (least[root(number)], number))
    positions: dict[str, int] = {}
    calls: list[Call] = []
    turn, last = -1, -1
    for position, number in enumerate(order):
        group = least[root(number)]
        if group != last:
            turn, last = turn + 1, group
        one = made[number]
        one.call.turn = turn
        one.position = position
        if one.span is not None:
            positions[one.span["id"]] = position
        calls.append(one.call)
    for one in made:
        told = one.span
        if told is None:
            told = spans.get(one.asked["span"], {}) if one.asked else {}
        outer = _inside(told, places).tool
        while outer in absorbed:
            outer = absorbed[outer]
        if outer is not None:
            one.call.parent = positions.get(outer)
    return calls


def _identify(calls: list[Call], conversation: str, loose: Iterable[int]) -> None:
    """Name calls that another trace of the session may tell of too."""
    for position in sorted(loose):
        call = calls[position]
        if call.call_id is not None and len(call.call_id) >= _UNIQUE_ID:
            call.uid = f"{conversation} {call.call_id}"


def _request(told: list[Event]) -> str:
    """The earliest user message, or what the root was given."""
    asked = [span for span in told if "request" in span]
    if not asked:
        return ""
    return str(min(asked, key=lambda span: span.get("rank", 0))["request"])


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
