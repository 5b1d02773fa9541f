"""Predicted edges are written once a training, and finished where a kill came in between."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from models.errors import ModelError
from tasks import predictions, training
from tasks.graph_files import export
from tasks.graphs import build, find, learning_data, show, why
from tasks.ingesting import ingest
from tasks.predictions import predict
from tests.factories import CHORES, chores
from warehouse.connection import open_warehouse
from warehouse.predictions import find_prediction, predicted_edges


def embed(texts):
    """Vectors from letters: enough to tell tools apart."""
    counts = [[text.lower().count(chr(97 + i)) + 0.1 for i in range(26)] for text in texts]
    return torch.nn.functional.normalize(torch.tensor(counts).reshape(-1, 26), dim=1)


class Runs:
    """A registry that knows one version and remembers what was logged."""

    def __init__(self):
        self.logged = []

    def version(self, number):
        return SimpleNamespace(run_id=f"run of {number}", tags={"decision": "keep"})

    def aliases(self):
        return {"champion": "1", "challenger": None}

    def log_summary(self, run_id, metrics):
        self.logged.append((run_id, metrics))


@pytest.fixture
def built(settings, tmp_path, monkeypatch):
    """A home with a graph version, and no sentence encoder."""
    monkeypatch.setattr(predictions, "shared_embedder", lambda settings: embed)
    ingest(settings, [str(chores(tmp_path / "chores"))])
    build(settings)
    return settings


def stored(settings):
    with open_warehouse(settings.warehouse) as con:
        version = find(settings)
        return find_prediction(con, version), predicted_edges(con, version)


def test_they_are_written_once_shown_and_exported(built, tmp_path):
    data, runs = learning_data(built), Runs()
    settings = built.model_copy(update={"min_predicted_probability": 0.0})

    def write(settings=settings, fingerprint="f", number="7"):
        return predict(
            settings, runs, data.graph, data.examples, fingerprint=fingerprint, number=number
        )

    assert show(settings, "latest")["predicted"] is None
    assert write()
    ((run_id, metrics),) = runs.logged
    assert run_id == "run of 7"
    assert {"predicted/log_loss", "predicted/base_log_loss"} <= metrics.keys()
    made, edges = stored(settings)
    assert (made.model_version, made.fingerprint) == ("7", "f")
    assert not write()
    assert len(runs.logged) == 1

    told = show(settings, "latest")
    assert told["predicted"]["num"] == len(edges) > 0
    likeliest = told["predicted"]["likeliest"][0]
    reason = why(settings, likeliest["source"], likeliest["target"], "latest")
    assert reason["predicted"] == {
        "probability": likeliest["probability"],
        "model_version": "7",
    }
    assert reason["evidence"] == []
    assert told["version"] == data.graph.version

    files = export(settings, "latest", ("json", "parquet", "graphml", "html"), tmp_path)["files"]
    graph = json.loads(Path(files["json"]).read_text())
    kinds = [edge["key"] for edge in graph["edges"]]
    assert kinds.count("predicted") == len(edges)
    chances = {e["probability"] for e in graph["edges"] if e["key"] == "predicted"}
    assert chances == set(edges["probability"])

    assert write(built.model_copy(update={"predicted_edges": 0}))
    assert stored(settings)[1].is_empty()
    assert write(fingerprint="g", number="8")
    assert stored(settings)[0].model_version == "8"


def test_a_night_finishes_what_a_killed_one_left(built):
    data, runs = learning_data(built), Runs()
    key = "fingerprint of the training that was registered"
    assert stored(built)[0] is None
    for _ in range(2):
        training._hand_over(built, runs, data, "1", key)
        assert stored(built)[0].fingerprint == key
    assert len(runs.logged) == 1


def test_a_failure_before_the_last_step_stores_nothing(built, monkeypatch):
    data = learning_data(built)

    def dies(*_, **__):
        raise ModelError("out of memory")

    monkeypatch.setattr(predictions, "store_prediction", dies)
    with pytest.raises(ModelError):
        predict(built, Runs(), data.graph, data.examples, fingerprint="f", number="1")
    made, edges = stored(built)
    assert made is None
    assert edges.is_empty()


_KILLED = """
import os, signal
from tasks import training
from tasks.settings import read_settings
training.predict = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
training.train(read_settings())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("encoder")
def test_killed_between_registering_and_writing(settings, tmp_path):
    ingest(settings, [str(chores(tmp_path / "chores"))])
    build(settings)
    killed = subprocess.run([sys.executable, "-c", _KILLED], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert stored(settings)[0] is None
    outcome = training.train(settings)
    assert (outcome.trained, outcome.version) == (False, "1")
    made, edges = stored(settings)
    assert made.model_version == "1"
    assert set(edges["source"]) <= {f"chores/{name}" for name in CHORES}
    run = training.Registry(settings).version("1").run_id
    metrics = training.Registry(settings)._client.get_run(run).data.metrics
    assert "predicted/auc" in metrics
