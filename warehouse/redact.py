"""Secrets out of what is stored, by field name and by pattern.

Both lists are short and well known; what they replace keeps its place, so that the structure of
arguments survives.
"""

import re
from typing import Any

REDACTED = "[redacted]"

_FIELD = re.compile(
    r"(?i)^(.*[_\-.])?(passw(or)?d|passphrase|secret|client[_-]?secret|api[_-]?key|apikey|"
    r"access[_-]?token|refresh[_-]?token|auth[_-]?token|id[_-]?token|bearer|authorization|"
    r"private[_-]?key|session[_-]?cookie|set-cookie|cookie|x-api-key)$"
)

_PATTERN = re.compile(
    r"\bsk-[A-Za-z0-9_\-]{16,}"  # keys of OpenAI and Anthropic
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}"  # GitHub
    r"|\bgithub_pat_[A-Za-z0-9_]{30,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"  # Slack
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bAIza[A-Za-z0-9_\-]{35}"  # Google
    r"|\bhf_[A-Za-z0-9]{30,}"
    r"|\beyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}\.[A-Za-z0-9_\-]{5,}"  # JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[A-Za-z0-9+/._=\-]*[0-9])[A-Za-z0-9+/._=\-]{16,}")
_PAIR = re.compile(
    r"(?i)(\"?(?:password|passwd|api[_-]?key|client[_-]?secret|access[_-]?token|"
    r"refresh[_-]?token|secret[_-]?key|private[_-]?key)\"?\s*[=:]\s*\"?)([^\s\"',;&}]{6,})"
)
_HINTS = ("sk-", "gh", "xox", "AKIA", "ASIA", "AIza", "hf_", "eyJ", "-----BEGIN")
_WORDS = re.compile(r"(?i)bearer|basic|passw|key|secret|token")


def redact_text(text: str) -> str:
    """The text with every known kind of secret replaced by ``[redacted]``."""
    if any(hint in text for hint in _HINTS):
        text = _PATTERN.sub(REDACTED, text)
    if _WORDS.search(text):
        text = _BEARER.sub(rf"\1 {REDACTED}", text)
        text = _PAIR.sub(rf"\1{REDACTED}", text)
    return text


def redact_value(value: Any) -> Any:
    """The same for parsed JSON: text by pattern, fields by name; numbers and structure stay."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, dict):
        return {
            key: REDACTED
            if _FIELD.match(str(key)) and isinstance(item, (str, int, float)) and item != ""
            else redact_value(item)
            for key, item in value.items()
        }
    return value


def storable(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
