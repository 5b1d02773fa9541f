"""Training and measuring under another split, from the command line."""

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from flows.cli import app
from models.types import Plan
from tasks.graphs import find
from tests.factories import chores


@pytest.fixture
def call(home, monkeypatch):
    """Run a command in that home, whatever the one before told the environment."""

    def run(*arguments, code=0):
        monkeypatch.setenv("TOOLATLAS_HOME", str(home))
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == code, (result.output, result.stderr, result.exception)
        return json.loads(result.stdout) if code == 0 else result.stderr

    return run


class Same:
    """Plans the same for every request."""

    name = "same"

    def plan(self, requests, top=1):
        return [[Plan(("chores/send_mail", "chores/add_event"), (), 1.0, "same")] for _ in requests]


def test_a_planner_is_measured_under_another_split(home, call, tmp_path, monkeypatch):
    asked = []

    def get(settings, planner, embed):
        asked.append(planner)
        return Same(), find(settings).version, None

    monkeypatch.setattr("tasks.evaluation.get_planner", get)
    monkeypatch.setattr("tasks.evaluation.SentenceEmbedder", lambda name: None)
    measure = ("evaluate", "--planner", "popularity", "--json", "--split")
    assert "toolatlas ingest" in call(*measure, "own", code=2)
    call("ingest", str(chores(tmp_path / "chores")), "--json")
    before = (home / "warehouse.duckdb").read_bytes()

    measured = call(*measure, "by-sequence")
    assert (measured["suite"], measured["split"]) == ("chores/by-sequence", "by-sequence")
    assert measured["planner"] == "popularity"
    assert 0 < measured["n_f1"] < 1
    assert "began at different times for --split by-time" in call(*measure, "by-time", code=1)
    assert "expected --split own, by-sequence" in call(*measure, "monthly", code=2)
    assert (home / "warehouse.duckdb").read_bytes() == before

    aliases = {"champion": None, "challenger": None}
    registry = SimpleNamespace(aliases=lambda: aliases)
    monkeypatch.setattr("tasks.evaluation.Registry", lambda settings: registry)
    newest = ("evaluate", "--split", "by-sequence", "--json", "--planner")
    assert "toolatlas train --split by-sequence" in call(*newest, "gtool", code=1)
    aliases["challenger"] = "1"
    again = call(*newest, "gtool", "--suite", "chores/by-sequence")
    assert (again["planner"], again["graph_version"]) == ("gtool", measured["graph_version"])
    assert asked == ["popularity", "gtool@challenger"]


def test_a_training_works_in_the_home_of_its_split(home, call, monkeypatch):
    from tasks.settings import run_settings

    homes, prepared = [], []

    def train(mode):
        homes.append(run_settings().home)
        return {"trained": False, "train_reason": mode, "version": None, "train_seconds": 0.0}

    def prepare(settings, split, refresh):
        prepared.append((settings.home, split, refresh))

    monkeypatch.setattr("tasks.orchestration.connect", lambda settings: None)
    monkeypatch.setattr("tasks.splits.prepare", prepare)
    monkeypatch.setattr("flows.train_planner.train_planner", train)
    assert call("train", "--train", "never", "--json")["split"] == "default"
    divided = call("train", "--train", "never", "--split", "by-conversation", "--json")
    assert divided["split"] == "by-conversation"
    own = home / "splits" / "by-conversation"
    assert homes == [home, own]
    assert prepared == [(own, "by-conversation", True)]


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server", "encoder")
def test_gtool_is_trained_and_measured_under_another_split(home, call, tmp_path):
    call("ingest", str(chores(tmp_path / "chores")), "--json")
    trained = call("train", "--split", "own", "--json")
    assert trained["trained"]
    again = call("train", "--split", "own", "--json")
    assert (again["trained"], again["version"]) == (False, trained["version"])
    measured = call("evaluate", "--planner", "gtool", "--split", "own", "--json")
    assert (measured["model_version"], measured["split"]) == (trained["version"], "own")
    assert call("status", "--json")["models"] == {"champion": None, "challenger": None}
    assert not (home / "mlflow.db").exists()
