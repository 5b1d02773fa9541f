"""Answers of a language model as JSON: asked for, checked, and sent back where they are wrong."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from models.errors import UnusableAnswer

Message = Mapping[str, str]
"""One turn of a conversation: ``role`` (system, user or assistant) and ``content``."""

Schema = Mapping[str, Any]
"""A JSON schema."""

Complete = Callable[[Sequence[Message], Schema], str]
"""A chat completion that is asked for JSON of a schema; what comes back need not keep to it."""

_MAX_FAULTS = 5
_LONGEST_ECHO = 4000  # characters of a wrong answer that the model is shown again


def ask_json(
    complete: Complete,
    messages: Sequence[Message],
    schema: Schema,
    tries: int = 3,
    check: Callable[[Any], Sequence[str]] | None = None,
) -> Any:
    """The answer of a language model, valid by the schema.

    An answer that is not is sent back with what is wrong with it.

    Args:
        complete: Asks the model.
        messages: The conversation so far.
        schema: Of the answer.
        tries: Answers at most.
        check: What is wrong with an answer that the schema allows, in sentences; nothing if right.

    Raises:
        UnusableAnswer: No answer was valid.
    """
    if tries < 1:
        raise ValueError(f"expected at least one try, got {tries}.")
    validator = Draft202012Validator(schema)
    told: list[list[str]] = []
    asked = list(messages)
    answer = ""
    for _ in range(tries):
        answer = complete(asked, schema)
        value, faults = _read(answer)
        if not faults:
            faults = _departures(validator, value)
        if not faults and check is not None:
            faults = list(check(value))[:_MAX_FAULTS]
        if not faults:
            return value
        told.append(faults)
        asked = [*messages, *_sent_back(answer, faults, schema)]
    reasons = " ".join(f"Try {n}: {' '.join(faults)}" for n, faults in enumerate(told, 1))
    raise UnusableAnswer(
        f"expected JSON of the schema from the language model, got {_cut(answer)!r} as the last "
        f"of {tries} answers. {reasons} Take a model that follows schemas better."
    )


def _sent_back(answer: str, faults: Sequence[str], schema: Schema) -> list[Message]:
    """The turns that show the model its answer and what is wrong with it."""
    shape = json.dumps(schema, ensure_ascii=False)
    complaint = (
        "This answer cannot be used:\n"
        + "\n".join(f"- {fault}" for fault in faults)
        + f"\nAnswer again, with nothing but JSON of this schema:\n{shape}"
    )
    return [
        {"role": "assistant", "content": answer[:_LONGEST_ECHO] or "(nothing)"},
        {"role": "user", "content": complaint},
    ]


def _read(answer: str) -> tuple[Any, list[str]]:
    """The JSON value of an answer, or what stands in its way; a code fence around it does not."""
    text = answer.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text.split("\n", 1)[1].removesuffix("```")
    try:
        return json.loads(text, parse_constant=_refuse), []
    except (ValueError, RecursionError) as error:
        return None, [f"It is not JSON: {str(error) or type(error).__name__}."]


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _departures(validator: Draft202012Validator, value: Any) -> list[str]:
    """Where a value departs from the schema."""
    errors = sorted(validator.iter_errors(value), key=lambda error: str(error.json_path))
    return [f"At {error.json_path}: {_cut(error.message)}." for error in errors[:_MAX_FAULTS]]


def _cut(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:299]}…"
