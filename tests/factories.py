"""The smallest believable deliveries, written as files."""

import json
from pathlib import Path


def trajectory(native_id, *tools, request=None, split=None, **meta):
    """A normalised line: tools are names, or (name, observation) or (name, observation, error)."""
    steps = []
    for tool in tools:
        name, *rest = (tool,) if isinstance(tool, str) else tool
        step = {"tool": name, "arguments": {"n": len(steps)}}
        if rest:
            step["observation"] = rest[0]
        if len(rest) > 1:
            step["error"] = rest[1]
        steps.append(step)
    line = {
        "request": request or f"please do {native_id}",
        "steps": steps,
        "links": [],
        "meta": meta,
    }
    if native_id is not None:
        line["id"] = native_id
    if split:
        line["split"] = split
    return line


def tool(name, description="does it", **fields):
    """A line of tools.jsonl."""
    return {"name": name, "description": description, "parameters": [], **fields}


def write_lines(path: Path, lines) -> Path:
    """JSON lines; text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for line in lines:
            file.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    return path
