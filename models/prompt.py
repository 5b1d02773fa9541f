"""What the frozen language model is told, cut where graph tokens go in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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

_REQUEST, _GRAPH, _ANSWER = "{-request-}", "{-graph-}", "{-answer-}"


class Frame(NamedTuple):
    """A prompt in tokens: ``before``, the request, graph tokens, ``after``, answer, ``end``."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    end: int


def frame(llm: FrozenLLM, instruction: str, tool_list: Sequence[str] | None = None) -> Frame:
    """The constant parts of a prompt, laid out by the model's own chat template.

    The request and the graph tokens after it are the end of the user's turn, so that everything
    before the graph tokens is a constant of the frozen model. A model without a template gets plain
    text, one whose template knows no system role gets the instruction in the user's turn.

    Args:
        llm: The model.
        instruction: What is to be done.
        tool_list: Names to list below the instruction; ``None`` for no list.
    """
    if tool_list is not None:
        instruction = f"{instruction} The tools are:\n" + "\n".join(tool_list)
    text = _rendered(llm.tokenizer, instruction)
    before, _, rest = text.partition(_REQUEST)
    _, _, rest = rest.partition(_GRAPH)
    after, _, closing = rest.partition(_ANSWER)
    end = llm.tokens(closing, special=True)[:1] or [int(llm.tokenizer.eos_token_id)]
    return Frame(
        tuple(llm.tokens(before, special=True)), tuple(llm.tokens(after, special=True)), end[0]
    )


def _rendered(tokenizer: object, instruction: str) -> str:
    """A whole conversation as text, with marks where request, graph tokens and answer stand."""
    if not getattr(tokenizer, "chat_template", None):
        return f"{instruction}\n\nRequest: {_REQUEST}{_GRAPH}\nAnswer:\n{_ANSWER}"
    user, answer = _REQUEST + _GRAPH, {"role": "assistant", "content": _ANSWER}
    with_system = [
        {"role": "system", "content": instruction},
        {"role": "user", "content": user},
        answer,
    ]
    alone = [{"role": "user", "content": f"{instruction}\n\n{user}"}, answer]
    from jinja2 import TemplateError

    apply = tokenizer.apply_chat_template  # type: ignore[attr-defined]
    try:
        text: str = apply(with_system, tokenize=False)
        if instruction.split("\n")[0] not in text:
            text = apply(alone, tokenize=False)
    except TemplateError:
        text = apply(alone, tokenize=False)
    return text


@dataclass(frozen=True, slots=True)
class Names:
    """How the tools of a graph are written in prompts and answers.

    Attributes:
        written: One name a tool, distinct, on one line each.
        lines: Tokens of each name with its line break.
    """

    written: tuple[str, ...]
    lines: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(llm: FrozenLLM, keys: Sequence[str]) -> "Names":
        """Plain names where they are distinct, whole keys where two tools share one."""
        short = [" ".join(key.split("/", 1)[-1].split()) for key in keys]
        counts: dict[str, int] = {}
        for name in short:
            counts[name] = counts.get(name, 0) + 1
        written = [
            name if name and counts[name] == 1 else " ".join(key.split())
            for name, key in zip(short, keys, strict=True)
        ]
        used: dict[str, int] = {}
        for i, name in enumerate(written):  # keys that differ in blanks alone
            used[name] = used.get(name, 0) + 1
            if used[name] > 1:
                written[i] = f"{name} ({used[name]})"
        lines = tuple(tuple(llm.tokens(name + "\n")) for name in written)
        return Names(tuple(written), lines)


def plan_tokens(
    lines: Mapping[int, Sequence[int]] | Sequence[Sequence[int]], plan: Sequence[int], end: int
) -> list[int]:
    """The tokens of an answer: one tool a line, then the end of the turn."""
    return [token for row in plan for token in lines[row]] + [end]
