"""Killed at any moment, a night leaves whole versions, and the next run finishes its work."""

import hashlib
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.factories import trajectory, write_lines
from tests.nights import CYCLE, phases, run_night, write_nights
from warehouse.connection import open_warehouse
from warehouse.graph import (
    build_graph,
    export_version,
    find_version,
    held_since,
    list_versions,
    remove_exports,
    training_rows,
)
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Seen:
    """What users see of a warehouse: the builds, newest first, the latest version, the hold."""

    builds: tuple[tuple[int, str], ...]
    latest: str | None
    is_held: bool


NOTHING = Seen((), None, False)


def look(con):
    versions = list_versions(con)
    return Seen(
        tuple((version.build, version.version) for version in versions),
        find_version(con).version if versions else None,
        held_since(con) is not None,
    )


def digest_of(folder):
    """Of the two files of an exported version, and of nothing else."""
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["edges.parquet", "nodes.parquet"], f"{folder.name} holds {names}"
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()


def contents(con, scratch):
    """Digests of what the warehouse holds: of each version's files, and of its training rows."""
    shutil.rmtree(scratch, ignore_errors=True)
    found = {}
    for version in list_versions(con):
        found[version.version] = digest_of(export_version(con, scratch, version))
        rows = training_rows(con, version).write_json().encode()
        found[version.examples_id] = hashlib.sha256(rows).hexdigest()
    return found


@dataclass
class Undisturbed:
    """Nights that nothing disturbs: what phases take, what is seen around them, what is stored."""

    seconds: list[dict[str, float]]
    seen: list[list[Seen]]
    known: dict[str, str]


def run_undisturbed(folder, nights):
    result = Undisturbed([], [], {})
    for night in range(nights):
        begun, seen = [], []

        def say(phase, con, begun=begun, seen=seen):
            seen.append(look(con) if con else result.seen[-1][-1] if result.seen else NOTHING)
            begun.append(time.monotonic())

        run_night(folder, night, say)
        begun.append(time.monotonic())
        with open_warehouse(folder / "w.duckdb") as con:
            seen.append(look(con))
            result.known |= contents(con, folder / "scratch")
        taken = [after - before for before, after in pairwise(begun)]
        result.seconds.append(dict(zip(phases(night), taken, strict=True)))
        result.seen.append(seen)
    return result


def start():
    """A process that waits to be told a night."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.nights"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_in(child, folder, night, phase, after_s):
    """Run a night, kill it some time after a phase has begun; the last phase that had begun."""
    child.stdin.write(f"{folder}\n{night}\n")
    child.stdin.flush()
    for line in child.stdout:
        begun = line.strip()
        if begun == phase:
            time.sleep(after_s)
            child.kill()
    child.stdin.close()
    child.stdout.close()
    return begun if child.wait() == -signal.SIGKILL else "end"


def check_killed(folder, allowed, known):
    """What is seen was seen before or after the phase, and every version is what it was."""
    with open_warehouse(folder / "w.duckdb") as con:
        seen = look(con)
        assert seen in allowed
        for name, digest in contents(con, folder / "scratch").items():
            assert known[name] == digest
    for exported in (folder / "exports").glob("[!.]*"):
        assert known[exported.name] == digest_of(exported)


def kill_nights(tmp_path, aims, first, seed):
    """Kill each night in those phases, and let it finish then; how often which phase was hit."""
    drawn = random.Random(seed)
    calm, folder = tmp_path / "calm", tmp_path / "killed"
    write_nights(calm, len(aims), first)
    shutil.copytree(calm, folder)
    undisturbed = run_undisturbed(calm, len(aims))
    hit = Counter()
    child = start()
    for night, aimed in enumerate(aims):
        states, order = undisturbed.seen[night], [*phases(night), "end"]
        furthest = 0
        for phase in aimed:
            after_s = drawn.random() * undisturbed.seconds[night][phase]
            last = kill_in(child, folder, night, phase, after_s)
            child = start()  # while the ruins are looked at
            hit[last] += 1
            furthest = max(furthest, order.index(last))
            check_killed(folder, states[furthest : furthest + 2], undisturbed.known)
        run_night(folder, night)
        check_killed(folder, states[-1:], undisturbed.known)
        exported = {path.name for path in (folder / "exports").iterdir()}
        assert exported <= {version for _, version in states[-1].builds}
    child.kill()
    child.communicate()
    return hit


@pytest.mark.slow
def test_two_kills_in_one_night_change_nothing(tmp_path):
    hit = kill_nights(tmp_path, [["build", "export"]], first=100, seed=0)
    assert hit.total() == 2


AIMS = [
    ["ingest", "build", "build", "export", "collect"],
    ["build", "build", "rollback", "rollback", "export"],
    ["build", "release", "release", "export", "collect"],
    ["build", "build", "export", "collect", "remove"],
]


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path, capsys):
    assert len(AIMS) == CYCLE
    hit = kill_nights(tmp_path, AIMS * 5, first=4000, seed=1)
    with capsys.disabled():
        print(f"\nkilled in {dict(hit.most_common())}")
    assert hit.total() == 100
    assert hit["end"] < 20
    assert all(hit[phase] for phase in ("build", "export", "rollback", "release", "collect"))


def test_files_that_were_half_removed_are_whole_when_exported_again(con, tmp_path, monkeypatch):
    ingest_file(
        con,
        write_lines(tmp_path / "t.jsonl", [trajectory("1", ("a", "done"), ("b", "done"))]),
        source="s",
        delivery=0,
    )
    version = build_graph(con, GraphParameters(), code_version="")
    exports = tmp_path / "exports"
    before = digest_of(export_version(con, exports, version))

    def killed(folder, **options):
        next(folder.rglob("*.parquet")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_exports(exports, [])
    assert digest_of(export_version(con, exports, version)) == before
    assert remove_exports(exports, [version.version]) == 1  # what was left of the first
    assert [path.name for path in exports.iterdir()] == [version.version]
