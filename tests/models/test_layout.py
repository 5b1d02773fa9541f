import time

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from models.layout import CELL, place, separate


def planted(n, num_edges, num_groups, seed=0):
    """(keys, pairs, weights, groups): nine edges of ten stay inside a group."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(num_groups, size=n)
    source = rng.integers(n, size=num_edges)
    inside = [int(rng.choice(np.flatnonzero(groups == groups[s]))) for s in source]
    target = np.where(rng.random(num_edges) < 0.9, inside, rng.integers(n, size=num_edges))
    weights = rng.integers(1, 50, size=num_edges).astype(float)
    return [f"s/tool_{i:05}" for i in range(n)], np.stack([source, target], axis=1), weights, groups


def boxes(positions, groups):
    """(low, high) corners of each group's room."""
    half = np.array(CELL) / 2
    found = [positions[groups == g] for g in np.unique(groups)]
    return [(rows.min(axis=0) - half, rows.max(axis=0) + half) for rows in found]


def test_the_same_edges_in_any_order_give_the_same_places():
    keys, pairs, weights, groups = planted(50, 150, 4)
    first = place(keys, pairs, weights, groups, seed=0)
    assert (place(keys, pairs[::-1], weights[::-1], groups, seed=0) == first).all()
    assert (place(keys, pairs, weights, groups, seed=1) != first).any()
    assert (first == first.round()).all()


@pytest.mark.parametrize("with_groups", [True, False])
def test_every_tool_has_its_room(with_groups):
    keys, pairs, weights, groups = planted(90, 270, 4)
    positions = place(keys, pairs, weights, groups if with_groups else None, seed=0)
    apart = np.abs(positions[:, None] - positions[None, :]) < np.array(CELL) - 1.5
    np.fill_diagonal(apart[..., 0], False)
    assert not apart.all(axis=2).any()


def test_communities_do_not_overlap():
    keys, pairs, weights, groups = planted(90, 360, 6)
    linked = np.unique(pairs[pairs[:, 0] != pairs[:, 1]])
    found = boxes(place(keys, pairs, weights, groups, seed=0)[linked], groups[linked])
    assert len(found) == 6
    for i, (low, high) in enumerate(found):
        for other_low, other_high in found[:i]:
            assert (low > other_high - 1).any() or (other_low > high - 1).any()


def test_tools_that_share_an_edge_are_nearer_than_strangers():
    keys, pairs, weights, groups = planted(90, 270, 4)
    for given in (groups, None):
        positions = place(keys, pairs, weights, given, seed=0)
        length = np.hypot(*(positions[pairs[:, 0]] - positions[pairs[:, 1]]).T)
        assert length.mean() < 0.6 * pdist(positions).mean()


def test_a_chain_is_drawn_as_a_chain():
    keys = [f"s/{i}" for i in range(12)]
    pairs = np.array([(i, i + 1) for i in range(11)])
    distances = squareform(pdist(place(keys, pairs, np.ones(11), seed=0)))
    assert distances[0, 11] > 0.8 * distances.max()
    assert np.diagonal(distances, 1).max() < 0.4 * distances.max()


def test_tools_without_edges_stand_at_the_right_in_key_order():
    keys = ["s/b", "s/a", "s/z", "s/y", "s/x"]
    positions = place(keys, np.array([(0, 1), (2, 2)]), np.ones(2), seed=0)
    assert positions[2:, 0].min() >= positions[:2, 0].max() + CELL[0]
    order = sorted(range(2, 5), key=lambda row: (positions[row, 1], positions[row, 0]))
    assert [keys[row] for row in order] == ["s/x", "s/y", "s/z"]


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_without_any_edge_there_is_a_grid(n):
    none = np.zeros((0, 2), dtype=np.int64)
    positions = place([f"s/{i}" for i in range(n)], none, np.zeros(0), seed=0)
    assert positions.shape == (n, 2)
    assert len({tuple(row) for row in positions.tolist()}) == n


def test_rectangles_are_pushed_apart_within_a_width():
    rng = np.random.default_rng(0)
    sizes = rng.uniform(20, 120, size=(30, 2))
    here = separate(rng.uniform(0, 100, size=(30, 2)), sizes, width=400.0)
    room = (sizes[:, None] + sizes[None, :]) / 2 - np.abs(here[:, None] - here[None, :])
    np.fill_diagonal(room[..., 0], -1.0)
    assert (room.min(axis=2) < 1.0).all()
    assert (here[:, 0] - sizes[:, 0] / 2 >= -1e-6).all()
    assert (here[:, 0] + sizes[:, 0] / 2 <= 400.0 + 1e-6).all()


@pytest.mark.slow
def test_two_thousand_tools_take_seconds():
    keys, pairs, weights, groups = planted(2000, 10_000, 30)
    start = time.process_time()
    place(keys, pairs, weights, groups, seed=0)
    assert time.process_time() - start < 15
