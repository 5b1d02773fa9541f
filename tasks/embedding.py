"""One text encoder a process, which remembers what it has encoded."""

from functools import lru_cache

from models.text import RememberingEmbedder, SentenceEmbedder
from tasks.settings import Settings


def shared_embedder(settings: Settings) -> RememberingEmbedder:
    """The encoder of the settings; training, baselines and regression share its memory."""
    return _shared(settings.text_encoder)


@lru_cache(maxsize=2)
def _shared(name: str) -> RememberingEmbedder:
    return RememberingEmbedder(SentenceEmbedder(name))
