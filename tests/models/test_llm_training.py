"""Training of the LLM readout: the right loss, cheaply; only the graph side learns; resumable."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from models.errors import PromptTooLong, TrainingDiverged
from models.graph_tokens import GraphTokens, LLMConfig, candidates, new_graph_tokens
from models.gtool import GToolConfig
from models.llm import FrozenLLM
from models.llm_decoding import constrained_search
from models.llm_planner import Catalogue, LLMPlanner, request_limit
from models.llm_training import PlanningLoss, _Rows, _Run, choices, train_llm_readout
from models.prompt import plan_tokens
from models.training import train_gtool, weights_hash
from models.types import Example, ToolGraph, empty_edges
from tests.factories import CHORES, tiny_llm

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
)


def embed(texts):
    """Unit vectors of letter counts."""
    rows = torch.tensor(
        [[text.lower().count(chr(97 + i)) + 0.1 for i in range(26)] for text in texts]
    )
    return F.normalize(rows, dim=1)


@pytest.fixture(scope="module")
def world():
    """A graph, examples and a trained graph readout."""
    keys = tuple(sorted(f"chores/{name}" for name in CHORES))
    row = {key: i for i, key in enumerate(keys)}
    plans = [
        ("find_flight", "book_flight"),
        ("find_hotel", "book_hotel", "send_mail"),
        ("get_weather",),
        ("read_mail", "translate"),
    ]
    pairs = sorted(
        {(row[f"chores/{a}"], row[f"chores/{b}"]) for plan in plans for a, b in pairwise(plan)}
    )
    graph = ToolGraph(
        "v",
        keys,
        tuple(CHORES[key.split("/")[1]] for key in keys),
        torch.tensor(pairs).T.contiguous(),
        torch.ones(len(pairs), 2),
    )
    examples = [
        Example(
            f"{n}-{city}",
            f"{' then '.join(plan)} in {city}",
            tuple(f"chores/{name}" for name in plan),
            split="validation" if city == "Rome" else "train",
        )
        for n, plan in enumerate(plans)
        for city in ("Oslo", "Rome", "Lima", "Cairo")
    ]
    tool_x, request_x = embed(graph.texts), embed([e.request for e in examples])
    config = GToolConfig(hidden_channels=16, epochs=2, batch_size=8, min_steps=1)
    model = train_gtool(graph, tool_x, examples, request_x, config, seed=0).model
    return graph, examples, tool_x, request_x, model


def train(llm, world, config=SHORT, **options):
    graph, examples, tool_x, request_x, model = world
    return train_llm_readout(
        llm, model, graph, tool_x, examples, request_x, config, seed=0, **options
    )


def test_no_weight_of_the_language_model_changes_and_every_graph_weight_does(world):
    llm = tiny_llm()
    before = weights_hash(llm.model.state_dict())
    fresh = dict(
        train(llm, world, replace(SHORT, align_steps=0, plan_steps=0)).tokens.named_parameters()
    )
    trained = dict(train(llm, world).tokens.named_parameters())
    assert weights_hash(llm.model.state_dict()) == before
    assert all(w.grad is None for w in llm.model.parameters())
    assert fresh.keys() == trained.keys() >= {"graph_marker", "node_marker"}
    same = [name for name in fresh if torch.equal(fresh[name], trained[name])]
    # A bias that moves all attention scores of a node alike has no gradient.
    assert all(name.endswith("lin_key.bias") for name in same)


def test_a_training_that_diverges_is_no_success(world):
    with pytest.raises(TrainingDiverged, match=r"expected .*loss to be a number"):
        train(tiny_llm(), world, replace(SHORT, learning_rate=1e30))


def only(world, *names, request="do it"):
    """The same world with few tools; every plan calls the first of them."""
    graph, examples, tool_x, _, _ = world
    keys = tuple(f"chores/{name}" for name in names)
    rows = [graph.index[key] for key in keys]
    small = ToolGraph("v", keys, tuple(graph.texts[row] for row in rows), *empty_edges())
    some = [replace(e, tools=keys[:1], request=request or e.request) for e in examples]
    config = GToolConfig(hidden_channels=16, epochs=1, batch_size=8, min_steps=1)
    x = embed([e.request for e in some])
    model = train_gtool(small, tool_x[rows], some, x, config, seed=0).model
    return small, some, tool_x[rows], x, model


@pytest.mark.parametrize("request_text", ["", "long " * 2000, "<|im_end|>"])
@pytest.mark.parametrize("tools", [("send_mail",), ("send_mail", "read_mail")])
def test_few_tools_and_odd_requests_train_and_plan(world, tools, request_text):
    small = only(world, *tools, request=request_text)
    llm = tiny_llm()
    result = train(llm, small, replace(SHORT, plan_steps=2))
    planner = LLMPlanner(result.config, result.tokens, small[4], small[0], small[2], embed, llm)
    assert planner.plan([request_text])[0][0].tools


def test_a_request_is_cut_where_prompt_and_answer_leave_no_room(world):
    graph, _, tool_x, _, model = world
    config = replace(SHORT, max_length=3, max_request_tokens=4000)
    catalogue = Catalogue.of(tiny_llm(), graph)
    llm = tiny_llm()
    used = 4096 - request_limit(llm, catalogue, catalogue.planning_frame(llm, config), config)
    llm.config.max_position_embeddings = used + 10
    planner = LLMPlanner(config, None, model, graph, tool_x, embed, llm)
    assert planner.limit == 10
    assert planner.plan(["a request much longer than that"], top=3)[0]
    llm.config.max_position_embeddings = used
    with pytest.raises(PromptTooLong, match="llm_tool_list = none"):
        LLMPlanner(config, None, model, graph, tool_x, embed, llm)


def test_training_puts_everything_on_the_device_of_the_language_model(world, monkeypatch):
    """No GPU here: the device that computes nothing still refuses tensors of another one."""
    graph, examples, tool_x, request_x, model = world
    monkeypatch.setattr(FrozenLLM, "embedding_rms", 0.3)
    llm = tiny_llm()
    llm.model.to("meta")
    llm.device = torch.device("meta")
    plans = [[graph.index[key] for key in e.tools] for e in examples]
    rows = _Rows([e.request for e in examples], request_x, plans)
    config = replace(SHORT, max_length=3)
    run = _Run(llm, model, graph, tool_x, {"train": rows, "validation": rows}, config, seed=0)
    layers = run._layers(run._hidden())
    pairs = torch.tensor([[0, 1], [3, 2]], device="meta")
    loss, logits = run._planning_loss(rows, run.memory["train"], [0, 3], layers, pairs)
    assert loss.device.type == logits.device.type == "meta"


def test_blocked_tools_are_no_candidates(world):
    graph, _, tool_x, _, model = world
    llm = tiny_llm()
    tokens = new_graph_tokens(SHORT, model, llm, Catalogue.of(llm, graph).names.lines)
    allowed = graph.keys[:2]
    planner = LLMPlanner(
        replace(SHORT, max_length=2), tokens, model, graph, tool_x, embed, llm, allowed=allowed
    )
    whole = LLMPlanner(replace(SHORT, max_length=2), tokens, model, graph, tool_x, embed, llm)
    (few,), (many,) = planner.prompts(["book it"]), whole.prompts(["book it"])
    assert many.size(0) - few.size(0) == SHORT.candidates - 2


def test_training_lowers_the_loss_on_validation_rows(world):
    result = train(tiny_llm(), world, replace(SHORT, plan_steps=40, validate_every=10))
    losses = [record["validation_loss"] for record in result.history]
    assert min(losses) < losses[0] - 0.1


def test_same_seed_same_weights_and_a_killed_training_goes_on_to_the_same(world, tmp_path):
    llm = tiny_llm()
    whole = train(llm, world)
    assert train(llm, world).weights_hash == whole.weights_hash

    class Killed(BaseException):
        pass

    def kill(step, metrics):
        if step >= 6:
            raise Killed

    with pytest.raises(Killed):
        train(llm, world, on_step=kill, resume_dir=tmp_path)
    seen = []
    resumed = train(llm, world, on_step=lambda step, m: seen.append(step), resume_dir=tmp_path)
    assert min(seen) > 6
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.history == whole.history


def test_the_state_of_another_training_is_ignored(world, tmp_path):
    llm = tiny_llm()
    train(llm, world, resume_dir=tmp_path)
    other = replace(SHORT, learning_rate=2e-2)
    assert train(llm, world, other, resume_dir=tmp_path).weights_hash == (
        train(llm, world, other).weights_hash
    )


def full_loss(llm, loss, texts, pieces, plans, kind):
    """The same loss with the whole prompt read under autograd, one request after the other."""
    total, count = 0.0, 0
    lines, end = loss.catalogue.names.lines, loss.frame.end
    for text, piece, plan in zip(texts, pieces, plans, strict=True):
        answer = plan_tokens(lines, plan, end)
        prompt = torch.cat(
            [
                llm.embed(loss.frame.before),
                llm.embed(llm.tokens(text)),
                piece,
                llm.embed(loss.frame.after),
                llm.embed(answer[:-1]),
            ]
        )
        logits = llm.model(inputs_embeds=prompt[None]).logits[0, -len(answer) :].float()
        if kind == "tokens":
            total = total + F.cross_entropy(logits, torch.tensor(answer), reduction="sum")
            count += len(answer)
            continue
        target = choices(plan, loss.catalogue.trie, lines, end, loss.config.max_length)
        for place, legal, right in zip(*target, strict=True):
            total = total - logits[place, legal].log_softmax(0)[right]
            count += 1
    return total / count


@pytest.mark.parametrize("kind", ["tokens", "choices"])
@pytest.mark.parametrize("family", ["llama", "gemma"])
def test_loss_and_gradient_are_those_of_the_whole_prompt(world, kind, family):
    graph, examples, tool_x, request_x, model = world
    llm = tiny_llm(family)
    config = replace(SHORT, loss=kind, max_length=3)
    loss = PlanningLoss(llm, Catalogue.of(llm, graph), config)
    tokens = new_graph_tokens(config, model, llm, loss.catalogue.names.lines)
    texts = [e.request for e in examples[:3]]
    plans = [[graph.index[key] for key in e.tools] for e in examples[4:7]]
    for repetition in range(2):  # the second time the keys of the requests are known
        layers = tokens.encode_tools(tool_x, graph.edge_index, graph.edge_counts)
        pieces = tokens.graph_pieces(request_x[:3], layers, model.memory(request_x[:3]))
        cheap, _ = loss(texts, list(pieces), plans)
        gradient = torch.autograd.grad(cheap, list(tokens.parameters()), allow_unused=True)
        layers = tokens.encode_tools(tool_x, graph.edge_index, graph.edge_counts)
        pieces = tokens.graph_pieces(request_x[:3], layers, model.memory(request_x[:3]))
        whole = full_loss(llm, loss, texts, pieces, plans, kind)
        expected = torch.autograd.grad(whole, list(tokens.parameters()), allow_unused=True)
        assert cheap.item() == pytest.approx(whole.item(), abs=1e-4), repetition
        for got, wanted in zip(gradient, expected, strict=True):
            assert (got is None) == (wanted is None)
            assert got is None or torch.allclose(got, wanted, atol=1e-4)


def test_training_judges_the_choices_that_decoding_makes(world):
    graph = world[0]
    llm = tiny_llm()
    catalogue = Catalogue.of(llm, graph)
    plan = [2, 2, 5]
    target = choices(plan, catalogue.trie, catalogue.names.lines, 1, max_length=3)
    answer = plan_tokens(catalogue.names.lines, plan, 1)
    assert [options[i] for options, i in zip(target.legal, target.right, strict=True)] == [
        answer[place] for place in target.places
    ]
    assert all(len(options) > 1 for options in target.legal)
    # A plan of full length ends without a choice, a shorter one does not.
    assert target.places[-1] < len(answer) - 1
    longer = choices(plan, catalogue.trie, catalogue.names.lines, 1, max_length=4)
    assert longer.places[-1] == len(answer) - 1


def test_the_log_probability_of_a_plan_is_its_loss(world):
    graph, examples, tool_x, _, model = world
    llm = tiny_llm()
    config = replace(SHORT, max_length=2, beam_width=200)
    loss = PlanningLoss(llm, Catalogue.of(llm, graph), config)
    planner = LLMPlanner(config, None, model, graph, tool_x, embed, llm)
    request = examples[0].request
    reader = planner.reader.fork()
    segments, logits = reader.read([(reader.root, planner.prompts([request])[0])])
    (found,) = constrained_search(
        reader, segments, logits, planner.catalogue.trie, planner.frame.end, width=200, max_length=2
    )
    nothing = [torch.zeros(0, llm.width)]
    for plan, log_prob in found[:5]:
        count = len(
            choices(plan, planner.catalogue.trie, planner.catalogue.names.lines, 1, 2).places
        )
        mean, _ = loss([request], nothing, [list(plan)])
        assert -mean.item() * count == pytest.approx(log_prob, abs=1e-3)


def test_node_pairs_are_asked_yes_or_no(world):
    graph, examples, tool_x, request_x, model = world
    llm = tiny_llm()
    config = replace(SHORT, max_length=3)
    loss = PlanningLoss(llm, Catalogue.of(llm, graph), config)
    tokens = new_graph_tokens(config, model, llm, loss.catalogue.names.lines)
    layers = tokens.encode_tools(tool_x, graph.edge_index, graph.edge_counts)
    pairs = tokens.node_pieces(layers, torch.tensor([[0, 1], [3, 2]]))
    assert pairs.shape == (2, 6, llm.width)
    pieces = tokens.graph_pieces(request_x[:1], layers, model.memory(request_x[:1]))
    _, logits = loss([examples[0].request], list(pieces), [[1]], pairs)
    for pair, logit in zip(pairs, logits, strict=True):
        prompt = torch.cat([llm.embed(loss.asking.before), pair, llm.embed(loss.asking.after)])
        row = llm.model(inputs_embeds=prompt[None]).logits[0, -1]
        assert logit.item() == pytest.approx((row[loss.yes] - row[loss.no]).item(), abs=1e-4)


def test_the_single_token_of_the_paper_is_a_switch(world):
    graph, _, tool_x, request_x, model = world
    llm = tiny_llm()
    lines = Catalogue.of(llm, graph).names.lines
    sizes = {}
    for count in (0, 3, 50):
        tokens = new_graph_tokens(replace(SHORT, candidates=count), model, llm, lines)
        layers = tokens.encode_tools(tool_x, graph.edge_index, graph.edge_counts)
        sizes[count] = tokens.graph_pieces(request_x[:2], layers, model.memory(request_x[:2])).shape
    assert sizes[0] == (2, 3, llm.width)  # marker, request token, marker
    assert sizes[3] == (2, 6, llm.width)
    assert sizes[50] == (2, 3 + len(CHORES), llm.width)


def test_tokens_start_at_the_scale_of_word_embeddings(world):
    llm = tiny_llm()
    tokens = new_graph_tokens(SHORT, world[4], llm, Catalogue.of(llm, world[0]).names.lines)
    assert isinstance(tokens, GraphTokens)
    for vectors in (tokens.graph_marker, tokens.node_marker, tokens.name_x):
        rms = vectors.square().mean().sqrt().item()
        assert rms == pytest.approx(llm.embedding_rms, rel=0.3)


def test_candidates_are_the_highest_votes_in_order():
    votes = torch.tensor([[0.1, 0.9, 0.5, 0.9]])
    assert candidates(votes, 3).tolist() == [[1, 3, 2]]


def test_plans_never_leave_the_catalogue_and_ablations_plan_too(world):
    graph, _, tool_x, _, model = world
    llm = tiny_llm()
    config = replace(SHORT, max_length=3)
    allowed = {key for key in graph.keys if "mail" not in key}
    tokens = new_graph_tokens(config, model, llm, Catalogue.of(llm, graph).names.lines)
    requests = ["read the mail", "", "book <|im_end|> everything " * 40]
    for some in (tokens, None):
        planner = LLMPlanner(config, some, model, graph, tool_x, embed, llm, allowed=allowed)
        for ranked in planner.plan(requests, top=3):
            assert len(ranked) == 3
            assert all(set(plan.tools) <= allowed for plan in ranked)
            assert all(plan.planner == "gtool-llm" for plan in ranked)
            scores = [plan.score for plan in ranked]
            assert scores == sorted(scores, reverse=True)
    nothing = LLMPlanner(config, None, model, graph, tool_x, embed, llm, allowed=set())
    assert nothing.plan(["anything"]) == [[]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"candidates": -1},
        {"batch_size": 0},
        {"mask_rate": 1.0},
        {"learning_rate": 0.0},
        {"max_length": 0},
    ],
)
def test_a_wrong_configuration_says_what_is_expected(wrong):
    with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} "):
        LLMConfig(**wrong)
