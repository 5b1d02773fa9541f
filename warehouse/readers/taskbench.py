"""TaskBench and GNN4TaskPlan files: data.json (lines or list), tool_desc.json, graph_desc.json.

The released records and the code that reads them disagree on names: ``task_*`` or ``tool_*``,
``user_request`` or ``instruction``, lists or JSON text of lists. All are read alike.
"""

import json
import re
from collections.abc import Iterator
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

_NODE_REFERENCE = re.compile(r"<node-([0-9]{1,6})>")


def is_plan(value: Any) -> bool:
    """A record of data.json: carries task_nodes or tool_nodes."""
    return isinstance(value, dict) and bool({"task_nodes", "tool_nodes"} & value.keys())


def is_catalogue(value: Any) -> bool:
    """tool_desc.json or graph_desc.json: ``{"nodes": [...], "links": [...]}``."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("nodes"), list)
        and all(isinstance(node, dict) and "id" in node for node in value["nodes"])
    )


def is_request(value: Any) -> bool:
    """A record of user_requests.json: a request without a plan."""
    return isinstance(value, dict) and value.keys() == {"id", "user_request"}


def read_request(item: Item) -> Iterator[Record]:
    """A record of user_requests.json: nothing to learn from."""
    del item
    yield Ignored("request without a plan")


def _list(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def read_plan(item: Item) -> Iterator[Record]:
    """One record of data.json."""
    value = item.value
    request = value.get("user_request") or value.get("instruction")
    if not request:
        yield Rejected(item.place, "expected user_request or instruction, got neither", item.raw)
        return
    try:
        nodes = _list(value.get("task_nodes", value.get("tool_nodes")))
        links = _list(value.get("task_links", value.get("tool_links"))) or []
        names = [node["task"] for node in nodes]
    except (ValueError, TypeError, KeyError) as error:
        yield Rejected(
            item.place,
            "expected task_nodes to be a list of objects with a task, got "
            f"{type(error).__name__}: {error}",
            item.raw,
        )
        return
    arguments = [_list(node.get("arguments", UNRECORDED)) for node in nodes]
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(names):
        positions.setdefault(name, []).append(position)
    pairs = references(arguments)
    if not pairs:
        try:
            pairs = [_between(positions, link["source"], link["target"]) for link in links]
        except (KeyError, TypeError) as error:
            yield Rejected(
                item.place, f"expected links between the record's own tools, got {error}", item.raw
            )
            return
    yield TrajectoryRecord(
        request=str(request).strip(),
        calls=[
            Call(name=name, turn=turn, arguments=_as_object(args))
            for turn, (name, args) in enumerate(zip(names, arguments, strict=True))
        ],
        native_id=None if value.get("id") is None else str(value["id"]),
        links=sorted(set(pairs)),
        links_kind="gold",
        meta={key: value[key] for key in ("type", "n_tools") if key in value},
    )


def references(arguments: list[Any]) -> list[tuple[int, int]]:
    """Explicit ``<node-j>`` references as (source, target) positions.

    Some records count nodes from 1: told by a reference to the number of nodes, or to a call's
    own number without any reference to 0.
    """
    found = [
        (int(number), target)
        for target, args in enumerate(arguments)
        if args is not UNRECORDED
        for number in _NODE_REFERENCE.findall(json.dumps(args))
    ]
    if not found:
        return []
    from_one = all(number >= 1 for number, _ in found) and any(
        number >= len(arguments) or number == target for number, target in found
    )
    pairs = [(number - from_one, target) for number, target in found]
    return [(s, t) for s, t in pairs if 0 <= s < len(arguments) and s != t]


def _between(positions: dict[str, list[int]], source: str, target: str) -> tuple[int, int]:
    """The nearest pair of calls that a link by names can mean: forwards when there is one."""
    pairs = [(s, t) for s in positions[source] for t in positions[target] if s != t]
    if not pairs:
        raise KeyError(f"{source} -> {target}, both the same call")
    return min(pairs, key=lambda pair: (pair[0] > pair[1], abs(pair[0] - pair[1]), pair))


def _as_object(arguments: Any) -> Any:
    """Named arguments as an object; a bare list keeps its order under ``arguments``."""
    if not isinstance(arguments, list):
        return arguments
    if arguments and all(isinstance(a, dict) and {"name", "value"} <= a.keys() for a in arguments):
        return {str(a["name"]): a["value"] for a in arguments}
    return {"arguments": arguments} if arguments else {}


def read_catalogue(item: Item) -> Iterator[Record]:
    """Tools and declared links of one tool_desc.json or graph_desc.json."""
    if not item.value["nodes"]:
        yield Ignored("catalogue without tools")
    for node in item.value["nodes"]:
        parameters = node.get("parameters") or []
        yield ToolRecord(
            name=str(node["id"]),
            description=str(node.get("desc") or ""),
            parameters=tuple(
                {
                    "name": str(p.get("name", "")),
                    "type": str(p.get("type", "")),
                    "description": str(p.get("desc", "")),
                    "required": bool(p.get("required", False)),
                }
                for p in parameters
                if isinstance(p, dict)
            ),
            input_types=tuple(map(str, node.get("input-type") or ())),
            output_types=tuple(map(str, node.get("output-type") or ())),
        )
    for link in item.value.get("links") or []:
        if isinstance(link, dict) and {"source", "target"} <= link.keys():
            yield DeclaredEdge(
                str(link["source"]), str(link["target"]), str(link.get("type") or "")
            )
        else:
            yield Rejected(item.place, "expected links with source and target", json.dumps(link))
