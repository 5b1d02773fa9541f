"""How fast the graph is built, and what its history costs: ratios in one run, and growth.

    python tests/benchmarks/bench_graph.py [--calls 10000000] [--tools 20000] [--out FOLDER]

Calls are made in DuckDB: five a trajectory, tools by a skewed draw, a tenth failed, over 300 days.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from warehouse.changes import diff_versions
from warehouse.connection import open_warehouse
from warehouse.graph import build_graph, export_version, find_version
from warehouse.mining import GraphParameters

PARAMETERS = GraphParameters()

# The plainest query that gives the counts of neighbouring tools, over the same table.
BARE = """
select source, target, count(*) from (
    select
        name as target,
        lag(name) over (partition by trajectory_id order by position) as source
    from call
)
where source is not null and source <> target
group by all
"""

TRAJECTORIES = """
insert into trajectory (trajectory_id, source, content_hash, richness, request, links_kind, format,
    num_calls, meta, started_at, batch)
select
    md5(i::varchar), 'bench', '', '[]', 'request number ' || i, 'inferred', 'normalised',
    5, '{}', timestamp '2026-01-01' + interval (i * 300 // $of) day, $batch
from range($first, $last) r(i)
"""

CALLS = """
insert into call (trajectory_id, position, turn, namespace, name, arguments_raw, arguments_state,
    status, batch)
select
    md5(i::varchar), j, j, 'bench',
    'tool_' || floor($tools * pow((hash(i * 31 + j) % 100000) / 100000.0, 4))::int,
    '{"n":' || (i + j) || '}', 'object', case when hash(i + j) % 10 = 0 then 'error' else 'ok' end,
    $batch
from range($first, $last) r(i), range(5) p(j)
order by i, j
"""


def fill(con, first, last, of, batch, tools=1000):
    """Trajectories ``first`` to ``last`` of ``of``, as one delivery."""
    values = {"first": first, "last": last, "batch": batch}
    con.execute(TRAJECTORIES, {**values, "of": of})
    con.execute(CALLS, {**values, "tools": tools})
    con.execute(
        "insert into called_name (select distinct namespace, name from call) except "
        "select namespace, name from called_name"
    )


def timed(work):
    """(seconds, what it gave)."""
    started = time.perf_counter()
    result = work()
    return time.perf_counter() - started, result


def build(con):
    return build_graph(con, PARAMETERS, code_version="bench")


def _open(folder, name="warehouse.duckdb"):
    manager = open_warehouse(Path(folder) / name)
    return manager


def mining(folder, calls):
    """Bare query, everything mined, one percent more."""
    of = calls // 5
    old = of * 100 // 101
    with open_warehouse(folder / "w.duckdb") as con:
        con.execute("set threads = 2; set memory_limit = '2500MB'")
        fill(con, 0, old, of, 1)
        con.execute("checkpoint")
        bare = min(timed(lambda: con.execute(BARE).fetchall())[0] for _ in range(2))
        full, first = timed(lambda: build(con))
        fill(con, old, of, of, 2)
        con.execute("checkpoint")
        more, second = timed(lambda: build(con))
        same, third = timed(lambda: build(con))
        assert first.new and second.new and not third.new
    with open_warehouse(folder / "w2.duckdb") as con:
        con.execute("set threads = 2; set memory_limit = '2500MB'")
        fill(con, 0, of, of, 1)
        con.execute("checkpoint")
        scratch, whole = timed(lambda: build(con))
        assert whole.version == second.version
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"calls": calls, "bare_s": bare, "full_s": full, "scratch_s": scratch, "one_percent_s": more,
            "nothing_new_s": same, "edges": second.edges, "peak_gib": peak}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(mining(Path(name), int(sys.argv[1])), indent=1))
