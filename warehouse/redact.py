"""Secrets out of what is stored, by field name and by pattern.

Both lists are short and well known; what they replace keeps its place, so that the structure of
arguments survives. Most text holds no secret: one vectorised search over a whole batch finds the
few texts that are worth a closer look.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import polars as pl

from warehouse.readers.stream import parse

REDACTED = "[redacted]"

_FIELD = re.compile(
    r"(?i)^(.*[_\-.])?(passw(or)?d|passphrase|secret|client[_-]?secret|api[_-]?key|apikey|"
    r"access[_-]?token|refresh[_-]?token|auth[_-]?token|id[_-]?token|bearer|authorization|"
    r"private[_-]?key|session[_-]?cookie|set-cookie|cookie|x-api-key)$"
)

# Each pattern is only tried where its hint occurs: most text is searched at the speed of ``in``.
_TOKENS = tuple(
    (hint, re.compile(pattern))
    for hint, pattern in (
        ("sk-", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_\-]{16,}"),  # OpenAI, Anthropic
        ("ghp_", r"ghp_[A-Za-z0-9]{30,}"),  # GitHub
        ("gho_", r"gho_[A-Za-z0-9]{30,}"),
        ("ghs_", r"ghs_[A-Za-z0-9]{30,}"),
        ("github_pat_", r"github_pat_[A-Za-z0-9_]{30,}"),
        ("xox", r"xox[abprs]-[A-Za-z0-9-]{10,}"),  # Slack
        ("AKIA", r"(?<![A-Z0-9])AKIA[A-Z0-9]{16}(?![A-Z0-9])"),  # AWS
        ("ASIA", r"(?<![A-Z0-9])ASIA[A-Z0-9]{16}(?![A-Z0-9])"),
        ("AIza", r"AIza[A-Za-z0-9_\-]{35}"),  # Google
        ("hf_", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
        (".eyJ", r"eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{5,}"),  # JWT
        (
            "-----BEGIN",
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        ),
    )
)
_BEARER = re.compile(r"(?i)\b(bearer|basic) +(?=[A-Za-z0-9+/._=\-]*[0-9])[A-Za-z0-9+/._=\-]{16,}")
_PAIR = re.compile(
    r"(?i)((?:password|passwd|api[_-]?key|client[_-]?secret|access[_-]?token|"
    r"refresh[_-]?token|secret[_-]?key|private[_-]?key)\"?\s*[=:]\s*\"?)([^\s\"',;&}]{6,})"
)
_SCHEMES = ("bearer ", "basic ")
_NAMES = (
    "password", "passwd", "api_key", "api-key", "apikey", "client_secret", "client-secret",
    "clientsecret", "access_token", "access-token", "accesstoken", "refresh_token",
    "refresh-token", "refreshtoken", "secret_key", "secret-key", "secretkey", "private_key",
    "private-key", "privatekey",
)  # fmt: skip


_HINTS = [
    "passw", "passphrase", "secret", "api_key", "api-key", "apikey", "token", "bearer", "basic ",
    "authorization", "private_key", "private-key", "privatekey", "cookie", "sk-", "ghp_", "gho_",
    "ghs_", "github_pat_", "xox", "akia", "asia", "aiza", "hf_", ".eyj", "-----begin",
]  # fmt: skip
"""Every field name and pattern holds one of these, in small letters."""


def suspicious(texts: Sequence[str | None]) -> list[int]:
    """Positions of the texts that may hold a secret; all of them where UTF-8 cannot hold one."""
    try:
        series = pl.Series(texts, dtype=pl.String)
    except UnicodeEncodeError:
        return [i for i, text in enumerate(texts) if text]
    hits = series.str.contains_any(_HINTS, ascii_case_insensitive=True)
    return hits.fill_null(value=False).arg_true().to_list() if hits.any() else []


def redact_payload(text: str) -> str:
    """Arguments or a result as text: by field name too where it is JSON, else by pattern.

    Text without a secret comes back as it was.
    """
    if text[:1] in ("{", "[", '"'):
        try:
            value = parse(text)
            if isinstance(value, str):  # encoded twice
                value = parse(value)
            clean = redact_value(value)
            return text if clean == value else msgspec.json.encode(clean).decode()
        except (ValueError, RecursionError):
            pass
    return redact_text(text)


def redact_text(text: str) -> str:
    """The text with every known kind of secret replaced by ``[redacted]``."""
    for hint, pattern in _TOKENS:
        if hint in text:
            text = pattern.sub(REDACTED, text)
    lowered = text.lower()
    if any(scheme in lowered for scheme in _SCHEMES):
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
    if any(name in lowered for name in _NAMES):
        text = _PAIR.sub(rf"\1{REDACTED}", text)
    return text


def redact_value(value: Any, of_text: Callable[[str], str] = redact_text) -> Any:
    """The same for parsed JSON: text by ``of_text``, fields by name; numbers and structure stay."""
    if isinstance(value, str):
        return of_text(value)
    if isinstance(value, list):
        return [redact_value(item, of_text) for item in value]
    if isinstance(value, dict):
        return {
            key: REDACTED
            if _FIELD.match(str(key)) and isinstance(item, (str, int, float)) and item != ""
            else redact_value(item, of_text)
            for key, item in value.items()
        }
    return value


def redact_event(value: Any) -> Any:
    """The same for an event, whose texts may be JSON themselves."""
    return redact_value(value, redact_payload)


def storable(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes the replacement character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
