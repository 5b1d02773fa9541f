"""Executions written as spans and read back through an ingest: the same calls, in their turns."""

import json
import threading
from datetime import timedelta

import pytest

from models.errors import ToolFailed
from models.execution import ExecutionPolicy, execute
from models.fields import Field
from models.toolset import Signature, Traits
from models.types import Argument, Plan
from tasks.graphs import build, why
from tasks.ingesting import ingest
from tasks.settings import Settings
from tasks.spans import otlp_of
from warehouse.connection import open_warehouse

NAMES = ("find", "look", "mail", "break")
SIGNATURES = {
    f"shop/{name}": Signature((Field("x", ("thing",), "value"),), (Field("", ("thing",), "value"),))
    for name in NAMES
}


class Tools:
    """Two calls of ``look`` wait for each other, so they overlap; ``break`` fails."""

    def __init__(self):
        self._both = threading.Barrier(2, timeout=5)

    def traits(self, key):
        return Traits(is_read_only=True)

    def call(self, key, arguments, timeout_s):
        name = key.split("/")[1]
        if name == "break":
            raise ToolFailed("no such order: 4711", has_run=False)
        if name == "look":
            self._both.wait()
        return {"thing": f"{name}-of-{arguments['x']}"}


def taken(step):
    return (Argument("x", "thing", step=step),)


@pytest.fixture(scope="module")
def execution():
    plan = Plan(
        tuple(f"shop/{name}" for name in ("find", "look", "look", "mail", "break")),
        ((0, 1), (0, 2), (1, 3), (3, 4)),
        0.0,
        "tog",
        (
            (Argument("x", "thing", 'order "7" für Ünal'),),
            taken(0),
            (Argument("x", "thing", "a second thing"),),
            taken(1),
            taken(3),
        ),
    )
    policy = ExecutionPolicy(retries=1, backoff_s=0.0)
    return execute([plan], Tools(), SIGNATURES, request="Mail me my order.", policy=policy)


@pytest.fixture(scope="module")
def home(execution, tmp_path_factory):
    folder = tmp_path_factory.mktemp("spans")
    settings = Settings(home=folder / "home", mlflow_uri=None)
    path = folder / "trajectory.json"
    path.write_text(json.dumps(otlp_of(execution, "run1"), ensure_ascii=False))
    for counted in ("new", "duplicate"):  # the second time it is known
        totals = ingest(settings, [str(path)], source="shop")["totals"]
        assert (totals["trajectories"][counted], totals["calls"][counted]) == (1, 5)
    return settings


def rows(settings, sql):
    with open_warehouse(settings.warehouse) as con:
        return con.execute(sql).fetchall()


def test_an_execution_is_one_trajectory_with_its_request(home):
    found = rows(home, "select source, format, conversation, request from trajectory")
    assert found == [("shop", "otlp", "run1", "Mail me my order.")]


def test_calls_come_back_with_arguments_results_status_and_times(home, execution):
    found = {
        call_id: rest
        for call_id, *rest in rows(
            home,
            "select call_id, tool, status, arguments, result, error, started_at, ended_at "
            "from tool_call",
        )
    }
    assert len(found) == len(execution.calls) == 5
    for call in execution.calls:
        tool, status, arguments, result, error, started, ended = found[call.id]
        assert (tool, status) == (call.tool, call.status)
        assert json.loads(arguments) == dict(call.arguments)
        if call.status == "ok":
            assert json.loads(result) == call.result
        else:
            assert (result, error) == (None, call.error)
            assert "4711" in error
        for told, meant in ((started, call.started_at), (ended, call.ended_at)):
            assert abs(told - meant.replace(tzinfo=told.tzinfo)) < timedelta(microseconds=1)


def test_calls_that_overlap_are_one_turn(home):
    turns = dict(rows(home, "select tool, list(turn order by turn) from tool_call group by tool"))
    first, second = turns["shop/look"]
    assert first == second
    (found,), (mailed,), (broken,) = turns["shop/find"], turns["shop/mail"], turns["shop/break"]
    assert found <= first < mailed < broken


def test_what_one_call_gave_and_another_took_is_evidence(home):
    build(home)
    assert "dataflow" in json.dumps(why(home, "shop/find", "shop/look", "latest"), default=str)
    mailed = why(home, "shop/look", "shop/mail", "latest")
    assert "dataflow" in json.dumps(mailed, default=str)
