"""When something of a job ends by itself: a heap of times, at most one that counts per job. Reads no clock.

A time that moves later is left where it is: the job is looked at too early once and gets its new time then.
"""

import heapq
import math

from rampmeter_coordinator.model.records import Job


class Timers:
    """The times of one pool's jobs."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []

    @property
    def next_s(self) -> float:
        """The earliest time; infinity without one."""
        return self._heap[0][0] if self._heap else math.inf

    def set(self, job: Job, at_s: float) -> None:
        """Look at `job` at `at_s`, unless it is looked at before anyway."""
        if at_s < job.wake_s:
            job.wake_s = at_s
            heapq.heappush(self._heap, (at_s, job.uid))

    def take_due(self, jobs: dict[str, Job], now_s: float) -> list[Job]:
        """Jobs for which a time has come, each once."""
        due = []
        while self._heap and self._heap[0][0] <= now_s:
            at_s, uid = heapq.heappop(self._heap)
            job = jobs.get(uid)
            if job is not None and job.wake_s == at_s:
                job.wake_s = math.inf
                due.append(job)
        return due
