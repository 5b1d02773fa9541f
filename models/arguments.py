"""What a step's arguments become when it runs, out of the resources that are known by then.

A wrong file is replaced by the newest known resource of the wanted type, and a step for which
nothing fits fails before its tool is called. Only types of the catalogue's own are looked at: what
a parameter of a JSON type gets is the planner's word.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from models.errors import MissingResource
from models.fields import Field, parse_type
from models.toolset import Resource, Signature
from models.types import Argument, Plan

_ADDRESS = re.compile(r"\w[\w+.-]*://\S+|\S+\.[A-Za-z][A-Za-z0-9]{0,7}")
_MOST_WORDS = 6
"""A file name of more words is a sentence."""

_LONGEST = 60
"""Characters of a value in a message."""

_MOST_SHOWN = 8
"""Resources named in a message."""


def value_key(value: Any) -> str:
    """The same text for the same JSON value, whatever the order of its fields.

    Raises:
        ValueError: It is no JSON value.
        TypeError: The same.
    """
    return json.dumps(value, sort_keys=True, allow_nan=False)


@dataclass(frozen=True, slots=True)
class KnownResource:
    """A value that is known, with all that is known of it.

    Attributes:
        value: A JSON value.
        types: Its types in the catalogue's words; empty: unknown.
        origins: "request", or ids of the calls that gave it, oldest first.
    """

    value: Any
    types: tuple[str, ...]
    origins: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {"value": self.value, "types": list(self.types), "origins": list(self.origins)}


class Part(NamedTuple):
    """A named part of a result; "" is the whole of it."""

    name: str
    types: tuple[str, ...]
    value: Any
    is_array: bool


def parts_of(result: Any, returns: Sequence[Field]) -> tuple[Part, ...]:
    """The parts of a result as its tool's signature declares them.

    An object has the declared fields, or all its fields where none is declared; a declared type
    without a name is the field that bears the type's name, the only field, or the whole object. Any
    other value is one part, of the returned type where there is only one.
    """
    if not isinstance(result, dict):
        only = returns[0] if len(returns) == 1 else Field("", (), "value")
        return (Part(only.name, only.types, result, only.kind == "array"),)
    if not returns:
        return tuple(Part(name, (), value, False) for name, value in result.items())
    parts = []
    for field in returns:
        name = field.name or next((t for t in field.types if t in result), "")
        if not name and len(result) == 1:
            name = next(iter(result))
        if name in result or not name:
            value = result[name] if name else result
            parts.append(Part(name, field.types, value, field.kind == "array"))
    return tuple(parts)


def match_type(known: str, wanted: str) -> int | None:
    """How well a known type serves as the wanted one: 0 best, None not at all.

    0: the same; 1: the same but for what is before the last dot ("image.mask", "mask"); 2: a
    subtype ("image.mask" for "image").
    """
    known, wanted = known.casefold(), wanted.casefold()
    if known == wanted:
        return 0
    if known.rpartition(".")[2] == wanted or wanted.rpartition(".")[2] == known:
        return 1
    return 2 if known.startswith(f"{wanted}.") else None


def is_address(value: Any) -> bool:
    """Whether it looks like a file's path or an address, not like plain text."""
    return (
        isinstance(value, str)
        and len(value.split(maxsplit=_MOST_WORDS)) <= _MOST_WORDS
        and "\n" not in value
        and _ADDRESS.fullmatch(value.split(" ")[-1]) is not None
    )


class Memory:
    """Known resources by value, in order of recency."""

    def __init__(self) -> None:
        self._known: dict[str, KnownResource] = {}

    @classmethod
    def of_request(cls, resources: Iterable[Resource]) -> "Memory":
        """What the request gives, the last the newest."""
        memory = cls()
        for resource in resources:
            memory.add(resource.value, (resource.type,) if resource.type else (), resource.origin)
        return memory

    @property
    def resources(self) -> tuple[KnownResource, ...]:
        """All of them, the newest last."""
        return tuple(self._known.values())

    def copy(self) -> "Memory":
        """The same resources, to be continued on its own."""
        memory = Memory()
        memory._known = dict(self._known)
        return memory

    def add(self, value: Any, types: Sequence[str], origin: str) -> None:
        """Know a value; one known before becomes the newest and keeps its origins and types."""
        key = value_key(value)
        old = self._known.pop(key, None)
        before = old or KnownResource(value, (), ())
        self._known[key] = KnownResource(
            value,
            tuple(dict.fromkeys((*before.types, *types))),
            tuple(dict.fromkeys((*before.origins, origin))),
        )

    def add_result(self, result: Any, returns: Sequence[Field], origin: str) -> None:
        """Know the parts of a result; of an array of typed things, each of them."""
        for part in parts_of(result, returns):
            is_list = part.is_array and part.types and isinstance(part.value, list)
            for value in part.value if is_list else (part.value,):
                if value is not None:
                    self.add(value, part.types, origin)

    def find(self, value: Any) -> KnownResource | None:
        """What is known of a value."""
        return self._known.get(value_key(value))

    def fitting(self, wanted: Sequence[str]) -> list[Any]:
        """Values of the wanted types, best match first, then the newest."""
        ranked = (
            (rank, place, known.value)
            for place, known in enumerate(reversed(self.resources))
            if (rank := _best_match(known.types, wanted)) is not None
        )
        return [value for _, _, value in sorted(ranked, key=lambda entry: entry[:2])]


@dataclass(frozen=True, slots=True)
class Correction:
    """An argument that was replaced before its step's tool was called."""

    parameter: str
    was: Any
    now: Any
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {
            "parameter": self.parameter,
            "was": self.was,
            "now": self.now,
            "reason": self.reason,
        }


class Resolution(NamedTuple):
    """A step's arguments, ready to be sent, and what was corrected in them."""

    arguments: dict[str, Any]
    corrections: tuple[Correction, ...]


class _Want(NamedTuple):
    """A parameter to fill, with what the plan says of it."""

    argument: Argument
    types: tuple[str, ...]
    is_array: bool


def resolve_arguments(
    plan: Plan,
    step: int,
    signatures: Mapping[str, Signature],
    results: Mapping[int, Any],
    memory: Memory,
) -> Resolution:
    """The arguments that a step's tool is called with.

    A value stays as it is, ``step`` takes what that step gave. Replaced by the newest known
    resource of the wanted type, if possible one that the call does not use yet, are: required
    parameters without a value (a parameter of which nobody knows whether it is required only where
    the plan lists it), files known to be of another type, and unknown strings where all known
    resources of the wanted type are files or objects.

    Args:
        plan: A plan that :func:`~models.execution.check_plan` accepts.
        step: Position of the step.
        signatures: What the tools take and return, by key.
        results: Of the steps that this one depends on, by position.
        memory: What is known when the step starts.

    Raises:
        MissingResource: A value is lacking or wrong, and nothing known fits.
    """
    key = plan.tools[step]
    wants = _wants(plan.arguments[step] if plan.arguments else (), signatures[key].takes)
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for want in wants:
        name = want.argument.name
        values[name] = want.argument.value
        if not want.argument.is_filled:
            wrong[name] = "the plan leaves it open"
        elif want.argument.step is not None:
            source = want.argument.step
            parts = parts_of(results[source], signatures[plan.tools[source]].returns)
            values[name], reason = _take(want, results[source], parts)
            if reason:
                wrong[name] = f"step {source} {reason}"
    used = {
        value_key(value)
        for want in wants
        if want.argument.name not in wrong
        for value in _items(values[want.argument.name], want)
    }
    corrections = []
    for want in wants:
        name = want.argument.name
        now, reason = _correct(values[name], want, wrong.get(name, ""), memory, used)
        if reason:
            if now is None:
                raise MissingResource(_lack(plan, step, want, values[name], reason, memory))
            corrections.append(Correction(name, values[name], now, reason))
        values[name] = now
    return Resolution(values, tuple(corrections))


def _wants(listed: Sequence[Argument], takes: Sequence[Field]) -> list[_Want]:
    """The parameters to fill: those that the plan lists, then required ones that it does not."""
    fields = {field.name: field for field in takes if field.name}
    wants = []
    for argument in listed:
        field = fields.pop(argument.name, None)
        types, kind = parse_type(argument.type)
        if field is not None and field.types:
            types, kind = field.types, field.kind
        if argument.is_filled or field is None or field.is_required is not False:
            wants.append(_Want(argument, types, kind == "array"))
    for field in fields.values():
        if field.is_required:
            wants.append(_Want(Argument(field.name), field.types, field.kind == "array"))
    return wants


def _take(want: _Want, result: Any, parts: Sequence[Part]) -> tuple[Any, str]:
    """The part of a result that an argument means, and what is wrong with it."""
    named = want.argument.field
    if named and isinstance(result, dict):
        if named in result:
            return result[named], ""
        gave = ", ".join(repr(name) for name in result) or "nothing"
        return None, f"gave no {named!r}, but {gave}"
    ranks = [(_best_match(part.types, want.types), i) for i, part in enumerate(parts)]
    if fitting := [(rank, i) for rank, i in ranks if rank is not None]:
        return parts[min(fitting)[1]].value, ""
    if same := [part for part in parts if part.name == want.argument.name]:
        return same[0].value, ""
    return (parts[0].value if len(parts) == 1 else result), ""


def _items(value: Any, want: _Want) -> list[Any]:
    return value if want.is_array and isinstance(value, list) else [value]


def _correct(
    value: Any, want: _Want, reason: str, memory: Memory, used: set[str]
) -> tuple[Any, str]:
    """What an argument becomes, and why it had to change; None where nothing fits."""
    if reason:
        found = _newest(want.types, memory, used)
        return ([found] if want.is_array and found is not None else found), reason
    items = []
    for item in _items(value, want):
        fault = _fault(item, want.types, memory)
        items.append(_newest(want.types, memory, used) if fault else item)
        if items[-1] is None and fault:
            return None, fault
        reason = reason or fault
    if want.is_array and want.types and not isinstance(value, list):
        return items, reason or "a list is wanted"
    return (items if want.is_array and isinstance(value, list) else items[0]), reason


def _fault(value: Any, wanted: Sequence[str], memory: Memory) -> str:
    """Why a value cannot be meant for a parameter of these types, "" if it may be."""
    if not wanted or not isinstance(value, str):
        return ""
    known = memory.find(value)
    if known is not None:
        if not known.types or _best_match(known.types, wanted) is not None:
            return ""
        return f"it is known as {_any_of(known.types)}" if is_address(value) else ""
    of_type = memory.fitting(wanted)
    if of_type and not any(isinstance(v, str) and not is_address(v) for v in of_type):
        return "no such resource is known"
    return ""


def _newest(wanted: Sequence[str], memory: Memory, used: set[str]) -> Any:
    """The newest resource of the wanted types, one that is not used yet before others."""
    found = memory.fitting(wanted)
    fresh = [value for value in found if value_key(value) not in used]
    if not found:
        return None
    value = (fresh or found)[0]
    used.add(value_key(value))
    return value


def _best_match(known: Iterable[str], wanted: Iterable[str]) -> int | None:
    ranks = [match_type(k, w) for k in known for w in wanted]
    return min((rank for rank in ranks if rank is not None), default=None)


def _lack(plan: Plan, step: int, want: _Want, was: Any, reason: str, memory: Memory) -> str:
    """The message for a step that cannot be run."""
    where = f"parameter {want.argument.name!r} of step {step} ({plan.tools[step]})"
    got = f"got {shorten(was)}, but {reason}" if was is not None else reason
    if not want.types:
        return (
            f"missing resource: expected a value for {where}, {got}; its type names no resource "
            "to look for, so the plan has to give it."
        )
    newest = memory.resources[::-1]
    known = [f"{shorten(r.value)} ({_any_of(r.types)})" for r in newest[:_MOST_SHOWN]]
    if len(newest) > _MOST_SHOWN:
        known.append(f"{len(newest) - _MOST_SHOWN} more")
    return (
        f"missing resource: expected {_any_of(want.types)} for {where}, {got}; known: "
        f"{', '.join(known) or 'nothing'}. Name one in the request, or add a step that returns one."
    )


def _any_of(types: Sequence[str]) -> str:
    return " or ".join(types) or "of unknown type"


def shorten(value: Any) -> str:
    """A value as messages show it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
