"""One warehouse divided in four ways: what must be on one side is, and stays there."""

import random

import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.connection import open_in_memory
from warehouse.errors import NoSplit
from warehouse.graph import build_graph, find_version, training_rows
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters
from warehouse.splits import SPLITS, derive, split_of
from warehouse.suites import find_suite, freeze_suites, list_suites, read_suite

SHARES = {"test": 0.2, "validation": 0.1}
TOOLS = "abcdefg"
ORDER = ["train", "validation", "test"]


@pytest.fixture
def copy():
    connection = open_in_memory()
    yield connection
    connection.close()


def runs(numbers):
    """Runs an hour apart, some of a request that is made again and again."""
    pick = random.Random(numbers[0])
    lines = []
    for i in numbers:
        line = trajectory(
            str(i),
            *[(name, "ok") for name in pick.sample(TOOLS, 2)],
            request="go on" if i % 10 == 1 else f"please do {i}",
            split="test" if i % 5 == 0 else "train",
            timestamp=f"2026-01-{1 + i // 24:02}T{i % 24:02}:00:00",
        )
        lines.append(line)
    return lines


def deliver(con, tmp_path, lines, source="s"):
    path = write_lines(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", lines)
    ingest_file(con, path, source=source, delivery=1)
    con.execute(  # of three requests each
        "update trajectory set conversation = 'c' || (native_id::integer // 3) "
        "where conversation is null and source = 's'"
    )


def divide(copy, con, split):
    """The copy brought up to date: {native id: side}, as suites and training see it."""
    found = derive(copy, con, split, **SHARES)
    parameters = GraphParameters(split=split_of(copy))
    if not list_suites(copy):
        freeze_suites(copy, parameters, min_rows=5)
    build_graph(copy, parameters, code_version="t")
    rows = copy.sql(
        "select native_id, l.split from learning_interval l join trajectory using (trajectory_id) "
        "where until is null"
    ).fetchall()
    return found, dict(rows)


def sides(copy, column):
    """Sides of the learning rows that have a value in common."""
    rows = copy.sql(
        f"select list(distinct l.split) from learning_interval l join trajectory t "
        f"using (trajectory_id) where until is null and l.split <> 'none' group by {column}"
    ).fetchall()
    return [set(row[0]) for row in rows]


@pytest.mark.parametrize("split", SPLITS)
def test_what_a_split_keeps_together_is_on_one_side_and_stays_there(con, copy, tmp_path, split):
    deliver(con, tmp_path, [*runs(range(150)), *map(tool, TOOLS)])
    found, before = divide(copy, con, split)
    assert found.is_new
    assert found.sources == ("s",)
    kept = {"by-sequence": "l.tools", "by-conversation": "conversation"}.get(split)
    name = "s/test" if split == "own" else f"s/{split}"
    suite = find_suite(copy, name)
    assert suite.split == split
    frozen = read_suite(copy, suite)
    assert {s for s in before.values()} >= {"train", "validation", "test"}

    # A later night: no row goes from the suite to training, nor anywhere else but aside.
    deliver(con, tmp_path, runs(range(150, 210)))
    _, after = divide(copy, con, split)
    assert len(after) == 210
    assert all(after[i] == side or after[i] == "none" for i, side in before.items())
    assert all(after[i] == "test" for i, side in before.items() if side == "test")
    assert read_suite(copy, find_suite(copy, name)).equals(frozen)
    if kept:
        assert all(len(each) == 1 for each in sides(copy, kept))
    rows = training_rows(copy, find_version(copy))
    assert set(rows["id"]).isdisjoint(frozen["id"])
    if split == "by-time":
        assert [before[str(i)] for i in range(150)] == sorted(before.values(), key=ORDER.index)
        assert after["209"] == "test"  # later than the cut, which stayed
        assert "go on" in rows["request"].to_list()  # which is asked again afterwards
    else:
        assert set(rows["request"]).isdisjoint(frozen["request"])
        assert all(each != {"train", "test"} for each in sides(copy, "l.request"))
    assert not derive(copy, con, split, **SHARES).is_new


def test_what_cannot_be_divided_is_left_out_or_an_error(con, copy, tmp_path):
    with pytest.raises(NoSplit, match="ingest some"):
        derive(copy, con, "own", **SHARES)
    timeless = [trajectory(str(i), "a", "b") for i in range(8)]
    deliver(con, tmp_path, timeless, source="old")
    with pytest.raises(NoSplit, match="--split own, there is old: choose"):
        derive(copy, con, "own", **SHARES)
    with pytest.raises(NoSplit, match="began at different times for --split by-time"):
        derive(copy, con, "by-time", **SHARES)
    assert split_of(copy) == "default"
    assert copy.table("trajectory").fetchall() == []

    deliver(con, tmp_path, [*runs(range(24)), trajectory("99", "a")])
    found = derive(copy, con, "by-time", **SHARES)
    assert (found.sources, found.left_out, found.num_unplaced) == (("s",), ("old",), 1)
    numbers = [
        con.table(table).aggregate("count(*)").fetchall()[0][0]
        - copy.table(table).aggregate("count(*)").fetchall()[0][0]
        for table in ("trajectory", "call")
    ]
    assert numbers == [9, 17]
    with pytest.raises(NoSplit, match="by --split by-time: leave out"):
        derive(con, copy, "own", **SHARES)


def test_a_cut_lies_between_two_times(con, copy, tmp_path):
    """However many began at once, and where the share is nearest."""
    days = [1] * 5 + [2] * 4 + [3] * 2 + [4] * 2
    lines = [trajectory(str(i), "a", timestamp=f"2026-01-0{day}") for i, day in enumerate(days)]
    deliver(con, tmp_path, lines, source="u")
    derive(copy, con, "by-time", **SHARES)
    by_day = copy.sql("select day(started_at), any_value(split), count(distinct split) "
                      "from trajectory group by all order by 1").fetchall()  # fmt: skip
    assert by_day == [(1, "train", 1), (2, "train", 1), (3, "validation", 1), (4, "test", 1)]
