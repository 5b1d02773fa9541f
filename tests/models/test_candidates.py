import pytest
import torch

from models.candidates import MAX_CLAUSES, embed_requests, find_candidates
from models.edges import EdgeTable
from models.gtool import graph_lexicon
from models.memory import PAD, RequestMemory, padded_plans
from tests.models.worlds import CHANNELS, embed, mine, world

SEEDS = range(6)


def found(here, size, *, keys=None, requests=None, allowed=None, gold=False):
    """Shortlists of a world's requests (each without its group), or of new ones, and its keys."""
    keys = keys or here.keys
    graph = mine(keys, here.rows)
    plans = padded_plans([[graph.index[key] for key in row.tools] for row in here.rows])
    said = [row.request for row in here.rows]
    memory = RequestMemory(CHANNELS, len(keys), neighbours=4)
    recalled = memory.fit(embed(said), plans, [row.group for row in here.rows], 99)
    if requests is not None:
        said, recalled = requests, memory(embed(requests))
    return find_candidates(
        said,
        embed_requests(said, embed),
        embed(graph.texts),
        recalled,
        EdgeTable.from_edges(graph.edge_index, graph.edge_counts, len(keys)),
        graph_lexicon(graph),
        size,
        allowed=None if allowed is None else torch.tensor([key in allowed for key in keys]),
        gold=plans if gold else None,
    )


def named(candidates, keys):
    """The shortlist of each request by key: (features of text, of memory)."""
    return [
        {
            keys[tool]: (
                candidates.text[row, i],
                candidates.memory[row, i],
                candidates.clauses[row, i],
            )
            for i, tool in enumerate(tools)
        }
        for row, tools in enumerate(candidates.tools.tolist())
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [1, 4, 7])
def test_training_lists_the_gold_tools_in_any_case(seed, size):
    here = world(seed, num_tools=9)
    candidates = found(here, size, gold=True)
    for row, example in enumerate(here.rows):
        listed = {here.keys[tool] for tool in candidates.tools[row].tolist()}
        assert set(example.tools) <= listed
        plan = candidates.positions(
            torch.tensor([[here.keys.index(key) for key in example.tools]] * len(here.rows))
        )[row]
        assert [here.keys[candidates.tools[row, p]] for p in plan.tolist()] == list(example.tools)


@pytest.mark.parametrize("size", [6, 7, 96])
def test_a_graph_of_fewer_tools_is_listed_whole(size):
    here = world()
    assert found(here, size).tools.tolist() == [list(range(6))] * len(here.rows)
    assert found(here, size, gold=True).tools.tolist() == [list(range(6))] * len(here.rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_shortlists_are_ascending_and_without_repetition(seed):
    tools = found(world(seed, num_tools=9), 4, requests=["honey then eggs", "", "x"]).tools
    assert tools.shape == (3, 4)
    assert (tools[:, 1:] > tools[:, :-1]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_request_names_is_listed(seed):
    here = world(seed, num_tools=9)
    for name in ("grape", "icing"):
        tools = found(here, 5, requests=[name]).tools[0].tolist()
        assert f"s/{name}" in {here.keys[tool] for tool in tools}


@pytest.mark.parametrize("size", [2, 96])
def test_only_allowed_tools_are_listed(size):
    here = world(num_tools=9)
    allowed = {"s/bread", "s/figs", "s/icing", "s/elsewhere"}
    candidates = found(here, size, requests=["apple then eggs", "figs"], allowed=allowed)
    assert candidates.size == min(size, 3)
    listed = {here.keys[tool] for tool in candidates.tools.flatten().tolist()}
    assert listed <= allowed
    assert not torch.isnan(candidates.text).any()


def test_without_allowed_tools_the_list_is_empty():
    candidates = found(world(), 4, requests=["figs", "eggs"], allowed=set())
    assert candidates.tools.shape == (2, 0)
    assert (candidates.plans[candidates.plans >= 0] == 1).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", [3, 96])
def test_the_order_of_the_catalogue_never_matters(seed, size):
    here = world(seed, num_tools=9)
    keys = tuple(torch.tensor([4, 0, 8, 2, 7, 5, 1, 3, 6]).tolist())
    keys = tuple(here.keys[i] for i in keys)
    one, other = named(found(here, size), here.keys), named(found(here, size, keys=keys), keys)
    for listed, again in zip(one, other, strict=True):
        assert listed.keys() == again.keys()
        for key, parts in listed.items():
            for part, same in zip(parts, again[key], strict=True):
                assert torch.allclose(part, same, atol=1e-5)


@pytest.mark.parametrize("size", [3, 96])
def test_a_batch_is_listed_as_each_request_alone(size):
    here, requests = world(num_tools=9), ["the honey. Then the eggs", "", "figs grape", "apple"]
    together = found(here, size, requests=requests)
    for row, request in enumerate(requests):
        alone = found(here, size, requests=[request])
        for part, one in zip(together.rows(slice(row, row + 1)), alone, strict=True):
            if part.shape != one.shape:  # clauses of the longest request of the batch
                part, rest = part.split([one.size(2), part.size(2) - one.size(2)], dim=2)
                assert (rest == -1.0).all()
            assert torch.allclose(part.double(), one.double(), atol=1e-6)


def test_plans_are_told_by_position_and_tools_outside_as_one():
    candidates = found(world(num_tools=9), 4, requests=["honey", "figs"])
    tools = candidates.tools[0].tolist()
    outside = next(tool for tool in range(9) if tool not in tools)
    plan = [tools[3], outside, tools[0], PAD]
    assert candidates.positions(torch.tensor([plan, plan]))[0].tolist() == [3, 5, 0, PAD]
    past = candidates.plans[candidates.plans >= 0]
    assert ((past < 4) | (past == 5)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_forgotten_tools_have_no_past_and_the_next_nearest_plans_come_up(seed):
    here = world(seed, num_tools=9)
    candidates = found(here, 9)
    gone = torch.arange(9) % 3 == seed % 3
    left = candidates.forget(gone, 2)
    assert torch.equal(left.text, candidates.text)
    assert (left.memory[:, gone] == 0).all()
    assert torch.equal(left.memory[:, ~gone], candidates.memory[:, ~gone])
    for row, plans in enumerate(candidates.plans.tolist()):
        near = zip(plans, candidates.similarity[row].tolist(), strict=True)
        kept = [(p, s) for p, s in near if not any(gone[tool] for tool in p if tool != PAD)][:2]
        kept += [([PAD] * candidates.plans.size(2), -2.0)] * (2 - len(kept))
        assert left.plans[row].tolist() == [plan for plan, _ in kept]
        assert left.similarity[row].tolist() == [similarity for _, similarity in kept]


def test_past_plans_move_their_tools_onto_the_list():
    here = world(num_tools=9, num_rows=30)
    row = here.rows[0]
    tools = found(here, 4, requests=[row.request]).tools[0].tolist()
    listed = {here.keys[tool] for tool in tools}
    assert set(list(dict.fromkeys(row.tools))[:4]) & listed


def test_clauses_are_read_one_by_one_and_those_behind_the_last_together():
    some = embed_requests(["the honey please. Then the eggs please", "figs"], embed)
    assert torch.equal(some.x[1], some.clauses[1, 0])
    assert some.clauses.shape == (2, 2, CHANNELS)
    assert not some.clauses[1, 1:].any()
    assert torch.equal(some.clauses[0, 1:], embed(["the eggs please"]))
    many = embed_requests([". ".join(f"the honey number {i}" for i in range(40))], embed)
    assert many.clauses.shape == (1, MAX_CLAUSES, CHANNELS)
    rows = some.rows(slice(1, 2))
    assert torch.equal(rows.x, some.x[1:])


def test_no_requests_have_no_candidates():
    for size in (3, 96):
        assert found(world(num_tools=9), size, requests=[]).tools.size(0) == 0
