"""Kinds of change between contracts, and what looks like a rename."""

import pytest

from tests.factories import tool
from warehouse.contracts import changes, common_spellings, contract_of, likely_renames
from warehouse.records import ToolRecord
from warehouse.storing import tool_row


def contract(name="a", description="d", *parameters, **fields):
    record = ToolRecord(name, description, tuple(parameters), **fields)
    return contract_of(tool_row("s", record, 1))


def parameter(name, type="string", required=False, description="", **more):
    return {"name": name, "type": type, "required": required, "description": description, **more}


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (("a", "d"), ("a", "d"), []),
        (("a", "old words"), ("a", "new words"), ["description"]),
        (("a", "d", parameter("x")), ("a", "d", parameter("y")), ["parameters"]),
        (("a", "d", parameter("x")), ("a", "d", parameter("x", "integer")), ["parameters"]),
        (("a", "d", parameter("x", "Size")), ("a", "d", parameter("x", "Length")), ["types"]),
        (("a", "d", parameter("x")), ("a", "d", parameter("x", required=True)), ["required"]),
        (
            ("a", "d", parameter("x")),
            ("a", "d", parameter("x"), parameter("y", required=True)),
            ["parameters", "required"],
        ),
        (
            ("a", "d", parameter("x", description="old")),
            ("a", "d", parameter("x", description="new")),
            ["description"],
        ),
        (
            ("a", "d", parameter("x")),
            ("a", "d", parameter("x"), parameter("y", description="said of what came")),
            ["parameters"],
        ),
        (
            ("a", "d", parameter("x", **{"in": "path"})),
            ("a", "d", parameter("x", **{"in": "query"})),
            ["parameters"],
        ),
    ],
)
def test_each_kind_of_change_is_told_apart(old, new, kinds):
    assert changes(contract(*old), contract(*new)) == kinds
    before, after = contract(*old).fingerprints(), contract(*new).fingerprints()
    assert (before == after) == (not kinds)


def test_outputs_are_a_kind_of_their_own():
    assert changes(contract(), contract(output_types=("x:string",))) == ["outputs"]
    assert changes(contract(), contract(input_types=("Thing",))) == ["types"]


def contracts(**tools):
    return {name: contract(name, *parts) for name, parts in tools.items()}


def test_a_rename_is_likely_with_its_evidence_and_never_between_strangers(con):
    removed = contracts(
        list_files=("List the files of a folder", parameter("folder")),
        send_mail=("Send an e-mail to a person", parameter("to"), parameter("text")),
        translate=("Translate a text", parameter("text")),
    )
    added = contracts(
        files_list=("List the files of a folder", parameter("folder")),
        send_email=("Send an e-mail to a person", parameter("recipient"), parameter("text")),
        play_music=("Play a song in the living room", parameter("song")),
    )
    found = likely_renames(con, removed, added)
    assert [(r["old"], r["new"]) for r in found] == [
        ("list_files", "files_list"),
        ("send_mail", "send_email"),
    ]
    assert found[0]["evidence"]["contract"]
    assert found[0]["score"] > found[1]["score"] >= 0.65
    assert 0 < found[1]["evidence"]["parameters"] < 1


def test_a_contract_that_says_nothing_is_no_evidence(con):
    removed, added = {"a": contract("a", "")}, {"zzz": contract("zzz", "")}
    assert likely_renames(con, removed, added) == []


def test_many_tools_are_paired_by_what_they_share(con):
    removed = {
        f"svc.Old{i}Thing": contract("x", f"does {i}", parameter(f"p{i}")) for i in range(150)
    }
    added = {f"svc.New{i}Thing": contract("x", f"does {i}", parameter(f"p{i}")) for i in range(150)}
    found = likely_renames(con, removed, added)
    assert len(found) == 150
    assert all(r["old"].replace("Old", "New") == r["new"] for r in found)


def test_spellings_that_differ_in_case_blanks_or_punctuation_are_grouped():
    names = ["get_user", "Get User", "getUser", "get_users", "日本", "日 本", "--"]
    assert common_spellings(names) == [["Get User", "getUser", "get_user"], ["日 本", "日本"]]


def test_tool_lines_keep_their_contract_hash():
    line = tool("a", "d", parameters=[parameter("x")])
    record = ToolRecord("a", "d", tuple(line["parameters"]), ("text",), ("é:str",))
    from warehouse.identity import digest

    row = tool_row("s", record, 1)
    assert row[2] == digest(row[3], row[4], row[5], row[6])[:32]
