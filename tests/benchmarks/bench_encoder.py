"""GTool's factorised encoder against PyG on explicit request graphs, and on a large catalogue.

PYTHONPATH=. python tests/benchmarks/bench_encoder.py --data FILE

FILE is a trajectories.jsonl (or .gz); its tools and mined edges are the graph, text vectors are
random. PyG gets what the paper describes: a batch of one graph a request, each with all
tools, their edges, a request node and an edge from every tool to it. Prints one JSON object:

* ``large``: 20,000 tools with 200,000 random edges; tool states once, then one request at a time.
* ``training``: forward and backward for a batch of requests.
* ``inference``: states of a batch of requests and of one, tool states known; PyG: all states.
* ``difference``: largest one between the states of both, tools and requests.

Ratios are of CPU time on one thread, calls taken in turn and the least of each, so that other work
on the machine counts little; ``large`` has the wall time and the CPU time of two threads.
``--hidden 1024 --out 4096 --channels 1024`` has the paper's sizes, and needs 8 GB.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch_geometric.data import Batch, Data

from models.encoder import GToolEncoder, ToolLayers, edge_features
from tests.benchmarks.bench_gpu import mine_graph, read_examples


def peak_mib() -> int:
    """Most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def least(calls: dict[str, Callable[[], Any]], rounds: dict[str, int]) -> dict[str, float]:
    """Least CPU milliseconds of each call, taken in turn after one that does not count."""
    best = dict.fromkeys(calls, float("inf"))
    for i in range(max(rounds.values()) + 1):
        for name, call in calls.items():
            if i <= rounds[name]:
                started = time.process_time()
                call()
                if i:
                    best[name] = min(best[name], 1000 * (time.process_time() - started))
    return best


def explicit_batch(
    encoder: GToolEncoder,
    x: torch.Tensor,
    edge_index: torch.Tensor,
    edge_attr: torch.Tensor,
    requests: torch.Tensor,
) -> Batch:
    """One graph a request: all tools and edges, the request node last, an edge from every tool."""
    num_tools = x.size(0)
    to_request = torch.stack([torch.arange(num_tools), torch.full((num_tools,), num_tools)])
    index = torch.cat([edge_index, to_request], dim=1)
    attr = torch.cat([edge_attr, encoder.request_edge.expand(num_tools, -1)])
    graphs = [Data(torch.cat([x, r[None]]), index, attr) for r in requests]
    return Batch.from_data_list(graphs)


def bench_large(args: argparse.Namespace) -> dict[str, Any]:
    """One request on a catalogue of many tools."""
    encoder = GToolEncoder(args.channels, args.hidden, args.out).eval()
    x = torch.randn(args.tools, args.channels)
    edge_index = torch.randint(args.tools, (2, args.edges))
    edge_attr = edge_features(torch.randint(9, (args.edges, 2)).float())
    requests = torch.randn(20, 1, args.channels)
    before = peak_mib()
    wall, cpu, states = [], [], ToolLayers(x)
    with torch.no_grad():
        for r in (None, *requests):
            started, used = time.perf_counter(), time.process_time()
            if r is None:
                states = encoder.encode_tools(x, edge_index, edge_attr)
            else:
                encoder.encode_requests(r, states)
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - used)
    kept = [*states, *states.keys, *states.values]
    return {
        "tools": args.tools,
        "edges": args.edges,
        "tool_states_once_s": round(wall[0], 2),
        "tool_states_once_cpu_s": round(cpu[0], 2),
        "request_ms_p50": round(1000 * median(wall[1:]), 1),
        "request_cpu_ms_p50": round(1000 * median(cpu[1:]), 1),
        "kept_mib": round(sum(part.nbytes for part in kept) / 2**20),
        "peak_rss_mib": peak_mib(),
        "peak_rss_before_mib": before,
    }


def bench_against_pyg(args: argparse.Namespace) -> dict[str, Any]:
    """Both ways on the graph of a set of trajectories."""
    graph = mine_graph(read_examples(args.data))
    encoder = GToolEncoder(args.channels, args.hidden, args.out).eval()
    x, requests = (
        torch.randn(graph.num_tools, args.channels),
        torch.randn(args.batch, args.channels),
    )
    edge_attr = edge_features(graph.edge_counts)
    many = explicit_batch(encoder, x, graph.edge_index, edge_attr, requests)
    one = explicit_batch(encoder, x, graph.edge_index, edge_attr, requests[:1])

    def pyg(batch: Batch) -> torch.Tensor:
        h = batch.x
        for layer, conv in enumerate(encoder.convs):
            h = encoder._between(layer, conv(h, batch.edge_index, batch.edge_attr))
        return h.view(batch.num_graphs, graph.num_tools + 1, -1)

    def tool_states() -> ToolLayers:
        return encoder.encode_tools(x, graph.edge_index, edge_attr)

    def step_pyg() -> None:
        encoder.zero_grad()
        pyg(many).square().sum().backward()

    def step_factorised() -> None:
        encoder.zero_grad()
        states = tool_states()
        tools = args.batch * states[-1].square().sum()
        (tools + encoder.encode_requests(requests, states).square().sum()).backward()

    def gradient(step: Callable[[], None]) -> torch.Tensor:
        step()
        return torch.cat([w.grad.flatten() for w in encoder.parameters() if w.grad is not None])

    expected, found = gradient(step_pyg), gradient(step_factorised)
    training = least(
        {"pyg": step_pyg, "factorised": step_factorised},
        {"pyg": args.rounds, "factorised": 10 * args.rounds},
    )
    with torch.no_grad():
        states, whole = tool_states(), pyg(many)
        difference = max(
            float((whole[:, :-1] - states[-1]).abs().max()),
            float((whole[:, -1] - encoder.encode_requests(requests, states)).abs().max()),
        )
        inference = least(
            {
                "pyg_batch": lambda: pyg(many),
                "batch": lambda: encoder.encode_requests(requests, states),
                "pyg_one": lambda: pyg(one),
                "one": lambda: encoder.encode_requests(requests[:1], states),
            },
            {"pyg_batch": args.rounds, "batch": 200, "pyg_one": 10 * args.rounds, "one": 200},
        )
    return {
        "set": args.data.parent.name,
        "tools": graph.num_tools,
        "edges": graph.edge_index.size(1),
        "batch": args.batch,
        "difference": difference,
        "gradient_difference": float((expected - found).abs().max() / expected.abs().max()),
        "training_ms": {name: round(ms, 2) for name, ms in training.items()},
        "training_ratio": round(training["pyg"] / training["factorised"], 1),
        "inference_ms": {name: round(ms, 3) for name, ms in inference.items()},
        "inference_ratio_batch": round(inference["pyg_batch"] / inference["batch"], 1),
        "inference_ratio_one": round(inference["pyg_one"] / inference["one"], 1),
    }


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="trajectories.jsonl or .jsonl.gz")
    parser.add_argument("--channels", type=int, default=384, help="of text vectors")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--out", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6, help="calls of PyG that are timed")
    parser.add_argument("--tools", type=int, default=20_000)
    parser.add_argument("--edges", type=int, default=200_000)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(2)
    large = bench_large(args)  # first, while the process has held little memory
    torch.set_num_threads(1)
    sizes = {name: getattr(args, name) for name in ("channels", "hidden", "out")}
    print(json.dumps({**sizes, **bench_against_pyg(args), "large": large}, indent=1))


if __name__ == "__main__":
    main()
