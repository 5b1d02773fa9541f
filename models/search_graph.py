"""The tool graph as a search walks it: what each tool needs and gives, by number.

ControlLLM's resource nodes (arXiv 2310.17796, 3.2.1), in the generalised form of
``models/resources.py``: where a catalogue has types of its own they are the nodes, elsewhere the
names of parameters and of the parts of results.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from models.fields import Field, read_returns, read_takes, words_of
from models.resources import ResourceGraph, resource_graph
from models.subtasks import short_type
from models.toolset import Resource, Signature


class Need(NamedTuple):
    """What a resource has to fill: any of the nodes will do.

    ``skip`` is what it costs to leave it open: infinite for a type of the catalogue's own, less
    where the words of a request may fill it, or where a dependency is only likely.
    """

    parameter: str
    nodes: frozenset[int]
    skip: float = math.inf


class Yield(NamedTuple):
    """A part of a tool's result, and what it may fill."""

    field: str
    nodes: frozenset[int]


@dataclass(frozen=True)
class SearchGraph:
    """Tools by number, and the resource nodes between them.

    Attributes:
        keys: Tool keys, sorted.
        needs: Of each tool, the parameters that only a resource fills.
        gives: Of each tool, the parts of its result.
        domains: Of each tool, "" where it has none.
        nodes: Names of the resource nodes.
        signatures: Of each key, what it takes and returns.
        pairs: (giver, taker) to what a likely dependency costs when it is followed.
        givers: Of each node, the tools that give it, sorted.
        takers: Of each node, the tools that need it, sorted.
    """

    keys: tuple[str, ...]
    needs: tuple[tuple[Need, ...], ...]
    gives: tuple[tuple[Yield, ...], ...]
    domains: tuple[str, ...]
    nodes: tuple[str, ...]
    signatures: Mapping[str, Signature]
    pairs: Mapping[tuple[int, int], float] = field(default_factory=dict)
    givers: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    takers: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    index: dict[str, int] = field(init=False, repr=False)
    types: dict[str, frozenset[int]] = field(init=False, repr=False)
    _done: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Derive who gives and who takes each node."""
        givers: list[set[int]] = [set() for _ in self.nodes]
        takers: list[set[int]] = [set() for _ in self.nodes]
        for tool, (needs, gives) in enumerate(zip(self.needs, self.gives, strict=True)):
            for need in needs:
                for node in need.nodes:
                    takers[node].add(tool)
            for part in gives:
                for node in part.nodes:
                    givers[node].add(tool)
        number = {name: node for node, name in enumerate(self.nodes)}
        object.__setattr__(self, "_done", tuple(number[_done(key)] for key in self.keys))
        types: dict[str, set[int]] = defaultdict(set)
        for node, name in enumerate(self.nodes):
            if not name.endswith("()"):
                types[name.rpartition("/")[2].rpartition(".")[2].casefold()].add(node)
        object.__setattr__(self, "givers", tuple(tuple(sorted(tools)) for tools in givers))
        object.__setattr__(self, "takers", tuple(tuple(sorted(tools)) for tools in takers))
        object.__setattr__(self, "index", {key: i for i, key in enumerate(self.keys)})
        object.__setattr__(self, "types", {name: frozenset(at) for name, at in types.items()})

    @property
    def is_searchable(self) -> bool:
        """Whether any tool gives what another one needs: without that nothing can be searched."""
        return bool(self.pairs) or any(
            set(givers) - {taker}
            for givers, takers in zip(self.givers, self.takers, strict=True)
            for taker in takers[:2]
        )

    def of_type(self, name: str) -> frozenset[int]:
        """The nodes of a type, whatever its namespace; none where no tool knows it."""
        return self.types.get(short_type(name), frozenset())

    def of_resources(self, resources: Iterable[Resource]) -> list[frozenset[int]]:
        """What each resource may fill."""
        return [self.of_type(resource.type) for resource in resources]

    def done(self, tools: Iterable[int]) -> frozenset[int]:
        """The nodes that say that one of these tools has run."""
        return frozenset(self._done[tool] for tool in tools)

    def given(self, tool: int) -> frozenset[int]:
        """Every node that a tool gives, whatever the part."""
        return frozenset().union(*(part.nodes for part in self.gives[tool]))


def search_graph(
    nodes: pl.DataFrame,
    *,
    domains: Mapping[str, str] | None = None,
    edges: Mapping[tuple[str, str], float] | None = None,
    strict_only: bool = False,
    resources: ResourceGraph | None = None,
) -> SearchGraph:
    """The search graph of a version's nodes.

    Args:
        nodes: As :func:`models.resources.resource_graph` takes them.
        domains: Tool key to domain, where the catalogue has domains.
        edges: Pairs of keys that the learnt or declared graph joins, with the probability that
            the second tool needs the first: what it costs to follow one is ``-log p``, to leave
            it ``-log(1 - p)``.
        strict_only: Leave partial matches (supertypes, parts of names) out.
        resources: The resource graph, where it is there already.
    """
    resources = resources or resource_graph(nodes)
    links: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    rows = resources.links
    if strict_only:
        rows = rows.filter(pl.col("match") == "strict")
    for tool, resource, role, parameter in rows.select(
        "tool", "resource", "role", "parameter"
    ).iter_rows():
        links[tool, role, parameter].add(resource)
    active = nodes.filter(pl.col("status") == "active").sort("namespace", "name")
    signatures: dict[str, Signature] = {}
    needs: dict[str, list[tuple[str, set[str], float]]] = {}
    gives: dict[str, list[tuple[str, set[str]]]] = {}
    for namespace, name, parameters, inputs, outputs in active.select(
        "namespace", "name", "parameters", "input_types", "output_types"
    ).iter_rows():
        key = f"{namespace}/{name}"
        takes, returns = read_takes(parameters, inputs), read_returns(outputs)
        signatures[key] = Signature(takes, returns)
        needs[key] = [
            (f.name, own | links[key, "takes", f.name], math.inf if own else _skip_cost(f.name))
            for f in takes
            if f.is_required is not False
            for own in [_own(namespace, f)]
        ]
        gives[key] = [
            (f.name, _own(namespace, f) | links[key, "returns", f.name])
            for f in returns or (Field("", (), "value"),)
        ]
        gives[key].append(("", {_done(key)}))
    pairs: dict[tuple[str, str], float] = {}
    for (source, target), p in sorted((edges or {}).items()):
        if source in gives and target in needs and source != target:
            node, p = _done(source), min(max(p, 0.01), 0.99)
            needs[target].append(("", {node}, -math.log1p(-p)))
            pairs[source, target] = -math.log(p)
    keys = tuple(sorted(signatures))
    place = {key: i for i, key in enumerate(keys)}
    names = {n for each in needs.values() for _, at, _ in each for n in at}
    names |= {n for each in gives.values() for _, at in each for n in at}
    number = {name: i for i, name in enumerate(sorted(names))}
    return SearchGraph(
        keys=keys,
        needs=tuple(
            tuple(
                Need(p, frozenset(number[n] for n in at), skip) for p, at, skip in needs[key] if at
            )
            for key in keys
        ),
        gives=tuple(
            tuple(Yield(p, frozenset(number[n] for n in at)) for p, at in gives[key] if at)
            for key in keys
        ),
        domains=tuple((domains or {}).get(key, "") for key in keys),
        nodes=tuple(number),
        signatures=signatures,
        pairs={(place[s], place[t]): cost for (s, t), cost in pairs.items()},
    )


_WORDS_COST = 0.3
"""What it costs that the words of a request fill a parameter which another tool could fill too."""

_REFERENCE_COST = 1.5
"""The same of a reference, which people hardly ever type."""

_REFERENCES = frozenset({"id", "key", "token", "uuid", "hash", "slug", "ref", "handle", "cursor"})


def _skip_cost(name: str) -> float:
    words = words_of(name)
    return _REFERENCE_COST if words and words[-1] in _REFERENCES else _WORDS_COST


def _done(key: str) -> str:
    """The node that says that a tool has run."""
    return f"{key}()"


def _own(namespace: str, f: Field) -> set[str]:
    """Nodes of the catalogue's own types: they join whatever the fields are called."""
    return {f"{namespace}/{name.rpartition('.')[2]}" for name in f.types}
