import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.catalogue import list_tools, sync_catalogue
from warehouse.errors import UnreadableInput
from warehouse.ingest import ingest_file


def parameter(name, type="string", required=False, description=""):
    return {"name": name, "type": type, "required": required, "description": description}


def test_a_sync_says_what_came_went_and_changed(con, tmp_path):
    old = [
        tool("kept"),
        tool("gone", "a contract of its own"),
        tool("old_name", "renames me"),
        tool("reworded", "old words"),
        tool("wider", parameters=[parameter("q")]),
        tool("stricter", parameters=[parameter("q")]),
    ]
    new = [
        tool("kept"),
        tool("new_name", "renames me"),
        tool("reworded", "new words"),
        tool("wider", parameters=[parameter("q"), parameter("limit", "integer")]),
        tool("stricter", parameters=[parameter("q", required=True)]),
    ]
    first = sync_catalogue(con, write_lines(tmp_path / "a.jsonl", old), "s")
    assert (len(first["added"]), first["removed"]) == (6, [])
    second = sync_catalogue(con, write_lines(tmp_path / "b.jsonl", new), "s")
    assert second["added"] == ["new_name"]
    assert second["removed"] == ["gone", "old_name"]
    assert second["changed"] == {
        "parameters": ["wider"],
        "required": ["stricter"],
        "types": [],
        "outputs": [],
        "description": ["reworded"],
    }
    assert second["renamed"] == [["old_name", "new_name"]]
    assert second["alarm"]
    third = sync_catalogue(con, tmp_path / "b.jsonl", "s")
    assert not any([third["added"], third["removed"], *third["changed"].values()])
    assert {t["name"] for t in list_tools(con)} == {
        "kept",
        "new_name",
        "reworded",
        "wider",
        "stricter",
    }
    back = sync_catalogue(con, tmp_path / "a.jsonl", "s")
    assert back["added"] == back["returned"] == ["gone", "old_name"]


def test_a_file_without_tools_changes_nothing(con, tmp_path):
    sync_catalogue(con, write_lines(tmp_path / "a.jsonl", [tool("a")]), "s")
    for lines in ([], ["{broken", tool("b")], [{"request": "x", "id": 1}]):
        with pytest.raises(UnreadableInput, match="nothing was changed"):
            sync_catalogue(con, write_lines(tmp_path / "b.jsonl", lines), "s")
    assert [t["name"] for t in list_tools(con)] == ["a"]


@pytest.mark.slow
def test_the_two_aws_catalogues_differ_as_counted(con, data):
    sync_catalogue(con, data / "aws_operations_2022/tools.jsonl.gz", "aws")
    result = sync_catalogue(con, data / "aws_operations/tools.jsonl.gz", "aws")
    assert len(result["added"]) == 9416
    assert len(result["removed"]) == 869
    assert len(result["changed"]["parameters"]) == 1584
    assert len(result["changed"]["required"]) == 240


def deliver(con, path):
    (number,) = con.execute("select nextval('delivery_number')").fetchall()[0]
    ingest_file(con, path, source="s", delivery=number)


def test_a_removed_tool_that_traces_call_is_unlisted(con, tmp_path):
    sync_catalogue(con, write_lines(tmp_path / "a.jsonl", [tool("a"), tool("b")]), "s")
    deliver(con, write_lines(tmp_path / "t.jsonl", [trajectory("1", ("b", "x"))]))
    sync_catalogue(con, write_lines(tmp_path / "b.jsonl", [tool("a")]), "s")
    assert {(t["name"], t["status"]) for t in list_tools(con)} == {
        ("a", "active"),
        ("b", "unlisted"),
    }


def test_a_tool_that_is_delivered_again_comes_back_and_contracts_may_go_back(con, tmp_path):
    old, new = [tool("a", "old")], [tool("a", "new")]
    for i, lines in enumerate((old, new, old)):
        deliver(con, write_lines(tmp_path / f"{i}.jsonl", [*lines, tool(f"x{i}")]))
    assert {t["description"] for t in list_tools(con) if t["name"] == "a"} == {"old"}
    sync_catalogue(con, write_lines(tmp_path / "s.jsonl", [tool("x0")]), "s")
    assert {t["name"] for t in list_tools(con)} == {"x0"}
    deliver(con, write_lines(tmp_path / "again.jsonl", [tool("a", "old")]))
    assert {t["name"] for t in list_tools(con)} == {"x0", "a"}


@pytest.mark.parametrize(
    "line",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a"}},
        {"role": "user", "content": "q"},
        trajectory("1", "a"),
    ],
)
def test_a_record_of_a_trace_is_no_catalogue(con, tmp_path, line):
    with pytest.raises(UnreadableInput, match="nothing was changed"):
        sync_catalogue(con, write_lines(tmp_path / "a.jsonl", [line]), "s")
