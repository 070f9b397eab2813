"""What a job reads in its own log while its restore waits, and when it goes on: each reason once. Decides nothing.

A wait that is over in a second is not worth a line. All others are warnings: GPUs idle, and without a word training
would look hung.
"""

import logging

from rampmeter.core.messages import RateReason, WaitReason
from rampmeter.core.reading import ReadWait

_log = logging.getLogger("rampmeter")

TELL_AFTER_S = 1.0

Why = WaitReason | RateReason | ReadWait

_MEANINGS: dict[str, str] = {
    ReadWait.FIRST_ANSWER: "the coordinator has not answered yet",
    ReadWait.ROOM: "the coordinator gives one as soon as there is room",
    ReadWait.DELAY: "the coordinator does not answer; within half a minute it is read without one",
    ReadWait.OWN_SAVE: "a save of this job is still being written",
    WaitReason.QUEUE: "others come first",
    WaitReason.OLD_LEASE: "the bandwidth still counts for a lease that has not ended yet",
    WaitReason.SILENT_JOBS: "jobs that cannot be reached may be using the bandwidth",
    WaitReason.GRACE: "the coordinator has lost its memory and serves at first only who holds a lease",
    WaitReason.MAX_WRITERS: "as many jobs as the pool allows are at work",
    WaitReason.TENANT_CAP: "other jobs of the tenant have what one tenant may have",
    RateReason.PAUSED: "others go first for a moment",
    RateReason.NO_ROOM: "others have the bandwidth",
}
"""Lists of the wire share words, and then mean the same by them."""


def meaning(why: Why) -> str:
    """In words; the word of the wire where there is nothing to explain."""
    return _MEANINGS.get(why, why.replace("_", " "))


class WaitLog:
    """One per attempt. `look` is told again and again what is waited for, and says whether that is worth telling."""

    def __init__(self, pool: str) -> None:
        self._pool = pool
        self._since_s: float | None = None
        self._told: set[Why] = set()

    def look(self, why: Why | None, now_s: float) -> bool:
        """`why` None: nothing is waited for. True if a reason was told just now."""
        if why is None:
            self._goes_on()
            return False
        if self._since_s is None:
            self._since_s = now_s
        if now_s < self.tell_at_s or why in self._told:
            return False
        self._told.add(why)
        _log.warning("waiting for a read slot in pool %s: %s", self._pool, meaning(why))
        return True

    @property
    def tell_at_s(self) -> float:
        """When a wait that goes on is worth a line."""
        return float("inf") if self._since_s is None else self._since_s + TELL_AFTER_S

    def _goes_on(self) -> None:
        if self._told:
            _log.warning("the wait for a read slot in pool %s is over", self._pool)
        self._since_s = None
        self._told.clear()
