"""Training on another work pool: a run of the deployment ``train_planner``, waited for."""

import logging
import time
from typing import Any, cast

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling

from tasks import orchestration
from tasks.errors import ServiceError
from tasks.graphs import learning_data
from tasks.registry import Registry
from tasks.settings import Settings
from tasks.training import fingerprint

log = logging.getLogger("toolatlas")

DEPLOYMENT = "train_planner/train_planner"


def train_on_pool(settings: Settings, mode: str) -> dict[str, Any]:
    """Train on the pool of the setting ``train_pool``; the object of ``train --json``.

    Raises:
        ServiceError: No worker is online, or the run did not end well in time.
    """
    pool = str(settings.train_pool)
    _require_worker(pool)
    registry = Registry(settings)
    started = time.monotonic()
    log.info("training is handed to the work pool %s", pool)
    wait_s = settings.train_timeout_s
    run = cast(
        FlowRun,
        run_deployment(DEPLOYMENT, parameters={"mode": mode}, timeout=wait_s, poll_interval=2),
    )
    _require_success(run, pool, wait_s)
    made = registry.made_by(str(run.id))
    told = f"trained on the work pool {pool}" if made else "the state is trained already"
    return {
        "trained": made is not None,
        "train_reason": f"{told} (flow run {run.name})",
        "version": made or registry.trained(fingerprint(settings, learning_data(settings))),
        "train_seconds": round(time.monotonic() - started, 1) if made else 0.0,
    }


def _require_worker(pool: str) -> None:
    start = f"start one with: prefect worker start --pool {pool}"
    with get_client(sync_client=True) as client:
        try:
            online = orchestration.workers(client, pool)
            client.read_deployment_by_name(DEPLOYMENT)
        except ObjectNotFound as error:
            raise ServiceError(
                f"expected the work pool {pool} (setting train_pool) and the deployment "
                f"{DEPLOYMENT} on the Prefect server, they are not there: run make up."
            ) from error
    if not online:
        raise ServiceError(
            f"expected a worker of the work pool {pool} (setting train_pool), none is online: "
            f"{start}, or unset TOOLATLAS_TRAIN_POOL to train in place."
        )


def _require_success(run: FlowRun, pool: str, timeout_s: float) -> None:
    state = run.state
    if state is not None and state.is_completed():
        return
    if state is None or not state.is_final():
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(run.id, Cancelling(message="It took too long."))
        raise ServiceError(
            f"expected the training {run.name} on the work pool {pool} to end within "
            f"{timeout_s:g} s (setting train_timeout_s), it is {state.name if state else 'unknown'}"
            ": it is being cancelled; see its page in Prefect."
        )
    raise ServiceError(
        f"expected the training {run.name} on the work pool {pool} to complete, it is "
        f"{state.name}: {(state.message or 'without a message').splitlines()[0][:300]}"
    )
