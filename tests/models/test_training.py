import dataclasses
import math

import pytest
import torch
from torch.nn.functional import normalize

from models.ablation import Ablation
from models.candidates import RequestVectors, embed_requests
from models.dependency import mask_edges
from models.edges import EdgeTable, tool_use
from models.errors import GraphMismatch, NotEnoughData
from models.gtool import GToolConfig, GToolPlanner
from models.memory import padded_plans
from models.training import (
    _Run,
    _split_rows,
    random_state,
    train_gtool,
    weights_hash,
)
from models.types import Example, ToolGraph, empty_edges
from tests.models import worlds

CONFIG = GToolConfig(
    hidden_channels=8, heads=2, num_layers=1, epochs=2, beam_width=2, min_steps=2, dropout=0.2
)
NO_DROPOUT = dataclasses.replace(CONFIG, dropout=0.0, text_dropout=0.0)
NAMES = "abcde"
KEYS = tuple(f"s/{name}" for name in NAMES)
GRAPH = ToolGraph(
    "v1", KEYS, KEYS, torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), torch.full((4, 2), 4.0)
)
SEEDS = range(3)


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors this small only lose time to a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def embed(texts):
    """A text is the direction of its letters."""
    counts = [[float(text.count(name)) for name in NAMES] for text in texts]
    return normalize(torch.tensor(counts).reshape(-1, 5), dim=1)


def examples(num_train=16, num_validation=4):
    """A request names its two tools, which follow each other in the alphabet."""
    out = []
    for i in range(num_train + num_validation):
        first = i % 4
        tools = (KEYS[first], KEYS[first + 1])
        request = NAMES[first] * (1 + i % 3) + NAMES[first + 1]
        split = "train" if i < num_train else "validation"
        out.append(Example(str(i), request, tools, split=split))
    return out


def train(rows=None, config=CONFIG, graph=GRAPH, seed=0, **kwargs):
    rows = examples() if rows is None else rows
    vectors = embed_requests([row.request for row in rows], embed)
    return train_gtool(graph, embed(graph.keys), rows, vectors, config, seed=seed, **kwargs)


def train_world(here, config=CONFIG, **kwargs):
    graph, vectors = here.graph, worlds.vectors_of(here.rows)
    tool_x = worlds.embed(graph.texts)
    return train_gtool(graph, tool_x, here.rows, vectors, config, seed=0, **kwargs)


def run_of(here, config=CONFIG):
    """A training of a world before its first step."""
    graph, tool_x = here.graph, worlds.embed(here.graph.texts)
    split = _split_rows(graph, tool_x, here.rows, worlds.vectors_of(here.rows), config)
    config = dataclasses.replace(config, max_length=config.max_length or 5)
    with random_state(0, torch.device("cpu")):
        return _Run(graph, tool_x, split, config, 0, torch.device("cpu"))


class Interrupted(Exception):
    pass


def stop_after(epoch):
    def on_epoch(now, record):
        if now == epoch:
            raise Interrupted

    return on_epoch


def close(one, other, **kwargs):
    pairs = zip(one.model.state_dict().items(), other.model.state_dict().values(), strict=True)
    return [name for (name, a), b in pairs if not torch.allclose(a, b, **kwargs)]


# The loop.


@pytest.mark.parametrize("members", [1, 2])
def test_training_learns_a_small_world(members):
    config = dataclasses.replace(
        CONFIG, epochs=10, min_steps=4, learning_rate=1e-2, members=members
    )
    result = train(config=config)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert result.history[result.best_epoch]["n_f1"] > 0.9
    plans = GToolPlanner(result.model, GRAPH, embed(KEYS), embed).plan(["bc"], top=3)[0]
    assert plans[0].tools == ("s/b", "s/c")
    assert all(0.0 <= plan.score <= 1.0 for plan in plans)
    assert [p.score for p in plans] == sorted((p.score for p in plans), reverse=True)


def test_the_result_holds_history_length_and_hash():
    seen = []
    result = train(on_epoch=lambda epoch, record: seen.append((epoch, record)))
    assert result.config.max_length == 2
    assert [epoch for epoch, _ in seen] == [0, 1]
    assert [record for _, record in seen] == result.history
    assert {"train_loss", "mdpl_loss", "n_f1", "l_f1", "ned"} <= set(result.history[0])
    assert result.weights_hash == weights_hash(result.model.state_dict())
    assert result.model.memory.requests.size(0) == 20
    assert result.model.use[:, 0].sum() == 40


def test_same_seed_same_weights_other_seed_others():
    first = train().weights_hash
    assert train().weights_hash == first
    assert train(seed=1).weights_hash != first


def test_members_start_from_weights_of_their_own():
    state = train(config=dataclasses.replace(CONFIG, members=2, epochs=1)).model.state_dict()
    pairs = [(w, state[f"members.1.{n[10:]}"]) for n, w in state.items() if "members.0." in n]
    assert len(pairs) > 10
    assert all(not torch.equal(a, b) for a, b in pairs if a.dim() == 2)


@pytest.mark.slow
def test_two_threads_repeat_to_the_bit():
    torch.set_num_threads(2)
    keys = tuple(f"s/{i:03}" for i in range(90))
    draw = torch.Generator().manual_seed(0)
    index = torch.randperm(90 * 89, generator=draw)[:600]
    source, target = index // 89, index % 89
    edges = torch.stack([source, target + (target >= source).long()])
    graph = ToolGraph("v", keys, keys, edges, torch.ones(600, 2))
    plans = torch.randint(90, (24, 3), generator=draw).tolist()
    rows = [
        Example(str(i), "", tuple(keys[t] for t in plan), split="train" if i > 3 else "validation")
        for i, plan in enumerate(plans)
    ]
    tool_x = normalize(torch.randn(90, 32, generator=draw), dim=1)
    request_x = normalize(torch.randn(24, 32, generator=draw), dim=1)
    vectors = RequestVectors(request_x, request_x.unsqueeze(1))
    config = GToolConfig(hidden_channels=64, epochs=1, min_steps=1, beam_width=2)
    hashes = {train_gtool(graph, tool_x, rows, vectors, config, seed=0).weights_hash for _ in "12"}
    assert len(hashes) == 1


def test_the_random_state_of_the_caller_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train()
    assert torch.equal(torch.rand(1), expected)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("members", [1, 2])
def test_a_training_killed_after_every_epoch_resumes_to_the_very_same_weights(tmp_path, members):
    config = dataclasses.replace(CONFIG, members=members)
    whole = train(config=config)
    assert len(whole.history) == 2 * members
    for epoch in range(2 * members):
        with pytest.raises(Interrupted):
            train(config=config, resume_dir=tmp_path, on_epoch=stop_after(epoch))
    later = []
    resumed = train(config=config, resume_dir=tmp_path, on_epoch=lambda *now: later.append(now))
    assert later == []
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.history == whole.history
    assert resumed.best_epoch == whole.best_epoch
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_state_of_another_training_is_ignored(tmp_path):
    with pytest.raises(Interrupted):
        train(resume_dir=tmp_path, on_epoch=stop_after(0))
    for other in (
        {"seed": 1},
        {"code_version": "2"},
        {"config": dataclasses.replace(CONFIG, neighbours=3)},
        {"rows": [dataclasses.replace(row, group="one") for row in examples()]},
        {"graph": dataclasses.replace(GRAPH, edge_counts=GRAPH.edge_counts + 1)},
    ):
        with pytest.raises(Interrupted):  # at the first epoch, not at the second
            train(resume_dir=tmp_path, on_epoch=stop_after(0), **other)


def test_a_damaged_state_is_ignored(tmp_path):
    (tmp_path / "state.safetensors").write_bytes(b"half of it")
    assert train(resume_dir=tmp_path).weights_hash == train().weights_hash


def feed(run, *scores, error=0.0):
    """Epochs with these validation scores; the averaged weights say which epoch they are of."""
    for score in scores:
        assert not run.finished
        for weight in run.average.values():
            weight.fill_(float(run.epoch))
        run.epoch += 1
        run.score, run.error = score, error
        run.keep_best({"n_f1": score})


def kept(run, member=0):
    """The epoch that a member's weights are of."""
    (epoch,) = {float(weight.flatten()[0]) for weight in run.done[member].values()}
    return epoch


def test_training_ends_when_patience_does():
    run = run_of(worlds.world(), dataclasses.replace(CONFIG, epochs=9, patience=2, members=2))
    feed(run, 0.5, 0.9, 0.1, 0.2)
    assert (len(run.done), kept(run)) == (1, 1.0)
    feed(run, 0.1, 0.3, 0.2, 0.4, 0.1, 0.1)
    assert run.finished
    assert (run.best_epoch, kept(run, 1)) == (3, 3.0)
    assert len(run.history) == 10


def test_training_ends_with_the_last_epoch_and_of_equals_the_later_wins():
    run = run_of(worlds.world(), dataclasses.replace(CONFIG, epochs=4, patience=9))
    feed(run, 0.5, 0.9, 0.86, 0.1, error=0.05)
    assert run.finished
    assert (run.best_epoch, kept(run)) == (2, 2.0)


def test_a_batch_in_parts_gives_the_same_weights():
    here = worlds.world(num_rows=24)
    config = dataclasses.replace(NO_DROPOUT, epochs=2, learning_rate=1e-3)
    whole = train_world(here, config)
    parts = train_world(here, dataclasses.replace(config, accumulate=4))
    assert close(whole, parts, atol=1e-5) == []
    assert [record["train_loss"] for record in parts.history] == pytest.approx(
        [record["train_loss"] for record in whole.history], rel=1e-5
    )


def test_half_precision_trains():
    config = dataclasses.replace(CONFIG, epochs=3, learning_rate=1e-2)
    half = train(config=dataclasses.replace(config, precision="bfloat16"))
    assert half.weights_hash != train(config=config).weights_hash
    assert half.history[-1]["train_loss"] < half.history[0]["train_loss"]
    for part in half.model.state_dict().values():
        assert part.dtype != torch.bfloat16
        assert torch.isfinite(part).all()


def test_every_weight_of_a_member_learns():
    run = run_of(worlds.world())
    before = {name: weight.detach().clone() for name, weight in run.weights.items()}
    for _ in range(3):
        run.train_epoch()
    still = [name for name, weight in run.weights.items() if torch.equal(weight, before[name])]
    assert still == []


# Small, odd and foreign data.


def test_a_graph_without_edges_trains_without_mdpl():
    graph = ToolGraph("v0", KEYS, KEYS, *empty_edges())
    result = train(graph=graph)
    assert "mdpl_auc" not in result.history[0]
    assert result.history[0]["mdpl_loss"] == 0.0
    assert all(torch.isfinite(part).all() for part in result.model.state_dict().values())


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (examples(7, 4), "at least 8 train examples with a plan, got 7"),
        (examples(8, 1), "at least 2 validation examples with a plan, got 1"),
        ([], "at least 8 train examples with a plan, got 0"),
    ],
)
def test_too_few_examples_are_refused(rows, message):
    with pytest.raises(NotEnoughData, match=message):
        train(rows)


def test_the_smallest_set_trains():
    assert len(train(examples(8, 2)).history) == 2


def test_rows_of_one_group_train():
    rows = [dataclasses.replace(row, group="one") for row in examples(8, 2)]
    state = train(rows).model.state_dict()
    assert all(torch.isfinite(part).all() for part in state.values())


def test_fewer_candidates_than_a_plan_has_tools_train():
    result = train_world(worlds.world(), dataclasses.replace(CONFIG, shortlist=1))
    assert all(math.isfinite(record["train_loss"]) for record in result.history)


def test_examples_with_foreign_tools_are_left_out_and_counted():
    rows = [*examples(), Example("x", "ab", ("s/a", "s/gone"))]
    result = train(rows)
    assert result.num_skipped == 1
    assert result.weights_hash == train().weights_hash
    with pytest.raises(NotEnoughData, match=r"got 7 .1 left out for tools outside the graph"):
        train([*examples(7, 2), rows[-1]])


def test_test_rows_are_not_looked_at():
    rows = [*examples(), Example("t", "ee", ("s/e",) * 9, split="test")]
    assert train(rows).weights_hash == train().weights_hash


def test_a_small_memory_still_trains():
    config = dataclasses.replace(CONFIG, memory_rows=5)
    assert train(config=config).model.memory.requests.size(0) == 5


def test_plans_are_cut_at_the_longest_length_wanted():
    result = train_world(worlds.world(), dataclasses.replace(CONFIG, max_length=2))
    assert result.config.max_length == 2
    assert all(math.isfinite(record["train_loss"]) for record in result.history)


def test_vectors_must_match_in_number():
    with pytest.raises(GraphMismatch, match="5 tools and 20 requests, got 5 and 1"):
        train_gtool(GRAPH, embed(KEYS), examples(), embed_requests(["a"], embed), CONFIG, seed=0)


# A training row meets no evidence of its own.


def table(here):
    graph = here.graph
    return EdgeTable.from_edges(graph.edge_index, graph.edge_counts, graph.num_tools)


def training_part(here):
    return dataclasses.replace(here, rows=tuple(r for r in here.rows if r.split == "train"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_a_step_sees_the_graph_mined_without_the_groups_of_its_batch(seed, rate):
    here = training_part(worlds.world(seed))
    run = run_of(worlds.world(seed), dataclasses.replace(CONFIG, mask_rate=rate))
    every = table(here)
    assert torch.equal(run.edges.code, every.code)
    assert torch.equal(run.edges.counts, every.counts)
    for batch in ([0], [1, 7, 2], list(range(18))):
        at = run.generator.get_state()
        hidden, edges, use = run._honest(batch)
        groups = {run.train.groups[row] for row in batch}
        mined = table(here.without(groups))
        masked = mask_edges(every.code.numel(), rate, torch.Generator().set_state(at))
        stays = ~torch.isin(mined.code, every.code[masked])
        assert torch.equal(edges.code, mined.code[stays])
        assert torch.equal(edges.counts, mined.counts[stays])
        assert torch.equal(every.code[hidden], every.code[~torch.isin(every.code, edges.code)])
        rest = here.without(groups)
        plans = [[here.keys.index(key) for key in row.tools] for row in rest.rows]
        expected = tool_use(padded_plans(plans), 6) if plans else torch.zeros(6, 4)
        assert torch.equal(use, expected)


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.999])
def test_a_share_of_the_tools_has_no_past_in_a_step(rate, monkeypatch):
    run = run_of(worlds.world(0), dataclasses.replace(CONFIG, cold_rate=rate, mask_rate=0.0))
    seen, planned = [], run.member.log_probs

    def spy(tools, candidates, plans):
        seen.append((tools.side, candidates))
        return planned(tools, candidates, plans)

    monkeypatch.setattr(run.member, "log_probs", spy)
    batch = list(range(4))
    for _ in range(20):
        run._step(batch)
    _, edges, use = run._honest(batch)
    new = torch.stack([(side.use[:, 0] == 0) & (use[:, 0] > 0) for side, _ in seen])
    assert new.sum() / (use[:, 0] > 0).sum() / len(seen) == pytest.approx(rate, abs=0.1)
    for gone, (side, candidates) in zip(new, seen, strict=True):
        assert (candidates.memory[gone[candidates.tools]] == 0).all()
        assert not gone[side.edges.edge_index].any()
        assert candidates.plans.size(1) <= CONFIG.neighbours
        place = candidates.plans.clamp(0, candidates.size - 1).flatten(1)
        held = candidates.tools.gather(1, place)
        is_tool = (candidates.plans >= 0) & (candidates.plans < candidates.size)
        assert not (gone[held].view_as(is_tool) & is_tool).any()
    if rate == 0.0:
        assert all(torch.equal(side.edges.code, edges.code) for side, _ in seen)


BEGINNINGS = [[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0], [1, 1, 0, 0, 2, 2]]


def read_of(run, row):
    """All that planning one training row is computed from, and what comes of it.

    The features of every candidate after several beginnings, the states of tools and request, and
    the probabilities of every choice.
    """
    member = run.member.eval()
    _, edges, use = run._honest([row])
    tools = member.encode_tools(run.tool_x, edges, use)
    candidates = run.candidates.rows(slice(row, row + 1))
    request = member.encode_requests(candidates.x, tools)
    wanted = candidates.positions(torch.tensor(BEGINNINGS[:1]))
    out = [*tools.layers, tools.side.key, request.features, candidates.text, candidates.memory]
    fixed = member.decoder.fix(tools.side, candidates)
    for beginning in BEGINNINGS:
        plan = wanted[:, beginning].clamp_max(candidates.size - 1)
        prefix = torch.full((1, 7, 6), -1)
        for k in range(7):
            prefix[0, k, :k] = plan[0, :k]
        out += member.decoder._features(tools.side, fixed, prefix)
        out.append(member.log_probs(tools, candidates, plan))
    return [part.detach() for part in out]


def differ(one, other):
    return max(
        float((a.exp() - b.exp()).abs().max()) if a.isinf().any() else float((a - b).abs().max())
        for a, b in zip(one, other, strict=True)
    )


LEAK_CONFIGS = {
    "plain": {},
    "few remembered": {"memory_rows": 10},
    "plans cut short": {"max_length": 2},
    "few neighbours": {"neighbours": 2},
}


@pytest.mark.parametrize("change", LEAK_CONFIGS)
def test_no_feature_of_a_training_row_depends_on_the_evidence_of_its_group(change):
    config = dataclasses.replace(CONFIG, mask_rate=0.0, **LEAK_CONFIGS[change])
    moved = 0.0
    for seed in range(3):
        here = worlds.world(10 * len(change) + seed)
        group = f"train {seed}"
        run, other = run_of(here, config), run_of(here.changed({group}, seed=99), config)
        own = [row for row in range(18) if run.train.groups[row] == group]
        assert len(own) == 3
        for row in own:
            assert differ(read_of(run, row), read_of(other, row)) < 2e-5
        stranger = next(row for row in range(18) if row not in own)
        moved = max(moved, differ(read_of(run, stranger), read_of(other, stranger)))
    assert moved > 0.1


def test_validation_rows_plan_without_their_own_evidence():
    here = worlds.world()
    run, other = run_of(here), run_of(here.changed({f"validation {i}" for i in range(3)}, seed=99))
    assert not torch.equal(run.validation.plans, other.validation.plans)
    for part, same in zip(run.candidates_to_validate, other.candidates_to_validate, strict=True):
        assert torch.equal(part, same)
    assert torch.equal(run.edges.counts, other.edges.counts)


# What is left out.


def test_without_the_graph_edges_change_nothing():
    here = worlds.world(num_tools=9)
    config = dataclasses.replace(CONFIG, ablation=Ablation.NO_GRAPH, shortlist=4, epochs=2)
    vectors, hashes = worlds.vectors_of(here.rows), set()
    for graph in (here.graph, worlds.mine(here.keys, ())):
        tool_x = worlds.embed(graph.texts)
        hashes.add(train_gtool(graph, tool_x, here.rows, vectors, config, seed=0).weights_hash)
    assert len(hashes) == 1


@pytest.mark.parametrize("ablation", [Ablation.NO_MDPL, Ablation.NO_REQUEST_NODE_NO_MDPL])
def test_without_mdpl_no_edge_is_hidden_and_its_weight_counts_nothing(ablation):
    here = worlds.world()
    config = dataclasses.replace(CONFIG, ablation=ablation, mask_rate=0.9, epochs=1)
    run = run_of(here, config)
    _, edges, _ = run._honest([0])
    assert torch.equal(edges.code, table(training_part(here).without({"train 0"})).code)
    heavy = dataclasses.replace(config, mdpl_weight=9.0)
    assert train_world(here, config).weights_hash == train_world(here, heavy).weights_hash


def test_with_mdpl_its_weight_counts():
    here, config = worlds.world(), dataclasses.replace(CONFIG, epochs=1)
    heavy = dataclasses.replace(config, mdpl_weight=9.0)
    assert train_world(here, config).weights_hash != train_world(here, heavy).weights_hash


# The hash.


def test_the_hash_sees_names_shapes_types_and_values():
    base = {"a": torch.tensor([1.0, 2.0])}
    others = [
        {"b": torch.tensor([1.0, 2.0])},
        {"a": torch.tensor([[1.0, 2.0]])},
        {"a": torch.tensor([1.0, 2.0], dtype=torch.float64)},
        {"a": torch.tensor([1.0, 2.5])},
    ]
    assert weights_hash(base) == weights_hash({"a": torch.tensor([1.0, 2.0])})
    assert len({weights_hash(state) for state in [base, *others]}) == 5
    assert weights_hash({"a": torch.tensor(1.0), "b": base["a"]}) == weights_hash(
        {"b": base["a"], "a": torch.tensor(1.0)}
    )
