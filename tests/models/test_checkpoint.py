import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize

from models.checkpoint import load_planner, read_extra, save_planner
from models.errors import CheckpointMismatch
from models.gtool import GTool, GToolConfig, GToolPlanner
from models.types import ToolGraph

CONFIG = GToolConfig(hidden_channels=8, heads=2, num_layers=2, beam_width=4, max_length=3)
KEYS = ("s/a", "s/b", "s/ü")
GRAPH = ToolGraph(
    "v", KEYS, KEYS, torch.tensor([[0, 1], [1, 2]]), torch.tensor([[3.0, 1.0], [1.0, 0.0]])
)


def embed(texts):
    counts = [[1.0 + text.count(letter) for letter in "abcü"] for text in texts]
    return normalize(torch.tensor(counts), dim=1)


def planner(seed=0):
    torch.manual_seed(seed)
    model = GTool(CONFIG, 4, 3, num_memory=2)
    model.memory.requests, model.memory.weights = embed(["ab", "c"]), torch.rand(2, 6)
    return GToolPlanner(model, GRAPH, embed(KEYS), embed, {"s"})


def save(folder, seed=0):
    made = planner(seed)
    save_planner(folder, made.model, CONFIG, GRAPH, embed(KEYS), {"s"}, {"seed": seed})
    return made


def test_a_loaded_planner_plans_the_same(tmp_path):
    made = save(tmp_path / "deep" / "planner")
    loaded = load_planner(tmp_path / "deep" / "planner", embed)
    requests = ["abc", "c", ""]
    assert loaded.plan(requests, top=4) == made.plan(requests, top=4)
    assert loaded.graph.keys == KEYS
    assert loaded.model.config == CONFIG
    assert loaded.dataflow_namespaces == {"s"}
    assert read_extra(tmp_path / "deep" / "planner") == {"seed": 0}


def test_saving_again_replaces_the_planner_and_leaves_nothing_else(tmp_path):
    save(tmp_path / "planner")
    made = save(tmp_path / "planner", seed=1)
    loaded = load_planner(tmp_path / "planner", embed)
    assert loaded.plan(["abc"], 4) == made.plan(["abc"], 4)
    assert [path.name for path in tmp_path.iterdir()] == ["planner"]
    assert sorted(path.suffix for path in (tmp_path / "planner").iterdir()) == [
        ".json",
        ".safetensors",
        ".safetensors",
    ]


def test_a_failed_save_keeps_the_former_planner(tmp_path):
    made = save(tmp_path / "planner")
    with pytest.raises(TypeError):
        save_planner(
            tmp_path / "planner", made.model, CONFIG, GRAPH, embed(KEYS), (), {"bad": object()}
        )
    assert load_planner(tmp_path / "planner", embed).plan(["abc"]) == made.plan(["abc"])
    assert [path.name for path in tmp_path.iterdir()] == ["planner"]


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "graph.safetensors"])
@pytest.mark.parametrize("fault", ["missing", "cut"])
def test_a_missing_or_damaged_file_is_refused(tmp_path, name, fault):
    save(tmp_path / "planner")
    path = tmp_path / "planner" / name
    if fault == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointMismatch, match="expected"):
        load_planner(tmp_path / "planner", embed)


def test_weights_of_another_planner_are_refused(tmp_path):
    save(tmp_path / "one")
    save(tmp_path / "two", seed=1)
    (tmp_path / "two" / "weights.safetensors").rename(tmp_path / "one" / "weights.safetensors")
    with pytest.raises(CheckpointMismatch, match="belongs to another planner"):
        load_planner(tmp_path / "one", embed)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", 99, "expected format 1 .*, got 99"),
        ("keys", ["s/a", "s/b"], "texts"),
        ("keys", ["s/a", "s/a", "s/ü"], "distinct tool keys"),
        ("texts", ["s/a"], "1 texts"),
        ("config", {"hidden_channels": 16}, "fit each other"),
        ("config", {"unknown": 1}, "fit each other"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(tmp_path, field, value, message):
    save(tmp_path / "planner")
    path = tmp_path / "planner" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(CheckpointMismatch, match=message):
        load_planner(tmp_path / "planner", embed)


def test_a_configuration_without_a_field_is_refused(tmp_path):
    save(tmp_path / "planner")
    path = tmp_path / "planner" / "config.json"
    head = json.loads(path.read_text())
    del head["keys"]
    path.write_text(json.dumps(head))
    with pytest.raises(CheckpointMismatch, match="expected 'keys'"):
        load_planner(tmp_path / "planner", embed)


def test_changed_tensors_are_refused(tmp_path):
    save(tmp_path / "planner")
    path = tmp_path / "planner" / "graph.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"edge_counts": tensors["edge_counts"] + 1}, path)
    with pytest.raises(CheckpointMismatch, match="expected tensors with hash"):
        load_planner(tmp_path / "planner", embed)


def test_another_text_encoder_is_refused(tmp_path):
    save(tmp_path / "planner")
    with pytest.raises(CheckpointMismatch, match=r"4 channels .*, got one with 5"):
        load_planner(tmp_path / "planner", lambda texts: torch.ones(len(texts), 5))
    with pytest.raises(CheckpointMismatch, match="another vector"):
        load_planner(tmp_path / "planner", lambda texts: -embed(texts))
