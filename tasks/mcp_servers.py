"""MCP servers asked for their tools with the official SDK: every page, of a list at rest."""

import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

import anyio
import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ListToolsResult, ToolListChangedNotification

from tasks.addresses import failed, is_loopback
from tasks.errors import SourceFailed
from warehouse.catalogue import Listing
from warehouse.readers.mcp_tools import tool_record
from warehouse.records import ToolRecord

MAX_PAGES = 1_000
"""Pages of one list: a server that numbers its cursors for ever ends here."""
MAX_LISTINGS = 3
"""How often a list is read again because the server says that it changed meanwhile."""
_LATE_S = 0.05
"""Seconds that a notice of a change may come after the list that it is about."""


def list_server(server: Sequence[str] | str, timeout_s: float) -> Listing:
    """What a server lists: a command with its arguments, over stdio, or an address.

    Raises:
        SourceFailed: It gives no list in time, none that ends, or none that stands still.
    """
    name = server if isinstance(server, str) else shlex.join(server)
    wanted = server if isinstance(server, str) else command_of(server)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        try:
            return anyio.run(_list_tools, wanted, timeout_s, log)
        except SourceFailed:
            raise
        except BaseException as error:
            reasons = list(reasons_of(error))
            if any(isinstance(one, (KeyboardInterrupt, SystemExit)) for one in reasons):
                raise
            for one in reasons:
                if isinstance(one, SourceFailed):
                    raise one from error
            raise failed(name, told(reasons, timeout_s) + last_line(log)) from error


def command_of(
    server: Sequence[str], environment: Mapping[str, str] | None = None
) -> StdioServerParameters:
    """How a server is started: in this folder, with the SDK's few variables and those given."""
    return StdioServerParameters(
        command=server[0], args=[*server[1:]], env=dict(environment or {}), cwd=Path.cwd()
    )


def reasons_of(error: BaseException) -> Iterator[BaseException]:
    """What is behind the groups that concurrent code raises."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from reasons_of(one)
    else:
        yield error


def told(reasons: list[BaseException], timeout_s: float) -> str:
    """What went wrong, in one line, without the groups around it."""
    first = reasons[0]
    if isinstance(first, TimeoutError):
        return f"no list within {timeout_s:g} s"
    text = (str(first).splitlines() or [""])[0][:300]
    return f"{type(first).__name__}: {text}" if text else type(first).__name__


def last_line(log: TextIO) -> str:
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
    trust_env = not is_loopback(server)
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
                pages = await all_pages(client)
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


async def all_pages(client: Client) -> list[ListToolsResult]:
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
    listing.ttl_ms = min((int(ttl) for ttl in lifetimes if ttl), default=None)
    return listing
