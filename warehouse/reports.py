"""Regression reports and the history of aliases."""

import json
from typing import Any

import duckdb

from warehouse.connection import transaction, utc_now


def store_report(con: duckdb.DuckDBPyConnection, report: dict[str, Any]) -> None:
    """Keep a report; one of the same id stays as it was."""
    con.execute(
        "insert into report select ?, ?, ? where not exists "
        "(select 1 from report where report_id = ?)",
        [report["id"], utc_now(), json.dumps(report), report["id"]],
    )


def read_report(con: duckdb.DuckDBPyConnection, report_id: str) -> dict[str, Any] | None:
    """One report, or None."""
    rows = con.execute("select body from report where report_id = ?", [report_id]).fetchall()
    return json.loads(rows[0][0]) if rows else None


def last_report(con: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    """The newest report, or None."""
    rows = con.execute(
        "select body from report order by created_at desc, report_id limit 1"
    ).fetchall()
    return json.loads(rows[0][0]) if rows else None


def note_alias(
    con: duckdb.DuckDBPyConnection, alias: str, version: str | None, by: str, reason: str
) -> bool:
    """Record what an alias points at; False when that is no news."""
    with transaction(con):
        rows = con.execute(
            "select version from alias_history where alias = ? order by changed_at desc limit 1",
            [alias],
        ).fetchall()
        previous = rows[0][0] if rows else None
        if previous == version:
            return False
        con.execute(
            "insert into alias_history values (?, ?, ?, ?, ?, ?)",
            [utc_now(), alias, version, previous, by, reason],
        )
    return True


def alias_history(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Every change of an alias, newest first."""
    rows = con.execute(
        "select changed_at, alias, version, previous, changed_by, reason "
        "from alias_history order by changed_at desc"
    ).fetchall()
    names = ("changed_at", "alias", "version", "previous", "by", "reason")
    return [dict(zip(names, (row[0].isoformat(), *row[1:]), strict=True)) for row in rows]


def reported_graphs(con: duckdb.DuckDBPyConnection) -> set[str]:
    """Ids of the graph versions that reports were made on."""
    rows = con.execute("select distinct body::json ->> 'graph_version' from report").fetchall()
    return {row[0] for row in rows if row[0]}


def count_rows(con: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Trajectories, calls and quarantined records."""
    row = con.execute(
        "select (select count(*) from trajectory), (select count(*) from call), "
        "(select count(*) from quarantine)"
    ).fetchall()[0]
    return {"trajectories": row[0], "calls": row[1], "quarantined": row[2]}
