"""Subtasks: what a request is cut into before tools are searched for it (ControlLLM, 3.1)."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models.toolset import Resource

GENERATED = re.compile(r"<GENERATED>-(\d+)")
"""How a subtask names the output of another one."""


@dataclass(frozen=True, slots=True)
class Subtask:
    """One thing to do, without naming tools (arXiv 2310.17796, table 5).

    Attributes:
        id: Its number; an argument ``<GENERATED>-<id>`` is its output.
        description: What is to be done, in words.
        args: Resources that a solution has to use, all of them.
        returns: Types wanted, as the catalogue writes them or without what is before the last dot.
        domains: Domains that tools may come from; empty: any.
        dependencies: Ids of subtasks whose output this one takes.
        known: Resources that a solution may use besides, best first.
    """

    id: int
    description: str
    args: tuple[Resource, ...]
    returns: tuple[str, ...]
    domains: tuple[str, ...] = ()
    dependencies: tuple[int, ...] = ()
    known: tuple[Resource, ...] = ()


def read_subtasks(entries: Sequence[dict[str, Any]]) -> tuple[Subtask, ...]:
    """Subtasks in ControlLLM's form: ``task`` (one or several), ``args``, ``returns``, ``dep``.

    Raises:
        ValueError: An entry lacks a field, or it has another shape.
    """
    return tuple(_subtask(place, entry) for place, entry in enumerate(entries))


def _subtask(place: int, entry: Any) -> Subtask:
    try:
        task = entry["task"]
        return Subtask(
            id=int(entry["id"]),
            description=str(entry["description"]),
            args=tuple(Resource(a["value"], str(a["type"])) for a in entry["args"]),
            returns=tuple(str(r["type"]) for r in entry["returns"]),
            domains=(task,) if isinstance(task, str) else tuple(map(str, task)),
            dependencies=tuple(int(d) for d in entry["dep"] if int(d) >= 0),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected subtask {place} to have id, description, task, dep (a list of ids), args "
            f"(type, value) and returns (type), got {error!r} in {str(entry)[:200]}."
        ) from error


@dataclass(frozen=True, slots=True)
class DecompositionScore:
    """F1 of one decomposition against its gold, 0..1."""

    subtask: float
    type: float
    dependency: float


def score_decomposition(
    predicted: Sequence[Subtask], gold: Sequence[Subtask]
) -> DecompositionScore:
    """Multiset F1 of subtasks, types and dependencies.

    A subtask counts by what it gives and what it works on: the types that it returns, and the
    resources among its arguments that are no free text (for the output of another subtask, the
    types of that). Types count one by one, as (argument or return, type). Dependencies count as
    pairs of subtasks. Nothing on both sides is 1.

    Args:
        predicted: What is judged.
        gold: What it is held against; types are compared without what is before their last dot.
    """
    return DecompositionScore(
        f1(_shapes(predicted), _shapes(gold)),
        f1(_types(predicted), _types(gold)),
        f1(_pairs(predicted), _pairs(gold)),
    )


def f1(predicted: Counter[Any], gold: Counter[Any]) -> float:
    """F1 of two multisets; 1 where both are empty."""
    if not predicted and not gold:
        return 1.0
    hits = (predicted & gold).total()
    return 2 * hits / (predicted.total() + gold.total())


def short_type(name: str) -> str:
    """A type without what is before its last dot, lower-case: "image.mask" is "mask"."""
    return name.rpartition(".")[2].casefold()


_FILE = re.compile(r"[^\s\"'<>|]+\.\w{2,4}")


def _shape(subtask: Subtask, by_id: dict[int, Subtask]) -> Any:
    returns = tuple(sorted(map(short_type, subtask.returns)))
    works_on = []
    for resource in subtask.args:
        made = GENERATED.fullmatch(str(resource.value))
        if made and int(made[1]) in by_id:
            works_on += [f"<{short_type(kind)}>" for kind in by_id[int(made[1])].returns]
        elif _FILE.fullmatch(str(resource.value)):
            works_on.append(str(resource.value))
    return returns, tuple(sorted(works_on))


def _shapes(subtasks: Sequence[Subtask]) -> Counter[Any]:
    by_id = {subtask.id: subtask for subtask in subtasks}
    return Counter(_shape(subtask, by_id) for subtask in subtasks)


def _types(subtasks: Sequence[Subtask]) -> Counter[Any]:
    return Counter(
        kind
        for subtask in subtasks
        for kind in (
            *(("takes", short_type(resource.type)) for resource in subtask.args),
            *(("returns", short_type(name)) for name in subtask.returns),
        )
    )


def _pairs(subtasks: Sequence[Subtask]) -> Counter[Any]:
    by_id = {subtask.id: subtask for subtask in subtasks}
    return Counter(
        (_shape(by_id[source], by_id), _shape(subtask, by_id))
        for subtask in subtasks
        for source in subtask.dependencies
        if source in by_id
    )
