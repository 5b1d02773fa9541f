"""What a flow tells the Prefect server beside its state: what it changed, and its process.

The events start the next stage through the triggers of prefect.yaml.
"""

import os
from typing import Any

from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.events import emit_event
from prefect.flows import Flow


def announce(event: str, **payload: Any) -> None:
    """Emit ``toolatlas.<event>``; silent within another flow's run, which goes on by itself."""
    run = runtime.flow_run
    if run.id is None or run.parent_flow_run_id is not None:
        return
    emit_event(
        f"toolatlas.{event}",
        resource={"prefect.resource.id": f"toolatlas.{event.split('.')[0]}"},
        payload=payload,
    )


def note_process(flow: Flow[Any, Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Write the process id on the run, so that a run whose process is gone can be told (hook)."""
    del flow, state
    with get_client(sync_client=True) as client:
        client.update_flow_run(flow_run.id, infrastructure_pid=str(os.getpid()))
