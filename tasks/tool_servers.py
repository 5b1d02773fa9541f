"""Tools from the outside world: MCP servers, OpenAPI addresses and files.

Only what the user names on the command line or in the settings is started, fetched or imported.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import yaml

from tasks.addresses import failed, is_loopback, shown
from tasks.errors import WrongUsage
from tasks.python_tools import entry_point, list_functions
from warehouse.catalogue import Listing, listing_of, read_listing
from warehouse.errors import UnreadableInput
from warehouse.readers.stream import Item, parse

MAX_BYTES = 64 << 20
"""Of an OpenAPI document behind an address."""

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
            say which); ``python:MODULE``, ``python:MODULE:FUNCTION`` or ``python:FILE.py``;
            ``entrypoint:NAME`` for what an installed package offers.
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
            return _from_mcp(command_words(source, rest), timeout_s)
    if source.startswith("python:"):
        return list_functions(source.removeprefix("python:"))
    if source.startswith("entrypoint:"):
        return list_functions(entry_point(source.removeprefix("entrypoint:")))
    address = source.removeprefix("openapi:")
    if address.startswith(("http://", "https://")):
        document = fetch_document(address, timeout_s, must=source.startswith("openapi:"))
        if document is not None:
            return _document(document, shown(address))
        return _from_mcp(address, timeout_s)
    return _from_file(Path(address).expanduser())


def command_words(source: str, text: str) -> list[str]:
    """The words of a command behind ``mcp:``.

    Raises:
        WrongUsage: There is none.
    """
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
    return words


def _from_mcp(server: list[str] | str, timeout_s: float) -> Listing:
    from tasks.mcp_servers import list_server  # two seconds of imports that files do without

    return list_server(server, timeout_s)


def default_namespace(source: str, listing: Listing) -> str | None:
    """The namespace of a source that is no file: its server's name, its host, its module."""
    if source.startswith("python:"):
        return source.removeprefix("python:").removesuffix(".py").split(":")[0].rsplit("/", 1)[-1]
    if source.startswith("entrypoint:"):
        return source.removeprefix("entrypoint:")
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
    value = parse_document(text, name)
    listing = listing_of([Item("document", text, value)], name)
    info = value.get("info") if isinstance(value, dict) else None
    if isinstance(info, dict) and isinstance(info.get("title"), str):
        listing.server = info["title"].strip() or None
    return listing


def parse_document(text: bytes, name: str) -> Any:
    """What a document in JSON or YAML says.

    Raises:
        UnreadableInput: It is neither.
    """
    try:
        return parse(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _plain(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UnreadableInput(
            f"expected JSON or YAML in {name}, got text that is neither ({reason}): nothing was "
            "changed."
        ) from error


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


def fetch_document(address: str, timeout_s: float, *, must: bool) -> bytes | None:
    """An OpenAPI document behind an address; None where something else answers."""
    path = urlsplit(address).path
    must = must or path.lower().endswith(_DOCUMENT_ENDINGS)
    if not must and path.rstrip("/").endswith("/mcp"):
        return None
    try:
        with (
            httpx.Client(
                timeout=timeout_s, follow_redirects=True, trust_env=not is_loopback(address)
            ) as client,
            client.stream(
                "GET", address, headers={"Accept": "application/json, application/yaml, */*;q=0.5"}
            ) as answer,
        ):
            kind = answer.headers.get("content-type", "")
            if answer.status_code >= 400 or "event-stream" in kind:
                if must:
                    raise failed(address, f"HTTP status {answer.status_code} ({kind or 'no type'})")
                return None
            body = bytearray()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > MAX_BYTES:
                    raise failed(address, f"more than {MAX_BYTES >> 20} MiB")
    except httpx.HTTPError as error:
        raise failed(address, f"{type(error).__name__}: {error}") from error
    is_document = re.search(rb"""^\s*["']?(openapi|swagger)["']?\s*:""", body[:65536], re.MULTILINE)
    if must or is_document or b'"openapi"' in body[:65536] or b'"swagger"' in body[:65536]:
        return bytes(body)
    return None
