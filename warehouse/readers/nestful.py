"""NESTFUL and ComplexFuncBench as NESTFUL ships them: lists of requests with labelled calls.

A call's argument may name an earlier result (``$var2.city.id$``); the last entry, ``var_result``,
states the answer and is no call. Specifications name their parameters under ``query_parameters``,
``arguments`` or ``parameters``.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from warehouse.readers.normalised import as_text
from warehouse.readers.stream import Item
from warehouse.records import Call, Record, Rejected, ToolRecord, TrajectoryRecord

_PARAMETERS = ("query_parameters", "arguments", "parameters")
_REFERENCE = re.compile(r"\$(var_?\d+)\b")


def is_trajectory(value: Any) -> bool:
    """A record of a data file: ``input`` text and an ``output`` list of calls."""
    return isinstance(value, dict) and "input" in value and isinstance(value.get("output"), list)


def is_tool(value: Any) -> bool:
    """A record of a specification file: parameters by name, under one of three keys."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and "output" not in value
        and any(isinstance(value.get(key), dict) for key in _PARAMETERS)
    )


def read_trajectory(item: Item) -> Iterator[Record]:
    """One request with its calls."""
    value = item.value
    outputs = value["output"]
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in outputs):
        yield Rejected(item.place, "expected output to be a list of calls with a name", item.raw)
        return
    steps = [call for call in outputs if call["name"] != "var_result"]
    position_of = {str(call.get("label")): i for i, call in enumerate(steps) if call.get("label")}
    links = sorted(
        {
            (position_of[label], target)
            for target, call in enumerate(steps)
            for label in _REFERENCE.findall(json.dumps(call.get("arguments", {})))
            if label in position_of and position_of[label] != target
        }
    )
    yield TrajectoryRecord(
        request=str(value["input"]).strip(),
        calls=[_call(turn, call) for turn, call in enumerate(steps)],
        native_id=None if value.get("id") is None else str(value["id"]),
        links=links,
        links_kind="dataflow",
    )


def _call(turn: int, call: dict[str, Any]) -> Call:
    errors = call.get("errors")
    recorded = "response" in call
    return Call(
        name=call["name"],
        turn=turn,
        arguments=call.get("arguments", {}),
        result=as_text(call.get("response")),
        status="error" if errors else "ok" if recorded else "no_result",
        error=as_text(errors) if errors else None,
        call_id=call.get("label"),
    )


def read_tool(item: Item) -> Iterator[Record]:
    """One tool of a specification file."""
    value = item.value
    declared = next(value[key] for key in _PARAMETERS if isinstance(value.get(key), dict))
    outputs = value.get("output_parameters") or {}
    yield ToolRecord(
        name=value["name"],
        description=str(value.get("description") or ""),
        parameters=tuple(
            {
                "name": name,
                "type": str((spec or {}).get("type", "")),
                "description": str((spec or {}).get("description", "")),
                "required": (spec or {}).get("required") is True,
            }
            for name, spec in declared.items()
            if isinstance(spec, dict) or spec is None
        ),
        output_types=tuple(
            f"{name}:{spec.get('type', '')}" if isinstance(spec, dict) else str(name)
            for name, spec in (outputs.items() if isinstance(outputs, dict) else ())
        ),
    )
