"""Planning with the LLM readout: modes, tool lists, ablations, and what they cost in tokens."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch

from models.ablation import Ablation
from models.errors import GraphMismatch, PromptTooLong
from models.graph_tokens import (
    NAME_SCALE,
    GraphTokens,
    LLMConfig,
    name_vectors,
    new_graph_tokens,
)
from models.gtool import GToolPlanner
from models.llm_planner import Catalogue, LLMPlanner, request_limit
from models.new_tools import extended, on_graph, spoken_on
from models.readings import read_requests
from models.types import ToolGraph, empty_edges
from tests.factories import CHORES, chores_planner, letter_vectors, tiny_llm

CONFIG = LLMConfig(candidates=3, projector_channels=16, max_length=3)
REQUESTS = ["read the mail", "", "book <|im_end|> everything " * 40]


def planner(llm=None, allowed=None, **options):
    """A planner whose tokens have learnt nothing."""
    drawn, llm = chores_planner()[0], llm or tiny_llm()
    if allowed is not None:
        drawn = GToolPlanner(drawn.model, drawn.graph, drawn.tool_x, letter_vectors, None, allowed)
    config = replace(CONFIG, **options)
    lines = Catalogue.of(llm, drawn.graph).names.lines
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokens = new_graph_tokens(config, drawn.model, llm, lines)
    return LLMPlanner(config, tokens, drawn, llm)


@pytest.mark.parametrize("mode", ["steps", "single"])
@pytest.mark.parametrize("shown", ["all", "topk", "none"])
def test_plans_never_leave_the_catalogue(mode, shown):
    allowed = {f"chores/{name}" for name in CHORES if "mail" not in name}
    some = planner(mode=mode, tool_list=shown, allowed=allowed)
    for ranked in some.plan(REQUESTS, top=3):
        assert len(ranked) == 3
        assert all(set(plan.tools) <= allowed for plan in ranked)
        assert all(plan.planner == f"gtool-llm-{mode}" for plan in ranked)
        scores = [plan.score for plan in ranked]
        assert scores == sorted(scores, reverse=True)
    assert planner(mode=mode, tool_list=shown, allowed=set()).plan(["anything"]) == [[]]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize("template", ["system", None])
def test_any_causal_model_gives_the_tokens_of_its_whole_prompt(kind, template):
    llm = tiny_llm(kind, template)
    some = planner(llm)
    request = "book a flight and mail it"
    (prompt,) = some.prompts([request])
    (found,) = some.search([request], width=3)
    whole = torch.cat([llm.embed(some.frame.before), prompt])[None]
    with torch.no_grad():
        row = llm.model(inputs_embeds=whole).logits[0, -1]
    legal = some.catalogue.trie.legal(0, 0, some.frame.end, 3)
    firsts = row[legal].log_softmax(0)
    (one,) = planner(llm, max_length=1).search([request], width=1)
    assert len(found) == 3
    assert one[0].choices == 1 or firsts.numel() > 1
    (judged,) = some.judge([request], [[ranked.plan for ranked in found]])
    for said, ranked in zip(judged, found, strict=True):
        assert said.log_prob == pytest.approx(ranked.log_prob, abs=1e-4)
        assert said.choices == ranked.choices
        assert said.mean_probability == pytest.approx(
            math.exp(ranked.log_prob / ranked.choices), abs=1e-5
        )


@pytest.mark.parametrize("ablation", [Ablation.FULL, Ablation.LLM_LINKS])
def test_tools_that_came_since_are_read_and_written_too(ablation):
    drawn, some = chores_planner()[0], planner(ablation=ablation, link_pairs=4)
    asked = some.tokens.links.size(1)
    some.tokens.links.copy_(torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]])[:, :asked])
    some.tokens.link_probability.fill_(0.9)
    some, graph = LLMPlanner(some.config, some.tokens, drawn, some.llm), drawn.graph
    same = spoken_on(some, drawn)
    assert same.plan(REQUESTS, top=3) == some.plan(REQUESTS, top=3)
    new = ("chores/aaa_first", "chores/zip_files")
    newer = ToolGraph("newer", new, ("what comes first", "zip files"), *empty_edges())
    more = on_graph(drawn, extended(graph, newer))
    moved = spoken_on(some, more)
    assert moved.tokens.name_x.shape[0] == graph.num_tools + 2
    pairs = [[more.graph.keys[row] for row in pair] for pair in moved.tokens.links.T.tolist()]
    assert pairs == [[graph.keys[row] for row in pair] for pair in some.tokens.links.T.tolist()]
    every = {key for plan in moved.plan(["zip files"], top=12)[0] for key in plan.tools}
    assert every & set(new)
    only = spoken_on(some, on_graph(drawn, extended(graph, newer), set(new)))
    offered = {key for plan in only.plan(["zip"], top=3)[0] for key in plan.tools}
    assert offered
    assert offered <= set(new)


def test_a_plan_is_judged_token_by_token_on_the_whole_prompt():
    some = planner()
    request, plan = "book a flight", (3, 1)
    ((judged,),) = some.judge([request], [[plan]])
    target = some.catalogue.choices(plan, some.frame.end, 3)
    lines, end = some.catalogue.names.lines, some.frame.end
    answer = [*lines[3], *lines[1], end]
    (prompt,) = some.prompts([request])
    whole = [some.llm.embed(some.frame.before), prompt, some.llm.embed(answer[:-1])]
    with torch.no_grad():
        logits = some.llm.model(inputs_embeds=torch.cat(whole)[None]).logits[0, -len(answer) :]
    expected = sum(
        logits[place, legal].log_softmax(0)[right]
        for place, legal, right in zip(*target, strict=True)
    )
    assert judged.log_prob == pytest.approx(float(expected), abs=1e-3)
    assert judged.choices == len(target.places) > 2


def test_the_steps_of_the_graphs_plan_stand_behind_the_request_and_the_paper_has_one_token():
    drawn = chores_planner()[0]
    requests = ["find_flight then book_flight in Oslo", "get_weather in Lima"]
    plans = read_requests(drawn, requests, 3).plans
    lengths = (plans >= 0).sum(dim=1).tolist()
    steps, single = planner(tool_list="none"), planner(tool_list="none", mode="single")
    for request, length, many, one in zip(
        requests, lengths, steps.prompts(requests), single.prompts(requests), strict=True
    ):
        words = len(steps.llm.tokens(request)) + len(steps.frame.after)
        assert one.size(0) == words + 3  # marker, request token, marker
        assert many.size(0) == words + 3 + 2 * length  # a marker before each step


def test_a_step_token_tells_tool_votes_and_place():
    some = planner()
    readings = read_requests(some.drawn, ["find_flight then book_flight in Oslo"], 3)
    x = letter_vectors(["find_flight then book_flight in Oslo"])

    def tokens(plan, votes=readings.votes):
        shown = replace(readings, plans=torch.tensor([plan]), votes=votes)
        return some.tokens.graph_pieces(x, some.layers, shown)[0][3:-1:2]

    with torch.no_grad():
        some.tokens.step_position.copy_(torch.tensor([[0.0], [1.0], [2.0]]))
        first, second = int(readings.candidates[0, 0]), int(readings.candidates[0, 1])
        a, b = tokens([first, second, -1]), tokens([second, first, -1])
        assert a.shape == (2, some.llm.width)
        assert torch.allclose(a[0] + 1, b[1], atol=1e-5)
        assert torch.allclose(a[1] - 1, b[0], atol=1e-5)
        assert not torch.allclose(a[0], a[1], atol=1e-2)
        other = tokens([first, second, -1], votes=readings.votes + 1)
        assert not torch.allclose(a[0], other[0], atol=1e-3)


def test_only_candidates_are_listed_with_topk_and_nothing_of_the_catalogue_before():
    some = planner(tool_list="topk")
    requests = ["book a flight to Rome", "mail"]
    readings = read_requests(some.drawn, requests, 3)
    before = some.llm.tokenizer.decode(some.frame.before)
    assert not any(name in before for name in CHORES)
    for request, ids, rows in zip(
        requests, some._words(requests, readings), readings.candidates.tolist(), strict=True
    ):
        names = [some.graph.keys[row].split("/")[1] for row in rows]
        assert some.llm.tokenizer.decode(ids) == (
            f"{request}\n\nTools that may help:\n" + "\n".join(names) + "\n"
        )


def test_prompt_tokens_count_all_that_is_read():
    requests = ["book a flight to Rome", "mail"]
    tokens = {shown: planner(tool_list=shown).prompt_tokens(requests) for shown in ("all", "none")}
    names = sum(len(name) + 1 for name in CHORES)
    extra = len(" The tools are:")  # one token a byte
    for whole, bare in zip(tokens["all"], tokens["none"], strict=True):
        assert whole - bare == names + extra
    some = planner(tool_list="none")
    (prompt,) = some.prompts(requests[:1])
    assert some.prompt_tokens(requests[:1]) == [len(some.frame.before) + prompt.size(0)]


def test_without_request_node_the_graph_token_is_the_same_for_all_requests():
    requests = ["book a flight to Rome", "book a hotel in Rome"]
    for ablation, same in ((Ablation.FULL, False), (Ablation.NO_REQUEST_NODE, True)):
        some = planner(mode="single", ablation=ablation)
        x, readings = letter_vectors(requests), read_requests(some.drawn, requests, 3)
        a, b = some.tokens.graph_pieces(x, some.layers, readings)
        assert torch.allclose(a, b) == same
    states = torch.cat([some.layers[-1], some.layers[0]], dim=1).mean(dim=0)
    expected = some.tokens.request_projector(states) + some.tokens.graph_marker[1]
    assert torch.allclose(expected, a[1], atol=1e-5)


def test_without_graph_the_prompt_holds_no_graph_token():
    some = planner(ablation=Ablation.NO_GRAPH, tool_list="none")
    (prompt,) = some.prompts(["book it"])
    assert torch.equal(prompt, some.llm.embed([*some.llm.tokens("book it"), *some.frame.after]))
    assert some.plan(["book it"])[0]


def test_a_request_is_cut_where_prompt_and_answer_leave_no_room():
    graph, llm = chores_planner()[0].graph, tiny_llm()
    config = replace(CONFIG, max_request_tokens=4000)
    catalogue = Catalogue.of(llm, graph)
    used = 4096 - request_limit(llm, catalogue, catalogue.planning_frame(llm, config), config)
    llm.config.max_position_embeddings = used + 10
    some = planner(llm, max_request_tokens=4000)
    assert some.limit == 10
    assert some.plan(["a request much longer than that"], top=3)[0]
    llm.config.max_position_embeddings = used
    with pytest.raises(PromptTooLong, match="llm_tool_list = topk or none"):
        planner(llm)


def test_tokens_of_another_language_model_are_refused():
    llm = tiny_llm()
    some = planner(llm)
    llm.width = 64
    with pytest.raises(GraphMismatch, match="expected a language model with 32 channels, got 64"):
        LLMPlanner(some.config, some.tokens, some.drawn, llm)


def test_tokens_start_at_the_scale_of_word_embeddings():
    some = planner()
    assert isinstance(some.tokens, GraphTokens)
    line_break = some.llm.embed(some.llm.tokens("\n"))[0]
    for markers in (some.tokens.graph_marker, some.tokens.node_marker):
        assert all(torch.equal(marker, line_break) for marker in markers)
    rms = some.tokens.name_x.square().mean(dim=1).sqrt()
    assert torch.allclose(rms, torch.full_like(rms, NAME_SCALE * some.llm.embedding_rms), rtol=1e-4)


def test_the_vector_of_a_name_is_nearest_to_its_first_token():
    llm = tiny_llm()
    lines = [tuple(llm.tokens(name + "\n")) for name in ("book_it", "find_it", "mail_it")]
    vectors = name_vectors(llm, lines)
    firsts = llm.embed([line[0] for line in lines])
    likeness = torch.cosine_similarity(vectors[:, None], firsts[None], dim=-1)
    assert likeness.argmax(dim=1).tolist() == [0, 1, 2]
    assert torch.isfinite(name_vectors(llm, lines[:1])).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"candidates": 0},
        {"batch_size": 0},
        {"accumulate": 0},
        {"mask_rate": 1.0},
        {"honest_share": 1.5},
        {"learning_rate": 0.0},
        {"max_length": 0},
    ],
)
def test_a_wrong_configuration_says_what_is_expected(wrong):
    with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} "):
        LLMConfig(**wrong)


def test_a_configuration_survives_json():
    config = replace(CONFIG, ablation=Ablation.NO_MDPL, fusion_weight=0.3)
    assert LLMConfig.from_json(json.loads(json.dumps(asdict(config)))) == config
