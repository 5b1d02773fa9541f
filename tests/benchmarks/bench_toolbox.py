"""Forty requests over the toolbox, planned offline and run for real; never a test.

Each request gets a fresh sandbox and a real MCP server, is planned by ``tog`` from its words alone,
and executed. It succeeds when everything that was asked for is among the results: the same text, or
a file with the same bytes, as its gold answer gives in a sandbox of its own. The requests were
written from the list of tools, by somebody who did not see the rules; the half ``held_out`` was not
looked at while the rules were made.

Usage: python tests/benchmarks/bench_toolbox.py [--half tuning] [--show]
"""

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.execution import ExecutionPolicy, execute
from models.graph import tool_text
from models.mentions import files_in
from models.text import RememberingEmbedder, SentenceEmbedder
from models.tog import TogPlanner, make_tog_planner
from models.toolset import Resource
from tasks.errors import ToolRefused
from tasks.mcp_servers import list_server
from tasks.mcp_tools import McpTools
from tasks.toolbox.samples import make_samples
from tasks.toolbox.sandbox import open_sandbox
from tasks.toolbox.server import DESTROYERS, MAKERS, READERS

HERE = Path(__file__).parent / "toolbox"
SPACE = "toolbox"
TOOLS = {tool.__name__: tool for tool in (*READERS, *MAKERS, *DESTROYERS)}


def command(folder: Path) -> list[str]:
    """How the server is started; the slow tool need not wait here."""
    return [sys.executable, "-m", "tasks.toolbox", "--sandbox", str(folder), "--slow-s", "0"]


def planner(folder: Path) -> TogPlanner:
    """The planner over what the server lists."""
    listing = list_server(command(folder), 60.0)
    nodes = pl.DataFrame(
        {
            "namespace": SPACE,
            "name": tool.name,
            "description": tool.description,
            "parameters": json.dumps(list(tool.parameters)),
            "input_types": json.dumps(list(tool.input_types)),
            "output_types": json.dumps(list(tool.output_types)),
            "status": "active",
        }
        for tool in listing.tools
    )
    texts = {
        f"{SPACE}/{n}": tool_text(n, d, p)
        for n, d, p in nodes.select("name", "description", "parameters").iter_rows()
    }
    return make_tog_planner(nodes, texts, RememberingEmbedder(SentenceEmbedder()))


def gold_value(expression: Any, box: Any) -> Any:
    """What a gold answer gives: the only field of the last tool's result."""
    arguments = {
        name: gold_value(value, box) if isinstance(value, dict) and "tool" in value else value
        for name, value in expression["arguments"].items()
    }
    for _ in range(2):  # the flaky one refuses first
        try:
            return next(iter(dict(TOOLS[expression["tool"]](box, **arguments)).values()))
        except ToolRefused as error:
            last = error
    raise last


def content(value: Any, folder: Path) -> Any:
    """A file by its bytes, anything else as it is."""
    path = folder / str(value) if isinstance(value, str) and len(value) < 200 else None
    return path.read_bytes() if path is not None and path.is_file() else value


def run(request: Mapping[str, Any], tog: TogPlanner) -> tuple[bool, Any]:
    """Plan and execute one request; whether all that was wanted came out."""
    with tempfile.TemporaryDirectory() as work:
        here, there = Path(work) / "run", Path(work) / "gold"
        for folder in (here, there):
            folder.mkdir()
            make_samples(folder)
        plans = tog.plan_one(request["request"], 3)
        if not plans:
            return False, None
        known = [Resource(f.value, f.type) for f in files_in(request["request"], tog.types)]
        with McpTools(SPACE, command(here)) as tools:
            execution = execute(
                plans, tools, tog.graph.signatures, request=request["request"], resources=known,
                policy=ExecutionPolicy(call_timeout_s=30.0, run_timeout_s=90.0),
            )  # fmt: skip
        found = [
            content(value, here)
            for call in execution.calls
            if call.status == "ok"
            for value in call.result.values()
        ]
        box = open_sandbox(there, slow_s=0.0)
        wanted = [
            [content(gold_value(way, box), there) for way in ways] for ways in request["wants"]
        ]
        is_done = any(all(one in found for one in choice) for choice in itertools.product(*wanted))
        return is_done, execution


def main() -> None:
    """Print the success rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tuning", "held_out"))
    parser.add_argument("--show", action="store_true", help="what became of each request")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        make_samples(Path(work))
        tog = planner(Path(work))
    print("| half | requests | served | executions done | s a request |\n|---|---|---|---|---|")
    for half in (args.half,) if args.half else ("tuning", "held_out"):
        requests = [json.loads(line) for line in (HERE / f"{half}.jsonl").read_text().splitlines()]
        start, served, done = time.perf_counter(), 0, 0
        for request in requests:
            good, execution = run(request, tog)
            served += good
            done += execution is not None and execution.status == "done"
            if args.show:
                told = [(s.tool, s.status, s.error) for s in execution.steps] if execution else ()
                print("ok " if good else "BAD", request["id"], request["request"], told)
        took = (time.perf_counter() - start) / len(requests)
        print(f"| {half} | {len(requests)} | {served} | {done} | {took:.1f} |", flush=True)


if __name__ == "__main__":
    main()
