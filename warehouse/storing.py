"""Staged records into the tables: what is new, what is known, what replaces what.

Everything here runs inside the caller's transaction.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

import duckdb
import msgspec
import polars as pl

from warehouse.connection import utc_now
from warehouse.identity import CallForm, Form, digest, supersedes
from warehouse.linking import Key, groups_of
from warehouse.records import DeclaredEdge, Rejected, ToolRecord
from warehouse.redact import redact_text, storable
from warehouse.staging import Staged, Told, encoded, read_events

RAW_LIMIT = 1_000_000
"""Characters of a quarantined record that are kept."""

_Schema = dict[str, pl.DataType | type[pl.DataType]]

_TRAJECTORY: _Schema = {
    "number": pl.Int64,
    "trajectory_id": pl.String,
    "source": pl.String,
    "native_id": pl.String,
    "content_hash": pl.String,
    "richness": pl.String,
    "request": pl.String,
    "split": pl.String,
    "links_kind": pl.String,
    "started_at": pl.Datetime("us"),
    "format": pl.String,
    "num_calls": pl.Int32,
    "meta": pl.String,
    "conversation": pl.String,
    "assembled_from": pl.String,
    "flags": pl.String,
    "orphans": pl.String,
}
_CALL: _Schema = {
    "position": pl.Int32,
    "turn": pl.Int32,
    "name": pl.String,
    "call_id": pl.String,
    "arguments_raw": pl.String,
    "arguments_state": pl.String,
    "result_hash": pl.String,
    "result_size": pl.Int64,
    "status": pl.String,
    "error": pl.String,
    "started_at": pl.Int64,
    "ended_at": pl.Int64,
    "parent": pl.Int32,
    "attempts": pl.Int32,
    "uid": pl.String,
    "flags": pl.String,
    "result": pl.String,
}
_LINK: _Schema = {
    "number": pl.Int64,
    "trajectory_id": pl.String,
    "source_position": pl.Int32,
    "target_position": pl.Int32,
    "kind": pl.String,
}
_TOOL: _Schema = {
    "namespace": pl.String,
    "name": pl.String,
    "contract_hash": pl.String,
    "description": pl.String,
    "parameters": pl.String,
    "input_types": pl.String,
    "output_types": pl.String,
    "status": pl.String,
    "delivery": pl.Int64,
}
_QUARANTINE: _Schema = {
    "quarantine_id": pl.String,
    "source": pl.String,
    "path": pl.String,
    "place": pl.String,
    "format": pl.String,
    "reason": pl.String,
    "raw": pl.String,
    "created_at": pl.Datetime("us"),
}

_INSERT_CALLS = (
    "insert into call by name select * exclude (started_at, ended_at), "
    "make_timestamp_ns(started_at) as started_at, make_timestamp_ns(ended_at) as ended_at "
    "from staged"
)


def _frame(rows: Sequence[Sequence[Any]], schema: _Schema) -> pl.DataFrame:
    """Rows as columns: much faster than polars' own way from rows."""
    columns = zip(*rows, strict=True)
    return pl.DataFrame(
        [
            pl.Series(name, column, dtype=dtype)
            for (name, dtype), column in zip(schema.items(), columns, strict=True)
        ]
    )


# --- trajectories told whole ----------------------------------------------------------------------


def store_whole(
    con: duckdb.DuckDBPyConnection, staged: list[Staged], source: str
) -> dict[str, Counter[str]]:
    """Add what is new, replace what is told more fully now; counts by outcome."""
    counts = {"trajectories": Counter[str](), "calls": Counter[str]()}
    if not staged:
        return counts

    def count(outcome: str, num_calls: int) -> None:
        counts["trajectories"][outcome] += 1
        counts["calls"][outcome] += num_calls

    con.register(
        "staged_key",
        pl.DataFrame(
            {
                "trajectory_id": [row.trajectory_id for row in staged],
                "native_id": [row.record.native_id for row in staged],
            },
            schema={"trajectory_id": pl.String, "native_id": pl.String},
        ),
    )
    stored = {
        row[0]
        for row in con.execute(
            "select k.trajectory_id from staged_key k join trajectory t using (trajectory_id)"
        ).fetchall()
    }
    forms = _stored_forms(con, source)
    con.unregister("staged_key")
    keep: dict[str, Staged] = {}
    by_key: dict[str, list[str]] = {}
    replaced: list[str] = []
    for row in staged:
        size = len(row.calls)
        if row.trajectory_id in stored or row.trajectory_id in keep:
            count("duplicate", size)
            continue
        native_id = row.record.native_id
        if native_id is None:
            keep[row.trajectory_id] = row
            count("new", size)
            continue
        rivals: list[tuple[str, Form]] = list(forms.get(native_id, {}).items())
        rivals += [(i, keep[i].form) for i in by_key.get(native_id, []) if i in keep]
        if rivals:
            form = row.form
            if any(supersedes(rival, form) for _, rival in rivals):
                count("duplicate", size)
                continue
            beaten = [i for i, rival in rivals if supersedes(form, rival)]
        else:
            beaten = []
        for trajectory_id in beaten:
            if keep.pop(trajectory_id, None) is None:
                replaced.append(trajectory_id)
                forms[native_id].pop(trajectory_id)
        keep[row.trajectory_id] = row
        by_key.setdefault(native_id, []).append(row.trajectory_id)
        count("updated" if beaten else "new", size)
    delete_trajectories(con, replaced)
    append_trajectories(con, list(keep.values()), source)
    return counts


def _stored_forms(con: duckdb.DuckDBPyConnection, source: str) -> dict[str, dict[str, Form]]:
    """Stored forms of the staged native ids, by native id and trajectory id."""
    heads = con.execute(
        "select t.native_id, t.trajectory_id, t.content_hash, t.request, t.richness, t.started_at "
        "from trajectory t where t.source = ? and t.assembled_from is null and t.native_id in "
        "(select native_id from staged_key k where not exists "
        "(select 1 from trajectory x where x.trajectory_id = k.trajectory_id))",
        [source],
    ).fetchall()
    if not heads:
        return {}
    con.register("wanted", pl.DataFrame({"trajectory_id": [head[1] for head in heads]}))
    calls: dict[str, list[CallForm]] = {}
    for trajectory_id, *call in con.execute(
        "select c.trajectory_id, c.name, c.arguments_raw, c.status, c.result_hash, c.call_id "
        "from call c join wanted using (trajectory_id) order by c.trajectory_id, c.position"
    ).fetchall():
        calls.setdefault(trajectory_id, []).append((call[0], call[1], call[2], call[3], call[4]))
    con.unregister("wanted")
    forms: dict[str, dict[str, Form]] = {}
    for native_id, trajectory_id, content_hash, request, richness, started_at in heads:
        forms.setdefault(native_id, {})[trajectory_id] = Form(
            content_hash,
            request,
            tuple(calls.get(trajectory_id, ())),
            tuple(msgspec.json.decode(richness)),
            started_at,
        )
    return forms


def delete_trajectories(con: duckdb.DuckDBPyConnection, trajectory_ids: Sequence[str]) -> None:
    """Remove trajectories with their calls and links, and so with exactly their own evidence."""
    if not trajectory_ids:
        return
    con.register("unwanted_key", pl.DataFrame({"trajectory_id": list(trajectory_ids)}))
    numbers = con.execute(
        "select number from trajectory semi join unwanted_key using (trajectory_id)"
    )
    # By number: a range of rows is looked at, and not every id of every call.
    con.register("unwanted", numbers.pl())
    con.unregister("unwanted_key")
    for statement in (
        "insert into disturbed select number from unwanted",
        "insert into former_trajectory select trajectory_id, source, native_id, format, "
        "assembled_from from trajectory semi join unwanted using (number)",
        # Executions that others tell of too now count there.
        "insert into disturbed select distinct number from call where (namespace, uid) in "
        "(select (namespace, uid) from call where uid is not null "
        "and number in (select number from unwanted))",
        "delete from link where number in (select number from unwanted)",
        "delete from call where number in (select number from unwanted)",
        "delete from trajectory where number in (select number from unwanted)",
    ):
        con.execute(statement)
    con.unregister("unwanted")


def append_trajectories(
    con: duckdb.DuckDBPyConnection, staged: Sequence[Staged], source: str
) -> None:
    """Add trajectories with their calls and links."""
    if not staged:
        return
    numbers = [
        row[0]
        for row in con.execute(
            "select nextval('trajectory_number') from range(?)", [len(staged)]
        ).fetchall()
    ]
    trajectories = [
        (
            number,
            row.trajectory_id,
            source,
            row.record.native_id,
            row.content_hash,
            encoded(list(row.richness)),
            row.record.request,
            row.record.split,
            row.record.links_kind,
            row.record.started_at,
            row.format,
            len(row.calls),
            row.meta,
            row.record.conversation,
            row.assembled_from,
            encoded(list(row.record.flags)) if row.record.flags else None,
            encoded(row.record.orphans) if row.record.orphans else None,
        )
        for number, row in zip(numbers, staged, strict=True)
    ]
    _insert(con, "insert into trajectory by name select * from staged", trajectories, _TRAJECTORY)
    calls = [call for row in staged for call in row.calls]
    if calls:
        ids = [row.trajectory_id for row in staged for _ in row.calls]
        of_calls = [n for n, row in zip(numbers, staged, strict=True) for _ in row.calls]
        frame = _frame(calls, _CALL).with_columns(
            pl.Series("number", of_calls, dtype=pl.Int64),
            pl.Series("trajectory_id", ids, dtype=pl.String),
            pl.lit(source).alias("namespace"),
        )
        con.register("staged", frame)
        con.execute(_INSERT_CALLS)
        con.execute(
            "insert into called_name (select distinct namespace, name from staged) except "
            "select namespace, name from called_name"
        )
        con.unregister("staged")
    links = [
        (number, row.trajectory_id, *link)
        for number, row in zip(numbers, staged, strict=True)
        for link in row.links
    ]
    _insert(con, "insert into link by name select * from staged", links, _LINK)


def _insert(
    con: duckdb.DuckDBPyConnection, statement: str, rows: Sequence[Sequence[Any]], schema: _Schema
) -> None:
    if rows:
        con.register("staged", _frame(rows, schema))
        con.execute(statement)
        con.unregister("staged")


# --- conversations told in pieces -----------------------------------------------------------------


def known_conversations(
    con: duckdb.DuckDBPyConnection, keys: Iterable[Key], source: str
) -> set[Key]:
    """Those of which something is stored already."""
    rows = [(format, conversation) for format, conversation in keys]
    if not rows:
        return set()
    con.register("wanted", _frame(rows, {"format": pl.String, "conversation": pl.String}))
    found = con.execute(
        "select distinct f.format, f.conversation from fragment f "
        "join wanted w using (format, conversation) where f.source = ?",
        [source],
    ).fetchall()
    con.unregister("wanted")
    return set(found)


def append_fragments(con: duckdb.DuckDBPyConnection, told: dict[Key, Told], source: str) -> None:
    """Add the events of conversations, one row each."""
    rows = [
        (source, format, conversation, len(one.events), len(text), text)
        for (format, conversation), one in told.items()
        for text in (one.to_text(),)
    ]
    _insert(
        con,
        "insert into fragment by name select * from staged",
        rows,
        {
            "source": pl.String,
            "format": pl.String,
            "conversation": pl.String,
            "num_events": pl.Int32,
            "size": pl.Int64,
            "events": pl.String,
        },
    )


def append_aliases(
    con: duckdb.DuckDBPyConnection, aliases: dict[Key, set[str]], source: str
) -> None:
    """Remember other names of conversations."""
    rows = [
        (source, format, conversation, storable(alias))
        for (format, conversation), names in aliases.items()
        for alias in sorted(names)
    ]
    _insert(
        con,
        "insert into fragment_alias by name select * from staged except "
        "select * from fragment_alias",
        rows,
        {
            "source": pl.String,
            "format": pl.String,
            "conversation": pl.String,
            "alias": pl.String,
        },
    )


def linked_conversations(
    con: duckdb.DuckDBPyConnection, keys: Sequence[Key], source: str
) -> dict[Key, list[Key]]:
    """These and all that share a name with them, over any number of others; the least leads."""
    asked: set[Key] = set()
    reached = set(keys)
    names: set[tuple[Key, str]] = set()
    while ask := sorted(reached - asked):
        asked.update(ask)
        con.register("wanted", _frame(ask, {"format": pl.String, "conversation": pl.String}))
        rows = con.execute(
            "select distinct b.format, b.conversation, b.alias from fragment_alias a "
            "join wanted w using (format, conversation) "
            "join fragment_alias b on b.source = a.source and b.format = a.format "
            "and b.alias = a.alias where a.source = ?",
            [source],
        ).fetchall()
        con.unregister("wanted")
        names.update(((format, conversation), alias) for format, conversation, alias in rows)
        reached.update((format, conversation) for format, conversation, _ in rows)
    return groups_of(keys, sorted(names))


def mark_pending(con: duckdb.DuckDBPyConnection, keys: Iterable[Key], source: str) -> None:
    """Remember that these conversations have to be assembled again."""
    rows = [(source, format, conversation) for format, conversation in keys]
    _insert(
        con,
        "insert into pending by name select * from staged",
        rows,
        {"source": pl.String, "format": pl.String, "conversation": pl.String},
    )


def pending_conversations(con: duckdb.DuckDBPyConnection, source: str, max_size: int) -> list[Key]:
    """Some conversations to assemble again, of about as many characters in all; [] when done."""
    rows = con.execute(
        "with waiting as (select distinct source, format, conversation from pending "
        "where source = ?), sized as (select w.format, w.conversation, sum(f.size) as size "
        "from waiting w join fragment f using (source, format, conversation) group by all) "
        "select format, conversation from sized "
        "qualify coalesce(sum(size) over (order by format, conversation "
        "rows between unbounded preceding and 1 preceding), 0) < ? "
        "order by format, conversation",
        [source, max_size],
    ).fetchall()
    return [(format, conversation) for format, conversation in rows]


def merge_fragments(
    con: duckdb.DuckDBPyConnection, keys: Sequence[Key], source: str
) -> tuple[dict[Key, Told], set[Key]]:
    """All events of each conversation, made one row again; and those that learnt something."""
    con.register("wanted", _frame(keys, {"format": pl.String, "conversation": pl.String}))
    places = con.execute(
        "select f.rowid from fragment f join wanted w using (format, conversation) "
        "where f.source = ?",
        [source],
    ).fetchall()
    con.unregister("wanted")
    con.register(
        "place", pl.DataFrame({"row_id": [row[0] for row in places]}, schema={"row_id": pl.Int64})
    )
    low, high = min(places)[0], max(places)[0]
    rows = con.execute(
        "select f.format, f.conversation, f.events from fragment f "
        "where f.rowid between ? and ? and f.rowid in (select row_id from place) order by f.rowid",
        [low, high],
    ).fetchall()
    whole: dict[Key, Told] = {}
    learnt: set[Key] = set()
    for format, conversation, text in rows:
        key = (format, conversation)
        told = read_events(text)
        if key not in whole:
            whole[key] = told
        elif told.events.keys() - whole[key].events.keys():
            whole[key].events.update(told.events)
            learnt.add(key)
    con.execute("delete from fragment where rowid in (select row_id from place)")
    con.unregister("place")
    append_fragments(con, whole, source)
    con.register("wanted", _frame(keys, {"format": pl.String, "conversation": pl.String}))
    con.execute(
        "delete from pending where source = ? and "
        "(format, conversation) in (select (format, conversation) from wanted)",
        [source],
    )
    con.unregister("wanted")
    return whole, learnt


def replace_assembled(
    con: duckdb.DuckDBPyConnection,
    staged: Sequence[Staged],
    groups: dict[Key, list[Key]],
    source: str,
) -> set[Key]:
    """Make these the trajectories of the conversations; those where something changed.

    ``groups`` are the conversations each is made of, by the one that leads.
    """
    leader = {key: lead for lead, keys in groups.items() for key in keys}
    con.register("wanted", _frame(list(leader), {"format": pl.String, "assembled_from": pl.String}))
    stored: dict[Key, dict[str, str]] = {}
    for format, conversation, trajectory_id, content in con.execute(
        "select t.format, t.assembled_from, t.trajectory_id, t.content_hash from trajectory t "
        "join wanted using (format, assembled_from) where t.source = ?",
        [source],
    ).fetchall():
        stored.setdefault(leader[format, conversation], {})[trajectory_id] = content
    con.unregister("wanted")
    told: dict[Key, list[Staged]] = {key: [] for key in groups}
    for one in staged:
        told[(one.format, one.assembled_from or "")].append(one)
    changed = {
        key
        for key, ones in told.items()
        if stored.get(key, {}) != {one.trajectory_id: one.content_hash for one in ones}
    }
    delete_trajectories(con, [i for key in changed for i in stored.get(key, {})])
    append_trajectories(con, [one for key in told if key in changed for one in told[key]], source)
    return changed


# --- tools, declared edges, quarantine ------------------------------------------------------------


def store_tools(
    con: duckdb.DuckDBPyConnection, tools: list[ToolRecord], source: str, delivery: int
) -> Counter[str]:
    """Contracts that are new or changed; counts by outcome.

    Within one delivery the fullest contract of a name counts, and of equally full ones the one with
    the greatest hash, so that the order of records does not matter. A mere mention (a name with a
    description, as spans carry it) never overrules a contract with parameters.
    """
    counts: Counter[str] = Counter()
    if not tools:
        return counts
    namespaces = {_namespace(tool, source) for tool in tools}
    current = {
        (namespace, name): (delivered, (parameters != "[]", contract), status)
        for namespace, name, delivered, contract, parameters, status in con.execute(
            "select namespace, name, delivery, contract_hash, parameters, status "
            "from tool_version where list_contains(?, namespace) qualify row_number() over "
            "(partition by namespace, name order by delivery desc, parameters <> '[]' desc, "
            "contract_hash desc) = 1",
            [sorted(namespaces)],
        ).fetchall()
    }
    rows = []
    for tool in tools:
        row = tool_row(_namespace(tool, source), tool, delivery)
        key, contract, status = (row[0], row[1]), (row[4] != "[]", row[2]), row[7]
        old = current.get(key)
        if old:
            is_same = old[1:] == (contract, status)
            is_mention = old[1][0] and not contract[0]
            if is_same or is_mention or (old[0] == delivery and old[1] > contract):
                counts["duplicate"] += 1
                continue
        counts["updated" if old else "new"] += 1
        current[key] = (delivery, contract, status)
        rows.append(row)
    append_tools(con, rows, source)
    return counts


def _namespace(tool: ToolRecord, source: str) -> str:
    """Of the server that the record names, else of the source; a slash parts it from the name."""
    return storable(tool.namespace or source).replace("/", "-")


def append_tools(
    con: duckdb.DuckDBPyConnection, rows: list[list[Any]], source: str | None = None
) -> None:
    """Add rows of ``tool_row`` to tool_version, and when and from where they came."""
    if rows:
        con.register("staged", _frame(rows, _TOOL))
        con.execute("insert into tool_version by name select * from staged")
        con.execute(
            "insert into catalogue_delivery select distinct namespace, delivery, ?, ? "
            "from staged s where not exists (select 1 from catalogue_delivery d "
            "where d.namespace = s.namespace and d.delivery = s.delivery)",
            [utc_now(), source],
        )
        con.unregister("staged")


_JSON = json.JSONEncoder(ensure_ascii=False).encode


def _texts(texts: Sequence[str]) -> str:
    """What ``json.dumps`` makes of a list of texts."""
    return f"[{', '.join(map(encode_basestring_ascii, texts))}]"


def tool_row(namespace: str, tool: ToolRecord, delivery: int) -> list[Any]:
    """A row of tool_version."""
    name = storable(tool.name)
    description = storable(redact_text(tool.description))
    parameters = storable(_JSON(list(tool.parameters)))
    inputs, outputs = _texts(tool.input_types), _texts(tool.output_types)
    # What ``identity.digest`` gives for the four texts, at a fraction of the time.
    told = ",".join(map(encode_basestring, (description, parameters, inputs, outputs)))
    contract = hashlib.sha256(f"[{told}]".encode()).hexdigest()[:32]
    contents = (description, parameters, inputs, outputs)
    return [namespace, name, contract, *contents, tool.status, delivery]


def store_edges(con: duckdb.DuckDBPyConnection, edges: list[DeclaredEdge], source: str) -> None:
    """Edges of a tool graph that the source ships."""
    if not edges:
        return
    frame = pl.DataFrame(
        {
            "source": [source] * len(edges),
            "source_name": [storable(edge.source_name) for edge in edges],
            "target_name": [storable(edge.target_name) for edge in edges],
            "type": [storable(edge.type) for edge in edges],
        }
    )
    con.register("staged_edge", frame)
    con.execute(
        "insert into declared_edge select distinct * from staged_edge "
        "except select * from declared_edge"
    )
    con.unregister("staged_edge")


def store_rejected(
    con: duckdb.DuckDBPyConnection,
    rejected: Sequence[Rejected],
    *,
    source: str,
    path: str,
    name: str,
    format: str,
    keep_raw: bool = True,
) -> None:
    """Set records aside with their text; ``name`` is the file's, part of the row's identity."""
    now = utc_now()
    rows = []
    for record in rejected:
        raw = storable(redact_text(record.raw))
        identity = digest(source, name, record.place, record.reason, raw)
        if not keep_raw:
            raw = f"[dropped, {len(raw)} characters]"
        kept = raw if len(raw) <= RAW_LIMIT else f"{raw[:RAW_LIMIT]} [cut, {len(raw)} characters]"
        reason = storable(record.reason)
        rows.append(
            (identity[:16], source, path, storable(record.place), format, reason, kept, now)
        )
    _insert(
        con,
        "insert into quarantine by name select s.* from staged s where not exists "
        "(select 1 from quarantine q where q.quarantine_id = s.quarantine_id)",
        rows,
        _QUARANTINE,
    )
