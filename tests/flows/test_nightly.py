"""The whole line on a small source, with the real encoder, MLflow and Prefect."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.nightly import nightly
from models.checkpoint import load_planner
from models.errors import NotEnoughData
from tasks.embedding import shared_embedder
from tasks.graphs import learning_data
from tasks.planning import BASELINES
from tasks.promotion import demote, promote_version
from tasks.registry import MODEL, Registry
from tasks.settings import read_settings
from tasks.status import status
from tests.factories import chores, trajectory, write_lines

pytestmark = pytest.mark.usefixtures("prefect_server", "encoder")


def _nearly(plans):
    """Plans with nearly equal scores: sums may be taken in another order."""
    return [{**plan, "score": pytest.approx(plan["score"], abs=1e-4)} for plan in plans]


def test_two_nights_and_what_lies_between(home, tmp_path):
    first = nightly(ingest_paths=[str(chores(tmp_path / "chores", without="translate"))])
    assert first["trained"]
    assert first["train_reason"] == "no version is registered yet"
    assert first["graph"]["new"]
    assert first["decision"] in ("promote", "keep")
    settings = read_settings()
    registry = Registry(settings)
    version = registry.version("1")
    assert version.tags["graph_version"] == first["graph"]["version"]
    assert version.tags["decision"] == first["decision"]
    assert set(first["report"]["metrics"]) == {"gtool", "tog", *BASELINES}

    # The same state again: nothing is read, built, trained or measured anew.
    again = nightly(ingest_paths=[str(tmp_path / "chores")])
    assert not again["trained"]
    assert again["train_reason"].startswith("nothing new")
    assert again["graph"]["version"] == first["graph"]["version"]
    assert again["ingested"]["totals"]["trajectories"]["new"] == 0
    assert status(settings)["last_report"]["id"] == again["report"]["id"]

    # A new tool and its trajectories: a new graph, a training, a comparison with the champion.
    if registry.aliases()["champion"] is None:
        promote_version(settings, "1", force=True)
    second = nightly(ingest_paths=[str(chores(tmp_path / "chores"))], refresh_suites=True)
    assert second["trained"]
    assert "the learning graph changed" in second["train_reason"]
    assert second["diff"]["tools"]["added"] == ["chores/translate"]
    assert second["suites"][0]["version"] == 2
    assert second["report"]["champion"] == "1"
    assert second["report"]["challenger"] == "2"
    assert "gtool-champion" in second["report"]["metrics"]
    aliases = registry.aliases()
    promoted = second["decision"] == "promote"
    assert aliases == {
        "champion": "2" if promoted else "1",
        "challenger": None if promoted else "2",
    }

    # An alias moved by hand is noticed, and demote goes back.
    registry.set_alias("champion", "2")
    third = nightly()
    assert third["promotion"]["champion"] == "2"
    assert demote(settings)["champion"] == "1"
    assert registry.aliases()["champion"] == "1"
    history = status(settings)["alias_history"]
    assert history[0]["version"] == "1"
    assert history[0]["by"] == "demote"

    # Plans from the command line, and the same ones from a fresh process through MLflow.
    result = CliRunner().invoke(app, ["plan", "book me a flight to Bergen", "--json"])
    assert result.exit_code == 0, result.output
    planned = json.loads(result.stdout)
    assert planned["model_version"] == "1"
    assert planned["graph_version"] == first["graph"]["version"]
    known = {f"chores/{t}" for t in json.loads(json.dumps(_tools(tmp_path)))}
    assert planned["plans"]
    assert all(key in known for p in planned["plans"] for key in p["keys"])
    served = json.loads(_serve(settings.tracking_uri, "book me a flight to Bergen"))
    # What is served knows the tools of its training; what plans here, those that came since too.
    stored = load_planner(registry.planner_folder("1"), shared_embedder(settings))
    (plans,) = stored.plan(["book me a flight to Bergen"], top=len(served))
    assert served == _nearly([plan.to_json() for plan in plans])
    assert served[0]["keys"] == planned["plans"][0]["keys"]

    # Evaluation of one planner, in another convention.
    result = CliRunner().invoke(
        app,
        [
            "evaluate",
            "--planner",
            "gtool@2",
            "--suite",
            "chores/test",
            "--metrics",
            "gtool",
            "--json",
        ],
    )
    assert result.exit_code == 0, result.output
    measured = json.loads(result.stdout)
    assert measured["n"] == 53
    assert measured["ms_per_request"]["p50"] > 0
    assert measured["ci"]["n_f1"][0] <= measured["n_f1"] <= measured["ci"]["n_f1"][1]


def _tools(tmp_path):
    lines = (tmp_path / "chores" / "tools.jsonl").read_text().splitlines()
    return [json.loads(line)["name"] for line in lines]


_SERVE = """
import sys, mlflow, pandas as pd
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pyfunc.load_model(f"models:/{sys.argv[2]}@champion")
assert model.metadata.signature is not None
print(model.predict(pd.DataFrame({"request": [sys.argv[3]]}), params={"top": 3})["plans"][0])
"""


def _serve(uri, request):
    """Plans of the champion in a process that has only MLflow's copy of the code."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SERVE, uri, MODEL, request],
        capture_output=True,
        text=True,
        env={**os.environ, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"},
        cwd="/",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip().splitlines()[-1]


def test_a_training_set_that_is_too_small_ends_in_one_sentence(home, tmp_path):
    lines = [trajectory(str(i), "a", "b", request=f"r{i}") for i in range(3)]
    with pytest.raises(NotEnoughData, match="expected"):
        nightly(ingest_paths=[str(write_lines(tmp_path / "few.jsonl", lines))])


def test_training_rows_and_graph_are_those_of_the_version(home, tmp_path, settings):
    from tasks.graphs import build
    from tasks.ingesting import ingest

    ingest(settings, [str(chores(tmp_path / "chores"))])
    build(settings)
    data = learning_data(settings)
    assert {e.split for e in data.examples} <= {"train", "validation"}
    assert len(data.examples) == 157
