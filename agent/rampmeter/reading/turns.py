"""One restore's turn after another, under the desk's lock: its cell, its requests, and what is told of it.

The pure `Reading` says what may be read; here it is carried to the cell that the reading threads take from, to the log
and to whoever listens. A restore ends at once when the end of the job is announced: what it would load, nobody trains.
"""

import logging
from collections.abc import Callable

from rampmeter.core.clock import Clock
from rampmeter.core.lifecycle import Action, Governance
from rampmeter.core.messages import Request
from rampmeter.core.reading import Reading, ReadWait
from rampmeter.core.units import format_bytes, format_rate
from rampmeter.envelope import Envelope
from rampmeter.events import Event, RestoreRateChanged, RestoreWaits
from rampmeter.flow import ReadFlow
from rampmeter.reading.telling import WaitLog, meaning
from rampmeter.reading.words import word
from rampmeter.throttle import FlowCounters

_log = logging.getLogger("rampmeter")

LEAVING = "leaving"
"""Why reading ends when the end of the job is announced."""

_NOTHING_YET = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


class ReadTurns:
    """One per attempt."""

    def __init__(
        self, reading: Reading, *, pool: str, clock: Clock, on_event: Callable[[Event], None]
    ) -> None:
        self._reading = reading
        self._pool = pool
        self._clock = clock
        self._on_event = on_event
        self._wait_log = WaitLog(pool)
        self._flow: ReadFlow | None = None
        self._counters = _NOTHING_YET
        self._allowed: tuple[int | None, float | None] = (0, None)

    def begin(self, flow: ReadFlow) -> None:
        """A restore has just begun, steered by `flow`: the cell of a process, or what steers those of all ranks."""
        self._flow, self._allowed = flow, (0, None)
        self._counters = _NOTHING_YET

    def end(self, now_s: float) -> None:
        """All that has to be paid for was read, or nothing more will be; what was counted is for the release."""
        flow, self._flow = self._flow, None
        if flow is None:
            return
        flow.set_rate(None)  # nobody looks after this cell any more: nobody must wait at it
        flow.end()
        self._counters = flow.counters()
        self._wait_log.look(None, now_s)
        if self._allowed[0] != 0:
            self._tell_rate(0, None, now_s)

    def stop(self, reason: str) -> None:
        """Let nothing more in; whoever reads gets LeaseLost."""
        if self._flow is not None:
            self._flow.abort(reason)

    @property
    def is_followed(self) -> bool:
        """Whether all that read obey the newest rate by now."""
        return self._flow is None or self._flow.is_followed

    def carry(self, now_s: float, *, leaving: bool, saving: bool) -> None:
        """Tell the cell what may be read now, and people what is waited for. `saving`: a flush of ours goes first."""
        if self._flow is None:
            return
        if leaving:
            self._flow.abort(LEAVING)
        self._carry_rate(now_s)
        why = self._reading.waits_for(now_s)
        if why is not None and saving and why is not ReadWait.DELAY:
            why = ReadWait.OWN_SAVE
        if self._wait_log.look(why, now_s) and why is not None:
            self._on_event(RestoreWaits(now_s=now_s, why=meaning(why)))

    def wake_at(self, now_s: float) -> float:
        """When `carry` may have something to tell."""
        at_s = self._wait_log.tell_at_s
        return at_s if self._flow is not None and at_s > now_s else float("inf")

    def word(self, action: Action, envelope: Envelope, now_s: float) -> Request:
        """The request that stands for `action`."""
        counters = self._counters if self._flow is None else self._flow.counters()
        return word(action, envelope, self._reading, counters, now_s)

    def _carry_rate(self, now_s: float) -> None:
        allowed = self._reading.allowance(now_s)
        if allowed == self._allowed or self._flow is None:
            return
        before, self._allowed = self._allowed[0], allowed
        self._flow.set_rate(*allowed)
        if before == 0:
            self._log_begin(allowed[0])
        self._tell_rate(*allowed, now_s)

    def _tell_rate(self, rate: int | None, until_s: float | None, now_s: float) -> None:
        governance = self._reading.governance
        self._on_event(
            RestoreRateChanged(now_s=now_s, bytes_per_s=rate, until_s=until_s, governance=governance)
        )

    def _log_begin(self, rate: int | None) -> None:
        size = format_bytes(self._reading.num_bytes)
        if self._reading.governance is Governance.UNGOVERNED:
            _log.warning(
                "no coordinator gives a read slot in pool %s: the checkpoint of %s is read without one",
                self._pool,
                size,
            )
        elif rate:
            _log.info(
                "a checkpoint of %s is read at %s at most (pool %s)", size, format_rate(rate), self._pool
            )
