"""What an execution did, as OpenTelemetry spans: so it comes back as a trajectory."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from models.execution import Execution
from models.journal import CallRecord


def otlp_of(execution: Execution, identity: str) -> dict[str, Any]:
    """One trace (OTLP JSON, GenAI attributes): a span for the request, one below it for each call.

    Calls that overlap in time are one turn when they are read again, a call that failed is an
    error, and what one call gave and another took is found by its value.

    Args:
        execution: Its request and its calls.
        identity: Of the execution; conversation and trace are named after it.
    """
    trace = hashlib.sha256(identity.encode()).hexdigest()[:32]
    root = trace[:16]
    messages = [{"role": "user", "parts": [{"type": "text", "content": execution.request}]}]
    spans = [
        {
            "traceId": trace,
            "spanId": root,
            "name": "invoke_agent toolatlas",
            "kind": 1,
            "startTimeUnixNano": _nanoseconds(execution.started_at),
            "endTimeUnixNano": _nanoseconds(execution.ended_at),
            "attributes": _attributes(
                {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "toolatlas",
                    "gen_ai.conversation.id": identity,
                    "gen_ai.input.messages": json.dumps(messages, ensure_ascii=False),
                    "toolatlas.planner": execution.plan.planner,
                    "toolatlas.status": execution.status,
                }
            ),
            "status": {"code": 1 if execution.status == "done" else 2},
        }
    ]
    spans += [_span(call, trace, root, identity) for call in execution.calls]
    resource = {"attributes": _attributes({"service.name": "toolatlas"})}
    scope = {"scope": {"name": "toolatlas.execution"}, "spans": spans}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _span(call: CallRecord, trace: str, parent: str, identity: str) -> dict[str, Any]:
    name = call.tool.split("/", 1)[1]
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.id,
        "gen_ai.conversation.id": identity,
        "gen_ai.tool.call.arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
        "toolatlas.attempts": len(call.attempts),
    }
    status: dict[str, Any] = {"code": 1}
    if call.status == "ok":
        attributes["gen_ai.tool.call.result"] = json.dumps(call.result, ensure_ascii=False)
    else:
        attributes["error.type"] = call.status
        status = {"code": 2, "message": call.error or call.status}
    return {
        "traceId": trace,
        "spanId": hashlib.sha256(f"{identity}/{call.id}".encode()).hexdigest()[:16],
        "parentSpanId": parent,
        "name": f"execute_tool {name}",
        "kind": 1,
        "startTimeUnixNano": _nanoseconds(call.started_at),
        "endTimeUnixNano": _nanoseconds(call.ended_at or call.started_at),
        "attributes": _attributes(attributes),
        "status": status,
    }


def _nanoseconds(moment: datetime) -> str:
    """Nanoseconds since 1970, exactly: a float would lose the last digits."""
    passed = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return str(microseconds * 1000)


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"intValue": str(value)}
            if isinstance(value, int)
            else {"stringValue": str(value)},
        }
        for key, value in values.items()
    ]
