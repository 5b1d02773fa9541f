"""What a user asks to forget: rows, evidence, events, frozen requests and quarantined text.

Evidence is counted from the calls, so it is gone with the next graph version. What is forgotten
is remembered by a hash only, so that a later delivery does not bring it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl

from warehouse.connection import transaction, utc_now
from warehouse.errors import UnreadableInput
from warehouse.identity import digest
from warehouse.ingest import conversation_key, trajectory_key
from warehouse.storing import delete_trajectories, linked_conversations

_MIN_PREFIX = 8


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed."""

    trajectory_ids: tuple[str, ...]
    calls: int
    events: int
    quarantined: int
    suite_rows: int

    def to_json(self) -> dict[str, Any]:
        """As ``forget --json`` prints it."""
        return {
            "trajectories": len(self.trajectory_ids),
            "calls": self.calls,
            "events": self.events,
            "quarantined": self.quarantined,
            "suite_rows": self.suite_rows,
        }


def forget_trajectory(
    con: duckdb.DuckDBPyConnection, name: str, source: str | None = None
) -> Forgotten:
    """Remove one trajectory; all of its conversation where that came in pieces.

    Args:
        con: A writing connection.
        name: The beginning of a trajectory id (8 characters or more), or the source's own id.
        source: Whose; needed only where two sources use the same id.

    Raises:
        UnreadableInput: None, or more than one, is meant.
    """
    rows = con.execute(
        "select trajectory_id, source, native_id, content_hash, format, assembled_from "
        "from trajectory where (native_id = ? or (length(?) >= ? and "
        "starts_with(trajectory_id, ?))) and coalesce(source = ?, true)",
        [name, name, _MIN_PREFIX, name, source],
    ).fetchall()
    if len({(row[1], row[4], row[5] or row[0]) for row in rows}) != 1:
        meant = ", ".join(sorted({f"{row[1]}/{row[2] or row[0][:12]}" for row in rows})[:5])
        raise UnreadableInput(
            "expected the id of one trajectory, its own or at least the first "
            f"{_MIN_PREFIX} characters of ours, got {name!r}, which fits "
            f"{meant + ': name the source too' if rows else 'none'}. Nothing was changed."
        )
    _, owner, native_id, content, format, conversation = rows[0]
    with transaction(con):
        ids, events = [row[0] for row in rows], 0
        former = _ids(
            con,
            "select trajectory_id from former_trajectory "
            "where source = ? and native_id = ? and assembled_from is null",
            [owner, native_id],
        )
        keys = [trajectory_key(owner, native_id, content)]
        if conversation is not None:
            ids = _ids(
                con,
                "select trajectory_id from trajectory "
                "where source = ? and format = ? and assembled_from = ?",
                [owner, format, conversation],
            )
            linked = linked_conversations(con, [(format, conversation)], owner)
            members = [name for group in linked.values() for _, name in group]
            keys = [conversation_key(owner, format, name) for name in members]
            of_these = [owner, format, members]
            former = _ids(
                con,
                "select trajectory_id from former_trajectory where source = ? and format = ? "
                "and list_contains(?, assembled_from)",
                of_these,
            )
            events = _events(
                con,
                "select sum(num_events) from fragment where source = ? and format = ? "
                "and list_contains(?, conversation)",
                of_these,
            )
            for statement in (
                "delete from fragment where source = ? and format = ? "
                "and list_contains(?, conversation)",
                "delete from fragment_alias where source = ? and format = ? "
                "and list_contains(?, conversation)",
                "delete from pending where source = ? and format = ? "
                "and list_contains(?, conversation)",
            ):
                con.execute(statement, of_these)
        told = native_id or conversation
        quarantined = 0
        if told:
            quarantined = _delete(
                con, "delete from quarantine where source = ? and contains(raw, ?)", [owner, told]
            )
        con.executemany(
            "insert into forgotten values (?, ?, ?)", [[owner, key, utc_now()] for key in keys]
        )
        return _remove(con, ids, former, events, quarantined)


def forget_source(con: duckdb.DuckDBPyConnection, source: str) -> Forgotten:
    """Remove everything that came from a source, its catalogue included.

    Raises:
        UnreadableInput: There is no such source.
    """
    known = con.execute(
        "select source from trajectory union select source from ingest_file "
        "union select source from quarantine union select namespace from tool_version order by 1"
    ).fetchall()
    if (source,) not in known:
        names = ", ".join(row[0] for row in known[:20]) or "none"
        raise UnreadableInput(
            f"expected the name of a source, got {source!r}; there are: {names}. "
            "Nothing was changed."
        )
    with transaction(con):
        ids = _ids(con, "select trajectory_id from trajectory where source = ?", [source])
        former = _ids(con, "select trajectory_id from former_trajectory where source = ?", [source])
        events = _events(con, "select sum(num_events) from fragment where source = ?", [source])
        quarantined = _delete(con, "delete from quarantine where source = ?", [source])
        for statement in (
            "delete from fragment where source = ?",
            "delete from fragment_alias where source = ?",
            "delete from pending where source = ?",
            "delete from ingest_file where source = ?",
            "delete from ingest_progress where source = ?",
            "delete from declared_edge where source = ?",
            "delete from forgotten where source = ?",
            "delete from tool_version where namespace = ?",
        ):
            con.execute(statement, [source])
        return _remove(con, ids, former, events, quarantined)


def _delete(con: duckdb.DuckDBPyConnection, statement: str, values: Sequence[Any]) -> int:
    """How many rows a statement removed."""
    return int(con.execute(statement, list(values)).fetchall()[0][0])


def _events(con: duckdb.DuckDBPyConnection, statement: str, values: Sequence[Any]) -> int:
    return int(con.execute(statement, list(values)).fetchall()[0][0] or 0)


def _ids(con: duckdb.DuckDBPyConnection, statement: str, values: Sequence[Any]) -> list[str]:
    return [row[0] for row in con.execute(statement, list(values)).fetchall()]


def _remove(
    con: duckdb.DuckDBPyConnection,
    ids: list[str],
    former: list[str],
    events: int,
    quarantined: int,
) -> Forgotten:
    """Remove trajectories, and what is left of their ``former`` forms."""
    con.register(
        "unwanted_id",
        pl.DataFrame({"trajectory_id": [*ids, *former]}, schema={"trajectory_id": pl.String}),
    )
    (calls,) = con.execute(
        "select count(*) from call where trajectory_id in (select trajectory_id from unwanted_id)"
    ).fetchall()[0]
    for name, version, content in con.execute(
        "select distinct name, version, content_id from suite_row join suite using (name, version) "
        "where trajectory_id in (select trajectory_id from unwanted_id)"
    ).fetchall():
        con.execute(
            "update suite set content_id = ?, num_rows = (select count(*) from suite_row r "
            "where r.name = suite.name and r.version = suite.version and r.trajectory_id not in "
            "(select trajectory_id from unwanted_id)) where name = ? and version = ?",
            [digest(content, sorted({*ids, *former}))[:32], name, version],
        )
    suite_rows = _delete(
        con,
        "delete from suite_row where trajectory_id in (select trajectory_id from unwanted_id)",
        [],
    )
    # The training rows of these builds are others from now on.
    con.execute(
        "update graph_build b set examples_id = sha256(examples_id || ?) where exists "
        "(select 1 from learning_interval i where i.since <= b.state "
        "and (i.until is null or i.until > b.state) "
        "and i.trajectory_id in (select trajectory_id from unwanted_id))",
        [digest(sorted({*ids, *former}))],
    )
    # Of their plans only the present ones are left, without the request, until the next build.
    for statement in (
        "delete from learning_interval where until is not null "
        "and trajectory_id in (select trajectory_id from unwanted_id)",
        "update learning_interval set request = '' "
        "where trajectory_id in (select trajectory_id from unwanted_id)",
    ):
        con.execute(statement)
    delete_trajectories(con, ids)
    con.execute(
        "delete from called_name where (namespace, name) not in "
        "(select (namespace, name) from call)"
    )
    con.execute(
        "delete from former_trajectory "
        "where trajectory_id in (select trajectory_id from unwanted_id)"
    )
    con.unregister("unwanted_id")
    return Forgotten(tuple(ids), calls, events, quarantined, suite_rows)
