"""mini-swe-agent trajectories (``.traj.json``): shell commands in messages, and what they printed.

Since 2.0 a message of the model lists its commands under ``extra.actions``, whichever API made it;
before, the command is the message's only ``bash`` block and the next message what it printed. A
command that could not be run has an ``exception_info``; its exit code alone is no error.
"""

import re
from collections.abc import Iterator
from typing import Any

from warehouse.readers.clock import any_nanoseconds, moment_of
from warehouse.readers.evidence import Waiting, answer, is_failure, text_of
from warehouse.readers.stream import Item
from warehouse.records import Call, Ignored, Record, Rejected, TrajectoryRecord

_BLOCK = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
_TOOL = "bash"
_OUTPUT = "function_call_output"


def is_trajectory(value: Any) -> bool:
    """A trajectory of any version."""
    return isinstance(value, dict) and str(value.get("trajectory_format")).startswith(
        "mini-swe-agent"
    )


def read_trajectory(item: Item) -> Iterator[Record]:
    """One run."""
    value = item.value
    messages = value.get("messages")
    if not isinstance(messages, list):
        got = type(messages).__name__
        yield Rejected(item.place, f"expected messages to be a list, got {got}", item.raw)
        return
    info = value.get("info")
    status = info.get("exit_status") if isinstance(info, dict) else None
    record = TrajectoryRecord("", [], meta={"exit_status": status} if status else {})
    instance = value.get("instance_id")
    if isinstance(instance, str) and instance:
        record.native_id = record.meta["instance_id"] = instance
    waiting = Waiting()
    turn = -1
    for message in messages:
        if not isinstance(message, dict):
            yield Ignored("message that is no object")
            continue
        at = _time(message)
        role = message.get("role")
        if record.started_at is None:
            record.started_at = moment_of(at)
        if role == "assistant" or message.get("object") == "response":
            turn += 1
            for call in _calls(message, turn):
                call.started_at = at
                record.calls.append(call)
                waiting.add(call)
        elif role == "user" and turn < 0:
            record.request = record.request or text_of(message.get("content")) or ""
        elif role in ("user", "tool", "exit") or message.get("type") == _OUTPUT:
            _answer(message, at, turn, waiting, record)
    yield record


def _extra(message: dict[str, Any]) -> dict[str, Any]:
    extra = message.get("extra")
    return extra if isinstance(extra, dict) else {}


def _time(message: dict[str, Any]) -> int | None:
    return any_nanoseconds(_extra(message).get("timestamp", message.get("timestamp")))


def _calls(message: dict[str, Any], turn: int) -> list[Call]:
    actions = _extra(message).get("actions")
    if not isinstance(actions, list):
        blocks = _BLOCK.findall(text_of(message.get("content")) or "")
        # The agent ran nothing and said so where there was not exactly one.
        actions = [{"command": block.strip()} for block in blocks] if len(blocks) == 1 else []
    calls = []
    for action in actions:
        if isinstance(action, dict) and isinstance(action.get("command"), str):
            call_id = action.get("tool_call_id")
            arguments = {"command": action["command"]}
            call_id = None if call_id is None else str(call_id)
            calls.append(Call(_TOOL, turn, arguments, call_id=call_id))
    return calls


def _answer(
    message: dict[str, Any],
    at: int | None,
    turn: int,
    waiting: Waiting,
    record: TrajectoryRecord,
) -> None:
    """What a message says a command printed; the end of a run is what its last one printed."""
    extra = _extra(message)
    call_id = message.get("tool_call_id", message.get("call_id"))
    if call_id is not None:
        call = waiting.take(str(call_id))
    elif message.get("role") == "exit" and extra.get("exit_status") != "Submitted":
        return
    else:
        call = waiting.take_named(turn, _TOOL)
    text = text_of(message.get("content", message.get("output"))) or ""
    if call is not None:
        error = extra.get("exception_info") or None
        answer(call, text, failed=bool(error) or is_failure(text), error=error)
        call.ended_at = at
    elif call_id is not None:
        record.orphans.append(text)
