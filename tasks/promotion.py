"""Who is champion: the alias moves last, after the very version was loaded and made a plan."""

import logging
from typing import Any

from models.errors import ModelError
from tasks.embedding import shared_embedder
from tasks.evaluation import notice_aliases, regress
from tasks.graphs import find, load_graph, present
from tasks.locks import alone
from tasks.planning import load_version
from tasks.registry import Registry
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.reports import note_alias

log = logging.getLogger("toolatlas")


def promote(settings: Settings, report: dict[str, Any]) -> dict[str, Any]:
    """Make a report's challenger the champion when its decision says so.

    Returns:
        ``promoted``, ``champion`` and ``previous`` (versions or null).
    """
    registry = Registry(settings)
    champion = registry.aliases()["champion"]
    number = report["challenger"]
    if report["new"] and champion != report["champion"]:
        log.warning(
            "not promoted: report %s compares with champion %s, by now it is %s",
            report["id"],
            report["champion"],
            champion,
        )
        return {"promoted": False, "champion": champion, "previous": champion}
    if report["decision"] != "promote" or number is None or number == champion:
        return {"promoted": False, "champion": champion, "previous": champion}
    return _move(
        settings, registry, number, by=f"report {report['id']}", reason=report["reasons"][0]
    )


def promote_version(settings: Settings, number: str, *, force: bool = False) -> dict[str, Any]:
    """Measure a version against the champion and promote it on the gate's word, or by force.

    Returns:
        As ``promote``, with the ``report`` that decided.
    """
    registry = Registry(settings)
    number = str(registry.version(number).version)
    champion = notice_aliases(settings, registry).now["champion"]
    if number == champion:
        return {"promoted": False, "champion": champion, "previous": champion, "report": None}
    report = regress(settings, challenger=number)
    if report["decision"] != "promote" and force:
        result = _move(settings, registry, number, by="promote --force", reason="by hand")
    else:
        result = promote(settings, report)
    return {**result, "report": report}


def demote(settings: Settings) -> dict[str, Any]:
    """Give the champion's place back to the champion before it, or leave it empty."""
    registry = Registry(settings)
    champion = notice_aliases(settings, registry).now["champion"]
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        rows = con.execute(
            "select previous from alias_history where alias = 'champion' and version = ? "
            "and changed_by <> 'demote' order by changed_at desc limit 1",
            [champion],
        ).fetchall()
    previous = rows[0][0] if rows else None
    if champion is None:
        return {"champion": None, "previous": None}
    if previous is None:
        with alone(settings, "aliases"):
            registry.drop_alias("champion")
            registry.note_champion(None, "by demote")
            _note(settings, "champion", None, "demote", "no champion before it")
        return {"champion": None, "previous": champion}
    result = _move(settings, registry, previous, by="demote", reason=f"instead of {champion}")
    return {"champion": result["champion"], "previous": champion}


def _move(
    settings: Settings, registry: Registry, number: str, *, by: str, reason: str
) -> dict[str, Any]:
    aliases = registry.aliases()
    now = present(settings)
    graph = load_graph(settings, find(settings).version, now)
    planner = load_version(registry, number, shared_embedder(settings), graph, now.renamed)
    if not planner.plan(["Plan anything."])[0]:
        raise ModelError(f"expected version {number} to make a plan before promotion, got none.")
    with alone(settings, "aliases"):
        registry.set_alias("champion", number)
        registry.note_champion(number, f"by {by}")
        _note(settings, "champion", number, by, reason)
        if aliases["challenger"] == number:
            registry.drop_alias("challenger")
            _note(settings, "challenger", None, by, "it became champion")
    log.info("champion is now version %s (before: %s)", number, aliases["champion"])
    return {"promoted": True, "champion": number, "previous": aliases["champion"]}


def _note(settings: Settings, alias: str, number: str | None, by: str, reason: str) -> None:
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        note_alias(con, alias, number, by, reason)
