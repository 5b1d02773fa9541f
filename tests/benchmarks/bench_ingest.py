"""Speed of ingest against orjson parsing the same bytes alone, in one run; never part of the tests.

Arguments are of about 100 characters, results of 100 to 900 (``--long 8``: eight times as much,
about what a call of tau-bench's published conversations takes, 3,600 bytes with all around it), a
system prompt and a request for every ten calls. Each measurement runs in a process of its own on
one core; its peak memory is that process's. The machine may be shared: CPU time is compared, and
parsing is measured before and after.

Usage: python tests/benchmarks/bench_ingest.py [--calls 1000000] [--long 1] [--spans 20000]
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import httpx
import orjson

from warehouse.connection import open_warehouse
from warehouse.ingest import ingest_file

_WORDS = [
    "departure", "arrival", "gate", "terminal", "economy", "business", "window", "aisle", "refund",
    "voucher", "hotel", "lobby", "breakfast", "pool", "parking", "station", "platform", "ticket",
    "delay", "weather", "light", "rain", "evening", "morning",
]  # fmt: skip


def _result(rng: random.Random, reference: str, long: int) -> str:
    """A JSON result of 100 to 900 characters, ``long`` times, that the next call may use."""
    items = [
        {"id": f"{reference}{i}", "price": rng.randrange(5000) / 10, "note": _text(rng, 6)}
        for i in range(rng.randrange(1, 9) * long)
    ]
    return orjson.dumps({"ref": reference, "status": "confirmed", "items": items}).decode()


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(_WORDS, k=words))


def _calls(rng: random.Random, trip: int, long: int) -> Iterator[tuple[str, str, str, str]]:
    """(tool, call id, arguments, result) of ten calls, each using what the one before gave."""
    reference = f"T{trip:07d}"
    for k in range(10):
        arguments = orjson.dumps(
            {
                "reference": reference,
                "city": f"city {rng.randrange(3000)}",
                "nights": rng.randrange(9),
                "comment": _text(rng, 4),
            }
        ).decode()
        reference = f"R{trip:07d}x{k}"
        tool = f"tool_{(trip * 7 + k * 3) % 200}"
        yield tool, f"call_{trip:08d}{k:02d}qwertyuiop", arguments, _result(rng, reference, long)


def write_openai(path: Path, calls: int, long: int = 1) -> None:
    """One conversation of ten calls a line."""
    rng = random.Random(0)
    system = _text(rng, 200)
    with path.open("wb") as file:
        for trip in range(calls // 10):
            messages: list[dict[str, Any]] = [
                {"role": "system", "content": system},
                {"role": "user", "content": f"Plan trip {trip}: {_text(rng, 12)}"},
            ]
            for tool, call_id, arguments, result in _calls(rng, trip, long):
                function = {"name": tool, "arguments": arguments}
                sent = {"id": call_id, "type": "function", "function": function}
                messages += [
                    {"role": "assistant", "content": _text(rng, 10), "tool_calls": [sent]},
                    {"role": "tool", "tool_call_id": call_id, "content": result},
                ]
            record = {"conversation_id": f"c{trip}", "messages": messages}
            file.write(orjson.dumps(record) + b"\n")


def write_otlp(path: Path, calls: int, long: int = 1) -> None:
    """One export request of five traces a line: ten tool spans under an agent span."""
    rng = random.Random(0)
    with path.open("wb") as file:
        spans: list[dict[str, Any]] = []
        for trip in range(calls // 10):
            trace, root = f"{trip + 1:032x}", f"{trip + 1:014x}ff"
            start = 1_760_000_000_000_000_000 + trip * 60_000_000_000
            content = {"type": "text", "content": f"Plan trip {trip}: {_text(rng, 12)}"}
            said = orjson.dumps([{"role": "user", "parts": [content]}]).decode()
            agent = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "planner",
                "gen_ai.conversation.id": f"c{trip}",
                "gen_ai.input.messages": said,
            }
            spans.append(_span(trace, root, "", "invoke_agent planner", start, 50, agent))
            for k, (tool, call_id, arguments, result) in enumerate(_calls(rng, trip, long)):
                attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": tool,
                    "gen_ai.tool.type": "function",
                    "gen_ai.tool.call.id": call_id,
                    "gen_ai.tool.call.arguments": arguments,
                    "gen_ai.tool.call.result": result,
                }
                at = start + k * 4_000_000_000 + 1000
                span_id = f"{trip + 1:014x}{k:02x}"
                spans.append(_span(trace, span_id, root, f"execute_tool {tool}", at, 3, attributes))
            if trip % 5 == 4 or trip == calls // 10 - 1:
                file.write(orjson.dumps(_request(spans)) + b"\n")
                spans = []


def _span(
    trace: str,
    span: str,
    parent: str,
    name: str,
    start: int,
    seconds: int,
    attributes: dict[str, str],
) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": name,
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + seconds * 1_000_000_000),
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
        "status": {"code": 1},
    }


def _request(spans: list[dict[str, Any]]) -> dict[str, Any]:
    name = {"key": "service.name", "value": {"stringValue": "travel"}}
    scope = {"scope": {"name": "genai"}, "spans": spans}
    return {"resourceSpans": [{"resource": {"attributes": [name]}, "scopeSpans": [scope]}]}


WRITERS = {"openai": write_openai, "otlp": write_otlp}


# --- measurements, each in a process of its own on one core ---------------------------------------


def _alone(function: Any, *arguments: Any) -> dict[str, Any]:
    """The function's result from a fresh process that stays on one core."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_pinned, (function, arguments))


def _pinned(function: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    return function(*arguments)


def parse_only(path: Path) -> dict[str, Any]:
    """orjson over every line, nothing kept."""
    started, cpu = time.perf_counter(), time.process_time()
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
    return {"wall": time.perf_counter() - started, "cpu": time.process_time() - cpu}


def ingest_once(path: Path, base: Path) -> dict[str, Any]:
    """One ingest, closing the file included."""
    started, cpu = time.perf_counter(), time.process_time()
    with open_warehouse(base) as con:
        con.execute("set threads = 1")
        report = ingest_file(con, path, source="bench", delivery=1)
    return {
        "wall": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "new": report.counts["calls"]["new"],
        "duplicate": report.counts["calls"]["duplicate"],
        "known": report.known,
    }


def measure(format: str, calls: int, long: int, folder: Path) -> None:
    """A row per way for one format."""
    path, base = folder / f"{format}.jsonl", folder / f"{format}.duckdb"
    WRITERS[format](path, calls, long)
    size = path.stat().st_size
    print(f"\n{format}: {calls:,} calls, {size / 2**20:,.0f} MiB, {size / calls:,.0f} bytes a call")
    before = _alone(parse_only, path)
    first = _alone(ingest_once, path, base)
    after = _alone(parse_only, path)
    parse = {key: (before[key] + after[key]) / 2 for key in before}
    again = _alone(ingest_once, path, base)
    with path.open("ab") as file:
        file.write(b"\n")  # other bytes, the same records
    twice = _alone(ingest_once, path, base)
    assert (first["new"], twice["duplicate"], again["known"]) == (calls, calls, True)
    rows = [
        ("orjson alone", parse),
        ("ingest", first),
        ("ingest of a known file", again),
        ("ingest of known records", twice),
    ]
    for name, took in rows:
        share = parse["cpu"] / took["cpu"]
        print(
            f"  {name:24} {took['cpu']:8.2f} s CPU {took['wall']:8.2f} s  "
            f"{calls / took['cpu']:11,.0f} calls/s  {share:7.1%} of orjson"
            + (f"  peak {took['mib']:,} MiB" if "mib" in took else "")
        )


# --- beside an MLflow server ----------------------------------------------------------------------


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """A real MLflow server on loopback with a SQLite store."""
    port = 5987
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    environment = {
        **os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
    }  # fmt: skip
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(120):
                try:
                    httpx.get(f"{address}/health", trust_env=False).raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(1)
            yield address
        finally:
            process.terminate()


def beside_mlflow(spans: int, folder: Path) -> None:
    """The same spans into our warehouse, and over OTLP into an MLflow server."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    calls = spans * 10 // 11
    path = folder / "beside.jsonl"
    write_otlp(path, calls)
    requests = []
    for line in path.read_text().splitlines():
        value = json.loads(line)
        for span in value["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for key in ("traceId", "spanId", "parentSpanId"):
                span[key] = _base64(span[key])
        message = json_format.ParseDict(value, ExportTraceServiceRequest())
        requests.append(message.SerializeToString())
    print(f"\n{calls * 11 // 10:,} spans ({calls:,} tool calls) side by side")
    started = time.perf_counter()
    with open_warehouse(folder / "beside.duckdb") as con:
        ingest_file(con, path, source="bench", delivery=1)
    ours = time.perf_counter() - started
    with mlflow_server(folder) as address, httpx.Client(trust_env=False, timeout=60) as client:
        headers = {"content-type": "application/x-protobuf", "x-mlflow-experiment-id": "0"}
        started = time.perf_counter()
        for body in requests:
            client.post(f"{address}/v1/traces", content=body, headers=headers).raise_for_status()
        theirs = time.perf_counter() - started
        with duckdb.connect() as con:
            stored = "not counted"
            try:
                con.execute("load sqlite")
            except duckdb.Error:
                import sqlite3

                with sqlite3.connect(folder / "mlflow.db") as db:
                    (stored,) = db.execute("select count(*) from spans").fetchone()
    print(f"  Toolatlas, from the file  {ours:8.2f} s")
    print(f"  MLflow server, over OTLP  {theirs:8.2f} s  {theirs / ours:5.1f} x  ({stored} spans)")


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(bytes.fromhex(text)).decode()


def main() -> None:
    """Print a row per way, and the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--long", type=int, default=1, help="length of results, in 500 characters")
    parser.add_argument("--spans", type=int, default=20_000, help="sent to MLflow; 0: none")
    parser.add_argument("--formats", nargs="*", default=list(WRITERS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for format in options.formats:
            measure(format, options.calls, options.long, Path(folder))
        if options.spans:
            beside_mlflow(options.spans, Path(folder))


if __name__ == "__main__":
    main()
