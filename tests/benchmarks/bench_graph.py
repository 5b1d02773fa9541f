"""How fast evidence is mined and the graph is built: ratios in one run.

    python tests/benchmarks/bench_graph.py [--calls 10000000] [--rows 1000000]

Calls are made in DuckDB: five a trajectory, one of 300 workflows over 1,000 tools (a skewed draw),
two of a hundred calls to any tool at all, a tenth failed, over 300 days. Prints one JSON object.
What the history of a graph costs: bench_history.py.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import networkx as nx

from warehouse.connection import open_warehouse
from warehouse.graph import build_graph
from warehouse.mining import GraphParameters

PARAMETERS = GraphParameters()
LIMIT = "set threads = 2; set memory_limit = '2500MB'"

# The plainest query that counts neighbouring tools, over the same table.
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
    num_calls, meta, started_at, number)
select
    md5(i::varchar), 'bench', '', '[]', 'request number ' || i, 'inferred', 'normalised',
    5, '{}', timestamp '2026-01-01' + interval (i * 300 // $of) day, i + 1
from range($first, $last) r(i)
"""

CALLS = """
insert into call (trajectory_id, position, turn, namespace, name, arguments_raw, arguments_state,
    status, number)
select
    md5(i::varchar), j, j, 'bench',
    'tool_' || case
        when hash(i * 5 + j) % 50 = 0 then hash(i * 7 + j) % 1000
        else (floor(300 * pow((hash(i) % 100000) / 100000.0, 3))::int * 7 + j * 13) % 1000
    end,
    '{"n":' || (i + j) || '}', 'object', case when hash(i + j) % 10 = 0 then 'error' else 'ok' end,
    i + 1
from range($first, $last) r(i), range(5) p(j)
order by i, j
"""


def fill(con: duckdb.DuckDBPyConnection, first: int, last: int, of: int) -> None:
    """Trajectories ``first`` to ``last`` of ``of``, as one delivery."""
    values = {"first": first, "last": last}
    con.execute(TRAJECTORIES, {**values, "of": of})
    con.execute(CALLS, values)
    con.execute(
        "insert into called_name (select distinct namespace, name from call) except "
        "select namespace, name from called_name"
    )
    con.execute("checkpoint")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, what it gave)."""
    started = time.perf_counter()
    result = work()
    return round(time.perf_counter() - started, 3), result


def build(con: duckdb.DuckDBPyConnection) -> Any:
    """A version of the present data."""
    return build_graph(con, PARAMETERS, code_version="bench")


def mining(folder: Path, calls: int) -> dict[str, Any]:
    """Everything built from nothing against the bare query; one percent more; nothing more."""
    of = calls // 5
    old = of * 100 // 101
    with open_warehouse(folder / "nights.duckdb") as con:
        con.execute(LIMIT)
        fill(con, 0, old, of)
        build(con)
        fill(con, old, of, of)
        more, second = timed(lambda: build(con))
        same, third = timed(lambda: build(con))
        if not second.new or third.new:
            raise RuntimeError("expected a new version for new data, and none without")
    with open_warehouse(folder / "once.duckdb") as con:
        con.execute(LIMIT)
        fill(con, 0, of, of)
        bare = min(timed(lambda: con.execute(BARE).fetchall())[0] for _ in range(3))
        steps = Clock(con)
        scratch, whole = timed(lambda: build(steps))
        if whole.version != second.version:
            raise RuntimeError("expected the same version from nights and from scratch")
        rows = con.execute("select count(*) from edge_interval").fetchall()[0][0]
    return {
        "calls": calls,
        "edges": whole.edges,
        "edge_rows": rows,
        "bare_query_s": bare,
        "adjacent_evidence_s": round(steps.mining, 3),
        "adjacent_to_bare": round(steps.mining / bare, 2),
        "whole_build_s": scratch,
        "one_percent_more_s": more,
        "one_percent_to_whole": round(more / scratch, 4),
        "nothing_new_s": same,
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


class Clock:
    """A connection that adds up what mining calls into edges takes."""

    _MINING = (
        "temp table scope",
        "temp table told_call",
        "temp table pair_of",
        "insert into edge_change\nselect\n",
    )

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self._con = con
        self.mining = 0.0

    def execute(self, text: str, *values: Any) -> Any:
        """Run it, and note the time of the three statements."""
        seconds, result = timed(lambda: self._con.execute(text, *values))
        if any(mark in text for mark in self._MINING):
            self.mining += seconds
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._con, name)


def by_networkx(con: duckdb.DuckDBPyConnection) -> nx.DiGraph:
    """The same counts by a loop over Python rows."""
    graph = nx.DiGraph()
    before = (None, None)
    for trajectory, name in con.execute(
        "select trajectory_id, name from call order by trajectory_id, position"
    ).fetchall():
        if before[0] == trajectory and before[1] != name:
            edge = graph.get_edge_data(before[1], name)
            graph.add_edge(before[1], name, times=1 + (edge["times"] if edge else 0))
        before = (trajectory, name)
    return graph


def against_networkx(folder: Path, calls: int) -> dict[str, Any]:
    """Our mining and the loop over the same calls."""
    with open_warehouse(folder / "networkx.duckdb") as con:
        con.execute(LIMIT)
        fill(con, 0, calls // 5, calls // 5)
        steps = Clock(con)
        version = build(steps)
        ours = con.execute(
            "select sum(num_seen) from edge_interval where until is null"
        ).fetchall()[0][0]
        loop, graph = timed(lambda: by_networkx(con))
    theirs = sum(times for *_, times in graph.edges(data="times"))
    if (version.edges, ours) != (graph.number_of_edges(), theirs):
        raise RuntimeError(f"expected {theirs} tellings of edges, mined {ours}")
    return {
        "calls": calls,
        "networkx_s": loop,
        "adjacent_evidence_s": round(steps.mining, 3),
        "networkx_to_ours": round(loop / steps.mining, 1),
    }


def main() -> None:
    """Both comparisons."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="calls for networkx")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = {"mining": mining(Path(name), arguments.calls)}
        result["networkx"] = against_networkx(Path(name), arguments.rows)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
