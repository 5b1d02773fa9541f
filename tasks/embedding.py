"""One text encoder a process, which remembers what it or an earlier run has encoded."""

from functools import lru_cache
from pathlib import Path

from models.text import (
    RememberingEmbedder,
    SentenceEmbedder,
    locate_encoder,
    weights_digest,
)
from tasks.settings import Settings


def shared_embedder(settings: Settings) -> RememberingEmbedder:
    """The encoder of the settings; training, baselines and regression share its memory."""
    return _shared(settings.text_encoder, settings.home / "embeddings")


def encoder_digest(settings: Settings) -> str:
    """What tells the encoder's weights from others: their hash, or the hub id."""
    name = settings.text_encoder
    return weights_digest(locate_encoder(name)) or name


@lru_cache(maxsize=2)
def _shared(name: str, folder: Path) -> RememberingEmbedder:
    encoder = SentenceEmbedder(name)
    digest = weights_digest(encoder.path)
    return RememberingEmbedder(encoder, folder / digest if digest else None)
