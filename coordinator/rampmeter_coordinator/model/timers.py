"""When something of a job ends by itself: a calendar of seconds, of which the earliest is in order. Reads no clock.

Of a job the calendar has the uid alone, in the second of its time; the time itself is in the job's record. A time that
moves later is left where it is: the job is passed over when that second is opened, or looked at too early once.
"""

import heapq
import math
from collections.abc import Mapping

from rampmeter_coordinator.model.records import Job


class Timers:
    """The times of one pool's jobs. Every time is in the open second or in a later one."""

    def __init__(self) -> None:
        self._later: dict[int, list[str]] = {}
        self._seconds: list[int] = []
        """Keys of `_later`, as a heap."""
        self._second = 0
        self._open: list[tuple[float, str]] = []
        """The times in `_second`, as a heap; empty only if there are no times at all."""
        self.next_s = math.inf
        """The earliest time; infinity without one."""

    def set(self, job: Job, at_s: float) -> None:
        """Look at `job` at `at_s`, unless it is looked at before anyway."""
        if at_s >= job.wake_s:
            return
        job.wake_s, second = at_s, math.floor(at_s)
        if not self._open:
            self._second = second
        elif second < self._second:
            self._close()
            self._second = second
        if second == self._second:
            heapq.heappush(self._open, (at_s, job.uid))
        else:
            self._put(second, [job.uid])
        self.next_s = self._open[0][0]

    def take_due(self, jobs: Mapping[str, Job], now_s: float) -> list[Job]:
        """Jobs for which a time has come, each once."""
        due = []
        while self._open and self._open[0][0] <= now_s:
            at_s, uid = heapq.heappop(self._open)
            job = jobs.get(uid)
            if job is not None and job.wake_s == at_s:
                job.wake_s = math.inf
                due.append(job)
            if not self._open:
                self._open_next(jobs)
        self.next_s = self._open[0][0] if self._open else math.inf
        return due

    def _put(self, second: int, uids: list[str]) -> None:
        if second in self._later:
            self._later[second] += uids
        else:
            self._later[second] = uids
            heapq.heappush(self._seconds, second)

    def _close(self) -> None:
        """An earlier second is to be opened."""
        self._put(self._second, [uid for _, uid in self._open])
        self._open = []

    def _open_next(self, jobs: Mapping[str, Job]) -> None:
        """Open the earliest second that still has a time in it."""
        while self._seconds and not self._open:
            self._second = heapq.heappop(self._seconds)
            found = (jobs[uid] for uid in self._later.pop(self._second) if uid in jobs)
            self._open = [(job.wake_s, job.uid) for job in found if 0.0 <= job.wake_s - self._second < 1.0]
        heapq.heapify(self._open)
