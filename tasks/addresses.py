"""Addresses of servers: whether one is this machine's, and how it may be shown."""

import ipaddress
from urllib.parse import urlsplit

from tasks.errors import SourceFailed


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's, so that no proxy may be asked for it."""
    host = urlsplit(address).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(address: str) -> str:
    """An address without the name and password that it may hold, and without its query."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def failed(source: str, got: str) -> SourceFailed:
    """The error of a source, given as an address or otherwise, that gave something else."""
    name = shown(source) if "://" in source else source
    return SourceFailed(f"expected tools from {name}, got {got}: nothing was changed.")
