"""The same trajectories in a warehouse of their own, where something else divides them.

It is a copy of what was told, without what its split cannot place; graph, suites and training rows
are made from it as everywhere. Copying again keeps its suites, versions and cuts.
"""

from dataclasses import dataclass, replace
from typing import get_args

import duckdb

from warehouse.connection import query, transaction
from warehouse.errors import NoSplit
from warehouse.identity import digest
from warehouse.mining import Split

SPLITS: tuple[Split, ...] = get_args(Split)[1:]
"""Those that a copy can be divided by."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What a copy holds now.

    Attributes:
        is_new: Whether anything was copied; not where there are no news.
        sources: The sources that the split divides.
        left_out: Those that it cannot divide, which are not in the copy.
        num_unplaced: Trajectories of the others that it cannot place, and that are not either.
    """

    is_new: bool
    sources: tuple[str, ...]
    left_out: tuple[str, ...]
    num_unplaced: int


def split_of(con: duckdb.DuckDBPyConnection) -> Split:
    """What divides the rows of a warehouse."""
    rows = con.execute("select split from derived_from").fetchall()
    return rows[0][0] if rows else "default"


def derive(
    con: duckdb.DuckDBPyConnection,
    of: duckdb.DuckDBPyConnection,
    split: Split,
    *,
    test: float,
    validation: float,
) -> Derived:
    """Make a warehouse the copy of another one, to be divided by ``split``.

    A crash leaves the state of before. The next build mines all of it anew.

    Args:
        con: A writing connection to the copy.
        of: A connection to the warehouse that trajectories were ingested into.
        split: One of ``SPLITS``.
        test: Share of a source's timed trajectories, out of 1, that a split by time holds out at
            first. The cut stays where it is when more come.
        validation: The share of those just before.

    Raises:
        NoSplit: No source can be divided so, or ``of`` is such a copy itself.
    """
    if split_of(of) != "default":
        raise NoSplit(
            "expected a home that trajectories were ingested into, got one that was made by "
            f"--split {split_of(of)}: leave out --split, or set TOOLATLAS_HOME to the other home."
        )
    found = _divisible(of, split)
    content = digest(split, of.execute(query("told_content")).fetchall())
    if con.execute("select split, content from derived_from").fetchall() == [(split, content)]:
        return found
    with transaction(con):
        for statement in _EMPTY:
            con.execute(statement)
        con.from_arrow(of.table("trajectory").to_arrow_reader()).insert_into("trajectory")
        if split == "by-time":
            con.execute(query("split_cut"), {"test": test, "validation": validation})
        for statement in _PLACE[split]:
            con.execute(statement)
        for table in ("call", "link"):
            told = con.from_arrow(of.table(table).to_arrow_reader())
            told.filter("number in (select number from trajectory)").insert_into(table)
        for table in _ALL_OF:
            con.from_arrow(of.table(table).to_arrow_reader()).insert_into(table)
        con.execute("insert into called_name select distinct namespace, name from call")
        con.execute("insert into derived_from values (?, ?)", [split, content])
        con.execute("update mined_state set settings = '{}'")
    return replace(found, is_new=True)


def _divisible(of: duckdb.DuckDBPyConnection, split: Split) -> Derived:
    """Which sources a split can divide.

    Raises:
        NoSplit: None.
    """
    sources, left_out, num_unplaced = [], [], 0
    for source, has_test, num_times, num_undivided, num_untimed in of.execute(
        query("split_source")
    ).fetchall():
        fits, unplaced = {
            "own": (has_test, num_undivided),
            "by-time": (num_times > 1, num_untimed),
        }.get(split, (True, 0))
        if fits:
            sources.append(source)
            num_unplaced += unplaced
        else:
            left_out.append(source)
    if not sources:
        got = f"there {'are' if len(left_out) > 1 else 'is'} {', '.join(left_out)}"
        raise NoSplit(
            f"expected a source {_NEEDED.get(split, 'of trajectories')} for --split {split}, "
            f"{got if left_out else 'there is none: ingest some trajectories first'}"
            f"{': choose another split' if left_out else ''}."
        )
    return Derived(False, tuple(sources), tuple(left_out), num_unplaced)


_NEEDED: dict[Split, str] = {
    "own": "that ships a test split",
    "by-time": "whose trajectories began at different times",
}
_ALL_OF = (
    "tool_version",
    "catalogue_delivery",
    "tool_alias",
    "tool_mark",
    "declared_edge",
    "former_trajectory",
)
_EMPTY = (
    "delete from derived_from",
    "delete from trajectory",
    "delete from call",
    "delete from link",
    "delete from tool_version",
    "delete from catalogue_delivery",
    "delete from tool_alias",
    "delete from tool_mark",
    "delete from declared_edge",
    "delete from former_trajectory",
    "delete from called_name",
)
_PLACE: dict[Split, tuple[str, ...]] = {
    "own": (
        "delete from trajectory where split is null "
        "or source not in (select source from trajectory where split = 'test')",
    ),
    "by-sequence": ("update trajectory set split = null",),
    "by-conversation": ("update trajectory set split = null",),
    "by-time": (
        "delete from trajectory where started_at is null "
        "or source not in (select source from split_cut)",
        "update trajectory set split = case when started_at >= c.test_from then 'test' "
        "when started_at >= c.validation_from then 'validation' else 'train' end "
        "from split_cut c where c.source = trajectory.source",
    ),
}
"""What is left of the copied trajectories, and on which side the split puts them itself."""
