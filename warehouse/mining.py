"""What trajectories say about tools, mined once and kept: a build costs what has changed.

Kept are each trajectory's calls under the tools they mean (``mined_*``), its plan
(``learning_interval``), and sums over all of them (``edge_interval``, ``node_count_interval``), as
intervals of the states of the graph they were valid in. What has happened since the last mining is
known by their numbers and a log of disturbed trajectories: what those said is taken off the sums,
what they say now is added. Mining everything anew gives the same sums.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import polars as pl

from warehouse.connection import query, transaction
from warehouse.errors import WarehouseError
from warehouse.evidence import SUCCESS

RULES = 3
"""Grows when the same rows would give other nodes or edges; part of every version's id."""

Split = Literal["default", "own", "by-sequence", "by-conversation", "by-time"]
"""What divides rows into training, validation and test. By default the source's own split, and the
sequence of tools where it ships none."""

_ANEW = -1
"""The number before all numbers."""
_ATTEMPTS = 5
"""How often somebody else may mine while this does."""
_PARTS = 2
"""Numbers of 64 bits that a digest is summed as."""


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """What decides which rows are held out.

    ``test`` and ``validation`` are shares of what ``split`` keeps together, ``seed`` draws them.
    By default that is the tool sequence, and where a source ships a split, the request.
    """

    seed: int = 0
    test: float = 0.2
    validation: float = 0.1
    split: Split = "default"

    def to_json(self) -> dict[str, Any]:
        """As hashed into the version's id."""
        return {
            "rules": RULES,
            "seed": self.seed,
            "test": self.test,
            "validation": self.validation,
            "split": self.split,
        }


def mine(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> None:
    """Bring everything that is mined up to the present data.

    A crash leaves the state of before.

    Args:
        con: A writing connection, outside a transaction.
        parameters: What is held out.
    """
    for _ in range(_ATTEMPTS):
        if _mine(con, parameters):
            return
    raise WarehouseError(
        f"expected to be the only one who mines, but others did so {_ATTEMPTS} times meanwhile: "
        "nothing was changed here; try again."
    )


def list_plans(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> None:
    """Make the temporary table ``learning_row`` of the present data."""
    mine(con, parameters)
    con.execute(query("learning_row"), {"state": present_state(con)[0]})


def present_state(con: duckdb.DuckDBPyConnection) -> tuple[int, str]:
    """The number of the state that was mined last, and what its learning rows add up to."""
    state, rows_sum = con.execute("select state, rows_sum from mined_state").fetchall()[0]
    return state, rows_sum


def _mine(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> bool:
    """Mine once; False where it has to be done again, as others have changed things meanwhile.

    What is read goes into temporary tables, each statement for itself: DuckDB is slow to read what
    its own transaction has written. What is written is one transaction.
    """
    settings = json.dumps(parameters.to_json(), sort_keys=True)
    frozen = _frozen(con)
    last = con.execute(_STATE).fetchall()
    is_anew = not last or not _is_same_draw(last[0][1], parameters)
    after: int = _ANEW if is_anew else last[0][0]
    newest: int = con.execute("select coalesce(max(number), 0) from trajectory").fetchall()[0][0]
    con.execute("create or replace temp table touched (t bigint)")
    con.execute("create or replace temp table seen as from disturbed")
    _learn_names(con, after)
    if not is_anew:
        _touch(con, after)
        if last[0][1:3] != (settings, frozen):
            _touch_divided(con, parameters)
    has_news = is_anew or newest > after or _has_rows(con, "touched") or _has_rows(con, "seen")
    for statement in _NO_CHANGE:
        con.execute(statement)
    if has_news:
        _weigh(con, parameters, after, newest)
    with transaction(con):
        if con.execute(_STATE).fetchall() != last:
            return False
        if not last:
            con.execute(
                "insert into mined_state values (0, '', '', 0, ?)", [json.dumps([0] * _PARTS)]
            )
        state: int = last[0][3] if last else 0
        if has_news:
            _change_rows(con, state)
            _change_counts(con, state)
            for statement in _REMEMBER:
                con.execute(statement)
        _list_nodes(con, state)
        _change_edges(con, state)
        _hash_days(con)
        con.execute("delete from disturbed where t in (select t from seen)")
        trajectories, mined = con.execute(
            "select (select count(*) from trajectory where links_kind <> 'predicted' "
            "and number <= ?), (select count(*) from mined_trajectory)",
            [newest],
        ).fetchall()[0]
        # Else another connection has stored a trajectory with an earlier number since then.
        is_whole: bool = trajectories == mined
        con.execute(
            "update mined_state set number = greatest(number, ?), settings = ?, frozen = ?",
            [newest, settings if is_whole else "{}", frozen],
        )
    return is_whole


_STATE = "select number, settings, frozen, state, rows_sum from mined_state"


def _has_rows(con: duckdb.DuckDBPyConnection, table: str) -> bool:
    return bool(con.table(table).limit(1).fetchall())


def _is_same_draw(settings: str, parameters: GraphParameters) -> bool:
    """Whether plans that were mined under those settings would be mined alike."""
    known = json.loads(settings)
    return (known.get("rules"), known.get("seed"), known.get("split")) == (
        RULES,
        parameters.seed,
        parameters.split,
    )


def _frozen(con: duckdb.DuckDBPyConnection) -> str:
    """A hash of what the suites have frozen."""
    rows = con.execute(
        "select distinct s.source, r.trajectory_id, r.request "
        "from suite_row r join suite s using (name, version) order by all"
    ).pl()
    return _digest(rows)


def _digest(frame: pl.DataFrame) -> str:
    return hashlib.sha256(frame.write_csv(quote_style="always").encode()).hexdigest()


# --- what has to be mined -------------------------------------------------------------------------


def _learn_names(con: duckdb.DuckDBPyConnection, after: int) -> None:
    """What each name means now; the trajectories whose names meant something else are touched."""
    con.execute(query("meaning"), {"after": _ANEW if _has_rows(con, "seen") else after})
    con.execute("create or replace temp view unnumbered as select namespace, name from meaning")
    con.execute(query("number_tools"))
    con.execute(
        "create or replace temp table present_name as "
        "select m.called_namespace as namespace, m.called as name, k.tool, m.is_recording "
        "from meaning m join mined_tool k on k.key = m.namespace || '/' || m.name"
    )
    con.execute(
        "insert into touched select distinct number from call where number <= ? and "
        "(namespace, name) in (select (namespace, name) from mined_name o join present_name n "
        "using (namespace, name) where (o.tool, o.is_recording) <> (n.tool, n.is_recording))",
        [after],
    )


def _touch(con: duckdb.DuckDBPyConnection, after: int) -> None:
    """Mined trajectories whose calls count differently because others came or went."""
    con.execute(
        "insert into touched select t from seen "
        "where t in (select number from trajectory where number <= ?)",
        [after],
    )
    shared = con.execute(
        "select 1 from call where number > ? and uid is not null limit 1", [after]
    ).fetchall()
    if shared:
        con.execute(
            "insert into touched select distinct number from call where number <= $after and "
            "(namespace, uid) in (select (namespace, uid) from call "
            "where number > $after and uid is not null)",
            {"after": after},
        )


def _touch_divided(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> None:
    """Rows that shares or suites have put on another side since."""
    con.execute(
        "create or replace temp table planned as select * exclude (split, digest, since, until) "
        "from learning_interval where until is null"
    )
    _divide(con, parameters)
    con.execute(
        "insert into touched select t.number from plan_row p "
        "join trajectory t using (trajectory_id) "
        "join learning_interval i using (trajectory_id) "
        "where i.until is null and i.split <> p.split"
    )


def _divide(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> None:
    con.execute(
        query("plan_row"),
        {
            "test": parameters.test,
            "validation": parameters.validation,
            "split": parameters.split,
        },
    )
    con.execute("drop table planned")


# --- what they said, and what they say now --------------------------------------------------------


def _weigh(
    con: duckdb.DuckDBPyConnection, parameters: GraphParameters, after: int, newest: int
) -> None:
    """What touched and removed trajectories said, to be taken off, and what is said now."""
    is_anew = after == _ANEW
    before_calls = _ANEW if _has_rows(con, "touched") else after
    con.execute(
        "create or replace temp table gone as select t, trajectory_id from mined_trajectory "
        "where $is_anew or t in (select t from touched union all select t from seen)",
        {"is_anew": is_anew},
    )
    con.execute(query("scope"), {"after": after, "newest": newest})
    con.execute(query("copied"), {"after": after})
    con.execute(query("told_call"), {"after": before_calls})
    if _has_rows(con, "copied"):
        con.execute(
            "delete from told_call where (t, position) in (select (t, position) from copied)"
        )
    con.execute(
        "create or replace temp table told_link as "
        "select distinct l.number as t, l.source_position, l.target_position "
        "from link l semi join scope s on s.t = l.number "
        "where l.number > ? and l.kind in ('mined', 'dataflow')",
        [before_calls],
    )
    for statement in _NEW:
        con.execute(statement)
    _count_tools(con, 1)
    con.execute(query("pair"))  # before the plans, which are a lot of text and need the memory
    con.execute(
        query("planned"),
        {"seed": parameters.seed, "split": parameters.split, "after": before_calls},
    )
    _divide(con, parameters)
    con.execute(
        "create or replace temp table told_trajectory as "
        "select s.t, j.trajectory_id, j.source, s.on_day, coalesce(p.split in ('test', 'none'), "
        "false) as is_held_out from scope s join trajectory j on j.number = s.t "
        "left join plan_row p using (trajectory_id)"
    )
    con.execute("create or replace temp view trajectory_of as from told_trajectory")
    con.execute(query("edge"), {"sign": 1})
    if is_anew:
        for statement in _OPEN_SUMS:
            con.execute(statement)
    else:
        for statement in _OLD:
            con.execute(statement)
        _count_tools(con, -1)
        con.execute(query("pair"))
        con.execute(query("edge"), {"sign": -1})


_NO_CHANGE = (
    "create or replace temp table edge_change as select * exclude (since, until) "
    "from edge_interval limit 0",
    "create or replace temp table tool_change as select * exclude (since, until) "
    "from node_count_interval limit 0",
)
_NEW = (
    "create or replace temp view call_of as select * exclude (arguments) from told_call",
    "create or replace temp view link_of as from told_link",
)
_OLD = (
    "create or replace temp table old_call as from mined_call where t in (select t from gone) "
    "order by t, position",
    "create or replace temp view call_of as from old_call",
    "create or replace temp view link_of as from mined_link where t in (select t from gone)",
    "create or replace temp view trajectory_of as from mined_trajectory",
)
_OPEN_SUMS = (
    "insert into edge_change select * exclude (since, until) replace (-num_seen as num_seen) "
    "from edge_interval where until is null and kind in ('adjacent', 'dataflow')",
    "insert into tool_change select tool, -num_ok, -num_unrecorded, -num_failed, -num_repeats, "
    "-num_retries from node_count_interval where until is null",
)
"""Taken off when everything is mined anew."""
_REMEMBER = (
    "delete from mined_name",
    "insert into mined_name from present_name",
    "delete from mined_call where t in (select t from gone)",
    "delete from mined_link where t in (select t from gone)",
    "delete from mined_trajectory where t in (select t from gone)",
    "insert into mined_trajectory from told_trajectory",
    "insert into mined_call select * exclude (arguments) from told_call",
    "insert into mined_link from told_link",
)


def _count_tools(con: duckdb.DuckDBPyConnection, sign: int) -> None:
    """Add the calls in question to the changes, or take them off."""
    con.execute(
        "insert into tool_change select tool, $sign * count(*) filter (outcome = 'ok'), "
        "$sign * count(*) filter (outcome = 'unrecorded'), "
        "$sign * count(*) filter (outcome = 'failed'), 0, 0 from call_of group by tool",
        {"sign": sign},
    )


def _change_rows(con: duckdb.DuckDBPyConnection, state: int) -> None:
    """Learning rows that went are closed, those that came are opened."""
    con.execute(query("closing"))
    con.execute(query("opening"))
    known = json.loads(con.execute("select rows_sum from mined_state").fetchall()[0][0])
    changes = con.execute(query("sum_digests")).fetchall()[0]
    sums = [(old + change) % 2**64 for old, change in zip(known, changes, strict=True)]
    con.execute("update mined_state set rows_sum = ?", [json.dumps(sums)])
    con.execute(
        "delete from learning_interval where until is null and since = ? and trajectory_id in "
        "(select trajectory_id from closing)",
        [state],
    )
    con.execute(
        "update learning_interval set until = ? where until is null and trajectory_id in "
        "(select trajectory_id from closing)",
        [state],
    )
    # Without a request a row is of no use to anybody once it is past.
    con.execute("delete from learning_interval where until is not null and request = ''")
    con.execute(
        "insert into learning_interval by name select *, ? as since, null as until from opening",
        [state],
    )


def _change_counts(con: duckdb.DuckDBPyConnection, state: int) -> None:
    """Calls by tool: close what has changed, open what it is now."""
    con.execute(query("tool_after"))
    con.execute(
        "delete from node_count_interval where until is null and since = ? and tool in "
        "(select tool from tool_after)",
        [state],
    )
    con.execute(
        "update node_count_interval set until = ? where until is null and tool in "
        "(select tool from tool_after)",
        [state],
    )
    con.execute(
        "insert into node_count_interval select *, ?, null from tool_after "
        "where num_ok + num_unrecorded + num_failed > 0",
        [state],
    )


# --- nodes, edges, hashes -------------------------------------------------------------------------


def _list_nodes(con: duckdb.DuckDBPyConnection, state: int) -> None:
    """The tools that planners may know now; those that came and went are in ``flipped``."""
    con.execute(
        "create or replace temp table called_tool as select namespace, name, "
        "num_ok + num_unrecorded as num_succeeded "
        "from node_count_interval join mined_tool using (tool) where until is null"
    )
    con.execute(query("node"))
    con.execute("create or replace temp view unnumbered as select namespace, name from node")
    con.execute(query("number_tools"))
    con.execute(
        "insert into contract select distinct on (contract_hash) contract_hash, description, "
        "parameters, input_types, output_types from node "
        "where contract_hash not in (select contract_hash from contract)"
    )
    con.execute(
        "create or replace temp table present_node as "
        "select tool, contract_hash, status from node join mined_tool using (key)"
    )
    con.execute(
        "create or replace temp table past_node as select tool, contract_hash, status "
        "from node_interval where until is null"
    )
    con.execute(
        "create or replace temp table flipped as "
        "(select tool from present_node except select tool from past_node) union all "
        "(select tool from past_node except select tool from present_node)"
    )
    con.execute("create or replace temp table closing as from past_node except from present_node")
    con.execute(
        "delete from node_interval where until is null and since = ? and tool in "
        "(select tool from closing)",
        [state],
    )
    con.execute(
        "update node_interval set until = ? where until is null and tool in "
        "(select tool from closing)",
        [state],
    )
    con.execute(
        "insert into node_interval select *, ?, null "
        "from (from present_node except from past_node)",
        [state],
    )


def _change_edges(con: duckdb.DuckDBPyConnection, state: int) -> None:
    """Edges: what sources declare now, and what changed by the calls."""
    con.execute(query("declared"))
    con.execute(query("edge_after"))
    con.execute(query("edge_drop"), {"state": state})
    con.execute(query("edge_close"), {"state": state})
    con.execute(
        "insert into edge_interval select *, ?, null from edge_after where num_seen > 0", [state]
    )


def _hash_days(con: duckdb.DuckDBPyConnection) -> None:
    """The hashes of the days whose edges have changed."""
    con.execute(query("changed_day"))
    if not _has_rows(con, "changed_day"):
        return
    con.execute(
        "delete from edge_day d where exists "
        "(select 1 from changed_day c where c.on_day is not distinct from d.on_day)"
    )
    con.register("hashed", _hashes(con.execute(query("edges_of_days")).pl()))
    con.execute("insert into edge_day by name from hashed")
    con.unregister("hashed")


def _hashes(edges: pl.DataFrame) -> pl.DataFrame:
    """One row per day: the hash of its edges, and of what learning may see of them."""
    learning = (
        edges.filter(is_learning())
        .group_by("on_day", "source", "target", "kind", maintain_order=True)
        .agg(pl.col("num_seen").sum())
    )
    seen = {day: _digest(frame) for (day,), frame in _by_day(learning)}
    return pl.DataFrame(
        [(day, _digest(frame), seen.get(day, "")) for (day,), frame in _by_day(edges)],
        schema={"on_day": pl.Date, "content": pl.String, "learning": pl.String},
        orient="row",
    )


def _by_day(edges: pl.DataFrame) -> Iterable[tuple[tuple[Any, ...], pl.DataFrame]]:
    return edges.partition_by("on_day", as_dict=True, maintain_order=True).items()


def is_learning() -> pl.Expr:
    """Whether learning may see an edge row: observed, not held out, not failed."""
    return (
        pl.col("kind").is_in(["adjacent", "dataflow"])
        & ~pl.col("is_held_out")
        & pl.col("outcome").is_in(SUCCESS)
    )
