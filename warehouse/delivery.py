"""What is delivered, and what came of it: the files of an ingest, and a report on each."""

import glob
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warehouse.errors import UnreadableInput
from warehouse.records import UNRECORDED, TrajectoryRecord

COUNTED = ("read", "new", "updated", "duplicate", "quarantined")
KINDS = ("trajectories", "calls", "tools")

_FIELDS = (
    "conversation",
    "native_id",
    "request",
    "call_id",
    "arguments",
    "result",
    "status",
    "started_at",
    "ended_at",
    "parent",
    "links",
)
"""Our fields that a file may lack, in the order in which they are told."""
_OF_TRAJECTORIES = ("conversation", "native_id", "request", "started_at")
"""Those that a trajectory without calls can carry."""


@dataclass(slots=True)
class FileReport:
    """What came of one file."""

    path: str
    source: str
    format: str | None = None
    counts: dict[str, Counter[str]] = field(
        default_factory=lambda: {kind: Counter() for kind in KINDS}
    )
    formats: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    carried: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)
    declared_edges: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    orphans: int = 0
    copies: int = 0
    redacted: int = 0
    forgotten: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    quarantined: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    skipped: str | None = None
    known: bool = False
    resumed: bool = False

    @property
    def losses(self) -> list[str]:
        """Our fields that the format cannot carry or this file did not."""
        if not self.counts["trajectories"]["read"] or not self.formats:
            return []
        told = _FIELDS if self.counts["calls"]["read"] else _OF_TRAJECTORIES
        lost = (set(told) - {"status"} - self.carried) | self.lacking
        return [name for name in _FIELDS if name in lost]

    def note(self, record: TrajectoryRecord) -> None:
        """Remember which of our fields a trajectory carried, and what was odd about it."""
        self.orphans += len(record.orphans)
        self.copies += record.duplicates
        for flag in record.flags:
            self.flags[flag] += 1
        for call in record.calls:
            for flag in call.flags:
                self.flags[flag] += 1
        carried = self.carried
        if len(carried) == len(_FIELDS) - 1:
            return
        calls = record.calls
        for name, is_there in (
            ("conversation", record.conversation is not None),
            ("native_id", record.native_id is not None),
            ("request", record.request != ""),
            ("links", record.links_kind != "none"),
        ):
            if is_there:
                carried.add(name)
        if "call_id" not in carried and any(c.call_id is not None for c in calls):
            carried.add("call_id")
        if "arguments" not in carried and any(c.arguments is not UNRECORDED for c in calls):
            carried.add("arguments")
        if "result" not in carried and any(c.result is not None for c in calls):
            carried.add("result")
        if "started_at" not in carried and (
            record.started_at is not None or any(c.started_at is not None for c in calls)
        ):
            carried.add("started_at")
        if "ended_at" not in carried and any(c.ended_at is not None for c in calls):
            carried.add("ended_at")
        if "parent" not in carried and any(c.parent is not None for c in calls):
            carried.add("parent")

    def to_json(self) -> dict[str, Any]:
        """The file's entry in ``ingest --json``."""
        entry: dict[str, Any] = {
            "path": self.path,
            "source": self.source,
            "format": self.format,
            **{kind: {name: self.counts[kind][name] for name in COUNTED} for kind in KINDS},
            "statuses": dict(sorted(self.statuses.items())),
            "losses": self.losses,
            "quarantined": self.quarantined,
            "known": self.known,
        }
        for name, value in (
            ("formats", dict(self.formats) if len(self.formats) > 1 else None),
            ("declared_edges", self.declared_edges),
            ("ignored", dict(self.ignored)),
            ("results_without_call", self.orphans),
            ("copies", self.copies),
            ("redacted", self.redacted),
            ("forgotten", self.forgotten),
            ("flags", dict(self.flags)),
            ("reasons", dict(self.reasons)),
            ("resumed", self.resumed),
            ("skipped", self.skipped),
        ):
            if value:
                entry[name] = value
        return entry

    def saved(self) -> dict[str, Any]:
        """Everything, as JSON, to go on with later (see ``restore``)."""
        return {
            "entry": self.to_json(),
            "formats": self.formats,
            "carried": sorted(self.carried),
            "lacking": sorted(self.lacking),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Take over what an earlier reading of the same bytes found."""
        entry = saved["entry"]
        self.format = entry["format"]
        for kind in KINDS:
            self.counts[kind] = Counter(entry[kind])
        self.formats = Counter(saved["formats"])
        self.statuses = Counter(entry["statuses"])
        self.carried, self.lacking = set(saved["carried"]), set(saved["lacking"])
        self.declared_edges = entry.get("declared_edges", 0)
        self.ignored = Counter(entry.get("ignored", {}))
        self.orphans = entry.get("results_without_call", 0)
        self.copies = entry.get("copies", 0)
        self.redacted = entry.get("redacted", 0)
        self.forgotten = entry.get("forgotten", 0)
        self.flags = Counter(entry.get("flags", {}))
        self.quarantined = entry["quarantined"]
        self.reasons = Counter(entry.get("reasons", {}))

    def recall(self, saved: dict[str, Any]) -> None:
        """A file known by its bytes: everything in it is a duplicate, but what is quarantined."""
        self.restore(saved)
        self.known = True
        for kind in KINDS:
            was = self.counts[kind]
            self.counts[kind] = Counter(
                read=was["read"],
                duplicate=was["read"] - was["quarantined"],
                quarantined=was["quarantined"],
            )


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


def totals_of(reports: Iterable[FileReport]) -> dict[str, dict[str, int]]:
    """The sum over files, in the shape of ``ingest --json``."""
    total: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for report in reports:
        for kind in KINDS:
            total[kind].update(report.counts[kind])
    return {kind: {name: total[kind][name] for name in COUNTED} for kind in KINDS}


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
    for ending in (".gz", ".jsonl", ".json", ".ndjson", ".parquet", ".traj"):
        name = name.removesuffix(ending)
    return name
