"""The tools that execution may call: backends by namespace, behind a guard."""

import fnmatch
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from models.errors import ToolFailed
from models.toolset import Traits
from tasks.backends import Backend
from tasks.errors import TaskError, WrongUsage
from tasks.python_tools import entry_point, functions_of
from tasks.settings import Settings, read_secret
from tasks.tool_servers import command_words, fetch_document
from warehouse.errors import WarehouseError

Ask = Callable[[str, Mapping[str, Any]], bool]
"""Whether the user lets a tool (its key) run with these arguments."""


class Toolsets:
    """Tools of several namespaces; what is not allowed does not run, and starts no server.

    A tool runs if a pattern in ``allowed`` fits its key. If it may destroy something,
    ``destructive`` decides as well: refuse it, ask the user before each call, or let it run.

    A tool may destroy if it says so, or says that it writes and not that it only adds (MCP's
    default). Many servers say nothing at all. To take that for harmless would let ``shop/*`` delete
    things that nobody thought of; to take it for destructive everywhere would have people answer a
    question for each call, or switch the guard off. So whoever allows such a tool by its full name
    has decided, and one that only a pattern with a wildcard allows is treated as destructive.

    What a server says of its tools is its own word. The list of allowed tools is what protects;
    hints only keep a wide pattern from reaching too far.

    Args:
        backends: What makes the backend of a namespace, at the first use.
        allowed: Glob patterns on ``namespace/name``.
        destructive: What becomes of tools that may destroy.
        ask: Asks the user; without it, ``ask`` refuses.
    """

    def __init__(
        self,
        backends: Mapping[str, Callable[[], Backend]],
        allowed: tuple[str, ...] = (),
        destructive: Literal["refuse", "ask", "allow"] = "refuse",
        ask: Ask | None = None,
    ) -> None:
        self._makers = dict(backends)
        self._allowed = allowed
        self._destructive = destructive
        self._ask = ask
        self._opened: dict[str, Backend] = {}
        self._locks = {namespace: threading.Lock() for namespace in backends}
        self._asking = threading.Lock()
        self._is_closed = False

    def traits(self, key: str) -> Traits:
        """What kind of tool it is: the careful defaults where it may not run or be found."""
        if not self._is_allowed(key):
            return Traits()
        try:
            return self._backend(key).traits(key)
        except ToolFailed:
            return Traits()

    def call(self, key: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """As ``models.toolset.Toolset.call``; what the guard refuses has not run."""
        if not self._is_allowed(key):
            raise _refused(
                f"expected a tool that may run, got {key}: add it, or a pattern such as "
                f"{key.partition('/')[0]}/*, to the setting allowed_tools (TOOLATLAS_ALLOWED_TOOLS)"
            )
        backend = self._backend(key)
        if self._destructive != "allow":
            self._check_effects(backend, key, arguments)
        return backend.call(key, arguments, timeout_s)

    def refusal(self, key: str) -> str | None:
        """Why a tool would not run, or that it would be asked about; None where it would run."""
        if not self._is_allowed(key):
            return f"{key} is not allowed: setting allowed_tools"
        try:
            says = self._backend(key).hints(key).is_destructive
        except ToolFailed as error:
            return str(error)
        if self._destructive == "allow" or not self._may_destroy(key, says):
            return None
        if self._destructive == "ask":
            return f"you would be asked: {key} may destroy something"
        return f"{key} may destroy something: setting destructive"

    def close(self) -> None:
        """Close every backend that was opened, also where one of them fails to."""
        with ExitStack() as stack:
            for lock in self._locks.values():
                stack.enter_context(lock)
            self._is_closed = True
            opened, self._opened = self._opened, {}
        with ExitStack() as stack:
            for backend in opened.values():
                stack.callback(backend.close)

    def __enter__(self) -> Self:
        """Nothing is opened yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _is_allowed(self, key: str) -> bool:
        return key in self._allowed or any(
            fnmatch.fnmatchcase(key, pattern) for pattern in self._allowed
        )

    def _may_destroy(self, key: str, says: bool | None) -> bool:
        """By its word, or where only a pattern allows a tool that says nothing."""
        return says is True or (says is None and key not in self._allowed)

    def _check_effects(self, backend: Backend, key: str, arguments: Mapping[str, Any]) -> None:
        """Refuse what may destroy, unless the user says yes."""
        says = backend.hints(key).is_destructive
        if not self._may_destroy(key, says):
            return
        if self._destructive == "ask" and self._ask is not None:
            with self._asking:  # one question at a time
                answer = self._ask(key, arguments)
            if answer:
                return
            raise _refused(f"expected a yes to {key}, got a no", is_refusal=True)
        if says is None:
            raise _refused(
                f"expected a tool that says whether it destroys anything, got {key}, which a "
                "pattern allows and which says nothing: add its full name to the setting "
                "allowed_tools, or set destructive (TOOLATLAS_DESTRUCTIVE) to ask or allow",
                is_refusal=True,
            )
        raise _refused(
            f"expected a tool that destroys nothing, got {key}, which may: set the setting "
            "destructive (TOOLATLAS_DESTRUCTIVE) to ask or allow",
            is_refusal=True,
        )

    def _backend(self, key: str) -> Backend:
        namespace = key.partition("/")[0]
        if namespace not in self._makers:
            raise _refused(
                f"expected a server for {key}, got none for its namespace: add {namespace} to the "
                "setting execute_servers (TOOLATLAS_EXECUTE_SERVERS)"
            )
        with self._locks[namespace]:
            if self._is_closed:
                raise _refused(f"expected open tools for {key}, but they were closed")
            if namespace not in self._opened:
                try:
                    self._opened[namespace] = self._makers[namespace]()
                except (TaskError, WarehouseError) as error:
                    raise _refused(f"expected the tools of {namespace}: {error}") from error
            return self._opened[namespace]


def _refused(text: str, *, is_refusal: bool = False) -> ToolFailed:
    told = f"{text.rstrip('.')}. It was not called."
    return ToolFailed(told, has_run=False, is_refusal=is_refusal)


@contextmanager
def open_toolsets(settings: Settings, ask: Ask | None = None) -> Iterator[Toolsets]:
    """The tools that the settings name and allow; what was opened is closed at the end.

    Args:
        settings: ``execute_servers``, ``execute_secrets``, ``allowed_tools``, ``destructive``.
        ask: Asks the user before a tool that may destroy, where ``destructive`` is ``ask``.
    """

    def maker(namespace: str) -> Callable[[], Backend]:
        return lambda: open_backend(namespace, settings)

    makers = {namespace: maker(namespace) for namespace in settings.execute_servers}
    with Toolsets(makers, settings.allowed_tools, settings.destructive, ask) as tools:
        yield tools


def open_backend(namespace: str, settings: Settings) -> Backend:
    """The backend of a namespace, which reaches its server in the way of ``catalogue sync``.

    Raises:
        TaskError: The setting does not say how, or the tools are not there.
        WarehouseError: A module has no functions.
    """
    how = settings.execute_servers[namespace].strip()
    secrets = {
        name.partition("/")[2]: variable
        for name, variable in settings.execute_secrets.items()
        if name.partition("/")[0] == namespace
    }
    for prefix in ("python:", "entrypoint:"):
        if how.startswith(prefix):
            from tasks.python_callables import PythonTools

            rest = how.removeprefix(prefix)
            return PythonTools(
                namespace, functions_of(rest if prefix == "python:" else entry_point(rest))
            )
    timeout_s = settings.catalogue_timeout_s
    for prefix in ("mcp:", "stdio:"):
        if how.startswith(prefix):
            rest = how.removeprefix(prefix).strip()
            is_address = rest.startswith(("http://", "https://"))
            server = rest if is_address else command_words(how, rest)
            return _mcp(namespace, server, secrets, timeout_s)
    words = _words(namespace, how.removeprefix("openapi:"))
    is_address = words[0].startswith(("http://", "https://"))
    if is_address and not how.startswith("openapi:") and len(words) == 1:
        if fetch_document(words[0], timeout_s, must=False) is None:
            return _mcp(namespace, words[0], secrets, timeout_s)
    elif not is_address and not Path(words[0]).expanduser().is_file():
        raise _unknown(namespace, how)
    from tasks.http_tools import OpenApiTools

    base_url = words[1] if len(words) > 1 else None
    return OpenApiTools(
        namespace, words[0], base_url=base_url, secrets=secrets, open_timeout_s=timeout_s
    )


def _mcp(
    namespace: str, server: list[str] | str, secrets: Mapping[str, str], timeout_s: float
) -> Backend:
    from tasks.mcp_tools import TOKEN, McpTools  # two seconds of imports that others do without

    if isinstance(server, list):
        environment = {name: _secret(variable) for name, variable in secrets.items()}
        return McpTools(namespace, server, environment=environment, start_timeout_s=timeout_s)
    for name in secrets:
        if name != TOKEN:
            raise WrongUsage(
                f"expected {namespace}/{TOKEN} in the setting execute_secrets, the only secret "
                f"that an MCP server at an address takes, got {namespace}/{name}."
            )
    token = _secret(secrets[TOKEN]) if TOKEN in secrets else None
    return McpTools(namespace, server, token=token, start_timeout_s=timeout_s)


def _secret(variable: str) -> str:
    value = read_secret(variable)
    if value is None:
        raise WrongUsage(
            f"expected a value in the environment variable {variable}, which the setting "
            "execute_secrets names, got none."
        )
    return value


def _words(namespace: str, how: str) -> list[str]:
    try:
        words = shlex.split(how)
    except ValueError as error:
        raise _unknown(namespace, how) from error
    if len(words) not in (1, 2):
        raise _unknown(namespace, how)
    return words


def _unknown(namespace: str, how: str) -> WrongUsage:
    return WrongUsage(
        "expected mcp:COMMAND, an address, a file of an OpenAPI document, python:MODULE or "
        f"entrypoint:NAME for {namespace} in the setting execute_servers, got {how!r}."
    )
