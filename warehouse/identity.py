"""When two deliveries are the same trajectory, one a fuller form of the other, or two runs.

Key: (source, native id); where a format has no id, (source, content, how many equal records came
before it in the same file). A key may hold several contents: the fuller form of the same run
replaces the other, whatever came first; different runs stay apart.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


def digest(*parts: Any) -> str:
    """Hex SHA-256 of the parts as canonical JSON."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


CallForm = tuple[str, str | None, str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Form:
    """What is compared between two forms of one key.

    ``calls`` holds, for each call, (name, arguments, status, result hash, call id).
    """

    content_hash: str
    request: str
    calls: tuple[CallForm, ...]
    richness: tuple[int, ...]
    started_at: datetime | None = None


def richness_of(
    calls: Sequence[CallForm],
    *,
    num_links: int,
    has_split: bool,
    has_time: bool,
    num_meta: int,
) -> tuple[int, ...]:
    """How complete a form is, most important part first."""
    answered = sum(not _is_open(call) for call in calls)
    return (len(calls), answered, int(has_split), num_links, int(has_time), num_meta)


def _is_open(call: CallForm) -> bool:
    """A call without a result, be its arguments sound or not."""
    return call[2] in ("no_result", "invalid") and call[3] is None


def supersedes(new: Form, old: Form) -> bool:
    """Whether ``new`` is the same run as ``old``, told more fully.

    The same request and start, and the calls of ``old`` are the first calls of ``new``, each with
    the same id, and with the same result or one where ``old`` had none. Equally full forms are
    ordered by content hash, so that the outcome does not depend on which came first.
    """
    if new.request != old.request or len(new.calls) < len(old.calls):
        return False
    if old.started_at is not None and new.started_at != old.started_at:
        return False
    for mine, theirs in zip(new.calls, old.calls, strict=False):
        same_call = mine[:2] == theirs[:2] and mine[4] == theirs[4]
        if not (same_call and (_is_open(theirs) or mine[2:4] == theirs[2:4])):
            return False
    return (new.richness, new.content_hash) > (old.richness, old.content_hash)
