import dataclasses

import pytest
import torch
from torch.nn.functional import normalize

from models.errors import GraphMismatch, NotEnoughData
from models.gtool import GToolConfig, GToolPlanner
from models.training import train_gtool, weights_hash
from models.types import Example, ToolGraph, empty_edges

CONFIG = GToolConfig(
    hidden_channels=8, heads=2, num_layers=2, epochs=3, beam_width=3, min_steps=2, dropout=0.2
)
NAMES = "abcde"
KEYS = tuple(f"s/{name}" for name in NAMES)
GRAPH = ToolGraph(
    "v1", KEYS, KEYS, torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), torch.full((4, 2), 4.0)
)


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
    request_x = embed([row.request for row in rows])
    return train_gtool(graph, embed(graph.keys), rows, request_x, config, seed=seed, **kwargs)


class Interrupted(Exception):
    pass


def stop_after(epoch):
    def on_epoch(now, record):
        if now == epoch:
            raise Interrupted

    return on_epoch


def test_training_learns_a_small_world():
    config = dataclasses.replace(CONFIG, epochs=15, min_steps=4, learning_rate=1e-2)
    result = train(config=config)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    assert result.history[result.best_epoch]["n_f1"] > 0.9
    planner = GToolPlanner(result.model, GRAPH, embed(KEYS), embed)
    assert planner.plan(["bc"])[0][0].tools == ("s/b", "s/c")


def test_the_result_holds_history_length_and_hash():
    seen = []
    result = train(on_epoch=lambda epoch, record: seen.append((epoch, record)))
    assert result.config.max_length == 2
    assert [epoch for epoch, _ in seen] == [0, 1, 2]
    assert [record for _, record in seen] == result.history
    assert {"train_loss", "mdpl_loss", "n_f1", "l_f1", "ned"} <= set(result.history[0])
    assert result.weights_hash == weights_hash(result.model.state_dict())
    assert result.model.memory.requests.size(0) == 20


def test_same_seed_same_weights_other_seed_others():
    first = train().weights_hash
    assert train().weights_hash == first
    assert train(seed=1).weights_hash != first


def test_two_threads_repeat_to_the_bit():
    torch.set_num_threads(2)
    keys = tuple(f"s/{i:03}" for i in range(200))
    draw = torch.Generator().manual_seed(0)
    index = torch.randperm(200 * 199, generator=draw)[:600]
    source, target = index // 199, index % 199
    edges = torch.stack([source, target + (target >= source).long()])
    graph = ToolGraph("v", keys, keys, edges, torch.ones(600, 2))
    plans = torch.randint(200, (200, 4), generator=draw).tolist()
    rows = [
        Example(str(i), "", tuple(keys[t] for t in plan), split="train" if i > 9 else "validation")
        for i, plan in enumerate(plans)
    ]
    tool_x, request_x = torch.randn(200, 32, generator=draw), torch.randn(200, 32, generator=draw)
    x = normalize(tool_x, dim=1), normalize(request_x, dim=1)
    config = GToolConfig(hidden_channels=64, epochs=1, min_steps=2, beam_width=2)
    hashes = {train_gtool(graph, x[0], rows, x[1], config, seed=0).weights_hash for _ in range(3)}
    assert len(hashes) == 1


def test_the_random_state_of_the_caller_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    train()
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_killed_training_resumes_to_the_very_same_weights(tmp_path, epoch):
    whole = train()
    with pytest.raises(Interrupted):
        train(resume_dir=tmp_path, on_epoch=stop_after(epoch))
    later = []
    resumed = train(resume_dir=tmp_path, on_epoch=lambda now, _: later.append(now))
    assert later == [0, 1, 2][epoch + 1 :]
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.history == whole.history
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_state_of_another_training_is_ignored(tmp_path):
    train(resume_dir=tmp_path)
    assert train(seed=1, resume_dir=tmp_path).weights_hash == train(seed=1).weights_hash
    epochs = []
    train(seed=1, code_version="2", resume_dir=tmp_path, on_epoch=lambda e, _: epochs.append(e))
    assert epochs == [0, 1, 2]


def test_a_damaged_state_is_ignored(tmp_path):
    (tmp_path / "state.safetensors").write_bytes(b"half of it")
    assert train(resume_dir=tmp_path).weights_hash == train().weights_hash


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
    assert len(train(examples(8, 2)).history) == 3


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


def test_vectors_must_match_in_number():
    with pytest.raises(GraphMismatch, match="5 tools and 20 requests, got 5 and 1"):
        train_gtool(GRAPH, embed(KEYS), examples(), embed(["a"]), CONFIG, seed=0)


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
