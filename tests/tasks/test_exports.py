import io
import json

import networkx as nx
import polars as pl
import pytest

from tasks.exports import to_graphml, to_json
from tests.versions import FIRST, node, small, version

FACTS = {"version": "abc", "note": '<&> "quoted"'}


def written(write, nodes, summary, **arguments):
    stream = io.BytesIO()
    write(nodes, summary, stream, **arguments)
    return stream.getvalue()


def from_graphml(data):
    """The graph with tools named by key."""
    graph = nx.read_graphml(io.BytesIO(data), force_multigraph=True)
    return nx.relabel_nodes(graph, nx.get_node_attributes(graph, "key"))


def from_json(data):
    return nx.node_link_graph(json.loads(data), edges="edges")


def test_graphml_is_read_back_with_types_and_parallel_kinds():
    nodes, summary, _ = small()
    graph = from_graphml(written(to_graphml, nodes, summary, facts=FACTS))
    assert graph.is_directed()
    assert graph.graph["version"] == "abc"
    assert graph.graph["note"] == FACTS["note"]
    assert sorted(graph) == nodes["key"].to_list()
    assert graph.nodes["s/a"]["label"] == "a"
    assert graph.nodes["s/a"]["num_ok"] == 9
    between = graph.get_edge_data("s/a", "s/b")
    assert {edge["kind"]: edge["num_seen"] for edge in between.values()} == {
        "adjacent": 7,
        "dataflow": 3,
    }
    assert sorted(between) == ["e0", "e1"]
    adjacent = next(edge for edge in between.values() if edge["kind"] == "adjacent")
    assert adjacent["first_seen"] == FIRST.isoformat()
    assert isinstance(adjacent["weight"], float)
    dataflow = next(edge for edge in between.values() if edge["kind"] == "dataflow")
    assert "first_seen" not in dataflow


def test_node_link_json_is_read_back_with_kinds_as_keys():
    nodes, summary, _ = small()
    data = written(to_json, nodes, summary, facts=FACTS)
    graph = from_json(data)
    assert graph.is_directed()
    assert graph.is_multigraph()
    assert graph.graph == FACTS
    assert sorted(graph) == nodes["key"].to_list()
    assert graph.nodes["s/a"]["parameters"] == []
    assert graph.edges["s/b", "s/c", "adjacent"]["standing"] == "warning"
    rows = summary.rename({"kind": "key"}).with_columns(
        pl.col("first_seen", "last_seen").cast(pl.String)
    )
    assert json.loads(data)["edges"] == rows.to_dicts()


@pytest.mark.parametrize("write", [to_graphml, to_json])
def test_the_same_version_in_any_order_gives_the_same_bytes(write, tmp_path):
    nodes, summary, _ = small()
    data = written(write, nodes, summary)
    assert written(write, nodes.reverse(), summary.reverse()) == data
    write(nodes, summary, tmp_path / "graph")
    assert (tmp_path / "graph").read_bytes() == data


HOSTILE = '</data>&<b x="\'">\r\n\t\u2028\U0001f600'


def test_hostile_names_come_back_as_they_were():
    nodes, summary, _ = small(names=(HOSTILE, "b", "c", "d"))
    key = f"s/{HOSTILE}"
    for graph in (
        from_graphml(written(to_graphml, nodes, summary)),
        from_json(written(to_json, nodes, summary)),
    ):
        assert graph.nodes[key]["name"] == HOSTILE
        assert graph.has_edge(key, "s/b")


def test_characters_that_xml_cannot_carry_are_replaced():
    nodes, summary = [node("s/a", description="\x00one\x1b\ufffe")], []
    frame, summary, _ = version(nodes, summary)
    graph = from_graphml(written(to_graphml, frame, summary))
    assert graph.nodes["s/a"]["description"] == "\ufffdone\ufffd\ufffd"


@pytest.mark.parametrize("write", [to_graphml, to_json])
def test_a_version_without_edges_is_a_graph_too(write):
    nodes, summary, _ = version([node("s/a"), node("s/b")], [])
    data = written(write, nodes, summary)
    graph = (from_graphml if write is to_graphml else from_json)(data)
    assert sorted(graph) == ["s/a", "s/b"]
    assert graph.number_of_edges() == 0
