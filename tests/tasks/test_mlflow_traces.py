"""Traces out of a real MLflow store, into a file and back as trajectories."""

import json
import shutil
from datetime import UTC, datetime, timedelta

import mlflow
import pytest
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import ErrorCode

from tasks.ingesting import ingest
from tasks.mlflow_traces import export_traces
from tasks.settings import Settings
from warehouse.errors import UnreadableInput
from warehouse.readers.reading import read_file

TRACES = 12


@pytest.fixture(scope="module")
def store(empty_store, tmp_path_factory):
    """A store with one experiment of traces and an empty one."""
    folder = tmp_path_factory.mktemp("traces")
    shutil.copy(empty_store, folder / "mlflow.db")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    for name in ("agents", "quiet", "running"):
        client.create_experiment(name, artifact_location=(folder / name).as_uri())
    mlflow.set_experiment("agents")
    for number in range(TRACES):
        with mlflow.start_span("agent", span_type="AGENT") as root:
            root.set_inputs({"messages": [{"role": "user", "content": f"request {number}"}]})
            mlflow.update_current_trace(metadata={"mlflow.trace.session": "s"})
            with mlflow.start_span("search", span_type="TOOL") as tool:
                tool.set_inputs({"number": number, "big": 2**70})
                tool.set_outputs({"isError": number == 3, "content": []})
    mlflow.set_experiment("running")
    root = client.start_trace("agent", inputs={"q": "still at it"})
    tool = client.start_span("search", root.trace_id, root.span_id, "TOOL", inputs={"q": 1})
    client.end_span(root.trace_id, tool.span_id, outputs="found")
    mlflow.flush_trace_async_logging()
    yield uri
    client.end_trace(root.trace_id)
    mlflow.set_tracking_uri(before)


def test_an_experiment_is_written_oldest_first_page_by_page(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.mlflow_traces._PAGE", 5)
    told = []
    target = tmp_path / "new" / "traces.jsonl"
    count = export_traces(store, "agents", target, progress=lambda *at: told.append(at))
    assert count == TRACES
    assert told == [("agents", 5), ("agents", 10), ("agents", TRACES)]
    trajectories = [record for _, record in read_file(target)]
    numbers = [t.calls[0].arguments["number"] for t in trajectories]
    assert sorted(numbers) == list(range(TRACES))
    assert [t.request for t in trajectories] == [f"request {n}" for n in numbers]
    began = [t.started_at for t in trajectories]
    assert began == sorted(began)
    assert {t.calls[0].arguments["big"] for t in trajectories} == {2**70}
    assert [t.calls[0].status for t in trajectories].count("error") == 1
    assert {t.conversation for t in trajectories} == {"s"}
    assert [path.name for path in target.parent.iterdir()] == ["traces.jsonl"]


def test_an_experiment_is_found_by_its_id_and_traces_by_their_time(store, tmp_path):
    number = mlflow.MlflowClient(store).get_experiment_by_name("agents").experiment_id
    target = tmp_path / "traces.jsonl"
    assert export_traces(store, number, target) == TRACES
    began = [
        datetime.fromisoformat(json.loads(line)["info"]["request_time"])
        for line in target.read_text().splitlines()
    ]
    assert began == sorted(began)
    assert export_traces(store, number, target, after=began[4]) >= TRACES - 4
    assert export_traces(store, number, target, after=datetime.now(UTC) + timedelta(1)) == 0
    assert target.read_text() == ""


def test_an_unknown_experiment_names_those_there_are(store, tmp_path):
    for name in ("nope", "4711"):
        with pytest.raises(UnreadableInput, match=rf"{name}.*quiet \(\d+\), agents") as raised:
            export_traces(store, name, tmp_path / "x.jsonl")
        assert store in str(raised.value)
    assert export_traces(store, "quiet", tmp_path / "x.jsonl") == 0


def test_a_failure_leaves_the_old_file_and_no_other(store, tmp_path, monkeypatch):
    target = tmp_path / "traces.jsonl"
    target.write_text("old")

    def fail(*_, **__):
        raise OSError("gone")

    monkeypatch.setattr("tasks.mlflow_traces._fetched", fail)
    with pytest.raises(OSError, match="gone"):
        export_traces(store, "agents", target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["traces.jsonl"]


def test_a_trace_that_is_still_running_is_written_as_it_is(store, tmp_path):
    target = tmp_path / "traces.jsonl"
    assert export_traces(store, "running", target) == 1
    ((_, trajectory),) = read_file(target)
    assert [(c.name, c.status, c.result) for c in trajectory.calls] == [("search", "ok", "found")]
    assert "open" in trajectory.flags


def test_a_trace_without_spans_is_written_with_what_is_known(store, tmp_path, monkeypatch, caplog):
    def fail(_, info):
        code = "BAD_REQUEST" if info.request_preview != "request 1" else "RESOURCE_DOES_NOT_EXIST"
        raise MlflowException("no span data", error_code=ErrorCode.Value(code))

    monkeypatch.setattr("tasks.mlflow_traces._fetched", fail)
    target = tmp_path / "traces.jsonl"
    assert export_traces(store, "agents", target) == TRACES - 1
    trajectories = [record for _, record in read_file(target)]
    assert {t.request for t in trajectories} == {f"request {n}" for n in range(TRACES) if n != 1}
    assert "no spans yet" in caplog.text
    assert "is gone" in caplog.text


def test_an_experiment_is_ingested_and_followed_like_a_folder(store, tmp_path):
    settings = Settings(home=tmp_path, mlflow_uri=store)
    first = ingest(settings, ["mlflow:agents", "mlflow:running"])
    assert first["refused"] == []
    assert first["totals"]["trajectories"]["new"] == TRACES + 1
    assert [file["path"] for file in first["files"]] == ["mlflow:agents", "mlflow:running"]
    assert [file["source"] for file in first["files"]] == ["agents", "running"]
    again = ingest(settings, ["mlflow:agents"])
    assert again["totals"]["trajectories"]["new"] == again["totals"]["trajectories"]["updated"] == 0
    with pytest.raises(UnreadableInput, match="there are:"):
        ingest(settings, ["mlflow:nowhere"])
