"""One queue in order: sorted anew once a second, newcomers put in their places in between. Grants nothing.

Bids grow with time, and so does the order change, but slowly against a second; sorting thousands of waiters at each
decision would cost more than all else. Who has left stays as a shadow until the next sort and is passed over.
"""

import bisect
import math
from collections.abc import Iterable, Iterator
from itertools import islice

from rampmeter_coordinator.model import bidding
from rampmeter_coordinator.model.bidding import Rank
from rampmeter_coordinator.model.records import Job, Waiter

SORT_AFTER_S = 1.0


class Line:
    """The waiters of one lane. `backlog_bytes` is what they and the writers had still to write when last looked at."""

    def __init__(self) -> None:
        self.backlog_bytes = 0
        self._sorted_s = -math.inf
        self._entries: list[tuple[Rank, Waiter, Job]] = []

    @property
    def is_empty(self) -> bool:
        """Nobody stands here, not even a shadow."""
        return not self._entries

    def is_old(self, now_s: float) -> bool:
        """Whether it is time to sort again."""
        return not self._sorted_s <= now_s <= self._sorted_s + SORT_AFTER_S

    def sort(self, jobs: Iterable[Job], budget_bytes_per_s: int, now_s: float) -> None:
        """Everybody who waits, in the order of now."""
        self._entries = [
            (rank, job.waiter, job)
            for rank, job in bidding.in_order(jobs, budget_bytes_per_s, now_s)
            if job.waiter is not None
        ]
        self._sorted_s = now_s

    def add(self, job: Job, waiter: Waiter, budget_bytes_per_s: int, now_s: float) -> int:
        """Put a newcomer in its place: its index among those who stand here, shadows included."""
        entry = (bidding.rank(job, waiter, budget_bytes_per_s, now_s), waiter, job)
        index = bisect.bisect_right(self._entries, entry[0], key=lambda known: known[0])
        self._entries.insert(index, entry)
        return index

    def num_before(self, index: int, enough: int) -> int:
        """How many still wait before that index; not counted further than `enough`."""
        before = (1 for _, waiter, job in islice(self._entries, index) if job.waiter is waiter)
        return sum(islice(before, enough))

    def __iter__(self) -> Iterator[tuple[Job, Waiter]]:
        """Whoever still waits, in order."""
        return ((job, waiter) for _, waiter, job in self._entries if job.waiter is waiter)
