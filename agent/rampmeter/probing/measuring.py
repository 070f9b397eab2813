"""Measures one number of writers after the other: writes and syncs, small files, reading back. Threads of its own.

Bounded in bytes and, but for the last sync, in time. Hashing is no part of it: it measures the storage, not the agent.
The calling thread waits, looks at the signal and at the clock, and is free to leave a writer that hangs.
"""

import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rampmeter.core.clock import Clock
from rampmeter.core.units import format_bytes, format_duration
from rampmeter.probing.errors import ProbeFailed, Stopped, meaning
from rampmeter.probing.figures import Round, Written, halves
from rampmeter.probing.files import Files
from rampmeter.probing.workspace import clear, data_name, small_name

CHUNK_BYTES = 2**20
WINDOW_BYTES = 16 * 2**20
"""What gathers in the page cache before it is pushed out: the largest window of the agent's writer."""

SMALL_BYTES = 4096
MAX_SMALL_FILES = 64
"""Per writer and round."""

PATIENCE_S = 300.0
"""No answer from the storage for so long: it hangs."""

_WRITE_SHARE, _SMALL_SHARE, _READ_SHARE = 0.6, 0.1, 0.3
_POOL_BYTES = 16 * CHUNK_BYTES
_TICK_S = 0.05
_LEAVE_S = 10.0
"""How long writers have to leave after a signal."""

T = TypeVar("T")
Watch = Callable[[str, float], None]
"""Told what goes on and the share that is done; called several times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a probe may take in all, or one round of it."""

    max_bytes: int
    duration_s: float


class Meter:
    """One probe in one work directory. `stop` is set from outside, by a signal."""

    def __init__(
        self,
        directory: Path,
        *,
        files: Files,
        clock: Clock,
        stop: threading.Event,
        watch: Watch,
        limits: Limits,
    ) -> None:
        self._directory = directory
        self._files = files
        self._clock = clock
        self._stop = stop
        self._watch = watch
        self._limits = limits
        self._lock = threading.Lock()
        self._done_bytes = 0
        self._moved_at_s = clock.now()
        self._looked_at_s = clock.now()
        self._failed = threading.Event()
        # Chunks begin anywhere in it: nothing that storage could compress or find twice.
        self._random = memoryview(os.urandom(_POOL_BYTES + CHUNK_BYTES))

    def measure(self, writers: Sequence[int]) -> list[Round]:
        """A round for each number of writers. Stopped after a signal, ProbeFailed if the storage fails."""
        share = Limits(
            max_bytes=self._limits.max_bytes // len(writers),
            duration_s=self._limits.duration_s / len(writers),
        )
        return [self._round(num_writers, share) for num_writers in writers]

    def _round(self, num_writers: int, share: Limits) -> Round:
        self._done_bytes, label = 0, f"{num_writers} writer{'s' if num_writers > 1 else ''}"
        most = share.max_bytes // num_writers
        until_s = self._clock.now() + share.duration_s * _WRITE_SHARE
        written = self._all(
            num_writers,
            lambda writer: self._write(writer, most, until_s),
            f"{label}: write",
            most * num_writers,
        )
        small_s = self._clock.now() + share.duration_s * _SMALL_SHARE
        small = self._all(
            num_writers, lambda writer: self._make_small(writer, small_s), f"{label}: small files"
        )
        self._done_bytes = 0
        total = sum(writer.num_bytes for writer in written)
        read_s = self._clock.now() + share.duration_s * _READ_SHARE
        read = self._all(num_writers, lambda writer: self._read(writer, read_s), f"{label}: read", total)
        clear(self._directory, self._files)
        return _as_round(written, small, read)

    def _write(self, writer: int, most_bytes: int, until_s: float) -> Written:
        descriptor = self._files.create(self._directory / data_name(writer))
        pick = random.Random(writer)
        marks: list[tuple[float, int]] = []
        begun_s, num_bytes, pushed_bytes = self._clock.now(), 0, 0
        try:
            while num_bytes < most_bytes and not self._over():
                start = pick.randrange(_POOL_BYTES)
                length = min(CHUNK_BYTES, most_bytes - num_bytes)
                wrote = self._files.write(descriptor, self._random[start : start + length])
                num_bytes += wrote
                self._moved(wrote)
                if num_bytes - pushed_bytes >= WINDOW_BYTES:
                    self._files.push_out(descriptor, num_bytes)
                    pushed_bytes = num_bytes
                    marks.append((self._clock.now(), num_bytes))
                    self._look_at_space(writer)
                if self._clock.now() >= until_s:
                    break
            written_s = self._clock.now()
            self._files.sync(descriptor)
            self._moved(0)
        finally:
            self._files.close(descriptor)
        return Written(
            begun_s=begun_s,
            written_s=written_s,
            durable_s=self._clock.now(),
            num_bytes=num_bytes,
            marks=tuple(marks),
        )

    def _look_at_space(self, writer: int) -> None:
        """The first writer does, once a second: others may fill the storage, of which twice as much was free."""
        now_s = self._clock.now()
        if writer != 0 or now_s - self._looked_at_s < 1.0:
            return
        self._looked_at_s = now_s
        free_bytes = self._files.space(self._directory).free_bytes
        if free_bytes is not None and free_bytes < self._limits.max_bytes:
            raise ProbeFailed(
                f"only {format_bytes(free_bytes)} are left free, because others write there, too: stopped "
                "before it is full"
            )

    def _make_small(self, writer: int, until_s: float) -> tuple[int, float]:
        """How many small files were made durable, and how long that took."""
        begun_s, number = self._clock.now(), 0
        while number < MAX_SMALL_FILES and not self._over():
            descriptor = self._files.create(self._directory / small_name(writer, number))
            try:
                self._files.write(descriptor, self._random[:SMALL_BYTES])
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
            number += 1
            self._moved(0)
            if self._clock.now() >= until_s:
                break
        return number, self._clock.now() - begun_s

    def _read(self, writer: int, until_s: float) -> tuple[int, float, float]:
        """Bytes read, and the clock at begin and end."""
        buffer = bytearray(CHUNK_BYTES)
        descriptor = self._files.open(self._directory / data_name(writer))
        begun_s, num_bytes = self._clock.now(), 0
        try:
            self._files.forget(descriptor)
            while not self._over():
                got = self._files.read(descriptor, buffer)
                num_bytes += got
                self._moved(got)
                if got == 0 or self._clock.now() >= until_s:
                    break
        finally:
            self._files.close(descriptor)
        return num_bytes, begun_s, self._clock.now()

    def _over(self) -> bool:
        return self._stop.is_set() or self._failed.is_set()

    def _moved(self, num_bytes: int) -> None:
        with self._lock:
            self._done_bytes += num_bytes
            self._moved_at_s = self._clock.now()

    def _all(self, num_writers: int, work: Callable[[int], T], what: str, total_bytes: int = 0) -> list[T]:
        """What `work` gives for each writer, all at once. The first error ends all of them and is raised."""
        results: dict[int, T] = {}
        errors: list[BaseException] = []

        def run(writer: int) -> None:
            try:
                results[writer] = work(writer)
            except BaseException as error:  # told to whoever waits
                errors.append(error)
                self._failed.set()

        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(num_writers)]
        self._moved(0)
        for thread in threads:
            thread.start()
        self._wait(threads, what, total_bytes)
        if errors:
            raise _as_failure(errors[0])
        if self._stop.is_set():
            raise Stopped
        return [results[number] for number in range(num_writers)]

    def _wait(self, threads: Sequence[threading.Thread], what: str, total_bytes: int) -> None:
        leave_at_s: float | None = None
        while alive := [thread for thread in threads if thread.is_alive()]:
            alive[0].join(_TICK_S)
            now_s = self._clock.now()
            self._watch(what, self._done_bytes / total_bytes if total_bytes else 0.0)
            if self._stop.is_set():
                leave_at_s = leave_at_s or now_s + _LEAVE_S
                if now_s >= leave_at_s:
                    raise Stopped
            elif now_s - self._moved_at_s > PATIENCE_S:
                raise ProbeFailed(f"no answer from the storage for {format_duration(PATIENCE_S)}: it hangs")


def _as_failure(error: BaseException) -> BaseException:
    return ProbeFailed(meaning(error)) if isinstance(error, OSError) else error


def _as_round(
    written: Sequence[Written], small: Sequence[tuple[int, float]], read: Sequence[tuple[int, float, float]]
) -> Round:
    begun_s = min(writer.begun_s for writer in written)
    early, late = halves(written)
    num_small = sum(number for number, _ in small)
    return Round(
        num_writers=len(written),
        num_bytes=sum(writer.num_bytes for writer in written),
        write_s=max(writer.written_s for writer in written) - begun_s,
        durable_s=max(writer.durable_s for writer in written) - begun_s,
        sync_s=max(writer.durable_s - writer.written_s for writer in written),
        early_bytes_per_s=early,
        late_bytes_per_s=late,
        num_small_files=num_small,
        small_file_s=sum(duration_s for _, duration_s in small) / num_small if num_small else 0.0,
        read_bytes=sum(num_bytes for num_bytes, _, _ in read),
        read_s=max(end_s for _, _, end_s in read) - min(begin_s for _, begin_s, _ in read),
    )
