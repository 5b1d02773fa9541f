"""Where things stand, in one object."""

from typing import Any

from tasks.services import running
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.errors import UnknownVersion
from warehouse.graph import find_version, held_since
from warehouse.reports import alias_history, count_rows, last_report
from warehouse.suites import list_suites


def status(settings: Settings) -> dict[str, Any]:
    """Counts, versions, champion and last report; ``status --json``."""
    from tasks.registry import Registry

    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        counts = count_rows(con)
        report = last_report(con)
        suites = list_suites(con)
        history = alias_history(con)
        try:
            version = find_version(con)
        except UnknownVersion:
            version = None
        held = held_since(con)
        tools = con.execute(
            "select count(*) from (select distinct namespace, name from tool_version)"
        ).fetchall()[0][0]
    none = {"champion": None, "challenger": None}
    aliases = Registry(settings).aliases() if settings.has_models else none
    return {
        "home": str(settings.home),
        **counts,
        "tools": tools if version is None else version.nodes,
        "graph": {
            "version": version and version.version,
            "nodes": version.nodes if version else 0,
            "edges": version.edges if version else 0,
            "parent": version and version.parent,
            "held_since": held and held.isoformat(),
        },
        "models": aliases,
        "suites": {suite.name: suite.num_rows for suite in suites},
        "last_report": None if report is None else _brief(report),
        "alias_history": history[:5],
        "services": running(settings),
    }


def _brief(report: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "decision", "reasons", "suite", "metrics", "suites", "champion", "challenger")
    return {name: report[name] for name in names}
