"""Tool-graph versions: built from the warehouse, content-addressed, immutable, with an undo.

A version's id is the hash of its nodes, edges, counts and parameters; parent, time and code version
lie outside it, so the same data gives the same id whatever way it came. Its rows are in the
warehouse as intervals; ``export_version`` writes them as Parquet, the same bytes every time.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from warehouse.connection import query, transaction, utc_now
from warehouse.errors import NothingToBuild, UnknownVersion
from warehouse.mining import GraphParameters, is_learning, mine, present_state

MIN_PREFIX = 4
"""Characters of an id that name a version."""
_MARK = "mark:"


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
    state: int
    code_version: str
    build: int
    new: bool = False
    held: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry of ``graph build`` and ``graph list``.

        ``held``: a rollback keeps another version the latest.
        """
        return {
            "version": self.version,
            "parent": self.parent,
            "nodes": self.nodes,
            "edges": self.edges,
            "learning_edges": self.learning_edges,
            "built_at": self.built_at.isoformat(),
            "mark": self.mark,
            "code_version": self.code_version,
            "new": self.new,
            "held": self.held,
        }


def build_graph(
    con: duckdb.DuckDBPyConnection, parameters: GraphParameters, *, code_version: str
) -> GraphVersion:
    """The version of the present state of the data, made the latest unless a rollback holds.

    It costs what has changed since the last build. The training rows of the same state are kept
    with it, so that a training uses both as they were together, whatever is ingested meanwhile.

    Args:
        con: A writing connection.
        parameters: What is held out.
        code_version: Recorded beside the version.

    Raises:
        NothingToBuild: The warehouse holds no tool that a planner could use.
    """
    mine(con, parameters)
    settings = json.dumps(parameters.to_json(), sort_keys=True)
    with transaction(con):  # what is named and what is stored are of one snapshot
        state, rows_sum = present_state(con)
        found = _identify(con, settings, state, rows_sum)
        known = con.execute(
            "select build, version, parent, examples_id from graph_build "
            "order by build desc limit 1"
        ).fetchall()
        build, before, parent, examples_id = known[0] if known else (-1, None, None, None)
        is_new = before != found.version
        if is_new or examples_id != found.examples_id:
            num_edges, num_learning = con.execute(query("edge_number")).fetchall()[0]
            con.execute(
                "insert into graph_version select ?, ?, ?, ?, ?, ? "
                "where not exists (select 1 from graph_version where version = ?)",
                [
                    found.version,
                    found.learning_id,
                    settings,
                    found.num_nodes,
                    num_edges,
                    num_learning,
                    found.version,
                ],
            )
            build += 1
            con.execute(
                "insert into graph_build values (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    build,
                    found.version,
                    before if is_new else parent,
                    state,
                    found.examples_id,
                    json.dumps(_mark(con)),
                    code_version,
                    utc_now(),
                ],
            )
            # What changes from here on belongs to the next state.
            con.execute("update mined_state set state = ?", [state + 1])
            if not _is_held(con):
                _move_latest(con, build, "build")
        is_held = _is_held(con)
    return replace(_of_build(con, build), new=is_new, held=is_held)


@dataclass(frozen=True, slots=True)
class _Content:
    """What the present state is, by content."""

    version: str
    learning_id: str
    examples_id: str
    num_nodes: int


def _identify(con: duckdb.DuckDBPyConnection, settings: str, state: int, rows_sum: str) -> _Content:
    nodes = con.execute(query("node_digest"), {"state": state}).pl()
    if nodes.is_empty():
        raise NothingToBuild(
            "expected tools or trajectories in the warehouse, found none: ingest some first "
            "(toolatlas ingest PATH)."
        )
    days = con.execute(
        "select coalesce(on_day::varchar, ''), content, learning from edge_day order by 1"
    ).fetchall()
    contracts = nodes.select("key", "contract_hash", "status")
    return _Content(
        version=_hash(settings, nodes, [(day, content) for day, content, _ in days]),
        learning_id=_hash(settings, contracts, [(day, seen) for day, _, seen in days if seen]),
        examples_id=_hash("examples", contracts.drop("contract_hash"), [(rows_sum, "")]),
        num_nodes=len(nodes),
    )


def _hash(settings: str, nodes: pl.DataFrame, parts: list[tuple[str, str]]) -> str:
    digest = hashlib.sha256(settings.encode())
    digest.update(b"\0")
    digest.update(nodes.write_csv(quote_style="always").encode())
    for name, content in parts:
        digest.update(f"\0{name}\0{content}".encode())
    return digest.hexdigest()


def learning_edges(edges: pl.DataFrame) -> pl.DataFrame:
    """Counts per (source, target, kind) of what learning may see: not held out, not failed."""
    return (
        edges.filter(is_learning())
        .group_by("source", "target", "kind")
        .agg(pl.col("num_seen").sum())
        .sort("source", "target", "kind")
    )


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
    "b.built_at, v.parameters, b.mark, b.examples_id, b.state, b.code_version, b.build "
    "from graph_build b join graph_version v using (version) "
)


def _version(row: tuple[Any, ...]) -> GraphVersion:
    version, parent, learning_id, nodes, edges, learning, built_at, settings, mark, *rest = row
    examples_id, state, code_version, build = rest
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
        examples_id,
        state,
        code_version,
        build,
    )


def list_versions(con: duckdb.DuckDBPyConnection) -> list[GraphVersion]:
    """Every build that changed the graph or the training rows, newest first."""
    return [_version(row) for row in con.execute(_SELECT + "order by b.build desc").fetchall()]


def _of_build(con: duckdb.DuckDBPyConnection, build: int) -> GraphVersion:
    return _version(con.execute(_SELECT + "where b.build = ?", [build]).fetchall()[0])


def find_version(con: duckdb.DuckDBPyConnection, name: str = "latest") -> GraphVersion:
    """A version by ``latest``, id prefix (at least 4 characters), UTC time, or mark of the data.

    A time means the version that was the latest at that moment; ``mark:TIME`` the last one that
    was built from data of up to that time (a date alone: up to its end).

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
        return _latest_at(con, None, versions)[0]
    if len(name) >= MIN_PREFIX:
        matching = {v.version for v in versions if v.version.startswith(name)}
        if len(matching) == 1:
            return next(v for v in versions if v.version in matching)
        if len(matching) > 1:
            raise UnknownVersion(
                f"expected one version, but {name!r} begins {len(matching)} of them: "
                "give more characters."
            )
    found = []
    moment = _moment(name.removeprefix(_MARK), until_end=name.startswith(_MARK))
    if moment is not None and name.startswith(_MARK):
        found = [
            v
            for v in versions
            if v.mark["last"] and datetime.fromisoformat(v.mark["last"]) <= moment
        ]
    elif moment is not None:
        found = _latest_at(con, moment, versions)
        if not found and _is_gone(con, moment):
            raise UnknownVersion(
                f"expected a version, but the one that was the latest at {name} has been removed "
                "(toolatlas graph collect): see toolatlas graph list."
            )
    if found:
        return found[0]
    raise UnknownVersion(
        f"expected latest, the beginning of a version id, a UTC time or {_MARK}TIME, got {name!r}, "
        f"which matches none of {len(versions)} versions: see toolatlas graph list."
    )


def _moment(text: str, *, until_end: bool) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # no time, or one outside the calendar once in UTC
        return None
    if until_end and len(text) <= len("2026-01-31"):
        moment += timedelta(days=1, microseconds=-1)
    return moment


def _latest_at(
    con: duckdb.DuckDBPyConnection, moment: datetime | None, versions: list[GraphVersion]
) -> list[GraphVersion]:
    """The version that was the latest at a moment, or is."""
    build = _build_at(con, moment)
    return [version for version in versions if version.build == build]


def _is_gone(con: duckdb.DuckDBPyConnection, moment: datetime) -> bool:
    """Whether some version was the latest at a moment; it may be removed."""
    return _build_at(con, moment) is not None


def _build_at(con: duckdb.DuckDBPyConnection, moment: datetime | None) -> int | None:
    rows = con.execute(
        "select build from graph_latest where coalesce(moved_at <= ?, true) "
        "order by number desc limit 1",
        [moment],
    ).fetchall()
    return rows[0][0] if rows else None


# --- undo -----------------------------------------------------------------------------------------


def roll_back(con: duckdb.DuckDBPyConnection, name: str) -> GraphVersion:
    """Make an earlier version the latest, and hold it there until it is released.

    Later builds are stored, and do not become the latest. The data stays as it is.
    """
    with transaction(con):
        version = find_version(con, name)
        _move_latest(con, version.build, "rollback")
    return replace(version, held=True)


def release(con: duckdb.DuckDBPyConnection) -> bool:
    """Let the newest build be the latest again; whether a rollback was holding another."""
    with transaction(con):
        was_held = _is_held(con)
        if was_held:
            newest = con.execute("select max(build) from graph_build").fetchall()[0][0]
            _move_latest(con, newest, "release")
    return was_held


def _is_held(con: duckdb.DuckDBPyConnection) -> bool:
    return held_since(con) is not None


def held_since(con: duckdb.DuckDBPyConnection) -> datetime | None:
    """When the latest version was rolled back to, or None where nothing is held."""
    rows = con.execute(
        "select moved_at, cause from graph_latest order by number desc limit 1"
    ).fetchall()
    return rows[0][0] if rows and rows[0][1] == "rollback" else None


def _move_latest(con: duckdb.DuckDBPyConnection, build: int, cause: str) -> None:
    con.execute(
        "insert into graph_latest select coalesce(max(number), -1) + 1, ?, ?, ? from graph_latest",
        [build, cause, utc_now()],
    )


# --- garbage --------------------------------------------------------------------------------------


def collect_versions(
    con: duckdb.DuckDBPyConnection, *, needed: Collection[str], keep: int
) -> list[str]:
    """Remove old versions and the rows that only they have.

    Never removed are the latest version, the newest builds, and what somebody refers to.

    Args:
        con: A writing connection.
        needed: Ids that models and reports refer to.
        keep: How many of the newest builds stay in any case, at least 1.

    Returns:
        The ids that are gone.
    """
    versions = list_versions(con)
    latest = find_version(con).build if versions else None
    kept = [
        version
        for place, version in enumerate(versions)
        if place < max(keep, 1) or version.build == latest or version.version in needed
    ]
    gone = {version.version for version in versions} - {version.version for version in kept}
    if len(kept) == len(versions):
        return []
    with transaction(con):
        present, _ = present_state(con)
        con.execute(
            "create or replace temp table kept_state as select unnest(?::integer[]) as state",
            [[*(version.state for version in kept), present]],
        )
        # The next state from each on that is kept: rows that end before it are in none.
        con.execute(
            "create or replace temp table next_kept as select r.state, min(k.state) as next "
            "from range(?) r(state) join kept_state k on k.state >= r.state group by r.state",
            [present + 1],
        )
        for statement in _COLLECT:
            con.execute(statement)
        con.execute(
            "delete from graph_build where not list_contains(?::integer[], build)",
            [[version.build for version in kept]],
        )
        con.execute(
            "delete from graph_version where version not in (select version from graph_build)"
        )
    return sorted(gone)


_COLLECT = (
    "delete from edge_interval e where exists (select 1 from next_kept n "
    "where n.state = e.since and n.next >= e.until)",
    "delete from node_interval e where exists (select 1 from next_kept n "
    "where n.state = e.since and n.next >= e.until)",
    "delete from node_count_interval e where exists (select 1 from next_kept n "
    "where n.state = e.since and n.next >= e.until)",
    "delete from learning_interval e where exists (select 1 from next_kept n "
    "where n.state = e.since and n.next >= e.until)",
    "delete from contract where contract_hash not in (select contract_hash from node_interval)",
    "delete from former_trajectory where trajectory_id not in "
    "(select trajectory_id from learning_interval union all select trajectory_id from suite_row)",
)


def remove_exports(folder: Path, keep: Collection[str]) -> int:
    """Remove the exported files of all versions but some; they can be exported again."""
    removed = 0
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and path.name not in keep:
            # Away from its name first: half a version must not pass for a whole one.
            gone = Path(tempfile.mkdtemp(prefix=".", dir=folder))
            path.rename(gone / path.name)
            shutil.rmtree(gone, ignore_errors=True)
            removed += 1
    return removed


# --- the rows of a version ------------------------------------------------------------------------


def version_nodes(con: duckdb.DuckDBPyConnection, version: GraphVersion) -> pl.DataFrame:
    """Tools with contract, status and calls, by key."""
    nodes: pl.DataFrame = con.execute(query("version_node"), {"state": version.state}).pl()
    return nodes


def version_edges(
    con: duckdb.DuckDBPyConnection, version: GraphVersion, *, among: Collection[str] | None = None
) -> pl.DataFrame:
    """source, target, kind, outcome, on_day, is_held_out, num_seen, sorted by them.

    ``among``: only edges between tools of these keys.
    """
    values = {"state": version.state, "among": None if among is None else list(among)}
    edges: pl.DataFrame = con.execute(query("version_edge"), values).pl()
    return edges


def export_version(con: duckdb.DuckDBPyConnection, folder: Path, version: GraphVersion) -> Path:
    """The folder with ``nodes.parquet`` and ``edges.parquet`` of a version, made where missing.

    Both files are written under a temporary name first: a version is whole or absent.
    """
    target = folder / version.version
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{version.version}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    version_nodes(con, version).write_parquet(temporary / "nodes.parquet")
    version_edges(con, version).write_parquet(temporary / "edges.parquet")
    try:
        temporary.rename(target)
    except OSError:  # another process was faster with the same content
        shutil.rmtree(temporary)
    return target


def read_version(folder: Path, version: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(nodes, edges) of an exported version."""
    target = folder / version
    if not target.is_dir():
        raise UnknownVersion(f"the files of graph version {version[:12]} are gone from {folder}.")
    return pl.read_parquet(target / "nodes.parquet"), pl.read_parquet(target / "edges.parquet")


def training_rows(con: duckdb.DuckDBPyConnection, version: GraphVersion) -> pl.DataFrame:
    """The rows of a version's state that training may see, by id.

    A request that is held out is never trained on, not even with another plan: runs of one
    request by several agents lie on both sides of a split by tool sequence. Only where time divides
    may it have come before.
    Columns: id, source, request, tools, links, has_links, split, group (lists as JSON). Rows of one
    group are on one side of the split together.
    """
    con.execute(query("learning_row"), {"state": version.state})
    is_by_time = version.parameters.get("split") == "by-time"
    rows: pl.DataFrame = con.execute(query("training_row"), {"is_by_time": is_by_time}).pl()
    return rows


def unlisted_tools(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Names that traces call but their source's catalogue lacks, with the nearest listed names."""
    rows = con.execute(query("unlisted_tool")).fetchall()
    return [
        {"namespace": namespace, "name": name, "calls": calls, "failed": failed, "nearest": nearest}
        for namespace, name, calls, failed, nearest in rows
    ]
