"""The only module that reads a clock. Pure code takes `now_s`; shells hold a Clock and pass its reading on.

`now()` is CLOCK_BOOTTIME: it goes on while the machine is suspended, is the same for all processes of a machine,
and never steps with the wall clock. Durations are differences of `now()`; wall time is for people and logs only.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """What a shell needs of time."""

    def now(self) -> float:
        """Seconds since an arbitrary point that is fixed until the next boot."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Let `duration_s` seconds pass."""
        ...


class SystemClock:
    """The machine's clock. macOS has no CLOCK_BOOTTIME; its monotonic clock is the nearest."""

    _clock_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> float:
        return time.clock_gettime(self._clock_id)

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


class ManualClock:
    """A clock that moves only when told, for tests and the simulator. `sleep` moves it."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        self.advance(duration_s)

    def advance(self, duration_s: float) -> None:
        """Move forward by `duration_s` >= 0 seconds."""
        if duration_s < 0:
            raise ValueError(f"a clock does not go back (asked for {duration_s} s)")
        self._now_s += duration_s


def wall_time() -> str:
    """Wall time now, RFC 3339 in UTC with milliseconds: for records that people read, never for durations."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def boot_id() -> str:
    """An id that changes with each boot of the kernel; readings of `now()` compare only within one."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return "unknown"
