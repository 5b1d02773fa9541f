"""Forgetting reaches the training rows of past versions too, and is one command."""

import pytest

from tasks.errors import WrongUsage
from tasks.forgetting import forget
from tasks.graphs import build
from tasks.ingesting import ingest
from tasks.settings import Settings
from tasks.splits import prepare
from tests.factories import trajectory, write_lines
from warehouse.connection import open_warehouse
from warehouse.graph import list_versions, training_rows


def requests(settings):
    """Of the training rows of all versions."""
    with open_warehouse(settings.warehouse) as con:
        versions = list_versions(con)
        kept = con.sql("select distinct request from learning_interval").fetchall()
        told = {r for v in versions for r in training_rows(con, v)["request"]}
    return told, {request for (request,) in kept}


def test_training_rows_of_a_forgotten_trajectory_are_gone_from_every_version(tmp_path):
    settings = Settings(home=tmp_path / "home", mlflow_uri=None)
    lines = [trajectory(str(i), "a", f"tool_{i}", request=f"request {i}") for i in range(6)]
    path = write_lines(tmp_path / "shop.jsonl", lines)
    ingest(settings, [str(path)])
    before = build(settings)
    assert requests(settings)[0]
    told = [forget(settings, str(i), "shop") for i in range(6)]
    assert sum(one["trajectories"] for one in told) == 6
    assert requests(settings) == (set(), {""})
    ingest(settings, [str(path)])
    ingest(settings, [str(write_lines(tmp_path / "shop.jsonl", [*lines, trajectory("new", "a")]))])
    after = build(settings)
    assert before["version"] != after["version"]
    assert requests(settings) == ({"please do new"}, {"please do new"})


def test_something_must_be_named(tmp_path):
    with pytest.raises(WrongUsage, match="--source"):
        forget(Settings(home=tmp_path, mlflow_uri=None), None, None)


def test_the_salt_is_made_once_and_for_its_owner_only(tmp_path):
    settings = Settings(home=tmp_path / "home", mlflow_uri=None)
    salt = settings.salt
    assert len(salt) == 32
    assert Settings(home=tmp_path / "home", mlflow_uri=None).salt == salt
    assert (tmp_path / "home" / "salt").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["salt"]


def test_forgetting_reaches_the_homes_of_other_splits(tmp_path):
    settings = Settings(home=tmp_path / "home", mlflow_uri=None, min_suite_rows=1)
    lines = [
        trajectory(str(i), "a", f"tool_{i}", request=f"request {i}", split=split)
        for i, split in enumerate(["train", "train", "test", "test"])
    ]
    ingest(settings, [str(write_lines(tmp_path / "shop.jsonl", lines))])
    divided = settings.with_home(settings.home / "splits" / "own")
    prepare(divided, "own", refresh=True)
    assert settings.split_warehouses == [divided.warehouse]
    for number in "03":
        forget(settings, number, None)
    with open_warehouse(divided.warehouse) as con:
        left = con.sql(
            "select request from trajectory union all select request from learning_interval "
            "where request <> '' union all select request from suite_row order by all"
        ).fetchall()
    assert sorted(left) == [("request 1",)] * 2 + [("request 2",)] * 3
    with open_warehouse(settings.warehouse) as con:
        con.execute("delete from trajectory")
    forget(settings, None, "shop")
    assert requests(divided)[1] == {""}
