"""Memory follows the largest record, not the file."""

import json
import subprocess
import sys

import pytest

_CHILD = """
import resource, sys, time
from pathlib import Path
from warehouse.connection import open_warehouse
from warehouse.ingest import ingest_file

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

with open_warehouse(Path(sys.argv[1])) as con:
    before = peak()
    started = time.process_time()
    report = ingest_file(con, Path(sys.argv[2]), source="s", delivery=1)
    print(peak() - before, report.counts["calls"]["new"], time.process_time() - started)
"""


def grown(folder, path):
    """(MiB that an ingest of the file adds, calls, CPU seconds), in a process of its own."""
    out = subprocess.run(
        [sys.executable, "-c", _CHILD, str(folder / f"{path.stem}.duckdb"), str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return int(out[0]), int(out[1]), float(out[2])


def conversation(number, size):
    call = {"id": f"c{number}", "type": "function", "function": {"name": "a", "arguments": "{}"}}
    return {
        "conversation_id": f"n{number}",
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number} " + "x " * size},
        ],
    }


def span(number, trace="a" * 32):
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": f"tool_{number % 50}",
        "gen_ai.tool.call.arguments": json.dumps({"q": f"value {number}"}),
        "gen_ai.tool.call.result": json.dumps({"found": f"value {number + 1}"}),
    }
    start = 1_760_000_000_000_000_000 + number * 1_000_000
    return {
        "traceId": trace,
        "spanId": f"{number + 2:016x}",
        "parentSpanId": f"{1:016x}",
        "name": "execute_tool",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 500_000),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }


def request(spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["lines", "list"])
def test_memory_does_not_grow_with_the_file(tmp_path, carrier):
    peaks = []
    for times in (1, 3):
        path = tmp_path / f"{carrier}{times}.json"
        with path.open("w") as file:
            file.write("[" if carrier == "list" else "")
            for number in range(130_000 * times):
                line = json.dumps(conversation(number, 150))
                file.write(("," if carrier == "list" and number else "") + line + "\n")
            file.write("]" if carrier == "list" else "")
        added, calls, _ = grown(tmp_path, path)
        assert calls == 130_000 * times
        peaks.append(added)
        path.unlink()
    # Up to some 450 MiB what DuckDB caches grows too; a million calls take no more.
    assert peaks[1] < peaks[0] * 2
    assert peaks[1] < 600


@pytest.mark.slow
def test_a_document_with_one_huge_trace_is_read_in_parts_19(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(request([span(i) for i in range(33_000)])))
    added, calls, seconds = grown(tmp_path, path)
    assert calls == 33_000
    assert added < 600
    assert seconds < 60


def test_a_conversation_of_20_mib_and_its_neighbours_are_stored_14204(con, tmp_path):
    from warehouse.ingest import ingest_file

    path = tmp_path / "a.jsonl"
    lines = [conversation(1, 10), conversation(2, 10_500_000), conversation(3, 10)]
    path.write_text("\n".join(map(json.dumps, lines)))
    report = ingest_file(con, path, source="s", delivery=1)
    assert report.counts["calls"]["new"] == 3
    assert con.sql("select max(result_size), max(length(result)) from call").fetchall() == [
        (21_000_002, 2000)
    ]
