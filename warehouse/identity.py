"""When two deliveries are the same trajectory, one a fuller form of the other, or two runs.

Key: (source, native id); where a format has no id, (source, content, how many equal records came
before it in the same file). A key may hold several contents: the fuller form of the same run
replaces the other, whatever came first; different runs stay apart.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def digest(*parts: Any) -> str:
    """Hex SHA-256 of the parts as canonical JSON."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Form:
    """What is compared between two forms of one key.

    ``calls`` holds, for each call, (name, arguments, status, result hash).
    """

    content_hash: str
    request: str
    calls: tuple[tuple[str, str | None, str, str | None], ...]
    richness: tuple[int, ...]


def richness_of(
    calls: Sequence[tuple[str, str | None, str, str | None]],
    *,
    num_links: int,
    has_split: bool,
    has_time: bool,
    num_meta: int,
) -> tuple[int, ...]:
    """How complete a form is, most important part first."""
    answered = sum(status != "no_result" for _, _, status, _ in calls)
    return (len(calls), answered, int(has_split), num_links, int(has_time), num_meta)


def supersedes(new: Form, old: Form) -> bool:
    """Whether ``new`` is the same run as ``old``, told more fully.

    The same request, and the calls of ``old`` are the first calls of ``new``, each the same or with
    a result where ``old`` had none. Equally full forms are ordered by content hash, so that the
    outcome does not depend on which came first.
    """
    if new.request != old.request or len(new.calls) < len(old.calls):
        return False
    for mine, theirs in zip(new.calls, old.calls, strict=False):
        same_call = mine[:2] == theirs[:2]
        answered = theirs[2] == "no_result" or mine[2:] == theirs[2:]
        if not (same_call and answered):
            return False
    return (new.richness, new.content_hash) > (old.richness, old.content_hash)
