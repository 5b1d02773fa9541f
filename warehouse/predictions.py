"""Predicted edges of a graph version: what a model expects and nobody has seen.

They are made after a training, which is made of a version, so they lie outside the version's id.
They belong to its learning graph: a version that differs in held-out rows alone has the same ones.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb
import polars as pl

from warehouse.connection import query, transaction, utc_now
from warehouse.errors import UnknownTool
from warehouse.graph import GraphVersion

_SCHEMA = {"source": pl.String, "target": pl.String, "probability": pl.Float64}


@dataclass(frozen=True, slots=True)
class Prediction:
    """Who predicted the edges of a learning graph, and how well such predictions fared."""

    learning_id: str
    fingerprint: str
    model_version: str
    settings: dict[str, Any]
    metrics: dict[str, float]
    predicted_at: datetime


def find_prediction(con: duckdb.DuckDBPyConnection, version: GraphVersion) -> Prediction | None:
    """Of a version's learning graph, or None."""
    rows = con.execute(
        "select learning_id, fingerprint, model_version, settings, metrics, predicted_at "
        "from prediction where learning_id = ?",
        [version.learning_id],
    ).fetchall()
    if not rows:
        return None
    learning_id, fingerprint, model, settings, metrics, at = rows[0]
    return Prediction(
        learning_id, fingerprint, model, json.loads(settings), json.loads(metrics), at
    )


def store_prediction(
    con: duckdb.DuckDBPyConnection,
    version: GraphVersion,
    edges: pl.DataFrame,
    *,
    fingerprint: str,
    model_version: str,
    settings: Mapping[str, Any],
    metrics: Mapping[str, float],
) -> None:
    """Keep the predicted edges of a version's learning graph, in place of earlier ones.

    Args:
        con: A writing connection.
        version: That was trained on.
        edges: source and target by key, probability.
        fingerprint: Of the training.
        model_version: Its number in the registry.
        settings: What limited the number of edges.
        metrics: How well such predictions fared.

    Raises:
        UnknownTool: An edge names a tool that the warehouse never saw.
    """
    con.register("predicted_row", edges.select(_SCHEMA.keys()).cast(_SCHEMA))  # type: ignore[arg-type]
    try:
        with transaction(con):
            for table in ("prediction", "predicted_edge"):
                con.execute(_DELETE[table], [version.learning_id])
            con.execute(
                "insert into predicted_edge select ?, s.tool, t.tool, probability "
                "from predicted_row p join mined_tool s on s.key = p.source "
                "join mined_tool t on t.key = p.target order by p.source, p.target",
                [version.learning_id],
            )
            (stored,) = con.execute(
                "select count(*) from predicted_edge where learning_id = ?", [version.learning_id]
            ).fetchall()[0]
            if stored != len(edges):
                raise UnknownTool(
                    f"expected edges between tools of graph version {version.version[:12]}, got "
                    f"{len(edges) - stored} with others: predict on the version that is named."
                )
            con.execute(
                "insert into prediction values (?, ?, ?, ?, ?, ?)",
                [
                    version.learning_id,
                    fingerprint,
                    model_version,
                    json.dumps(dict(settings), sort_keys=True),
                    json.dumps(dict(metrics), sort_keys=True),
                    utc_now(),
                ],
            )
    finally:
        con.unregister("predicted_row")


_DELETE = {
    "prediction": "delete from prediction where learning_id = ?",
    "predicted_edge": "delete from predicted_edge where learning_id = ?",
}


def predicted_edges(con: duckdb.DuckDBPyConnection, version: GraphVersion) -> pl.DataFrame:
    """source, target, probability of what is expected of a version, sorted by key; maybe none."""
    values = {"learning_id": version.learning_id, "state": version.state}
    edges: pl.DataFrame = con.execute(query("predicted_edge"), values).pl()
    return edges


def with_predicted(summary: pl.DataFrame, predicted: pl.DataFrame) -> pl.DataFrame:
    """The summary of a version's edges with the predicted ones among them.

    Args:
        summary: As ``warehouse.evidence.summarise`` tells it.
        predicted: source, target, probability.

    Returns:
        The same columns and ``probability`` (null where an edge was observed or declared). A
        predicted edge has no counts, no days and no weight, and its standing is ``stated``.
    """
    stated = predicted.with_columns(
        kind=pl.lit("predicted"), standing=pl.lit("stated"), weight=pl.lit(0.0)
    )
    counts = [name for name in summary.columns if name.startswith("num_")]
    return (
        pl.concat([summary, stated], how="diagonal")
        .with_columns(pl.col(counts).fill_null(0))
        .sort("source", "target", "kind")
    )


def describe_prediction(
    con: duckdb.DuckDBPyConnection, version: GraphVersion, *, most: int = 10
) -> dict[str, Any] | None:
    """The predicted edges of a version as ``graph show`` tells them; None where there are none."""
    made = find_prediction(con, version)
    if made is None:
        return None
    edges = predicted_edges(con, version)
    likeliest = edges.sort(["probability", "source", "target"], descending=[True, False, False])
    return {
        "model_version": made.model_version,
        "num": len(edges),
        "likeliest": likeliest.head(most).to_dicts(),
        "metrics": made.metrics,
    }


def expected_edge(
    con: duckdb.DuckDBPyConnection, version: GraphVersion, source: str, target: str
) -> dict[str, Any] | None:
    """The probability of one pair, and the model version that says so; None where none does."""
    made = find_prediction(con, version)
    found = predicted_edges(con, version).filter(source=source, target=target)
    if made is None or found.is_empty():
        return None
    return {"probability": found["probability"][0], "model_version": made.model_version}
