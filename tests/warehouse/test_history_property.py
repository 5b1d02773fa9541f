"""Arbitrary histories: a graph kept up to date equals one that is built from scratch.

Trajectories come, are told more fully, are corrected and forgotten, tools are renamed, merged,
deprecated and removed, suites are frozen, parameters change; builds, rollbacks, collections and
crashes fall anywhere in between.
"""

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.factories import tool, trajectory, write_lines
from tests.warehouse.test_order_property import empty
from warehouse import mining
from warehouse.aliases import deprecate, rename
from warehouse.catalogue import sync_catalogue
from warehouse.connection import open_in_memory
from warehouse.errors import NothingToBuild, UnknownTool, WrongRename
from warehouse.forget import forget_source, forget_trajectory
from warehouse.graph import (
    build_graph,
    collect_versions,
    export_version,
    find_version,
    list_versions,
    release,
    roll_back,
    training_rows,
)
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters, list_plans
from warehouse.suites import freeze_suites

TOLD = (
    "trajectory", "call", "link", "tool_version", "tool_alias", "tool_mark", "declared_edge",
    "suite", "suite_row",
)  # fmt: skip
"""The tables that a graph is made of."""
NAMES = ["a", "b", "c", "d"]
SOURCES = ["s", "u"]
DAYS = [None, "2026-01-01T10:00:00", "2026-01-02T10:00:00"]
SHAPES = ["plain", "plain", "parallel", "nested", "predicted", "flow", "gold"]

steps = st.lists(
    st.tuples(st.sampled_from([*NAMES, "s__a", "odd"]), st.sampled_from(["ok", "no", None])),
    min_size=1,
    max_size=4,
)
told = st.tuples(
    st.just("tell"), st.sampled_from(SOURCES), st.integers(0, 5), steps, st.sampled_from(DAYS),
    st.sampled_from([None, None, "train", "test"]), st.sampled_from(SHAPES),
)  # fmt: skip
EVENTS = st.one_of(
    told,
    told,
    told,
    st.tuples(st.just("forget"), st.sampled_from(SOURCES), st.integers(0, 5)),
    st.tuples(st.just("forget source"), st.sampled_from([*SOURCES, "chat"])),
    st.tuples(st.just("tell again"), st.integers(1, 3)),
    st.tuples(
        st.just("sync"),
        st.sampled_from([*SOURCES, "chat"]),
        st.sets(st.sampled_from(NAMES)),
        st.sampled_from(["does it", "does more"]),
        st.none() | st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=3),
    ),
    st.tuples(
        st.just("rename"),
        st.sampled_from([*(f"s/{name}" for name in [*NAMES, "new"]), "u/a", "chat/a"]),
        st.sampled_from([*(f"s/{name}" for name in [*NAMES, "new"]), "u/a", "u/b"]),
    ),
    st.tuples(st.just("undo rename"), st.integers(0, 3)),
    st.tuples(st.just("deprecate"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("declare"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("freeze"), st.booleans()),
    st.tuples(st.just("resume"), st.integers(0, 2), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("build"), st.sampled_from([0, 0, 0, 1]), st.sampled_from([0.2, 0.2, 0.6])),
    st.tuples(st.just("build"), st.just(0), st.just(0.2)),
    st.tuples(st.sampled_from(["look", "crash", "switch", "release"])),
    st.tuples(st.just("roll back"), st.integers(0, 3)),
    st.tuples(st.just("collect"), st.integers(1, 2), st.integers(0, 3)),
)


def session(number, calls, is_late):
    """A conversation whose executions a resumed one tells again: they count once."""
    lines = []
    for i in range(calls):
        use = {"type": "tool_use", "id": f"toolu_{i}", "name": NAMES[i % 3], "input": {"n": i}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "done"}
        for kind, role, content in (("a", "assistant", use), ("u", "user", result)):
            lines.append(
                {
                    "type": role,
                    "sessionId": f"session-{number}",
                    "uuid": f"{number}-{kind}{i}",
                    "parentUuid": f"{number}-u{i - 1}" if kind == "a" else f"{number}-a{i}",
                    "timestamp": f"2026-01-0{1 + (number + is_late) % 3}T10:00:{i:02}Z",
                    "message": {"role": role, "content": [content]},
                }
            )
    return lines


class Crash(Exception):
    """Stands for the end of the process."""


def crash(con):
    """In the place of a step that is never reached."""
    raise Crash


class World:
    """A warehouse that things happen to."""

    def __init__(self, con, folder):
        self.con, self.folder, self.files = con, folder, 0
        self.connections = [con, con.cursor()]
        self.parameters = GraphParameters()
        self.kept = {}  # bytes by version
        self.rows = {}  # training rows by build, until something is forgotten
        self.told = []
        self.held = None

    def deliver(self, source, *lines):
        self.files += 1
        path = write_lines(self.folder / f"{self.files}.jsonl", lines)
        ingest_file(self.con, path, source=source, delivery=self.files)

    def happen(self, event):
        kind, *values = event
        with contextlib.suppress(UnknownTool, WrongRename, NothingToBuild):
            getattr(self, kind.replace(" ", "_"))(*values)

    def tell(self, source, number, calls, day, split, shape):
        self.told.append((source, number, calls, day, split, shape))
        line = trajectory(f"{source}{number}", *calls, request=f"r{number % 3}")
        line["meta"]["timestamp"] = day
        if split:
            line["split"] = split
        for step in line["steps"]:
            if step.get("observation") == "no":
                step["error"] = "no"
        if shape in ("predicted", "gold"):
            line["meta"]["links"] = shape
        if shape == "gold" and len(calls) > 1:
            line["links"] = [{"source": 0, "target": len(calls) - 1}]
        if shape == "flow" and len(calls) > 1:
            line["steps"][-1]["arguments"] = {"id": "$var1.id$"}
        self.deliver(source, line)
        # As formats tell it that know more of a call than its place.
        change = {
            "parallel": "turn = position // 2",
            "nested": "parent = case when position > 1 then 0 end, turn = position % 3",
        }.get(shape)
        if change:
            self.con.execute(
                f"update call set {change} where trajectory_id in (select trajectory_id "
                "from trajectory where source = ? and native_id = ?) "
                "and number = (select max(number) from trajectory) "
                "and number > coalesce((select max(number) from mined_state), 0)",
                [source, f"{source}{number}"],
            )

    def tell_again(self, back):
        if back <= len(self.told):
            self.tell(*self.told[-back])

    def resume(self, number, calls, is_late):
        self.deliver("chat", *session(number, calls, is_late))

    def forget(self, source, number):
        found = self.con.execute(
            "select 1 from trajectory where source = ? and native_id = ?",
            [source, f"{source}{number}"],
        ).fetchall()
        if found:
            ids = self.con.execute(
                "select trajectory_id from trajectory where source = ? and native_id = ?",
                [source, f"{source}{number}"],
            ).fetchall()
            for (name,) in ids:
                forget_trajectory(self.con, name, source)
            self.con.execute("delete from forgotten")
            self.rows = {}

    def forget_source(self, source):
        if self.con.execute("select 1 from trajectory where source = ?", [source]).fetchall():
            forget_source(self.con, source)
            self.con.execute("delete from forgotten")
            self.rows = {}

    def sync(self, source, names, text, edges):
        if names:
            lines = [tool(name, text) for name in sorted(names)]
            lines += [{"source": a, "target": b} for a, b in sorted(edges or ())]
            path = write_lines(self.folder / "tools.jsonl", lines)
            sync_catalogue(self.con, path, source, force=True)

    def rename(self, old, new):
        rename(self.con, old, new, merge=True)

    def undo_rename(self, number):
        made = self.con.execute(
            "select target_namespace || '/' || target_name, namespace || '/' || name "
            "from tool_alias order by all"
        ).fetchall()
        if number < len(made):
            rename(self.con, *made[number], merge=True)

    def deprecate(self, name, undo):
        deprecate(self.con, f"s/{name}", undo=undo)

    def declare(self, source, target):
        self.deliver("s", {"source": source, "target": target})

    def freeze(self, refresh):
        freeze_suites(self.con, self.parameters, min_rows=1, refresh=refresh)

    def build(self, seed, test):
        self.parameters = GraphParameters(seed=seed, test=test)
        version = build_graph(self.con, self.parameters, code_version="t")
        self.kept.setdefault(version.version, content(self.con, self.folder / "kept", version))
        self.rows.setdefault(version.build, training_rows(self.con, version))
        return version

    def look(self):
        list_plans(self.con, self.parameters)

    def crash(self):
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Crash, NothingToBuild):
            patch.setattr(mining, "_hash_days", crash)
            mining.mine(self.con, self.parameters)

    def switch(self):
        self.connections.reverse()
        self.con = self.connections[0]

    def roll_back(self, number):
        versions = list_versions(self.con)
        if number < len(versions):
            self.held = roll_back(self.con, versions[number].version).build

    def release(self):
        assert release(self.con) == (self.held is not None)
        self.held = None

    def collect(self, keep, number):
        versions = list_versions(self.con)
        needed = {v.version for v in versions[number : number + 1]}
        gone = collect_versions(self.con, needed=needed, keep=keep)
        assert not needed & set(gone)
        self.check_versions()

    def check_versions(self):
        """No version has changed by what came after it."""
        for version in list_versions(self.con):
            with tempfile.TemporaryDirectory() as name:
                if version.version in self.kept:
                    now = content(self.con, Path(name), version)
                    assert now == self.kept[version.version]
            if version.build in self.rows:
                assert training_rows(self.con, version).equals(self.rows[version.build])


def content(con, folder, version):
    """The exported bytes of a version."""
    path = export_version(con, folder, version)
    return [(path / name).read_bytes() for name in ("nodes.parquet", "edges.parquet")]


@pytest.fixture(scope="module")
def warehouses():
    """Two for all examples, which is much faster than two each."""
    both = open_in_memory(), open_in_memory()
    for con in both:
        con.execute("set threads = 1")
    yield both
    for con in both:
        con.close()


def from_scratch(con, other, parameters):
    """A build of the same data in another, empty warehouse."""
    empty(other)
    for table in TOLD:
        rows = con.table(table).arrow()
        other.register("told", rows)
        other.execute(f"insert into {table} select * from told")
        other.unregister("told")
    other.execute("insert into called_name select distinct namespace, name from call")
    return build_graph(other, parameters, code_version="t")


def check(history, warehouses):
    con, other = warehouses
    empty(con)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = World(con, folder)
        for event in history:
            world.happen(event)
        try:
            last = build_graph(world.con, world.parameters, code_version="t")
        except NothingToBuild:
            return
        con = world.con
        scratch = from_scratch(con, other, world.parameters)
        assert scratch.version == last.version
        assert scratch.learning_id == last.learning_id
        assert scratch.examples_id == last.examples_id
        assert (scratch.nodes, scratch.edges) == (last.nodes, last.edges)
        assert training_rows(other, scratch).equals(training_rows(con, last))
        assert content(con, folder / "x", last) == content(other, folder / "y", scratch)
        world.check_versions()
        assert last.held == (world.held is not None)
        assert find_version(con).build == (last.build if world.held is None else world.held)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EVENTS, min_size=1, max_size=25))
def test_any_history_gives_the_graph_of_its_outcome(warehouses, history):
    check(history, warehouses)


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(EVENTS, min_size=1, max_size=12))
def test_some_histories_give_the_graph_of_their_outcome(warehouses, history):
    check(history, warehouses)
