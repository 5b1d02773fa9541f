"""Tool-graph versions: built from the warehouse, content-addressed, immutable, compared.

A version is two Parquet files in a folder named by its id. The id is the hash of nodes, edges,
counts and parameters; parent, time and code version lie outside it, so the same data gives the
same id, byte for byte.
"""

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from warehouse.connection import query, transaction, utc_now
from warehouse.errors import NothingToBuild, UnknownVersion

_RULES = 1
"""Grows when the same rows would give other nodes or edges; part of every id."""

_NODE_ORDER = ["key"]
_EDGE_ORDER = ["source", "target", "kind", "outcome", "on_day", "is_held_out"]
_LEARNING_OUTCOMES = ["ok", "unrecorded"]


@dataclass(frozen=True, slots=True)
class GraphParameters:
    """What decides which rows are held out.

    ``test`` and ``validation`` are shares of the tool sequences, ``seed`` draws them.
    """

    seed: int = 0
    test: float = 0.2
    validation: float = 0.1

    def to_json(self) -> dict[str, Any]:
        """As hashed into the version's id."""
        return {
            "rules": _RULES,
            "seed": self.seed,
            "test": self.test,
            "validation": self.validation,
        }


@dataclass(frozen=True, slots=True)
class GraphVersion:
    """One stored version; ``edges`` counts (source, target, kind)."""

    version: str
    parent: str | None
    learning_id: str
    nodes: int
    edges: int
    learning_edges: int
    built_at: datetime
    parameters: dict[str, Any]
    mark: dict[str, Any]
    examples_id: str
    new: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry of ``graph build`` and ``graph list``."""
        return {
            "version": self.version,
            "parent": self.parent,
            "nodes": self.nodes,
            "edges": self.edges,
            "learning_edges": self.learning_edges,
            "built_at": self.built_at.isoformat(),
            "mark": self.mark,
            "new": self.new,
        }


def prepare(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> None:
    """Make the temporary tables ``node`` and ``learning_row`` of the present state."""
    con.execute(query("node"))
    con.execute(
        query("learning_row"),
        {
            "seed": parameters.seed,
            "test": parameters.test,
            "validation": parameters.validation,
        },
    )


def build_graph(
    con: duckdb.DuckDBPyConnection,
    folder: Path,
    parameters: GraphParameters,
    *,
    examples: Path,
    code_version: str,
) -> GraphVersion:
    """The version of the present state of the data, exported and made the latest.

    The training rows of the same state are exported with it, so that a training uses both as they
    were together, whatever is ingested meanwhile.

    Args:
        con: A writing connection.
        folder: Where versions lie, one subfolder each.
        examples: Where training rows lie, one file each.
        parameters: What is held out.
        code_version: Recorded beside the version.

    Raises:
        NothingToBuild: The warehouse holds no tool that a planner could use.
    """
    prepare(con, parameters)
    con.execute(query("edge"))
    nodes = con.sql("select * from node").pl().sort(_NODE_ORDER)
    edges = con.sql("select * from edge").pl().sort(_EDGE_ORDER, nulls_last=False)
    if nodes.is_empty():
        raise NothingToBuild(
            "expected tools or trajectories in the warehouse, found none: ingest some first "
            "(toolatlas ingest PATH)."
        )
    settings = json.dumps(parameters.to_json(), sort_keys=True)
    version = _hash(settings, nodes, edges)
    learning = learning_edges(edges)
    learning_id = _hash(settings, nodes.select("key", "contract_hash", "status"), learning)
    _export(folder, version, nodes, edges)
    examples_id = export_examples(con, examples)
    mark = _mark(con)
    num_edges = edges.select("source", "target", "kind").n_unique() if len(edges) else 0
    with transaction(con):
        latest = _latest(con)
        con.execute(
            "insert into graph_version select ?, ?, ?, ?, ?, ?, ? "
            "where not exists (select 1 from graph_version where version = ?)",
            [
                version,
                learning_id,
                settings,
                json.dumps(mark),
                len(nodes),
                num_edges,
                len(learning),
                version,
            ],
        )
        new = latest is None or latest[1] != version
        if latest is None or latest[1:3] != (version, examples_id):
            con.execute(
                "insert into graph_build values (?, ?, ?, ?, ?, ?)",
                [
                    0 if latest is None else latest[0] + 1,
                    version,
                    None if latest is None else latest[1] if new else latest[3],
                    examples_id,
                    code_version,
                    utc_now(),
                ],
            )
    return replace(find_version(con, version), new=new)


def learning_edges(edges: pl.DataFrame) -> pl.DataFrame:
    """Counts per (source, target, kind) of what learning may see: not held out, not failed."""
    return (
        edges.filter(~pl.col("is_held_out") & pl.col("outcome").is_in(_LEARNING_OUTCOMES))
        .group_by("source", "target", "kind")
        .agg(pl.col("num_seen").sum())
        .sort("source", "target", "kind")
    )


def _hash(settings: str, *frames: pl.DataFrame) -> str:
    digest = hashlib.sha256(settings.encode())
    for frame in frames:
        digest.update(b"\0")
        digest.update(frame.write_csv(quote_style="always").encode())
    return digest.hexdigest()


def _export(folder: Path, version: str, nodes: pl.DataFrame, edges: pl.DataFrame) -> None:
    """Both files under a temporary name first: a version is whole or absent."""
    target = folder / version
    if target.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{version}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    nodes.write_parquet(temporary / "nodes.parquet")
    edges.write_parquet(temporary / "edges.parquet")
    try:
        temporary.rename(target)
    except OSError:  # another process was faster with the same content
        shutil.rmtree(temporary)


def export_examples(con: duckdb.DuckDBPyConnection, folder: Path) -> str:
    """The rows that training may see, as an immutable Parquet file; its content id.

    Needs ``prepare`` first.

    A request that is held out is never trained on, not even with another plan: runs of one
    request by several agents lie on both sides of a split by tool sequence.
    Columns: id, source, request, tools, links, has_links, split (lists as JSON).
    """
    rows = con.execute(
        "select trajectory_id, source, request, tools, links, has_links, split from learning_row r "
        "where is_plannable and split <> 'test' and not exists (select 1 from learning_row h "
        "where h.split = 'test' and h.source = r.source and h.request = r.request) "
        "order by trajectory_id"
    ).fetchall()
    frame = pl.DataFrame(
        [(*row[:3], json.dumps(row[3]), json.dumps(row[4]), *row[5:]) for row in rows],
        schema={
            "id": pl.String,
            "source": pl.String,
            "request": pl.String,
            "tools": pl.String,
            "links": pl.String,
            "has_links": pl.Boolean,
            "split": pl.String,
        },
        orient="row",
    )
    content_id = _hash("examples", frame)
    path = folder / f"{content_id}.parquet"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{content_id}.{os.getpid()}"
        frame.write_parquet(temporary)
        temporary.rename(path)
    return content_id


def read_examples_file(folder: Path, examples_id: str) -> pl.DataFrame:
    """Exported training rows.

    Raises:
        UnknownVersion: The file is gone.
    """
    path = folder / f"{examples_id}.parquet"
    if not path.exists():
        raise UnknownVersion(
            f"the training rows {examples_id[:12]} are gone from {folder}: "
            "run toolatlas graph build."
        )
    return pl.read_parquet(path)


def _mark(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The mark of the data: how much there is, and the span of its clock."""
    row = con.execute(
        "select count(*), coalesce(sum(num_calls), 0)::bigint, min(started_at), max(started_at) "
        "from trajectory"
    ).fetchall()[0]
    return {
        "trajectories": row[0],
        "calls": row[1],
        "first": row[2] and row[2].isoformat(),
        "last": row[3] and row[3].isoformat(),
    }


# --- finding versions -----------------------------------------------------------------------------

_SELECT = (
    "select v.version, b.parent, v.learning_id, v.num_nodes, v.num_edges, v.num_learning_edges, "
    "b.built_at, v.parameters, v.mark, b.examples_id "
    "from graph_build b join graph_version v using (version) "
)


def _latest(con: duckdb.DuckDBPyConnection) -> tuple[int, str, str, str | None] | None:
    """(build, version, examples id, parent) of the last build."""
    rows = con.execute(
        "select build, version, examples_id, parent from graph_build order by build desc limit 1"
    ).fetchall()
    return (rows[0][0], rows[0][1], rows[0][2], rows[0][3]) if rows else None


def _version(row: tuple[Any, ...]) -> GraphVersion:
    version, parent, learning_id, nodes, edges, learning, built_at, settings, mark, rows = row
    return GraphVersion(
        version,
        parent,
        learning_id,
        nodes,
        edges,
        learning,
        built_at,
        json.loads(settings),
        json.loads(mark),
        rows,
    )


def list_versions(con: duckdb.DuckDBPyConnection) -> list[GraphVersion]:
    """Every build that changed the graph or the training rows, newest first."""
    return [_version(row) for row in con.execute(_SELECT + "order by b.build desc").fetchall()]


def find_version(con: duckdb.DuckDBPyConnection, name: str = "latest") -> GraphVersion:
    """A version by ``latest``, id prefix (at least 4 characters) or UTC time.

    A time means the version that was the latest at that moment.

    Raises:
        UnknownVersion: Nothing matches, or a prefix matches several.
    """
    versions = list_versions(con)
    if not versions:
        raise UnknownVersion(
            f"expected a graph version for {name!r}, but none was built yet: "
            "run toolatlas graph build."
        )
    if name == "latest":
        return versions[0]
    if len(name) >= 4:
        matching = {v.version for v in versions if v.version.startswith(name)}
        if len(matching) == 1:
            return next(v for v in versions if v.version in matching)
        if len(matching) > 1:
            raise UnknownVersion(
                f"expected one version, but {name!r} begins {len(matching)} of them: "
                "give more characters."
            )
    try:
        moment = datetime.fromisoformat(name)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except ValueError:
        moment = None
    if moment is not None:
        for version in versions:
            if version.built_at <= moment:
                return version
    raise UnknownVersion(
        f"expected latest, the beginning of a version id or a UTC time, got {name!r}, which "
        f"matches none of {len(versions)} versions: see toolatlas graph list."
    )


def read_version(folder: Path, version: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(nodes, edges) of an exported version."""
    target = folder / version
    if not target.is_dir():
        raise UnknownVersion(f"the files of graph version {version[:12]} are gone from {folder}.")
    return pl.read_parquet(target / "nodes.parquet"), pl.read_parquet(target / "edges.parquet")


# --- what changed ---------------------------------------------------------------------------------


def diff_versions(folder: Path, old: str | None, new: str) -> dict[str, Any]:
    """Tools and edges that came, went or changed between two versions.

    Edges are (source, target, kind); strengthened and weakened compare how often they were seen,
    held-out rows included.
    """
    nodes, edges = read_version(folder, new)
    if old is None:
        old_nodes, old_edges = nodes.clear(), edges.clear()
    else:
        old_nodes, old_edges = read_version(folder, old)
    contracts = dict(nodes.select("key", "contract_hash").iter_rows())
    old_contracts = dict(old_nodes.select("key", "contract_hash").iter_rows())
    seen, old_seen = _seen(edges), _seen(old_edges)
    both = sorted(seen.keys() & old_seen.keys())
    return {
        "from": old,
        "to": new,
        "tools": {
            "added": sorted(contracts.keys() - old_contracts.keys()),
            "removed": sorted(old_contracts.keys() - contracts.keys()),
            "changed": sorted(
                key
                for key in contracts.keys() & old_contracts.keys()
                if contracts[key] != old_contracts[key]
            ),
        },
        "edges": {
            "added": [list(e) for e in sorted(seen.keys() - old_seen.keys())],
            "removed": [list(e) for e in sorted(old_seen.keys() - seen.keys())],
            "strengthened": [[*e, old_seen[e], seen[e]] for e in both if seen[e] > old_seen[e]],
            "weakened": [[*e, old_seen[e], seen[e]] for e in both if seen[e] < old_seen[e]],
        },
    }


def _seen(edges: pl.DataFrame) -> dict[tuple[str, str, str], int]:
    counts = edges.group_by("source", "target", "kind").agg(pl.col("num_seen").sum())
    return {(source, target, kind): seen for source, target, kind, seen in counts.iter_rows()}


def unlisted_tools(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Names that traces call but their source's catalogue lacks, with the nearest listed names."""
    rows = con.execute(query("unlisted_tool")).fetchall()
    return [
        {"namespace": namespace, "name": name, "calls": calls, "failed": failed, "nearest": nearest}
        for namespace, name, calls, failed, nearest in rows
    ]
