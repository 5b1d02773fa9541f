"""Open the DuckDB file late, close it early, and say who holds it when it is taken.

DuckDB has one writer: while a process holds the file for writing no other process can read it.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import duckdb

from warehouse.errors import WarehouseError, WarehouseLocked, WrongStorage

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


@contextlib.contextmanager
def open_warehouse(path: Path, *, wait_s: float = 30.0) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to the warehouse, its schema brought up to date, closed on leaving.

    Args:
        path: The DuckDB file; it and its folder are made when absent.
        wait_s: How long to wait, in seconds, for another process to let go of the file.

    Raises:
        WarehouseLocked: Another process still held the file after ``wait_s``; it is named.
        WrongStorage: The file is no DuckDB file or one this release cannot read.
    """
    con = _connect(path, wait_s)
    try:
        migrate(con)
        yield con
    finally:
        con.close()


def open_in_memory() -> duckdb.DuckDBPyConnection:
    """An empty warehouse in memory, for tests."""
    con = duckdb.connect(":memory:", config=_CONFIG)
    migrate(con)
    return con


def _connect(path: Path, wait_s: float) -> duckdb.DuckDBPyConnection:
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    pause = 0.05
    while True:
        try:
            con = duckdb.connect(str(path), config=_CONFIG)
            con.execute("set timezone = 'UTC'")
            # It would go to standard output, into the middle of --json.
            con.execute("set enable_progress_bar = false")
            return con
        except duckdb.IOException as error:
            text = str(error)
            if "Could not set lock" not in text:
                raise _explain(path, text) from error
            if time.monotonic() >= deadline:
                raise WarehouseLocked(_holder(path, text, wait_s)) from error
        except duckdb.Error as error:
            raise _explain(path, str(error)) from error
        time.sleep(pause)
        pause = min(pause * 2, 1.0)


def _explain(path: Path, text: str) -> WarehouseError:
    if "version number" in text or "not a valid DuckDB" in text or "serializ" in text.lower():
        return WrongStorage(
            f"expected a DuckDB {duckdb.__version__} file at {path}, got: {text.splitlines()[0]} "
            "Open it with the release that wrote it and export it, or move it away."
        )
    return WarehouseError(f"cannot open the warehouse {path}: {text.splitlines()[0]}")


def _holder(path: Path, text: str, wait_s: float) -> str:
    found = re.search(r"PID (\d+)", text)
    holder = "another process"
    if found:
        pid = found.group(1)
        cmdline = Path("/proc") / pid / "cmdline"
        command = ""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            command = " ".join(cmdline.read_bytes().replace(b"\0", b" ").decode().split())
        holder = f"process {pid}" + (f" ({command[:200]})" if command else "")
    return (
        f"the warehouse {path} is held by {holder}; waited {wait_s:g} s. "
        "Nothing was changed: try again when it has ended, or end it."
    )


def migrate(con: duckdb.DuckDBPyConnection) -> None:
    """Apply the numbered .sql files of ``warehouse/migrations`` that are not applied yet."""
    con.execute(
        "create table if not exists schema_migration "
        "(number integer primary key, name varchar not null, applied_at timestamp not null)"
    )
    done = {row[0] for row in con.execute("select number from schema_migration").fetchall()}
    scripts = sorted(
        (int(item.name.split("_")[0]), item.name, item.read_text())
        for item in files("warehouse").joinpath("migrations").iterdir()
        if item.name.endswith(".sql")
    )
    newest = max(number for number, _, _ in scripts)
    if done and max(done) > newest:
        raise WrongStorage(
            f"expected a warehouse of schema {newest} or older, got schema {max(done)}: "
            "it was written by a newer Toolatlas; upgrade this one."
        )
    for number, name, script in scripts:
        if number in done:
            continue
        with transaction(con):
            con.execute(script)
            con.execute("insert into schema_migration values (?, ?, ?)", [number, name, utc_now()])


@contextlib.contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Everything inside is stored, or nothing is."""
    con.execute("begin")
    try:
        yield
    except BaseException:
        con.execute("rollback")
        raise
    con.execute("commit")


def utc_now() -> datetime:
    """The present moment in UTC, without a zone, as the tables store it."""
    return datetime.now(UTC).replace(tzinfo=None)


def query(name: str) -> str:
    """The text of ``warehouse/sql/<name>.sql``."""
    return files("warehouse").joinpath("sql", f"{name}.sql").read_text()
