"""ControlLLM's measures IR, NR, HR, CR, SE, against gold that a machine can check.

The paper's figures (arXiv 2310.17796, 4.2 and 11) are votes of three annotators on each solution.
Here a solution is a plan with typed arguments and the gold says which sets of tools serve each part
of a request. The definitions are kept, the judge is another: figures of the two do not compare.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from models.subtasks import short_type
from models.toolset import Resource, Signature
from models.types import Argument, Plan

MEASURES = ("IR", "NR", "HR", "CR", "SE")
TEXT_TYPES = frozenset({"text", "string", ""})
"""Types of which any words will do: no resource has to be known."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a request asks for.

    Attributes:
        files: Known resources that it has to work on.
        any_of: Sets of tools (with repetitions) that serve it; the last tool of each gives what is
            wanted, and the outputs of the others flow into it.
        after: Places of parts whose result it has to work on.
    """

    files: tuple[str, ...]
    any_of: tuple[tuple[str, ...], ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GoldSolution:
    """What serves a request: all of its parts, and what else is not irrelevant to it."""

    id: str
    parts: tuple[Part, ...]
    allowed: frozenset[str]

    @property
    def tools(self) -> frozenset[str]:
        """Every tool that is no fault."""
        named = (tool for part in self.parts for tools in part.any_of for tool in tools)
        return self.allowed.union(named)


def read_gold(value: Mapping[str, Any], namespace: str) -> GoldSolution:
    """One line of a gold file: ``id``, ``parts`` (``files``, ``any_of``, ``after``), ``allowed``.

    Args:
        value: The line; tools by name.
        namespace: Of the tools.
    """
    at = {part["id"]: place for place, part in enumerate(value["parts"])}
    parts = tuple(
        Part(
            tuple(part["files"]),
            tuple(tuple(f"{namespace}/{tool}" for tool in tools) for tools in part["any_of"]),
            tuple(at[one] for one in part["after"]),
        )
        for part in value["parts"]
    )
    allowed = frozenset(f"{namespace}/{tool}" for tool in value["allowed"])
    return GoldSolution(str(value["id"]), parts, allowed)


def judge(
    plan: Plan | None,
    gold: GoldSolution,
    signatures: Mapping[str, Signature],
    resources: Sequence[Resource],
) -> dict[str, bool]:
    """The five measures of one solution.

    - IR: it has a tool that no way of serving the request has. Lower is better.
    - NR: for each part it has all tools of one of its ways, arguments aside.
    - HR: an argument is a resource that neither the request nor an earlier step gives, or a
      resource that has to be given is left open. Lower is better.
    - CR: every argument has the type that its tool declares.
    - SE: it serves the request: each part has a way of its own in the plan, whose tools flow into
      its last one and work on the part's files and on the parts before it, nothing is made up, and
      types agree. Irrelevant tools do not count against it.

    An empty plan has no irrelevant tool and no false argument, and serves nothing: NR, SE and CR
    are False, IR and HR too.

    Args:
        plan: The solution; None or without tools: there is none.
        gold: Of the request.
        signatures: Of the tools.
        resources: What the request knows.
    """
    if plan is None or not plan.tools:
        return {"IR": False, "NR": False, "HR": False, "CR": False, "SE": False}
    if not plan.arguments:
        plan = replace(plan, arguments=((),) * len(plan.tools))
    have = Counter(plan.tools)
    necessary = all(any(not Counter(way) - have for way in part.any_of) for part in gold.parts)
    made_up = _makes_up(plan, signatures, resources)
    agrees = _types_agree(plan, signatures, resources)
    served = necessary and not made_up and agrees and _serves(plan, gold)
    return {
        "IR": bool(set(plan.tools) - gold.tools),
        "NR": necessary,
        "HR": made_up,
        "CR": agrees,
        "SE": served,
    }


def _makes_up(
    plan: Plan, signatures: Mapping[str, Signature], resources: Sequence[Resource]
) -> bool:
    known = {str(resource.value) for resource in resources}
    for tool, step in zip(plan.tools, plan.arguments, strict=True):
        for argument in step:
            if argument.step is None and argument.value is not None:
                is_text = _is_text(argument.type.split("|"))
                if not is_text and str(argument.value) not in known:
                    return True
        given = {argument.name for argument in step if argument.is_filled}
        for f in signatures[tool].takes:
            if f.is_required is not False and f.name not in given and not _is_text(f.types):
                return True
    return False


def _is_text(types: Collection[str]) -> bool:
    return not types or not TEXT_TYPES.isdisjoint(map(short_type, types))


def _types_agree(
    plan: Plan, signatures: Mapping[str, Signature], resources: Sequence[Resource]
) -> bool:
    types = {str(resource.value): short_type(resource.type) for resource in resources}
    for tool, step in zip(plan.tools, plan.arguments, strict=True):
        given = {argument.name: argument for argument in step}
        for f in signatures[tool].takes:
            argument = given.get(f.name)
            wanted = set(map(short_type, f.types))
            if argument is None or not argument.is_filled:
                if f.is_required is not False:
                    return False
                continue
            if wanted and not wanted & _types_of(argument, plan, signatures, types):
                return False
    return True


def _types_of(
    argument: Argument,
    plan: Plan,
    signatures: Mapping[str, Signature],
    known: Mapping[str, str],
) -> set[str]:
    if argument.step is None:
        value = str(argument.value)
        return {known[value]} if value in known else {"text"}
    returns = signatures[plan.tools[argument.step]].returns
    parts = [f for f in returns if not argument.field or f.name == argument.field]
    return {short_type(kind) for f in parts for kind in f.types}


def _serves(plan: Plan, gold: GoldSolution) -> bool:
    above = _above(plan)
    files = [
        {str(argument.value) for argument in step if argument.step is None and argument.value}
        for step in plan.arguments
    ]

    def works_on(step: int) -> set[str]:
        return files[step].union(*(files[other] for other in above[step]))

    def place(part: int, used: frozenset[int], ends: tuple[int, ...]) -> bool:
        if part == len(gold.parts):
            return all(
                ends[other] in above[end]
                for end, one in zip(ends, gold.parts, strict=True)
                for other in one.after
            )
        wanted = gold.parts[part]
        for way in wanted.any_of:
            for end in _ends(plan, way, used, above):
                if not works_on(end).issuperset(wanted.files):
                    continue
                if place(part + 1, used | {end}, (*ends, end)):
                    return True
        return False

    return place(0, frozenset(), ())


def _above(plan: Plan) -> list[set[int]]:
    """Of each step, the steps whose output reaches it."""
    sources: list[set[int]] = [set() for _ in plan.tools]
    for step, arguments in enumerate(plan.arguments):
        sources[step] |= {a.step for a in arguments if a.step is not None}
    above: list[set[int]] = [set() for _ in plan.tools]
    for step in range(len(plan.tools)):
        stack = list(sources[step])
        while stack:
            one = stack.pop()
            if one not in above[step]:
                above[step].add(one)
                stack += sources[one]
    return above


def _ends(
    plan: Plan, way: Sequence[str], used: Collection[int], above: Sequence[set[int]]
) -> Iterator[int]:
    """Steps that end the way: of its last tool, with its other tools above; each ends one part."""
    *others, last = way
    need = Counter(others)
    for step, tool in enumerate(plan.tools):
        missing = need - Counter(plan.tools[other] for other in above[step])
        if tool == last and step not in used and not missing:
            yield step


def summarise(
    rows: Sequence[Mapping[str, bool]], groups: Mapping[str, Sequence[int]] | None = None
) -> dict[str, float]:
    """Shares of each measure over all rows, and of SE in each group (``SE easy``).

    Args:
        rows: Of :func:`judge`.
        groups: Name to the places of its rows.
    """
    shares = {
        measure: sum(row[measure] for row in rows) / max(len(rows), 1) for measure in MEASURES
    }
    for name, places in (groups or {}).items():
        shares[f"SE {name}"] = sum(rows[i]["SE"] for i in places) / max(len(places), 1)
    return shares
