"""From the exported frames of a graph version to the tensors that learning uses."""

import json
import re

import polars as pl
import torch

from models.errors import GraphMismatch
from models.types import Example, ToolGraph, empty_edges

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATOR = re.compile(r"[_\-./:]+")
_MAX_PARAMETERS = 12
_KINDS = {"adjacent": 0, "dataflow": 1}


def tool_text(name: str, description: str, parameters: str) -> str:
    """What the text encoder reads of a tool.

    Args:
        name: The tool's name; ``get_userName`` is read as "get user Name".
        description: Its description.
        parameters: JSON list of objects with a ``name``; the first twelve names are read.
    """
    words = " ".join(_CAMEL.sub(" ", _SEPARATOR.sub(" ", name)).split())
    names = [str(p.get("name", "")) for p in json.loads(parameters)][:_MAX_PARAMETERS]
    takes = f" Takes {', '.join(names)}." if any(names) else ""
    return f"{words}: {description.strip()}{takes}"


def tool_graph(version: str, nodes: pl.DataFrame, edges: pl.DataFrame) -> ToolGraph:
    """The learning view of a graph version.

    Args:
        version: Its id.
        nodes: key, name, description, parameters, status; only active tools are taken.
        edges: source, target, kind, num_seen; already without held-out and failed evidence.

    Raises:
        GraphMismatch: An edge names a tool that is no node at all.
    """
    known = set(nodes["key"])
    lost = (set(edges["source"]) | set(edges["target"])) - known
    if lost:
        raise GraphMismatch(
            f"expected every edge to join tools of graph {version[:12]}, got {sorted(lost)[:3]}."
        )
    active = nodes.filter(pl.col("status") == "active").sort("key")
    keys = tuple(active["key"])
    index = {key: i for i, key in enumerate(keys)}
    counts: dict[tuple[int, int], list[float]] = {}
    for source, target, kind, seen in edges.select(
        "source", "target", "kind", "num_seen"
    ).iter_rows():
        if source in index and target in index and kind in _KINDS:
            pair = counts.setdefault((index[source], index[target]), [0.0, 0.0])
            pair[_KINDS[kind]] += seen
    edge_index, edge_counts = empty_edges()
    if counts:
        pairs = sorted(counts)
        edge_index = torch.tensor(pairs, dtype=torch.int64).T.contiguous()
        edge_counts = torch.tensor([counts[pair] for pair in pairs], dtype=torch.float32)
    texts = tuple(
        tool_text(name, description, parameters)
        for name, description, parameters in active.select(
            "name", "description", "parameters"
        ).iter_rows()
    )
    return ToolGraph(version, keys, texts, edge_index, edge_counts)


def dataflow_namespaces(graph: ToolGraph) -> frozenset[str]:
    """Namespaces whose learning graph holds dataflow evidence: their plans link by it."""
    has_dataflow = graph.edge_counts[:, 1] > 0
    targets = set(graph.edge_index[1][has_dataflow].tolist())
    return frozenset(graph.keys[target].split("/", 1)[0] for target in targets)


def read_examples(frame: pl.DataFrame, split: str | None = None) -> list[Example]:
    """Examples out of exported rows; ``split`` fills the column where the frame has none."""
    return [
        Example(
            id=row["id"],
            request=row["request"],
            tools=tuple(json.loads(row["tools"])),
            links=tuple((int(s), int(t)) for s, t in json.loads(row["links"])),
            has_links=row["has_links"],
            split=split or row["split"],
            group=row.get("group") or "",
        )
        for row in frame.iter_rows(named=True)
    ]
