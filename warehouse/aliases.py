"""Names of tools: renames that carry everything along, and tools that are taken out of use.

A rename is a row, not a rewrite: calls, plans and models keep the old name and are read under the
new one, so that it can be taken back.
"""

import difflib
from typing import Any

import duckdb

from warehouse.connection import query, transaction, utc_now
from warehouse.errors import UnknownTool, WrongRename
from warehouse.redact import storable

Key = tuple[str, str]
"""(namespace, name) of a tool."""


def renames(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The last key of every tool that was renamed, by its old key."""
    rows = con.execute(
        "select namespace || '/' || name, target_namespace || '/' || target_name from tool_rename"
    ).fetchall()
    return dict(rows)


def withdrawn(con: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Keys of the tools that no planner may offer now: removed, or deprecated."""
    rows = con.execute(
        "select namespace || '/' || name from current_tool where status <> 'active' union "
        "select coalesce(r.target_namespace, m.namespace) || '/' "
        "|| coalesce(r.target_name, m.name) from tool_mark m "
        "left join tool_rename r using (namespace, name)"
    ).fetchall()
    return frozenset(row[0] for row in rows)


def find_tool(con: duckdb.DuckDBPyConnection, text: str) -> Key:
    """The tool that ``namespace/name``, or a name that only one tool has, stands for.

    Raises:
        UnknownTool: No tool has that name, or several have; the message lists them.
    """
    known = _known(con)
    whole = [key for key in known if f"{key[0]}/{key[1]}" == text]
    plain = [key for key in known if key[1] == text]
    found = whole or plain
    if len(found) == 1:
        return found[0]
    if found:
        keys = ", ".join(sorted(f"{namespace}/{name}" for namespace, name in found))
        raise UnknownTool(f"expected one tool, but {text!r} is ambiguous: give one of {keys}.")
    names = {name for _, name in known} | {f"{namespace}/{name}" for namespace, name in known}
    near = difflib.get_close_matches(text, sorted(names), n=3)
    hint = f"; the nearest are {', '.join(near)}" if near else ": see toolatlas catalogue list"
    raise UnknownTool(f"expected the name of a tool, got {text!r}, which none has{hint}.")


def _known(con: duckdb.DuckDBPyConnection) -> set[Key]:
    """Every tool of a catalogue, of a trace, or of a rename."""
    return set(
        con.execute(
            "select namespace, name from tool_version union "
            "select coalesce(m.namespace, c.namespace), coalesce(m.name, c.name) "
            "from called_name c left join (select * from client_name where num_fitting = 1) m "
            "on m.call_namespace = c.namespace and m.call_name = c.name union "
            "select namespace, name from tool_alias union "
            "select target_namespace, target_name from tool_alias"
        ).fetchall()
    )


def rename(
    con: duckdb.DuckDBPyConnection, old: str, new: str, *, merge: bool = False
) -> dict[str, Any]:
    """Let a tool's old name stand for the new one, everywhere; or take back the reverse rename.

    Args:
        con: A writing connection.
        old: The old name, as a key or as a name that only one tool has.
        new: The new one; a plain name that no tool has lies in the namespace of the old.
        merge: Allow it where both are tools of the catalogue now.

    Returns:
        ``old``, ``new``, ``undone`` (whether this took a rename back), ``merged``, and what goes
        along: ``calls``, ``suite_rows``.

    Raises:
        UnknownTool: There is no such tool, or several.
        WrongRename: It would go in a circle, rename a name twice, or merge without ``merge``.
    """
    source = find_tool(con, old)
    target = _target(con, new, source)
    shown, wanted = _key(source), _key(target)
    if source == target:
        raise WrongRename(f"expected two names, got {shown} twice: nothing was changed.")
    rows = con.execute(
        "select namespace, name, target_namespace, target_name, kind from tool_alias"
    ).fetchall()
    kinds: dict[Key, str] = {(row[0], row[1]): row[4] for row in rows}
    aliases: dict[Key, Key] = {(row[0], row[1]): (row[2], row[3]) for row in rows}
    if aliases.get(target) == source and kinds[target] != "undone":
        _undo(con, source, target)
        return {"old": shown, "new": wanted, "undone": True, "merged": False, **_along(con, target)}
    if aliases.get(target) == source:
        del aliases[target]
    if source in aliases:
        now = _key(aliases[source])
        raise WrongRename(
            f"expected a present name, but {shown} was renamed to {now} already: rename {now}, or "
            f"take it back first (toolatlas catalogue rename {now} {shown}). Nothing was changed."
        )
    end = target
    while end in aliases:
        end = aliases[end]
        if end == source:
            raise WrongRename(
                f"expected no circle, but {wanted} was renamed and leads to {shown}: nothing was "
                "changed."
            )
    is_merge = _is_offered(con, source) and _is_offered(con, end)
    if is_merge and not merge:
        raise WrongRename(
            f"expected a new name for {shown}, but {_key(end)} is another tool of the catalogue: "
            "give --merge to count all evidence of both for it. Nothing was changed."
        )
    along = _along(con, source)
    with transaction(con):
        con.execute(
            "delete from tool_alias where namespace = ? and name = ? and kind = 'undone'",
            list(target),
        )
        kind = "merge" if is_merge else "rename"
        con.execute(_INSERT, [*source, *target, kind, utc_now()])
    return {"old": shown, "new": wanted, "undone": False, "merged": is_merge, **along}


_INSERT = "insert into tool_alias values (?, ?, ?, ?, ?, ?)"


def _undo(con: duckdb.DuckDBPyConnection, new: Key, old: Key) -> None:
    """Take the rename of ``old`` to ``new`` back.

    Graphs, suites and models that were made in between know the tool as ``new``; where that is
    nobody else's name it goes on standing for the tool.
    """
    with transaction(con):
        con.execute("delete from tool_alias where namespace = ? and name = ?", list(old))
        others = con.execute(
            "select 1 from tool_version where namespace = ? and name = ? union all "
            "select 1 from call where namespace = ? and name = ? union all "
            "select 1 from tool_alias where target_namespace = ? and target_name = ?",
            [*new, *new, *new],
        ).fetchall()
        if not others:
            con.execute(_INSERT, [*new, *old, "undone", utc_now()])


def _target(con: duckdb.DuckDBPyConnection, text: str, source: Key) -> Key:
    """The tool of that name, or a new one."""
    text = storable(text.strip())
    try:
        return find_tool(con, text)
    except UnknownTool as error:
        if "ambiguous" in str(error):
            same = (source[0], text)
            if same in _known(con):
                return same
            raise
    namespace, slash, name = text.partition("/")
    known = {key[0] for key in _known(con)}
    key = (namespace, name) if slash and namespace in known else (source[0], text)
    if not key[1].strip():
        raise UnknownTool(f"expected a name for the tool, got {text!r}.")
    return key


def _key(tool: Key) -> str:
    return f"{tool[0]}/{tool[1]}"


def _is_offered(con: duckdb.DuckDBPyConnection, tool: Key) -> bool:
    list_nodes(con)
    found = con.execute(
        "select 1 from node where namespace = ? and name = ?", list(tool)
    ).fetchall()
    return bool(found)


def list_nodes(con: duckdb.DuckDBPyConnection) -> None:
    """Make the temporary tables ``called_tool`` and ``node`` of the present data."""
    con.execute(
        "create or replace temp table called_tool as select namespace, name, "
        "count(*) filter (status in ('ok', 'unrecorded')) as num_succeeded, count(*) as num_calls "
        "from resolved_call where links_kind <> 'predicted' group by namespace, name"
    )
    con.execute(query("node"))


def _along(con: duckdb.DuckDBPyConnection, tool: Key) -> dict[str, int]:
    """How many calls and frozen plans speak of a tool."""
    calls = con.execute(
        "select count(*) from resolved_call where namespace = ? and name = ?", list(tool)
    ).fetchall()[0][0]
    rows = con.execute(
        "select count(*) from suite_row where list_contains(tools::varchar[], ?)", [_key(tool)]
    ).fetchall()[0][0]
    return {"calls": calls, "suite_rows": rows}


def deprecate(con: duckdb.DuckDBPyConnection, text: str, *, undo: bool = False) -> dict[str, Any]:
    """Take a tool out of use, or put it back: it keeps its history, and no planner offers it.

    Returns:
        ``tool``, ``status`` (after this) and ``changed``.

    Raises:
        UnknownTool: There is no such tool, or several.
        WrongRename: Its own source calls it deprecated, so that nothing here can undo it.
    """
    tool = _present(con, find_tool(con, text))
    former = con.execute(
        "select namespace, name from tool_rename where target_namespace = ? and target_name = ?",
        list(tool),
    ).fetchall()
    names: list[Key] = [tool, *former]
    marks = set(con.execute("select namespace, name from tool_mark").fetchall())
    marked = [name for name in names if name in marks]
    with transaction(con):
        if undo:
            for name in marked:
                con.execute("delete from tool_mark where namespace = ? and name = ?", list(name))
        elif not marked:
            con.execute("insert into tool_mark values (?, ?, ?)", [*tool, utc_now()])
    status = status_of(con, tool)
    if undo and not marked and status == "deprecated":
        raise WrongRename(
            f"expected a tool that was deprecated here, but the source of {_key(tool)} itself "
            "calls it deprecated: nothing was changed."
        )
    return {"tool": _key(tool), "status": status, "changed": bool(marked) == undo}


def _present(con: duckdb.DuckDBPyConnection, tool: Key) -> Key:
    """The tool that a former name stands for."""
    found = con.execute(
        "select target_namespace, target_name from tool_rename where namespace = ? and name = ?",
        list(tool),
    ).fetchall()
    return (found[0][0], found[0][1]) if found else tool


def status_of(con: duckdb.DuckDBPyConnection, tool: Key) -> str:
    """active, deprecated, removed or unlisted."""
    list_nodes(con)
    row = con.execute(
        "select status from node where namespace = ? and name = ?", list(tool)
    ).fetchall()
    if row:
        return str(row[0][0])
    gone = con.execute(
        "select status from current_tool where namespace = ? and name = ?", list(tool)
    ).fetchall()
    return str(gone[0][0]) if gone else "unlisted"
