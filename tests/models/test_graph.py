import polars as pl
import pytest
import torch

from models.errors import GraphMismatch
from models.graph import dataflow_namespaces, read_examples, tool_graph, tool_text

NODES = pl.DataFrame(
    {
        "key": ["s/b", "s/a", "t/c", "t/old"],
        "name": ["b", "a", "c", "old"],
        "description": ["", "does a", "", ""],
        "parameters": ["[]", '[{"name": "q"}]', "[]", "[]"],
        "status": ["active", "active", "active", "deprecated"],
    }
)
EDGES = pl.DataFrame(
    {
        "source": ["s/a", "s/a", "t/c", "t/old"],
        "target": ["s/b", "s/b", "s/a", "s/a"],
        "kind": ["adjacent", "dataflow", "adjacent", "adjacent"],
        "num_seen": [3, 1, 2, 9],
    }
)


def test_tools_come_in_key_order_and_only_active_ones():
    graph = tool_graph("v", NODES, EDGES)
    assert graph.keys == ("s/a", "s/b", "t/c")
    assert graph.index["t/c"] == 2
    assert graph.edge_index.tolist() == [[0, 2], [1, 0]]
    assert graph.edge_counts.tolist() == [[3, 1], [2, 0]]
    assert dataflow_namespaces(graph) == {"s"}


def test_a_graph_without_edges_has_the_right_shapes_579():
    graph = tool_graph("v", NODES, EDGES.clear())
    assert graph.edge_index.shape == (2, 0)
    assert graph.edge_index.dtype == torch.int64
    assert graph.edge_counts.shape == (0, 2)
    assert dataflow_namespaces(graph) == frozenset()


def test_an_edge_to_an_unknown_tool_is_an_error():
    with pytest.raises(GraphMismatch, match="s/b"):
        tool_graph("v", NODES.filter(pl.col("key") != "s/b"), EDGES)


def test_the_text_of_a_tool_reads_like_words():
    text = tool_text("get_userName", " Finds a user. ", '[{"name": "id"}, {"name": "mail"}]')
    assert text == "get user Name: Finds a user. Takes id, mail."


def test_examples_come_back_as_they_were_exported():
    frame = pl.DataFrame(
        {
            "id": ["1"],
            "request": ["r"],
            "tools": ['["s/a", "s/b"]'],
            "links": ["[[0, 1]]"],
            "has_links": [True],
            "split": ["train"],
        }
    )
    (example,) = read_examples(frame)
    assert example.tools == ("s/a", "s/b")
    assert example.links == ((0, 1),)
    assert read_examples(frame, split="test")[0].split == "test"
    assert example.group == ""
    assert read_examples(frame.with_columns(group=pl.lit("g")))[0].group == "g"
