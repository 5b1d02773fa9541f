"""Mutated deliveries: no error escapes, and every record is stored, told of, or set aside."""

import json
from collections import Counter

import pytest

from tests.factories import tool, trajectory, write_lines
from tests.fuzz.run import fuzz, try_file
from warehouse.ingest import ingest_file
from warehouse.readers import normalised, registry
from warehouse.readers.reading import read_items
from warehouse.readers.registry import shape_of
from warehouse.readers.stream import Item
from warehouse.records import Ignored, Rejected, TrajectoryRecord


def read(*values):
    items = [Item(f"line {n}", json.dumps(v), v) for n, v in enumerate(values, start=1)]
    return [record for _, record in read_items(items)]


def failures(outcome):
    return "\n\n".join(f"{format}: {problem}" for format, _, problem in outcome.failures[:5])


def test_mutated_files_are_conserved():
    outcome = fuzz(70, seed=0)
    assert not outcome.failures, failures(outcome)
    assert sum(counts["mutations"] for counts in outcome.table.values()) == 70
    assert sum(counts["trajectories"] for counts in outcome.table.values()) > 10


@pytest.mark.slow
def test_many_more_mutated_files_are_conserved():
    outcome = fuzz(2000, seed=1)
    assert not outcome.failures, failures(outcome)


def test_a_reader_that_loses_what_it_reads_is_found(con, tmp_path, monkeypatch):
    def outcome():
        data = write_lines(tmp_path / "a.jsonl", [trajectory("1", "a"), tool("a")]).read_bytes()
        return try_file(con, tmp_path / "b.jsonl", data, "s", Counter())

    assert outcome() == []
    shapes = [s for s in registry.SHAPES if s.matches is not normalised.is_trajectory]
    lossy = registry.Shape("normalised", normalised.is_trajectory, lambda item: iter(()))
    monkeypatch.setattr(registry, "SHAPES", (lossy, *shapes))
    con.execute("delete from ingest_file")
    assert outcome() == ["the reader yields nothing at all for line 1 (normalised)"]


# --- what it found --------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [["user"], {"a": 1}, 1, None])
def test_a_message_or_block_of_an_odd_kind_costs_nothing_else(odd):
    call = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": "do it"},
        {"role": odd, "content": "odd"},
        {"role": "assistant", "tool_calls": [call]},
    ]
    blocks = [
        {"role": "user", "content": "do it"},
        {
            "role": "assistant",
            "content": [
                {"type": odd, "text": "odd"},
                {"type": "tool_use", "id": "c1", "name": "a", "input": {}},
            ],
        },
    ]
    items = [
        {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"},
        {"type": odd, "text": "odd"},
    ]
    for value in (chat, {"messages": chat}, blocks, {"messages": blocks}, items):
        found = read(value)
        (record,) = (r for r in found if isinstance(r, TrajectoryRecord))
        assert [c.name for c in record.calls] == ["a"]
        # Bedrock's text blocks have no type: there nothing is odd.
        assert odd is None or any(isinstance(r, Ignored) for r in found)


@pytest.mark.parametrize("key", ["type", "role", "source", "kind", "object", "run_type", "name"])
@pytest.mark.parametrize("odd", [[], {}, [[]], "", 10**400, "\ud800"])
def test_no_test_of_a_format_stumbles_over_odd_values(key, odd):
    shape_of({key: odd})
    shape_of([{key: odd}, {key: odd}])
    shape_of({"messages": [{key: odd}], "request": {key: odd}, "response": {key: odd}})


def test_the_flag_of_a_plain_result_is_an_error():
    call = {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "no seats", "is_error": True}
    (record,) = read([{"role": "assistant", "tool_calls": [call]}, result])
    assert [c.status for c in record.calls] == ["error"]


def test_lone_surrogates_in_events_are_stored_as_what_is_assembled_of_them(con, tmp_path):
    run = {
        "id": "r1",
        "trace_id": "t",
        "run_type": "tool",
        "name": "a",
        "start_time": "2026-01-01T00:00:00Z",
        "inputs": {"q": "\ud800"},
        "outputs": {"output": "x\udfff"},
    }
    first = ingest_file(con, write_lines(tmp_path / "a.jsonl", [run]), source="s", delivery=1)
    assert first.counts["calls"]["new"] == 1
    before = con.sql("select * from call").fetchall()
    again = write_lines(tmp_path / "b.jsonl", [run, ""])
    assert ingest_file(con, again, source="s", delivery=1).counts["calls"]["duplicate"] == 1
    assert con.sql("select * from call").fetchall() == before


def test_batches_without_spans_and_odd_parts_of_batches_are_told():
    empty = {"resourceSpans": [{"scopeSpans": [{"spans": []}]}]}
    assert [type(r) for r in read(empty, {"resourceSpans": []})] == [Ignored, Ignored]
    odd = {
        "resourceSpans": [
            "batch",
            {"scopeSpans": "scopes"},
            {"scopeSpans": ["scope", {"spans": "spans"}, {"spans": {"a": 1}}]},
        ]
    }
    assert [type(r) for r in read(odd)] == [Rejected] * 5


def test_session_events_of_which_none_says_anything_are_told():
    quiet = {"id": "sevt_1", "processed_at": "2026-01-01T00:00:00Z", "type": "session.status_idle"}
    told = ["client.beta.sessions.events.stream", quiet]
    assert [type(r) for r in read(told)] == [Ignored]


def test_trajectories_beside_odd_lines_stay(con, tmp_path):
    lines = [trajectory("1", "a"), {"type": [1], "role": {}}, {"source": []}, trajectory("2", "b")]
    report = ingest_file(con, write_lines(tmp_path / "a.jsonl", lines), source="s", delivery=1)
    assert report.counts["trajectories"]["new"] == 2
    assert report.quarantined == 2


@pytest.mark.parametrize("odd", [None, 1, "x", [], {"index": []}, {"choices": 1, "index": {}}])
def test_an_odd_event_of_a_stream_costs_nothing_else(odd):
    function = {"name": "a", "arguments": "{}"}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    chunk = {"id": "1", "object": "chat.completion.chunk"}
    chat = [
        {**chunk, "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]},
        odd,
        {**chunk, "choices": [{"index": 0, "delta": odd}]},
        {**chunk, "choices": odd},
        {**chunk, "choices": [{"index": 0, "delta": {"tool_calls": odd}}]},
        {**chunk, "choices": [{"index": 0, "delta": {"tool_calls": [odd]}}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    block = {"type": "tool_use", "id": "c1", "name": "a", "input": {}}
    blocks = [
        {"type": "message_start", "message": {"role": "assistant", "content": odd}},
        odd,
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_start", "index": [], "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": odd},
        {"type": "message_stop"},
    ]
    item = {"type": "function_call", "call_id": "c1", "name": "a", "arguments": "{}"}
    items = [
        {"type": "response.created", "response": {"id": "r", "output": []}},
        odd,
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": [], "item": item},
        {"type": "response.output_text.delta", "output_index": {}, "delta": odd},
    ]
    for events in (chat, blocks, items):
        found = read(events)
        (record,) = (r for r in found if isinstance(r, TrajectoryRecord))
        assert [c.name for c in record.calls] == ["a"]
        assert any(isinstance(r, Ignored) for r in found)


def test_what_holds_nothing_says_so():
    assert [type(r) for r in read({"nodes": [], "links": []})] == [Ignored]
    ends = [{"type": "content_block_stop", "index": 0}, {"type": "message_stop"}]
    assert [type(r) for r in read(*ends)] == [Ignored]
