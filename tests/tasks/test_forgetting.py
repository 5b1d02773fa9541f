"""Forgetting reaches the exported training rows too, and is one command."""

import pytest

from tasks.errors import WrongUsage
from tasks.forgetting import forget
from tasks.graphs import build
from tasks.ingesting import ingest
from tasks.settings import Settings
from tests.factories import trajectory, write_lines


def test_exported_rows_of_a_forgotten_trajectory_are_gone_and_come_back_without_it(tmp_path):
    settings = Settings(home=tmp_path / "home", mlflow_uri=None)
    lines = [trajectory(str(i), "a", f"tool_{i}", request=f"request {i}") for i in range(12)]
    path = write_lines(tmp_path / "shop.jsonl", lines)
    ingest(settings, [str(path)])
    before = build(settings)
    exported = {p.name: p.read_bytes() for p in settings.examples.glob("*.parquet")}
    assert exported
    told = [forget(settings, str(i), "shop") for i in range(12)]
    assert sum(one["trajectories"] for one in told) == 12
    assert sum(one["exports"] for one in told) == len(exported)
    assert not list(settings.examples.glob("*.parquet"))
    ingest(settings, [str(path)])
    ingest(settings, [str(write_lines(tmp_path / "shop.jsonl", [*lines, trajectory("new", "a")]))])
    after = build(settings)
    assert before["version"] != after["version"]
    assert b"request 3" not in b"".join(p.read_bytes() for p in settings.examples.iterdir())


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
