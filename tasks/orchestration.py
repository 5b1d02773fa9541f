"""What the Prefect server must know: pools, deployments, and which runs have lost their process."""

import contextlib
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import psutil
import yaml
from filelock import FileLock
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import FlowRun, StateType, WorkerStatus
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectAlreadyExists
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed

from tasks.errors import ServiceError
from tasks.settings import PROJECT_ROOT, Settings

_SILENT_S = 180
"""A run without a sign of life (a heartbeat comes every 30 s) for so long is dead."""
_ENDED = ("Completed", "Failed", "Cancelled", "Crashed")
_BEAT = "prefect.flow-run.heartbeat"
_LOST = "The process of this run is gone (killed, or the machine went down)."


@contextlib.contextmanager
def server(address: str) -> Iterator[SyncPrefectClient]:
    """A client of one Prefect server, whatever the environment says."""
    with (
        temporary_settings({PREFECT_API_URL: f"{address}/api"}),
        get_client(sync_client=True) as client,
    ):
        yield client


def connect(settings: Settings) -> None:
    """Start the server that a command has for itself where ``make up`` runs none.

    One at a time: two first ones would both create the schema, and one would die.
    """
    if settings.prefect_api is None:
        with FileLock(settings.home / "prefect.lock"):
            get_client(sync_client=True)


def make_pools(client: SyncPrefectClient, names: Iterable[str]) -> None:
    """Make the process work pools that are missing."""
    from prefect.workers.process import ProcessWorker

    for name in sorted(names):
        with contextlib.suppress(ObjectAlreadyExists):
            client.create_work_pool(
                WorkPoolCreate(
                    name=name,
                    type="process",
                    description="Flow runs of Toolatlas, each in a process of its own.",
                    base_job_template=ProcessWorker.get_default_base_job_template(),
                )
            )


def workers(client: SyncPrefectClient, pool: str, since: float = 0.0) -> list[str]:
    """Names of the workers of a pool that have reported lately, and after a moment if given."""
    return [
        worker.name
        for worker in client.read_workers_for_work_pool(pool)
        if worker.status == WorkerStatus.ONLINE
        and worker.last_heartbeat_time
        and worker.last_heartbeat_time.timestamp() > since
    ]


def deploy(
    client: SyncPrefectClient,
    settings: Settings,
    environment: Mapping[str, str],
    say: Callable[[str], None],
) -> bool:
    """Apply prefect.yaml when it, or what it is filled with, changed; False when it stands.

    Schedules and automations that somebody paused in the UI stay paused until then.
    """
    file = PROJECT_ROOT / "prefect.yaml"
    text = file.read_text()
    filled = {
        "TOOLATLAS_TIME_ZONE": settings.time_zone,
        "TOOLATLAS_TRAIN_POOL": settings.train_pool or "toolatlas",
    }
    told = [text, *(f"{k}={v}" for k, v in sorted(filled.items())), environment["TOOLATLAS_ROOT"],
            environment["TOOLATLAS_HOME"], environment["MLFLOW_TRACKING_URI"]]  # fmt: skip
    digest = hashlib.sha256("\0".join(told).encode()).hexdigest()
    mark = settings.home / "prefect" / "applied"
    names = {entry["name"] for entry in yaml.safe_load(text)["deployments"]}
    there = {deployment.name for deployment in client.read_deployments()}
    if names <= there and mark.exists() and mark.read_text() == digest:
        return False
    say("applying prefect.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all",
         "--prefect-file", str(file)],
        cwd=PROJECT_ROOT,
        env={**environment, **filled},
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise ServiceError(f"expected prefect.yaml to be applied, got: {' '.join(lines[-4:])}")
    mark.write_text(digest)
    return True


# --- runs without a process ----------------------------------------------------------------------


def watch_for_zombies(client: SyncPrefectClient) -> None:
    """Make the automation that marks a run as Crashed when its heartbeat stops."""
    name = "Toolatlas: runs without heartbeat are Crashed"
    if client.read_automations_by_name(name):
        return
    client.create_automation(
        AutomationCore(
            name=name,
            description="A killed process cannot say that it ended; its heartbeat stops.",
            trigger=EventTrigger(
                after={_BEAT},
                expect={_BEAT, *(f"prefect.flow-run.{state}" for state in _ENDED)},
                match={"prefect.resource.id": ["prefect.flow-run.*"]},  # type: ignore[arg-type]
                for_each={"prefect.resource.id"},
                posture=Posture.Proactive,
                threshold=1,
                within=timedelta(seconds=_SILENT_S),
            ),
            actions=[ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=_LOST)],
        )
    )


def close_zombies(client: SyncPrefectClient) -> list[str]:
    """Mark runs whose process is gone as Crashed, which frees their slots; their names."""
    unfinished = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    closed = []
    for run in client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": unfinished}}})
    ):
        if _is_lost(client, run):
            client.set_flow_run_state(run.id, Crashed(message=_LOST), force=True)
            closed.append(run.name)
    for task_run in client.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": ["CRASHED"]}}}),
        task_run_filter=TaskRunFilter.model_validate({"state": {"type": {"any_": ["RUNNING"]}}}),
    ):
        client.set_task_run_state(task_run.id, Crashed(message=_LOST), force=True)
    return closed


def _is_lost(client: SyncPrefectClient, run: FlowRun) -> bool:
    pid = (run.infrastructure_pid or "").rpartition(":")[2]
    # A run that is tried again keeps its first start and, until it runs, its first process id.
    began = run.state.timestamp if run.state else run.start_time
    if pid.isdigit() and began and run.state_type != StateType.PENDING:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(pid))
            # One that was born after the run began only has the same number.
            born_later = process.create_time() > began.timestamp() + 10
            return bool(born_later or process.status() == psutil.STATUS_ZOMBIE)
        return True
    since = datetime.now(UTC) - timedelta(seconds=_SILENT_S)
    return bool(began and began < since and not _beats(client, run, since))


def _beats(client: SyncPrefectClient, run: FlowRun, since: datetime) -> bool:
    found = client.request(
        "POST",
        "/events/filter",
        json={
            "filter": {
                "event": {"name": [_BEAT]},
                "resource": {"id": [f"prefect.flow-run.{run.id}"]},
                "occurred": {"since": since.isoformat()},
            },
            "limit": 1,
        },
    )
    return bool(found.json()["events"])
