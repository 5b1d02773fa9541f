"""Tools for files of any kind."""

import hashlib
import time
from typing import Annotated

from pydantic import Field

from tasks.toolbox.sandbox import Sandbox
from tasks.toolbox.types import AnswerResult, ChecksumResult


def checksum_file(
    box: Sandbox,
    file: Annotated[str, Field(description="Path of any file of the sandbox.")],
) -> ChecksumResult:
    """Compute the SHA-256 checksum of a file. This takes a while."""
    box.find(file)
    time.sleep(box.slow_s)
    return {"checksum": hashlib.sha256(box.read(file)).hexdigest()}


def delete_file(
    box: Sandbox,
    file: Annotated[str, Field(description="Path of the file to delete.")],
) -> AnswerResult:
    """Delete a file for good."""
    box.find(file).unlink()
    return {"answer": f"Deleted {file}."}
