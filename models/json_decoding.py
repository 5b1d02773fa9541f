"""JSON of a schema out of a frozen local language model, whatever the model.

The schema says what may come next. Where it leaves no choice, text is fed as it is, in one pass
with the next choice; where it does, the likeliest of what it allows is taken. What is written is
put together from the schema and from the bytes of the chosen tokens, so it always is JSON.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.answers import Complete, Message, Schema
from models.errors import PromptTooLong, UnusableLLM
from models.llm import FrozenLLM, Reader
from models.prompt import chat_tokens
from models.spelling import START, spelling_of
from models.trie import ROOT, TokenTrie

MAX_CHARS = 200
"""Length of a string whose schema states none."""

MAX_ITEMS = 16
"""Length of an array whose schema states none."""

MAX_INTEGER = 10**9
"""Size of an integer whose schema states no bounds."""

_END = -1  # in a trie of options: this one is complete
_AFTER_VALUE = ",]} \n"
_KEYWORDS = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength"},
    "integer": {"minimum", "maximum"},
    "boolean": set(),
    "null": set(),
}
_KINDS = {str: "string", bool: "boolean", type(None): "null", int: "integer", float: "number"}
_ANYWHERE = {"type", "title", "description", "$schema"}


def local_chat(llm: FrozenLLM) -> Complete:
    """The model as a chat completion whose every answer keeps to its schema."""
    return partial(write_json, llm)


def write_json(llm: FrozenLLM, messages: Sequence[Message], schema: Schema) -> str:
    """The model's answer to a conversation, as JSON that is valid by the schema; greedy.

    Objects hold their required properties, in the order of ``properties``; strings hold no quotes,
    backslashes and control characters.

    Args:
        llm: The model.
        messages: The conversation.
        schema: Of objects, arrays, strings, integers, booleans, null, ``enum``, ``const``, and
            ``anyOf`` whose alternatives begin with different characters.

    Raises:
        PromptTooLong: Conversation and answer are longer than the model reads.
        ValueError: The schema holds something else.
    """
    _check(schema, "$")
    writer = _Writer(llm, chat_tokens(llm, messages))
    try:
        writer.value(schema)
    except PromptTooLong as error:
        raise PromptTooLong(
            f"expected a conversation and an answer of at most {llm.max_positions} tokens for "
            f"{llm.name!r}, got more; take a model that reads more (setting llm) or an endpoint "
            "(setting chat_url)."
        ) from error
    return b"".join(writer.written).decode()


class _Writer:
    """One answer in the making."""

    def __init__(self, llm: FrozenLLM, prompt: Sequence[int]) -> None:
        self.llm, self.spelling = llm, spelling_of(llm)
        self.reader = Reader(llm)
        self.segment: int | None = None
        self.ids = list(prompt)  # chosen, not read yet
        self.text = ""  # behind them, not read yet either
        self.row = torch.zeros(0)
        self.written: list[bytes] = []

    def value(self, schema: Schema) -> None:
        """Write a value of the schema."""
        chosen = _alternatives(schema)
        if len(chosen) > 1:
            chosen = [chosen[self.beginning([_openings(one) for one in chosen])]]
        (one,) = chosen
        if "enum" in one:
            self._option(one["enum"])
        elif one["type"] == "object":
            self._object(one)
        elif one["type"] == "array":
            self._array(one)
        elif one["type"] == "string":
            self._string(int(one.get("minLength", 0)), int(one.get("maxLength", MAX_CHARS)))
        else:
            low, high = one.get("minimum", -MAX_INTEGER), one.get("maximum", MAX_INTEGER)
            self._integer(int(low), int(high))

    def force(self, text: str) -> None:
        """Write what has no alternative."""
        self.text += text
        self.written.append(text.encode())

    def beginning(self, firsts: Sequence[str]) -> int:
        """Which of several sets of characters the model wants to go on with."""
        row = self._logits()
        wishes = [self.spelling.best_of(row, chars) for chars in firsts]
        return wishes.index(max(wishes))

    def _flush(self) -> None:
        """Turn the text that is pending into tokens."""
        if self.text:
            self.ids += self.llm.tokens(self.text)
            self.text = ""

    def _logits(self) -> Tensor:
        """What the model says after all that was written."""
        self._flush()
        pending, self.ids = self.ids, []
        if self.segment is None and len(pending) > 1:
            self.segment, pending = self.reader.read_text(pending[:-1]), pending[-1:]
        if pending:
            with torch.no_grad():
                (self.segment,), rows = self.reader.read([(self.segment, self.llm.embed(pending))])
            self.row = rows[0]
        return self.row

    def _object(self, schema: Schema) -> None:
        self.force("{")
        for place, name in enumerate(_required(schema)):
            self.force(f"{', ' if place else ''}{json.dumps(name, ensure_ascii=False)}: ")
            self.value(schema["properties"][name])
        self.force("}")

    def _array(self, schema: Schema) -> None:
        low, high = _lengths(schema)
        openings = "".join(map(_openings, _alternatives(schema["items"])))
        self.force("[")
        for number in range(high):
            if number >= low and self.beginning(["]", "," if number else openings]) == 0:
                break
            if number:
                self.force(", ")
            self.value(schema["items"])
        self.force("]")

    def _string(self, low: int, high: int) -> None:
        self.force('"')
        within, length = START, 0
        while length < high or within != START:
            content = self.spelling.content(within)
            fits = (content.chars <= high - length).nonzero().flatten()
            may_end = within == START and length >= low
            if not fits.numel():
                if may_end:
                    break
                raise UnusableLLM(
                    f"expected a token of {self.llm.name!r} that goes on a text, its vocabulary "
                    "has none; choose another model (setting llm)."
                )
            row = self._logits()
            best = int(fits[row[content.ids[fits]].argmax()])
            token = int(content.ids[best])
            if may_end and self.spelling.best_of(row, '"') >= float(row[token]):
                break
            self._take(token)
            within, length = content.ends[best], length + int(content.chars[best])
        self.force('"')

    def _take(self, token: int) -> None:
        """Write a token that was chosen."""
        self._flush()
        self.ids.append(token)
        self.written.append(self.spelling.written[token])

    def _option(self, options: Sequence[Any]) -> None:
        """Write one of several values, by the trie of their tokens."""
        texts = [json.dumps(option, ensure_ascii=False) for option in options]
        is_text = isinstance(options[0], str)
        inner = [text[1:-1] for text in texts] if is_text else texts
        lines: dict[tuple[int, ...], str] = {}
        for text in inner:
            lines.setdefault((*self.llm.tokens(text), _END) if text else (_END,), text)
        if len(lines) == 1:
            self.force(texts[0])
            return
        self.force('"' if is_text else "")
        self._flush()
        trie, node = TokenTrie(dict(enumerate(lines))), ROOT
        while (found := trie.tool[node]) is None:
            legal = list(trie.children[node])
            token = legal[0]
            if len(legal) > 1:
                row = self._logits()
                ends = self.spelling.best_of(row, '"' if is_text else _AFTER_VALUE)
                wishes = [ends if option == _END else float(row[option]) for option in legal]
                token = legal[wishes.index(max(wishes))]
            if token != _END:
                self.ids.append(token)
            node = trie.children[node][token]
        self.written.append(list(lines.values())[found].encode())
        self.force('"' if is_text else "")

    def _integer(self, low: int, high: int) -> None:
        digits = ""
        while True:
            following = [d for d in "-0123456789" if _leads(digits + d, low, high)]
            may_end = digits not in ("", "-") and low <= int(digits) <= high
            ways = [*following, *([_AFTER_VALUE] if may_end else [])]
            chosen = ways[self.beginning(ways) if len(ways) > 1 else 0]
            if chosen == _AFTER_VALUE:
                return
            digits += chosen
            self.force(chosen)


def _leads(digits: str, low: int, high: int) -> bool:
    """Whether an integer between the bounds begins with these characters."""
    size = digits.removeprefix("-")
    if not size:
        return digits == "" or low < 0
    if "-" in size or (size[0] == "0" and digits != "0"):
        return False
    if digits.startswith("-"):
        low, high = -high, -low
    if digits == "0":
        return low <= 0 <= high
    number, width = int(size), 1
    while number * width <= high:
        if number * width + width - 1 >= low:
            return True
        width *= 10
    return False


# --- schemas --------------------------------------------------------------------------------------


def _alternatives(schema: Schema) -> list[Schema]:
    """The alternatives of a schema, each with one type or a list of like options."""
    if "anyOf" in schema:
        return [one for part in schema["anyOf"] for one in _alternatives(part)]
    if "const" in schema:
        return [{"enum": [schema["const"]]}]
    if "enum" in schema:
        texts = [option for option in schema["enum"] if isinstance(option, str)]
        others = [option for option in schema["enum"] if not isinstance(option, str)]
        return [{"enum": part} for part in (texts, others) if part]
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    alternatives: list[Schema] = []
    for kind in kinds:
        if kind == "boolean":
            alternatives.append({"enum": [True, False]})
        elif kind == "null":
            alternatives.append({"enum": [None]})
        else:
            alternatives.append({**schema, "type": kind})
    return alternatives


def _openings(schema: Schema) -> str:
    """Characters that a value of one alternative may begin with."""
    if "enum" in schema:
        return "".join(sorted({json.dumps(option)[0] for option in schema["enum"]}))
    if schema["type"] == "integer":
        low, high = schema.get("minimum", -MAX_INTEGER), schema.get("maximum", MAX_INTEGER)
        return "".join(d for d in "-0123456789" if _leads(d, int(low), int(high)))
    return {"object": "{", "array": "[", "string": '"'}[schema["type"]]


def _required(schema: Schema) -> list[str]:
    """Required properties in the order of ``properties``."""
    required = set(schema.get("required", ()))
    return [name for name in schema.get("properties", {}) if name in required]


def _lengths(schema: Schema) -> tuple[int, int]:
    low = int(schema.get("minItems", 0))
    return low, int(schema.get("maxItems", max(low, MAX_ITEMS)))


def _check(schema: Any, place: str) -> None:
    """Refuse a schema that cannot be written.

    Raises:
        ValueError: It holds a keyword or type that is not known here, nothing fits it, or several
            alternatives begin with the same character.
    """
    fault = _fault(schema)
    if fault:
        raise ValueError(
            f"expected a schema of objects, arrays, strings, integers, booleans, null, enum, const "
            f"and anyOf, got {fault} at {place}; write it with these."
        )
    for name, part in schema.get("properties", {}).items():
        _check(part, f"{place}.{name}")
    for number, part in enumerate(schema.get("anyOf", ())):
        _check(part, f"{place}.anyOf[{number}]")
    if "items" in schema:
        _check(schema["items"], f"{place}[]")
    firsts = [set(_openings(one)) for one in _alternatives(schema)]
    if sum(map(len, firsts)) > len(set().union(*firsts)):
        raise ValueError(
            f"expected alternatives that begin with different characters at {place}, got "
            f"{json.dumps(schema)[:200]}; tell them apart by their type."
        )


def _fault(schema: Any) -> str:
    """What a schema itself holds that cannot be written; empty if nothing."""
    if not isinstance(schema, Mapping):
        return repr(schema)
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    unknown = [kind for kind in kinds if kind not in _KEYWORDS]
    if unknown:
        return f"type {unknown[0]!r}"
    for name in ("enum", "anyOf"):
        if name in schema and not schema[name]:
            return f"an empty {name}"
    ways = [name for name in ("anyOf", "enum", "const") if name in schema]
    if len(ways) > 1 or not (ways or kinds):
        return " beside ".join(ways) or "no type"
    if "anyOf" in schema and kinds:
        return "anyOf beside type"
    for option in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]:
        kind = _KINDS.get(type(option), "no simple value")
        if kind not in (kinds or _KINDS.values()):
            return f"option {option!r}"
    known = _ANYWHERE.union(ways, *(() if ways else (_KEYWORDS[kind] for kind in kinds)))
    strange = sorted(set(schema) - known)
    if strange:
        return f"keyword {strange[0]!r}"
    if "array" in kinds and not ways and "items" not in schema:
        return "an array without items"
    missing = sorted(set(schema.get("required", ())) - set(schema.get("properties", {})))
    if missing:
        return f"required property {missing[0]!r} without a schema"
    bounds = [
        (schema.get("minLength", 0), schema.get("maxLength", MAX_CHARS)),
        _lengths(schema),
        (schema.get("minimum", -MAX_INTEGER), schema.get("maximum", MAX_INTEGER)),
    ]
    return next((f"bounds {low} and {high}" for low, high in bounds if low > high), "")
