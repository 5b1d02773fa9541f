"""Predicted edges of the graph version that a training used, written once it is registered."""

import logging
from typing import Any

import polars as pl

from models.predicted import predict_edges
from models.types import Example
from tasks.embedding import shared_embedder
from tasks.graphs import load_graph
from tasks.registry import Registry
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.graph import GraphVersion
from warehouse.predictions import find_prediction, store_prediction

log = logging.getLogger("toolatlas")


def limits(settings: Settings) -> dict[str, Any]:
    """What decides which predicted edges are kept."""
    return {
        "most": settings.predicted_edges,
        "min_probability": settings.min_predicted_probability,
    }


def predict(
    settings: Settings,
    registry: Registry,
    version: GraphVersion,
    examples: list[Example],
    *,
    fingerprint: str,
    number: str,
) -> bool:
    """Write the predicted edges of a version that was trained on; False where they are there.

    Safe to repeat: what is there of the same training and the same settings stays, and a process
    that was killed in between leaves either all of them or none.

    Args:
        settings: How many, and how likely at least.
        registry: Whose run hears how well such predictions fared.
        version: That was trained on.
        examples: The rows of the same state.
        fingerprint: Of the training.
        number: Of the model in the registry.
    """
    wanted = limits(settings)
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        known = find_prediction(con, version)
    if known and (known.fingerprint, known.settings) == (fingerprint, wanted):
        return False
    graph = load_graph(settings, version.version)
    metrics: dict[str, float] = {}
    source, target, probability = [], [], []
    if settings.predicted_edges:
        found, metrics = predict_edges(
            graph, shared_embedder(settings)(graph.texts), examples, seed=settings.seed, **wanted
        )
        source, target = found.edge_index.tolist()
        probability = found.probability.tolist()
    edges = pl.DataFrame(
        {
            "source": [graph.keys[row] for row in source],
            "target": [graph.keys[row] for row in target],
            "probability": probability,
        },
        schema={"source": pl.String, "target": pl.String, "probability": pl.Float64},
    )
    measured = {f"predicted/{name}": value for name, value in metrics.items()}
    registry.log_summary(str(registry.version(number).run_id), measured)
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        store_prediction(
            con,
            version,
            edges,
            fingerprint=fingerprint,
            model_version=number,
            settings=wanted,
            metrics=metrics,
        )
    log.info("version %s predicts %d edges of graph %s", number, len(edges), version.version[:12])
    return True
