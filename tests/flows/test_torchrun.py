"""``toolatlas train`` in two processes: one leads, logs and registers, the other trains along."""

import json
import os
import subprocess
import sys

import pytest

from tasks.registry import Registry
from tasks.settings import read_settings
from tests.factories import chores

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("encoder")]


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments, "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_two_processes_register_one_version_and_know_when_nothing_is_new(home, tmp_path):
    run("-m", "flows.cli", "ingest", str(chores(tmp_path / "chores")))
    run("-m", "flows.cli", "graph", "build")
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    train = [*together, "-m", "flows.cli", "train"]
    first = run(*train)
    assert (first["trained"], first["version"]) == (True, "1")
    registry = Registry(read_settings())
    runs = registry._client.search_runs([registry.experiment_id])
    assert [run.info.status for run in runs] == ["FINISHED"]
    assert run(*train)["trained"] is False
