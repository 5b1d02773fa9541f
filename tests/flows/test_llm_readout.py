"""The LLM readout in the line: trained beside the graph readout, stored, measured, planned with."""

import json

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.nightly import nightly
from flows.run_regressions import run_regressions
from tasks.llm import _shared
from tasks.registry import Registry
from tasks.settings import read_settings
from tests.factories import byte_tokenizer, chores, tiny_lm

pytestmark = [pytest.mark.usefixtures("prefect_server", "encoder"), pytest.mark.slow]


@pytest.fixture
def tiny_folder(tmp_path):
    """A tiny language model as a folder."""
    tiny_lm().save_pretrained(tmp_path / "llm")
    byte_tokenizer().save_pretrained(tmp_path / "llm")
    return tmp_path / "llm"


def test_a_night_with_the_llm_readout(home, tmp_path, tiny_folder, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_LLM", str(tiny_folder))
    first = nightly(ingest_paths=[str(chores(tmp_path / "chores"))])
    assert "gtool-llm" not in first["report"]["metrics"]
    refused = CliRunner().invoke(app, ["plan", "book it", "--planner", "gtool-llm@1"])
    assert refused.exit_code == 1
    assert "expected version 1 to have an LLM readout" in refused.output

    monkeypatch.setenv("TOOLATLAS_TRAIN_LLM_READOUT", "always")
    monkeypatch.setenv("TOOLATLAS_MAX_LLM_STEPS", "3")
    monkeypatch.setenv("TOOLATLAS_MAX_LLM_REQUESTS", "5")
    # The graph readout is taken from version 1, not trained again.
    monkeypatch.setattr("tasks.training.train_gtool", None)
    second = nightly()
    assert second["trained"]
    assert second["train_reason"] == "since version 1 the configuration changed"
    report = second["report"]
    assert set(report["metrics"]["gtool-llm"]) == set(report["metrics"]["gtool"])
    assert report["measured"]["chores/test"]["gtool-llm"] == 5
    assert report["measured"]["chores/test"]["gtool"] == report["requests"]["chores/test"] > 5

    # One version holds both readouts.
    registry = Registry(read_settings())
    versions = {number: registry.version(number).tags for number in ("1", "2")}
    assert versions["2"]["weights_hash"] == versions["1"]["weights_hash"]
    assert versions["2"]["planner"] == "gtool-graph, gtool-llm"
    run = registry._client.get_run(registry.version("2").run_id)
    assert {"llm/align_loss", "llm/train_loss", "llm/validation_loss"} <= set(run.data.metrics)
    assert run.data.params["llm_candidates"] == "8"

    answer = CliRunner().invoke(
        app, ["plan", "book a flight to Oslo", "--planner", "gtool-llm@2", "--top", "2", "--json"]
    )
    plans = json.loads(answer.stdout)["plans"]
    assert [plan["planner"] for plan in plans] == ["gtool-llm-steps"] * 2
    refused = CliRunner().invoke(app, ["plan", "book it", "--planner", "gtool-llm-single@2"])
    assert "expected version 2 to have an LLM readout for gtool-llm-single" in refused.output
    fused = CliRunner().invoke(app, ["plan", "book it", "--planner", "gtool-fusion@2", "--json"])
    assert json.loads(fused.stdout)["plans"][0]["planner"] == "gtool-fusion"
    assert not nightly()["trained"]

    # Another language model: the gate goes on without gtool-llm.
    tiny_lm(seed=1).save_pretrained(tiny_folder)
    _shared.cache_clear()
    monkeypatch.setenv("TOOLATLAS_TRAIN_LLM_READOUT", "never")
    monkeypatch.setenv("TOOLATLAS_RESAMPLES", "201")
    report = run_regressions()
    assert report["new"]
    assert "gtool-llm" not in report["metrics"]
