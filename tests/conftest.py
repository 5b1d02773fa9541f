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

import pytest

from warehouse.connection import open_in_memory

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
