"""Python functions as tools that run in this process."""

import contextvars
import inspect
import threading
import typing
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from models.errors import ToolFailed
from tasks.backends import Backend, Background, Hints, shortened, timed_out, tool_name, unknown

ANNOTATIONS = "TOOL_ANNOTATIONS"
"""A dict in a module that tells what its functions do, in MCP's words, by their names:
``{"find_order": {"readOnlyHint": True}}``.
"""


class PythonTools(Backend):
    """Functions of this process, plain or async; they share its memory and its rights.

    Arguments are made what the annotations say (an object becomes the dataclass that is annotated),
    results become JSON values. A function that runs out of time is left behind in its thread, since
    nothing can stop it; an async one is cancelled. What a function raises is permanent, except for
    ``TimeoutError`` and ``ConnectionError``.

    Args:
        namespace: Of the tools in the catalogue.
        functions: By name, as ``tasks.python_tools.functions_of`` finds them. What they do is read
            from ``TOOL_ANNOTATIONS`` in their module; of others nothing is known.
    """

    def __init__(self, namespace: str, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.namespace = namespace
        self._functions = {name: _read(function) for name, function in functions.items()}
        self._loop = Background()

    def hints(self, key: str) -> Hints:
        """What the module says of a function.

        Raises:
            ToolFailed: There is no such function.
        """
        return self._find(key).hints

    def call(self, key: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """As ``models.toolset.Toolset.call``."""
        function = self._find(key)
        bound = _bound(key, function, arguments)
        if not function.is_async:
            return _in_thread(timeout_s, key, function, bound)

        async def run() -> Any:
            try:
                result = await function.target(*bound.args, **bound.kwargs)
            except (Exception, SystemExit) as error:
                raise _failed(key, error) from error
            return _value(key, result)

        try:
            return self._loop.run(timeout_s, run)
        except TimeoutError as error:
            raise timed_out(key, timeout_s) from error

    def close(self) -> None:
        """Cancel async functions; threads of others end with their function, or the process."""
        self._loop.close()

    def _find(self, key: str) -> "_Function":
        function = self._functions.get(tool_name(key, self.namespace))
        if function is None:
            raise unknown(key, self._functions)
        return function


@dataclass(frozen=True, slots=True)
class _Function:
    """A function, and what makes its arguments of JSON values."""

    target: Callable[..., Any]
    signature: inspect.Signature
    adapters: dict[str, TypeAdapter[Any]]
    hints: Hints
    is_async: bool


def _read(target: Callable[..., Any]) -> _Function:
    """Annotations that cannot be evaluated or checked are left out, as in the catalogue."""
    signature = inspect.signature(target)
    try:
        annotated = typing.get_type_hints(target, include_extras=True)
    except Exception:
        annotated = {}
    adapters: dict[str, TypeAdapter[Any]] = {}
    for name in signature.parameters:
        try:
            if name in annotated:
                adapters[name] = TypeAdapter(annotated[name])
        except PydanticUserError:
            continue
    inner = inspect.unwrap(target)
    module = getattr(inner, "__globals__", {})
    said = module.get(ANNOTATIONS, {}).get(getattr(inner, "__name__", ""), {})
    hints = Hints(*(said.get(f"{name}Hint") for name in ("readOnly", "idempotent", "destructive")))
    called = getattr(target, "__call__", None)  # noqa: B004 (an object that is called)
    is_async = inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(called)
    return _Function(target, signature, adapters, hints, is_async)


def _bound(key: str, function: _Function, arguments: Mapping[str, Any]) -> inspect.BoundArguments:
    """The arguments as the function takes them.

    Raises:
        ToolFailed: They are not those of the function.
    """
    given = dict(arguments)
    values: dict[str, Any] = {}
    wrong: list[str] = []
    rest = ""
    for name, parameter in function.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = name
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif name not in given:
            if parameter.default is parameter.empty:
                wrong.append(f"{name} is missing")
        else:
            value = given.pop(name)
            try:
                adapter = function.adapters.get(name)
                values[name] = adapter.validate_python(value) if adapter else value
            except ValidationError as error:
                said = error.errors(include_url=False, include_input=False)[0]["msg"]
                wrong.append(f"{name}: {said}")
    if rest:
        values[rest] = given
    else:
        wrong += [f"{name} is unknown" for name in given]
    if wrong:
        raise ToolFailed(
            f"expected arguments of {key}{function.signature}, got others: {'; '.join(wrong)}. It "
            "was not called.",
            has_run=False,
        )
    return inspect.BoundArguments(function.signature, values)  # type: ignore[arg-type]


def _in_thread(
    timeout_s: float, key: str, function: _Function, bound: inspect.BoundArguments
) -> Any:
    """The result of a plain function in a thread that may outlive the wait."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(_value(key, function.target(*bound.args, **bound.kwargs)))
        except BaseException as error:
            future.set_exception(error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True, name=key).start()
    if not wait([future], timeout_s).done:
        raise timed_out(key, timeout_s)
    try:
        return future.result()
    except (Exception, SystemExit) as error:
        raise _failed(key, error) from error


def _failed(key: str, error: BaseException) -> ToolFailed:
    if isinstance(error, ToolFailed):
        return error
    said = shortened(str(error)).rstrip(".")
    return ToolFailed(
        f"expected a result of {key}, got {type(error).__name__}{f': {said}' if said else ''}.",
        is_transient=isinstance(error, (TimeoutError, ConnectionError)),
    )


def _value(key: str, result: Any) -> Any:
    """A result as a JSON value: dataclasses, models and named tuples become objects."""
    try:
        whole = result._asdict() if hasattr(result, "_asdict") else result
        return to_jsonable_python(whole, bytes_mode="base64")
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolFailed(
            f"expected a result of {key} that JSON can hold, got {type(result).__name__}.",
            has_run=True,
        ) from error
