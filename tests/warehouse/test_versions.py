"""Finding versions, and that nothing that happens later changes them."""

import pytest

from tests.factories import tool, trajectory
from tests.warehouse.test_graph import NONE_HELD, build, deliver
from tests.warehouse.test_history_property import warehouses  # noqa: F401
from tests.warehouse.test_order_property import empty
from warehouse.aliases import rename
from warehouse.changes import diff_versions
from warehouse.errors import UnknownVersion
from warehouse.forget import forget_trajectory
from warehouse.graph import collect_versions, find_version, list_versions
from warehouse.why import explain_edge


@pytest.fixture
def con(warehouses):  # noqa: F811
    return empty(warehouses[0])


NO_MOMENTS = [
    "0001-01-01T00:00+05:00", "mark:9999-12-31T23:59-05:00", "2026", "mark:", "mark:2026"
]  # fmt: skip


def test_what_is_no_moment_is_no_version(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a"))
    build(con)
    for name in NO_MOMENTS:
        with pytest.raises(UnknownVersion, match="expected latest"):
            find_version(con, name)


def test_builds_whose_training_rows_were_forgotten_are_known_by_another_id(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a"))
    first = build(con)
    deliver(con, tmp_path, trajectory("2", "b"))
    second = build(con)
    forget_trajectory(con, "2", "s")
    now = {version.build: version.examples_id for version in list_versions(con)}
    assert now[first.build] == first.examples_id
    assert now[second.build] != second.examples_id


def test_forms_that_nothing_kept_knows_are_collected(con, tmp_path):
    for calls in ("a", "ab"):
        deliver(con, tmp_path, trajectory("1", *calls))
        build(con)
    former = con.table("former_trajectory")
    assert len(former.fetchall()) == 1
    collect_versions(con, needed=(), keep=1)
    assert con.table("former_trajectory").fetchall() == []


def test_a_rename_that_was_taken_back_is_told_in_either_direction(con, tmp_path):
    declared = {"source": "a", "target": "b"}
    deliver(con, tmp_path, tool("a"), tool("b"), declared, trajectory("1", "a", "b"))
    old = build(con)
    rename(con, "s/b", "s/new")
    new = build(con)
    for is_taken_back in (False, True):
        if is_taken_back:
            rename(con, "s/new", "s/b")
            build(con)
        for one, other, names in ((old, new, ["s/b", "s/new"]), (new, old, ["s/new", "s/b"])):
            found = diff_versions(con, one, other)
            assert found["tools"]["renamed"] == [names]
            assert not any(found["edges"].values())
            told = explain_edge(con, other, "s/a", names[1])
            assert (told["declared"], told["num_trajectories"]) == ([""], 1)


def test_a_merge_has_no_way_back(con, tmp_path):
    deliver(con, tmp_path, tool("a"), tool("b"), trajectory("1", "a", "b", "a"))
    old = build(con, NONE_HELD)
    rename(con, "s/a", "s/one")
    rename(con, "s/b", "s/one", merge=True)
    new = build(con, NONE_HELD)
    forth, back = diff_versions(con, old, new)["tools"], diff_versions(con, new, old)["tools"]
    assert forth["renamed"] == [["s/a", "s/one"], ["s/b", "s/one"]]
    assert (back["renamed"], back["added"], back["removed"]) == ([], ["s/a", "s/b"], ["s/one"])
