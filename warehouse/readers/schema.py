"""JSON Schema of a tool's input to the parameters of a ``ToolRecord``.

Only the top level is read: a tool's parameters are the properties of its input object, also where
they stand in ``allOf``, behind a local ``$ref``, or in one of several alternatives.

A string's ``format`` that no standard defines is a type of the source's own: ``{"type": "string",
"format": "image"}`` is an ``image``, and a list of them ``array[image]``.
"""

import re
from collections.abc import Iterator
from typing import Any

_DEPTH = 16
"""References may be cyclic; nobody nests the top level of an input deeper than this."""
_ARRAY_DEPTH = 5
"""What a list counts for: lists of alternatives that are lists of them are followed thrice."""

_STANDARD_FORMATS = frozenset({
    # JSON Schema, all drafts
    "date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname",
    "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uri-template", "uuid",
    "json-pointer", "relative-json-pointer", "regex", "host-name", "ip-address", "utc-millisec",
    "color", "phone", "style",
    # OpenAPI, with its registry of formats
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double",
    "double-int", "decimal", "decimal128", "byte", "binary", "base64url", "char", "password",
    "commonmark", "html", "http-date", "media-range", "date-time-local", "time-local", "unixtime",
    "sf-binary", "sf-boolean", "sf-decimal", "sf-integer", "sf-string", "sf-token",
    # what generators of schemas write: pydantic, Zod, Ajv, Google, .NET
    "path", "file-path", "directory-path", "json-string", "ipvanyaddress", "ipvanyinterface",
    "ipvanynetwork", "ipv4interface", "ipv4network", "ipv6interface", "ipv6network",
    "multi-host-uri", "name-email", "time-delta", "uuid1", "uuid2", "uuid3", "uuid4", "uuid5",
    "uuid6", "uuid7", "uuid8", "guid", "cuid", "cuid2", "ulid", "nanoid", "ksuid", "xid", "jwt",
    "emoji", "cidrv4", "cidrv6", "cidr", "e164", "base64", "base64-encoded", "hex", "lowercase",
    "uppercase", "iso-date-time", "iso-time", "enum", "google-datetime", "google-duration",
    "google-fieldmask", "timespan", "markdown", "textarea", "multiline",
    # other spellings of the same
    "datetime", "timestamp", "unix-time", "unix-timestamp", "epoch", "iso8601", "iso-8601",
    "rfc3339", "url", "uri-ref", "ip", "uint", "int", "integer", "long", "short", "bigint",
    "number", "numeric", "bool", "boolean", "str", "string", "literal", "array", "list", "sequence",
    "iterable", "tuple", "set", "frozenset", "object", "dict", "map", "mapping", "record", "json",
    "null", "none", "void", "any", "unknown", "optional", "union", "undefined",
})  # fmt: skip
"""Formats that say how a value is written, not what it is; lower case, ``_`` as ``-``."""
_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}")
_DATE_PICTURE = re.compile(r"(?=.*(?:yy|mm|dd|hh))[ymdhsftz_.-]+", re.IGNORECASE)
"""``YYYY-MM-DD`` and the like are no names."""


def parameters_of(schema: Any) -> tuple[dict[str, Any], ...]:
    """The parameters (name, type, description, required) that a tool's input schema declares.

    Types are those of JSON, or the source's own where a string's format names one, joined by ``|``
    where there are several. Of alternatives (``anyOf``, ``oneOf``) all properties count, and are
    required only where every alternative requires them.
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
    """The types that a value may have."""
    spec = _resolved(spec, root)
    if not isinstance(spec, dict) or depth > _DEPTH:
        return
    kind = spec.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    named = [one.lower() for one in kinds if isinstance(one, str)]  # Gemini writes capitals
    if named:
        for name in named:
            yield from _refined(name, spec, root, depth)
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
        yield from _refined("array", spec, root, depth)


_MOST_CHOICES = 20
_CHOICE = re.compile(r"\w[\w .:/-]{0,39}")


def _choices(values: list[Any]) -> list[str]:
    """A few short words to choose from, as a type: ``enum[asc, desc]``."""
    words = [value for value in values if isinstance(value, str) and _CHOICE.fullmatch(value)]
    is_short = 0 < len(values) <= _MOST_CHOICES and len(words) == len(values)
    return [f"enum[{', '.join(words)}]"] if is_short else []


def _refined(name: str, spec: dict[str, Any], root: dict[str, Any], depth: int) -> Iterator[str]:
    """A JSON type, made exact where the source has a type of its own."""
    own: list[str] = []
    if name == "string" and isinstance(spec.get("format"), str):
        own = [kind for kind in (spec["format"].strip(),) if _is_own(kind)]
    elif name == "string" and isinstance(spec.get("enum"), list):
        own = _choices(spec["enum"])
    elif name == "array":
        kinds = dict.fromkeys(_types(spec.get("items"), root, depth + _ARRAY_DEPTH))
        own = [f"array[{kind}]" for kind in kinds if kind.startswith("array[") or _is_own(kind)]
    yield from own or [name]


def _is_own(kind: str) -> bool:
    """Whether a format or type is a name that no standard defines."""
    folded = kind.lower().replace("_", "-")
    is_name = _NAME.fullmatch(kind) and not _DATE_PICTURE.fullmatch(kind)
    return bool(is_name) and folded not in _STANDARD_FORMATS


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
