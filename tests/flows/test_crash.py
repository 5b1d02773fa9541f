"""kill -9 in the middle of a training and of a regression: the next run finishes the job once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tasks.registry import Registry
from tasks.settings import read_settings
from tests.factories import chores

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("encoder")]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ,
    )


def finish(*arguments):
    child = start(*arguments)
    out, _ = child.communicate(timeout=300)
    assert child.returncode in (0, 3), arguments
    return json.loads(out)


def kill_when(child, condition, patience=120):
    """SIGKILL as soon as the condition holds; fails when the process ends before."""
    deadline = time.monotonic() + patience
    while not condition():
        assert child.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()


def test_a_killed_training_resumes_and_registers_one_version(home, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_MAX_EPOCHS", "12")
    finish("ingest", str(chores(tmp_path / "chores")))
    finish("graph", "build")
    states = home / "training"
    child = start("train")
    kill_when(child, lambda: any(states.glob("*/resume/*")))
    assert Registry(read_settings()).latest() is None
    resumed = finish("train")
    assert (resumed["trained"], resumed["version"]) == (True, "1")
    registry = Registry(read_settings())
    versions = registry._versions()
    assert len(versions) == 1
    runs = registry._client.search_runs([registry.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"]
    assert not list(states.glob("*"))
    # The same weights as a training that nobody killed.
    again = finish("train", "--train", "always")
    assert again["version"] == "2"
    hashes = {registry.version(n).tags["weights_hash"] for n in ("1", "2")}
    assert len(hashes) == 1


def test_a_killed_regression_leaves_no_report_and_the_next_one_makes_it(home, tmp_path):
    finish("ingest", str(chores(tmp_path / "chores")))
    finish("graph", "build")
    finish("train")
    child = start("regress")
    seen = time.monotonic()
    kill_when(child, lambda: time.monotonic() - seen > 12)
    assert finish("status")["last_report"] is None
    report = finish("regress")
    assert report["new"]
    assert finish("regress") == {**report, "new": False}
    assert finish("status")["last_report"]["id"] == report["id"]
