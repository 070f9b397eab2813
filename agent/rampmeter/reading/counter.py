"""Where whoever reads a checkpoint says how far it is: a restore, or a re-read beside training. Behind the desk's lock.

Carries what is said to the pacer and to the cells; what may be read, and when, is decided there.
"""

import threading
from collections.abc import Callable

from rampmeter.core.clock import Clock
from rampmeter.core.messages import FailReason
from rampmeter.core.pacer import Pacer
from rampmeter.flow import ReadFlow
from rampmeter.reading.turns import ReadTurns
from rampmeter.rereading.turns import RereadTurns, local_rate
from rampmeter.speech import Speech
from rampmeter.throttle import Throttle


class ReadCounter:
    """One per desk. `advance` lets what was said follow at once, `poke` wakes the keeper's thread."""

    def __init__(
        self,
        pacer: Pacer,
        speech: Speech,
        *,
        reads: ReadTurns,
        rereads: RereadTurns,
        clock: Clock,
        lock: threading.RLock,
        advance: Callable[[], object],
        poke: Callable[[], None],
    ) -> None:
        self._pacer = pacer
        self._speech = speech
        self._reads = reads
        self._rereads = rereads
        self._clock = clock
        self._lock = lock
        self._advance = advance
        self._poke = poke

    def begin_read(self, num_bytes: int) -> Throttle:
        """A checkpoint of `num_bytes` is about to be read, through this cell."""
        throttle = Throttle(clock=self._clock)
        self.steer_read(num_bytes, throttle)
        return throttle

    def steer_read(self, num_bytes: int, flow: ReadFlow) -> None:
        """So many bytes are about to be read, by one process or by all ranks, as `flow` is told."""
        with self._lock:
            self._pacer.begin_reading(num_bytes, self._clock.now())
            self._reads.begin(flow)
            self._advance()
        self._poke()

    def read_through(self) -> None:
        """All of it was read; what follows needs no storage."""
        with self._lock:
            now_s = self._clock.now()
            self._reads.end(now_s)
            self._pacer.reading.read_through(now_s)
        self._poke()

    def end_read(self) -> None:
        """The restore is over, one way or the other."""
        with self._lock:
            now_s = self._clock.now()
            self._reads.end(now_s)
            self._pacer.reading.end(now_s)
        self._poke()

    def begin_reread(self, num_bytes: int) -> Throttle:
        """A checkpoint of `num_bytes` is to be read back beside training, through this cell."""
        with self._lock:
            rate = local_rate(num_bytes, self._speech.figures.at_work_s)
            self._pacer.rereading.begin(num_bytes, rate)
            throttle = self._rereads.begin()
            self._advance()
        self._poke()
        return throttle

    def end_reread(self) -> None:
        """It was read back, or will not be."""
        with self._lock:
            self._rereads.end()
            self._pacer.rereading.end(self._clock.now())
        self._poke()

    def reread_no_more(self, reason: str) -> None:
        """Nothing is to be read back any more."""
        with self._lock:
            self._rereads.stop(reason)
        self.end_reread()

    def found_damaged(self) -> None:
        """A checkpoint that counted as saved is none: counted as a save that failed."""
        with self._lock:
            self._speech.note_failed(FailReason.DAMAGED)
