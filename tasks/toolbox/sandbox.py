"""The one folder that the tools may touch: paths in, new files out."""

import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import ToolRefused

SUFFIXES = {
    "image": (".png", ".jpg", ".jpeg"),
    "audio": (".wav",),
    "table": (".csv",),
    "document": (".txt",),
}
"""Which files are of which type."""
MAX_BYTES = 20_000_000
"""Bytes of one input file."""

_MADE = "made"
_HIDDEN = ".toolbox"
_storing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A folder, and how long its slow tool waits.

    Attributes:
        root: The folder, as ``resolve`` gives it.
        slow_s: Seconds that ``checksum_file`` waits first.
    """

    root: Path
    slow_s: float = 1.0

    def find(self, path: str, kind: str = "") -> Path:
        """A file of the sandbox by its relative path.

        Args:
            path: With forward slashes.
            kind: One of ``SUFFIXES``; any file without it.

        Raises:
            ToolRefused: The path leads out of the sandbox, or to no file of that kind.
        """
        found = self._inside(path)
        suffixes = SUFFIXES.get(kind, ())
        if suffixes and found.suffix.lower() not in suffixes:
            article = "an" if kind[0] in "aeiou" else "a"
            raise ToolRefused(
                f"Expected {article} {kind} file ({', '.join(suffixes)}), got {path!r}."
            )
        if not found.is_file():
            raise ToolRefused(
                f"There is no file {path!r} in the sandbox; give the path of a file that exists, "
                "relative to the sandbox."
            )
        return found

    def read(self, path: str, kind: str = "") -> bytes:
        """The content of a file.

        Raises:
            ToolRefused: As ``find``, or the file is too large.
        """
        found = self.find(path, kind)
        size = found.stat().st_size
        if size > MAX_BYTES:
            raise ToolRefused(f"{path} has {size:,} bytes; at most {MAX_BYTES:,} can be read.")
        return found.read_bytes()

    def keep(self, label: str, suffix: str, content: bytes) -> str:
        """Store a new file under a name made of its content, and give its path."""
        name = f"{label}-{hashlib.sha256(content).hexdigest()[:12]}{suffix}"
        return self.save(name, content)

    def save(self, name: str, content: bytes) -> str:
        """Store a new file under a name, and give its path; the same content may come again.

        Raises:
            ToolRefused: Another file has that name.
        """
        path = f"{_MADE}/{name}"
        target = self._inside(path)
        target.parent.mkdir(exist_ok=True)
        with _storing:
            if target.exists():
                if target.is_file() and target.read_bytes() == content:
                    return path
                raise ToolRefused(f"There is another {path} already; choose another name.")
            unfinished = self._hidden() / f"unfinished-{os.getpid()}"
            unfinished.write_bytes(content)
            unfinished.replace(target)
        return path

    def is_first(self, topic: str, text: str) -> bool:
        """Whether a topic meets a text for the first time, also over several processes."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        folder = self._hidden() / topic
        folder.mkdir(exist_ok=True)
        try:
            os.close(os.open(folder / digest, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _hidden(self) -> Path:
        folder = self.root / _HIDDEN
        folder.mkdir(exist_ok=True)
        return folder

    def _inside(self, path: str) -> Path:
        """The path on disk, if it and what it links to lie inside and are not hidden."""
        refusal = ToolRefused(
            f"Expected a path inside the sandbox, relative to it and with forward slashes, got "
            f"{path[:200]!r}."
        )
        parts = path.split("/")
        if not path.isprintable() or "\\" in path or any(part.startswith(".") for part in parts):
            raise refusal
        if "" in parts:  # absolute, a folder, or empty
            raise refusal
        found = self.root.joinpath(*parts)
        try:
            within = found.resolve().relative_to(self.root)
            found.stat()
        except FileNotFoundError:
            pass
        except (OSError, RuntimeError, ValueError):
            # Too long a name, a circle of links, or outside.
            raise refusal from None
        if any(part.startswith(".") for part in within.parts):
            raise refusal
        return found


def open_sandbox(folder: Path, slow_s: float = 1.0) -> Sandbox:
    """The sandbox of an existing folder.

    Raises:
        ToolRefused: There is no such folder.
    """
    if not folder.is_dir():
        raise ToolRefused(f"Expected the sandbox's folder, got {str(folder)!r}, which is none.")
    return Sandbox(folder.resolve(), slow_s)
