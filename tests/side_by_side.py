"""`make test`: all tests, as several pytest processes at once: one computes while others wait for servers and jobs.

The first two are held against real time and have the processor before all others; the third are real jobs with limits.
All others, whatever is added to tests/, run beside them at a low priority, in two. Decides nothing about a test:
`python -m pytest` runs the same tests one after the other.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BUILD = TOP / "build"


@dataclass(frozen=True, slots=True)
class Part:
    """Tests that run in one process: `places` that no part before has named; none = all that nobody has."""

    name: str
    nice: int
    places: tuple[str, ...]


PARTS = (
    Part(
        "timed",
        0,
        (
            "tests/coordinator/test_redis_store.py",
            "tests/coordinator/test_stores.py",
            "tests/demo",
            "tests/failover",
            "tests/faults",
            "tests/system/test_shared_mount.py",
            "tests/cases/test_endings.py",  # when those of the writers are over
            "tests/cases/test_preemption.py",
        ),
    ),
    Part("writers", 0, ("tests/agent/daemon",)),
    Part("jobs", 5, ("tests/agent/ranks", "tests/system")),
    Part("agent", 12, ("tests/agent", "tests/checkpoints")),
    Part("rest", 12, ()),
)


def commands(parts: Sequence[Part]) -> list[list[str]]:
    """The pytest of each part: what one is told to run, all after it are told to leave out."""
    found: list[list[str]] = []
    taken: list[str] = []
    for part in parts:
        nice = ["nice", "-n", str(part.nice)] if part.nice else []
        left_out = [f"--ignore={place}" for place in taken]
        found.append([*nice, sys.executable, "-m", "pytest", *part.places, *left_out])
        taken += part.places
    return found


def run(commands: Sequence[list[str]], logs: Sequence[Path]) -> int:
    """0 if all end so. What the first prints is seen as it comes; each other's goes to its log, seen when all are over.

    Ctrl-C reaches all from the terminal; SIGTERM is passed on as one, so that their servers end as well.
    """
    signal.signal(signal.SIGINT, lambda *_: None)  # before they start, so that none begins with it ignored
    running = [subprocess.Popen(commands[0], cwd=TOP)]
    for command, log in zip(commands[1:], logs, strict=True):
        log.parent.mkdir(exist_ok=True)
        with log.open("w") as output:
            running.append(subprocess.Popen(command, cwd=TOP, stdout=output, stderr=subprocess.STDOUT))
    signal.signal(signal.SIGTERM, lambda *_: [process.send_signal(signal.SIGINT) for process in running])
    codes = [process.wait() for process in running]
    for log in logs:
        print(f"\nWhat ran beside ({log.name}):\n\n{log.read_text()}", flush=True)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(run(commands(PARTS), [BUILD / f"tests-{part.name}.log" for part in PARTS[1:]]))
