"""The long-running services of a home: Prefect server, MLflow server and workers, up and down.

Everything listens on loopback only. What runs is written to ``services.json``; each process is
known by id and start time, so that a stranger with a reused id is never ended.
"""

import contextlib
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from tasks.errors import ServiceError
from tasks.processes import (
    HOST,
    Service,
    holder_of,
    listens,
    read_services,
    start,
    stop,
    write_services,
)
from tasks.progress import Progress
from tasks.settings import PROJECT_ROOT, Settings, loopback_without_proxy

POOL = "toolatlas"
GPU_POOL = "gpu"

_START_S = 240.0
"""A first start makes two databases; on a busy machine that takes a minute."""
_GRACE_S = 15.0
_HEALTH = {"prefect": "/api/health", "mlflow": "/health"}

Tell = Callable[[str], None]


def up(settings: Settings, tell: Tell = print) -> dict[str, Any]:
    """Start what does not run, tell the Prefect server what it must know, and say where all is.

    Args:
        settings: Home, ports, pools.
        tell: Takes a sentence for a person.

    Returns:
        As ``running``.

    Raises:
        ServiceError: A port is taken, or something did not start; nothing new is left behind.
    """
    settings.home.mkdir(parents=True, exist_ok=True)
    with FileLock(settings.home / "services.lock"):
        before = read_services(settings.home)
        services = {name: service for name, service in before.items() if service.alive}
        for name in sorted(before.keys() - services.keys()):
            tell(f"{name} had died: starting it again")
        started: list[str] = []
        try:
            _start_servers(settings, services, started, tell)
            _start_workers(settings, services, started, tell)
            if not started:
                tell("everything runs already")
        except BaseException:
            stop(reversed(started), settings.home, services, _GRACE_S)
            write_services(settings.home, {n: s for n, s in services.items() if n not in started})
            raise
    return running(settings)


def down(settings: Settings, tell: Tell = print) -> int:
    """End everything that ``up`` started in this home, flow runs included; how many processes."""
    if not settings.home.is_dir():
        return 0
    with FileLock(settings.home / "services.lock"):
        services = read_services(settings.home)
        workers = [_worker(pool) for pool in _pools(settings, services)]
        # Flow runs first: they tell the server that they were ended while it is still there.
        ended = stop(workers, settings.home, services, _GRACE_S)
        ended += stop(("prefect", "mlflow"), settings.home, services, _GRACE_S)
        write_services(settings.home, {})
    tell(f"{ended} processes ended" if ended else "nothing was running")
    return ended


def running(settings: Settings) -> dict[str, Any]:
    """Each service with ``running``, ``address`` (null for workers), ``pid`` and ``log``."""
    return {
        name: {
            "running": service.reachable,
            "address": service.address,
            "pid": service.pid,
            "log": service.log,
        }
        for name, service in read_services(settings.home).items()
    }


# --- servers -------------------------------------------------------------------------------------


def _start_servers(
    settings: Settings, services: dict[str, Service], started: list[str], tell: Tell
) -> None:
    ports = {"prefect": settings.prefect_port}
    if not _is_remote(settings):
        ports["mlflow"] = settings.mlflow_port
    missing = [name for name in ports if name not in services]
    stop(missing, settings.home, {}, _GRACE_S)  # what a killed one left holding its port
    for name in missing:
        _require_free(name, ports[name])
    if len(set(ports.values())) < len(ports):
        raise ServiceError(
            f"expected two ports, got {settings.prefect_port} for both servers: "
            "set TOOLATLAS_PREFECT_PORT or TOOLATLAS_MLFLOW_PORT to another one."
        )
    with contextlib.ExitStack() as first:
        # Commands of this home make the same tables on their first use.
        for name in missing:
            first.enter_context(FileLock(settings.home / f"{name}.lock"))
        _start_missing(settings, services, started, missing, ports)
        _await_health({name: services[name] for name in missing}, tell)


def _start_missing(
    settings: Settings,
    services: dict[str, Service],
    started: list[str],
    missing: list[str],
    ports: Mapping[str, int],
) -> None:
    for name in missing:
        services[name] = start(
            name,
            settings.home,
            _command(settings, name, ports[name]),
            environment(settings, _address(ports["prefect"])),
            PROJECT_ROOT,
            address=_address(ports[name]),
            port=ports[name],
        )
        started.append(name)
        write_services(settings.home, services)


def _require_free(name: str, port: int) -> None:
    holder = holder_of(port)
    if holder:
        raise ServiceError(
            f"expected port {port} to be free for the {name} server, it is held by {holder}: set "
            f"TOOLATLAS_{name.upper()}_PORT to another port, or end that process."
        )


def _command(settings: Settings, name: str, port: int) -> list[str]:
    where = ["--host", HOST, "--port", str(port), "--workers", "1"]
    if name == "prefect":
        return [sys.executable, "-m", "prefect", "server", "start", *where]
    artifacts = ["--artifacts-destination", str(settings.home / "mlartifacts")]
    return [sys.executable, "-m", "mlflow", "server", *where, *artifacts]


def _await_health(services: Mapping[str, Service], tell: Tell) -> None:
    """Wait until all answer; one that ends is reported at once."""
    begin = time.monotonic()
    waiting = dict(services)
    with Progress("starting") as progress:
        while waiting:
            waited = time.monotonic() - begin
            for name, service in list(waiting.items()):
                if not service.alive:
                    raise _ended(f"the {name} server", service)
                if _is_healthy(f"{service.address}{_HEALTH[name]}") and listens(service):
                    tell(f"{name} answers after {waited:.0f} s")
                    del waiting[name]
                elif waited > _START_S:
                    raise ServiceError(
                        f"expected the {name} server to answer on {service.address} within "
                        f"{_START_S:.0f} s, it did not: see {service.log}."
                    )
            if waiting:
                progress.say(f"{' and '.join(waiting)}, {waited:.0f} s")
                time.sleep(0.3)


def _ended(what: str, service: Service) -> ServiceError:
    lines = [x.strip() for x in Path(service.log).read_text(errors="replace").splitlines()]
    said = next((line for line in reversed(lines) if line), "it said nothing")[:300]
    return ServiceError(f"expected {what} to start, it ended: {said} (log: {service.log}).")


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=2) as r:
            return bool(r.status == 200)
    except OSError:
        return False


# --- workers -------------------------------------------------------------------------------------


def _start_workers(
    settings: Settings, services: dict[str, Service], started: list[str], tell: Tell
) -> None:
    from tasks import orchestration

    address = str(services["prefect"].address)
    env = environment(settings, address)
    pools = _served(settings)
    with orchestration.server(address) as client, Progress("prefect") as progress:
        orchestration.make_pools(client, {POOL, GPU_POOL, *pools})
        for lost in orchestration.close_zombies(client):
            tell(f"flow run {lost} had lost its process: it is Crashed now")
        begun = []
        for pool in pools:
            name = _worker(pool)
            if name in services and services[name].api == address:
                continue
            stop([name], settings.home, services, _GRACE_S)
            services[name] = start(
                name,
                settings.home,
                [sys.executable, "-m", "prefect", "worker", "start",
                 "--pool", pool, "--name", name, "--type", "process"],
                env,
                PROJECT_ROOT,
                api=address,
            )  # fmt: skip
            started.append(name)
            begun.append(pool)
            write_services(settings.home, services)
        orchestration.watch_for_zombies(client)
        if orchestration.deploy(client, settings, env, progress.say):
            tell("prefect.yaml is applied")
        for pool in begun:
            _await_worker(client, pool, services[_worker(pool)], progress)
            tell(f"worker of pool {pool} is ready")


def _await_worker(client: Any, pool: str, service: Service, progress: Progress) -> None:
    from tasks import orchestration

    begin = time.monotonic()
    while (waited := time.monotonic() - begin) < _START_S:
        if not service.alive:
            raise _ended(f"the worker of pool {pool}", service)
        if _worker(pool) in orchestration.workers(client, pool, service.started):
            return
        progress.say(f"waiting for the worker of pool {pool}, {waited:.0f} s")
        time.sleep(0.5)
    raise ServiceError(
        f"expected the worker of pool {pool} to report within {_START_S:.0f} s, it did not: "
        f"see {service.log}."
    )


def _worker(pool: str) -> str:
    return "worker" if pool == POOL else f"worker-{pool}"


def _pools(settings: Settings, services: Mapping[str, Service]) -> list[str]:
    """Pools that ``up`` may have started a worker for."""
    known = [name.removeprefix("worker-") for name in services if name.startswith("worker-")]
    return list(dict.fromkeys([*_served(settings), *known]))


def _served(settings: Settings) -> list[str]:
    """Pools that have their worker here."""
    return [POOL] if settings.train_pool in (None, POOL) else [POOL, str(settings.train_pool)]


# --- what both are told --------------------------------------------------------------------------


def environment(settings: Settings, prefect: str) -> dict[str, str]:
    """The environment of servers, workers and, through them, of scheduled flow runs."""
    home = settings.home
    mlflow = settings.mlflow_uri if _is_remote(settings) else _address(_mlflow_port(settings))
    return {
        **os.environ,
        **loopback_without_proxy(),
        "TOOLATLAS_HOME": str(home),
        "TOOLATLAS_ROOT": str(PROJECT_ROOT),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": f"{prefect}/api",
        "PREFECT_SERVER_UI_API_URL": f"{prefect}/api",
        "PREFECT_SERVER_API_HOST": HOST,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        # Slots of killed runs come back after a restart; in memory they would be lost for ever.
        "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": (
            "prefect.server.concurrency.lease_storage.filesystem"
        ),
        "PREFECT_SERVER_CONCURRENCY_INITIAL_DEPLOYMENT_LEASE_DURATION": "60",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # SQLite's; the default of 10 s gives error 503
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(home / "prefect" / "results"),
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "toolatlas",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "INFO",
        "PREFECT_CLI_PROMPT": "false",
        "MLFLOW_TRACKING_URI": str(mlflow),
        "MLFLOW_BACKEND_STORE_URI": settings.store_uri,  # here, as it may hold a password
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "GIT_PYTHON_REFRESH": "quiet",
        "DO_NOT_TRACK": "true",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _mlflow_port(settings: Settings) -> int:
    service = read_services(settings.home).get("mlflow")
    return service.port if service and service.alive and service.port else settings.mlflow_port


def _is_remote(settings: Settings) -> bool:
    """Whether the setting ``mlflow_uri`` names a server that somebody else runs."""
    return bool(settings.mlflow_uri and settings.mlflow_uri.startswith("http"))


def _address(port: int) -> str:
    return f"http://{HOST}:{port}"
