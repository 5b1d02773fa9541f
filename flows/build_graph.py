"""The tool graph of the present data. Leaves an immutable version, none when nothing changed."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.events import announce, note_process
from tasks.settings import run_settings
from tasks.watching import dated


@flow(name="build_graph", flow_run_name=dated("build_graph"), on_running=[note_process])
def build_graph() -> dict[str, Any]:
    """Build, export and version the graph, and freeze the suites that are missing."""
    settings = run_settings()
    graph = steps.build_graph(settings)
    steps.diff_graph(settings, graph)
    steps.freeze_suites(settings)
    if graph["new"]:
        announce("graph.built", version=graph["version"])
    return graph


if __name__ == "__main__":
    build_graph()
