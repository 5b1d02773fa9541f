"""Which earlier call an argument came from: the mined dependencies of one trajectory.

References to earlier results (``$var1.city$``, ``<node-1>``, ``{{steps.2.id}}``) say it. Unless the
source states its dependencies, values are looked up in earlier results too. References silence
that neither for other calls nor for other arguments of the same call: where some values are
referred to, others still stand as they are (a filter's id inside a list, in ComplexFuncBench).

A value comes from the earliest result that holds it. One that an argument carried before any result
did is the agent's own, and results that repeat it are echoes. Values that prove nothing are left
out (see ``is_telling``), and so is what the user said. Results that are not kept are compared by
salted hashes of their values.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.payload import is_payload, value_id
from warehouse.readers.taskbench import references
from warehouse.values import (
    is_plain_json,
    is_telling,
    leaves,
    stands_in,
    values_in,
)

_LABEL = re.compile(r"\$(var_?([0-9]{1,6}))\b")
_TEMPLATE = re.compile(r"\{\{([^{}]{1,200})\}\}|\$\{([^{}]{1,200})\}")
_KEYED = re.compile(r"\[\s*\\?['\"]?([^\[\]'\"\\]+)\\?['\"]?\s*\]")
_COLLECTIONS = frozenset({"steps", "step", "tasks", "nodes", "calls", "outputs", "results"})
_NUMBER = re.compile(r"[0-9]{1,6}")
_STEP = re.compile(r"(?:step|task|node|call|output|result|var)_?([0-9]{1,6})")
_FEW, _SMALL = 64, 1 << 18
"""Calls, and characters of their results, up to which values are looked for as text."""
_WORDS, _MAX_WORDS = 6, 2_000
"""Words of a request that are taken together where arguments are only known by hashes, and how many
of its words are looked at in this way."""
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

    Only calls of earlier turns can be sources (design, Decision 2). A text that looks like a
    reference but names no earlier call is a text like any other.

    Args:
        request: What the user asked.
        used: The trajectory's calls in order.
        by_value: Whether to look values up, beside following references.
        salt: Of the hashes in payloads that are not kept.
    """
    turns = used.turns
    pairs: set[tuple[int, int]] = set()
    arguments = "\n".join(filter(None, used.texts))
    if "$" in arguments or "<node-" in arguments or "{{" in arguments:
        pairs = {(s, t) for s, t in _explicit(used) if turns[s] < turns[t]}
    if by_value and any(used.results):
        pairs.update(_by_value(request, used, salt))
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
            source = _referred(in_braces, in_dollar, target, used, positions)
            if type(source) is int:
                pairs.append((source, target))
            elif source is not None:
                numbered.append((int(source), target))
    # Steps count from 1, unless there is a step 0.
    first = int(all(number for number, _ in numbered))
    pairs += [(number - first, target) for number, target in numbered]
    return [(s, t) for s, t in pairs if 0 <= s < len(texts)]


def _referred(
    in_braces: str, in_dollar: str, target: int, used: Used, positions: dict[str, int]
) -> int | str | None:
    """What ``{{in_braces}}`` or ``${in_dollar}`` names: a position, or a step's number as text.

    A label wins over a tool, of which the latest call before the target is meant. Shell and
    JavaScript write ``${name}`` too: there a step counts only with a path behind it.
    """
    inside = (in_braces or in_dollar).partition("|")[0]
    parts = [part.strip() for part in _KEYED.sub(r".\1", inside).split(".")]
    is_listed = len(parts) > 1 and parts[0] in _COLLECTIONS
    parts = parts[is_listed:]
    if in_dollar and len(parts) < 2:
        return None
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in positions:
            return positions[name]
        if name in used.names:
            for source in range(target - 1, -1, -1):
                if used.names[source] == name and used.turns[source] < used.turns[target]:
                    return source
    has_path = len(parts) > 1 and not parts[1].isdecimal()
    if _NUMBER.fullmatch(parts[0]):
        return parts[0] if is_listed or (has_path and not in_dollar) else None
    step = None if in_dollar else _STEP.fullmatch(parts[0])
    return step[1] if step else None


# --- values ---------------------------------------------------------------------------------------


def _by_value(request: str, used: Used, salt: bytes) -> _Pairs:
    if any(map(is_payload, used.results)) or any(map(is_payload, used.arguments)):
        return _by_hash(request, used, salt)
    size = sum(len(result) for result in used.results if result)
    is_small = len(used.turns) <= _FEW and size <= _SMALL
    return (_by_search if is_small else _by_index)(request, used)


def said_in(request: str) -> str:
    """The request as values are looked for in it, also with blanks for what joins words."""
    text = request.casefold()
    plain = text.replace("_", " ").replace("-", " ").replace(",", "")
    return text if plain == text else f"{text}\n{plain}"


def is_said(value: str, said: str) -> bool:
    """Whether the user said the value, in other case or with blanks for what joins words."""
    text = value.casefold()
    if text in said:
        return True
    plain = text.replace("_", " ").replace("-", " ").strip()
    return plain != text and plain in said


def _in_turn(turns: Sequence[int]) -> list[int]:
    """Positions by turn, and in their order within one."""
    return sorted(range(len(turns)), key=turns.__getitem__)


def _by_search(request: str, used: Used) -> _Pairs:
    """Few calls: values are looked for as text, and only what seems to hold one is taken apart."""
    turns, said = used.turns, said_in(request)
    order = _in_turn(turns)
    texts: list[str] = []
    ends: list[int] = []
    seen = ""  # The texts of earlier turns, one after the other.
    is_plain = True
    apart: dict[int, frozenset[str]] = {}
    origins: dict[str, int] = {}
    for target in order:
        while turns[source := order[len(texts)]] < turns[target]:
            texts.append(str(used.results[source] or ""))
            seen += texts[-1]
            ends.append(len(seen))
            # Where something is escaped, values do not stand in the text as they are.
            is_plain = is_plain and "\\" not in texts[-1]
        arguments = used.arguments[target]
        if type(arguments) is not dict:
            continue
        for value in leaves(arguments):
            origin = origins.get(value)
            if origin is None:
                origin = _OWN
                at = seen.find(value)
                if (at >= 0 or not is_plain) and is_telling(value) and not is_said(value, said):
                    begin = bisect_right(ends, at) if is_plain else 0
                    origin = _earliest(value, texts, begin, apart)
                origins[value] = origin
            if origin != _OWN:
                yield order[origin], target


def _earliest(
    value: str, texts: Sequence[str], begin: int, apart: dict[int, frozenset[str]]
) -> int:
    """The first of the texts from ``begin`` that holds the value; ``apart`` keeps their values."""
    for at in range(begin, len(texts)):
        text = texts[at]
        if value not in text and "\\" not in text:
            continue
        if at not in apart:
            if is_plain_json(text) and stands_in(text, value):
                return at
            apart[at] = values_in(text)
        if value in apart[at]:
            return at
    return _OWN


def _by_index(request: str, used: Used) -> _Pairs:
    """Many calls: the earliest place of each value, in one pass."""
    turns, said = used.turns, said_in(request)
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
                if source != _OWN and is_telling(value) and not is_said(value, said):
                    yield source, target


def _by_hash(request: str, used: Used, salt: bytes) -> _Pairs:
    """Payloads that are not kept: the same, over salted hashes of the values."""
    turns, said = used.turns, said_in(request)
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
            wanted = {value_id(value, salt) for value in values if not is_said(value, said)}
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
    words = request.split(maxsplit=_MAX_WORDS)[:_MAX_WORDS]
    runs = {
        " ".join(words[begin:end])
        for begin in range(len(words))
        for end in range(begin + 1, min(begin + _WORDS, len(words)) + 1)
    }
    return runs | values_in(request) | {run.strip(".,:;!?\"'()") for run in runs}
