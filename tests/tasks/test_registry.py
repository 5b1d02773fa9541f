"""The registry against a real SQLite store."""

import subprocess
import sys

import pytest

from tasks.errors import UnknownModel
from tasks.registry import MODEL, Registry
from tasks.settings import read_settings


@pytest.fixture
def registry(settings):
    return Registry(settings)


def add_version(registry, fingerprint="f"):
    run_id = registry.open_run(fingerprint, "run", {"a": 1}, {})
    client = registry._client
    return client.create_model_version(
        MODEL, source="file:///nowhere", run_id=run_id, tags={"fingerprint": fingerprint}
    ).version


def test_unset_aliases_are_none_and_a_deleted_version_takes_its_alias_along_24825(registry):
    assert registry.aliases() == {"champion": None, "challenger": None}
    number = str(add_version(registry))
    registry.set_alias("champion", number)
    assert registry.aliases()["champion"] == number
    registry._client.delete_model_version(MODEL, number)
    assert registry.aliases()["champion"] is None
    registry.drop_alias("champion")


def test_an_unknown_version_lists_those_there_are(registry):
    with pytest.raises(UnknownModel, match="toolatlas train"):
        registry.version("7")
    add_version(registry)
    with pytest.raises(UnknownModel, match="there are: 1"):
        registry.set_alias("champion", "7")


def test_a_killed_training_goes_on_in_its_own_run(registry):
    run_id = registry.open_run("f", "first", {"a": 1}, {"t": "x"})
    assert registry.open_run("f", "again", {"a": 1}, {"t": "x"}) == run_id
    other = registry.open_run("g", "other", {}, {})
    assert other != run_id
    registry.close_abandoned("g")
    assert registry._client.get_run(run_id).info.status == "KILLED"
    assert registry._client.get_run(other).info.status == "RUNNING"


def test_a_training_is_found_by_its_fingerprint(registry):
    assert registry.trained("f") is None
    number = str(add_version(registry, "f"))
    assert registry.trained("f") == number
    assert registry.trained("g") is None
    assert str(registry.latest().version) == number


def test_a_file_store_is_explained_18534(home, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_MLFLOW_URI", "file:/tmp/mlruns")
    with pytest.raises(ValueError, match="sqlite:///"):
        Registry(read_settings())


@pytest.mark.slow
def test_two_first_users_at_once_both_work_245(home, settings):
    script = (
        "from tasks.settings import read_settings; from tasks.registry import Registry; "
        "print(Registry(read_settings()).aliases())"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [child.communicate()[0].strip() for child in children] == [
        "{'champion': None, 'challenger': None}"
    ] * 2
