"""Requests cut into tasks by rules: clauses, what they name, and the words that begin orders.

Nothing here knows a tool, a file or a request: verbs come from the catalogue's own descriptions
and a short list of English orders.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from models.clauses import clauses
from models.mentions import FileTypes, Mention, files_in, refers_back

_ORDERS = frozenset({
    "add", "answer", "apply", "attach", "blur", "build", "calculate", "change", "check",
    "classify", "clean", "clip", "combine", "compare", "compute", "convert", "copy", "count",
    "create", "crop", "cut", "delete", "describe", "detect", "determine", "display",
    "download", "draw", "edit", "eliminate", "erase", "estimate", "explain", "export",
    "extract", "fetch", "fill", "filter", "find", "fix", "flip", "format", "generate", "get",
    "give", "group", "highlight", "identify", "invert", "isolate", "join", "keep", "label",
    "list", "locate", "look", "make", "mark", "measure", "merge", "mix", "normalize", "open",
    "paint", "paste", "place", "play", "plot", "point", "print", "process", "produce",
    "provide", "put", "read", "recognize", "remove", "rename", "render", "replace", "report",
    "reset", "resize", "return", "rotate", "run", "save", "say", "scale", "search", "segment",
    "select", "send", "separate", "set", "share", "shorten", "show", "sort", "speak", "speed",
    "split", "spot", "store", "summarise", "summarize", "swap", "tag", "take", "tell",
    "transcribe", "transform", "translate", "trim", "turn", "update", "use", "verify",
    "write", "zoom",
})  # fmt: skip
"""Orders that people begin a sentence with."""

_AND = re.compile(
    r"(?:,\s*(?:and|then|and\s+then)?|\s+and(?:\s+then|\s+also)?|\s+then)\s+(?=(\w+))",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:(?:hi|hello|please|kindly|now|first|second|third|finally|and|also|then|next|so)\b[\s,]*|"
    r"(?:can|could|would|will)\s+you\s+(?:please\s+|kindly\s+|also\s+|help\s+me\s+(?:to\s+)?)*|"
    r"i(?:'d|\s+would)?\s+(?:like|want|need)(?:\s+you)?\s+to\s+|help\s+me\s+(?:to\s+)?|let\s+me\s+)+",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"^(?:what|which|who|whom|whose|how|why|when|where|is|are|was|were|do|does|did|can|could|would|"
    r"will|should|has|have|i|i'm|i'd|let)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a request.

    Attributes:
        text: Its words.
        files: What it names.
        refers_back: It speaks of something that came before it.
    """

    text: str
    files: tuple[Mention, ...]
    refers_back: bool


def verbs_of(descriptions: Iterable[str]) -> frozenset[str]:
    """First words of what tools say of themselves, with common orders: they begin a task."""
    found = set(_ORDERS)
    for description in descriptions:
        first = re.match(r"\s*([A-Za-z]+)", description)
        if first:
            word = first[1].casefold()
            found.add(word)
            found.add(word.removesuffix("s"))
    return frozenset(found)


_QUESTION = re.compile(
    r"(?:^|[,:;]\s*|\b(?:know|tell\s+me|check|verify|determine|find\s+out|see|confirm|detect)\s+)"
    r"(?:what|which|who|whom|whose|how|why|when|where|if|whether|is|are|was|were|do|does|did)\b",
    re.IGNORECASE,
)


def asks(text: str) -> bool:
    """Whether a piece is a question, not an order put as one ("can you draw ...?")."""
    return bool(_QUESTION.search(_LEAD.sub("", text.strip())))


def tasks_of(request: str, types: FileTypes, verbs: frozenset[str]) -> list[Task]:
    """The tasks of a request, in order.

    Clauses are cut once more before an order ("... and save it"). A clause that neither orders nor
    asks nor names a file belongs to the one before it, one that only tells how things are ("I have
    a picture x.png.") to the one after it.
    """
    pieces = [piece for clause in clauses(request) for piece in _cut(clause, verbs)]
    joined: list[str] = []
    told = ""
    for piece in pieces:
        if _tells(piece):
            told = f"{told} {piece}".strip()
        elif joined and not told and not _stands_alone(piece, types, verbs):
            joined[-1] = f"{joined[-1]} {piece}"
        else:
            joined.append(f"{told} {piece}".strip())
            told = ""
    if told and joined:
        joined[-1] = f"{joined[-1]} {told}"
    elif told:
        joined.append(told)
    return [Task(text, tuple(files_in(text, types)), refers_back(text)) for text in joined]


_TELLS = re.compile(
    r"(?:i|i'm|i've|we|we've|my|our|here|there|he|she|they|it)\b(?!.*\b(?:want|need|like|love|look|"
    r"looking|try|trying|wish|hope|curious|interested|require|know|wonder|wondering|please)\b)",
    re.IGNORECASE,
)


def _tells(piece: str) -> bool:
    """Whether a piece only tells how things are."""
    return bool(_TELLS.match(piece.strip())) and not piece.rstrip().endswith("?")


def _cut(clause: str, verbs: frozenset[str]) -> list[str]:
    pieces, start = [], 0
    for match in _AND.finditer(clause):
        if match[1].casefold() in verbs and _orders(clause[start : match.start()], verbs):
            pieces.append(clause[start : match.start()])
            start = match.end()
    pieces.append(clause[start:])
    return [piece.strip() for piece in pieces if piece.strip()]


def _orders(piece: str, verbs: frozenset[str]) -> bool:
    """Whether a piece has an order or a question before another one may begin."""
    words = re.findall(r"[A-Za-z']+", piece)
    return bool(_ASKS.match(_LEAD.sub("", piece))) or any(w.casefold() in verbs for w in words)


def _stands_alone(piece: str, types: FileTypes, verbs: frozenset[str]) -> bool:
    bare = _LEAD.sub("", piece.strip())
    first = re.match(r"[A-Za-z']+", bare)
    is_order = bool(first and first[0].casefold() in verbs)
    return is_order or bool(_ASKS.match(piece.strip())) or bool(files_in(piece, types))
