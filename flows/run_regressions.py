"""The planning regression. Needs suites and a trained planner; leaves a report with a decision."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.events import announce, note_process
from tasks.settings import run_settings
from tasks.watching import dated


@flow(name="run_regressions", flow_run_name=dated("run_regressions"), on_running=[note_process])
def run_regressions() -> dict[str, Any]:
    """Measure champion, challenger and baselines on every suite and decide."""
    settings = run_settings()
    steps.freeze_suites(settings)
    report = steps.run_regressions(settings)
    if report["new"]:
        announce("report.decided", report=report["id"], decision=report["decision"])
    return report


if __name__ == "__main__":
    run_regressions()
