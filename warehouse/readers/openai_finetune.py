"""OpenAI fine-tuning lines: one conversation each, with the tools it may use.

Told from other chat records by keys that only training data has: ``parallel_tool_calls``,
``functions``, ``weight`` on a message, or ``tools`` beside ``messages`` without a model. The format
has a name of its own because its calls need no results and its ids (``call_id`` on all lines) mean
nothing.
"""

from collections.abc import Iterator
from typing import Any

from warehouse.readers import anthropic, openai_chat
from warehouse.readers.stream import Item
from warehouse.records import Record

_ELSEWHERE = ("model", "response", "request", "id", "traj", "choices", "conversation_id")
_OWN = ("tools", "functions", "parallel_tool_calls")


def is_example(value: Any) -> bool:
    """A line of a training file."""
    if not isinstance(value, dict) or "messages" not in value:
        return False
    if any(key in value for key in _ELSEWHERE):
        return False
    messages = value["messages"]
    if not openai_chat.is_messages(messages) or anthropic.is_request(value):
        return False
    return any(key in value for key in _OWN) or any(
        isinstance(message, dict) and "weight" in message for message in messages[:8]
    )


def read_example(item: Item) -> Iterator[Record]:
    """One line; the tools that it offers come first."""
    yield from openai_chat.read_conversation(item)
