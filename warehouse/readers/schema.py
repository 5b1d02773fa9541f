"""JSON Schema of a tool's input to the parameters of a ``ToolRecord``.

Only the top level is read: a tool's parameters are the properties of its input object, also where
they stand in ``allOf``, behind a local ``$ref``, or in one of several alternatives.
"""

from collections.abc import Iterator
from typing import Any

_DEPTH = 16
"""References may be cyclic; nobody nests the top level of an input deeper than this."""


def parameters_of(schema: Any) -> tuple[dict[str, Any], ...]:
    """The parameters (name, type, description, required) that a tool's input schema declares.

    Types are joined by ``|`` where there are several. Of alternatives (``anyOf``, ``oneOf``) all
    properties count, and are required only where every alternative requires them.
    """
    if not isinstance(schema, dict):
        return ()
    properties, required = _object(schema, schema, 0)
    return tuple(
        {
            "name": name,
            "type": "|".join(dict.fromkeys(_types(spec, schema, 0))),
            "description": _description(spec, schema),
            "required": name in required,
        }
        for name, spec in properties.items()
    )


def _object(schema: Any, root: dict[str, Any], depth: int) -> tuple[dict[str, Any], set[str]]:
    """All properties of an object schema, and the names of those that must be given."""
    schema = _resolved(schema, root)
    if not isinstance(schema, dict) or depth > _DEPTH:
        return {}, set()
    properties: dict[str, Any] = {}
    required: set[str] = set()
    declared = schema.get("properties")
    if isinstance(declared, dict):
        properties.update(declared)
    names = schema.get("required")
    if isinstance(names, list):
        required.update(name for name in names if isinstance(name, str))
    for part in _list(schema, "allOf"):
        more, needed = _object(part, root, depth + 1)
        properties = {**more, **properties}
        required |= needed
    for key in ("anyOf", "oneOf"):
        alternatives = [_object(part, root, depth + 1) for part in _list(schema, key)]
        for more, _ in alternatives:
            properties = {**more, **properties}
        if alternatives:
            required |= set.intersection(*(needed for _, needed in alternatives))
    return properties, required


def _types(spec: Any, root: dict[str, Any], depth: int) -> Iterator[str]:
    """The JSON types that a value may have."""
    spec = _resolved(spec, root)
    if not isinstance(spec, dict) or depth > _DEPTH:
        return
    kind = spec.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    named = [one.lower() for one in kinds if isinstance(one, str)]  # Gemini writes capitals
    if named:
        yield from named
        if spec.get("nullable") is True:
            yield "null"
        return
    for key in ("anyOf", "oneOf", "allOf"):
        for part in _list(spec, key):
            yield from _types(part, root, depth + 1)
    if "const" in spec or isinstance(spec.get("enum"), list):
        for value in _list(spec, "enum") or [spec.get("const")]:
            yield _type_of(value)
    elif "properties" in spec:
        yield "object"
    elif "items" in spec:
        yield "array"


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _description(spec: Any, root: dict[str, Any]) -> str:
    """The description beside a reference, or else of what it points to."""
    for one in (spec, _resolved(spec, root)):
        if isinstance(one, dict) and isinstance(one.get("description"), str):
            return str(one["description"])
    return ""


def _list(schema: dict[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _resolved(spec: Any, root: dict[str, Any]) -> Any:
    """What a local reference (``#/$defs/x``) points to; anything else as it is."""
    for _ in range(_DEPTH):
        reference = spec.get("$ref") if isinstance(spec, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            return spec
        target: Any = root
        for step in reference[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = target.get(step) if isinstance(target, dict) else None
        spec = target
    return {}
