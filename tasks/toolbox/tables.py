"""Tools for tables: CSV files with a header line."""

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tasks.errors import ToolRefused
from tasks.toolbox import drawing
from tasks.toolbox.sandbox import Sandbox
from tasks.toolbox.types import (
    MAX_TEXT,
    AnswerResult,
    ImageResult,
    TableFile,
    TableResult,
    TextResult,
)

MAX_CELLS = 1_000_000
"""Cells of one table."""
MAX_BARS = 40
"""Bars of one chart."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table in memory.

    Attributes:
        name: What messages call it.
        columns: Their names, each once.
        rows: Cells as text, one a column.
    """

    name: str
    columns: tuple[str, ...]
    rows: list[list[str]]

    def index(self, column: str) -> int:
        """Where a column stands.

        Raises:
            ToolRefused: There is no such column.
        """
        if column not in self.columns:
            raise ToolRefused(
                f"{self.name} has no column {column!r}; its columns are {', '.join(self.columns)}."
            )
        return self.columns.index(column)


def filter_rows(
    box: Sandbox,
    table: Annotated[TableFile, Field(description="The table to filter.")],
    column: Annotated[str, Field(description="Name of the column to compare.")],
    value: Annotated[str, Field(description="The value that the column must have.")],
) -> TableResult:
    """Keep the rows of a table whose column equals a value, in upper or lower case."""
    found = read_table(box, table)
    index, wanted = found.index(column), value.strip().casefold()
    rows = [row for row in found.rows if row[index].strip().casefold() == wanted]
    return {"table": _keep(box, "filter", found.columns, rows)}


def sort_rows(
    box: Sandbox,
    table: Annotated[TableFile, Field(description="The table to sort.")],
    column: Annotated[str, Field(description="Name of the column to sort by.")],
    descending: Annotated[bool, Field(description="Whether the largest comes first.")] = False,
) -> TableResult:
    """Put the rows of a table in the order of a column: by number, or else by alphabet."""
    found = read_table(box, table)
    index = found.index(column)
    filled = [row for row in found.rows if row[index].strip()]
    empty = [row for row in found.rows if not row[index].strip()]
    numbers = [_number(row[index]) for row in filled]
    if all(number is not None for number in numbers):
        filled.sort(key=lambda row: _number(row[index]) or 0.0, reverse=descending)
    else:
        filled.sort(key=lambda row: row[index].strip().casefold(), reverse=descending)
    return {"table": _keep(box, "sort", found.columns, filled + empty)}


def summarize_column(
    box: Sandbox,
    table: Annotated[TableFile, Field(description="The table that has the column.")],
    column: Annotated[str, Field(description="Name of the column.")],
    how: Annotated[
        Literal["sum", "mean", "min", "max", "count"],
        Field(description="Which number to give; count is the number of filled cells."),
    ],
) -> AnswerResult:
    """Give the sum, mean, smallest or largest number of a table's column, or count its values."""
    found = read_table(box, table)
    if how == "count":
        index = found.index(column)
        return {"answer": str(sum(1 for row in found.rows if row[index].strip()))}
    numbers = read_numbers(found, column)
    if not numbers:
        raise ToolRefused(f"The column {column!r} of {table} holds no number.")
    match how:
        case "sum":
            result = math.fsum(numbers)
        case "mean":
            result = math.fsum(numbers) / len(numbers)
        case "min":
            result = min(numbers)
        case "max":
            result = max(numbers)
    return {"answer": f"{result:.15g}"}


def join_tables(
    box: Sandbox,
    left: Annotated[TableFile, Field(description="The table whose columns come first.")],
    right: Annotated[TableFile, Field(description="The table whose columns are added.")],
    column: Annotated[str, Field(description="Name of the column that both tables have.")],
) -> TableResult:
    """Join two tables on a column that both have: rows with the same value stand side by side."""
    first, second = read_table(box, left), read_table(box, right)
    here, there = first.index(column), second.index(column)
    added = [i for i in range(len(second.columns)) if i != there]
    columns = list(first.columns)
    for name in (second.columns[i] for i in added):
        while name in columns:
            name += "_right"
        columns.append(name)
    partners: dict[str, list[list[str]]] = {}
    for row in second.rows:
        partners.setdefault(row[there].strip(), []).append(row)
    counts = Counter(row[here].strip() for row in first.rows)
    size = sum(count * len(partners.get(key, ())) for key, count in counts.items())
    _check_size("the joined table", size, len(columns))
    rows = [
        [*row, *(other[i] for i in added)]
        for row in first.rows
        for other in partners.get(row[here].strip(), ())
    ]
    return {"table": _keep(box, "join", columns, rows)}


def table_to_text(
    box: Sandbox,
    table: Annotated[TableFile, Field(description="The table to write out.")],
) -> TextResult:
    """Write a table out as readable text with aligned columns."""
    found = read_table(box, table)
    lines = [list(found.columns), *found.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(found.columns))]
    if (sum(widths) + 2 * len(widths)) * len(lines) > MAX_TEXT:
        raise ToolRefused(f"{table} is too large to write out; filter its rows first.")
    padded = (
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return {"text": "\n".join(padded)}


def draw_chart(
    box: Sandbox,
    table: Annotated[TableFile, Field(description="The table that has both columns.")],
    labels: Annotated[str, Field(description="Name of the column with the names of the bars.")],
    values: Annotated[str, Field(description="Name of the column with the numbers.")],
) -> ImageResult:
    """Draw a bar chart of a table: a bar a row, as long as the number in a column."""
    found = read_table(box, table)
    names, index = found.index(labels), found.index(values)
    rows = [row for row in found.rows if row[index].strip()]
    numbers = read_numbers(found, values)
    if not 1 <= len(rows) <= MAX_BARS:
        raise ToolRefused(
            f"Expected 1 to {MAX_BARS} numbers in the column {values!r} of {table}, got "
            f"{len(rows)}; filter the rows first."
        )
    bars = [(row[names].strip(), number) for row, number in zip(rows, numbers, strict=True)]
    return {"image": box.keep("chart", ".png", drawing.png_bytes(drawing.chart(values, bars)))}


def read_table(box: Sandbox, path: str) -> Table:
    """A table of the sandbox.

    Raises:
        ToolRefused: It is no table, too large, or its lines have unequal numbers of cells.
    """
    try:
        text = box.read(path, "table").decode("utf-8-sig")
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        columns = tuple(name.strip() for name in next(lines, ()))
        if not columns or "" in columns or len(set(columns)) < len(columns):
            raise ToolRefused(
                f"Expected a first line with a different name for each column in {path}, got "
                f"{', '.join(columns)[:200]!r}."
            )
        rows: list[list[str]] = []
        for row in lines:
            if len(row) == len(columns):
                rows.append(row)
            elif row:  # an empty line is no row
                raise ToolRefused(
                    f"Expected {len(columns)} cells in line {lines.line_num} of {path}, got "
                    f"{len(row)}."
                )
    except (csv.Error, UnicodeDecodeError) as error:
        raise ToolRefused(f"Expected a table in UTF-8 in {path}, got: {error}.") from None
    _check_size(path, len(rows), len(columns))
    return Table(path, columns, rows)


def read_numbers(table: Table, column: str) -> list[float]:
    """The numbers of a column; empty cells are passed over.

    Raises:
        ToolRefused: There is no such column, or it holds something else.
    """
    index = table.index(column)
    numbers = []
    for row in table.rows:
        if row[index].strip():
            number = _number(row[index])
            if number is None:
                raise ToolRefused(
                    f"Expected numbers in the column {column!r} of {table.name}, got "
                    f"{row[index][:100]!r}."
                )
            numbers.append(number)
    return numbers


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None


def _check_size(name: str, rows: int, columns: int) -> None:
    if rows * columns > MAX_CELLS:
        raise ToolRefused(
            f"{name} has {rows:,} rows of {columns} cells; at most {MAX_CELLS:,} cells are handled."
        )


def _keep(box: Sandbox, label: str, columns: Sequence[str], rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return box.keep(label, ".csv", text.getvalue().encode())
