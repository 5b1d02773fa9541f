from collections import Counter

import polars as pl
import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.changes import diff_versions
from warehouse.errors import NothingToBuild, UnknownVersion
from warehouse.graph import (
    build_graph,
    export_version,
    find_version,
    learning_edges,
    list_versions,
    read_version,
    unlisted_tools,
    version_edges,
    version_nodes,
)
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters
from warehouse.storing import delete_trajectories

NONE_HELD = GraphParameters(test=1e-9, validation=1e-9)


def deliver(con, tmp_path, *lines, source="s"):
    path = write_lines(tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl", lines)
    return ingest_file(con, path, source=source, delivery=len(list(tmp_path.iterdir())))


def build(con, parameters=NONE_HELD):
    return build_graph(con, parameters, code_version="t")


def edges_of(con):
    return version_edges(con, build(con))


def seen(con, **wanted):
    """{(source, target): times} of one kind of evidence."""
    edges = edges_of(con)
    for column, value in {"kind": "adjacent", **wanted}.items():
        edges = edges.filter(pl.col(column) == value)
    counts = Counter()
    for source, target, times in edges.select("source", "target", "num_seen").iter_rows():
        counts[source.split("/")[1], target.split("/")[1]] += times
    return dict(counts)


def test_adjacent_calls_make_edges_and_repeats_do_not(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a", "a", "b", "a"), trajectory("2", "a", "b"))
    assert seen(con) == {("a", "b"): 2, ("b", "a"): 1}


def test_calls_of_one_message_have_no_edge_among_them(con, tmp_path):
    def call(i, name):
        return {"id": str(i), "function": {"name": name, "arguments": "{}"}}

    chat = {
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [call(1, "a"), call(2, "b")]},
            {"role": "tool", "tool_call_id": "1", "content": "x"},
            {"role": "tool", "tool_call_id": "2", "content": "y"},
            {"role": "assistant", "content": "thinking"},
            {"role": "assistant", "tool_calls": [call(3, "c")]},
            {"role": "tool", "tool_call_id": "3", "content": "z"},
        ]
    }
    deliver(con, tmp_path, chat)
    assert seen(con) == {("a", "c"): 1, ("b", "c"): 1}


def test_a_failed_or_unanswered_call_is_never_success_evidence(con, tmp_path):
    deliver(
        con,
        tmp_path,
        trajectory("1", ("a", "ok"), ("b", "no", "no")),
        trajectory("2", ("a", "ok"), "b"),
        trajectory("3", ("b", "ok")),
    )
    assert seen(con, outcome="failed") == {("a", "b"): 2}
    assert seen(con, outcome="ok") == {}
    edges = edges_of(con)
    assert learning_edges(edges).is_empty()


def test_a_source_without_results_has_unrecorded_calls_that_count(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a", "b"))
    assert seen(con, outcome="unrecorded") == {("a", "b"): 1}


def test_dataflow_is_found_by_reference_and_by_value(con, tmp_path):
    by_reference = trajectory("1", "a", "b", "c")
    by_reference["steps"][2]["arguments"] = {"id": "$var1.id$"}
    by_value = trajectory(
        "2",
        ("a", '{"id": "H-4711", "n": 3, "town": "Oslo"}'),
        ("b", "{}"),
        ("c", "{}"),
        request="in Oslo",
    )
    by_value["steps"][1]["arguments"] = {"n": 3, "town": "Oslo", "yes": True}  # prove nothing
    by_value["steps"][2]["arguments"] = {"hotel": {"id": "H-4711"}}
    deliver(con, tmp_path, by_reference, source="x")
    deliver(con, tmp_path, by_value, source="y")
    assert seen(con, kind="dataflow") == {("a", "c"): 2}


def test_values_are_not_looked_up_where_the_source_states_its_dataflow(con, tmp_path):
    line = trajectory("1", ("a", '{"id": "H-4711"}'), ("b", "{}"), ("c", "{}"))
    line["steps"][1]["arguments"] = {"id": "H-4711"}
    line["links"] = [{"source": 1, "target": 2}]
    line["meta"]["links"] = "dataflow"
    deliver(con, tmp_path, line)
    assert seen(con, kind="dataflow") == {("b", "c"): 1}


def test_test_rows_are_flagged_and_kept_from_learning(con, tmp_path):
    deliver(
        con,
        tmp_path,
        trajectory("1", "a", "b", split="train"),
        trajectory("2", "b", "c", split="test"),
    )
    assert seen(con, is_held_out=True) == {("b", "c"): 1}
    edges = edges_of(con)
    assert learning_edges(edges).select("source", "target").rows() == [("s/a", "s/b")]


def test_predicted_trajectories_are_no_evidence(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a", "b", links="predicted"), tool("a"), tool("b"))
    assert seen(con) == {}


def test_counts_are_by_day_of_the_source_clock(con, tmp_path):
    deliver(
        con,
        tmp_path,
        *[
            trajectory(str(i), "a", "b", timestamp=t)
            for i, t in enumerate(
                ["2024-03-01T23:30:00-02:00", "2024-03-02T05:00:00", "2024-03-03"]
            )
        ],
    )
    edges = edges_of(con)
    assert [(str(d), n) for d, n in edges.select("on_day", "num_seen").iter_rows()] == [
        ("2024-03-02", 2),
        ("2024-03-03", 1),
    ]


def test_an_invented_tool_is_no_node_however_often_it_is_called_1292(con, tmp_path):
    lines = [
        trajectory(str(i), ("add", "unknown tool", "unknown tool"), ("send_mail", "ok"))
        for i in range(61)
    ]
    deliver(con, tmp_path, tool("send_mail"), tool("list_mail"), *lines)
    nodes = version_nodes(con, build(con))
    assert nodes["name"].to_list() == ["list_mail", "send_mail"]
    (unlisted,) = unlisted_tools(con)
    assert (unlisted["name"], unlisted["calls"], unlisted["failed"]) == ("add", 61, 61)
    assert len(unlisted["nearest"]) == 2


def test_without_a_catalogue_a_tool_enters_with_its_first_success(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", ("a", "ok"), ("b", "no", "no")))
    assert version_nodes(con, build(con))["name"].to_list() == ["a"]


def test_a_client_prefix_means_the_tool_and_a_namespace_keeps_names_apart(con, tmp_path):
    deliver(con, tmp_path, tool("search"), source="web")
    deliver(con, tmp_path, tool("search"), source="files")
    deliver(
        con,
        tmp_path,
        trajectory("1", ("mcp__web__search", "x"), ("files__search", "y")),
        source="chat",
    )
    edges = edges_of(con)
    assert edges.select("source", "target").rows() == [("web/search", "files/search")]


def test_the_same_data_gives_the_same_id_and_other_data_another(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a", "b"))
    first = build(con)
    assert first.new
    again = build(con)
    assert (again.version, again.new, again.parent) == (first.version, False, None)
    deliver(con, tmp_path, trajectory("2", "b", "c"))
    second = build(con)
    assert second.version != first.version
    assert second.parent == first.version
    assert [v.version for v in list_versions(con)] == [second.version, first.version]
    found = con.sql("select trajectory_id from trajectory where native_id = '2'").fetchall()
    delete_trajectories(con, [found[0][0]])
    assert build(con).version == first.version


def test_other_parameters_give_another_version(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a", "b"))
    assert build(con).version != build(con, GraphParameters(seed=1)).version


def test_versions_are_found_by_latest_prefix_and_time(con, tmp_path):
    deliver(con, tmp_path, trajectory("1", "a", "b"))
    with pytest.raises(UnknownVersion, match="none was built yet"):
        find_version(con)
    version = build(con)
    assert find_version(con, "latest").version == version.version
    assert find_version(con, version.version[:8]).version == version.version
    assert find_version(con, "2999-01-01").version == version.version
    for name in ("2000-01-01", "zzzz", "0"):
        with pytest.raises(UnknownVersion, match="graph list"):
            find_version(con, name)


def test_a_diff_names_what_came_went_and_changed(con, tmp_path):
    deliver(con, tmp_path, tool("a"), tool("b"), trajectory("1", "a", "b"))
    old = build(con)
    deliver(
        con,
        tmp_path,
        tool("c"),
        tool("b", "does it better"),
        trajectory("2", "a", "b"),
        trajectory("3", "b", "c"),
    )
    new = build(con)
    diff = diff_versions(con, old, new)
    assert diff["tools"] == {"added": ["s/c"], "removed": [], "changed": ["s/b"], "renamed": []}
    assert diff["edges"]["added"] == [["s/b", "s/c", "adjacent"]]
    assert diff["edges"]["strengthened"] == [["s/a", "s/b", "adjacent", 1, 2]]
    back = diff_versions(con, new, old)
    assert back["tools"]["removed"] == ["s/c"]
    assert back["edges"]["weakened"] == [["s/a", "s/b", "adjacent", 2, 1]]


def test_nothing_to_build_from_says_what_to_do(con, tmp_path):
    with pytest.raises(NothingToBuild, match="toolatlas ingest"):
        build(con)


def test_declared_edges_are_told_apart_and_never_learnt_from(con, tmp_path):
    deliver(
        con,
        tmp_path,
        {"source": "a", "target": "b"},
        {"source": "a", "target": "b"},
        tool("a"),
        tool("b"),
    )
    assert con.sql("select count(*) from declared_edge").fetchall() == [(1,)]
    edges = edges_of(con)
    assert edges.select("source", "target", "kind", "outcome", "num_seen").rows() == [
        ("s/a", "s/b", "declared", "stated", 1)
    ]
    assert learning_edges(edges).is_empty()
    assert build(con).learning_edges == 0


def test_ultratool_mined_from_train_alone_covers_191_of_218_test_links(con, data, tmp_path):
    for name in ("tools.jsonl", "trajectories.jsonl.gz", "graph.jsonl"):
        ingest_file(con, data / "ultratool" / name, source="ultratool", delivery=1)
    version = build(con, GraphParameters())
    export_version(con, tmp_path / "graphs", version)
    nodes, edges = read_version(tmp_path / "graphs", version.version)
    assert len(nodes) == 260
    learning = set(learning_edges(edges).select("source", "target").rows())
    gold = con.sql(
        "select distinct 'ultratool/' || s.name, 'ultratool/' || t.name from link l "
        "join trajectory j using (trajectory_id) "
        "join call s on s.trajectory_id = l.trajectory_id and s.position = l.source_position "
        "join call t on t.trajectory_id = l.trajectory_id and t.position = l.target_position "
        "where j.split = 'test'"
    ).fetchall()
    loops = {pair for pair in gold if pair[0] == pair[1]}
    assert len(gold) == 218
    assert len(learning & set(gold)) + len(loops) >= 191
    assert con.sql("select count(*) from declared_edge").fetchall() == [(611,)]


def test_a_prefix_that_fits_two_tools_is_not_guessed(con, tmp_path):
    deliver(con, tmp_path, tool("b__c"), source="a")
    deliver(con, tmp_path, tool("c"), source="a__b")
    deliver(con, tmp_path, trajectory("1", ("a__b__c", "x"), ("d", "y")), source="chat")
    assert seen(con) == {("a__b__c", "d"): 1}


def test_dataflow_never_runs_within_a_turn(con, tmp_path):
    def call(i, name, arguments):
        return {"id": str(i), "function": {"name": name, "arguments": arguments}}

    chat = {
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "tool_calls": [call(1, "a", "{}"), call(2, "b", '{"id": "H-4711"}')],
            },
            {"role": "tool", "tool_call_id": "1", "content": '{"id": "H-4711"}'},
            {"role": "tool", "tool_call_id": "2", "content": "y"},
        ]
    }
    deliver(con, tmp_path, chat)
    assert seen(con, kind="dataflow") == {}
