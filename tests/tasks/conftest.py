"""An MLflow database with its tables, which take seconds to make."""

import pytest

from tasks.registry import Registry
from tasks.settings import Settings


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory):
    """MLflow's database with its tables, which take seconds to make."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)  # what an earlier test's command set
        Registry(Settings(home=folder, mlflow_uri=None))
    return folder / "mlflow.db"
