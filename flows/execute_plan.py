"""A request planned and executed: each call is a task run, what was done is tomorrow's trajectory.

Needs a graph version and tools that the settings allow. Leaves the journal of the calls, the files
that the tools made, and a trajectory in the warehouse.
"""

from typing import Any

from prefect import flow

from tasks import executing, steps
from tasks.asking import on_terminal
from tasks.events import note_process
from tasks.settings import run_settings
from tasks.watching import dated


@flow(name="execute_plan", flow_run_name=dated("execute_plan"), on_running=[note_process])
def execute_plan(
    request: str = "",
    planner: str = "tog",
    top: int = 3,
    resources: list[str] | None = None,
    resume: str | None = None,
) -> dict[str, Any]:
    """Plan, call the tools, store what happened.

    Args:
        request: What the user asks, or the path of a file with a plan.
        planner: By name.
        top: Ranked plans: the next one is tried where one fails.
        resources: ``TYPE=VALUE``: what is known besides what the request names.
        resume: Id of an execution that did not end: goes on with it.
    """
    settings = run_settings()
    prepared = steps.prepare_execution(
        settings, request, planner=planner, top=top, resources=resources or [], resume=resume
    )
    result = executing.run(settings, prepared, make_perform=steps.perform_calls, ask=on_terminal)
    steps.tell_execution(result)
    return result


if __name__ == "__main__":
    execute_plan()
