import pytest
import torch

from models.errors import GraphMismatch
from models.links import plan_links
from models.types import ToolGraph, empty_edges

GRAPH = ToolGraph(
    "v1",
    ("chain/a", "chain/b", "flow/a", "flow/b", "flow/c"),
    ("",) * 5,
    torch.tensor([[2, 3, 0, 3], [4, 4, 1, 2]]),
    torch.tensor([[0.0, 2.0], [1.0, 1.0], [7.0, 7.0], [5.0, 0.0]]),
)
FLOWS = frozenset({"flow"})


def links(*names, flows=FLOWS):
    return plan_links([f"flow/{n}" if "/" not in n else n for n in names], GRAPH, flows)


def test_a_dataflow_tool_depends_on_every_earlier_step_that_feeds_it():
    assert links("a", "b", "a", "c") == ((0, 3), (1, 3), (2, 3))


def test_adjacent_evidence_alone_is_no_dataflow():
    assert links("b", "a") == ()


def test_what_comes_later_feeds_nothing():
    assert links("c", "a", "b") == ()


def test_other_namespaces_are_chains():
    assert links("chain/b", "chain/a", "chain/a") == ((0, 1), (1, 2))
    assert links("a", "c", flows=()) == ((0, 1),)


def test_the_target_decides_in_mixed_plans():
    assert links("a", "chain/a", "c") == ((0, 1), (0, 2))


@pytest.mark.parametrize("names", [(), ("a",)])
def test_short_plans_have_no_links(names):
    assert links(*names) == ()


def test_a_graph_without_edges_gives_no_dataflow():
    graph = ToolGraph("v1", ("flow/a", "flow/b"), ("", ""), *empty_edges())
    assert plan_links(["flow/a", "flow/b"], graph, FLOWS) == ()


def test_a_tool_outside_the_graph_is_refused():
    with pytest.raises(GraphMismatch, match="flow/x"):
        links("a", "x")
