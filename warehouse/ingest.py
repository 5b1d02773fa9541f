"""Files in, rows out: detect, read, redact, tell new from known, store, set aside what is unusable.

Some batches make one transaction: what is reported as stored after it survives a crash, and reading
the file again goes on behind it. A file that was read to its end is remembered by its bytes.
"""

import contextlib
import gc
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import duckdb

from warehouse.connection import transaction, utc_now
from warehouse.delivery import FileReport, check_source
from warehouse.linking import Key
from warehouse.readers.carriers import iter_items
from warehouse.readers.reading import gather
from warehouse.readers.registry import (
    READER_VERSION,
    Shape,
    assembler_of,
    conversation_of,
    shape_of,
    shape_of_whole,
)
from warehouse.readers.stream import Item, open_bytes, sha256_of
from warehouse.records import (
    DeclaredEdge,
    Fragment,
    Ignored,
    Record,
    Rejected,
    ToolRecord,
    TrajectoryRecord,
)
from warehouse.redact import storable
from warehouse.staging import (
    STATUS,
    Handling,
    Staged,
    Told,
    key_of,
    stage,
    stage_events,
    tally_statuses,
)
from warehouse.storing import (
    append_aliases,
    append_fragments,
    known_conversations,
    linked_conversations,
    mark_pending,
    merge_fragments,
    pending_conversations,
    replace_assembled,
    store_edges,
    store_rejected,
    store_tools,
    store_whole,
)

BATCH_CALLS = 20_000
"""Calls or events of one batch, roughly."""
BATCH_CHARACTERS = 16 << 20
"""Characters of raw text of one batch, roughly: keeps memory flat for huge records."""
COMMIT_CALLS = 140_000
"""Calls or events of one transaction, roughly: a row group of DuckDB, which then goes to the file
once instead of by way of its log."""
COMMIT_CHARACTERS = 96 << 20
"""Characters of raw text of one transaction, roughly."""
MEMORY = "200MB"
"""What DuckDB may keep in memory meanwhile; by default it caches all that it writes."""
PROBED = 10_000
"""Records looked at before a file counts as none of ours."""

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

Progress = Callable[[str, int, float | None], None]
"""Called with the file's name, the trajectories read, and the share of the file, where known."""


def ingest_file(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    *,
    source: str,
    delivery: int,
    format: str = "auto",
    name: str | None = None,
    handling: Handling | None = None,
    progress: Progress | None = None,
) -> FileReport:
    """Store everything usable in one file and quarantine the rest.

    Args:
        con: A writing connection.
        path: A file in any format of the readers, gzip or not.
        source: Name of the source; part of every trajectory's key and the tools' namespace.
        delivery: Number of this ingest run; later contracts of a tool overrule earlier ones.
        format: One of ``FORMATS``, or ``auto``.
        name: How to call the file in messages; its path when absent.
        handling: What becomes of arguments and results; kept when absent.
        progress: Told after each batch.
    """
    source = storable(source)
    report = FileReport(path=storable(name or str(path)), source=source)
    check_source(source)
    sha = sha256_of(path)
    known = con.execute(
        "select counts from ingest_file where file_sha256 = ? and source = ? "
        "and reader_version = ? and ? in ('auto', format)",
        [sha, source, READER_VERSION, format],
    ).fetchall()
    if known:
        report.recall(json.loads(known[0][0]))
        return report
    with open_bytes(path) as file, _without_collector(), _bounded(con):
        # Of a packed file the unpacked size is not known.
        num_bytes = 0 if isinstance(file, gzip.GzipFile) else path.stat().st_size
        run = _Run(con, report, delivery, format, handling or Handling(), progress, num_bytes)
        at_byte, at_line = run.resume(sha)
        items = iter_items(file, at_byte=at_byte, at_line=at_line)
        if not report.resumed:
            head, is_ours = _probe(items, format)
            if not is_ours:
                report.skipped = _why_not(head, format)
                return report
            items = chain(head, items)
        run.read(items, sha)
        run.settle()
    with transaction(con):
        con.execute("delete from ingest_file where file_sha256 = ? and source = ?", [sha, source])
        con.execute(
            "insert into ingest_file values (?, ?, ?, ?, ?, ?)",
            [sha, source, report.format, READER_VERSION, json.dumps(report.saved()), utc_now()],
        )
        con.execute(
            "delete from ingest_progress where file_sha256 = ? and source = ?", [sha, source]
        )
    return report


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Records hold no cycles: looking for them again and again is a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _bounded(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """DuckDB within ``MEMORY``."""
    before = con.execute("select current_setting('memory_limit')").fetchall()[0][0]
    con.execute("set memory_limit = $limit", {"limit": MEMORY})
    try:
        yield
    finally:
        con.execute("set memory_limit = $limit", {"limit": before})


def _probe(items: Iterator[Item], format: str) -> tuple[list[Item], bool]:
    """The items up to the first that a reader takes, and whether there is one."""
    head: list[Item] = []
    for item in items:
        head.append(item)
        if item.error is None and shape_of(item.value, format) is not None:
            return head, True
        if len(head) >= PROBED:
            break
    return head, False


def _why_not(head: list[Item], format: str) -> str:
    if not head:
        return "the file is empty"
    first = head[0]
    wanted = "a known format" if format == "auto" else f"the format {format}"
    if first.error:
        return f"expected {wanted}, got text that is {first.error} ({first.place})"
    if isinstance(first.value, dict):
        keys = ", ".join(sorted(map(str, first.value))[:8])
        return f"expected {wanted}, got JSON objects with the keys {keys}"
    return f"expected {wanted}, got JSON of type {type(first.value).__name__}"


# --- one reading ----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Batch:
    tools: list[ToolRecord] = field(default_factory=list)
    edges: list[DeclaredEdge] = field(default_factory=list)
    whole: list[tuple[str, TrajectoryRecord]] = field(default_factory=list)
    fragments: list[tuple[str, str, list[dict[str, object]]]] = field(default_factory=list)
    aliases: dict[Key, set[str]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    size: int = 0
    characters: int = 0
    last: Item | None = None

    @property
    def is_full(self) -> bool:
        return self.size >= BATCH_CALLS or self.characters >= BATCH_CHARACTERS


@dataclass(slots=True)
class _Tally:
    """What one conversation of fragments has added to the report so far."""

    outcome: str
    trajectories: int
    calls: int
    statuses: dict[str, int]
    orphans: int
    copies: int


class _Run:
    """One reading of one file."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        report: FileReport,
        delivery: int,
        format: str,
        handling: Handling,
        progress: Progress | None = None,
        num_bytes: int = 0,
    ) -> None:
        self.con = con
        self.report = report
        self.source = report.source
        self.delivery = delivery
        self.format = format
        self.handling = handling
        self.progress = progress
        self.num_bytes = num_bytes
        self.occurrences: Counter[str] = Counter()
        self.told: dict[Key, _Tally | None] = {}
        self.fresh: set[Key] = set()
        self.gathered: dict[tuple[int, str | None], tuple[Shape, list[Item]]] = {}
        self.forgotten = {
            row[0]
            for row in con.execute(
                "select key from forgotten where source = ?", [self.source]
            ).fetchall()
        }

    # --- reading

    def resume(self, sha: str) -> tuple[int, int]:
        """(byte, line) behind which an interrupted reading of the same bytes goes on."""
        rows = self.con.execute(
            "select at_byte, at_line, report from ingest_progress "
            "where file_sha256 = ? and source = ? and reader_version = ?",
            [sha, self.source, READER_VERSION],
        ).fetchall()
        if not rows:
            return 0, 0
        at_byte, at_line, saved = rows[0]
        self.report.restore(json.loads(saved))
        self.report.resumed = True
        return at_byte, at_line

    def read(self, items: Iterator[Item], sha: str) -> None:
        """Everything in the file, batch by batch, some batches a transaction."""
        for group in self._groups(items):
            last = None
            with transaction(self.con):
                for batch in group:
                    self._store(batch)
                    last = batch.last
                if last is not None and self._can_resume(last):
                    self._remember(sha, last)
            self._tell(last)

    def _tell(self, last: Item | None) -> None:
        if self.progress:
            at = None if last is None or last.end is None or not self.num_bytes else last.end[0]
            share = None if at is None else at / self.num_bytes
            self.progress(self.report.path, self.report.counts["trajectories"]["read"], share)

    def _groups(self, items: Iterator[Item]) -> Iterator[Iterator[_Batch]]:
        """Batches in groups of one transaction each."""
        batches = self._batches(items)
        for first in batches:
            size, characters = 0, 0

            def group(batch: _Batch = first) -> Iterator[_Batch]:
                nonlocal size, characters
                while True:
                    size += batch.size
                    characters += batch.characters
                    yield batch
                    if size >= COMMIT_CALLS or characters >= COMMIT_CHARACTERS:
                        return
                    following = next(batches, None)
                    if following is None:
                        return
                    batch = following

            yield group()

    def _batches(self, items: Iterator[Item]) -> Iterator[_Batch]:
        batch = _Batch()
        for item in items:
            batch.characters += len(item.text)
            shape = shape_of(item.value, self.format) if item.error is None else None
            if shape is None:
                reason = item.error or "no reader knows a record of this shape"
                batch.rejected.append(Rejected(item.place, reason, item.raw))
            elif shape.gathered:
                key = (id(shape), conversation_of(item.value))
                self.gathered.setdefault(key, (shape, []))[1].append(item)
            else:
                self._sort_in(batch, item, shape)
            if batch.is_full:
                batch.last = item
                yield batch
                batch = _Batch()
        for (_, conversation), (shape, parts) in self.gathered.items():
            whole = gather(conversation, parts)
            named = shape_of_whole(shape, whole.value.values, self.format)
            self._sort_in(batch, whole, shape, format=named.format)
        yield batch

    def _can_resume(self, item: Item) -> bool:
        """Whether what follows the item means the same without what came before it.

        Not where equal records without an id are counted, nor where lines are gathered.
        """
        return item.end is not None and not self.occurrences and not self.gathered

    def _sort_in(self, batch: _Batch, item: Item, shape: Shape, format: str | None = None) -> None:
        """The item's records into the batch; ``format`` names them where the shape does not."""
        try:
            records: list[Record] = list(shape.read(item))
            for record in records:
                _check(record)
        except _STRANGE as error:
            reason = (
                f"expected a {shape.format} record, got {type(error).__name__}: {str(error)[:200]}"
            )
            records = [Rejected(item.place, reason, item.raw)]
        report = self.report
        format = format or shape.format
        if report.format is None:
            report.format = format
        for record in records:
            match record:
                case TrajectoryRecord():
                    report.formats[format] += 1
                    report.lacking.update(set(shape.losses) & {"status"})
                    batch.whole.append((format, record))
                    batch.size += len(record.calls) + 1
                case Fragment():
                    if self.forgotten and (
                        conversation_key(self.source, shape.format, record.conversation)
                        in self.forgotten
                    ):
                        report.forgotten += 1
                        continue
                    batch.fragments.append((shape.format, record.conversation, record.events))
                    if record.aliases:
                        named = (shape.format, storable(record.conversation))
                        batch.aliases.setdefault(named, set()).update(record.aliases)
                    batch.size += len(record.events)
                case ToolRecord():
                    batch.tools.append(record)
                    batch.size += 1
                case DeclaredEdge():
                    batch.edges.append(record)
                    batch.size += 1
                case Ignored():
                    batch.ignored[record.what] += 1
                case Rejected():
                    batch.rejected.append(record)

    # --- storing

    def _store(self, batch: _Batch) -> None:
        """One batch inside the transaction of its group."""
        report, con = self.report, self.con
        whole = self._staged(batch.whole)
        counts = store_whole(con, whole, self.source)
        tools = store_tools(con, batch.tools, self.source, self.delivery)
        store_edges(con, batch.edges, self.source)
        self._reject(batch.rejected, "trajectories")
        self._store_fragments(batch)
        report.counts["trajectories"]["read"] += len(whole)
        report.counts["calls"]["read"] += sum(len(row.calls) for row in whole)
        for kind in ("trajectories", "calls"):
            report.counts[kind].update(counts[kind])
        report.statuses.update(tally_statuses(whole))
        report.counts["tools"]["read"] += len(batch.tools)
        report.counts["tools"].update(tools)
        report.declared_edges += len(batch.edges)
        report.ignored.update(batch.ignored)

    def _remember(self, sha: str, item: Item) -> None:
        assert item.end is not None
        self.con.execute(
            "delete from ingest_progress where file_sha256 = ? and source = ?", [sha, self.source]
        )
        self.con.execute(
            "insert into ingest_progress values (?, ?, ?, ?, ?, ?)",
            [sha, self.source, READER_VERSION, *item.end, json.dumps(self.report.saved())],
        )

    def _reject(self, rejected: list[Rejected], kind: str) -> None:
        report = self.report
        store_rejected(
            self.con,
            rejected,
            source=self.source,
            path=report.path,
            name=Path(report.path).name,
            format=report.format or "",
            keep_raw=not self.handling.drop_payloads,
        )
        for record in rejected:
            report.quarantined += 1
            report.reasons[record.reason] += 1
            report.counts[kind]["read"] += 1
            report.counts[kind]["quarantined"] += 1

    def _staged(self, records: list[tuple[str, TrajectoryRecord]]) -> list[Staged]:
        """Trajectories told whole, ready to be stored; without those that were forgotten."""
        if not records:
            return []
        for _, record in records:
            self.report.note(record)
        staged, redacted = stage(records, self.source, self.handling)
        self.report.redacted += redacted
        kept = []
        for row in staged:
            native_id = row.record.native_id
            if self.forgotten and (
                trajectory_key(self.source, native_id, row.content_hash) in self.forgotten
            ):
                self.report.forgotten += 1
                continue
            if native_id is None:
                content = row.content_hash
                occurrence = self.occurrences[content]
                self.occurrences[content] += 1
                row.trajectory_id = key_of(self.source, None, content, occurrence)[:32]
            kept.append(row)
        return kept

    def _store_fragments(self, batch: _Batch) -> None:
        """New conversations are assembled at once, others at the end of the file.

        So are those with other names, since what they belong to may still come.
        """
        if not batch.fragments:
            return
        told, redacted = stage_events(batch.fragments, self.handling)
        self.report.redacted += redacted
        known = known_conversations(self.con, told, self.source)
        append_fragments(self.con, told, self.source)
        append_aliases(self.con, batch.aliases, self.source)
        self.fresh.update(batch.aliases.keys() - known - self.fresh)
        waiting = known | batch.aliases.keys()
        mark_pending(self.con, waiting, self.source)
        for key in waiting:
            self.told.setdefault(key, None)
        new = {key: one for key, one in told.items() if key not in waiting}
        for key, rows in self._assemble(new, {key: [key] for key in new})[0].items():
            self._tally(key, rows, "new")

    def settle(self) -> None:
        """Assemble every conversation of this source that has waited for the end of its file."""
        while keys := pending_conversations(self.con, self.source, BATCH_CHARACTERS):
            with transaction(self.con):
                groups = linked_conversations(self.con, keys, self.source)
                whole, learnt = merge_fragments(
                    self.con, [key for group in groups.values() for key in group], self.source
                )
                told = {
                    lead: Told({k: e for key in group for k, e in whole[key].events.items()})
                    for lead, group in groups.items()
                }
                made, changed = self._assemble(told, groups)
                for lead, group in groups.items():
                    touched = [key for key in group if key in self.told]
                    if not touched:  # left by a reading that was killed
                        continue
                    if self.fresh.issuperset(group):
                        outcome = "new"
                    elif lead in changed or not learnt.isdisjoint(group):
                        outcome = "updated"
                    else:
                        outcome = "duplicate"
                    self._tally(lead, made[lead], outcome)
            self._tell(None)

    def _assemble(
        self, told: dict[Key, Told], groups: dict[Key, list[Key]]
    ) -> tuple[dict[Key, list[Staged]], set[Key]]:
        """Trajectories of these conversations, in place of those made of fewer events.

        Returns:
            Them by conversation, and the conversations where something changed.
        """
        if not told:
            return {}, set()
        records: list[tuple[str, TrajectoryRecord]] = []
        conversations: list[str] = []
        strange: list[Rejected] = []
        tools: list[ToolRecord] = []
        for (format, conversation), one in told.items():
            try:
                made = list(assembler_of(format)(conversation, list(one.events.values())))
                for record in made:
                    _check(record)
            except _STRANGE as error:
                reason = (
                    f"expected events of a {format} conversation, got {type(error).__name__}: "
                    f"{str(error)[:200]}"
                )
                strange.append(Rejected(f"conversation {conversation}", reason, one.to_text()))
                continue
            for record in made:
                if isinstance(record, TrajectoryRecord):
                    records.append((format, record))
                    conversations.append(conversation)
                elif isinstance(record, ToolRecord):
                    tools.append(record)
                elif isinstance(record, Ignored):
                    self.report.ignored[record.what] += 1
        for format, record in records:
            self.report.note(record)
            self.report.formats[format] += 1
        staged, _ = stage(records, self.source, self.handling, assembled_from=conversations)
        changed = replace_assembled(self.con, staged, groups, self.source)
        store_tools(self.con, tools, self.source, self.delivery)
        self._reject(strange, "trajectories")
        made_of: dict[Key, list[Staged]] = {key: [] for key in told}
        for row in staged:
            made_of[(row.format, row.assembled_from or "")].append(row)
        return made_of, changed

    def _tally(self, key: Key, rows: list[Staged], outcome: str) -> None:
        """Count a conversation once, as it is now, however often the file comes back to it."""
        before = self.told.get(key)
        if before is not None:
            self._count(before, -1)
            outcome = before.outcome
        now = _Tally(outcome, len(rows), 0, {}, 0, 0)
        for row in rows:
            now.calls += len(row.calls)
            now.orphans += len(row.record.orphans)
            now.copies += row.record.duplicates
            for call in row.calls:
                now.statuses[call[STATUS]] = now.statuses.get(call[STATUS], 0) + 1
        self._count(now, 1)
        self.told[key] = now
        if before is not None:  # noted anew when it was assembled anew
            self.report.orphans -= before.orphans
            self.report.copies -= before.copies

    def _count(self, tally: _Tally, sign: int) -> None:
        counts, statuses = self.report.counts, self.report.statuses
        for kind, number in (("trajectories", tally.trajectories), ("calls", tally.calls)):
            counts[kind]["read"] += sign * number
            counts[kind][tally.outcome] += sign * number
        for status, number in tally.statuses.items():
            statuses[status] += sign * number


def _check(record: Record) -> None:
    """What a reader yields is what it says; JSON of an unforeseen shape may have slipped in.

    Raises:
        TypeError: A text is none.
    """
    if isinstance(record, TrajectoryRecord):
        if not isinstance(record.request, str):
            raise TypeError(f"expected the request as text, got {type(record.request).__name__}")
        for call in record.calls:
            if not isinstance(call.name, str):
                raise TypeError(f"expected a tool's name, got {type(call.name).__name__}")
            if call.result is not None and not isinstance(call.result, (str, dict)):
                raise TypeError(f"expected a result as text, got {type(call.result).__name__}")
            if call.error is not None and not isinstance(call.error, str):
                raise TypeError(f"expected an error as text, got {type(call.error).__name__}")
    elif isinstance(record, ToolRecord) and not isinstance(record.name, str):
        raise TypeError(f"expected a tool's name, got {type(record.name).__name__}")


def trajectory_key(source: str, native_id: str | None, content_hash: str) -> str:
    """By what a trajectory told whole is known when it was to be forgotten."""
    return key_of(source, native_id, None if native_id is not None else content_hash)


def conversation_key(source: str, format: str, conversation: str) -> str:
    """By what a conversation told in pieces is known when it was to be forgotten."""
    return key_of(source, format, "conversation", conversation)


def settle_pending(
    con: duckdb.DuckDBPyConnection, delivery: int, handling: Handling | None = None
) -> None:
    """Finish what a reading that was killed left half done, in every source."""
    for (source,) in con.execute("select distinct source from pending order by source").fetchall():
        _Run(con, FileReport("", source), delivery, "auto", handling or Handling()).settle()


def store_item(
    con: duckdb.DuckDBPyConnection, item: Item, report: FileReport, delivery: int
) -> bool:
    """Store one record inside the caller's transaction; False, and nothing stored, if unusable."""
    shape = shape_of(item.value) if item.error is None else None
    if shape is None or shape.gathered:
        return False
    run = _Run(con, report, delivery, "auto", Handling())
    batch = _Batch()
    run._sort_in(batch, item, shape)
    if batch.rejected:
        return False
    store_whole(con, run._staged(batch.whole), report.source)
    store_tools(con, batch.tools, report.source, delivery)
    store_edges(con, batch.edges, report.source)
    run._store_fragments(batch)
    return True
