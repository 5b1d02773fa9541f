"""The type graph: tools joined by the resources that they take and return.

ControlLLM's tool graph (arXiv 2310.17796, section 3.2.1, eq. 2-3): an edge tool -> resource where a
tool returns a resource, resource -> tool where it takes one. Two kinds of match are told apart
here, and names count where a catalogue has no types of its own. The graph stays bipartite, so it is
linear in the catalogue; ``models/type_edges.py`` looks at pairs of tools.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from models.errors import GraphMismatch
from models.fields import Field, endings, read_returns, read_takes, words_of

FEW_TOOLS = 4
"""A name tells who feeds whom while so many tools at most return it, or take it."""

FEW_NAMES = 3
"""A type that fields of more names bear, in one vocabulary, says no more than ``string``."""

LINKS = {
    "tool": pl.String,
    "resource": pl.String,
    "role": pl.String,
    "parameter": pl.String,
    "is_required": pl.Boolean,
    "match": pl.String,
    "origin": pl.String,
}
"""Columns of :attr:`ResourceGraph.links`."""

_STRICT = ("type", "field")
_BY_TYPE = ("type", "element", "supertype")
_NAMELESS = Field("", (), "value")


class _Tool(NamedTuple):
    """A tool's contract, and the vocabulary that its names belong to."""

    namespace: str
    scope: str
    name: str
    takes: tuple[Field, ...]
    returns: tuple[Field, ...]
    has_returns: bool


_Draft = tuple[str, str, str, str, str, str, bool | None]
_DRAFT = {
    "tool": pl.String,
    "role": pl.String,
    "parameter": pl.String,
    "resource": pl.String,
    "origin": pl.String,
    "exact": pl.String,
    "is_required": pl.Boolean,
}


class _Link(NamedTuple):
    """A link before the choice of resources; ``exact`` is the resource of the exact name."""

    resource: str
    origin: str
    exact: str


Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ResourceGraph:
    """Resources and who takes and returns them.

    Resources are named after their vocabulary: ``shop/image`` is a type, ``shop/image[]`` an array
    of it, ``shop/geoId:value`` a field with its kind of JSON value, ``shop/orders.Id`` a type of
    the tools ``orders.*``, ``shop/~geo id`` a name in any spelling. ``shop/sky id -> …`` is
    returned under this name and taken as part of one, ``shop/… -> sky id`` the other way round.

    Attributes:
        tools: Keys of the active tools, sorted.
        resources: Names, sorted.
        links: One row per (tool, resource, role, parameter, origin), sorted; ``role`` is "takes" or
            "returns", ``parameter`` the name of the parameter or part of the result ("" where only
            a type is known), ``is_required`` null where not stated, ``match`` "strict" or
            "partial", and ``origin`` what it was derived from: "type", "field" (strict), "element"
            of an array, "supertype", "spelling", "ending", "context" (the tool's name), "tool" (its
            name where it states no result).
    """

    tools: tuple[str, ...]
    resources: tuple[str, ...]
    links: pl.DataFrame
    index: dict[str, int] = field(init=False, repr=False, compare=False)
    resource_index: dict[str, int] = field(init=False, repr=False, compare=False)
    _lists: dict[tuple[str, str, bool], tuple[Ints, Ints]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Derive the index lists: neighbours of one node are a slice."""
        object.__setattr__(self, "index", {key: i for i, key in enumerate(self.tools)})
        names = {name: i for i, name in enumerate(self.resources)}
        object.__setattr__(self, "resource_index", names)
        object.__setattr__(self, "_lists", {})
        for role in ("takes", "returns"):
            for strict in (False, True):
                chosen = pl.col("role") == role
                if strict:
                    chosen &= pl.col("match") == "strict"
                pairs = self.links.filter(chosen).select("tool", "resource").unique()
                tools = _positions(pairs["tool"], self.tools)
                resources = _positions(pairs["resource"], self.resources)
                self._lists["tool", role, strict] = _slices(tools, resources, len(self.tools))
                self._lists["resource", role, strict] = _slices(
                    resources, tools, len(self.resources)
                )

    def slices(self, by: str, role: str, *, strict_only: bool = False) -> tuple[Ints, Ints]:
        """Neighbours of all nodes, compressed: those of node ``i`` are ``b[a[i]:a[i + 1]]``.

        Args:
            by: "tool" (gives resources) or "resource" (gives tools).
            role: "takes" or "returns".
            strict_only: Leave partial links out.
        """
        return self._lists[by, role, strict_only]

    def position(self, tool: str) -> int:
        """The tool's place in ``tools``.

        Raises:
            GraphMismatch: It is no active tool of this graph.
        """
        if tool not in self.index:
            raise GraphMismatch(
                f"expected an active tool of the type graph, got {tool!r}; it may be deprecated, "
                "or not in this version."
            )
        return self.index[tool]

    def successors(self, tool: str, *, strict_only: bool = False) -> list[str]:
        """Tools that take what this one returns, sorted, itself left out.

        Raises:
            GraphMismatch: It is no active tool of this graph.
        """
        return self._neighbours(tool, "returns", "takes", strict_only)

    def predecessors(self, tool: str, *, strict_only: bool = False) -> list[str]:
        """Tools that return what this one takes, sorted, itself left out.

        Raises:
            GraphMismatch: It is no active tool of this graph.
        """
        return self._neighbours(tool, "takes", "returns", strict_only)

    def _neighbours(self, tool: str, role: str, other: str, strict_only: bool) -> list[str]:
        at = self.position(tool)
        starts, resources = self.slices("tool", role, strict_only=strict_only)
        ends, tools = self.slices("resource", other, strict_only=strict_only)
        found = {
            int(i)
            for resource in resources[starts[at] : starts[at + 1]]
            for i in tools[ends[resource] : ends[resource + 1]]
        }
        return [self.tools[i] for i in sorted(found - {at})]


def _positions(column: pl.Series, names: tuple[str, ...]) -> Ints:
    """Places of strings in a sorted tuple."""
    order = pl.DataFrame({"name": pl.Series(names, dtype=pl.String)}).with_row_index("at")
    at = column.to_frame("name").join(order, on="name", how="left", maintain_order="left")["at"]
    return at.cast(pl.Int64).to_numpy()


def _slices(rows: Ints, columns: Ints, num_rows: int) -> tuple[Ints, Ints]:
    """Compressed rows: starts, shape ``[num_rows + 1]``, and columns, sorted within each row."""
    order = np.lexsort((columns, rows))
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=starts[1:])
    return starts, columns[order]


def resource_graph(nodes: pl.DataFrame) -> ResourceGraph:
    """The type graph of a version's nodes; the order of rows does not matter.

    Strict links join by the same type of the catalogue's own, cut behind its last dot as ControlLLM
    does, or by the same field name and kind of JSON value. Partial links join an array and its
    element, a subtype's result and its supertype, names in other spellings, a name and a longer one
    that ends in its two or more words (``skyId``, ``originSkyId``), a bare name with a word of its
    tool's (``id`` of ``find_hotel``, ``hotel_id``), and what a tool that states no result is called
    (``get_country_code``).

    What carries nothing is left out. JSON types carry nothing alone, nor does an own type that more
    than three field names bear. What a tool returns under the name under which it takes it is an
    echo. A name joins tools while at most four return it or at most four take it. Nothing joins two
    namespaces. Tools of other dotted prefixes (the services of AWS operations) do not share a
    vocabulary: between them, and by a part of a name, a name joins while one tool returns or takes
    it, and partially.

    Args:
        nodes: namespace, name, parameters, input_types, output_types (JSON texts), status. Texts
            that are no JSON lists count as empty. Deprecated tools are left out.
    """
    active = nodes.filter(pl.col("status") == "active")
    columns = ("namespace", "name", "parameters", "input_types", "output_types")
    tools = {f"{row[0]}/{row[1]}": _read(*row) for row in active.select(columns).iter_rows()}
    common = _common_types(tools.values())
    drafts: list[_Draft] = []
    for key, tool in tools.items():
        taken = [(f, link) for f in tool.takes for link in _links(tool, f, "takes", common)]
        echoes = {link.resource for _, link in taken if link.origin not in _BY_TYPE}
        returned = [(f, link) for f in tool.returns for link in _links(tool, f, "returns", common)]
        if not tool.has_returns:
            returned = [(_NAMELESS, link) for link in _links_of_name(tool)]
        drafts += [(key, "takes", f.name, *link, f.is_required) for f, link in taken]
        drafts += [
            (key, "returns", f.name, *link, None)
            for f, link in returned
            if link.resource not in echoes
        ]
    links = _choose(drafts)
    return ResourceGraph(tuple(sorted(tools)), tuple(links["resource"].unique().sort()), links)


def _read(namespace: str, name: str, parameters: str, inputs: str, outputs: str) -> _Tool:
    group, dot, _ = name.rpartition(".")
    takes, returns = read_takes(parameters, inputs), read_returns(outputs)
    taken = {(f.name, f.types) for f in takes if f.name}
    produced = tuple(f for f in returns if (f.name, f.types) not in taken)
    scope = f"{namespace}/{group}{dot}"
    return _Tool(namespace, scope, name, takes, produced, bool(returns))


def _short(name: str) -> str:
    """A type's name as ControlLLM's code cuts it: "image.mask" is "mask"."""
    return name.rpartition(".")[2]


def _common_types(tools: Iterable[_Tool]) -> set[str]:
    """Types that fields of many names bear, where no entry has the type alone."""
    names: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for tool in tools:
        for f in (*tool.takes, *tool.returns):
            for kind in f.types:
                names[tool.scope + _short(kind)].add(words_of(f.name))
    return {kind for kind, seen in names.items() if len(seen) > FEW_NAMES and () not in seen}


def _links(tool: _Tool, f: Field, role: str, common: set[str]) -> Iterator[_Link]:
    """All links of one field, the exact one first."""
    own = [name for name in f.types if tool.scope + _short(name) not in common]
    for name in own:
        exact = tool.scope + _short(name)
        if f.kind == "array":
            yield _Link(exact + "[]", "type", exact + "[]")
            yield _Link(exact, "element", exact)
        else:
            yield _Link(exact, "type", exact)
        if role == "returns":
            for above in name.split(".")[:-1]:
                yield _Link(tool.scope + above, "supertype", exact)
        yield from _links_of_words(tool, words_of(_short(name)), role, exact)
    if not own and f.name:
        exact = f"{tool.scope}{f.name}:{f.kind}"
        yield _Link(exact, "field", exact)
        yield from _links_of_words(tool, words_of(f.name), role, exact)


def _links_of_words(tool: _Tool, words: tuple[str, ...], role: str, exact: str) -> Iterator[_Link]:
    """Links by a name's words: all of them, and parts of the name; never part to part."""
    if not words:
        return
    whole = " ".join(words)
    yield _Link(f"{tool.scope}~{whole}", "spelling", exact)
    yield _Link(f"{tool.namespace}/{whole} -> …", "spelling", exact)
    yield _Link(f"{tool.namespace}/… -> {whole}", "spelling", exact)
    for ending in endings(words):
        if len(ending) > 1:  # one word of a longer name says too little
            yield _Link(_part(tool, " ".join(ending), role), "ending", exact)
    if len(words) == 1:
        for word in dict.fromkeys(words_of(tool.name)):
            if word != whole:
                yield _Link(_part(tool, f"{word} {whole}", role), "context", exact)


def _part(tool: _Tool, part: str, role: str) -> str:
    """The resource of a part of a name: it meets whole names on the other side."""
    side = f"{part} -> …" if role == "takes" else f"… -> {part}"
    return f"{tool.namespace}/{side}"


def _links_of_name(tool: _Tool) -> Iterator[_Link]:
    """Links by the words of a tool's own name."""
    words = words_of(tool.name)
    exact = f"{tool.scope}{tool.name}()"
    for part in (words, *endings(words)):
        if part:
            yield _Link(_part(tool, " ".join(part), "returns"), "tool", exact)


def _choose(drafts: list[_Draft]) -> pl.DataFrame:
    """The links whose resources carry something."""
    frame = pl.DataFrame(drafts, schema=_DRAFT, orient="row")
    takes, returns = pl.col("role") == "takes", pl.col("role") == "returns"
    num_takers = pl.col("tool").filter(takes).n_unique()
    num_returners = pl.col("tool").filter(returns).n_unique()
    few = pl.col("fewer")
    is_part = pl.col("resource").str.contains("…", literal=True)
    says_more = (few > 0) & (pl.col("num_tools") > 1) & (pl.col("num_exact") > 1)
    kept = (
        frame.group_by("resource")
        .agg(
            pl.min_horizontal(num_takers, num_returners).alias("fewer"),
            pl.col("tool").n_unique().alias("num_tools"),
            pl.col("exact").n_unique().alias("num_exact"),
            pl.col("origin").is_in(_BY_TYPE).any().alias("is_type"),
            (pl.col("origin") == "field").any().alias("is_field"),
            (pl.col("origin") == "type").any().alias("is_stated"),
        )
        .filter(
            pl.when("is_type")
            .then(pl.col("is_stated") | says_more)
            .when("is_field")
            .then(few <= FEW_TOOLS)
            .otherwise(says_more & (few <= pl.when(is_part).then(1).otherwise(FEW_TOOLS)))
        )
        .select("resource")
    )
    is_strict = pl.col("origin").is_in(_STRICT)
    return (
        frame.join(kept, on="resource", how="semi")
        .with_columns(
            pl.when(is_strict).then(pl.lit("strict")).otherwise(pl.lit("partial")).alias("match")
        )
        .select(list(LINKS))
        .unique()
        .sort(list(LINKS))
    )
