"""Plans executed: from a request or a plan to calls of real tools, and back into the warehouse."""

import contextvars
import json
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from models.errors import InvalidPlan
from models.execution import Execution, ExecutionPolicy, Perform, execute, summarise
from models.journal import Journal
from models.llm_thoughts import summarise_with
from models.mentions import files_in
from models.search_graph import read_signatures
from models.tog import TogPlanner
from models.toolset import Resource, Signature
from models.types import Plan
from tasks.chat import chat_of
from tasks.embedding import shared_embedder
from tasks.errors import TaskError, WrongUsage
from tasks.graphs import find, learning_data, load_graph, load_searchable, present
from tasks.ingesting import ingest
from tasks.planning import get_planner, make_tog
from tasks.settings import Settings
from tasks.spans import otlp_of
from tasks.toolsets import Ask, open_toolsets

log = logging.getLogger("toolatlas")

MakePerform = Callable[[ExecutionPolicy], Perform]
"""Makes what performs the calls of one run: plainly, or as task runs of Prefect."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is to be executed.

    Attributes:
        id: Of the execution; its folder bears it.
        request: What was asked, "" for a plan by hand.
        plans: Ranked, with arguments.
        resources: That the request names or was given.
        graph_version: The plans' tools are of this graph.
        model_version: Of the planner, if it has one.
        unplanned: Parts of the request for which no tool was found.
    """

    id: str
    request: str
    plans: tuple[Plan, ...]
    resources: tuple[Resource, ...]
    graph_version: str
    model_version: str | None
    unplanned: tuple[str, ...] = ()


def prepare(
    settings: Settings,
    request: str,
    *,
    planner: str = "tog",
    top: int = 3,
    resources: Sequence[str] = (),
    resume: str | None = None,
) -> Prepared:
    """Ranked plans with arguments for a request, or the plans of a file.

    Args:
        settings: Of the home.
        request: What the user asks, or the path of a file with a plan (or with ``plans``, as
            ``plan --json`` prints them).
        planner: By name; a plan without arguments gets them from the words of the request.
        top: Plans at most.
        resources: ``TYPE=VALUE``: what is known besides what the request names.
        resume: Id of an execution that did not end: its plans once more.

    Raises:
        WrongUsage: A resource or the file has another form; no execution of that id.
        InvalidPlan: There is no plan for the request.
    """
    version = find(settings).version
    if resume is not None:
        return _resumed(settings, resume, version)
    given = [_resource(text) for text in resources]
    path = Path(request)
    asked, model = request, None
    unplanned: list[str] = []
    if request.endswith(".json") and path.exists():
        asked, plans = _read_plans(path, signatures_of(settings))
    else:
        tog = _tog(settings)
        plans, model, unplanned = _plan(settings, tog, request, planner, top, given)
        given += [Resource(f.value, f.type) for f in files_in(request, tog.types)]
    given += [
        Resource(argument.value, argument.type)
        for plan in plans
        for step in plan.arguments
        for argument in step
        if isinstance(argument.value, str) and argument.type
    ]
    distinct = {(resource.type, str(resource.value)): resource for resource in given}
    for text in unplanned:
        log.warning("no tool was found for this part of the request, the plan lacks it: %s", text)
    return Prepared(
        id=uuid.uuid4().hex[:12],
        request=asked,
        plans=tuple(plans),
        resources=tuple(distinct.values()),
        graph_version=version,
        model_version=model,
        unplanned=tuple(unplanned),
    )


def _tog(settings: Settings) -> TogPlanner:
    now = present(settings)
    data = learning_data(settings, now)
    graph = load_graph(settings, data.graph.version, now)
    return make_tog(settings, now, data, graph, shared_embedder(settings))


def _plan(
    settings: Settings,
    tog: TogPlanner,
    request: str,
    planner: str,
    top: int,
    given: Sequence[Resource],
) -> tuple[list[Plan], str | None, list[str]]:
    model: str | None = None
    unplanned: list[str] = []
    if planner == "tog":
        taken = tog.decompose(request, given)
        plans, unplanned = tog.plans_of(taken, top), taken.unsolved
    else:
        chosen, _, model = get_planner(settings, planner)
        plans = chosen.plan([request], top=top)[0]
        plans = [plan if plan.arguments else tog.fill(plan, request, given) for plan in plans]
    if not plans:
        raise InvalidPlan(
            f"expected {planner} to find a plan for {request!r}, it found none: no tool of the "
            "catalogue gives what it asks for from what it names. Say which files it is about, "
            "sync the catalogue that has the tool, or plan with --planner gtool."
        )
    return plans, model, unplanned


def _resource(text: str) -> Resource:
    kind, equals, value = text.partition("=")
    if not equals or not kind or not value:
        raise WrongUsage(f"expected --resource TYPE=VALUE, such as image=cat.png, got {text!r}.")
    return Resource(value, kind)


def _read_plans(path: Path, signatures: Mapping[str, Signature]) -> tuple[str, list[Plan]]:
    try:
        value = json.loads(path.read_text())
        entries = value["plans"] if "plans" in value else [value.get("plan", value)]
        plans = [Plan.from_json(entry) for entry in entries]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongUsage(
            f"expected {path} to hold a plan, or plans, as plan --json shows: {error}"
        ) from error
    request = str(value.get("request", ""))
    return request, [_with_keys(plan, signatures) for plan in plans]


def _with_keys(plan: Plan, signatures: Mapping[str, Signature]) -> Plan:
    """Tools by key where a plan by hand names them plainly and one catalogue has the name."""
    by_name: dict[str, list[str]] = {}
    for key in signatures:
        by_name.setdefault(key.split("/", 1)[1], []).append(key)
    keys = []
    for tool in plan.tools:
        found = [tool] if tool in signatures else by_name.get(tool, [tool])
        if len(found) > 1:
            raise WrongUsage(f"expected a tool by namespace/name, got {tool!r}: {found} match.")
        keys.append(found[0])
    return replace(plan, tools=tuple(keys))


def folder_of(settings: Settings, identity: str) -> Path:
    """The folder of an execution.

    Raises:
        WrongUsage: The id is none.
    """
    if not identity.isalnum():
        raise WrongUsage(f"expected the id of an execution, got {identity!r}.")
    return settings.executions / identity


def _resumed(settings: Settings, identity: str, graph_version: str) -> Prepared:
    path = folder_of(settings, identity) / "journal.jsonl"
    if not path.exists():
        raise WrongUsage(f"expected the id of an execution that was begun, got {identity!r}.")
    with Journal.open(path) as journal:
        plans = tuple(Plan.from_json(plan) for plan in journal.plans)
        return Prepared(
            identity, journal.request or "", plans, tuple(journal.resources), graph_version, None
        )


def policy_of(settings: Settings) -> ExecutionPolicy:
    """The limits that the settings say."""
    return ExecutionPolicy(
        max_parallel=settings.max_parallel_calls,
        call_timeout_s=settings.call_timeout_s,
        run_timeout_s=settings.run_timeout_s,
        retries=settings.call_retries,
    )


def dry_run(settings: Settings, prepared: Prepared) -> dict[str, Any]:
    """What would happen: each step with its arguments, and whether its tool may run."""
    steps = []
    with open_toolsets(settings) as tools:
        plan = prepared.plans[0]
        for at, key in enumerate(plan.tools):
            refusal = tools.refusal(key)
            steps.append(
                {
                    "step": at,
                    "tool": key,
                    "arguments": [a.to_json() for a in plan.arguments[at]]
                    if plan.arguments
                    else [],
                    "would_run": refusal is None,
                    "why_not": refusal,
                }
            )
    return {"dry_run": True, **_told(prepared), "plan": plan.to_json(), "steps": steps}


def _told(prepared: Prepared) -> dict[str, Any]:
    return {
        "id": prepared.id,
        "request": prepared.request,
        "graph_version": prepared.graph_version,
        "model_version": prepared.model_version,
        "unplanned": list(prepared.unplanned),
    }


def run(
    settings: Settings,
    prepared: Prepared,
    *,
    make_perform: MakePerform | None = None,
    ask: Ask | None = None,
    cancelled: threading.Event | None = None,
) -> dict[str, Any]:
    """Execute, keep what was done, and store it as a trajectory.

    The journal is on the disk before each call. A run that was killed is gone on with by its id;
    one that is interrupted stores what it has done first.

    Args:
        settings: Limits, tools that may run, where everything lies.
        prepared: Plans and what they know.
        make_perform: Who performs calls; default: this process, plainly.
        ask: Whether a destructive tool may run, where the setting says ask.
        cancelled: Ends the run when it is set.

    Returns:
        ``execute --json``: the execution with ``id``, ``summary``, ``journal``, and ``trajectory``
        (namespace, path, what the ingest made of it).
    """
    signatures = signatures_of(settings)
    folder = folder_of(settings, prepared.id)
    folder.mkdir(parents=True, exist_ok=True)
    policy = policy_of(settings)
    cancelled = cancelled or threading.Event()
    with open_toolsets(settings, ask) as tools, Journal.open(folder / "journal.jsonl") as journal:

        def work() -> Execution:
            return execute(
                prepared.plans,
                tools,
                signatures,
                request=prepared.request,
                resources=prepared.resources,
                policy=policy,
                journal=journal,
                perform=make_perform(policy) if make_perform else None,
                cancelled=cancelled,
            )

        execution, interrupt = _interruptibly(work, cancelled)
    stored = store(settings, execution, prepared.id)
    if interrupt is not None:
        log.warning("execution %s was interrupted; go on with --resume %s", *[prepared.id] * 2)
        raise interrupt
    return {
        **_told(prepared),
        **execution.to_json(),
        "summary": _summary(settings, execution),
        "journal": str(folder / "journal.jsonl"),
        "trajectory": stored,
    }


def _interruptibly(
    work: Callable[[], Execution], cancelled: threading.Event
) -> tuple[Execution, BaseException | None]:
    """What the work gives; Ctrl-C or a stopped run cancels it first, and comes back beside it."""
    with ThreadPoolExecutor(1, thread_name_prefix="execution") as pool:
        future = pool.submit(contextvars.copy_context().run, work)
        try:
            wait([future])
        except BaseException as interrupt:
            cancelled.set()
            return future.result(), interrupt
        return future.result(), None


def _summary(settings: Settings, execution: Execution) -> str:
    """What was done, in a language model's words where an endpoint is set, else by the template."""
    told = summarise(execution)
    if not settings.chat_url:
        return told
    try:
        return summarise_with(chat_of(settings), execution.request, told)
    except TaskError as error:
        log.warning("the summary is the template's: %s", error)
        return told


def signatures_of(settings: Settings) -> dict[str, Signature]:
    """What the tools take and return that a planner may offer now."""
    return read_signatures(
        load_searchable(settings, find(settings).version, present(settings)).nodes
    )


def store(settings: Settings, execution: Execution, identity: str) -> dict[str, Any] | None:
    """Ingest what was done as a trajectory of the tools' namespace; None where nothing ran.

    A request whose plan calls tools of several namespaces is stored under the one with most calls;
    calls of the others are mentions of tools that this source does not list.
    """
    ran = [call.tool.split("/", 1)[0] for call in execution.calls if call.attempts]
    if not ran:
        return None
    namespace = max(sorted(set(ran)), key=ran.count)
    path = folder_of(settings, identity) / "trajectory.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(otlp_of(execution, identity), ensure_ascii=False))
    temporary.replace(path)
    totals = ingest(settings, [str(path)], source=namespace)["totals"]
    return {
        "namespace": namespace,
        "path": str(path),
        "trajectories": totals["trajectories"],
        "calls": totals["calls"],
    }
