"""OpenAI chat messages: a plain list, ``{"messages"}``, tau-bench, single messages, and streams.

Request and response pairs are read by ``exchanges``. Calls are paired with results by position
(see ``pairing``), because ids repeat in practice. Single messages of a file may be of any provider:
they are gathered here and read as what they turn out to be together.
"""

from collections.abc import Iterator
from typing import Any

from warehouse.readers import anthropic, openai_responses
from warehouse.readers.clock import moment_of
from warehouse.readers.evidence import text_of
from warehouse.readers.pairing import Pairing, mark_cut, request_of, settle
from warehouse.readers.schema import parameters_of
from warehouse.readers.sse import sound_events, split_streams
from warehouse.readers.stream import Item
from warehouse.records import Call, Gathered, Ignored, Record, ToolRecord, TrajectoryRecord

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_LOOKED_AT = 8
"""Messages of a record that its format is told by."""
_CONVERSATION = ("conversation_id", "thread_id", "session_id")


def is_messages(value: Any) -> bool:
    """A list of chat messages, told by its first few; Anthropic's blocks are not ours."""
    if not isinstance(value, list) or not value:
        return False
    known = False
    for message in value[:_LOOKED_AT]:
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        if type(content) is list:
            for part in content:
                if isinstance(part, dict) and anthropic.is_tool_block(part):
                    return False
        elif not known and content is not None and not isinstance(content, str):
            return False
        role = message.get("role")
        if type(role) is str and role in ROLES:
            known = True
        elif not known or openai_responses.is_item(message):
            return False  # the first message decides: an odd one further on loses nothing
    return known


def is_conversation(value: Any) -> bool:
    """A conversation in any of its wrappers, or a completion on its own."""
    if not isinstance(value, dict):
        return is_messages(value)
    if isinstance(value.get("request"), dict):
        return False
    messages = value.get("messages")
    if messages is not None:
        return is_messages(messages) and not anthropic.is_request(value)
    return is_messages(value.get("traj")) or (
        isinstance(value.get("choices"), list) and value.get("object") == "chat.completion"
    )


def is_message(value: Any) -> bool:
    """A single message, or a Responses item: the file, or the conversation it names, is one."""
    if not isinstance(value, dict):
        return False
    role = value.get("role")
    if role is None:
        return openai_responses.is_item(value)
    if type(role) is not str:
        return False
    if role in ("tool", "function"):  # whose content may be any value
        return "content" in value and ("tool_call_id" in value or "name" in value)
    return (
        role in ROLES
        and isinstance(value.get("content"), (str, list, type(None)))
        and not value.keys().isdisjoint(("content", "tool_calls", "function_call"))
    )


def is_chunk(value: Any) -> bool:
    """One chunk of a streamed completion; Azure begins with one that only tells of filters."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("choices"), list)
        and (value.get("object") == "chat.completion.chunk" or _is_prelude(value))
    )


def _is_prelude(value: dict[str, Any]) -> bool:
    return not value["choices"] and not value.get("id") and "prompt_filter_results" in value


def is_stream(value: Any) -> bool:
    """The chunks of a streamed completion, in order."""
    return isinstance(value, list) and bool(value) and is_chunk(value[0])


def read_conversation(item: Item) -> Iterator[Record]:
    """One conversation; the tools that it offers come first."""
    value = item.value
    if type(value) is list:
        wrapper: dict[str, Any] = {}
        messages: list[Any] = value
    else:
        wrapper = value
        messages = wrapper.get("messages") or wrapper.get("traj") or []
    tau = "traj" in wrapper
    choice = wrapper.get("choices")
    message = message_of(choice) if choice else None
    if message is not None:
        messages = [*messages, message]
    for key in ("tools", "functions"):
        if wrapper.get(key):
            yield from tool_records(wrapper[key])
    pairing = pair_messages(messages, errors_by_text=tau)
    if message is not None and is_cut(choice):
        mark_cut(pairing.latest)
    for what in pairing.ignored:
        yield Ignored(what)
    conversation = native_id = None
    meta: dict[str, Any] = {}
    if wrapper:
        conversation = first_text(wrapper, _CONVERSATION)
        native_id = conversation or first_text(wrapper, ("id",))
        if tau:
            meta = {key: wrapper[key] for key in ("task_id", "trial", "reward") if key in wrapper}
            if "task_id" in wrapper:
                native_id = f"task{wrapper['task_id']}-trial{wrapper.get('trial', 0)}"
    yield TrajectoryRecord(
        request=request_of(messages),
        calls=pairing.calls,
        native_id=native_id,
        started_at=moment_of(openai_responses.created_of(wrapper)) if choice else None,
        meta=meta,
        orphans=pairing.orphans,
        duplicates=pairing.duplicates,
        conversation=conversation,
    )


def first_text(value: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of the keys that holds an id."""
    for key in keys:
        found = value.get(key)
        if found and isinstance(found, (str, int)):
            return str(found)
    return None


def read_messages(item: Item) -> Iterator[Record]:
    """Single messages of one file that make a conversation, whoever's they are."""
    told: Gathered = item.value
    value: Any = told.values
    if told.conversation is not None:
        value = {"conversation_id": told.conversation, "messages": told.values}
    whole = Item(item.place, item.text, value)
    if any(openai_responses.is_item(one) for one in told.values if "role" not in one):
        yield from openai_responses.read_items(whole)
    elif any(anthropic.has_tool_block(one) for one in told.values):
        yield from anthropic.read_conversation(whole)
    else:
        yield from read_conversation(whole)


def read_chunks(item: Item) -> Iterator[Record]:
    """Chunks of one file; those of one completion belong together."""
    by_id: dict[Any, list[Any]] = {}
    for chunk in item.value.values:
        if not _is_prelude(chunk):
            by_id.setdefault(str(chunk.get("id")), []).append(chunk)
    for chunks in by_id.values():
        yield from read_stream(Item(item.place, item.text, chunks))


def read_stream(item: Item) -> Iterator[Record]:
    """One streamed completion or several in a row: the calls that it asks for."""
    sound, odd = sound_events(item.value)
    yield from odd
    for chunks in split_streams(sound):
        completion = glued(chunks)
        yield from read_conversation(Item(item.place, item.text, completion))


def tool_records(tools: Any) -> Iterator[ToolRecord]:
    """Tool definitions of a request: functions, custom tools, and the older flat list."""
    for tool in tools if isinstance(tools, list) else ():
        if not isinstance(tool, dict):
            continue
        told = tool.get("function") or tool.get("custom") or tool
        if not isinstance(told, dict) or not isinstance(told.get("name"), str):
            continue
        parameters = parameters_of(told.get("parameters") or told.get("input_schema"))
        if "custom" in tool:
            parameters = ({"name": "input", "type": "string", "description": "", "required": True},)
        yield ToolRecord(told["name"], str(told.get("description") or ""), parameters)


def message_of(choices: Any) -> dict[str, Any] | None:
    """The message that the model sent: the first choice counts, the others led nowhere."""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
            message: dict[str, Any] = choice["message"]
            return message if message.get("role") else {**message, "role": "assistant"}
    return None


def is_cut(choices: Any) -> bool:
    """Whether the model was stopped while it wrote."""
    return any(
        isinstance(choice, dict) and choice.get("finish_reason") in ("length", "content_filter")
        for choice in choices[:1]
    )


def pair_calls(
    messages: list[dict[str, Any]], *, errors_by_text: bool = False
) -> tuple[list[Call], list[str]]:
    """The calls of a conversation with their results, and the results that had no call.

    Args:
        messages: OpenAI chat messages in order.
        errors_by_text: tau-bench's tools report failure as text that begins with ``Error``; chat
            messages have no other field for it.
    """
    pairing = pair_messages(messages, errors_by_text=errors_by_text)
    return pairing.calls, pairing.orphans


def pair_messages(
    messages: list[Any], *, errors_by_text: bool = False, into: Pairing | None = None
) -> Pairing:
    """The calls of a conversation, with what had no call and what was skipped."""
    pairing = Pairing() if into is None else into
    add_one, waiting = pairing.add_one, pairing.waiting
    for message in messages:
        # Nearly all messages are one call or its result in their plainest form: those first.
        try:
            role = message["role"]
            if role == "tool":
                call = waiting[message["tool_call_id"]]
                content = message["content"]
                if (
                    call.__class__ is Call
                    and content.__class__ is str
                    and "rror" not in content
                    and (len(message) == 3 or (len(message) == 4 and "name" in message))
                ):
                    del waiting[call.call_id]
                    call.result = content
                    call.status = "ok"
                    pairing.answered = True
                    continue
            elif role == "assistant":
                (one,) = message["tool_calls"]
                function = one["function"]
                name, call_id = function["name"], one["id"]
                if (
                    pairing.answered
                    and name.__class__ is str
                    and call_id.__class__ is str
                    and message.get("content").__class__ is not list
                ):
                    add_one(Call(name, 0, function["arguments"], None, "no_result", None, call_id))
                    continue
        except (KeyError, TypeError, ValueError, IndexError):
            pass
        _add_message(pairing, message, errors_by_text)
    return pairing


def _add_message(pairing: Pairing, message: Any, errors_by_text: bool) -> None:
    """One message in any form."""
    role = message.get("role") if isinstance(message, dict) else None
    if role == "assistant":
        calls = _sent(message, pairing)
        if calls:
            pairing.add(calls)
        if anthropic.has_tool_block(message):
            anthropic.add_message(pairing, message)
    elif role == "tool" or role == "function":
        call_id = message.get("tool_call_id")
        if call_id is None or role == "function":
            call = pairing.answer_by_name(message.get("name"))
        else:
            call = pairing.answer(str(call_id), message.get("name"))
        result = text_of(message.get("content")) or ""
        failed = message.get("is_error") is True or message.get("status") == "error"
        failed = failed or (errors_by_text and result.startswith("Error"))
        if call is None:
            pairing.lose(call_id, result, failed=failed)
        else:
            settle(call, result, failed=failed)
    elif role == "user":
        if anthropic.has_tool_block(message):
            anthropic.add_message(pairing, message)
        else:
            pairing.heard()
    elif type(role) is not str or role not in ROLES:
        what = f"of the role {str(role)[:40]}" if role is not None else "without a role"
        pairing.ignored.append(f"chat message {what}")


def _sent(message: dict[str, Any], pairing: Pairing) -> list[Call]:
    """The calls in an assistant message; their turn is set when they are added."""
    sent: list[Call] = []
    calls = message.get("tool_calls")
    if type(calls) is list:
        for call in calls:
            try:
                function = call["function"]
                name = function["name"]
                arguments = function.get("arguments")
            except (KeyError, TypeError, AttributeError, IndexError):
                custom = call.get("custom") if isinstance(call, dict) else None
                if not isinstance(custom, dict) or not isinstance(custom.get("name"), str):
                    pairing.ignored.append("tool call without a function")
                    continue
                name, arguments = custom["name"], {"input": custom.get("input")}
            if type(name) is not str:
                pairing.ignored.append("tool call without a name")
                continue
            call_id = call.get("id")
            if call_id is not None and type(call_id) is not str:
                call_id = str(call_id)
            sent.append(Call(name, 0, arguments, None, "no_result", None, call_id))
    old = message.get("function_call")
    if not sent and isinstance(old, dict) and isinstance(old.get("name"), str):
        sent.append(Call(old["name"], 0, old.get("arguments")))
    return sent


def glued(chunks: list[Any]) -> dict[str, Any]:
    """The completion that a stream of chunks amounts to, its first choice only.

    Fragments of a call belong together by their index; one that names another id at the same index
    begins a new call, and one without an index continues the latest.
    """
    text: list[str] = []
    calls: list[dict[str, Any]] = []
    at: dict[Any, int] = {}
    old: dict[str, Any] = {}
    finish = None
    head: dict[str, Any] = {}
    for chunk in chunks:
        if not isinstance(chunk, dict):
            continue
        for key in ("id", "created", "model"):
            if chunk.get(key) and key not in head:
                head[key] = chunk[key]
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict) or choice.get("index", 0) != 0:
                continue
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or choice.get("message")
            if not isinstance(delta, dict):
                continue
            if isinstance(delta.get("content"), str):
                text.append(delta["content"])
            if isinstance(delta.get("function_call"), dict):
                for key, part in delta["function_call"].items():
                    if isinstance(part, str):
                        old[key] = old.get(key, "") + part
            parts = delta.get("tool_calls")
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict) and not isinstance(part.get("index"), (dict, list)):
                    _glue(calls, at, part)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
    if calls:
        message["tool_calls"] = calls
    if old:
        message["function_call"] = old
    # A stream that just ends was cut off, whatever it had told so far.
    choice = {"index": 0, "message": message, "finish_reason": finish or "length"}
    return {**head, "object": "chat.completion", "choices": [choice]}


def _glue(calls: list[dict[str, Any]], at: dict[Any, int], part: dict[str, Any]) -> None:
    """Add one fragment of a call."""
    index, call_id = part.get("index"), part.get("id")
    kind = "custom" if isinstance(part.get("custom"), dict) else "function"
    field = "input" if kind == "custom" else "arguments"
    told = part.get(kind)
    if not isinstance(told, dict):
        told = {}
    if index is not None:
        place = at.get(index)
    elif call_id:
        same = (i for i, call in enumerate(calls) if call["id"] == call_id)
        place = next(same, None)
    else:
        place = len(calls) - 1 if calls else None
    if place is not None and call_id and calls[place].get("id") not in (None, call_id):
        place = None
    if place is None:
        place = len(calls)
        calls.append({"id": None, kind: {"name": None, field: ""}})
    if index is not None:
        at[index] = place
    call = calls[place]
    if call_id:
        call["id"] = call_id
    body = call.setdefault(kind, {"name": None, field: ""})
    if told.get("name") and not body.get("name"):
        body["name"] = told["name"]
    added = told.get(field)
    if isinstance(added, str):
        so_far = body.get(field) or ""
        # Some servers send the arguments as they grow instead of what was added.
        grows = so_far.startswith("{") and len(so_far) > 1 and added.startswith(so_far)
        body[field] = added if grows else so_far + added
    elif isinstance(added, dict):
        body[field] = added
