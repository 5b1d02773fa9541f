"""Graph versions and suites: build them, read them back as the tensors and rows of learning."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from models.graph import read_examples, tool_graph
from models.types import Example, ToolGraph
from tasks.settings import Settings, code_version
from warehouse.aliases import renames, withdrawn
from warehouse.connection import open_warehouse
from warehouse.graph import (
    GraphParameters,
    GraphVersion,
    build_graph,
    diff_versions,
    find_version,
    learning_edges,
    list_versions,
    read_examples_file,
    read_version,
    unlisted_tools,
)
from warehouse.suites import (
    Suite,
    count_waiting,
    find_suite,
    freeze_suites,
    list_suites,
    read_suite,
)

log = logging.getLogger("toolatlas")


def parameters(settings: Settings) -> GraphParameters:
    """What is held out, by setting."""
    return GraphParameters(settings.seed, settings.test_share, settings.validation_share)


def build(settings: Settings) -> dict[str, Any]:
    """Build and export the graph version of the present data; ``graph build --json``."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        version = build_graph(
            con,
            settings.graphs,
            parameters(settings),
            examples=settings.examples,
            code_version=code_version(),
        )
    log.info(
        "graph %s: %d tools, %d edges, %s",
        version.version[:12],
        version.nodes,
        version.edges,
        "new" if version.new else "unchanged",
    )
    return version.to_json()


def versions(settings: Settings) -> list[dict[str, Any]]:
    """Every build that changed what is latest, newest first."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return [version.to_json() for version in list_versions(con)]


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
    nodes, edges = read_version(settings.graphs, version.version)
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
        "declared_edges": dict(declared),
        "unlisted": unlisted,
    }


def diff(settings: Settings, old: str, new: str) -> dict[str, Any]:
    """What changed from one version to another."""
    a, b = find(settings, old), find(settings, new)
    return diff_versions(settings.graphs, a.version, b.version)


def diff_ids(settings: Settings, old: str | None, new: str) -> dict[str, Any]:
    """What changed between two whole ids; from nothing when ``old`` is None."""
    return diff_versions(settings.graphs, old, new)


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
    """The learning view of an exported version.

    Args:
        settings: Where versions lie.
        version: Its id.
        now: For planning: tools under their present names, and without those withdrawn since.
    """
    nodes, edges = read_version(settings.graphs, version)
    edges = learning_edges(edges)
    if now is not None:
        nodes, edges = _as_now(nodes, edges, now)
    return tool_graph(version, nodes, edges)


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
            parameters(settings),
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
        waiting = count_waiting(con, parameters(settings))
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
    """The latest graph version with the training rows that were exported beside it.

    With ``now``, tools have their present names, and rows with tools withdrawn since are left out.
    """
    graph = find(settings)
    rows = read_examples(read_examples_file(settings.examples, graph.examples_id))
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
