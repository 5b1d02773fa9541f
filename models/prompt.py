"""What the frozen language model is told, cut where graph tokens go in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from models.errors import UnusableLLM
from models.llm import FrozenLLM

PLANNING = (
    "You plan tool calls for a user. Answer only with the names of the tools that the request "
    "needs, one on a line, in the order of their calls."
)
NAMING = "A node of a tool graph is shown. Answer only with the name of its tool."
DEPENDENCY = (
    "Two nodes of a tool graph are shown. Does a call of the first tool lead to a call of the "
    "second one? Answer only yes or no."
)

_SOME_DAY = "01 Jan 2026"
_NO_CLOCK = "{% macro strftime_now(format) %}" + _SOME_DAY + "{% endmacro %}"
"""Put before a template, so that one that writes the date does not change overnight."""


class Frame(NamedTuple):
    """A prompt in tokens: ``before``, the request, graph tokens, ``after``, answer, ``end``."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    end: int


class _Marks(NamedTuple):
    """Where in a rendered conversation the parts stand that are not the template's."""

    names: str
    request: str
    answer: str

    def cut(self, text: str) -> tuple[str, str, str, str] | None:
        """The template's own parts, or None where a mark is missing, repeated or out of order."""
        if any(text.count(mark) != 1 for mark in self):
            return None
        first, _, rest = text.partition(self.names)
        second, _, rest = rest.partition(self.request)
        third, found, last = rest.partition(self.answer)
        return (first, second, third, last) if found else None


def frame(llm: FrozenLLM, instruction: str, tool_list: Sequence[str] | None = None) -> Frame:
    """The constant parts of a prompt, laid out by the model's own chat template.

    The request and the graph tokens after it are the end of the user's turn, so that everything
    before the graph tokens is a constant of the frozen model. A model without a template gets plain
    text, one whose template knows no system role gets the instruction in the user's turn. Only the
    template's own words may be special tokens; what is written in a tool's name stays text.

    Args:
        llm: The model.
        instruction: What is to be done.
        tool_list: Names to list below the instruction; ``None`` for no list.

    Raises:
        UnusableLLM: The template leaves out or repeats what it is given.
    """
    marks = _Marks(*(f"[{uuid4().hex}]" for _ in range(3)))
    head, middle, after, closing = _parts(llm, instruction, marks)
    listed = "" if tool_list is None else " The tools are:\n" + "\n".join(tool_list)
    before = llm.tokens(head, special=True) + llm.tokens(listed)
    before += llm.tokens(middle, special=True)
    special = set(llm.tokenizer.all_special_ids)
    ends = [token for token in llm.tokens(closing, special=True) if token in special]
    end = ends[0] if ends else llm.tokenizer.eos_token_id
    if end is None:
        raise UnusableLLM(
            f"expected a token that ends an answer of {llm.name!r}, its tokenizer has none; choose "
            "another model (setting llm)."
        )
    return Frame(tuple(before), tuple(llm.tokens(after, special=True)), int(end))


def _parts(llm: FrozenLLM, instruction: str, marks: _Marks) -> tuple[str, str, str, str]:
    """The parts of a conversation around tool names, request and answer."""
    if not getattr(llm.tokenizer, "chat_template", None):
        return _opening(llm) + instruction, "\n\nRequest: ", "\nAnswer:\n", ""
    told = instruction + marks.names
    answer = {"role": "assistant", "content": marks.answer}
    conversations: list[list[dict[str, str]]] = [
        [{"role": "system", "content": told}, {"role": "user", "content": marks.request}, answer],
        [{"role": "user", "content": f"{told}\n\n{marks.request}"}, answer],
    ]
    for conversation in conversations:
        text = _rendered(llm, conversation)
        parts = None if text is None else marks.cut(text)
        if parts is not None:
            return parts
    raise UnusableLLM(
        f"expected the chat template of {llm.name!r} to show instruction, request and answer once "
        "and in this order, it does not; choose another model (setting llm)."
    )


def _opening(llm: FrozenLLM) -> str:
    """What a plain text begins with: the token for it, where the tokenizer writes one."""
    tokenizer = llm.tokenizer
    opening: str = tokenizer.bos_token or ""
    return opening if opening and tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id else ""


def _rendered(
    llm: FrozenLLM, conversation: Sequence[Mapping[str, str]], *, is_open: bool = False
) -> str | None:
    """A conversation by the model's chat template, or None where the template refuses it.

    Args:
        llm: A model with a template.
        conversation: Its turns.
        is_open: Whether the beginning of the model's next answer follows.
    """
    from jinja2 import TemplateError

    try:
        text: str = llm.tokenizer.apply_chat_template(
            list(conversation),
            tokenize=False,
            chat_template=_NO_CLOCK + llm.tokenizer.get_chat_template(),
            date_string=_SOME_DAY,
            **({"add_generation_prompt": True, "enable_thinking": False} if is_open else {}),
        )
    except TemplateError:
        return None
    return text


def chat_tokens(llm: FrozenLLM, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """A conversation in tokens, up to where the model's next answer begins.

    Laid out as in :func:`frame`: what is written in a message stays text.

    Args:
        llm: The model.
        messages: Turns with ``role`` and ``content``, at least one.

    Raises:
        UnusableLLM: The template leaves out or repeats what it is given.
    """
    if not messages:
        raise ValueError("expected a conversation of at least one message, got none.")
    if not getattr(llm.tokenizer, "chat_template", None):
        turns = [f"{m['role'].capitalize()}: {m['content']}\n\n" for m in messages]
        opening = llm.tokens(_opening(llm), special=True) if _opening(llm) else []
        return opening + llm.tokens("".join(turns) + "Assistant:")
    for told in (list(messages), _without_system(messages)):
        marks = [f"[{uuid4().hex}]" for _ in told]
        turns_marked = [
            {"role": m["role"], "content": mark} for m, mark in zip(told, marks, strict=True)
        ]
        parts = _between(_rendered(llm, turns_marked, is_open=True), marks)
        if parts is not None:
            ids = llm.tokens(parts[0], special=True)
            for message, part in zip(told, parts[1:], strict=True):
                ids += llm.tokens(message["content"]) + llm.tokens(part, special=True)
            return ids
    raise UnusableLLM(
        f"expected the chat template of {llm.name!r} to show each message once and in order, it "
        "does not; choose another model (setting llm)."
    )


def _without_system(messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The conversation with its instruction in the user's first turn."""
    if len(messages) < 2 or (messages[0]["role"], messages[1]["role"]) != ("system", "user"):
        return list(messages)
    joined = f"{messages[0]['content']}\n\n{messages[1]['content']}"
    return [{"role": "user", "content": joined}, *messages[2:]]


def _between(text: str | None, marks: Sequence[str]) -> list[str] | None:
    """What stands around the marks, or None where one is missing, repeated or out of order."""
    if text is None or any(text.count(mark) != 1 for mark in marks):
        return None
    parts = []
    for mark in marks:
        before, found, text = text.partition(mark)
        if not found:
            return None
        parts.append(before)
    return [*parts, text]


@dataclass(frozen=True, slots=True)
class Names:
    """How the tools of a graph are written in prompts and answers.

    Attributes:
        written: One name a tool, distinct, on one line each.
        lines: Tokens of each name with its line break, distinct too.
    """

    written: tuple[str, ...]
    lines: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(llm: FrozenLLM, keys: Sequence[str]) -> "Names":
        """Plain names where they are distinct, whole keys where two tools share one.

        A number goes behind a name whose tokens another tool has: keys may differ in blanks alone,
        and some tokenizers take different letters for the same.
        """
        short = [" ".join(key.split("/", 1)[-1].split()) for key in keys]
        counts: dict[str, int] = {}
        for name in short:
            counts[name] = counts.get(name, 0) + 1
        written: list[str] = []
        lines: dict[tuple[int, ...], None] = {}
        for name, key in zip(short, keys, strict=True):
            plain = name if name and counts[name] == 1 else " ".join(key.split())
            chosen, number = plain, 1
            while (line := tuple(llm.tokens(chosen + "\n"))) in lines:
                number += 1
                chosen = f"{plain} ({number})"
            written.append(chosen)
            lines[line] = None
        return Names(tuple(written), tuple(lines))


def listed(llm: FrozenLLM, names: Sequence[str]) -> list[int]:
    """Tokens of a list of tools below a request."""
    return llm.tokens("".join(["\n\nTools that may help:", *(f"\n{name}" for name in names), "\n"]))


def plan_tokens(
    lines: Mapping[int, Sequence[int]] | Sequence[Sequence[int]], plan: Sequence[int], end: int
) -> list[int]:
    """The tokens of an answer: one tool a line, then the end of the turn."""
    return [token for row in plan for token in lines[row]] + [end]
