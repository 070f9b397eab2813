"""When a writer process whose trainer is gone must end itself: nobody else would. Pure.

It may finish what it has a right to, for as long as it works: the commit belongs to whoever holds the bytes. One that
hangs in the storage may hang there for ever, and without a coordinator its right to write has no end. Only time in
which somebody looked counts: a process that was stopped, or a machine that slept, did not hang.
"""

STOPPED_S = 2.0
"""Without a right to write: as long as the end of a chunk may take."""

STILL_S = 6.0
"""With one: storage in which nothing comes back for so long takes longer than anybody waits for the process."""

_SMALLEST_WORK_S = 100e-6
"""Of CPU time. What hangs in a call has none; what a clock adds to two looks is less."""

_LONGEST_GAP_S = 1.0


class Orphan:
    """One save of a writer; looked at every few milliseconds."""

    def __init__(self, now_s: float) -> None:
        self._looked_s = now_s
        self._worked_s = self._still_s = self._stopped_s = 0.0

    def has_a_trainer(self, now_s: float) -> None:
        """It is none yet: its trainer says when it has waited for long enough."""
        self._looked_s = now_s
        self._still_s = self._stopped_s = 0.0

    def is_stuck(self, now_s: float, worked_s: float, *, may_write: bool) -> bool:
        """`worked_s` is the CPU time of the threads that write."""
        gap_s = min(now_s - self._looked_s, _LONGEST_GAP_S)
        self._looked_s = now_s
        self._still_s += gap_s
        if worked_s >= self._worked_s + _SMALLEST_WORK_S:
            self._worked_s, self._still_s = worked_s, 0.0
        self._stopped_s = 0.0 if may_write else self._stopped_s + gap_s
        return self._stopped_s >= STOPPED_S or self._still_s >= STILL_S
