"""The normalised form: tools, trajectories, declared graphs, requests, one JSON object a line."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from warehouse.readers.stream import Item
from warehouse.records import (
    UNRECORDED,
    Call,
    DeclaredEdge,
    Ignored,
    Record,
    Rejected,
    ToolRecord,
    TrajectoryRecord,
)

_TOOL_KEYS = {"name", "description", "parameters", "input_types", "output_types", "meta"}
"""A tool line has no others: many a JSON file carries a name and a description."""

LINK_KINDS = ("gold", "dataflow", "adjacent", "predicted", "inferred", "none")


def is_trajectory(value: Any) -> bool:
    """A line of trajectories.jsonl: has ``steps`` with the request they serve."""
    return isinstance(value, dict) and "steps" in value and isinstance(value.get("request"), str)


def is_tool(value: Any) -> bool:
    """A line of tools.jsonl: a name and a description, parameters as a list."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("parameters", []), list)
        and ("parameters" in value or "description" in value)
        and value.keys() <= _TOOL_KEYS
    )


def is_edge(value: Any) -> bool:
    """A line of graph.jsonl."""
    return isinstance(value, dict) and {"source", "target"} <= value.keys()


def is_request(value: Any) -> bool:
    """A line of requests.jsonl: a request without a plan."""
    return (
        isinstance(value, dict) and "steps" not in value and isinstance(value.get("request"), str)
    )


def read_trajectory(item: Item) -> Iterator[Record]:
    """One line of trajectories.jsonl."""
    value = item.value
    steps = value["steps"]
    if not isinstance(steps, list) or not all(
        isinstance(step, dict) and isinstance(step.get("tool"), str) for step in steps
    ):
        yield Rejected(item.place, "expected steps to be a list of objects with a tool", item.raw)
        return
    meta = value.get("meta") or {}
    if not isinstance(meta, dict) or not all(isinstance(x, dict) for x in value.get("links") or []):
        yield Rejected(
            item.place, "expected meta to be an object and links a list of objects", item.raw
        )
        return
    kind = str(meta.get("links", "gold" if value.get("links") else "none"))
    links = []
    for link in value.get("links") or []:
        source, target = link.get("source"), link.get("target")
        if not (_is_position(source, steps) and _is_position(target, steps)):
            yield Rejected(
                item.place,
                f"expected links between steps 0 to {len(steps) - 1}, got {source!r} -> {target!r}",
                item.raw,
            )
            return
        links.append((source, target))
    yield TrajectoryRecord(
        request=str(value.get("request") or ""),
        calls=[_call(turn, step) for turn, step in enumerate(steps)],
        native_id=None if value.get("id") is None else str(value["id"]),
        split=value.get("split"),
        links=links,
        links_kind=kind if kind in LINK_KINDS else "none",
        started_at=parse_time(meta.get("timestamp")),
        meta=meta,
    )


def _is_position(value: Any, steps: list[Any]) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(steps)


def _call(turn: int, step: dict[str, Any]) -> Call:
    observation, error = step.get("observation"), step.get("error")
    status = "error" if error else "ok" if observation is not None else "no_result"
    return Call(
        name=step["tool"],
        turn=turn,
        arguments=step.get("arguments", UNRECORDED),
        result=as_text(observation),
        status=status,
        error=as_text(error) if error else None,
    )


def as_text(value: Any) -> str | None:
    """A result as text: strings as they are, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def parse_time(value: Any) -> datetime | None:
    """A UTC time without zone from ISO text or seconds; None where it is neither."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC).replace(tzinfo=None)
        except (OverflowError, OSError, ValueError):
            return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    try:
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except OverflowError:
        return None


def read_tool(item: Item) -> Iterator[Record]:
    """One line of tools.jsonl."""
    value = item.value
    parameters = tuple(p for p in value.get("parameters") or [] if isinstance(p, dict))
    yield ToolRecord(
        name=value["name"],
        description=str(value.get("description") or ""),
        parameters=parameters,
        input_types=tuple(map(str, value.get("input_types") or ())),
        output_types=tuple(map(str, value.get("output_types") or ())),
    )


def read_edge(item: Item) -> Iterator[Record]:
    """One line of graph.jsonl."""
    value = item.value
    yield DeclaredEdge(str(value["source"]), str(value["target"]), str(value.get("type") or ""))


def read_request(item: Item) -> Iterator[Record]:
    """One line of requests.jsonl: nothing to learn from."""
    del item
    yield Ignored("request without a plan")
