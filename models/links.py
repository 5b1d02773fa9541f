"""Which steps of a predicted plan depend on which earlier ones: by rule, and learnt."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import GraphMismatch
from models.types import Example, Link, ToolGraph

_Array = npt.NDArray[np.float64]
_Pair = tuple[int, int]

MAX_STEPS = 500
"""Longer plans are not learnt from: their pairs would take gigabytes."""

_PAIR = ("rate", "seen", "neighbours", "linked", "fed", "feeds", "sources", "text", "new", "same")
_PLACE = ("bias", "next", "distance", "last", "first", "steps", "again", "lane")
_OTHERS = ("sources", "no_source", "targets", "no_target", "paths", "first")
_FIRST = len(_PAIR) + len(_PLACE)
_WEIGHTS = 2 * _FIRST + len(_OTHERS)

# Where both regressions start and what they are drawn to: a neighbour is a source, others are not.
_CHAIN = np.zeros(_WEIGHTS)
_CHAIN[len(_PAIR) + _PLACE.index("bias")] = -3.0
_CHAIN[len(_PAIR) + _PLACE.index("next")] = 6.0
_CHAIN[2 * _FIRST + _OTHERS.index("first")] = 1.0

_PENALTY = 1.0
_SMOOTHING = 1.0  # groups that a rate of a wider kind counts as
_MAX_NEWTON = 50
_MAX_KNOWN = 1_000_000  # pairs of tools whose scores are kept

# Columns of each stored tensor; 0: it has one dimension.
_STATE = {"pairs": 2, "pair_counts": 4, "tools": 0, "tool_counts": 5, "models": 0, "rates": 4}
_STATE["weights"] = _WEIGHTS


def plan_links(
    tools: Sequence[str], graph: ToolGraph, dataflow_namespaces: Collection[str]
) -> tuple[Link, ...]:
    """Dependencies of a predicted tool list, in the convention of each tool's source.

    Where a source shows which result went into which argument, a step depends on every earlier
    step whose tool has been seen to feed it (on gold plans of ComplexFuncBench this agrees better
    than only the nearest such step: F1 0.90 against 0.84). Elsewhere plans are chains, and a step
    depends on the one before it.

    Args:
        tools: Tool keys in order.
        graph: The graph whose dataflow counts are the evidence.
        dataflow_namespaces: Namespaces (the part of a key before its first "/") with dataflow.

    Returns:
        Links as (source position, target position), sorted by target, then source.

    Raises:
        GraphMismatch: A tool is not in the graph.
    """
    rows = _positions(tools, graph)
    flows = _dataflow_pairs(graph) if dataflow_namespaces else frozenset()
    links: list[Link] = []
    for target, key in enumerate(tools):
        if _namespace(key) in dataflow_namespaces:
            links += [(s, target) for s in range(target) if (rows[s], rows[target]) in flows]
        elif target > 0:
            links.append((target - 1, target))
    return tuple(links)


def chain(length: int) -> tuple[Link, ...]:
    """Each step depends on the one before it."""
    return tuple((step, step + 1) for step in range(length - 1))


def _dataflow_pairs(graph: ToolGraph) -> frozenset[tuple[int, int]]:
    """(source, target) of all edges with dataflow evidence; kept with the graph once computed."""
    pairs: frozenset[tuple[int, int]] | None = graph.__dict__.get("_dataflow_pairs")
    if pairs is None:
        edges = graph.edge_index[:, graph.edge_counts[:, 1] > 0].T.tolist()
        pairs = frozenset((source, target) for source, target in edges)
        object.__setattr__(graph, "_dataflow_pairs", pairs)
    return pairs


class _Counts(NamedTuple):
    """What plans with gold links show; a group counts as one plan.

    Attributes:
        pairs: (source, target) to how often they stood in this order, were linked, stood side by
            side, and were linked then.
        tools: Tool to how often it was not the first step, had sources, how many, how often it was
            not the last step, and had targets.
    """

    pairs: dict[_Pair, list[float]]
    tools: dict[int, list[float]]

    @classmethod
    def of(cls, rows: Sequence["_Row"]) -> "_Counts":
        """Counts of some rows."""
        counts = cls({}, {})
        for row in rows:
            fed, feeds = row.links.sum(axis=0), row.links.sum(axis=1)
            for j, target in enumerate(row.tools):
                is_target, is_source = float(j > 0), float(j < len(row.tools) - 1)
                had, gave = min(1.0, fed[j]), min(1.0, feeds[j])
                seen = [is_target, had, fed[j], is_source, gave]
                _add(counts.tools.setdefault(target, [0.0] * 5), row.share, seen)
                for i, source in enumerate(row.tools[:j]):
                    is_next, linked = float(i == j - 1), row.links[i, j]
                    seen = [1.0, linked, is_next, is_next * linked]
                    _add(counts.pairs.setdefault((source, target), [0.0] * 4), row.share, seen)
        return counts

    def pair(self, pair: _Pair, less: "_Counts | None") -> Sequence[float]:
        """Counts of a pair, without those of ``less``."""
        return _less(self.pairs.get(pair), less and less.pairs.get(pair), 4)

    def tool(self, tool: int, less: "_Counts | None") -> Sequence[float]:
        """Counts of a tool, without those of ``less``."""
        return _less(self.tools.get(tool), less and less.tools.get(tool), 5)


class _Row(NamedTuple):
    """The examples of one group with the same tools.

    Attributes:
        group: Their group.
        tools: Rows of the graph, one a step.
        links: At ``[i, j]`` the share of the examples that link step i to step j.
        share: How many of the group's examples these are.
    """

    group: str
    tools: tuple[int, ...]
    links: _Array
    share: float


class _Rates(NamedTuple):
    """Averages of one namespace, which rates of rarely seen pairs and tools are drawn to."""

    linked: float
    fed: float
    sources: float
    feeds: float

    @classmethod
    def of(cls, counts: _Counts, tools: Collection[int]) -> "_Rates":
        """Averages over targets among some tools."""
        seen = [pair for (_, target), pair in counts.pairs.items() if target in tools]
        pair = np.sum([[0.0] * 4, *seen], axis=0)
        seen = [tool for key, tool in counts.tools.items() if key in tools]
        tool = np.sum([[0.0] * 5, *seen], axis=0)
        return cls(
            linked=(pair[1] + 0.1) / (pair[0] + 0.2),
            fed=(tool[1] + 0.1) / (tool[0] + 0.2),
            sources=tool[2] / max(tool[0], 0.1),
            feeds=(tool[4] + 0.1) / (tool[3] + 0.2),
        )


class LinkScorer:
    r"""Which steps depend on which, learnt from plans with gold links.

    Each namespace has two logistic regressions. The first judges each pair of steps by itself: how
    often the two tools were linked when they stood in this order, how often the one had targets and
    the other sources, how alike their texts are, and where the steps stand in the plan. The second
    also sees what the first expects of the other pairs: how many other sources the target has
    (:math:`\sum_{k \ne i} p_{kj}`), how many other targets the source has, the logarithm of the
    chance of none, and the ways round, :math:`\sum_k p_{ik} p_{kj}`. So a step whose result
    something else has used already, or that has its sources, is linked less easily.

    In use a request meets no row of its own group. So a training row is judged by counts that leave
    its group out, and a group counts once, however many rows it has. The weights are drawn to a
    chain, each step on the one before, by :math:`|w - w_0|^2 / 2`: that is what few rows give, and
    a namespace without any row with gold links is simply a chain. The links of a plan are the set
    with the highest expected F1, so there is no threshold to choose.

    The namespace of the target decides. Make a scorer with :meth:`fit` or :meth:`from_state`.

    Args:
        graph: Only its tools are read.
        tool_x: Text vectors of its tools, of unit length.
        counts: What past plans show.
        models: The row of ``rates`` and ``weights`` that decides for each tool as a target; -1: a
            chain.
        rates: Averages, shape ``[num_namespaces, 4]``.
        weights: Shape ``[num_namespaces, num_weights]``.

    Raises:
        GraphMismatch: Something does not fit the graph.
    """

    def __init__(
        self,
        graph: ToolGraph,
        tool_x: Float[Tensor, "num_tools text_channels"],
        counts: _Counts,
        models: Sequence[int],
        rates: _Array,
        weights: _Array,
    ) -> None:
        if not len(tool_x) == len(models) == graph.num_tools:
            raise GraphMismatch(
                f"expected one text vector and one namespace for each of {graph.num_tools} tools, "
                f"got {len(tool_x)} and {len(models)}; give the graph that the links were learnt on"
            )
        self.graph = graph
        self._x = tool_x.detach().cpu().double().numpy()
        self._counts = counts
        self._models = list(models)
        self._rates = [_Rates(*row) for row in rates.tolist()]
        self._weights = weights
        self._known: list[dict[_Pair, tuple[float, float]]] = [{} for _ in weights]

    @classmethod
    def fit(
        cls,
        graph: ToolGraph,
        examples: Sequence[Example],
        tool_x: Float[Tensor, "num_tools text_channels"],
    ) -> "LinkScorer":
        """Learn from every example that has gold links and only tools of the graph.

        Args:
            graph: Only its tools are read.
            examples: Past plans of any split; leave out what the links are measured on.
            tool_x: Text vectors of the graph's tools, of unit length.

        Raises:
            GraphMismatch: The vectors do not fit the graph.
        """
        rows = _rows(graph, examples)
        spaces = [_namespace(key) for key in graph.keys]
        learnt = sorted({spaces[tool] for row in rows for tool in row.tools[1:]})
        place = {space: model for model, space in enumerate(learnt)}
        models = [place.get(space, -1) for space in spaces]
        counts = _Counts.of(rows)
        rates, weights = np.zeros((len(learnt), 4)), np.tile(_CHAIN, (len(learnt), 1))
        for model in range(len(learnt)):
            rates[model] = _Rates.of(counts, {t for t, m in enumerate(models) if m == model})
        scorer = cls(graph, tool_x, counts, models, rates, weights)
        by_group: defaultdict[str, list[_Row]] = defaultdict(list)
        for row in rows:
            by_group[row.group].append(row)
        own = {group: _Counts.of(members) for group, members in by_group.items()}
        for model in range(len(learnt)):
            weights[model] = scorer._learn(rows, own, model)
        return scorer

    def probabilities(self, tools: Sequence[str]) -> Float[Tensor, "steps steps"]:
        """At ``[i, j]`` the probability that step ``j`` depends on step ``i``; 0 unless ``i < j``.

        Raises:
            GraphMismatch: A tool is not in the graph.
        """
        return torch.from_numpy(self._probabilities(_positions(tools, self.graph)))

    def links(self, tools: Sequence[str]) -> tuple[Link, ...]:
        """The links of a plan as (source position, target position), sorted by target, then source.

        Raises:
            GraphMismatch: A tool is not in the graph.
        """
        return _most_expected(self._probabilities(_positions(tools, self.graph)))

    def state(self) -> dict[str, Tensor]:
        """All that was learnt, as tensors that safetensors can hold; tools are rows of the graph.

        Besides, :meth:`from_state` takes the graph and its text vectors.
        """
        pairs, tools = sorted(self._counts.pairs), sorted(self._counts.tools)
        pair_counts = [self._counts.pairs[pair] for pair in pairs]
        tool_counts = [self._counts.tools[tool] for tool in tools]
        return {
            "pairs": torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
            "pair_counts": torch.tensor(pair_counts, dtype=torch.float64).reshape(-1, 4),
            "tools": torch.tensor(tools, dtype=torch.int64),
            "tool_counts": torch.tensor(tool_counts, dtype=torch.float64).reshape(-1, 5),
            "models": torch.tensor(self._models, dtype=torch.int64),
            "rates": torch.tensor(self._rates, dtype=torch.float64).reshape(-1, 4),
            "weights": torch.from_numpy(self._weights.copy()),
        }

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Tensor],
        graph: ToolGraph,
        tool_x: Float[Tensor, "num_tools text_channels"],
    ) -> "LinkScorer":
        """The scorer that gave this :meth:`state`.

        Args:
            state: What :meth:`state` returned.
            graph: Its graph; keys may have changed since, the order of the tools not.
            tool_x: Text vectors of the graph's tools.

        Raises:
            GraphMismatch: A tensor is missing, has another shape, or does not fit the graph.
        """
        _check_state(state, graph)
        pairs = [(source, target) for source, target in state["pairs"].tolist()]
        counts = _Counts(
            dict(zip(pairs, state["pair_counts"].tolist(), strict=True)),
            dict(zip(state["tools"].tolist(), state["tool_counts"].tolist(), strict=True)),
        )
        rates, weights = state["rates"].numpy(), state["weights"].numpy().copy()
        return cls(graph, tool_x, counts, state["models"].tolist(), rates, weights)

    def on(
        self, graph: ToolGraph, tool_x: Float[Tensor, "num_tools text_channels"]
    ) -> "LinkScorer":
        """The same knowledge for another graph, by key; new tools are judged by their namespace.

        Raises:
            GraphMismatch: The vectors do not fit the graph.
        """
        to = [graph.index.get(key, -1) for key in self.graph.keys]
        pairs = {
            (to[a], to[b]): seen
            for (a, b), seen in self._counts.pairs.items()
            if to[a] >= 0 and to[b] >= 0
        }
        tools = {to[tool]: seen for tool, seen in self._counts.tools.items() if to[tool] >= 0}
        place = {
            _namespace(key): model
            for key, model in zip(self.graph.keys, self._models, strict=True)
            if model >= 0
        }
        models = [place.get(_namespace(key), -1) for key in graph.keys]
        rates = np.array(self._rates).reshape(-1, 4)
        return LinkScorer(graph, tool_x, _Counts(pairs, tools), models, rates, self._weights)

    def _pair(self, pair: _Pair, model: int, less: _Counts | None = None) -> list[float]:
        """The features ``_PAIR`` of two tools in this order."""
        source, target = pair
        average = self._rates[model]
        seen, linked, beside, linked_beside = self._counts.pair(pair, less)
        fed_of, fed, sources, _, _ = self._counts.tool(target, less)
        _, _, _, feeds_of, feeds = self._counts.tool(source, less)
        rate = _drawn(linked, seen, average.linked)
        return [
            _logit(rate) - _logit(average.linked),
            math.log1p(seen),
            _logit(_drawn(linked_beside, beside, rate)) - _logit(rate),
            float(linked > 0),
            _logit(_drawn(fed, fed_of, average.fed)) - _logit(average.fed),
            _logit(_drawn(feeds, feeds_of, average.feeds)) - _logit(average.feeds),
            math.log(_drawn(sources, fed_of, average.sources) + 0.05),
            float(self._x[source] @ self._x[target]),
            float(fed_of == 0),
            float(source == target),
        ]

    def _probabilities(self, tools: tuple[int, ...]) -> _Array:
        steps = len(tools)
        models = [self._models[tool] for tool in tools]
        probability = np.eye(steps, k=1)
        if steps < 2:
            return probability
        upper, place = _upper(steps), _place(tools)
        for model in sorted(set(models[1:]) - {-1}):
            known, w = self._known[model], self._weights[model]
            scores = np.zeros((2, steps, steps))
            pairs = [(a, b) for j, a in enumerate(tools) for b in tools[j + 1 :]]
            scores[:, *upper] = np.array(
                [known.get(pair) or self._know(pair, model) for pair in pairs]
            ).T
            at, after = len(_PAIR), _FIRST + len(_PAIR)
            first = scores[0] + place @ w[at:_FIRST]
            second = scores[1] + place @ w[after : 2 * _FIRST]
            second += _others(first) @ w[2 * _FIRST :]
            theirs = [j for j in range(steps) if models[j] == model]
            probability[:, theirs] = np.triu(_sigmoid(second), 1)[:, theirs]
        return probability

    def _know(self, pair: _Pair, model: int) -> tuple[float, float]:
        """What the two regressions think of two tools, wherever they stand; kept."""
        known, w = self._known[model], self._weights[model]
        if len(known) >= _MAX_KNOWN:
            known.clear()
        features = np.array(self._pair(pair, model))
        first = float(features @ w[: len(_PAIR)])
        known[pair] = first, float(features @ w[_FIRST : _FIRST + len(_PAIR)])
        return known[pair]

    def _learn(self, rows: Sequence[_Row], own: Mapping[str, _Counts], model: int) -> _Array:
        """Weights of one namespace, out of the pairs whose target it decides."""
        rows = [row for row in rows if any(self._models[t] == model for t in row.tools[1:])]
        masks = [self._decided(row.tools, model) for row in rows]
        x = [self._features(row.tools, own[row.group], model) for row in rows]
        linked = np.concatenate([row.links[mask] for row, mask in zip(rows, masks, strict=True)])
        # Between a plan counting once and each of its pairs counting once.
        importance = np.concatenate(
            [
                np.full(mask.sum(), row.share / math.sqrt(mask.sum()))
                for row, mask in zip(rows, masks, strict=True)
            ]
        )
        alone = np.concatenate([one[mask] for one, mask in zip(x, masks, strict=True)])
        first = _regression(alone, linked, importance, _CHAIN[:_FIRST])
        others = [_others(one @ first)[mask] for one, mask in zip(x, masks, strict=True)]
        both = np.concatenate([alone, np.concatenate(others)], axis=1)
        second = _regression(both, linked, importance, _CHAIN[_FIRST:])
        return np.concatenate([first, second])

    def _decided(self, tools: Sequence[int], model: int) -> npt.NDArray[np.bool_]:
        """Pairs of steps, earlier one first, whose target a model decides for."""
        theirs = np.array([self._models[tool] == model for tool in tools])
        later = np.arange(len(tools))
        decided: npt.NDArray[np.bool_] = (later[:, None] < later) & theirs
        return decided

    def _features(self, tools: tuple[int, ...], less: _Counts, model: int) -> _Array:
        """The features ``_PAIR`` and ``_PLACE`` of all pairs of steps, earlier one first."""
        pairs = _pairs(tools)
        known = {pair: self._pair(pair, model, less) for pair in set(pairs)}
        features = np.zeros((len(tools), len(tools), _FIRST))
        features[*_upper(len(tools)), : len(_PAIR)] = [known[pair] for pair in pairs]
        features[:, :, len(_PAIR) :] = _place(tools)
        return features


def _namespace(key: str) -> str:
    return key.split("/", 1)[0]


def _positions(tools: Sequence[str], graph: ToolGraph) -> tuple[int, ...]:
    """Rows of the tools in the graph."""
    unknown = [key for key in tools if key not in graph.index]
    if unknown:
        raise GraphMismatch(
            f"expected tools of graph {graph.version}, got {unknown[0]!r}; plan with a graph that "
            "holds it"
        )
    return tuple(graph.index[key] for key in tools)


def _rows(graph: ToolGraph, examples: Sequence[Example]) -> list[_Row]:
    """What can be learnt from, sorted, equal plans of one group as one row."""
    links: defaultdict[tuple[str, tuple[int, ...]], list[tuple[Link, ...]]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    for example in examples:
        if not example.has_links or not 2 <= len(example.tools) <= MAX_STEPS:
            continue
        tools = tuple(graph.index.get(key, -1) for key in example.tools)
        if -1 not in tools:
            group = example.group or f"row {example.id}"
            links[group, tools].append(example.links)
            sizes[group] += 1
    rows = []
    for (group, tools), stated in sorted(links.items()):
        share = np.zeros((len(tools), len(tools)))
        for one in stated:
            for source, target in set(one):
                share[source, target] += 1 / len(stated)
        rows.append(_Row(group, tools, np.triu(share, 1), len(stated) / sizes[group]))
    return rows


def _add(total: list[float], share: float, seen: Sequence[float]) -> None:
    for k, value in enumerate(seen):
        total[k] += share * value


def _less(
    total: Sequence[float] | None, own: Sequence[float] | None, width: int
) -> Sequence[float]:
    """Counts without some of them; what is left of rounding is nothing."""
    if total is None:
        return [0.0] * width
    if own is None:
        return total
    left = [a - b for a, b in zip(total, own, strict=True)]
    return [value if value > 1e-9 else 0.0 for value in left]


def _drawn(hits: float, of: float, average: float) -> float:
    """A rate as if ``_SMOOTHING`` more had been seen at the average."""
    return (hits + _SMOOTHING * average) / (of + _SMOOTHING)


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _sigmoid(x: _Array) -> _Array:
    half: _Array = 0.5 + 0.5 * np.tanh(0.5 * x)
    return half


@lru_cache(maxsize=MAX_STEPS)
def _upper(steps: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions of all pairs of steps, in the order of :func:`_pairs`."""
    sources, targets = np.triu_indices(steps, 1)
    return sources, targets


def _pairs(tools: Sequence[int]) -> list[_Pair]:
    """All pairs of steps by tool, earlier one first."""
    return [(a, b) for i, a in enumerate(tools) for b in tools[i + 1 :]]


@lru_cache(maxsize=64)
def _plain_place(steps: int) -> _Array:
    """The features ``_PLACE`` of a plan without repeated tools."""
    i, j = np.indices((steps, steps))
    none, distance = np.zeros((steps, steps)), np.maximum(j - i, 1)
    length = np.full((steps, steps), math.log(steps))
    parts = [none + 1, distance == 1, np.log(distance), j == steps - 1, i == 0, length, none, none]
    return np.stack(parts, axis=-1).astype(np.float64)


def _place(tools: Sequence[int]) -> _Array:
    """The features ``_PLACE``, shape ``[steps, steps, features]``.

    ``again``: the source's tool stands again before the target. ``lane``: the source is not the
    same repetition of its tool as the target is of its own.
    """
    place = _plain_place(len(tools))
    if len(set(tools)) == len(tools):
        return place
    place = place.copy()
    repetition = [tools[:k].count(tool) for k, tool in enumerate(tools)]
    for j in range(len(tools)):
        for i in range(j):
            place[i, j, -2] = tools[i] in tools[i + 1 : j]
            place[i, j, -1] = repetition[i] != repetition[j]
    return place


def _others(first: _Array) -> _Array:
    """The features ``_OTHERS`` out of the first regression, shape ``[steps, steps, features]``."""
    p = np.triu(_sigmoid(first), 1)
    none = np.log1p(-np.minimum(p, 0.999))
    return np.stack(
        [
            p.sum(axis=0) - p,
            none.sum(axis=0) - none,
            p.sum(axis=1, keepdims=True) - p,
            none.sum(axis=1, keepdims=True) - none,
            p @ p,
            first,
        ],
        axis=-1,
    )


def _regression(x: _Array, y: _Array, importance: _Array, start: _Array) -> _Array:
    """Weights of a logistic regression drawn to ``start``, by Newton's method with halved steps.

    Args:
        x: Features, shape ``[rows, features]``.
        y: Share of positives, shape ``[rows]``.
        importance: Of each row, shape ``[rows]``.
        start: Shape ``[features]``.
    """

    def loss(w: _Array) -> float:
        z = x @ w
        fit = importance @ (np.logaddexp(0, z) - y * z)
        return float(fit + 0.5 * _PENALTY * ((w - start) ** 2).sum())

    w, now = start, loss(start)
    for _ in range(_MAX_NEWTON):
        p = _sigmoid(x @ w)
        slope = x.T @ (importance * (p - y)) + _PENALTY * (w - start)
        bend = (x * (importance * p * (1 - p))[:, None]).T @ x + _PENALTY * np.eye(len(w))
        step = np.linalg.solve(bend, slope)
        after = loss(w - step)
        while after > now and np.abs(step).max() > 1e-9:
            step /= 2
            after = loss(w - step)
        if now - after <= 1e-10 * now:
            break
        w, now = w - step, after
    return w


def _most_expected(probability: _Array) -> tuple[Link, ...]:
    """The links with the highest expected F1; none where that is likelier to be all right.

    With ``k`` of the likeliest links, expected F1 is taken as twice their probabilities' sum over
    ``k`` plus the sum of all.
    """
    upper = _upper(len(probability))
    p = probability[upper]
    if not len(p):
        return ()
    order = np.argsort(-p, kind="stable")
    found = np.cumsum(p[order])
    expected = 2 * found / (np.arange(1, len(p) + 1) + found[-1])
    best = int(expected.argmax())
    if expected[best] <= np.prod(1 - p):
        return ()
    chosen = order[: best + 1]
    links = zip(upper[0][chosen].tolist(), upper[1][chosen].tolist(), strict=True)
    return tuple(sorted(links, key=lambda link: (link[1], link[0])))


def _check_state(state: Mapping[str, Tensor], graph: ToolGraph) -> None:
    """Raise GraphMismatch unless a stored state is whole and fits its graph."""
    for name, width in _STATE.items():
        part = state.get(name)
        shape = "nothing" if part is None else list(part.shape)
        if part is None or part.ndim != (2 if width else 1) or (width and part.size(1) != width):
            expected = f"[*, {width}]" if width else "[*]"
            raise GraphMismatch(
                f"expected links of shape {expected} under {name!r}, got {shape}; train and store "
                "the planner again"
            )
    for name, low, bound in (
        ("pairs", 0, graph.num_tools),
        ("tools", 0, graph.num_tools),
        ("models", -1, len(state["weights"])),
    ):
        if state[name].numel() and not low <= state[name].min() <= state[name].max() < bound:
            raise GraphMismatch(
                f"expected links with {name!r} from {low} to {bound - 1}, got "
                f"{int(state[name].min())} to {int(state[name].max())}; give the graph that they "
                "were learnt on"
            )
