"""Which earlier call an argument came from: the mined dependencies of one trajectory.

Explicit references (``$var1.city$``, ``<node-1>``) settle it. Where a trajectory has none, and its
source does not state its dependencies either, values are looked up in earlier results, with care
for values that prove nothing: short text, small numbers, and what the user said in the request.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from warehouse.readers.taskbench import references
from warehouse.records import UNRECORDED, Call

_LABEL = re.compile(r"\$(var_?(\d+))\b")
_TOKEN = re.compile(r"[^\s\"'{}\[\](),;]{4,}")
_MIN_TEXT = 4
_MIN_NUMBER = 1000
_MAX_RESULT = 200_000
"""Characters of one result that value matching looks at."""


def mine_links(
    request: str, calls: Sequence[Call], *, by_value: bool = True
) -> list[tuple[int, int]]:
    """Sorted (source, target) positions: the target's arguments use the source's result.

    Only calls of earlier turns can be sources (design, Decision 2).

    Args:
        request: What the user asked.
        calls: The trajectory's calls in order.
        by_value: Whether to look values up where no reference is found.
    """
    pairs: Iterable[tuple[int, int]] | None = _explicit(calls)
    if pairs is None:
        pairs = _by_value(request, calls) if by_value else ()
    return sorted({(s, t) for s, t in pairs if calls[s].turn < calls[t].turn})


def _explicit(calls: Sequence[Call]) -> list[tuple[int, int]] | None:
    texts = ["" if call.arguments is UNRECORDED else _text(call.arguments) for call in calls]
    if not any("$var" in text or "<node-" in text for text in texts):
        return None
    labels = {call.call_id: position for position, call in enumerate(calls) if call.call_id}
    pairs = references(texts)
    for target, text in enumerate(texts):
        for label, number in _LABEL.findall(text):
            source = labels.get(label, int(number) - 1)
            if 0 <= source < len(calls):
                pairs.append((source, target))
    return pairs


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _by_value(request: str, calls: Sequence[Call]) -> Iterator[tuple[int, int]]:
    if not any(call.result for call in calls[:-1]):
        return
    said = request.casefold()
    seen: list[frozenset[str] | None] = [None] * len(calls)
    for target, call in enumerate(calls):
        arguments = call.arguments
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                continue
        if not isinstance(arguments, dict):
            continue
        for value in {v for v in _leaves(arguments) if _telling(v) and v.casefold() not in said}:
            for source in range(target - 1, -1, -1):
                if calls[source].turn >= call.turn or calls[source].status != "ok":
                    continue
                if seen[source] is None:
                    seen[source] = _values_in(calls[source].result or "")
                if value in (seen[source] or frozenset()):
                    yield source, target
                    break


def _telling(value: str) -> bool:
    try:
        return abs(float(value)) >= _MIN_NUMBER
    except ValueError:
        return len(value) >= _MIN_TEXT


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield json.dumps(value)


def _values_in(result: str) -> frozenset[str]:
    try:
        return frozenset(_leaves(json.loads(result)))
    except (ValueError, RecursionError):
        return frozenset(token.strip(".:") for token in _TOKEN.findall(result[:_MAX_RESULT]))
