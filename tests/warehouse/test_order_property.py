"""Whatever order, split, repetition and accident files come with: the same tables and graph."""

import contextlib
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversations import FORMATS, Plan, Step, parcels_of
from tests.factories import write_lines
from warehouse import ingest as ingesting
from warehouse.connection import open_in_memory
from warehouse.errors import NothingToBuild
from warehouse.graph import build_graph
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters

TABLES = ("trajectory", "call", "link", "fragment", "pending", "ingest_progress", "tool_call")
STEPS = st.builds(
    Step,
    tool=st.sampled_from(["find", "book", "pay"]),
    argument=st.integers(0, 2),
    result=st.sampled_from(["done", "REF-12345", '{"isError": true}', None]),
    failed=st.booleans(),
).map(lambda step: step if step.result else Step(step.tool, step.argument, None))
PLANS = st.builds(
    Plan,
    number=st.just(0),
    request=st.sampled_from(["book it", "find REF-12345"]),
    turns=st.lists(st.lists(STEPS, min_size=1, max_size=2).map(tuple), min_size=1, max_size=3).map(
        tuple
    ),
    telling_ids=st.booleans(),
    in_session=st.booleans(),
    is_clock_still=st.booleans(),
)


def conversations(most):
    """Of few formats at once, so that conversations of one format meet."""
    return st.lists(st.sampled_from(list(FORMATS)), min_size=1, max_size=3).flatmap(
        lambda formats: st.lists(
            st.tuples(st.sampled_from(formats), PLANS), min_size=1, max_size=most
        )
    )


class Killed(Exception):
    """Stands for the end of the process."""


def state(con, folder, with_graph):
    """Everything that may not depend on how it came."""
    told = {
        table: con.sql(f"select columns(c -> c <> 'number') from {table} order by all").fetchall()
        for table in TABLES
    }
    if with_graph:
        with contextlib.suppress(NothingToBuild):  # where every call failed
            graph = build_graph(con, GraphParameters(), code_version="t")
            told["graph"] = graph.version
    return told


@pytest.fixture(scope="module")
def warehouse():
    """One warehouse for all examples, which is much faster than one each."""
    con = open_in_memory()
    con.execute("set threads = 1")
    yield con
    con.close()


def empty(con):
    for (table,) in con.sql(
        "select table_name from duckdb_tables() where table_name not like '%migration%'"
    ).fetchall():
        con.execute(f"delete from {table}")
    return con


def deal(data, parcels):
    """The parcels, some of them again, in one to four files in any order."""
    again = data.draw(st.lists(st.integers(0, len(parcels) - 1), max_size=5))
    order = data.draw(st.permutations([*range(len(parcels)), *again]))
    num_files = data.draw(st.integers(1, 4))
    files = [[] for _ in range(num_files)]
    present = [set() for _ in range(num_files)]
    for index in order:
        number = data.draw(st.integers(0, num_files - 1)) if num_files > 1 else 0
        if parcels[index].once and index in present[number]:
            continue
        present[number].add(index)
        files[number].extend(parcels[index].records)
    return [lines for lines in files if lines]


def killed_ingest(con, path, kind, after):
    """Ingest until the accident, if it comes to that."""
    original = ingesting.iter_items, ingesting._Run.settle, ingesting.merge_fragments
    count = Counter()

    def step(*told):
        count["steps"] += 1
        if count["steps"] > after:
            raise Killed

    def items(*arguments, **options):
        for item in original[0](*arguments, **options):
            step()
            yield item

    def settle(self):
        raise Killed

    def merge(*arguments):
        found = original[2](*arguments)
        step()
        return found

    try:
        if kind == "reading":
            ingesting.iter_items = items
        elif kind == "before settling":
            ingesting._Run.settle = settle
        elif kind == "settling":
            ingesting.merge_fragments = merge
        progress = step if kind == "between batches" else None
        ingest_file(con, path, source="s", delivery=1, progress=progress)
    except Killed:
        pass
    finally:
        ingesting.iter_items, ingesting._Run.settle, ingesting.merge_fragments = original


KINDS = st.sampled_from([None, "between batches", "reading", "before settling", "settling"])


def check(data, con, told):
    parcels = parcels_of(data.draw(told))
    files = deal(data, parcels)
    accidents = [(data.draw(KINDS), data.draw(st.integers(0, 6))) for _ in files]
    batch, commit = data.draw(st.sampled_from([(3, 3), (4, 10), (30, 60)]))
    with_graph = data.draw(st.integers(0, 3)) == 0
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        empty(con)
        records = [record for parcel in parcels for record in parcel.records]
        ingest_file(con, write_lines(folder / "all.jsonl", records), source="s", delivery=1)
        assert con.sql("select count(*) from quarantine").fetchall() == [(0,)]
        expected = state(con, folder, with_graph)
        empty(con)
        patch.setattr(ingesting, "BATCH_CALLS", batch)
        patch.setattr(ingesting, "COMMIT_CALLS", commit)
        paths = [write_lines(folder / f"{i}.jsonl", lines) for i, lines in enumerate(files)]
        for path, (kind, after) in zip(paths, accidents, strict=True):
            if kind:
                killed_ingest(con, path, kind, after)
        for path in paths:
            ingest_file(con, path, source="s", delivery=1)
        found = state(con, folder, with_graph)
    for table in expected | found:
        assert found.get(table) == expected.get(table), table


@settings(max_examples=7, deadline=None)
@given(data=st.data())
def test_any_order_split_repetition_and_accident_gives_the_same_tables_and_graph(warehouse, data):
    check(data, warehouse, conversations(2))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_the_same_of_many_more_deliveries(warehouse, data):
    check(data, warehouse, conversations(4))


CALLS = {"normalised": 6, "anthropic": 6, "claude code": 5}
"""Calls of a plan of three, where a format tells it twice or goes on from it."""


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_told_as_planned(warehouse, tmp_path, format):
    steps = (Step("find", 1, "REF-12345"), Step("book", 2, "no", failed=True))
    plan = Plan(0, "book it", (steps, (Step("pay", 0, "paid"),)))
    records = [record for parcel in parcels_of([(format, plan)]) for record in parcel.records]
    con = empty(warehouse)
    ingest_file(con, write_lines(tmp_path / "a.jsonl", records), source="s", delivery=1)
    told = con.sql("select tool, status from tool_call").fetchall()
    assert len(told) == CALLS.get(format, 3)
    assert {tool for tool, _ in told} == {"s/book", "s/find", "s/pay"}
    says_errors = format != "openai responses"
    assert {("s/find", "ok"), ("s/book", "error" if says_errors else "ok")} <= set(told)
