"""Execution of plans: calls in parallel where the plan allows, none twice that must not be.

A step starts as soon as all that it depends on is done. What a step sees of other results is what
its plan says it depends on, not what happens to be there by then; so a plan that is run again, or
goes on after its process was killed, asks for the same calls, and calls that were made are known
again by tool and arguments.
"""

import contextvars
import heapq
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from models.arguments import (
    Correction,
    KnownResource,
    Memory,
    resolve_arguments,
    shorten,
    value_key,
)
from models.errors import InvalidPlan, MissingResource, ToolFailed, UnusableJournal
from models.journal import Attempt, CallRecord, Journal, describe_error, has_run, to_text
from models.toolset import Resource, Signature, Toolset, Traits
from models.types import Plan

_log = logging.getLogger(__name__)

_LONGEST_BACKOFF_S = 30.0
_GLANCE_S = 0.05  # between looks at whether the run is cancelled


@dataclass(frozen=True, slots=True)
class ExecutionPolicy:
    """Limits of a run.

    Attributes:
        max_parallel: Calls at once.
        call_timeout_s: For one attempt; the toolset keeps to it.
        run_timeout_s: For all plans together.
        retries: Attempts after the first.
        backoff_s: Before the first retry; doubles each time, up to 30 s.
        longest_wait_s: A tool that asks for a longer wait is not tried again.
        grace_s: What running calls get to end when the run is cancelled.
    """

    max_parallel: int = 4
    call_timeout_s: float = 60.0
    run_timeout_s: float = 600.0
    retries: int = 2
    backoff_s: float = 0.5
    longest_wait_s: float = 60.0
    grace_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse limits under which nothing can run."""
        if self.max_parallel < 1 or self.retries < 0:
            raise ValueError(
                f"expected max_parallel >= 1 and retries >= 0, got {self.max_parallel} and "
                f"{self.retries}."
            )
        times = (self.call_timeout_s, self.run_timeout_s)
        waits = (self.backoff_s, self.longest_wait_s, self.grace_s)
        if min(times) <= 0 or min(waits) < 0:
            raise ValueError(f"expected time-outs above 0 and waits from 0 on, got {self}.")


@dataclass(frozen=True, slots=True)
class Call:
    """A call that is about to be made, as what performs it sees it.

    Attributes:
        id: ``RUN.PLAN.STEP``.
        step: Position in the plan.
        key: The tool.
        arguments: By parameter, JSON values.
        after: Ids of the calls whose results it comes after; some may be of earlier plans or runs.
        traits: What kind of tool it is.
        timeout_s: For one attempt.
    """

    id: str
    step: int
    key: str
    arguments: Mapping[str, Any]
    after: tuple[str, ...]
    traits: Traits
    timeout_s: float


Perform = Callable[[Call, Callable[[], Any]], Any]
"""Makes a call by one or more attempts: gives what the attempt gives, or raises what it raises."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What became of one step.

    Attributes:
        step: Position in the plan.
        tool: Key.
        status: "ok", "error", "blocked" (by what it depends on), "skipped" (the run ended first),
            "cancelled" or "timed_out" (given up while it ran).
        arguments: As resolved; empty where they never were.
        result: A JSON value, where it is ok.
        error: Why it is not ok, else None.
        call: Id of the call that gave the result or failed, "" without one.
        reused: Whether an earlier plan or run had made that call.
        corrections: Arguments that were replaced.
        started_at: UTC; None where no call was made for it.
        ended_at: UTC; None where no call was made for it.
        attempts: Of its own call.
    """

    step: int
    tool: str
    status: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    call: str = ""
    reused: bool = False
    corrections: tuple[Correction, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: tuple[Attempt, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {
            "step": self.step,
            "tool": self.tool,
            "status": self.status,
            "arguments": dict(self.arguments),
            "result": self.result,
            "error": self.error,
            "call": self.call,
            "reused": self.reused,
            "corrections": [correction.to_json() for correction in self.corrections],
            "started_at": to_text(self.started_at),
            "ended_at": to_text(self.ended_at),
            "attempts": [attempt.to_json() for attempt in self.attempts],
        }


@dataclass(frozen=True, slots=True)
class TriedPlan:
    """A plan that was tried.

    Attributes:
        index: Place among the ranked plans.
        outcome: "done", "partial", "failed", "cancelled", "timed_out" or "invalid".
        reason: Why it is not done, else "".
    """

    index: int
    outcome: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {"index": self.index, "outcome": self.outcome, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Execution:
    """What came of a request's plans.

    Attributes:
        request: What was asked.
        status: "done", "partial" (some steps are ok), "failed", "cancelled" or "timed_out".
        index: Place of the plan that was followed: the one that was done, or else got furthest.
        plan: That plan.
        steps: Of that plan, by position.
        tried: Plans in the order in which they were tried.
        calls: All calls, over all plans, those of earlier runs in the journal first.
        resources: All that is known at the end, the newest last.
        started_at: UTC.
        ended_at: UTC.
    """

    request: str
    status: str
    index: int
    plan: Plan
    steps: tuple[StepRecord, ...]
    tried: tuple[TriedPlan, ...]
    calls: tuple[CallRecord, ...]
    resources: tuple[KnownResource, ...]
    started_at: datetime
    ended_at: datetime

    @property
    def outputs(self) -> dict[int, Any]:
        """Results of the steps on which no other depends, by position."""
        inner = set().union(*predecessors(self.plan))
        return {s.step: s.result for s in self.steps if s.status == "ok" and s.step not in inner}

    def to_json(self) -> dict[str, Any]:
        """As commands show it."""
        return {
            "request": self.request,
            "status": self.status,
            "index": self.index,
            "plan": self.plan.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "outputs": [
                {"step": step, "tool": self.plan.tools[step], "result": result}
                for step, result in self.outputs.items()
            ],
            "tried": [plan.to_json() for plan in self.tried],
            "calls": [call.to_json() for call in self.calls],
            "resources": [resource.to_json() for resource in self.resources],
            "started_at": to_text(self.started_at),
            "ended_at": to_text(self.ended_at),
        }


# --- plans ----------------------------------------------------------------------------------------


def predecessors(plan: Plan) -> tuple[frozenset[int], ...]:
    """What each step depends on at once: sources of its links, steps of its arguments."""
    before: list[set[int]] = [set() for _ in plan.tools]
    for source, target in plan.links:
        before[target].add(source)
    for step, arguments in enumerate(plan.arguments):
        before[step] |= {a.step for a in arguments if a.step is not None}
    return tuple(frozenset(steps) for steps in before)


def check_plan(plan: Plan, signatures: Mapping[str, Signature]) -> None:
    """Refuse a plan that cannot be run as it stands.

    Raises:
        InvalidPlan: It has no step, a cycle, a position that is not there, a tool that is not in
            ``signatures``, an argument from a later step, one given twice, or no JSON value.
    """
    size = len(plan.tools)
    if not size:
        raise InvalidPlan("expected a plan of at least one step, got none.")
    if gone := sorted(set(plan.tools) - set(signatures)):
        raise InvalidPlan(
            f"expected tools of the catalogue, got {', '.join(gone)}; plan again, or sync the "
            "catalogue that had them."
        )
    for link in plan.links:
        if not all(0 <= position < size for position in link):
            raise InvalidPlan(f"expected links between steps 0 to {size - 1}, got {link}.")
    if plan.arguments and len(plan.arguments) != size:
        raise InvalidPlan(
            f"expected arguments for all {size} steps or none, got {len(plan.arguments)}."
        )
    for step, arguments in enumerate(plan.arguments):
        where = f"step {step} ({plan.tools[step]})"
        names = [argument.name for argument in arguments]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidPlan(f"expected each argument of {where} once, got {twice[0]!r} twice.")
        for argument in arguments:
            if argument.step is not None and not 0 <= argument.step < step:
                raise InvalidPlan(
                    f"expected argument {argument.name!r} of {where} to come from an earlier "
                    f"step, got step {argument.step}."
                )
            try:
                value_key(argument.value)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidPlan(
                    f"expected a JSON value for argument {argument.name!r} of {where}: {error}."
                ) from error
    order_steps(plan)


def order_steps(plan: Plan) -> list[int]:
    """The steps, each after those that it depends on, else by position.

    Raises:
        InvalidPlan: There is a cycle.
    """
    left = [set(before) for before in predecessors(plan)]
    ready = [step for step, before in enumerate(left) if not before]
    order: list[int] = []
    while ready:
        step = heapq.heappop(ready)
        order.append(step)
        for target, before in enumerate(left):
            if step in before:
                before.remove(step)
                if not before:
                    heapq.heappush(ready, target)
    if len(order) < len(left):
        stuck = sorted(set(range(len(left))) - set(order))
        raise InvalidPlan(
            "expected links without a cycle, got one among the steps "
            f"{', '.join(f'{step} ({plan.tools[step]})' for step in stuck)}."
        )
    return order


# --- retries --------------------------------------------------------------------------------------


def may_retry(error: BaseException, traits: Traits) -> bool:
    """Whether another attempt makes sense and does no harm."""
    return (
        isinstance(error, ToolFailed)
        and error.is_transient
        and (traits.is_repeatable or error.has_run is False)
    )


def waits_of(policy: ExecutionPolicy) -> list[float]:
    """Seconds before each retry: they double, up to half a minute."""
    return [min(policy.backoff_s * 2**i, _LONGEST_BACKOFF_S) for i in range(policy.retries)]


def retrying(policy: ExecutionPolicy, sleep: Callable[[float], Any] = time.sleep) -> Perform:
    """Performs a call with retries of errors that pass, after growing waits.

    Args:
        policy: How many, how long.
        sleep: Waits for so many seconds.
    """

    def perform(call: Call, attempt: Callable[[], Any]) -> Any:
        for wait_s in (*waits_of(policy), None):
            try:
                return attempt()
            except ToolFailed as error:
                asked = error.retry_after_s
                is_too_long = asked is not None and asked > policy.longest_wait_s
                if wait_s is None or is_too_long or not may_retry(error, call.traits):
                    raise
            sleep(wait_s if asked is None else asked)
        raise AssertionError("the last attempt returns or raises")

    return perform


# --- a run ----------------------------------------------------------------------------------------


def execute(
    plans: Sequence[Plan],
    tools: Toolset,
    signatures: Mapping[str, Signature],
    *,
    request: str = "",
    resources: Sequence[Resource] = (),
    policy: ExecutionPolicy | None = None,
    journal: Journal | None = None,
    perform: Perform | None = None,
    cancelled: threading.Event | None = None,
) -> Execution:
    """Follow the best plan that can be followed to its end.

    When a plan fails, the next one goes on from what is there: a step whose tool and arguments
    equal those of a call that was made takes its result. A tool that is not repeatable is never
    called again with the same arguments once it has or may have run, and a later plan does not call
    it with others in place of such a call. What was made in earlier runs of the journal counts as
    made by an earlier plan.

    Args:
        plans: Ranked, the best first.
        tools: What is called, from up to ``max_parallel`` threads.
        signatures: What the tools take and return, by key: the catalogue.
        request: What was asked.
        resources: What the request gives, the newest last.
        policy: Limits.
        journal: Remembers the calls, for a run that is killed.
        perform: Makes the calls; ``retrying(policy)`` if None.
        cancelled: Ends the run when it is set.

    Raises:
        InvalidPlan: No plan can be run as it stands.
        UnusableJournal: The journal belongs to another request.
    """
    faults: dict[int, str] = {}
    for index, plan in enumerate(plans):
        try:
            check_plan(plan, signatures)
        except InvalidPlan as error:
            faults[index] = str(error)
    if len(faults) == len(plans):
        reasons = " ".join(f"Plan {index}: {reason}" for index, reason in faults.items())
        raise InvalidPlan(f"expected a plan that can be run, got {reasons or 'none.'}")
    if journal is not None:
        journal.start_run(request, plans, resources)
    run = _Run(tools, signatures, policy or ExecutionPolicy(), journal, perform, cancelled)
    return run.follow_all(plans, faults, request, Memory.of_request(resources))


class _GivenUp(Exception):
    """The run is over: this attempt must not be made."""


class _Started(NamedTuple):
    """A call in a thread of its own."""

    record: CallRecord
    after: tuple[str, ...]
    attempts: list[Attempt]


class _Run:
    """What all plans of a run share."""

    def __init__(
        self,
        tools: Toolset,
        signatures: Mapping[str, Signature],
        policy: ExecutionPolicy,
        journal: Journal | None,
        perform: Perform | None,
        cancelled: threading.Event | None,
    ) -> None:
        self.tools = tools
        self.signatures = signatures
        self.policy = policy
        self.journal = journal
        self.cancelled = cancelled
        self.number = journal.num_runs if journal is not None else 1
        self.calls: dict[str, CallRecord] = {}
        self._ids: dict[tuple[str, str], list[str]] = {}  # of calls by tool and arguments
        for call in journal.calls if journal is not None else ():
            self.keep(call)
        self.deadline = time.monotonic() + policy.run_timeout_s
        self.over = threading.Event()
        self.perform = perform or retrying(policy, self.over.wait)
        self._traits: dict[str, Traits] = {}
        self.is_refused = False
        self._halt = ""

    def keep(self, call: CallRecord) -> None:
        """Know a call, or how it went on."""
        if call.id not in self.calls:
            key = (call.tool, value_key(call.arguments))
            self._ids.setdefault(key, []).append(call.id)
        self.calls[call.id] = call

    def calls_like(self, key: str, arguments: Mapping[str, Any]) -> list[CallRecord]:
        """Calls of a tool with these arguments, oldest first."""
        return [self.calls[id] for id in self._ids.get((key, value_key(arguments)), ())]

    def follow_all(
        self, plans: Sequence[Plan], faults: Mapping[int, str], request: str, memory: Memory
    ) -> Execution:
        """Plan after plan, until one is done, a tool was refused, or the run is over."""
        started_at = datetime.now(UTC)
        tried: list[TriedPlan] = []
        walks: list[_Walk] = []
        try:
            for index, plan in enumerate(plans):
                if index in faults:
                    tried.append(TriedPlan(index, "invalid", faults[index]))
                    continue
                walk = _Walk(self, index, plan, memory)
                walk.follow()
                memory = walk.memory_after()
                walks.append(walk)
                tried.append(TriedPlan(index, walk.outcome, walk.reason))
                if walk.outcome == "done" or self.is_refused or self.halt():
                    break
        finally:
            self.over.set()
        best = max(reversed(walks), key=lambda walk: (walk.outcome == "done", walk.num_ok))
        status = best.outcome if best.outcome == "done" else self.halt() or best.outcome
        if self.journal is not None:
            try:
                self.journal.end_run(status)
            except (OSError, UnusableJournal) as error:  # what was done must still be told
                _log.warning("The end of the run is not in its journal: %s", error)
        return Execution(
            request,
            status,
            best.index,
            best.plan,
            tuple(best.steps[step] for step in range(len(best.plan.tools))),
            tuple(tried),
            tuple(self.calls.values()),
            memory.resources,
            started_at,
            datetime.now(UTC),
        )

    def halt(self) -> str:
        """Why nothing new may start, "" while it may; once over, a run stays over."""
        if not self._halt and self.cancelled is not None and self.cancelled.is_set():
            self._halt = "cancelled"
        if not self._halt and time.monotonic() >= self.deadline:
            self._halt = "timed_out"
        return self._halt

    def traits(self, key: str) -> Traits:
        """What kind of tool it is, asked once."""
        if key not in self._traits:
            self._traits[key] = self.tools.traits(key)
        return self._traits[key]

    def make(self, started: _Started) -> Any:
        """Make a call, in its own thread; its attempts write themselves down."""
        record, attempts = started.record, started.attempts
        timeout_s = self.policy.call_timeout_s

        def attempt() -> Any:
            if self.over.is_set():
                raise _GivenUp
            place = len(attempts)
            if self.journal is not None:
                self.journal.start_call(record, place + 1)
            began = Attempt(datetime.now(UTC))
            attempts.append(began)
            try:
                left = self.deadline - time.monotonic()
                limit = max(min(timeout_s, left), 0.001)
                result = plain(
                    record.tool, self.tools.call(record.tool, deepcopy(record.arguments), limit)
                )
            except BaseException as error:
                if isinstance(error, ToolFailed) and error.is_refusal:
                    self.is_refused = True
                attempts[place] = replace(
                    began,
                    ended_at=datetime.now(UTC),
                    error=describe_error(error),
                    has_run=has_run(error),
                )
                if self.journal is not None:
                    self.journal.fail_call(record, place + 1, error)
                raise
            attempts[place] = replace(began, ended_at=datetime.now(UTC), has_run=True)
            if self.journal is not None:
                self.journal.end_call(record, place + 1, result)
            return result

        traits = self.traits(record.tool)
        call = Call(
            record.id,
            record.step,
            record.tool,
            deepcopy(record.arguments),
            started.after,
            traits,
            timeout_s,
        )
        return plain(record.tool, self.perform(call, attempt))


def plain(key: str, result: Any) -> Any:
    """A result as JSON has it.

    Raises:
        ToolFailed: It cannot be written as JSON.
    """
    try:
        return json.loads(json.dumps(result, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(
            f"expected a JSON value from {key}, got {type(result).__name__}: {error}; let the tool "
            "return text, numbers, lists and objects.",
            has_run=True,
        ) from error


class _Walk:
    """One plan of a run."""

    def __init__(self, run: _Run, index: int, plan: Plan, memory: Memory) -> None:
        self.run = run
        self.index = index
        self.plan = plan
        self.steps: dict[int, StepRecord] = {}
        self.outcome = "failed"
        self.reason = ""
        self._memory = memory
        self._before = predecessors(plan)
        self._order = order_steps(plan)
        self._ancestors: dict[int, frozenset[int]] = {}
        for step in self._order:
            self._ancestors[step] = self._before[step].union(
                *(self._ancestors[source] for source in self._before[step])
            )
        self._waiting = set(self._order)
        self._drafts: dict[int, StepRecord] = {}  # resolved, not yet called
        self._running: dict[Future[Any], _Started] = {}
        self._past = dict(run.calls)
        self._taken: set[str] = set()  # past calls that a step of this plan stands for

    @property
    def num_ok(self) -> int:
        """Steps that are ok."""
        return sum(step.status == "ok" for step in self.steps.values())

    def memory_after(self) -> Memory:
        """What is known when the plan is over, in the order of its steps."""
        return self._remember(self._order)

    def follow(self) -> None:
        """Bring all steps to an end."""
        while True:
            if not self.run.halt():
                self._advance()
            if not self._running:
                break
            left = self.run.deadline - time.monotonic()
            glance = left if self.run.cancelled is None else min(left, _GLANCE_S)
            wait(self._running, timeout=max(glance, 0), return_when=FIRST_COMPLETED)
            self._collect()
            if self.run.halt():
                break
        self._give_up()
        failed = [s for s in self.steps.values() if s.status not in ("ok", "blocked", "skipped")]
        told = [f"Step {s.step} ({s.tool}): {s.error}" for s in failed]
        self.reason = " ".join(told) or self.run.halt().replace("_", " ")
        if self.num_ok == len(self.plan.tools):
            self.outcome = "done"
        elif halt := self.run.halt():
            self.outcome = halt
        elif self.num_ok:
            self.outcome = "partial"

    def _give_up(self) -> None:
        """The run is over: end what is running and waiting."""
        halt = self.run.halt()
        if self._running:
            self.run.over.set()
            if halt == "cancelled":
                wait(self._running, timeout=self.run.policy.grace_s)
                self._collect()
        words = "the run was cancelled" if halt == "cancelled" else "the run's time was over"
        for started in self._running.values():
            self._end(started, halt, error=f"{words} while it ran; it may have run")
        self._running.clear()
        for step in sorted(self._waiting):
            self.steps[step] = self._record(step, "skipped", f"{words} before it started")
        self._waiting.clear()

    # What is there already is taken before anything new starts: which calls of earlier plans no
    # step stands for is known only then.

    def _advance(self) -> None:
        refused = True
        while refused:
            while any([self._settle(step) for step in sorted(self._waiting)]):
                pass
            ready = [step for step in sorted(self._waiting) if step in self._drafts]
            refused = any([self._start(step) for step in ready])

    def _settle(self, step: int) -> bool:
        """End a step that needs no call; whether that changed anything."""
        before = [self.steps.get(source) for source in sorted(self._before[step])]
        if failed := [record for record in before if record and record.status != "ok"]:
            return self._close(step, "blocked", f"step {failed[0].step} ({failed[0].tool}) failed")
        if not all(before):
            return False
        if step not in self._drafts:
            try:
                self._drafts[step] = self._resolve(step)
            except MissingResource as error:
                return self._close(step, "error", str(error))
            except Exception as error:  # a bug here must not end the other branches
                return self._close(step, "error", describe_error(error))
        ended = [call for call in self._same(step) if call.status != "running"]
        free = [c for c in ended if c.id in self._past and c.id not in self._taken]
        if given := [call for call in free if call.status == "ok"]:
            return self._reuse(step, given[0])
        done = [call for call in ended if call.has_run is not False]
        if not done or self._is_repeatable(step):
            return False
        self._taken |= {call.id for call in done}
        if given := [call for call in done if call.status == "ok"]:
            return self._reuse(step, given[0])
        return self._close(
            step,
            "error",
            f"would repeat {self.plan.tools[step]}, which may have run already with the same "
            f"arguments (call {done[0].id}: {done[0].error or 'no answer was recorded'}) and is "
            "not known to be safe to repeat; look whether it took effect, then go on without it.",
        )

    def _reuse(self, step: int, call: CallRecord) -> bool:
        self._taken.add(call.id)
        draft = self._drafts[step]
        self._finish(replace(draft, status="ok", result=call.result, call=call.id, reused=True))
        return True

    def _close(self, step: int, status: str, error: str) -> bool:
        self._finish(self._record(step, status, error))
        return True

    def _record(self, step: int, status: str, error: str) -> StepRecord:
        draft = self._drafts.get(step) or StepRecord(step, self.plan.tools[step], status)
        return replace(draft, status=status, error=error)

    def _finish(self, record: StepRecord) -> None:
        self._waiting.discard(record.step)
        self.steps[record.step] = record

    def _same(self, step: int) -> list[CallRecord]:
        """Calls of the step's tool with the step's arguments."""
        return self.run.calls_like(self.plan.tools[step], self._drafts[step].arguments)

    def _is_repeatable(self, step: int) -> bool:
        try:
            return self.run.traits(self.plan.tools[step]).is_repeatable
        except Exception:  # the call will say what is wrong with the tool
            return False

    def _resolve(self, step: int) -> StepRecord:
        """The step with its arguments."""
        ancestors = [source for source in self._order if source in self._ancestors[step]]
        arguments, corrections = resolve_arguments(
            self.plan,
            step,
            self.run.signatures,
            {source: self.steps[source].result for source in ancestors},
            self._remember(ancestors),
        )
        key = self.plan.tools[step]
        return StepRecord(step, key, "waiting", arguments, corrections=corrections)

    def _remember(self, steps: Sequence[int]) -> Memory:
        """What was known before the plan, and what these steps gave."""
        memory = self._memory.copy()
        for step in steps:
            record = self.steps[step]
            if record.status == "ok":
                returns = self.run.signatures[record.tool].returns
                memory.add_result(record.result, returns, record.call)
        return memory

    def _start(self, step: int) -> bool:
        """Call the step's tool if there is room; True if that was refused for good."""
        if len(self._running) >= self.run.policy.max_parallel:
            return False
        draft = self._drafts[step]
        twins = [call for call in self._same(step) if call.status == "running"]
        others = [
            call
            for call in self._past.values()
            if call.tool == draft.tool and call.id not in self._taken and call.has_run is not False
        ]
        if (twins or others) and not self._is_repeatable(step):
            if twins:  # how it ends decides
                return False
            return self._close(
                step,
                "error",
                f"would repeat the effect of {draft.tool}: call {others[0].id} of an earlier plan "
                f"or run sent {shorten(others[0].arguments)}, this step would send "
                f"{shorten(draft.arguments)}; the tool is not known to be safe to repeat.",
            )
        record = CallRecord(
            f"{self.run.number}.{self.index}.{step}",
            self.index,
            step,
            draft.tool,
            draft.arguments,
            "running",
            datetime.now(UTC),
        )
        after = tuple(self.steps[source].call for source in sorted(self._before[step]))
        started = _Started(record, after, [])
        self.run.keep(record)
        self._waiting.discard(step)
        self._running[_spawn(lambda: self.run.make(started), record.id)] = started
        return False

    def _collect(self) -> None:
        """Write down the calls that have ended."""
        for future in [future for future in self._running if future.done()]:
            started = self._running.pop(future)
            error = future.exception()
            if error is None:
                self._end(started, "ok", result=future.result())
            elif isinstance(error, _GivenUp):
                last = started.attempts[-1].error if started.attempts else None
                told = f"; before that: {last}" if last else ""
                halt = self.run.halt()
                self._end(started, halt, error=f"given up, the run was over{told}")
            else:
                self._end(started, "error", error=describe_error(error))

    def _end(
        self, started: _Started, status: str, *, result: Any = None, error: str | None = None
    ) -> None:
        """Keep how a call ended; a call that was given up has no end."""
        attempts = tuple(started.attempts)
        open_end = bool(attempts) and attempts[-1].ended_at is None
        record = replace(
            started.record,
            status=status,
            result=result,
            error=error,
            ended_at=None if open_end else datetime.now(UTC),
            attempts=attempts,
        )
        self.run.keep(record)
        self._finish(
            replace(
                self._drafts[record.step],
                status=status,
                result=result,
                error=error,
                call=record.id,
                started_at=record.started_at,
                ended_at=record.ended_at,
                attempts=attempts,
            )
        )


def _spawn(work: Callable[[], Any], name: str) -> Future[Any]:
    """Work in a thread of its own, in a copy of the caller's context.

    A daemon thread, unlike a pool's: a call that never returns must not keep the process alive.
    """
    future: Future[Any] = Future()
    context = contextvars.copy_context()

    def body() -> None:
        try:
            future.set_result(context.run(work))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=body, name=f"call-{name}", daemon=True).start()
    return future


# --- the summary ----------------------------------------------------------------------------------


def summarise(execution: Execution) -> str:
    """In plain lines: what was asked, what was done, what came of it, what failed and why."""
    steps = execution.steps
    num_ok = sum(step.status == "ok" for step in steps)
    seconds = (execution.ended_at - execution.started_at).total_seconds()
    lines = [f"Asked: {execution.request}"] if execution.request else []
    lines.append(
        f"{execution.status.replace('_', ' ').capitalize()}: {num_ok} of {len(steps)} steps of "
        f"plan {execution.index} are ok, {len(execution.calls)} calls, {seconds:.1f} s."
    )
    for tried in execution.tried:
        if tried.index != execution.index:
            lines.append(f"Plan {tried.index}, {tried.outcome.replace('_', ' ')}: {tried.reason}")
    for step in steps:
        retries = len(step.attempts) - 1
        notes = [f"{retries} retries" if retries > 1 else "1 retry"] if retries > 0 else []
        notes += ["taken from an earlier call"] if step.reused else []
        told = f" ({', '.join(notes)})" if notes else ""
        end = f": {step.error}" if step.error else ""
        lines.append(f"Step {step.step}, {step.tool}: {step.status.replace('_', ' ')}{told}{end}")
        lines.extend(
            f"  corrected {c.parameter}: {shorten(c.was)} became {shorten(c.now)}, as {c.reason}"
            for c in step.corrections
        )
    for position, result in execution.outputs.items():
        lines.append(f"Result of step {position}: {json.dumps(result, ensure_ascii=False)}")
    return "\n".join(lines)
