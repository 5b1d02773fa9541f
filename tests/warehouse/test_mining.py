"""What only happens once in a while leaves what is mined as a build from scratch would have it."""

import itertools
from importlib.resources import files

import duckdb
import pytest

from tests.factories import tool, trajectory
from tests.warehouse.test_graph import NONE_HELD, build, deliver
from tests.warehouse.test_history_property import from_scratch, warehouses  # noqa: F401
from tests.warehouse.test_order_property import empty
from warehouse import mining
from warehouse.connection import migrate, utc_now
from warehouse.forget import forget_source, forget_trajectory
from warehouse.graph import training_rows, version_edges, version_nodes
from warehouse.mining import GraphParameters
from warehouse.suites import freeze_suites


@pytest.fixture
def con(warehouses):  # noqa: F811
    return empty(warehouses[0])


def check(con, other, parameters=NONE_HELD):
    last = build(con, parameters)
    scratch = from_scratch(con, other, parameters)
    assert (scratch.version, scratch.examples_id) == (last.version, last.examples_id)
    rows = training_rows(con, last)
    assert training_rows(other, scratch).equals(rows)
    return rows


def test_shares_after_another_seed_divide_by_the_draws_of_that_seed(con, warehouses, tmp_path):  # noqa: F811
    pairs = list(itertools.permutations("abcd", 2))
    deliver(con, tmp_path, *[trajectory(str(i), *pair) for i, pair in enumerate(pairs)])
    build(con, GraphParameters(seed=0))
    build(con, GraphParameters(seed=1))
    check(con, warehouses[1], GraphParameters(seed=1, test=0.6))


def test_a_source_that_is_forgotten_and_told_again_is_trained_on_again(con, warehouses, tmp_path):  # noqa: F811
    deliver(con, tmp_path, trajectory("1", "a", "b", request="book"))
    build(con)
    forget_source(con, "s")
    deliver(con, tmp_path, trajectory("1", "a", "b", request="book"))
    assert check(con, warehouses[1])["request"].to_list() == ["book"]


def test_a_name_that_two_connections_told_at_once_counts_once(con, tmp_path):
    one, two = con.cursor(), con.cursor()
    for connection in (one, two):
        connection.execute("begin")
        connection.execute("insert into called_name values ('s', 'a')")
    one.execute("commit")
    two.execute("commit")
    deliver(con, tmp_path, trajectory("1", "a"))
    assert version_nodes(con, build(con))["num_unrecorded"].to_list() == [1]


def test_forgetting_reaches_the_forms_that_were_replaced(con, tmp_path):
    parameters = GraphParameters(test=1.0, validation=0.0)
    deliver(con, tmp_path, trajectory("1", "a", request="secret"), trajectory("2", "a"))
    freeze_suites(con, parameters, min_rows=1)
    build(con, parameters)
    deliver(con, tmp_path, trajectory("1", "a", "b", request="secret"))
    gone = forget_trajectory(con, "1", "s")
    assert gone.suite_rows == 1
    for table in ("learning_interval", "suite_row"):
        assert con.sql(f"select distinct request from {table} where request <> ''").fetchall() == [
            ("please do 2",)
        ]
    assert con.sql("select * from former_trajectory").fetchall() == []


def test_a_warehouse_of_the_schema_before_is_mined_anew(con, tmp_path):
    declared = {"source": "a", "target": "b"}
    lines = [trajectory(str(i), "abc"[i % 3], "bca"[i % 3]) for i in range(5)]
    deliver(con, tmp_path, *lines, tool("a"), tool("b"), declared)
    old = duckdb.connect(":memory:")
    old.execute(
        "create table schema_migration "
        "(number integer primary key, name varchar not null, applied_at timestamp not null)"
    )
    for script in sorted(files("warehouse").joinpath("migrations").iterdir(), key=str):
        if script.name.endswith(".sql") and script.name < "0005":
            old.execute(script.read_text())
            row = [int(script.name[:4]), script.name, utc_now()]
            old.execute("insert into schema_migration values (?, ?, ?)", row)
    for table in ("trajectory", "call", "link", "tool_version", "declared_edge"):
        old.register("told", con.table(table).arrow())
        columns = ", ".join(row[0] for row in old.execute(f"describe {table}").fetchall())
        old.execute(f"insert into {table} by name select {columns} from told")
        old.unregister("told")
    migrate(old)
    first = build(old)
    for one in (con, old):
        deliver(one, tmp_path, trajectory("later", "a", "b", "c"))
    last = build(old)
    assert last.version == build(con).version != first.version
    old.close()


def test_what_comes_while_others_mine_is_mined_next(con, tmp_path, monkeypatch):
    deliver(con, tmp_path, trajectory("1", ("a", "ok"), ("b", "ok")))
    other = con.cursor()
    weigh, builds = mining._weigh, []

    def interrupted(*arguments):
        weigh(*arguments)
        if not builds:
            builds.append(None)
            deliver(other, tmp_path, trajectory("2", ("b", "ok"), ("c", "ok")))
            builds[0] = build(other).version

    monkeypatch.setattr(mining, "_weigh", interrupted)
    assert build(con).version == builds[0]
    assert len(version_edges(con, build(con))) == 2
