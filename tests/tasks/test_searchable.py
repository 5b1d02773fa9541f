"""What a search walks of a home's graph version, and suites that no search can plan for."""

import json

import polars as pl
import pytest

from models.tog import make_tog_planner
from models.types import Example
from tasks import catalogue
from tasks.evaluation import why_unfit
from tasks.graphs import build, load_searchable, present
from tasks.ingesting import ingest
from tasks.settings import Settings
from tests.factories import tool, trajectory, write_lines
from tests.models.typed_tools import frame
from tests.models.typed_tools import tool as typed_tool
from tests.models.worlds import embed


@pytest.fixture
def home(tmp_path):
    """A source of three tools, with a declared edge from ``a`` to ``b``."""
    folder = tmp_path / "shop"
    tools = [
        tool(name, f"does {name}", input_types=["image"], output_types=["image"]) for name in "abc"
    ]
    write_lines(folder / "tools.jsonl", tools)
    lines = [trajectory(str(i), "a", "b", "c", request=f"request {i}") for i in range(3)]
    write_lines(folder / "trajectories.jsonl", lines)
    graph = {"nodes": [{"id": n} for n in "abc"], "links": [{"source": "a", "target": "b"}]}
    (folder / "graph_desc.json").write_text(json.dumps(graph))
    settings = Settings(home=tmp_path / "home", mlflow_uri=None)
    ingest(settings, [str(folder)])
    return settings


def searchable(settings, version):
    return load_searchable(settings, version, present(settings))


def test_nodes_come_with_types_and_edges_only_as_declared(home):
    found = searchable(home, build(home)["version"])
    assert found.nodes["key"].to_list() == ["shop/a", "shop/b", "shop/c"]
    assert found.nodes["output_types"].to_list() == ['["image"]'] * 3
    assert found.declared == [("shop/a", "shop/b")]


def test_a_tool_renamed_since_has_its_new_name(home):
    version = build(home)["version"]
    catalogue.rename(home, "a", "b2")
    found = searchable(home, version)
    assert found.declared == [("shop/b2", "shop/b")]
    row = found.nodes.filter(pl.col("key") == "shop/b2")
    assert row.select("namespace", "name").rows() == [("shop", "b2")]
    assert "shop/a" not in found.nodes["key"]


def test_a_tool_withdrawn_since_is_not_active(home):
    version = build(home)["version"]
    catalogue.deprecate(home, "b")
    found = searchable(home, version)
    assert found.nodes.filter(pl.col("status") == "active")["name"].to_list() == ["a", "c"]


class Other:
    """A planner that does not search."""

    name = "other"

    def plan(self, requests, top=1):
        return [[] for _ in requests]


def tog(nodes):
    return make_tog_planner(nodes, {key: key for key in nodes["key"]}, embed)


JOINED = frame(typed_tool("a", [], ["image"]), typed_tool("b", ["x:image"], []))
PLAIN = frame(typed_tool("a", ["x:string"], namespace="u"), typed_tool("b", namespace="u"))
ROWS = [Example("1", "do it", ("u/a", "u/b")), Example("2", "do it", ("u/b",))]


def test_a_search_is_not_applicable_where_nothing_joins_the_tools():
    planner = tog(pl.concat([JOINED, PLAIN]))
    assert why_unfit(planner, [Example("1", "do it", ("t/a",))]) is None
    told = why_unfit(planner, ROWS)
    assert told is not None
    assert told.startswith("the catalogue of u has no types")


def test_one_catalogue_that_can_be_searched_is_enough():
    planner = tog(pl.concat([JOINED, PLAIN]))
    assert why_unfit(planner, [*ROWS, Example("3", "do it", ("t/b",))]) is None


def test_other_planners_are_always_applicable():
    assert why_unfit(Other(), ROWS) is None
