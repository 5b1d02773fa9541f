"""Tools of an MCP server, called with the official SDK: one session for all calls and threads."""

import asyncio
import contextlib
import re
import shlex
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import httpx2
import mcp_types
from anyio.abc import TaskGroup
from jsonschema import SchemaError
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for
from mcp import Client, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from referencing import Registry
from referencing.exceptions import Unresolvable

from models.errors import ToolFailed
from tasks.addresses import is_loopback, shown
from tasks.backends import (
    Backend,
    Background,
    Hints,
    json_object,
    seconds,
    shortened,
    timed_out,
    tool_name,
    unknown,
)
from tasks.errors import SourceFailed
from tasks.mcp_servers import all_pages, command_of, last_line, reasons_of, told

_Result = TypeVar("_Result")

_TRANSIENT = re.compile(
    r"temporar|try again|rate limit|too many requests|tim(?:ed|e)[ -]?out|unavailable",
    re.IGNORECASE,
)
"""Words of an error that may be gone a little later, where the server has no field for it."""
_RETRYABLE = ("retryable", "isRetryable", "is_retryable")
_RETRY_AFTER = ("retry_after", "retryAfter", "retry_after_s", "retry_after_seconds", "retry-after")
_BUSY = (429, 502, 503, 504)
_NEVER_RAN = (
    mcp_types.INVALID_PARAMS,
    mcp_types.METHOD_NOT_FOUND,
    mcp_types.INVALID_REQUEST,
    mcp_types.PARSE_ERROR,
)
TOKEN = "bearer"
"""What the setting ``execute_secrets`` calls the token of a server behind an address."""
_LATE_S = 0.5
_PROBE_S = 2.0
"""Seconds that a server which let a call run out of time may take to list its tools."""
_CLOSE_S = 8.0
"""Seconds that a session may take to end: the SDK gives a server four."""


class McpTools(Backend):
    """The tools of one server, which is started, or connected to, at the first use.

    A server that ends is started anew by the next call, and so is one that is stuck: that said
    nothing until a call ran out of time, and then does not list its tools either. A result is the
    server's structured content where there is some; else its text, as an object where it is one in
    JSON; else objects of ``type``, ``mimeType`` and ``data``.

    An error of a tool is permanent unless the server says otherwise: by a field ``retryable`` or
    ``retry_after`` in ``_meta``, structured content or an object in its text, or by words such as
    "temporarily", "try again", "rate limit", "timed out", "unavailable".

    Args:
        namespace: Of the tools in the catalogue.
        server: A command with its arguments, over stdio, or an address of streamable HTTP.
        environment: Variables for the command beside the few that the SDK passes on.
        token: Bearer token for the address.
        start_timeout_s: Seconds that it may take to start and list its tools.
    """

    def __init__(
        self,
        namespace: str,
        server: Sequence[str] | str,
        *,
        environment: Mapping[str, str] | None = None,
        token: str | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        self.namespace = namespace
        self.server = server
        self.environment = dict(environment or {})
        self.token = token
        self.start_timeout_s = start_timeout_s
        self.secrets = (*self.environment.values(), *((token,) if token else ()))
        self._loop = Background()
        self._lock = threading.Lock()
        self._session: _Session | None = None

    def hints(self, key: str) -> Hints:
        """The tool's annotations, of the list as it is now.

        Raises:
            ToolFailed: There is no such tool, or the server cannot be reached.
        """
        name = tool_name(key, self.namespace)
        try:
            tool = self._run(self.start_timeout_s, lambda session: session.find(key, name))
        except TimeoutError as error:
            raise self.unreachable(f"no answer within {self.start_timeout_s:g} s") from error
        said = tool.annotations
        if said is None:
            return Hints()
        return Hints(said.read_only_hint, said.idempotent_hint, said.destructive_hint)

    def call(self, key: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """As ``models.toolset.Toolset.call``."""
        name = tool_name(key, self.namespace)
        wire = _Wire()
        try:
            return self._run(
                timeout_s, lambda session: session.call(key, name, dict(arguments), wire)
            )
        except TimeoutError as error:
            if not wire.is_sent:
                raise ToolFailed(
                    f"expected a result of {key} within {timeout_s:g} s, but its server was not "
                    "ready by then: it was not called.",
                    is_transient=True,
                    has_run=False,
                ) from error
            raise timed_out(key, timeout_s) from error

    def close(self) -> None:
        """End the session, and the server that was started for it."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(ToolFailed, TimeoutError):
                self._loop.run(_CLOSE_S, session.finish)
        self._loop.close()
        if session is not None:
            session.log.close()

    def _run(
        self, timeout_s: float, work: "Callable[[_Session], Coroutine[Any, Any, _Result]]"
    ) -> _Result:
        """Work with the session, or with the next one where it turns out to be over."""
        deadline = time.monotonic() + timeout_s
        while True:
            session = self._open()
            try:
                return self._loop.run(deadline - time.monotonic(), work, session)
            except _Over:
                continue

    def _open(self) -> "_Session":
        """The session, a new one where there is none that lives."""
        with self._lock:
            if self._session is None or self._session.over.is_set():
                if self._session is not None:
                    self._session.log.close()
                self._session = _Session(self)
                # A task of its own: the time of the call that starts it may be over before.
                self._loop.start(self._session.serve)
            return self._session

    def unreachable(self, reason: str, *, is_transient: bool = True) -> ToolFailed:
        """The error of a call that found no server."""
        server = self.server
        name = shown(server) if isinstance(server, str) else shlex.join(server)
        return ToolFailed(
            f"expected the server of {self.namespace} ({shortened(name, self.secrets)}), got "
            f"{reason}: nothing was called.",
            is_transient=is_transient,
            has_run=False,
        )


class _Over(Exception):
    """A session has ended before it was used."""


class _Session:
    """One life of a server, from its start to its end; all but the start happens on the loop."""

    def __init__(self, owner: McpTools) -> None:
        self.owner = owner
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self.is_ready = asyncio.Event()
        self.over = asyncio.Event()
        self._is_done = asyncio.Event()
        self._fault: ToolFailed | None = None
        self._client: Client
        self._tools: dict[str, mcp_types.Tool] = {}
        self._validators: dict[str, Any] = {}
        self._is_stale = False
        self._is_trusted = asyncio.Event()
        self._is_trusted.set()
        self._probes: TaskGroup
        self._num_calls = 0
        self._heard_at = 0.0

    async def serve(self) -> None:
        """Open, hold until it ends or is not wanted any more, close."""
        wire = _Wire()
        _WIRE.set(wire)
        timeout_s = self.owner.start_timeout_s
        try:
            with anyio.fail_after(timeout_s) as limit:
                self._client = Client(self._transport(), message_handler=self._notice, cache=None)
                async with self._client:
                    await self._list()
                    limit.deadline = float("inf")
                    async with anyio.create_task_group() as self._probes:
                        self.is_ready.set()
                        await self.over.wait()
                        self._probes.cancel_scope.cancel()
                    limit.deadline = anyio.current_time() + _CLOSE_S
        except Exception as error:
            if not self.is_ready.is_set():
                self._fault = self._start_fault(list(reasons_of(error)), wire, timeout_s)
        finally:
            if not self.is_ready.is_set() and self._fault is None:
                self._fault = self.owner.unreachable("an end before it was ready")
            self.over.set()
            self.is_ready.set()
            self._is_done.set()

    async def finish(self) -> None:
        """End, and wait for it."""
        self.over.set()
        await self._is_done.wait()

    async def find(self, key: str, name: str) -> mcp_types.Tool:
        """A tool of the server's list, which is read again where it has changed or lacks it."""
        await self.is_ready.wait()
        if self._fault is not None:
            raise self._fault
        await self._is_trusted.wait()
        if self.over.is_set():
            raise _Over
        if self._is_stale or name not in self._tools:
            try:
                await self._list()
            except (MCPError, SourceFailed) as error:
                raise self.owner.unreachable(
                    f"no list of its tools ({self._said(error)})"
                ) from error
        tool = self._tools.get(name)
        if tool is None:
            raise unknown(key, self._tools)
        return tool

    async def call(self, key: str, name: str, arguments: dict[str, Any], wire: "_Wire") -> Any:
        """What a tool gives for arguments that fit its schema."""
        self._check(key, await self.find(key, name), arguments)
        _WIRE.set(wire)
        started = time.monotonic()
        self._num_calls += 1
        wire.is_sent = True
        try:
            result = await self._client.call_tool(name, arguments)
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED:  # why is known a moment later
                with anyio.move_on_after(_LATE_S):
                    await self._is_done.wait()
            raise self._refused(key, error, wire) from error
        except (RuntimeError, ValueError) as error:
            raise ToolFailed(
                f"expected a result of {key} as its server describes it, got another: "
                f"{self._said(error)}.",
                has_run=True,
            ) from error
        except anyio.get_cancelled_exc_class():
            if self._heard_at < started and self._is_trusted.is_set() and not self.over.is_set():
                self._is_trusted.clear()
                self._probes.start_soon(self._probe)
            raise
        finally:
            self._num_calls -= 1
        if result.is_error:
            raise _told(key, result, self.owner.secrets)
        return _value(result)

    async def _probe(self) -> None:
        """Give up a server that lists its tools no more, unless another call is waiting for it."""
        is_alive = False
        try:
            with anyio.move_on_after(_PROBE_S), contextlib.suppress(MCPError, SourceFailed):
                await self._list()
                is_alive = True
            if not is_alive and self._num_calls == 0:
                self.over.set()
        finally:
            self._is_trusted.set()

    # --- the server -------------------------------------------------------------------------------

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        """Streams to the server; its end and its last sign of life are noted."""
        owner = self.owner
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(owner.server, str):
                http = _HttpClient(
                    headers={"Authorization": f"Bearer {owner.token}"} if owner.token else None,
                    timeout=httpx2.Timeout(
                        None, connect=owner.start_timeout_s
                    ),  # calls have theirs
                    trust_env=not is_loopback(owner.server),
                )
                await stack.enter_async_context(http)
                opened = streamable_http_client(owner.server, http_client=http)
            else:
                opened = stdio_client(command_of(owner.server, owner.environment), errlog=self.log)
            read, write = await stack.enter_async_context(opened)
            yield _Heard(read, self), write

    async def _notice(self, message: Any) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self._is_stale = True

    async def _list(self) -> None:
        self._is_stale = True
        pages = await all_pages(self._client)
        self._is_stale = False
        self._tools = {tool.name: tool for page in pages for tool in page.tools}
        self._validators = {}

    def heard(self) -> None:
        """The server has said something."""
        self._heard_at = time.monotonic()

    def _check(self, key: str, tool: mcp_types.Tool, arguments: dict[str, Any]) -> None:
        """Refuse arguments that the tool's schema refuses; a schema that is none refuses nothing.

        References of a schema to other documents are not followed.
        """
        if tool.name not in self._validators:
            kind = validator_for(tool.input_schema)
            try:
                kind.check_schema(tool.input_schema)
                validator = kind(tool.input_schema, registry=Registry())
            except SchemaError:
                validator = None
            self._validators[tool.name] = validator
        validator = self._validators[tool.name]
        try:
            error = best_match(validator.iter_errors(arguments)) if validator else None
        except Unresolvable:
            return
        if error is not None:
            raise ToolFailed(
                f"expected arguments of {key} as its schema has them, got at {error.json_path}: "
                f"{shortened(error.message, self.owner.secrets)}. It was not called.",
                has_run=False,
            )

    # --- what went wrong --------------------------------------------------------------------------

    def _start_fault(
        self, reasons: list[BaseException], wire: "_Wire", timeout_s: float
    ) -> ToolFailed:
        first = reasons[0]
        said = shortened(told(reasons, timeout_s) + self._last_words(), self.owner.secrets)
        if wire.status is not None and wire.status >= 400:
            said = f"HTTP status {wire.status}"
            if wire.status in (401, 403):
                said += f" (a token is named by the setting execute_secrets: {self._token_name()})"
        is_transient = isinstance(first, (TimeoutError, httpx2.TransportError))
        return self.owner.unreachable(said, is_transient=is_transient or wire.status in _BUSY)

    def _token_name(self) -> str:
        return f"{self.owner.namespace}/{TOKEN}"

    def _refused(self, key: str, error: MCPError, wire: "_Wire") -> ToolFailed:
        """The error of a call that got no result of the tool."""
        said = self._said(error)
        if wire.is_refused:
            return self.owner.unreachable("no connection")
        if error.message == "Session terminated":
            self.over.set()
            return ToolFailed(
                f"expected a result of {key}, but its server has forgotten the session: it was not "
                "called, and the next call opens a new one.",
                is_transient=True,
                has_run=False,
            )
        if wire.status is not None and wire.status >= 400:
            said = f"HTTP status {wire.status}: {said}"
        if error.code == mcp_types.CONNECTION_CLOSED:
            return ToolFailed(
                f"expected a result of {key}, but its server ended during the call ({said})"
                f"{self._last_words()}: nobody knows whether it did its work. The next call starts "
                "it anew.",
                is_transient=True,
            )
        is_transient, wait_s = _hint([error.data], error.message)
        has_run = None
        if wire.status == 429 or error.code in _NEVER_RAN:
            has_run = False
        return ToolFailed(
            f"expected a result of {key}, but its server refused the call: {said}.",
            is_transient=is_transient or wire.status in _BUSY,
            has_run=has_run,
            retry_after_s=wait_s if wait_s is not None else wire.retry_after_s,
        )

    def _last_words(self) -> str:
        try:
            return shortened(last_line(self.log), self.owner.secrets)
        except ValueError:  # a newer session has closed it
            return ""

    def _said(self, error: BaseException) -> str:
        return shortened(str(error), self.owner.secrets).rstrip(".") or type(error).__name__


@dataclass(slots=True)
class _Wire:
    """What became of one call on its way, which the protocol does not tell."""

    is_sent: bool = False
    is_refused: bool = False
    status: int | None = None
    retry_after_s: float | None = None


_WIRE: ContextVar[_Wire | None] = ContextVar("wire", default=None)
"""The SDK sends each request in the context of who asked for it."""


class _HttpClient(httpx2.AsyncClient):
    """Notes which calls found no server, and the status of the others."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send, and note what comes of it."""
        wire = _WIRE.get()
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if wire is not None:
                wire.is_refused = True
            raise
        if wire is not None:
            wire.status = response.status_code
            wire.retry_after_s = seconds(response.headers.get("retry-after"))
        return response


class _Heard:
    """A stream of messages that tells its session of each, and of its end."""

    def __init__(self, stream: Any, session: _Session) -> None:
        self._stream = stream
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> "_Heard":
        return self

    async def __anext__(self) -> Any:
        try:
            item = await self._stream.__anext__()
        except BaseException:
            self._session.over.set()
            raise
        self._session.heard()
        return item

    async def __aenter__(self) -> "_Heard":
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *reason: Any) -> Any:
        return await self._stream.__aexit__(*reason)


# --- results --------------------------------------------------------------------------------------


def _value(result: mcp_types.CallToolResult) -> Any:
    """A result as a JSON value."""
    if result.structured_content is not None:
        return result.structured_content
    parts: list[Any] = []
    for block in result.content:
        part = _part(block)
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += f"\n{part}"
        else:
            parts.append(part)
    values = [_object_or_text(part) if isinstance(part, str) else part for part in parts]
    if not values:
        return None
    return values[0] if len(values) == 1 else values


def _object_or_text(text: str) -> Any:
    found = json_object(text)
    return text if found is None else found


def _part(block: mcp_types.ContentBlock) -> Any:
    if isinstance(block, mcp_types.TextContent):
        return block.text
    if isinstance(block, mcp_types.ResourceLink):
        return {"type": block.type, "mimeType": block.mime_type, "uri": str(block.uri)}
    if isinstance(block, mcp_types.EmbeddedResource):
        held = block.resource
        data = held.text if isinstance(held, mcp_types.TextResourceContents) else held.blob
        kind = {"type": block.type, "mimeType": held.mime_type, "uri": str(held.uri)}
        return {**kind, "data": data}
    return {"type": block.type, "mimeType": block.mime_type, "data": block.data}


def _told(key: str, result: mcp_types.CallToolResult, secrets: Iterable[str]) -> ToolFailed:
    """The error that a tool gave for its result."""
    texts = [block.text for block in result.content if isinstance(block, mcp_types.TextContent)]
    said = "\n".join(texts)
    fields = [result.meta, result.structured_content, json_object(said)]
    is_transient, wait_s = _hint(fields, said)
    shown_text = shortened(said or str(result.structured_content or "no words"), secrets).rstrip(
        "."
    )
    return ToolFailed(
        f"expected a result of {key}, got its error: {shown_text}.",
        is_transient=is_transient,
        retry_after_s=wait_s,
    )


def _hint(fields: Iterable[Any], said: str) -> tuple[bool, float | None]:
    """Whether another try makes sense, and after how many seconds, as far as the server says so."""
    found: dict[str, Any] = {}
    for field in fields:
        if isinstance(field, Mapping):
            inner = field.get("error")
            found = {**(inner if isinstance(inner, Mapping) else {}), **field, **found}
    waits = (seconds(found[key]) for key in _RETRY_AFTER if key in found)
    wait_s = next((wait for wait in waits if wait is not None), None)
    for key in _RETRYABLE:
        if isinstance(found.get(key), bool):
            return found[key], wait_s
    return wait_s is not None or bool(_TRANSIENT.search(said)), wait_s
