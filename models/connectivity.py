"""What holds a graph together: groups, cut vertices, bridges, and short cycles.

Vertices are 0-based integers; edges are arrays of equal length, without self loops, each pair once.
"""

from dataclasses import dataclass

import networkx as nx
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from sknetwork.clustering import Louvain, get_modularity

Vertices = npt.NDArray[np.int64]
"""Vertices, one end of each edge or one label a vertex, int64, one axis."""

STRONGEST_EDGES = 20_000
"""Cycles of three are looked for among so many of the strongest edges."""


_TOLERANCE = 1e-4  # modularity that another pass must add


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where an undirected graph falls apart when one vertex or edge goes.

    Attributes:
        vertices: Cut vertex -> (how many vertices lose the largest part, number of parts).
        bridges: Edge (lower vertex first) -> how many vertices lie on its smaller side.
    """

    vertices: dict[int, tuple[int, int]]
    bridges: dict[tuple[int, int], int]


def components(
    source: Vertices, target: Vertices, num_vertices: int, *, strong: bool = False
) -> Vertices:
    """The component of each vertex, numbered from 0; strong ones follow the edges' direction."""
    matrix = _matrix(source, target, num_vertices)
    labels: Vertices = csgraph.connected_components(
        matrix, directed=strong, connection="strong" if strong else "weak"
    )[1].astype(np.int64)
    return labels


def communities(
    source: Vertices, target: Vertices, weight: npt.NDArray[np.float64], num_vertices: int
) -> tuple[Vertices, float]:
    """Groups with much weight inside and little between them, and the modularity they reach.

    Louvain (Blondel and others 2008) on the undirected graph, Newman's modularity, vertices visited
    in their order, so that the same graph gives the same groups. A group that does not hang
    together, as Louvain may leave (Traag, Waltman, van Eck 2019), is taken apart.

    Returns:
        The group of each vertex, numbered from 0, and the modularity, at most 1. A graph without
        edges has a group a vertex and modularity 0.
    """
    if not len(source):
        return np.arange(num_vertices, dtype=np.int64), 0.0
    matrix = _matrix(source, target, num_vertices, weight)
    matrix = (matrix + matrix.T).tocsr()
    found = Louvain(
        modularity="newman", tol_optimization=_TOLERANCE, tol_aggregation=_TOLERANCE
    ).fit_predict(matrix)
    edges = matrix.tocoo()
    inside = found[edges.row] == found[edges.col]
    labels = components(
        edges.row[inside].astype(np.int64), edges.col[inside].astype(np.int64), num_vertices
    )
    return labels, float(get_modularity(matrix, labels))


def cuts(source: Vertices, target: Vertices, num_vertices: int) -> Cuts:
    """Cut vertices and bridges of the undirected graph, with what each of them holds together.

    The blocks are those of two scan-first forests, the second of what the first leaves over: for
    every vertex and edge they fall apart as the whole graph does, and have at most twice as many
    edges as vertices (Cheriyan, Kao, Thurimella 1993, theorem 2.4).
    """
    graph = nx.Graph()
    graph.add_edges_from(_certificate(source, target, num_vertices))
    blocks = [sorted(block) for block in nx.biconnected_components(graph)]
    tree = _block_tree(blocks)
    parent = _rooted(tree)
    below = {
        node: 1 if node >= 0 else sum(vertex not in tree for vertex in blocks[~node])
        for node in parent
    }
    for node in reversed(parent):
        above = parent[node]
        if above is not None:
            below[above] += below[node]
    whole: dict[int, int] = {}
    for node, above in parent.items():
        whole[node] = below[node] if above is None else whole[above]

    vertices = {}
    bridges = {}
    for node in parent:
        if node >= 0:
            parts = [below[block] for block in tree[node] if block != parent[node]]
            if whole[node] > below[node]:
                parts.append(whole[node] - below[node])
            vertices[node] = (whole[node] - 1 - max(parts), len(parts))
        elif len(blocks[~node]) == 2:
            if parent[node] is not None:
                side = below[node]
            else:
                side = below[tree[node][0]] if tree[node] else 1
            low, high = blocks[~node]
            bridges[low, high] = min(side, whole[node] - side)
    return Cuts(vertices, bridges)


def mutual_pairs(
    source: Vertices, target: Vertices, weight: Vertices, num_vertices: int
) -> list[tuple[int, int, int]]:
    """Pairs with an edge each way: (lower vertex, higher vertex, weight of the weaker edge).

    The heaviest come first, equal ones in the order of their vertices.
    """
    matrix = _matrix(source, target, num_vertices, weight)
    both = sparse.triu(matrix.minimum(matrix.T)).tocoo()
    order = np.lexsort((both.col, both.row, -both.data))
    return list(
        zip(
            both.row[order].tolist(),
            both.col[order].tolist(),
            both.data[order].tolist(),
            strict=True,
        )
    )


def strongest_triangles(
    source: Vertices, target: Vertices, weight: Vertices, most: int
) -> list[tuple[int, int, int, int]]:
    """Directed cycles of three vertices, each as it starts at its lowest: (a, b, c, weakest edge).

    They are looked for among the ``STRONGEST_EDGES`` heaviest edges. A cycle is as heavy as its
    weakest edge, so those found are the heaviest of all.

    Returns:
        At most ``most``, the heaviest first, equal ones in the order of their vertices.
    """
    order = np.lexsort((target, source, -weight))[:STRONGEST_EDGES]
    ends = zip(source[order].tolist(), target[order].tolist(), strict=True)
    weights = dict(zip(ends, weight[order].tolist(), strict=True))
    follow: dict[int, set[int]] = {}
    lead: dict[int, set[int]] = {}
    for a, b in weights:
        follow.setdefault(a, set()).add(b)
        lead.setdefault(b, set()).add(a)
    found = [
        (a, b, c, min(weights[a, b], weights[b, c], weights[c, a]))
        for a, b in weights
        if a < b
        for c in follow.get(b, set()) & lead.get(a, set())
        if a < c
    ]
    return sorted(found, key=lambda cycle: (-cycle[3], *cycle[:3]))[:most]


def _matrix(
    source: Vertices,
    target: Vertices,
    num_vertices: int,
    weight: npt.NDArray[np.generic] | None = None,
) -> sparse.csr_matrix:
    values = np.ones(len(source)) if weight is None else weight
    return sparse.csr_matrix((values, (source, target)), shape=(num_vertices, num_vertices))


def _certificate(source: Vertices, target: Vertices, num_vertices: int) -> list[tuple[int, int]]:
    """The edges of two scan-first forests, lower vertex first, in order."""
    pairs = np.sort(np.minimum(source, target) * num_vertices + np.maximum(source, target))
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique takes several times as long
    first = _forest(pairs, num_vertices)
    second = _forest(np.setdiff1d(pairs, first, assume_unique=True), num_vertices)
    kept = np.sort(np.concatenate([first, second]))
    return [divmod(pair, num_vertices) for pair in kept.tolist()]


def _forest(pairs: Vertices, num_vertices: int) -> Vertices:
    """The pairs of a breadth-first forest; a pair is ``lower * num_vertices + higher``."""
    low, high = np.divmod(pairs, max(num_vertices, 1))
    labels = components(low, high, num_vertices)
    starts = np.unique(labels, return_index=True)[1]
    root = num_vertices  # joined to one vertex of each component, so that one search walks all
    rooted = _matrix(
        np.concatenate([low, np.full(len(starts), root)]),
        np.concatenate([high, starts]),
        num_vertices + 1,
    )
    _, parent = csgraph.breadth_first_order(rooted, root, directed=False)
    child = np.arange(num_vertices)
    parent = parent[:num_vertices].astype(np.int64)
    inner = parent != root
    child, parent = child[inner], parent[inner]
    forest: Vertices = np.unique(
        np.minimum(child, parent) * num_vertices + np.maximum(child, parent)
    )
    return forest


def _block_tree(blocks: list[list[int]]) -> dict[int, list[int]]:
    """Blocks and cut vertices as neighbours: a cut vertex under its number, block i under ~i."""
    inside: dict[int, list[int]] = {}
    for number, block in enumerate(blocks):
        for vertex in block:
            inside.setdefault(vertex, []).append(~number)
    tree = {vertex: of for vertex, of in inside.items() if len(of) > 1}
    tree |= {~i: [v for v in block if v in tree] for i, block in enumerate(blocks)}
    return tree


def _rooted(tree: dict[int, list[int]]) -> dict[int, int | None]:
    """The parent of each node, in an order in which parents come first; roots have None."""
    parent: dict[int, int | None] = {}
    for start in tree:
        if start >= 0 or start in parent:
            continue
        parent[start] = None
        waiting = [start]
        while waiting:
            node = waiting.pop()
            for near in tree[node]:
                if near not in parent:
                    parent[near] = node
                    waiting.append(near)
    return parent
