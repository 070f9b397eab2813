"""`make test`: all tests, as two pytest processes at once: one computes while the other waits for servers and jobs.

TIMED are held against real time. All others, whatever is added to tests/, run beside them at the lowest priority.
Decides nothing about a test: `python -m pytest` runs the same tests one after the other.
"""

import signal
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
TIMED = ("tests/agent/ranks", "tests/demo", "tests/failover", "tests/faults", "tests/system")
LOG = TOP / "build" / "tests-beside.log"


def commands(timed: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The pytest of these folders and that of all others: what one is told to run, the other is told to leave out."""
    pytest = [sys.executable, "-m", "pytest"]
    return [*pytest, *timed], ["nice", "-n", "19", *pytest, *(f"--ignore={folder}" for folder in timed)]


def run(first: list[str], beside: list[str], log: Path) -> int:
    """0 if both end so. What the first prints is seen as it comes, the other's output when both are over.

    Ctrl-C reaches both from the terminal; SIGTERM is passed on as one, so that their servers end as well.
    """
    log.parent.mkdir(exist_ok=True)
    signal.signal(signal.SIGINT, lambda *_: None)  # before they start, so that neither begins with it ignored
    with log.open("w") as output:
        running = [
            subprocess.Popen(beside, cwd=TOP, stdout=output, stderr=subprocess.STDOUT),
            subprocess.Popen(first, cwd=TOP),
        ]
        signal.signal(signal.SIGTERM, lambda *_: [process.send_signal(signal.SIGINT) for process in running])
        codes = [process.wait() for process in running]
    print(f"\nThe tests that ran beside:\n\n{log.read_text()}", flush=True)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(run(*commands(TIMED), LOG))
