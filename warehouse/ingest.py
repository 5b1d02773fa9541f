"""Files in, rows out: detect, read, redact, tell new from known, store, set aside what is unusable.

Each batch is one transaction: what it reports as stored survives a crash, and reading the file
again counts it as duplicate. A file that was read to its end is remembered by its bytes.
"""

import glob
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from warehouse.connection import transaction, utc_now
from warehouse.dataflow import mine_links
from warehouse.errors import UnreadableInput
from warehouse.identity import CallForm, Form, digest, richness_of, supersedes
from warehouse.readers import openai_chat
from warehouse.readers.carriers import iter_items
from warehouse.readers.registry import READER_VERSION, Shape, shape_of
from warehouse.readers.stream import Item, open_bytes, sha256_of
from warehouse.records import (
    UNRECORDED,
    Call,
    DeclaredEdge,
    Ignored,
    Rejected,
    ToolRecord,
    TrajectoryRecord,
)
from warehouse.redact import redact_text, redact_value, storable

BATCH_CALLS = 20_000
"""Calls of one transaction, roughly."""
BATCH_CHARACTERS = 32 << 20
"""Characters of raw text of one transaction, roughly: keeps memory flat for huge records."""
RESULT_LIMIT = 2_000
"""Characters of a result that are kept; its hash and size are of the whole."""
PROBED = 10_000
"""Records looked at before a file counts as none of ours."""
RAW_LIMIT = 1_000_000
"""Characters of a quarantined record that are kept."""

_STRANGE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What valid JSON of an unforeseen shape raises in a reader: that record is set aside."""

_COUNTED = ("read", "new", "updated", "duplicate", "quarantined")
_KINDS = ("trajectories", "calls", "tools")

Progress = Callable[[str, int], None]
"""Called with the file's name and the trajectories read so far."""


@dataclass(slots=True)
class FileReport:
    """What came of one file."""

    path: str
    source: str
    format: str | None = None
    counts: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in _KINDS}
    )
    losses: list[str] = field(default_factory=list)
    declared_edges: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    quarantined: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    skipped: str | None = None
    known: bool = False

    def to_json(self) -> dict[str, Any]:
        """The file's entry in ``ingest --json``."""
        entry: dict[str, Any] = {
            "path": self.path,
            "source": self.source,
            "format": self.format,
            **{kind: {name: self.counts[kind][name] for name in _COUNTED} for kind in _KINDS},
            "losses": self.losses,
            "quarantined": self.quarantined,
            "known": self.known,
        }
        if self.declared_edges:
            entry["declared_edges"] = self.declared_edges
        if self.ignored:
            entry["ignored"] = dict(self.ignored)
        if self.orphans:
            entry["results_without_call"] = self.orphans
        if self.reasons:
            entry["reasons"] = dict(self.reasons)
        if self.skipped:
            entry["skipped"] = self.skipped
        return entry


def totals_of(reports: Iterable[FileReport]) -> dict[str, dict[str, int]]:
    """The sum over files, in the shape of ``ingest --json``."""
    total: dict[str, Counter[str]] = {kind: Counter() for kind in _KINDS}
    for report in reports:
        for kind in _KINDS:
            total[kind].update(report.counts[kind])
    return {kind: {name: total[kind][name] for name in _COUNTED} for kind in _KINDS}


# --- which files, and whose -----------------------------------------------------------------------

_FOREIGN = {"node_modules", "site-packages", "__pycache__"}
_SET_FILES = {"tools", "trajectories", "graph", "requests"}


def find_files(paths: Sequence[str]) -> list[tuple[Path, str, bool]]:
    """(file, source name, whether it was named itself) for files, folders and globs.

    Raises:
        UnreadableInput: A path matches nothing, or a folder holds no file.
    """
    found: list[tuple[Path, str, bool]] = []
    for text in paths:
        if not text.strip():
            raise UnreadableInput("expected a file, a folder or a glob, got an empty path.")
        path = Path(text).expanduser()
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _is_delivered(p, path))
            if not inside:
                raise UnreadableInput(
                    f"expected files in the folder {text}, found none: nothing was ingested."
                )
            top = path.resolve().name
            found += [
                (p, p.resolve().parent.name if _stem(p) in _SET_FILES else top, False)
                for p in inside
            ]
        elif path.is_file():
            stem = _stem(path)
            name = path.resolve().parent.name if stem in _SET_FILES else stem
            found.append((path, name, True))
        else:
            names = glob.glob(str(path), recursive=True)  # noqa: PTH207, takes ** and any folder
            matches = sorted(Path(name) for name in names if Path(name).is_file())
            if not matches:
                raise UnreadableInput(
                    f"expected a file, a folder or a glob, got {text}, which does not exist."
                )
            found += [
                (p, p.resolve().parent.name if _stem(p) in _SET_FILES else _stem(p), False)
                for p in matches
            ]
    return found


def _is_delivered(path: Path, top: Path) -> bool:
    """Neither hidden nor in a folder of somebody else's packages."""
    parts = path.relative_to(top).parts
    return not any(part.startswith(".") or part in _FOREIGN for part in parts)


def _stem(path: Path) -> str:
    name = path.name
    for ending in (".gz", ".jsonl", ".json", ".ndjson"):
        name = name.removesuffix(ending)
    return name


# --- one file -------------------------------------------------------------------------------------


def ingest_file(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    source: str,
    delivery: int,
    format: str = "auto",
    name: str | None = None,
    progress: Progress | None = None,
) -> FileReport:
    """Store everything usable in one file and quarantine the rest.

    Args:
        con: A writing connection.
        path: A JSON, JSON-lines or gzip file.
        source: Name of the source; part of every trajectory's key and the tools' namespace.
        delivery: Number of this ingest run; later contracts of a tool overrule earlier ones.
        format: One of ``FORMATS``, or ``auto``.
        name: How to call the file in messages; its path when absent.
        progress: Told after each batch.
    """
    source = storable(source)
    report = FileReport(path=storable(name or str(path)), source=source)
    check_source(source)
    sha = sha256_of(path)
    known = con.execute(
        "select format, counts from ingest_file where file_sha256 = ? and source = ? "
        "and reader_version = ? and ? in ('auto', format)",
        [sha, source, READER_VERSION, format],
    ).fetchall()
    if known:
        _recall(report, *known[0])
        return report
    with open_bytes(path) as file:
        items, shape = _probe(iter_items(file), format)
        if shape is None:
            report.skipped = _why_not(items, format)
            return report
        report.format = shape.format
        report.losses = list(shape.losses)
        for batch in _batches(items, format, report):
            _store(con, batch, report, delivery)
            if progress:
                progress(report.path, report.counts["trajectories"]["read"])
    with transaction(con):
        con.execute("delete from ingest_file where file_sha256 = ? and source = ?", [sha, source])
        con.execute(
            "insert into ingest_file values (?, ?, ?, ?, ?, ?)",
            [sha, source, report.format, READER_VERSION, json.dumps(report.to_json()), utc_now()],
        )
    return report


def check_source(source: str) -> None:
    """A name that can be the namespace of tools.

    Raises:
        UnreadableInput: It is empty or holds a slash.
    """
    if "/" in source or not source.strip():
        raise UnreadableInput(
            f"expected a source name without a slash, got {source!r}: the slash parts a tool's "
            "namespace from its name."
        )


def _recall(report: FileReport, format: str, counts: str) -> None:
    """A file known by its bytes: everything in it is a duplicate, except what is quarantined."""
    before = json.loads(counts)
    report.format, report.losses, report.known = format, before["losses"], True
    report.quarantined = before["quarantined"]
    report.reasons = Counter(before.get("reasons", {}))
    report.ignored = Counter(before.get("ignored", {}))
    report.declared_edges = before.get("declared_edges", 0)
    for kind in _KINDS:
        was = before[kind]
        report.counts[kind].update(
            read=was["read"],
            duplicate=was["read"] - was["quarantined"],
            quarantined=was["quarantined"],
        )


def _probe(items: Iterator[Item], format: str) -> tuple[Iterator[Item], Shape | None]:
    """The items again, and the shape of the first one that any reader takes.

    Single chat messages, as a list or as lines, come back as one item a conversation.
    """
    head: list[Item] = []
    for item in items:
        head.append(item)
        if (
            item.error is None
            and format in ("auto", "openai")
            and openai_chat.is_message(item.value)
        ):
            rest = [*head, *items]
            wholes, others = _conversations(rest)
            return iter([*wholes, *others]), shape_of(wholes[0].value, format)
        shape = shape_of(item.value, format) if item.error is None else None
        if shape is not None or len(head) >= PROBED:
            return chain(head, items), shape
    return iter(head), None


def _conversations(items: list[Item]) -> tuple[list[Item], list[Item]]:
    """Single chat messages gathered into one item a conversation id, and what is no message."""
    gathered: dict[str | None, list[Item]] = {}
    others = []
    for item in items:
        if item.error is None and openai_chat.is_message(item.value):
            ids = (item.value.get(key) for key in ("conversation_id", "thread_id", "session_id"))
            gathered.setdefault(next((str(i) for i in ids if i), None), []).append(item)
        else:
            others.append(item)
    wholes = []
    for identity, messages in gathered.items():
        values = [message.value for message in messages]
        value: Any = (
            values if identity is None else {"conversation_id": identity, "messages": values}
        )
        wholes.append(Item(messages[0].place, "\n".join(m.raw for m in messages), value))
    return wholes, others


def _why_not(items: Iterator[Item], format: str) -> str:
    first = next(items, None)
    if first is None:
        return "the file is empty"
    wanted = "a known format" if format == "auto" else f"the format {format}"
    if first.error:
        return f"expected {wanted}, got text that is {first.error} ({first.place})"
    if isinstance(first.value, dict):
        keys = ", ".join(sorted(map(str, first.value))[:8])
        return f"expected {wanted}, got JSON objects with the keys {keys}"
    return f"expected {wanted}, got JSON of type {type(first.value).__name__}"


# --- batches --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Batch:
    tools: list[ToolRecord] = field(default_factory=list)
    edges: list[DeclaredEdge] = field(default_factory=list)
    trajectories: list["_Row"] = field(default_factory=list)
    rejected: list[tuple[Rejected, str]] = field(default_factory=list)


@dataclass(slots=True)
class _Row:
    """One trajectory ready to be stored."""

    trajectory_id: str
    record: TrajectoryRecord
    form: Form
    calls: list[tuple[Any, ...]]
    links: list[tuple[int, int, str]]
    meta: str
    format: str


def _batches(items: Iterator[Item], format: str, report: FileReport) -> Iterator[_Batch]:
    batch, calls, characters = _Batch(), 0, 0
    occurrences: Counter[str] = Counter()
    for item in items:
        characters += len(item.raw)
        shape = shape_of(item.value, format) if item.error is None else None
        if shape is None:
            reason = item.error or "no reader knows a record of this shape"
            batch.rejected.append((Rejected(item.place, reason, item.raw), "trajectories"))
            report.counts["trajectories"]["read"] += 1
        else:
            for loss in shape.losses:
                if loss not in report.losses:
                    report.losses.append(loss)
            calls += _sort_in(batch, item, shape, report, occurrences)
        if (
            calls >= BATCH_CALLS
            or characters >= BATCH_CHARACTERS
            or len(batch.tools) >= BATCH_CALLS
        ):
            yield batch
            batch, calls, characters = _Batch(), 0, 0
    yield batch


def _sort_in(
    batch: _Batch, item: Item, shape: Shape, report: FileReport, occurrences: Counter[str]
) -> int:
    """Read one item into the batch; the number of calls it brought."""
    try:
        records = list(shape.read(item))
        rows = {
            id(record): _row(record, shape.format, report.source)
            for record in records
            if isinstance(record, TrajectoryRecord)
        }
    except _STRANGE as error:
        reason = f"expected a {shape.format} record, got {type(error).__name__}: {str(error)[:200]}"
        records, rows = [Rejected(item.place, reason, item.raw)], {}
    calls = 0
    for record in records:
        match record:
            case ToolRecord():
                report.counts["tools"]["read"] += 1
                batch.tools.append(record)
            case DeclaredEdge():
                report.declared_edges += 1
                batch.edges.append(record)
            case TrajectoryRecord():
                report.counts["trajectories"]["read"] += 1
                report.counts["calls"]["read"] += len(record.calls)
                report.orphans += len(record.orphans)
                calls += len(record.calls)
                row = rows[id(record)]
                if record.native_id is None:
                    row = _numbered(row, report.source, occurrences)
                batch.trajectories.append(row)
            case Ignored():
                report.ignored[record.what] += 1
            case Rejected():
                report.counts["trajectories"]["read"] += 1
                batch.rejected.append((record, "trajectories"))
    return calls


def _numbered(row: _Row, source: str, occurrences: Counter[str]) -> _Row:
    content = row.form.content_hash
    row.trajectory_id = digest(source, None, content, occurrences[content])[:32]
    occurrences[content] += 1
    return row


def _row(record: TrajectoryRecord, format: str, source: str) -> _Row:
    # Mined before redaction and cutting, stored as positions only.
    stated = record.links_kind in ("gold", "dataflow")
    mined = mine_links(record.request, record.calls, by_value=not stated)
    record.request = storable(redact_text(record.request))
    if record.native_id is not None:
        record.native_id = storable(record.native_id)
    if record.split is not None:
        record.split = storable(str(record.split)).strip().lower()
    turns = {turn: i for i, turn in enumerate(sorted({call.turn for call in record.calls}))}
    calls = [_call_row(position, turns[c.turn], c) for position, c in enumerate(record.calls)]
    links = [(s, t, record.links_kind) for s, t in record.links] + [
        (s, t, "mined") for s, t in mined
    ]
    meta = storable(json.dumps(redact_value(record.meta), ensure_ascii=False, sort_keys=True))
    told = tuple((c[2], c[4], c[9], c[7], c[3]) for c in calls)
    content_hash = digest(
        record.request,
        record.split,
        sorted(links),
        record.links_kind,
        record.started_at,
        meta,
        calls,
    )
    form = Form(
        content_hash,
        record.request,
        told,
        richness_of(
            told,
            num_links=len(record.links),
            has_split=record.split is not None,
            has_time=record.started_at is not None,
            num_meta=len(record.meta),
        ),
        record.started_at,
    )
    trajectory_id = digest(source, record.native_id, content_hash)[:32]
    return _Row(trajectory_id, record, form, calls, links, meta, format)


def _call_row(position: int, turn: int, call: Call) -> tuple[Any, ...]:
    """The columns of ``call`` from position on, without the namespace."""
    raw, state = _arguments(call.arguments)
    result = None if call.result is None else storable(redact_text(call.result))
    status = "invalid" if state == "invalid" and call.status != "error" else call.status
    return (
        position,
        turn,
        storable(call.name),
        None if call.call_id is None else storable(str(call.call_id)),
        raw,
        state,
        None if result is None else result[:RESULT_LIMIT],
        None if result is None else hashlib.sha256(result.encode()).hexdigest()[:32],
        None if result is None else len(result),
        status,
        None if call.error is None else storable(redact_text(call.error))[:RESULT_LIMIT],
        call.started_at,
        call.ended_at,
    )


def _arguments(arguments: Any) -> tuple[str | None, str]:
    """Arguments as text without secrets, and what they are: object, empty, invalid, unrecorded."""
    if arguments is UNRECORDED:
        return None, "unrecorded"
    if arguments is None or arguments == "":
        return "", "empty"
    if not isinstance(arguments, str):
        text = storable(json.dumps(redact_value(arguments), ensure_ascii=False))
        return text, _state(arguments)
    try:
        value = json.loads(arguments)
        if isinstance(value, str):  # encoded twice
            value = json.loads(value)
    except (ValueError, RecursionError):
        return storable(redact_text(arguments)), "invalid"
    clean = redact_value(value)
    same = clean == value
    return storable(arguments if same else json.dumps(clean, ensure_ascii=False)), _state(value)


def _state(value: Any) -> str:
    if not isinstance(value, dict):
        return "invalid"
    return "object" if value else "empty"


# --- the store ------------------------------------------------------------------------------------

_Schema = dict[str, pl.DataType | type[pl.DataType]]

_TRAJECTORY: _Schema = {
    "trajectory_id": pl.String,
    "source": pl.String,
    "native_id": pl.String,
    "content_hash": pl.String,
    "richness": pl.String,
    "request": pl.String,
    "split": pl.String,
    "links_kind": pl.String,
    "started_at": pl.Datetime("us"),
    "format": pl.String,
    "num_calls": pl.Int32,
    "meta": pl.String,
}
_CALL: _Schema = {
    "trajectory_id": pl.String,
    "position": pl.Int32,
    "turn": pl.Int32,
    "namespace": pl.String,
    "name": pl.String,
    "call_id": pl.String,
    "arguments_raw": pl.String,
    "arguments_state": pl.String,
    "result": pl.String,
    "result_hash": pl.String,
    "result_size": pl.Int64,
    "status": pl.String,
    "error": pl.String,
    "started_at": pl.Datetime("us"),
    "ended_at": pl.Datetime("us"),
}
_TOOL: _Schema = {
    "namespace": pl.String,
    "name": pl.String,
    "contract_hash": pl.String,
    "description": pl.String,
    "parameters": pl.String,
    "input_types": pl.String,
    "output_types": pl.String,
    "status": pl.String,
    "delivery": pl.Int64,
}
_QUARANTINE: _Schema = {
    "quarantine_id": pl.String,
    "source": pl.String,
    "path": pl.String,
    "place": pl.String,
    "format": pl.String,
    "reason": pl.String,
    "raw": pl.String,
    "created_at": pl.Datetime("us"),
}
_LINK: _Schema = {
    "trajectory_id": pl.String,
    "source_position": pl.Int32,
    "target_position": pl.Int32,
    "kind": pl.String,
}


def _store(
    con: duckdb.DuckDBPyConnection, batch: _Batch, report: FileReport, delivery: int
) -> None:
    """One batch in one transaction; the report counts it only after the commit."""
    with transaction(con):
        counts = _write(con, batch, report, delivery)
        _quarantine(con, batch.rejected, report)
    for kind in _KINDS:
        report.counts[kind].update(counts[kind])
    for rejected, kind in batch.rejected:
        report.quarantined += 1
        report.reasons[rejected.reason] += 1
        if kind:
            report.counts[kind]["quarantined"] += 1


def _write(
    con: duckdb.DuckDBPyConnection, batch: _Batch, report: FileReport, delivery: int
) -> dict[str, Counter[str]]:
    counts = {kind: Counter[str]() for kind in _KINDS}
    _store_trajectories(con, batch.trajectories, report.source, counts)
    _store_tools(con, batch.tools, report.source, delivery, counts["tools"])
    store_edges(con, batch.edges, report.source)
    return counts


def store_item(
    con: duckdb.DuckDBPyConnection, item: Item, report: FileReport, delivery: int
) -> bool:
    """Store one record inside the caller's transaction; False, and nothing stored, if unusable."""
    shape = shape_of(item.value) if item.error is None else None
    batch = _Batch()
    if shape is not None:
        _sort_in(batch, item, shape, report, Counter())
    if shape is None or batch.rejected:
        return False
    _write(con, batch, report, delivery)
    return True


def _store_trajectories(
    con: duckdb.DuckDBPyConnection,
    rows: list[_Row],
    source: str,
    counts: dict[str, Counter[str]],
) -> None:
    if not rows:
        return
    keys = pl.DataFrame(
        {
            "trajectory_id": [row.trajectory_id for row in rows],
            "native_id": [row.record.native_id for row in rows],
        },
        schema={"trajectory_id": pl.String, "native_id": pl.String},
    )
    con.register("staged_key", keys)
    stored = {
        row[0]
        for row in con.execute(
            "select k.trajectory_id from staged_key k join trajectory t using (trajectory_id)"
        ).fetchall()
    }
    forms = _stored_forms(con, source)
    con.unregister("staged_key")
    keep: dict[str, _Row] = {}
    by_key: dict[str, list[str]] = {}
    replaced: list[str] = []
    for row in rows:
        size = len(row.calls)
        if row.trajectory_id in stored or row.trajectory_id in keep:
            _count(counts, "duplicate", size)
            continue
        native_id = row.record.native_id
        if native_id is None:
            keep[row.trajectory_id] = row
            _count(counts, "new", size)
            continue
        rivals: list[tuple[str, Form]] = list(forms.get(native_id, {}).items())
        rivals += [(i, keep[i].form) for i in by_key.get(native_id, []) if i in keep]
        if any(supersedes(form, row.form) for _, form in rivals):
            _count(counts, "duplicate", size)
            continue
        beaten = [i for i, form in rivals if supersedes(row.form, form)]
        for trajectory_id in beaten:
            if keep.pop(trajectory_id, None) is None:
                replaced.append(trajectory_id)
                forms[native_id].pop(trajectory_id)
        keep[row.trajectory_id] = row
        by_key.setdefault(native_id, []).append(row.trajectory_id)
        _count(counts, "updated" if beaten else "new", size)
    if replaced:
        delete_trajectories(con, replaced)
    _append(con, list(keep.values()), source)


def _count(counts: dict[str, Counter[str]], outcome: str, num_calls: int) -> None:
    counts["trajectories"][outcome] += 1
    counts["calls"][outcome] += num_calls


def _stored_forms(con: duckdb.DuckDBPyConnection, source: str) -> dict[str, dict[str, Form]]:
    """Stored forms of the staged native ids, by native id and trajectory id."""
    heads = con.execute(
        "select t.native_id, t.trajectory_id, t.content_hash, t.request, t.richness, t.started_at "
        "from trajectory t where t.source = ? and t.native_id in "
        "(select native_id from staged_key k where not exists "
        "(select 1 from trajectory x where x.trajectory_id = k.trajectory_id))",
        [source],
    ).fetchall()
    if not heads:
        return {}
    con.register("wanted", pl.DataFrame({"trajectory_id": [head[1] for head in heads]}))
    calls: dict[str, list[CallForm]] = {}
    for trajectory_id, *call in con.execute(
        "select c.trajectory_id, c.name, c.arguments_raw, c.status, c.result_hash, c.call_id "
        "from call c join wanted using (trajectory_id) order by c.trajectory_id, c.position"
    ).fetchall():
        calls.setdefault(trajectory_id, []).append((call[0], call[1], call[2], call[3], call[4]))
    con.unregister("wanted")
    forms: dict[str, dict[str, Form]] = {}
    for native_id, trajectory_id, content_hash, request, richness, started_at in heads:
        forms.setdefault(native_id, {})[trajectory_id] = Form(
            content_hash,
            request,
            tuple(calls.get(trajectory_id, ())),
            tuple(json.loads(richness)),
            started_at,
        )
    return forms


def delete_trajectories(con: duckdb.DuckDBPyConnection, trajectory_ids: Sequence[str]) -> None:
    """Remove trajectories with their calls and links, and so with exactly their own evidence."""
    con.register("unwanted", pl.DataFrame({"trajectory_id": list(trajectory_ids)}))
    con.execute("delete from link where trajectory_id in (select trajectory_id from unwanted)")
    con.execute("delete from call where trajectory_id in (select trajectory_id from unwanted)")
    con.execute(
        "delete from trajectory where trajectory_id in (select trajectory_id from unwanted)"
    )
    con.unregister("unwanted")


def _append(con: duckdb.DuckDBPyConnection, rows: list[_Row], source: str) -> None:
    trajectories = [
        (
            row.trajectory_id,
            source,
            row.record.native_id,
            row.form.content_hash,
            json.dumps(row.form.richness),
            row.record.request,
            row.record.split,
            row.record.links_kind,
            row.record.started_at,
            row.format,
            len(row.calls),
            row.meta,
        )
        for row in rows
    ]
    calls = [
        (row.trajectory_id, call[0], call[1], source, *call[2:])
        for row in rows
        for call in row.calls
    ]
    links = [(row.trajectory_id, *link) for row in rows for link in row.links]
    for statement, schema, data in (
        ("insert into trajectory select * from staged", _TRAJECTORY, trajectories),
        ("insert into call select * from staged", _CALL, calls),
        ("insert into link select * from staged", _LINK, links),
    ):
        if data:
            con.register("staged", pl.DataFrame(data, schema=schema, orient="row"))
            con.execute(statement)
            con.unregister("staged")


def _store_tools(
    con: duckdb.DuckDBPyConnection,
    tools: list[ToolRecord],
    source: str,
    delivery: int,
    counts: Counter[str],
) -> None:
    if not tools:
        return
    # The current contract of each name; within one delivery the greatest hash counts, so that the
    # order of its records does not matter.
    current = {
        name: (delivered, contract, status)
        for name, delivered, contract, status in con.execute(
            "select name, delivery, contract_hash, status from tool_version where namespace = ? "
            "qualify row_number() over "
            "(partition by name order by delivery desc, contract_hash desc) = 1",
            [source],
        ).fetchall()
    }
    rows = []
    for tool in tools:
        row = tool_row(source, tool, delivery)
        name, contract, status = row[1], row[2], row[7]
        old = current.get(name)
        if old and (old[1:] == (contract, status) or (old[0] == delivery and old[1] > contract)):
            counts["duplicate"] += 1
            continue
        counts["updated" if old else "new"] += 1
        current[name] = (delivery, contract, status)
        rows.append(row)
    append_tools(con, rows)


def append_tools(
    con: duckdb.DuckDBPyConnection, rows: list[list[Any]], source: str | None = None
) -> None:
    """Add rows of ``tool_row`` to tool_version, and when and from where they came."""
    if rows:
        con.register("staged", pl.DataFrame(rows, schema=_TOOL, orient="row"))
        con.execute("insert into tool_version select * from staged")
        con.execute(
            "insert into catalogue_delivery select distinct namespace, delivery, ?, ? "
            "from staged s where not exists (select 1 from catalogue_delivery d "
            "where d.namespace = s.namespace and d.delivery = s.delivery)",
            [utc_now(), source],
        )
        con.unregister("staged")


_JSON = json.JSONEncoder(ensure_ascii=False).encode


def _texts(texts: Sequence[str]) -> str:
    """What ``json.dumps`` makes of a list of texts."""
    return f"[{', '.join(map(encode_basestring_ascii, texts))}]"


def tool_row(namespace: str, tool: ToolRecord, delivery: int) -> list[Any]:
    """A row of tool_version."""
    name = storable(tool.name)
    description = storable(redact_text(tool.description))
    parameters = storable(_JSON(list(tool.parameters)))
    inputs, outputs = _texts(tool.input_types), _texts(tool.output_types)
    # What ``identity.digest`` gives for the four texts, at a fraction of the time.
    told = ",".join(map(encode_basestring, (description, parameters, inputs, outputs)))
    contract = hashlib.sha256(f"[{told}]".encode()).hexdigest()[:32]
    contents = (description, parameters, inputs, outputs)
    return [namespace, name, contract, *contents, tool.status, delivery]


def store_edges(con: duckdb.DuckDBPyConnection, edges: list[DeclaredEdge], source: str) -> None:
    """Add the edges that a source declares."""
    if not edges:
        return
    frame = pl.DataFrame(
        {
            "source": [source] * len(edges),
            "source_name": [storable(edge.source_name) for edge in edges],
            "target_name": [storable(edge.target_name) for edge in edges],
            "type": [storable(edge.type) for edge in edges],
        }
    )
    con.register("staged_edge", frame)
    con.execute(
        "insert into declared_edge select distinct * from staged_edge "
        "except select * from declared_edge"
    )
    con.unregister("staged_edge")


def _quarantine(
    con: duckdb.DuckDBPyConnection, rejected: list[tuple[Rejected, str]], report: FileReport
) -> None:
    if not rejected:
        return
    now = utc_now()
    rows = []
    for record, _ in rejected:
        raw = storable(redact_text(record.raw))
        identity = digest(report.source, Path(report.path).name, record.place, record.reason, raw)
        kept = raw if len(raw) <= RAW_LIMIT else f"{raw[:RAW_LIMIT]} [cut, {len(raw)} characters]"
        rows.append(
            (
                identity[:16],
                report.source,
                report.path,
                record.place,
                report.format or "",
                record.reason,
                kept,
                now,
            )
        )
    con.register("staged", pl.DataFrame(rows, schema=_QUARANTINE, orient="row"))
    con.execute(
        "insert into quarantine select s.* from staged s where not exists "
        "(select 1 from quarantine q where q.quarantine_id = s.quarantine_id)"
    )
    con.unregister("staged")
