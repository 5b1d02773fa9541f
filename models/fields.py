"""What a tool takes and returns, read from its stored contract: names, types, words."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SCALARS = frozenset({
    "string", "str", "char", "integer", "int", "long", "short", "byte", "number", "float", "double",
    "decimal", "boolean", "bool", "literal", "enum",
})  # fmt: skip
_ARRAYS = frozenset({"array", "list", "sequence", "iterable", "tuple", "set", "frozenset"})
_OBJECTS = frozenset({"object", "dict", "map", "mapping", "record"})
_NOTHING = frozenset({"null", "none", "void", "any", "unknown", "optional", "union", "undefined"})
_VALUES = frozenset({"literal", "enum"})

_NOTE = re.compile(r"\([^()]*\)")
_ATOMS = re.compile(r"[\[\]<>{}(),|'\"&;?]+")
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
_WORD = re.compile(r"[^\W_]+")
_MAX_WORDS = 3
"""A type of more words is prose."""


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter or one part of a result.

    Attributes:
        name: Its name, "" where only a type is known.
        types: Names of the catalogue's own types, dots kept ("image.mask"); no JSON types.
        kind: ``value``, ``array`` or ``object``, as JSON has it.
        is_required: Of a parameter; None where the catalogue does not say.
    """

    name: str
    types: tuple[str, ...]
    kind: str
    is_required: bool | None = None


def parse_type(text: str) -> tuple[tuple[str, ...], str]:
    """Names of own types in a type expression, and its kind; unknown text gives no name.

    ``list[image]`` is (("image",), "array"), ``string|null`` is ((), "value").
    """
    plain = _NOTE.sub(" ", text).replace(" of ", "[").replace(" or ", "|")
    own: list[str] = []
    kinds: set[str] = {"array"} if "[]" in plain else set()
    for atom in _ATOMS.split(plain):
        name = atom.strip().strip(":")
        folded = name.strip("_").casefold()
        if folded in _ARRAYS:
            kinds.add("array")
        elif folded in _OBJECTS:
            kinds.add("object")
        elif folded in _SCALARS:
            kinds.add("value")
            if folded in _VALUES:  # what follows are values, not types
                break
        elif folded not in _NOTHING and _WORD.search(name) and len(name.split()) <= _MAX_WORDS:
            own.append(name)
    kind = next((k for k in _kind_order(bool(own)) if k in kinds), "value")
    return tuple(dict.fromkeys(own)), kind


def _kind_order(has_own: bool) -> tuple[str, ...]:
    """Of ``string|array`` a single value will do; ``dict[str, image]`` holds images."""
    return ("array", "object") if has_own else ("value", "array", "object")


def parse_entry(text: str) -> Field:
    """One entry of ``input_types`` or ``output_types``: "type" or "name:type"."""
    name, colon, kind = text.rpartition(":")
    if colon and parse_type(kind)[0]:  # an own type may hold colons, a JSON type does not
        name, _, kind = text.partition(":")
    if not colon or not name or kind.startswith(("//", ":")):
        name, kind = "", text
    return Field(name.strip(), *parse_type(kind))


def read_takes(parameters: str, input_types: str) -> tuple[Field, ...]:
    """What a tool takes: its parameters, then input types that no parameter has.

    Entries that are no objects, or lack a name and a type, are passed over.
    """
    fields: list[Field] = []
    for entry in _list(parameters):
        if isinstance(entry, dict):
            required = entry.get("required")
            name, kind = _text(entry.get("name")), _text(entry.get("type"))
            if name or kind:
                is_required = required if isinstance(required, bool) else None
                fields.append(Field(name, *parse_type(kind), is_required))
    known = {name for field in fields for name in field.types}
    stated = (parse_entry(entry) for entry in _list(input_types) if isinstance(entry, str))
    return (*fields, *(f for f in stated if f.name or (f.types and not known.issuperset(f.types))))


def read_returns(output_types: str) -> tuple[Field, ...]:
    """What a tool returns."""
    return tuple(parse_entry(entry) for entry in _list(output_types) if isinstance(entry, str))


def _list(text: str) -> list[Any]:
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, lower-case and singular: ``hotelIDs`` is ("hotel", "id")."""
    return tuple(_singular(w.casefold()) for w in _WORD.findall(_BOUNDARY.sub(" ", name)))


def _singular(word: str) -> str:
    if len(word) > 3 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return "id" if word == "ids" else word


def endings(words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Proper endings: of ("origin", "sky", "id") first ("sky", "id"), then ("id",)."""
    return (words[i:] for i in range(1, len(words)))
