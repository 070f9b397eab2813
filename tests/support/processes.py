"""What the kernel knows of processes: whether they run, what they hold."""

import os
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_stopped(pid: int) -> bool:
    """Whether none of its threads runs until somebody lets it go on."""
    states = [
        stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def num_sleeps(pid: int) -> int:
    """How often its threads have gone to sleep by themselves."""
    found = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in found)


def num_descriptors() -> int:
    """Open in this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def written_bytes(pid: int) -> int:
    """What it has given to `write` so far, wherever that went."""
    counters = Path(f"/proc/{pid}/io").read_text().split()
    return int(counters[counters.index("wchar:") + 1])


def rss_bytes(pid: int) -> int:
    """Memory that is mapped in and there."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
