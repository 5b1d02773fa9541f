"""Requests cut into tasks by rules: clauses, what they name, and the words that begin orders.

Nothing here knows a tool, a file or a request: verbs come from the catalogue's own descriptions
and a short list of English orders.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from models.clauses import clauses
from models.mentions import FileTypes, Mention, files_in, refers_back

_ORDERS = frozenset({
    "add", "answer", "append", "apply", "arrange", "attach", "average", "blend", "blur",
    "boil", "boost", "build", "calculate", "change", "chart", "check", "chop", "classify",
    "clean", "clear", "clip", "combine", "compare", "compose", "compress", "compute",
    "convert", "copy", "count", "create", "crop", "cut", "decode", "delete", "describe",
    "detect", "determine", "display", "do", "download", "draw", "drop", "dump", "edit",
    "eliminate", "encode", "enlarge", "erase", "estimate", "explain", "export", "extract",
    "fetch", "fill", "filter", "find", "fix", "flip", "format", "generate", "get", "give",
    "glue", "grab", "group", "hang", "highlight", "identify", "invert", "isolate", "join",
    "keep", "label", "list", "load", "locate", "look", "lower", "make", "mark", "measure",
    "merge", "mirror", "mix", "move", "narrow", "normalize", "open", "order", "paint",
    "paste", "pick", "picture", "place", "play", "plot", "point", "print", "process",
    "produce", "provide", "pull", "put", "raise", "rank", "read", "recognize", "redo",
    "reduce", "remove", "rename", "render", "repeat", "replace", "report", "reset", "resize",
    "return", "reverse", "rewrite", "rotate", "run", "save", "say", "scale", "search",
    "segment", "select", "send", "separate", "set", "share", "shift", "shorten", "show",
    "shrink", "slice", "soften", "sort", "speak", "speed", "split", "spot", "squeeze",
    "stick", "store", "stretch", "strip", "sum", "summarise", "summarize", "swap", "tag",
    "take", "tell", "tint", "total", "transcribe", "transform", "translate", "trim", "turn",
    "type", "update", "use", "verify", "write", "zoom",
})  # fmt: skip
"""Orders that people begin a sentence with."""

_AND = re.compile(
    r"(?:,\s*(?:and|then|and\s+then)?|\s+and(?:\s+then|\s+also)?|\s+then)\s+(?=(\w+))",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:(?:hi|hello|please|kindly|now|first|second|third|finally|and|also|then|next|so)\b[\s,]*|"
    r"(?:can|could|would|will)\s+you\s+(?:please\s+|kindly\s+|also\s+|help\s+me\s+(?:to\s+)?)*|"
    r"(?:is|would)\s+it\s+(?:be\s+)?possible\s+(?:for\s+you\s+)?to\s+|"
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
        makes: Files that it wants made: names for a result, no inputs.
        refers_back: It speaks of something that came before it.
    """

    text: str
    files: tuple[Mention, ...]
    refers_back: bool
    makes: tuple[Mention, ...] = ()


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


_WH = r"(?:(?:what|how)(?!\s+about\b)|which|who|whom|whose|why|when|where)"
_AUX = r"(?:is|are|was|were|do(?!\s+(?:it|this|that|these|those|the\s+same)\b)|does|did)"
_QUESTION = re.compile(
    rf"^(?:can|could|will|would|should)\s+(?!i\b|we\b|you\b)"
    rf"|(?:^|[,:;]\s*"
    rf"|\b(?:know|wonder|tell\s+me|check|verify|determine|find\s+out|see|confirm|detect)\s+)"
    rf"(?:{_WH}|if|whether|{_AUX})\b",
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
    pieces = [piece for clause in clauses(request, 1) for piece in _cut(clause, verbs)]
    joined: list[str] = []
    told = ""
    for piece in pieces:
        is_greeting = not joined and len(piece) < _FEWEST and not _stands_alone(piece, types, verbs)
        if _tells(piece) or is_greeting:
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
    tasks: list[Task] = []
    for text in joined:
        task = _task(text, types)
        if tasks and task.files and _SAME.search(text):
            task = replace(task, text=_with_files(tasks[-1], task.files))
        tasks.append(task)
    return tasks


_SAME = re.compile(r"\b(?:do|does|the)\s+(?:so|the\s+same|same)\b|\blikewise\b", re.IGNORECASE)


def _with_files(earlier: Task, files: Sequence[Mention]) -> str:
    """The words of an earlier task for other files: what "the same for x.png" says."""
    text = earlier.text
    for old, new in zip(earlier.files, files, strict=False):
        text = text.replace(old.value, new.value)
    return text


_SAVES = re.compile(
    r"\b(?:save|put|store|write|export|keep|dump|record|call|name|file)\b[^.!?]*"
    r"\b(?:as|into|in|to|under|called|named|it)\s+(?:a\s+file\s+)?(?:called\s+|named\s+)?[\"'“]?$",
    re.IGNORECASE,
)


def _task(text: str, types: FileTypes) -> Task:
    """A task with the files that it works on, apart from those that it wants to be made."""
    files = files_in(text, types)
    makes = tuple(f for f in files if _SAVES.search(text[: f.start]))
    known = tuple(f for f in files if f not in makes)
    return Task(text, known, refers_back(text) or bool(makes and not known), makes)


_FEWEST = 10
"""Letters of a piece that may begin a request as its first task, without an order or a file."""

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
