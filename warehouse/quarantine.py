"""What could not be used: list it, show it, try it again."""

from typing import Any

import duckdb

from warehouse.connection import transaction
from warehouse.delivery import FileReport
from warehouse.errors import UnreadableInput
from warehouse.ingest import settle_pending, store_item
from warehouse.readers.stream import parse_item


def list_quarantine(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Every quarantined record without its raw text, oldest first."""
    rows = con.execute(
        "select quarantine_id, source, path, place, format, reason, length(raw), created_at "
        "from quarantine order by created_at, path, place, quarantine_id"
    ).fetchall()
    names = ("id", "source", "path", "place", "format", "reason", "characters", "created_at")
    return [dict(zip(names, (*row[:7], row[7].isoformat()), strict=True)) for row in rows]


def show_quarantined(con: duckdb.DuckDBPyConnection, identity: str) -> dict[str, Any]:
    """One quarantined record with its raw text, by the beginning of its id.

    Raises:
        UnreadableInput: No id, or more than one, begins so.
    """
    rows = con.execute(
        "select quarantine_id, source, path, place, format, reason, raw from quarantine "
        "where starts_with(quarantine_id, ?)",
        [identity],
    ).fetchall()
    if len(rows) != 1:
        raise UnreadableInput(
            f"expected the id of one quarantined record, got {identity!r}, which fits "
            f"{len(rows) or 'none'}: see toolatlas quarantine list."
        )
    names = ("id", "source", "path", "place", "format", "reason", "raw")
    return dict(zip(names, rows[0], strict=True))


def retry_quarantine(con: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Read every quarantined record again; (stored now, still unusable)."""
    rows = con.execute(
        "select quarantine_id, source, path, place, raw from quarantine order by quarantine_id"
    ).fetchall()
    delivery = con.execute("select nextval('delivery_number')").fetchall()[0][0]
    stored = 0
    for identity, source, path, place, raw in rows:
        report = FileReport(path=path, source=source)
        with transaction(con):
            usable = store_item(con, parse_item(place, raw), report, delivery)
            if usable:
                con.execute("delete from quarantine where quarantine_id = ?", [identity])
        stored += usable
    settle_pending(con, delivery)
    return stored, len(rows) - stored
