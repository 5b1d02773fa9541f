"""Questions to the person at the terminal."""

import json
import sys
from collections.abc import Mapping
from typing import Any


def on_terminal(key: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a tool that may destroy something may run; without a terminal the answer is no."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    told = json.dumps(dict(arguments), ensure_ascii=False, default=str)
    sys.stderr.write(f"{key} may destroy something. Run it with {told}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
