"""Ways of writing the same checkpoint side by side: synchronous, sharded, sharded and asynchronous."""

from dataclasses import dataclass, replace

from rampmeter.core.interval import WRITE_FLOOR
from rampmeter.planner.answer import Answer, answer
from rampmeter.planner.job import Job

SHARDS = 16
ASYNC_STALL = 0.1
"""What still blocks training of an asynchronous write: the copy to host memory, as a share of the write time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way. `write_s` is how long it writes, `headroom` how often that fits into the interval."""

    name: str
    job: Job
    write_s: float
    found: Answer

    @property
    def headroom(self) -> float:
        return self.found.interval_s / self.write_s

    @property
    def ends_before_next(self) -> bool:
        """Else writes queue, and an asynchronous job degrades to a synchronous one."""
        return self.job.synchronous or self.job.load.own_period_s > WRITE_FLOOR * self.write_s


def strategies(job: Job) -> list[Strategy]:
    """What each would do for this job, each at its own best interval. The given write time is that of one writer."""
    one_s = job.stall_s if job.write_s is None else job.write_s
    shared_s = one_s / SHARDS
    return [
        _strategy("synchronous, one writer", job, one_s, stall_s=one_s, synchronous=True),
        _strategy(f"sharded x {SHARDS}", job, shared_s, stall_s=shared_s, synchronous=True),
        _strategy("sharded + asynchronous", job, shared_s, stall_s=shared_s * ASYNC_STALL, synchronous=False),
    ]


def _strategy(name: str, job: Job, write_s: float, *, stall_s: float, synchronous: bool) -> Strategy:
    way = replace(job, stall_s=stall_s, synchronous=synchronous, write_s=write_s, every_s=None)
    return Strategy(name=name, job=way, write_s=write_s, found=answer(way))
