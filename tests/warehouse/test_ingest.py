import gzip
import json
import random
import subprocess
import sys
import time

import pytest

from tests.factories import tool, trajectory, write_lines
from warehouse.connection import open_warehouse
from warehouse.delivery import find_files
from warehouse.errors import UnreadableInput
from warehouse.ingest import ingest_file
from warehouse.quarantine import list_quarantine, retry_quarantine, show_quarantined


def ingest(con, path, source="s", **options):
    return ingest_file(con, path, source=source, delivery=1, **options)


def rows(con):
    """Everything stored that does not depend on when it came."""
    return (
        con.sql("select * from trajectory order by all").fetchall(),
        con.sql("select * from call order by all").fetchall(),
        con.sql("select * from link order by all").fetchall(),
    )


def test_counts_are_what_came(con, tmp_path):
    path = write_lines(
        tmp_path / "t.jsonl", [trajectory("1", "a", "b"), trajectory("2", "a"), "{broken"]
    )
    report = ingest(con, path)
    assert dict(report.counts["trajectories"]) == {"read": 3, "new": 2, "quarantined": 1}
    assert dict(report.counts["calls"]) == {"read": 3, "new": 3}
    assert report.format == "normalised"
    assert con.sql("select count(*) from call").fetchall() == [(3,)]


def test_the_same_file_again_is_all_duplicates_whether_known_or_read(con, tmp_path):
    lines = [
        trajectory("1", "a", "b"),
        trajectory(None, "a", request="no id"),
        tool("a"),
        "{broken",
    ]
    first = ingest(con, write_lines(tmp_path / "a.jsonl", lines))
    before = rows(con)
    known = ingest(con, tmp_path / "a.jsonl")
    assert known.known
    read_again = ingest(con, write_lines(tmp_path / "a.jsonl", [*lines, ""]))
    assert not read_again.known
    for report in (known, read_again):
        assert report.counts["trajectories"]["duplicate"] == 2
        assert report.counts["trajectories"]["new"] == 0
        assert report.counts["trajectories"]["read"] == first.counts["trajectories"]["read"]
        assert report.counts["tools"]["duplicate"] == 1
    assert rows(con) == before
    assert len(list_quarantine(con)) == 1


def test_real_repeats_without_id_stay_apart_but_a_grown_file_brings_only_its_news(con, tmp_path):
    line = trajectory(None, "a", request="again")
    ingest(con, write_lines(tmp_path / "a.jsonl", [line, line]))
    assert con.sql("select count(*) from trajectory").fetchall() == [(2,)]
    report = ingest(con, write_lines(tmp_path / "b.jsonl", [line, line, trajectory(None, "b")]))
    assert dict(report.counts["trajectories"]) == {"read": 3, "duplicate": 2, "new": 1}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_fuller_form_replaces_the_other_whatever_comes_first(con, tmp_path, order):
    forms = [
        trajectory("1", ("a", "A")),
        trajectory("1", ("a", "A"), "b"),
        trajectory("1", ("a", "A"), ("b", "B")),
    ]
    reports = [ingest(con, write_lines(tmp_path / f"{i}.jsonl", [forms[i]])) for i in order]
    assert con.sql("select status from call order by position").fetchall() == [("ok",), ("ok",)]
    assert con.sql("select count(*) from trajectory").fetchall() == [(1,)]
    counted = [r.counts["trajectories"] for r in reports]
    assert counted[0]["new"] == 1
    assert all(c["updated"] + c["duplicate"] == 1 for c in counted[1:])


def test_different_runs_under_one_id_are_not_merged_22178(con, tmp_path):
    lines = [trajectory("x", ("a", str(i)), request=f"request {i}") for i in range(5)]
    report = ingest(con, write_lines(tmp_path / "a.jsonl", lines))
    assert report.counts["trajectories"]["new"] == 5


def test_the_same_id_in_two_sources_is_two_trajectories(con, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [trajectory("1", "a")])
    ingest(con, path, source="x")
    assert ingest(con, path, source="y").counts["trajectories"]["new"] == 1


def test_arguments_keep_their_text_and_say_what_they_are(con, tmp_path):
    def chat(arguments):
        call = {"id": "1", "function": {"name": "a", "arguments": arguments}}
        return {
            "messages": [
                {"role": "user", "content": f"q {arguments}"},
                {"role": "assistant", "tool_calls": [call]},
            ]
        }

    cut, twice, huge = '{"city": "Par', '"{\\"city\\": 1}"', '{"n": 18446744073709551617}'
    ingest(
        con,
        write_lines(tmp_path / "a.jsonl", [chat(a) for a in (cut, twice, "{}", "", huge, "[1]")]),
    )
    found = con.sql("select arguments_raw, arguments_state, status from call").fetchall()
    assert set(found) == {
        (cut, "invalid", "invalid"),
        (twice, "object", "no_result"),
        ("{}", "empty", "no_result"),
        ("", "empty", "no_result"),
        (huge, "object", "no_result"),
        ("[1]", "invalid", "invalid"),
    }


def test_late_keys_late_types_uuids_and_dates_stay_as_sent(con, tmp_path):
    lines = [trajectory(str(i), "a") for i in range(200)]
    for arguments in ({"late": 1.5}, {"n": True}, {"id": "BBD05AE7-1B2C"}, {"on": "25-11-2025"}):
        line = trajectory(json.dumps(arguments), "a")
        line["steps"][0]["arguments"] = arguments
        lines.append(line)
    ingest(con, write_lines(tmp_path / "a.jsonl", lines))
    found = {row[0] for row in con.sql("select arguments_raw from call").fetchall()}
    assert {
        '{"late":1.5}',
        '{"n":true}',
        '{"id":"BBD05AE7-1B2C"}',
        '{"on":"25-11-2025"}',
    } <= found


def test_secrets_are_gone_before_anything_is_stored(con, tmp_path):
    key, password = "sk-" + "a1" * 20, "hunter2-hunter2"
    line = trajectory("1", ("a", f"used {key}"), request=f"my key is {key}")
    line["steps"][0]["arguments"] = {"password": password, "city": "Oslo", "key": [key]}
    ingest(con, write_lines(tmp_path / "a.jsonl", [line, '{"broken": "' + key]))
    everything = str(rows(con)) + str(
        [show_quarantined(con, r["id"]) for r in list_quarantine(con)]
    )
    assert key not in everything
    assert password not in everything
    assert "Oslo" in everything


def test_a_huge_result_is_cut_but_keeps_its_size(con, tmp_path):
    big = "x" * (20 << 20)
    report = ingest(
        con, write_lines(tmp_path / "a.jsonl", [trajectory("1", ("a", big)), trajectory("2", "b")])
    )
    assert report.counts["trajectories"]["new"] == 2
    size, kept = con.sql(
        "select result_size, length(result) from call where result is not null"
    ).fetchall()[0]
    assert (size, kept) == (20 << 20, 2000)


def test_lone_surrogates_and_nul_are_stored(con, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "1", "request": "\\ud800 and \\u0000", "steps": [{"tool": "a"}]}\n\n')
    assert ingest(con, path).counts["trajectories"]["new"] == 1


def test_lines_of_single_messages_are_one_conversation(con, tmp_path):
    messages = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ]
    report = ingest(con, write_lines(tmp_path / "a.jsonl", messages))
    assert report.counts["calls"]["new"] == 1
    (tmp_path / "b.json").write_text(
        json.dumps([*messages, {"role": "user", "content": "thanks"}], indent=1)
    )
    assert ingest(con, tmp_path / "b.json", source="other").counts["calls"]["new"] == 1


def test_a_file_of_the_wrong_kind_says_what_it_is(con, tmp_path):
    (tmp_path / "x.json").write_text('{"mean": 3, "n": 2}')
    assert "keys mean, n" in ingest(con, tmp_path / "x.json").skipped
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff\xfe")
    assert "expected a known format" in ingest(con, tmp_path / "x.png").skipped
    (tmp_path / "empty.jsonl").write_text("")
    assert ingest(con, tmp_path / "empty.jsonl").skipped == "the file is empty"
    path = write_lines(tmp_path / "t.jsonl", [trajectory("1", "a"), trajectory("2", "a")])
    assert "the format nestful" in ingest(con, path, format="nestful").skipped


def test_a_cut_gzip_keeps_what_could_be_read(con, tmp_path):
    lines = [
        json.dumps(trajectory(str(i), "a", request=str(random.Random(i).random())))
        for i in range(2000)
    ]
    packed = gzip.compress("\n".join(lines).encode())
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    report = ingest(con, tmp_path / "a.jsonl.gz")
    assert report.counts["trajectories"]["quarantined"] in (1, 2)  # the end, and a line cut by it
    assert report.counts["trajectories"]["new"] > 500
    assert any("cannot be read to its end" in reason for reason in report.reasons)


def test_source_names_come_from_folder_or_file(tmp_path):
    write_lines(tmp_path / "shop" / "trajectories.jsonl", [])
    write_lines(tmp_path / "logs" / "deep" / "monday.jsonl", [])
    names = {
        p.name: source
        for p, source, _ in find_files([str(tmp_path / "shop"), str(tmp_path / "logs")])
    }
    assert names == {"trajectories.jsonl": "shop", "monday.jsonl": "logs"}
    assert find_files([str(tmp_path / "logs/deep/*.jsonl")])[0][1] == "monday"
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableInput, match="found none"):
        find_files([str(tmp_path / "empty")])
    with pytest.raises(UnreadableInput, match="does not exist"):
        find_files([str(tmp_path / "nowhere")])


def test_quarantine_shows_and_retries(con, tmp_path):
    good = json.dumps(trajectory("7", "a"))
    ingest(con, write_lines(tmp_path / "a.jsonl", [trajectory("1", "a"), "{broken"]))
    identity = list_quarantine(con)[0]["id"]
    assert show_quarantined(con, identity[:6])["raw"] == "{broken"
    assert retry_quarantine(con) == (0, 1)
    con.execute("update quarantine set raw = ?", [good])
    assert retry_quarantine(con) == (1, 0)
    assert con.sql("select count(*) from trajectory").fetchall() == [(2,)]
    with pytest.raises(UnreadableInput, match="quarantine list"):
        show_quarantined(con, "nope")


_KILLED = """
import sys
from pathlib import Path
import warehouse.ingest as ingest
from warehouse.connection import open_warehouse
ingest.BATCH_CALLS = ingest.COMMIT_CALLS = 50
with open_warehouse(Path(sys.argv[1])) as con:
    ingest.ingest_file(con, Path(sys.argv[2]), source="s", delivery=1,
                       progress=lambda path, n, share: print(n, flush=True))
"""


def test_kill_9_in_the_middle_loses_nothing_that_was_reported(tmp_path):
    path = write_lines(
        tmp_path / "t.jsonl", [trajectory(str(i), "a", "b", "c") for i in range(4000)]
    )
    base = tmp_path / "w.duckdb"
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(base), str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        reported = [int(child.stdout.readline()) for _ in range(5)]
        child.kill()
    with open_warehouse(base) as con:
        (stored,) = con.sql("select count(*) from trajectory").fetchall()[0]
        assert reported[-1] <= stored < 4000
        report = ingest(con, path)
        assert report.resumed
        assert report.counts["trajectories"]["new"] == report.counts["trajectories"]["read"] == 4000
        assert con.sql(
            "select count(*), count(distinct trajectory_id) from trajectory"
        ).fetchall() == [(4000, 4000)]
        assert con.sql("select count(*) from call").fetchall() == [(12000,)]


def test_the_airline_file_keeps_every_call(con, data):
    path = data / "raw/tau_bench/historical_trajectories/gpt-4o-airline.json.gz"
    report = ingest(con, path)
    assert report.counts["trajectories"]["new"] == 200
    assert report.counts["calls"]["new"] == 1164
    assert con.sql("select count(*) from call where status = 'error'").fetchall() == [(73,)]


@pytest.mark.parametrize("name", ["nestful", "tmdb", "toollinkos", "galaxy_iwc"])
def test_real_sets_are_stored_whole(con, data, name):
    stats = json.loads((data / name / "stats.json").read_text())
    started = time.monotonic()
    for path, source, _ in find_files([str(data / name)]):
        ingest(con, path, source=source)
    assert con.sql("select count(*), sum(num_calls)::int from trajectory").fetchall() == [
        (stats["trajectories"], stats["steps"])
    ]
    assert con.sql("select count(*) from quarantine").fetchall() == [(0,)]
    assert time.monotonic() - started < 60


def chat(*messages, **more):
    return {"messages": [{"role": "user", "content": "q"}, *messages], **more}


@pytest.mark.parametrize(
    "strange",
    [
        chat({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": None}}]}),
        chat({"role": "user", "content": [{"type": "text", "text": {"value": 1}}]}),
        {"request": "r", "steps": [{"tool": "a"}], "links": [[0, 1]]},
        {"request": "r", "steps": [{"tool": "a"}], "links": 5},
        {"request": "r", "steps": [{"tool": "a"}], "meta": [1]},
        {"name": "t", "description": "d", "parameters": [], "input_types": 5},
        {"instruction": "r", "task_nodes": [{"task": "a", "arguments": "plain text"}]},
        {"instruction": "r", "task_nodes": [{"task": {"x": 1}}]},
        {"nodes": [{"id": "a", "parameters": 5}]},
        '{"request": "r", "steps": [{"tool": "a", "arguments": ' + "[" * 900 + "]" * 900 + "}]}",
        json.dumps(trajectory("1", "a"))[:-1] + ', "deep": ' + "[" * 100_000 + "}",
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_strange_record_is_set_aside_and_its_neighbours_are_stored(con, tmp_path, strange):
    path = write_lines(tmp_path / "a.jsonl", [trajectory("1", "a"), strange, trajectory("2", "a")])
    report = ingest(con, path)
    stored = con.sql("select count(*) from trajectory where native_id in ('1', '2')").fetchall()
    assert stored == [(2,)]
    assert report.counts["trajectories"]["read"] + report.counts["tools"]["read"] == 3
    assert len(list_quarantine(con)) in (0, 1)
    assert retry_quarantine(con)[0] == 0


def test_a_timestamp_before_all_time_and_a_surrogate_id_are_stored(con, tmp_path):
    lines = [trajectory("1", "a", timestamp="0001-01-01T00:00:00+05:00"), trajectory("2", "b")]
    path = tmp_path / "a.jsonl"
    path.write_text(
        json.dumps(lines[0]) + "\n" + json.dumps(lines[1]).replace('"2"', '"\\ud800"') + "\n"
    )
    assert ingest(con, path).counts["trajectories"]["new"] == 2


def test_requests_that_repeat_their_history_are_one_trajectory(con, tmp_path):
    def call(i):
        return {
            "role": "assistant",
            "tool_calls": [{"id": f"c{i}", "function": {"name": f"t{i}", "arguments": "{}"}}],
        }

    question = {"role": "user", "content": "delete and create"}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    pairs = [
        {"request": {"messages": [question]}, "response": {"choices": [{"message": call(1)}]}},
        {
            "request": {"messages": [question, call(1), answer]},
            "response": {"choices": [{"message": call(2)}]},
        },
    ]
    for order in (pairs, pairs[::-1]):
        ingest(
            con,
            write_lines(tmp_path / "a.jsonl", order),
            source=str(len(order[0]["request"]["messages"])),
        )
    assert con.sql("select count(*), sum(num_calls)::int from trajectory").fetchall() == [(2, 4)]


def test_what_follows_a_list_is_not_lost_silently(con, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([trajectory("1", "a")], indent=1) + "\n{}")
    report = ingest(con, path)
    assert report.counts["trajectories"]["new"] == 1
    assert "content after the end of the list" in next(iter(report.reasons))
    (tmp_path / "b.json").write_bytes(
        b'[\n{"request": "\xff", "steps": []},\n{"request": "ok", "steps": []}]'
    )
    assert ingest(con, tmp_path / "b.json").counts["trajectories"]["new"] == 1


def test_equal_broken_lines_are_each_kept(con, tmp_path):
    ingest(con, write_lines(tmp_path / "a.jsonl", [trajectory("1", "a"), "{broken", "{broken"]))
    ingest(con, write_lines(tmp_path / "b.jsonl", [trajectory("1", "a"), "{broken"]))
    assert len(list_quarantine(con)) == 3
    ingest(con, write_lines(tmp_path / "b.jsonl", [trajectory("1", "a"), "{broken", ""]))
    assert len(list_quarantine(con)) == 3


def test_good_records_behind_many_foreign_ones_are_found(con, tmp_path):
    path = write_lines(
        tmp_path / "a.jsonl", [*[{"x": i} for i in range(150)], trajectory("1", "a")]
    )
    report = ingest(con, path)
    assert dict(report.counts["trajectories"]) == {"read": 151, "new": 1, "quarantined": 150}


def test_a_source_name_with_a_slash_is_refused(con, tmp_path):
    with pytest.raises(UnreadableInput, match="without a slash"):
        ingest(con, write_lines(tmp_path / "a.jsonl", [trajectory("1", "a")]), source="a/b")


def test_runs_of_one_request_with_other_call_ids_or_dates_stay_apart(con, tmp_path):
    def pair(i):
        call = {
            "role": "assistant",
            "tool_calls": [{"id": f"c{i}", "function": {"name": "t", "arguments": "{}"}}],
        }
        question = {"role": "user", "content": "the same"}
        return {"request": {"messages": [question]}, "response": {"choices": [{"message": call}]}}

    report = ingest(con, write_lines(tmp_path / "a.jsonl", [pair(i) for i in range(5)]))
    assert report.counts["trajectories"]["new"] == 5
    days = [trajectory("1", "a", timestamp=f"2024-03-0{i}") for i in (1, 2)]
    report = ingest(con, write_lines(tmp_path / "b.jsonl", days), source="dated")
    assert report.counts["trajectories"]["new"] == 2


def test_a_call_with_broken_arguments_may_be_answered_later(con, tmp_path):
    def conversation(*answers):
        call = {"id": "1", "function": {"name": "a", "arguments": "{broken"}}
        return {
            "id": "c",
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "tool_calls": [call]},
                *({"role": "tool", "tool_call_id": "1", "content": text} for text in answers),
            ],
        }

    ingest(con, write_lines(tmp_path / "a.jsonl", [conversation(), conversation("bad arguments")]))
    assert con.sql("select count(*), max(status) from call").fetchall() == [(1, "invalid")]


def test_single_messages_are_gathered_by_conversation_id(con, tmp_path):
    lines = [{"role": "user", "content": f"question {c}", "conversation_id": c} for c in ("x", "y")]
    report = ingest(con, write_lines(tmp_path / "a.jsonl", [*lines, {"odd": 1}]))
    assert dict(report.counts["trajectories"]) == {"read": 3, "new": 2, "quarantined": 1}


def test_files_that_only_look_like_ours_are_refused(con, tmp_path):
    for value in (
        {"name": "my-agent", "version": "1.0.0", "description": "a package"},
        {"name": "t", "description": "d", "engines": {"node": ">=20"}},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "q"}}]},
    ):
        assert ingest(con, write_lines(tmp_path / "x.json", [value])).skipped
    assert con.sql("select count(*) from tool_version").fetchall() == [(0,)]


def test_folders_are_read_without_what_is_hidden_or_foreign(tmp_path, monkeypatch):
    for name in (
        ".git/a.json",
        ".venv/b.json",
        "node_modules/x/package.json",
        "deep/er/c.json",
        "trajectories.jsonl",
    ):
        write_lines(tmp_path / "set" / name, [])
    monkeypatch.chdir(tmp_path / "set")
    assert {(p.name, s) for p, s, _ in find_files(["."])} == {
        ("c.json", "set"),
        ("trajectories.jsonl", "set"),
    }
    assert [p.name for p, _, _ in find_files([f"{tmp_path}/s?t/**/*.json"])][:1] == ["c.json"]
    with pytest.raises(UnreadableInput, match="empty path"):
        find_files([""])
