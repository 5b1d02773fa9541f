"""Long-running processes: found again by id and start time, ended whole, never a stranger."""

import os
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tasks.processes import (
    Service,
    answers,
    holder_of,
    is_same,
    listens,
    read_services,
    running_address,
    services_file,
    start,
    stop,
    write_services,
)

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
SLEEPER = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def family(home, child):
    """A service with a child in a session of its own; both are up."""
    command = [sys.executable, "-c", FAMILY, child]
    service = start("worker", home, command, os.environ, home)
    log = home / "logs" / "worker.log"
    while not log.read_text().strip():
        time.sleep(0.02)
    time.sleep(0.3)
    return service, int(log.read_text().split()[-1])


def ended(pid):
    """Gone, or waiting for its parent to look."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_process_is_known_by_its_start_too():
    born = psutil.Process().create_time()
    assert is_same(os.getpid(), born)
    assert not is_same(os.getpid(), born - 60)
    assert not is_same(2**22 + 1, born)


def test_children_end_with_their_service_whatever_their_session(folder):
    service, child = family(folder, SLEEPER)
    assert stop(["worker"], folder, {"worker": service}, 5) == 2
    assert not service.alive
    assert ended(child)
    assert stop(["worker"], folder, {"worker": service}, 5) == 0


def test_an_orphan_is_found_when_its_service_was_killed(folder):
    service, child = family(folder, SLEEPER)
    psutil.Process(service.pid).kill()
    psutil.wait_procs([psutil.Process(service.pid)], timeout=5)
    assert stop(["worker"], folder, {}, 5) == 1
    assert ended(child)


def test_who_does_not_listen_is_killed_after_the_grace(folder):
    service, child = family(folder, STUBBORN)
    stop(["worker"], folder, {"worker": service}, 0.5)
    assert ended(child)


def test_a_stranger_with_a_reused_id_is_left_alone(folder):
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        born = psutil.Process(stranger.pid).create_time()
        written = Service(stranger.pid, born - 100, "log")
        assert stop(["worker"], folder, {"worker": written}, 1) == 0
        assert stranger.poll() is None
        # Nor is a service of another home touched.
        other = start("worker", folder / "b", [sys.executable, "-c", SLEEPER], os.environ, folder)
        assert stop(["worker"], folder, {}, 1) == 0
        assert other.alive
        assert stop(["worker"], folder / "b", {}, 5) == 1
    finally:
        stranger.kill()
        stranger.wait()


def test_the_file_comes_and_goes_and_a_broken_one_is_explained(folder):
    assert read_services(folder) == {}
    service = Service(os.getpid(), psutil.Process().create_time(), "log", "http://127.0.0.1:1", 1)
    write_services(folder, {"prefect": service})
    assert read_services(folder) == {"prefect": service}
    assert service.alive
    assert running_address(folder, "prefect") is None  # alive, but nobody answers
    write_services(folder, {})
    assert not services_file(folder).exists()
    services_file(folder).write_text('{"prefect": 3}')
    with pytest.raises(ValueError, match=r"expected .*services\.json as make up writes it"):
        read_services(folder)


def test_the_holder_of_a_port_is_named():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert not answers(port)
        listener.listen()
        assert answers(port)
        assert f"process {os.getpid()} (" in holder_of(port)
    assert holder_of(port) is None


def test_only_the_owner_of_a_port_counts_as_the_service():
    born = psutil.Process().create_time()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert listens(Service(os.getpid(), born, "log", None, port))
        assert not listens(Service(os.getppid(), born, "log", None, port + 1))
    assert not listens(Service(os.getpid(), born, "log", None, port))
