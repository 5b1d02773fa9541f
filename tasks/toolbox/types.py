"""The toolbox's own types, as its JSON schemas name them, and what its tools return."""

from typing import Annotated, TypedDict

from pydantic import Field, WithJsonSchema

MAX_TEXT = 200_000
"""Characters of one text."""

ImageFile = Annotated[str, WithJsonSchema({"type": "string", "format": "image"})]
AudioFile = Annotated[str, WithJsonSchema({"type": "string", "format": "audio"})]
TableFile = Annotated[str, WithJsonSchema({"type": "string", "format": "table"})]
DocumentFile = Annotated[str, WithJsonSchema({"type": "string", "format": "document"})]
Text = Annotated[
    str, Field(max_length=MAX_TEXT), WithJsonSchema({"type": "string", "format": "text"})
]
Answer = Annotated[str, WithJsonSchema({"type": "string", "format": "answer"})]
Checksum = Annotated[str, WithJsonSchema({"type": "string", "format": "checksum"})]


class ImageResult(TypedDict):
    """A picture: the path of a .png file."""

    image: ImageFile


class AudioResult(TypedDict):
    """A recording: the path of a .wav file."""

    audio: AudioFile


class TableResult(TypedDict):
    """A table: the path of a .csv file."""

    table: TableFile


class DocumentResult(TypedDict):
    """A document: the path of a .txt file."""

    document: DocumentFile


class TextResult(TypedDict):
    """The text itself."""

    text: Text


class AnswerResult(TypedDict):
    """A short fact as text."""

    answer: Answer


class ChecksumResult(TypedDict):
    """A hash in hexadecimal digits."""

    checksum: Checksum
