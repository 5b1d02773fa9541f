"""One small plan of an agent's calls, told in many formats: records that may come in any order.

Each format gives parcels: the records of a parcel come in one file, in order, and at most once in
it if ``once``. Everything else may be dealt out, repeated and shuffled.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]
_START = 1_767_225_600
"""2026-01-01, in seconds since 1970."""


@dataclass(frozen=True)
class Step:
    """One call: its tool, its argument, its result (None: none came), whether it failed."""

    tool: str
    argument: int
    result: str | None = "done"
    failed: bool = False


@dataclass(frozen=True)
class Plan:
    """What one agent does: a request, and turns of parallel calls.

    Attributes:
        number: Tells it from the other plans.
        request: What the user asked.
        turns: Calls of each turn.
        telling_ids: Whether call ids are unique in the world.
        in_session: Whether it shares a session with the plan beside it, where the format has any.
        is_clock_still: Whether everything happened at one time, as coarse clocks say.
    """

    number: int
    request: str
    turns: tuple[tuple[Step, ...], ...]
    telling_ids: bool = True
    in_session: bool = False
    is_clock_still: bool = False

    @property
    def session(self) -> str | None:
        """Of two plans each."""
        return f"session{self.number // 2}" if self.in_session else None

    def steps(self) -> Iterator[tuple[int, int, Step]]:
        """(turn, number in all, step)."""
        number = 0
        for turn, steps in enumerate(self.turns):
            for step in steps:
                yield turn, number, step
                number += 1

    def call_id(self, number: int) -> str:
        """Unique in the world, or one that every conversation has."""
        if self.telling_ids:
            return f"call_{self.number:03}f{number:03}a9b2c81d"
        return f"call_{number}"


@dataclass(frozen=True)
class Parcel:
    """Records that stay together."""

    records: tuple[Json, ...]
    once: bool = False


def _loose(*records: Json) -> list[Parcel]:
    return [Parcel((record,)) for record in records]


def _stamp(seconds: float) -> str:
    return (
        f"2026-01-01T{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:{seconds % 60:06.3f}Z"
    )


def _at(plan: Plan, turn: int, more: float = 0) -> float:
    start = 600 * (plan.number % 50)
    return start if plan.is_clock_still else start + 10 * turn + more


# --- told whole -----------------------------------------------------------------------------------


def normalised(plan: Plan) -> list[Parcel]:
    """The trajectory as it grew, and a catalogue of its tools."""
    steps = []
    for _, _, step in plan.steps():
        told: Json = {"tool": step.tool, "arguments": {"n": step.argument}}
        if step.result is not None:
            told["observation"] = step.result
            if step.failed:
                told["error"] = step.result
        steps.append(told)
    lines = [
        {"id": f"n{plan.number}", "request": plan.request, "steps": steps[:k], "links": []}
        for k in sorted({1, len(steps) // 2, len(steps)})
        if k <= len(steps)
    ]
    tools = [
        {"name": step.tool, "description": f"{step.tool}: {plan.request}", "parameters": []}
        for _, _, step in plan.steps()
    ]
    nameless = {"request": plan.request, "steps": steps, "links": [], "meta": {"n": plan.number}}
    return [*_loose(*lines, *tools), Parcel((nameless,), once=True)]


def _chat_messages(plan: Plan) -> list[list[Json]]:
    """The messages of each turn, the request first."""
    rounds: list[list[Json]] = [[{"role": "user", "content": plan.request}]]
    number = 0
    for steps in plan.turns:
        calls, results = [], []
        for step in steps:
            call_id = plan.call_id(number)
            function = {"name": step.tool, "arguments": json.dumps({"n": step.argument})}
            calls.append({"id": call_id, "type": "function", "function": function})
            if step.result is not None:
                result = {"role": "tool", "tool_call_id": call_id, "content": step.result}
                results.append(result | ({"is_error": True} if step.failed else {}))
            number += 1
        rounds.append([{"role": "assistant", "content": None, "tool_calls": calls}, *results])
    rounds.append([{"role": "assistant", "content": "that is all"}])
    return rounds


def _joined(rounds: list[list[Json]]) -> list[Json]:
    return [message for part in rounds for message in part]


_OFFERED = [
    {"type": "function", "function": {"name": name, "description": f"tells {name}"}}
    for name in ("find", "book")
]


def openai_messages(plan: Plan) -> list[Parcel]:
    """A conversation with an id, as it grew."""
    rounds = _chat_messages(plan)
    return _loose(
        *(
            {"id": f"chat{plan.number}", "messages": _joined(rounds[:k]), "tools": _OFFERED}
            for k in range(1, len(rounds) + 1)
        )
    )


def openai_lines(plan: Plan) -> list[Parcel]:
    """Single messages that name their conversation."""
    messages = _joined(_chat_messages(plan))
    told = tuple({**message, "conversation_id": f"lines{plan.number}"} for message in messages)
    return [Parcel(told, once=True)]


def openai_pairs(plan: Plan) -> list[Parcel]:
    """Recorded requests, each with all messages so far, and their responses."""
    rounds = _chat_messages(plan)
    pairs = []
    for k in range(1, len(rounds)):
        answer = {"message": rounds[k][0], "index": 0, "finish_reason": "stop"}
        pairs.append(
            {
                "request": {"model": "m", "messages": _joined(rounds[:k]), "tools": _OFFERED},
                "response": {
                    "id": f"chatcmpl-{plan.number}-{k}",
                    "object": "chat.completion",
                    "created": _START + int(_at(plan, k)),
                    "choices": [answer],
                },
            }
        )
    if plan.telling_ids and len(rounds) > 3:  # the history was shortened on the way
        last = pairs[-1]
        shortened = {"model": "m", "messages": _joined([rounds[0], *rounds[2:-1]])}
        pairs.append({**last, "request": shortened})
    return _loose(*pairs)


def _blocks(plan: Plan) -> list[list[Json]]:
    rounds: list[list[Json]] = [[{"role": "user", "content": plan.request}]]
    number = 0
    for steps in plan.turns:
        uses, results = [], []
        for step in steps:
            call_id = plan.call_id(number)
            argument = {"n": step.argument}
            uses.append({"type": "tool_use", "id": call_id, "name": step.tool, "input": argument})
            if step.result is not None:
                block = {"type": "tool_result", "tool_use_id": call_id, "content": step.result}
                results.append(block | ({"is_error": True} if step.failed else {}))
            number += 1
        rounds.append([{"role": "assistant", "content": uses}])
        if results:
            rounds[-1].append({"role": "user", "content": results})
    rounds.append([{"role": "assistant", "content": [{"type": "text", "text": "that is all"}]}])
    return rounds


def anthropic(plan: Plan) -> list[Parcel]:
    """The same in Anthropic's blocks: pairs, and a conversation that grew."""
    rounds = _blocks(plan)
    tools = [{"name": "find", "input_schema": {"type": "object", "properties": {"n": {}}}}]
    pairs = [
        {
            "request": {"model": "m", "messages": _joined(rounds[:k]), "tools": tools},
            "response": {
                "id": f"msg_{plan.number}_{k}",
                "type": "message",
                "stop_reason": "tool_use",
                **rounds[k][0],
            },
        }
        for k in range(1, len(rounds))
    ]
    grown = [
        {"id": f"blocks{plan.number}", "messages": _joined(rounds[:k]), "tools": tools}
        for k in range(2, len(rounds) + 1)
    ]
    return _loose(*pairs, *grown)


def openai_responses(plan: Plan) -> list[Parcel]:
    """Responses that go on from one another by ``previous_response_id``."""
    given: list[Json] = [{"role": "user", "content": plan.request}]
    pairs, number = [], 0
    for turn, steps in enumerate((*plan.turns, ())):
        output, following = [], []
        for step in steps:
            call_id = f"call_{plan.number:03}f{number:03}a9b2c81d"
            told = {"type": "function_call", "id": f"fc_{plan.number}_{number}", "call_id": call_id}
            output.append(told | {"name": step.tool, "arguments": json.dumps({"n": step.argument})})
            if step.result is not None:
                item = {"type": "function_call_output", "call_id": call_id, "output": step.result}
                following.append(item)
            number += 1
        said = {"type": "message", "role": "assistant", "content": []}
        before = f"resp_{plan.number}_{turn - 1}" if turn else None
        response = {
            "id": f"resp_{plan.number}_{turn}",
            "object": "response",
            "created_at": _START + int(_at(plan, turn)),
            "status": "completed",
            "output": output or [said],
            "previous_response_id": before,
        }
        request = {"model": "m", "input": given, "previous_response_id": before}
        pairs.append({"request": request, "response": response})
        given = following
    return _loose(*pairs)


# --- told in spans --------------------------------------------------------------------------------


def _any_value(value: Any) -> Json:
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


def otlp(plan: Plan) -> list[Parcel]:
    """Spans, each alone in a batch, open and closed: the agent's, the model's, the tools'."""
    trace = f"{plan.number + 1:032x}"
    spans = []

    def span(number: int, parent: int | None, at: float, end: float, **values: Any) -> None:
        error = values.pop("error", False)
        told: Json = {
            "traceId": trace,
            "spanId": f"{number:016x}",
            "name": "s",
            "startTimeUnixNano": str(int((_START + at) * 1e9)),
            "attributes": [
                {"key": key.replace("__", "."), "value": _any_value(value)}
                for key, value in values.items()
            ],
        }
        if parent is not None:
            told["parentSpanId"] = f"{parent:016x}"
        closed = {
            **told,
            "endTimeUnixNano": str(int((_START + end) * 1e9)),
            "status": {"code": 2, "message": "bad"} if error else {},
        }
        began = [a for a in told["attributes"] if not a["key"].endswith("result")]
        spans.extend([{**told, "attributes": began, "endTimeUnixNano": "0"}, closed])

    named = {"gen_ai__conversation__id": plan.session} if plan.session else {}
    span(1, None, _at(plan, 0), _at(plan, 40), gen_ai__operation__name="invoke_agent", **named)
    number = 0
    for turn, steps in enumerate(plan.turns):
        parts = []
        for n, step in enumerate(steps):
            values: Json = {"gen_ai__tool__call__id": plan.call_id(number)}
            if step.result is not None:
                values["gen_ai__tool__call__result"] = step.result
            arguments = {"n": step.argument}
            span(
                100 + number,
                1,
                _at(plan, turn, 2 + n / 4),
                _at(plan, turn, 5),
                gen_ai__operation__name="execute_tool",
                gen_ai__tool__name=step.tool,
                gen_ai__tool__call__arguments=json.dumps(arguments),
                error=step.failed,
                **values,
            )
            asked = {"type": "tool_call", "id": plan.call_id(number), "name": step.tool}
            parts.append({**asked, "arguments": arguments})
            number += 1
        output = [{"role": "assistant", "parts": parts}]
        user = [{"role": "user", "parts": [{"type": "text", "content": plan.request}]}]
        span(
            10 + turn,
            1,
            _at(plan, turn),
            _at(plan, turn, 1),
            gen_ai__operation__name="chat",
            gen_ai__input__messages=json.dumps(user),
            gen_ai__output__messages=json.dumps(output),
        )
    return _loose(*({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]} for span in spans))


def langsmith(plan: Plan) -> list[Parcel]:
    """Runs that are created, and updated when they end."""
    trace = f"00000000-0000-4000-8000-{plan.number:06}{0:06}"
    runs = []

    def run(number: int, name: str, kind: str, at: float, end: float, **more: Any) -> None:
        identity = f"00000000-0000-4000-8000-{plan.number:06}{number:06}"
        order = f"20260101T{int(at):018}Z{trace}"
        if number:
            order = f"20260101T{0:018}Z{trace}.20260101T{int(at):06}{number:06}000000Z{identity}"
        begun: Json = {
            "id": identity,
            "trace_id": trace,
            "parent_run_id": trace if number else None,
            "dotted_order": order,
            "name": name,
            "run_type": kind,
            "inputs": more.pop("inputs"),
            "start_time": _stamp(at),
        }
        if plan.session:
            begun["extra"] = {"metadata": {"thread_id": plan.session}}
        ended = {"id": identity, "trace_id": trace, "dotted_order": order, "end_time": _stamp(end)}
        runs.extend([begun, {**ended, **more}, {**begun, **ended, **more}])

    run(0, "agent", "chain", _at(plan, 0), _at(plan, 40), inputs={"input": plan.request})
    for turn, number, step in plan.steps():
        if step.result is None:
            told = {}
        else:
            told = {"error": step.result} if step.failed else {"outputs": {"output": step.result}}
        run(
            number + 1,
            step.tool,
            "tool",
            _at(plan, turn, number / 4),
            _at(plan, turn, 5),
            inputs={"n": step.argument},
            **told,
        )
    return _loose(*runs)


def langfuse(plan: Plan) -> list[Parcel]:
    """Rows of observations, and the trace by itself."""
    trace = {
        "id": f"lf{plan.number}",
        "timestamp": _stamp(_at(plan, 0)),
        "name": "agent",
        "sessionId": plan.session,
        "userId": None,
        "tags": [],
        "input": {"messages": [{"role": "user", "content": plan.request}]},
    }
    rows = []

    def row(name: str, kind: str, parent: str | None, at: float, end: float, **more: Any) -> None:
        rows.append(
            {
                "id": f"lf{plan.number}-{len(rows)}",
                "traceId": trace["id"],
                "type": kind,
                "name": name,
                "parentObservationId": parent,
                "startTime": _stamp(at),
                "endTime": _stamp(end),
                "level": "DEFAULT",
                "statusMessage": None,
                "metadata": {},
                **more,
            }
        )

    row("agent", "AGENT", None, _at(plan, 0), _at(plan, 40), input=plan.request, output="all")
    for turn, number, step in plan.steps():
        failed = {"level": "ERROR", "statusMessage": step.result} if step.failed else {}
        row(
            step.tool,
            "TOOL",
            rows[0]["id"],
            _at(plan, turn, number / 4),
            _at(plan, turn, 5),
            input={"n": step.argument},
            output=step.result,
            **failed,
        )
    early = [{**row, "endTime": None, "output": None} for row in rows]
    whole = {"trace": trace, "observations": rows}
    return _loose(trace, *rows, *early, whole)


def mlflow(plan: Plan) -> list[Parcel]:
    """A trace exported while it ran and when it was done."""

    def b64(number: int) -> str:
        return base64.b64encode(number.to_bytes(8, "big")).decode()

    def span(
        number: int, name: str, kind: str, at: float, end: float, inputs: Any, outputs: Any
    ) -> Json:
        attributes = {"mlflow.spanType": kind, "mlflow.spanInputs": inputs}
        if outputs is not None:
            attributes["mlflow.spanOutputs"] = outputs
        return {
            "span_id": b64(number),
            "parent_span_id": None if number == 1 else b64(1),
            "name": name,
            "start_time_unix_nano": int((_START + at) * 1e9),
            "end_time_unix_nano": int((_START + end) * 1e9),
            "status": {"code": "STATUS_CODE_OK", "message": ""},
            "events": [],
            "attributes": {key: json.dumps(value) for key, value in attributes.items()},
        }

    question = {"q": plan.request}
    spans = [span(1, "agent", "AGENT", _at(plan, 0), _at(plan, 40), question, "all")]
    for turn, number, step in plan.steps():
        told = (_at(plan, turn, number / 4), _at(plan, turn, 5), {"n": step.argument}, step.result)
        spans.append(span(number + 2, step.tool, "TOOL", *told))
        if step.failed:
            spans[-1]["status"] = {"code": "STATUS_CODE_ERROR", "message": str(step.result)}
    session = {"mlflow.trace.session": plan.session} if plan.session else {}
    info = {
        "trace_id": f"tr-{plan.number}",
        "trace_location": {"type": "MLFLOW_EXPERIMENT"},
        "request_time": _stamp(_at(plan, 0)),
        "trace_metadata": session,
    }
    running = [{**spans[0], "end_time_unix_nano": None}, *spans[1 : 1 + len(spans) // 2]]
    return _loose(
        {"info": {**info, "state": "IN_PROGRESS"}, "data": {"spans": running}},
        {"info": {**info, "state": "OK"}, "data": {"spans": spans}},
    )


# --- told in lines and snapshots ------------------------------------------------------------------


def claude_code(plan: Plan) -> list[Parcel]:
    """Lines of a session, one that went back and another way, and one resumed from a copy of it."""
    lines: list[Json] = []

    def line(kind: str, content: Any, parent: Json | None, at: float, **more: Any) -> Json:
        message: Json = {"role": kind, "content": content, **more}
        told = {
            "type": kind,
            "uuid": f"u{plan.number:03}-{len(lines):03}",
            "parentUuid": parent["uuid"] if parent else None,
            "sessionId": f"session{plan.number}",
            "isSidechain": False,
            "timestamp": _stamp(at),
            "message": message,
        }
        lines.append(told)
        return told

    last = asked = line("user", plan.request, None, _at(plan, 0))
    number = 0
    for turn, steps in enumerate(plan.turns):
        uses = []
        for step in steps:
            use = {"type": "tool_use", "id": plan.call_id(number), "name": step.tool}
            uses.append({**use, "input": {"n": step.argument}})
            number += 1
        reply = f"msg_{plan.number}_{turn}"
        for use in uses:  # one line a block, as the program writes them
            last = line("assistant", [use], last, _at(plan, turn, 1), id=reply)
        for use, step in zip(uses, steps, strict=True):
            if step.result is not None:
                block: Json = {"type": "tool_result", "tool_use_id": use["id"]}
                block |= {"content": step.result, "is_error": step.failed}
                last = line("user", [block], last, _at(plan, turn, 3))
    history = list(lines)
    fork = line("user", "no, the other way", asked, _at(plan, 20))
    use = {"type": "tool_use", "id": f"toolu_{plan.number}_fork", "name": "find", "input": {}}
    used = line("assistant", [use], fork, _at(plan, 21), id=f"msg_{plan.number}_fork")
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "found"}
    line("user", [result], used, _at(plan, 22))
    copied = [{**told, "sessionId": f"resumed{plan.number}"} for told in history]
    more = line("user", "go on", history[-1], _at(plan, 30))
    use = {"type": "tool_use", "id": f"toolu_{plan.number}_more", "name": "book", "input": {}}
    used = line("assistant", [use], more, _at(plan, 31), id=f"msg_{plan.number}_more")
    for told in (more, used):
        told["sessionId"] = f"resumed{plan.number}"
    return _loose(*lines, *copied)


def langgraph(plan: Plan) -> list[Parcel]:
    """Snapshots of a thread, each with all messages so far."""
    messages: list[Json] = [{"type": "human", "content": plan.request, "id": f"h{plan.number}"}]
    snapshots = []

    def snapshot(at: float) -> None:
        configurable = {"thread_id": f"thread{plan.number}", "checkpoint_ns": ""}
        snapshots.append(
            {
                "values": {"messages": list(messages)},
                "next": [],
                "config": {"configurable": configurable},
                "created_at": _stamp(at),
            }
        )

    snapshot(_at(plan, 0))
    number = 0
    for turn, steps in enumerate(plan.turns):
        calls, results = [], []
        for step in steps:
            call_id = plan.call_id(number)
            argument = {"n": step.argument}
            calls.append({"name": step.tool, "args": argument, "id": call_id, "type": "tool_call"})
            if step.result is not None:
                results.append(
                    {
                        "type": "tool",
                        "content": step.result,
                        "tool_call_id": call_id,
                        "id": f"r{plan.number}-{number}",
                        "status": "error" if step.failed else "success",
                    }
                )
            number += 1
        reply = {"type": "ai", "content": "", "id": f"lc_run--{plan.number:08}-{turn:08}"}
        messages.append({**reply, "tool_calls": calls})
        snapshot(_at(plan, turn, 1))
        messages += results
        snapshot(_at(plan, turn, 5))
    return _loose(*snapshots)


FORMATS: dict[str, Callable[[Plan], list[Parcel]]] = {
    "normalised": normalised,
    "openai messages": openai_messages,
    "openai lines": openai_lines,
    "openai pairs": openai_pairs,
    "anthropic": anthropic,
    "openai responses": openai_responses,
    "otlp": otlp,
    "langsmith": langsmith,
    "langfuse": langfuse,
    "mlflow": mlflow,
    "claude code": claude_code,
    "langgraph": langgraph,
}


def parcels_of(told: list[tuple[str, Plan]]) -> list[Parcel]:
    """All parcels of plans told in formats; ids are made unique by the plan's place in the list."""
    return [
        parcel
        for number, (format, plan) in enumerate(told)
        for parcel in FORMATS[format](replace(plan, number=number))
    ]
