"""Sets of real trajectories as the benchmarks of planners read them: rows, splits, mined graphs."""

import gzip
import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from models.edges import row_evidence
from models.graph import tool_text
from models.types import Example, ToolGraph, empty_edges

SPLITS = ("own", "by-sequence", "by-tool-set")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All records of a JSON-lines file, plain or gzipped."""
    if not path.exists():
        return [json.loads(line) for line in gzip.open(f"{path}.gz", "rt") if line.strip()]
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def share(tools: tuple[str, ...], seed: int = 0) -> float:
    """A number in 0..1 that depends on seed and tool sequence alone."""
    digest = hashlib.sha256(json.dumps([seed, *tools]).encode()).hexdigest()
    return int(digest[:8], 16) / 2**32


def read_examples(folder: Path, split: str, seed: int = 0) -> list[Example]:
    """All rows of a set as examples.

    Args:
        folder: Holds tools.jsonl and trajectories.jsonl (both also as .gz).
        split: ``own``: what the set calls test is test, a tenth of the other rows validation;
            ``by-sequence``: a fifth of the tool sequences are test, a tenth validation;
            ``by-tool-set``: the same for sets that state no order, the tools of a row sorted.
        seed: Of the draw.
    """
    out = []
    for row in read_lines(folder / "trajectories.jsonl"):
        tools = tuple(f"{folder.name}/{step['tool']}" for step in row["steps"])
        if split == "by-tool-set":
            tools = tuple(sorted(tools))
        place = share(tools, seed)
        if split == "own":
            drawn = share((row["id"],), seed)
            part = "test" if row["split"] == "test" else "validation" if drawn < 0.1 else "train"
        else:
            part = "test" if place < 0.2 else "validation" if place < 0.3 else "train"
        links = tuple((link["source"], link["target"]) for link in row["links"])
        gold = row["meta"]["links"] in ("gold", "dataflow")
        group = row["id"] if split == "own" else json.dumps(tools)
        out.append(Example(row["id"], row["request"], tools, links, gold, part, group))
    return out


def mine_graph(folder: Path, examples: list[Example], dataflow: bool) -> ToolGraph:
    """Tools of the catalogue with the edges of all rows that are not test."""
    tools = {
        f"{folder.name}/{tool['name']}": tool_text(
            tool["name"], tool.get("description") or "", json.dumps(tool.get("parameters") or [])
        )
        for tool in read_lines(folder / "tools.jsonl")
    }
    keys = tuple(sorted(tools))
    index = {key: i for i, key in enumerate(keys)}
    counts: dict[int, torch.Tensor] = {}
    for example in examples:
        if example.split == "test" or not all(key in index for key in example.tools):
            continue
        rows = [index[key] for key in example.tools]
        evidence = row_evidence(rows, example.links if dataflow else (), len(keys))
        for code, count in zip(evidence[0].tolist(), evidence[1], strict=True):
            counts[code] = counts.get(code, torch.zeros(2)) + count
    edge_index, edge_counts = empty_edges()
    if counts:
        codes = torch.tensor(sorted(counts))
        edge_index = torch.stack([codes // len(keys), codes % len(keys)])
        edge_counts = torch.stack([counts[code] for code in codes.tolist()])
    return ToolGraph("bench", keys, tuple(tools[key] for key in keys), edge_index, edge_counts)


@dataclass(frozen=True)
class Case:
    """One set under one split, as planners are trained and measured on it.

    Attributes:
        name: Of the set.
        split: How it is divided.
        seed: Of the division.
        examples: Rows with a plan, all of whose tools are in the catalogue.
        graph: The catalogue with what rows other than test show.
        dataflow_namespaces: Namespaces whose plans link by dataflow.
        dropped: Rows left out: without a plan, with a tool outside the catalogue, and, as the
            product does, training and validation rows with the very request of a test row.
    """

    name: str
    split: str
    seed: int
    examples: list[Example]
    graph: ToolGraph
    dataflow_namespaces: frozenset[str]
    dropped: dict[str, int]

    @property
    def test(self) -> list[Example]:
        """Test rows."""
        return [example for example in self.examples if example.split == "test"]

    @property
    def past(self) -> list[Example]:
        """Training and validation rows."""
        return [example for example in self.examples if example.split != "test"]

    @property
    def unseen_pairs(self) -> float:
        """Share of the distinct adjacent tool pairs of test rows that no other row shows."""
        seen, asked = (
            {pair for example in part for pair in pairwise(example.tools)}
            for part in (self.past, self.test)
        )
        return len(asked - seen) / len(asked) if asked else 0.0


def read_case(folder: Path, split: str, seed: int = 0) -> Case:
    """One set under one split."""
    rows = read_examples(folder, split, seed)
    kinds = {row["meta"]["links"] for row in read_lines(folder / "trajectories.jsonl")}
    listed = mine_graph(folder, [], dataflow=False).index
    known = [row for row in rows if row.tools and all(key in listed for key in row.tools)]
    asked = {row.request for row in known if row.split == "test"}
    kept = [row for row in known if row.split == "test" or row.request not in asked]
    return Case(
        folder.name,
        split,
        seed,
        kept,
        mine_graph(folder, kept, "dataflow" in kinds),
        frozenset({folder.name} if "dataflow" in kinds else ()),
        {
            "no plan": sum(not row.tools for row in rows),
            "tool outside the catalogue": sum(bool(row.tools) for row in rows) - len(known),
            "request of a test row": len(known) - len(kept),
        },
    )
