"""Mined dependencies against gold links; never part of the tests.

Every miner sees a trajectory's calls and says which earlier results each call used. Values are
looked for in ComplexFuncBench as the package nestful_wrapper ships it, with full responses: each
reference in an argument (``$var1.id$``) is replaced by what stands at its path in the response, as
an agent's own trace would show it. Of a list, the first element that has the path is taken.

Prints Markdown: the miners, choices tried for values, and both halves of the trajectories (by hash
of the request).

Usage: python tests/benchmarks/bench_mining.py [--data ../shared/data]
"""

import argparse
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from models.errors import MissingWeights
from tasks.demo_data import PACKAGE, SETS, locate_data
from warehouse.dataflow import Used, is_said, mine_links, said_in
from warehouse.readers.carriers import iter_items
from warehouse.readers.nestful import read_trajectory
from warehouse.readers.stream import parse
from warehouse.values import is_telling, leaves, values_in

SOURCES = ("complexfuncbench", "nestful", "galaxy_iwc", "toollinkos")
_REFERENCE = re.compile(r"\$(var_?\d+)((?:\.[^$]*)?)\$")
_MISSING = object()

_NOT_MEASURED = (
    "n/a: nestful, galaxy_iwc and toollinkos have no results, the latter two no references. Gold "
    "links of complexfuncbench and nestful were made of the references, which find them again."
)

Links = set[tuple[int, int]]


@dataclass(slots=True)
class Run:
    """One trajectory: what a miner sees, its gold links, and the values they carried."""

    request: str
    used: Used
    gold: Links
    referred: list[dict[str, Any]] = field(default_factory=list)
    """Of each call the arguments that had a reference, filled in."""
    carried: dict[tuple[int, int], list[Any]] = field(default_factory=dict)


Miner = Callable[[Run], Iterable[tuple[int, int]]]


def read_set(folder: Path) -> list[Run]:
    """A set in the normalised form; its results are left out, which are cut."""
    path = folder / "trajectories.jsonl"
    data = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
    return [_run(json.loads(line)) for line in data.splitlines()]


def _run(row: dict[str, Any]) -> Run:
    steps = row["steps"]
    used = Used(
        turns=range(len(steps)),
        texts=[json.dumps(step["arguments"]) if "arguments" in step else None for step in steps],
        arguments=[step.get("arguments") for step in steps],
        results=[None] * len(steps),
        call_ids=[None] * len(steps),
        names=[step["tool"] for step in steps],
    )
    return Run(row["request"], used, {(link["source"], link["target"]) for link in row["links"]})


# --- references masked ----------------------------------------------------------------------------


def read_masked() -> tuple[list[Run], int, int]:
    """ComplexFuncBench with values for references, how many there were, how many have no value."""
    data = locate_data()
    runs = []
    for name in SETS["complexfuncbench"][0]:
        with (data / name).open("rb") as file:
            for item in iter_items(file):
                (record,) = read_trajectory(item)
                runs.append(_masked(record))
    values = [value for run in runs for part in run.carried.values() for value in part]
    return runs, len(values), sum(value is _MISSING for value in values)


def _masked(record: Any) -> Run:
    calls = record.calls
    positions = {call.call_id: at for at, call in enumerate(calls)}
    results = [None if call.result is None else parse(call.result) for call in calls]
    carried: dict[tuple[int, int], list[Any]] = {}

    def fill(value: Any, target: int) -> Any:
        if isinstance(value, dict):
            return {key: fill(item, target) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item, target) for item in value]
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        source = positions[found[1]]
        held = _at(results[source], [part for part in found[2].split(".") if part])
        carried.setdefault((source, target), []).append(held)
        return value if held is _MISSING else held

    filled = [fill(call.arguments, target) for target, call in enumerate(calls)]
    used = Used(
        turns=[call.turn for call in calls],
        texts=[json.dumps(arguments) for arguments in filled],
        arguments=filled,
        results=[call.result if call.status == "ok" else None for call in calls],
        call_ids=[None] * len(calls),
        names=[call.name for call in calls],
    )
    referred = [
        {key: item for key, item in arguments.items() if item != call.arguments[key]}
        for call, arguments in zip(calls, filled, strict=True)
    ]
    return Run(record.request, used, set(record.links), referred, carried)


def _at(value: Any, path: list[str]) -> Any:
    if not path:
        return value
    if isinstance(value, list):
        held = (_at(item, path) for item in value)
        return next((item for item in held if item is not _MISSING), _MISSING)
    if isinstance(value, dict) and path[0] in value:
        return _at(value[path[0]], path[1:])
    return _MISSING


# --- miners ---------------------------------------------------------------------------------------


def adjacent(run: Run) -> Iterator[tuple[int, int]]:
    """Each call of a turn to each call of the next."""
    turns = run.used.turns
    for source, turn in enumerate(turns):
        for target, later in enumerate(turns):
            if later == turn + 1:
                yield source, target


def by_reference(run: Run) -> Iterable[tuple[int, int]]:
    """What the arguments refer to."""
    return mine_links(run.request, run.used, by_value=False)


def by_value(run: Run) -> Iterable[tuple[int, int]]:
    """What the warehouse mines from values."""
    return mine_links(run.request, run.used)


def naive(run: Run) -> Iterator[tuple[int, int]]:
    """Any value of an argument, whatever it is, from the latest result that holds it."""
    held = [set(_all_leaves(parse(str(result)))) for result in run.used.results]
    for target, arguments in enumerate(run.used.arguments):
        for value in set(_all_leaves(arguments)):
            sources = [source for source in range(target) if value in held[source]]
            if sources:
                yield sources[-1], target


def _all_leaves(value: Any) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _all_leaves(item)
    else:
        yield str(value)


def referred_only(run: Run) -> Run:
    """The run with only those arguments shown that had a reference."""
    used = run.used
    texts = [json.dumps(arguments) for arguments in run.referred]
    shown = Used(used.turns, texts, run.referred, used.results, used.call_ids, used.names)
    return Run(run.request, shown, run.gold)


def choosing(pick: str, *, echoes: bool) -> Miner:
    """Values as the warehouse compares them, with another choice among several results.

    Args:
        pick: earliest, latest, or rarest (the result in whose text the value stands least often).
        echoes: Whether results count that came after an argument which carried the value.
    """

    def mine(run: Run) -> Iterator[tuple[int, int]]:
        used, said = run.used, said_in(run.request)
        held = [values_in(str(result)) if result else frozenset() for result in used.results]
        first_use: dict[str, int] = {}
        for target, arguments in enumerate(used.arguments):
            for value in sorted(set(leaves(arguments))):
                end = target if echoes else first_use.setdefault(value, target)
                sources = [source for source in range(end) if value in held[source]]
                if not sources or not is_telling(value) or is_said(value, said):
                    continue
                if pick == "rarest":
                    yield min(sources, key=lambda s: str(used.results[s]).count(value)), target
                else:
                    yield sources[0 if pick == "earliest" else -1], target

    return mine


# --- scores ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """Of links by position, summed over trajectories, and of distinct pairs of tools."""

    precision: float
    recall: float
    f1: float
    pairs_f1: float

    def __str__(self) -> str:
        numbers = self.precision, self.recall, self.f1, self.pairs_f1
        return " / ".join(f"{number:.3f}" for number in numbers)


def score(runs: list[Run], miner: Miner) -> Score:
    """How a miner's links agree with the gold ones."""
    found = [set(miner(run)) for run in runs]
    right = sum(len(links & run.gold) for run, links in zip(runs, found, strict=True))
    precision, recall, f1 = _rates(right, sum(map(len, found)), sum(len(r.gold) for r in runs))
    mined, gold = (
        {(run.used.names[s], run.used.names[t]) for run, links in zip(runs, all_, strict=True)
         for s, t in links}
        for all_ in (found, [run.gold for run in runs])
    )  # fmt: skip
    return Score(precision, recall, f1, _rates(len(mined & gold), len(mined), len(gold))[2])


def _rates(right: int, found: int, gold: int) -> tuple[float, float, float]:
    precision = right / found if found else 0.0
    recall = right / gold if gold else 0.0
    return precision, recall, 2 * right / (found + gold) if found + gold else 0.0


def shares(runs: list[Run]) -> tuple[float, float, float]:
    """Of gold links: several earlier results hold the value, an echo, all said by the user.

    An echo is a link whose source gives only values that an argument up to then already carried.
    """
    several = echoed = said = total = 0
    for run in runs:
        used, in_request = run.used, said_in(run.request)
        held = [values_in(str(result)) if result else frozenset() for result in used.results]
        carried = [set(leaves(arguments)) for arguments in used.arguments]
        for (source, target), values in run.carried.items():
            wanted = set(leaves(values))
            total += 1
            several += bool(wanted) and all(
                sum(value in held[s] for s in range(target)) > 1 for value in wanted
            )
            echoed += bool(wanted) and all(
                any(value in carried[s] for s in range(source + 1)) for value in wanted
            )
            said += bool(wanted) and all(is_said(value, in_request) for value in wanted)
    return several / total, echoed / total, said / total


def half_of(run: Run) -> int:
    """0 or 1, by the request alone."""
    return hashlib.sha256(run.request.encode()).digest()[0] % 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    sets = {name: read_set(parser.parse_args().data / name) for name in SOURCES}
    masked: list[Run] = []
    note = f"The package {PACKAGE} is not installed: no row for values."
    try:
        masked, num_references, num_missing = read_masked()
        several, echoed, said = shares(masked)
        note = (
            f"References filled in: {num_references - num_missing:,} of {num_references:,}; one "
            f"without a value stays as it is, and its gold link counts. Of the gold links "
            f"{several:.1%} carry values that several earlier results hold, {echoed:.1%} are "
            f"echoes, {said:.1%} carry only what the user said."
        )
    except MissingWeights:
        pass
    has_references = {
        name for name, runs in sets.items() if any("$var" in (t or "") for r in runs
                                                   for t in r.used.texts)
    }  # fmt: skip
    gold = {name: sum(len(run.gold) for run in runs) for name, runs in sets.items()}
    heads = [f"{name}, {gold[name]:,} gold links" for name in SOURCES]
    _print_row("precision / recall / F1 / F1 of tool pairs", *heads)
    _print_row(*["---"] * (len(SOURCES) + 1))
    _print_row("adjacent calls", *(score(sets[name], adjacent) for name in SOURCES))
    _print_row(
        "explicit references",
        *(score(sets[n], by_reference) if n in has_references else "n/a" for n in SOURCES),
    )
    rest = ["n/a"] * (len(SOURCES) - 1)
    referred = [referred_only(run) for run in masked]
    for name, runs, miner in (
        ("values", masked, by_value),
        ("values, no care", masked, naive),
        ("values, of referenced arguments alone", referred, by_value),
        ("values, of referenced arguments alone, no care", referred, naive),
    ):
        _print_row(name, score(runs, miner) if runs else "n/a", *rest)
    print(f"\n{_NOT_MEASURED}\n\n{note}\n")
    if masked:
        halves = [[run for run in masked if half_of(run) == half] for half in (0, 1)]
        _print_row("values come from", "first half", "second half")
        _print_row("---", "---", "---")
        for pick in ("earliest", "latest", "rarest"):
            for echoes in (False, True):
                miner = choosing(pick, echoes=echoes)
                name = f"the {pick} result, echoes {'count' if echoes else 'do not'}"
                _print_row(name, *(score(half, miner) for half in halves))


def _print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
