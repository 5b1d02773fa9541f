"""What the pages of an execution show, as Markdown: plans, calls, what became of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from models.types import Argument, Plan
from tasks.artifacts import Page
from tasks.markdown import bullets, count, escape, paragraphs, table


def plan(request: str, plans: Sequence[Plan]) -> Page:
    """Ranked plans with their arguments."""
    line = f"{count(len(plans), 'plan')}: {', '.join(k.split('/', 1)[1] for k in plans[0].tools)}"
    sections = []
    for rank, one in enumerate(plans, 1):
        rows = [
            (str(at), escape(key), _inputs(one.arguments[at] if one.arguments else ()))
            for at, key in enumerate(one.tools)
        ]
        heading = f"**Plan {rank}**, {escape(one.planner)}, score {one.score:.3f}"
        sections.append(paragraphs(heading, table(("step", "tool", "arguments"), rows, 3)))
    return Page(line, paragraphs(escape(request), *sections))


def _inputs(arguments: Sequence[Argument]) -> str:
    told = []
    for argument in arguments:
        value = f"result of step {argument.step}" if argument.step is not None else "open"
        if argument.value is not None:
            value = json.dumps(argument.value, ensure_ascii=False)[:200]
        told.append(f"{argument.name}: {value}")
    return escape("; ".join(told))


def call(key: str, arguments: Mapping[str, Any], result: Any) -> Page:
    """What went into one call and what came out."""
    rows = [("in", escape(name), _shown(value)) for name, value in arguments.items()]
    parts = result.items() if isinstance(result, dict) else [("", result)]
    rows += [("out", escape(name), _shown(value)) for name, value in parts]
    return Page(key, table(("", "name", "value"), rows, 3))


def _shown(value: Any) -> str:
    return escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def execution(result: Mapping[str, Any]) -> Page:
    """What an execution did, step by step."""
    rows = [
        (
            str(step["step"]),
            escape(step["tool"]),
            step["status"] + (", reused" if step["reused"] else ""),
            str(len(step["attempts"])),
            _shown(step["result"]) if step["status"] == "ok" else escape(step["error"] or ""),
        )
        for step in result["steps"]
    ]
    line = f"{result['status']}: {' '.join(result['request'].split()) or 'a plan by hand'}"
    return Page(
        line,
        paragraphs(
            escape(result["summary"]),
            table(("step", "tool", "status", "tries", "result"), rows, 5),
            bullets(
                [
                    escape(f"Step {step['step']}, {c['parameter']}: {c['reason']}")
                    for step in result["steps"]
                    for c in step["corrections"]
                ]
            ),
        ),
    )
