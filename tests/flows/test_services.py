"""Real services on free ports in a temporary home: up, a scheduled night, crashes, down.

The command line and ``up`` run as processes of their own, as a user starts them.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mlflow
import psutil
import pytest

from tasks.processes import MARK
from tasks.registry import MODEL
from tests.factories import chores, trajectory, write_lines

pytestmark = pytest.mark.usefixtures("encoder")

FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Home:
    """A home with what one does to it from outside."""

    def __init__(self, folder):
        self.folder = folder / "home"
        self.chores = chores(folder / "chores")
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TOOLATLAS_", "PREFECT_", "MLFLOW_TRACKING"))
        }
        self.ports = free_ports(3)
        self.env = {
            **clean,
            "TOOLATLAS_HOME": str(self.folder),
            "TOOLATLAS_PREFECT_PORT": str(self.ports[0]),
            "TOOLATLAS_MLFLOW_PORT": str(self.ports[1]),
            "TOOLATLAS_INGEST_PATHS": json.dumps([str(self.chores)]),
            "TOOLATLAS_MAX_EPOCHS": "2",
            "TOOLATLAS_RESAMPLES": "200",
            "OMP_NUM_THREADS": "1",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
        }

    def start(self, module, *arguments, **env):
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.env, **env},
        )

    def services(self, action, code=0, **env):
        out, err = (child := self.start("flows.services", action, **env)).communicate(timeout=400)
        assert child.returncode == code, (out, err)
        return out + err

    def toolatlas(self, *arguments, code=0, **env):
        child = self.start("flows.cli", *arguments, "--json", **env)
        out, err = child.communicate(timeout=400)
        assert child.returncode == code, (out, err)
        return json.loads(out)

    @property
    def running(self):
        return json.loads((self.folder / "services.json").read_text())

    def api(self, path, body=None, method="POST"):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports[0]}/api{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Content-Type": "application/json"},
        )
        for pause in (1, 2, 4, None):
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                # The server's database was busy: Prefect's own client tries again, too.
                if error.code != 503 or pause is None:
                    raise
                time.sleep(pause)

    def trigger(self, name, parameters=None, **env):
        """Start a deployment as the button in the UI does; the run's id."""
        deployment = self.api(f"/deployments/name/{name}/{name}", method="GET")
        variables = {"env": {**deployment["job_variables"]["env"], **env}}
        body = {"parameters": parameters or {}, "job_variables": variables}
        return self.api(f"/deployments/{deployment['id']}/create_flow_run", body)["id"]

    def run(self, run_id):
        return self.api(f"/flow_runs/{run_id}", method="GET")

    def runs(self, flow):
        body = {"flows": {"name": {"any_": [flow]}}, "sort": "EXPECTED_START_TIME_DESC"}
        found = self.api("/flow_runs/filter", body)
        return [run for run in found if run["state"]["type"] != "SCHEDULED"]

    def until(self, condition, patience=240):
        """Wait; the last value of the condition."""
        deadline = time.monotonic() + patience
        while not (value := condition()):
            assert time.monotonic() < deadline, (self.folder / "logs" / "worker.log").read_text()
            time.sleep(0.3)
        return value

    def ends(self, run_id, patience=240):
        """The type of the run's last state."""
        self.until(lambda: self.run(run_id)["state"]["type"] in FINAL, patience)
        return self.run(run_id)["state"]["type"]

    def busy_slots(self):
        found = self.api("/v2/concurrency_limits/filter", {})
        return [limit["name"] for limit in found if limit["active_slots"]]

    def processes(self):
        """Live processes that came of ``up``."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK, "").endswith(f":{self.folder}"):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found

    def client(self):
        return mlflow.MlflowClient(f"sqlite:///{self.folder / 'mlflow.db'}")

    def versions(self):
        return self.client().search_model_versions(f"name = '{MODEL}'")


def free_ports(count):
    listeners = [socket.socket() for _ in range(count)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@pytest.fixture(scope="module")
def night_home(tmp_path_factory):
    """A home whose services run, and are ended at last."""
    made = Home(tmp_path_factory.mktemp("services"))
    try:
        made.services("up")
        yield made
    finally:
        made.services("down")
        assert made.processes() == []


@pytest.fixture
def up(night_home):
    """That home; what an earlier test killed runs again."""
    if not all(psutil.pid_exists(service["pid"]) for service in night_home.running.values()):
        night_home.services("up")
    return night_home


def test_a_scheduled_night_completes_and_the_commands_use_the_servers(up):
    assert {"prefect", "mlflow", "worker"} == up.running.keys()
    assert up.running["mlflow"]["address"] == f"http://127.0.0.1:{up.ports[1]}"
    deployments = {d["name"]: d for d in up.api("/deployments/filter", {})}
    assert deployments.keys() == {
        "ingest_trajectories", "sync_catalogue", "build_graph", "train_planner", "run_regressions",
        "promote_planner", "nightly", "execute_plan",
    }  # fmt: skip
    (schedule,) = deployments["nightly"]["schedules"]
    assert schedule["schedule"]["cron"] == "0 2 * * *"
    assert schedule["schedule"]["timezone"] == "UTC"
    assert deployments["nightly"]["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"

    run_id = up.trigger("nightly")
    assert up.ends(run_id) == "COMPLETED"
    state = up.toolatlas("status")
    assert state["services"]["prefect"]["running"]
    assert state["services"]["worker"] == {
        "running": True, "address": None, "pid": up.running["worker"]["pid"],
        "log": str(up.folder / "logs" / "worker.log"),
    }  # fmt: skip
    assert "1" in state["models"].values()


@pytest.mark.slow
def test_commands_run_on_the_server_and_a_stage_inside_a_night_starts_no_other(up):
    nights = len(up.runs("nightly"))
    assert up.ends(up.trigger("nightly")) == "COMPLETED"
    again = up.toolatlas("nightly")
    assert not again["trained"]
    assert len(up.runs("nightly")) == nights + 2
    assert up.runs("run_regressions") == up.runs("promote_planner") == []


@pytest.mark.slow
def test_up_again_changes_nothing_and_a_dead_worker_comes_back(up):
    before = up.running
    assert "everything runs already" in up.services("up")
    assert up.running == before
    os.kill(before["worker"]["pid"], signal.SIGKILL)
    assert "worker had died" in up.services("up")
    after = up.running
    assert after["worker"]["pid"] != before["worker"]["pid"]
    assert after["prefect"] == before["prefect"]


@pytest.mark.slow
def test_stages_are_chained_by_what_they_changed(up):
    lines = [trajectory(f"late-{i}", "find_flight", "send_mail", "translate") for i in range(5)]
    file = write_lines(up.folder.parent / "late.jsonl", lines)
    up.toolatlas("ingest", str(up.chores))
    built = len(up.runs("build_graph"))
    first = up.trigger("ingest_trajectories", {"paths": [str(file)], "source": "chores"})
    assert up.ends(first) == "COMPLETED"
    up.until(lambda: len(up.runs("build_graph")) == built + 1)
    # Known rows change nothing, and nothing follows; nor does anything without a parameter.
    again = up.trigger("ingest_trajectories", {"paths": [str(file)], "source": "chores"})
    assert up.ends(again) == "COMPLETED"
    assert up.ends(up.trigger("sync_catalogue")) == "COMPLETED"
    up.toolatlas("train", "--train", "always")
    up.until(lambda: up.runs("promote_planner") and up.runs("promote_planner")[0]["end_time"])
    assert up.runs("run_regressions")[0]["state"]["type"] == "COMPLETED"
    assert len(up.runs("build_graph")) == built + 1


@pytest.mark.slow
def test_worker_and_run_killed_in_a_training_and_the_next_night_is_whole(up):
    known = {version.version for version in up.versions()}
    config = {"TOOLATLAS_MAX_EPOCHS": "60"}
    killed = up.trigger("nightly", **config)
    up.until(lambda: any((up.folder / "training").glob("*/resume/*")))
    os.kill(up.running["worker"]["pid"], signal.SIGKILL)
    os.kill(int(up.run(killed)["infrastructure_pid"]), signal.SIGKILL)
    time.sleep(1)
    assert up.run(killed)["state"]["type"] == "RUNNING"  # a zombie, with its slot
    assert up.busy_slots()
    said = up.services("up")
    assert "had lost its process: it is Crashed now" in said
    assert up.run(killed)["state"]["type"] == "CRASHED"
    assert up.busy_slots() == []
    assert up.ends(up.trigger("nightly", **config)) == "COMPLETED"
    new = [version for version in up.versions() if version.version not in known]
    assert len(new) == 1
    runs = up.client().search_runs(["1"], f"tags.fingerprint = '{new[0].tags['fingerprint']}'")
    assert [run.info.status for run in runs] == ["FINISHED"]
    again = up.toolatlas("nightly", **config)
    assert (again["trained"], again["report"]["new"]) == (False, False)


@pytest.mark.slow
def test_servers_killed_in_a_run_and_started_again_and_the_run_completes(up):
    run_id = up.trigger("nightly", {"train": "always"}, TOOLATLAS_MAX_EPOCHS="40")
    up.until(lambda: any((up.folder / "training").glob("*/resume/*")))
    for name in ("prefect", "mlflow"):
        os.kill(up.running[name]["pid"], signal.SIGKILL)
    assert "prefect had died" in up.services("up")
    assert up.run(run_id)["state"]["type"] == "RUNNING"  # not taken for a zombie
    assert up.ends(run_id) == "COMPLETED"
    assert up.busy_slots() == []


@pytest.mark.slow
def test_a_run_without_heartbeat_becomes_crashed_by_itself(up):
    run_id = up.trigger("nightly", {"train": "always"}, TOOLATLAS_MAX_EPOCHS="3000")
    up.until(lambda: any((up.folder / "training").glob("*/resume/*")))
    os.kill(up.running["worker"]["pid"], signal.SIGKILL)
    os.kill(int(up.run(run_id)["infrastructure_pid"]), signal.SIGKILL)
    assert up.ends(run_id, patience=400) == "CRASHED"
    assert up.busy_slots() == []


@pytest.mark.slow
def test_training_on_another_pool(up):
    pool = {"TOOLATLAS_TRAIN_POOL": "gpu"}
    child = up.start("flows.cli", "nightly", "--train", "always", **pool)
    _, err = child.communicate(timeout=300)
    assert child.returncode == 1
    assert "expected a worker of the work pool gpu (setting train_pool), none is online" in err
    assert "worker of pool gpu is ready" in up.services("up", **pool)
    measured = len(up.runs("run_regressions"))
    night = up.toolatlas("nightly", "--train", "always", **pool)
    assert night["trained"]
    assert "trained on the work pool gpu" in night["train_reason"]
    assert up.runs("train_planner")[0]["work_pool_name"] == "gpu"
    assert len(up.runs("run_regressions")) == measured  # part of the night, not of the chain


@pytest.mark.slow
def test_down_ends_a_run_in_the_middle_and_models_move_between_server_and_file(up):
    run_id = up.trigger("nightly", {"train": "always"}, TOOLATLAS_MAX_EPOCHS="3000")
    up.until(lambda: any((up.folder / "training").glob("*/resume/*")))
    if up.toolatlas("status")["models"]["champion"] is None:
        up.toolatlas("promote", "1", "--force")
    request = ("plan", "book me a flight to Bergen", "--top", "2")
    through_server = up.toolatlas(*request)
    up.services("down")
    assert up.processes() == []
    assert not (up.folder / "services.json").exists()
    # Without the server the same store holds the same models; and a new one of the file ...
    assert up.toolatlas(*request)["plans"] == through_server["plans"]
    made = up.toolatlas("train", "--train", "always")["version"]
    up.services("up")
    assert up.run(run_id)["state"]["type"] == "CRASHED"
    # ... is there through the server, with its artifacts.
    up.toolatlas("promote", made, "--force")
    assert up.toolatlas(*request)["model_version"] == made
    client = mlflow.MlflowClient(f"http://127.0.0.1:{up.ports[1]}")
    run = client.get_model_version(MODEL, made).run_id
    assert [item.path for item in client.list_artifacts(run)] == ["reports"]
    stored = client.get_model_version_download_uri(MODEL, made)
    assert stored.startswith((up.folder / "mlartifacts").as_uri())


@pytest.mark.slow
def test_mlflow_serves_the_champion(up, tmp_path):
    assert up.toolatlas("status")["models"]["champion"]
    # mlflow looks for uvicorn on the path, as it lies in an active environment.
    uvicorn = tmp_path / "uvicorn"
    uvicorn.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m uvicorn "$@"\n')
    uvicorn.chmod(0o755)
    port = str(up.ports[2])
    served = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "models", "serve", "-m", f"models:/{MODEL}@champion",
         "--env-manager", "local", "--host", "127.0.0.1", "-p", port, "--workers", "1"],
        env={**up.env, "MLFLOW_TRACKING_URI": up.running["mlflow"]["address"],
             "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
             "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        up.until(lambda: _ping(port))
        body = {
            "dataframe_records": [{"request": "book me a flight to Bergen"}],
            "params": {"top": 2},
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            (row,) = json.load(answer)["predictions"]
    finally:
        os.killpg(served.pid, signal.SIGKILL)
        served.wait()
    plans = up.toolatlas("plan", "book me a flight to Bergen", "--top", "2")["plans"]
    assert json.loads(row["plans"]) == plans


def _ping(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.slow
def test_two_nights_at_once_on_an_empty_home_make_one_of_everything(tmp_path):
    made = Home(tmp_path)
    children = [made.start("flows.cli", "nightly", "--json") for _ in range(2)]
    ended = [child.communicate(timeout=400) for child in children]
    assert [child.returncode for child in children] == [0, 0], [err for _, err in ended]
    nights = [json.loads(out) for out, _ in ended]
    assert sorted(night["trained"] for night in nights) == [False, True]
    assert sorted(night["report"]["new"] for night in nights) == [False, True]
    assert len({night["report"]["id"] for night in nights}) == 1
    assert len(made.versions()) == 1
    assert sum("nightly waits: process " in err for _, err in ended) == 1


def test_prefect_yaml_names_no_machine():
    text = (Path(__file__).resolve().parents[2] / "prefect.yaml").read_text()
    assert 'directory: "{{ $TOOLATLAS_ROOT }}"' in text
