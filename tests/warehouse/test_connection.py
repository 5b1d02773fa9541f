import subprocess
import sys
import time
from importlib.resources import files

import duckdb
import pytest

from warehouse.connection import open_warehouse, transaction
from warehouse.errors import WarehouseLocked, WrongStorage

_HOLD = """
import sys, time, duckdb
con = duckdb.connect(sys.argv[1]); print("held", flush=True); time.sleep(float(sys.argv[2]))
"""


def hold(path, seconds):
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    return child


def test_migrations_run_by_themselves_and_once(tmp_path):
    for _ in range(2):
        with open_warehouse(tmp_path / "new" / "w.duckdb") as con:
            numbers = con.sql("select number from schema_migration order by number").fetchall()
            scripts = files("warehouse").joinpath("migrations").iterdir()
            assert numbers == sorted((int(script.name[:4]),) for script in scripts)


def test_a_held_file_is_waited_for_39_644(tmp_path):
    with open_warehouse(tmp_path / "w.duckdb"):
        pass
    child = hold(tmp_path / "w.duckdb", 1.5)
    with open_warehouse(tmp_path / "w.duckdb", wait_s=20) as con:
        assert con.sql("select count(*) from trajectory").fetchall() == [(0,)]
    child.wait()


def test_a_file_held_too_long_names_its_holder(tmp_path):
    with open_warehouse(tmp_path / "w.duckdb"):
        pass
    child = hold(tmp_path / "w.duckdb", 60)
    started = time.monotonic()
    with (
        pytest.raises(
            WarehouseLocked, match=rf"held by process {child.pid} \(.*Nothing was changed"
        ),
        open_warehouse(tmp_path / "w.duckdb", wait_s=0.5),
    ):
        pass
    assert time.monotonic() - started < 10
    child.kill()
    child.wait()


def test_a_file_that_is_no_warehouse_is_refused(tmp_path):
    path = tmp_path / "w.duckdb"
    path.write_bytes(b"this is no database" * 500)
    with (
        pytest.raises(WrongStorage, match=f"expected a DuckDB {duckdb.__version__} file"),
        open_warehouse(path),
    ):
        pass
    assert path.read_bytes().startswith(b"this is no database")


def test_a_newer_schema_is_refused(tmp_path):
    with open_warehouse(tmp_path / "w.duckdb") as con:
        con.execute("insert into schema_migration values (999, 'future', now())")
    with (
        pytest.raises(WrongStorage, match="newer Toolatlas"),
        open_warehouse(tmp_path / "w.duckdb"),
    ):
        pass


def test_a_failed_transaction_leaves_nothing(con):
    def fail():
        con.execute("insert into declared_edge values ('s', 'a', 'b', '')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), transaction(con):
        fail()
    assert con.sql("select count(*) from declared_edge").fetchall() == [(0,)]
