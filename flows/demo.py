"""The nightly job, twice, on real trajectories from the package ``nestful_wrapper``."""

import contextlib
import sys
import time
from pathlib import Path
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
    command = f"TOOLATLAS_HOME={_short(settings.home)} {_short(Path(sys.argv[0]))}"
    return {
        "nights": [first, second],
        "seconds": time.monotonic() - started,
        "next": [
            f'{command} plan "Find a hotel in Oslo near the opera for next weekend"',
            f"{command} graph show latest",
            f"{_short(Path(sys.argv[0]))} ingest YOUR_TRACES/",
        ],
    }


def _short(path: Path) -> Path:
    """The path as one would type it here."""
    with contextlib.suppress(ValueError):
        return path.absolute().relative_to(Path.cwd())
    return path
