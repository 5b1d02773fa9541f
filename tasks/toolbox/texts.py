"""Tools for texts and the documents that hold them."""

import re
from collections import Counter
from typing import Annotated

from pydantic import Field

from tasks.errors import ToolRefused
from tasks.toolbox.sandbox import Sandbox
from tasks.toolbox.types import (
    MAX_TEXT,
    AnswerResult,
    DocumentFile,
    DocumentResult,
    Text,
    TextResult,
)
from tasks.toolbox.words import SPANISH, STOP_WORDS

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_FILE_NAME = re.compile(r"[^\W_][\w .-]{0,79}")


def read_document(
    box: Sandbox,
    document: Annotated[DocumentFile, Field(description="The text file to read.")],
) -> TextResult:
    """Read a text file and give its text."""
    try:
        text = box.read(document, "document").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolRefused(f"Expected UTF-8 text in {document}, got other bytes: {error}.") from None
    return {"text": _short_enough(text)}


def write_document(
    box: Sandbox,
    text: Annotated[Text, Field(description="The text to save.")],
    name: Annotated[str, Field(description="Name of the new file, with or without .txt.")],
) -> DocumentResult:
    """Save a text as a new text file."""
    stem = name.strip().removesuffix(".txt")
    if not _FILE_NAME.fullmatch(stem):
        raise ToolRefused(
            f"Expected a name of letters, digits, blanks, dots and hyphens, got {name[:100]!r}."
        )
    return {"document": box.save(f"{stem}.txt", text.encode("utf-8", "replace"))}


def count_words(
    box: Sandbox,  # noqa: ARG001
    text: Annotated[Text, Field(description="The text whose words are counted.")],
) -> AnswerResult:
    """Count the words of a text."""
    return {"answer": str(len(text.split()))}


def summarize_text(
    box: Sandbox,  # noqa: ARG001
    text: Annotated[Text, Field(description="The text to shorten.")],
    sentences: Annotated[int, Field(description="How many sentences to keep.", ge=1, le=50)] = 2,
) -> TextResult:
    """Shorten a text to its most telling sentences."""
    parts = [" ".join(part.split()) for part in _SENTENCE_END.split(text)]
    parts = [part for part in parts if part]
    counts = Counter(_content_words(text))

    def weight(index: int) -> tuple[bool, float]:
        """The mean frequency of the words; headings and very short sentences say too little."""
        words = _content_words(parts[index])
        mean = sum(counts[word] for word in words) / max(len(words), 6)
        return parts[index].endswith((".", "!", "?")), mean

    best = sorted(range(len(parts)), key=weight, reverse=True)[:sentences]
    return {"text": " ".join(parts[index] for index in sorted(best))}


def find_lines(
    box: Sandbox,  # noqa: ARG001
    text: Annotated[Text, Field(description="The text to search.")],
    wanted: Annotated[str, Field(description="The word or phrase to look for.", min_length=1)],
) -> TextResult:
    """Keep only the lines of a text that contain a word or phrase, in upper or lower case."""
    folded = wanted.casefold()
    return {"text": "\n".join(line for line in text.splitlines() if folded in line.casefold())}


def replace_words(
    box: Sandbox,  # noqa: ARG001
    text: Annotated[Text, Field(description="The text to change.")],
    old: Annotated[str, Field(description="The word or phrase to replace.", min_length=1)],
    new: Annotated[str, Field(description="What stands in its place.")],
) -> TextResult:
    """Replace a word or phrase everywhere in a text, in the same upper and lower case."""
    pattern = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
    count = sum(1 for _ in pattern.finditer(text))
    _check_length(len(text) + count * (len(new) - len(old)))
    return {"text": pattern.sub(lambda _: new, text)}


def extract_keywords(
    box: Sandbox,  # noqa: ARG001
    text: Annotated[Text, Field(description="The text to look through.")],
    number: Annotated[int, Field(description="How many keywords to give.", ge=1, le=100)] = 5,
) -> TextResult:
    """Give the keywords of a text: its most frequent words, separated by commas."""
    counts = Counter(_content_words(text))
    return {"text": ", ".join(word for word, _ in counts.most_common(number))}


def translate_words(
    box: Sandbox,
    text: Annotated[Text, Field(description="The English text.")],
) -> TextResult:
    """Translate a text from English to Spanish, word by word."""
    if box.is_first("translated", text):
        raise ToolRefused(
            "The translation service is temporarily unavailable; try again in a moment."
        )

    def translated(match: re.Match[str]) -> str:
        word = match.group()
        found = SPANISH.get(word.lower(), word)
        return found[0].upper() + found[1:] if word[0].isupper() else found

    return {"text": _short_enough(_WORD.sub(translated, text))}


def _content_words(text: str) -> list[str]:
    """The words that are no stop words, in lower case."""
    words = (word.lower() for word in _WORD.findall(text))
    return [word for word in words if len(word) > 2 and word not in STOP_WORDS]


def _short_enough(text: str) -> str:
    _check_length(len(text))
    return text


def _check_length(length: int) -> None:
    if length > MAX_TEXT:
        raise ToolRefused(
            f"The text would have {length:,} characters; at most {MAX_TEXT:,} are handled."
        )
