"""The resource expert: arguments filled from the words of a task, and from nothing else.

ControlLLM asks an LLM for what the search left open (arXiv 2310.17796, 3.2.3). These rules read
numbers by the words beside them, choices by their names, and passages by quotes and places. What
no word of the request gives stays open: a value is never invented.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from models.fields import words_of
from models.mentions import base_forms, phrase_of, quoted_in, without_files
from models.types import Argument


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter as the catalogue states it."""

    name: str
    type: str
    description: str
    is_required: bool


@dataclass(frozen=True, slots=True)
class Contract:
    """What a tool says of itself and of its parameters."""

    description: str
    parameters: tuple[Parameter, ...]


def read_contracts(nodes: pl.DataFrame) -> dict[str, Contract]:
    """Key to contract, for every node."""
    return {
        f"{namespace}/{name}": Contract(description or "", tuple(_parameters(parameters)))
        for namespace, name, description, parameters in nodes.select(
            "namespace", "name", "description", "parameters"
        ).iter_rows()
    }


def _parameters(text: str) -> Iterable[Parameter]:
    try:
        entries = json.loads(text) if text else []
    except ValueError:
        return
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            yield Parameter(
                entry["name"],
                str(entry.get("type") or ""),
                str(entry.get("description") or ""),
                entry.get("required") is not False,
            )


_NUMBER = re.compile(
    r"(?:(?<![\w.:-])|(?<=\d[x×])|(?<=[^\w-]\d-)|(?<=[^\w-]\d\d-))"
    r"(?:\d{1,2}(?::\d\d){1,2}|-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|-?\.\d+)"
    r"(?![\d:]|\w*\.\w)"
)
"""A number, with "1,000", "200x100" and "5-10"; a time such as "1:30" is so many seconds."""

_NUMERIC = frozenset({"integer", "int", "number", "float", "double"})
_TEXTUAL = frozenset({"string", "str", "text"})
_NUMBER_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "twenty": 20, "thirty": 30, "fifty": 50, "hundred": 100,
    "half": 0.5,
}  # fmt: skip


_MEASURED = {
    "wide": "width", "high": "height", "tall": "height", "long": "length", "deep": "depth",
    "thick": "thickness", "heavy": "weight", "loud": "loudness",
}  # fmt: skip


def fill_step(
    contract: Contract,
    arguments: Sequence[Argument],
    text: str,
    others: Sequence[Contract] = (),
    verbs: Collection[str] = (),
) -> tuple[Argument, ...]:
    """The arguments of one step with what the words of its task say; others stay as they are.

    Optional parameters that nothing in the words speaks of are left out.

    Args:
        contract: Of the tool.
        arguments: As the search bound them.
        text: Words of the task.
        others: Contracts of the other steps of the same task: their numbers are theirs.
        verbs: Words that say what to do: no value.
    """
    told = {p.name: p for p in contract.parameters}
    taken = [str(a.value) for a in arguments if isinstance(a.value, str) and "." in a.value]
    words = _Words(text, taken, contract, others, verbs)
    words.used |= {a.value for a in arguments if isinstance(a.value, str) and a.value != text}
    filled = []
    open_numbers = [
        a.name for a in arguments if not a.is_filled and _kind(told.get(a.name)) == "number"
    ]
    numbers = words.numbers_for([told[name] for name in open_numbers])
    for argument in arguments:
        parameter = told.get(argument.name)
        if argument.is_filled or parameter is None:
            filled.append(argument)
            continue
        value = _value(parameter, words, numbers)
        if value is not None:
            filled.append(Argument(argument.name, argument.type, value))
        elif parameter.is_required:
            filled.append(argument)
    return tuple(filled)


def _kind(parameter: Parameter | None) -> str:
    if parameter is None:
        return ""
    kinds = set(parameter.type.casefold().split("|")) - {"null"}
    if kinds & _NUMERIC:
        return "number"
    if kinds & {"boolean", "bool"}:
        return "boolean"
    is_choice = parameter.type.casefold().startswith(("enum[", "literal["))
    return "text" if is_choice or not kinds or kinds & _TEXTUAL else ""


def _value(
    parameter: Parameter, words: "_Words", numbers: Mapping[str, float | int]
) -> str | float | int | bool | None:
    kind = _kind(parameter)
    if kind == "number":
        return numbers.get(parameter.name)
    if kind == "boolean":
        return words.speaks_of(parameter)
    if kind != "text":
        return None
    options = options_of(parameter)
    if options:
        return words.option(options)
    return words.passage(parameter)


_OPTIONS = re.compile(
    r"(?:one of|either|:|\()\s*"
    r"((?:[\"'`]?\w+[\"'`]?\s*(?:,|\bor\b|/|\|)\s*(?:or\s+)?)+[\"'`]?\w+[\"'`]?)",
    re.IGNORECASE,
)


def options_of(parameter: Parameter) -> tuple[str, ...]:
    """The choices of a parameter: of its type ("enum[sum, mean]"), or told in its description."""
    stated = re.match(r"(?:enum|literal)\[(.*)\]", parameter.type, re.IGNORECASE)
    found = stated or _OPTIONS.search(parameter.description)
    if not found:
        return ()
    parts = re.split(r"\s*(?:,|\bor\b|/|\|)\s*", found[1])
    return tuple(part.strip("\"'` ") for part in parts if part.strip("\"'` "))


_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "sum": ("total", "altogether", "overall", "add up", "together"),
    "mean": ("average", "typical"),
    "avg": ("average", "mean"),
    "average": ("mean",),
    "min": ("minimum", "smallest", "lowest", "least", "cheapest", "fewest", "shortest"),
    "max": ("maximum", "largest", "highest", "biggest", "most", "greatest", "top", "longest"),
    "count": ("how many", "number of"),
    "descending": ("highest first", "largest first", "biggest first", "high to low", "top down",
                   "decreasing", "highest to lowest", "largest to smallest", "most first",
                   "from the highest", "from the largest", "from the most", "reverse",
                   "from high", "from big", "best first", "expensive first", "from most"),
    "ascending": ("lowest first", "smallest first", "low to high", "increasing"),
}  # fmt: skip
"""How people say the usual names of choices."""


class _Words:
    """What the words of a task offer to parameters; a passage is given away once."""

    def __init__(
        self,
        text: str,
        taken: Sequence[str],
        contract: Contract,
        others: Sequence[Contract],
        verbs: Collection[str],
    ) -> None:
        self.verbs = verbs
        bare = text
        for passage in taken:
            bare = bare.replace(passage, " | ")
        self.made = _MADE.findall(bare)
        bare = without_files(bare)
        self.bare = bare
        self.others = others
        self.contract = contract
        quotes = [q for q in quoted_in(text) if q.value not in taken]
        self.quotes = [q.value for q in quotes]
        self.counted = bare
        for quote in quotes:  # what stands in a quote belongs to it, unless it is a number
            if not _NUMBER.fullmatch(quote.value):
                self.counted = self.counted.replace(quote.value, " | ")
        self.used: set[str] = set()

    def numbers_for(self, parameters: Sequence[Parameter]) -> dict[str, float | int]:
        """Numbers by the words beside them, what is left in order."""
        spans = [(m.start(), m.end(), _number(m[0])) for m in _NUMBER.finditer(self.counted)]
        spans += [
            (m.start(), m.end(), _NUMBER_WORDS[m[0].casefold()])
            for m in re.finditer(r"[A-Za-z]+", self.counted)
            if m[0].casefold() in _NUMBER_WORDS
        ]
        spans.sort()
        foreign = [p for other in self.others for p in other.parameters if _kind(p) == "number"]
        found: dict[str, float | int] = {}
        free = []
        for span in spans:
            scores = [
                (self._near(span, p), p)
                for p in parameters
                if p.name not in found and _fits(span[2], p)
            ]
            best = max(scores, key=lambda pair: pair[0], default=(0, None))
            abroad = max((self._near(span, p) for p in foreign), default=0)
            if best[1] is not None and best[0] > 0 and best[0] >= abroad:
                found[best[1].name] = _fitting(span[2])
            elif abroad == 0:
                free.append(span)
        for parameter in parameters:
            if parameter.name not in found and parameter.is_required:
                fitting = [span for span in free if _fits(span[2], parameter)][:1]
                for span in fitting:
                    free.remove(span)
                    found[parameter.name] = _fitting(span[2])
        return found

    def _near(self, span: tuple[int, int, float | int], parameter: Parameter) -> int:
        """How many words beside a number speak of a parameter: its name, its unit."""
        before = re.split(r"[,;|]", self.counted[: span[0]])[-1]
        after = re.split(r"[,;|]", self.counted[span[1] :])[0]
        words = [*re.findall(r"[a-z]+", before.casefold())[-2:]]
        words += re.findall(r"[a-z]+", after.casefold())[:2]
        beside = {_stem(_MEASURED.get(word, word)) for word in words}
        name = {_stem(word) for word in words_of(parameter.name)}
        said = {_stem(w) for w in re.findall(r"[A-Za-z]{2,}", parameter.description)} - _COMMON
        return 2 * len(beside & name) + len(beside & said)

    def speaks_of(self, parameter: Parameter) -> bool | None:
        """What the words say of a yes-or-no parameter; None: nothing."""
        said = [_stem(word) for word in re.findall(r"[A-Za-z']+", self.bare)]
        name = [_stem(word) for word in words_of(parameter.name)]
        if name and set(name) <= set(said):
            at = said.index(name[0])
            return _NOT.isdisjoint(said[max(0, at - 3) : at])
        is_said = _says(self.bare, _SYNONYMS.get(parameter.name.casefold(), ()))
        if parameter.name.casefold() == "descending":
            is_said = is_said or bool(_BEST_FIRST.search(self.bare.casefold()))
        return True if is_said else None

    def option(self, options: Sequence[str]) -> str | None:
        """The choice that the words name, or one of its usual other names."""
        words = re.findall(r"[A-Za-z]+", self.bare.casefold())
        for option in options:
            if option.casefold() in words:
                return option
        for option in options:
            if _says(self.bare, _SYNONYMS.get(option.casefold(), ())):
                return option
        for option in options:
            if any(_is_form(word, option.casefold()) for word in words):
                return option
        return None

    def passage(self, parameter: Parameter) -> str | None:
        """A passage for a text parameter: quoted, beside the parameter's name, or what is left."""
        if self.made and words_of(parameter.name)[-1:] in (("name",), ("filename",)):
            return str(self.made[-1])
        for quote in self.quotes:
            if quote not in self.used:
                self.used.add(quote)
                return quote
        own = {
            form
            for one in (self.contract, *self.others)
            for word in re.findall(r"[A-Za-z]+", one.description.casefold())
            for form in (word, word.removesuffix("s"))
        }
        for word in reversed(words_of(parameter.name)):
            for pattern in (
                rf"\b{re.escape(word)}s?\s+(?:is\s+|of\s+|called\s+|named\s+|as\s+|to\s+|=\s*)?(\w[\w-]*)",
                rf"\b(\w[\w-]*)\s+{re.escape(word)}s?\b",
            ):
                for match in re.finditer(pattern, self.bare, re.IGNORECASE):
                    value = match[1]
                    is_verb = base_forms(value.casefold()) & set(self.verbs)
                    is_plain = value.casefold() not in own | _COMMON and not is_verb
                    if is_plain and value not in self.used:
                        self.used.add(value)
                        return value
        synonyms = {word for phrases in _SYNONYMS.values() for p in phrases for word in p.split()}
        ignored = own | synonyms | set(_SYNONYMS) | set(self.verbs)
        phrase = phrase_of(self.bare, tuple(self.used), ignored)
        if phrase:
            self.used.add(phrase)
            return phrase
        return None


_BEST_FIRST = re.compile(
    r"\b(?:best|most|highest|largest|biggest|greatest|newest|latest|longest|top|more)\b.*"
    r"\b(?:first|on top|at the top|down)\b"
)
_MADE = re.compile(r"[\w~-][\w.~/-]*\.[A-Za-z]\w{1,4}\b")
_COMMON = frozenset({
    "the", "a", "an", "of", "in", "by", "on", "to", "for", "from", "and", "or", "with", "its", "it",
    "that", "this", "each", "be", "is",
})  # fmt: skip


def _says(text: str, phrases: Iterable[str]) -> bool:
    """Whether a text has any of the phrases, as whole words."""
    return any(re.search(rf"\b{re.escape(phrase)}\b", text, re.IGNORECASE) for phrase in phrases)


def _is_form(word: str, option: str) -> bool:
    """Whether a word is an inflection of a choice: "counted" of "count", and not "country"."""
    is_long = min(len(word), len(option)) > 6
    return option in base_forms(word) or (is_long and _stem(word) == _stem(option))


def _stem(word: str) -> str:
    return word.casefold()[:5]


_NOT = frozenset(map(_stem, ("not", "no", "never", "without", "don't", "doesn't")))


def _number(text: str) -> float | int:
    if ":" in text:
        seconds = 0
        for part in text.split(":"):
            seconds = 60 * seconds + int(part)
        return seconds
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)


def _fits(value: float | int, parameter: Parameter) -> bool:
    kinds = set(parameter.type.casefold().split("|"))
    return float(value).is_integer() or not kinds.isdisjoint({"number", "float", "double"})


def _fitting(value: float | int) -> float | int:
    return int(value) if float(value).is_integer() else value
