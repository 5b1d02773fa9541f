"""Predicted edges: pairs of tools that nobody has seen yet, with the chance that they will be.

The probability of a pair means: once trajectories have shown as many further tool sequences as they
have now, the pair is an edge. (A sequence that is known already brings no edge, however often it
comes again.) What is said of the future is learnt from the past: the sequences are cut into two
halves by chance, the graph of the one half is looked at, and the other half tells which of its
missing pairs came true. Nothing of a pair's own evidence is in its features.

GTool's trained missing-dependency head has no part in it: its weights have seen every edge, so that
edges hidden from it only in use flatter it, and on edges that came later it ranks pairs worse than
the same bilinear form fitted in closed form to half of the edges (tests/benchmarks/
bench_predicted.py --mdpl compares them).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.sparse import csr_array, diags_array
from scipy.special import expit, logit
from torch import Tensor

from models.errors import GraphMismatch
from models.types import Example, ToolGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FEATURES = (
    "cosine",
    "bilinear",
    "like_source",
    "like_target",
    "out_degree",
    "in_degree",
    "reverse",
    "two_steps",
    "three_steps",
    "same_namespace",
)
"""What a pair is judged by; see :class:`PairFeatures`."""

HALVINGS = 4
"""Cuts that the weights are fitted on."""

NEIGHBOURS = 16
"""Tools of the likest text that speak for a tool."""

MOST_PAIRS = 2_000_000
"""Pairs whose features are in memory at once; larger catalogues are fitted on some sources."""

_SHARPNESS = 12.0  # of the softmax over like texts
_RIDGE = 1.0  # penalty of the bilinear form
_PENALTY = 1.0  # of the weights, on features of unit spread
_SMALL = 0.01  # a share that its logarithm tells from none
_MOST_NEGATIVES = 100_000  # of a halving; they stand for all
_BINS = np.arange(-40.0, 20.0, 0.01)  # of logits, to find what moves their sum
_MOST_TELLINGS = 8  # of an edge by nobody knows which sequence; more would change nothing
_ENDS = 1e-7  # probabilities stay this far from 0 and 1 where their logarithm is taken


class Evidence(NamedTuple):
    """Which tool sequence tells of which edge.

    Attributes:
        num_sequences: How many there are, those that tell of none included.
        sequence: 0-based, of each telling, int64, shape ``[num_told]``.
        pairs: (source, target) of each telling, int64, shape ``[num_told, 2]``.
    """

    num_sequences: int
    sequence: Ints
    pairs: Ints

    def halves(self, rng: np.random.Generator) -> tuple["Evidence", "Evidence"]:
        """Two halves by chance."""
        first = rng.permutation(self.num_sequences) < self.num_sequences // 2
        return self.of(first), self.of(~first)

    def of(self, chosen: NDArray[np.bool_]) -> "Evidence":
        """Only the chosen sequences."""
        told, number = chosen[self.sequence], np.cumsum(chosen) - 1
        return Evidence(int(chosen.sum()), number[self.sequence[told]], self.pairs[told])

    def counts(self, num_tools: int) -> csr_array:
        """How many sequences tell of each edge, as a matrix."""
        ones = np.ones(len(self.pairs))
        return csr_array((ones, (self.pairs[:, 0], self.pairs[:, 1])), (num_tools, num_tools))


def edge_evidence(graph: ToolGraph, examples: Sequence[Example]) -> Evidence:
    """The edges of a graph by the tool sequence that tells of them, in the order of the examples.

    Neighbouring tools and stated links count where the graph has that edge; an edge that no
    example accounts for has a sequence of its own for each time it was seen, up to eight.
    """
    edges = [(s, t) for s, t in graph.edge_index.T.tolist()]
    told: dict[tuple[str, ...], set[tuple[int, int]]] = {}
    for example in examples:
        rows = [graph.index.get(key, -1) for key in example.tools]
        links = [(rows[s], rows[t]) for s, t in example.links]
        told.setdefault(example.tools, set()).update(pairwise(rows), links)
    known = set(edges)
    by_sequence = [sorted(pairs & known) for pairs in told.values()]
    lacking = known.difference(*by_sequence)
    seen = graph.edge_counts.amax(dim=1).clamp_min(1).long().tolist() if edges else []
    for pair, times in zip(edges, seen, strict=True):
        by_sequence += [[pair]] * min(times, _MOST_TELLINGS) if pair in lacking else []
    table = [(number, *pair) for number, pairs in enumerate(by_sequence) for pair in pairs]
    array = np.array(table, dtype=np.int64).reshape(-1, 3)
    return Evidence(len(by_sequence), array[:, 0], array[:, 1:])


# --- features -------------------------------------------------------------------------------------


class TextSide(NamedTuple):
    """What the texts alone say, computed once for all halvings.

    Attributes:
        x: Unit text vectors, float32, shape ``[num_tools, channels]``.
        like: Weights of each tool's likest others, rows sum to 1, ``[num_tools, num_tools]``.
        smooth: ``(X'X + ridge)^-1 X'``, shape ``[channels, num_tools]``.
        namespace: Number of each tool's namespace.
    """

    x: NDArray[np.float32]
    like: csr_array
    smooth: NDArray[np.float32]
    namespace: Ints

    @classmethod
    def of(cls, tool_x: Float[Tensor, "num_tools channels"], keys: Sequence[str]) -> "TextSide":
        """From text vectors and keys.

        Raises:
            GraphMismatch: There are not as many vectors as keys.
        """
        if tool_x.size(0) != len(keys):
            raise GraphMismatch(
                f"expected a text vector for each of {len(keys)} tools, got {tool_x.size(0)}; "
                "embed the texts of this graph"
            )
        x = tool_x.float().cpu().numpy()
        spaces = [key.split("/", 1)[0] for key in keys]
        number = {space: i for i, space in enumerate(sorted(set(spaces)))}
        inner = x.T @ x + _RIDGE * np.eye(x.shape[1], dtype=np.float32)
        smooth = np.linalg.solve(inner, x.T)
        return cls(x, _likest(x), smooth, np.array([number[s] for s in spaces], dtype=np.int64))


def _likest(x: NDArray[np.float32]) -> csr_array:
    """Softmax weights over each tool's nearest others."""
    n = len(x)
    k = min(NEIGHBOURS, n - 1)
    if k < 1:
        return csr_array((n, n), dtype=np.float64)
    columns, weights = np.empty((n, k), dtype=np.int64), np.empty((n, k))
    for rows in _blocks(n):
        cosine = x[rows] @ x.T
        cosine[np.arange(len(rows)), rows] = -np.inf
        best = np.sort(np.argpartition(-cosine, k - 1, axis=1)[:, :k], axis=1)
        weight = np.exp(_SHARPNESS * (np.take_along_axis(cosine, best, axis=1) - 1.0))
        columns[rows], weights[rows] = best, weight / weight.sum(axis=1, keepdims=True)
    starts = np.arange(n + 1) * k
    return csr_array((weights.ravel(), columns.ravel(), starts), (n, n))


def _blocks(n: int) -> Iterator[Ints]:
    size = max(1, MOST_PAIRS // max(n, 1))
    for start in range(0, n, size):
        yield np.arange(start, min(start + size, n))


class PairFeatures:
    """Features of all pairs of one graph, computed for a block of sources at a time.

    cosine: of the two texts. bilinear: ridge regression of the edges on pairs of texts, MDPL's
    bilinear form in closed form. like_source, like_target: edges of tools with like texts. degrees:
    against the mean. reverse: the edge the other way round. two_steps, three_steps: paths
    s-w-t and s-w-v-t (v has the targets of s), each step divided by the root of both degrees.
    Where a feature is a share it enters as ``log(1 + 100 share)``, so that a denser graph moves it
    little.
    """

    def __init__(self, text: TextSide, counts: csr_array) -> None:
        self.text = text
        edges = csr_array(counts > 0, dtype=np.float64)
        self.edges = edges
        outgoing, incoming = edges.sum(axis=1), edges.sum(axis=0)
        mean = max(edges.nnz, 1e-9) / max(len(text.x), 1)
        self.out_degree = np.log((outgoing + 0.5 * mean) / mean)
        self.in_degree = np.log((incoming + 0.5 * mean) / mean)
        self.weight = (text.smooth @ (edges @ text.smooth.T.astype(np.float64))).astype(np.float32)
        self.like_source = _log(text.like @ edges)
        self.like_target = _log(edges @ text.like.T)
        step = (
            diags_array(1 / np.sqrt(outgoing + 1)) @ edges @ diags_array(1 / np.sqrt(incoming + 1))
        )
        self.step = csr_array(step)
        self.back = csr_array(edges.T)

    def of(self, sources: Ints) -> NDArray[np.float32]:
        """Shape ``[num_sources, num_tools, num_features]``."""
        text = self.text
        n = len(text.x)
        # A feature at a time lies together; callers see it last.
        out = np.moveaxis(np.empty((len(FEATURES), len(sources), n), dtype=np.float32), 0, -1)
        x = text.x[sources]
        step = self.step[sources]
        two = step @ self.step
        three = (step @ self.step.T) @ self.step
        out[..., 0] = x @ text.x.T
        out[..., 1] = np.log1p(((x @ self.weight) @ text.x.T).clip(0) / _SMALL)
        out[..., 2] = self.like_source[sources].toarray()
        out[..., 3] = self.like_target[sources].toarray()
        out[..., 4] = self.out_degree[sources, None]
        out[..., 5] = self.in_degree[None]
        out[..., 6] = self.back[sources].toarray()
        out[..., 7] = _log(two).toarray()
        out[..., 8] = _log(three).toarray()
        out[..., 9] = text.namespace[sources, None] == text.namespace[None]
        return out

    def free(self, sources: Ints) -> NDArray[np.bool_]:
        """Whether a pair is neither an edge nor a loop, shape ``[num_sources, num_tools]``."""
        free: NDArray[np.bool_] = self.edges[sources].toarray() == 0
        free[np.arange(len(sources)), sources] = False
        return free


def _log(share: csr_array) -> csr_array:
    """Of a sparse matrix, which stays as sparse."""
    data = np.log1p(share.data / _SMALL).astype(np.float32)
    return csr_array((data, share.indices, share.indptr), share.shape)


# --- from features to probabilities ---------------------------------------------------------------


class Pairs(NamedTuple):
    """Pairs that are no edge yet, and what became of them.

    Attributes:
        features: Shape ``[num_pairs, num_features]``.
        is_edge: Whether a pair came true, 0 or 1.
        weight: How many pairs this one stands for.
        share: Of all sources, those the pairs are of.
    """

    features: NDArray[np.float32]
    is_edge: Floats
    weight: Floats
    share: float


def look_ahead(text: TextSide, now: Evidence, later: Evidence, rng: np.random.Generator) -> Pairs:
    """The missing pairs of one half, told by the other: all that came true, some of the rest."""
    n = len(text.x)
    sources = np.arange(n)
    if n * n > MOST_PAIRS:
        sources = np.sort(rng.permutation(n)[: max(1, MOST_PAIRS // n)])
    graph = PairFeatures(text, now.counts(n))
    free = graph.free(sources)
    is_edge = later.counts(n)[sources].toarray()[free] > 0
    came, rest = np.flatnonzero(is_edge), np.flatnonzero(~is_edge)
    drawn = np.sort(rng.permutation(rest)[:_MOST_NEGATIVES])
    rows = np.concatenate([came, drawn])
    weight = np.ones(len(rows))
    weight[len(came) :] = len(rest) / max(len(drawn), 1)
    features = graph.of(sources)[free][rows]
    return Pairs(features, is_edge[rows].astype(float), weight, len(sources) / max(n, 1))


@dataclass(frozen=True)
class EdgeCalibrator:
    """Logistic regression from pair features to the chance that the pair will be seen.

    Attributes:
        mean: Of each feature, taken off.
        scale: Each feature's spread.
        weights: Of the features after that.
        bias: Logit of an average pair.
    """

    mean: Floats
    scale: Floats
    weights: Floats
    bias: float

    def logits(self, features: NDArray[np.float32]) -> Floats:
        """Of pairs, in the shape of ``features`` without its last axis."""
        slope = self.weights / self.scale
        start = self.bias - float(slope @ self.mean)
        logits = np.full(features.shape[:-1], start)
        for place in np.flatnonzero(slope):
            logits += features[..., place] * np.float32(slope[place])
        return logits


def fit_calibrator(
    text: TextSide,
    evidence: Evidence,
    rng: np.random.Generator,
    features: Sequence[str] = FEATURES,
) -> EdgeCalibrator:
    """Weights that tell, from one half of the sequences, what the other half adds.

    They serve the whole as they served the half: what is learnt of half the sequences and the
    next half is said of all and as many again. ``features``: those that may have a weight.
    """
    parts = [look_ahead(text, *evidence.halves(rng), rng) for _ in range(HALVINGS)]
    x = np.concatenate([part.features for part in parts]).astype(float)
    is_edge = np.concatenate([part.is_edge for part in parts])
    weight = np.concatenate([part.weight for part in parts]) / HALVINGS
    rate = float((weight @ is_edge + 0.5) / (weight.sum() + 1.0))
    zeros = np.zeros(len(FEATURES))
    if len(x) == 0:
        return EdgeCalibrator(zeros, zeros + 1, zeros, float(logit(rate)))
    mean = np.average(x, axis=0, weights=weight)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weight))
    scale[scale < 1e-6] = 1.0
    x = (x - mean) / scale * np.isin(FEATURES, features)

    def loss(theta: Floats) -> tuple[float, Floats]:
        z = theta[0] + x @ theta[1:]
        error = weight * (expit(z) - is_edge)
        value = weight @ (np.logaddexp(0, z) - is_edge * z) + _PENALTY / 2 * theta[1:] @ theta[1:]
        return value, np.concatenate([[error.sum()], x.T @ error + _PENALTY * theta[1:]])

    start = np.concatenate([[logit(rate)], zeros])
    theta = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return EdgeCalibrator(mean, scale, theta[1:], float(theta[0]))


def expected_new_edges(evidence: Evidence, num_tools: int) -> float:
    r"""How many edges as many further sequences will add.

    .. math::
        f_0 (1 - e^{-f_1 / f_0}), \quad f_0 = f_1^2 / 2 f_2

    with :math:`f_i` edges told of by :math:`i` sequences: the extrapolation of species counts
    of Chao <https://doi.org/10.2307/4615964> and Shen et al.
    """
    seen = evidence.counts(num_tools).data
    once, twice = float((seen == 1).sum()), float((seen == 2).sum())
    unseen = once**2 / (2 * twice) if twice else once * (once - 1) / 2
    return unseen * -np.expm1(-once / unseen) if unseen else 0.0


def moved_to(logits: Floats, weight: Floats, total: float) -> float:
    """What to add to all logits so that their probabilities sum to ``total``."""
    total = min(max(total, 0.5), 0.5 * float(weight.sum()))

    def excess(shift: float) -> float:
        return float(weight @ expit(logits + shift)) - total

    return float(brentq(excess, -60.0, 60.0)) if weight.sum() > 0 else 0.0


class PredictedEdges(NamedTuple):
    """Edges that nobody has seen yet, sorted by source and target.

    Attributes:
        edge_index: Rows of the graph's tools, int64, shape ``[2, num_predicted]``.
        probability: That a pair is an edge once as many further sequences as now have come,
            float32, shape ``[num_predicted]``.
    """

    edge_index: Int[Tensor, "2 num_predicted"]
    probability: Float[Tensor, " num_predicted"]


def predict_edges(
    graph: ToolGraph,
    tool_x: Float[Tensor, "num_tools channels"],
    examples: Sequence[Example],
    *,
    most: int,
    min_probability: float,
    seed: int,
) -> tuple[PredictedEdges, dict[str, float]]:
    """The likeliest edges that a graph lacks.

    A tool without any edge gets its likeliest one each way even where that is unlikely: it has
    nothing else.

    Args:
        graph: The learning view of a graph version.
        tool_x: Text vectors of its tools.
        examples: The training rows of the same state.
        most: Most predicted edges that leave a tool, those of tools without an edge aside.
        min_probability: Less likely ones are left out.
        seed: Of the halvings.

    Returns:
        (the edges, how such predictions fared: those from half of the sequences against the
        other half, see :func:`agreement`).

    Raises:
        GraphMismatch: Graph and vectors differ in their number of tools.
    """
    text = TextSide.of(tool_x, graph.keys)
    evidence = edge_evidence(graph, examples)
    calibrator = fit_calibrator(text, evidence, np.random.default_rng(seed))
    found = likeliest(
        text,
        evidence.counts(graph.num_tools),
        calibrator,
        expected_new_edges(evidence, graph.num_tools),
        most=most,
        min_probability=min_probability,
    )
    return found, verify(text, evidence, seed)


def likeliest(
    text: TextSide,
    counts: csr_array,
    calibrator: EdgeCalibrator,
    expected: float,
    *,
    most: int,
    min_probability: float,
) -> PredictedEdges:
    """All pairs scored, a block of sources at a time; see :func:`predict_edges`."""
    n = len(text.x)
    graph = PairFeatures(text, counts)
    is_cold = (graph.edges.sum(axis=0) == 0) & (graph.edges.sum(axis=1) == 0)
    pairs, logits, needed = [], [], []
    top, top_source = np.full(n, -np.inf), np.zeros(n, dtype=np.int64)
    histogram = np.zeros(len(_BINS))
    for sources in _blocks(n):
        scores = calibrator.logits(graph.of(sources))
        scores[~graph.free(sources)] = -np.inf
        finite = np.isfinite(scores)
        place = np.rint((scores[finite] - _BINS[0]) * 100).astype(np.int64)
        histogram += np.bincount(place.clip(0, len(_BINS) - 1), minlength=len(_BINS))
        best = _largest(scores, max(most, 1))
        score = np.take_along_axis(scores, best, axis=1)
        is_first = np.arange(best.shape[1]) == 0
        kept = np.isfinite(score) & ((most > 0) | is_cold[sources, None])
        pairs.append((sources[:, None] * n + best)[kept])
        logits.append(score[kept])
        needed.append((is_first & is_cold[sources, None])[kept])
        row = scores.argmax(axis=0)
        best_in = scores[row, np.arange(n)]
        better = best_in > top
        top[better], top_source[better] = best_in[better], sources[row[better]]
    cold = np.flatnonzero(is_cold & np.isfinite(top))
    pairs.append(top_source[cold] * n + cold)
    logits.append(top[cold])
    needed.append(np.ones(len(cold), dtype=bool))
    shift = moved_to(_BINS, histogram, expected)
    pair, logit_of, need = (np.concatenate(part) for part in (pairs, logits, needed))
    probability = expit(logit_of + shift)
    order = np.lexsort((~need, pair))  # of a pair that came twice the needed one
    order = order[np.append(True, np.diff(pair[order]) > 0)] if len(order) else order
    order = order[need[order] | (probability[order] >= min_probability)]
    edge_index = torch.from_numpy(np.stack([pair[order] // max(n, 1), pair[order] % max(n, 1)]))
    return PredictedEdges(edge_index, torch.from_numpy(probability[order]).float())


def _largest(scores: Floats, most: int) -> Ints:
    """Columns of the largest scores of each row, the largest first."""
    if most < scores.shape[1]:
        best = np.sort(np.argpartition(-scores, most - 1, axis=1)[:, :most], axis=1)
    else:
        best = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
    return np.take_along_axis(best, order, axis=1)


# --- how far to be trusted ------------------------------------------------------------------------


def foretell(
    text: TextSide,
    now: Evidence,
    later: Evidence,
    rng: np.random.Generator,
    features: Sequence[str] = FEATURES,
) -> tuple[Pairs, Floats]:
    """The missing pairs of ``now``, what ``later`` made of them, and the probabilities.

    Only ``now`` is looked at for these.
    """
    calibrator = fit_calibrator(text, now, rng, features)
    pairs = look_ahead(text, now, later, rng)
    logits = calibrator.logits(pairs.features)
    total = expected_new_edges(now, len(text.x)) * pairs.share
    return pairs, expit(logits + moved_to(logits, pairs.weight, total))


def verify(text: TextSide, evidence: Evidence, seed: int) -> dict[str, float]:
    """Predictions from one half of the sequences against the other, see :func:`agreement`."""
    rng = np.random.default_rng(seed)
    pairs, probability = foretell(text, *evidence.halves(rng), rng)
    return agreement(probability, pairs.is_edge, pairs.weight)


def agreement(
    probability: Floats, is_edge: Floats, weight: Floats | None = None
) -> dict[str, float]:
    """How well probabilities foretold what came.

    Args:
        probability: Of each pair, 0..1.
        is_edge: Whether it came true, 0 or 1.
        weight: How many pairs it stands for; default: itself.

    Returns:
        ``base_rate``; ``brier`` and ``log_loss`` (nats), and the same of the base rate;
        ``calibration_error``: over bins of like probability, the mean difference between the
        probability and the share that came, and ``relative_calibration_error``: the same out of the
        mean probability, which tells more where most pairs are unlikely; ``expected`` and ``came``
        edges;
        ``auc`` and ``average_precision`` (absent where nothing or everything came true).
    """
    weight = np.ones(len(probability)) if weight is None else weight
    whole = float(weight.sum())
    if whole == 0:
        return {"expected": 0.0, "came": 0.0}
    base = float(weight @ is_edge) / whole
    found = {"base_rate": base}
    for name, p in (("", probability), ("base_", np.full(len(probability), base))):
        p = p.clip(_ENDS, 1 - _ENDS)
        found[f"{name}brier"] = float(weight @ (p - is_edge) ** 2) / whole
        likelihood = is_edge * np.log(p) + (1 - is_edge) * np.log1p(-p)
        found[f"{name}log_loss"] = -float(weight @ likelihood) / whole
    bins = reliability(probability, is_edge, weight)
    expected = sum(b.expected for b in bins)
    wrong = sum(abs(b.expected - b.came) for b in bins)
    found["calibration_error"] = wrong / whole
    found["relative_calibration_error"] = wrong / max(expected, _ENDS)
    found["expected"], found["came"] = expected, float(weight @ is_edge)
    if 0.0 < base < 1.0:
        found["auc"] = _auc(probability, is_edge, weight)
        found["average_precision"] = _average_precision(probability, is_edge, weight)
    return found


class Bin(NamedTuple):
    """Pairs of like probability: how many, and how many of them were expected and came."""

    lowest: float
    highest: float
    pairs: float
    expected: float
    came: float


def reliability(
    probability: Floats, is_edge: Floats, weight: Floats | None = None, bins: int = 10
) -> list[Bin]:
    """Bins that expect the same number of edges each, the likeliest pairs first."""
    weight = np.ones(len(probability)) if weight is None else weight
    order = np.argsort(-probability, kind="stable")
    p, came, w = probability[order], (weight * is_edge)[order], weight[order]
    so_far = np.cumsum(p * w)
    if not len(p) or so_far[-1] == 0:
        return []
    place = np.minimum(so_far / so_far[-1] * bins, bins - 1).astype(int)
    return [
        Bin(
            float(p[i].min()),
            float(p[i].max()),
            float(w[i].sum()),
            float((p * w)[i].sum()),
            float(came[i].sum()),
        )
        for i in (np.flatnonzero(place == number) for number in range(bins))
        if len(i)
    ]


def _auc(score: Floats, is_edge: Floats, weight: Floats) -> float:
    """Chance that an edge scores above a pair that came to nothing, ties counting half."""
    levels, level = np.unique(score, return_inverse=True)
    yes = np.bincount(level, weight * is_edge, len(levels))
    no = np.bincount(level, weight * (1 - is_edge), len(levels))
    below = np.cumsum(no) - no
    return float(yes @ (below + no / 2) / (yes.sum() * no.sum()))


def _average_precision(score: Floats, is_edge: Floats, weight: Floats) -> float:
    """Mean precision at each edge, pairs of one score together."""
    levels, level = np.unique(-score, return_inverse=True)
    yes = np.bincount(level, weight * is_edge, len(levels))
    precision = np.cumsum(yes) / np.cumsum(np.bincount(level, weight, len(levels)))
    return float(yes @ precision / yes.sum())
