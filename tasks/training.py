"""One GTool training on a graph version: resumed when it was killed, logged and registered once."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from models.candidates import RequestVectors, embed_requests
from models.checkpoint import Readout, load_planner, save_planner
from models.distributed import World, join
from models.errors import LostProcess, ModelError, ProcessesDiffer
from models.gtool import GTool, GToolConfig, GToolPlanner
from models.links import LinkScorer
from models.llm import llm_digest
from models.llm_training import train_llm_readout
from models.splits import with_validation
from models.training import check_examples, train_gtool, weights_hash
from models.types import Example, ToolGraph
from tasks.embedding import encoder_digest, shared_embedder
from tasks.graphs import LearningData, leak_check, learning_data, load_graph, load_suites
from tasks.llm import llm_configuration, llm_dtype, shared_llm, wants_llm_readout
from tasks.locks import alone
from tasks.predictions import predict
from tasks.registry import Registry
from tasks.settings import Settings, code_version, resolve_device
from tasks.watching import run_tags
from warehouse.connection import open_warehouse
from warehouse.reports import note_alias

log = logging.getLogger("toolatlas")

TrainMode = Literal["auto", "always", "never"]
TrainProgress = Callable[[str, float], None]
"""Told where a training is, and which share of it is done."""

GRAPH_SHARE = 0.1
"""Share of a training that its graph readout is shown as, where an LLM readout follows."""


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """Whether a training ran, why or why not, and the version that stands for this state."""

    trained: bool
    reason: str
    version: str | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The object of ``train --json``."""
        return {
            "trained": self.trained,
            "train_reason": self.reason,
            "version": self.version,
            "train_seconds": round(self.seconds, 1),
        }


def configuration(settings: Settings) -> GToolConfig:
    """GTool's configuration, with what the settings override."""
    config = GToolConfig()
    return replace(config, epochs=settings.max_epochs) if settings.max_epochs else config


def fingerprint(settings: Settings, data: LearningData, *, llm: bool | None = None) -> str:
    """Hash of everything that a training's weights depend on.

    Args:
        settings: Configuration and seed.
        data: Graph and rows.
        llm: Whether the LLM readout is part of it; default: what the settings say.
    """
    device = resolve_device(settings.device)
    parts: dict[str, Any] = {
        "learning_graph": data.graph.learning_id,
        "examples": data.graph.examples_id,
        "config": asdict(configuration(settings)),
        "seed": settings.seed,
        "validation_share": settings.validation_share,
        "threads": settings.threads,
        "device": device,
        "text_encoder": encoder_digest(settings),
        "code": code_version(),
    }
    if wants_llm_readout(settings, device) if llm is None else llm:
        dtype = str(llm_dtype(settings, device))
        parts["llm"] = [asdict(llm_configuration(settings)), llm_digest(settings.llm), dtype]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def train(
    settings: Settings,
    mode: TrainMode = "auto",
    *,
    progress: TrainProgress | None = None,
) -> TrainOutcome:
    """Train on the latest graph version, register the planner and make it the challenger.

    Args:
        settings: Where everything lies, and the device.
        mode: ``auto`` trains when graph, rows, configuration or code differ from every registered
            version; ``always`` trains anew; ``never`` does not.
        progress: Told where it is, and which share is done.
    """
    if mode == "never":
        return TrainOutcome(False, "training was switched off (--train never)")
    data = learning_data(settings)
    registry = Registry(settings)
    key = fingerprint(settings, data)
    known = registry.trained(key)
    if known and mode == "auto":
        _hand_over(settings, registry, data, known, key)
        return TrainOutcome(
            False, f"nothing new: version {known} was trained on this state of data and code", known
        )
    reason = _reason(registry, data, known, mode)
    log.info("training: %s", reason)
    return _train(settings, registry, data, key, mode, reason, progress)


@contextmanager
def together(settings: Settings) -> Iterator[bool]:
    """Train with the processes that torchrun started; whether this is the one that leads.

    The first process does all that a command does. The others wait for its trainings, train along,
    and are done when its block ends; they log and register nothing.
    """
    with join(resolve_device(settings.device)) as world:
        if not world.first:
            _follow(settings, world)
        yield world.first
        if world.first:
            world.tell("")


def _follow(settings: Settings, world: World) -> None:
    """Train what the first process trains, until it says that there is no more."""
    while told := world.tell():
        key, _, done = told.partition(" ")
        data = learning_data(settings)
        if fingerprint(settings, data) != key:
            raise ProcessesDiffer(
                f"expected data, settings and code of process {world.rank} to be those of process "
                "0, they are not; start all of them with the same home and code"
            )
        torch.set_num_threads(settings.threads)
        graph = load_graph(settings, data.graph.version)
        examples, _ = with_validation(data.examples, settings.validation_share)
        requests = [example.request for example in examples]
        vectors = embed_requests(requests, shared_embedder(settings))
        work = settings.training / key
        training = _Training(settings, Registry(settings), "", graph, examples, vectors, work, None)
        training.readouts(done)


def _hand_over(
    settings: Settings, registry: Registry, data: LearningData, known: str, key: str
) -> None:
    """Finish what a training that was killed after registering had left to do."""
    aliases = registry.aliases()
    unmeasured = "decision" not in registry.version(known).tags
    if known not in aliases.values() and (unmeasured or aliases["champion"] is None):
        _make_challenger(settings, registry, known, "it stands for the present state of the data")
    predict(settings, registry, data.graph, data.examples, fingerprint=key, number=known)
    shutil.rmtree(settings.training / key, ignore_errors=True)


def _make_challenger(settings: Settings, registry: Registry, number: str, reason: str) -> None:
    with alone(settings, "aliases"):
        registry.set_alias("challenger", number)
        with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
            note_alias(con, "challenger", number, "train", reason)


def _reason(registry: Registry, data: LearningData, known: str | None, mode: TrainMode) -> str:
    if known:
        return (
            f"training was asked for (--train {mode}) though version {known} stands for this state"
        )
    latest = registry.latest()
    if latest is None:
        return "no version is registered yet"
    news = []
    if latest.tags.get("learning_graph") != data.graph.learning_id:
        news.append("the learning graph changed")
    if latest.tags.get("examples") != data.graph.examples_id:
        news.append("the training rows changed")
    if latest.tags.get("code_version") != code_version():
        news.append("the code changed")
    return f"since version {latest.version} {' and '.join(news or ['the configuration changed'])}"


def _train(
    settings: Settings,
    registry: Registry,
    data: LearningData,
    key: str,
    mode: TrainMode,
    reason: str,
    progress: TrainProgress | None,
) -> TrainOutcome:
    started = time.monotonic()
    graph = load_graph(settings, data.graph.version)
    config = configuration(settings)
    device = resolve_device(settings.device)
    with_llm = wants_llm_readout(settings, device)
    torch.set_num_threads(settings.threads)
    leaks = leak_check(graph, load_suites(settings))
    for name, share in leaks.items():
        log.info("leak check: %.1f %% of the links of %s are in the graph", 100 * share, name)
    examples, drawn = with_validation(data.examples, settings.validation_share)
    check_examples(graph, examples)
    registry.close_abandoned(key)
    params = {
        "seed": settings.seed,
        "device": device,
        "text_encoder": settings.text_encoder,
        "graph_version": data.graph.version,
        "num_tools": graph.num_tools,
        "num_edges": graph.edge_index.size(1),
        "num_train": sum(example.split == "train" for example in examples),
        "num_validation": sum(example.split == "validation" for example in examples),
        "validation": drawn,
        "data_first": data.graph.mark["first"],
        "data_last": data.graph.mark["last"],
        **asdict(config),
    }
    if with_llm:
        params["llm"] = settings.llm
        params |= {f"llm_{k}": v for k, v in asdict(llm_configuration(settings)).items()}
    run_id = registry.open_run(
        key,
        name=f"{'gtool' if with_llm else 'gtool-graph'} {data.graph.version[:12]}",
        params=params,
        tags={
            "graph_version": data.graph.version,
            "examples": data.graph.examples_id,
            "train_reason": reason,
            **run_tags(),
        },
    )
    embed = shared_embedder(settings)
    work = settings.training / key
    vectors = embed_requests([example.request for example in examples], embed)
    graph_key = fingerprint(settings, data, llm=False)
    training = _Training(settings, registry, run_id, graph, examples, vectors, work, progress)
    with registry.failing(run_id):
        done = registry.trained_graph(graph_key) if with_llm and mode != "always" else None
        World.current().tell(f"{key} {done or ''}")
        model, readout, tags = training.readouts(done)
        weights = weights_hash(model.state_dict())
        folder = work / "planner"
        _save(folder, model, training, readout)
        seconds = time.monotonic() - started
        registry.log_summary(
            run_id,
            {"train_seconds": seconds, **{f"leak/{name}": share for name, share in leaks.items()}},
            weights_hash=weights,
        )
        number = registry.register(
            run_id,
            folder,
            tags={
                "graph_version": data.graph.version,
                "planner": "gtool-graph" if readout is None else "gtool-graph, gtool-llm",
                "learning_graph": data.graph.learning_id,
                "examples": data.graph.examples_id,
                "code_version": code_version(),
                "weights_hash": weights,
                **tags,
                "fingerprint": key,
                "graph_fingerprint": graph_key,
            },
        )
    _make_challenger(settings, registry, number, reason)
    predict(settings, registry, data.graph, data.examples, fingerprint=key, number=number)
    shutil.rmtree(work, ignore_errors=True)
    log.info("registered version %s after %.0f s", number, seconds)
    return TrainOutcome(True, reason, number, seconds)


@dataclass(frozen=True, slots=True)
class _Training:
    """The two stages of a training, logged to one MLflow run."""

    settings: Settings
    registry: Registry
    run_id: str
    graph: ToolGraph
    examples: list[Example]
    vectors: RequestVectors
    work: Path
    progress: TrainProgress | None

    def readouts(self, done: str | None) -> tuple[GTool, Readout | None, dict[str, str]]:
        """Both readouts, with the tags of the second; the first may be one that is trained."""
        with_llm = wants_llm_readout(self.settings, resolve_device(self.settings.device))
        model = self.taken_over(done) if done else self.graph_readout(with_llm)
        return model, *(self.llm_readout(model) if with_llm else (None, {}))

    def taken_over(self, number: str) -> GTool:
        """The graph readout of a version that was trained on the same state."""
        log.info("the graph readout is that of version %s", number)
        folder = self.registry.planner_folder(number)
        return load_planner(folder, shared_embedder(self.settings)).model

    def graph_readout(self, goes_on: bool) -> GTool:
        """GTool's graph readout, trained; its configuration is in the model."""
        config, whole = configuration(self.settings), GRAPH_SHARE if goes_on else 1.0
        result = train_gtool(
            self.graph,
            shared_embedder(self.settings)(self.graph.texts),
            self.examples,
            self.vectors,
            config,
            seed=self.settings.seed,
            device=resolve_device(self.settings.device),
            on_epoch=lambda epoch, metrics: self._tell(
                f"epoch {epoch + 1} of {config.epochs}",
                epoch,
                (epoch + 1) / config.epochs * whole,
                metrics,
            ),
            resume_dir=self.work / "resume",
            code_version=code_version(),
        )
        if World.current().first:
            self.registry.log_summary(self.run_id, {"best_epoch": float(result.best_epoch)})
        return result.model

    def llm_readout(self, model: GTool) -> tuple[Readout | None, dict[str, str]]:
        """The LLM readout on top of it, and what the version is tagged with.

        Where nobody asked for it by name, an LLM that does not serve costs the version its LLM
        readout and no more.
        """
        settings = self.settings
        config, embed = llm_configuration(settings), shared_embedder(settings)
        steps = config.align_steps + config.plan_steps
        try:
            llm = shared_llm(settings, resolve_device(settings.device))
            result = train_llm_readout(
                llm,
                GToolPlanner(model.cpu(), self.graph, embed(self.graph.texts), embed),
                self.examples,
                self.vectors,
                config,
                seed=settings.seed,
                on_step=lambda step, metrics: self._tell(
                    f"LLM readout, step {step} of {steps}",
                    step,
                    GRAPH_SHARE + (1 - GRAPH_SHARE) * step / steps,
                    {f"llm/{name}": value for name, value in metrics.items()},
                ),
                resume_dir=self.work / "resume-llm",
                code_version=code_version(),
            )
        except ModelError as error:
            if settings.train_llm_readout == "always" or isinstance(error, LostProcess):
                raise
            log.warning("gtool-llm is left out of this version: %s", error)
            return None, {"llm_left_out": str(error)[:500]}
        return Readout(result.config, result.tokens, llm), {"llm": f"{llm.name} {llm.digest}"}

    def _tell(self, where: str, step: int, share: float, metrics: dict[str, float]) -> None:
        """MLflow and whoever watches hear of a step, from the first process of several."""
        if not World.current().first:
            return
        self.registry.log_epoch(self.run_id, step, metrics)
        if self.progress:
            shown = ", ".join(f"{name} {value:.3f}" for name, value in sorted(metrics.items()))
            self.progress(f"{where}, {shown}", share)


def _save(
    folder: Path,
    model: GTool,
    training: _Training,
    readout: Readout | None,
) -> None:
    """The planner as a folder; the links of its plans are learnt here, in seconds."""
    settings, graph = training.settings, training.graph
    shutil.rmtree(folder, ignore_errors=True)
    tool_x = shared_embedder(settings)(graph.texts)
    save_planner(
        folder,
        model,
        model.config,
        graph,
        tool_x,
        LinkScorer.fit(graph, training.examples, tool_x),
        extra={"text_encoder": settings.text_encoder, "code_version": code_version()},
        readout=readout,
    )
