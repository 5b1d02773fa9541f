"""SWE-agent ``.traj`` files: steps of an action text and its observation.

An action names its tool by its first word, unless the history beside the steps tells the tool call
that the model made. Demonstrations (``is_demo``) are not the run, unless the file holds nothing
else. Failure is told as text only, so a result is ok; the exit status of the run marks its last
call where the command itself did not end.
"""

import re
from collections.abc import Iterator
from typing import Any

from warehouse.readers.evidence import Waiting, answer, is_failure, text_of
from warehouse.readers.stream import Item, parse
from warehouse.records import Call, Ignored, Record, TrajectoryRecord

_TYPES = {"system_prompt", "observation", "action", "thought", "demonstration", "user"}
_WORD = re.compile(r"[\w./+-]+\Z")
_BROKEN_OFF = ("timeout", "execution_time", "environment_error", "exit_error")
"""Parts of an exit status that say that the last command failed, not the model."""


def is_trajectory(value: Any) -> bool:
    """A ``.traj`` document: steps with an action, or a history of typed messages."""
    if not isinstance(value, dict):
        return False
    steps, history = value.get("trajectory"), value.get("history")
    if isinstance(steps, list) and steps:
        first = steps[0]
        return isinstance(first, dict) and "action" in first and "source" not in first
    return _is_history(history) and (steps is None or steps == [])


def _is_history(history: Any) -> bool:
    if not isinstance(history, list) or not history or not isinstance(history[0], dict):
        return False
    first = history[0]
    return "role" in first and (
        str(first.get("message_type")) in _TYPES or "is_demo" in first or "agent" in first
    )


def read_trajectory(item: Item) -> Iterator[Record]:
    """One run."""
    value = item.value
    given = value.get("history")
    told = [h for h in given if isinstance(h, dict)] if isinstance(given, list) else []
    history = [one for one in told if not one.get("is_demo")]
    steps = value.get("trajectory") or []
    odd = sum(not isinstance(step, dict) for step in steps)
    if odd:
        yield Ignored("step that is no object")
    orphans: list[str] = []
    if steps:
        calls = list(_from_steps([step for step in steps if isinstance(step, dict)], history))
    elif any(one.get("role") == "assistant" for one in history):
        calls, orphans = _from_history(history)
    else:
        history = told
        calls, orphans = _from_history(told)
    info = value.get("info")
    info = info if isinstance(info, dict) else {}
    status = info.get("exit_status")
    if calls and isinstance(status, str) and any(part in status for part in _BROKEN_OFF):
        last = calls[-1]
        last.status, last.error = "error", status
    meta, instance = _meta(value, info)
    yield TrajectoryRecord(
        request=_request(history or told),
        calls=calls,
        native_id=instance,
        meta=meta,
        orphans=orphans,
    )


def _from_steps(steps: list[dict[str, Any]], history: list[dict[str, Any]]) -> Iterator[Call]:
    actions = [one for one in history if one.get("role") == "assistant"]
    results = {
        one["tool_call_ids"][0]: one
        for one in history
        if one.get("role") == "tool" and _ids(one) and len(_ids(one)) == 1
    }
    at = 0
    for turn, step in enumerate(steps):
        text = text_of(step.get("action")) or ""
        sent = step.get("tool_calls")
        found = next((i for i in range(at, len(actions)) if _same(actions[i], text)), None)
        if found is not None:
            at = found + 1
            sent = sent or actions[found].get("tool_calls")
        calls = _tool_calls(sent, turn) or _by_text(text, turn)
        observation = step.get("observation")
        for n, call in enumerate(calls):
            result = observation
            if len(calls) > 1:
                told = results.get(call.call_id or "")
                result = told.get("content") if told else observation if n == 0 else None
            if result is not None:
                _answer(call, result)
            yield call


def _ids(message: dict[str, Any]) -> list[Any]:
    ids = message.get("tool_call_ids")
    return ids if isinstance(ids, list) and all(isinstance(i, str) for i in ids) else []


def _same(message: dict[str, Any], action: str) -> bool:
    told = message.get("action")
    return isinstance(told, str) and told.strip() == action.strip()


def _answer(call: Call, result: Any) -> None:
    text = text_of(result)
    answer(call, text, failed=is_failure(text))


def _tool_calls(sent: Any, turn: int) -> list[Call]:
    calls = []
    for one in sent if isinstance(sent, list) else ():
        function = one.get("function") if isinstance(one, dict) else None
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            call_id = one.get("id")
            calls.append(
                Call(
                    name=function["name"],
                    turn=turn,
                    arguments=function.get("arguments"),
                    call_id=None if call_id is None else str(call_id),
                )
            )
    return calls


def _by_text(action: str, turn: int) -> list[Call]:
    """The call of an action text; none where the model gave none, or the run ended."""
    words = action.split(None, 1)
    if not words or words[0].startswith("exit_") or action.strip() == "skip":
        return []
    name = words[0] if _WORD.match(words[0]) else "bash"
    return [Call(name=name, turn=turn, arguments={"command": action})]


def _from_history(history: list[dict[str, Any]]) -> tuple[list[Call], list[str]]:
    """Calls of messages alone: an observation answers the action before it."""
    calls: list[Call] = []
    orphans: list[str] = []
    waiting = Waiting()
    turn = -1
    for message in history:
        role = message.get("role")
        if role == "assistant":
            turn += 1
            made = _tool_calls(message.get("tool_calls"), turn)
            made = made or _by_text(text_of(message.get("action")) or "", turn)
            for call in made:
                calls.append(call)
                waiting.add(call)
        elif role == "tool" or (turn >= 0 and message.get("message_type") == "observation"):
            ids = _ids(message)
            answered = [waiting.take(one) for one in ids] or [waiting.take_named(turn, None)]
            for one in answered:
                if one is not None:
                    _answer(one, message.get("content"))
            if not any(answered) and role == "tool":
                orphans.append(text_of(message.get("content")) or "")
    return calls, orphans


def _request(history: list[dict[str, Any]]) -> str:
    asked = (m for m in history if m.get("role") == "user" and not m.get("is_demo"))
    first = next(asked, None) or next((m for m in history if m.get("role") == "user"), None)
    return (text_of(first.get("content")) if first else None) or ""


def _meta(value: dict[str, Any], info: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    meta: dict[str, Any] = {}
    for key in ("environment", "instance_id"):
        if isinstance(value.get(key), str):
            meta[key] = value[key]
    if isinstance(info.get("exit_status"), str):
        meta["exit_status"] = info["exit_status"]
    config = value.get("replay_config")
    if isinstance(config, str):
        try:
            config = parse(config)
        except (ValueError, RecursionError):
            config = None
    instance = value.get("instance_id")
    if isinstance(config, dict):
        problem, agent = config.get("problem_statement"), config.get("agent")
        if instance is None and isinstance(problem, dict):
            instance = problem.get("id")
        model = agent.get("model") if isinstance(agent, dict) else None
        if isinstance(model, dict) and isinstance(model.get("name"), str):
            meta["model"] = model["name"]
    if isinstance(instance, str) and instance:
        meta["instance_id"] = instance
        return meta, instance
    return meta, None
