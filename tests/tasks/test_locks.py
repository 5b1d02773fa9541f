"""One at a time, told who is at it, and free again when the holder is killed."""

import logging
import subprocess
import sys
import threading
import time

from tasks.locks import alone

HOLD = """
import sys, time
from tasks.locks import alone
from tasks.settings import read_settings
with alone(read_settings(), "work"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_second_waits_is_told_who_works_and_goes_on_when_that_one_is_killed(
    settings, caplog, monkeypatch
):
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    caplog.set_level(logging.INFO, "toolatlas")
    done = threading.Event()

    def second():
        with alone(settings, "work"):
            done.set()

    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.8)
    assert not done.is_set()
    with alone(settings, "other work"):
        pass  # nobody is at that
    holder.kill()
    holder.wait()
    assert done.wait(5)
    thread.join()
    (line,) = [r.getMessage() for r in caplog.records if "waits" in r.getMessage()]
    assert f"process {holder.pid} (since " in line
