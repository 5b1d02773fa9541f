"""The registry against a real SQLite store."""

import shutil
import subprocess
import sys
from uuid import uuid4

import pytest

from tasks.errors import UnknownModel
from tasks.registry import MODEL, Registry
from tasks.settings import read_settings


@pytest.fixture
def registry(settings, empty_store):
    """A registry without versions; its experiment keeps artifacts in another test's folder."""
    settings.home.mkdir(parents=True)
    shutil.copy(empty_store, settings.home / "mlflow.db")
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


def description(registry, number):
    version = registry.version(number)
    run = registry._client.get_run(version.run_id)
    return version.description, run.data.tags["mlflow.note.content"]


def test_descriptions_follow_the_tags_and_leave_a_persons_words_alone(registry):
    number = str(add_version(registry))
    registry.tag_version(number, {"decision": "keep", "reasons": "Worse."})
    text, note = description(registry, number)
    assert text.startswith("Not promoted (keep)")
    assert "Registered as version 1 of gtool-planner." in note
    registry.tag_version(number, {"decision": "inconclusive"})
    assert description(registry, number)[0].startswith("Not promoted (inconclusive)")
    registry._client.update_model_version("gtool-planner", number, "Mine.")
    registry.tag_version(number, {"decision": "keep"})
    text, note = description(registry, number)
    assert text == "Mine."
    assert "Decision: keep" in note


def test_the_reign_of_champions_is_written_on_them(registry):
    first, second = str(add_version(registry, "f")), str(add_version(registry, "g"))
    registry.note_champion(first, "by report r1")
    registry.note_champion(second, "by hand in MLflow")
    assert registry.version(first).tags["replaced_by"] == "version 2"
    assert registry.version(first).description.startswith("Champion until")
    registry.note_champion(first, "by demote")
    assert "champion_until" not in registry.version(first).tags
    assert registry.version(first).description.startswith("Champion since")
    registry.note_champion(None, "by demote")
    assert registry.version(first).tags["replaced_by"] == "nobody"


def test_a_version_has_pages_only_on_a_server(registry):
    number = str(add_version(registry))
    assert registry.pages(number)["version_url"] is None
    registry._ui = "http://127.0.0.1:5000"
    pages = registry.pages(number)
    assert pages["version_url"] == "http://127.0.0.1:5000/#/models/gtool-planner/versions/1"
    assert pages["run_url"].endswith(f"/#/experiments/1/runs/{registry.version(number).run_id}")


def test_a_resumed_run_names_the_run_that_resumed_it(registry):
    run_id = registry.open_run("f", "first", {}, {"prefect.flow_run_name": "monday"})
    registry.open_run("f", "again", {}, {"prefect.flow_run_name": "tuesday"})
    tags = registry._client.get_run(run_id).data.tags
    assert tags["prefect.flow_run_name"] == "tuesday"


def test_the_version_of_a_prefect_run_is_found(registry):
    mine, other = str(uuid4()), str(uuid4())
    run_id = registry.open_run("f", "run", {}, {"prefect.flow_run_id": mine})
    version = registry._client.create_model_version(MODEL, "file:///nowhere", run_id).version
    assert registry.made_by(mine) == str(version)
    assert registry.made_by(other) is None
