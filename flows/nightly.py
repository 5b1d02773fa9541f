"""The whole line once: the file to read first.

Each step leaves its result in the warehouse, on disk or in MLflow and is safe to run again, so a
night that was killed is finished by the next one.
"""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.events import note_process
from tasks.locks import alone
from tasks.settings import run_settings
from tasks.training import TrainMode
from tasks.watching import dated, tell_failure


@flow(
    name="nightly",
    flow_run_name=dated("nightly"),
    on_failure=[tell_failure],
    on_crashed=[tell_failure],
    on_running=[note_process],
)
def nightly(
    train: TrainMode = "auto",
    ingest_paths: list[str] | None = None,
    refresh_suites: bool = False,
) -> dict[str, Any]:
    """Ingest, build, train, measure, decide, promote.

    Args:
        train: ``auto`` trains when something changed, ``always`` in any case, ``never`` not.
        ingest_paths: What to ingest first; default: the setting ``ingest_paths``.
        refresh_suites: Make new versions of suites that have new held-out rows.
    """
    with alone(run_settings(), "nightly"):
        return _line(train, ingest_paths, refresh_suites)


def _line(train: TrainMode, ingest_paths: list[str] | None, refresh_suites: bool) -> dict[str, Any]:
    settings = run_settings()
    paths = ingest_paths or list(settings.ingest_paths)
    ingested = steps.ingest(settings, paths) if paths else None
    graph = steps.build_graph(settings)
    diff = steps.diff_graph(settings, graph)
    suites = steps.freeze_suites(settings, refresh_suites)
    trained = (
        steps.train_elsewhere(settings, train)
        if settings.train_pool and train != "never"
        else steps.train_planner(settings, train)
    )
    report = steps.run_regressions(settings)
    promotion = steps.promote_planner(settings, report)
    result = {
        **trained,
        "decision": report["decision"],
        "graph": graph,
        "diff": diff,
        "ingested": ingested,
        "suites": suites,
        "report": report,
        "promotion": promotion,
    }
    steps.tell_night(settings, result)
    return result


if __name__ == "__main__":
    nightly()
