import polars as pl
import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.errors import UnknownSuite
from warehouse.graph import build_graph, training_rows
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters, list_plans
from warehouse.suites import (
    count_waiting,
    find_suite,
    freeze_suites,
    list_suites,
    read_suite,
)

PARAMETERS = GraphParameters()


def deliver(con, tmp_path, *lines, source="s"):
    path = write_lines(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", lines)
    ingest_file(con, path, source=source, delivery=1)


def many(n, start=0):
    return [
        trajectory(str(i), *[f"t{(i * k) % 7}" for k in range(1, 4)], f"u{i}")
        for i in range(start, start + n)
    ]


def build(con, parameters=PARAMETERS):
    return build_graph(con, parameters, code_version="t")


def rows_of(con, parameters=PARAMETERS):
    """What training may see of the present data."""
    return training_rows(con, build(con, parameters))


def splits(con):
    list_plans(con, PARAMETERS)
    return dict(con.sql("select trajectory_id, split from learning_row").fetchall())


def test_equal_sequences_lie_on_one_side_and_later_nights_move_none(con, tmp_path):
    deliver(con, tmp_path, *many(200), *[trajectory(f"r{i}", "a", "b") for i in range(10)])
    before = splits(con)
    assert set(before.values()) == {"train", "validation", "test"}
    same = con.sql(
        "select distinct split from learning_row where tools = ['s/a', 's/b']"
    ).fetchall()
    assert len(same) == 1
    deliver(con, tmp_path, *many(100, start=200))
    after = splits(con)
    assert {i: after[i] for i in before} == before
    assert 0.1 < sum(s == "test" for s in after.values()) / len(after) < 0.3


def test_the_split_of_the_source_is_kept_and_names_the_suite(con, tmp_path):
    deliver(
        con,
        tmp_path,
        *[{**line, "split": "test" if i < 30 else "train"} for i, line in enumerate(many(100))],
    )
    (suite,) = freeze_suites(con, PARAMETERS, min_rows=20)
    assert (suite.name, suite.num_rows) == ("s/test", 30)
    by_split = con.sql("select split, count(*) from learning_row group by split").fetchall()
    assert dict(by_split)["test"] == 30
    assert dict(by_split)["validation"] > 0


def test_a_frozen_suite_stays_until_it_is_refreshed(con, tmp_path):
    deliver(con, tmp_path, *many(200))
    (first,) = freeze_suites(con, PARAMETERS, min_rows=20)
    assert first.name == "s/by-sequence"
    rows = read_suite(con, first)
    deliver(con, tmp_path, *many(100, start=200))
    assert freeze_suites(con, PARAMETERS, min_rows=20) == []
    assert read_suite(con, find_suite(con, "s/by-sequence")).equals(rows)
    waiting = count_waiting(con, PARAMETERS)["s/by-sequence"]
    assert waiting > 0
    (second,) = freeze_suites(con, PARAMETERS, min_rows=20, refresh=True)
    assert (second.version, second.num_rows) == (2, first.num_rows + waiting)
    assert freeze_suites(con, PARAMETERS, min_rows=20, refresh=True) == []
    assert [s.version for s in list_suites(con)] == [2]


def test_too_few_held_out_rows_make_no_suite(con, tmp_path):
    deliver(con, tmp_path, *many(20))
    assert freeze_suites(con, PARAMETERS, min_rows=20) == []
    with pytest.raises(UnknownSuite, match="toolatlas nightly"):
        find_suite(con, "s/by-sequence")


def test_training_rows_hold_no_test_row_and_are_named_by_content(con, tmp_path):
    deliver(con, tmp_path, *many(100))
    held = {i for i, split in splits(con).items() if split == "test"}
    first = build(con)
    rows = training_rows(con, first)
    assert held
    assert held.isdisjoint(rows["id"])
    assert build(con).examples_id == first.examples_id
    deliver(con, tmp_path, *many(10, start=100))
    second = build(con)
    assert second.examples_id != first.examples_id
    assert len(training_rows(con, second)) > len(rows)
    assert training_rows(con, first).equals(rows)


def test_what_a_suite_has_frozen_is_never_trained_on_whatever_changes(con, tmp_path):
    deliver(con, tmp_path, *many(200))
    (suite,) = freeze_suites(con, PARAMETERS, min_rows=20)
    requests = set(read_suite(con, suite)["request"])
    grown = [{**line, "steps": [*line["steps"], {"tool": "more"}]} for line in many(200)]
    trained = [{**line, "split": "train"} for line in many(200)]
    for lines, parameters in (
        ([], GraphParameters(seed=1)),
        ([], GraphParameters(test=0.05)),
        (grown, PARAMETERS),
        (trained, PARAMETERS),
    ):
        if lines:
            deliver(con, tmp_path, *lines)
        rows = rows_of(con, parameters)
        assert len(rows) > 50
        assert requests.isdisjoint(rows["request"])


def test_a_request_that_is_held_out_is_not_trained_on_with_another_plan(con, tmp_path):
    runs = [{**line, "request": f"r{i % 40}"} for i, line in enumerate(many(200))]
    deliver(con, tmp_path, *runs)
    list_plans(con, PARAMETERS)
    held = {
        r for (r,) in con.sql("select request from learning_row where split = 'test'").fetchall()
    }
    rows = rows_of(con)
    assert held
    assert held.isdisjoint(rows["request"])


def test_rows_without_own_split_do_not_enter_the_suite_of_a_split_source(con, tmp_path):
    own = [{**line, "split": "test" if i < 30 else "train"} for i, line in enumerate(many(100))]
    deliver(con, tmp_path, *own, *many(100, start=100))
    (suite,) = freeze_suites(con, PARAMETERS, min_rows=20)
    assert (suite.name, suite.num_rows) == ("s/test", 30)


def test_plans_keep_successes_collapse_equal_calls_and_carry_links(con, tmp_path):
    line = trajectory("1", ("a", "1"), ("a", "1"), ("x", "no", "no"), ("b", "2"), ("a", "3"))
    line["steps"][1]["arguments"] = line["steps"][0]["arguments"]  # the very same call again
    line["links"] = [
        {"source": 1, "target": 3},
        {"source": 3, "target": 4},
        {"source": 2, "target": 3},
    ]
    line["meta"]["links"] = "gold"
    repeated = trajectory("2", *[("a", "1")] * 50)
    for step in repeated["steps"]:
        step["arguments"] = {"same": 1}
    deliver(con, tmp_path, line, repeated, tool("a"), tool("b"))
    list_plans(con, PARAMETERS)
    rows = con.sql(
        "select tools, links, has_links from learning_row order by len(tools)"
    ).fetchall()
    assert rows == [(["s/a"], [], False), (["s/a", "s/b", "s/a"], [[0, 1], [1, 2]], True)]


def test_rows_that_no_planner_could_offer_are_left_out(con, tmp_path):
    deliver(
        con, tmp_path, *[trajectory(str(i), "a", f"invented{i}") for i in range(200)], tool("a")
    )
    assert freeze_suites(con, PARAMETERS, min_rows=1) == []
    assert rows_of(con).is_empty()


def test_rows_say_what_the_split_keeps_together(con, tmp_path):
    """The sequence, or the request where the source ships a split; validation is drawn alike."""
    drawn = [trajectory(str(i), *"abc"[i % 3 :], f"u{i % 40}") for i in range(160)]
    own = [
        {**trajectory(str(i), "a", "b", request=f"Ask {i % 60}"), "split": "train"}
        for i in range(120)
    ]
    own.append({**trajectory("t", "c", request=" ask\t7 "), "split": "train"})
    deliver(con, tmp_path, *drawn)
    deliver(con, tmp_path, *own, source="own")
    rows = rows_of(con).with_columns(
        pl.when(pl.col("source") == "own")
        .then(pl.col("request").str.to_lowercase().str.strip_chars().str.replace_all(r"\s+", " "))
        .otherwise("tools")
        .alias("common")
    )
    by_common = rows.group_by("source", "common").agg(
        pl.col("group").n_unique().alias("groups"), pl.col("split").n_unique().alias("splits")
    )
    assert set(by_common["groups"]) == set(by_common["splits"]) == {1}
    assert rows["group"].n_unique() == len(by_common)
    in_own = rows.filter(pl.col("source") == "own").group_by("tools", "split").len()
    assert 0.02 < in_own.filter(tools='["own/a","own/b"]', split="validation")["len"][0] / 120 < 0.3


def test_rows_are_named_by_what_divides_them_too(con, tmp_path):
    deliver(con, tmp_path, *many(50))
    ids = {build(con, GraphParameters(split=split)).examples_id for split in ("default", "own")}
    assert len(ids) == 2
