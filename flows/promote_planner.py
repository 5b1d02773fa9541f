"""The champion alias. Needs a challenger; leaves it champion when the gate says so."""

from typing import Any

from prefect import flow

from tasks import steps
from tasks.errors import WrongUsage
from tasks.events import announce, note_process
from tasks.promotion import promote_version
from tasks.settings import run_settings
from tasks.watching import dated


@flow(name="promote_planner", flow_run_name=dated("promote_planner"), on_running=[note_process])
def promote_planner(version: str | None = None, force: bool = False) -> dict[str, Any]:
    """Compare the challenger, or a version, with the champion and act on the decision.

    Args:
        version: What to promote; default: the challenger.
        force: Promote that version whatever the gate says.
    """
    settings = run_settings()
    if force and not version:
        raise WrongUsage("expected a version to promote by force, got none; name one.")
    if version:
        result = promote_version(settings, version, force=force)
    else:
        result = steps.promote_planner(settings, steps.run_regressions(settings))
    if result["promoted"]:
        announce("champion.moved", version=result["champion"], previous=result["previous"])
    return result


if __name__ == "__main__":
    promote_planner()
