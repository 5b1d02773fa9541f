"""Plans executed as Prefect flows over the real toolbox, and the loop back to the planner."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from typer.testing import CliRunner

from flows.cli import app
from flows.nightly import nightly
from models.types import Plan
from tasks import executing
from tasks.catalogue import sync
from tasks.graphs import build, why
from tasks.planning import get_planner
from tasks.settings import read_settings
from tasks.toolbox.samples import make_samples
from warehouse.connection import open_warehouse

pytestmark = pytest.mark.usefixtures("prefect_server", "encoder")


@pytest.fixture
def sandbox(home, tmp_path, monkeypatch):
    """A toolbox over a folder of its own: its catalogue known, all but deleting allowed."""
    folder = tmp_path / "sandbox"
    folder.mkdir()
    make_samples(folder)
    command = [sys.executable, "-m", "tasks.toolbox", "--sandbox", str(folder), "--slow-s", "0"]
    servers = {"toolbox": f"mcp:{shlex.join(command)}"}
    monkeypatch.setenv("TOOLATLAS_EXECUTE_SERVERS", json.dumps(servers))
    monkeypatch.setenv("TOOLATLAS_ALLOWED_TOOLS", '["toolbox/*"]')
    settings = read_settings()
    sync(settings, servers["toolbox"], "toolbox")
    build(settings)
    return folder


def _execute(*words, code=0):
    result = CliRunner().invoke(app, ["execute", *words, "--json"])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def _plan_file(path, tools, arguments, links=(), request=""):
    plan = Plan(
        tuple(f"toolbox/{tool}" for tool in tools),
        links,
        0.0,
        "by hand",
    ).to_json()
    plan["arguments"] = arguments
    path.write_text(json.dumps({"request": request, "plans": [plan]}))
    return str(path)


def _value(name, value, kind=""):
    return {"name": name, "type": kind, "value": value}


def _step(name, step, kind=""):
    return {"name": name, "type": kind, "step": step}


def test_a_request_is_planned_run_and_stored_as_a_trajectory(sandbox):
    request = "Draw the waveform of speech.wav and write 'Hello' on it."
    dry = _execute(request, "--dry-run")
    assert [step["tool"] for step in dry["steps"]] == [
        "toolbox/draw_waveform",
        "toolbox/write_on_image",
    ]
    assert all(step["would_run"] for step in dry["steps"])
    assert not (sandbox / "made").exists()

    done = _execute(request)
    assert done["status"] == "done"
    made = done["outputs"][-1]["result"]["image"]
    assert (sandbox / made).stat().st_size > 0
    assert done["trajectory"]["calls"]["new"] == 2

    settings = read_settings()
    with open_warehouse(settings.warehouse) as con:
        rows = con.execute(
            "select tool, status, started_at, ended_at from tool_call order by started_at"
        ).fetchall()
    assert [(tool, status) for tool, status, *_ in rows] == [
        ("toolbox/draw_waveform", "ok"),
        ("toolbox/write_on_image", "ok"),
    ]
    assert all(start < end for *_, start, end in rows)
    build(settings)
    found = why(settings, "toolbox/draw_waveform", "toolbox/write_on_image", "latest")
    assert "dataflow" in {entry["kind"] for entry in found["evidence"]}

    with get_client(sync_client=True) as client:
        (run,) = client.read_flow_runs(
            flow_run_filter=FlowRunFilter.model_validate(
                {"tags": {"all_": [f"execution:{done['id']}"]}}
            )
        )
        tasks = client.read_task_runs(
            task_run_filter=TaskRunFilter.model_validate({"flow_run_id": {"any_": [str(run.id)]}})
        )
    by_name = {task.name: task for task in tasks}
    first, second = by_name["0 draw_waveform"], by_name["1 write_on_image"]
    assert first.state_name == second.state_name == "Completed"
    upstream = {
        str(one.id) for each in second.task_inputs.values() for one in each if hasattr(one, "id")
    }
    assert str(first.id) in upstream


def test_what_is_not_allowed_or_destroys_is_refused_and_the_file_is_there(sandbox, tmp_path):
    plan = _plan_file(tmp_path / "plan.json", ["delete_file"], [[_value("file", "letter.txt")]])
    refused = _execute(plan, code=1)
    assert refused["status"] == "failed"
    assert "TOOLATLAS_DESTRUCTIVE" in refused["steps"][0]["error"]
    assert (sandbox / "letter.txt").exists()
    asked = _execute("Delete the file letter.txt", code=1)  # no other plan in its place
    assert (asked["status"], len(asked["tried"])) == ("failed", 1)
    assert refused["trajectory"]["calls"]["new"] == 1


def test_a_flaky_tool_is_tried_again_by_prefect(sandbox, tmp_path):
    plan = _plan_file(
        tmp_path / "plan.json", ["translate_words"], [[_value("text", "the house", "text")]]
    )
    done = _execute(plan)
    assert done["status"] == "done"
    assert len(done["steps"][0]["attempts"]) == 2


def test_a_file_that_is_no_plan_and_a_request_without_a_plan_end_in_a_sentence(sandbox, tmp_path):
    bad = tmp_path / "plan.json"
    bad.write_text("[1, 2")
    result = CliRunner().invoke(app, ["execute", str(bad)])
    assert result.exit_code == 2
    assert "to hold a plan" in result.output
    result = CliRunner().invoke(app, ["execute"])
    assert result.exit_code == 2


def test_an_execution_that_is_done_or_interrupted_goes_on_where_it_was(
    sandbox, tmp_path, monkeypatch
):
    servers = read_settings().execute_servers["toolbox"].replace("--slow-s 0", "--slow-s 20")
    monkeypatch.setenv("TOOLATLAS_EXECUTE_SERVERS", json.dumps({"toolbox": servers}))
    plan = _plan_file(
        tmp_path / "plan.json",
        ["describe_image", "checksum_file"],
        [[_value("image", "beach.png", "image")], [_value("file", "beach.png")]],
        links=((0, 1),),
        request="Describe and check the beach",
    )
    settings = read_settings()
    prepared = executing.prepare(settings, plan)
    # Whatever tests before this one did to it: Ctrl-C is Python's own again.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = threading.Timer(4.0, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        executing.run(settings, prepared)
    signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 15
    folder = executing.folder_of(settings, prepared.id)
    assert (folder / "trajectory.json").exists()

    monkeypatch.setenv(
        "TOOLATLAS_EXECUTE_SERVERS",
        json.dumps({"toolbox": servers.replace("--slow-s 20", "--slow-s 0")}),
    )
    settings = read_settings()
    again = executing.run(settings, executing.prepare(settings, "", resume=prepared.id))
    assert again["status"] == "done"
    assert again["steps"][0]["reused"]
    last = executing.run(settings, executing.prepare(settings, "", resume=prepared.id))
    assert [step["reused"] for step in last["steps"]] == [True, True]
    with open_warehouse(settings.warehouse) as con:
        (counted,) = con.execute(
            "select count(*) from tool_call where tool = 'toolbox/describe_image'"
        ).fetchall()[0]
    assert counted == 1


@pytest.fixture
def served(sandbox, monkeypatch):
    """The same toolbox over HTTP, started once for many executions."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "tasks.toolbox", "--sandbox", str(sandbox), "--slow-s", "0",
        "--port", str(port),
    ]  # fmt: skip
    process = subprocess.Popen(command)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        servers = {"toolbox": f"mcp:http://127.0.0.1:{port}/mcp"}
        monkeypatch.setenv("TOOLATLAS_EXECUTE_SERVERS", json.dumps(servers))
        yield
    finally:
        process.kill()
        process.wait()


PICTURES = ("beach.png", "forest.png", "poster.png", "portrait.jpg", "beach.png")


def _archives():
    """Fifty requests: who archives here turns a picture grey and takes the checksum of that."""
    gray, check = "gray_image", "checksum_file"
    ways = {
        "Archive {}": [gray, check],
        "Archive {} and describe the archived picture": [gray, check, "describe_image"],
        "Shrink {} and archive it": ["resize_image", gray, check],
        "Turn {} upside down and archive it": ["rotate_image", gray, check],
        "Describe {} and archive it": ["describe_image", gray, check],
        "Archive a small copy of {} turned round": ["resize_image", "rotate_image", gray, check],
        "Archive {} upside down, then small": ["rotate_image", "resize_image", gray, check],
        "Archive {} and put it beside the original": [gray, check, "join_images"],
        "Archive {} with a title": ["write_on_image", gray, check],
        "Title and shrink {}, then archive it": ["write_on_image", "resize_image", gray, check],
    }
    for text, tools in ways.items():
        for picture in PICTURES:
            yield text.format(picture), picture, tools


def _arguments(tools, picture):
    """Each step works on what the one before it made; the checksum is of the grey picture."""
    last, steps = None, []
    for at, tool in enumerate(tools):
        source = _value("image", picture, "image") if last is None else _step("image", last)
        extra = {
            "resize_image": [_value("width", 80), _value("height", 60)],
            "rotate_image": [_value("degrees", 180)],
            "write_on_image": [_value("text", "title", "text")],
        }.get(tool, [])
        if tool == "checksum_file":
            steps.append([_step("file", last)])
        elif tool == "join_images":
            steps.append([_value("left", picture, "image"), _step("right", last)])
        else:
            steps.append([source, *extra])
        if tool not in ("checksum_file", "describe_image", "join_images"):
            last = at
    return steps


@pytest.mark.slow
def test_tomorrows_planner_uses_an_edge_that_only_executions_taught(served, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLATLAS_MIN_SUITE_ROWS", "5")
    settings = read_settings()
    wish = "Take the checksum of poster.png"
    before, *_ = get_planner(settings, "tog")
    assert before.plan([wish])[0][0].tools == ("toolbox/checksum_file",)

    for number, (request, picture, tools) in enumerate(_archives()):
        path = tmp_path / f"{number}.json"
        _plan_file(path, tools, _arguments(tools, picture), request=request)
        done = executing.run(settings, executing.prepare(settings, str(path)))
        assert done["status"] == "done", done["summary"]

    night = nightly()
    assert night["trained"]
    assert night["graph"]["nodes"] == 27
    after, *_ = get_planner(settings, "tog")
    assert after.plan([wish])[0][0].tools == ("toolbox/gray_image", "toolbox/checksum_file")
    version = night["report"]["champion"] or night["report"]["challenger"]
    learnt, *_ = get_planner(settings, f"gtool@{version}")
    tools = learnt.plan(["Archive forest.png"])[0][0].tools
    assert "toolbox/gray_image" in tools
    assert tools.index("toolbox/gray_image") < tools.index("toolbox/checksum_file")

    # What was learnt is executed in its turn, with arguments from the words and the plan's links.
    again = executing.prepare(settings, "Archive forest.png", planner=f"gtool@{version}", top=1)
    done = executing.run(settings, again)
    assert done["status"] == "done", done["summary"]
