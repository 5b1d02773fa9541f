"""The one user of MLflow: runs, the registered model ``gtool-planner``, and its aliases.

A training is found again by its fingerprint, so that a killed one goes on in its own run and a
finished one is never registered twice.
"""

import contextlib
import logging
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import mlflow
import pandas as pd
from filelock import FileLock
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import infer_signature

from tasks.descriptions import (
    EXPERIMENT_DESCRIPTION,
    MODEL_DESCRIPTION,
    run_description,
    version_description,
)
from tasks.errors import UnknownModel
from tasks.settings import Settings

MODEL = "gtool-planner"
EXPERIMENT = "toolatlas"
ALIASES = ("champion", "challenger")

_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
"""Error codes of MLflow for an alias or version that is not there."""

_NOTE = "mlflow.note.content"
"""The tag that MLflow shows as a run's description."""

_HERE = Path(__file__).resolve().parent


class Registry:
    """MLflow as Toolatlas uses it, for one home."""

    def __init__(self, settings: Settings):
        """Connect; makes the SQLite store and the experiment on first use."""
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        if settings.tracking_uri.startswith("file:"):
            raise ValueError(
                "expected mlflow_uri to be a server or sqlite:///..., got "
                f"{settings.tracking_uri}: MLflow's file store is in maintenance mode and cannot "
                "hold a model registry."
            )
        settings.home.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(settings.tracking_uri)
        self._client = mlflow.MlflowClient(settings.tracking_uri)
        uri = settings.tracking_uri
        self._ui = uri.rstrip("/") if uri.startswith(("http://", "https://")) else None
        # Two first users at once would both create the schema, and one would die.
        with FileLock(settings.home / "mlflow.lock"):
            self.experiment_id = self._experiment(settings)
            if not self._client.search_registered_models(f"name = '{MODEL}'"):
                with _unless_there():
                    self._client.create_registered_model(
                        MODEL,
                        description=MODEL_DESCRIPTION,
                    )

    def _experiment(self, settings: Settings) -> str:
        found = self._client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        artifacts = settings.home / "mlartifacts"
        return str(
            self._client.create_experiment(
                EXPERIMENT,
                artifact_location=artifacts.as_uri() if settings.owns_artifacts else None,
                tags={_NOTE: EXPERIMENT_DESCRIPTION},
            )
        )

    # --- aliases ---------------------------------------------------------------------------------

    def aliases(self) -> dict[str, str | None]:
        """Version numbers of ``champion`` and ``challenger``, None where unset."""
        return {alias: self._alias(alias) for alias in ALIASES}

    def _alias(self, alias: str) -> str | None:
        try:
            return str(self._client.get_model_version_by_alias(MODEL, alias).version)
        except MlflowException as error:
            if error.error_code in _ABSENT:
                return None
            raise  # an unreachable registry is not one without a champion

    def set_alias(self, alias: str, version: str) -> None:
        """Point an alias at a version."""
        self.version(version)
        self._client.set_registered_model_alias(MODEL, alias, version)

    def drop_alias(self, alias: str) -> None:
        """Take an alias away; fine when it is not set."""
        if self._alias(alias) is not None:
            self._client.delete_registered_model_alias(MODEL, alias)

    # --- versions --------------------------------------------------------------------------------

    def version(self, number: str) -> ModelVersion:
        """One registered version.

        Raises:
            UnknownModel: There is none of that number.
        """
        try:
            return self._client.get_model_version(MODEL, number)
        except MlflowException as error:
            if error.error_code not in _ABSENT:
                raise
            known = sorted((str(v.version) for v in self._versions()), key=int)
            raise UnknownModel(
                f"expected the number of a version of {MODEL}, got {number!r}; there are: "
                f"{', '.join(known) or 'none yet, run toolatlas train'}."
            ) from error

    def _versions(self, filter_string: str = "") -> list[ModelVersion]:
        query = f"name = '{MODEL}'" + filter_string
        return list(self._client.search_model_versions(query, max_results=1000))

    def trained(self, fingerprint: str) -> str | None:
        """The version that came of the training with this fingerprint."""
        return self._tagged("fingerprint", fingerprint)

    def made_by(self, flow_run_id: str) -> str | None:
        """The version that a Prefect run registered."""
        wanted = f"tags.`prefect.flow_run_id` = '{UUID(flow_run_id)}'"
        runs = {run.info.run_id for run in self._client.search_runs([self.experiment_id], wanted)}
        found = [str(v.version) for v in self._versions() if v.run_id in runs]
        return max(found, key=int, default=None)

    def graph_versions(self) -> set[str]:
        """Ids of the graph versions that registered planners were trained on."""
        return {v.tags["graph_version"] for v in self._versions() if "graph_version" in v.tags}

    def trained_graph(self, fingerprint: str) -> str | None:
        """A version whose graph readout came of the training with this fingerprint."""
        return self._tagged("graph_fingerprint", fingerprint)

    def _tagged(self, name: str, value: str) -> str | None:
        for version in self._versions():
            if version.tags.get(name) == value:
                return str(version.version)
        return None

    def latest(self) -> ModelVersion | None:
        """The version registered last."""
        return max(self._versions(), key=lambda v: int(v.version), default=None)

    def planner_folder(self, number: str) -> Path:
        """The stored planner of a version as a local folder."""
        uri = f"models:/{MODEL}/{self.version(number).version}"
        try:
            root = mlflow.artifacts.download_artifacts(artifact_uri=uri)
        except (MlflowException, OSError) as error:
            raise UnknownModel(
                f"expected the artifacts of {uri}, MLflow cannot hand them out ({error}): restore "
                "them, or promote another version."
            ) from error
        folder = Path(root) / "artifacts" / "planner"
        if not folder.is_dir():
            raise UnknownModel(f"expected the planner of version {number} in {folder}, it is gone.")
        return folder

    def tag_version(self, number: str, tags: Mapping[str, str | None]) -> None:
        """Write tags on a version, None takes one away; its description follows."""
        before = self._described(number)
        for key, value in tags.items():
            if value is not None:
                self._client.set_model_version_tag(MODEL, number, key, value)
            elif key in self.version(number).tags:
                self._client.delete_model_version_tag(MODEL, number, key)
        self._describe(number, before)

    def note_champion(self, number: str | None, by: str) -> None:
        """Write on the versions who is champion since when, and who was until when."""
        now = _utc(time.time() * 1000)
        for version in self._versions():
            reigns = "champion_since" in version.tags and "champion_until" not in version.tags
            if reigns and str(version.version) != number:
                successor = f"version {number}" if number else "nobody"
                self.tag_version(
                    str(version.version), {"champion_until": now, "replaced_by": successor}
                )
        if number is not None:
            self.tag_version(
                number,
                {
                    "champion_since": now,
                    "champion_by": by,
                    "champion_until": None,
                    "replaced_by": None,
                },
            )

    def pages(self, number: str) -> dict[str, str | None]:
        """Where a version and its run are; the addresses are None where MLflow has no pages."""
        version = self.version(number)
        run = f"/#/experiments/{self.experiment_id}/runs/{version.run_id}"
        return {
            "model": MODEL,
            "version": str(version.version),
            "run_id": str(version.run_id),
            "run_url": f"{self._ui}{run}" if self._ui else None,
            "version_url": self._version_url(number),
        }

    def _version_url(self, number: str) -> str | None:
        return f"{self._ui}/#/models/{MODEL}/versions/{number}" if self._ui else None

    def _described(self, number: str) -> tuple[str, str]:
        """What the descriptions of a version and of its run say when nobody rewrites them."""
        version = self.version(number)
        run = self._client.get_run(version.run_id)
        facts = {
            "trained_at": _utc(run.info.start_time),
            **run.data.params,
            **run.data.tags,
            **version.tags,
        }
        return (
            version_description(number, facts),
            run_description(facts, number, self._version_url(number)),
        )

    def _describe(self, number: str, before: tuple[str, str]) -> None:
        """Renew both descriptions; one that a person has rewritten stays as it is."""
        version = self.version(number)
        run = self._client.get_run(version.run_id)
        text, note = self._described(number)
        if (version.description or "") in ("", before[0]):
            self._client.update_model_version(MODEL, number, text)
        if run.data.tags.get(_NOTE, "") in ("", before[1], _unregistered(run)):
            self._client.set_tag(version.run_id, _NOTE, note)

    # --- runs ------------------------------------------------------------------------------------

    def open_run(
        self, fingerprint: str, name: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> str:
        """The run of a training: a new one, or the one that a killed training left running."""
        run = next(
            (r for r in self._unfinished() if r.data.tags.get("fingerprint") == fingerprint), None
        ) or self._client.create_run(
            self.experiment_id, run_name=name, tags={**tags, "fingerprint": fingerprint}
        )
        run_id = str(run.info.run_id)
        known = run.data.params
        self._client.log_batch(
            run_id,
            params=[Param(key, str(value)) for key, value in params.items() if key not in known],
            tags=[RunTag(key, value) for key, value in tags.items()],
        )
        self._client.set_tag(run_id, _NOTE, _unregistered(self._client.get_run(run_id)))
        return run_id

    @contextlib.contextmanager
    def failing(self, run_id: str) -> Iterator[None]:
        """Mark the run as failed when what is inside raises; a killed process leaves it running."""
        try:
            yield
        except Exception:
            self._client.set_terminated(run_id, status="FAILED")
            raise

    def close_abandoned(self, fingerprint: str) -> None:
        """Mark runs that a killed training of other data left running."""
        for run in self._unfinished():
            if run.data.tags.get("fingerprint") not in (None, fingerprint):
                self._client.set_terminated(run.info.run_id, status="KILLED")

    def _unfinished(self) -> list[Run]:
        return list(self._client.search_runs([self.experiment_id], "attributes.status = 'RUNNING'"))

    def log_epoch(self, run_id: str, epoch: int, metrics: Mapping[str, float]) -> None:
        """Metrics of one epoch."""
        now = int(time.time() * 1000)
        self._client.log_batch(
            run_id,
            [Metric(_metric_name(key), float(value), now, epoch) for key, value in metrics.items()],
        )

    def log_summary(self, run_id: str, metrics: Mapping[str, float], **tags: str) -> None:
        """Metrics and tags of the whole run."""
        self.log_epoch(run_id, 0, metrics)
        for key, value in tags.items():
            self._client.set_tag(run_id, key, value)

    def log_report(self, run_id: str, report: Mapping[str, Any], name: str) -> None:
        """A regression report as an artifact of the run."""
        self._client.log_dict(run_id, dict(report), f"reports/{name}.json")

    def register(self, run_id: str, folder: Path, tags: Mapping[str, str]) -> str:
        """Log the planner in ``folder`` to the run and register it; the new version's number.

        The version carries its tags from the moment it exists, fingerprint included.
        """
        example = pd.DataFrame({"request": ["Find a hotel in Oslo and book it for two nights."]})
        answer = pd.DataFrame({"plans": ["[]"]})
        with mlflow.start_run(run_id=run_id):
            info = mlflow.pyfunc.log_model(
                name="planner",
                python_model=str(_HERE / "planner_pyfunc.py"),
                artifacts={"planner": str(folder)},
                code_paths=[str(_HERE.parent / "models")],
                pip_requirements=_requirements(),
                signature=infer_signature(example, answer, params={"top": 1}),
                input_example=example,
            )
            version = self._client.create_model_version(
                MODEL, source=info.model_uri, run_id=run_id, tags=dict(tags), model_id=info.model_id
            )
        if info.signature is None:
            raise UnknownModel(f"version {version.version} of {MODEL} was stored without signature")
        self.tag_version(str(version.version), {})
        return str(version.version)


def _unregistered(run: Run) -> str:
    """The description of a run that has registered no version."""
    return run_description({**run.data.params, **run.data.tags}, None, None)


def _utc(milliseconds: float) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _metric_name(name: str) -> str:
    """A name that MLflow takes: source names may hold brackets and the like."""
    return re.sub(r"[^\w\-./ :]", "_", name)


@contextlib.contextmanager
def _unless_there() -> Iterator[None]:
    """Fine when another process was faster."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _requirements() -> list[str]:
    """What a serving environment needs, at the versions in use."""
    from importlib.metadata import version

    needed = "mlflow torch torch-geometric sentence-transformers transformers safetensors polars"
    names = [*needed.split(), "jaxtyping", "pandas", "filelock"]
    return [f"{name}=={version(name).split('+')[0]}" for name in names]
