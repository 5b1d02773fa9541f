"""What changed between two graph versions, as one SVG image of 900 pixels across."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from models.layout import place, separate
from tasks.markdown import count
from tasks.xml_text import escape

WIDTH = 900
"""Pixels across."""

_LOOKS = {
    "added": ("#007a58", "", "+", "came"),
    "removed": ("#c4320a", "7 4", "−", "went"),
    "weakened": ("#9a6200", "2 4", "↓", "seen less often"),
    "strengthened": ("#0b6cb8", "", "↑", "seen more often"),
    "renamed": ("#8e3f8a", "", "⇄", "renamed"),
    "changed": ("#9a6200", "", "~", "contract changed"),
    None: ("#a9b0ba", "", "", "as before"),
}
"""Colour, dashes, sign and word of each change; None is no change."""

_EDGES = ("removed", "added", "weakened", "strengthened")
_TOOLS = ("renamed", "removed", "added", "changed")
_MOST_EDGES = 90
_MARGIN = 24
_TOP = 96
_LETTER = 6.9
_LINE = 18

Pair = tuple[str, str]


def diff_picture(
    diff: Mapping[str, Any], summary: pl.DataFrame | None = None, *, most: int = 40
) -> str:
    """Tools and edges that changed, and what they hang together by.

    Args:
        diff: As ``warehouse.graph.diff_versions`` tells it.
        summary: Edges of the newer version; where given, edges that did not change are drawn
            between the tools shown, and a tool without an edge shows its strongest neighbour.
        most: Most tools in the picture; those with the greatest changes. The caption counts all.
    """
    tools, edges = _tool_changes(diff), _edge_changes(diff)
    concerned = {*tools, *(end for pair in edges for end in pair)}
    caption = _caption(diff)
    if not concerned:
        return _svg(120, [*caption, _text(_MARGIN, 84, "Nothing changed.", size=15)])
    chosen = _chosen(tools, edges, most)
    near = _unchanged(summary, chosen, edges, most)
    keys = sorted({*chosen, *(end for pair in near for end in pair)})
    shown = [pair for pair in edges if pair[0] in keys and pair[1] in keys and pair[0] != pair[1]]
    shown = shown[:_MOST_EDGES]
    lines = {**dict.fromkeys(near), **{pair: edges[pair][0] for pair in reversed(shown)}}
    at, height = _positions(keys, list(lines))
    left = len(concerned) - len(concerned & set(keys))
    hidden = len(edges) - len(shown)
    note = [
        f"{count(left, 'more tool')}" if left else "",
        f"{count(hidden, 'more arrow')}" if hidden else "",
    ]
    parts = [*caption, *_legend({*tools.values(), *lines.values()})]
    if any(note):
        parts.append(
            _text(
                _MARGIN,
                height - 12,
                "Not shown: " + " and ".join(part for part in note if part) + ".",
                colour="#4d5661",
            )
        )
    parts += [_arrow(at[s], at[t], change) for (s, t), change in lines.items()]
    old = {new: key for key, new in diff["tools"].get("renamed", ())}
    parts += [_tool(at[key], key, tools.get(key), old.get(key)) for key in keys]
    return _svg(height, parts)


def data_url(svg: str) -> str:
    """The image as an address that holds it, for where an image must be named by address."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


# --- what is shown --------------------------------------------------------------------------------


def _tool_changes(diff: Mapping[str, Any]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for change in reversed(_TOOLS):
        for tool in diff["tools"].get(change, ()):
            changes[tool if change != "renamed" else tool[1]] = change
    return changes


def _edge_changes(diff: Mapping[str, Any]) -> dict[Pair, tuple[str, float]]:
    """(change, its size) by pair, the greatest first; one change for all kinds of a pair."""
    changes: dict[Pair, tuple[str, float]] = {}
    for change in reversed(_EDGES):
        for source, target, _, *counts in diff["edges"][change]:
            size = abs(np.log((counts[1] + 1) / (counts[0] + 1))) if counts else 1.0
            changes[source, target] = (change, float(size))
    order = sorted(
        changes, key=lambda pair: (_EDGES.index(changes[pair][0]), -changes[pair][1], pair)
    )
    return {pair: changes[pair] for pair in order}


def _chosen(
    tools: Mapping[str, str], edges: Mapping[Pair, tuple[str, float]], most: int
) -> set[str]:
    """Tools that changed, then the ends of edges, those first that hang on what is chosen."""
    order = sorted(tools, key=lambda key: (_TOOLS.index(tools[key]), key))
    keys = set(order[: most if not edges else most * 3 // 4])
    left = list(edges)
    while left:
        fits = [pair for pair in left if len({*pair} - keys) <= most - len(keys)]
        if not fits:
            break
        pair = min(fits, key=lambda pair: len({*pair} - keys))
        keys |= {*pair}
        left = [other for other in left if not {*other} <= keys]
    return keys


def _unchanged(
    summary: pl.DataFrame | None, keys: set[str], edges: Mapping[Pair, object], most: int
) -> list[Pair]:
    """Edges as before: the strongest among the tools shown, and of tools that have none."""
    if summary is None:
        return []
    rows = (
        summary.filter(pl.col("source").is_in(sorted(keys)) | pl.col("target").is_in(sorted(keys)))
        .filter(pl.col("source") != pl.col("target"))
        .group_by("source", "target")
        .agg(pl.col("num_seen").sum())
        .sort(["num_seen", "source", "target"], descending=[True, False, False])
    )
    linked = {end for pair in edges if {*pair} <= keys for end in pair}
    inside: list[Pair] = []
    outside: list[Pair] = []
    guests: set[str] = set()
    for source, target, _ in rows.iter_rows():
        pair, others = (source, target), {source, target} - keys
        if pair in edges:
            continue
        if not others:
            inside.append(pair)
            linked |= {*pair}
        elif not ({*pair} & keys) & linked and len(keys | guests | others) <= most:
            outside.append(pair)
            linked |= {*pair}
            guests |= others
    return inside[: _MOST_EDGES // 3] + outside


# --- where and how --------------------------------------------------------------------------------


def _names(key: str) -> list[str]:
    """The name without its namespace, in at most two lines."""
    name = key.partition("/")[2] or key
    if len(name) <= _LINE:
        return [name]
    cut = max(name.rfind(mark, 8, _LINE) for mark in "_-. ") + 1 or _LINE
    rest = name[cut:]
    return [name[:cut], rest if len(rest) <= _LINE else rest[: _LINE - 1] + "…"]


def _positions(keys: list[str], pairs: list[Pair]) -> tuple[dict[str, tuple[float, float]], int]:
    """Places of the tools in the picture, and its height."""
    index = {key: i for i, key in enumerate(keys)}
    rows = np.array([(index[s], index[t]) for s, t in pairs], dtype=np.int64).reshape(-1, 2)
    where = place(keys, rows, np.ones(len(rows)), seed=0, cell=(110.0, 62.0))
    room = float(WIDTH - 2 * _MARGIN)
    sizes = np.array([(max(map(len, _names(key))) * _LETTER + 16, 58.0) for key in keys])
    low, high = (where - sizes / 2).min(axis=0), (where + sizes / 2).max(axis=0)
    where = (where - low) * min(1.25, room / (high[0] - low[0]))
    where[:, 0] += (room - np.ptp(where[:, 0])) / 2 - where[:, 0].min()
    where[:, 0] = np.clip(where[:, 0], sizes[:, 0] / 2, room - sizes[:, 0] / 2)
    where = separate(where, sizes, width=room)
    where[:, 1] += _TOP + 26 - where[:, 1].min()
    where[:, 0] += _MARGIN
    height = int(where[:, 1].max()) + 72
    return {key: (float(x), float(y)) for key, (x, y) in zip(keys, where, strict=True)}, height


def _svg(height: int, parts: list[str]) -> str:
    heads = "".join(
        f'<marker id="head-{name or "same"}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" '
        f'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{look[0]}"/></marker>'
        for name, look in _LOOKS.items()
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, DejaVu Sans, sans-serif">',
            f"<defs>{heads}</defs>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>",
        ]
    )


def _text(
    x: float, y: float, text: str, *, size: int = 12, colour: str = "#1b1f24", more: str = ""
) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}"{more}'
    return f"<text {place}>{escape(text)}</text>"


def _caption(diff: Mapping[str, Any]) -> list[str]:
    tools, edges = diff["tools"], diff["edges"]
    old = (diff["from"] or "nothing")[:12]
    counts = (
        f"Tools: {len(tools['added']):,} came, {len(tools['removed']):,} went, "
        f"{len(tools['changed']):,} changed, {len(tools.get('renamed', ())):,} renamed.   "
        f"Edges: {len(edges['added']):,} came, {len(edges['removed']):,} went, "
        f"{len(edges['strengthened']):,} seen more often, {len(edges['weakened']):,} less often."
    )
    title = f"Tool graph {old} → {diff['to'][:12]}"
    return [
        _text(_MARGIN, 30, title, size=18, more=' font-weight="600"'),
        _text(_MARGIN, 52, counts, size=13),
    ]


def _legend(changes: set[str | None]) -> list[str]:
    parts, x = [], float(_MARGIN)
    for change, (colour, dashes, sign, word) in _LOOKS.items():
        if change not in changes:
            continue
        parts.append(
            f'<line x1="{x:.0f}" y1="74" x2="{x + 30:.0f}" y2="74" stroke="{colour}" '
            f'stroke-width="3" stroke-dasharray="{dashes}"/>'
        )
        parts.append(_text(x + 36, 78, f"{sign} {word}".strip()))
        x += 36 + (len(word) + 2) * _LETTER + 22
    return parts


def _arrow(start: tuple[float, float], end: tuple[float, float], change: str | None) -> str:
    """A slight curve, so that both directions of a pair can be told apart."""
    colour, dashes, _, _ = _LOOKS[change]
    a, b = np.array(start), np.array(end)
    along = (b - a) / max(float(np.hypot(*(b - a))), 1e-9)
    across = np.array([-along[1], along[0]])
    length = float(np.hypot(*(b - a)))
    (x1, y1), (x2, y2) = a + along * 11, b - along * 13
    cx, cy = (a + b) / 2 + across * length * 0.09
    wide = 1.2 if change is None else 2.4
    return (
        f'<path d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" fill="none" '
        f'stroke="{colour}" stroke-width="{wide}" stroke-dasharray="{dashes}" '
        f'marker-end="url(#head-{change or "same"})"/>'
    )


def _tool(at: tuple[float, float], key: str, change: str | None, old: str | None) -> str:
    colour, dashes, sign, _ = _LOOKS[change]
    x, y = at
    hover = f"{key}, was {old}" if old else key
    filled = "#ffffff" if change == "removed" else colour
    parts = [
        f"<g><title>{escape(hover)}</title>"
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{9 if change else 6}" fill="{filled}" '
        f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
    ]
    middle = ' text-anchor="middle"'
    if change:
        ink = colour if change == "removed" else "#ffffff"
        parts.append(_text(x, y + 5, sign, size=14, colour=ink, more=middle + ' font-weight="700"'))
    halo = middle + ' paint-order="stroke" stroke="#ffffff" stroke-width="3"'
    lines = _names(key)
    if old:
        lines = [lines[0], f"was {_names(old)[0]}"]
    parts += [_text(x, y + 23 + 13 * i, line, more=halo) for i, line in enumerate(lines)]
    return "".join([*parts, "</g>"])
