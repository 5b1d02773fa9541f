"""What ControlLLM asks a language model: subtasks, how tools suit them, the last words.

The search itself needs none of it (arXiv 2310.17796, sections 3.1 and 3.2.2); prompts are our own.
"""

import json
import logging
import re
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from models.answers import Complete, Message, ask_json
from models.errors import UnusableAnswer, UnusableLLM
from models.llm import FrozenLLM, Reader
from models.prompt import frame
from models.scorers import LOW
from models.solving import Scorer, Suits
from models.spelling import spelling_of
from models.subtasks import GENERATED, Subtask, short_type
from models.toolset import Resource

_log = logging.getLogger(__name__)

Wanted = Callable[[Subtask], Collection[int]]
"""Places of the tools that need a score for a subtask."""

# --- scores ---------------------------------------------------------------------------------------

_JUDGE = (
    "You judge whether a tool helps with a task. The tool may do one step of several. Scores:\n"
    "1: it has nothing to do with the task.\n"
    "2: it has little to do with the task.\n"
    "3: it may help, or makes something that another step can use.\n"
    "4: it does a part of the task.\n"
    "5: it does the task, or makes what the task asks for.\n"
    "Where tool and task speak of the same things, or you are in doubt, give 3 or more."
)
_SCORE: dict[str, Any] = {
    "type": "object",
    "properties": {"thought": {"type": "string"}, "score": {"enum": [1, 2, 3, 4, 5]}},
    "required": ["thought", "score"],
    "additionalProperties": False,
}


def _told(subtask: Subtask) -> str:
    """A subtask as a model reads it."""
    lines = [f"Task: {subtask.description}"]
    if subtask.args:
        lines.append(f"It is given: {', '.join(resource.type for resource in subtask.args)}")
    if subtask.returns:
        lines.append(f"It asks for: {', '.join(subtask.returns)}")
    return "\n".join(lines)


class LlmScorer:
    """Scores 1 to 5 by asking a language model about each tool, as the paper does.

    What was answered is kept: a tool is asked about once for tasks that read alike.

    Args:
        complete: Asks the model.
        keys: Of the tools.
        texts: What is told of each.
        wanted: Tools that need a score; the others get 1. Default: all.
        parallel: Questions at once; 1 for a model on this machine.
    """

    def __init__(
        self,
        complete: Complete,
        keys: Sequence[str],
        texts: Sequence[str],
        *,
        wanted: Wanted | None = None,
        parallel: int = 8,
    ) -> None:
        self._complete, self._wanted, self._parallel = complete, wanted, parallel
        self._tools = _tool_texts(keys, texts)
        self._known: dict[tuple[str, int], float] = {}

    def __call__(self, subtasks: Sequence[Subtask]) -> list[Suits]:
        """How every tool suits each subtask.

        Raises:
            UnusableAnswer: The model gave no score.
        """
        everything = range(len(self._tools))
        wanted = [sorted(self._wanted(s)) if self._wanted else everything for s in subtasks]
        told = [_told(subtask) for subtask in subtasks]
        asked = [(text, tool) for text, tools in zip(told, wanted, strict=True) for tool in tools]
        self._ask([pair for pair in dict.fromkeys(asked) if pair not in self._known])
        found = []
        for text, tools in zip(told, wanted, strict=True):
            scores = np.full(len(self._tools), LOW)
            for tool in tools:
                scores[tool] = self._known[text, tool]
            found.append(Suits(scores, scores[None, :]))
        return found

    def _ask(self, pairs: Sequence[tuple[str, int]]) -> None:
        with ThreadPoolExecutor(max(1, min(self._parallel, len(pairs)))) as pool:
            try:
                for pair, score in zip(pairs, pool.map(self._score, pairs), strict=True):
                    self._known[pair] = score
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _score(self, pair: tuple[str, int]) -> float:
        text, tool = pair
        messages: list[Message] = [
            {
                "role": "system",
                "content": f"{_JUDGE}\nAnswer with JSON: thought (at most 30 words), then score.",
            },
            {"role": "user", "content": f"{text}\nTool: {self._tools[tool]}"},
        ]
        return float(ask_json(self._complete, messages, _SCORE)["score"])


def _tool_texts(keys: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Name and text of each tool on one line; the name is not said twice."""
    found = []
    for key, text in zip(keys, texts, strict=True):
        name, line = key.split("/", 1)[-1], " ".join(text.split())
        found.append(line if line.startswith(name) else f"{name}: {line}")
    return found


_DIGITS = "12345"
_PASS_TOKENS = 320
"""Tokens of tools read in one pass; the attention of a pass grows with their square."""


def digit_scorer(
    llm: FrozenLLM, keys: Sequence[str], texts: Sequence[str], wanted: Wanted | None = None
) -> Scorer:
    """Scores by what a local model would answer first: the mean of the digits 1 to 5.

    One short continuation a tool, all of a subtask behind one reading of the task, instead of an
    answer that is decoded. Tools that need no score get 1.

    Args:
        llm: The model.
        keys: Of the tools.
        texts: What is told of each.
        wanted: Tools that need a score. Default: all.

    Raises:
        UnusableLLM: The model has no token for a digit.
    """
    spelling = spelling_of(llm)
    digits = [[*spelling.exactly(d), *spelling.exactly(f" {d}")] for d in _DIGITS]
    if not all(digits):
        raise UnusableLLM(
            f"expected a token for each of the digits 1 to 5, {llm.name!r} has none for "
            f"{_DIGITS[digits.index([])]}; choose another model (setting llm)."
        )
    cut = frame(llm, f"{_JUDGE}\nAnswer with the score alone, one digit.")
    tools = [[*llm.tokens(f"\nTool: {t}\nScore?"), *cut.after] for t in _tool_texts(keys, texts)]
    base = Reader(llm).start(cut.before)
    values = torch.arange(1.0, 6.0)

    @torch.no_grad()
    def score(subtask: Subtask) -> Suits:
        scores = np.full(len(tools), LOW)
        reader = base.fork()
        (task,), _ = reader.read([(base.root, llm.embed(llm.tokens(_told(subtask))))], wanted=[])
        rows = range(len(tools)) if wanted is None else sorted(wanted(subtask))
        for part in _packed(rows, [len(tool) for tool in tools]):
            pieces = [(task, llm.embed(tools[tool])) for tool in part]
            _, logits = reader.fork().read(pieces)
            said = torch.stack([logits[:, ids].logsumexp(dim=1) for ids in digits], dim=1).cpu()
            scores[part] = (said.softmax(dim=1) @ values).numpy()
        return Suits(scores, scores[None, :])

    return lambda subtasks: [score(subtask) for subtask in subtasks]


def _packed(rows: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Rows in order, as many together as a pass holds."""
    packs: list[list[int]] = []
    room = 0
    for row in rows:
        if not packs or lengths[row] > room:
            packs.append([])
            room = _PASS_TOKENS
        packs[-1].append(row)
        room -= lengths[row]
    return packs


# --- subtasks -------------------------------------------------------------------------------------

_CUT = (
    "You cut a user's request into the fewest subtasks that do all of it. You name no tools.\n"
    "Rules:\n"
    "- Number the subtasks from 0 on. A subtask asks for one result: say its type in returns.\n"
    "- The description says what is to be done, step by step where that helps.\n"
    "- args are what the subtask works on, each with its type: a file or value exactly as it is in "
    "the list of what is known or in the request; or <GENERATED>-n, the result of subtask n; or, "
    "of type text, the words that matter.\n"
    "- A subtask that uses <GENERATED>-n has n among its dependencies.\n"
    "- Never make up a file or another input that is not there.\n"
    "- Where nothing is to be done, the list of subtasks is empty."
)
_TEXT = "text"
_FILE = re.compile(r"[^\s\"'<>|]*[\w)\]]\.[A-Za-z]\w{1,4}|\w+://\S+")


class LlmDecomposer:
    """Cuts requests into subtasks by asking a language model (arXiv 2310.17796, 3.1).

    Args:
        complete: Asks the model.
        types: Types of the catalogue; others are sent back.
        domains: Domains of its tools; where it has none, none are asked for.
    """

    def __init__(
        self, complete: Complete, types: Collection[str], domains: Collection[str] = ()
    ) -> None:
        if not types:
            raise ValueError("expected the types of a catalogue, got none: nothing can be asked.")
        self._complete = complete
        self._types, self._domains = sorted(types), sorted(domains)
        self._schema = _subtasks_schema(self._types, self._domains)

    def __call__(self, request: str, resources: Sequence[Resource] = ()) -> tuple[Subtask, ...]:
        """The subtasks of a request, in an order that their dependencies allow.

        None means that the model sees nothing to do.

        Args:
            request: What the user asks.
            resources: What is known.

        Raises:
            UnusableAnswer: No answer held together.
        """
        known = {str(r.value): {"value": r.value, "type": r.type} for r in resources}
        told = [f"Types: {', '.join(self._types)}"]
        told += [f"Domains: {', '.join(self._domains)}"] if self._domains else []
        told.append(f"Known: {json.dumps(list(known.values()), ensure_ascii=False)}")
        told.append(f"Request: {json.dumps(request, ensure_ascii=False)}")
        messages: list[Message] = [
            {"role": "system", "content": f"{_CUT}\nAnswer with JSON: {_SHAPE}"},
            {"role": "user", "content": "\n".join(told)},
        ]
        answer = ask_json(
            self._complete,
            messages,
            self._schema,
            check=lambda value: _faults(value["subtasks"], known, request),
        )
        values = {name: resource["value"] for name, resource in known.items()}
        ordered, _ = _in_order([_subtask(entry, values) for entry in answer["subtasks"]])
        return tuple(ordered)


_SHAPE = (
    '{"subtasks": [{"id": 0, "description": "...", "domains": ["..."], "dependencies": [], '
    '"args": [{"type": "...", "value": "..."}], "returns": "..."}]}'
)


def _subtasks_schema(types: Sequence[str], domains: Sequence[str]) -> dict[str, Any]:
    """The schema of an answer; no keyword that strict endpoints refuse."""
    kind = {"enum": list(types)}
    argument = _object({"type": kind, "value": {"type": "string"}})
    parts: dict[str, Any] = {"id": {"type": "integer"}, "description": {"type": "string"}}
    if domains:
        parts["domains"] = {"type": "array", "items": {"enum": list(domains)}}
    parts["dependencies"] = {"type": "array", "items": {"type": "integer"}}
    parts["args"] = {"type": "array", "items": argument}
    parts["returns"] = kind
    return _object({"subtasks": {"type": "array", "items": _object(parts)}})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _subtask(entry: dict[str, Any], known: dict[str, Any]) -> Subtask:
    args, sources = [], set(map(int, entry["dependencies"]))
    for argument in entry["args"]:
        value, kind = argument["value"], argument["type"]
        made = GENERATED.fullmatch(value)
        if made:
            sources.add(int(made[1]))
            args.append(Resource(value, kind, made[1]))
        else:
            args.append(Resource(known.get(value, value), kind))
    return Subtask(
        id=int(entry["id"]),
        description=entry["description"],
        args=tuple(args),
        returns=(entry["returns"],),
        domains=tuple(dict.fromkeys(entry.get("domains", ()))),
        dependencies=tuple(sorted(sources)),
    )


def _in_order(subtasks: Sequence[Subtask]) -> tuple[list[Subtask], list[Subtask]]:
    """Subtasks behind all that they depend on, as given where that allows; and those in circles."""
    ordered: list[Subtask] = []
    left = list(subtasks)
    while True:
        done = {subtask.id for subtask in ordered}
        free = next((s for s in left if done.issuperset(s.dependencies)), None)
        if free is None:
            return ordered, left
        ordered.append(free)
        left.remove(free)


def _faults(entries: Sequence[dict[str, Any]], known: Collection[str], said: str) -> list[str]:
    """What does not hold together in an answer that the schema allows."""
    ids = [entry["id"] for entry in entries]
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice or any(i < 0 for i in ids):
        return [f"Subtask ids have to be different numbers from 0 on, not {ids}."]
    by_id = {entry["id"]: entry for entry in entries}
    faults = []
    for entry in entries:
        place = f"Subtask {entry['id']}"
        if not entry["description"].strip():
            faults.append(f"{place} has no description.")
        for source in entry["dependencies"]:
            if source not in by_id:
                faults.append(f"{place} depends on {source}, which is no subtask.")
        for argument in entry["args"]:
            fault = _argument_fault(argument["value"], argument["type"], by_id, known, said)
            faults += [f"{place}: {fault}"] if fault else []
    if not faults:
        _, circle = _in_order([_subtask(entry, {}) for entry in entries])
        if circle:
            faults.append(f"Subtasks {[s.id for s in circle]} wait for each other.")
    return faults


def _argument_fault(
    value: str,
    kind: str,
    by_id: dict[int, dict[str, Any]],
    known: Collection[str],
    said: str,
) -> str:
    """What is wrong with one argument: it has to be there, to be made, or to be words."""
    made = GENERATED.fullmatch(value)
    if made:
        source = by_id.get(int(made[1]))
        if source is None:
            return f"{value} is the result of no subtask."
        if not _fits(source["returns"], kind):
            return f"{value} is of type {source['returns']}, not {kind}."
        return ""
    if not value.strip():
        return f"an argument of type {kind} has no value."
    is_file = _FILE.fullmatch(value) is not None
    if value in known or (_names(said, value) if is_file else value.casefold() in said.casefold()):
        return ""
    if short_type(kind) == _TEXT and not is_file and "GENERATED" not in value:
        return ""
    return (
        f"{json.dumps(value, ensure_ascii=False)} is neither known nor in the request, nor the "
        "result of a subtask."
    )


def _names(text: str, file: str) -> bool:
    """Whether a text holds this file or address, not one that ends or begins like it."""
    return bool(re.search(rf"(?<![\w./\\-]){re.escape(file)}(?![/\\-]?\w|\.\w)", text))


def _fits(given: str, wanted: str) -> bool:
    """Whether a type is the wanted one or a kind of it, as "image.mask" is an "image"."""
    kind = given.casefold()
    return short_type(given) == short_type(wanted) or kind.startswith(f"{wanted.casefold()}.")


# --- last words -----------------------------------------------------------------------------------

_SUM_UP = (
    "You tell a user in one or two sentences what was done for a request and what came of it, from "
    "a report. Name results and failures as the report does. Add nothing that the report does not "
    'say. Answer with JSON: {"summary": "..."}'
)
_SUMMARY = _object({"summary": {"type": "string"}})
_FACT = re.compile(r"\w+://[^\s,;]*\w|[\w./\\-]*\w\.[A-Za-z]\w{1,4}\b|\d+(?:[.,:]\d+)*")
_SENTENCE = re.compile(r"[.!?。！？]+(?=\s+\S)")


def summarise_with(complete: Complete, request: str, told: str) -> str:
    """One or two sentences on an execution, in the model's words.

    A summary with a number, file or address that neither request nor report holds is sent back.
    The report itself is returned where the model gives no usable one.

    Args:
        complete: Asks the model.
        request: What the user asked.
        told: The report, such as :func:`models.execution.summarise` gives.
    """
    messages: list[Message] = [
        {"role": "system", "content": _SUM_UP},
        {"role": "user", "content": f"Request: {request}\n\nReport:\n{told}"},
    ]
    allowed = set(_FACT.findall(f"{request}\n{told}"))

    def check(value: dict[str, str]) -> list[str]:
        text = value["summary"].strip()
        if not text:
            return ["The summary is empty."]
        faults = [f"{x} is not in the report." for x in _FACT.findall(text) if x not in allowed]
        if len(_SENTENCE.findall(text)) > 1:
            faults.append("The summary has more than two sentences.")
        return faults

    try:
        answer: str = ask_json(complete, messages, _SUMMARY, check=check)["summary"]
    except UnusableAnswer as error:
        _log.warning("No summary in words: %s", error)
        return told
    return answer.strip()
