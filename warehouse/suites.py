"""Frozen regression sets: requests with gold plans out of held-out trajectories.

A suite is named after its source, ``<source>/test`` where the source ships a split and
``<source>/by-sequence`` where it does not; in a warehouse that another split divides, after that.
Its rows never change; a refresh makes a new version.
"""

import json
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from warehouse.aliases import renames
from warehouse.connection import transaction, utc_now
from warehouse.errors import UnknownSuite
from warehouse.identity import digest
from warehouse.mining import GraphParameters, Split, list_plans


@dataclass(frozen=True, slots=True)
class Suite:
    """One version of a suite; ``waiting`` counts held-out rows that came after it was frozen."""

    name: str
    version: int
    source: str
    content_id: str
    num_rows: int
    waiting: int = 0

    @property
    def split(self) -> str:
        """What divided its rows from those for training: ``own`` or ``by-...``."""
        kind = self.name.removeprefix(f"{self.source}/")
        return "own" if kind == "test" else kind

    def to_json(self) -> dict[str, Any]:
        """The entry of ``suite list``."""
        return {
            "suite": self.name,
            "version": self.version,
            "source": self.source,
            "content_id": self.content_id,
            "rows": self.num_rows,
            "waiting": self.waiting,
        }


def freeze_suites(
    con: duckdb.DuckDBPyConnection,
    parameters: GraphParameters,
    *,
    min_rows: int,
    refresh: bool = False,
    names: tuple[str, ...] = (),
) -> list[Suite]:
    """Make the suite of every source that has none and enough held-out rows.

    Args:
        con: A writing connection.
        parameters: What is held out.
        min_rows: Fewer held-out rows than this make no suite.
        refresh: Also make a new version where held-out rows have come or changed since.
        names: Refresh these only; all when empty.

    Returns:
        The newest version of each suite that was made now.
    """
    list_plans(con, parameters)
    have = {suite.name: suite for suite in list_suites(con)}
    made = []
    for name, source, rows in _candidates(con, parameters.split):
        known = have.get(name)
        if len(rows) < min_rows or (known and not (refresh and (not names or name in names))):
            continue
        content_id = digest(rows)[:32]
        if known and known.content_id == content_id:
            continue
        version = known.version + 1 if known else 1
        with transaction(con):
            con.execute(
                "insert into suite values (?, ?, ?, ?, ?, ?)",
                [name, version, source, content_id, len(rows), utc_now()],
            )
            frame = pl.DataFrame(
                [
                    (name, version, i, request, json.dumps(tools), json.dumps(links), has_links)
                    for i, request, tools, links, has_links in rows
                ],
                schema=[
                    "name",
                    "version",
                    "trajectory_id",
                    "request",
                    "tools",
                    "links",
                    "has_links",
                ],
                orient="row",
            )
            con.register("staged", frame)
            con.execute("insert into suite_row select * from staged")
            con.unregister("staged")
        made.append(Suite(name, version, source, content_id, len(rows)))
    return made


def _candidates(
    con: duckdb.DuckDBPyConnection, split: Split
) -> list[tuple[str, str, list[list[Any]]]]:
    """(suite name, source, rows) of the held-out rows as they are now."""
    found = con.execute(
        "with held as ("
        "  select *, bool_or(has_own_split) over (partition by source) as is_split "
        "  from learning_row where is_plannable"
        ") "
        "select source, is_split, trajectory_id, request, tools, links, has_links from held "
        "where split = 'test' and has_own_split = is_split order by source, trajectory_id"
    ).fetchall()
    suites: dict[tuple[str, str], list[list[Any]]] = {}
    for source, is_split, *row in found:
        kind = "test" if is_split else "by-sequence"
        name = f"{source}/{split if split.startswith('by-') else kind}"
        suites.setdefault((name, source), []).append(row)
    return [(name, source, rows) for (name, source), rows in suites.items()]


def list_suites(con: duckdb.DuckDBPyConnection) -> list[Suite]:
    """The newest version of every suite, the largest first."""
    rows = con.execute(
        "select name, version, source, content_id, num_rows from suite "
        "qualify row_number() over (partition by name order by version desc) = 1 "
        "order by num_rows desc, name"
    ).fetchall()
    return [Suite(*row) for row in rows]


def count_waiting(con: duckdb.DuckDBPyConnection, parameters: GraphParameters) -> dict[str, int]:
    """Held-out rows by suite that its newest version lacks."""
    list_plans(con, parameters)
    candidates = {name: rows for name, _, rows in _candidates(con, parameters.split)}
    waiting = {}
    for suite in list_suites(con):
        frozen = {
            row[0]
            for row in con.execute(
                "select trajectory_id from suite_row where name = ? and version = ?",
                [suite.name, suite.version],
            ).fetchall()
        }
        waiting[suite.name] = sum(row[0] not in frozen for row in candidates.get(suite.name, []))
    return waiting


def find_suite(con: duckdb.DuckDBPyConnection, name: str) -> Suite:
    """The newest version of one suite.

    Raises:
        UnknownSuite: There is none of that name; the message lists those there are.
    """
    suites = list_suites(con)
    for suite in suites:
        if suite.name == name:
            return suite
    known = ", ".join(suite.name for suite in suites) or "none yet: run toolatlas nightly"
    raise UnknownSuite(f"expected the name of a suite, got {name!r}; there are: {known}.")


def read_suite(con: duckdb.DuckDBPyConnection, suite: Suite) -> pl.DataFrame:
    """The suite's rows by trajectory id: id, request, tools, links, has_links (lists as JSON).

    The rows stay as they were frozen; tools that were renamed since are read under their new name.
    """
    rows = con.execute(
        "select trajectory_id, request, tools, links, has_links from suite_row "
        "where name = ? and version = ? order by trajectory_id",
        [suite.name, suite.version],
    ).fetchall()
    if renamed := renames(con):
        rows = [
            (*row[:2], json.dumps([renamed.get(key, key) for key in json.loads(row[2])]), *row[3:])
            for row in rows
        ]
    return pl.DataFrame(
        rows,
        schema={
            "id": pl.String,
            "request": pl.String,
            "tools": pl.String,
            "links": pl.String,
            "has_links": pl.Boolean,
        },
        orient="row",
    )
