"""A run that can be killed: ``python -m tests.models.runs FOLDER MOMENT`` stops and waits there."""

import sys
import time
from pathlib import Path

from models.execution import execute
from models.journal import Journal
from models.toolset import Signature, Traits
from models.types import Argument, Plan

STEPS = ("send", "look", "send")
PLAN = Plan(
    tuple(f"t/{name}" for name in STEPS),
    ((0, 1), (1, 2)),
    0.0,
    "",
    tuple((Argument("n", "integer", n),) for n in range(3)),
)
SIGNATURES = {key: Signature((), ()) for key in PLAN.tools}


class Tools:
    """``send`` must not be repeated, ``look`` may; both leave a line behind."""

    def __init__(self, folder, moment=""):
        self.folder = folder
        self.moment = moment

    def traits(self, key):
        return Traits(is_read_only=key == "t/look")

    def call(self, key, arguments, timeout_s):
        with (self.folder / "effects").open("a") as effects:
            effects.write(f"{key[2:]} {arguments['n']}\n")
        self.stop_at(f"in {arguments['n']}")
        return {"n": arguments["n"]}

    def stop_at(self, moment):
        """Wait to be killed if this is the moment."""
        if moment == self.moment:
            (self.folder / "ready").touch()
            time.sleep(60)


def run(folder, moment=""):
    """One run of the plan, on the folder's journal."""
    tools = Tools(folder, moment)

    def perform(call, attempt):
        tools.stop_at(f"before {call.step}")
        return attempt()

    with Journal.open(folder / "journal") as journal:
        return execute([PLAN], tools, SIGNATURES, request="send", journal=journal, perform=perform)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
