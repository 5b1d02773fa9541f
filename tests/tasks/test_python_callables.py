"""Real Python functions as tools: plain, async, slow, wrong and failing ones."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint

import pytest

from models.errors import ToolFailed
from models.toolset import Traits
from tasks import python_tools
from tasks.errors import WrongUsage
from tasks.python_callables import PythonTools
from tasks.python_tools import functions_of
from tasks.tool_servers import default_namespace, list_source

MODULE = '''
import asyncio
import dataclasses
import datetime
import enum
import time
import typing

TOOL_ANNOTATIONS = {
    "trip": {"readOnlyHint": True},
    "wipe": {"destructiveHint": True, "idempotentHint": True},
}
calls = []


class Mode(enum.Enum):
    CAR = "car"


@dataclasses.dataclass
class Trip:
    city: str
    day: datetime.date
    mode: Mode = Mode.CAR


class Pair(typing.NamedTuple):
    left: int
    right: int


def trip(city: str, day: datetime.date = datetime.date(2024, 1, 2)) -> Trip:
    """Plan a trip."""
    return Trip(city, day)


def of(trip: Trip) -> str:
    return type(trip).__name__ + trip.city


def wipe() -> None:
    calls.append("wipe")


def first(a, /, b, *rest, c=3, **more):
    return [a, b, rest, c, more]


async def later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    calls.append("later")
    return "later"


async def blocking(seconds: float) -> None:
    time.sleep(seconds)


def slow(seconds: float) -> str:
    time.sleep(seconds)
    calls.append("slow")
    return "slow"


def pair() -> Pair:
    return Pair(1, 2)


def odd() -> object:
    calls.append("odd")
    return object()


def refuse() -> None:
    raise ValueError("no\\nway")


def lose() -> None:
    raise ConnectionResetError("line dropped")


async def late() -> None:
    raise TimeoutError("upstream")


def leave() -> None:
    raise SystemExit(3)


FEW = {"renamed": slow, "pair": pair}
'''


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "tools_of_callables_test.py"
    found.write_text(MODULE)
    return found


@pytest.fixture
def tools(path):
    with PythonTools("own", functions_of(str(path))) as opened:
        yield opened


def calls(tools):
    return tools._functions["slow"].target.__globals__["calls"]


def fault(tools, name, timeout_s=10, **arguments):
    with pytest.raises(ToolFailed) as caught:
        tools.call(f"own/{name}", arguments, timeout_s)
    return caught.value


def test_names_are_those_of_the_catalogue(tools, path):
    names = [tool.name for tool in list_source(f"python:{path}").tools]
    assert names
    for name in names:
        tools.hints(f"own/{name}")
    error = fault(tools, "Trip")
    assert (error.has_run, error.is_transient) == (False, False)
    assert [tool.name for tool in list_source(f"python:{path}:FEW").tools] == ["renamed", "pair"]


def test_json_goes_in_and_comes_out(tools):
    expected = {"city": "Rome", "day": "2024-05-06", "mode": "car"}
    assert tools.call("own/trip", {"city": "Rome", "day": "2024-05-06"}, 10) == expected
    assert tools.call("own/of", {"trip": expected}, 10) == "TripRome"
    assert tools.call("own/pair", {}, 10) == {"left": 1, "right": 2}
    assert tools.call("own/wipe", {}, 10) is None
    assert tools.call("own/first", {"a": 1, "b": 2, "d": 4}, 10) == [1, 2, [], 3, {"d": 4}]
    assert tools.call("own/later", {"seconds": 0}, 10) == "later"


def test_traits_are_what_the_module_says_and_careful_else(tools):
    assert tools.traits("own/trip") == Traits(is_read_only=True, is_destructive=False)
    assert tools.traits("own/wipe") == Traits(is_idempotent=True)
    assert tools.traits("own/slow") == tools.traits("own/gone") == Traits()
    said = [tools.hints(f"own/{name}").is_destructive for name in ("trip", "wipe", "slow")]
    assert said == [False, True, None]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("slow", {}, "seconds is missing"),
        ("slow", {"seconds": 0, "colour": 1}, "colour is unknown"),
        ("slow", {"seconds": "long"}, "seconds: Input should be a valid number"),
        ("trip", {"city": 3}, "city: Input should be a valid string"),
    ],
)
def test_wrong_arguments_call_nothing(tools, name, arguments, message):
    error = fault(tools, name, **arguments)
    assert message in str(error)
    assert (error.has_run, error.is_transient, calls(tools)) == (False, False, [])


@pytest.mark.parametrize(
    ("name", "is_transient", "message"),
    [
        ("refuse", False, "ValueError: no way."),
        ("lose", True, "ConnectionResetError: line dropped."),
        ("late", True, "TimeoutError: upstream."),
        ("leave", False, "SystemExit: 3."),
    ],
)
def test_what_a_function_raises_is_an_error_of_the_tool(tools, name, is_transient, message):
    error = fault(tools, name)
    assert message in str(error)
    assert (error.has_run, error.is_transient) == (None, is_transient)


def test_a_result_that_json_cannot_hold_has_run(tools):
    error = fault(tools, "odd")
    assert (error.has_run, error.is_transient, calls(tools)) == (True, False, ["odd"])


@pytest.mark.parametrize(("name", "ends"), [("slow", ["slow"]), ("later", [])])
def test_a_call_that_takes_too_long_is_reported_in_time(tools, name, ends):
    started = time.monotonic()
    error = fault(tools, name, timeout_s=0.3, seconds=0.8)
    assert time.monotonic() - started < 0.7
    assert (error.has_run, error.is_transient) == (None, True)
    time.sleep(0.8)
    assert calls(tools) == ends  # a thread cannot be stopped, a coroutine can


def test_an_async_function_that_blocks_is_reported_all_the_same(tools):
    started = time.monotonic()
    assert fault(tools, "blocking", timeout_s=0.2, seconds=4).has_run is None
    assert time.monotonic() - started < 3.5


@pytest.mark.parametrize("name", ["slow", "later"])
def test_four_slow_calls_at_once_take_the_time_of_one(tools, name):
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: tools.call(f"own/{name}", {"seconds": 0.5}, 10), range(4)))
    assert time.monotonic() - started < 1.2


def test_a_function_that_hangs_does_not_keep_the_process(tools):
    fault(tools, "slow", timeout_s=0.1, seconds=1)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "own/slow")


def test_installed_packages_offer_tools_by_entry_point(monkeypatch, path):
    point = EntryPoint("trips", f"{path}:FEW", python_tools.ENTRY_POINTS)
    monkeypatch.setattr(python_tools, "entry_points", lambda group: [point])
    assert [tool.name for tool in list_source("entrypoint:trips").tools] == ["renamed", "pair"]
    assert default_namespace("entrypoint:trips", list_source("entrypoint:trips")) == "trips"
    with pytest.raises(WrongUsage, match="got gone; installed: trips"):
        list_source("entrypoint:gone")
