import contextvars
import json
import threading
import time
from collections import Counter
from datetime import UTC

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import InvalidPlan, ToolFailed
from models.execution import (
    ExecutionPolicy,
    check_plan,
    execute,
    may_retry,
    order_steps,
    predecessors,
    retrying,
    summarise,
)
from models.fields import Field
from models.toolset import Resource, Signature, Traits
from models.types import Argument, Plan

SAFE = Traits(is_read_only=True)
EFFECT = Traits()
QUICK = ExecutionPolicy(backoff_s=0.0, grace_s=0.2)


class Tools:
    """Functions of the arguments, with everything that was asked of them."""

    def __init__(self, traits=None, **functions):
        self.functions = functions
        self.kinds = traits or {}
        self.calls = []
        self.limits = []
        self.lock = threading.Lock()

    def traits(self, key):
        return self.kinds.get(key.split("/")[1], SAFE)

    def call(self, key, arguments, timeout_s):
        name = key.split("/")[1]
        with self.lock:
            self.calls.append((name, dict(arguments)))
            self.limits.append(timeout_s)
        return self.functions[name](**arguments)

    def names(self):
        return [name for name, _ in self.calls]


def plan(*tools, links=(), arguments=()):
    return Plan(tuple(f"t/{tool}" for tool in tools), tuple(links), 0.0, "", tuple(arguments))


def values(**given):
    """A step's arguments: values, or steps as ``at(position)``."""
    return tuple(
        Argument(name, "", None, *value) if isinstance(value, At) else Argument(name, "", value)
        for name, value in given.items()
    )


class At(tuple):
    """Where an argument comes from."""


def at(step, field=""):
    return At((step, field))


def signatures(tools, **stated):
    return {f"t/{name}": stated.get(name, Signature((), ())) for name in tools.functions}


def run(tools, *plans, stated=None, **options):
    options.setdefault("policy", QUICK)
    return execute(plans, tools, signatures(tools, **(stated or {})), **options)


def fails(message="broken", **kind):
    def function(**arguments):
        raise ToolFailed(message, **kind)

    return function


def statuses(execution):
    return [step.status for step in execution.steps]


# --- order and results ----------------------------------------------------------------------------


def test_results_flow_into_later_arguments():
    tools = Tools(one=lambda: {"x": 1, "y": 2}, add=lambda a, b: a + b)
    done = run(
        tools,
        plan("one", "add", arguments=[(), values(a=at(0, "x"), b=40)]),
        request="add 40",
    )
    assert done.status == "done"
    assert statuses(done) == ["ok", "ok"]
    assert dict(done.steps[1].arguments) == {"a": 1, "b": 40}
    assert done.outputs == {1: 41}
    assert [call.id for call in done.calls] == ["1.0.0", "1.0.1"]
    assert done.steps[0].started_at.tzinfo is UTC
    assert done.steps[0].started_at <= done.steps[0].ended_at <= done.steps[1].started_at
    assert [attempt.error for attempt in done.steps[1].attempts] == [None]


def test_an_execution_is_json():
    tools = Tools(one=lambda: {"x": 1}, bad=fails())
    done = run(tools, plan("one", "bad"), request="two things")
    told = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert told["status"] == "partial"
    assert told["outputs"] == [{"step": 0, "tool": "t/one", "result": {"x": 1}}]
    assert told["steps"][1]["error"] == "broken"
    assert told["steps"][1]["attempts"][0]["error"] == "broken"
    assert told["plan"]["keys"] == ["t/one", "t/bad"]


def test_four_independent_tools_of_a_second_end_in_less_than_one_and_a_half():
    tools = Tools(nap=lambda n: time.sleep(1))
    began = time.monotonic()
    done = run(tools, plan(*["nap"] * 4, arguments=[values(n=i) for i in range(4)]))
    assert done.status == "done"
    assert time.monotonic() - began < 1.5


def test_a_step_waits_for_its_own_predecessors_only():
    ended = threading.Event()
    tools = Tools(slow=lambda: ended.wait(5), quick=lambda: 1, last=lambda: ended.set())
    done = run(tools, plan("slow", "quick", "last", links=[(1, 2)]))
    assert done.status == "done"
    assert done.steps[0].result is True  # it was running until "last", a level later, had ended


def test_no_more_calls_run_at_once_than_allowed():
    running, most = [], []

    def nap(n):
        running.append(n)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(n)

    tools = Tools(nap=nap)
    steps = plan(*["nap"] * 9, arguments=[values(n=i) for i in range(9)])
    assert run(tools, steps, policy=ExecutionPolicy(max_parallel=3)).status == "done"
    assert max(most) == 3


def test_calls_see_the_context_of_the_caller():
    word = contextvars.ContextVar("word")
    word.set("here")
    assert run(Tools(look=word.get), plan("look")).outputs == {0: "here"}


def test_a_failed_step_blocks_only_its_descendants():
    tools = Tools(bad=fails(), good=lambda: 1, after=lambda: 2, last=lambda: 3)
    done = run(tools, plan("bad", "after", "last", "good", "good", links=[(0, 1), (1, 2), (3, 4)]))
    assert done.status == "partial"
    assert statuses(done) == ["error", "blocked", "blocked", "ok", "ok"]
    assert done.steps[2].error == "step 1 (t/after) failed"
    assert done.outputs == {4: 1}
    assert tools.names().count("after") == 0


@st.composite
def graphs(draw):
    size = draw(st.integers(1, 7))
    pairs = [(a, b) for b in range(size) for a in range(b)]
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    shuffled = draw(st.permutations(range(size)))
    bad = draw(st.sets(st.integers(0, size - 1), max_size=2))
    return size, [(shuffled[a], shuffled[b]) for a, b in links], bad


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(1, 4))
def test_every_step_without_a_failed_ancestor_runs_once_and_after_its_predecessors(graph, parallel):
    size, links, bad = graph
    ended = []

    def work(n):
        assert {a for a, b in links if b == n} <= set(ended)
        if n in bad:
            raise ToolFailed("bad")
        ended.append(n)

    tools = Tools(work=work)
    steps = plan(*["work"] * size, links=links, arguments=[values(n=i) for i in range(size)])
    done = run(tools, steps, policy=ExecutionPolicy(max_parallel=parallel))
    lost = set(bad)
    for step in order_steps(steps):
        if predecessors(steps)[step] & lost:
            lost.add(step)
    for n, status in enumerate(statuses(done)):
        blocked = bool(predecessors(steps)[n] & lost)
        assert status == ("blocked" if blocked else "error" if n in bad else "ok")
    counts = Counter(arguments["n"] for _, arguments in tools.calls)
    assert counts == {n: 1 for n in range(size) if not predecessors(steps)[n] & lost}


# --- plans that cannot be run ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (plan(), "at least one step"),
        (plan("a", "b", links=[(0, 1), (1, 0)]), r"without a cycle, got one among the steps 0 "),
        (plan("a", "b", links=[(1, 0)], arguments=[(), values(x=at(0))]), "without a cycle"),
        (plan("a", links=[(0, 0)]), "without a cycle"),
        (plan("a", links=[(0, 1)]), r"between steps 0 to 0, got \(0, 1\)"),
        (plan("a", links=[(-1, 0)]), "between steps 0 to 0"),
        (plan("a", "gone"), "tools of the catalogue, got t/gone"),
        (plan("a", "b", arguments=[values(x=at(1)), ()]), "earlier step, got step 1"),
        (plan("a", arguments=[values(x=at(0))]), "earlier step, got step 0"),
        (plan("a", arguments=[values(x=at(-1))]), "earlier step, got step -1"),
        (plan("a", "b", arguments=[()]), "all 2 steps or none, got 1"),
        (plan("a", arguments=[(Argument("x", "", 1), Argument("x", "", 2))]), "'x' twice"),
        (plan("a", arguments=[values(x={1, 2})]), "JSON value for argument 'x' of step 0"),
        (plan("a", arguments=[values(x=float("nan"))]), "JSON value for argument 'x'"),
    ],
)
def test_a_broken_plan_is_refused_before_anything_runs(broken, message):
    tools = Tools(a=lambda **_: 1, b=lambda **_: 1)
    with pytest.raises(InvalidPlan, match=message):
        check_plan(broken, signatures(tools))
    with pytest.raises(InvalidPlan, match=f"Plan 0: .*{message}"):
        run(tools, broken)
    assert tools.calls == []


def test_a_plan_with_a_gone_tool_gives_way_to_the_next():
    tools = Tools(a=lambda: 1)
    done = run(tools, plan("gone"), plan("a"))
    assert (done.status, done.index) == ("done", 1)
    assert [(t.index, t.outcome) for t in done.tried] == [(0, "invalid"), (1, "done")]
    assert "t/gone" in done.tried[0].reason


def test_no_valid_plan_is_an_error_with_all_reasons():
    tools = Tools(a=lambda: 1)
    with pytest.raises(InvalidPlan, match=r"Plan 0: .*t/gone.*Plan 1: .*cycle"):
        run(tools, plan("gone"), plan("a", links=[(0, 0)]))
    with pytest.raises(InvalidPlan, match="got none"):
        run(tools)


def test_a_limit_under_which_nothing_runs_is_refused():
    for limits in ({"max_parallel": 0}, {"retries": -1}, {"run_timeout_s": 0.0}, {"grace_s": -1.0}):
        with pytest.raises(ValueError, match="expected"):
            ExecutionPolicy(**limits)


# --- resources ------------------------------------------------------------------------------------

GRAY = Signature(
    (Field("image", ("image",), "value", True),), (Field("image", ("image",), "value"),)
)


def test_a_wrong_file_is_corrected_by_what_predecessors_made():
    tools = Tools(
        gray=lambda image: {"image": f"gray-{image}"}, turn=lambda image: {"image": f"turn-{image}"}
    )
    done = run(
        tools,
        plan("gray", "turn", links=[(0, 1)], arguments=[values(image="a.png"), ()]),
        stated={"gray": GRAY, "turn": GRAY},
        resources=[Resource("a.png", "image"), Resource("b.png", "image")],
    )
    assert done.outputs == {1: {"image": "turn-gray-a.png"}}
    (correction,) = done.steps[1].corrections
    assert (correction.parameter, correction.was, correction.now) == ("image", None, "gray-a.png")
    assert [r.value for r in done.resources] == [
        "a.png",
        "b.png",
        "gray-a.png",
        "turn-gray-a.png",
    ]
    assert done.resources[-1].origins == ("1.0.1",)


def test_a_step_knows_what_all_steps_before_it_made_not_only_the_last():
    tools = Tools(
        gray=lambda image: {"image": f"gray-{image}"}, note=lambda: 1, turn=lambda image: image
    )
    steps = plan("gray", "note", "turn", links=[(0, 1), (1, 2)])
    given = [Resource("a.png", "image")]
    done = run(tools, steps, stated={"gray": GRAY, "turn": GRAY}, resources=given)
    assert done.outputs == {2: "gray-a.png"}


def test_what_a_step_takes_does_not_depend_on_what_else_is_done_by_then():
    def gray(image):
        if image == "a.png":
            time.sleep(0.1)
        return {"image": f"gray-{image}"}

    tools = Tools(gray=gray, turn=lambda image: {"image": f"turn-{image}"})
    steps = plan(
        "gray", "gray", "turn", links=[(0, 2)],
        arguments=[values(image="a.png"), values(image="b.png"), ()],
    )  # fmt: skip
    given = [Resource("a.png", "image"), Resource("b.png", "image")]
    done = run(tools, steps, stated={"gray": GRAY, "turn": GRAY}, resources=given)
    assert done.steps[2].result == {"image": "turn-gray-a.png"}


def test_a_missing_resource_fails_the_step_and_not_its_neighbours():
    tools = Tools(gray=lambda image: image, good=lambda: 1)
    done = run(
        tools,
        plan("gray", "good"),
        stated={"gray": GRAY},
        resources=[Resource("rain.wav", "audio")],
    )
    assert statuses(done) == ["error", "ok"]
    assert done.steps[0].error.startswith("missing resource: expected image for parameter 'image'")
    assert '"rain.wav" (audio)' in done.steps[0].error
    assert tools.names() == ["good"]


def test_a_type_that_no_tool_makes_is_a_missing_resource_after_the_steps_before_it():
    video = Signature((Field("video", ("video",), "value", True),), ())
    tools = Tools(gray=lambda image: {"image": "g.png"}, cut=lambda video: video)
    done = run(
        tools,
        plan("gray", "cut", links=[(0, 1)]),
        stated={"gray": GRAY, "cut": video},
        resources=[Resource("a.png", "image")],
    )
    assert (done.status, statuses(done)) == ("partial", ["ok", "error"])
    assert "expected video for parameter 'video' of step 1 (t/cut)" in done.steps[1].error
    assert [r.value for r in done.resources] == ["a.png", "g.png"]


# --- failing tools and retries --------------------------------------------------------------------


def flaky(times, **kind):
    left = [times]

    def function(**arguments):
        left[0] -= 1
        if left[0] >= 0:
            raise ToolFailed("busy", **kind)
        return "ok"

    return function


def test_a_transient_error_is_retried_with_growing_waits():
    waits = []
    policy = ExecutionPolicy(retries=3, backoff_s=0.5)
    tools = Tools(busy=flaky(3, is_transient=True, has_run=False))
    done = run(tools, plan("busy"), perform=retrying(policy, waits.append))
    assert done.outputs == {0: "ok"}
    assert waits == [0.5, 1.0, 2.0]
    assert [attempt.error for attempt in done.steps[0].attempts] == ["busy"] * 3 + [None]
    assert len(done.calls) == 1


def test_waits_do_not_grow_beyond_half_a_minute():
    waits = []
    policy = ExecutionPolicy(retries=8)
    tools = Tools(busy=fails(is_transient=True))
    run(tools, plan("busy"), perform=retrying(policy, waits.append))
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_the_tool_says_how_long_to_wait_but_not_for_ever():
    waits = []
    policy = ExecutionPolicy(longest_wait_s=60.0)
    for asked in (7.0, 3600.0):
        tools = Tools(busy=flaky(1, is_transient=True, retry_after_s=asked))
        run(tools, plan("busy"), perform=retrying(policy, waits.append))
    assert waits == [7.0]


def test_a_permanent_error_is_not_retried():
    tools = Tools(bad=fails("no such city"))
    done = run(tools, plan("bad"))
    assert (done.status, done.steps[0].error, len(tools.calls)) == ("failed", "no such city", 1)


@pytest.mark.parametrize(
    ("traits", "kind", "expected"),
    [
        (SAFE, {"is_transient": True}, True),
        (Traits(is_idempotent=True), {"is_transient": True, "has_run": True}, True),
        (EFFECT, {"is_transient": True, "has_run": False}, True),
        (EFFECT, {"is_transient": True}, False),
        (EFFECT, {"is_transient": True, "has_run": True}, False),
        (SAFE, {}, False),
    ],
)
def test_only_harmless_retries_are_allowed(traits, kind, expected):
    assert may_retry(ToolFailed("busy", **kind), traits) is expected
    assert not may_retry(ConnectionError("busy"), traits)


@pytest.mark.parametrize(("traits", "num_calls"), [(EFFECT, 1), (SAFE, 3)])
def test_a_tool_that_dies_in_a_call_is_repeated_only_if_that_does_no_harm(traits, num_calls):
    tools = Tools({"dies": traits}, dies=fails("the server died", is_transient=True, has_run=None))
    done = run(tools, plan("dies"))
    assert done.status == "failed"
    assert len(tools.calls) == len(done.steps[0].attempts) == num_calls


@pytest.mark.parametrize("error", [ValueError("odd"), KeyError("k"), SystemExit(3), MemoryError()])
def test_any_other_exception_fails_its_step_alone(error):
    def odd():
        raise error

    done = run(Tools(odd=odd, good=lambda: 1), plan("odd", "good"))
    assert statuses(done) == ["error", "ok"]
    assert done.steps[0].error.startswith(type(error).__name__)


@pytest.mark.parametrize("result", [{1, 2}, object(), float("nan"), {"x": b"bytes"}, {(1, 2): 3}])
def test_a_result_that_is_no_json_is_an_error_of_its_step(result):
    tools = Tools({"odd": EFFECT}, odd=lambda: result, good=lambda: 1)
    done = run(tools, plan("odd", "good"), plan("odd"))
    assert statuses(done) == ["error", "ok"]
    assert "expected a JSON value from t/odd" in done.steps[0].error
    assert done.steps[0].attempts[0].has_run is True
    assert tools.names().count("odd") == 1  # it has run: the second plan may not repeat it


def test_a_result_that_holds_itself_is_an_error_of_its_step():
    ring = []
    ring.append(ring)
    assert "expected a JSON value" in run(Tools(odd=lambda: ring), plan("odd")).steps[0].error


def test_results_are_kept_as_json_has_them():
    done = run(Tools(odd=lambda: {1: (2, 3)}), plan("odd"))
    assert done.outputs == {0: {"1": [2, 3]}}


def test_a_tool_cannot_change_the_record_of_what_was_sent():
    def greedy(items):
        items.clear()

    done = run(Tools(greedy=greedy), plan("greedy", arguments=[values(items=[1])]))
    assert dict(done.steps[0].arguments) == dict(done.calls[0].arguments) == {"items": [1]}


def test_unknown_traits_fail_the_step_before_its_tool_is_called():
    class Closed(Tools):
        def traits(self, key):
            raise ToolFailed("the server does not start", has_run=False)

    tools = Closed(a=lambda: 1)
    done = run(tools, plan("a"))
    assert done.steps[0].error == "the server does not start"
    assert tools.calls == []


def test_whoever_performs_a_call_sees_what_it_comes_after():
    seen = []

    def perform(call, attempt):
        seen.append((call.id, call.step, call.key, dict(call.arguments), call.after, call.traits))
        return attempt()

    tools = Tools({"two": EFFECT}, one=lambda: 1, two=lambda n: 2)
    steps = plan("one", "two", links=[(0, 1)], arguments=[(), values(n=at(0))])
    done = run(tools, steps, perform=perform)
    assert done.status == "done"
    assert seen == [
        ("1.0.0", 0, "t/one", {}, (), SAFE),
        ("1.0.1", 1, "t/two", {"n": 1}, ("1.0.0",), EFFECT),
    ]


def test_attempts_are_counted_whoever_repeats_them():
    def stubborn(call, attempt):
        for _ in range(4):
            try:
                return attempt()
            except ToolFailed:
                continue

    done = run(Tools(busy=flaky(3)), plan("busy"), perform=stubborn)
    assert [a.error for a in done.steps[0].attempts] == ["busy"] * 3 + [None]
    assert all(a.started_at <= a.ended_at for a in done.steps[0].attempts)


# --- time-outs and cancellation -------------------------------------------------------------------


def test_a_call_gets_no_more_time_than_the_run_has_left():
    tools = Tools(a=lambda: 1)
    run(tools, plan("a"), policy=ExecutionPolicy(call_timeout_s=60.0, run_timeout_s=5.0))
    run(tools, plan("a"), policy=ExecutionPolicy(call_timeout_s=2.0, run_timeout_s=5.0))
    assert 4 < tools.limits[0] <= 5
    assert tools.limits[1] == 2


def test_when_the_time_of_the_run_is_over_nothing_new_starts():
    free = threading.Event()
    tools = Tools({"hangs": EFFECT}, hangs=lambda: free.wait(20), quick=lambda: 1, last=lambda: 1)
    began = time.monotonic()
    done = run(
        tools,
        plan("hangs", "quick", "last", links=[(0, 2)]),
        plan("last"),
        policy=ExecutionPolicy(run_timeout_s=0.3),
    )
    free.set()
    assert time.monotonic() - began < 2
    assert (done.status, statuses(done)) == ("timed_out", ["timed_out", "ok", "skipped"])
    assert [t.outcome for t in done.tried] == ["timed_out"]
    assert done.calls[0].has_run is None
    assert done.steps[0].ended_at is None
    assert "last" not in tools.names()
    assert [r.value for r in done.resources] == [1]


def test_a_cancelled_run_keeps_what_it_has():
    stop, free = threading.Event(), threading.Event()

    def quick():
        stop.set()
        return {"x": 1}

    def ends_in_time():
        time.sleep(0.1)
        return 2

    tools = Tools(quick=quick, hangs=lambda: free.wait(20), ends=ends_in_time, last=lambda: 1)
    began = time.monotonic()
    done = run(
        tools,
        plan("hangs", "ends", "quick", "last", links=[(2, 3)]),
        plan("last"),
        cancelled=stop,
        policy=ExecutionPolicy(grace_s=0.5),
    )
    free.set()
    assert time.monotonic() - began < 3
    assert done.status == "cancelled"
    assert statuses(done) == ["cancelled", "ok", "ok", "skipped"]
    assert {1, 2} <= {r.value for r in done.resources}
    assert len(done.tried) == 1
    assert "last" not in tools.names()


def test_a_run_cancelled_before_it_starts_calls_nothing():
    stop = threading.Event()
    stop.set()
    tools = Tools(a=lambda: 1)
    done = run(tools, plan("a"), cancelled=stop)
    assert (done.status, statuses(done), tools.calls) == ("cancelled", ["skipped"], [])


def test_a_cancelled_run_does_not_wait_for_retries():
    stop = threading.Event()

    def busy():
        stop.set()
        raise ToolFailed("busy", is_transient=True)

    tools = Tools(busy=busy)
    began = time.monotonic()
    done = run(
        tools, plan("busy"), cancelled=stop, policy=ExecutionPolicy(backoff_s=20.0, grace_s=5.0)
    )
    assert time.monotonic() - began < 4
    assert (done.status, statuses(done), len(tools.calls)) == ("cancelled", ["cancelled"], 1)
    assert "before that: busy" in done.steps[0].error


def test_a_call_that_was_given_up_makes_no_further_attempt():
    free, ended = threading.Event(), threading.Event()

    def perform(call, attempt):
        try:
            for _ in range(3):
                try:
                    return attempt()
                except ToolFailed:
                    continue
        finally:
            ended.set()

    def hangs():
        free.wait(20)
        raise ToolFailed("late", is_transient=True)

    tools = Tools(hangs=hangs)
    run(tools, plan("hangs"), perform=perform, policy=ExecutionPolicy(run_timeout_s=0.1))
    free.set()
    assert ended.wait(5)
    assert len(tools.calls) == 1


# --- the next plan --------------------------------------------------------------------------------


def test_the_next_plan_goes_on_from_the_point_reached():
    tools = Tools({"send": EFFECT}, send=lambda to: f"sent to {to}", bad=fails(), good=lambda x: x)
    done = run(
        tools,
        plan("send", "bad", links=[(0, 1)], arguments=[values(to="a"), ()]),
        plan("send", "good", arguments=[values(to="a"), values(x=at(0))]),
    )
    assert (done.status, done.index) == ("done", 1)
    assert [(t.index, t.outcome) for t in done.tried] == [(0, "partial"), (1, "done")]
    assert done.tried[0].reason == "Step 1 (t/bad): broken"
    assert done.steps[0].reused
    assert done.steps[0].call == "1.0.0"
    assert done.outputs == {1: "sent to a"}
    assert tools.names() == ["send", "bad", "good"]
    assert [call.id for call in done.calls] == ["1.0.0", "1.0.1", "1.1.1"]
    assert done.resources[0].origins == ("1.0.0", "1.1.1")


def test_a_refusal_is_not_gone_around_by_the_next_plan():
    def refuse():
        raise ToolFailed("a no", has_run=False, is_refusal=True)

    tools = Tools(delete=refuse, other=lambda: "something else")
    done = run(tools, plan("delete"), plan("other"))
    assert done.status == "failed"
    assert [t.index for t in done.tried] == [0]
    assert tools.names() == ["delete"]


def test_a_result_stands_for_one_step_of_a_later_plan():
    count = iter(range(10))
    tools = Tools(look=lambda: next(count), bad=fails(), good=lambda: 1)
    done = run(tools, plan("look", "bad"), plan("look", "look", "good", links=[(0, 1)]))
    assert [step.reused for step in done.steps] == [True, False, False]
    assert [step.result for step in done.steps] == [0, 1, 1]


@pytest.mark.parametrize("has_run", [None, True])
def test_a_call_that_may_have_run_is_never_repeated(has_run):
    tools = Tools({"send": EFFECT}, send=fails("lost", has_run=has_run), good=lambda: 1)
    done = run(
        tools,
        plan("send", arguments=[values(to="a")]),
        plan("send", "good", arguments=[values(to="a"), ()]),
        plan("send", arguments=[values(to="b")]),
        plan("good"),
    )
    assert (done.status, done.index) == ("done", 3)
    assert tools.names().count("send") == 1
    assert "may have run already with the same arguments (call 1.0.0: lost)" in done.tried[1].reason
    assert "would repeat the effect of t/send: call 1.0.0" in done.tried[2].reason
    assert '{"to": "a"}, this step would send {"to": "b"}' in done.tried[2].reason


def test_a_call_that_surely_did_not_run_may_be_made_again():
    tools = Tools({"send": EFFECT}, send=flaky(1, has_run=False))
    done = run(tools, plan("send"), plan("send"))
    assert (done.status, done.index, len(tools.calls)) == ("done", 1, 2)


def test_one_plan_may_call_a_tool_with_several_arguments():
    tools = Tools({"send": EFFECT}, send=lambda to: to, bad=fails(), good=lambda: 1)
    first = plan("send", "bad", "send", arguments=[values(to="a"), (), values(to="b")])
    second = plan("send", "send", "good", "send",
                  arguments=[values(to="b"), values(to="a"), (), values(to="c")])  # fmt: skip
    done = run(tools, first, second)
    assert done.status == "done"
    assert [step.reused for step in done.steps] == [True, True, False, False]
    assert sorted(a["to"] for name, a in tools.calls if name == "send") == ["a", "b", "c"]


def test_a_refused_step_blocks_what_comes_after_it():
    tools = Tools({"send": EFFECT}, send=lambda to: to, bad=fails(), good=lambda: 1)
    first = plan("send", "bad", arguments=[values(to="a"), ()])
    second = plan("send", "good", links=[(0, 1)], arguments=[values(to="b"), ()])
    done = run(tools, first, second)
    assert done.status == "partial"
    assert done.index == 0  # it got further
    assert [t.outcome for t in done.tried] == ["partial", "failed"]
    assert tools.names().count("send") == 1


def test_twins_in_one_plan_share_one_effect():
    tools = Tools({"send": EFFECT}, send=lambda to: time.sleep(0.05), look=lambda: 1)
    steps = plan("send", "send", "look", "look", arguments=[values(to="a")] * 2 + [()] * 2)
    done = run(tools, steps)
    assert done.status == "done"
    assert Counter(tools.names()) == {"send": 1, "look": 2}
    assert [step.reused for step in done.steps] == [False, True, False, False]


def test_a_repeatable_tool_is_called_as_often_as_the_plan_says():
    tools = Tools(look=lambda: 1)
    done = run(tools, plan("look", "look"), policy=ExecutionPolicy(max_parallel=1))
    assert (len(tools.calls), [step.reused for step in done.steps]) == (2, [False, False])


def test_the_plan_that_was_done_is_followed_even_if_a_longer_one_got_further():
    tools = Tools(good=lambda: 1, bad=fails())
    done = run(tools, plan("good", "good", "bad"), plan("good"))
    assert (done.status, done.index) == ("done", 1)


def test_repeatable_tools_run_again_with_other_arguments():
    tools = Tools(look=lambda n: n, bad=fails())
    done = run(
        tools,
        plan("look", "bad", arguments=[values(n=1), ()]),
        plan("look", arguments=[values(n=2)]),
    )
    assert done.outputs == {0: 2}


def test_resources_of_a_failed_plan_are_known_to_the_next():
    make = Signature((), (Field("image", ("image",), "value"),))
    tools = Tools(make=lambda: {"image": "a.png"}, bad=fails(), gray=lambda image: {"image": image})
    done = run(tools, plan("make", "bad"), plan("gray"), stated={"make": make, "gray": GRAY})
    assert done.outputs == {0: {"image": "a.png"}}


def test_when_all_plans_fail_memory_is_kept():
    tools = Tools(make=lambda: {"x": 1}, bad=fails("first"), worse=fails("second"))
    done = run(tools, plan("make", "bad"), plan("worse"))
    assert (done.status, done.index) == ("partial", 0)
    assert [t.reason for t in done.tried] == ["Step 1 (t/bad): first", "Step 0 (t/worse): second"]
    assert done.outputs == {0: {"x": 1}}
    assert [r.value for r in done.resources] == [1]


PLANS = st.lists(
    st.lists(st.tuples(st.sampled_from(["send", "look", "lost", "bad"]), st.integers(0, 1)),
             min_size=1, max_size=4),
    min_size=1, max_size=3,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(PLANS, st.booleans())
def test_no_effect_happens_twice_whatever_the_plans(drawn, is_chain):
    kinds = {"send": EFFECT, "lost": EFFECT}
    tools = Tools(
        kinds, send=lambda n: n, look=lambda n: n, lost=fails(is_transient=True), bad=fails()
    )
    plans = [
        plan(
            *[name for name, _ in steps],
            links=[(i, i + 1) for i in range(len(steps) - 1)] if is_chain else [],
            arguments=[values(n=n) for _, n in steps],
        )
        for steps in drawn
    ]
    done = run(tools, *plans)
    effects = Counter((name, a["n"]) for name, a in tools.calls if name in kinds)
    assert max(effects.values(), default=1) == 1
    assert sum(len(call.attempts) for call in done.calls) == len(tools.calls)
    assert done.tried[-1].outcome == "done" or len(done.tried) == len(plans)


# --- the summary ----------------------------------------------------------------------------------


def test_the_summary_says_what_was_asked_done_and_failed():
    tools = Tools(gray=lambda image: {"image": "g.png"}, bad=fails("no such city"),
                  after=lambda: 1, busy=flaky(1, is_transient=True))  # fmt: skip
    done = run(
        tools,
        plan("gone"),
        plan(
            "gray",
            "bad",
            "after",
            "busy",
            links=[(1, 2)],
            arguments=[values(image="x.png"), (), (), ()],
        ),
        stated={"gray": GRAY},
        request="grey it",
        resources=[Resource("a.png", "image")],
    )
    lines = summarise(done).splitlines()
    assert lines[0] == "Asked: grey it"
    assert lines[1].startswith("Partial: 2 of 4 steps of plan 1 are ok, 3 calls, ")
    assert lines[2].startswith("Plan 0, invalid: expected tools of the catalogue, got t/gone")
    assert lines[3:] == [
        "Step 0, t/gray: ok",
        '  corrected image: "x.png" became "a.png", as no such resource is known',
        "Step 1, t/bad: error: no such city",
        "Step 2, t/after: blocked: step 1 (t/bad) failed",
        "Step 3, t/busy: ok (1 retry)",
        'Result of step 0: {"image": "g.png"}',
        'Result of step 3: "ok"',
    ]
