"""OpenAPI documents (Swagger 2.0, OpenAPI 3.0 to 3.2) as catalogues: one tool an operation.

Links of responses become declared edges. Only references inside the document are followed; webhooks
and callbacks are called by the server, so they are no tools.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warehouse.readers.mcp_tools import output_types_of
from warehouse.readers.schema import parameters_of
from warehouse.readers.stream import Item
from warehouse.records import DeclaredEdge, Ignored, Record, ToolRecord

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_NOT_NAME = re.compile(r"[^A-Za-z0-9]+")
_DEPTH = 32
"""References that lead to references; also what ends a circle of them."""
_HEADERS_OF_HTTP = {"accept", "content-type", "authorization"}
"""The standard says to ignore parameters of these names."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the document under the name that its tool gets."""

    name: str
    path: str
    method: str
    value: dict[str, Any]
    shared: list[Any]


def is_document(value: Any) -> bool:
    """An OpenAPI document: states its version, and has paths, webhooks or components."""
    if not isinstance(value, dict):
        return False
    version = value.get("openapi", value.get("swagger"))
    return str(version).startswith(("3.", "2.")) and not {
        "paths",
        "webhooks",
        "components",
    }.isdisjoint(value)


def read_document(item: Item) -> Iterator[Record]:
    """Every operation as a tool, every link as a declared edge, and what was passed over."""
    document = item.value
    notes: dict[str, None] = {}
    operations = operations_of(document, notes)
    for operation in operations:
        yield tool_of(document, operation, notes)
    yield from _edges(document, operations, notes)
    if document.get("webhooks"):
        notes["webhooks: the server calls them, they are no tools"] = None
    if not operations:
        notes["a document without operations"] = None
    for note in notes:
        yield Ignored(note)


# --- operations and their names -------------------------------------------------------------------


def operations_of(document: dict[str, Any], notes: dict[str, None]) -> list[Operation]:
    """The operations of a document, under the names that their tools get."""
    found: list[tuple[str, str, dict[str, Any], list[Any]]] = []
    paths = document.get("paths")
    for path, entry in (paths if isinstance(paths, dict) else {}).items():
        item = resolved(document, entry, notes)
        if not isinstance(item, dict) or not str(path).startswith("/"):
            continue
        shared = item.get("parameters")
        extra = item.get("additionalOperations")
        for method, value in [*item.items(), *(extra.items() if isinstance(extra, dict) else ())]:
            known = method in _METHODS or (isinstance(extra, dict) and method in extra)
            if known and isinstance(value, dict):
                found.append((str(path), method, value, shared if isinstance(shared, list) else []))
    # Names that the document gives come first, so that a made-up one never takes their place.
    taken: set[str] = set()
    names: dict[tuple[str, str], str] = {}
    for path, method, value, _ in found:
        given = value.get("operationId")
        if isinstance(given, str) and given.strip():
            name = given
            if given in taken:
                name = _free(f"{given}_{_made_up(path, method)}", path, method, taken)
                notes[f"operationId {given} again: {method.upper()} {path} is named {name}"] = None
            names[path, method] = name
            taken.add(name)
    for path, method, _, _ in found:
        if (path, method) not in names:
            names[path, method] = _free(_made_up(path, method), path, method, taken)
            taken.add(names[path, method])
    return [
        Operation(names[path, method], path, method, value, shared)
        for path, method, value, shared in found
    ]


def _made_up(path: str, method: str) -> str:
    return _NOT_NAME.sub("_", f"{method.lower()} {path}").strip("_")


def _free(name: str, path: str, method: str, taken: set[str]) -> str:
    """The name, or with a mark of its path and method where another operation has it."""
    if name not in taken:
        return name
    return f"{name}_{hashlib.sha256(f'{method} {path}'.encode()).hexdigest()[:8]}"


# --- contracts ------------------------------------------------------------------------------------


def tool_of(document: dict[str, Any], operation: Operation, notes: dict[str, None]) -> ToolRecord:
    """The contract of an operation; parameters say in ``in`` where their values go."""
    value = operation.value
    declared, bodies = inputs_of(document, operation, notes)
    parameters = {
        (name, place): _parameter(document, parameter, name, place, notes)
        for (name, place), parameter in declared.items()
    }
    types = []
    for schema, is_required in bodies:
        types += _type_names(schema)
        for parameter in _of_body(document, schema, is_required, notes):
            parameters[parameter["name"], "body"] = parameter
    said = [value.get("summary"), value.get("description")]
    texts = list(
        dict.fromkeys(text.strip() for text in said if isinstance(text, str) and text.strip())
    )
    return ToolRecord(
        name=operation.name,
        description="\n".join(texts) or f"{operation.method.upper()} {operation.path}",
        parameters=tuple(parameters.values()),
        input_types=tuple(dict.fromkeys(types)),
        output_types=_outputs(document, value, notes),
        status="deprecated" if value.get("deprecated") is True else "active",
    )


def inputs_of(
    document: dict[str, Any], operation: Operation, notes: dict[str, None]
) -> tuple[dict[tuple[str, str], dict[str, Any]], list[tuple[Any, bool]]]:
    """The parameters of an operation by name and place, and schemas of its body.

    Each schema stands with whether there must be a body.
    """
    declared: dict[tuple[str, str], dict[str, Any]] = {}
    bodies: list[tuple[Any, bool]] = []
    own = operation.value.get("parameters")
    for entry in [*operation.shared, *(own if isinstance(own, list) else [])]:
        parameter = resolved(document, entry, notes)
        if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
            continue
        name, place = parameter["name"], str(parameter.get("in", "query"))
        if place == "header" and name.lower() in _HEADERS_OF_HTTP:
            continue
        if place == "body":  # Swagger 2.0
            bodies.append((parameter.get("schema"), parameter.get("required") is True))
        else:
            declared[name, place] = parameter
    body = resolved(document, operation.value.get("requestBody"), notes)
    if isinstance(body, dict):
        bodies.append((_schema_of(body), body.get("required") is True))
    return declared, bodies


def _parameter(
    document: dict[str, Any],
    parameter: dict[str, Any],
    name: str,
    place: str,
    notes: dict[str, None],
) -> dict[str, Any]:
    """One parameter in the path, query, header, cookie or form."""
    schema = parameter.get("schema") or _schema_of(parameter) or parameter
    _note_external(schema, notes)
    (typed,) = parameters_of({**document, "properties": {name: schema}, "required": []})
    return {
        "name": name,
        "type": typed["type"],
        "description": str(parameter.get("description") or typed["description"]),
        "required": place == "path" or parameter.get("required") is True,
        "in": place,
    }


def _of_body(
    document: dict[str, Any], schema: Any, is_required: bool, notes: dict[str, None]
) -> list[dict[str, Any]]:
    """The fields of a body; one parameter ``body`` where it is no object."""
    _note_external(schema, notes)
    if not isinstance(schema, dict):
        return []
    fields = [
        {**field, "required": is_required and field["required"], "in": "body"}
        for field in fields_of_body(document, schema)
    ]
    if fields:
        return fields
    (typed,) = parameters_of({**_root(document), "properties": {"body": schema}})
    return [{**typed, "required": is_required, "in": "body"}]


def fields_of_body(document: dict[str, Any], schema: Any) -> list[dict[str, Any]]:
    """The fields that a body may have; none where it is no object."""
    if not isinstance(schema, dict):
        return []
    whole = {**_root(document), **schema}
    fields = parameters_of(whole)
    return [field for field in fields if not _is_read_only(document, whole, field["name"])]


def _is_read_only(document: dict[str, Any], schema: Any, name: str) -> bool:
    whole = resolved(document, schema, {})
    properties = whole.get("properties") if isinstance(whole, dict) else None
    field = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(field, dict) and field.get("readOnly") is True


def _outputs(
    document: dict[str, Any], value: dict[str, Any], notes: dict[str, None]
) -> tuple[str, ...]:
    """Types of the answers that mean success: the schema's name, then its fields."""
    responses = value.get("responses")
    responses = {str(k): v for k, v in responses.items()} if isinstance(responses, dict) else {}
    codes = [code for code in responses if code.startswith("2")] or ["default"]
    types: list[str] = []
    for code in codes:
        response = resolved(document, responses.get(code), notes)
        if not isinstance(response, dict):
            continue
        schema = response.get("schema") or _schema_of(response)
        _note_external(schema, notes)
        if isinstance(schema, dict) and schema:
            named = _type_names(schema)
            types += named or ()
            fields = output_types_of({**_root(document), **schema})
            if not (named and fields and all(":" not in field for field in fields)):
                types += fields
    return tuple(dict.fromkeys(types))


def _root(document: dict[str, Any]) -> dict[str, Any]:
    """The document as the root that references of a schema point into."""
    return {key: part for key, part in document.items() if key not in ("tags", "info", "servers")}


def media_of(holder: dict[str, Any]) -> tuple[str, Any]:
    """Media type and schema of a body, response or parameter with ``content``.

    JSON's, or else the first; ("", None) where there is none.
    """
    content = holder.get("content")
    if not isinstance(content, dict):
        return "", None
    media = sorted(content.items(), key=lambda pair: "json" not in str(pair[0]))
    for name, value in media:
        if isinstance(value, dict) and isinstance(value.get("schema"), dict):
            return str(name), value["schema"]
    return "", None


def _schema_of(holder: dict[str, Any]) -> Any:
    return media_of(holder)[1]


def _type_names(schema: Any) -> list[str]:
    """Names of the schemas that one refers to: ``Pet``, ``Pet[]`` for a list of them."""
    if not isinstance(schema, dict):
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return [_unescaped(reference.rsplit("/", 1)[-1])]
    items = schema.get("items")
    if isinstance(items, dict) and isinstance(items.get("$ref"), str):
        return [_unescaped(items["$ref"].rsplit("/", 1)[-1]) + "[]"]
    return []


# --- links ----------------------------------------------------------------------------------------


def _edges(
    document: dict[str, Any], operations: list[Operation], notes: dict[str, None]
) -> Iterator[DeclaredEdge]:
    """Which operation a response names as the next, and the parameters it feeds."""
    by_id: dict[str, Operation] = {}
    for operation in operations:
        given = operation.value.get("operationId")
        if isinstance(given, str):
            by_id.setdefault(given, operation)
    by_place = {(operation.path, operation.method): operation for operation in operations}
    for operation in operations:
        responses = operation.value.get("responses")
        for entry in responses.values() if isinstance(responses, dict) else ():
            response = resolved(document, entry, notes)
            links = response.get("links") if isinstance(response, dict) else None
            for name, one in links.items() if isinstance(links, dict) else ():
                link = resolved(document, one, notes)
                target = _target(link, by_id, by_place) if isinstance(link, dict) else None
                if target is None:
                    lost = f"link {name} of {operation.name}: its operation is not in the document"
                    notes[lost] = None
                    continue
                fed = link.get("parameters")
                fields = sorted(map(str, fed)) if isinstance(fed, dict) else []
                yield DeclaredEdge(operation.name, target.name, ",".join(fields) or "link")


def _target(
    link: dict[str, Any],
    by_id: dict[str, Operation],
    by_place: dict[tuple[str, str], Operation],
) -> Operation | None:
    """The operation of this document that a link names by id or by place."""
    if isinstance(link.get("operationId"), str):
        return by_id.get(link["operationId"])
    reference = link.get("operationRef")
    if not isinstance(reference, str) or not reference.startswith("#/paths/"):
        return None
    path, _, method = reference.removeprefix("#/paths/").rpartition("/")
    return by_place.get((_unescaped(path), method))


# --- references -----------------------------------------------------------------------------------


def _unescaped(step: str) -> str:
    for code, letter in (("%7B", "{"), ("%7D", "}"), ("%7b", "{"), ("%7d", "}")):
        step = step.replace(code, letter)
    return step.replace("~1", "/").replace("~0", "~")


def resolved(document: dict[str, Any], value: Any, notes: dict[str, None]) -> Any:
    """What a reference inside the document points to; an empty object where that is nowhere."""
    for _ in range(_DEPTH):
        reference = value.get("$ref") if isinstance(value, dict) else None
        if not isinstance(reference, str):
            return value
        if not reference.startswith("#"):
            _note_external(value, notes)
            return {}
        target: Any = document
        for step in reference.split("/")[1:]:
            target = target.get(_unescaped(step)) if isinstance(target, dict) else None
        value = target
    notes["a circle of references"] = None
    return {}


def _note_external(schema: Any, notes: dict[str, None]) -> None:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(reference, str) and not reference.startswith("#"):
        notes[f"reference to another document, not followed: {reference}"] = None
