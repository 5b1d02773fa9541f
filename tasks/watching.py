"""What a Prefect run shows of itself: its name, its artifacts, progress bars and its address.

Outside a run all of it does nothing. A page that cannot be written is a warning in the log, never
the end of a night.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect import get_client
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.client.schemas.actions import ArtifactCreate
from prefect.context import FlowRunContext, TaskRunContext
from prefect.runtime import flow_run as running
from prefect.utilities.urls import url_for

from tasks import artifacts

log = logging.getLogger("toolatlas")

_EVERY_S = 3.0
_GRAPH = ", graph "


@contextlib.contextmanager
def harmless(what: str) -> Iterator[None]:
    """A failure inside becomes a warning with its reason."""
    try:
        yield
    except Exception as error:
        log.warning("%s failed, the run goes on: %s: %s", what, type(error).__name__, error)


def in_run() -> bool:
    """Whether this code runs inside a Prefect run."""
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None


def dated(flow_name: str) -> Callable[[], str]:
    """Names runs by flow and time (UTC): ``nightly 2026-11-30 02:00``."""

    def name() -> str:
        start = running.scheduled_start_time or datetime.now(UTC)
        return f"{flow_name} {start.astimezone(UTC):%Y-%m-%d %H:%M}"

    return name


def name_graph(version: Callable[[], str]) -> None:
    """Add the graph version to the name of the flow run, once it is known."""
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None:
        return
    with harmless("naming the run"):
        name = f"{run.name.split(_GRAPH)[0]}{_GRAPH}{version()[:12]}"
        if name != run.name:
            with get_client(sync_client=True) as client:
                client.update_flow_run(run.id, name=name)
            run.name = name


def tag_run(*tags: str) -> None:
    """Add tags to the flow run: lists of runs show them, and can be filtered by them."""
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None:
        return
    with harmless("tagging the run"), get_client(sync_client=True) as client:
        client.update_flow_run(run.id, tags=[*run.tags, *tags])


def run_name() -> str:
    """The name of the run, or of what is done outside one."""
    context = FlowRunContext.get()
    return context.flow_run.name if context and context.flow_run else "toolatlas"


def run_tags() -> dict[str, str]:
    """What an MLflow run is told of the Prefect run that made it; empty outside a run.

    ``prefect.flow_run_url`` is there when Prefect is a server with pages.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    if run is None:
        return {}
    url = url_for("flow-run", run.id)
    tags = {
        "prefect.flow_run_id": str(run.id),
        "prefect.flow_run_name": run.name,
        "mlflow.source.name": run.name,  # the column Source in lists of runs
        "mlflow.source.type": "LOCAL",
    }
    return {**tags, "prefect.flow_run_url": url} if url else tags


def publish(key: str, render: Callable[[], artifacts.Page]) -> None:
    """Show an artifact on the page of the run, under a key that has a history."""
    if in_run():
        with harmless(f"artifact {key}"):
            page = render()
            create_markdown_artifact(markdown=page.text, key=key, description=page.line)


def show_image(key: str, draw: Callable[[], str]) -> None:
    """Show an image, given as a data: address, on the page of the run."""
    if in_run():
        with harmless(f"artifact {key}"):
            create_image_artifact(image_url=draw(), key=key, description="What changed")


def tell_failure(flow: Any, flow_run: Any, state: Any) -> None:
    """A flow's hook on failure: the summary says what failed."""
    del flow
    with harmless("artifact night"), get_client(sync_client=True) as client:
        page = artifacts.failed_night(flow_run.name, state.message or state.name or "")
        client.create_artifact(
            ArtifactCreate(
                type="markdown",
                key="night",
                description=page.line,
                data=page.text,
                flow_run_id=flow_run.id,
            )
        )


class Bar:
    """A progress bar on the page of the run, written every few seconds at most."""

    def __init__(self, key: str):
        """Show nothing yet: a step with nothing to do has no bar."""
        self._key = key
        self._id: UUID | None = None
        self._last = 0.0
        self._broken = not in_run()

    def show(self, share: float, text: str) -> None:
        """How far it is, from 0 to 1, and where."""
        if not self._broken and (self._id is None or time.monotonic() - self._last >= _EVERY_S):
            self._write(share, text)

    def finish(self, text: str) -> None:
        """All of it is done."""
        if self._id is not None and not self._broken:
            self._write(1.0, text)

    def _write(self, share: float, text: str) -> None:
        self._broken = True  # until this one worked: one warning is enough
        percent = round(100 * min(max(share, 0.0), 1.0), 1)
        with harmless(f"progress bar {self._key}"):
            if self._id is None:
                made = create_progress_artifact(percent, key=self._key, description=text)
                self._id = made if isinstance(made, UUID) else None
            else:
                update_progress_artifact(self._id, percent, description=text)
            self._broken = False
        self._last = time.monotonic()
