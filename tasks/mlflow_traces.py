"""Traces of an MLflow experiment as a file for ``ingest``, one ``Trace.to_json()`` a line."""

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import mlflow
from mlflow.entities import Trace, TraceData
from mlflow.exceptions import MlflowException, MlflowNotImplementedException

from warehouse.errors import UnreadableInput

log = logging.getLogger("toolatlas")

_PAGE = 200
"""Traces of one page of the list, which comes without spans."""
_AT_ONCE = 8
"""Small traces that are fetched at the same time."""
_LARGE = 4 << 20
"""Bytes from which a trace is fetched alone, so that memory follows the largest trace."""
_SHOWN = 20
"""Experiments that a message names."""


def export_traces(
    tracking_uri: str,
    experiment: str,
    target: Path,
    *,
    after: datetime | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> int:
    """Write the traces of an experiment to a JSON-lines file, oldest first.

    The file appears when it is complete. A trace that is still running is written as it is now.

    Args:
        tracking_uri: An MLflow server or ``sqlite:///...``.
        experiment: Its name or its id.
        target: The file to write.
        after: Only traces that began at this time (UTC where it has no zone) or later.
        progress: Told the experiment and the traces written so far, after each page.

    Returns:
        How many traces were written.

    Raises:
        UnreadableInput: There is no such experiment.
    """
    logging.getLogger("alembic").setLevel(logging.ERROR)
    client = mlflow.MlflowClient(tracking_uri)
    location = _experiment_id(client, tracking_uri, experiment)
    number = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("wb", dir=target.parent, prefix=target.name, delete=False) as out:
        part = Path(out.name)
        try:
            for page in _pages(client, location, after):
                for text in _texts(client, page):
                    out.write(text.encode(errors="replace") + b"\n")
                    number += 1
                if progress:
                    progress(experiment, number)
            out.flush()
            part.chmod(0o644)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return number


def _experiment_id(client: mlflow.MlflowClient, tracking_uri: str, experiment: str) -> str:
    """The id of an experiment that is named by its name or its id; a name comes first."""
    found = client.get_experiment_by_name(experiment)
    if found is None and experiment.isdecimal():
        try:
            found = client.get_experiment(experiment)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
    if found is not None:
        return str(found.experiment_id)
    known = client.search_experiments(max_results=_SHOWN + 1)
    names = [f"{e.name} ({e.experiment_id})" for e in known]
    more = " and more" if len(names) > _SHOWN else ""
    raise UnreadableInput(
        f"expected the name or id of an experiment on {_without_password(tracking_uri)}, got "
        f"{experiment!r}; there are: {', '.join(names[:_SHOWN]) or 'none'}{more}."
    )


def _without_password(uri: str) -> str:
    head, at, tail = uri.rpartition("@")
    return f"{head.partition('://')[0]}://{tail}" if at else uri


def _pages(
    client: mlflow.MlflowClient, location: str, after: datetime | None
) -> Iterator[list[Any]]:
    """The traces of an experiment without their spans, page by page."""
    wanted = None
    if after is not None:
        moment = after if after.tzinfo is not None else after.replace(tzinfo=UTC)
        wanted = f"timestamp_ms >= {int(moment.timestamp() * 1000)}"
    token = None
    while True:
        page = client.search_traces(
            locations=[location],
            filter_string=wanted,
            max_results=_PAGE,
            order_by=["timestamp_ms ASC"],
            page_token=token,
            include_spans=False,
        )
        yield [trace.info for trace in page]
        token = page.token
        if not token:
            return


def _texts(client: mlflow.MlflowClient, infos: list[Any]) -> Iterator[str]:
    """Each trace as JSON on one line, in order."""

    def text(info: Any) -> str | None:
        try:
            trace = _fetched(client, info)
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"):
                log.warning("trace %s is gone from MLflow since it was listed", info.trace_id)
                return None
            if error.error_code not in ("BAD_REQUEST", "INVALID_STATE"):
                raise
            log.warning("trace %s has no spans yet: %s", info.trace_id, error.message)
            trace = Trace(info, TraceData(spans=[]))
        return str(trace.to_json())

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for together in _groups(infos):
            yield from (told for told in pool.map(text, together) if told is not None)


def _fetched(client: mlflow.MlflowClient, info: Any) -> Any:
    """A trace with the spans that there are so far.

    The client's own ``get_trace`` waits for running traces and then says that they do not exist.
    """
    if (info.tags or {}).get("mlflow.trace.spansLocation") in ("TRACKING_STORE", "ARCHIVE_REPO"):
        try:
            return client._tracing_client.store.get_trace(info.trace_id, allow_partial=True)
        except (AttributeError, TypeError, NotImplementedError, MlflowNotImplementedException):
            pass  # another store, or another release of MLflow
    return client.get_trace(info.trace_id, display=False)


def _groups(infos: list[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    for info in infos:
        is_large = _size(info) >= _LARGE
        if group and (is_large or len(group) == _AT_ONCE):
            yield group
            group = []
        group.append(info)
        if is_large:
            yield group
            group = []
    if group:
        yield group


def _size(info: Any) -> int:
    """Bytes of a trace as MLflow noted them; a trace that does not tell is taken for a large one.

    Traces of older versions and running ones do not tell.
    """
    metadata = info.trace_metadata or {}
    try:
        stats = json.loads(metadata.get("mlflow.trace.sizeStats") or "{}")
        return int(metadata.get("mlflow.trace.sizeBytes") or stats["total_size_bytes"])
    except (KeyError, TypeError, ValueError):
        return _LARGE
