"""Links of plans: learnt, by rule, chains, and all that were ever seen, on sets with gold links.

python tests/benchmarks/bench_links.py --data FOLDER [--sets SET...] [--seeds 0 1 2]

FOLDER holds a folder a set, each with tools.jsonl and trajectories.jsonl (both also as .gz). Rows
are split by tool sequence. Every way to link gets the gold tools, and the tools of the most similar
past request. Prints a Markdown table, means over the seeds: strict l-F1 on gold links, seconds to
learn, and CPU microseconds a plan: one by one, the first time and again, and all in one call.
"""

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from models.baselines import NearestPlanner
from models.graph import dataflow_namespaces
from models.links import LinkScorer, plan_links
from models.metrics import score_plans
from models.text import RememberingEmbedder, SentenceEmbedder
from models.types import Example, Link, Plan, ToolGraph
from tests.benchmarks.bench_gtool import mine_graph, read_examples, read_lines

SETS = ("toollinkos", "galaxy_iwc", "complexfuncbench", "nestful", "seal_tools", "ultratool")
WAYS = ("learnt", "rule", "chain", "all seen")

Linker = Callable[[Sequence[str]], tuple[Link, ...]]


def by_sequence(examples: Sequence[Example], seed: int, keys: set[str]) -> list[Example]:
    """Examples with known tools only; a fifth of the tool sequences is for the test."""
    out = []
    for example in examples:
        if not example.tools or not keys.issuperset(example.tools):
            continue
        group = hashlib.sha256(json.dumps([seed, example.tools]).encode()).hexdigest()
        split = "test" if int(group[:8], 16) < 2**32 / 5 else "train"
        links = tuple((source, target) for source, target in example.links if source < target)
        out.append(replace(example, split=split, group=group, links=links))
    return out


def linkers(graph: ToolGraph, past: Sequence[Example], scorer: LinkScorer) -> dict[str, Linker]:
    """The ways to link, by name."""
    seen = {(row.tools[a], row.tools[b]) for row in past for a, b in row.links}
    flows = dataflow_namespaces(graph)

    def all_seen(tools: Sequence[str]) -> tuple[Link, ...]:
        ends = range(len(tools))
        return tuple((i, j) for j in ends for i in range(j) if (tools[i], tools[j]) in seen)

    ways: Sequence[Linker] = (
        scorer.links,
        lambda tools: plan_links(tools, graph, flows),
        lambda tools: tuple(pairwise(range(len(tools)))),
        all_seen,
    )
    return dict(zip(WAYS, ways, strict=True))


def link_f1(gold: Sequence[Example], tools: Sequence[Sequence[str]], link: Linker) -> float:
    """Mean strict l-F1 of the tools as linked; links have to be sorted and to go forward."""
    plans = []
    for names in tools:
        links = link(names)
        assert list(links) == sorted(set(links), key=lambda one: (one[1], one[0]))
        assert all(0 <= source < target < len(names) for source, target in links)
        plans.append(Plan(tuple(names), links, 1.0, "links"))
    return score_plans(gold, plans).means["l_f1"]


def measure(folder: Path, seed: int, embed: RememberingEmbedder) -> dict[str, float]:
    """All figures of one set under one split."""
    keys = {f"{folder.name}/{tool['name']}" for tool in read_lines(folder / "tools.jsonl")}
    rows = by_sequence(read_examples(folder, "by-sequence"), seed, keys)
    has_dataflow = any(
        row["meta"]["links"] == "dataflow" for row in read_lines(folder / "trajectories.jsonl")
    )
    graph = mine_graph(folder, rows, has_dataflow)
    tool_x = embed(graph.texts)
    past = [row for row in rows if row.split == "train"]
    test = [row for row in rows if row.split == "test" and row.has_links]
    started = time.process_time()
    scorer = LinkScorer.fit(graph, past, tool_x)
    figures = {"test rows": float(len(test)), "fit s": time.process_time() - started}
    gold = [row.tools for row in test]
    nearest = NearestPlanner(graph, past, embed)
    planned = [plans[0].tools for plans in nearest.plan([row.request for row in test])]
    for name, link in linkers(graph, past, scorer).items():
        figures[f"{name}, gold tools"] = link_f1(test, gold, link)
        figures[f"{name}, nearest"] = link_f1(test, planned, link)
    distinct = sorted(set(gold))
    scorer = LinkScorer.from_state(scorer.state(), graph, tool_x)
    for label, repeats in (("us a new plan", 1), ("us a known plan", 5)):
        started = time.process_time()
        for tools in distinct * repeats:
            scorer.links(tools)
        figures[label] = 1e6 * (time.process_time() - started) / len(distinct) / repeats
    started = time.process_time()
    scorer.links_of(gold)
    figures["us in a batch"] = 1e6 * (time.process_time() - started) / len(gold)
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1, help="more only lose time on busy cores")
    parser.add_argument("--vectors", type=Path, help="folder that keeps text vectors between runs")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    embed = RememberingEmbedder(SentenceEmbedder(), args.vectors)
    for number, name in enumerate(args.sets):
        runs = [measure(args.data / name, seed, embed) for seed in args.seeds]
        means = {figure: float(np.mean([run[figure] for run in runs])) for figure in runs[0]}
        if not number:
            print("| set |", " | ".join(means), "|")
            print("|---" * (len(means) + 1) + "|")
        cells = [f"{value:.3f}" if value < 10 else f"{value:,.0f}" for value in means.values()]
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
