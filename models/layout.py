"""Positions of tools in a picture: forces inside communities, communities packed side by side.

Attraction and repulsion follow T. Fruchterman and E. Reingold, "Graph Drawing by Force-directed
Placement", Software: Practice and Experience 21(11), 1991, section "Modelling the forces", from a
start as in U. Brandes and C. Pich, "Eigensolver Methods for Progressive Multidimensional Scaling
of Large Data", Graph Drawing 2006, section 4 (pivots). Large communities are repelled by the
centres of square cells instead of by every tool.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial import cKDTree

CELL = (72.0, 50.0)
"""Room that a tool takes: width and height in pixels at zoom 1."""

_DENSE = 500
_ROUNDS = 120
_PIVOTS = 30
_CELLS = 18
_GAP = 1.0
_ASPECT = 0.85
"""Width by height in cells, which are wider than high."""
_ROOM = 2.0
_EVEN = 0.5

Positions = Float[np.ndarray, "n 2"]


def place(
    keys: Sequence[str],
    pairs: Int[np.ndarray, "num_edges 2"],
    weights: Float[np.ndarray, " num_edges"],
    groups: Int[np.ndarray, " n"] | None = None,
    *,
    seed: int,
    cell: tuple[float, float] = CELL,
) -> Positions:
    """Where each tool stands: x to the right and y down, the picture's centre at 0.

    Tools that share an edge are near one another, no two communities overlap, and tools without an
    edge stand in a grid at the right in the order of their keys. The same input gives the same
    positions, whatever order edges come in.

    Args:
        keys: Tools, each once.
        pairs: Rows of ``keys``, source and target; loops are ignored.
        weights: Of the pairs, positive; heavy ones pull harder, by their logarithm.
        groups: Community of each tool; default: the connected parts.
        seed: Of the small shifts that keep equal tools apart.
        cell: No two tools of one community are closer than this both across and down.

    Returns:
        Float64, shape ``[n, 2]``, whole pixels.
    """
    n = len(keys)
    if n == 0:
        return np.zeros((0, 2))
    adjacency = _adjacency(n, pairs, weights)
    is_linked = np.diff(adjacency.indptr) > 0
    if groups is None:
        _, groups = connected_components(adjacency, directed=False)
    order = np.array(sorted(range(n), key=lambda row: keys[row]))
    blocks = _blocks(groups, is_linked, order)
    shapes = [_community(adjacency[rows][:, rows], seed) for rows in blocks]
    centres = _pack(blocks, shapes, adjacency)
    positions = np.zeros((n, 2))
    for rows, shape, centre in zip(blocks, shapes, centres, strict=True):
        positions[rows] = shape + centre
    alone = order[~is_linked[order]]
    positions[alone] = _grid(len(alone), positions[is_linked])
    low, high = positions.min(axis=0), positions.max(axis=0)
    placed: Positions = np.round((positions - (low + high) / 2) * cell) + 0.0
    return placed


def separate(
    positions: Positions,
    sizes: Float[np.ndarray, "n 2"],
    *,
    width: float | None = None,
    rounds: int = 200,
) -> Positions:
    """Positions near the given ones at which rectangles of these sizes do not overlap.

    Args:
        positions: Centres of the rectangles.
        sizes: Their widths and heights.
        width: Where given, the rectangles stay between 0 and this across, and what still overlaps
            after all rounds moves down. Without it a crowd that needs more rounds keeps some
            overlap.
        rounds: Most steps.
    """
    here = positions.astype(float).copy()
    reach = float(sizes.max(initial=0.0))
    for _ in range(rounds):
        near = cKDTree(here).query_pairs(reach, p=np.inf, output_type="ndarray")
        near = near[np.lexsort((near[:, 1], near[:, 0]))]
        a, b = near[:, 0], near[:, 1]
        apart = here[b] - here[a]
        overlap = (sizes[a] + sizes[b]) / 2 - np.abs(apart)
        hits = (overlap > 1e-6).all(axis=1)
        if not hits.any():
            break
        a, b, apart, overlap = a[hits], b[hits], apart[hits], overlap[hits]
        # Along the axis that needs the smaller step, measured in sizes.
        axis = (overlap / (sizes[a] + sizes[b])).argmin(axis=1)
        rows = np.arange(len(a))
        sign = np.where(apart[rows, axis] < 0, -1.0, 1.0)
        step = sign * (overlap[rows, axis] * 0.5 + 1e-3)
        move, times = np.zeros_like(here), np.zeros_like(here)
        for end, way in ((a, -1.0), (b, 1.0)):
            np.add.at(move, (end, axis), way * step)
            np.add.at(times, (end, axis), 1.0)
        here += move / np.sqrt(np.maximum(times, 1.0))
        if width is not None:
            here[:, 0] = np.clip(here[:, 0], sizes[:, 0] / 2, width - sizes[:, 0] / 2)
    return here if width is None else _dropped(here, sizes)


def _dropped(here: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """From the top down, each rectangle below those that it would overlap."""
    order = here[:, 1].argsort(kind="stable")
    here = here.copy()
    for i, row in enumerate(order):
        above = order[:i]
        room = (sizes[above] + sizes[row]) / 2
        while True:
            clash = (np.abs(here[row] - here[above]) < room - 1e-9).all(axis=1)
            if not clash.any():
                break
            here[row, 1] = (here[above, 1] + room[:, 1])[clash].max()
    return here


def _adjacency(n: int, pairs: np.ndarray, weights: np.ndarray) -> csr_array:
    """Symmetric, without loops; entries grow with the logarithm of the weight, 1 on average."""
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    weights = np.log1p(np.maximum(np.asarray(weights, dtype=float), 0.0)) + 0.1
    order = np.lexsort((weights, pairs[:, 1], pairs[:, 0]))
    pairs, weights = pairs[order], weights[order]
    other = pairs[:, 0] != pairs[:, 1]
    source, target, weights = pairs[other, 0], pairs[other, 1], weights[other]
    if len(weights):
        weights = weights / weights.mean()
    ends = np.concatenate([source, target]), np.concatenate([target, source])
    return coo_array((np.concatenate([weights, weights]), ends), shape=(n, n)).tocsr()


def _blocks(groups: np.ndarray, is_linked: np.ndarray, order: np.ndarray) -> list[np.ndarray]:
    """Rows of the linked tools of each community in key order; the largest community first."""
    found: dict[int, list[int]] = {}
    for row in order:
        if is_linked[row]:
            found.setdefault(int(groups[row]), []).append(int(row))
    return [np.array(rows) for rows in sorted(found.values(), key=len, reverse=True)]


# --- inside a community: a cell is 1 by 1 ---------------------------------------------------------


def _community(adjacency: csr_array, seed: int) -> np.ndarray:
    """Positions of a community's tools around 0."""
    n = adjacency.shape[0]
    if n == 1:
        return np.zeros((1, 2))
    here = _forces(adjacency, _start(adjacency, seed))
    here = _spread(_turned(here))
    here = separate(here, np.ones((n, 2)))
    here -= (here.min(axis=0) + here.max(axis=0)) / 2
    return here


def _start(adjacency: csr_array, seed: int) -> np.ndarray:
    """Steps to a few pivots, projected on the two directions in which they differ most."""
    n = adjacency.shape[0]
    shifts = np.random.default_rng(seed).normal(size=(n, 2))
    steps = np.zeros((n, 0))
    pivot = int(np.diff(adjacency.indptr).argmax())
    for _ in range(min(_PIVOTS, n)):
        far = dijkstra(adjacency, directed=False, indices=pivot, unweighted=True)
        far[np.isinf(far)] = far[np.isfinite(far)].max() + 2.0
        steps = np.column_stack([steps, far])
        pivot = int(steps.min(axis=1).argmax())
    squares = steps**2
    squares = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    _, vectors = np.linalg.eigh(squares.T @ squares)
    here = squares @ vectors[:, -2:][:, ::-1] if squares.shape[1] > 1 else np.zeros((n, 2))
    spread = here.std(axis=0)
    here = here / np.where(spread > 1e-9, spread, 1.0)
    here = here * np.where(here[np.abs(here).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    return (here + 0.1 * shifts) * np.sqrt(n) / 2.5  # type: ignore[no-any-return]


def _forces(adjacency: csr_array, here: np.ndarray) -> np.ndarray:
    """Rounds of attraction along edges and repulsion among all, with steps that shrink.

    A tool with many neighbours repels more, so that hubs do not collapse into one heap.
    """
    n = len(here)
    edges = adjacency.tocoo()
    mass = (1.0 + np.diff(adjacency.indptr)) ** 0.5
    mass = mass / mass.mean()
    rounds = _ROUNDS if n <= 2000 else max(40, _ROUNDS * 2000 // n)
    for step in np.linspace(0.12 * np.sqrt(n), 0.02, rounds):
        apart = here[edges.coords[1]] - here[edges.coords[0]]
        length = np.sqrt((apart**2).sum(axis=1))
        pull = (edges.data * length)[:, None] * apart
        force = _repulsion(here, mass)
        for axis in (0, 1):
            force[:, axis] += np.bincount(edges.coords[0], pull[:, axis], minlength=n)
        force -= 0.02 * (here - here.mean(axis=0)) * mass[:, None]
        size = np.sqrt((force**2).sum(axis=1))
        here = here + force * (np.minimum(size, step) / np.maximum(size, 1e-9))[:, None]
    return here


def _repulsion(here: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Sum over all others of mass times mass by distance; by cells where there are many tools."""
    if len(here) <= _DENSE:
        centres, heavy, soft = here, mass, 1e-2
    else:
        low = here.min(axis=0)
        side = float((here.max(axis=0) - low).max()) / _CELLS + 1e-9
        at = ((here - low) // side).astype(np.int64)
        index = at[:, 0] * (_CELLS + 1) + at[:, 1]
        used, index = np.unique(index, return_inverse=True)
        heavy = np.bincount(index, mass, minlength=len(used))
        centres = np.column_stack(
            [np.bincount(index, mass * here[:, axis], minlength=len(used)) for axis in (0, 1)]
        )
        centres = centres / heavy[:, None]
        soft = side**2 / 6
    near, centres = here.astype(np.float32), centres.astype(np.float32)
    x = near[:, None, 0] - centres[None, :, 0]
    y = near[:, None, 1] - centres[None, :, 1]
    share = x * x
    share += y * y
    share += np.float32(soft)
    np.divide(heavy.astype(np.float32), share, out=share)
    sums = [np.einsum("ij,ij->i", offset, share) * mass for offset in (x, y)]
    return np.column_stack(sums)


def _turned(here: np.ndarray) -> np.ndarray:
    """The longer side across, because labels are wide."""
    middle = here - here.mean(axis=0)
    (xx, xy), (_, yy) = middle.T @ middle
    angle = -0.5 * np.arctan2(2 * xy, xx - yy)
    cos, sin = np.cos(angle), np.sin(angle)
    return middle @ np.array([[cos, sin], [-sin, cos]])  # type: ignore[no-any-return]


def _spread(here: np.ndarray) -> np.ndarray:
    """Into a box with room for all, crowds wider and voids narrower than they came.

    On each axis a coordinate becomes the mean of itself and its rank, both scaled to the box.
    """
    n = len(here)
    box = np.sqrt(_ROOM * n * np.array([_ASPECT, 1 / _ASPECT])) if n > 3 else np.array([n, 1.0])
    ranks = here.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable") / max(n - 1, 1)
    low, span = here.min(axis=0), np.ptp(here, axis=0)
    shares = (here - low) / np.where(span > 1e-9, span, 1.0)
    return ((1 - _EVEN) * shares + _EVEN * ranks) * box  # type: ignore[no-any-return]


# --- communities side by side ---------------------------------------------------------------------


def _pack(blocks: list[np.ndarray], shapes: list[np.ndarray], adjacency: csr_array) -> np.ndarray:
    """Centres of the communities: those with edges between them together, the others in rows."""
    if not blocks:
        return np.zeros((0, 2))
    block = np.full(adjacency.shape[0], -1)
    for i, rows in enumerate(blocks):
        block[rows] = i
    edges = adjacency.tocoo()
    ends = block[edges.coords[0]], block[edges.coords[1]]
    between = coo_array((edges.data, ends), shape=(len(blocks), len(blocks))).tocsr()
    between.setdiag(0)
    between.eliminate_zeros()
    sizes = np.array([np.ptp(shape, axis=0) + 1.0 + _GAP for shape in shapes])
    _, parts = connected_components(between, directed=False)
    centres = np.zeros((len(blocks), 2))
    members = [np.flatnonzero(parts == part) for part in dict.fromkeys(parts.tolist())]
    boxes = []
    for rows in members:
        centres[rows] = _around(sizes[rows], between[rows][:, rows])
        low = (centres[rows] - sizes[rows] / 2).min(axis=0)
        high = (centres[rows] + sizes[rows] / 2).max(axis=0)
        centres[rows] -= low
        boxes.append(high - low)
    for rows, corner in zip(members, _in_rows(np.array(boxes)), strict=True):
        centres[rows] += corner
    return centres


def _around(sizes: np.ndarray, ties: csr_array) -> np.ndarray:
    """Centres of rectangles that do not overlap, those that are tied near one another."""
    if len(sizes) == 1:
        return np.zeros((1, 2))
    room = np.sqrt((sizes**2).mean(axis=0) / _ROOM)
    centres = _spread(_forces(ties, _start(ties, 0))) * room
    return _dropped(separate(centres, sizes), sizes)


def _in_rows(boxes: np.ndarray) -> np.ndarray:
    """Corners of boxes in rows, the tallest first."""
    width = max(float(boxes[:, 0].max()), float(np.sqrt(boxes.prod(axis=1).sum() * _ASPECT)))
    corners = np.zeros_like(boxes)
    x = y = tallest = 0.0
    for i in sorted(range(len(boxes)), key=lambda i: (-boxes[i, 1], -boxes[i, 0], i)):
        if x > 0 and x + boxes[i, 0] > width:
            x, y, tallest = 0.0, y + tallest, 0.0
        corners[i] = x, y
        x += boxes[i, 0]
        tallest = max(tallest, boxes[i, 1])
    return corners


def _grid(count: int, others: np.ndarray) -> np.ndarray:
    """Rows of places to the right of all others, as high as they are, or a block of its own."""
    if count == 0:
        return np.zeros((0, 2))
    low, high = (others.min(axis=0), others.max(axis=0)) if len(others) else (np.zeros(2),) * 2
    height = max(high[1] - low[1] + 1.0, np.sqrt(count / _ASPECT))
    columns = int(np.ceil(count / max(1, int(height))))
    index = np.arange(count)
    left = high[0] + 2.0 if len(others) else 0.0
    return np.column_stack([left + index % columns, low[1] + index // columns]).astype(float)
