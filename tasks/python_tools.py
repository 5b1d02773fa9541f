"""Python functions as tools: signature, annotations and docstring of what the user names."""

import importlib
import importlib.util
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tasks.errors import SourceFailed, WrongUsage
from warehouse.catalogue import Listing
from warehouse.errors import UnreadableInput
from warehouse.records import ToolRecord

_ARGUMENTS = re.compile(r"^\s*(args|arguments|parameters|params)\s*:\s*$", re.IGNORECASE)
_HEADING = re.compile(r"^\s*[A-Z][A-Za-z ]+:\s*$")
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^\s*:param\s+(?:[\w\[\], |.]+\s+)?(\w+)\s*:\s*(.*)$")


ENTRY_POINTS = "toolatlas.tools"
"""The group in which installed packages offer tools: a module, a function, or a dict of them."""


def list_functions(text: str) -> Listing:
    """The public functions of a module that the user names, or one of them."""
    return Listing([_function_tool(key, value) for key, value in functions_of(text).items()])


def functions_of(text: str) -> dict[str, Callable[..., Any]]:
    """The functions that the user names, under the names of their tools.

    Args:
        text: ``MODULE`` or ``FILE.py`` for its public functions, or with ``:ATTRIBUTE`` behind it
            for one function or a dict of them.

    Raises:
        SourceFailed: The module cannot be imported.
        WrongUsage: It has no such attribute.
        UnreadableInput: It has no public functions.
    """
    name, _, wanted = text.partition(":")
    module = import_module(name)
    if wanted:
        found = getattr(module, wanted, None)
        if isinstance(found, Mapping):
            functions = {str(key): value for key, value in found.items() if callable(value)}
        elif callable(found):
            functions = {wanted: found}
        else:
            raise WrongUsage(f"expected a function in {name}, got {wanted!r}, which it has not.")
    else:
        offered = getattr(module, "__all__", None)
        functions = {
            key: value
            for key, value in vars(module).items()
            if inspect.isfunction(value)
            and (key in offered if offered is not None else not key.startswith("_"))
            and (offered is not None or value.__module__ == module.__name__)
        }
    if not functions:
        raise UnreadableInput(
            f"expected public functions in the module {name}, found none: nothing was changed."
        )
    return functions


def entry_point(name: str) -> str:
    """What an installed package offers under a name, as text for ``functions_of``.

    Raises:
        WrongUsage: None offers it.
    """
    offered = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise WrongUsage(
            f"expected an entry point of the group {ENTRY_POINTS}, got {name}; installed: {known}."
        )
    return offered[name].replace(" ", "")


def import_module(name: str) -> types.ModuleType:
    """The module of a name or a file; what is beside the user comes first."""
    try:
        if name.endswith(".py"):
            path = Path(name).expanduser().resolve()
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise WrongUsage(f"expected a Python file, got {name}, which does not exist.")
            module = importlib.util.module_from_spec(spec)
            sys.modules.setdefault(path.stem, module)
            spec.loader.exec_module(module)
            return module
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(Path.cwd()))
    except WrongUsage:
        raise
    except Exception as error:
        raise SourceFailed(
            f"expected tools from the module {name}, got {type(error).__name__}: {error}: nothing "
            "was changed."
        ) from error


def _function_tool(name: str, function: Callable[..., Any]) -> ToolRecord:
    """A function's contract: signature, annotations and docstring."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # an annotation that cannot be evaluated is left out
        hints = {}
    document = inspect.getdoc(function) or ""
    told = _argument_texts(document)
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls") or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        parameters.append(
            {
                "name": parameter.name,
                "type": _type_name(hints.get(parameter.name)),
                "description": told.get(parameter.name, ""),
                "required": parameter.default is parameter.empty,
            }
        )
    output = hints.get("return")
    return ToolRecord(
        name=name,
        description=_summary(document),
        parameters=tuple(parameters),
        output_types=_output_types(output),
    )


def _summary(document: str) -> str:
    """The docstring up to its first section."""
    lines: list[str] = []
    for line in document.splitlines():
        if _HEADING.match(line) or _SPHINX.match(line) or line.lstrip().startswith(":return"):
            break
        lines.append(line)
    return "\n".join(lines).strip()


def _argument_texts(document: str) -> dict[str, str]:
    """Descriptions out of an ``Args:`` section or ``:param`` lines."""
    told: dict[str, str] = {}
    inside, indent, last = False, 0, ""
    for line in document.splitlines():
        sphinx = _SPHINX.match(line)
        if sphinx:
            told[sphinx.group(1)] = sphinx.group(2).strip()
        elif _ARGUMENTS.match(line):
            inside, indent, last = True, 0, ""
        elif inside and line.strip():
            depth = len(line) - len(line.lstrip())
            if depth == 0:
                inside = False
                continue
            indent = indent or depth
            entry = _ENTRY.match(line.strip()) if depth <= indent else None
            if entry:
                last = entry.group(1)
                told[last] = entry.group(2).strip()
            elif last:
                told[last] = f"{told[last]} {line.strip()}".strip()
    return told


_TYPE_NAMES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", bytes: "string",
    list: "array", tuple: "array", set: "array", frozenset: "array", dict: "object",
    type(None): "null",
}  # fmt: skip


def _type_name(hint: Any) -> str:
    """The JSON type of an annotation; the name of a class that JSON does not know."""
    if hint is None or hint is Any:
        return ""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return "|".join(dict.fromkeys(_type_name(part) for part in typing.get_args(hint)))
    if origin is typing.Literal:
        kinds = (_TYPE_NAMES.get(type(value), "string") for value in typing.get_args(hint))
        return "|".join(dict.fromkeys(kinds))
    if origin is typing.Annotated:
        return _type_name(typing.get_args(hint)[0])
    base: Any = origin or hint
    if base in _TYPE_NAMES:
        return _TYPE_NAMES[base]
    if isinstance(base, type):
        for kind, name in _TYPE_NAMES.items():
            if issubclass(base, kind):
                return str(name)
        return str(base.__name__)
    return str(getattr(base, "__name__", base))


def _output_types(hint: Any) -> tuple[str, ...]:
    """Types of what a function returns: fields of a class that declares them, or its own type."""
    if hint is None or hint is type(None):
        return ()
    if isinstance(hint, type) and hint not in _TYPE_NAMES:
        try:
            fields = typing.get_type_hints(hint)
        except Exception:  # an annotation that cannot be evaluated
            fields = {}
        if fields:
            return tuple(f"{name}:{_type_name(part)}" for name, part in fields.items())
    return tuple(kind for kind in _type_name(hint).split("|") if kind not in ("", "null"))
