"""Aliases moved, taken away or deleted in MLflow by hand: the next night goes by what it finds."""

import mlflow
import pytest

from flows.nightly import nightly
from flows.train_planner import train_planner
from tasks.promotion import promote_version
from tasks.registry import MODEL, Registry
from tasks.settings import read_settings
from tasks.status import status
from tests.factories import chores

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server", "encoder")]


def test_a_champion_made_and_unmade_by_hand_is_respected(home, tmp_path, caplog):
    caplog.set_level("INFO", "toolatlas")
    nightly(ingest_paths=[str(chores(tmp_path / "chores"))])
    settings = read_settings()
    registry = Registry(settings)
    if registry.aliases()["champion"] is None:
        promote_version(settings, "1", force=True)
    assert train_planner("always")["version"] == "2"

    # As the button in MLflow does it: no word to Toolatlas.
    by_hand = mlflow.MlflowClient(settings.tracking_uri)
    by_hand.set_registered_model_alias(MODEL, "champion", "2")
    night = nightly()
    assert night["report"]["champion"] == "2"
    assert night["promotion"] == {"promoted": False, "champion": "2", "previous": "2"}
    assert "champion is now version 2, changed in MLflow" in caplog.text
    state = status(settings)
    assert state["models"] == {"champion": "2", "challenger": None}
    assert {
        key: value for key, value in state["alias_history"][1].items() if key != "changed_at"
    } == {
        "alias": "champion", "version": "2", "previous": "1", "by": "registry",
        "reason": "found changed in MLflow",
    }  # fmt: skip

    # The next version is compared with the real champion.
    assert train_planner("always")["version"] == "3"
    report = nightly()["report"]
    assert (report["champion"], report["challenger"]) == ("2", "3")
    assert "gtool-champion" in report["metrics"]

    # The alias is taken away: the next night says so, and judges what it has as a first champion.
    champion = registry.aliases()["champion"]
    by_hand.delete_registered_model_alias(MODEL, "champion")
    by_hand.delete_registered_model_alias(MODEL, "challenger") if champion == "2" else None
    night = nightly()
    assert "champion was taken away, changed in MLflow" in caplog.text
    assert night["report"]["champion"] is None
    history = status(settings)["alias_history"]
    assert (None, champion) in [(h["version"], h["previous"]) for h in history]

    # The champion's version is deleted, and with it the alias.
    if registry.aliases()["champion"] is None:
        promote_version(settings, "1", force=True)
    gone = registry.aliases()["champion"]
    by_hand.delete_model_version(MODEL, gone)
    night = nightly()
    assert night["report"]["champion"] is None
    assert gone not in (night["version"], night["promotion"]["champion"])
