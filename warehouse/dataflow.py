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
from warehouse.values import holds, is_telling, leaves, values_in

_LABEL = re.compile(r"\$(var_?(\d+))\b")
_FEW, _SMALL = 64, 1 << 18
"""Calls, and characters of their results, up to which values are looked for as text."""

_Pairs = Iterator[tuple[int, int]]


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
        size = sum(len(result) for result in used.results if result)
        is_small = len(turns) <= _FEW and size <= _SMALL
        pairs = (_by_search if is_small else _by_index)(request, used)
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


def _by_search(request: str, used: Used) -> _Pairs:
    """Few calls: what no result can hold is told without taking any apart."""
    turns, said = used.turns, request.casefold()
    texts = [str(result) if result else "" for result in used.results]
    quoted: set[str] = set()
    loose: list[str] = []
    for text in texts[:-1]:
        if text and text[0] in "{[" and text[-1] in "}]" and "\\" not in text:
            quoted.update(text.split('"'))  # all texts inside, keys and punctuation too
        elif text:
            loose.append(text)
    rest = "\n".join(loose)
    # Where something is escaped, values do not stand in the text as they are.
    is_plain = "\\" not in rest
    for target, arguments in enumerate(used.arguments):
        if type(arguments) is not dict or not target:
            continue
        for value in leaves(arguments):
            if (
                value not in quoted
                and is_plain
                and value not in rest
                # Numbers stand in JSON without quotes.
                and (value[0] > "9" or not any(value in text for text in texts))
            ):
                continue
            if not is_telling(value) or value.casefold() in said:
                continue
            for source in range(target - 1, -1, -1):
                text = texts[source]
                if text and turns[source] < turns[target] and holds(text, value):
                    yield source, target
                    break


def _by_index(request: str, used: Used) -> _Pairs:
    """Many calls: the latest of an earlier turn that gave each value, in one pass."""
    turns, said = used.turns, request.casefold()
    latest: dict[str, int] = {}
    waiting = 0
    for target, arguments in enumerate(used.arguments):
        while waiting < target and turns[waiting] < turns[target]:
            if used.results[waiting]:
                latest.update(dict.fromkeys(values_in(str(used.results[waiting])), waiting))
            waiting += 1
        if type(arguments) is dict:
            for value in leaves(arguments):
                if value in latest and is_telling(value) and value.casefold() not in said:
                    yield latest[value], target


def _by_hash(request: str, used: Used, salt: bytes) -> _Pairs:
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
