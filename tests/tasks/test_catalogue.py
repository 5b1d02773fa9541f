"""What planners see of renames, deprecations and removals before the graph is built again."""

import pytest

from tasks import catalogue, graphs
from tasks.graphs import learning_data, load_graph, load_suites, present
from tasks.ingesting import ingest
from tests.factories import CHORES, chores, tool, write_lines


@pytest.fixture
def built(settings, tmp_path):
    """A home with the chores ingested, a graph and a suite."""
    ingest(settings, [str(chores(tmp_path / "chores"))])
    graphs.build(settings)
    graphs.freeze(settings)
    return settings


def seen(settings):
    """Keys of the graph, of its edges, of the training rows and of the suites, as planners see."""
    now = present(settings)
    data = learning_data(settings, now)
    graph = load_graph(settings, data.graph.version, now)
    edges = {graph.keys[i] for i in graph.edge_index.flatten().tolist()}
    rows = {key for row in data.examples for key in row.tools}
    gold = {key for suite in load_suites(settings).values() for row in suite for key in row.tools}
    return set(graph.keys), edges, rows, gold


def test_a_rename_is_seen_at_once_and_is_what_the_next_graph_has(built):
    before = seen(built)
    result = catalogue.rename(built, "get_weather", "forecast")
    assert result["calls"] > 0
    assert result["suite_rows"] > 0
    for old, new in zip(before, seen(built), strict=True):
        assert "chores/get_weather" in old
        assert new == old - {"chores/get_weather"} | {"chores/forecast"}
    at_once = seen(built)
    assert graphs.build(built)["new"]
    assert seen(built) == at_once
    catalogue.rename(built, "forecast", "get_weather")
    assert seen(built) == before


def test_two_tools_that_became_one_keep_the_edges_of_both(built):
    catalogue.rename(built, "get_weather", "send_mail", merge=True)
    keys, edges, rows, gold = seen(built)
    assert len(keys) == len(CHORES) - 1
    for found in (keys, edges, rows, gold):
        assert "chores/get_weather" not in found
        assert "chores/send_mail" in found
    at_once = keys, edges
    graphs.build(built)
    assert seen(built)[:2] == at_once


def test_a_deprecated_or_removed_tool_is_offered_to_nobody_at_once(built, tmp_path):
    catalogue.deprecate(built, "get_weather")
    left = [tool(name, text) for name, text in CHORES.items() if name != "translate"]
    catalogue.sync(built, str(write_lines(tmp_path / "t.jsonl", left)), "chores")
    keys, edges, rows, gold = seen(built)
    for found in (keys, edges, rows):
        assert not {"chores/get_weather", "chores/translate"} & found
    assert "chores/get_weather" in gold
    at_once = keys, edges, rows
    graphs.build(built)
    assert seen(built)[:3] == at_once
    catalogue.deprecate(built, "get_weather", undo=True)
    graphs.build(built)
    assert "chores/get_weather" in seen(built)[0]


def test_the_list_says_what_is_odd_about_names(built):
    listed = catalogue.tools(built)
    assert len(listed["tools"]) == 10
    assert listed["ambiguous"] == listed["likely_aliases"] == listed["renamed"] == []
    catalogue.rename(built, "get_weather", "forecast")
    (alias,) = catalogue.tools(built)["renamed"]
    assert (alias["old"], alias["new"]) == ("chores/get_weather", "chores/forecast")
