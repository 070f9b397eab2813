"""Holds one save to its lease: how many bytes may leave now, and where the time of the flush went.

Rules: the bucket starts empty and never holds more than 0.25 s of the current rate; what was paid for a chunk stays
paid when the rate changes, and nothing is ever written before it was paid for. Past the deadline the rate is 0 until a
new one is set: a lapsed lease pauses, it does not run on. A throttle belongs to one save and is never reused.
All methods may be called from any thread; no lock is held while sleeping or writing.
"""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from rampmeter.core.clock import Clock, SystemClock
from rampmeter.core.errors import LeaseLost

_KIB = 1024
_MIB = 1024 * 1024
_BURST_S = 0.25
_LONGEST_SLEEP_S = 0.05
_SMALLEST_CHUNK_BYTES = 64 * _KIB
_LARGEST_CHUNK_BYTES = _MIB
_SMALLEST_WINDOW_BYTES = _MIB
_LARGEST_WINDOW_BYTES = 16 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCounters:
    """One consistent reading of a flush. The three durations add up to the time since its first byte.

    They are times of the flush, not of its threads: it is throttled while any of them sleeps in the bucket, for that
    one could write, else blocked while any of them is in the file.
    """

    done_bytes: int  # left the host
    throttled_s: float  # asleep in the bucket
    blocked_s: float  # in write, push-out, sync or close of the file
    busy_s: float  # the rest: serialising, hashing, waiting for the CPU


class Writer(Protocol):
    """A writer in another process, which has a throttle of its own."""

    def steer(self, bytes_per_s: int | None, until_s: float | None, abort_reason: str) -> None:
        """What it may do from now on; empty = not aborted."""
        ...

    def counters(self) -> FlowCounters:
        """What it counted, as far as is known here."""
        ...

    @property
    def is_followed(self) -> bool:
        """Whether it is known to obey the newest rate."""
        ...

    @property
    def is_in_storage(self) -> bool:
        """As Throttle.is_in_storage."""
        ...


class Throttle:
    """The cell that steers one save. The rate is 0 until `set_rate`: an armed lease writes nothing."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._rate_bytes_per_s: int | None = 0
        self._deadline_s: float | None = None
        self._taken_bytes = 0
        self._paid_bytes = 0.0  # less than taken: somebody waits; more: a burst is in hand
        self._refilled_at_s = self._clock.now()
        self._abort_reason: str | None = None
        self._done_bytes = 0
        self._throttled_s = 0.0
        self._blocked_s = 0.0
        self._num_asleep = 0
        self._threads_blocked: set[int] = set()
        self._num_in_storage = 0
        self._begun_at_s: float | None = None
        self._spent_until_s = 0.0  # what came before is counted
        self._ended_at_s: float | None = None
        self._writer: Writer | None = None

    def lend(self, writer: Writer) -> None:
        """Another process writes this save: it hears what is said here, and its counters stand for ours."""
        with self._lock:
            self._writer = writer
            self._steer_writer()

    def _steer_writer(self) -> None:
        if self._writer is not None:
            self._writer.steer(self._rate_bytes_per_s, self._deadline_s, self._abort_reason or "")

    def set_rate(self, bytes_per_s: int | None, deadline_s: float | None = None) -> None:
        """Allow this many bytes per second from now on; None = unthrottled, 0 = paused.

        `deadline_s` is a reading of the clock after which the rate is 0 again; None = no end.
        """
        if bytes_per_s is not None and bytes_per_s < 0:
            raise ValueError(f"a rate is not negative (got {bytes_per_s} bytes/s)")
        with self._lock:
            self._refill(self._clock.now())
            self._rate_bytes_per_s = bytes_per_s
            self._deadline_s = deadline_s
            self._limit_burst()
            self._steer_writer()

    @property
    def is_followed(self) -> bool:
        """Whoever takes or waits here obeys at once; a writer in another process a moment later."""
        with self._lock:
            return self._writer is None or self._writer.is_followed

    def abort(self, reason: str) -> None:
        """Let nothing more out; whoever takes or waits gets LeaseLost. The first reason stands."""
        with self._lock:
            self._abort_reason = self._abort_reason or reason
            self._steer_writer()

    @property
    def abort_reason(self) -> str | None:
        with self._lock:
            return self._abort_reason

    def chunk_bytes(self) -> int:
        """The largest piece to take at once: 0.25 s of the rate within 64 KiB and 1 MiB."""
        return self._quarter_second(_SMALLEST_CHUNK_BYTES, _LARGEST_CHUNK_BYTES)

    def window_bytes(self) -> int:
        """How much may gather in the page cache before it is pushed out: within 1 MiB and 16 MiB."""
        return self._quarter_second(_SMALLEST_WINDOW_BYTES, _LARGEST_WINDOW_BYTES)

    def _quarter_second(self, smallest_bytes: int, largest_bytes: int) -> int:
        rate = self._rate_bytes_per_s  # one reading: no lock for what is asked at each piece
        if rate is None:
            return largest_bytes
        return min(max(int(_BURST_S * rate), smallest_bytes), largest_bytes)

    def take(self, num_bytes: int) -> None:
        """Return when `num_bytes` may be written, first come first served. LeaseLost once the save was aborted."""
        with self._lock:
            ticket_bytes, sleep_s = self._pay(num_bytes, self._clock.now())
        self._wait(ticket_bytes, sleep_s)

    def begin_write(self, num_bytes: int) -> None:
        """`take` and `begin_blocked` as one: it stands before each piece, and training may wait for it."""
        with self._lock:
            now_s = self._clock.now()
            ticket_bytes, sleep_s = self._pay(num_bytes, now_s)
            if sleep_s == 0.0:
                self._enter_file(now_s)
                return
        self._wait(ticket_bytes, sleep_s)
        self.begin_blocked()

    def _pay(self, num_bytes: int, now_s: float) -> tuple[int, float]:
        """The place in the queue, and how long to sleep before a look at whether its turn has come."""
        self._refill(now_s)
        self._taken_bytes += num_bytes
        return self._taken_bytes, self._time_until_paid(self._taken_bytes, now_s)

    def _wait(self, ticket_bytes: int, sleep_s: float) -> None:
        while sleep_s:
            self._sleep(sleep_s)
            with self._lock:
                now_s = self._clock.now()
                self._refill(now_s)
                sleep_s = self._time_until_paid(ticket_bytes, now_s)

    def _time_until_paid(self, ticket_bytes: int, now_s: float) -> float:
        """How long to sleep before all bytes up to the ticket may be paid for; 0 = they are."""
        if self._abort_reason is not None:
            raise LeaseLost(self._abort_reason)
        if self._begun_at_s is None:
            self._begun_at_s = self._spent_until_s = now_s
        rate = self._rate_bytes_per_s
        if rate == 0 or self._lapsed(now_s):
            return _LONGEST_SLEEP_S
        if rate is None:
            self._paid_bytes = max(self._paid_bytes, float(ticket_bytes))
            return 0.0
        unpaid_bytes = ticket_bytes - self._paid_bytes
        if (
            unpaid_bytes < 1.0
        ):  # the rest of a byte is paid with the next chunk: a clock may not resolve its time
            return 0.0
        return min(unpaid_bytes / rate, _LONGEST_SLEEP_S)

    def _refill(self, now_s: float) -> None:
        """Pay with the time that has passed: first what was taken, then at most a short burst ahead."""
        until_s = now_s if self._deadline_s is None else min(now_s, self._deadline_s)
        rate = self._rate_bytes_per_s or 0
        self._paid_bytes += max(0.0, until_s - self._refilled_at_s) * rate
        self._refilled_at_s = now_s
        self._limit_burst()

    def _limit_burst(self) -> None:
        rate = self._rate_bytes_per_s or 0
        self._paid_bytes = min(self._paid_bytes, self._taken_bytes + _BURST_S * rate)

    def _lapsed(self, now_s: float) -> bool:
        return self._deadline_s is not None and now_s >= self._deadline_s

    def _sleep(self, duration_s: float) -> None:
        with self._lock:
            self._spend(self._clock.now())
            self._num_asleep += 1
        self._clock.sleep(duration_s)
        with self._lock:
            self._spend(self._clock.now())
            self._num_asleep -= 1

    def _spend(self, now_s: float) -> None:
        """Count the time up to now as what the threads were doing; the rest is busy."""
        if self._begun_at_s is None or self._ended_at_s is not None:
            return
        spent_s, self._spent_until_s = now_s - self._spent_until_s, now_s
        if self._num_asleep:
            self._throttled_s += spent_s
        elif self._threads_blocked:
            self._blocked_s += spent_s

    @contextlib.contextmanager
    def blocked(self) -> Iterator[None]:
        """Counts the time inside as blocked in the file; a call that hangs shows while it hangs."""
        self.begin_blocked()
        try:
            yield
        finally:
            self.end_blocked()

    def begin_blocked(self) -> None:
        """The calling thread goes into the file."""
        with self._lock:
            self._enter_file(self._clock.now())

    def _enter_file(self, now_s: float) -> None:
        self._spend(now_s)
        self._threads_blocked.add(threading.get_ident())

    def end_blocked(self) -> None:
        """Ends what `begin_blocked` began in this thread; harmless if nothing did."""
        with self._lock:
            self._spend(self._clock.now())
            self._threads_blocked.discard(threading.get_ident())

    @contextlib.contextmanager
    def in_storage(self) -> Iterator[None]:
        """Around a call that carries no bytes of the save: it shows while it lasts, and no time is counted for it."""
        with self._lock:
            self._num_in_storage += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_in_storage -= 1

    @property
    def is_in_storage(self) -> bool:
        """Whether such a call goes on: to make a directory, to open or close a file, to remove what was written."""
        with self._lock:
            return self._num_in_storage > 0 or (self._writer is not None and self._writer.is_in_storage)

    def add_done(self, num_bytes: int) -> None:
        """Count bytes that left the host."""
        with self._lock:
            self._done_bytes += num_bytes

    def end(self) -> None:
        """The flush is over: the counters stand still from here. Only the first call counts."""
        with self._lock:
            if self._ended_at_s is None:
                now_s = self._clock.now()
                self._spend(now_s)
                self._ended_at_s = now_s

    def counters(self) -> FlowCounters:
        """All counters at one instant."""
        with self._lock:
            if self._writer is not None:
                return self._writer.counters()
            now_s = self._ended_at_s if self._ended_at_s is not None else self._clock.now()
            self._spend(now_s)
            elapsed_s = 0.0 if self._begun_at_s is None else now_s - self._begun_at_s
            return FlowCounters(
                done_bytes=self._done_bytes,
                throttled_s=self._throttled_s,
                blocked_s=self._blocked_s,
                busy_s=max(0.0, elapsed_s - self._throttled_s - self._blocked_s),
            )
