"""A graph version for other programs: GraphML and node-link JSON, byte for byte repeatable.

Both write one row after the other, so that millions of edges need no more memory than their frame.
"""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from tasks.xml_text import escape

Target = str | Path | BinaryIO
"""A path, or a stream of bytes."""

_EDGE = ["source", "target", "kind"]
_BATCH = 100_000
_JSON_COLUMNS = ("parameters", "input_types", "output_types")


def to_graphml(
    nodes: pl.DataFrame,
    summary: pl.DataFrame,
    target: Target,
    *,
    facts: Mapping[str, str | int] | None = None,
) -> None:
    """GraphML with typed attributes, a directed multigraph.

    Nodes are ``n0``, ``n1``, ... in key order (identifiers take no slash or blank), with every
    column as attribute, ``key`` among them, and ``label``, the name, which viewers show. Edges are
    ``e0``, ``e1``, ... in the order of source, target, kind; several kinds of one pair are parallel
    edges. Days are strings, what is null is left out. Characters that XML cannot carry become
    U+FFFD.

    Args:
        nodes: Of the version.
        summary: Its edges as ``warehouse.evidence.summarise`` tells them.
        target: A path or a stream of bytes.
        facts: Attributes of the graph, as strings.
    """
    nodes, summary = nodes.sort("key"), summary.sort(_EDGE)
    about = pl.DataFrame({name: [str(value)] for name, value in (facts or {}).items()})
    shown = nodes.with_columns(pl.col("name").alias("label"))
    attributes = summary.drop("source", "target")
    number = pl.DataFrame({"key": nodes["key"], "number": range(len(nodes))})
    ends = (
        summary.select("source", "target")
        .join(number.rename({"key": "source", "number": "s"}), on="source", maintain_order="left")
        .join(number.rename({"key": "target", "number": "t"}), on="target", maintain_order="left")
        .select("s", "t")
    )
    with _writer(target) as out:
        out.write(
            b'<?xml version="1.0" encoding="UTF-8"?>\n'
            b'<graphml xmlns="http://graphml.graphdrawing.org/xmlns" '
            b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
            b'xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns '
            b'http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">\n'
        )
        for prefix, frame, of in (
            ("g", about, "graph"),
            ("v", shown, "node"),
            ("w", attributes, "edge"),
        ):
            for i, (name, kind) in enumerate(frame.schema.items()):
                out.write(
                    f'<key id="{prefix}{i}" for="{of}" attr.name="{escape(name)}" '
                    f'attr.type="{_xml_type(kind)}"/>\n'.encode()
                )
        out.write(b'<graph id="tools" edgedefault="directed">\n')
        _write(out, about, [*_xml_data(about, "g"), pl.lit("\n")])
        heads = pl.format('<node id="n{}">', pl.int_range(pl.len()))
        _write(out, shown, [heads, *_xml_data(shown, "v"), pl.lit("</node>\n")])
        wide = attributes.hstack(ends)
        heads = pl.format(
            '<edge id="e{}" source="n{}" target="n{}">', pl.col("row"), pl.col("s"), pl.col("t")
        )
        _write(
            out,
            wide.with_row_index("row"),
            [heads, *_xml_data(attributes, "w"), pl.lit("</edge>\n")],
        )
        out.write(b"</graph>\n</graphml>\n")


def to_json(
    nodes: pl.DataFrame,
    summary: pl.DataFrame,
    target: Target,
    *,
    facts: Mapping[str, str | int] | None = None,
) -> None:
    """Node-link JSON, as ``networkx.node_link_graph(data, edges="edges")`` reads it.

    ``{"directed": true, "multigraph": true, "graph": facts, "nodes": [...], "edges": [...]}``. A
    node's ``id`` is its key; parameters and types are lists, not texts. An edge has ``source``,
    ``target``, ``key`` (its kind, which tells parallel edges apart) and the other columns of the
    summary; days are strings, unknown ones null. One node or edge stands on a line.

    Args:
        nodes: Of the version.
        summary: Its edges as ``warehouse.evidence.summarise`` tells them.
        target: A path or a stream of bytes.
        facts: What ``graph`` says.
    """
    nodes, summary = nodes.sort("key"), summary.sort(_EDGE)
    edges = summary.rename({"kind": "key"})
    with _writer(target) as out:
        about = json.dumps(dict(facts or {}), ensure_ascii=False)
        out.write(f'{{"directed":true,"multigraph":true,"graph":{about},\n"nodes":[\n'.encode())
        out.write(",\n".join(map(_json_node, nodes.iter_rows(named=True))).encode())
        out.write(b'\n],\n"edges":[\n')
        separator = ""
        for part in edges.iter_slices(_BATCH):
            rows = part.select(pl.struct(pl.all()).struct.json_encode()).to_series()
            out.write((separator + ",\n".join(rows)).encode())
            separator = ",\n"
        out.write(b"\n]}\n")


def _json_node(row: dict[str, Any]) -> str:
    node = {"id": row.pop("key"), **row}
    for name in _JSON_COLUMNS:
        if node.get(name) is not None:
            node[name] = json.loads(node[name])
    return json.dumps(node, ensure_ascii=False, separators=(",", ":"), default=str)


def _writer(target: Target) -> Any:
    """A stream to write to; one that was given stays open."""
    if isinstance(target, (str, Path)):
        return Path(target).open("wb")
    return nullcontext(target)


def _write(out: BinaryIO, frame: pl.DataFrame, parts: list[pl.Expr]) -> None:
    """One line a row."""
    line = pl.concat_str(parts)
    for part in frame.iter_slices(_BATCH):
        out.write("".join(part.select(line).to_series()).encode())


def _xml_type(kind: pl.DataType) -> str:
    if kind.is_integer():
        return "long"
    if kind.is_float():
        return "double"
    return "boolean" if kind == pl.Boolean else "string"


def _xml_data(frame: pl.DataFrame, prefix: str) -> list[pl.Expr]:
    """Parts that tell all attributes of a row; nothing for a null."""
    parts = []
    for i, (name, kind) in enumerate(frame.schema.items()):
        whole = [pl.lit(f'<data key="{prefix}{i}">'), _xml_text(name, kind), pl.lit("</data>")]
        has_nulls = frame[name].null_count() > 0
        parts += [pl.concat_str(whole).fill_null("")] if has_nulls else whole
    return parts


def _xml_text(name: str, kind: pl.DataType) -> pl.Expr:
    if kind == pl.String:
        # Names repeat: each is escaped once.
        return pl.col(name).map_batches(_escaped, return_dtype=pl.String)
    if kind == pl.Boolean:
        return pl.when(pl.col(name)).then(pl.lit("true")).otherwise(pl.lit("false"))
    return pl.col(name).cast(pl.String)


def _escaped(texts: pl.Series) -> pl.Series:
    used = texts.drop_nulls().unique()
    return texts.replace(used, pl.Series([escape(text) for text in used], dtype=pl.String))
