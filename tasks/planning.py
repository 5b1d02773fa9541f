"""Planners by name, and plans as users read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from models.baselines import NearestPlanner, PopularityPlanner, RetrievalPlanner
from models.checkpoint import load_llm_planner, load_planner, readout_llm
from models.fusion import FusionPlanner
from models.graph import dataflow_namespaces
from models.gtool import GToolPlanner
from models.learned_subtasks import LearnedDecomposer
from models.new_tools import extended, on_graph, spoken_on
from models.scorers import PlannerScorer, TextScorer, mixed
from models.search_graph import SearchGraph, likely_edges
from models.sgc import SgcPlanner
from models.solving import Scorer
from models.subtasks import Subtask
from models.text import SentenceEmbedder
from models.tog import Decomposer, TogPlanner, make_tog_planner
from models.types import Embedder, Example, Planner, ToolGraph
from tasks.embedding import shared_embedder
from tasks.errors import NoChampion, NoReadout, UnknownPlanner
from tasks.graphs import (
    LearningData,
    Present,
    find,
    learning_data,
    load_graph,
    load_searchable,
    present,
)
from tasks.llm import shared_llm
from tasks.registry import Registry
from tasks.settings import Settings, resolve_device

BASELINES = ("retrieval", "nearest", "popularity", "sgc")
LLM_PLANNERS = ("gtool-llm", "gtool-llm-single", "gtool-llm-steps", "gtool-fusion")
"""Planners that need a stored LLM readout; the first is the stored one, whatever its mode."""

PLANNERS = ("gtool", "gtool-graph", *LLM_PLANNERS, "tog", *BASELINES)
MODEL_FREE = ("tog", *BASELINES)
"""Planners without a version in the registry."""


_KINDS: dict[str, type[RetrievalPlanner | NearestPlanner | PopularityPlanner | SgcPlanner]] = {
    kind.name: kind for kind in (RetrievalPlanner, NearestPlanner, PopularityPlanner, SgcPlanner)
}


def make_baselines(
    graph: ToolGraph,
    examples: list[Example],
    embed: Embedder,
    names: tuple[str, ...] = BASELINES,
) -> dict[str, Planner]:
    """Baselines on one graph and the same rows that training saw."""
    namespaces = dataflow_namespaces(graph)
    return {
        name: _KINDS[name](graph, examples, embed, dataflow_namespaces=namespaces) for name in names
    }


def make_tog(
    settings: Settings, now: Present, data: LearningData, graph: ToolGraph, embed: Embedder
) -> TogPlanner:
    """ToG on the tools that a planner may offer now, with what past plans say of their order.

    The settings ``tog_scorer`` and ``tog_decomposer`` put the champion or a language model in the
    place of texts and rules.
    """
    nodes, declared = load_searchable(settings, data.graph.version, now)
    texts = dict(zip(graph.keys, graph.texts, strict=True))
    learnt: Planner | None = None
    if settings.tog_scorer in ("gtool", "mixed") or settings.tog_decomposer == "learned":
        registry = Registry(settings)
        number = resolve_version(registry, "gtool")
        learnt = load_version(registry, number, embed, graph, now.renamed)
    return make_tog_planner(
        nodes,
        texts,
        embed,
        edges=likely_edges(data.examples, declared),
        scorer=_scorer(settings, texts, embed, learnt),
        decomposer=_decomposer(settings, learnt),
    )


_READ_BY_LLM = 20
"""Tools that a language model scores for a task: the likest by texts."""


def _scorer(
    settings: Settings, texts: Mapping[str, str], embed: Embedder, learnt: Planner | None
) -> Callable[[SearchGraph], Scorer] | None:
    """What makes the scorer of the setting; None for texts alone."""
    if settings.tog_scorer == "text":
        return None

    def make(graph: SearchGraph) -> Scorer:
        if settings.tog_scorer == "gtool":
            return by_plans(graph)
        told = [texts[key] for key in graph.keys]
        by_text = TextScorer(graph.keys, told, embed)
        if settings.tog_scorer == "mixed":
            learnt_scorer = by_plans(graph)
            return lambda subtasks: mixed([by_text(subtasks), learnt_scorer(subtasks)], [1.0, 1.0])
        from models.llm_thoughts import LlmScorer
        from tasks.chat import chat_of

        def likest(subtask: Subtask) -> list[int]:
            (suits,) = by_text([subtask])
            return [int(row) for row in (-suits.tools).argsort()[:_READ_BY_LLM]]

        many = 8 if settings.chat_url else 1
        return LlmScorer(chat_of(settings), graph.keys, told, wanted=likest, parallel=many)

    def by_plans(graph: SearchGraph) -> PlannerScorer:
        assert learnt is not None
        return PlannerScorer(learnt, graph.keys)

    return make


def _decomposer(
    settings: Settings, learnt: Planner | None
) -> Callable[[SearchGraph], Decomposer] | None:
    """What makes the decomposer of the setting; None for the rules."""
    if settings.tog_decomposer == "learned" and learnt is not None:
        planner = learnt
        return lambda graph: LearnedDecomposer(planner, graph)
    if settings.tog_decomposer == "llm":
        from models.llm_thoughts import LlmDecomposer
        from tasks.chat import chat_of

        chat = chat_of(settings)
        return lambda graph: LlmDecomposer(chat, graph.own_types)
    return None


@dataclass(slots=True)
class _Switch:
    """An embedder that can be replaced by another one later."""

    embed: Embedder

    def __call__(self, texts: Sequence[str]) -> Tensor:
        return self.embed(texts)


def load_version(
    registry: Registry,
    number: str,
    embed: Embedder,
    graph: ToolGraph,
    renamed: Mapping[str, str] | None = None,
) -> GToolPlanner:
    """A registered planner, which offers the tools of the graph and none that is gone from it.

    Tools that were renamed since its training are found under their new keys; tools that came
    since are planned for by text and edges.
    """
    folder, allowed = registry.planner_folder(number), frozenset(graph.keys)
    planner = load_planner(folder, embed, allowed=allowed, renamed=renamed)
    if allowed <= planner.graph.index.keys():
        return planner
    return on_graph(planner, extended(planner.graph, graph), allowed)


def load_llm_version(
    settings: Settings,
    registry: Registry,
    number: str,
    embed: Embedder,
    graph: ToolGraph,
    renamed: Mapping[str, str] | None = None,
    kind: str = "gtool-llm",
) -> Planner | None:
    """The LLM readout of a registered planner, or its fusion with the graph readout.

    Tools that came since its training are offered as by :func:`load_version`.

    Returns:
        The planner; None where the version has no LLM readout, or one of another mode.
    """
    folder = registry.planner_folder(number)
    if readout_llm(folder) is None:
        return None
    llm, allowed = shared_llm(settings, resolve_device(settings.device)), frozenset(graph.keys)
    spoken = load_llm_planner(folder, embed, llm, allowed=allowed, renamed=renamed)
    if kind not in ("gtool-llm", "gtool-fusion", spoken.name):
        return None
    is_known = allowed <= spoken.graph.index.keys()
    if is_known and kind != "gtool-fusion":
        return spoken
    drawn = load_version(registry, number, embed, graph, renamed)
    spoken = spoken if is_known else spoken_on(spoken, drawn)
    return FusionPlanner(drawn, spoken) if kind == "gtool-fusion" else spoken


def resolve_version(registry: Registry, name: str) -> str:
    """The version number behind ``gtool``, ``gtool@7``, ``gtool@challenger``.

    Raises:
        NoChampion: The alias is not set.
    """
    _, _, wanted = name.partition("@")
    wanted = wanted or "champion"
    if wanted.isdigit():
        return str(registry.version(wanted).version)
    number = registry.aliases().get(wanted)
    if number is None:
        raise NoChampion(
            f"expected a {wanted} of gtool-planner, there is none: run toolatlas nightly, or "
            f"promote a version by hand, or plan with --planner nearest."
        )
    return number


def plan(
    settings: Settings, request: str, *, planner: str = "gtool", top: int = 3
) -> dict[str, Any]:
    """Ranked plans for a request, with the versions that made them and the time it took.

    Returns:
        ``plan --json``: ``graph_version``, ``model_version``, ``plans``, and ``ms`` with ``load``
        (planner and text encoder, once) and ``plan`` (this request).
    """
    started = perf_counter()
    chosen, graph_version, model_version = get_planner(settings, planner)
    chosen.plan(["Load the text encoder."])
    loaded = perf_counter()
    plans = chosen.plan([request], top=top)[0]
    ended = perf_counter()
    return {
        "graph_version": graph_version,
        "model_version": model_version,
        "plans": [ranked.to_json() for ranked in plans],
        "ms": {
            "load": round((loaded - started) * 1000, 1),
            "plan": round((ended - loaded) * 1000, 1),
        },
    }


def get_planner(
    settings: Settings, name: str, embed: Embedder | None = None
) -> tuple[Planner, str, str | None]:
    """A planner by name, with the graph version and the model version behind it.

    Raises:
        UnknownPlanner: No planner has that name.
        NoReadout: A readout of the LLM that the version was not trained with.
    """
    kind, at, _ = name.partition("@")
    if kind not in PLANNERS or (at and kind in MODEL_FREE):
        raise UnknownPlanner(f"expected a planner out of {', '.join(PLANNERS)}, got {name!r}.")
    torch.set_num_threads(settings.threads)
    embed = embed or SentenceEmbedder(settings.text_encoder)
    now = present(settings)
    if kind in MODEL_FREE:
        data = learning_data(settings, now)
        graph = load_graph(settings, data.graph.version, now)
        # Past requests come from the store; new ones are encoded, and timed, as they are asked.
        switch = _Switch(shared_embedder(settings))
        planner: Planner
        if kind == "tog":
            planner = make_tog(settings, now, data, graph, switch)
        else:
            planner = make_baselines(graph, data.examples, switch, (kind,))[kind]
        switch.embed = embed
        return planner, graph.version, None
    registry = Registry(settings)
    number = resolve_version(registry, name)
    tags = registry.version(number).tags
    graph = load_graph(settings, find(settings).version, now)
    if kind not in LLM_PLANNERS:
        planner = load_version(registry, number, embed, graph, now.renamed)
        return planner, tags["graph_version"], number
    spoken = load_llm_version(settings, registry, number, embed, graph, now.renamed, kind)
    if spoken is None:
        raise NoReadout(
            f"expected version {number} to have an LLM readout for {kind}, it has none: train with "
            "TOOLATLAS_TRAIN_LLM_READOUT=always (and TOOLATLAS_LLM_MODE), or plan with --planner "
            "gtool."
        )
    return spoken, tags["graph_version"], number
