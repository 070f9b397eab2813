"""An emulated shared storage: all writers of a machine together get one capacity, each an equal part of it.

Decides how long a write takes and nothing else: bytes go to real files elsewhere. Processor sharing: while k writers
have bytes to write, each is served at capacity / k. Writers are processes that know nothing of each other; they meet in
a small memory-mapped file with one slot each. A slot names its process, so that the slot of a killed writer is free
again soon after its death. This module must never grant a writer more than was served while it waited.
"""

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rampmeter.core.clock import Clock, SystemClock

NUM_SLOTS = 64
_WORD_BYTES = 8
_WORDS_PER_SLOT = 8  # one cache line: writers do not slow each other down
_CAPACITY, _SLOTS_FROM = 0, _WORDS_PER_SLOT
_PID, _STARTED, _ACTIVE, _SERVED = range(4)
_FILE_BYTES = _WORD_BYTES * _WORDS_PER_SLOT * (NUM_SLOTS + 1)

_LOOK_AGAIN_S = 0.02
"""How stale the number of writers may be that a writer's share is computed from."""

_MOST_CREDIT_S = 0.1
"""A writer that was woken late was served meanwhile; what it may carry over from that into its next write."""

_CHECK_ALIVE_S = 0.2


class SharedStorage:
    """One process's view of the storage. `open` it in each process; lanes are for one thread each."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), _FILE_BYTES)
        self._words = memoryview(self._map).cast("q")
        self._checked_alive_s = 0.0

    @classmethod
    def create(cls, path: Path, capacity_bytes_per_s: int) -> "SharedStorage":
        """Make the file that the writers meet in."""
        content = bytearray(_FILE_BYTES)
        memoryview(content).cast("q")[_CAPACITY] = capacity_bytes_per_s
        path.write_bytes(content)
        return cls(path)

    @property
    def capacity_bytes_per_s(self) -> int:
        """What all writers get together."""
        return self._words[_CAPACITY]

    @property
    def num_slots_taken(self) -> int:
        """Open files of processes that live; frees the slots of those that do not."""
        self._checked_alive_s = self._clock.now()
        self._free_dead_slots()
        return sum(1 for base in _bases() if self._words[base + _PID])

    @property
    def num_active(self) -> int:
        """Writers that have bytes to write now."""
        now_s = self._clock.now()
        if now_s - self._checked_alive_s > _CHECK_ALIVE_S:
            self._checked_alive_s = now_s
            self._free_dead_slots()
        return sum(self._words[base + _ACTIVE] for base in _bases())

    def open_lane(self) -> "Lane":
        """Take a slot, for one file that is being written. Raises OSError if all are taken."""
        with self._locked():
            self._free_dead_slots()
            for base in _bases():
                if not self._words[base + _PID]:
                    self._words[base + _STARTED] = _started_ticks(os.getpid()) or 0
                    self._words[base + _ACTIVE] = self._words[base + _SERVED] = 0
                    self._words[base + _PID] = os.getpid()
                    return Lane(self, self._words, base, self._clock)
        raise OSError("the emulated storage has no slot left")

    def close(self) -> None:
        """Let go of the file; lanes must be closed before."""
        self._words.release()
        self._map.close()
        self._file.close()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Only one process at a time looks for a free slot."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _free_dead_slots(self) -> None:
        for base in _bases():
            pid = self._words[base + _PID]
            if pid and _started_ticks(pid) != self._words[base + _STARTED]:
                self._words[base + _ACTIVE] = 0
                self._words[base + _PID] = 0


class Lane:
    """One file on its way into the storage."""

    def __init__(self, storage: SharedStorage, words: memoryview, base: int, clock: Clock) -> None:
        self._storage = storage
        self._words = words
        self._base = base
        self._clock = clock
        self._credit_bytes = 0.0

    def transfer(self, num_bytes: int) -> None:
        """Return when the storage has taken `num_bytes`: the time inside is storage time."""
        capacity = self._storage.capacity_bytes_per_s
        owed_bytes, share = num_bytes - self._credit_bytes, float(capacity)
        self._words[self._base + _ACTIVE] = 1
        try:
            at_s = self._clock.now()
            while owed_bytes > 0:
                share = capacity / max(1, self._storage.num_active)
                self._clock.sleep(min(owed_bytes / share, _LOOK_AGAIN_S))
                now_s = self._clock.now()
                owed_bytes -= (now_s - at_s) * share
                at_s = now_s
        finally:
            self._words[self._base + _ACTIVE] = 0
        self._credit_bytes = min(-owed_bytes, _MOST_CREDIT_S * share)
        self._words[self._base + _SERVED] += num_bytes

    def close(self) -> None:
        """Free the slot."""
        self._words[self._base + _PID] = 0


def _bases() -> range:
    return range(_SLOTS_FROM, _SLOTS_FROM + NUM_SLOTS * _WORDS_PER_SLOT, _WORDS_PER_SLOT)


def _started_ticks(pid: int) -> int | None:
    """When the process started, in ticks since boot; None if it is dead, also while nobody has reaped it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])
