"""The demo touches nothing but its own home."""

import os

from typer.testing import CliRunner

from flows.cli import app
from tasks.settings import read_settings


def test_the_demo_keeps_away_from_servers_and_stores_of_the_real_home(home, monkeypatch):
    for name, value in {
        "MLFLOW_TRACKING_URI": "http://127.0.0.1:5000",
        "PREFECT_API_URL": "http://127.0.0.1:4200/api",
        "TOOLATLAS_MLFLOW_URI": "postgresql://somewhere/real",
        "TOOLATLAS_TRAIN_POOL": "gpu",
        "TOOLATLAS_PRIMARY_SUITE": "shop/test",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("TOOLATLAS_TRAIN_LLM_READOUT", "NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("TOOLATLAS_TRAIN_LLM_READOUT", "auto")
    seen = {}

    def run(settings):
        again = read_settings()
        seen["uris"] = {settings.tracking_uri, again.tracking_uri}
        seen["homes"] = {settings.home, again.home}
        seen["apis"] = {settings.prefect_api, again.prefect_api}
        seen["rest"] = (again.train_pool, again.primary_suite)
        return {"nights": [], "seconds": 0.0, "next": []}

    monkeypatch.setattr("flows.demo.run_demo", run)
    monkeypatch.setattr("tasks.orchestration.connect", lambda settings: None)
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    demo = home / "demo"
    assert seen["homes"] == {demo}
    assert seen["uris"] == {f"sqlite:///{demo}/mlflow.db"}
    assert seen["apis"] == {None}
    assert seen["rest"] == (None, None)
