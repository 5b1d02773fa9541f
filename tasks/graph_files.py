"""A graph version as files: Parquet, GraphML, JSON, and a page to look at."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from models.structure import groups_of
from tasks.analysis import mark_of
from tasks.errors import WrongUsage
from tasks.exports import to_graphml, to_json
from tasks.graphs import diff_alone, frames, predictions
from tasks.pictures.changes import data_url, diff_picture
from tasks.pictures.page import render_page
from tasks.settings import Settings
from warehouse.evidence import summarise
from warehouse.graph import GraphVersion
from warehouse.predictions import with_predicted

log = logging.getLogger("toolatlas")

FORMATS = ("parquet", "graphml", "html", "json")


def export(
    settings: Settings,
    name: str,
    formats: Sequence[str],
    folder: Path,
    *,
    since: str | None = None,
) -> dict[str, Any]:
    """Write a version to files named after it; ``graph export --json``.

    Args:
        settings: Of the home.
        name: The version.
        formats: Of ``FORMATS``.
        folder: Where to; made where missing.
        since: An earlier version: the page colours what changed since.

    Raises:
        WrongUsage: A format is unknown.
    """
    unknown = [kind for kind in formats if kind not in FORMATS]
    if unknown or not formats:
        raise WrongUsage(
            f"expected --format with some of {', '.join(FORMATS)}, got {', '.join(unknown)!r}."
        )
    version, nodes, edges = frames(settings, name)
    mark = mark_of(version)
    predicted = predictions(settings, version)
    summary = with_predicted(
        summarise(edges, mark, half_life_days=settings.half_life_days), predicted
    )
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"graph-{version.version[:12]}"
    files = {}
    for kind in dict.fromkeys(formats):
        path = stem.with_suffix(f".{kind}")
        # Under another name first: a file is whole or absent.
        unfinished = path.with_suffix(path.suffix + ".tmp")
        if kind == "parquet":
            nodes_path = path.with_name(f"{stem.name}-nodes.parquet")
            nodes.write_parquet(unfinished)
            unfinished.replace(nodes_path)
            files["nodes"] = str(nodes_path)
            predicted_path = path.with_name(f"{stem.name}-predicted.parquet")
            predicted.write_parquet(unfinished)
            unfinished.replace(predicted_path)
            files["predicted"] = str(predicted_path)
            path = path.with_name(f"{stem.name}-edges.parquet")
            edges.write_parquet(unfinished)
        elif kind == "graphml":
            to_graphml(nodes, summary, unfinished, facts=_facts(version))
        elif kind == "json":
            to_json(nodes, summary, unfinished, facts=_facts(version))
        else:
            changed = diff_alone(settings, since, version.version) if since else None
            text = _page(version, nodes, edges, summary, changed)
            unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(path)
        files["edges" if kind == "parquet" else kind] = str(path)
    for path_text in files.values():
        log.info("written: %s", path_text)
    return {"version": version.version, "files": files}


def _facts(version: GraphVersion) -> dict[str, str | int]:
    return {
        "version": version.version,
        "built": version.built_at.date().isoformat(),
        "evidence up to": (version.mark["last"] or "no clock")[:10],
        "tools": version.nodes,
        "edges": version.edges,
    }


def _page(
    version: GraphVersion,
    nodes: pl.DataFrame,
    edges: pl.DataFrame,
    summary: pl.DataFrame,
    changed: dict[str, Any] | None,
) -> str:
    daily = (
        edges.group_by("source", "target", "kind", "on_day")
        .agg(pl.col("num_seen").sum())
        .sort("source", "target", "kind", "on_day")
    )
    types = [
        (key, str(entry).rsplit(":", 1)[-1], side)
        for key, *listed in nodes.select("key", "input_types", "output_types").iter_rows()
        for side, entries in zip(("input", "output"), listed, strict=True)
        for entry in json.loads(entries)
    ]
    return render_page(
        f"Tool graph {version.version[:12]}",
        {**_facts(version), "version": version.version[:12]},
        nodes,
        summary,
        daily,
        groups=groups_of(nodes, summary),
        diff=changed,
        resources=types,
    )


def picture_of_changes(settings: Settings, changed: dict[str, Any]) -> str:
    """What changed between two versions as an image that an artifact can hold."""
    _, _, edges = frames(settings, changed["to"])
    return data_url(diff_picture(changed, summarise(edges)))
