"""Tools of real MCP servers, over stdio and HTTP, that act, fail, die and hang."""

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.errors import ToolFailed
from models.toolset import Traits
from tasks.mcp_tools import McpTools

SERVER = Path(__file__).with_name("acting_server.py")


@pytest.fixture
def tools(tmp_path):
    command = [sys.executable, str(SERVER), str(tmp_path)]
    with McpTools("box", command, environment={"BOX_KEY": "hunter2-hunter2"}) as opened:
        yield opened


def effects(folder):
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def starts(folder):
    return [int(line) for line in (folder / "starts").read_text().split()]


def fault(tools, name, arguments=None, timeout_s=20):
    with pytest.raises(ToolFailed) as caught:
        tools.call(f"box/{name}", arguments or {}, timeout_s)
    return caught.value


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"


def test_results_of_every_kind_become_json_values(tools):
    def call(name, **arguments):
        return tools.call(f"box/{name}", arguments, 20)

    assert call("shout", text="hi") == {"text": "HI"}
    assert call("say", text='{"a": [1]}') == {"a": [1]}
    assert call("say", text="{no json") == "{no json"
    assert call("say_twice", text="a") == "a\na"
    assert call("draw") == {"type": "image", "mimeType": "image/png", "data": "cG5n"}
    held = {"type": "resource", "mimeType": "text/plain", "uri": "file:///a.txt", "data": "held"}
    assert call("mixed") == [{"a": 1}, held]
    assert call("nothing") is None


def test_nothing_starts_before_the_first_use_and_nothing_is_left_after(tools, tmp_path):
    assert not (tmp_path / "starts").exists()
    tools.call("box/nothing", {}, 20)
    tools.call("box/nothing", {}, 20)
    (pid,) = starts(tmp_path)
    assert is_alive(pid)
    tools.close()
    assert not is_alive(pid)
    assert fault(tools, "nothing").has_run is False


def test_traits_are_what_annotations_say_and_careful_where_they_are_silent(tools):
    assert tools.traits("box/shout") == Traits(is_read_only=True, is_destructive=False)
    assert tools.traits("box/flaky") == Traits(is_idempotent=True, is_destructive=False)
    assert tools.traits("box/wipe") == tools.traits("box/say") == Traits()
    assert tools.traits("box/gone") == Traits()
    said = {n: tools.hints(f"box/{n}").is_destructive for n in ("shout", "wipe", "write", "titled")}
    assert said == {"shout": False, "wipe": True, "write": True, "titled": None}


def test_arguments_unlike_the_schema_never_reach_the_server(tools, tmp_path):
    error = fault(tools, "shout", {"text": 3})
    assert (error.has_run, error.is_transient) == (False, False)
    assert "$.text" in str(error)
    assert fault(tools, "shout").has_run is False
    assert effects(tmp_path) == []


def test_a_reference_to_another_document_is_not_fetched_and_refuses_nothing(tools, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        (tmp_path / "elsewhere").write_text(address)
        assert tools.call("box/odd", {"x": 1}, 20) is None
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_an_unknown_tool_has_not_run_and_one_that_came_later_is_found(tools, tmp_path):
    error = fault(tools, "later")
    assert (error.has_run, error.is_transient) == (False, False)
    assert "box/later" in str(error)
    (tmp_path / "more").write_text("later")
    assert tools.call("box/later", {}, 20) is None
    with pytest.raises(ToolFailed, match="expected a tool of box, got other/say"):
        tools.call("other/say", {}, 20)


def test_only_what_the_server_calls_passing_is_transient(tools):
    error = fault(tools, "flaky")
    assert (error.is_transient, error.has_run, error.retry_after_s) == (True, None, None)
    assert tools.call("box/flaky", {}, 20) == "now"
    error = fault(tools, "limited")
    assert (error.is_transient, error.retry_after_s) == (True, 7)
    error = fault(tools, "hopeless")  # retryable: false, whatever the words
    assert (error.is_transient, error.has_run) == (False, None)
    assert not fault(tools, "broken").is_transient


def test_a_result_unlike_its_schema_is_an_error_of_a_tool_that_has_run(tools, tmp_path):
    error = fault(tools, "lie")
    assert (error.is_transient, error.has_run) == (False, True)
    assert effects(tmp_path) == ["lie"]


def test_a_server_that_dies_in_a_call_is_started_anew_by_the_next(tools, tmp_path):
    error = fault(tools, "die")
    assert (error.is_transient, error.has_run) == (True, None)
    assert "dying of a broken heart" in str(error)
    assert effects(tmp_path) == ["die"]
    assert tools.call("box/say", {"text": "back"}, 20) == "back"
    assert len(starts(tmp_path)) == 2


def test_a_server_that_died_between_two_calls_is_not_noticed(tools, tmp_path):
    tools.call("box/say", {"text": "a"}, 20)
    os.kill(starts(tmp_path)[0], signal.SIGKILL)
    time.sleep(0.3)
    assert tools.call("box/say", {"text": "b"}, 20) == "b"


def test_a_call_without_an_answer_ends_in_time_and_spares_a_server_that_lives(tools, tmp_path):
    tools.call("box/nothing", {}, 20)
    started = time.monotonic()
    error = fault(tools, "wait", {"seconds": 30}, timeout_s=0.5)
    assert time.monotonic() - started < 1.5
    assert (error.is_transient, error.has_run) == (True, None)
    assert "within 0.5 s" in str(error)
    assert tools.call("box/say", {"text": "a"}, 20) == "a"
    assert len(starts(tmp_path)) == 1


@pytest.mark.slow
def test_a_server_that_is_stuck_is_replaced(tools, tmp_path):
    tools.call("box/nothing", {}, 20)
    assert fault(tools, "block", {"seconds": 30}, timeout_s=0.3).has_run is None
    assert tools.call("box/say", {"text": "a"}, 20) == "a"
    stuck, fresh = starts(tmp_path)
    tools.close()
    assert not is_alive(stuck)
    assert not is_alive(fresh)


def test_four_slow_calls_at_once_take_the_time_of_one(tools):
    tools.call("box/nothing", {}, 20)
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(tools.call, "box/wait", {"seconds": 1}, 20) for _ in range(4)]
        assert [call.result() for call in calls] == ["waited"] * 4
    assert time.monotonic() - started < 1.8


@pytest.mark.slow
def test_threads_that_come_at_once_share_one_server(tools, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(tools.call, "box/say", {"text": str(i)}, 20) for i in range(8)]
        assert [call.result() for call in calls] == [str(i) for i in range(8)]
    assert len(starts(tmp_path)) == 1


@pytest.mark.slow
def test_closing_ends_a_call_that_is_waiting(tools):
    tools.call("box/nothing", {}, 20)
    errors = []
    waiting = threading.Thread(target=lambda: errors.append(fault(tools, "wait", {"seconds": 30})))
    waiting.start()
    time.sleep(0.3)
    tools.close()
    waiting.join(10)
    assert [error.has_run for error in errors] == [None]


def test_a_server_gets_its_variables_and_no_others(tools, monkeypatch):
    monkeypatch.setenv("OTHER_SECRET", "not for you")
    assert tools.call("box/variable", {"text": "BOX_KEY"}, 20) == "hunter2-hunter2"
    assert tools.call("box/variable", {"text": "OTHER_SECRET"}, 20) == ""


def test_a_secret_that_a_server_repeats_is_not_in_the_error(tools):
    error = fault(tools, "leak", {"text": "BOX_KEY"})
    assert "hunter2" not in str(error)
    assert "[redacted]" in str(error)


@pytest.mark.parametrize(
    ("server", "message", "is_transient"),
    [
        (["no-such-program-anywhere"], "FileNotFoundError", False),
        ([sys.executable, "-c", "print(1/0)"], "ZeroDivisionError", False),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "within 1 s", True),
        ("http://127.0.0.1:9/mcp", "ConnectError", True),
    ],
)
def test_a_server_that_does_not_start_has_run_nothing(server, message, is_transient):
    with McpTools("box", server, start_timeout_s=1) as tools:
        assert tools.traits("box/say") == Traits()
        error = fault(tools, "say", {"text": "a"})
        assert message in str(error)
        assert (error.has_run, error.is_transient) == (False, is_transient)


@pytest.mark.slow
def test_a_start_that_outlasts_a_call_serves_the_next(tmp_path):
    slow = f"import time, runpy, sys; time.sleep(2); sys.argv[1:] = [{str(tmp_path)!r}]; "
    slow += f"runpy.run_path({str(SERVER)!r}, run_name='__main__')"
    with McpTools("box", [sys.executable, "-c", slow]) as tools:
        error = fault(tools, "say", {"text": "a"}, timeout_s=0.5)
        assert (error.has_run, error.is_transient) == (False, True)
        assert tools.call("box/say", {"text": "a"}, 30) == "a"
    assert len(starts(tmp_path)) == 1


# --- over HTTP ------------------------------------------------------------------------------------


@pytest.fixture
def serve(tmp_path):
    """Starts the server on a port, which stays the same."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    processes = []

    def start():
        command = [sys.executable, str(SERVER), str(tmp_path), str(port)]
        processes.append(subprocess.Popen(command))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        return f"http://127.0.0.1:{port}/mcp"

    start.processes = processes
    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_tools_over_http_run_at_once_and_come_back_with_their_server(serve, tmp_path):
    with McpTools("box", serve()) as tools:
        assert tools.call("box/shout", {"text": "a"}, 20) == {"text": "A"}
        started = time.monotonic()
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(tools.call, "box/wait", {"seconds": 1}, 20) for _ in range(4)]
            assert [call.result() for call in calls] == ["waited"] * 4
        assert time.monotonic() - started < 1.8
        error = fault(tools, "die")
        assert (error.is_transient, error.has_run) == (True, None)
        serve.processes[0].wait()
        for _ in range(2):
            error = fault(tools, "say", {"text": "a"})
            assert (error.is_transient, error.has_run) == (True, False)
        serve()
        assert tools.call("box/say", {"text": "a"}, 20) == "a"
        serve.processes[1].kill()
        serve.processes[1].wait()
        error = fault(tools, "say", {"text": "b"})
        assert (error.is_transient, error.has_run) == (True, False)
    assert effects(tmp_path) == ["shout", *["wait"] * 4, "die", "say"]


@pytest.mark.slow
def test_a_call_over_http_without_an_answer_ends_in_time(serve):
    with McpTools("box", serve()) as tools:
        error = fault(tools, "wait", {"seconds": 30}, timeout_s=1)
        assert (error.is_transient, error.has_run) == (True, None)
        assert tools.call("box/say", {"text": "a"}, 20) == "a"


def test_a_token_goes_to_its_server_and_into_no_error():
    seen = []

    class Closed(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            seen.append(self.headers["Authorization"])
            self.send_error(401, f"not {seen[-1]}")

    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
    with McpTools("box", f"http://127.0.0.1:{site.server_port}/mcp", token="word-4711") as tools:
        error = fault(tools, "say", {"text": "a"})
    site.shutdown()
    site.server_close()
    assert set(seen) == {"Bearer word-4711"}
    assert "HTTP status 401" in str(error)
    assert "execute_secrets: box/bearer" in str(error)
    assert "word-4711" not in str(error)
    assert (error.is_transient, error.has_run) == (False, False)
