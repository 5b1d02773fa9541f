import polars as pl
import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.changes import diff_versions
from warehouse.errors import UnknownTool
from warehouse.evidence import summarise
from warehouse.forget import forget_source
from warehouse.graph import (
    build_graph,
    collect_versions,
    learning_edges,
    list_versions,
    version_edges,
)
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters
from warehouse.predictions import (
    describe_prediction,
    expected_edge,
    find_prediction,
    predicted_edges,
    store_prediction,
    with_predicted,
)

NONE_HELD = GraphParameters(test=1e-9, validation=1e-9)


def deliver(con, tmp_path, *lines, source="s"):
    number = len(list(tmp_path.iterdir()))
    path = write_lines(tmp_path / f"{number}.jsonl", lines)
    return ingest_file(con, path, source=source, delivery=number)


def build(con, parameters=NONE_HELD):
    return build_graph(con, parameters, code_version="t")


def store(con, version, edges, fingerprint="f", number="1"):
    frame = pl.DataFrame(edges, ["source", "target", "probability"], orient="row")
    store_prediction(
        con,
        version,
        frame,
        fingerprint=fingerprint,
        model_version=number,
        settings={"most": 5},
        metrics={"auc": 0.9},
    )


@pytest.fixture
def version(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", ("a", "x"), ("b", "y")), *TOOLS)
    return build(con)


TOOLS = [tool("a"), tool("b"), tool("c")]
EDGES = [("s/b", "s/c", 0.25), ("s/a", "s/c", 0.5)]


def test_what_is_stored_is_read_and_changes_no_version(con, version):
    before = version_edges(con, version)
    assert describe_prediction(con, version) is None
    assert expected_edge(con, version, "s/a", "s/c") is None
    store(con, version, EDGES)
    assert predicted_edges(con, version).rows() == sorted(EDGES)
    told = describe_prediction(con, version, most=1)
    assert (told["num"], told["model_version"], told["metrics"]) == (2, "1", {"auc": 0.9})
    assert told["likeliest"] == [{"source": "s/a", "target": "s/c", "probability": 0.5}]
    expected = {"probability": 0.25, "model_version": "1"}
    assert expected_edge(con, version, "s/b", "s/c") == expected
    assert expected_edge(con, version, "s/c", "s/b") is None
    again = build(con)
    assert (again.version, again.new, again.edges) == (version.version, False, version.edges)
    assert version_edges(con, again).equals(before)
    assert learning_edges(before).equals(learning_edges(version_edges(con, again)))


def test_a_later_training_replaces_them(con, version):
    store(con, version, EDGES)
    store(con, version, EDGES[:1], fingerprint="g", number="2")
    assert predicted_edges(con, version).rows() == EDGES[:1]
    found = find_prediction(con, version)
    assert (found.fingerprint, found.model_version) == ("g", "2")
    assert found.settings == {"most": 5}
    store(con, version, [])
    assert predicted_edges(con, version).is_empty()
    assert describe_prediction(con, version)["num"] == 0


def test_unknown_tools_are_refused_and_what_was_there_stays(con, version):
    store(con, version, EDGES)
    with pytest.raises(UnknownTool, match="got 1 with others"):
        store(con, version, [("s/a", "s/nowhere", 0.5), ("s/a", "s/b", 0.1)], fingerprint="g")
    assert predicted_edges(con, version).rows() == sorted(EDGES)
    assert find_prediction(con, version).fingerprint == "f"


def test_versions_share_them_while_learning_sees_the_same(con, tmp_path, version):
    store(con, version, EDGES)
    failed = trajectory("2", "b", ("c", "sorry", True))
    deliver(con, tmp_path, failed)
    other = build(con)
    assert other.version != version.version
    assert other.learning_id == version.learning_id
    assert predicted_edges(con, other).rows() == sorted(EDGES)
    deliver(con, tmp_path, trajectory("3", ("b", "y"), ("c", "z")))
    third = build(con)
    assert third.learning_id != version.learning_id
    assert find_prediction(con, third) is None
    assert predicted_edges(con, third).is_empty()
    diff = diff_versions(con, version, third)
    assert {kind for *_, kind in diff["edges"]["added"]} == {"adjacent"}


def test_they_go_with_the_last_version_they_belong_to(con, tmp_path, version):
    store(con, version, EDGES)
    deliver(con, tmp_path, trajectory("2", ("b", "y"), ("c", "z")))
    later = build(con)
    store(con, later, EDGES[1:], fingerprint="g")
    assert collect_versions(con, needed={version.version}, keep=1) == []
    assert predicted_edges(con, version).rows() == sorted(EDGES)
    assert collect_versions(con, needed=(), keep=1) == [version.version]
    assert con.execute("select count(*) from prediction").fetchall() == [(1,)]
    assert con.execute("select count(*) from predicted_edge").fetchall() == [(1,)]
    assert predicted_edges(con, later).rows() == EDGES[1:]


def test_forgetting_a_source_leaves_none_to_the_next_version(con, tmp_path, version):
    deliver(con, tmp_path, trajectory("1", "x", "y"), tool("x"), tool("y"), source="other")
    both = build(con)
    store(con, both, [*EDGES, ("other/y", "s/a", 0.3)])
    forget_source(con, "other")
    after = build(con)
    assert predicted_edges(con, after).is_empty()
    collect_versions(con, needed=(), keep=1)
    assert [v.version for v in list_versions(con)] == [after.version]
    assert con.execute("select count(*) from predicted_edge").fetchall() == [(0,)]


def test_the_summary_tells_them_apart_from_what_was_seen(con, version):
    store(con, version, EDGES)
    edges = version_edges(con, version)
    summary = with_predicted(summarise(edges), predicted_edges(con, version))
    rows = {(r["source"], r["target"]): r for r in summary.iter_rows(named=True)}
    seen, predicted = rows["s/a", "s/b"], rows["s/a", "s/c"]
    assert (seen["kind"], seen["probability"], seen["num_seen"]) == ("adjacent", None, 1)
    assert (predicted["kind"], predicted["probability"]) == ("predicted", 0.5)
    assert (predicted["standing"], predicted["num_seen"], predicted["weight"]) == ("stated", 0, 0)
    assert predicted["num_learning"] == predicted["num_ok"] == 0
    keys = ["source", "target", "kind"]
    assert summary.select(keys).equals(summary.select(keys).sort(keys))
    none = with_predicted(summarise(edges), predicted_edges(con, version).clear())
    assert none.drop("probability").equals(summarise(edges))
