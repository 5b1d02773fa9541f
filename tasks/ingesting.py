"""Deliveries into the warehouse: find the files, store them one by one, report."""

import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

from tasks.errors import WrongUsage
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.delivery import FileReport, find_files, totals_of
from warehouse.errors import UnreadableInput
from warehouse.ingest import Progress, ingest_file, settle_pending
from warehouse.quarantine import list_quarantine, retry_quarantine, show_quarantined
from warehouse.readers.registry import FORMATS
from warehouse.staging import Handling

log = logging.getLogger("toolatlas")


def ingest(
    settings: Settings,
    paths: Sequence[str],
    *,
    format: str = "auto",
    source: str | None = None,
    drop_payloads: bool | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Read files, folders, globs, standard input or an MLflow experiment into the warehouse.

    Args:
        settings: Where the warehouse is.
        paths: What to read, in this order; ``-`` is standard input, ``mlflow:NAME`` the traces of
            an experiment on the tracking server.
        format: A format's name, or ``auto``.
        source: Name of the source; default: the folder's or the file's name.
        drop_payloads: Keep no arguments and results; default: the setting.
        progress: Told after each transaction how far it is.

    Returns:
        ``files`` and ``totals`` as in ``ingest --json``, and ``refused``: sentences about what was
        named but could not be read.

    Raises:
        UnreadableInput: A path does not exist, or nothing in a folder could be read.
    """
    if format != "auto" and format not in FORMATS:
        raise WrongUsage(f"expected --format auto, {', '.join(FORMATS)}, got {format!r}.")
    drop = settings.drop_payloads if drop_payloads is None else drop_payloads
    handling = Handling(drop, settings.salt)
    with tempfile.TemporaryDirectory() as spool:
        files = _delivered(settings, paths, Path(spool))
        with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
            delivery = con.execute("select nextval('delivery_number')").fetchall()[0][0]
            settle_pending(con, delivery, handling)
        reports: list[FileReport] = []
        refused: list[str] = []
        for path, name, was_named, shown in files:
            with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
                report = ingest_file(
                    con,
                    path,
                    source=source or name,
                    delivery=delivery,
                    format=format,
                    name=shown,
                    handling=handling,
                    progress=progress,
                )
            reports.append(report)
            if report.skipped and was_named:
                refused.append(f"{shown}: {report.skipped}.")
            _tell(report)
    for sentence in refused:
        log.warning("refused %s", sentence)
    if all(report.skipped for report in reports) and not refused:
        refused = [f"{report.path}: {report.skipped}." for report in reports[:3]]
        more = f" and {len(reports) - 3} more" if len(reports) > 3 else ""
        refused.append(f"None of {len(reports)} files could be read{more}.")
    return {
        "files": [report.to_json() for report in reports],
        "totals": totals_of(reports),
        "refused": refused,
    }


_OVERLAP = timedelta(days=7)
"""Traces of an experiment that started so long before the newest known one are read again: they
may have been running then."""


def _delivered(
    settings: Settings, paths: Sequence[str], spool: Path
) -> list[tuple[Path, str, bool, str]]:
    """(file, source name, named itself, name to show); what is no file is spooled to one."""
    found: list[tuple[Path, str, bool, str]] = []
    for number, text in enumerate(paths):
        if text == "-":
            target = spool / "stdin"
            with target.open("wb") as out:
                shutil.copyfileobj(sys.stdin.buffer, out)
            found.append((target, "stdin", True, "-"))
        elif text.startswith("mlflow:"):
            experiment = text.removeprefix("mlflow:")
            name = experiment.strip("/").replace("/", "-") or "mlflow"
            target = spool / f"traces-{number}.jsonl"
            _export(settings, experiment, name, target)
            found.append((target, name, True, text))
        else:
            found += [(path, name, named, str(path)) for path, name, named in find_files([text])]
    if not found:
        raise UnreadableInput(
            "expected at least one file, folder, glob, mlflow:EXPERIMENT or -, got none."
        )
    return found


def _export(settings: Settings, experiment: str, source: str, target: Path) -> None:
    """The experiment's traces, from a week before the newest one that is known."""
    from tasks.mlflow_traces import export_traces

    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        (newest,) = con.execute(
            "select max(started_at) from trajectory where source = ? and format = 'mlflow'",
            [source],
        ).fetchall()[0]
    after = None if newest is None else (newest - _OVERLAP).replace(tzinfo=UTC)
    count = export_traces(settings.tracking_uri, experiment, target, after=after)
    log.info("mlflow:%s: %d traces exported", experiment, count)


def _tell(report: FileReport) -> None:
    if report.skipped:
        log.info("%s: skipped, %s", report.path, report.skipped)
        return
    rows, tools = report.counts["trajectories"], report.counts["tools"]
    log.info(
        "%s: %s, %d trajectories read (%d new, %d updated, %d duplicate, %d quarantined), "
        "%d tools (%d new)",
        report.path,
        report.format,
        rows["read"],
        rows["new"],
        rows["updated"],
        rows["duplicate"],
        rows["quarantined"],
        tools["read"],
        tools["new"],
    )


def quarantined(settings: Settings) -> list[dict[str, Any]]:
    """Every quarantined record without its raw text."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return list_quarantine(con)


def show_record(settings: Settings, identity: str) -> dict[str, Any]:
    """One quarantined record with its raw text."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        return show_quarantined(con, identity)


def retry(settings: Settings) -> dict[str, Any]:
    """Read every quarantined record again; what is usable now is stored and leaves quarantine."""
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        stored, left = retry_quarantine(con)
    log.info("quarantine: %d records stored, %d left", stored, left)
    return {"stored": stored, "left": left}
