"""One GTool training. Needs a graph version; leaves an MLflow run and a registered challenger."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.events import announce, note_process
from tasks.settings import run_settings
from tasks.training import TrainMode
from tasks.watching import dated


@flow(name="train_planner", flow_run_name=dated("train_planner"), on_running=[note_process])
def train_planner(mode: TrainMode = "auto") -> dict[str, Any]:
    """Train on the latest graph version when something changed, or always, or never."""
    settings = run_settings()
    steps.freeze_suites(settings)
    trained = steps.train_planner(settings, mode)
    if trained["trained"]:
        announce("planner.registered", version=trained["version"])
    return trained


if __name__ == "__main__":
    train_planner()
