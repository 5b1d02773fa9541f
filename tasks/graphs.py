"""Graph versions and suites: build them, read them back as the tensors and rows of learning."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import duckdb
import polars as pl

from models.graph import read_examples, tool_graph
from models.resources import resource_graph
from models.type_edges import summarise_types, type_match
from models.types import Example, ToolGraph
from tasks.analysis import Frames, drifted, structure
from tasks.settings import Settings, code_version
from warehouse.aliases import renames, withdrawn
from warehouse.changes import diff_versions
from warehouse.connection import open_warehouse
from warehouse.graph import (
    GraphVersion,
    build_graph,
    collect_versions,
    export_version,
    find_version,
    held_since,
    learning_edges,
    list_versions,
    read_version,
    release,
    remove_exports,
    roll_back,
    training_rows,
    unlisted_tools,
    version_edges,
    version_nodes,
)
from warehouse.mining import GraphParameters
from warehouse.predictions import describe_prediction, expected_edge, predicted_edges
from warehouse.reports import reported_graphs
from warehouse.splits import split_of
from warehouse.suites import (
    Suite,
    count_waiting,
    find_suite,
    freeze_suites,
    list_suites,
    read_suite,
)
from warehouse.why import explain_edge

log = logging.getLogger("toolatlas")


def parameters(con: duckdb.DuckDBPyConnection, settings: Settings) -> GraphParameters:
    """What is held out, by setting, and by the split that the home is for."""
    return GraphParameters(
        settings.seed, settings.test_share, settings.validation_share, split_of(con)
    )


def frames(settings: Settings, name: str) -> Frames:
    """A version with its nodes and edges."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return _frames(con, find_version(con, name))


def predictions(settings: Settings, version: GraphVersion) -> pl.DataFrame:
    """source, target, probability of the edges that a model expects of a version."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return predicted_edges(con, version)


def _frames(con: duckdb.DuckDBPyConnection, version: GraphVersion) -> Frames:
    return version, version_nodes(con, version), version_edges(con, version)


def build(settings: Settings, *, released: bool = False) -> dict[str, Any]:
    """Build the graph version of the present data; ``graph build --json``.

    Args:
        settings: Of the home.
        released: Let it be the latest even where a rollback holds another.
    """
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        if released and not release(con):
            log.info("no rollback holds an earlier version: there is nothing to release")
        version = build_graph(con, parameters(con, settings), code_version=code_version())
        held = find_version(con) if version.held else None
    log.info(
        "graph %s: %d tools, %d edges, %s",
        version.version[:12],
        version.nodes,
        version.edges,
        "new" if version.new else "unchanged",
    )
    if held:
        log.warning(
            "a rollback holds version %s as the latest: toolatlas graph build --release ends that",
            held.version[:12],
        )
    return version.to_json()


def versions(settings: Settings) -> list[dict[str, Any]]:
    """Every build that changed something, newest first; ``is_latest`` marks the latest."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        found = list_versions(con)
        latest = find_version(con).build if found else None
        held = held_since(con) is not None
    return [
        {**v.to_json(), "is_latest": v.build == latest, "held": held and v.build == latest}
        for v in found
    ]


def find(settings: Settings, name: str = "latest") -> GraphVersion:
    """A version by ``latest``, id prefix or UTC time."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return find_version(con, name)


def show(settings: Settings, name: str) -> dict[str, Any]:
    """One version in numbers: tools by status, edges by kind, learning and held-out evidence."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        version = find_version(con, name)
        unlisted = unlisted_tools(con)
        declared = con.execute(
            "select source, count(*) from declared_edge group by source order by source"
        ).fetchall()
        _, nodes, edges = found = _frames(con, version)
        predicted = describe_prediction(con, version)
    by_kind = (
        edges.group_by("kind", "outcome", "is_held_out")
        .agg(pl.col("num_seen").sum(), pl.struct("source", "target").n_unique().alias("pairs"))
        .sort("kind", "outcome", "is_held_out")
    )
    strongest = learning_edges(edges).sort(
        ["num_seen", "source", "target"], descending=[True, False, False]
    )
    return {
        **version.to_json(),
        "parameters": version.parameters,
        "tools": dict(nodes.group_by("status").len().sort("status").iter_rows()),
        "evidence": by_kind.to_dicts(),
        "strongest": strongest.head(10).to_dicts(),
        "predicted": predicted,
        "types": summarise_types(resource_graph(nodes))._asdict(),
        "structure": structure(found, settings.half_life_days),
        "declared_edges": dict(declared),
        "unlisted": unlisted,
    }


def diff(settings: Settings, old: str, new: str) -> dict[str, Any]:
    """What changed from one version to another, and whether use drifted."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        before, after = find_version(con, old), find_version(con, new)
        changed = diff_versions(con, before, after)
        earlier, later = _frames(con, before), _frames(con, after)
    renamed = dict(changed["tools"]["renamed"])
    return {**changed, "drift": drifted(earlier, later, renamed)}


def diff_alone(settings: Settings, old: str | None, new: str) -> dict[str, Any]:
    """What changed between two versions alone; from nothing when ``old`` is None."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return diff_versions(con, find_version(con, old) if old else None, find_version(con, new))


def why(settings: Settings, source: str, target: str, version: str) -> dict[str, Any]:
    """The evidence for an edge of a version; ``graph why --json``."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        found = find_version(con, version)
        told = explain_edge(con, found, source, target, half_life_days=settings.half_life_days)
        types = resource_graph(version_nodes(con, found))
        predicted = expected_edge(con, found, told["source"], told["target"])
    active = {told["source"], told["target"]} <= set(types.tools)
    matches = type_match(types, told["source"], told["target"]) if active else []
    return {**told, "types": [match._asdict() for match in matches], "predicted": predicted}


def rollback(settings: Settings, version: str) -> dict[str, Any]:
    """Make an earlier version the latest and hold it there; ``graph rollback --json``."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        before = find_version(con)
        now = roll_back(con, version)
    log.info("graph %s is the latest, before it was %s", now.version[:12], before.version[:12])
    return {**now.to_json(), "from": before.version}


def collect(settings: Settings, keep: int) -> dict[str, Any]:
    """Remove old versions that no model and no report refers to; ``graph collect --json``."""
    from tasks.registry import Registry

    models = Registry(settings).graph_versions() if settings.has_models else set()
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        needed = models | reported_graphs(con)
        gone = collect_versions(con, needed=needed, keep=keep)
        left = list_versions(con)
        exports = remove_exports(settings.graphs, {find_version(con).version} if left else set())
    log.info("%d versions removed, %d builds left", len(gone), len(left))
    return {
        "removed": gone,
        "left": len(left),
        "referred_to": len(needed & {version.version for version in left}),
        "exports_removed": exports,
    }


@dataclass(frozen=True, slots=True)
class Present:
    """What the catalogue says now of tools that a graph version or a model knows from before.

    Attributes:
        renamed: New keys by old keys.
        withdrawn: Keys of the tools that no planner may offer.
    """

    renamed: Mapping[str, str]
    withdrawn: frozenset[str]


def present(settings: Settings) -> Present:
    """Renames, removals and deprecations as they are now."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return Present(renames(con), withdrawn(con))


def load_graph(settings: Settings, version: str, now: Present | None = None) -> ToolGraph:
    """The learning view of a version, read from its Parquet files.

    Args:
        settings: Where versions lie.
        version: Its id.
        now: For planning: tools under their present names, and without those withdrawn since.
    """
    nodes, edges = _exported(settings, version)
    edges = learning_edges(edges)
    if now is not None:
        nodes, edges = _as_now(nodes, edges, now)
    return tool_graph(version, nodes, edges)


def _exported(settings: Settings, version: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Nodes and edges of a version out of its Parquet files, written first where they are not."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        export_version(con, settings.graphs, find_version(con, version))
        return read_version(settings.graphs, version)


class Searchable(NamedTuple):
    """What a search walks: a version's nodes as they are now, and the edges that it declares."""

    nodes: pl.DataFrame
    declared: list[tuple[str, str]]


def load_searchable(settings: Settings, version: str, now: Present) -> Searchable:
    """The nodes and declared edges of a version, tools under their present names."""
    nodes, edges = _exported(settings, version)
    nodes, edges = _as_now(nodes, edges.filter(pl.col("kind") == "declared"), now)
    nodes = nodes.with_columns(
        pl.col("key").str.splitn("/", 2).struct.field("field_0").alias("namespace")
    )
    pairs = edges.select("source", "target").unique().sort("source", "target")
    return Searchable(nodes, pairs.rows())


def _as_now(
    nodes: pl.DataFrame, edges: pl.DataFrame, now: Present
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Nodes and learning edges with the catalogue as it is; of two tools that became one, one."""
    if now.renamed:
        old, new = list(now.renamed), list(now.renamed.values())
        nodes = (
            nodes.with_columns(
                pl.col("key").is_in(old).alias("is_old"), pl.col("key").replace(old, new)
            )
            .sort("key", "is_old")
            .unique("key", keep="first", maintain_order=True)
        )
        nodes = nodes.with_columns(
            pl.when("is_old")
            .then(pl.col("key").str.splitn("/", 2).struct.field("field_1"))
            .otherwise("name")
            .alias("name")
        ).drop("is_old")
        edges = edges.with_columns(pl.col("source", "target").replace(old, new))
        edges = edges.filter(pl.col("source") != pl.col("target"))
    if now.withdrawn:
        gone = pl.col("key").is_in(list(now.withdrawn))
        nodes = nodes.with_columns(
            pl.when(gone).then(pl.lit("deprecated")).otherwise("status").alias("status")
        )
    return nodes, edges


def freeze(
    settings: Settings, *, refresh: bool = False, names: tuple[str, ...] = ()
) -> list[Suite]:
    """Make the suites that are missing; with ``refresh`` also new versions of the others."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        for name in names:
            find_suite(con, name)
        made = freeze_suites(
            con,
            parameters(con, settings),
            min_rows=settings.min_suite_rows,
            refresh=refresh,
            names=names,
        )
    for suite in made:
        log.info("suite %s version %d: %d requests", suite.name, suite.version, suite.num_rows)
    return made


def suites(settings: Settings) -> list[dict[str, Any]]:
    """The newest version of every suite, with the held-out rows that it lacks."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        waiting = count_waiting(con, parameters(con, settings))
        return [
            {**suite.to_json(), "waiting": waiting.get(suite.name, 0)} for suite in list_suites(con)
        ]


def show_suite(settings: Settings, name: str) -> dict[str, Any]:
    """One suite with its rows."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        suite = find_suite(con, name)
        rows = read_examples(read_suite(con, suite), split="test")
    return {
        **suite.to_json(),
        "requests": [
            {"id": row.id, "request": row.request, "tools": row.tools, "links": row.links}
            for row in rows
        ],
    }


@dataclass(frozen=True, slots=True)
class LearningData:
    """What training and baselines may see: a graph version and the rows of the same state."""

    graph: GraphVersion
    examples: list[Example]


def learning_data(settings: Settings, now: Present | None = None) -> LearningData:
    """The latest graph version with the training rows of the same state.

    With ``now``, tools have their present names, and rows with tools withdrawn since are left out.
    """
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        graph = find_version(con)
        rows = read_examples(training_rows(con, graph))
    if now is not None:
        rows = [
            replace(row, tools=tuple(now.renamed.get(key, key) for key in row.tools))
            for row in rows
        ]
        rows = [row for row in rows if now.withdrawn.isdisjoint(row.tools)]
    return LearningData(graph, rows)


def load_suites(settings: Settings, names: tuple[str, ...] = ()) -> dict[Suite, list[Example]]:
    """Suites with their rows, the largest first; all of them when no name is given."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        found = [find_suite(con, name) for name in names] if names else list_suites(con)
        return {suite: read_examples(read_suite(con, suite), split="test") for suite in found}


def leak_check(graph: ToolGraph, suites: dict[Suite, list[Example]]) -> dict[str, float]:
    """Share of each suite's distinct links that the learning graph holds.

    Links are the gold ones, or neighbouring tools where a row has none; a link of a tool to itself
    is no edge and is left out.
    """
    edges = {
        (graph.keys[source], graph.keys[target]) for source, target in graph.edge_index.T.tolist()
    }
    shares = {}
    for suite, rows in suites.items():
        wanted = set()
        for row in rows:
            links = (
                row.links
                if row.has_links
                else zip(range(len(row.tools)), range(1, len(row.tools)), strict=False)
            )
            wanted |= {(row.tools[s], row.tools[t]) for s, t in links}
        wanted = {(s, t) for s, t in wanted if s != t}
        if wanted:
            shares[suite.name] = len(wanted & edges) / len(wanted)
    return shares
