"""Pairs of tools out of the type graph: why two match, how many do, and all of them on demand."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from models.errors import TooManyPairs
from models.resources import Ints, ResourceGraph

Bools = NDArray[np.bool_]

MAX_PAIRS = 5_000_000
"""More pairs than this are not listed."""

_BLOCK = 512
"""Tools whose pairs are looked at together."""


class TypeMatch(NamedTuple):
    """One way in which a result fits a parameter.

    Attributes:
        match: "strict" or "partial".
        resource: What both are linked to.
        output: Part of the result, "" where only a type or the tool's name is known.
        parameter: The parameter, "" where only a type is known.
        is_required: Of the parameter; None where not stated.
        origins: What the two links were derived from, output first.
    """

    match: str
    resource: str
    output: str
    parameter: str
    is_required: bool | None
    origins: tuple[str, str]


def type_match(graph: ResourceGraph, source: str, target: str) -> list[TypeMatch]:
    """Why what ``source`` returns fits what ``target`` takes: strict ones first, then by resource.

    Of several partial reasons for one output and parameter the most specific is kept.

    Raises:
        GraphMismatch: One of them is no active tool of this graph.
    """
    graph.position(source), graph.position(target)
    if source == target:
        return []
    returned = graph.links.filter((pl.col("tool") == source) & (pl.col("role") == "returns"))
    taken = graph.links.filter((pl.col("tool") == target) & (pl.col("role") == "takes"))
    best: dict[tuple[str, str], TypeMatch] = {}
    for row in returned.join(taken, on="resource", suffix="_to").iter_rows(named=True):
        is_strict = row["match"] == row["match_to"] == "strict"
        found = TypeMatch(
            "strict" if is_strict else "partial",
            row["resource"],
            row["parameter"],
            row["parameter_to"],
            row["is_required_to"],
            (row["origin"], row["origin_to"]),
        )
        pair = found.output, found.parameter
        if pair not in best or _specificity(found) < _specificity(best[pair]):
            best[pair] = found
    return sorted(best.values(), key=lambda m: (m.match != "strict", *m[1:4]))


def _specificity(match: TypeMatch) -> tuple[bool, int, str]:
    return match.match != "strict", -len(match.resource), match.resource


class TypeCounts(NamedTuple):
    """The type graph in numbers.

    Attributes:
        tools: Active tools.
        resources: Types, fields and parts of names.
        takes: Distinct edges resource -> tool, ``strict_takes`` those of strict links.
        returns: Distinct edges tool -> resource, ``strict_returns`` those of strict links.
        strict_pairs: Ordered pairs of two tools with a strict match.
        partial_pairs: Ordered pairs of two tools with partial matches only.
    """

    tools: int
    resources: int
    takes: int
    strict_takes: int
    returns: int
    strict_returns: int
    strict_pairs: int
    partial_pairs: int


def summarise_types(graph: ResourceGraph) -> TypeCounts:
    """Counts of a type graph; pairs are counted block by block, so memory stays linear."""
    strict = both = 0
    for _, sure, either in _blocks(graph, np.ones(len(graph.resources), dtype=bool)):
        strict, both = strict + sure.nnz, both + either.nnz

    def edges(role: str, strict_only: bool) -> int:
        return len(graph.slices("tool", role, strict_only=strict_only)[1])

    return TypeCounts(
        tools=len(graph.tools),
        resources=len(graph.resources),
        takes=edges("takes", False),
        strict_takes=edges("takes", True),
        returns=edges("returns", False),
        strict_returns=edges("returns", True),
        strict_pairs=strict,
        partial_pairs=both - strict,
    )


def type_edges(
    graph: ResourceGraph,
    *,
    strict_only: bool = False,
    max_per_resource: int | None = None,
    max_pairs: int = MAX_PAIRS,
) -> pl.DataFrame:
    """All pairs of tools that a resource joins: source, target, match ("strict" or "partial").

    Args:
        graph: The type graph.
        strict_only: Leave partial matches out.
        max_per_resource: Resources that join more pairs than this are left out.
        max_pairs: Pairs are counted first, and more than this are refused.

    Returns:
        One row per ordered pair of two tools, sorted; strict where any of their matches is.

    Raises:
        TooManyPairs: The resources join more than ``max_pairs`` pairs; nothing has been listed.
    """
    counts = _pairs_per_resource(graph, strict_only)
    chosen = counts <= (max_per_resource if max_per_resource is not None else counts.max(initial=0))
    total = int(counts[chosen].sum())
    if total > max_pairs:
        most = np.lexsort((np.arange(len(counts)), -counts * chosen))[:3]
        names = ", ".join(f"{graph.resources[i]!r} ({counts[i]:,})" for i in most)
        raise TooManyPairs(
            f"expected at most {max_pairs:,} pairs of tools, the resources join up to {total:,}; "
            f"most by {names}. Ask for strict ones alone, bound the pairs of a resource "
            "(max_per_resource), or walk the graph from one tool (successors)."
        )
    sources, targets, are_strict = [], [], []
    for start, strict, either in _blocks(graph, chosen):
        found = (strict if strict_only else either).tocoo()
        order = np.lexsort((found.col, found.row))
        rows, columns = found.row[order], found.col[order]
        sources.append(rows + start)
        targets.append(columns)
        are_strict.append(np.isin(_codes(found)[order], _codes(strict)))
    keys = pl.Series(graph.tools, dtype=pl.String)
    return pl.DataFrame(
        {
            "source": keys.gather(_joined(sources, np.int64)),
            "target": keys.gather(_joined(targets, np.int64)),
            "is_strict": _joined(are_strict, np.bool_),
        }
    ).select(
        "source",
        "target",
        pl.when("is_strict").then(pl.lit("strict")).otherwise(pl.lit("partial")).alias("match"),
    )


def _codes(block: Any) -> Ints:
    """Each pair of a sparse block as one number."""
    pairs = block.tocoo()
    codes: Ints = pairs.row.astype(np.int64) * block.shape[1] + pairs.col
    return codes


def _joined(parts: list[Any], dtype: Any) -> Any:
    return np.concatenate([np.zeros(0, dtype=dtype), *parts]).astype(dtype)


def _pairs_per_resource(graph: ResourceGraph, strict_only: bool) -> Ints:
    """Most pairs that each resource joins: tools that return it times tools that take it."""
    takers, returners = (
        np.diff(graph.slices("resource", role, strict_only=strict_only)[0])
        for role in ("takes", "returns")
    )
    return takers * returners


def _blocks(graph: ResourceGraph, chosen: Bools) -> Iterator[tuple[int, Any, Any]]:
    """For blocks of tools: the first one, whom they join strictly, and whom at all (sparse)."""
    products = []
    for strict_only in (True, False):
        returns = _sparse(graph, "tool", "returns", strict_only)
        takes = _sparse(graph, "resource", "takes", strict_only)
        products.append((returns, diags_array(chosen, dtype=bool) @ takes))
    for start in range(0, len(graph.tools), _BLOCK):
        pairs = []
        for returns, takes in products:
            block = (returns[start : start + _BLOCK] @ takes).tocoo()
            others = block.row + start != block.col
            data = block.data[others], (block.row[others], block.col[others])
            pairs.append(csr_array(data, shape=block.shape))
        yield start, pairs[0], pairs[1]


def _sparse(graph: ResourceGraph, by: str, role: str, strict_only: bool) -> Any:
    """Neighbours as a sparse boolean matrix, a row per tool or resource."""
    starts, columns = graph.slices(by, role, strict_only=strict_only)
    width = len(graph.resources if by == "tool" else graph.tools)
    ones = np.ones(len(columns), dtype=bool)
    return csr_array((ones, columns, starts), shape=(len(starts) - 1, width))
