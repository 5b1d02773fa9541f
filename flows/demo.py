"""The nightly job, twice, on real trajectories from the package ``nestful_wrapper``."""

import time
from typing import Any

from flows.nightly import nightly
from tasks.demo_data import write_deliveries
from tasks.settings import Settings


def run_demo(settings: Settings) -> dict[str, Any]:
    """A first night, and a second one with the tools and trajectories that the first did not have.

    Args:
        settings: With the demo's own home, which the environment must name as well.

    Returns:
        ``nights`` (the result of each), ``seconds`` and ``next`` (commands to try).
    """
    started = time.monotonic()
    deliveries = write_deliveries(settings.home / "deliveries")
    first = nightly(ingest_paths=[str(deliveries[0])])
    second = nightly(ingest_paths=[str(deliveries[1])], refresh_suites=True)
    home = f"TOOLATLAS_HOME={settings.home}"
    return {
        "nights": [first, second],
        "seconds": time.monotonic() - started,
        "next": [
            f'{home} toolatlas plan "Find a hotel in Oslo near the opera for next weekend"',
            f"{home} toolatlas graph show latest",
            "toolatlas ingest YOUR_TRACES/ && toolatlas nightly",
        ],
    }
