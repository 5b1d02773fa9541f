"""Predicted edges against what came: calibration and ranking, on sets of real trajectories.

python tests/benchmarks/bench_predicted.py --data FOLDER [FOLDER ...] [--split by-sequence by-time]

The tool sequences of each set are cut into what is there now and what comes later: by chance
(``by-sequence``, three seeds, the case the probability is defined for), or as half of the
trajectories showed them, by chance or by time; what is new in the other half is then fewer
sequences than those known, and the probability is taken to that number. Everything is fitted on
what is there now.

Prints, for each set and split: log loss and Brier score against those of the base rate (1 is no
better than it), calibration error, AUC and average precision of all features and of simpler scores,
each calibrated alike; a reliability table; and how pairs with a tool that has no edge yet fared.
``--mdpl`` also trains GTool on what is there now and ranks the pairs by the logit of its
missing-dependency head.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sets import mine_graph, read_lines, share

from models.candidates import embed_requests
from models.encoder import edge_features
from models.gtool import GToolConfig
from models.predicted import (
    FEATURES,
    Evidence,
    TextSide,
    agreement,
    edge_evidence,
    foretell,
    reliability,
)
from models.text import SentenceEmbedder
from models.training import train_gtool
from models.types import Example, ToolGraph

SCORES = {
    "all features": FEATURES,
    "bilinear on text": ("bilinear",),
    "text similarity": ("cosine",),
    "common neighbours": ("two_steps", "three_steps", "reverse"),
    "degrees": ("out_degree", "in_degree"),
}


def main() -> None:
    """Cut, fit, foretell, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of sets")
    parser.add_argument(
        "--split",
        nargs="+",
        default=["by-sequence"],
        choices=("by-sequence", "by-trajectory", "by-time"),
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mdpl", action="store_true", help="train GTool for its MDPL logit too")
    parser.add_argument("--epochs", type=int, default=10, help="of that training")
    args = parser.parse_args()
    torch.set_num_threads(1)
    embed = SentenceEmbedder()
    for folder in args.data:
        records, graph, examples = read_set(folder)
        tool_x = embed(graph.texts)
        text, evidence = TextSide.of(tool_x, graph.keys), edge_evidence(graph, examples)
        for split in args.split:
            if split == "by-time" and not all(r["meta"].get("timestamp") for r in records):
                continue
            cuts = [
                cut(split, records, examples, seed)
                for seed in range(1 if split == "by-time" else args.seeds)
            ]
            compare(f"{folder.name}, {split}", text, evidence, cuts)
            if args.mdpl:
                logits(graph, tool_x, examples, evidence, cuts[0], embed, args.epochs)


def read_set(folder: Path) -> tuple[list[dict[str, Any]], ToolGraph, list[Example]]:
    """Trajectories whose tools are all listed, their graph, and them as examples."""
    records = read_lines(folder / "trajectories.jsonl")
    listed = {tool["name"] for tool in read_lines(folder / "tools.jsonl")}
    records = [r for r in records if r["steps"] and {s["tool"] for s in r["steps"]} <= listed]
    stated = ("gold", "dataflow")
    examples = [
        Example(
            r["id"],
            r["request"],
            tuple(f"{folder.name}/{step['tool']}" for step in r["steps"]),
            tuple((link["source"], link["target"]) for link in r["links"]),
            r["meta"]["links"] in stated,
        )
        for r in records
    ]
    dataflow = any(example.has_links for example in examples)
    return records, mine_graph(folder, examples, dataflow), examples


def cut(
    split: str, records: list[dict[str, Any]], examples: list[Example], seed: int
) -> np.ndarray:
    """Which tool sequences are there now."""
    sequences = list(dict.fromkeys(example.tools for example in examples))
    if split == "by-sequence":
        return np.random.default_rng(seed).permutation(len(sequences)) < len(sequences) // 2
    order = np.argsort([r["meta"].get("timestamp") or "" for r in records], kind="stable")
    if split == "by-trajectory":
        order = np.random.default_rng(seed).permutation(len(examples))
    early = {examples[row].tools for row in order[: len(order) // 2]}
    return np.array([tools in early for tools in sequences])


def compare(title: str, text: TextSide, evidence: Evidence, cuts: list[np.ndarray]) -> None:
    """All scores on all cuts; the reliability of all features, pairs of all cuts together."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SCORES}
    together, cold = [], []
    for seed, now in enumerate(cuts):
        before, after = evidence.of(now), evidence.of(~now)
        for name, features in SCORES.items():
            rng = np.random.default_rng(seed)
            pairs, probability = foretell(text, before, after, rng, features)
            ahead = after.num_sequences / before.num_sequences
            probability = 1 - (1 - probability) ** ahead
            found[name].append(agreement(probability, pairs.is_edge, pairs.weight))
            if name == "all features":
                together.append((probability, pairs.is_edge, pairs.weight))
                degrees = [FEATURES.index(name) for name in SCORES["degrees"]]
                is_cold = np.isclose(pairs.features[:, degrees], np.log(0.5)).any(axis=1)
                cold.append([part[is_cold] for part in together[-1]])
    first = found["all features"]
    print(f"\n### {title}: {len(cuts)} cuts, {len(text.x)} tools\n")
    print(
        f"sequences now {before.num_sequences}, later {after.num_sequences}; edges now "
        f"{before.counts(len(text.x)).nnz}, base rate {mean(first, 'base_rate'):.5f}, new edges "
        f"expected {mean(first, 'expected'):.0f}, came {mean(first, 'came'):.0f}\n"
    )
    errors = ("log loss / base", "Brier / base", "calibration error", "same / mean probability")
    columns = (*errors, "AUC", "average precision")
    print(f"| score | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|")
    for name, values in found.items():
        ratios = [np.mean([v[m] / v[f"base_{m}"] for v in values]) for m in ("log_loss", "brier")]
        error = mean(values, "calibration_error")
        rest = [mean(values, m) for m in ("relative_calibration_error", "auc", "average_precision")]
        cells = [*(f"{v:.3f}" for v in ratios), f"{error:.5f}", *(f"{v:.3f}" for v in rest)]
        print(f"| {name} | {' | '.join(cells)} |")
    print("\n| probability | pairs | expected | came |\n|---|---|---|---|")
    for b in reliability(*(np.concatenate(part) for part in zip(*together, strict=True))):
        print(
            f"| {b.lowest:.4f} to {b.highest:.4f} | {b.pairs:.0f} | {b.expected:.1f} "
            f"({b.expected / b.pairs:.4f}) | {b.came:.0f} ({b.came / b.pairs:.4f}) |"
        )
    p, y, w = (np.concatenate(part) for part in zip(*cold, strict=True))
    if len(p):
        told = agreement(p, y, w)
        print(
            f"\nwith a tool that no edge leaves or enters: {w.sum():.0f} pairs, expected "
            f"{told['expected']:.1f}, came {told['came']:.0f}, AUC {told.get('auc', np.nan):.3f}, "
            f"average precision {told.get('average_precision', np.nan):.3f}"
        )


def mean(values: list[dict[str, float]], name: str) -> float:
    """Over the cuts that have it."""
    return float(np.mean([v[name] for v in values if name in v] or [np.nan]))


def logits(
    graph: ToolGraph,
    tool_x: torch.Tensor,
    examples: list[Example],
    evidence: Evidence,
    now: np.ndarray,
    embed: SentenceEmbedder,
    epochs: int,
) -> None:
    """AUC and average precision of the MDPL logit: on what came later, and on hidden edges."""
    n = graph.num_tools
    sequences = dict.fromkeys(example.tools for example in examples)
    known_now = {tools for tools, chosen in zip(sequences, now, strict=True) if chosen}
    kept = [
        Example(e.id, e.request, e.tools, split="validation" if share((e.id,)) < 0.1 else "train")
        for e in examples
        if e.tools in known_now
    ]
    before, after = evidence.of(now), evidence.of(~now)
    vectors = embed_requests([example.request for example in kept], embed)
    index, counts = tensors(before, n)
    known = ToolGraph("now", graph.keys, graph.texts, index, counts)
    config = GToolConfig(epochs=epochs)
    member = train_gtool(known, tool_x, kept, vectors, config, seed=0).model.member(0)
    half, other = before.halves(np.random.default_rng(0))
    for name, seen, told in (("came later", before, after), ("hidden in use only", half, other)):
        index, counts = tensors(seen, n)
        with torch.no_grad():
            h = member.encoder.encode_tools(tool_x, index, edge_features(counts))[-1]
            pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n)).T
            score = member.dependency(h, pairs).double().sigmoid().numpy()
        free = (seen.counts(n).toarray() == 0) & ~np.eye(n, dtype=bool)
        came = (told.counts(n).toarray() > 0)[free].astype(float)
        found = agreement(score.reshape(n, n)[free], came)
        print(
            f"\nMDPL logit of a GTool trained on what is there now, edges that {name}: "
            f"AUC {found['auc']:.3f}, average precision {found['average_precision']:.3f}"
        )


def tensors(evidence: Evidence, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Edges and counts as GTool reads them."""
    table = evidence.counts(n).tocoo()
    index = torch.tensor(np.stack([table.row, table.col])).long()
    seen = torch.tensor(table.data).float()
    return index, torch.stack([seen, torch.zeros_like(seen)], dim=1)


if __name__ == "__main__":
    main()
