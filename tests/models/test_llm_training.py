"""Training of the LLM readout: the right loss, cheaply; only the graph side learns; resumable."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from models.ablation import Ablation
from models.candidates import embed_requests
from models.distributed import World
from models.errors import TrainingDiverged
from models.fusion import Chosen
from models.graph_tokens import LLMConfig, new_graph_tokens
from models.gtool import GToolConfig, GToolPlanner
from models.llm import FrozenLLM
from models.llm_planner import Catalogue, LLMPlanner
from models.llm_training import (
    PlanningLoss,
    _Run,
    disturbed,
    likely_pairs,
    predict_links,
    train_llm_readout,
)
from models.prompt import plan_tokens
from models.readings import Rows, read_requests, read_rows
from models.training import train_gtool, weights_hash
from models.types import ToolGraph, empty_edges
from tests.factories import chores_planner, letter_vectors, tiny_llm

SHORT = LLMConfig(
    candidates=3,
    projector_channels=16,
    batch_size=4,
    align_steps=4,
    plan_steps=8,
    save_every=3,
    validate_every=4,
    validation_rows=4,
    learning_rate=1e-2,
    fusion_rows=0,
)


@pytest.fixture(scope="module")
def world():
    """A trained graph readout, its examples, and the vectors of their requests."""
    return chores_planner()


def train(llm, world, config=SHORT, **options):
    return train_llm_readout(llm, *world, config, seed=0, **options)


def rows_of(world):
    """The rows of both splits, as training takes them."""
    drawn, examples, vectors = world
    parts = {}
    for split in ("train", "validation"):
        some = [i for i, example in enumerate(examples) if example.split == split]
        parts[split] = Rows(
            [examples[i].request for i in some],
            vectors.rows(some),
            [[drawn.graph.index[key] for key in examples[i].tools] for i in some],
            [examples[i].links for i in some],
            [examples[i].id for i in some],
        )
    return parts


def run_of(llm, world, config=SHORT):
    rows = rows_of(world)
    readings, honest = read_rows(world[0], rows, config.candidates)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return _Run(llm, honest, rows, readings, replace(config, max_length=3), seed=0)


def loss_of(llm, world, config=SHORT):
    """A loss and fresh tokens for it."""
    config = replace(config, max_length=3)
    loss = PlanningLoss(llm, Catalogue.of(llm, world[0].graph), config)
    return loss, new_graph_tokens(config, world[0].model, llm, loss.catalogue.names.lines)


def pieces_of(tokens, world, requests):
    drawn = world[0]
    layers = tokens.encode_tools(drawn.tool_x, drawn.graph.edge_index, drawn.graph.edge_counts)
    readings = read_requests(drawn, requests, tokens.config.candidates)
    return layers, readings, tokens.graph_pieces(letter_vectors(requests), layers, readings)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2"])
def test_no_weight_of_the_language_model_changes_and_every_graph_weight_does(world, kind):
    llm = tiny_llm(kind)
    before = weights_hash(llm.model.state_dict())
    nothing = replace(SHORT, align_steps=0, plan_steps=0)
    short = replace(SHORT, align_steps=1, plan_steps=3)
    fresh = dict(train(llm, world, nothing).tokens.named_parameters())
    trained = dict(train(llm, world, short).tokens.named_parameters())
    assert weights_hash(llm.model.state_dict()) == before
    assert all(w.grad is None for w in llm.model.parameters())
    assert fresh.keys() == trained.keys() >= {"graph_marker", "node_marker", "step_position"}
    same = [name for name in fresh if torch.equal(fresh[name], trained[name])]
    # A bias that moves all attention scores of a node alike has no gradient.
    assert all(name.endswith("lin_key.bias") for name in same)


def test_a_training_that_diverges_is_no_success(world):
    with pytest.raises(TrainingDiverged, match=r"expected .*loss to be a number"):
        train(tiny_llm(), world, replace(SHORT, learning_rate=1e30))


def only(world, *names, request="do it"):
    """The same world with few tools; every plan calls the first of them."""
    drawn, examples, _ = world
    keys = tuple(f"chores/{name}" for name in names)
    rows = [drawn.graph.index[key] for key in keys]
    texts = tuple(drawn.graph.texts[row] for row in rows)
    graph, x = ToolGraph("v", keys, texts, *empty_edges()), drawn.tool_x[rows]
    some = [replace(e, tools=keys[:1], request=request or e.request) for e in examples]
    config = GToolConfig(hidden_channels=16, epochs=1, batch_size=8, min_steps=1)
    vectors = embed_requests([e.request for e in some], letter_vectors)
    model = train_gtool(graph, x, some, vectors, config, seed=0).model
    return GToolPlanner(model, graph, x, letter_vectors), some, vectors


@pytest.mark.parametrize("request_text", ["", "long " * 2000, "<|im_end|>"])
@pytest.mark.parametrize("tools", [("send_mail",), ("send_mail", "read_mail")])
def test_few_tools_and_odd_requests_train_and_plan(world, tools, request_text):
    small = only(world, *tools, request=request_text)
    llm = tiny_llm()
    result = train(llm, small, replace(SHORT, plan_steps=2))
    planner = LLMPlanner(result.config, result.tokens, small[0], llm)
    assert planner.plan([request_text])[0][0].tools


def test_training_puts_everything_on_the_device_of_the_language_model(world, monkeypatch):
    """No GPU here: the device that computes nothing still refuses tensors of another one."""
    monkeypatch.setattr(FrozenLLM, "embedding_rms", 0.3)
    llm = tiny_llm()
    llm.model.to("meta")
    llm.device = torch.device("meta")
    run = run_of(llm, world)
    layers, rows = run._layers(run._hidden()), run.rows["train"]
    pairs, shown = torch.tensor([[0, 1], [3, 2]], device="meta"), run.readings["train"].take([0, 3])
    loss, logits = run._planning_loss(rows, shown, [0, 3], layers, pairs)
    assert loss.device.type == logits.device.type == "meta"


def test_training_lowers_the_loss_on_validation_rows(world):
    longer = replace(SHORT, plan_steps=24, validate_every=8, patience=9)
    losses = [record["validation_loss"] for record in train(tiny_llm(), world, longer).history]
    assert min(losses) < losses[0] - 0.1


def test_training_stops_when_validation_rows_gain_no_more(world):
    stalled = replace(SHORT, plan_steps=20, validate_every=1, patience=2, learning_rate=1e-12)
    stalled = replace(stalled, weight_decay=0.0, align_steps=0)
    history = train(tiny_llm(), world, stalled).history
    losses = [record["validation_loss"] for record in history]
    best = losses.index(min(losses))
    assert len(history) - 1 - best == 2
    assert history[-1]["step"] < 20


def test_same_seed_same_weights_and_a_killed_training_goes_on_to_the_same(world, tmp_path):
    llm, short = tiny_llm(), replace(SHORT, plan_steps=5)
    whole = train(llm, world, short)
    assert train(llm, world, short).weights_hash == whole.weights_hash

    class Killed(BaseException):
        pass

    def kill(step, metrics):
        if step >= 6:
            raise Killed

    with pytest.raises(Killed):
        train(llm, world, short, on_step=kill, resume_dir=tmp_path)
    seen = []
    resumed = train(
        llm, world, short, on_step=lambda step, m: seen.append(step), resume_dir=tmp_path
    )
    assert min(seen) > 6
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.history == whole.history


def test_the_state_of_another_training_is_ignored(world, tmp_path):
    llm, short = tiny_llm(), replace(SHORT, align_steps=1, plan_steps=2)
    train(llm, world, short, resume_dir=tmp_path)
    other = replace(short, learning_rate=2e-2)
    assert train(llm, world, other, resume_dir=tmp_path).weights_hash == (
        train(llm, world, other).weights_hash
    )


def test_small_batches_that_accumulate_make_the_step_of_a_large_one(world):
    whole = run_of(tiny_llm(), world, replace(SHORT, batch_size=8, accumulate=1))
    parts = run_of(tiny_llm(), world, replace(SHORT, batch_size=2, accumulate=4))
    for stage in ("_align", "_plan"):
        gradients, records = [], []
        for run in (whole, parts):
            run.optimizer.zero_grad()
            run.order = []
            records.append(getattr(run, stage)()[0])
            gradients.append({n: w.grad for n, w in run.weights.items() if w.grad is not None})
        assert records[1] == pytest.approx(records[0], abs=1e-5)
        assert gradients[0].keys() == gradients[1].keys()
        for name, gradient in gradients[0].items():
            assert torch.allclose(gradients[1][name], gradient, atol=1e-5), name


class Alone(World):
    """One of several processes that exchanges nothing."""

    def average(self, parameters, weight):
        """Keep the gradients as they are."""

    def total(self, values):
        """What this process has."""
        return [float(value) for value in values]


def test_the_shares_of_two_processes_make_the_step_of_one(world, monkeypatch):
    config = replace(SHORT, batch_size=5)
    for stage in ("_align", "_plan"):
        whole = run_of(tiny_llm(), world, config)
        getattr(whole, stage)()
        sums, total = {}, 0
        for rank in range(2):
            monkeypatch.setattr(World, "current", lambda rank=rank: Alone(rank, 2))
            run = run_of(tiny_llm(), world, config)
            _, weight = getattr(run, stage)()
            total += weight
            for name, w in run.weights.items():
                if w.grad is not None:
                    sums[name] = sums.get(name, 0) + w.grad * weight
        monkeypatch.setattr(World, "current", World)
        for name, w in whole.weights.items():
            if w.grad is not None:
                assert torch.allclose(sums[name] / total, w.grad, atol=1e-5), name


def test_the_graph_side_computes_in_bfloat16_where_the_language_model_does(world):
    llm = tiny_llm()
    run_of(llm, world)
    half = FrozenLLM(llm.model.to(torch.bfloat16), llm.tokenizer, name="half", digest="half")
    run = run_of(half, world)
    seen = set()
    run.tokens.tool_projector.lin_in.register_forward_hook(lambda *made: seen.add(made[2].dtype))
    for _ in range(6):
        record = run.train_step()
    assert all(w.dtype == torch.float32 for w in run.weights.values())
    assert 0 < record["train_loss"] < 100
    assert seen == {torch.bfloat16}


def full_loss(llm, loss, texts, candidates, pieces, plans):
    """The same loss with the whole prompt read under autograd, one request after the other."""
    total, count, end = 0.0, 0, loss.frame.end
    for text, shown, piece, plan in zip(texts, candidates, pieces, plans, strict=True):
        answer = plan_tokens(loss.catalogue.names.lines, plan, end)
        listed = shown if loss.config.tool_list == "topk" else None
        prompt = torch.cat(
            [
                llm.embed(loss.frame.before),
                llm.embed(loss.catalogue.request_tokens(llm, text, 500, listed)),
                piece,
                llm.embed(loss.frame.after),
                llm.embed(answer[:-1]),
            ]
        )
        logits = llm.model(inputs_embeds=prompt[None]).logits[0, -len(answer) :].float()
        if loss.config.loss == "tokens":
            total = total + F.cross_entropy(logits, torch.tensor(answer), reduction="sum")
            count += len(answer)
            continue
        for place, legal, right in zip(
            *loss.catalogue.choices(plan, end, loss.config.max_length), strict=True
        ):
            total = total - logits[place, legal].log_softmax(0)[right]
            count += 1
    return total / count


@pytest.mark.parametrize(
    ("kind", "family", "shown"),
    [
        ("tokens", "llama", "all"),
        ("choices", "llama", "topk"),
        ("choices", "qwen3", "none"),
        ("choices", "gemma2", "topk"),
        ("tokens", "gemma3", "topk"),
    ],
)
def test_loss_and_gradient_are_those_of_the_whole_prompt(world, kind, family, shown):
    llm = tiny_llm(family)
    loss, tokens = loss_of(llm, world, replace(SHORT, loss=kind, tool_list=shown))
    examples = world[1]
    texts = [e.request for e in examples[:3]]
    plans = [[world[0].graph.index[key] for key in e.tools] for e in examples[4:7]]
    assert sum(map(loss.weight, plans)) > 3
    for repetition in range(2):  # the second time the keys of the requests are known
        _, readings, pieces = pieces_of(tokens, world, texts)
        candidates = readings.candidates.tolist()
        cheap, _ = loss(texts, pieces, plans, None, candidates)
        gradient = torch.autograd.grad(cheap, list(tokens.parameters()), allow_unused=True)
        _, _, pieces = pieces_of(tokens, world, texts)
        whole = full_loss(llm, loss, texts, candidates, pieces, plans)
        expected = torch.autograd.grad(whole, list(tokens.parameters()), allow_unused=True)
        assert cheap.item() == pytest.approx(whole.item(), abs=1e-4), repetition
        for got, wanted in zip(gradient, expected, strict=True):
            assert (got is None) == (wanted is None)
            assert got is None or torch.allclose(got, wanted, atol=1e-4)


def test_training_judges_the_choices_that_decoding_makes(world):
    llm = tiny_llm()
    catalogue = Catalogue.of(llm, world[0].graph)
    plan = [2, 2, 5]
    target = catalogue.choices(plan, 1, max_length=3)
    answer = plan_tokens(catalogue.names.lines, plan, 1)
    assert [options[i] for options, i in zip(target.legal, target.right, strict=True)] == [
        answer[place] for place in target.places
    ]
    assert all(len(options) > 1 for options in target.legal)
    # A plan of full length ends without a choice, a shorter one does not.
    assert target.places[-1] < len(answer) - 1
    longer = catalogue.choices(plan, 1, max_length=4)
    assert longer.places[-1] == len(answer) - 1


def test_node_pairs_are_asked_yes_or_no_and_nothing_about_plans(world):
    llm = tiny_llm()
    loss, tokens = loss_of(llm, world)
    request = world[1][0].request
    layers, _, pieces = pieces_of(tokens, world, [request])
    pairs = tokens.node_pieces(layers, torch.tensor([[0, 1], [3, 2]]))
    assert pairs.shape == (2, 6, llm.width)
    _, logits = loss([request], pieces, [[1]], pairs, [[0]])
    alone = loss.dependencies(pairs)
    for pair, logit, probability in zip(pairs, logits, alone, strict=True):
        prompt = torch.cat([llm.embed(loss.asking.before), pair, llm.embed(loss.asking.after)])
        row = llm.model(inputs_embeds=prompt[None]).logits[0, -1]
        assert logit.item() == pytest.approx((row[loss.yes] - row[loss.no]).item(), abs=1e-4)
        assert probability.item() == pytest.approx(logit.sigmoid().item(), abs=1e-4)
    asked = llm.tokenizer.decode([*loss.asking.before, *loss.asking.after])
    assert "plan" not in asked
    assert llm.tokenizer.decode(loss.frame.before)[20:60] not in asked


def test_pairs_of_mdpl_are_hidden_edges_and_no_edges_as_often(world):
    run = run_of(tiny_llm(), world, replace(SHORT, mdpl_pairs=2))
    true = {tuple(pair) for pair in run.graph.edge_index.T.tolist()}
    for _ in range(20):
        hidden = torch.rand(len(true), generator=run.generator) < 0.5
        pairs, labels = run._pairs(hidden)
        gone = {tuple(pair) for pair in run.graph.edge_index[:, hidden].T.tolist()}
        yes = [tuple(p) for p, label in zip(pairs.tolist(), labels.tolist(), strict=True) if label]
        no = [
            tuple(p) for p, label in zip(pairs.tolist(), labels.tolist(), strict=True) if not label
        ]
        assert set(yes) <= gone
        assert len(yes) == len(no) == min(2, len(gone))
        assert not set(no) & true
        assert all(a != b for a, b in no)


def test_step_tokens_of_training_rows_are_honest_gold_or_disturbed(world):
    config = replace(SHORT, honest_share=0.0, disturbed_share=0.0)
    run = run_of(tiny_llm(), world, config)
    batch = [5, 0, 3]
    gold = [run.rows["train"].plans[row] for row in batch]

    def shown():
        return [[t for t in plan if t >= 0] for plan in run._shown(batch).plans.tolist()]

    assert shown() == gold
    run.config = replace(config, honest_share=1.0)
    honest = run.readings["train"].take(batch).plans.tolist()
    assert shown() == [[t for t in plan if t >= 0] for plan in honest]
    run.config = replace(config, disturbed_share=1.0)
    assert all(a != b for a, b in zip(shown(), gold, strict=True) if len(b) > 1)


def test_a_disturbed_plan_is_one_step_away():
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(100):
        out = disturbed([1, 2, 3], [7, 2, -1], generator)
        if len(out) == 2:
            assert out in ([1, 2], [1, 3], [2, 3])
            seen.add("dropped")
        elif sorted(out) == [1, 2, 3]:
            assert out in ([2, 1, 3], [1, 3, 2])
            seen.add("swapped")
        else:
            assert sum(a != b for a, b in zip(out, [1, 2, 3], strict=True)) == 1
            assert 7 in out
            seen.add("replaced")
    assert seen == {"dropped", "swapped", "replaced"}
    assert disturbed([4], [4, -1], generator) == [4]


def test_nodes_say_the_names_of_their_tools(world):
    llm = tiny_llm()
    loss, tokens = loss_of(llm, world)
    layers, _, _ = pieces_of(tokens, world, ["x"])
    rows, total, count = [4, 2], 0.0, 0
    nodes = tokens.node_pieces(layers, torch.tensor(rows)[:, None])
    found = loss.naming_loss(nodes, rows)
    for piece, row in zip(nodes, rows, strict=True):
        answer = list(loss.catalogue.names.lines[row])
        parts = [llm.embed(loss.naming.before), piece, llm.embed(loss.naming.after)]
        prompt = torch.cat([*parts, llm.embed(answer[:-1])])
        logits = llm.model(inputs_embeds=prompt[None]).logits[0, -len(answer) :]
        for place, legal, right in zip(*loss.naming_target(row), strict=True):
            total = total - logits[place, legal].log_softmax(0)[right]
            count += 1
    assert found.item() == pytest.approx((total / count).item(), abs=1e-4)


def test_without_mdpl_no_pair_is_asked_about(world):
    run = run_of(tiny_llm(), world, replace(SHORT, ablation=Ablation.NO_MDPL, align_steps=0))
    pairs, _ = run._pairs(torch.ones(run.graph.edge_index.size(1), dtype=torch.bool))
    assert pairs.shape == (0, 2)
    assert "mdpl_loss" not in run.train_step()


def test_validation_rows_choose_the_weight_of_the_fusion(world, monkeypatch):
    asked = []

    def choose(graph, llm, examples):
        asked.extend(examples)
        assert graph.model.memory.requests.size(0) == 12  # the training rows alone
        assert llm.drawn is graph
        return Chosen(0.3, {})

    monkeypatch.setattr("models.llm_training.choose_weight", choose)
    config = replace(SHORT, align_steps=0, plan_steps=1, fusion_rows=3)
    assert train(tiny_llm(), world, config).config.fusion_weight == 0.3
    assert [example.split for example in asked] == ["validation"] * 3


def test_without_graph_nothing_trains(world):
    result = train(tiny_llm(), world, replace(SHORT, ablation=Ablation.NO_GRAPH))
    assert result.history == []


def test_likely_pairs_are_no_edges_and_follow_tools_of_similar_text(world):
    graph, tool_x = world[0].graph, world[0].tool_x
    pairs = likely_pairs(tool_x, graph, 4)
    true = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    found = [tuple(pair) for pair in pairs.T.tolist()]
    assert len(set(found)) == 4
    assert not set(found) & true
    targets = {target for _, target in true}
    assert all(a != b and b in targets for a, b in found)


def test_dependencies_that_the_language_model_predicts_join_the_graph(world):
    llm, config = (
        tiny_llm(),
        replace(SHORT, ablation=Ablation.LLM_LINKS, link_pairs=5),
    )
    drawn = world[0]
    loss, tokens = loss_of(llm, world, config)
    predict_links(loss, tokens, drawn.tool_x, drawn.graph)
    assert tokens.links.T.tolist() == likely_pairs(drawn.tool_x, drawn.graph, 5).T.tolist()
    assert ((tokens.link_probability > 0) & (tokens.link_probability < 1)).all()
    tokens.link_probability = torch.tensor([0.9, 0.2, 0.6, 0.5, 0.0])
    planner = LLMPlanner(replace(config, max_length=3), tokens, drawn, llm)
    added = planner.drawn.graph.edge_index[:, drawn.graph.edge_index.size(1) :]
    assert added.T.tolist() == tokens.links[:, [0, 2, 3]].T.tolist()
    assert planner.drawn.graph.edge_counts[-3:, 0].tolist() == pytest.approx([0.9, 0.6, 0.5])
    assert planner.graph is drawn.graph
    assert planner.plan(["book it"])[0]
    trained = train(llm, world, config).tokens
    assert (trained.link_probability > 0).all()
    assert "links" in trained.state_dict()
