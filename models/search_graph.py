"""The tool graph as a search walks it: what each tool needs and gives, by number.

ControlLLM's resource nodes (arXiv 2310.17796, 3.2.1), in the generalised form of
``models/resources.py``: where a catalogue has types of its own they are the nodes, elsewhere the
names of parameters and of the parts of results.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from models.fields import Field, read_returns, read_takes, words_of
from models.links import chain
from models.resources import resource_graph
from models.subtasks import short_type
from models.toolset import Resource, Signature
from models.types import Example


class Need(NamedTuple):
    """What a resource has to fill: any of the nodes will do.

    ``skip`` is what it costs to leave it open: infinite for a type of the catalogue's own, less
    where the words of a request may fill it, or where a dependency is only likely (``is_edge``).
    """

    parameter: str
    nodes: frozenset[int]
    skip: float = math.inf
    is_edge: bool = False


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
        givers: Of each node, the tools that give it, sorted.
        takers: Of each node, the tools that need it, sorted.
    """

    keys: tuple[str, ...]
    needs: tuple[tuple[Need, ...], ...]
    gives: tuple[tuple[Yield, ...], ...]
    domains: tuple[str, ...]
    nodes: tuple[str, ...]
    signatures: Mapping[str, Signature]
    givers: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    takers: tuple[tuple[int, ...], ...] = field(init=False, repr=False)
    index: dict[str, int] = field(init=False, repr=False)
    types: dict[str, frozenset[int]] = field(init=False, repr=False)
    _done: tuple[int, ...] = field(init=False, repr=False)
    _files: frozenset[int] = field(init=False, repr=False)
    _shares: tuple[float, ...] = field(init=False, repr=False)
    _given: tuple[frozenset[int], ...] = field(init=False, repr=False)
    _fees: tuple[tuple[tuple[int, float], ...], ...] = field(init=False, repr=False)

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
        typed = {
            name
            for key, signature in self.signatures.items()
            for f in (*signature.takes, *signature.returns)
            for name in _own(key.split("/", 1)[0], f)
        }
        shares = (
            1.0 if name in typed else 0.0 if name.endswith("()") else NAME_SHARE
            for name in self.nodes
        )
        object.__setattr__(self, "_shares", tuple(shares))
        given = tuple(frozenset().union(*(part.nodes for part in each)) for each in self.gives)
        object.__setattr__(self, "_given", given)
        fees = (tuple((node, self._shares[node]) for node in sorted(nodes)) for nodes in given)
        object.__setattr__(self, "_fees", tuple(fees))
        files = (node for name, node in number.items() if name.endswith(_ANY_FILE))
        object.__setattr__(self, "_files", frozenset(files))
        types: dict[str, set[int]] = defaultdict(set)
        for node, name in enumerate(self.nodes):
            if not name.endswith(("()", _ANY_FILE)):
                types[name.rpartition("/")[2].rpartition(".")[2].casefold()].add(node)
        object.__setattr__(self, "givers", tuple(tuple(sorted(tools)) for tools in givers))
        object.__setattr__(self, "takers", tuple(tuple(sorted(tools)) for tools in takers))
        object.__setattr__(self, "index", {key: i for i, key in enumerate(self.keys)})
        object.__setattr__(self, "types", {name: frozenset(at) for name, at in types.items()})

    @property
    def own_types(self) -> set[str]:
        """The catalogue's own types, as tools write them."""
        return {
            kind
            for signature in self.signatures.values()
            for f in (*signature.takes, *signature.returns)
            for kind in f.types
        }

    def of_type(self, name: str) -> frozenset[int]:
        """The nodes of a type, whatever its namespace; none where no tool knows it."""
        return self.types.get(short_type(name), frozenset())

    def of_resources(self, resources: Iterable[Resource]) -> list[frozenset[int]]:
        """What each resource may fill: nodes of its type; a file any plain file parameter too."""
        return [
            self.of_type(resource.type) | (self._files if is_file(resource.value) else frozenset())
            for resource in resources
        ]

    def share(self, nodes: Iterable[int]) -> float:
        """The largest share of its cost that a tool pays for giving one of the nodes."""
        return max((self._shares[node] for node in nodes), default=0.0)

    def fees(self, tool: int) -> tuple[tuple[int, float], ...]:
        """The nodes that a tool gives, each with the share of its cost that it pays for that."""
        return self._fees[tool]

    def done(self, tools: Iterable[int]) -> frozenset[int]:
        """The nodes that say that one of these tools has run."""
        return frozenset(self._done[tool] for tool in tools)

    def given(self, tool: int) -> frozenset[int]:
        """Every node that a tool gives, whatever the part."""
        return self._given[tool]


def likely_edges(
    examples: Iterable[Example],
    declared: Iterable[tuple[str, str]] = (),
    *,
    least: float = 0.5,
    declared_probability: float = 0.6,
) -> dict[tuple[str, str], float]:
    """How likely a tool needs another one before it, from past plans and declared edges.

    The share of the plans with the tool in which the other one feeds it: by gold or dataflow links
    where the plan has them, else the one before it; of declared pairs any plan with both in order
    counts. A declared pair starts from ``declared_probability``, drawn to the share by what was
    seen (two plans' worth).

    Args:
        examples: Past plans.
        declared: Pairs of keys that the catalogue declares.
        least: Pairs below are left out.
        declared_probability: Of a declared pair that no plan speaks for or against.
    """
    told = set(declared)
    plans: Counter[str] = Counter()
    fed: Counter[tuple[str, str]] = Counter()
    for example in examples:
        plans.update(set(example.tools))
        steps = example.links if example.has_links else chain(len(example.tools))
        pairs = {(example.tools[s], example.tools[t]) for s, t in steps}
        for at, target in enumerate(example.tools):
            pairs |= {(s, target) for s in example.tools[:at] if (s, target) in told}
        fed.update(pair for pair in pairs if pair[0] != pair[1])
    found = {}
    for pair in sorted({*fed, *told}):
        prior = 2 * declared_probability if pair in told else 0.0
        p = (fed[pair] + prior) / (plans[pair[1]] + 2)
        if p >= least and pair[0] != pair[1]:
            found[pair] = p
    return found


def read_signatures(nodes: pl.DataFrame) -> dict[str, Signature]:
    """What each active tool of a version takes and returns.

    Args:
        nodes: namespace, name, parameters, input_types, output_types (JSON texts), status.
    """
    active = nodes.filter(pl.col("status") == "active").sort("namespace", "name")
    columns = ("namespace", "name", "parameters", "input_types", "output_types")
    return {
        f"{namespace}/{name}": Signature(read_takes(parameters, inputs), read_returns(outputs))
        for namespace, name, parameters, inputs, outputs in active.select(columns).iter_rows()
    }


def search_graph(
    nodes: pl.DataFrame,
    *,
    domains: Mapping[str, str] | None = None,
    edges: Mapping[tuple[str, str], float] | None = None,
    strict_only: bool = False,
) -> SearchGraph:
    """The search graph of a version's nodes.

    Args:
        nodes: As :func:`models.resources.resource_graph` takes them.
        domains: Tool key to domain, where the catalogue has domains.
        edges: Pairs of keys with the probability, above 0.5, that the second tool needs the first:
            to follow such an edge costs nothing, to leave it out the log-odds.
        strict_only: Leave partial matches (supertypes, parts of names) out.
    """
    links: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    rows = resource_graph(nodes).links
    if strict_only:
        rows = rows.filter(pl.col("match") == "strict")
    for tool, resource, role, parameter in rows.select(
        "tool", "resource", "role", "parameter"
    ).iter_rows():
        links[tool, role, parameter].add(resource)
    signatures = read_signatures(nodes)
    needs: dict[str, list[tuple[str, set[str], float]]] = {}
    gives: dict[str, list[tuple[str, set[str]]]] = {}
    for key, signature in signatures.items():
        namespace = key.split("/", 1)[0]
        needs[key] = [
            (f.name, own | links[key, "takes", f.name], math.inf if own else _skip_cost(f.name))
            for f in signature.takes
            if f.is_required is not False
            for own in [_own(namespace, f)]
        ]
        gives[key] = [
            (f.name, _own(namespace, f) | links[key, "returns", f.name])
            for f in signature.returns or (Field("", (), "value"),)
        ]
        gives[key].append(("", {_done(key)}))
    for (source, target), p in sorted((edges or {}).items()):
        if source in gives and target in needs and source != target:
            odds = min(p, 0.99) / (1 - min(p, 0.99))
            needs[target].append((EDGE, {_done(source)}, math.log(max(odds, 1.0))))
    keys = tuple(sorted(signatures))
    names = {n for each in needs.values() for _, at, _ in each for n in at}
    names |= {n for each in gives.values() for _, at in each for n in at}
    number = {name: i for i, name in enumerate(sorted(names))}
    return SearchGraph(
        keys=keys,
        needs=tuple(
            tuple(
                Need(p, frozenset(number[n] for n in at), skip, p == EDGE)
                for p, at, skip in needs[key]
                if at
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
    )


EDGE = "<edge>"
"""Stands for the parameter where a likely edge says no more than that one tool needs another."""

NAME_SHARE = 0.25
"""Of its cost, what a tool pays that is there because a name of its result fills a parameter.

One that gives a type pays all, one that a likely edge asks for nothing: what a tool needs beside
the types of its catalogue says little on whether it suits.
"""

_REFERENCE_COST = 0.5
"""What it costs to hope that the request says a reference, which people hardly ever type."""

_REFERENCES = frozenset({"id", "key", "token", "uuid", "hash", "slug", "ref", "handle", "cursor"})


def _skip_cost(name: str) -> float:
    words = words_of(name)
    return _REFERENCE_COST if words and words[-1] in _REFERENCES else 0.0


def _done(key: str) -> str:
    """The node that says that a tool has run."""
    return f"{key}()"


_ANY_FILE = "/<file>"
_FILE_NAMES = frozenset({"file", "path", "filename", "filepath"})


def is_file(value: object) -> bool:
    """Whether a value looks like the name of a file."""
    return isinstance(value, str) and bool(re.fullmatch(r"[^\s\"'<>|]+\.[A-Za-z]\w{0,4}", value))


def takes_any_file(f: Field) -> bool:
    """Whether a parameter without a type of the catalogue's own is called a file."""
    words = words_of(f.name)
    return not f.types and bool(words) and words[-1] in _FILE_NAMES


def _own(namespace: str, f: Field) -> set[str]:
    """Nodes of the catalogue's own types: they join whatever the fields are called.

    A parameter without such a type that is called a file takes any file.
    """
    if takes_any_file(f):
        return {f"{namespace}{_ANY_FILE}"}
    return {f"{namespace}/{name.rpartition('.')[2]}" for name in f.types}
