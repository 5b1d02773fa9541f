"""Starts that must fail: one sentence, and nothing is left."""

import socket
import sys

import psutil
import pytest

from tasks import services
from tasks.errors import ServiceError
from tasks.processes import MARK, read_services
from tasks.services import down, environment, running, up
from tasks.settings import read_settings


@pytest.fixture
def free(home, monkeypatch):
    """Settings of an empty home with two free ports."""
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TOOLATLAS_PREFECT_PORT", str(a.getsockname()[1]))
        monkeypatch.setenv("TOOLATLAS_MLFLOW_PORT", str(b.getsockname()[1]))
    return read_settings()


def started(home):
    """Live processes that ``up`` of this home left."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").endswith(f":{home}"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_a_taken_port_names_setting_and_holder(free):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free.mlflow_port))
        listener.listen()
        with pytest.raises(ServiceError) as caught:
            up(free)
    message = str(caught.value)
    assert f"port {free.mlflow_port}" in message
    assert "TOOLATLAS_MLFLOW_PORT" in message
    assert f"process {psutil.Process().pid} (" in message
    assert "\n" not in message
    assert running(free) == {}
    assert started(free.home) == []


def test_one_port_for_two_servers_is_refused(free, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_MLFLOW_PORT", str(free.prefect_port))
    with pytest.raises(ServiceError, match="expected two ports"):
        up(read_settings())


def test_a_failed_start_ends_what_it_started_and_names_the_log(free, monkeypatch):
    def command(settings, name, port):
        if name == "mlflow":
            return [sys.executable, "-c", "raise SystemExit('no such store')"]
        return [sys.executable, "-c", "import time; time.sleep(600)"]

    monkeypatch.setattr(services, "_command", command)
    with pytest.raises(ServiceError, match=r"mlflow server to start.*no such store.*mlflow\.log"):
        up(free)
    assert read_services(free.home) == {}
    assert started(free.home) == []


def test_down_is_fine_where_nothing_runs(settings):
    told = []
    assert down(settings) == 0
    settings.home.mkdir()
    assert down(settings, told.append) == 0
    assert told == ["nothing was running"]


def test_a_server_of_somebody_else_is_used_and_a_password_stays_out_of_sight(home, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_MLFLOW_URI", "http://mlflow.example:80")
    told = environment(read_settings(), "http://127.0.0.1:1")
    assert told["MLFLOW_TRACKING_URI"] == "http://mlflow.example:80"
    monkeypatch.setenv("TOOLATLAS_MLFLOW_URI", "postgresql://me:secret@db/mlflow")
    settings = read_settings()
    told = environment(settings, "http://127.0.0.1:1")
    assert told["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:5000"
    assert "secret" in told["MLFLOW_BACKEND_STORE_URI"]
    assert "secret" not in " ".join(services._command(settings, "mlflow", 5000))
