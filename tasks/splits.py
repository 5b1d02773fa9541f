"""Homes of their own for training and measuring under another split than the nightly one."""

import logging

from tasks.errors import WrongUsage
from tasks.graphs import build, freeze
from tasks.settings import Settings
from warehouse.connection import open_warehouse
from warehouse.graph import list_versions
from warehouse.mining import Split
from warehouse.splits import SPLITS, derive

log = logging.getLogger("toolatlas")


def split_named(name: str) -> Split:
    """A split by its name.

    Raises:
        WrongUsage: There is none of that name.
    """
    for split in SPLITS:
        if split == name:
            return split
    raise WrongUsage(f"expected --split {', '.join(SPLITS)}, got {name!r}.")


def prepare(settings: Settings, split: Split, *, refresh: bool) -> None:
    """Bring the home of a split up to what the home around it was told: rows, suites, graph.

    Args:
        settings: Of the split's home.
        split: What divides there.
        refresh: Also where it is there already.

    Raises:
        NoSplit: No source can be divided so.
    """
    with open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con:
        if list_versions(con) and not refresh:
            return
    around = settings.home.parent.parent / settings.warehouse.name
    if not around.exists():
        raise WrongUsage(
            f"expected trajectories to divide, but there is no {around}: run toolatlas ingest PATH."
        )
    with (
        open_warehouse(around, wait_s=settings.lock_wait_s) as of,
        open_warehouse(settings.warehouse, wait_s=settings.lock_wait_s) as con,
    ):
        found = derive(
            con, of, split, test=settings.test_share, validation=settings.validation_share
        )
    log.info("--split %s divides %s, in %s", split, ", ".join(found.sources), settings.home)
    if found.left_out:
        log.warning("it cannot divide %s: left out there", ", ".join(found.left_out))
    if found.num_unplaced:
        log.warning("it cannot place %d trajectories: left out there", found.num_unplaced)
    freeze(settings)
    build(settings)
