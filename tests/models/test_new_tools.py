import pytest
import torch
from torch.nn.functional import normalize

from models.candidates import embed_requests
from models.errors import GraphMismatch
from models.gtool import GToolConfig, GToolPlanner
from models.new_tools import extended, on_graph, with_tools
from models.training import train_gtool
from models.types import Example, ToolGraph, empty_edges

CONFIG = GToolConfig(
    hidden_channels=8, heads=2, num_layers=2, epochs=4, beam_width=4, min_steps=4, dropout=0.2
)
NAMES = "abcdefgh"


def graph_of(names):
    """Tools named by letters, without edges; a text is the letter."""
    return ToolGraph(names, tuple(f"s/{n}" for n in names), tuple(names), *empty_edges())


OLD, MORE = graph_of("abcdfg"), graph_of(NAMES)


def embed(texts):
    """A text is the direction of its letters."""
    counts = [[float(text.count(name)) for name in NAMES] for text in texts]
    return normalize(torch.tensor(counts).reshape(-1, len(NAMES)), dim=1)


@pytest.fixture(scope="module")
def planner():
    """A request names its two tools in order."""
    pairs = [(a, b) for a in "abcdfg" for b in "abcdfg" if a != b]
    rows = [Example(f"{a}{b}", f"{a} {b}", (f"s/{a}", f"s/{b}"), group=f"{a}{b}") for a, b in pairs]
    rows += [
        Example(f"v{a}", f"{a} {b}", (f"s/{a}", f"s/{b}"), split="validation") for a, b in pairs[:4]
    ]
    vectors = embed_requests([row.request for row in rows], embed)
    model = train_gtool(OLD, embed(OLD.texts), rows, vectors, CONFIG, seed=0).model
    return GToolPlanner(model, OLD, embed(OLD.texts), embed)


def test_a_tool_added_after_training_is_planned_for(planner):
    (plans,) = on_graph(planner, MORE).plan(["e b"], top=4)
    assert {"s/e", "s/b"} <= {key for plan in plans for key in plan.tools}
    ((plan,),) = on_graph(planner, MORE).plan(["e h"])
    assert set(plan.tools) <= {"s/e", "s/h"}


def test_the_same_tools_plan_the_same(planner):
    requests = ["a b", "d c", "g f"]
    assert on_graph(planner, OLD).plan(requests, 4) == planner.plan(requests, 4)


def test_memory_and_use_are_found_again_by_key(planner):
    x = embed(["a b", "c d"])
    before, moved = planner.model, with_tools(planner.model, OLD, MORE)
    rows = [MORE.index[key] for key in OLD.keys]
    new = [MORE.index["s/e"], MORE.index["s/h"]]
    for old, now in zip(before.memory(x)[:2], moved.memory(x)[:2], strict=True):
        assert torch.equal(now[:, rows], old)
        assert not now[:, new].any()
    assert torch.equal(moved.use[rows], before.use)
    assert not moved.use[new].any()
    weights, kept = dict(moved.named_parameters()), dict(before.named_parameters())
    assert all(torch.equal(weights[name], kept[name]) for name in kept)
    assert before.memory.num_tools == OLD.num_tools


def test_a_tool_that_is_gone_is_never_offered_and_past_plans_keep_their_length(planner):
    fewer = graph_of("abcd")
    moved = on_graph(planner, fewer)
    ranked = moved.plan(["a f", "f g"], top=4)
    assert all(plans for plans in ranked)
    assert {key for plans in ranked for plan in plans for key in plan.tools} <= set(fewer.keys)
    old, new = planner.model.memory.plans, moved.model.memory.plans
    assert torch.equal(old >= 0, new >= 0)
    assert torch.equal(
        new == fewer.num_tools, (old == OLD.index["s/f"]) | (old == OLD.index["s/g"])
    )
    again = with_tools(moved.model, fewer, MORE)
    assert torch.equal(again.memory.plans == MORE.num_tools, new == fewer.num_tools)


def test_all_tools_may_be_others(planner):
    others = graph_of("eh")
    (plans,) = on_graph(planner, others).plan(["h e"], top=2)
    assert {key for plan in plans for key in plan.tools} <= set(others.keys)


def test_the_graph_of_another_model_is_refused(planner):
    with pytest.raises(GraphMismatch, match="trained on"):
        with_tools(planner.model, MORE, OLD)


def test_a_graph_is_extended_by_new_tools_and_their_edges_alone():
    old = ToolGraph("v1", ("s/b", "s/c"), ("b", "c"), torch.tensor([[0], [1]]), torch.ones(1, 2))
    edges = torch.tensor([[0, 1, 1], [1, 2, 0]])
    newer = ToolGraph("v2", ("s/a", "s/b", "s/c"), tuple("abC"), edges, torch.full((3, 2), 5.0))
    both = extended(old, newer)
    assert (both.version, both.keys, both.texts) == ("v1", ("s/a", "s/b", "s/c"), ("a", "b", "c"))
    assert both.edge_index.T.tolist() == [[1, 2], [0, 1], [1, 0]]
    assert both.edge_counts[:, 0].tolist() == [1.0, 5.0, 5.0]


def test_only_allowed_tools_are_offered_on_another_graph(planner):
    (plans,) = on_graph(planner, MORE, {"s/e", "s/h"}).plan(["a b e"], top=4)
    assert {key for plan in plans for key in plan.tools} <= {"s/e", "s/h"}
