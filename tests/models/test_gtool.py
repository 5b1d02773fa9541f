import dataclasses

import pytest
import torch

from models.ablation import Ablation
from models.edges import EdgeTable, tool_use
from models.errors import GraphMismatch
from models.gtool import PLAN_BATCH, GTool, GToolConfig, GToolPlanner
from models.memory import padded_plans
from models.types import ToolGraph, empty_edges
from tests.models.worlds import CHANNELS, embed, mine, world

CONFIG = GToolConfig(hidden_channels=8, heads=2, num_layers=2, beam_width=4, max_length=3)
SMALL = dataclasses.replace(CONFIG, shortlist=3, neighbours=3)
WORLD = world()
KEYS = WORLD.keys
REQUESTS = ["apple then figs", "bread", "something else", "cheese dates eggs", ""]


def model_of(keys=KEYS, config=CONFIG, seed=0):
    """An untrained model that remembers the world's rows, with weights that leave nothing at 0."""
    torch.manual_seed(seed)
    model = GTool(config, CHANNELS, len(keys))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape)
    plans = padded_plans([[keys.index(key) for key in row.tools] for row in WORLD.rows])
    requests = embed([row.request for row in WORLD.rows])
    model.memory.fit(requests, plans, [row.group for row in WORLD.rows], 99)
    model.use = tool_use(plans, len(keys))
    return model


def planner(keys=KEYS, config=CONFIG, allowed=None, graph=None):
    """An untrained planner whose numbers do not depend on the order of its tools."""
    graph = graph or mine(keys, WORLD.rows)
    x = embed(graph.texts)
    return GToolPlanner(model_of(keys, config), graph, x, embed, allowed=allowed)


def told(plans):
    return [[plan.tools for plan in ranked] for ranked in plans]


def scores(plans):
    return [plan.score for ranked in plans for plan in ranked]


def test_plans_are_ranked_scored_and_of_known_tools():
    (plans,) = planner().plan(["apple"], top=3)
    assert len(plans) == 3
    assert scores([plans]) == sorted(scores([plans]), reverse=True)
    for plan in plans:
        assert plan.planner == "gtool-graph"
        assert 1 <= len(plan.tools) <= 3
        assert set(plan.tools) <= set(KEYS)
        assert plan.links == tuple((i, i + 1) for i in range(len(plan.tools) - 1))
        assert 0 <= plan.score <= 1


def test_no_requests_no_plans_and_an_empty_request_still_plans():
    assert planner().plan([]) == []
    assert len(planner().plan([""])[0]) == 1


@pytest.mark.parametrize("config", [CONFIG, SMALL])
def test_a_batch_plans_as_each_request_alone(config):
    one = planner(config=config)
    together = one.plan(REQUESTS * (1 + PLAN_BATCH // len(REQUESTS)), top=2)
    assert len(together) > PLAN_BATCH
    alone = [one.plan([request], top=2)[0] for request in REQUESTS]
    assert told(together[: len(REQUESTS)]) == told(together[-len(REQUESTS) :]) == told(alone)
    assert scores(together[: len(REQUESTS)]) == pytest.approx(scores(alone), abs=1e-5)


@pytest.mark.parametrize("config", [CONFIG, SMALL, dataclasses.replace(SMALL, members=2)])
def test_tool_order_never_matters(config):
    turned = tuple(KEYS[i] for i in (3, 0, 5, 4, 1, 2))
    here, there = planner(config=config), planner(turned, config)
    a, b = here.plan(REQUESTS, 4), there.plan(REQUESTS, 4)
    assert told(a) == told(b)
    assert scores(a) == pytest.approx(scores(b), abs=1e-5)


def test_members_plan_together_and_their_order_never_matters():
    config = dataclasses.replace(CONFIG, members=2)
    both = planner(config=config)
    expected = both.plan(REQUESTS, 4)
    state = both.model.state_dict()
    swapped = {
        name.replace("members.0", "members.x")
        .replace("members.1", "members.0")
        .replace("members.x", "members.1"): weight.clone()
        for name, weight in state.items()
    }
    both.model.load_state_dict(swapped)
    again = GToolPlanner(both.model, both.graph, both.tool_x, embed).plan(REQUESTS, 4)
    assert told(again) == told(expected)
    assert scores(again) == pytest.approx(scores(expected), abs=1e-5)
    first = {name: w for name, w in state.items() if not name.startswith("members.1")}
    alone = GTool(CONFIG, CHANNELS, 6, (21, both.model.memory.used.numel(), 5))
    alone.load_state_dict(first)
    single = GToolPlanner(alone, both.graph, both.tool_x, embed).plan(REQUESTS, 4)
    assert scores(single) != pytest.approx(scores(expected), abs=1e-4)


@pytest.mark.parametrize("config", [CONFIG, SMALL])
def test_tools_that_are_not_allowed_are_never_offered(config):
    one = planner(config=config, allowed={"s/bread", "s/figs", "s/elsewhere"})
    plans = one.plan(REQUESTS, top=4)
    used = {key for ranked in plans for plan in ranked for key in plan.tools}
    assert used == {"s/bread", "s/figs"}
    assert planner(allowed=()).plan(["apple"]) == [[]]
    assert told(planner(allowed=KEYS).plan(REQUESTS)) == told(planner().plan(REQUESTS))


def test_a_graph_without_edges_plans():
    graph = mine(KEYS, ())
    for config in (CONFIG, SMALL):
        assert planner(config=config, graph=graph).plan(["apple"])[0][0].tools


def test_a_model_that_remembers_nothing_plans():
    torch.manual_seed(0)
    graph = mine(KEYS, WORLD.rows)
    for config in (CONFIG, SMALL):
        model = GTool(config, CHANNELS, 6)
        plans = GToolPlanner(model, graph, embed(graph.texts), embed).plan(REQUESTS)
        assert all(ranked[0].tools for ranked in plans)


def test_scores_are_calibrated_within_their_range_and_keep_their_order():
    one = planner()
    raw = one.plan(REQUESTS, 4)
    for line, clamped in (([0.1, 0.5], False), ([-0.5, 1.0], True), ([0.7, 0.9], True)):
        one.model.calibration.copy_(torch.tensor(line))
        plans = one.plan(REQUESTS, 4)
        assert told(plans) == told(raw)
        expected = [min(1.0, max(0.0, line[0] + line[1] * score)) for score in scores(raw)]
        assert scores(plans) == pytest.approx(expected, abs=1e-6)
        assert clamped == any(score in (0.0, 1.0) for score in scores(plans))


def test_a_temperature_ranks_by_flatter_or_sharper_beams():
    one = planner()
    before = one.plan(REQUESTS, 4)
    one.model.temperature.fill_(0.05)
    sharp = one.plan(REQUESTS, 4)
    assert max(scores(sharp)) > max(scores(before))
    assert all(0.0 <= score <= 1.0 for score in scores(sharp))


@pytest.mark.parametrize("config", [CONFIG, SMALL])
def test_without_the_graph_edges_change_nothing(config):
    config = dataclasses.replace(config, ablation=Ablation.NO_GRAPH)
    with_edges, without = planner(config=config), planner(config=config, graph=mine(KEYS, ()))
    one, other = with_edges.plan(REQUESTS, 4), without.plan(REQUESTS, 4)
    assert told(one) == told(other)
    assert scores(one) == scores(other)


def test_with_the_graph_edges_do_change_plans():
    one, other = planner().plan(REQUESTS, 4), planner(graph=mine(KEYS, ())).plan(REQUESTS, 4)
    assert scores(one) != pytest.approx(scores(other), abs=1e-4)


@pytest.mark.parametrize("ablation", list(Ablation)[:-1])
def test_without_the_request_node_the_state_does_not_depend_on_the_request(ablation):
    model = model_of(config=dataclasses.replace(CONFIG, ablation=ablation)).eval()
    graph = mine(KEYS, WORLD.rows)
    edges = EdgeTable.from_edges(graph.edge_index, graph.edge_counts, 6)
    tools = model.encode_tools(embed(graph.texts), edges)[0]
    state = model.member(0).encode_requests(embed(REQUESTS), tools).features[:, CHANNELS:]
    assert torch.equal(state, state[:1].expand_as(state)) == (not ablation.request_node)


@pytest.mark.parametrize("weight", ["encoder", "dependency", "decoder"])
def test_every_part_of_a_member_moves_its_plans(weight):
    one = planner()
    with torch.no_grad():
        for name, part in one.model.member(0).named_parameters():
            if name.startswith(weight):
                part += 0.5
    moved = GToolPlanner(one.model, one.graph, one.tool_x, embed).plan(REQUESTS, 4)
    assert scores(moved) != pytest.approx(scores(planner().plan(REQUESTS, 4)), abs=1e-4)


def test_vectors_of_another_shape_are_refused():
    graph = ToolGraph("v", KEYS, KEYS, *empty_edges())
    with pytest.raises(GraphMismatch, match=r"expected text vectors of shape \(6, 6\)"):
        GToolPlanner(GTool(CONFIG, CHANNELS, 6), graph, torch.zeros(2, 6), embed)
    with pytest.raises(GraphMismatch, match=r"a model for 6 tools, got \(6, 6\) and 5"):
        GToolPlanner(GTool(CONFIG, CHANNELS, 5), graph, torch.zeros(6, 6), embed)


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
        ("members", 0),
        ("shortlist", 0),
        ("accumulate", 0),
        ("patience", 0),
        ("ablation", Ablation.LLM_LINKS),
    ],
)
def test_values_out_of_range_are_refused(field, value):
    with pytest.raises(ValueError, match=f"expected {field} .*, got"):
        dataclasses.replace(GToolConfig(), **{field: value})


def test_an_untrained_configuration_cannot_plan():
    config = dataclasses.replace(CONFIG, max_length=None)
    with pytest.raises(ValueError, match="max_length, got None"):
        planner(config=config).plan(["a"])


def test_reprs_show_the_sizes():
    assert repr(model_of().member(0)) == "Member(8)"
    assert repr(model_of().member(0).decoder) == "PointerDecoder(8)"
