"""Renames and deprecations, and which tool a name in a trace means."""

import json

import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.aliases import deprecate, find_tool, list_nodes, rename, renames, withdrawn
from warehouse.catalogue import list_names, list_tools, sync_catalogue
from warehouse.errors import UnknownTool, WrongRename
from warehouse.graph import build_graph
from warehouse.ingest import ingest_file
from warehouse.mining import GraphParameters, list_plans
from warehouse.suites import find_suite, freeze_suites, read_suite


def sync(con, tmp_path, namespace, *tools):
    path = write_lines(tmp_path / f"{namespace}.jsonl", tools)
    return sync_catalogue(con, path, namespace, force=True)


def deliver(con, tmp_path, source, *runs):
    (number,) = con.execute("select nextval('delivery_number')").fetchall()[0]
    path = write_lines(tmp_path / f"run{number}.jsonl", runs)
    ingest_file(con, path, source=source, delivery=number)


def run(native_id, *names):
    return trajectory(native_id, *((name, "done") for name in names))


def calls(con):
    return dict(
        con.execute(
            "select namespace || '/' || name, count(*) from resolved_call group by 1 order by 1"
        ).fetchall()
    )


def nodes(con):
    list_nodes(con)
    return dict(con.execute("select key, status from node order by key").fetchall())


# --- client prefixes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "mcp__hub__search",
        "hub__search",
        "hub.search",
        "hub/search",
        "hub:search",
        "hub_search",
    ],
)
def test_a_client_prefix_leads_to_the_tool_of_that_server(con, tmp_path, name):
    sync(con, tmp_path, "hub", tool("search"), tool("read"))
    sync(con, tmp_path, "shop", tool("search"), tool("buy"))
    deliver(con, tmp_path, "agent", run("1", name))
    assert calls(con) == {"hub/search": 1}


def test_names_of_two_servers_stay_apart_and_a_plain_name_belongs_to_neither(con, tmp_path):
    sync(con, tmp_path, "hub", tool("search"))
    sync(con, tmp_path, "shop", tool("search"))
    deliver(con, tmp_path, "agent", run("1", "hub__search", "mcp__shop__search", "search"))
    assert calls(con) == {"agent/search": 1, "hub/search": 1, "shop/search": 1}


def test_letters_that_apis_refuse_are_found_again(con, tmp_path):
    sync(con, tmp_path, "my hub", tool("repo.search"))
    deliver(con, tmp_path, "agent", run("1", "mcp__my_hub__repo_search"))
    assert calls(con) == {"my hub/repo.search": 1}


def test_a_name_that_fits_two_tools_is_reported_and_not_guessed(con, tmp_path):
    sync(con, tmp_path, "a", tool("b__c"), tool("d_e"))
    sync(con, tmp_path, "a__b", tool("c"))
    sync(con, tmp_path, "a_d", tool("e"))
    deliver(con, tmp_path, "agent", run("1", "a__b__c", "a_d_e"))
    assert calls(con) == {"agent/a__b__c": 1, "agent/a_d_e": 1}
    assert list_names(con, list_tools(con))["ambiguous"] == [
        {"namespace": "agent", "name": "a__b__c", "fits": ["a/b__c", "a__b/c"], "calls": 1},
        {"namespace": "agent", "name": "a_d_e", "fits": ["a/d_e", "a_d/e"], "calls": 1},
    ]


def test_a_tool_of_the_own_catalogue_is_never_taken_for_a_prefix(con, tmp_path):
    sync(con, tmp_path, "hub", tool("search"))
    sync(con, tmp_path, "agent", tool("hub_search"))
    deliver(con, tmp_path, "agent", run("1", "hub_search"))
    assert calls(con) == {"agent/hub_search": 1}


def test_likely_aliases_are_reported_and_not_merged(con, tmp_path):
    sync(con, tmp_path, "s", tool("get_user"))
    deliver(con, tmp_path, "s", run("1", "Get User", "get_user"))
    tools = list_tools(con)
    assert list_names(con, tools)["likely_aliases"] == [
        {"namespace": "s", "names": ["Get User", "get_user"]}
    ]
    assert calls(con) == {"s/Get User": 1, "s/get_user": 1}
    rename(con, "Get User", "get_user")
    assert calls(con) == {"s/get_user": 2}
    assert not list_names(con, list_tools(con))["likely_aliases"]


# --- renames --------------------------------------------------------------------------------------


def test_a_rename_carries_evidence_along_and_can_be_taken_back(con, tmp_path):
    sync(con, tmp_path, "s", tool("find", "old words"), tool("read"))
    deliver(con, tmp_path, "s", run("1", "find", "read"))
    sync(con, tmp_path, "s", tool("search", "new words"), tool("read"))
    deliver(con, tmp_path, "s", run("2", "search", "read"))
    assert calls(con) == {"s/find": 1, "s/read": 2, "s/search": 1}
    result = rename(con, "find", "s/search")
    assert (result["old"], result["new"], result["calls"]) == ("s/find", "s/search", 1)
    assert not result["undone"]
    assert calls(con) == {"s/read": 2, "s/search": 2}
    assert nodes(con) == {"s/read": "active", "s/search": "active"}
    versions = {t["name"]: t["versions"] for t in list_tools(con)}
    assert versions == {"read": 1, "search": 2}
    assert renames(con) == {"s/find": "s/search"}
    assert rename(con, "search", "find")["undone"]
    assert calls(con) == {"s/find": 1, "s/read": 2, "s/search": 1}


def test_a_name_that_a_rename_left_behind_goes_on_standing_for_the_tool(con, tmp_path):
    deliver(con, tmp_path, "s", run("1", "old"))
    rename(con, "old", "new")
    rename(con, "new", "old")
    assert calls(con) == {"s/old": 1}
    assert renames(con) == {"s/new": "s/old"}
    assert not list_names(con, list_tools(con))["renamed"]
    rename(con, "old", "new")
    assert renames(con) == {"s/old": "s/new"}
    assert calls(con) == {"s/new": 1}


def test_client_prefixes_and_old_names_work_together(con, tmp_path):
    sync(con, tmp_path, "hub", tool("search"))
    deliver(con, tmp_path, "agent", run("1", "mcp__hub__find", "hub__search"))
    with pytest.raises(UnknownTool):
        rename(con, "hub/find", "hub/search")
    sync(con, tmp_path, "hub", tool("find"))
    sync(con, tmp_path, "hub", tool("search"))
    rename(con, "hub/find", "hub/search")
    assert calls(con) == {"hub/search": 2}


def test_renames_chain_and_never_go_in_a_circle(con, tmp_path):
    sync(con, tmp_path, "s", tool("c"), tool("x"))
    deliver(con, tmp_path, "s", run("1", "a", "b", "c"))
    rename(con, "a", "b")
    rename(con, "b", "c")
    assert renames(con) == {"s/a": "s/c", "s/b": "s/c"}
    assert calls(con) == {"s/c": 3}
    with pytest.raises(WrongRename, match="circle"):
        rename(con, "c", "a")
    with pytest.raises(WrongRename, match="was renamed to s/b already"):
        rename(con, "a", "x")
    with pytest.raises(WrongRename, match="twice"):
        rename(con, "x", "x")
    assert renames(con) == {"s/a": "s/c", "s/b": "s/c"}


def test_two_tools_of_the_catalogue_become_one_only_when_asked(con, tmp_path):
    sync(con, tmp_path, "s", tool("a"), tool("b"))
    deliver(con, tmp_path, "s", run("1", "a", "b"))
    with pytest.raises(WrongRename, match="--merge"):
        rename(con, "a", "b")
    assert rename(con, "a", "b", merge=True)["merged"]
    assert calls(con) == {"s/b": 2}
    assert nodes(con) == {"s/b": "active"}
    assert rename(con, "b", "a")["undone"]
    assert nodes(con) == {"s/a": "active", "s/b": "active"}


def test_a_new_name_that_the_source_does_not_use_yet_takes_the_contract(con, tmp_path):
    sync(con, tmp_path, "s", tool("find", "finds"), tool("read"))
    deliver(con, tmp_path, "s", run("1", "find"))
    rename(con, "find", "search")
    assert nodes(con) == {"s/read": "active", "s/search": "active"}
    again = sync(con, tmp_path, "s", tool("find", "finds"), tool("read"))
    assert not again["added"]
    assert not again["removed"]
    list_nodes(con)
    assert con.execute("select description from node where name = 'search'").fetchall() == [
        ("finds",)
    ]


def test_a_rename_without_a_catalogue_moves_the_node(con, tmp_path):
    deliver(con, tmp_path, "s", run("1", "old", "other"))
    rename(con, "old", "new")
    assert nodes(con) == {"s/new": "active", "s/other": "active"}


def test_names_are_found_by_key_or_alone_and_never_guessed(con, tmp_path):
    sync(con, tmp_path, "hub", tool("search"), tool("a/b"))
    sync(con, tmp_path, "shop", tool("search"))
    assert find_tool(con, "hub/search") == ("hub", "search")
    assert find_tool(con, "a/b") == find_tool(con, "hub/a/b") == ("hub", "a/b")
    with pytest.raises(UnknownTool, match=r"ambiguous: give one of hub/search, shop/search"):
        find_tool(con, "search")
    with pytest.raises(UnknownTool, match=r"the nearest are .*search"):
        find_tool(con, "serch")


def test_gold_plans_of_frozen_suites_are_read_under_new_names(con, tmp_path):
    sync(con, tmp_path, "s", tool("find"), tool("read"))
    rows = [
        trajectory(str(i), ("find", "x"), ("read", "y"), request=f"r{i}", split="test")
        for i in range(3)
    ]
    deliver(con, tmp_path, "s", *rows)
    freeze_suites(con, GraphParameters(), min_rows=1)
    sync(con, tmp_path, "s", tool("search"), tool("read"))
    assert rename(con, "find", "search")["suite_rows"] == 3
    suite = find_suite(con, "s/test")
    plans = {tuple(json.loads(tools)) for tools in read_suite(con, suite)["tools"]}
    assert plans == {("s/search", "s/read")}
    assert con.execute("select distinct tools from suite_row").fetchall() == [
        ('["s/find", "s/read"]',)
    ]


def test_old_data_with_an_old_name_is_still_read_24097(con, tmp_path):
    sync(con, tmp_path, "s", tool("search"), tool("read"))
    deliver(con, tmp_path, "s", run("1", "find", "read"))
    rename(con, "find", "search")
    deliver(con, tmp_path, "s", run("2", "find", "read"))
    assert calls(con) == {"s/read": 2, "s/search": 2}


# --- deprecations ---------------------------------------------------------------------------------


def test_a_deprecated_tool_keeps_its_history_and_is_out_of_every_plan(con, tmp_path):
    sync(con, tmp_path, "s", tool("a"), tool("b"))
    deliver(con, tmp_path, "s", run("1", "a", "b"), run("2", "b"))
    assert deprecate(con, "a") == {"tool": "s/a", "status": "deprecated", "changed": True}
    assert nodes(con) == {"s/a": "deprecated", "s/b": "active"}
    assert withdrawn(con) == {"s/a"}
    assert calls(con) == {"s/a": 1, "s/b": 2}
    list_plans(con, GraphParameters())
    plannable = con.execute("select tools, is_plannable from learning_row").fetchall()
    assert sorted(plannable) == [(["s/a", "s/b"], False), (["s/b"], True)]
    sync(con, tmp_path, "s", tool("a", "another contract"), tool("b"))
    assert nodes(con)["s/a"] == "deprecated"
    sync(con, tmp_path, "s", tool("b"))
    assert nodes(con) == {"s/b": "active"}
    sync(con, tmp_path, "s", tool("a"), tool("b"))
    assert nodes(con)["s/a"] == "deprecated"
    assert deprecate(con, "a", undo=True)["status"] == "active"
    assert not deprecate(con, "a", undo=True)["changed"]
    assert {t["name"]: t["versions"] for t in list_tools(con)} == {"a": 2, "b": 1}


def test_a_tool_without_a_catalogue_can_be_deprecated_too(con, tmp_path):
    deliver(con, tmp_path, "s", run("1", "a", "b"))
    deprecate(con, "s/a")
    assert nodes(con) == {"s/a": "deprecated", "s/b": "active"}


def test_a_deprecated_tool_stays_so_under_a_new_name(con, tmp_path):
    sync(con, tmp_path, "s", tool("a"), tool("b"))
    deprecate(con, "a")
    rename(con, "a", "c")
    assert nodes(con) == {"s/b": "active", "s/c": "deprecated"}
    assert withdrawn(con) == {"s/c"}
    assert deprecate(con, "a", undo=True) == {"tool": "s/c", "status": "active", "changed": True}
    assert nodes(con)["s/c"] == "active"


def test_what_the_source_calls_deprecated_is_not_undone_here(con, tmp_path):
    document = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"operationId": "a", "deprecated": True, "responses": {}}}},
    }
    path = tmp_path / "api.json"
    path.write_text(json.dumps(document))
    assert sync_catalogue(con, path, "s")["deprecated"] == ["a"]
    with pytest.raises(WrongRename, match="itself"):
        deprecate(con, "a", undo=True)


# --- real drift -----------------------------------------------------------------------------------


def test_retired_functions_of_bfcl_are_unlisted_with_their_nearest_names(con, data):
    folder = data / "bfcl_multi_turn"
    sync_catalogue(con, folder / "tools.jsonl", "bfcl")
    ingest_file(con, folder / "trajectories.jsonl.gz", source="bfcl", delivery=99)
    listed = {json.loads(line)["name"] for line in (folder / "tools.jsonl").open()}
    unlisted = [t for t in list_tools(con) if t["status"] == "unlisted"]
    assert unlisted
    assert not {t["name"] for t in unlisted} & listed
    assert all(set(t["nearest"]) <= listed and t["nearest"] for t in unlisted)
    nearest = {t["name"]: t["nearest"] for t in unlisted}
    assert nearest["view_messages_received"][0] == "MessageAPI.view_messages_sent"
    list_nodes(con)
    assert not con.execute(
        "select count(*) from node where list_contains(?, name)", [[t["name"] for t in unlisted]]
    ).fetchall()[0][0]


def test_resolving_names_stays_linear_in_calls(con, tmp_path):
    sync(con, tmp_path, "hub", *(tool(f"tool{i}") for i in range(200)))
    con.execute(
        "insert into trajectory (trajectory_id, source, content_hash, richness, request, "
        "links_kind, format, num_calls, meta, number) "
        "select 't' || i, 'agent', '', '[]', '', 'none', 'f', 50, '{}', i from range(4000) r(i)"
    )
    con.execute(
        "insert into call (trajectory_id, position, turn, namespace, name, arguments_state, status)"
        " select 't' || i, j, j, 'agent', 'mcp__hub__tool' || (j * 4), 'empty', 'ok' "
        "from range(4000) r(i), range(50) s(j)"
    )
    con.execute("insert into called_name select distinct namespace, name from call")
    assert sum(calls(con).values()) == 200_000
    assert all(key.startswith("hub/") for key in calls(con))


def test_a_graph_is_built_of_renamed_tools(con, tmp_path):
    sync(con, tmp_path, "s", tool("find"), tool("read"))
    deliver(con, tmp_path, "s", *(run(str(i), "find", "read") for i in range(5)))
    rename(con, "find", "search")
    version = build_graph(con, GraphParameters(), code_version="x")
    assert version.nodes == 2
    assert version.edges == 1
