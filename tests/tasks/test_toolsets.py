"""The guard before the tools, and backends opened as the settings say."""

import json
import sys
import threading
from pathlib import Path

import pytest
from pydantic import ValidationError

from models.errors import ToolFailed
from models.toolset import Traits
from tasks.backends import Backend, Hints
from tasks.settings import Settings, faults, read_settings
from tasks.toolsets import Toolsets, open_toolsets

SERVER = Path(__file__).with_name("acting_server.py")
SAID = {
    "read": Hints(read_only=True),
    "add": Hints(read_only=False, destructive=False),
    "write": Hints(read_only=False),
    "wipe": Hints(destructive=True),
    "silent": Hints(),
}


class Noting(Backend):
    """Notes what reaches it."""

    def __init__(self):
        self.namespace = "box"
        self.seen = []
        self.is_closed = False

    def hints(self, key):
        return SAID[key.removeprefix("box/")]

    def call(self, key, arguments, timeout_s):
        self.seen.append((key, dict(arguments), timeout_s))
        return "done"

    def close(self):
        self.is_closed = True


def outcome(backend, key, allowed, destructive="refuse", ask=None):
    """The result of a call through the guard, or its error."""
    error = None
    with Toolsets({"box": lambda: backend}, allowed, destructive, ask) as tools:
        try:
            return tools.call(key, {"x": 1}, 5)
        except ToolFailed as caught:
            error = caught
    assert (error.has_run, error.is_transient, backend.seen) == (False, False, [])
    return str(error)


def test_nothing_runs_by_default_and_no_server_is_started():
    def never():
        raise AssertionError("opened")

    with Toolsets({"box": never}) as tools:
        assert tools.traits("box/read") == Traits()
        with pytest.raises(ToolFailed, match=r"got box/read: add it.*setting allowed_tools") as one:
            tools.call("box/read", {}, 5)
    assert (one.value.has_run, one.value.is_transient) == (False, False)


@pytest.mark.parametrize(
    ("allowed", "runs"),
    [
        (("box/read",), True),
        (("box/*",), True),
        (("*",), True),
        (("box/re?d", "other/*"), True),
        (("BOX/*",), False),
        (("box",), False),
        (("read",), False),
        (("other/*", "box/reader"), False),
    ],
)
def test_patterns_fit_whole_keys(allowed, runs):
    backend = Noting()
    assert (outcome(backend, "box/read", allowed) == "done") is runs
    assert backend.seen == ([("box/read", {"x": 1}, 5)] if runs else [])


@pytest.mark.parametrize(
    ("name", "allowed", "runs"),
    [
        ("add", "box/*", True),
        ("wipe", "box/*", False),
        ("wipe", "box/wipe", False),  # a full name is no leave to destroy
        ("write", "box/*", False),  # says that it writes: MCP's default
        ("write", "box/write", False),
        ("silent", "box/*", False),
        ("silent", "box/silent", True),  # whoever names it has decided
    ],
)
def test_what_may_destroy_is_refused_by_default(name, allowed, runs):
    said = outcome(Noting(), f"box/{name}", (allowed,))
    if runs:
        assert said == "done"
    else:
        setting = "allowed_tools" if name == "silent" else "destructive (TOOLATLAS_DESTRUCTIVE)"
        assert setting in said
    assert outcome(Noting(), f"box/{name}", (allowed,), "allow") == "done"


def test_the_user_is_asked_about_what_may_destroy_and_nothing_else():
    asked = []

    def ask(key, arguments):
        asked.append((key, dict(arguments)))
        return key == "box/wipe"

    assert outcome(Noting(), "box/read", ("*",), "ask", ask) == "done"
    assert outcome(Noting(), "box/wipe", ("*",), "ask", ask) == "done"
    assert "got a no" in outcome(Noting(), "box/silent", ("*",), "ask", ask)
    assert outcome(Noting(), "box/silent", ("box/silent",), "ask", ask) == "done"
    assert "allowed_tools" in outcome(Noting(), "box/wipe", ("box/read",), "ask", ask)
    assert asked == [("box/wipe", {"x": 1}), ("box/silent", {"x": 1})]
    assert "destructive" in outcome(Noting(), "box/wipe", ("*",), "ask", None)


def test_questions_come_one_at_a_time():
    inside, most = 0, 0

    def ask(key, arguments):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.05)
        inside -= 1
        return True

    backend = Noting()
    with Toolsets({"box": lambda: backend}, ("*",), "ask", ask) as tools:
        threads = [threading.Thread(target=tools.call, args=("box/wipe", {}, 5)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (most, len(backend.seen)) == (1, 4)


def test_a_namespace_without_a_server_is_told_and_all_backends_are_closed():
    first = Noting()

    class Stubborn(Noting):
        def close(self):
            raise OSError("no")

    tools = Toolsets({"box": lambda: first, "bad": Stubborn}, ("*",))
    tools.call("box/read", {}, 5)
    tools._backend("bad/read")
    with pytest.raises(ToolFailed, match="execute_servers"):
        tools.call("gone/read", {}, 5)
    with pytest.raises(OSError, match="no"):
        tools.close()
    assert first.is_closed
    with pytest.raises(ToolFailed, match="closed"):
        tools.call("box/read", {}, 5)


# --- by the settings ------------------------------------------------------------------------------


def test_tools_are_reached_as_the_settings_say(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "word-4711")
    module = tmp_path / "toolsets_module.py"
    module.write_text("def double(x: int) -> int:\n    return 2 * x\n")
    spec = tmp_path / "my api.yaml"
    spec.write_text("openapi: 3.0.0\npaths: {/a: {get: {}}}\n")
    settings = Settings(
        home=tmp_path / "home",
        execute_servers={
            "box": f"mcp:{sys.executable} {SERVER} {tmp_path}",
            "own": f"python:{module}",
            "api": f"'{spec}' http://127.0.0.1:9",
            "odd": "nothing of the kind",
            "gone": "python:no_such_module_anywhere",
        },
        execute_secrets={"box/BOX_KEY": "MY_KEY"},
        allowed_tools=("box/variable", "own/double", "api/*", "odd/*", "gone/*"),
    )
    with open_toolsets(settings) as tools:
        assert tools.call("own/double", {"x": 4}, 10) == 8
        assert not (tmp_path / "starts").exists()
        assert tools.call("box/variable", {"text": "BOX_KEY"}, 20) == "word-4711"
        assert tools.traits("box/variable").is_read_only
        for key, message in (
            ("api/get_a", "ConnectError"),
            ("odd/x", "expected mcp:COMMAND.*execute_servers"),
            ("gone/x", "no_such_module_anywhere"),
            ("box/say", "allowed_tools"),
        ):
            with pytest.raises(ToolFailed, match=message) as caught:
                tools.call(key, {}, 10)
            assert caught.value.has_run is False
    monkeypatch.delenv("MY_KEY")
    with open_toolsets(settings) as tools, pytest.raises(ToolFailed, match="MY_KEY"):
        tools.call("box/variable", {"text": "BOX_KEY"}, 20)


def test_settings_of_execution_come_from_the_environment_and_hold_no_secrets(home, monkeypatch):
    settings = read_settings()
    assert (settings.execute_servers, settings.allowed_tools) == ({}, ())
    assert settings.destructive == "refuse"
    monkeypatch.setenv("TOOLATLAS_EXECUTE_SERVERS", json.dumps({"box": "mcp:python x.py"}))
    monkeypatch.setenv("TOOLATLAS_ALLOWED_TOOLS", '["box/*"]')
    assert read_settings().execute_servers == {"box": "mcp:python x.py"}
    for name, value in (
        ("EXECUTE_SERVERS", {"box": "https://me:word-4711@example.org/mcp"}),
        ("EXECUTE_SECRETS", {"box/key": "word-4711"}),
        ("EXECUTE_SECRETS", {"word-4711": "KEY"}),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(f"TOOLATLAS_{name}", json.dumps(value))
            with pytest.raises(ValidationError) as caught:
                read_settings()
            (said,) = faults(caught.value)
            assert name in said
            assert "word-4711" not in said
