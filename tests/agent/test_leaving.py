"""How a process ends, and one that ends without close(): what hangs on a thread pool is let go, the exit code stays."""

import subprocess
import sys

import pytest

from rampmeter.core.messages import EndReason
from rampmeter.leaving import reason_of_end

ENDS = {"return": ("pass", 0), "exit": ("sys.exit(3)", 3), "error": ("raise ValueError('mine')", 1)}

PAUSED = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from rampmeter.leaving import ExitWatch
resumed = threading.Event()

def say_goodbye():
    resumed.set()
    print("goodbye", flush=True)

watch = ExitWatch(say_goodbye)
watch.start()
pool = ThreadPoolExecutor(1)
pool.submit(resumed.wait)
{end}
"""

CLOSED = """
from rampmeter.leaving import ExitWatch
watch = ExitWatch(lambda: print("goodbye"))
watch.start()
watch.stop()
"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, EndReason.FINISHED),
        (KeyboardInterrupt(), EndReason.CANCELLED),
        (SystemExit(), EndReason.FINISHED),
        (SystemExit(0), EndReason.FINISHED),
        (SystemExit(3), EndReason.FAILED),
        (SystemExit("no such data set"), EndReason.FAILED),
        (ValueError("mine"), EndReason.FAILED),
        (MemoryError(), EndReason.FAILED),
    ],
)
def test_how_training_leaves_says_why_the_job_ends(error, reason):
    """Ctrl-C is a person's wish, a clean exit no failure, everything else one."""
    assert reason_of_end(error) is reason


def run(script):
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("end", ENDS)
def test_a_paused_flush_does_not_keep_the_process(end):
    """A pool's worker that waits for ever is let go at the exit; goodbye is said; the exit code is the program's."""
    statement, code = ENDS[end]
    ended = run(PAUSED.format(end=statement))
    assert (ended.returncode, ended.stdout) == (code, "goodbye\n")


def test_nothing_happens_at_the_exit_after_a_close():
    """Stopped in time, the watch is silent."""
    ended = run(CLOSED)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
