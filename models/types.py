"""The records that planners, training and evaluation share.

Tools are named by key, ``namespace/name``, everywhere in this package; positions and links are
0-based indices into a plan's tool list.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Link = tuple[int, int]
"""A dependency inside one plan: (position of the source, position of the target)."""

Embedder = Callable[[Sequence[str]], Tensor]
"""Texts to unit vectors, float32 on the CPU, shape ``[num_texts, channels]``."""


@dataclass(frozen=True)
class ToolGraph:
    """The learning view of one graph version, tools in key order.

    Attributes:
        version: Content id of the graph version.
        keys: Tool keys, sorted; row ``i`` of every tool tensor is ``keys[i]``.
        texts: What the text encoder reads of each tool (name, description, parameters).
        edge_index: Directed tool pairs, int64, shape ``[2, num_edges]``, no self loops.
        edge_counts: How often each pair was seen without failing, in rows that are not held out,
            float32, shape ``[num_edges, 2]``: column 0 adjacent, column 1 dataflow.
    """

    version: str
    keys: tuple[str, ...]
    texts: tuple[str, ...]
    edge_index: Int[Tensor, "2 num_edges"]
    edge_counts: Float[Tensor, "num_edges 2"]
    index: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Derive the key lookup."""
        object.__setattr__(self, "index", {key: i for i, key in enumerate(self.keys)})

    @property
    def num_tools(self) -> int:
        """Number of tools."""
        return len(self.keys)


def empty_edges() -> tuple[Int[Tensor, "2 0"], Float[Tensor, "0 2"]]:
    """The edge tensors of a graph without edges, in the right shapes and types."""
    return torch.zeros((2, 0), dtype=torch.int64), torch.zeros((0, 2), dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class Example:
    """One request with its gold plan.

    Attributes:
        id: Trajectory id.
        request: What the user asked.
        tools: Keys of the tools called, in order; repetitions kept.
        links: Gold dependencies, or empty where the source states none.
        has_links: Whether ``links`` are gold (an empty tuple then means "no dependency").
        split: ``train``, ``validation`` or ``test``.
        group: What the row has in common with those that the split keeps on its side, such as the
            tool sequence: in use a request meets no row of its own group. Empty: it stands alone.
    """

    id: str
    request: str
    tools: tuple[str, ...]
    links: tuple[Link, ...] = ()
    has_links: bool = False
    split: str = "train"
    group: str = ""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a plan's step: a value, the output of an earlier step, or still open.

    Attributes:
        name: The parameter.
        type: Its declared type, "" where the catalogue states none.
        value: A JSON value; None where ``step`` tells, or where nothing fills it.
        step: Position of the earlier step whose output it takes.
        field: Part of that output; "" takes the part of the wanted type, or all of it.
    """

    name: str
    type: str = ""
    value: Any = None
    step: int | None = None
    field: str = ""

    @property
    def is_filled(self) -> bool:
        """Whether anything stands behind it."""
        return self.step is not None or self.value is not None

    def to_json(self) -> dict[str, Any]:
        """As commands show it: ``step`` and ``field``, or ``value`` (null: open)."""
        source = {"value": self.value}
        if self.step is not None:
            source = {"step": self.step, "field": self.field}
        return {"name": self.name, "type": self.type, **source}


@dataclass(frozen=True, slots=True)
class Plan:
    """One proposed plan: tool keys in order, links as positions, a score (higher is better).

    Attributes:
        tools: Keys; a tool may come more than once.
        links: Dependencies by position; they make no cycle.
        score: Comparable among plans of one planner.
        planner: Who made it.
        arguments: One tuple a step, where the planner fills arguments; else empty.
    """

    tools: tuple[str, ...]
    links: tuple[Link, ...]
    score: float
    planner: str
    arguments: tuple[tuple[Argument, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As commands and the served model show it: names, links by position, keys to be exact.

        ``arguments``, a list a step, is there where the planner fills them.
        """
        filled = [[argument.to_json() for argument in step] for step in self.arguments]
        return {
            "tools": [key.split("/", 1)[1] for key in self.tools],
            "links": [list(link) for link in self.links],
            "score": self.score,
            "planner": self.planner,
            "keys": list(self.tools),
            **({"arguments": filled} if filled else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        """A plan as :meth:`to_json` shows it, or written by hand: ``keys`` or ``tools`` will do.

        Raises:
            ValueError: Something is missing or has another shape.
        """
        try:
            named = value.get("keys") or value["tools"]
            if isinstance(named, str):
                raise TypeError("a text in place of a list of tools")
            tools = tuple(map(str, named))
            return cls(
                tools=tools,
                links=tuple((int(s), int(t)) for s, t in value.get("links", ())),
                score=float(value.get("score", 0.0)),
                planner=str(value.get("planner", "by hand")),
                arguments=tuple(
                    tuple(_argument(entry) for entry in step) for step in value.get("arguments", ())
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                "expected a plan with tools (or keys), links as pairs of positions and, where it "
                f"has any, arguments (name, value or step) by step, got {error!r} in "
                f"{str(value)[:200]}."
            ) from error


def _argument(entry: Mapping[str, Any]) -> Argument:
    step = entry.get("step")
    return Argument(
        name=str(entry["name"]),
        type=str(entry.get("type", "")),
        value=entry.get("value"),
        step=None if step is None else int(step),
        field=str(entry.get("field", "")),
    )


@runtime_checkable
class Planner(Protocol):
    """Anything that turns requests into ranked plans."""

    name: str

    def plan(self, requests: Sequence[str], top: int = 1) -> list[list[Plan]]:
        """Ranked plans for each request, best first, at most ``top`` of them."""
        ...
