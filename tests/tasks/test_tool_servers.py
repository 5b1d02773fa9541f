"""Catalogues synced from real MCP servers, addresses, documents and Python functions."""

import functools
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tasks import catalogue
from tasks.errors import SourceFailed, WrongUsage
from tasks.tool_servers import list_source
from warehouse.errors import UnreadableInput, UnsafeSync

SERVER = Path(__file__).with_name("tool_server.py")
OLD_SERVER = Path(__file__).with_name("old_tool_server.py")


def tool(name, description="does it", **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


@pytest.fixture
def serve(tmp_path):
    """Write what the servers say and give their source."""

    def write(*tools, server=SERVER, **how):
        path = tmp_path / "state.json"
        path.write_text(json.dumps({"tools": list(tools), **how}))
        return f"mcp:{sys.executable} {server} {path}"

    return write


def names(settings, namespace):
    tools = catalogue.tools(settings)["tools"]
    return sorted(t["name"] for t in tools if t["namespace"] == namespace)


MANY = [tool(f"t{i}", q={"type": "string"}) for i in range(7)]


def test_a_real_server_whose_tools_change_between_two_syncs(settings, serve):
    first = catalogue.sync(
        settings, serve(tool("forecast", city={"type": "string"}), tool("radar"))
    )
    assert first["namespace"] == "weather"
    assert first["added"] == ["forecast", "radar"]
    assert "ttl_ms" not in first
    source = serve(
        tool("forecast", city={"type": "string"}, days={"type": "integer"}),
        tool("alerts", "another one"),
        tool("radar", "shows rain"),
        page=1,
        ttl=60_000,
    )
    second = catalogue.sync(settings, source)
    assert (second["added"], second["removed"]) == (["alerts"], [])
    assert second["changed"]["parameters"] == second["changed"]["required"] == ["forecast"]
    assert second["changed"]["description"] == ["radar"]
    assert second["ttl_ms"] == 60_000
    assert second["fresh_until"]
    assert names(settings, "weather") == ["alerts", "forecast", "radar"]


@pytest.mark.slow
def test_a_cursor_that_repeats_ends_with_an_error(settings, serve):
    catalogue.sync(settings, serve(*MANY))
    with pytest.raises(SourceFailed, match=r"new cursor .* gave 'same' again.*nothing was changed"):
        catalogue.sync(settings, serve(*MANY[:2], loop=True))
    assert len(names(settings, "weather")) == 7


@pytest.mark.slow
def test_a_page_that_fails_changes_nothing(settings, serve):
    catalogue.sync(settings, serve(*MANY))
    with pytest.raises(SourceFailed, match=r"this page is broken.*nothing was changed"):
        catalogue.sync(settings, serve(*MANY[1:], page=3, fail_at=3))
    assert len(names(settings, "weather")) == 7


@pytest.mark.slow
def test_a_server_that_flaps_is_asked_twice_and_not_believed(settings, serve):
    catalogue.sync(settings, serve(*MANY[:3]))
    with pytest.raises(SourceFailed, match=r"asked twice, got 1 and then 2"):
        catalogue.sync(settings, serve(*MANY[:3], flaps=True))
    assert len(names(settings, "weather")) == 3


@pytest.mark.slow
def test_a_list_that_changes_while_it_is_read_is_read_again(serve):
    assert len(list_source(serve(*MANY, changes=1)).tools) == 7
    with pytest.raises(SourceFailed, match="stands still"):
        list_source(serve(*MANY, changes=100))


def test_a_server_of_an_old_protocol_is_read_and_heard(settings, serve):
    source = serve(*MANY, server=OLD_SERVER, page=3, changes=1)
    assert catalogue.sync(settings, source)["namespace"] == "old"
    assert len(names(settings, "old")) == 7
    with pytest.raises(SourceFailed, match="stands still"):
        list_source(serve(*MANY, server=OLD_SERVER, changes=100))


def test_a_shrinking_list_removes_nothing_unless_forced(settings, serve):
    catalogue.sync(settings, serve(*MANY, server=OLD_SERVER))
    for left in (MANY[:3], []):
        with pytest.raises(UnsafeSync, match=r"keep most of its 7 tools.*--force"):
            catalogue.sync(settings, serve(*left, server=OLD_SERVER))
        assert len(names(settings, "old")) == 7
    removed = catalogue.sync(settings, serve(*MANY[:4], server=OLD_SERVER))["removed"]
    assert removed == ["t4", "t5", "t6"]
    forced = catalogue.sync(settings, serve(MANY[0], server=OLD_SERVER), force=True)
    assert forced["removed"] == ["t1", "t2", "t3"]
    back = catalogue.sync(settings, serve(*MANY[:2], server=OLD_SERVER))
    assert back["returned"] == ["t1"]


def test_a_list_that_stays_empty_is_no_catalogue(settings, serve):
    with pytest.raises(UnreadableInput, match="empty list"):
        catalogue.sync(settings, serve(server=OLD_SERVER))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mcp:no-such-program-anywhere x", "FileNotFoundError"),
        (f"mcp:{sys.executable} -c 'print(1/0)'", "Connection closed.*ZeroDivisionError"),
        ("http://127.0.0.1:9/mcp", "ConnectError"),
        ("http://127.0.0.1:9/api.json", "ConnectError"),
        ("python:no_such_module_anywhere", "ModuleNotFoundError"),
    ],
)
def test_a_source_that_is_not_there_ends_in_one_sentence(source, message):
    with pytest.raises(SourceFailed, match=f"expected tools from .*{message}.*nothing was changed"):
        list_source(source, timeout_s=10)


@pytest.mark.slow
def test_a_server_that_says_nothing_is_not_waited_for_long():
    source = f"mcp:{sys.executable} -c 'import time; time.sleep(60)'"
    started = time.monotonic()
    with pytest.raises(SourceFailed, match=r"no list within 0\.5 s"):
        list_source(source, timeout_s=0.5)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("source", ["mcp:", "mcp:'unclosed", "python:shlex:nothing"])
def test_a_source_that_cannot_be_is_wrong_usage(source):
    with pytest.raises(WrongUsage):
        list_source(source)


# --- addresses ------------------------------------------------------------------------------------


@pytest.fixture
def port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.slow
def test_a_real_server_over_streamable_http_past_any_proxy(settings, tmp_path, port, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"tools": MANY, "page": 3, "ttl": 5000}))
    process = subprocess.Popen([sys.executable, SERVER, state, str(port)])
    try:
        address = f"http://127.0.0.1:{port}/mcp"
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0 or time.monotonic() > deadline:
                    break
            time.sleep(0.1)
        result = catalogue.sync(settings, address)
        assert (len(result["added"]), result["ttl_ms"]) == (7, 5000)
        state.write_text(json.dumps({"tools": MANY[1:]}))
        assert catalogue.sync(settings, f"mcp:{address}", "weather")["removed"] == ["t0"]
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def site(tmp_path):
    """A folder behind an address on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


DOCUMENT = {
    "openapi": "3.0.3",
    "info": {"title": "Pets and more", "version": "1"},
    "paths": {"/pets": {"get": {"operationId": "listPets", "responses": {}}}},
}


def test_an_address_of_a_document_is_told_by_what_it_answers(settings, tmp_path, site):
    (tmp_path / "spec").write_text(json.dumps(DOCUMENT))
    (tmp_path / "api.yaml").write_text(
        "openapi: 3.1.0\ninfo: {title: Y, version: 2024-01-01}\n"
        "paths:\n  /a:\n    get:\n      responses:\n        200: {description: 2024-01-01}\n"
    )
    result = catalogue.sync(settings, f"{site}/spec?key=secret")
    assert (result["namespace"], result["added"]) == ("Pets and more", ["listPets"])
    assert catalogue.sync(settings, f"{site}/api.yaml")["added"] == ["get_a"]
    with pytest.raises(SourceFailed, match="404"):
        catalogue.sync(settings, f"{site}/gone.json")


def test_a_document_may_be_yaml_and_hostile_yaml_harms_nobody(settings, tmp_path):
    folder = tmp_path / "hub"
    folder.mkdir()
    path = folder / "api.yml"
    path.write_text("swagger: 2.0\npaths:\n  /a: {get: {operationId: a, responses: {}}}\n")
    assert catalogue.sync(settings, str(path))["namespace"] == "api"
    path.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(UnreadableInput, match="nothing was changed"):
        catalogue.sync(settings, str(path))
    bomb = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
    )
    path.write_text(f"{bomb}openapi: 3.0.0\npaths:\n  /b: {{get: {{responses: {{}}}}}}\n")
    assert catalogue.sync(settings, str(path), "bomb")["added"] == ["get_b"]


# --- Python functions -----------------------------------------------------------------------------

MODULE = '''
import dataclasses
from typing import Literal, Optional


@dataclasses.dataclass
class Trip:
    city: str
    days: int


def plan_trip(
    city: str, days: int = 3, *, mode: Literal["car", "bike"], tags: list[str] | None = None
) -> Trip:
    """Plan a trip.

    Goes far.

    Args:
        city: Where to,
            any spelling.
        days (int): How long.

    Returns:
        The trip.
    """


def older(x: "Optional[float]", *rest, **more) -> dict[str, int]:
    """Do it.

    :param x: A number.
    """


def _private(): ...
'''


def test_public_functions_are_tools(settings, tmp_path):
    path = tmp_path / "trips_of_test.py"
    path.write_text(MODULE)
    listing = list_source(f"python:{path}")
    trip, older = listing.tools
    assert trip.description == "Plan a trip.\n\nGoes far."
    assert trip.parameters == (
        {
            "name": "city",
            "type": "string",
            "description": "Where to, any spelling.",
            "required": True,
        },
        {"name": "days", "type": "integer", "description": "How long.", "required": False},
        {"name": "mode", "type": "string", "description": "", "required": True},
        {"name": "tags", "type": "array|null", "description": "", "required": False},
    )
    assert trip.output_types == ("city:string", "days:integer")
    assert (older.description, older.output_types) == ("Do it.", ("object",))
    assert [(p["name"], p["type"], p["description"]) for p in older.parameters] == [
        ("x", "number|null", "A number.")
    ]
    assert catalogue.sync(settings, f"python:{path}")["namespace"] == "trips_of_test"
    assert [t.name for t in list_source("python:shlex:quote").tools] == ["quote"]


# --- states compared ------------------------------------------------------------------------------


def test_states_are_compared_by_delivery_time_namespace_and_file(settings, tmp_path):
    def write(name, *tools):
        path = tmp_path / name
        path.write_text(json.dumps({"tools": list(tools)}))
        return str(path)

    old = write("old.json", tool("read_file", "Read a file", path={"type": "string"}), tool("run"))
    new = write(
        "new.json", tool("file_read", "Read a file", path={"type": "string"}), tool("run", "x")
    )
    with pytest.raises(WrongUsage, match="none yet"):
        catalogue.diff(settings)
    catalogue.sync(settings, old, "box")
    catalogue.sync(settings, new, "box", force=True)
    expected = catalogue.diff(settings, old, new)
    assert (expected["added"], expected["removed"]) == (["file_read"], ["read_file"])
    assert expected["changed"]["description"] == ["run"]
    (likely,) = expected["likely_renames"]
    assert (likely["old"], likely["new"], likely["evidence"]["contract"]) == (
        "read_file",
        "file_read",
        True,
    )
    for states in (
        (),
        ("box",),
        ("box@1", "box@2"),
        ("box@1", "box"),
        ("box@previous", "box@latest"),
    ):
        found = catalogue.diff(settings, *states)
        assert {**found, "from": "", "to": ""} == {**expected, "from": "", "to": ""}
    assert catalogue.diff(settings, "box@2000-01-01", "box@2999-01-01T00:00:00Z")["added"]
    whole = catalogue.diff(settings, "previous", "latest")
    assert whole["removed"] == ["box/read_file"]
    with pytest.raises(WrongUsage, match="namespaces: box"):
        catalogue.diff(settings, "nowhere", "box")


def test_renamed_removed_and_with_other_parameters_at_once_50188(settings, tmp_path):
    old, new = tmp_path / "v1.json", tmp_path / "v2.json"
    text = {"type": "string"}
    v1 = [tool("list", "List files", path=text), tool("todo_read", "Read the list of todos")]
    v1 += [tool("edit", "Edit a file", file=text, old=text)]
    v2 = [tool("ls", "List files", path=text), tool("edit", "Edit a file", filePath=text, old=text)]
    old.write_text(json.dumps(v1))
    new.write_text(json.dumps(v2))
    found = catalogue.diff(settings, str(old), str(new))
    assert found["removed"] == ["list", "todo_read"]
    assert [(r["old"], r["new"]) for r in found["likely_renames"]] == [("list", "ls")]
    assert found["changed"]["parameters"] == ["edit"]
    assert found["details"]["edit"]["parameters_added"] == ["filePath"]
    assert found["details"]["edit"]["parameters_removed"] == ["file"]


def test_a_saved_page_that_is_not_the_last_removes_nothing(settings, tmp_path):
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"tools": MANY}))
    catalogue.sync(settings, str(path), "hub")
    path.write_text(json.dumps({"tools": [MANY[0], tool("new")], "nextCursor": "x"}))
    result = catalogue.sync(settings, str(path), "hub")
    assert (result["added"], result["removed"]) == (["new"], [])
    assert any("nextCursor" in note for note in result["notes"])
    assert len(names(settings, "hub")) == 8
