"""Nights of a tool graph, made to be killed: each brings it from one known state to the next.

``python -m tests.nights`` reads a folder and the number of a night, runs it, and prints the name of
each phase when it begins.
"""

import random
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pandas  # noqa: F401  (DuckDB does it in its first query with values: here before the work)
from duckdb import DuckDBPyConnection as Connection

from tests.factories import trajectory, write_lines
from warehouse.connection import open_warehouse
from warehouse.graph import (
    build_graph,
    collect_versions,
    export_version,
    find_version,
    list_versions,
    release,
    remove_exports,
    roll_back,
)
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters

CYCLE = 4
"""Of four nights the first two bring data, the last repeats the graph of the second."""


def phases(night: int) -> list[str]:
    """What a night does, in order."""
    kind = night % CYCLE
    return [
        "open",
        *(["ingest"] if kind < 2 else []),
        "build",
        *({1: ["rollback"], 2: ["release"]}.get(kind, [])),
        "export",
        "collect",
        "remove",
        "close",
    ]


def write_nights(folder: Path, nights: int, first: int) -> None:
    """The deliveries of some nights: ``first`` trajectories of five calls, later a twentieth."""
    drawn = random.Random(0)
    flows = [[f"tool_{drawn.randrange(300)}" for _ in range(5)] for _ in range(400)]
    for night in range(nights):
        lines = [
            trajectory(
                f"{night}-{i}",
                *((tool, "done", drawn.random() < 0.1) for tool in drawn.choice(flows)),
                timestamp=f"2026-01-{night + 1:02}T10:00:00",
            )
            for i in range(first // 20 if night else first)
        ]
        write_lines(folder / "delivered" / f"{night}.jsonl", lines)


def run_night(
    folder: Path,
    night: int,
    say: Callable[[str, Connection | None], None] = lambda phase, con: None,
) -> None:
    """Do what is left of a night's work; ``say`` hears of each phase before it begins."""
    kind = night % CYCLE
    exports = folder / "exports"
    con = None
    with ExitStack() as stack:
        for phase in phases(night):
            say(phase, con)
            match phase:
                case "open":
                    con = stack.enter_context(open_warehouse(folder / "w.duckdb"))
                    con.execute("set threads = 2")
                case "ingest":
                    path = folder / "delivered" / f"{night}.jsonl"
                    ingest_file(con, path, source="s", delivery=night)
                case "build":
                    build_graph(con, GraphParameters(seed=kind % 2), code_version="")
                case "rollback":
                    roll_back(con, list_versions(con)[0].parent)
                case "release":
                    release(con)
                case "export":
                    for version in (list_versions(con)[0], find_version(con)):
                        export_version(con, exports, version)
                case "collect":
                    oldest = [list_versions(con)[-1].version]
                    collect_versions(con, needed=oldest, keep=1 if kind == 2 else 4)
                case "remove":
                    remove_exports(exports, {v.version for v in list_versions(con)})
                case "close":
                    stack.close()


if __name__ == "__main__":
    run_night(
        Path(sys.stdin.readline().strip()),
        int(sys.stdin.readline()),
        lambda phase, con: print(phase, flush=True),
    )
