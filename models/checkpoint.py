"""Stores a trained planner as safetensors and JSON, and proves that everything fits on loading."""

import json
import shutil
import uuid
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.ablation import Ablation
from models.errors import CheckpointMismatch, GraphMismatch
from models.graph_tokens import GraphTokens, LLMConfig, new_graph_tokens
from models.gtool import GTool, GToolConfig, GToolPlanner
from models.links import LinkScorer
from models.llm import FrozenLLM
from models.llm_planner import LLMPlanner
from models.prompt import Names
from models.training import weights_hash
from models.types import Embedder, ToolGraph

FORMAT = 2
"""Changes when older files can no longer be read."""

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "weights.safetensors"
GRAPH_FILE = "graph.safetensors"
LINKS_FILE = "links.safetensors"
TOKENS_FILE = "graph_tokens.safetensors"


class Readout(NamedTuple):
    """A trained LLM readout: its configuration, its graph tokens, and the LLM they are for."""

    config: LLMConfig
    tokens: GraphTokens
    llm: FrozenLLM


SAME_TEXT = 0.99
"""Least cosine similarity of a tool's stored text vector with the vector made on loading."""


def save_planner(
    folder: Path,
    model: GTool,
    config: GToolConfig,
    graph: ToolGraph,
    tool_x: Float[Tensor, "num_tools text_channels"],
    link_scorer: LinkScorer,
    extra: Mapping[str, Any],
    readout: Readout | None = None,
) -> None:
    """Write a planner; the folder appears (or is replaced) only once everything is in it.

    Args:
        folder: Where to; its parent is made if needed.
        model: The trained model.
        config: Its configuration, ``max_length`` filled in.
        graph: The graph it was trained on.
        tool_x: Text vectors of the graph's tools.
        link_scorer: Decides which steps of its plans depend on which.
        extra: What else to keep with it, as JSON values (versions, seed, metrics).
        readout: The LLM readout, where one was trained. The LLM itself is not stored, only what
            tells it from others.
    """
    weights = {name: part.cpu().contiguous() for name, part in model.state_dict().items()}
    tensors = {"tool_x": tool_x, "edge_index": graph.edge_index, "edge_counts": graph.edge_counts}
    tensors = {name: part.cpu().contiguous() for name, part in tensors.items()}
    links = link_scorer.state()
    head = {
        "format": FORMAT,
        "config": asdict(config),
        "graph_version": graph.version,
        "keys": graph.keys,
        "texts": graph.texts,
        "weights_hash": weights_hash(weights),
        "graph_hash": weights_hash(tensors),
        "links_hash": weights_hash(links),
        "extra": dict(extra),
    }
    if readout is not None:
        spoken = readout.tokens.state_dict()
        head["llm"] = {
            "config": asdict(readout.config),
            "name": readout.llm.name,
            "digest": readout.llm.digest,
            "tokens_hash": weights_hash(spoken),
        }
    folder.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex
    unfinished = folder.with_name(f"{folder.name}.{mark}.tmp")
    unfinished.mkdir()
    try:
        save_file(weights, unfinished / WEIGHTS_FILE)
        save_file(tensors, unfinished / GRAPH_FILE)
        save_file(links, unfinished / LINKS_FILE)
        if readout is not None:
            spoken = {name: part.cpu().contiguous() for name, part in spoken.items()}
            save_file(spoken, unfinished / TOKENS_FILE)
        text = json.dumps(head, indent=1, sort_keys=True, ensure_ascii=False)
        (unfinished / CONFIG_FILE).write_text(text, encoding="utf-8")
        if folder.exists():
            former = folder.with_name(f"{folder.name}.{mark}.old")
            folder.rename(former)
            unfinished.rename(folder)
            shutil.rmtree(former)
        else:
            unfinished.rename(folder)
    finally:
        if unfinished.exists():
            shutil.rmtree(unfinished)


def read_extra(folder: Path) -> dict[str, Any]:
    """What :func:`save_planner` was given as ``extra``."""
    extra: dict[str, Any] = _read_head(folder)["extra"]
    return extra


def load_planner(
    folder: Path,
    embed: Embedder,
    allowed: Collection[str] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> GToolPlanner:
    """Read a planner that plans exactly as the one that was stored.

    Args:
        folder: What :func:`save_planner` wrote.
        embed: The text encoder that the planner was trained with.
        allowed: Keys of the tools that plans may hold; ``None``: all it was trained on.
        renamed: New keys of tools that were renamed since the training, by their old keys.

    Raises:
        CheckpointMismatch: A file is missing, damaged, of another format, or does not fit the
            others, or ``embed`` is another text encoder.
    """
    head = _read_head(folder)
    weights = _read_tensors(folder / WEIGHTS_FILE, head["weights_hash"])
    tensors = _read_tensors(folder / GRAPH_FILE, head["graph_hash"])
    links = _read_tensors(folder / LINKS_FILE, head["links_hash"])
    keys, texts = tuple(head["keys"]), tuple(head["texts"])
    try:
        values = head["config"]
        config = GToolConfig(**values | {"ablation": Ablation(values["ablation"])})
        tool_x, edge_index = tensors["tool_x"], tensors["edge_index"]
        graph = ToolGraph(head["graph_version"], keys, texts, edge_index, tensors["edge_counts"])
        _check_graph(folder, graph)
        rows, length = weights["memory.plans"].shape
        shape = (rows, weights["memory.used"].numel(), length)
        model = GTool(config, tool_x.size(1), len(keys), shape)
        model.load_state_dict(weights)
        _check_encoder(folder, embed, texts, tool_x)
        graph = _with_new_keys(graph, renamed or {})
        scorer = LinkScorer.from_state(links, graph, tool_x)
        return GToolPlanner(model, graph, tool_x, embed, scorer, allowed)
    except (KeyError, TypeError, ValueError, RuntimeError, GraphMismatch) as error:
        raise CheckpointMismatch(
            f"expected configuration, weights and graph of {folder} to fit each other, got: {error}"
            "; train and store the planner again"
        ) from error


def _with_new_keys(graph: ToolGraph, renamed: Mapping[str, str]) -> ToolGraph:
    """The graph under the tools' present keys.

    A tool whose new key the graph has already (two tools became one) keeps its old one, which no
    catalogue lists any more.
    """
    taken = set(graph.keys)
    keys = []
    for key in graph.keys:
        new = renamed.get(key, key)
        if new != key and new not in taken:
            taken.add(new)
            key = new
        keys.append(key)
    return replace(graph, keys=tuple(keys))


def readout_llm(folder: Path) -> str | None:
    """Name of the LLM that a stored planner has a readout for; None where it has none."""
    llm = _read_head(folder).get("llm")
    return None if llm is None else str(llm["name"])


def load_llm_planner(
    folder: Path,
    embed: Embedder,
    llm: FrozenLLM,
    allowed: Collection[str] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> LLMPlanner:
    """Read the LLM readout of a stored planner.

    Args:
        folder: What :func:`save_planner` wrote with a readout.
        embed: The text encoder that the planner was trained with.
        llm: The language model that it was trained with.
        allowed: Keys of the tools that plans may hold; ``None``: all it was trained on.
        renamed: New keys of tools that were renamed since the training, by their old keys. The LLM
            goes on reading and writing the old names, which it was trained with.

    Raises:
        CheckpointMismatch: There is no readout, or it does not fit graph, encoder or LLM.
    """
    head = _read_head(folder)
    stored = head.get("llm")
    if stored is None:
        raise CheckpointMismatch(
            f"expected an LLM readout in {folder}, got a planner without one; train with the "
            "setting train_llm_readout = always"
        )
    if stored["digest"] != llm.digest:
        raise CheckpointMismatch(
            f"expected the language model {stored['name']!r} with digest {stored['digest']} for "
            f"{folder}, got {llm.name!r} with {llm.digest}; set the one that it was trained with"
        )
    planner = load_planner(folder, embed)
    present = _with_new_keys(planner.graph, renamed or {})
    if allowed is not None:
        pairs = zip(planner.graph.keys, present.keys, strict=True)
        planner = load_planner(folder, embed, {old for old, new in pairs if new in allowed})
    weights = _read_tensors(folder / TOKENS_FILE, stored["tokens_hash"])
    try:
        config = LLMConfig.from_json(stored["config"])
        names = Names.of(llm, planner.graph.keys)
        tokens = new_graph_tokens(config, planner.model, llm, names.lines)
        tokens.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointMismatch(
            f"expected the LLM readout of {folder} to fit its planner, got: {error}; train and "
            "store the planner again"
        ) from error
    spoken = LLMPlanner(config, tokens, planner, llm)
    spoken.graph = present
    return spoken


def _read_head(folder: Path) -> dict[str, Any]:
    """The configuration file, complete and of this format."""
    path = folder / CONFIG_FILE
    try:
        head: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointMismatch(
            f"expected a stored planner in {folder}, got no readable {CONFIG_FILE}: {error}; give "
            "the folder that training wrote"
        ) from error
    if head.get("format") != FORMAT:
        raise CheckpointMismatch(
            f"expected format {FORMAT} in {path}, got {head.get('format')!r}; train again with "
            "this version"
        )
    names = ("config", "graph_version", "keys", "texts", "extra")
    missing = [
        name for name in (*names, "weights_hash", "graph_hash", "links_hash") if name not in head
    ]
    if missing:
        raise CheckpointMismatch(
            f"expected {missing[0]!r} in {path}, got none; train and store the planner again"
        )
    return head


def _read_tensors(path: Path, expected: str) -> dict[str, Tensor]:
    """The tensors of one file, byte for byte those that were stored."""
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointMismatch(
            f"expected tensors in {path}, got: {error}; restore the file or train again"
        ) from error
    got = weights_hash(tensors)
    if got != expected:
        raise CheckpointMismatch(
            f"expected tensors with hash {expected[:12]} in {path}, got {got[:12]}; the file "
            "belongs to another planner: restore it or train again"
        )
    return tensors


def _check_graph(folder: Path, graph: ToolGraph) -> None:
    """Keys are distinct, every key has a text, edges join known tools and have counts."""
    num_edges = graph.edge_index.size(1)
    if len(graph.index) != graph.num_tools or len(graph.texts) != graph.num_tools:
        raise CheckpointMismatch(
            f"expected {graph.num_tools} distinct tool keys with a text each in {folder}, got "
            f"{len(graph.index)} keys and {len(graph.texts)} texts; store the planner again"
        )
    inside = (graph.edge_index >= 0) & (graph.edge_index < graph.num_tools)
    if tuple(graph.edge_counts.shape) != (num_edges, 2) or not bool(inside.all()):
        raise CheckpointMismatch(
            f"expected edges among {graph.num_tools} tools with two counts each in {folder}, got "
            f"counts of shape {tuple(graph.edge_counts.shape)} for {num_edges} edges; store the "
            "planner again"
        )


def _check_encoder(folder: Path, embed: Embedder, texts: tuple[str, ...], tool_x: Tensor) -> None:
    """The text encoder gives the first tool the vector it had in training."""
    vector = embed(texts[:1]).cpu()
    if vector.size(1) != tool_x.size(1):
        raise CheckpointMismatch(
            f"expected a text encoder with {tool_x.size(1)} channels for {folder}, got one with "
            f"{vector.size(1)}; set the encoder that the planner was trained with"
        )
    likeness = torch.cosine_similarity(vector, tool_x[:1]).item()
    if not likeness >= SAME_TEXT:
        raise CheckpointMismatch(
            f"expected the text encoder of {folder}, got one that gives its first tool another "
            f"vector (cosine {likeness:.3f}); set the encoder that the planner was trained with"
        )
