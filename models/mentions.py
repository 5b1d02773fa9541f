"""What a request speaks of: files with their types, quoted text, what it refers back to.

Types come from the catalogue. A file's type is told by its extension, by what parameters of that
type say about extensions, and by a type's name beside the file ("the edge map x.png").
"""

import mimetypes
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from models.subtasks import short_type

_EXTENSION = re.compile(r"(?<![\w.])\.([A-Za-z]\w{1,4})\b")
_PATH = re.compile(
    r"(?<![\w/.@-])((?:\.{0,2}/)*(?:[\w~-][\w.~-]*/)*[\w~-][\w.~-]*\.([A-Za-z]\w{1,4}))(?![\w/@])"
)
_URL = re.compile(r"\bhttps?://[^\s\"'<>)\]]+[^\s\"'<>)\].,;:!?]")
_QUOTED = re.compile(
    r"\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”"
    r"|(?<!\w)'((?:[^'\n]|(?<=\w)'(?=\w)){1,400})'(?!\w)"
    r"|(?<!\w)‘((?:[^’\n]|(?<=\w)’(?=\w)){1,400})’(?!\w)"
)
_BACK = re.compile(
    r"\b(?:it|its|them|they|this|that|these|those|both|result|results|output|"
    r"(?:the|this|that)\s+(?:generated|resulting|new|created|obtained|given|edited|cropped)\s+\w+|"
    r"the\s+same)\b",
    re.IGNORECASE,
)

_MEDIA = mimetypes.MimeTypes()
"""Python's own table: what a machine has beside it would make plans differ."""


def _is_known(name: str) -> bool:
    return name.rpartition(".")[2].casefold() in _FAMILIES or any(_MEDIA.guess_type(name, False))


_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "csv": ("table", "csv", "dataframe", "spreadsheet", "dataset"),
    "tsv": ("table", "tsv", "dataframe", "spreadsheet"),
    "xls": ("spreadsheet", "table"),
    "xlsx": ("spreadsheet", "table"),
    "parquet": ("table", "dataframe"),
    "txt": ("document", "text"),
    "md": ("document", "text"),
    "pdf": ("document", "pdf"),
    "docx": ("document",),
    "htm": ("html", "webpage", "document"),
    "html": ("html", "webpage", "document"),
    "json": ("json",),
    "wav": ("audio", "sound", "speech"),
    "flac": ("audio",),
    "m4a": ("audio",),
    "ogg": ("audio",),
    "mkv": ("video",),
    "yaml": ("yaml", "text"),
    "yml": ("yaml", "text"),
    "log": ("log", "text"),
}
"""What files of an extension are called where their media type does not say it."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A resource that a request names.

    Attributes:
        value: As it is written.
        type: In the catalogue's words, "" where it has none for it.
        start: Place of its first letter.
        end: Place behind its last letter.
    """

    value: str
    type: str
    start: int
    end: int


class FileTypes:
    """Extensions to the types of a catalogue.

    Args:
        types: The catalogue's own types.
        said: For each type, what parameters of that type say of themselves.
    """

    def __init__(self, types: Iterable[str], said: Mapping[str, Sequence[str]]) -> None:
        self.types = {short_type(name): name for name in sorted(types)}
        self._said: dict[str, str] = {}
        for name, texts in sorted(said.items()):
            for text in texts:
                for extension in _EXTENSION.findall(text):
                    self._said.setdefault(extension.casefold(), name)

    def of(self, extension: str) -> str:
        """The type of files of an extension, "" unknown."""
        extension = extension.casefold()
        if extension in self._said:
            return self._said[extension]
        guessed = _MEDIA.guess_type(f"x.{extension}", strict=False)[0] or ""
        main, _, sub = guessed.partition("/")
        for name in (*_FAMILIES.get(extension, ()), extension, sub, main):
            if name in self.types:
                return self.types[name]
        return ""

    def beside(self, before: str, stem: str, kind: str) -> str:
        """A narrower type that is named right before a file, or at the end of its name."""
        said = _BESIDE.search(before)
        for word in (*re.findall(r"[A-Za-z]+", stem)[-1:], *([said[1]] if said else [])):
            name = self.types.get(word.casefold())
            if name and name != kind and word.casefold() not in _PLAIN:
                return name
        return kind


_BESIDE = re.compile(
    r"([A-Za-z]+)(?:\s+(?:map|maps|file|files|result|results|output|input|image|picture))?"
    r"(?:\s+(?:named|called|from|in|at))?[\s\"'‘“:(]*$"
)

_PLAIN = frozenset({"text", "image", "video", "audio", "document", "table", "title", "category",
                    "tags", "html", "file", "time", "location", "weather"})  # fmt: skip
"""Types that a word beside a file does not make of it: "the text in image x.png"."""


def files_in(text: str, types: FileTypes) -> list[Mention]:
    """Files and addresses in the order of the text, each occurrence."""
    found = [
        Mention(m[0], types.types.get("url", ""), m.start(), m.end()) for m in _URL.finditer(text)
    ]
    taken = [(m.start, m.end) for m in found]
    for m in _PATH.finditer(text):
        if any(start <= m.start(1) < end for start, end in taken):
            continue
        kind = types.of(m[2])
        if not kind and not _is_known(m[1]):
            continue
        kind = types.beside(
            text[max(0, m.start(1) - 60) : m.start(1)], m[1].rpartition(".")[0], kind
        )
        found.append(Mention(m[1], kind, m.start(1), m.end(1)))
    return sorted(found, key=lambda mention: mention.start)


def without_files(text: str) -> str:
    """The text with a bar for each address and for each word that looks like a file."""
    return _PATH.sub("|", _URL.sub("|", text))


def quoted_in(text: str) -> list[Mention]:
    """Quoted passages that are no file names."""
    return [
        Mention(value, "text", m.start(), m.end())
        for m in _QUOTED.finditer(text)
        for value in [next(group for group in m.groups() if group)]
        if not _PATH.fullmatch(value)
    ]


def refers_back(text: str) -> bool:
    """Whether a clause speaks of what came before it."""
    return bool(_BACK.search(text))


_FUNCTION_WORDS = frozenset({
    "a", "able", "about", "above", "after", "again", "all", "also", "am", "an", "and", "any",
    "anything", "are", "as", "at", "audio", "be", "been", "before", "being", "below",
    "between", "both", "but", "by", "called", "can", "check", "clip", "come", "could", "did",
    "do", "document", "does", "doing", "down", "during", "each", "every", "everything", "few",
    "file", "files", "find", "for", "from", "further", "get", "give", "go", "had", "has",
    "have", "having", "he", "help", "her", "here", "hers", "him", "his", "how", "i", "if",
    "image", "images", "in", "interested", "into", "is", "it", "its", "itself", "just",
    "kindly", "know", "let", "like", "located", "make", "many", "may", "me", "more", "most",
    "much", "my", "named", "need", "no", "nor", "not", "now", "of", "off", "on", "once",
    "only", "or", "other", "our", "out", "output", "over", "own", "per", "photo", "photos",
    "picture", "pictures", "please", "possible", "put", "recording", "result", "results", "s",
    "same", "see", "she", "should", "so", "some", "something", "such", "table", "tell",
    "text", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this",
    "those", "through", "to", "too", "under", "until", "up", "us", "very", "video", "videos",
    "want", "was", "we", "were", "what", "whats", "when", "where", "which", "while", "who",
    "whom", "why", "will", "with", "wonder", "would", "you", "your", "yours",
})  # fmt: skip


def base_forms(word: str) -> set[str]:
    """A word and what it may be an ending of: "ordered" of "order", "sorting" of "sort"."""
    forms = {word}
    for ending in ("ed", "ing", "es", "s"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            stem = word.removesuffix(ending)
            forms |= {stem, f"{stem}e", stem[:-1] if stem[-1] == stem[-2] else stem}
    return forms


def phrase_of(text: str, taken: Collection[str] = (), ignored: Collection[str] = ()) -> str:
    """The words of a clause that say what it is about: the longest run of them.

    Args:
        text: The clause.
        taken: Passages that stand for themselves, such as files: they are left out.
        ignored: Words that say what to do, not with what, lower-case.
    """
    ignored = frozenset(ignored)
    for passage in sorted(taken, key=len, reverse=True):
        text = text.replace(passage, " | ")
    runs: list[list[str]] = [[]]
    for word in re.findall(r"[^\W_][\w'’-]*|[|,.;:?!]", text):
        folded = re.sub(r"['’]\w*$", "", word.casefold())
        if word in "|,.;:?!" or folded in _FUNCTION_WORDS or base_forms(folded) & ignored:
            runs.append([])
        else:
            runs[-1].append(word)
    longest = max(len(run) for run in runs)
    return " ".join(next(run for run in runs if len(run) == longest))


SEVERAL = re.compile(
    r"\b(?:both|them|these|those|together|side\s+by\s+side|each\s+other|the\s+two|one\s+after)\b",
    re.IGNORECASE,
)
"""A clause that speaks of several results at once."""
