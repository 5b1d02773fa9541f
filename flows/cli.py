"""The command line: every command is one call of a task or a flow, shown to a person or as JSON.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 (only ``regress`` and ``promote``) the verdict is not
promote. With ``--json`` one JSON object goes to standard output; logs go to standard error.
"""

import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, cast

import typer
from pydantic import ValidationError
from rich.logging import RichHandler

from flows import show
from models.errors import ModelError
from tasks.errors import TaskError, WrongUsage
from tasks.settings import Settings, faults, prepare_environment, read_settings
from warehouse.errors import WarehouseError

app = typer.Typer(
    help="Keeps the tool graph of LLM agents current, and plans with it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
quarantine = typer.Typer(help="What could not be used.", no_args_is_help=True)
catalogue = typer.Typer(help="The tools known at a time.", no_args_is_help=True)
graph = typer.Typer(help="Versions of the tool graph.", no_args_is_help=True)
suite = typer.Typer(help="The frozen regression sets.", no_args_is_help=True)
app.add_typer(quarantine, name="quarantine")
app.add_typer(catalogue, name="catalogue")
app.add_typer(graph, name="graph")
app.add_typer(suite, name="suite")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Source = Annotated[
    str | None, typer.Option(help="Name of the source; default: the folder's or file's name.")
]
Train = Annotated[str, typer.Option(help="auto, always or never.")]
Division = Annotated[
    str | None,
    typer.Option(
        help="own, by-sequence, by-conversation or by-time, in a home of its own; default: the "
        "nightly one."
    ),
]

NOT_PROMOTED = 3
_OUTSIDE = ("duckdb", "_duckdb", "httpx", "mlflow", "prefect", "sqlalchemy")
"""Whose errors end in one sentence: the world around us. TOOLATLAS_TRACEBACK=1 shows all of it."""


@contextlib.contextmanager
def _session(subfolder: str | None = None) -> Iterator[Settings]:
    """Settings read, logs on standard error, our own errors as one sentence and exit 1."""
    try:
        settings = read_settings()
        if subfolder:
            settings = settings.with_home(settings.home / subfolder)
        prepare_environment(settings)
        _log_to_stderr()
        yield settings
    except typer.Exit:
        raise
    except ValidationError as error:
        for sentence in faults(error):
            typer.echo(f"Error: {sentence}", err=True)
        raise typer.Exit(2) from error
    except WrongUsage as error:
        _fail(str(error), error, code=2)
    except (WarehouseError, ModelError, TaskError, ValueError, RuntimeError, OSError) as error:
        _fail(str(error), error)
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _OUTSIDE:
            raise
        _fail(f"{type(error).__name__}: {str(error).splitlines()[0]}", error)


@contextlib.contextmanager
def _flows(subfolder: str | None = None) -> Iterator[Settings]:
    """A session whose flows have a Prefect server, once where torchrun starts several."""
    with _session(subfolder) as settings, _leading(settings):
        from tasks.orchestration import connect

        connect(settings)
        yield settings


def _leave_the_world() -> None:
    """No server, store, worker or suite of the real home: what follows has its own."""
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL"):
        os.environ.pop(name, None)
    for name in ("MLFLOW_URI", "TRAIN_POOL", "PRIMARY_SUITE"):
        os.environ[f"TOOLATLAS_{name}"] = ""


@contextlib.contextmanager
def _divided(split: str | None, session: Any, *, refresh: bool) -> Iterator[Settings]:
    """A session in the home of a split, which holds what the real home does; without, as ever."""
    if split is None:
        with session() as settings:
            yield settings
        return
    from tasks.splits import prepare, split_named

    try:
        chosen = split_named(split)
    except WrongUsage as error:
        _fail(str(error), error, code=2)
    _leave_the_world()
    with session(subfolder=f"splits/{chosen}") as settings:
        prepare(settings, chosen, refresh=refresh)
        yield settings


@contextlib.contextmanager
def _leading(settings: Settings) -> Iterator[None]:
    """The first process of a torchrun goes on; the others train along, and the command ends."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        yield
        return
    from tasks.training import together

    with together(settings) as leads:
        if not leads:
            raise typer.Exit
        yield


def _fail(message: str, cause: BaseException | None = None, code: int = 1) -> NoReturn:
    if os.environ.get("TOOLATLAS_TRACEBACK") and cause:
        raise cause
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(code) from cause


def _log_to_stderr() -> None:
    from rich.console import Console

    log = logging.getLogger("toolatlas")
    console = Console(stderr=True)
    if not log.handlers and console.is_terminal:
        handler: logging.Handler = RichHandler(
            console=console, show_path=False, log_time_format="%H:%M:%S"
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
        log.addHandler(handler)
    elif not log.handlers:
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
    log.setLevel(logging.INFO)


class _Stderr(logging.StreamHandler[Any]):
    """Writes to standard error as it is now, not as it was when the handler was made."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


def _mode(train: str) -> Literal["auto", "always", "never"]:
    if train not in ("auto", "always", "never"):
        _fail(f"expected --train auto, always or never, got {train!r}.", code=2)
    return cast(Literal["auto", "always", "never"], train)


def _print(value: Any, as_json: bool, render: Any) -> None:
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False, default=str))
    else:
        render(value)


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Run the nightly job twice on real trajectories: a first night, and one with new tools."""
    _leave_the_world()
    os.environ.setdefault("TOOLATLAS_TRAIN_LLM_READOUT", "never")  # done in minutes
    with _flows(subfolder="demo") as home:
        from flows.demo import run_demo

        _print(run_demo(home), as_json, show.demo)


@app.command()
def ingest(
    paths: Annotated[
        list[str], typer.Argument(help="Files, folders, globs, mlflow:EXPERIMENT, or -.")
    ],
    format: Annotated[str, typer.Option(help="A format's name; auto tells by content.")] = "auto",
    source: Source = None,
    drop_payloads: Annotated[
        bool | None,
        typer.Option("--drop-payloads/--keep-payloads", help="Keep no arguments and results."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Store trajectories and tools; quarantine what cannot be used."""
    with _session() as settings:
        from tasks.ingesting import ingest as run
        from tasks.progress import Progress

        with Progress("ingest") as progress:
            result = run(
                settings,
                paths,
                format=format,
                source=source,
                drop_payloads=drop_payloads,
                progress=progress.records,
            )
        _print(result, as_json, show.ingest)
        if result["refused"]:
            _fail(" ".join(result["refused"]))


@app.command()
def forget(
    trajectory: Annotated[
        str | None, typer.Argument(metavar="TRAJECTORY", help="Its id, or the beginning of ours.")
    ] = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
    """Remove a trajectory, or a whole source, with its evidence and quarantined text."""
    with _session() as settings:
        from tasks.forgetting import forget as run

        _print(run(settings, trajectory, source), as_json, show.record)


@quarantine.command("list")
def quarantine_list(as_json: AsJson = False) -> None:
    """What is in quarantine, and why."""
    with _session() as settings:
        from tasks.ingesting import quarantined

        _print({"quarantined": quarantined(settings)}, as_json, show.quarantine)


@quarantine.command("show")
def quarantine_show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="Beginning of the record's id.")],
    as_json: AsJson = False,
) -> None:
    """One record with its reason and raw text."""
    with _session() as settings:
        from tasks.ingesting import show_record

        _print(show_record(settings, identity), as_json, show.record)


@quarantine.command("retry")
def quarantine_retry(as_json: AsJson = False) -> None:
    """Read every quarantined record again."""
    with _session() as settings:
        from tasks.ingesting import retry

        _print(retry(settings), as_json, show.record)


@catalogue.command("sync")
def catalogue_sync(
    source: Annotated[
        str,
        typer.Argument(
            help="A file (tools.jsonl, tool_desc, OpenAPI, saved tools/list), mcp:COMMAND, an "
            "http(s) address (MCP or OpenAPI), or python:MODULE."
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "--source", help="Default: the server's or file's name."),
    ] = None,
    force: Annotated[
        bool, typer.Option(help="However many tools the source no longer lists.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a catalogue what its source says: tools it lacks are removed."""
    with _session() as settings:
        from tasks.catalogue import sync

        _print(sync(settings, source, namespace, force=force), as_json, show.sync)


@app.command()
def execute(
    request: Annotated[
        str, typer.Argument(metavar="REQUEST|PLAN", help="A request, or a .json file with plans.")
    ] = "",
    planner: Annotated[str, typer.Option(help="Who plans a request.")] = "tog",
    top: Annotated[int, typer.Option(min=1, help="Ranked plans to fall back on.")] = 3,
    resource: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=VALUE", help="Known besides the request.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with an execution that was killed.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it; call no tool.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a plan's calls, in parallel where it allows, and store them as a trajectory."""
    if bool(request) == bool(resume):
        _fail("expected a request or plan to execute, or --resume ID.", code=2)
    if dry_run:
        with _session() as settings:
            from tasks.executing import dry_run as look
            from tasks.executing import prepare

            prepared = prepare(
                settings, request, planner=planner, top=top, resources=resource or (), resume=resume
            )
            _print(look(settings, prepared), as_json, show.dry_run)
        return
    with _flows():
        from flows.execute_plan import execute_plan

        result = execute_plan(request, planner, top, resource, resume)
        _print(result, as_json, show.execution)
        if result["status"] != "done":
            raise typer.Exit(1)


_STATE = "NAMESPACE, NAMESPACE@WHEN, WHEN (latest, previous, delivery, UTC time) or a file."


@catalogue.command("diff")
def catalogue_diff(
    old: Annotated[str | None, typer.Argument(metavar="A", help=_STATE)] = None,
    new: Annotated[str | None, typer.Argument(metavar="B", help=_STATE)] = None,
    as_json: AsJson = False,
) -> None:
    """What came, went and changed from A to B, and what was likely renamed."""
    with _session() as settings:
        from tasks.catalogue import diff

        _print(diff(settings, old, new), as_json, show.catalogue_diff)


@catalogue.command("rename")
def catalogue_rename(
    old: Annotated[str, typer.Argument(help="Old name, or namespace/name.")],
    new: Annotated[str, typer.Argument(help="New name; the reverse takes a rename back.")],
    merge: Annotated[bool, typer.Option(help="Where both are tools of the catalogue.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let a tool's old name stand for its new one in calls, gold plans and models."""
    with _session() as settings:
        from tasks.catalogue import rename

        _print(rename(settings, old, new, merge=merge), as_json, show.renamed)


@catalogue.command("deprecate")
def catalogue_deprecate(
    name: Annotated[str, typer.Argument(help="Name of the tool, or namespace/name.")],
    undo: Annotated[bool, typer.Option("--undo", help="Put it back into use.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a tool out of use: its history stays, and no planner offers it."""
    with _session() as settings:
        from tasks.catalogue import deprecate

        _print(deprecate(settings, name, undo=undo), as_json, show.record)


@catalogue.command("list")
def catalogue_list(as_json: AsJson = False) -> None:
    """Every tool with its status and calls, unlisted ones with their nearest names."""
    with _session() as settings:
        from tasks.catalogue import tools

        _print(tools(settings), as_json, show.tools)


_VERSION = "latest, id prefix, UTC time, or mark:TIME (of the data)."


@graph.command("build")
def graph_build(
    release: Annotated[
        bool, typer.Option("--release", help="Let it be the latest again after a rollback.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build the graph version of the present data."""
    with _session() as settings:
        from tasks.graphs import build

        _print(build(settings, released=release), as_json, show.graph)


@graph.command("list")
def graph_list(as_json: AsJson = False) -> None:
    """The versions, newest first."""
    with _session() as settings:
        from tasks.graphs import versions

        _print({"versions": versions(settings)}, as_json, show.graphs)


@graph.command("show")
def graph_show(
    version: Annotated[str, typer.Argument(metavar="V", help=_VERSION)],
    as_json: AsJson = False,
) -> None:
    """One version in numbers."""
    with _session() as settings:
        from flows import show_graph
        from tasks.graphs import show as run

        _print(run(settings, version), as_json, show_graph.version)


@graph.command("diff")
def graph_diff(
    old: Annotated[str, typer.Argument(metavar="A", help=_VERSION)],
    new: Annotated[str, typer.Argument(metavar="B", help=_VERSION)],
    as_json: AsJson = False,
) -> None:
    """What came, went and changed from A to B."""
    with _session() as settings:
        from flows import show_graph
        from tasks.graphs import diff

        _print(diff(settings, old, new), as_json, show_graph.changes)


@graph.command("why")
def graph_why(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Tool, or namespace/tool.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Tool, or namespace/tool.")],
    version: Annotated[str, typer.Option("--version", metavar="V", help=_VERSION)] = "latest",
    as_json: AsJson = False,
) -> None:
    """Why an edge is there: kinds, counts by outcome, days, weight, trajectories."""
    with _session() as settings:
        from flows import show_graph
        from tasks.graphs import why

        _print(why(settings, source, target, version), as_json, show_graph.why)


@graph.command("export")
def graph_export(
    version: Annotated[str, typer.Argument(metavar="V", help=_VERSION)] = "latest",
    format: Annotated[
        str, typer.Option(help="Some of parquet, graphml, html, json; a comma between them.")
    ] = "html",
    out: Annotated[Path, typer.Option(help="Folder of the files.")] = Path(),
    since: Annotated[
        str | None, typer.Option(metavar="A", help="html: colour what changed since version A.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a version to files: tables, graph formats, a page to look at."""
    with _session() as settings:
        from tasks.graph_files import export

        formats = [kind.strip() for kind in format.split(",") if kind.strip()]
        _print(export(settings, version, formats, out, since=since), as_json, show.record)


@graph.command("rollback")
def graph_rollback(
    version: Annotated[str, typer.Argument(metavar="V", help=_VERSION)],
    as_json: AsJson = False,
) -> None:
    """Make an earlier version the latest, until graph build --release."""
    with _session() as settings:
        from flows import show_graph
        from tasks.graphs import rollback

        _print(rollback(settings, version), as_json, show_graph.rolled_back)


@graph.command("collect")
def graph_collect(
    keep: Annotated[int, typer.Option(min=1, help="How many of the newest builds stay.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Remove old versions that no model and no report refers to."""
    with _session() as settings:
        from tasks.graphs import collect

        _print(collect(settings, keep), as_json, show.record)


@suite.command("list")
def suite_list(as_json: AsJson = False) -> None:
    """The suites, the largest first."""
    with _session() as settings:
        from tasks.graphs import suites

        _print({"suites": suites(settings)}, as_json, show.suites)


@suite.command("show")
def suite_show(
    name: Annotated[str, typer.Argument(help="Name of the suite.")], as_json: AsJson = False
) -> None:
    """One suite with its requests and gold plans."""
    with _session() as settings:
        from tasks.graphs import show_suite

        _print(show_suite(settings, name), as_json, show.suite)


@suite.command("refresh")
def suite_refresh(
    names: Annotated[
        list[str] | None, typer.Argument(help="Suites; all when none is named.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a new version of suites that lack held-out rows which came later."""
    with _session() as settings:
        from tasks.graphs import freeze

        made = freeze(settings, refresh=True, names=tuple(names or ()))
        _print({"suites": [suite.to_json() for suite in made]}, as_json, show.suites)


@app.command()
def train(
    mode: Annotated[str, typer.Option("--train", help="auto, always or never.")] = "auto",
    split: Division = None,
    as_json: AsJson = False,
) -> None:
    """Train GTool on the latest graph version, log and register it."""
    chosen = _mode(mode)
    with _divided(split, _flows, refresh=True):
        from flows.train_planner import train_planner

        result = {**train_planner(chosen), "split": split or "default"}
        _print(result, as_json, show.trained)


@app.command()
def evaluate(
    planner: Annotated[
        str, typer.Option(help="gtool, gtool@7, retrieval, nearest, popularity, sgc.")
    ],
    suite: Annotated[
        str | None, typer.Option(help="Name of the suite; default: the primary one.")
    ] = None,
    metrics: Annotated[str, typer.Option(help="strict, gtool, gnn4plan or taskbench.")] = "strict",
    split: Division = None,
    as_json: AsJson = False,
) -> None:
    """Measure one planner on one suite."""
    with _divided(split, _session, refresh=False) as settings:
        from tasks.evaluation import CONVENTIONS, evaluate_one

        if metrics not in CONVENTIONS:
            _fail(f"expected --metrics {', '.join(CONVENTIONS)}, got {metrics!r}.", code=2)
        result = evaluate_one(
            settings,
            planner,
            suite,
            metrics,  # type: ignore[arg-type]
            newest=split is not None,
        )
        _print(result, as_json, show.evaluation)


@app.command()
def regress(as_json: AsJson = False) -> None:
    """Measure champion, challenger and baselines on every suite, and decide."""
    with _flows():
        from flows.run_regressions import run_regressions

        report = run_regressions()
        _print(report, as_json, show.report)
    if report["decision"] != "promote":
        raise typer.Exit(NOT_PROMOTED)


@app.command()
def promote(
    version: Annotated[str, typer.Argument(metavar="V", help="Number of a registered version.")],
    force: Annotated[bool, typer.Option(help="Whatever the gate says.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a version champion when the gate agrees."""
    with _session() as settings:
        if settings.prefect_api:
            from flows.promote_planner import promote_planner

            result = promote_planner(version, force)
        else:
            from tasks.promotion import promote_version

            result = promote_version(settings, version, force=force)
        _print(result, as_json, show.promotion)
    if not result["promoted"] and result["report"]:
        raise typer.Exit(NOT_PROMOTED)


@app.command()
def demote(as_json: AsJson = False) -> None:
    """Give the champion's place back to the one before it."""
    with _session() as settings:
        from tasks.promotion import demote as run

        _print(run(settings), as_json, show.record)


@app.command()
def plan(
    request: Annotated[str, typer.Argument(help="What the user asks.")],
    planner: Annotated[
        str, typer.Option(help="gtool, gtool@7, retrieval, nearest, popularity, sgc.")
    ] = "gtool",
    top: Annotated[int, typer.Option(min=1, max=50, help="How many plans.")] = 3,
    as_json: AsJson = False,
) -> None:
    """Ranked plans for a request."""
    if not request.strip():
        _fail("expected a request, got an empty text.", code=2)
    with _session() as settings:
        from tasks.planning import plan as run

        _print(run(settings, request, planner=planner, top=top), as_json, show.plans)


@app.command()
def nightly(
    train: Train = "auto",
    refresh_suites: Annotated[
        bool, typer.Option(help="New versions of suites that lack later held-out rows.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the whole line once: ingest, graph, training, regression, decision."""
    mode = _mode(train)
    with _flows():
        from flows.nightly import nightly as run

        started = time.monotonic()
        result = run(train=mode, refresh_suites=refresh_suites)
        result["seconds"] = round(time.monotonic() - started, 1)
        _print(result, as_json, show.night)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Counts, versions, champion, last report."""
    with _session() as settings:
        from tasks.status import status as run

        _print(run(settings), as_json, show.status)


if __name__ == "__main__":
    app()
