"""What a graph's history costs: the bytes of a hundred nights, and time as graphs grow.

    PYTHONPATH=. python tests/benchmarks/bench_history.py [--nights 100] [--edges 200000]
        [--sizes 5000x500000 10000x1000000 20000x2000000] [--out FOLDER]

Nights: every edge is told by a trajectory of two calls. Each night changes one edge in a hundred: a
third of these are new, a third are gone with the trajectory that told them, a third are seen once
more. Bytes are those of a DuckDB file that holds a copy of the tables in question and nothing else.

Growth: real tools (``aws_operations``), trajectories of ten calls to any of them. Seconds are CPU
time of both threads, as other work on the machine matters less to it; wall seconds stand beside.
Prints one JSON object, then a table; the folder gets the plot of growth.
"""

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from warehouse.catalogue import sync_catalogue
from warehouse.changes import diff_versions
from warehouse.connection import open_warehouse
from warehouse.graph import build_graph, collect_versions, export_version, list_versions
from warehouse.mining import GraphParameters
from warehouse.storing import delete_trajectories

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
LIMIT = "set threads = 2; set memory_limit = '2500MB'"
PARAMETERS = GraphParameters()

# How the tables grow with versions; the training rows are told apart, as they hold the requests.
GRAPH = (
    "contract", "mined_tool", "node_interval", "node_count_interval", "edge_interval",
    "graph_version", "graph_build", "graph_latest",
)  # fmt: skip
ROWS = ("learning_interval",)

TRAJECTORIES = """
insert into trajectory (trajectory_id, source, content_hash, richness, request, links_kind, format,
    num_calls, meta, started_at, number)
select
    name, 'bench', '', '[]', 'request number ' || name, 'inferred', 'normalised',
    $calls, '{}', timestamp '2026-01-01' + interval ($day) day,
    $number + row_number() over ()
from telling
"""

CALLS = """
insert into call (trajectory_id, position, turn, namespace, name, arguments_raw, arguments_state,
    status, number)
select
    name, position, position, 'bench', tool, '{"n":1}', 'object', 'ok', number
from told
join trajectory on trajectory_id = name
order by number, position
"""

# Every number is another pair of different tools, as the factor shares no divisor with the tools.
PAIRS = """
create or replace temp table telling as
select $prefix || i as name, (i * 1000003) % ($tools * ($tools - 1)) as pair
from range($first, $last) r(i);
create or replace temp table told as
select name, 0 as position, 'tool_' || pair // ($tools - 1) as tool
from telling
union all
select name, 1, 'tool_' || (pair // ($tools - 1) + 1 + pair % ($tools - 1)) % $tools
from telling
"""

WALKS = """
create or replace temp table telling as
select 't' || i as name, i from range($first, $last) r(i);
create or replace temp table told as
select s.name, position, l.name as tool
from (
    select name, position, (hash(i * $calls + position) % $tools)::bigint as number
    from telling, range($calls) p(position)
) s
join listed l using (number)
"""


def tell(
    con: duckdb.DuckDBPyConnection, text: str, values: dict[str, Any], *, calls: int, day: int
) -> None:
    """Store trajectories of so many calls, as one delivery of that day."""
    for statement in text.split(";"):
        names = {name: value for name, value in values.items() if f"${name}" in statement}
        con.execute(statement, names)
    number = con.execute("select coalesce(max(number), 0) from trajectory").fetchall()[0][0]
    con.execute(TRAJECTORIES, {"calls": calls, "day": day, "number": number})
    con.execute(CALLS)
    con.execute(
        "insert into called_name (select distinct namespace, name from call) except "
        "select namespace, name from called_name"
    )


def build(con: duckdb.DuckDBPyConnection) -> Any:
    """A version of the present data."""
    return build_graph(con, PARAMETERS, code_version="bench")


# --- storage --------------------------------------------------------------------------------------


def size_of(con: duckdb.DuckDBPyConnection, tables: tuple[str, ...], folder: Path) -> int:
    """Bytes of a file with a copy of these tables, in blocks of 16 KiB."""
    path = folder / "copy.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path), config={"default_block_size": 16384}) as copy:
        for table in tables:
            copy.from_arrow(con.table(table).to_arrow_table()).create(table)
        copy.execute("checkpoint")
    return path.stat().st_size


def storage(folder: Path, nights: int, edges: int, tools: int) -> dict[str, Any]:
    """The bytes of one version and of many, and again when all but the newest are collected."""
    base = folder / "nights.duckdb"
    part = edges // 300
    taken = []

    def measure() -> dict[str, int]:
        con.execute("checkpoint")
        return {
            "graph": size_of(con, GRAPH, folder),
            "training_rows": size_of(con, ROWS, folder),
            "file": base.stat().st_size,
            "edge_rows": con.table("edge_interval").shape[0],
            "tool_rows": con.table("node_count_interval").shape[0],
        }

    with open_warehouse(base) as con:
        con.execute(LIMIT)
        told = {"prefix": "new ", "tools": tools, "first": 0, "last": edges}
        tell(con, PAIRS, told, calls=2, day=0)
        build(con)
        found: dict[str, Any] = {"edges": edges, "tools": tools, "one": measure()}
        exported = export_version(con, folder / "first", list_versions(con)[0])
        found["one"]["parquet"] = sum(path.stat().st_size for path in exported.iterdir())
        for night in range(1, nights):
            gone = range((night - 1) * part, night * part)
            delete_trajectories(con, [f"new {i}" for i in gone])
            new = edges + (night - 1) * part
            tell(con, PAIRS, {**told, "first": new, "last": new + part}, calls=2, day=night)
            more = edges // 2 + (night - 1) * part
            more_told = {**told, "prefix": "more ", "first": more, "last": more + part}
            tell(con, PAIRS, more_told, calls=2, day=night)
            taken.append(timed(lambda: build(con))[1])
        found["versions"] = len(list_versions(con))
        found["all"] = measure()
        seconds, removed = timed(lambda: collect_versions(con, needed=[], keep=1))[1:]
        found["collect_s"] = seconds
        found["collected"] = len(removed)
        found["last"] = measure()
    for name, one in (("first", "one"), ("last", "last")):
        found[f"all_to_{name}"] = round(found["all"]["graph"] / found[one]["graph"], 2)
    found["night_build_s"] = statistics.median(taken)
    found["last_night_build_s"] = statistics.median(taken[-5:])
    return found


# --- growth ---------------------------------------------------------------------------------------


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """(CPU seconds, wall seconds, what it gave)."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return (
        round(time.process_time() - cpu, 2),
        round(time.perf_counter() - wall, 2),
        result,
    )


def growth(folder: Path, data: Path, tools: int, edges: int) -> dict[str, Any]:
    """What the steps take at one size."""
    calls = 10
    trajectories = edges // (calls - 1)
    listing = folder / "tools.jsonl"
    with gzip.open(data / "aws_operations" / "tools.jsonl.gz", "rt") as file:
        listing.write_text("".join(islice(file, tools)))
    found: dict[str, Any] = {"tools": tools, "cpu_s": {}, "wall_s": {}}

    def clock(step: str, work: Callable[[], Any]) -> Any:
        found["cpu_s"][step], found["wall_s"][step], result = timed(work)
        return result

    with open_warehouse(folder / "grown.duckdb") as con:
        con.execute(LIMIT)
        clock("sync", lambda: sync_catalogue(con, listing, "bench"))
        con.execute(
            "create or replace temp table listed as "
            "select name, row_number() over (order by name) - 1 as number "
            "from (select distinct name from tool_version)"
        )
        told = {"first": 0, "last": trajectories, "calls": calls, "tools": tools}
        tell(con, WALKS, told, calls=calls, day=0)
        con.execute("checkpoint")
        old = clock("build", lambda: build(con))
        more = {**told, "first": trajectories, "last": trajectories * 101 // 100}
        tell(con, WALKS, more, calls=calls, day=1)
        new = clock("one percent more", lambda: build(con))
        change = clock("diff", lambda: diff_versions(con, old, new))
        clock("export", lambda: export_version(con, folder / "exports", new))
    found["edges"] = old.edges
    found["changed_edges"] = sum(len(rows) for rows in change["edges"].values())
    return found


STEPS = {
    "build": "build from nothing",
    "one percent more": "build with one percent more",
    "diff": "diff of the two",
    "export": "export as Parquet",
}


def slope(sizes: list[dict[str, Any]], step: str) -> float:
    """The power of the number of edges that the CPU time grows by: 1 is linear."""
    edges = np.log([size["edges"] for size in sizes])
    return round(float(np.polyfit(edges, np.log([s["cpu_s"][step] for s in sizes]), 1)[0]), 2)


def draw(sizes: list[dict[str, Any]], out: Path) -> None:
    """The plot of growth: what is linear lies on the dashed lines."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    edges = [size["edges"] / 1e6 for size in sizes]
    for step, label in STEPS.items():
        seconds = [size["cpu_s"][step] for size in sizes]
        (line,) = axes.plot(edges, seconds, marker="o", label=label)
        axes.plot(
            [0, edges[-1]],
            [0, edges[-1] * seconds[0] / edges[0]],
            color=line.get_color(),
            linestyle="--",
            linewidth=0.8,
        )
    axes.plot([], [], color="grey", linestyle="--", linewidth=0.8, label="linear")
    axes.set(
        xlabel="different edges, millions ("
        + ", ".join(f"{size['tools']:,}" for size in sizes)
        + " tools)",
        ylabel="CPU seconds",
        xlim=(0, None),
        ylim=(0, None),
    )
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    out.mkdir(parents=True, exist_ok=True)
    for ending in ("png", "svg"):
        figure.savefig(out / f"growth.{ending}", dpi=150)


def table(sizes: list[dict[str, Any]]) -> str:
    """Markdown: CPU (wall) seconds by size, and the power of growth."""
    lines = [
        "| step, CPU (wall) s | "
        + " | ".join(f"{size['tools']:,} tools, {size['edges']:,} edges" for size in sizes)
        + " | power |",
        "|---|" + "---|" * (len(sizes) + 1),
    ]
    for step, label in STEPS.items():
        cells = [f"{size['cpu_s'][step]} ({size['wall_s'][step]})" for size in sizes]
        power = slope(sizes, step) if len(sizes) > 1 else ""
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {power} |")
    return "\n".join(lines)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--edges", type=int, default=200_000)
    parser.add_argument("--tools", type=int, default=2_000)
    parser.add_argument(
        "--sizes", nargs="*", default=["5000x500000", "10000x1000000", "20000x2000000"]
    )
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    result: dict[str, Any] = {"growth": []}
    for size in asked.sizes:
        tools, edges = map(int, size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            result["growth"].append(growth(Path(folder), asked.data, tools, edges))
    if asked.nights:
        with tempfile.TemporaryDirectory() as folder:
            result["storage"] = storage(Path(folder), asked.nights, asked.edges, asked.tools)
    print(json.dumps(result))
    if asked.sizes:
        print(table(result["growth"]))
        if asked.out:
            draw(result["growth"], asked.out)


if __name__ == "__main__":
    main()
