"""Processes that outlive the command that started them, known by id and start time."""

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import psutil

HOST = "127.0.0.1"
MARK = "_TOOLATLAS_UP"
"""In the environment of every process that ``up`` starts, and of what those start: whose it is."""

_CLOCK_S = 2.0
"""How far two readings of one start time may lie apart."""


@dataclass(frozen=True, slots=True)
class Service:
    """One long-running process, with what is needed to find it again and to use it."""

    pid: int
    started: float
    log: str
    address: str | None = None
    port: int | None = None
    api: str | None = None
    """Of a worker: the Prefect server that it works for."""

    @property
    def alive(self) -> bool:
        """Whether that very process is there; another one of the same id is not it."""
        return is_same(self.pid, self.started)

    @property
    def reachable(self) -> bool:
        """Whether it is alive and its port answers."""
        return self.alive and (self.port is None or answers(self.port))


_FIELDS = {field.name for field in fields(Service)}


def services_file(home: Path) -> Path:
    """Where ``up`` writes what it started."""
    return home / "services.json"


def read_services(home: Path) -> dict[str, Service]:
    """What ``up`` started last in this home; empty when it is down."""
    try:
        text = services_file(home).read_text()
    except FileNotFoundError:
        return {}
    try:
        return {
            name: Service(**{key: entry[key] for key in entry.keys() & _FIELDS})
            for name, entry in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"expected {services_file(home)} as make up writes it, got something else ({error}): "
            "remove the file, end the processes it names, and run make up."
        ) from error


def write_services(home: Path, services: Mapping[str, Service]) -> None:
    """Write the file in one go, or take it away when nothing runs."""
    target = services_file(home)
    if not services:
        target.unlink(missing_ok=True)
        return
    draft = target.with_suffix(".json.new")
    draft.write_text(json.dumps({n: asdict(s) for n, s in services.items()}, indent=2) + "\n")
    draft.replace(target)


def running_address(home: Path, name: str) -> str | None:
    """Address of a service that is alive and answers, else None."""
    service = read_services(home).get(name)
    return service.address if service and service.reachable else None


def is_same(pid: int, started: float) -> bool:
    """Whether the process of this id is the one that was started then."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        dead = process.status() == psutil.STATUS_ZOMBIE
        return bool(abs(process.create_time() - started) < _CLOCK_S and not dead)
    return False


def answers(port: int) -> bool:
    """Whether somebody listens on a loopback port."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def holder_of(port: int) -> str | None:
    """Who listens on a port, as far as this user may know; None when it can be bound."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            return None
        except OSError:
            pass
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                    return f"process {process.pid} ({' '.join(process.cmdline())[:120]})"
    return "another process"


def listens(service: Service) -> bool:
    """Whether it is this service, or a process of its, that listens on its port."""
    with contextlib.suppress(psutil.Error):
        own = psutil.Process(service.pid)
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == service.port
            for process in [own, *own.children(recursive=True)]
            for connection in process.net_connections(kind="tcp")
        )
    return False


def start(
    name: str,
    home: Path,
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    **known: Any,
) -> Service:
    """Start a process in a session of its own, with its output in ``home/logs``."""
    log = home / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**environment, MARK: _mark(name, home)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    started = psutil.Process(process.pid).create_time()
    return Service(process.pid, started, str(log), **known)


def stop(names: Iterable[str], home: Path, services: Mapping[str, Service], grace_s: float) -> int:
    """End services and everything that they started: asked first, killed after the grace.

    Returns:
        How many processes were ended.
    """
    names = list(names)
    ended: set[int] = set()
    deadline = time.monotonic() + grace_s
    asked: set[int] = set()
    while found := _processes(names, home, services):
        if time.monotonic() > deadline + grace_s:
            raise RuntimeError(
                f"expected {', '.join(names)} to end, still there: "
                f"{', '.join(str(process.pid) for process in found)}; end them by hand."
            )
        late = time.monotonic() > deadline
        for process in found:
            with contextlib.suppress(psutil.Error):
                if late:
                    process.kill()
                elif process.pid not in asked:
                    process.terminate()
        asked |= {process.pid for process in found}
        ended |= asked
        psutil.wait_procs(found, timeout=0.3)
    return len(ended)


def _processes(
    names: Iterable[str], home: Path, services: Mapping[str, Service]
) -> list[psutil.Process]:
    """Every live process of these services, children in sessions of their own included."""
    marks = {_mark(name, home) for name in names}
    known = {services[name].pid for name in names if name in services and services[name].alive}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.pid in known or process.environ().get(MARK) in marks:
                found.append(process)
    return found


def _mark(name: str, home: Path) -> str:
    return f"{name}:{home}"
