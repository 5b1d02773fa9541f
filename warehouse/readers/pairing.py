"""Calls and results of one conversation, paired by position, each in constant time.

A result belongs to the nearest earlier call with its id that has none yet, because ids repeat in
practice; within one turn equal ids are answered in order. A call that is repeated word for word
before anything came back (proxies and growing snapshots do that) is a copy, unless as many results
come back.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from warehouse.readers.evidence import is_failure, text_of
from warehouse.records import Call

_SENT = "no_result"
_SETTLED = ("ok", "error")
_LOOKED_AT = 64
"""Calls of one turn with one id that a result is told apart among by its name."""


_Print = tuple[str | None, str, Any, Any]


def _fingerprint(call: Call) -> _Print:
    """What two tellings of one call have in common."""
    arguments = call.arguments
    if not isinstance(arguments, str | None):
        arguments = (json.dumps(arguments, sort_keys=True, default=str),)
    result = call.result if isinstance(call.result, str) else None
    return call.call_id, call.name, arguments, result


class Pairing:
    """Takes messages in their order; ``calls`` then holds what was executed.

    Attributes:
        calls: In order; calls of one message share a turn.
        lost: Results whose call was never told, each as a call without a name.
        ignored: What was skipped as not understood, one text each.
        answered: Whether anything came back since the model's last message.
        waiting: Calls without a result by id; several with one id as a list.
    """

    __slots__ = (
        "_begin",
        "_copies",
        "_placed",
        "_places",
        "_seen",
        "_turn",
        "answered",
        "calls",
        "ignored",
        "lost",
        "waiting",
    )

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.lost: list[Call] = []
        self.ignored: list[str] = []
        self._turn = -1
        self.answered = True
        self.waiting: dict[str | None, Call | list[Call]] = {}
        self._seen: set[_Print] | None = None
        self._begin = 0
        self._copies: list[Call] = []
        self._places: dict[str | None, int] = {}
        self._placed = 0

    @property
    def orphans(self) -> list[str]:
        """Results whose call was never told, as text."""
        return [str(call.result or "") for call in self.lost]

    @property
    def duplicates(self) -> int:
        """Copies of calls that were told again and are counted once."""
        return len(self._copies)

    @property
    def latest(self) -> list[Call]:
        """The calls of the latest turn."""
        return self.calls[self._begin :]

    def position_of(self, call_id: str) -> int | None:
        """Where the latest call with this id stands."""
        for at in range(self._placed, len(self.calls)):
            self._places[self.calls[at].call_id] = at
        self._placed = len(self.calls)
        return self._places.get(call_id)

    def add(self, sent: list[Call]) -> None:
        """The calls of one message of the model; their turn is set here."""
        if self.answered and len(sent) == 1:
            self.add_one(sent[0])
            return
        if self.answered:
            # Something came back since the last message: this one cannot be a copy of it.
            self.answered = False
            self._seen = set()
        elif self._seen is None:
            self._seen = {_fingerprint(c) for c in self.latest if c.call_id is not None}
        prints = [_fingerprint(call) for call in sent]
        seen = self._seen
        if seen.isdisjoint(prints):
            self._turn += 1
            self._begin = len(self.calls)
        turn = self._turn
        for call, told in zip(sent, prints, strict=True):
            call.turn = turn
            if told in seen:
                self._copies.append(call)
                continue
            if call.call_id is not None:  # without an id equal calls are calls of their own
                seen.add(told)
            self.calls.append(call)
            if call.result is None and call.status not in _SETTLED:
                self._wait(call)

    def add_one(self, call: Call) -> None:
        """The only call of a message, after something came back: by far the most frequent."""
        self.answered = False
        self._turn = call.turn = self._turn + 1
        self._seen = None
        calls = self.calls
        self._begin = len(calls)
        calls.append(call)
        if call.result is None and call.status not in _SETTLED:
            if call.call_id in self.waiting:
                self._wait(call)
            else:
                self.waiting[call.call_id] = call

    def _wait(self, call: Call) -> None:
        other = self.waiting.get(call.call_id)
        if other is None:
            self.waiting[call.call_id] = call
        elif isinstance(other, list):
            other.append(call)
        else:
            self.waiting[call.call_id] = [other, call]

    def heard(self) -> None:
        """Something else came between: the next message of the model is a turn of its own."""
        self.answered = True

    def answer(self, call_id: str | None, name: str | None = None) -> Call | None:
        """The call that a result with this id belongs to, now taken as answered."""
        self.answered = True
        found = self.waiting.pop(call_id, None)
        if isinstance(found, list):
            at = bisect_left(found, found[-1].turn, key=lambda call: call.turn)
            if name is not None and found[at].name != name:
                last = min(len(found), at + _LOOKED_AT)
                at = next((i for i in range(at, last) if found[i].name == name), at)
            call = found.pop(at)
            if found:
                self.waiting[call_id] = found if len(found) > 1 else found[0]
            return call
        if found is not None:
            return found
        return self._promoted(call_id) if self._copies else None

    def lose(
        self, call_id: str | None, result: str | None, *, failed: bool = False, error: Any = None
    ) -> None:
        """Keep a result aside whose call was never told."""
        call = Call("", self._turn, None, call_id=call_id)
        settle(call, result or "", failed=failed, error=error)
        self.lost.append(call)

    def answer_by_name(self, name: str | None) -> Call | None:
        """The call of the latest turn that a result without an id belongs to."""
        waiting = [call for call in self.latest if call.status == _SENT and call.result is None]
        call = next((call for call in waiting if call.name == name), None) or next(
            iter(waiting), None
        )
        self.answered = True
        if call is not None:
            waits = self.waiting.get(call.call_id)
            if isinstance(waits, list):
                waits[:] = [other for other in waits if other is not call]
                if not waits:
                    del self.waiting[call.call_id]
            elif waits is not None:
                del self.waiting[call.call_id]
        return call

    def _promoted(self, call_id: str | None) -> Call | None:
        """A copy that gets a result of its own was a call after all."""
        for at, call in enumerate(self._copies):
            if call.call_id == call_id and call.turn == self._turn:
                del self._copies[at]
                self.calls.append(call)
                return call
        return None


_TAGS = ("system-reminder", "environment_context", "user_instructions", "permissions")
"""What clients put before or beside the words of the user, in messages of the user."""


def request_of(messages: Iterable[Any]) -> str:
    """What the user asked: the first user message with text that is the user's own."""
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                text = own_text(content)
            else:
                parts = content if isinstance(content, list) else [content]
                texts = (part.get("text") for part in parts if isinstance(part, dict))
                own = (own_text(text) for text in texts if isinstance(text, str))
                text = "\n".join(text for text in own if text)
            if text:
                return text
    return ""


def own_text(text: str) -> str:
    """A text without what a client put before it."""
    rest = text.lstrip()
    while rest[:1] == "<":
        tag = next((tag for tag in _TAGS if rest.startswith(f"<{tag}>")), None)
        if tag is None:
            break
        rest = text = rest.partition(f"</{tag}>")[2].lstrip()
    return text


_RUN = re.compile(r"[A-Za-z0-9]{8,}")


def is_telling(call_id: Any) -> bool:
    """Whether an id looks drawn at random, so that it means the same call wherever it stands.

    ``call_0``, ``call_id`` and ``functions.search:3`` come again in every conversation.
    """
    return isinstance(call_id, str) and len(call_id) >= 12 and _is_random(call_id)


def _is_random(call_id: str) -> bool:
    """Eight letters and digits in a row, digits among them."""
    return any(any(sign.isdigit() for sign in run[0]) for run in _RUN.finditer(call_id))


def settle(call: Call, result: str | None, *, failed: bool = False, error: Any = None) -> None:
    """Give a call its result; ``failed`` and ``error`` are the source's explicit evidence."""
    call.result = result
    if failed or error or is_failure(result):
        call.status = "error"
        told = result if error is None or error is True else text_of(error)
        call.error = None if told is None else told[:500]
    else:
        call.status = "ok"


def is_whole_json(text: Any) -> bool:
    """Whether raw arguments were sent to their end."""
    if not isinstance(text, str) or not text.strip():
        return not isinstance(text, str)
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def mark_cut(calls: Iterable[Call]) -> None:
    """The model was cut while it wrote: calls with broken arguments were never complete."""
    for call in calls:
        if call.status == _SENT and call.result is None and not is_whole_json(call.arguments):
            call.status = "incomplete"
