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
from warehouse.values import is_telling, json_leaves, leaves, values_in

_LABEL = re.compile(r"\$(var_?(\d+))\b")
_SHORT = 4096
"""Characters of JSON up to which it is indexed at once."""
_FEW = 64
"""Longer results that are searched as text; older ones are indexed."""


@dataclass(slots=True)
class Used:
    """What mining needs of a trajectory, one entry a call.

    Attributes:
        turns: Their turns.
        texts: Their arguments as text; None or empty where there are none.
        arguments: Their arguments parsed, or the mapping that stands for them, or None.
        results: Their results where they may have been used, as text or as the mapping that
            stands for it, else None.
        call_ids: Their labels, for references such as ``$var1$``.
    """

    turns: Sequence[int]
    texts: Sequence[str | None]
    arguments: Sequence[Any]
    results: Sequence[str | dict[str, Any] | None]
    call_ids: Sequence[str | None]


def mine_links(
    request: str, used: Used, *, by_value: bool = True, salt: bytes = b""
) -> list[tuple[int, int]]:
    """Sorted (source, target) positions: the target's arguments use the source's result.

    Only calls of earlier turns can be sources (design, Decision 2).

    Args:
        request: What the user asked.
        used: The trajectory's calls in order.
        by_value: Whether to look values up where no reference is found.
        salt: Of the hashes in payloads that are not kept.
    """
    turns = used.turns
    if any(text and ("$var" in text or "<node-" in text) for text in used.texts):
        pairs: Iterable[tuple[int, int]] = _explicit(used)
    elif not by_value or not any(used.results):
        return []
    elif any(map(is_payload, used.results)) or any(map(is_payload, used.arguments)):
        pairs = _by_hash(request, used, salt)
    else:
        pairs = _by_value(request, used)
    return sorted({(s, t) for s, t in pairs if turns[s] < turns[t]})


def _explicit(used: Used) -> list[tuple[int, int]]:
    labels = {call_id: position for position, call_id in enumerate(used.call_ids) if call_id}
    texts = [text or "" for text in used.texts]
    pairs = references(texts)
    for target, text in enumerate(texts):
        for label, number in _LABEL.findall(text):
            source = labels.get(label, int(number) - 1)
            if 0 <= source < len(texts):
                pairs.append((source, target))
    return pairs


def _wanted(arguments: Any, said: str) -> set[str]:
    """Values of a call's arguments whose origin is worth looking for."""
    if type(arguments) is not dict:
        return set()
    return {v for v in leaves(arguments) if is_telling(v) and v.casefold() not in said}


def _by_value(request: str, used: Used) -> Iterator[tuple[int, int]]:
    """The latest call of an earlier turn that gave each value.

    Short JSON is indexed by its values at once. In anything longer a value is first looked for as
    text, which is much cheaper than taking it apart; that holds for the latest few, so that the
    work grows with the number of calls only.
    """
    turns, results, said = used.turns, used.results, request.casefold()
    latest: dict[str, int] = {}
    unread: deque[int] = deque()
    values: dict[int, frozenset[str]] = {}
    waiting = 0
    for target, arguments in enumerate(used.arguments):
        while waiting < target and turns[waiting] < turns[target]:
            text = results[waiting]
            if text:
                text = str(text)
                short = json_leaves(text) if len(text) <= _SHORT else None
                if short is not None:
                    for value in short:
                        latest[value] = waiting
                else:
                    unread.append(waiting)
                    if len(unread) > _FEW:
                        oldest = unread.popleft()
                        for value in values.pop(oldest, None) or values_in(str(results[oldest])):
                            latest[value] = max(oldest, latest.get(value, -1))
            waiting += 1
        if type(arguments) is not dict:
            continue
        for value in leaves(arguments):
            source = latest.get(value, -1)
            for other in reversed(unread):
                if other < source:
                    break
                text = str(results[other])
                # Where JSON escapes something, its values do not stand in its text as they are.
                if value not in text and "\\" not in text:
                    continue
                if other not in values:
                    values[other] = values_in(text)
                if value in values[other]:
                    source = other
                    break
            if source >= 0 and is_telling(value) and value.casefold() not in said:
                yield source, target


def _by_hash(request: str, used: Used, salt: bytes) -> Iterator[tuple[int, int]]:
    """Payloads that are not kept: the same, over salted hashes of the values."""
    turns, said = used.turns, request.casefold()
    in_request = {value_id(value, salt) for value in values_in(request)}
    latest: dict[int, int] = {}
    waiting: deque[int] = deque()
    for target, arguments in enumerate(used.arguments):
        while waiting and turns[waiting[0]] < turns[target]:
            source = waiting.popleft()
            result = used.results[source]
            ids = (
                result["values"]
                if is_payload(result)
                else [value_id(value, salt) for value in values_in(str(result))]
            )
            latest.update(dict.fromkeys(ids, source))
        if is_payload(arguments):
            wanted = set(arguments["values"]) - in_request
        else:
            wanted = {value_id(value, salt) for value in _wanted(arguments, said)}
        for value in wanted:
            if value in latest:
                yield latest[value], target
        if used.results[target]:
            waiting.append(target)
