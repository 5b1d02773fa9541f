import random

import networkx as nx
import numpy as np
import pytest

from models.connectivity import (
    communities,
    components,
    cuts,
    mutual_pairs,
    strongest_triangles,
)


def arrays(edges):
    pairs = np.array(sorted(edges), dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def random_graph(seed):
    drawn = random.Random(seed)
    n = drawn.randint(1, 14)
    edges = {(drawn.randrange(n), drawn.randrange(n)) for _ in range(drawn.randint(0, 2 * n))}
    graph = nx.DiGraph((a, b) for a, b in edges if a != b)
    graph.add_nodes_from(range(n))
    return graph


def groups(labels):
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@pytest.mark.parametrize("seed", range(150))
def test_components_cuts_and_bridges_are_those_of_networkx(seed):
    graph = random_graph(seed)
    n = len(graph)
    source, target = arrays(graph.edges)
    assert groups(components(source, target, n)) == {
        frozenset(part) for part in nx.weakly_connected_components(graph)
    }
    assert groups(components(source, target, n, strong=True)) == {
        frozenset(part) for part in nx.strongly_connected_components(graph)
    }
    plain = nx.Graph(graph)
    found = cuts(source, target, n)
    assert set(found.vertices) == set(nx.articulation_points(plain))
    assert set(found.bridges) == {tuple(sorted(edge)) for edge in nx.bridges(plain)}
    for vertex, told in found.vertices.items():
        rest = plain.subgraph(nx.node_connected_component(plain, vertex) - {vertex})
        parts = sorted(map(len, nx.connected_components(rest)))
        assert told == (sum(parts[:-1]), len(parts))
    for (a, b), told in found.bridges.items():
        rest = nx.restricted_view(plain, [], [(a, b)])
        assert told == min(len(nx.node_connected_component(rest, end)) for end in (a, b))


@pytest.mark.parametrize("seed", range(30))
def test_short_cycles_are_those_of_networkx(seed):
    graph = random_graph(seed)
    source, target = arrays(graph.edges)
    weight = np.array([1 + (7 * a + b) % 5 for a, b in sorted(graph.edges)], dtype=np.int64)
    weights = dict(zip(sorted(graph.edges), weight.tolist(), strict=True))
    cycles = {2: [], 3: []}
    for cycle in nx.simple_cycles(graph, length_bound=3):
        start = cycle.index(min(cycle))
        cycle = (*cycle[start:], *cycle[:start])
        edges = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        cycles[len(cycle)].append((*cycle, min(weights[edge] for edge in edges)))
    wanted = {k: sorted(found, key=lambda c: (-c[-1], c[:-1])) for k, found in cycles.items()}
    assert mutual_pairs(source, target, weight, len(graph)) == wanted[2]
    assert strongest_triangles(source, target, weight, 10**6) == wanted[3]
    assert strongest_triangles(source, target, weight, 2) == wanted[3][:2]


@pytest.mark.parametrize("seed", range(3))
def test_communities_of_a_planted_partition_are_as_good_as_networkx_finds_them(seed):
    graph = nx.planted_partition_graph(6, 20, 0.3, 0.02, seed=seed)
    source, target = arrays(graph.edges)
    labels, modularity = communities(source, target, np.ones(len(source)), len(graph))
    assert modularity == pytest.approx(nx.community.modularity(graph, groups(labels)), abs=1e-4)
    theirs = nx.community.louvain_communities(graph, seed=0)
    assert modularity >= nx.community.modularity(graph, theirs) - 0.05
    again, _ = communities(source, target, np.ones(len(source)), len(graph))
    assert (labels == again).all()


def test_every_community_hangs_together():
    for seed in range(20):
        graph = nx.Graph(random_graph(seed))
        source, target = arrays(graph.edges)
        labels, _ = communities(source, target, np.ones(len(source)), len(graph))
        assert all(nx.is_connected(graph.subgraph(group)) for group in groups(labels))


def test_a_graph_without_edges_has_neither_groups_nor_cuts():
    none = np.zeros(0, dtype=np.int64)
    labels, modularity = communities(none, none, none.astype(np.float64), 3)
    assert (labels.tolist(), modularity) == ([0, 1, 2], 0.0)
    found = cuts(none, none, 3)
    assert (found.vertices, found.bridges) == ({}, {})
    assert mutual_pairs(none, none, none, 3) == []
    assert strongest_triangles(none, none, none, 3) == []
    assert cuts(none, none, 0).vertices == {}
