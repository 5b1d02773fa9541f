"""The steps of the line as Prefect tasks: open, call, log one line, close.

None of them caches and none retries: each is safe to run twice, and does its work once.
"""

import json
import logging
from collections.abc import Callable
from typing import Any

from prefect import State, task
from prefect.cache_policies import NO_CACHE

from models.execution import Call, ExecutionPolicy, Perform, may_retry, waits_of
from tasks import (
    artifacts,
    catalogue,
    evaluation,
    executing,
    execution_pages,
    graphs,
    handover,
    ingesting,
    promotion,
    training,
    watching,
)
from tasks.locks import alone
from tasks.progress import Progress
from tasks.registry import Registry
from tasks.settings import Settings

log = logging.getLogger("toolatlas")
log.setLevel(logging.INFO)  # a flow run shows what its steps say


def _ingest_name(parameters: dict[str, Any]) -> str:
    names = [path.rstrip("/").rsplit("/", 1)[-1] for path in parameters["paths"]]
    return f"ingest {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"


def _diff_name(parameters: dict[str, Any]) -> str:
    graph = parameters["graph"]
    if not graph["new"]:
        return f"graph {graph['version'][:12]} is unchanged"
    return f"diff graph {(graph['parent'] or 'none')[:12]} to {graph['version'][:12]}"


def _freeze_name(parameters: dict[str, Any]) -> str:
    return f"freeze suites that {'lack rows' if parameters['refresh'] else 'are missing'}"


def _promote_name(parameters: dict[str, Any]) -> str:
    report = parameters["report"]
    if not report["new"]:
        return "who is champion: nothing new to decide"
    return f"act on decision {report['decision']}, challenger {report['challenger'] or 'none'}"


@task(name="ingest", task_run_name=_ingest_name)  # type: ignore[arg-type]
def ingest(settings: Settings, paths: list[str], source: str | None = None) -> dict[str, Any]:
    """Store what the paths hold; counts per file and in total."""
    with alone(settings, "ingest"), Progress("ingest") as progress:
        result = ingesting.ingest(settings, paths, source=source, progress=progress.records)
    watching.publish("ingest", lambda: artifacts.ingest(result))
    return result


@task(name="sync catalogue", task_run_name="sync catalogue {path}")
def sync_catalogue(settings: Settings, path: str, source: str | None = None) -> dict[str, Any]:
    """Make a catalogue what its file says; what was added, removed, changed."""
    return catalogue.sync(settings, path, source)


@task(name="build graph", task_run_name="build graph of the present data")
def build_graph(settings: Settings) -> dict[str, Any]:
    """Build, export and version the tool graph of the present data."""
    graph = graphs.build(settings)
    watching.name_graph(lambda: str(graph["version"]))
    return graph


@task(name="diff graph", task_run_name=_diff_name)  # type: ignore[arg-type]
def diff_graph(settings: Settings, graph: dict[str, Any]) -> dict[str, Any] | None:
    """What changed since the version before, or None when the graph is the same."""
    from tasks.graph_files import picture_of_changes

    diff = None
    if graph["new"]:
        diff = graphs.diff_alone(settings, graph["parent"], graph["version"])
    watching.publish("graph", lambda: artifacts.graph(graph, diff))
    if diff:
        watching.show_image("graph-changes", lambda: picture_of_changes(settings, diff))
    return diff


@task(name="freeze suites", task_run_name=_freeze_name)  # type: ignore[arg-type]
def freeze_suites(settings: Settings, refresh: bool = False) -> list[dict[str, Any]]:
    """Make the regression sets that are missing; with refresh, new versions of the others."""
    return [suite.to_json() for suite in graphs.freeze(settings, refresh=refresh)]


@task(name="train planner", task_run_name="train planner ({mode})")
def train_planner(settings: Settings, mode: training.TrainMode = "auto") -> dict[str, Any]:
    """Train, log and register GTool when something changed."""
    watching.name_graph(lambda: graphs.find(settings).version)
    bar = watching.Bar("training-progress")
    with alone(settings, "train"), Progress("train", bar) as progress:
        outcome = training.train(settings, mode, progress=progress.say).to_json()
    if not outcome["trained"]:
        log.info("not trained: %s", outcome["train_reason"])
    watching.publish(
        "training",
        lambda: artifacts.training(outcome, pages(settings, outcome["version"])),
    )
    return outcome


def pages(settings: Settings, version: str | None) -> dict[str, str | None] | None:
    """Where a version is in MLflow."""
    return Registry(settings).pages(version) if version else None


@task(name="train elsewhere", task_run_name="train on another work pool")
def train_elsewhere(settings: Settings, mode: training.TrainMode) -> dict[str, Any]:
    """Let the work pool of the setting ``train_pool`` train; wait for the end."""
    return handover.train_on_pool(settings, mode)


@task(name="run regressions", task_run_name="measure planners on all suites")
def run_regressions(settings: Settings) -> dict[str, Any]:
    """Champion, challenger and baselines on every suite, and the decision."""
    watching.name_graph(lambda: graphs.find(settings).version)
    bar = watching.Bar("regression-progress")
    with Progress("regress", bar) as progress:
        report = evaluation.regress(settings, progress=progress.say)
    when = "decision" if report["new"] else "nothing changed since the last decision,"
    log.info("%s %s: %s", when, report["decision"], report["reasons"][0])
    watching.publish("planners", lambda: artifacts.planners(report))
    return report


@task(name="promote planner", task_run_name=_promote_name)  # type: ignore[arg-type]
def promote_planner(settings: Settings, report: dict[str, Any]) -> dict[str, Any]:
    """Move the champion alias when the report says so."""
    result = promotion.promote(settings, report)
    watching.publish(
        "decision",
        lambda: artifacts.decision(report, result),
    )
    return result


@task(name="plan", task_run_name="plan with {planner}")
def prepare_execution(
    settings: Settings,
    request: str,
    *,
    planner: str,
    top: int,
    resources: list[str],
    resume: str | None,
) -> executing.Prepared:
    """Ranked plans with arguments for a request, or those of a file or of a run that was killed."""
    prepared = executing.prepare(
        settings, request, planner=planner, top=top, resources=resources, resume=resume
    )
    log.info("execution %s: %s", prepared.id, " -> ".join(prepared.plans[0].tools))
    watching.publish("plan", lambda: execution_pages.plan(prepared.request, prepared.plans))
    return prepared


def perform_calls(policy: ExecutionPolicy) -> Perform:
    """Performs calls as task runs of the flow run: named, retried by Prefect, the graph drawn.

    A task run shows what went in and what came out, waits for those whose results it takes, and is
    tried again only where that makes sense and does no harm.
    """
    states: dict[str, State[Any]] = {}

    def perform(call: Call, attempt: Callable[[], Any]) -> Any:
        def may_go_on(task: Any, run: Any, state: State[Any]) -> bool:
            del task, run
            error = state.result(raise_on_failure=False)
            return isinstance(error, BaseException) and may_retry(error, call.traits)

        @task(
            name=call.key,
            task_run_name=f"{call.step} {call.key.split('/', 1)[1]}",
            retries=policy.retries,
            retry_delay_seconds=waits_of(policy),
            retry_condition_fn=may_go_on,
            cache_policy=NO_CACHE,
        )
        def call_tool(arguments: dict[str, Any]) -> Any:
            log.info("%s %s", call.key, json.dumps(arguments, ensure_ascii=False, default=str))
            result = attempt()
            log.info("gave %s", json.dumps(result, ensure_ascii=False, default=str)[:2000])
            watching.publish("call", lambda: execution_pages.call(call.key, arguments, result))
            return result

        before = [states[one] for one in call.after if one in states]
        state = call_tool(dict(call.arguments), return_state=True, wait_for=before)
        states[call.id] = state
        return state.result()

    return perform


def tell_execution(result: dict[str, Any]) -> None:
    """The summary of an execution: a page of its run, its tags and the last line of its log."""
    with watching.harmless("summary of the execution"):
        log.info("%s", result["summary"].splitlines()[0])
        watching.tag_run(f"execution:{result['id']}", f"status:{result['status']}")
    watching.publish("execution", lambda: execution_pages.execution(result))


def tell_night(settings: Settings, result: dict[str, Any]) -> None:
    """The summary of a night: the last line of its log, its tags, and a page of its run."""
    with watching.harmless("summary of the night"):
        log.info("%s", artifacts.headline(result))
        watching.tag_run(*artifacts.tags(result))
    watching.publish(
        "night",
        lambda: artifacts.night(
            result,
            watching.run_name(),
            pages(settings, result["version"] or result["promotion"]["champion"]),
        ),
    )
