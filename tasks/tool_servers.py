"""Tools from the outside world: MCP servers, OpenAPI addresses and files.

Only what the user names on the command line or in the settings is started, fetched or imported.
"""

import ipaddress
import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import urlsplit

import anyio
import httpx
import httpx2
import yaml
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ListToolsResult, ToolListChangedNotification

from tasks.errors import SourceFailed, WrongUsage
from tasks.python_tools import list_functions
from warehouse.catalogue import Listing, listing_of, read_listing
from warehouse.errors import UnreadableInput
from warehouse.readers.mcp_tools import tool_record
from warehouse.readers.stream import Item, parse
from warehouse.records import ToolRecord

MAX_PAGES = 1_000
"""Pages of one list: a server that numbers its cursors for ever ends here."""
MAX_LISTINGS = 3
"""How often a list is read again because the server says that it changed meanwhile."""
MAX_BYTES = 64 << 20
"""Of an OpenAPI document behind an address."""

_LATE_S = 0.05
"""Seconds that a notice of a change may come after the list that it is about."""

_MCP = ("mcp:", "stdio:")
_DOCUMENT_ENDINGS = (".json", ".yaml", ".yml")


def is_remote(source: str) -> bool:
    """Whether a source is a server or an address, and not a file or a module."""
    return source.startswith((*_MCP, "http://", "https://", "openapi:http"))


def list_source(source: str, *, timeout_s: float = 60.0) -> Listing:
    """What a source lists.

    Args:
        source: A file (tools.jsonl, tool_desc, OpenAPI in JSON or YAML, saved tools/list);
            ``mcp:COMMAND ARGUMENTS`` for an MCP server over stdio; ``http(s)://...`` for one over
            streamable HTTP, or for an OpenAPI document (``mcp:http...`` and ``openapi:http...``
            say which); ``python:MODULE``, ``python:MODULE:FUNCTION`` or ``python:FILE.py``.
        timeout_s: How long a server may take, in seconds.

    Raises:
        SourceFailed: A server or an address did not list its tools.
        UnreadableInput: A file holds no tools.
        WrongUsage: The source is none of these.
    """
    for prefix in _MCP:
        if source.startswith(prefix):
            rest = source.removeprefix(prefix).strip()
            if rest.startswith(("http://", "https://")):
                return _from_mcp(rest, timeout_s)
            return _from_mcp(_command(source, rest), timeout_s)
    if source.startswith("python:"):
        return list_functions(source.removeprefix("python:"))
    address = source.removeprefix("openapi:")
    if address.startswith(("http://", "https://")):
        document = _fetch(address, timeout_s, must=source.startswith("openapi:"))
        if document is not None:
            return _document(document, _shown(address))
        return _from_mcp(address, timeout_s)
    return _from_file(Path(address).expanduser())


def _command(source: str, text: str) -> StdioServerParameters:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise WrongUsage(
            f"expected a command behind {source[:6]!r}, got {text!r}: {error}."
        ) from error
    if not words:
        raise WrongUsage(
            "expected mcp:COMMAND ARGUMENTS, such as mcp:python server.py, got no command."
        )
    return StdioServerParameters(command=words[0], args=words[1:], cwd=Path.cwd())


def default_namespace(source: str, listing: Listing) -> str | None:
    """The namespace of a source that is no file: its server's name, its host, its module."""
    if source.startswith("python:"):
        return source.removeprefix("python:").removesuffix(".py").split(":")[0].rsplit("/", 1)[-1]
    if not is_remote(source):
        return None
    if listing.server:
        return listing.server.replace("/", "_")
    if source.startswith(_MCP) and "://" not in source:
        return Path(shlex.split(source.partition(":")[2])[-1]).stem
    parts = urlsplit(source.removeprefix("openapi:").removeprefix("mcp:"))
    return parts.hostname or "unknown"


# --- files and addresses --------------------------------------------------------------------------


def _from_file(path: Path) -> Listing:
    if path.suffix.lower() in (".yaml", ".yml") and path.is_file():
        return _document(path.read_bytes(), str(path))
    return read_listing(path)


def _document(text: bytes, name: str) -> Listing:
    """The tools of one document in JSON or YAML."""
    try:
        value = parse(text)
    except (ValueError, RecursionError):
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise UnreadableInput(
                f"expected JSON or YAML in {name}, got text that is neither ({reason}): nothing "
                "was changed."
            ) from error
        value = _plain(value)
    listing = listing_of([Item("document", text, value)], name)
    info = value.get("info") if isinstance(value, dict) else None
    if isinstance(info, dict) and isinstance(info.get("title"), str):
        listing.server = info["title"].strip() or None
    return listing


def _plain(value: Any) -> Any:
    """YAML's dates and times as text, as JSON would have them; shared parts stay shared."""
    try:
        return json.loads(json.dumps(value, default=str)) if _is_small(value) else value
    except (ValueError, TypeError, RecursionError):  # circles made of anchors
        return value


def _is_small(value: Any, most: int = 1_000_000) -> bool:
    """Fewer parts than ``most``, shared ones counted as often as they would be written."""
    stack, seen = [value], 0
    while stack:
        seen += 1
        if seen > most:
            return False
        part = stack.pop()
        if isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
    return True


def _is_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(address: str) -> str:
    """An address without the name and password that it may hold, and without its query."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def _fetch(address: str, timeout_s: float, *, must: bool) -> bytes | None:
    """An OpenAPI document behind an address; None where something else answers."""
    path = urlsplit(address).path
    must = must or path.lower().endswith(_DOCUMENT_ENDINGS)
    if not must and path.rstrip("/").endswith("/mcp"):
        return None
    try:
        with (
            httpx.Client(
                timeout=timeout_s, follow_redirects=True, trust_env=not _is_loopback(address)
            ) as client,
            client.stream(
                "GET", address, headers={"Accept": "application/json, application/yaml, */*;q=0.5"}
            ) as answer,
        ):
            kind = answer.headers.get("content-type", "")
            if answer.status_code >= 400 or "event-stream" in kind:
                if must:
                    raise _failed(
                        address, f"HTTP status {answer.status_code} ({kind or 'no type'})"
                    )
                return None
            body = bytearray()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise _failed(address, f"more than {MAX_BYTES >> 20} MiB")
    except httpx.HTTPError as error:
        raise _failed(address, f"{type(error).__name__}: {error}") from error
    is_document = re.search(rb"""^\s*["']?(openapi|swagger)["']?\s*:""", body[:65536], re.MULTILINE)
    if must or is_document or b'"openapi"' in body[:65536] or b'"swagger"' in body[:65536]:
        return bytes(body)
    return None


def _failed(source: str, got: str) -> SourceFailed:
    name = _shown(source) if "://" in source else source
    return SourceFailed(f"expected tools from {name}, got {got}: nothing was changed.")


# --- MCP ------------------------------------------------------------------------------------------


def _from_mcp(server: StdioServerParameters | str, timeout_s: float) -> Listing:
    """All pages of a server's list."""
    name = server if isinstance(server, str) else shlex.join([server.command, *server.args])
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            return anyio.run(_list_tools, server, timeout_s, log)
        except SourceFailed:
            raise
        except BaseException as error:
            reasons = list(_reasons(error))
            if any(isinstance(one, (KeyboardInterrupt, SystemExit)) for one in reasons):
                raise
            for one in reasons:
                if isinstance(one, SourceFailed):
                    raise one from error
            raise _failed(name, _told(reasons, timeout_s) + _last_line(log)) from error


def _reasons(error: BaseException) -> Iterator[BaseException]:
    """What is behind the groups that concurrent code raises."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _reasons(one)
    else:
        yield error


def _told(reasons: list[BaseException], timeout_s: float) -> str:
    first = reasons[0]
    if isinstance(first, TimeoutError):
        return f"no list within {timeout_s:g} s"
    text = (str(first).splitlines() or [""])[0][:300]
    return f"{type(first).__name__}: {text}" if text else type(first).__name__


def _last_line(log: TextIO) -> str:
    """The end of what the server wrote to its standard error."""
    log.seek(0)
    lines = [line.strip() for line in log.read()[-4000:].splitlines() if line.strip()]
    return f" (its last words: {lines[-1][:300]})" if lines else ""


@asynccontextmanager
async def _transport(server: StdioServerParameters | str, timeout_s: float, log: TextIO) -> Any:
    if not isinstance(server, str):
        async with stdio_client(server, errlog=log) as streams:
            yield streams
        return
    timeout = httpx2.Timeout(timeout_s)
    trust_env = not _is_loopback(server)
    async with (
        httpx2.AsyncClient(timeout=timeout, trust_env=trust_env) as client,
        streamable_http_client(server, http_client=client) as streams,
    ):
        yield streams


async def _list_tools(
    server: StdioServerParameters | str, timeout_s: float, log: TextIO
) -> Listing:
    changed = anyio.Event()

    async def notice(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    with anyio.fail_after(timeout_s):
        client = Client(
            _transport(server, timeout_s, log),
            read_timeout_seconds=timeout_s,
            message_handler=notice,
            cache=None,
        )
        async with client, anyio.create_task_group() as group:
            await group.start(_subscribe, client, lambda: changed.set())
            for _ in range(MAX_LISTINGS):
                pages = await _pages(client)
                await anyio.sleep(_LATE_S if _tells(client) else 0)
                if not changed.is_set():
                    break
                changed = anyio.Event()
            else:
                raise SourceFailed(
                    f"expected a list of tools that stands still, but the server said "
                    f"{MAX_LISTINGS} times that it changed while it was read: nothing was changed."
                )
            info = client.server_info
            group.cancel_scope.cancel()
    return _listing(pages, info.name if info else None)


def _tells(client: Client) -> bool:
    """Whether the server says that it tells of changes."""
    tools = client.server_capabilities.tools
    return bool(tools and tools.list_changed)


async def _subscribe(
    client: Client, note: Callable[[], None], *, task_status: Any = anyio.TASK_STATUS_IGNORED
) -> None:
    """Hear of list changes from servers that only tell those who ask (2026-07-28)."""
    if not _tells(client):
        task_status.started()
        return
    started = False
    try:
        async with client.listen(tools_list_changed=True) as events:
            task_status.started()
            started = True
            async for _ in events:
                note()
    except Exception:  # older servers tell unasked; those that refuse are read once
        if not started:
            task_status.started()


async def _pages(client: Client) -> list[ListToolsResult]:
    """Every page; a cursor that comes again would go round for ever."""
    pages: list[ListToolsResult] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        pages.append(page)
        cursor = page.next_cursor
        if cursor is None:
            return pages
        if cursor in seen:
            raise SourceFailed(
                f"expected a new cursor with every page of tools, but the server gave {cursor!r} "
                "again, which would go on for ever: nothing was changed."
            )
        seen.add(cursor)
        if len(pages) >= MAX_PAGES:
            raise SourceFailed(
                f"expected at most {MAX_PAGES} pages of tools, and the server offers more: nothing "
                "was changed."
            )


def _listing(pages: list[ListToolsResult], server: str | None) -> Listing:
    listing = Listing(server=server)
    tools: dict[str, ToolRecord] = {}
    for page in pages:
        for tool in page.tools:
            value = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
            record = tool_record(value)
            if record is None:
                continue
            if tools.get(record.name, record) != record:
                listing.notes.append(f"tool {record.name} is listed twice: the later one counts")
            tools[record.name] = record
    listing.tools = list(tools.values())
    lifetimes = [page.ttl_ms for page in pages if "ttl_ms" in page.model_fields_set]
    listing.ttl_ms = min((int(ttl) for ttl in lifetimes if ttl is not None), default=None)
    return listing
