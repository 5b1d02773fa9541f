"""Finding versions, and that nothing that happens later changes them."""

import pytest

from tests.factories import trajectory
from tests.warehouse.test_graph import build, deliver
from warehouse.errors import UnknownVersion
from warehouse.forget import forget_trajectory
from warehouse.graph import collect_versions, find_version, list_versions


@pytest.mark.parametrize(
    "name", ["0001-01-01T00:00+05:00", "mark:9999-12-31T23:59-05:00", "2026", "mark:", "mark:2026"]
)
def test_what_is_no_moment_is_no_version(con, tmp_path, name):
    deliver(con, tmp_path, trajectory("1", "a"))
    build(con)
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
