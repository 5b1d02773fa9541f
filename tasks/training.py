"""One GTool training on a graph version: resumed when it was killed, logged and registered once."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from models.checkpoint import save_planner
from models.graph import dataflow_namespaces
from models.gtool import GToolConfig
from models.splits import with_validation
from models.training import check_examples, train_gtool, weights_hash
from models.types import Embedder, ToolGraph
from tasks.embedding import encoder_digest, shared_embedder
from tasks.graphs import LearningData, leak_check, learning_data, load_graph, load_suites
from tasks.registry import Registry
from tasks.settings import Settings, code_version
from tasks.watching import run_tags
from warehouse.connection import open_warehouse
from warehouse.reports import note_alias

log = logging.getLogger("toolatlas")

TrainMode = Literal["auto", "always", "never"]
EpochProgress = Callable[[int, dict[str, float]], None]


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


def fingerprint(settings: Settings, data: LearningData) -> str:
    """Hash of everything that a training's weights depend on."""
    parts = {
        "learning_graph": data.graph.learning_id,
        "examples": data.graph.examples_id,
        "config": asdict(configuration(settings)),
        "seed": settings.seed,
        "validation_share": settings.validation_share,
        "threads": settings.threads,
        "device": resolve_device(settings.device),
        "text_encoder": encoder_digest(settings),
        "code": code_version(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def train(
    settings: Settings,
    mode: TrainMode = "auto",
    *,
    progress: EpochProgress | None = None,
) -> TrainOutcome:
    """Train on the latest graph version, register the planner and make it the challenger.

    Args:
        settings: Where everything lies, and the device.
        mode: ``auto`` trains when graph, rows, configuration or code differ from every registered
            version; ``always`` trains anew; ``never`` does not.
        progress: Told each epoch and its metrics.
    """
    if mode == "never":
        return TrainOutcome(False, "training was switched off (--train never)")
    data = learning_data(settings)
    registry = Registry(settings)
    key = fingerprint(settings, data)
    known = registry.trained(key)
    if known and mode == "auto":
        _hand_over(settings, registry, known, key)
        return TrainOutcome(
            False, f"nothing new: version {known} was trained on this state of data and code", known
        )
    reason = _reason(registry, data, known, mode)
    log.info("training: %s", reason)
    return _train(settings, registry, data, key, reason, progress)


def _hand_over(settings: Settings, registry: Registry, known: str, key: str) -> None:
    """Finish what a training that was killed after registering had left to do."""
    aliases = registry.aliases()
    unmeasured = "decision" not in registry.version(known).tags
    if known not in aliases.values() and (unmeasured or aliases["champion"] is None):
        _make_challenger(settings, registry, known, "it stands for the present state of the data")
    shutil.rmtree(settings.training / key, ignore_errors=True)


def _make_challenger(settings: Settings, registry: Registry, number: str, reason: str) -> None:
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
    reason: str,
    progress: EpochProgress | None,
) -> TrainOutcome:
    started = time.monotonic()
    graph = load_graph(settings, data.graph.version)
    config = configuration(settings)
    device = resolve_device(settings.device)
    torch.set_num_threads(settings.threads)
    leaks = leak_check(graph, load_suites(settings))
    examples, drawn = with_validation(data.examples, settings.validation_share)
    check_examples(graph, examples)
    registry.close_abandoned(key)
    run_id = registry.open_run(
        key,
        name=f"gtool-graph {data.graph.version[:12]}",
        params={
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
        },
        tags={
            "graph_version": data.graph.version,
            "examples": data.graph.examples_id,
            "train_reason": reason,
            **run_tags(),
        },
    )
    embed = shared_embedder(settings)
    work = settings.training / key
    with registry.failing(run_id):
        result = train_gtool(
            graph,
            embed(graph.texts),
            examples,
            embed([example.request for example in examples]),
            config,
            seed=settings.seed,
            device=device,
            on_epoch=_both(registry, run_id, progress),
            resume_dir=work / "resume",
            code_version=code_version(),
        )
    weights = weights_hash(result.model.state_dict())
    folder = work / "planner"
    _save(folder, result.model, result.config, graph, embed, settings)
    seconds = time.monotonic() - started
    registry.log_summary(
        run_id,
        {
            "best_epoch": float(result.best_epoch),
            "train_seconds": seconds,
            **{f"leak/{name}": share for name, share in leaks.items()},
        },
        weights_hash=weights,
    )
    number = registry.register(
        run_id,
        folder,
        tags={
            "fingerprint": key,
            "graph_version": data.graph.version,
            "learning_graph": data.graph.learning_id,
            "examples": data.graph.examples_id,
            "code_version": code_version(),
            "weights_hash": weights,
            "planner": "gtool-graph",
        },
    )
    _make_challenger(settings, registry, number, reason)
    shutil.rmtree(work, ignore_errors=True)
    log.info(
        "registered version %s after %.0f s, best epoch %d", number, seconds, result.best_epoch
    )
    return TrainOutcome(True, reason, number, seconds)


def _save(
    folder: Path,
    model: Any,
    config: GToolConfig,
    graph: ToolGraph,
    embed: Embedder,
    settings: Settings,
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    save_planner(
        folder,
        model,
        config,
        graph,
        embed(graph.texts),
        dataflow_namespaces(graph),
        extra={"text_encoder": settings.text_encoder, "code_version": code_version()},
    )


def _both(registry: Registry, run_id: str, progress: EpochProgress | None) -> EpochProgress:
    def told(epoch: int, metrics: dict[str, float]) -> None:
        registry.log_epoch(run_id, epoch, metrics)
        if progress:
            progress(epoch, metrics)

    return told


def resolve_device(setting: str) -> str:
    """``cuda`` where it is wished for and there; ``auto`` takes what there is.

    Raises:
        RuntimeError: ``cuda`` was asked for and this machine has none.
    """
    if setting == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "expected a CUDA device (setting device = cuda), this machine has none: "
            "set TOOLATLAS_DEVICE=auto or cpu."
        )
    return "cuda" if setting != "cpu" and torch.cuda.is_available() else "cpu"
