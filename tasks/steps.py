"""The steps of the line as Prefect tasks: open, call, log one line, close.

None of them caches and none retries: each is safe to run twice, and does its work once.
"""

import logging
from typing import Any

from prefect import task

from tasks import catalogue, evaluation, graphs, handover, ingesting, promotion, training
from tasks.locks import alone
from tasks.progress import Progress
from tasks.settings import Settings

logging.getLogger("toolatlas").setLevel(logging.INFO)  # a flow run shows what its steps say


@task(name="ingest", task_run_name="ingest {paths}")
def ingest(settings: Settings, paths: list[str], source: str | None = None) -> dict[str, Any]:
    """Store what the paths hold; counts per file and in total."""
    with Progress("ingest") as progress:
        return ingesting.ingest(settings, paths, source=source, progress=progress.records)


@task(name="sync catalogue", task_run_name="sync catalogue {path}")
def sync_catalogue(settings: Settings, path: str, source: str | None = None) -> dict[str, Any]:
    """Make a catalogue what its file says; what was added, removed, changed."""
    return catalogue.sync(settings, path, source)


@task(name="build graph")
def build_graph(settings: Settings) -> dict[str, Any]:
    """Build, export and version the tool graph of the present data."""
    return graphs.build(settings)


@task(name="diff graph")
def diff_graph(settings: Settings, graph: dict[str, Any]) -> dict[str, Any] | None:
    """What changed since the version before, or None when the graph is the same."""
    if not graph["new"]:
        return None
    return graphs.diff_ids(settings, graph["parent"], graph["version"])


@task(name="freeze suites")
def freeze_suites(settings: Settings, refresh: bool = False) -> list[dict[str, Any]]:
    """Make the regression sets that are missing; with refresh, new versions of the others."""
    return [suite.to_json() for suite in graphs.freeze(settings, refresh=refresh)]


@task(name="train planner")
def train_planner(settings: Settings, mode: training.TrainMode = "auto") -> dict[str, Any]:
    """Train, log and register GTool when something changed."""
    with alone(settings, "train"), Progress("train") as progress:
        return training.train(settings, mode, progress=progress.epoch).to_json()


@task(name="train elsewhere")
def train_elsewhere(settings: Settings, mode: training.TrainMode) -> dict[str, Any]:
    """Let the work pool of the setting ``train_pool`` train; wait for the end."""
    return handover.train_on_pool(settings, mode)


@task(name="run regressions")
def run_regressions(settings: Settings) -> dict[str, Any]:
    """Champion, challenger and baselines on every suite, and the decision."""
    with alone(settings, "regress"), Progress("regress") as progress:
        return evaluation.regress(settings, progress=progress.say)


@task(name="promote planner")
def promote_planner(settings: Settings, report: dict[str, Any]) -> dict[str, Any]:
    """Move the champion alias when the report says so."""
    return promotion.promote(settings, report)
