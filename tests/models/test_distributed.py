"""Training in several processes: the step of one process, equal weights, no endless waiting."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.distributed import World, join
from tests.models import ranks

SCRIPT = Path(ranks.__file__)
ROOT = SCRIPT.parents[2]


@pytest.fixture(scope="module")
def pair():
    """What two processes found, this one being the first; the second dies at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"TORCHELASTIC_RUN_ID": "test", "LOCAL_RANK": "0", "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        env=os.environ | shared | {"RANK": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (shared | {"RANK": "0"}).items():
                patch.setenv(name, value)
            with join(timeout_s=30.0) as world:
                assert world == World.current() == World(0, 2)
                first = ranks.play(world)
        second = json.loads(child.communicate(timeout=30)[0])
        assert child.returncode == 9
    finally:
        child.kill()
    assert World.current() == World()
    return first, second


def flat(values):
    return torch.cat([torch.tensor(value).flatten() for value in values if value is not None])


def test_shares_hold_every_row_once_in_order():
    for count in range(8):
        for size in range(1, 5):
            parts = [World(rank, size).share(list(range(count))) for rank in range(size)]
            assert [row for part in parts for row in part] == list(range(count))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert World(1, 2).share(torch.arange(5)).tolist() == [2, 3, 4]


def test_a_rank_outside_its_world_is_refused():
    with pytest.raises(ValueError, match=r"rank in 0\.\.1, got 2"):
        World(2, 2)


def test_a_process_alone_is_a_world_in_which_nothing_happens():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([1.0, 2.0])
    with join() as world:
        assert world == World.current() == World(0, 1)
        assert world.first
        world.average([weight], 3)
        world.check_same("anything", "a")
        assert world.tell("a") == "a"
        assert world.total([1.5]) == [1.5]
    assert weight.grad.tolist() == [1.0, 2.0]


@pytest.mark.slow
def test_two_processes_make_the_steps_of_one(pair):
    first, expected = pair[0], ranks.train(World())
    assert first["told"] == "Grüße"
    for grads, alone in zip(first["grads"], expected["grads"], strict=True):
        assert [g is None for g in grads] == [g is None for g in alone]
        assert torch.allclose(flat(grads), flat(alone), rtol=0.0, atol=1e-6)
    for name in ("weights", "losses"):
        assert torch.allclose(flat(first[name]), flat(expected[name]), atol=1e-5)


@pytest.mark.slow
def test_two_processes_train_the_planner_of_one(pair):
    found, expected = pair[0]["planner"], ranks.planner()["planner"]
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.allclose(torch.tensor(found[name]), torch.tensor(weight), atol=1e-5), name


@pytest.mark.slow
def test_both_processes_hold_the_same_to_the_last_bit(pair):
    first, second = pair
    for name in ("told", "grads", "losses", "weights", "planner", "hash"):
        assert first[name] == second[name]


@pytest.mark.slow
def test_other_weights_in_some_process_are_noticed_in_all(pair):
    for found in pair:
        assert "weights to be the same in all 2 processes" in found["differ"]
        assert "process 0 in 1;" in found["differ"]


@pytest.mark.slow
def test_a_process_that_dies_does_not_leave_the_other_waiting(pair):
    assert "one is gone" in pair[0]["lost"]
