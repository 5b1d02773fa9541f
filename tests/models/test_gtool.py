import dataclasses

import pytest
import torch
from torch.nn.functional import normalize

from models.errors import GraphMismatch
from models.gtool import GTool, GToolConfig, GToolPlanner
from models.types import ToolGraph, empty_edges

CONFIG = GToolConfig(hidden_channels=8, heads=2, num_layers=2, beam_width=4, max_length=3)
KEYS = ("s/a", "s/b", "s/c")


def embed(texts):
    """A text is the direction of its letters."""
    counts = [[1.0 + text.count(letter) for letter in "abcdef"] for text in texts]
    return normalize(torch.tensor(counts).reshape(-1, 6), dim=1)


def planner(keys=KEYS, allowed=None, flows=()):
    """An untrained planner whose numbers do not depend on the order of its tools."""
    torch.manual_seed(0)
    model = GTool(CONFIG, 6, 3)
    columns = torch.tensor([KEYS.index(key) for key in keys])
    memory = torch.rand(2, 6, generator=torch.Generator().manual_seed(1))
    model.memory.requests = embed(["ab", "c"])
    model.memory.weights = torch.cat([memory[:, columns], memory[:, columns + 3]], dim=1)
    edges = [(keys.index("s/a"), keys.index("s/b")), (keys.index("s/b"), keys.index("s/c"))]
    counts = torch.tensor([[3.0, 1.0], [1.0, 0.0]])
    graph = ToolGraph("v", keys, keys, torch.tensor(edges).T, counts)
    return GToolPlanner(model, graph, embed(keys), embed, flows, allowed)


def test_plans_are_ranked_scored_and_of_known_tools():
    (plans,) = planner().plan(["abc"], top=3)
    assert len(plans) == 3
    assert [p.score for p in plans] == sorted((p.score for p in plans), reverse=True)
    for plan in plans:
        assert plan.planner == "gtool-graph"
        assert 1 <= len(plan.tools) <= 3
        assert set(plan.tools) <= set(KEYS)
        assert plan.links == tuple((i, i + 1) for i in range(len(plan.tools) - 1))
        assert 0 <= plan.score <= 1


def test_no_requests_no_plans_and_an_empty_request_still_plans():
    assert planner().plan([]) == []
    assert len(planner().plan([""])[0]) == 1


def test_a_batch_plans_as_each_request_alone():
    requests = ["ab", "c", "abc", "ffe"] * 20
    one = planner()
    together = one.plan(requests, top=2)
    assert len(together) == 80
    alone = [one.plan([request], top=2)[0] for request in requests[:4]]
    assert [[p.tools for p in plans] for plans in together[:4]] == [
        [p.tools for p in plans] for plans in alone
    ]


def test_tool_order_never_matters():
    here, there = planner(), planner(("s/c", "s/a", "s/b"))
    for request in ("ab", "c", "abc"):
        (a,), (b,) = here.plan([request], 4), there.plan([request], 4)
        assert [p.tools for p in a] == [p.tools for p in b]
        assert [p.score for p in a] == pytest.approx([p.score for p in b], abs=1e-5)


def test_tools_that_are_not_allowed_are_never_offered():
    (plans,) = planner(allowed={"s/b", "s/elsewhere"}).plan(["abc"], top=4)
    assert {key for plan in plans for key in plan.tools} == {"s/b"}
    assert planner(allowed=()).plan(["abc"]) == [[]]


def test_dataflow_namespaces_link_by_evidence():
    (plans,) = planner(flows={"s"}).plan(["abc"], top=4)
    for plan in plans:
        for source, target in plan.links:
            assert (plan.tools[source], plan.tools[target]) == ("s/a", "s/b")


def test_a_graph_without_edges_plans():
    torch.manual_seed(0)
    graph = ToolGraph("v", KEYS, KEYS, *empty_edges())
    plans = GToolPlanner(GTool(CONFIG, 6, 3), graph, embed(KEYS), embed).plan(["a"])
    assert plans[0][0].tools


def test_vectors_of_another_shape_are_refused():
    graph = ToolGraph("v", KEYS, KEYS, *empty_edges())
    with pytest.raises(GraphMismatch, match=r"expected text vectors of shape \(3, 6\)"):
        GToolPlanner(GTool(CONFIG, 6, 3), graph, torch.zeros(2, 6), embed)


def test_top_below_one_is_refused():
    with pytest.raises(ValueError, match="expected top >= 1, got 0"):
        planner().plan(["a"], top=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_channels", 10),
        ("num_layers", 0),
        ("dropout", 1.0),
        ("text_dropout", -0.1),
        ("memory_ridge", 0.0),
        ("learning_rate", 0.0),
        ("mdpl_weight", -1.0),
        ("epochs", 0),
        ("max_length", 0),
    ],
)
def test_values_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"expected {field} .*, got"):
        dataclasses.replace(GToolConfig(), **{field: value})


def test_an_untrained_configuration_cannot_plan():
    config = dataclasses.replace(CONFIG, max_length=None)
    graph = ToolGraph("v", KEYS, KEYS, *empty_edges())
    with pytest.raises(ValueError, match="max_length, got None"):
        GToolPlanner(GTool(config, 6, 3), graph, embed(KEYS), embed).plan(["a"])
