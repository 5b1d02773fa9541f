import pytest

from flows import show_graph
from tasks.graphs import build, diff, show
from tasks.ingesting import ingest
from tests.factories import trajectory, write_lines


def deliver(settings, tmp_path, name, lines):
    folder = tmp_path / name
    write_lines(folder / "trajectories.jsonl", lines)
    ingest(settings, [str(folder)], source="s")
    return build(settings)["version"]


def test_a_stored_version_is_looked_at_and_compared(settings, tmp_path, capsys):
    chores = [("find", "book"), ("search", "read"), ("list", "pay")]
    lines = [
        trajectory(str(i), *((name, "ok") for name in (*chores[i % 3], "done"))) for i in range(60)
    ]
    first = deliver(settings, tmp_path, "one", lines)
    told = show(settings, "latest")["structure"]
    assert told["num_tools"] == 7
    assert told["findings"][0].startswith("7 tools; 7 of them were called, 180 times.")
    show_graph.structure(told)
    assert "Hubs" in capsys.readouterr().out

    more = [trajectory(str(i), ("find", "ok"), ("book", "ok")) for i in range(100, 900)]
    second = deliver(settings, tmp_path, "two", more)
    change = diff(settings, first, second)["drift"]
    assert change["verdict"] == "drifted"
    assert change["tools"]["num_new"] == 1_600
    show_graph.drift(change)
    assert "drifted, 1,600 since against 180 before" in capsys.readouterr().out


@pytest.mark.slow
def test_finish_of_toolbench_is_ceremonial(settings, data):
    ingest(settings, [str(data / "toolbench_runs")])
    build(settings)
    told = show(settings, "latest")["structure"]
    (tool,) = told["ceremonial"]["first"]
    assert (tool["tool"], tool["role"], tool["targets"]) == ("toolbench_runs/Finish", "ends", 0)
    assert any("Finish (377 calls) is ceremonial" in finding for finding in told["findings"])
