"""Markdown out of data: whatever a tool is called, it breaks no table and becomes no markup."""

import html
import math
import re
from collections.abc import Iterable, Sequence

_LONGEST = 300
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LINE_START = re.compile(r"^(\d*)([#+\-.)]+)(?=\s|$)")


def escape(text: object, longest: int = _LONGEST) -> str:
    """Any text as one line that shows as it is, cut where it is too long."""
    plain = "".join(c if c.isprintable() else " " for c in str(text))
    line = " ".join(plain.split())
    if len(line) > longest:
        line = line[: longest - 1] + "…"
    line = _MARKUP.sub(lambda found: "\\" + found[0], html.escape(line, quote=False))
    return _LINE_START.sub(r"\1\\\2", line)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table of cells that are Markdown already; after the first ``texts`` columns numbers."""
    sides = [":--"] * texts + ["--:"] * (len(columns) - texts)
    lines = [_row(columns), _row(sides)]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell or ' ' for cell in cells)} |"


def bullets(lines: Iterable[str]) -> str:
    """A list of lines that are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def link(text: object, url: str | None) -> str:
    """The text as a link, or alone where there is no page."""
    return f"[{escape(text)}](<{url}>)" if url else escape(text)


def paragraphs(*parts: str) -> str:
    """Parts that are not empty, one after the other."""
    return "\n\n".join(part for part in parts if part)


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 tool``, ``1,234 tools``."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


def decimal(value: float | None) -> str:
    """Three places; a value that is missing or no number says so."""
    return "no value" if value is None or not math.isfinite(value) else f"{value:.3f}"


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(escape(name) for name in names[:most]) + more
