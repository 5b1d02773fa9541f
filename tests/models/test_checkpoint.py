import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import normalize

from models.ablation import Ablation
from models.checkpoint import (
    Readout,
    load_llm_planner,
    load_planner,
    read_extra,
    readout_llm,
    save_planner,
)
from models.errors import CheckpointMismatch
from models.fusion import FusionPlanner
from models.graph_tokens import LLMConfig, new_graph_tokens
from models.gtool import GTool, GToolConfig, GToolPlanner
from models.links import LinkScorer
from models.llm_planner import LLMPlanner
from models.prompt import Names
from models.types import Example, ToolGraph
from tests.factories import tiny_llm

CONFIG = GToolConfig(hidden_channels=8, heads=2, num_layers=2, beam_width=4, max_length=3)
KEYS = ("s/a", "s/b", "s/ü")
GRAPH = ToolGraph(
    "v", KEYS, KEYS, torch.tensor([[0, 1], [1, 2]]), torch.tensor([[3.0, 1.0], [1.0, 0.0]])
)


def embed(texts):
    counts = [[1.0 + text.count(letter) for letter in "abcü"] for text in texts]
    return normalize(torch.tensor(counts), dim=1)


# What a fetches feeds b; ü feeds nobody.
PAST = [
    Example("1", "", ("s/a", "s/b"), ((0, 1),), True, group="1"),
    Example("2", "", ("s/a", "s/ü", "s/b"), ((0, 2),), True, group="2"),
    Example("3", "", ("s/ü", "s/b"), (), True, group="3"),
]


def planner(seed=0):
    torch.manual_seed(seed)
    model = GTool(CONFIG, 4, 3)
    plans = torch.tensor([[0, 1, -1], [2, -1, -1], [1, 1, 2]])
    model.memory.fit(embed(["ab", "c", "bü"]), plans, ["1", "2", "3"], 9)
    model.use = torch.rand(3, 4)
    model.temperature.fill_(0.5)
    model.calibration.copy_(torch.tensor([0.1, 0.6]))
    scorer = LinkScorer.fit(GRAPH, PAST, embed(KEYS))
    return GToolPlanner(model, GRAPH, embed(KEYS), embed, scorer)


def save(folder, seed=0):
    made = planner(seed)
    save_planner(folder, made.model, CONFIG, GRAPH, embed(KEYS), made.link_scorer, {"seed": seed})
    return made


def test_a_loaded_planner_plans_the_same(tmp_path):
    made = save(tmp_path / "deep" / "planner")
    loaded = load_planner(tmp_path / "deep" / "planner", embed)
    requests = ["abc", "c", ""]
    assert loaded.plan(requests, top=4) == made.plan(requests, top=4)
    assert loaded.graph.keys == KEYS
    assert loaded.model.config == CONFIG
    tools = ("s/a", "s/ü", "s/b")
    assert loaded.links(tools) == made.links(tools) == ((0, 2),)
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
        ".safetensors",
    ]


def test_a_failed_save_keeps_the_former_planner(tmp_path):
    made = save(tmp_path / "planner")
    with pytest.raises(TypeError):
        save_planner(
            tmp_path / "planner",
            made.model,
            CONFIG,
            GRAPH,
            embed(KEYS),
            made.link_scorer,
            {"bad": object()},
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
        ("format", 99, "expected format 2 .*, got 99"),
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


READOUT = LLMConfig(candidates=2, projector_channels=8, max_length=2, beam_width=2)


def save_with_readout(folder, llm):
    made = planner()
    tokens = new_graph_tokens(READOUT, made.model, llm, Names.of(llm, KEYS).lines)
    readout = Readout(READOUT, tokens, llm)
    save_planner(folder, made.model, CONFIG, GRAPH, embed(KEYS), made.link_scorer, {}, readout)
    return LLMPlanner(READOUT, tokens, made, llm)


def test_a_loaded_llm_readout_plans_the_same_and_the_graph_readout_beside_it(tmp_path):
    llm = tiny_llm()
    made = save_with_readout(tmp_path / "planner", llm)
    assert readout_llm(tmp_path / "planner") == "tiny-llama"
    loaded = load_llm_planner(tmp_path / "planner", embed, llm)
    assert loaded.plan(["abc", "c"], top=2) == made.plan(["abc", "c"], top=2)
    assert load_planner(tmp_path / "planner", embed).plan(["abc"]) == planner().plan(["abc"])
    only = load_llm_planner(tmp_path / "planner", embed, llm, allowed={"s/b"})
    assert {tool for plan in only.plan(["abc"], top=2)[0] for tool in plan.tools} == {"s/b"}


def test_both_readouts_are_read_with_the_weight_that_training_chose(tmp_path):
    llm, config = tiny_llm(), replace(READOUT, fusion_weight=0.3, ablation=Ablation.NO_MDPL)
    made = planner()
    tokens = new_graph_tokens(config, made.model, llm, Names.of(llm, KEYS).lines)
    readout = Readout(config, tokens, llm)
    save_planner(
        tmp_path / "p", made.model, CONFIG, GRAPH, embed(KEYS), made.link_scorer, {}, readout
    )
    loaded = FusionPlanner(
        load_planner(tmp_path / "p", embed), load_llm_planner(tmp_path / "p", embed, llm)
    )
    assert loaded.weight == 0.3
    assert loaded.llm.config == config
    expected = FusionPlanner(made, LLMPlanner(config, tokens, made, llm), 0.3)
    assert loaded.plan(["abc", "c"], top=2) == expected.plan(["abc", "c"], top=2)
    some = (embed, llm, {"s/b", "t/new"}, RENAMED)
    renamed = FusionPlanner(
        load_planner(tmp_path / "p", embed, *some[2:]), load_llm_planner(tmp_path / "p", *some)
    )
    assert {t for p in renamed.plan(["abc"], top=3)[0] for t in p.tools} == {"s/b", "t/new"}


def test_a_planner_without_llm_readout_says_so(tmp_path):
    save(tmp_path / "planner")
    assert readout_llm(tmp_path / "planner") is None
    with pytest.raises(CheckpointMismatch, match="train_llm_readout = always"):
        load_llm_planner(tmp_path / "planner", embed, tiny_llm())


def test_another_language_model_is_refused(tmp_path):
    save_with_readout(tmp_path / "planner", tiny_llm())
    with pytest.raises(CheckpointMismatch, match="expected the language model 'tiny-llama'"):
        load_llm_planner(tmp_path / "planner", embed, tiny_llm("qwen2"))


def test_a_damaged_readout_is_refused(tmp_path):
    llm = tiny_llm()
    save_with_readout(tmp_path / "planner", llm)
    file = tmp_path / "planner" / "graph_tokens.safetensors"
    weights = load_file(file)
    save_file({**weights, "graph_marker": weights["graph_marker"] + 1}, file)
    with pytest.raises(CheckpointMismatch, match="belongs to another planner"):
        load_llm_planner(tmp_path / "planner", embed, llm)


RENAMED = {"s/a": "t/new", "s/nowhere": "s/x"}


def renamed(plans):
    return [
        [(tuple(RENAMED.get(key, key) for key in plan.tools), plan.score) for plan in ranked]
        for ranked in plans
    ]


def told(plans):
    return [[(plan.tools, plan.score) for plan in ranked] for ranked in plans]


def test_a_stored_planner_finds_renamed_tools_by_their_new_keys(tmp_path):
    made = save(tmp_path / "planner")
    requests = ["abc", "a", ""]
    loaded = load_planner(tmp_path / "planner", embed, renamed=RENAMED)
    assert loaded.graph.keys == ("t/new", "s/b", "s/ü")
    assert told(loaded.plan(requests, top=4)) == renamed(made.plan(requests, top=4))
    assert loaded.links(("t/new", "s/ü", "s/b")) == ((0, 2),)
    allowed = load_planner(tmp_path / "planner", embed, {"s/b", "s/ü", "s/a"}, RENAMED)
    assert not {"s/a", "t/new"} & {
        key for plans in allowed.plan(requests, 4) for plan in plans for key in plan.tools
    }


def test_of_two_tools_that_became_one_the_planner_offers_one(tmp_path):
    save(tmp_path / "planner")
    loaded = load_planner(tmp_path / "planner", embed, {"s/b", "s/ü"}, {"s/a": "s/b"})
    assert loaded.graph.keys == KEYS
    tools = {key for plan in loaded.plan(["abc"], 4)[0] for key in plan.tools}
    assert tools <= {"s/b", "s/ü"}


def test_the_llm_reads_old_names_and_its_plans_have_the_new_keys(tmp_path):
    llm = tiny_llm()
    made = save_with_readout(tmp_path / "planner", llm)
    loaded = load_llm_planner(tmp_path / "planner", embed, llm, renamed=RENAMED)
    assert told(loaded.plan(["abc", "c"], top=2)) == renamed(made.plan(["abc", "c"], top=2))
    without = load_llm_planner(tmp_path / "planner", embed, llm, {"s/b", "s/ü"}, RENAMED)
    tools = {key for plan in without.plan(["abc"], 4)[0] for key in plan.tools}
    assert tools
    assert tools <= {"s/b", "s/ü"}
