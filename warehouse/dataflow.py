"""Which earlier call an argument came from: the mined dependencies of one trajectory.

Explicit references (``$var1.city$``, ``<node-1>``) settle it. Where a trajectory has none, and its
source does not state its dependencies either, values are looked up in earlier results, with care
for values that prove nothing: short text, small numbers, and what the user said in the request.
Results that are not kept are compared by salted hashes of their values.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.payload import is_payload, value_id
from warehouse.readers.taskbench import references
from warehouse.values import is_telling, leaves, values_in

_LABEL = re.compile(r"\$(var_?(\d+))\b")
_FEW = 64
"""Calls up to which one text of all results is searched; longer trajectories are indexed."""


@dataclass(slots=True)
class Used:
    """What mining needs of one call.

    Attributes:
        turn: Its turn.
        ok: Whether its result may have been used.
        text: Its arguments as text; empty where there are none.
        arguments: Its arguments parsed, or the mapping that stands for them, or None.
        result: Its result as text, or the mapping that stands for it, or None.
        call_id: Its label, for references such as ``$var1$``.
    """

    turn: int
    ok: bool
    text: str
    arguments: Any
    result: str | dict[str, Any] | None
    call_id: str | None = None


def mine_links(
    request: str, calls: Sequence[Used], *, by_value: bool = True, salt: bytes = b""
) -> list[tuple[int, int]]:
    """Sorted (source, target) positions: the target's arguments use the source's result.

    Only calls of earlier turns can be sources (design, Decision 2).

    Args:
        request: What the user asked.
        calls: The trajectory's calls in order.
        by_value: Whether to look values up where no reference is found.
        salt: Of the hashes in payloads that are not kept.
    """
    pairs: Iterable[tuple[int, int]] | None = _explicit(calls)
    if pairs is None:
        if not by_value or len(calls) < 2:
            return []
        if any(is_payload(call.result) or is_payload(call.arguments) for call in calls):
            pairs = _by_hash(request, calls, salt)
        elif len(calls) <= _FEW:
            pairs = _by_search(request, calls)
        else:
            pairs = _by_index(request, calls)
    return sorted({(s, t) for s, t in pairs if calls[s].turn < calls[t].turn})


def _explicit(calls: Sequence[Used]) -> list[tuple[int, int]] | None:
    if not any("$var" in call.text or "<node-" in call.text for call in calls):
        return None
    labels = {call.call_id: position for position, call in enumerate(calls) if call.call_id}
    texts = [call.text for call in calls]
    pairs = references(texts)
    for target, text in enumerate(texts):
        for label, number in _LABEL.findall(text):
            source = labels.get(label, int(number) - 1)
            if 0 <= source < len(calls):
                pairs.append((source, target))
    return pairs


def _wanted(call: Used, said: str) -> set[str]:
    """Values of a call's arguments whose origin is worth looking for."""
    if not isinstance(call.arguments, dict):
        return set()
    return {v for v in leaves(call.arguments) if is_telling(v) and v.casefold() not in said}


def _by_search(request: str, calls: Sequence[Used]) -> Iterator[tuple[int, int]]:
    """Few calls: a value that no result holds as text needs no closer look."""
    results = [call.result if call.ok and isinstance(call.result, str) else "" for call in calls]
    everything = "\n".join(results[:-1])
    if not everything.strip():
        return
    # Where JSON escapes something, its values do not stand in its text as they are.
    is_plain = "\\" not in everything
    said = request.casefold()
    seen: list[frozenset[str] | None] = [None] * len(calls)
    for target, call in enumerate(calls):
        for value in _wanted(call, said):
            if is_plain and value not in everything:
                continue
            for source in range(target - 1, -1, -1):
                text = results[source]
                if not text or calls[source].turn >= call.turn:
                    continue
                if is_plain and value not in text:
                    continue
                values = seen[source]
                if values is None:
                    values = seen[source] = values_in(text)
                if value in values:
                    yield source, target
                    break


def _by_index(request: str, calls: Sequence[Used]) -> Iterator[tuple[int, int]]:
    """Many calls: the latest earlier turn's call that gave each value, in one pass."""
    said = request.casefold()
    latest: dict[str, int] = {}
    waiting: deque[int] = deque()
    for target, call in enumerate(calls):
        while waiting and calls[waiting[0]].turn < call.turn:
            source = waiting.popleft()
            result = calls[source].result
            if isinstance(result, str):
                latest.update(dict.fromkeys(values_in(result), source))
        for value in _wanted(call, said):
            if value in latest:
                yield latest[value], target
        if call.ok:
            waiting.append(target)


def _by_hash(request: str, calls: Sequence[Used], salt: bytes) -> Iterator[tuple[int, int]]:
    """Payloads that are not kept: the same, over salted hashes of the values."""
    said = request.casefold()
    in_request = {value_id(value, salt) for value in values_in(request)}
    latest: dict[int, int] = {}
    waiting: deque[int] = deque()
    for target, call in enumerate(calls):
        while waiting and calls[waiting[0]].turn < call.turn:
            source = waiting.popleft()
            result = calls[source].result
            if is_payload(result):
                latest.update(dict.fromkeys(result["values"], source))
            elif isinstance(result, str):
                latest.update(dict.fromkeys((value_id(v, salt) for v in values_in(result)), source))
        if is_payload(call.arguments):
            wanted = set(call.arguments["values"]) - in_request
        else:
            wanted = {value_id(value, salt) for value in _wanted(call, said)}
        for value in wanted:
            if value in latest:
                yield latest[value], target
        if call.ok:
            waiting.append(target)
