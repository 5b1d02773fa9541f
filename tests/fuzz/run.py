"""Mutated deliveries into a warehouse: nothing escapes, and nothing is lost.

``python -m tests.fuzz.run --mutations 10000 --seed 0`` prints what became of them by format.
"""

import argparse
import gzip
import io
import json
import random
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import mutated
from warehouse import ingest as ingesting
from warehouse.connection import open_in_memory
from warehouse.delivery import FileReport
from warehouse.readers.carriers import CARRIERS, HEAD
from warehouse.readers.stream import Item
from warehouse.records import Gathered
from warehouse.redact import storable
from warehouse.staging import Handling, stage_events

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared" / "samples"
_FRESH = 200
"""Mutations after which the warehouse in memory is a new one."""
_BETWEEN = " \t\r\n,[]\ufeff\ufffd"
"""What may stand between the records of a JSON file."""


# --- what is mutated ------------------------------------------------------------------------------


def seeds(samples: Path) -> dict[str, list[bytes]]:
    """Sound files by format: the samples where they are, and what other carriers make of them."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(samples.rglob("*")) if samples.is_dir() else ():
        if path.is_file() and path.name != "SOURCE.txt":
            found.setdefault(path.parent.name, []).append(path.read_bytes())
    for name in ("openinference", "otel_genai"):
        for data in found.get(name, ()):
            packed = _protobuf(data)
            if packed:
                found.setdefault("otlp_protobuf", []).append(packed)
    for data in found.get("langfuse", ()):
        found.setdefault("parquet", []).append(_parquet(json.loads(data)))
    for name in ("openai_chat", "anthropic", "openai_responses"):
        for data in found.get(name, ()):
            found.setdefault("sse", []).extend(_streams(json.loads(data)))
    found["made up"] = [_lines(_MADE_UP), json.dumps(_ATIF).encode()]
    return found


_MADE_UP: list[Any] = [
    {
        "id": f"t{i}",
        "request": "find and book",
        "steps": [
            {"tool": "find", "arguments": {"city": "Oslo"}, "observation": "REF-12345"},
            {"tool": "book", "arguments": {"ref": "REF-12345"}, "error": "taken"},
        ],
        "links": [[0, 1]],
        "split": "train",
        "meta": {"n": i},
    }
    for i in range(3)
] + [
    {"name": "find", "description": "finds", "parameters": [{"name": "city", "type": "string"}]},
    {"name": "book", "description": "books", "parameters": []},
]
_ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "a", "version": "1", "model_name": "m"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "do it"},
        {
            "step_id": 2,
            "source": "agent",
            "timestamp": "2026-01-01T00:00:00Z",
            "message": "",
            "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"a": 1}}],
            "observation": {"results": [{"source_call_id": "c", "content": "ok"}]},
        },
    ],
}


def _lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _protobuf(data: bytes) -> bytes:
    from google.protobuf import json_format
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    value = json.loads(data)
    if "resourceSpans" not in value:
        return b""
    return json_format.ParseDict(
        value, TracesData(), ignore_unknown_fields=True
    ).SerializeToString()


def _parquet(value: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = value.get("observations") if isinstance(value, dict) else value
    told = [{k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()} for row in rows]
    columns = {key: [row.get(key) for row in told] for key in told[0]}
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


_PACKED_FROM = {"parquet": "langfuse", "otlp_protobuf": "otel_genai"}


def _packed(format: str, data: bytes) -> bytes:
    """A mutated document as the binary format, where that can hold it."""
    try:
        return _parquet(json.loads(data)) if format == "parquet" else _protobuf(data)
    except Exception:  # of Arrow or protobuf, about whatever the mutation made
        return b""


def _streams(value: Any) -> Iterator[bytes]:
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += node.values()
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, str) and node.startswith(("data: ", "event: ")):
            yield node.encode()


# --- what is watched ------------------------------------------------------------------------------


@dataclass
class Watch:
    """What one ingest was given and what it put into its batches."""

    items: list[Item] = field(default_factory=list)
    taken: int = 0
    silent: list[str] = field(default_factory=list)
    batches: list[Any] = field(default_factory=list)
    by_reader: Counter[str] = field(default_factory=Counter)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Look on while the ingest takes items, sorts records into batches and stores them."""
    run: Any = ingesting._Run
    iter_items, sort_in, store = ingesting.iter_items, run._sort_in, run._store

    def watched_items(*arguments: Any, **options: Any) -> Iterator[Item]:
        for item in iter_items(*arguments, **options):
            watch.items.append(item)
            yield item

    def watched_sorting(self: Any, batch: Any, item: Item, shape: Any, **options: Any) -> None:
        before = _size(batch)
        sort_in(self, batch, item, shape, **options)
        after = _size(batch)
        watch.by_reader[shape.format] += 1
        watch.taken += len(item.value.values) if isinstance(item.value, Gathered) else 1
        if after == before:
            watch.silent.append(f"{item.place} ({shape.format})")

    def watched_storing(self: Any, batch: Any) -> None:
        watch.batches.append(batch)
        store(self, batch)

    ingesting.iter_items, run._sort_in, run._store = watched_items, watched_sorting, watched_storing
    try:
        yield
    finally:
        ingesting.iter_items, run._sort_in, run._store = iter_items, sort_in, store


def _size(batch: Any) -> tuple[int, ...]:
    events = sum(len(part) for _, _, part in batch.fragments)
    told = (batch.tools, batch.edges, batch.whole, batch.rejected)
    return (*map(len, told), events, batch.ignored.total())


def problems(con: Any, report: FileReport, watch: Watch, data: bytes) -> list[str]:
    """Why the file was not conserved; nothing if it was."""
    found = [f"the reader yields nothing at all for {place}" for place in watch.silent]
    found += _uncovered(data, watch.items)
    source = report.source
    rows = {
        table: con.execute(f"select * from {table} where source = ?", [source]).fetchall()
        for table in ("trajectory", "quarantine")
    }
    if report.skipped:
        if any(rows.values()) or watch.batches:
            found.append("a skipped file left rows")
        return found
    rejected = [record for batch in watch.batches for record in batch.rejected]
    unread = len(watch.items) - watch.taken
    if unread > len(rejected):
        found.append(f"{unread} items without a reader, but {len(rejected)} set aside")
    kept = {(row[3], row[5]) for row in rows["quarantine"]}
    for record in rejected:
        if (storable(record.place), storable(record.reason)) not in kept:
            found.append(f"not in quarantine: {record.place}: {record.reason}")
    for kind, count in report.counts.items():
        outcomes = sum(count[name] for name in ("new", "updated", "duplicate", "quarantined"))
        if count["read"] != outcomes:
            found.append(f"{kind}: {count['read']} read, but {outcomes} told of")
    found += _whole(con, report, watch)
    found += _fragments(con, source, watch)
    return found


def _whole(con: Any, report: FileReport, watch: Watch) -> list[str]:
    """Trajectories told whole: each of them, or a fuller form, is stored with its calls."""
    told = [record for batch in watch.batches for _, record in batch.whole]
    rows = con.execute(
        "select native_id, num_calls, (select count(*) from call c where "
        "c.trajectory_id = t.trajectory_id) from trajectory t "
        "where source = ? and assembled_from is null",
        [report.source],
    ).fetchall()
    found = [f"{row[1]} calls, but {row[2]} rows" for row in rows if row[1] != row[2]]
    most: dict[str | None, int] = {}
    for native_id, num_calls, _ in rows:
        most[native_id] = max(num_calls, most.get(native_id, -1))
    for record in told:
        if most.get(record.native_id, -1) < len(record.calls):
            found.append(f"not stored: trajectory {record.native_id}, {len(record.calls)} calls")
    return found


def _fragments(con: Any, source: str, watch: Watch) -> list[str]:
    """Events: all of them are stored, and each conversation was assembled or set aside."""
    told, _ = stage_events(
        [part for batch in watch.batches for part in batch.fragments], Handling()
    )
    stored: dict[tuple[str, str], set[str]] = {}
    for format, conversation, text in con.execute(
        "select format, conversation, events from fragment where source = ?", [source]
    ).fetchall():
        events = {json.dumps(event, sort_keys=True) for event in json.loads(text)}
        stored.setdefault((format, conversation), set()).update(events)
    found = []
    for key, one in told.items():
        wanted = {json.dumps(json.loads(text), sort_keys=True) for text in one.events}
        if wanted != stored.get(key, set()):
            found.append(f"events of {key}: {len(wanted)} told, {len(stored.get(key, ()))} stored")
    if con.execute("select count(*) from pending where source = ?", [source]).fetchone()[0]:
        found.append("conversations were left pending")
    return found


def _uncovered(data: bytes, items: list[Item]) -> list[str]:
    """Text of a JSON file that is in none of its items."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error):
            return []
    if not items or any(recognises(data[:HEAD]) for recognises, _ in CARRIERS):
        return []
    text = data.decode(errors="replace").replace("\ufffd", "")
    at, left = 0, []
    for item in items:
        raw = item.raw.replace("\ufffd", "").strip(_BETWEEN)
        start = text.find(raw, at)
        if start < 0:
            return [f"the text of {item.place} is not in the file"]
        left.append(text[at:start])
        at = start + len(raw)
    left.append(text[at:])
    rest = "".join(left).strip(_BETWEEN)
    return [f"in no record: {rest[:80]!r}"] if rest.translate(_DROP) else []


_DROP = {ord(char): None for char in _BETWEEN + "\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029"}


# --- running --------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What became of all mutations."""

    table: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[tuple[str, bytes, str]] = field(default_factory=list)
    """(format, the file, what was wrong)."""

    def __str__(self) -> str:
        names = ("mutations", "skipped", "trajectories", "calls", "events", "quarantined", "failed")
        lines = [f"{'format':18}" + "".join(f"{name:>14}" for name in names)]
        total: Counter[str] = Counter()
        for format, counts in sorted(self.table.items()):
            total.update(counts)
            lines.append(f"{format:18}" + "".join(f"{counts[name]:14}" for name in names))
        lines.append(f"{'total':18}" + "".join(f"{total[name]:14}" for name in names))
        return "\n".join(lines)


def fuzz(
    mutations: int, seed: int, samples: Path = SAMPLES, formats: tuple[str, ...] = ()
) -> Outcome:
    """Ingest mutated files of every format in turn, or of some."""
    rng = random.Random(seed)
    by_format = seeds(samples)
    every = [data for files in by_format.values() for data in files]
    formats = formats or tuple(sorted(by_format))
    outcome = Outcome({format: Counter() for format in formats})
    con = _warehouse()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "delivered.json"
        for number in range(mutations):
            if number and number % _FRESH == 0:
                con.close()
                con = _warehouse()
            format = formats[number % len(formats)]
            data = mutated(rng.choice(by_format[format]), rng, every)
            source = _PACKED_FROM.get(format)
            if source in by_format and rng.random() < 0.7:
                data = _packed(format, mutated(rng.choice(by_format[source]), rng, every)) or data
            counts = outcome.table[format]
            counts["mutations"] += 1
            for problem in try_file(con, path, data, f"source{number}", counts):
                counts["failed"] += 1
                outcome.failures.append((format, data, problem))
    con.close()
    return outcome


def _warehouse() -> Any:
    con = open_in_memory()
    con.execute("set threads = 1")
    return con


def try_file(con: Any, path: Path, data: bytes, source: str, counts: Counter[str]) -> list[str]:
    """Ingest one file; what is wrong with the outcome."""
    path.write_bytes(data)
    watch = Watch()
    try:
        with watching(watch):
            report = ingesting.ingest_file(con, path, source=source, delivery=1)
    except Exception:  # whatever it is, it should not have come out
        return [f"escaped:\n{traceback.format_exc()}"]
    counts["skipped"] += bool(report.skipped)
    counts["quarantined"] += report.quarantined
    rows = con.execute(
        "select (select count(*) from trajectory where source = $1), "
        "(select count(*) from call where namespace = $1), "
        "(select coalesce(sum(num_events), 0) from fragment where source = $1)",
        [source],
    ).fetchone()
    for name, count in zip(("trajectories", "calls", "events"), rows, strict=True):
        counts[name] += count
    return problems(con, report, watch, data)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=Path, default=SAMPLES)
    parser.add_argument("--formats", nargs="*", default=[], help="only these")
    parser.add_argument("--keep", type=Path, help="folder for the files that failed")
    arguments = parser.parse_args()
    start = time.monotonic()
    formats = tuple(arguments.formats)
    outcome = fuzz(arguments.mutations, arguments.seed, arguments.samples, formats)
    print(outcome)
    print(f"{time.monotonic() - start:.0f} s, seed {arguments.seed}")
    for number, (format, data, problem) in enumerate(outcome.failures):
        if number < 20:
            print(f"\n{format}: {problem}")
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{number}-{format}").write_bytes(data)
            (arguments.keep / f"{number}-{format}.txt").write_text(problem, errors="replace")
    return bool(outcome.failures)


if __name__ == "__main__":
    sys.exit(main())
