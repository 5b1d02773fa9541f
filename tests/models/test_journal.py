import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import ToolFailed, UnusableJournal
from models.execution import ExecutionPolicy, execute
from models.journal import Journal
from models.toolset import Resource, Signature, Traits
from models.types import Argument, Plan
from tests.models.runs import PLAN, SIGNATURES, Tools, run

ROOT = Path(__file__).parents[2]


def kill_in(folder, moment):
    """A run in a process of its own, killed at that moment."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.models.runs", str(folder), moment], cwd=ROOT
    )
    try:
        until = time.monotonic() + 60
        while not (folder / "ready").exists():
            assert child.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()


def effects(folder):
    return (folder / "effects").read_text().splitlines()


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("before 1", ["send 0", "look 1", "send 2"]),
        ("in 1", ["send 0", "look 1", "look 1", "send 2"]),
    ],
    ids=["between two calls", "in a repeatable call"],
)
def test_a_killed_run_is_finished_by_the_next(tmp_path, moment, expected):
    kill_in(tmp_path, moment)
    done = run(tmp_path)
    assert done.status == "done"
    assert effects(tmp_path) == expected
    assert [step.reused for step in done.steps] == [True, False, False]
    assert done.outputs == {2: {"n": 2}}
    again = run(tmp_path)
    assert again.status == "done"
    assert all(step.reused for step in again.steps)
    assert effects(tmp_path) == expected


def test_a_call_that_was_killed_and_must_not_be_repeated_is_refused(tmp_path):
    kill_in(tmp_path, "in 2")
    done = run(tmp_path)
    assert done.status == "partial"
    assert [step.status for step in done.steps] == ["ok", "ok", "error"]
    assert "may have run already with the same arguments (call 1.0.2: no answer was recorded)" in (
        done.steps[2].error
    )
    assert effects(tmp_path) == ["send 0", "look 1", "send 2"]
    assert [(call.id, call.status, call.has_run) for call in done.calls] == [
        ("1.0.0", "ok", True),
        ("1.0.1", "ok", True),
        ("1.0.2", "unanswered", None),
    ]


def steps_of(*numbers, links=()):
    arguments = tuple((Argument("n", "", n),) for n in numbers)
    return Plan(("t/send",) * len(numbers), links, 0.0, "", arguments)


def run_plan(folder, plan, tools=None, **options):
    with Journal.open(folder / "journal") as journal:
        return execute([plan], tools or Tools(folder), SIGNATURES, journal=journal, **options)


def test_a_call_without_an_answer_does_not_stand_in_the_way_of_its_neighbour(tmp_path):
    class Dying(Tools):
        def call(self, key, arguments, timeout_s):
            super().call(key, arguments, timeout_s)
            stop.set()
            raise ToolFailed("the server died")

    stop, plan, one = threading.Event(), steps_of(0, 1), ExecutionPolicy(max_parallel=1)
    run_plan(tmp_path, plan, Dying(tmp_path), cancelled=stop, policy=one)
    done = run_plan(tmp_path, plan, policy=one)
    assert [step.status for step in done.steps] == ["error", "ok"]
    assert effects(tmp_path) == ["send 0", "send 1"]


def test_another_plan_for_a_killed_run_does_not_repeat_its_effects(tmp_path):
    run_plan(tmp_path, steps_of(0))
    done = run_plan(tmp_path, steps_of(5, 6, links=((0, 1),)))
    assert [step.status for step in done.steps] == ["error", "blocked"]
    assert "would repeat the effect of t/send: call 1.0.0" in done.steps[0].error
    assert effects(tmp_path) == ["send 0"]


def test_a_journal_tells_all_of_a_run(tmp_path):
    class Busy(Tools):
        left = 1

        def call(self, key, arguments, timeout_s):
            if self.left:
                self.left = 0
                raise ToolFailed("busy", is_transient=True, has_run=False)
            return super().call(key, arguments, timeout_s)

    path = tmp_path / "journal"
    given = [Resource("a.png", "image")]
    with Journal.open(path) as journal:
        assert (journal.request, journal.status, journal.num_runs) == (None, None, 0)
        done = execute(
            [PLAN],
            Busy(tmp_path),
            SIGNATURES,
            request="send",
            resources=given,
            journal=journal,
            policy=ExecutionPolicy(backoff_s=0.0),
        )
    assert done.status == "done"
    with Journal.open(path) as journal:
        assert (journal.request, journal.status, journal.num_runs) == ("send", "done", 1)
        assert journal.resources == tuple(given)
        assert [tuple(plan["keys"]) for plan in journal.plans] == [PLAN.tools]
        told = [(c.id, c.tool, c.arguments, c.status, c.result) for c in journal.calls]
        assert told == [(c.id, c.tool, c.arguments, c.status, c.result) for c in done.calls]
        first = journal.calls[0].attempts
        assert [(a.error, a.has_run) for a in first] == [("busy", False), (None, True)]
        assert first[0].started_at.tzinfo is UTC
    kinds = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert kinds == ["run_started", *["call_started", "call_ended"] * 4, "run_ended"]


def test_a_call_is_in_the_journal_before_its_tool_is_called(tmp_path):
    path = tmp_path / "journal"
    seen = []

    class Looking(Tools):
        def call(self, key, arguments, timeout_s):
            seen.append(json.loads(path.read_text().splitlines()[-1]))

    with Journal.open(path) as journal:
        execute([PLAN], Looking(tmp_path), SIGNATURES, journal=journal)
    assert [(e["event"], e["id"], e["arguments"]) for e in seen] == [
        ("call_started", f"1.0.{n}", {"n": n}) for n in range(3)
    ]


def test_a_call_that_cannot_be_written_down_is_not_made(tmp_path, caplog):
    tools = Tools(tmp_path)
    with Journal.open(tmp_path / "journal") as journal:

        def perform(call, attempt):
            journal.close()
            return attempt()

        done = execute([PLAN], tools, SIGNATURES, journal=journal, perform=perform)
    assert "expected an open journal" in done.steps[0].error
    assert done.calls[0].has_run is False
    assert "is not in its journal" in caplog.text
    assert not (tmp_path / "effects").exists()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_torn_last_line_is_cut_off_wherever_it_is_torn(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("torn")
    run(folder)
    path = folder / "journal"
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut] + data.draw(st.sampled_from([b"", b"\0\0", b"\r\xff"])))
    with Journal.open(path) as journal:
        journal.close()
    kept = path.read_bytes()
    assert kept == whole[: whole[:cut].rfind(b"\n") + 1]
    run(folder)
    assert path.read_bytes().startswith(kept)
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_a_line_damaged_before_the_end_is_refused(tmp_path):
    run(tmp_path)
    path = tmp_path / "journal"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"half a line\n", *lines[2:]]))
    with pytest.raises(UnusableJournal, match=r"line 2 of .*half a line"):
        Journal.open(path)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "journal"
    path.write_text('{"event": "call_started"}\n')
    with pytest.raises(UnusableJournal, match="expected a journal of calls"):
        Journal.open(path)
    path.write_text("")
    Journal.open(path).close()  # the refusal let it go


def test_one_run_at_a_time_holds_a_journal(tmp_path):
    path = tmp_path / "journal"
    with Journal.open(path), pytest.raises(UnusableJournal, match="no run holds"):
        Journal.open(path)
    journal = Journal.open(path)
    closing = threading.Thread(target=journal.close)
    closing.start()
    closing.join()
    Journal.open(path).close()


def test_another_request_needs_another_journal(tmp_path):
    run(tmp_path)
    with (
        Journal.open(tmp_path / "journal") as journal,
        pytest.raises(UnusableJournal, match=r"expected the journal of 'post', .*of 'send'"),
    ):
        execute([PLAN], Tools(tmp_path), SIGNATURES, request="post", journal=journal)
    assert len(effects(tmp_path)) == 3


def test_only_its_owner_reads_a_journal(tmp_path):
    run(tmp_path)
    assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o600


class Crash(BaseException):
    """Stands for a kill: nothing of the run goes on."""


@st.composite
def runs(draw):
    """Steps (tool, links back) of a plan, calls before the crash, and how many at once."""
    size = draw(st.integers(1, 6))
    tools = draw(st.lists(st.sampled_from(["send", "look"]), min_size=size, max_size=size))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return tools, links, draw(st.integers(0, size)), draw(st.integers(1, 3))


@settings(max_examples=40, deadline=None)
@given(runs())
def test_nothing_that_must_not_be_repeated_is_wherever_a_run_stops(tmp_path_factory, drawn):
    tools, links, crash_at, parallel = drawn
    path = tmp_path_factory.mktemp("runs") / "journal"
    plan = Plan(
        tuple(f"t/{name}" for name in tools),
        tuple(links),
        0.0,
        "",
        tuple((Argument("n", "", n),) for n in range(len(tools))),
    )
    signatures = {key: Signature((), ()) for key in plan.tools}
    counts, lock, hanging = Counter(), threading.Lock(), threading.Event()

    class Counting:
        left = crash_at

        def traits(self, key):
            return Traits(is_idempotent=key == "t/look")

        def call(self, key, arguments, timeout_s):
            with lock:
                counts[key, arguments["n"]] += 1
                self.left -= 1
                hangs = self.left < 0
            if hangs:  # as if killed: the call has had its effect, nobody hears of it
                stop.set()
                hanging.wait(5)
                raise Crash
            return arguments["n"]

    stop = threading.Event()
    policy = ExecutionPolicy(max_parallel=parallel, grace_s=0.0)
    first = Counting()
    with Journal.open(path) as journal:
        execute([plan], first, signatures, journal=journal, policy=policy, cancelled=stop)
    hanging.set()
    second = Counting()
    second.left = 1000
    with Journal.open(path) as journal:
        done = execute([plan], second, signatures, journal=journal, policy=policy)
    assert all(times == 1 for (key, _), times in counts.items() if key == "t/send")
    assert all(times <= 2 for times in counts.values())
    lost = {step.step for step in done.steps if step.status == "error"}
    assert {tools[step] for step in lost} <= {"send"}
    if not lost:
        assert done.status == "done"
        assert len(counts) == len(tools)
