"""The champion alias. Needs a challenger; leaves it champion when the gate says so."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.settings import read_settings
from tasks.watching import dated


@flow(name="promote_planner", flow_run_name=dated("promote_planner"))
def promote_planner() -> dict[str, Any]:
    """Compare the challenger with the champion and act on the decision."""
    settings = read_settings()
    report = steps.run_regressions(settings)
    return steps.promote_planner(settings, report)


if __name__ == "__main__":
    promote_planner()
