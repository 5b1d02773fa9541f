"""LangSmith runs: lists, JSON lines, nested ``child_runs``, ingest payloads, Parquet exports.

A run may be told twice, when it begins and when it ends, and the runs of a trace come in any order
and in several files: they are events of the trace's id.
"""

from collections.abc import Iterator
from typing import Any

from warehouse.readers import payloads
from warehouse.readers.payloads import decoded, when
from warehouse.readers.spans import Event, assembler, keyed, llm_events, span_event, tool_fields
from warehouse.readers.stream import Item
from warehouse.records import UNRECORDED, Fragment, Ignored, Record, Rejected, ToolRecord

_RUN_TYPES = ("tool", "llm", "chain", "retriever", "embedding", "prompt", "parser")
_THREAD = ("thread_id", "session_id", "conversation_id")


def is_run(value: Any) -> bool:
    """A run as it begins, as it ends, or both."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return False
    if value.get("run_type") in _RUN_TYPES:
        return "trace_id" in value or "dotted_order" in value or "start_time" in value
    return "run_type" not in value and isinstance(value.get("dotted_order"), str)


def is_runs(value: Any) -> bool:
    """A run, a list of runs, ``{"runs"}``, or an ingest payload with ``post`` and ``patch``."""
    if isinstance(value, list):
        return bool(value) and is_run(value[0])
    if not isinstance(value, dict):
        return False
    if is_run(value):
        return True
    for key in ("runs", "post", "patch"):
        runs = value.get(key)
        if isinstance(runs, list) and runs:
            return is_run(runs[0])
    return False


def read_runs(item: Item) -> Iterator[Record]:
    """The runs of one record, each trace's as a fragment."""
    value = item.value
    if isinstance(value, list):
        runs = value
    elif is_run(value):
        runs = [value]
    else:
        runs = [run for key in ("runs", "post", "patch") for run in value.get(key) or ()]
    told: dict[str, list[Event]] = {}
    tools: dict[str, ToolRecord] = {}
    stack: list[tuple[Any, str | None, str | None, tuple[str, str] | None]] = [
        (run, None, None, None) for run in reversed(runs)
    ]
    while stack:
        run, above, trace_id, key = stack.pop()
        run = decoded(run)
        if not isinstance(run, dict) or not isinstance(run.get("id"), str):
            yield Ignored("run without an id")
            continue
        order = run.get("dotted_order")
        path = order.split(".") if isinstance(order, str) else []
        parent = run.get("parent_run_id") or above or (_id_in(path[-2]) if len(path) > 1 else None)
        trace_id = run.get("trace_id") or trace_id or (_id_in(path[0]) if path else None)
        if trace_id is None and parent is None:
            trace_id = run["id"]
        if trace_id is None:
            reason = f"expected a trace_id or a dotted_order on run {run['id']}, got neither"
            yield Rejected(item.place, reason, item.raw)
            continue
        session = _thread(run)
        if key is None:
            is_lone = parent is None and run.get("run_type") == "tool"
            key = keyed(str(trace_id), session, is_lone=is_lone)
        events = _events(run, None if parent is None else str(parent), path, session, tools)
        if key[1]:
            for event in events:
                for name in ("id", "parent", "span"):
                    if name in event:
                        event[name] = key[1] + event[name]
        told.setdefault(key[0], []).extend(events)
        children = decoded(run.get("child_runs"))
        if isinstance(children, list):
            stack += [(child, run["id"], str(trace_id), key) for child in reversed(children)]
    yield from tools.values()
    for conversation, events in told.items():
        yield Fragment(conversation, events)


def _id_in(part: str) -> str | None:
    """The run id of one step of a dotted order."""
    return part.partition("Z")[2] or None


def _thread(run: dict[str, Any]) -> str | None:
    extra = decoded(run.get("extra"))
    for holder in (extra, run):
        metadata = decoded(holder.get("metadata")) if isinstance(holder, dict) else None
        if isinstance(metadata, dict):
            for key in _THREAD:
                if metadata.get(key):
                    return str(metadata[key])
    thread = run.get("thread_id")
    return str(thread) if thread else None


def _events(
    run: dict[str, Any],
    parent: str | None,
    path: list[str],
    session: str | None,
    tools: dict[str, ToolRecord],
) -> list[Event]:
    run_type = run.get("run_type")
    identity = run["id"]
    inputs, outputs = decoded(run.get("inputs")), decoded(run.get("outputs"))
    extra = decoded(run.get("extra"))
    fields: Event = {}
    more: list[Event] = []
    if run_type == "tool" or run_type is None:
        fields = tool_fields(
            UNRECORDED if inputs is None else inputs, UNRECORDED if outputs is None else outputs
        )
        call_id = extra.get("tool_call_id") if isinstance(extra, dict) else None
        if call_id:
            fields["call_id"] = str(call_id)
        name = run.get("name")
        fields["name"] = None if name is None else str(name)
    if run_type == "llm" or run_type is None:
        llm, more = llm_events(identity, inputs, outputs)
        fields.update(llm)
        for tool in _offered(extra):
            tools.setdefault(tool.name, tool)
    if parent is None and run_type != "tool" and inputs is not None:
        fields["request"] = payloads.request_of(inputs) or None
    failure = run.get("error")
    if failure or run.get("status") == "error":
        fields["status"] = "error"
        fields["error"] = (str(failure) if failure else fields.get("error") or "error")[:2_000]
    elif fields.get("error"):
        fields["status"] = "error"
    kind = run_type if run_type in ("tool", "llm", None) else "span"
    about = None
    if path and run.get("start_time") is None:
        text = path[-1].partition("Z")[0]
        about = when(f"{text[:4]}-{text[4:6]}-{text[6:11]}:{text[11:13]}:{text[13:15]}.{text[15:]}")
    event = span_event(
        identity,
        kind,
        parent=parent,
        start=when(run.get("start_time")),
        end=when(run.get("end_time")),
        about=about,
        order=".".join(path) or None,
        session=session,
        **fields,
    )
    return [event, *more]


def _offered(extra: Any) -> Iterator[ToolRecord]:
    """The tools that an LLM run was given."""
    if not isinstance(extra, dict):
        return
    for holder in (extra.get("invocation_params"), extra.get("options"), extra):
        found = decoded(holder.get("tools")) if isinstance(holder, dict) else None
        if isinstance(found, list):
            yield from payloads.offered_tools(found)
            return


assemble = assembler()
