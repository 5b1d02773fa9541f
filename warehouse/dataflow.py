"""Which earlier call an argument came from: the mined dependencies of one trajectory.

A call that refers to earlier results (``$var1.city$``, ``<node-1>``, ``{{steps.2.id}}``) is settled
by that: who writes references writes one for every result that the call uses. Of every other call
the values are looked up in earlier results, unless the source states its dependencies itself. A
value comes from the earliest result that holds it; one that an argument carried before any result
did is the agent's own, and results that repeat it are echoes. Values that prove nothing are left
out (see ``is_telling``), and so is what the user said. Results that are not kept are compared by
salted hashes of their values.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.payload import is_payload, value_id
from warehouse.readers.taskbench import references
from warehouse.values import is_telling, leaves, may_be_part, stands_in, values_in

_LABEL = re.compile(r"\$(var_?(\d+))\b")
_TEMPLATE = re.compile(r"\{\{\s*([^{}]{1,200}?)\s*\}\}|\$\{\s*([^{}]{1,200}?)\s*\}")
_KEYED = re.compile(r"\[\s*\\?['\"]?([^\[\]'\"\\]+)\\?['\"]?\s*\]")
_COLLECTIONS = frozenset({"steps", "step", "tasks", "nodes", "calls", "outputs", "results"})
_STEP = re.compile(r"(?:step|task|node|call|output|result|var)_?(\d+)")
_FEW, _SMALL = 64, 1 << 18
"""Calls, and characters of their results, up to which values are looked for as text."""
_WORDS = 6
"""Words of the request that are taken together where arguments are only known by hashes."""
_OWN = -1
"""Origin of a value that an argument carried before any result did."""

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
        names: Their tools, for references such as ``{{search.id}}``; empty where not known.
    """

    turns: Sequence[int]
    texts: Sequence[str | None]
    arguments: Sequence[Any]
    results: Sequence[str | dict[str, Any] | None]
    call_ids: Sequence[str | None]
    names: Sequence[str] = ()


def mine_links(
    request: str, used: Used, *, by_value: bool = True, salt: bytes = b""
) -> list[tuple[int, int]]:
    """Sorted (source, target) positions: the target's arguments use the source's result.

    Only calls of earlier turns can be sources (design, Decision 2). A text that only looks like a
    reference, to no earlier call, settles nothing.

    Args:
        request: What the user asked.
        used: The trajectory's calls in order.
        by_value: Whether to look values up where a call has no reference.
        salt: Of the hashes in payloads that are not kept.
    """
    turns = used.turns
    pairs: set[tuple[int, int]] = set()
    if any(
        text and ("$var" in text or "<node-" in text or "{{" in text or "${" in text)
        for text in used.texts
    ):
        pairs = {(s, t) for s, t in _explicit(used) if turns[s] < turns[t]}
    if by_value and any(used.results):
        settled = {target for _, target in pairs}
        pairs.update(pair for pair in _by_value(request, used, salt) if pair[1] not in settled)
    return sorted(pairs)


# --- references -----------------------------------------------------------------------------------


def _explicit(used: Used) -> list[tuple[int, int]]:
    texts = [text or "" for text in used.texts]
    pairs = references(texts)
    positions = {label: at for at, label in enumerate(used.call_ids) if label}
    numbered: list[tuple[int, int]] = []
    for target, text in enumerate(texts):
        for label, number in _LABEL.findall(text):
            pairs.append((positions.get(label, int(number) - 1), target))
        for in_braces, in_dollar in _TEMPLATE.findall(text) if "{" in text else ():
            source = _referred(in_braces or in_dollar, target, used, positions)
            if type(source) is int:
                pairs.append((source, target))
            elif source is not None:
                numbered.append((int(source), target))
    # Steps count from 1, unless there is a step 0.
    first = int(all(number for number, _ in numbered))
    pairs += [(number - first, target) for number, target in numbered]
    return [(s, t) for s, t in pairs if 0 <= s < len(texts)]


def _referred(inside: str, target: int, used: Used, positions: dict[str, int]) -> int | str | None:
    """What ``{{inside}}`` names: a position, or the number of a step as text, or nothing.

    A label wins over a tool, of which the latest call before the target is meant.
    """
    inside = _KEYED.sub(r".\1", inside.partition("|")[0]).strip().lstrip("$")
    parts = inside.split(".")
    is_listed = len(parts) > 1 and parts[0] in _COLLECTIONS
    if is_listed:
        parts = parts[1:]
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end]).strip()
        if name in positions:
            return positions[name]
        if name in used.names:
            for source in range(target - 1, -1, -1):
                if used.names[source] == name and used.turns[source] < used.turns[target]:
                    return source
    head = parts[0].strip()
    if head.isdecimal() and head.isascii() and (is_listed or len(parts) > 1):
        return head[:9]
    numbered = _STEP.fullmatch(head)
    return numbered[1][:9] if numbered else None


# --- values ---------------------------------------------------------------------------------------


def _by_value(request: str, used: Used, salt: bytes) -> _Pairs:
    if any(map(is_payload, used.results)) or any(map(is_payload, used.arguments)):
        return _by_hash(request, used, salt)
    size = sum(len(result) for result in used.results if result)
    is_small = len(used.turns) <= _FEW and size <= _SMALL
    return (_by_search if is_small else _by_index)(request, used)


def _said(request: str) -> str:
    """The request as values are looked for in it, also with blanks for what joins words."""
    text = request.casefold()
    plain = text.replace("_", " ").replace("-", " ").replace(",", "")
    return text if plain == text else f"{text}\n{plain}"


def _is_said(value: str, said: str) -> bool:
    text = value.casefold()
    if text in said:
        return True
    plain = text.replace("_", " ").replace("-", " ").strip()
    return plain != text and plain in said


def _in_turn(turns: Sequence[int]) -> Sequence[int]:
    """Positions by turn, and in their order within one."""
    order = range(len(turns))
    if all(map(int.__le__, turns, turns[1:])):
        return order
    return sorted(order, key=turns.__getitem__)


def _by_search(request: str, used: Used) -> _Pairs:
    """Few calls: what no result can hold is told without taking any apart."""
    turns, said = used.turns, _said(request)
    order = _in_turn(turns)
    texts = [str(result) if result else "" for result in used.results]
    quoted: set[str] = set()
    loose: list[str] = []
    for at in order[:-1]:
        text = texts[at]
        if text and text[0] in "{[" and text[-1] in "}]" and "\\" not in text:
            quoted.update(text.split('"'))  # all texts inside, keys and punctuation too
        elif text:
            loose.append(text)
    rest, whole = "\n".join(loose), ""
    # Where something is escaped, values do not stand in the text as they are.
    is_plain = "\\" not in rest
    apart: dict[int, frozenset[str]] = {}
    origins: dict[str, int] = {}
    known = 0
    for target in order:
        while turns[order[known]] < turns[target]:
            known += 1
        arguments = used.arguments[target]
        if type(arguments) is not dict:
            continue
        for value in leaves(arguments):
            source = origins.get(value)
            if source is None:
                source = _OWN
                is_possible = value in quoted or not is_plain or value in rest
                if known and not is_possible and may_be_part(value):
                    whole = whole or "\n".join(texts)
                    is_possible = value in whole
                if known and is_possible and is_telling(value) and not _is_said(value, said):
                    source = _earliest(value, order[:known], texts, apart)
                origins[value] = source
            if source != _OWN:
                yield source, target


def _earliest(
    value: str, order: Sequence[int], texts: Sequence[str], apart: dict[int, frozenset[str]]
) -> int:
    """The first of the results that holds the value; ``apart`` keeps those taken apart."""
    for source in order:
        text = texts[source]
        if not text or ("\\" not in text and value not in text):
            continue
        if stands_in(text, value):
            return source
        if source not in apart:
            apart[source] = values_in(text)
        if value in apart[source]:
            return source
    return _OWN


def _by_index(request: str, used: Used) -> _Pairs:
    """Many calls: the earliest place of each value, in one pass."""
    turns, said = used.turns, _said(request)
    order = _in_turn(turns)
    origins: dict[str, int] = {}
    known = 0
    for target in order:
        while turns[source := order[known]] < turns[target]:
            known += 1
            if used.results[source]:
                _add(origins, values_in(str(used.results[source])), source)
        arguments = used.arguments[target]
        if type(arguments) is dict:
            for value in leaves(arguments):
                source = origins.setdefault(value, _OWN)
                if source != _OWN and is_telling(value) and not _is_said(value, said):
                    yield source, target


def _by_hash(request: str, used: Used, salt: bytes) -> _Pairs:
    """Payloads that are not kept: the same, over salted hashes of the values."""
    turns, said = used.turns, _said(request)
    order = _in_turn(turns)
    in_request: set[int] | None = None
    origins: dict[int, int] = {}
    known = 0
    for target in order:
        while turns[source := order[known]] < turns[target]:
            known += 1
            result = used.results[source]
            if is_payload(result):
                _add(origins, frozenset(result["values"]), source)
            elif result:
                values = filter(is_telling, values_in(str(result)))
                _add(origins, frozenset(value_id(value, salt) for value in values), source)
        arguments = used.arguments[target]
        if is_payload(arguments):
            if in_request is None:
                in_request = {value_id(value, salt) for value in _phrases(request)}
            wanted = set(arguments["values"]) - in_request
        elif type(arguments) is dict:
            values = filter(is_telling, leaves(arguments))
            wanted = {value_id(value, salt) for value in values if not _is_said(value, said)}
        else:
            continue
        for value in wanted:
            source = origins.setdefault(value, _OWN)
            if source != _OWN:
                yield source, target


def _add(origins: dict[Any, int], values: frozenset[Any], source: int) -> None:
    origins.update(dict.fromkeys(values.difference(origins), source))


def _phrases(request: str) -> set[str]:
    """Values and runs of words that a request holds as they are."""
    words = request.split()
    runs = {
        " ".join(words[begin:end])
        for begin in range(len(words))
        for end in range(begin + 1, min(begin + _WORDS, len(words)) + 1)
    }
    return values_in(request) | runs | {run.strip(".,:;!?\"'()") for run in runs}
