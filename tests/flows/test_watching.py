"""What a night leaves on the pages of Prefect and MLflow, read back from both."""

import logging
import re
import time

import pytest
from prefect import flow, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.context import FlowRunContext

from flows.build_graph import build_graph
from flows.ingest_trajectories import ingest_trajectories
from flows.nightly import nightly
from tasks import artifacts, watching
from tasks.artifacts import Page
from tasks.progress import Progress
from tasks.registry import Registry
from tasks.settings import read_settings
from tests.factories import chores

pytestmark = pytest.mark.usefixtures("prefect_server")


def newest_run():
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(sort="EXPECTED_START_TIME_DESC", limit=1)[0]


def pages_of(run_id):
    """Key to (type, line, data) of a run's artifacts."""
    chosen = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run_id]))
    with get_client(sync_client=True) as client:
        found = client.read_artifacts(artifact_filter=chosen)
    return {a.key: (a.type, a.description, a.data) for a in found if a.key}


def task_names(run_id, number):
    """Names of a run's task runs; the server records them a moment later."""
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    for _ in range(50):
        with get_client(sync_client=True) as client:
            found = client.read_task_runs(
                flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
            )
        if len(found) >= number:
            break
        time.sleep(0.2)
    return {task.name for task in found}


@pytest.mark.usefixtures("encoder")
@pytest.mark.slow
def test_a_night_is_told_by_prefect_and_mlflow_and_they_link_to_each_other(home, tmp_path):
    result = nightly(ingest_paths=[str(chores(tmp_path / "chores"))])
    run = newest_run()
    graph = result["graph"]["version"][:12]
    assert re.fullmatch(rf"nightly \d{{4}}-\d\d-\d\d \d\d:\d\d, graph {graph}", run.name)
    assert {"trained", f"decision {result['decision']}"} <= set(run.tags)

    stored = pages_of(run.id)
    assert set(stored) == {
        "night", "ingest", "graph", "training", "planners", "decision", "training-progress",
        "regression-progress",
    }  # fmt: skip
    assert stored["night"][1] == artifacts.brief(result)
    assert artifacts.headline(result) in stored["night"][2]
    assert run.name in stored["night"][2]
    assert "| trajectories | 210 | 210 | 0 | 0 | 0 |" in stored["ingest"][2]
    assert stored["training-progress"][:2] == ("progress", "train: done")
    assert stored["training-progress"][2] == 100.0
    assert task_names(run.id, 7) >= {
        "ingest chores",
        f"diff graph none to {graph}",
        "train planner (auto)",
        f"act on decision {result['decision']}, challenger 1",
    }

    # There and back: the night names MLflow's run, MLflow links to the page of the night.
    registry = Registry(read_settings())
    version = registry.version("1")
    mlflow_run = registry._client.get_run(version.run_id)
    assert version.run_id in stored["night"][2]
    assert mlflow_run.data.tags["prefect.flow_run_id"] == str(run.id)
    assert mlflow_run.data.tags["prefect.flow_run_name"] == run.name
    page = f"/runs/flow-run/{run.id}>"
    for text in (version.description, mlflow_run.data.tags["mlflow.note.content"]):
        assert page in text
        assert f"Decision: {result['decision']}" in text
        assert result["report"]["id"] in text
        assert "(10 tools, " in text

    # Nothing new: the page says that, too, and no bar appears.
    nightly(ingest_paths=[str(tmp_path / "chores")])
    run = newest_run()
    stored = pages_of(run.id)
    assert stored["night"][1].startswith("Nothing new, ")
    assert not {key for key in stored if key.endswith("progress")}
    assert "nothing to decide" in run.tags


def test_a_night_that_fails_says_so_on_its_page(home, tmp_path):
    with pytest.raises(Exception, match="does not exist"):
        nightly(ingest_paths=[str(tmp_path / "nowhere")])
    run = newest_run()
    assert re.fullmatch(r"nightly [-\d]+ [:\d]+", run.name)
    kind, line, text = pages_of(run.id)["night"]
    assert (kind, line) == ("markdown", "The night failed.")
    assert "UnreadableInput: expected a file" in text


def test_stages_are_named_and_shown_like_the_night(home, tmp_path):
    ingest_trajectories([str(chores(tmp_path / "chores"))])
    run = newest_run()
    assert re.fullmatch(r"ingest_trajectories [-\d]+ [:\d]+", run.name)
    assert set(pages_of(run.id)) == {"ingest"}
    version = build_graph()["version"]
    run = newest_run()
    assert run.name.endswith(f", graph {version[:12]}")
    pages = pages_of(run.id)
    assert set(pages) == {"graph", "graph-changes"}
    kind, _, address = pages["graph-changes"]
    assert (kind, address[:26]) == ("image", "data:image/svg+xml;base64,")


@pytest.fixture
def warnings():
    """What is warned of; Prefect's own set-up of logging does not get in the way."""
    lines = []

    class Keep(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())

    handler = Keep(level=logging.WARNING)
    logging.getLogger("toolatlas").addHandler(handler)
    yield lines
    logging.getLogger("toolatlas").removeHandler(handler)


def test_a_page_that_cannot_be_made_is_a_warning_with_its_reason(monkeypatch, warnings):
    def broken(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(watching, "create_progress_artifact", broken)

    @flow
    def night():
        watching.publish("night", lambda: Page("x", {}["absent"]))
        watching.publish("Not a key!", lambda: Page("x", "y"))
        bar = watching.Bar("training-progress")
        bar.show(0.1, "one")
        bar.show(0.2, "two")
        bar.finish("done")
        watching.name_graph(lambda: {}["absent"])
        return "done"

    assert night() == "done"
    assert [line.split(" failed")[0] for line in warnings] == [
        "artifact night",
        "artifact Not a key!",
        "progress bar training-progress",
        "naming the run",
    ]
    assert "KeyError: 'absent'" in warnings[0]
    assert "OSError: no space left" in warnings[2]


def test_a_bar_is_written_every_few_seconds_at_most(monkeypatch):
    written = []
    monkeypatch.setattr(
        watching,
        "update_progress_artifact",
        lambda identity, percent, description: written.append((percent, description)),
    )

    @flow
    def train():
        bar = watching.Bar("training-progress")
        with Progress("train", bar) as progress:
            for epoch in range(4):
                progress.say(f"epoch {epoch + 1} of 4, n_f1 0.500", (epoch + 1) / 4)
        return FlowRunContext.get().flow_run.id

    _, line, percent = pages_of(train())["training-progress"]
    assert (line, percent) == ("train: epoch 1 of 4, n_f1 0.500", 25.0)
    assert written == [(100.0, "train: done")]


def test_outside_a_run_nothing_is_shown():
    watching.publish("night", lambda: 1 / 0)
    watching.name_graph(lambda: 1 / 0)
    watching.tag_run("x")
    bar = watching.Bar("training-progress")
    bar.show(0.5, "half")
    bar.finish("done")
    assert watching.run_tags() == {}
    assert watching.run_name() == "toolatlas"
