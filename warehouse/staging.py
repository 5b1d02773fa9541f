"""Records made ready to be stored: secrets out, payloads short, dataflow mined, identity computed.

The work is done batch by batch, and what can be done for many texts at once is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from warehouse.dataflow import Used, mine_links
from warehouse.identity import CallForm, Form, richness_of
from warehouse.payload import MARK, cut, dropped, hash_of, is_payload
from warehouse.readers.stream import parse
from warehouse.records import UNRECORDED, Call, TrajectoryRecord
from warehouse.redact import redact_event, redact_payload, redact_value, storable, suspicious

RESULT_LIMIT = 2_000
"""Characters of a result that are kept; its hash and size are of the whole."""
LONG = 1 << 16
"""Characters of an event from which on its result is cut before it is stored."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

NAME, CALL_ID, RAW, STATUS, RESULT_HASH = 2, 3, 4, 8, 6
"""Places in a call's row (see ``_call_row``) that identity compares."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How payloads are handled: whether they are dropped, and the salt of what stays of them."""

    drop_payloads: bool = False
    salt: bytes = b""


@dataclass(slots=True)
class Staged:
    """One trajectory ready to be stored; ``calls`` are rows without trajectory and namespace."""

    trajectory_id: str
    content_hash: str
    record: TrajectoryRecord
    calls: list[tuple[Any, ...]]
    links: list[tuple[int, int, str]]
    meta: str
    format: str
    assembled_from: str | None = None

    @property
    def form(self) -> Form:
        """What is compared with other forms of the same key."""
        told: tuple[CallForm, ...] = tuple(
            (c[NAME], c[RAW], c[STATUS], c[RESULT_HASH], c[CALL_ID]) for c in self.calls
        )
        return Form(
            self.content_hash, self.record.request, told, self.richness, self.record.started_at
        )

    @property
    def richness(self) -> tuple[int, ...]:
        """How complete it is."""
        return richness_of(
            [(c[NAME], c[RAW], c[STATUS], c[RESULT_HASH], c[CALL_ID]) for c in self.calls],
            num_links=len(self.record.links),
            has_split=self.record.split is not None,
            has_time=self.record.started_at is not None,
            num_meta=len(self.record.meta),
        )


def key_of(*parts: Any) -> str:
    """64 hex digits that stand for the parts."""
    return sha256(_encode(parts)).hexdigest()


# --- trajectories ---------------------------------------------------------------------------------


def stage(
    records: Sequence[tuple[str, TrajectoryRecord]],
    source: str,
    handling: Handling,
    *,
    assembled_from: Sequence[str] | None = None,
) -> tuple[list[Staged], int]:
    """Trajectories ready to be stored, and how many texts had a secret taken out.

    Args:
        records: (format, trajectory).
        source: Whose they are.
        handling: What becomes of payloads.
        assembled_from: The conversation of each, for trajectories made of stored events: those
            have no secrets any more.
    """
    texts = _texts(records)
    redacted = 0
    clean: dict[int, str] = {}
    if assembled_from is None:
        for i in suspicious(texts):
            text = texts[i] or ""
            clean[i] = storable(redact_payload(text))
            redacted += clean[i] != text
    staged = []
    at = 0
    for number, (format, record) in enumerate(records):
        end = at + 1 + 3 * len(record.calls)
        part = texts[at:end]
        touched = {i - at: clean[i] for i in range(at, end) if i in clean} if clean else {}
        at = end
        conversation = None if assembled_from is None else assembled_from[number]
        staged.append(_stage(format, record, part, touched, source, handling, conversation))
    return staged, redacted


def _texts(records: Iterable[tuple[str, TrajectoryRecord]]) -> list[str | None]:
    """Of each record: its request, then arguments, result and error of each call."""
    texts: list[str | None] = []
    add = texts.append
    for _, record in records:
        add(record.request)
        for call in record.calls:
            arguments = call.arguments
            if isinstance(arguments, str):
                add(arguments)
            elif arguments is UNRECORDED or is_payload(arguments):
                add(None)
            else:
                add("" if arguments is None else encoded(arguments))
            result = call.result
            add(result if result is None or isinstance(result, str) else None)
            add(call.error)
    return texts


def encoded(value: Any) -> str:
    """A JSON value as text, without blanks; text that UTF-8 cannot hold is replaced."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:
        return _encode(_storable(value)).decode()


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(str(key)): _storable(item) for key, item in value.items()}
    return value


def _stage(
    format: str,
    record: TrajectoryRecord,
    texts: list[str | None],
    clean: dict[int, str],
    source: str,
    handling: Handling,
    assembled_from: str | None,
) -> Staged:
    calls = record.calls
    rows: list[tuple[Any, ...]] = []
    values: list[Any] = []
    at = 1
    for position, (call, turn) in enumerate(zip(calls, _turns(calls), strict=True)):
        raw, result, error = texts[at], texts[at + 1], texts[at + 2]
        if raw:
            value = call.arguments
            if type(value) is str:
                value = _object(value)
            if type(value) is dict:
                state = "object" if value else "empty"
            else:
                state, value = "invalid", None
        else:
            state, value = _bare(call, raw)
        values.append(value)
        if clean:
            raw = clean.get(at, raw)
            result = clean.get(at + 1, result)
            error = clean.get(at + 2, error)
        at += 3
        status = call.status
        if state == "invalid" and status not in ("error", "incomplete"):
            status = "invalid"
        name, call_id = call.name, call.call_id
        if result is not None:
            digest: str | None = hash_of(result)
            size: int | None = len(result)
            if len(result) > RESULT_LIMIT:
                result = result[:RESULT_LIMIT]
        elif call.result is None:
            digest = size = None
        else:
            digest, size, result = _shown(call.result)
        rows.append(
            (
                position,
                turn,
                name if name.isascii() else storable(name),
                call_id if call_id is None or call_id.isascii() else storable(call_id),
                raw if raw is not None or value is None else _dropped_text(value["hash"]),
                state,
                digest,
                size,
                status,
                None if error is None else error[:RESULT_LIMIT],
                call.started_at,
                call.ended_at,
                call.parent,
                call.attempts,
                call.uid,
                encoded(list(call.flags)) if call.flags else None,
                result,
            )
        )
    stated = record.links_kind in ("gold", "dataflow")
    mined = _mined(record, texts, values, by_value=not stated, salt=handling.salt)
    links = [(s, t, record.links_kind) for s, t in record.links]
    links += [(s, t, "mined") for s, t in mined]
    # Last, since the texts above are of the record as it came.
    record.request = clean.get(0, record.request)
    record.native_id = _kept(record.native_id)
    record.conversation = _kept(record.conversation)
    if record.split is not None:
        record.split = storable(str(record.split)).strip().lower()
    meta = encoded(_sorted(redact_value(record.meta))) if record.meta else "{}"
    record.orphans = [storable(redact_payload(text))[:RESULT_LIMIT] for text in record.orphans]
    content = key_of(
        record.request,
        record.split,
        sorted(links),
        record.links_kind,
        None if record.started_at is None else record.started_at.isoformat(),
        record.conversation,
        record.flags,
        meta,
        [row[:-1] for row in rows],
    )
    if handling.drop_payloads:
        rows = [_dropped_row(row, handling.salt) for row in rows]
        record.orphans = []
    if assembled_from is None:
        identity = key_of(source, record.native_id, content)
    else:
        identity = key_of(source, format, assembled_from, record.native_id)
    return Staged(identity[:32], content, record, rows, links, meta, format, assembled_from)


def _kept(text: str | None) -> str | None:
    return None if text is None else storable(str(text))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _sorted(value[key]) for key in sorted(value, key=str)}
    return [_sorted(item) for item in value] if isinstance(value, (list, tuple)) else value


def _turns(calls: Sequence[Call]) -> list[int]:
    """Turns numbered from 0 without gaps, apart for the calls inside each call."""
    plain: list[int] = []
    last: int | None = None
    for call in calls:
        if call.parent is not None or (last is not None and call.turn < last):
            break
        plain.append(0 if last is None else plain[-1] + (call.turn != last))
        last = call.turn
    else:
        return plain
    numbers: dict[int | None, dict[int, int]] = {}
    for call in sorted(calls, key=lambda call: call.turn):
        mine = numbers.setdefault(call.parent, {})
        mine.setdefault(call.turn, len(mine))
    return [numbers[call.parent][call.turn] for call in calls]


def _object(text: str) -> Any:
    """Arguments parsed, also where they were encoded twice; None where they are no JSON."""
    try:
        value = _decode(text)
        return parse(value) if type(value) is str else value
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        value = parse(text)
        return parse(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def _bare(call: Call, raw: str | None) -> tuple[str, Any]:
    """State and value of arguments without text: none sent, none recorded, or not kept."""
    if raw is not None:
        return "empty", None
    if call.arguments is UNRECORDED:
        return "unrecorded", None
    return call.arguments["state"], call.arguments


def _shown(payload: str | dict[str, Any]) -> tuple[str, int, str | None]:
    """Hash, size and beginning of a result that is not kept whole."""
    assert isinstance(payload, dict)
    return payload["hash"], payload["size"], payload.get("head")


def _dropped_text(digest: str) -> str:
    return encoded({"dropped": digest})


def _dropped_row(row: tuple[Any, ...], salt: bytes) -> tuple[Any, ...]:
    """A row without arguments, result and error text; equal payloads stay equal."""
    cells = list(row)
    raw, state = row[RAW], row[RAW + 1]
    if raw and state != "empty" and not raw.startswith('{"dropped":'):
        cells[RAW] = _dropped_text(dropped(raw, state, salt)["hash"])
    if row[-1] is not None:
        cells[RESULT_HASH] = dropped(str(row[RESULT_HASH]), "", salt)["hash"]
    cells[RESULT_HASH + 3] = None
    cells[-1] = None
    return tuple(cells)


def _mined(
    record: TrajectoryRecord,
    texts: list[str | None],
    values: list[Any],
    *,
    by_value: bool,
    salt: bytes,
) -> list[tuple[int, int]]:
    calls = record.calls
    if len(calls) < 2:
        return []
    used = Used(
        turns=[call.turn for call in calls],
        texts=texts[1::3],
        arguments=values,
        results=[call.result if call.status == "ok" else None for call in calls],
        call_ids=[call.call_id for call in calls],
        names=[call.name for call in calls],
    )
    return mine_links(record.request, used, by_value=by_value, salt=salt)


# --- events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Told:
    """Distinct events of one conversation by their text."""

    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_text(self) -> str:
        """As stored: a JSON list, sorted, so that it does not matter what came first."""
        return f"[{','.join(sorted(self.events))}]"


def stage_events(
    fragments: Iterable[tuple[str, str, list[dict[str, Any]]]],
    handling: Handling,
) -> tuple[dict[tuple[str, str], Told], int]:
    """Events by (format, conversation), without secrets and without huge payloads.

    Returns:
        The events, and how many had a secret taken out.
    """
    keys: list[tuple[str, str]] = []
    events: list[dict[str, Any]] = []
    for format, conversation, part in fragments:
        events.extend(part)
        keys.extend([(format, storable(conversation))] * len(part))
    texts = []
    for i, event in enumerate(events):
        try:
            texts.append(_encode(event).decode())
        except UnicodeEncodeError:
            # What is assembled at once has to be what is assembled later, of what was stored.
            events[i] = _storable(event)
            texts.append(_encode(events[i]).decode())
    redacted = 0
    for i in suspicious(texts):
        event = redact_event(events[i])
        text = encoded(event)
        if text != texts[i]:
            redacted += 1
            events[i], texts[i] = event, text
    found: dict[tuple[str, str], Told] = {}
    for key, event, text in zip(keys, events, texts, strict=True):
        if handling.drop_payloads:
            event = _without_payloads(event, handling.salt)
            text = encoded(event)
        elif len(text) > LONG:
            event = _shortened(event, handling.salt)
            text = encoded(event)
        told = found.get(key)
        if told is None:
            told = found[key] = Told()
        told.events[text] = event
    return found, redacted


def _shortened(event: dict[str, Any], salt: bytes) -> dict[str, Any]:
    return {
        key: cut(value, RESULT_LIMIT, salt)
        if key == "result" and isinstance(value, str) and len(value) > RESULT_LIMIT
        else value
        for key, value in event.items()
    }


def _without_payloads(value: Any, salt: bytes) -> Any:
    """The event with every payload in it, at any depth, replaced by what may stay of it."""
    if isinstance(value, list):
        return [_without_payloads(item, salt) for item in value]
    if not isinstance(value, dict) or MARK in value:
        return value
    clean: dict[str, Any] = {}
    for key, item in value.items():
        if key in ("arguments", "result") and item not in (None, ""):
            text = item if isinstance(item, str) else encoded(item)
            clean[key] = dropped(text, _state_of(text), salt)
        elif key == "error" and isinstance(item, str):
            clean[key] = "[dropped]"
        else:
            clean[key] = _without_payloads(item, salt)
    return clean


def _state_of(text: str) -> str:
    value = _object(text)
    if type(value) is not dict:
        return "invalid"
    return "object" if value else "empty"


def read_events(text: str) -> Told:
    """Stored events again."""
    return Told({encoded(event): event for event in msgspec.json.decode(text)})


def tally_statuses(staged: Iterable[Staged]) -> Mapping[str, int]:
    """Calls by status."""
    return Counter(row[STATUS] for one in staged for row in one.calls)
