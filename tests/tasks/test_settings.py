import os
import socket
from dataclasses import replace

import psutil
import pytest
from pydantic import ValidationError

from tasks.settings import (
    code_version,
    faults,
    loopback_without_proxy,
    prepare_environment,
    read_settings,
    run_settings,
)


def test_settings_come_from_the_environment_and_paths_are_absolute(home, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLATLAS_HOME", "somewhere")
    monkeypatch.setenv("TOOLATLAS_SEED", "7")
    settings = read_settings()
    assert settings.home == tmp_path / "somewhere"
    assert settings.seed == 7
    assert settings.tracking_uri == f"sqlite:///{tmp_path}/somewhere/mlflow.db"
    assert settings.with_home(tmp_path).seed == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [("SEED", "-1"), ("DEVICE", "tpu"), ("CONFIDENCE", "2"), ("TIME_ZONE", "Mars/Base")],
)
def test_a_setting_out_of_range_is_refused(home, monkeypatch, name, value):
    monkeypatch.setenv(f"TOOLATLAS_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        read_settings()


def test_a_line_in_toolatlas_toml_counts_and_the_environment_wins(home, monkeypatch, tmp_path):
    from tasks.settings import Settings

    (tmp_path / "toolatlas.toml").write_text('margin = 0.05\nseed = 3\ningest_paths = ["a", "b"]\n')
    monkeypatch.setitem(Settings.model_config, "toml_file", tmp_path / "toolatlas.toml")
    monkeypatch.setenv("TOOLATLAS_SEED", "4")
    settings = read_settings()
    assert (settings.margin, settings.seed, settings.ingest_paths) == (0.05, 4, ("a", "b"))


def test_a_misspelt_setting_is_named(home, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_SEEED", "1")
    with pytest.raises(ValueError, match="did you mean TOOLATLAS_SEED"):
        read_settings()


def test_other_programs_are_told_once(home, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "mine")
    prepare_environment(read_settings())
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "mine"
    assert os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] == "false"
    assert home.is_dir()


def test_running_servers_are_used_and_what_the_environment_names_stays(home, monkeypatch):
    from tasks.processes import Service, write_services

    for name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    home.mkdir()
    assert read_settings().prefect_api is None
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        born = psutil.Process().create_time()
        service = Service(os.getpid(), born, "log", f"http://127.0.0.1:{port}", port)
        write_services(home, {"prefect": service, "mlflow": service})
        settings = read_settings()
        assert settings.prefect_api == f"http://127.0.0.1:{port}/api"
        assert settings.tracking_uri == f"http://127.0.0.1:{port}"
        assert settings.owns_artifacts
        assert settings.with_home(home / "demo").prefect_api is None
        monkeypatch.setenv("PREFECT_API_URL", "http://elsewhere/api")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
        settings = read_settings()
        assert (settings.prefect_api, settings.tracking_uri) == (
            "http://elsewhere/api", "http://elsewhere",
        )  # fmt: skip
        assert not settings.owns_artifacts
        monkeypatch.delenv("MLFLOW_TRACKING_URI")
        dead = replace(service, started=born - 100)
        write_services(home, {"prefect": dead, "mlflow": dead})
        assert read_settings().tracking_uri == f"sqlite:///{home}/mlflow.db"


def test_the_code_version_is_stable_within_a_process():
    assert code_version() == code_version()
    assert "+" in code_version()


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("HOME", "/tmp/what?/x", "expected a folder without"),
        ("HOME", "/tmp/a%20b", "expected a folder without"),
        ("MLFLOW_URI", "https://user:secret@host/x", "expected no name or password"),
        ("TIME_ZONE", "Mars/Olympus", "expected an IANA time zone"),
    ],
)
def test_settings_that_would_go_wrong_later_are_refused_now(home, monkeypatch, name, value, told):
    monkeypatch.setenv(f"TOOLATLAS_{name}", value)
    with pytest.raises(ValidationError, match=told) as caught:
        read_settings()
    (sentence,) = faults(caught.value)
    assert sentence.startswith(f"setting TOOLATLAS_{name}: ")
    assert "secret" not in sentence


def test_an_empty_text_unsets_a_setting(home, monkeypatch):
    for name in ("MLFLOW_URI", "TRAIN_POOL", "PRIMARY_SUITE"):
        monkeypatch.setenv(f"TOOLATLAS_{name}", "")
    settings = read_settings()
    assert settings.mlflow_uri is settings.train_pool is settings.primary_suite is None


def test_a_run_has_more_patience_than_a_command(home, monkeypatch):
    assert run_settings().lock_wait_s == 600
    assert read_settings().lock_wait_s == 30
    monkeypatch.setenv("TOOLATLAS_LOCK_WAIT_S", "900")
    assert run_settings().lock_wait_s == 900


def test_no_proxy_stands_between_this_machine_and_itself(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "intranet,localhost")
    monkeypatch.delenv("no_proxy", raising=False)
    assert loopback_without_proxy() == {
        "NO_PROXY": "intranet,localhost,127.0.0.1",
        "no_proxy": "127.0.0.1,localhost",
    }
