"""Conversations that come in pieces: whatever order, split and accident, the same rows."""

import json
import random

import pytest

from tests.factories import trajectory, write_lines
from warehouse import ingest as ingesting
from warehouse.connection import open_in_memory
from warehouse.errors import UnreadableInput
from warehouse.forget import forget_source, forget_trajectory
from warehouse.ingest import ingest_file, settle_pending
from warehouse.readers.carriers import iter_items
from warehouse.readers.large import iter_parts
from warehouse.readers.stream import buffered
from warehouse.staging import Handling


def run(number, trace, name, *, second, inputs=None, outputs=None, error=None, ended=True):
    """A LangSmith tool run under the root of its trace."""
    identity = f"00000000-0000-4000-8000-{trace:06d}{number:06d}"
    root = f"00000000-0000-4000-8000-{trace:06d}{0:06d}"
    stamp = f"20260101T0000{second:02d}000000Z"
    value = {
        "id": identity,
        "trace_id": root,
        "parent_run_id": root if number else None,
        "dotted_order": f"20260101T000000000000Z{root}" + (f".{stamp}{identity}" if number else ""),
        "name": name,
        "run_type": "tool" if number else "chain",
        "inputs": inputs or {},
        "start_time": f"2026-01-01T00:00:{second:02d}+00:00",
    }
    if ended:
        value["end_time"] = f"2026-01-01T00:00:{second:02d}.500+00:00"
        value["outputs"] = outputs if outputs is not None else {"output": "done"}
    if error:
        value["error"] = error
    return value


def trace(number, *tools):
    root = run(0, number, "agent", second=0, inputs={"input": f"request {number}"})
    return [root, *(run(i + 1, number, t, second=2 * i + 1) for i, t in enumerate(tools))]


def ingest(con, path, **options):
    return ingest_file(con, path, source="s", delivery=1, **options)


TABLES = ("trajectory", "call", "link", "fragment", "pending")


def tables(con):
    return {
        t: con.sql(f"select columns(c -> c <> 'number') from {t} order by all").fetchall()
        for t in TABLES
    }


def test_a_trace_split_over_files_in_any_order_is_one_trajectory(tmp_path):
    runs = [line for n in range(3) for line in trace(n, "a", "b", "c", "d")]
    with open_in_memory() as con:
        ingest(con, write_lines(tmp_path / "all.jsonl", runs))
        whole = tables(con)
    assert [len(whole[t]) for t in TABLES] == [3, 12, 0, 3, 0]
    for seed in range(6):
        order = runs * 2
        random.Random(seed).shuffle(order)
        cut = random.Random(seed).randrange(1, len(order))
        with open_in_memory() as con:
            for i, part in enumerate((order[:cut], order[cut:], order[:3])):
                ingest(con, write_lines(tmp_path / f"{seed}-{i}.jsonl", part))
            assert tables(con) == whole


def test_counts_tell_new_updated_and_duplicate_conversations(con, tmp_path):
    first = ingest(con, write_lines(tmp_path / "a.jsonl", trace(1, "a", "b")))
    assert dict(first.counts["calls"]) == {"read": 2, "new": 2}
    later = [run(3, 1, "c", second=5), *trace(2, "a"), *trace(1, "a", "b")]
    second = ingest(con, write_lines(tmp_path / "b.jsonl", later))
    assert second.counts["trajectories"]["updated"] == 1
    assert second.counts["trajectories"]["new"] == 1
    assert second.counts["calls"]["read"] == 4
    third = ingest(con, write_lines(tmp_path / "c.jsonl", later[::-1]))
    assert third.counts["trajectories"]["duplicate"] == 2
    assert third.counts["trajectories"]["updated"] == third.counts["trajectories"]["new"] == 0


def test_a_conversation_over_many_batches_is_counted_once(con, tmp_path, monkeypatch):
    monkeypatch.setattr(ingesting, "BATCH_CALLS", 7)
    monkeypatch.setattr(ingesting, "COMMIT_CALLS", 20)
    runs = [line for n in range(5) for line in trace(n, *"abcdefgh")]
    random.Random(1).shuffle(runs)
    report = ingest(con, write_lines(tmp_path / "a.jsonl", runs))
    assert {k: v for k, v in report.counts["calls"].items() if v} == {"read": 40, "new": 40}
    assert {k: v for k, v in report.counts["trajectories"].items() if v} == {"read": 5, "new": 5}
    assert {k: v for k, v in report.statuses.items() if v} == {"ok": 40}
    assert con.sql("select count(*) from fragment").fetchall() == [(5,)]


def test_an_open_run_is_completed_by_its_update_15(con, tmp_path):
    root, *_ = trace(1)
    opened = run(1, 1, "a", second=1, ended=False)
    ingest(con, write_lines(tmp_path / "a.jsonl", [root, opened]))
    assert con.sql("select status, ended_at from call").fetchall() == [("incomplete", None)]
    ingest(con, write_lines(tmp_path / "b.jsonl", [run(1, 1, "a", second=1)]))
    ((status, ended),) = con.sql("select status, ended_at from call").fetchall()
    assert status == "ok"
    assert ended is not None


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("handling", [None, Handling(drop_payloads=True, salt=b"pepper")])
def test_what_a_killed_reading_left_pending_is_finished_by_the_next(
    tmp_path, monkeypatch, handling
):
    runs = [*trace(1, "a", "b", "c"), run(4, 1, "d", second=9, error="it failed")]
    with open_in_memory() as con:
        ingest(con, write_lines(tmp_path / "whole.jsonl", runs), handling=handling)
        whole = tables(con)
    with open_in_memory() as con:
        ingest(con, write_lines(tmp_path / "a.jsonl", runs[:2]), handling=handling)

        def killed(self):
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(ingesting._Run, "settle", killed)
            with pytest.raises(Killed):
                ingest(con, write_lines(tmp_path / "b.jsonl", runs[2:]), handling=handling)
        assert con.sql("select count(*) from pending").fetchall() == [(1,)]
        settle_pending(con, delivery=2, handling=handling)
        assert tables(con) == whole


def test_an_interrupted_reading_goes_on_behind_what_was_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(ingesting, "BATCH_CALLS", 10)
    monkeypatch.setattr(ingesting, "COMMIT_CALLS", 10)
    lines = [trajectory(str(i), "a", "b") for i in range(40)]
    lines += [line for n in range(20) for line in trace(n, "x", "y")]
    path = write_lines(tmp_path / "a.jsonl", lines)
    with open_in_memory() as con:
        ingest(con, path)
        whole = tables(con)
    seen = []
    read = ingesting.iter_items

    def counted(*arguments, **options):
        for item in read(*arguments, **options):
            seen.append(item.place)
            yield item

    monkeypatch.setattr(ingesting, "iter_items", counted)
    with open_in_memory() as con:

        def killed(path, count, share):
            if share and share > 0.6:
                raise Killed

        with pytest.raises(Killed):
            ingest(con, path, progress=killed)
        stored = con.sql("select count(*) from trajectory").fetchall()[0][0]
        assert 0 < stored < 60
        seen.clear()
        report = ingest(con, path)
        assert report.resumed
        assert 0 < len(seen) < len(lines) / 2
        assert tables(con) == whole
        # The conversation that the accident cut in two is counted on both sides of it.
        assert 60 <= report.counts["trajectories"]["read"] <= 61
        assert con.sql("select count(*) from ingest_progress").fetchall() == [(0,)]


def test_equal_records_without_an_id_are_counted_from_the_start_after_an_accident(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(ingesting, "BATCH_CALLS", 4)
    monkeypatch.setattr(ingesting, "COMMIT_CALLS", 4)
    path = write_lines(tmp_path / "a.jsonl", [trajectory(None, "a")] * 10)
    with open_in_memory() as con:
        calls = []

        def killed(*told):
            calls.append(told)
            if len(calls) == 2:
                raise Killed

        with pytest.raises(Killed):
            ingest(con, path, progress=killed)
        assert not ingest(con, path).resumed
        assert con.sql("select count(*) from trajectory").fetchall() == [(10,)]


# --- payloads -------------------------------------------------------------------------------------


def secret_runs():
    found = {"reference": "REF-778899"}
    return [
        run(0, 1, "agent", second=0, inputs={"input": "book it"}),
        run(1, 1, "search", second=1, inputs={"city": "Reykjavik"}, outputs=found),
        run(2, 1, "book", second=3, inputs={"ref": "REF-778899"}, outputs={"output": "booked"}),
        run(3, 1, "book", second=5, inputs={"ref": "REF-778899"}, error="seat REF-778899 is taken"),
    ]


@pytest.mark.parametrize("kind", ["fragments", "whole"])
def test_dropped_payloads_are_nowhere_yet_dataflow_is_found(con, tmp_path, kind):
    if kind == "fragments":
        lines = secret_runs()
    else:
        steps = [
            {"tool": "search", "arguments": {"city": "Reykjavik"}, "observation": "REF-778899 ok"},
            {"tool": "book", "arguments": {"ref": "REF-778899"}, "observation": "booked"},
            {"tool": "book", "arguments": {"ref": "REF-778899"}, "error": "REF-778899 is taken"},
        ]
        lines = [{"id": "1", "request": "book it", "steps": steps}, '{"broken REF-778899']
    path = write_lines(tmp_path / "a.jsonl", lines)
    report = ingest(con, path, handling=Handling(drop_payloads=True, salt=b"pepper"))
    everything = str(tables(con)) + str(con.sql("select * from quarantine").fetchall())
    assert "REF-778899" not in everything
    assert "Reykjavik" not in everything
    links = con.sql(
        "select distinct source_position, target_position from link where kind = 'mined'"
    ).fetchall()
    assert (0, 1) in links
    statuses = [s for (s,) in con.sql("select status from call order by position").fetchall()]
    assert statuses == ["ok", "ok", "error"]
    raw = [r for (r,) in con.sql("select arguments_raw from call order by position").fetchall()]
    assert raw[1] == raw[2] != raw[0]
    assert report.counts["calls"]["new"] == 3


def test_a_trajectory_is_known_with_and_without_its_payloads(con, tmp_path):
    line = trajectory("1", ("a", "result one"), "b")
    ingest(con, write_lines(tmp_path / "a.jsonl", [line]))
    again = ingest(
        con,
        write_lines(tmp_path / "b.jsonl", [line, ""]),
        handling=Handling(drop_payloads=True, salt=b"x"),
    )
    assert again.counts["trajectories"]["duplicate"] == 1


def test_a_huge_result_of_an_event_is_cut_with_its_hash_and_size(con, tmp_path):
    text = "KEY-12345 " + "x" * 200_000
    runs = [
        run(0, 1, "agent", second=0),
        run(1, 1, "a", second=1, outputs={"output": text}),
        run(2, 1, "b", second=3, inputs={"key": "KEY-12345"}),
    ]
    ingest(con, write_lines(tmp_path / "a.jsonl", runs))
    size, kept = con.sql(
        "select result_size, length(result) from call where name = 'a'"
    ).fetchall()[0]
    assert size >= 200_000
    assert kept == 2000
    assert con.sql("select max(length(events)) < 20000 from fragment").fetchall() == [(True,)]
    assert con.sql("select count(*) from link where kind = 'mined'").fetchall() == [(1,)]


def test_secrets_in_events_are_gone_before_they_are_stored_and_counted(con, tmp_path):
    key = "sk-" + "a1" * 20
    runs = trace(1, "a")
    runs[1]["inputs"] = {"password": "hunter2-hunter2", "note": f"key {key}"}
    report = ingest(con, write_lines(tmp_path / "a.jsonl", runs))
    assert key not in str(tables(con))
    assert "hunter2" not in str(tables(con))
    assert report.redacted >= 1


# --- forgetting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fragments", "whole"])
def test_what_is_forgotten_stays_away(con, tmp_path, kind):
    lines = [*trace(1, "a"), *trace(2, "b")] if kind == "fragments" else [
        trajectory("1", "a"), trajectory("2", "b"),
    ]  # fmt: skip
    ingest(con, write_lines(tmp_path / "a.jsonl", lines))
    identity = con.sql("select trajectory_id from call where name = 'a'").fetchall()[0][0]
    gone = forget_trajectory(con, identity[:10])
    assert gone.to_json()["calls"] == 1
    assert con.sql("select distinct name from call").fetchall() == [("b",)]
    assert identity not in str(tables(con))
    again = ingest(con, write_lines(tmp_path / "b.jsonl", lines[::-1]))
    assert con.sql("select distinct name from call").fetchall() == [("b",)]
    assert again.forgotten >= 1
    with pytest.raises(UnreadableInput, match="fits none"):
        forget_trajectory(con, identity[:10])


def test_a_forgotten_source_leaves_nothing(con, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [trajectory("1", "a"), *trace(1, "b"), "{broken"])
    ingest(con, path)
    forget_source(con, "s")
    for table in (*TABLES, "quarantine", "ingest_file"):
        assert con.sql(f"select count(*) from {table}").fetchall() == [(0,)], table
    with pytest.raises(UnreadableInput, match="there are: none"):
        forget_source(con, "s")
    assert ingest(con, path).counts["trajectories"]["new"] == 2


# --- documents too large to hold ------------------------------------------------------------------


def test_a_document_is_cut_at_its_lists_and_put_together_again(tmp_path, monkeypatch):
    monkeypatch.setattr("warehouse.readers.large._PART", 3)
    runs = [line for n in range(4) for line in trace(n, "a", "b", "c")]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"runs": runs}, indent=1))
    with path.open("rb") as file:
        parts = [item.value for item in iter_parts(buffered(file))]
    assert [len(part["runs"]) for part in parts] == [3] * 5 + [1]
    assert [r for part in parts for r in part["runs"]] == runs


def test_a_large_document_is_read_in_parts_and_a_broken_one_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("warehouse.readers.stream.LARGEST", 2000)
    runs = [line for n in range(8) for line in trace(n, "a", "b", "c")]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"runs": runs}, indent=1))
    with open_in_memory() as con:
        ingest(con, path)
        assert con.sql("select count(*) from call").fetchall() == [(24,)]
    path.write_text(path.read_text()[:-400])
    with path.open("rb") as file:
        items = list(iter_items(file))
    assert items[-1].error
    assert any(item.error is None for item in items)


def test_a_line_too_long_to_hold_is_set_aside_and_its_neighbours_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("warehouse.readers.stream.LARGEST", 3000)
    path = write_lines(
        tmp_path / "a.jsonl",
        [trajectory("1", "a"), trajectory("2", ("b", "x" * 9000)), trajectory("3", "c")],
    )
    with open_in_memory() as con:
        report = ingest(con, path)
        assert report.counts["trajectories"]["new"] == 2
        assert report.quarantined == 1
        assert "more than" in next(iter(report.reasons))
