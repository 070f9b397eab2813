"""A pool of jobs that are known and have settled, and what they say next: nine heartbeats to one request of a save.

The jobs are made by a ledger without a store and then kept in one, so that a coordinator that opens it finds them as
after a restart of its process.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, cycle, islice

from rampmeter.core.clock import SystemClock
from rampmeter.core.messages import (
    AnyAnswer,
    Fence,
    Grant,
    Heartbeat,
    Kind,
    Outcome,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)
from rampmeter_coordinator.model.commands import Changes
from rampmeter_coordinator.model.encoding import encode
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.store.protocol import Batch, Head, Store

BOOT_ID = "benchmark"
POOL = PoolConfig(name="pool", capacity_bytes_per_s=2 * 10**12, max_jobs=1_000_000)
FLEET_BYTES = 8 * 10**14
"""Of all states together: more than 2 TB/s carry without a price."""

R_MAX = POOL.budget_bytes_per_s // 64
"""What a saver can write by itself. It tells of no more bytes, and of no longer a save, than can be true at once."""

SHARE_OF_SAVES = 0.1
_START_S = 1000.0
_DONE = {"throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}


def uid_of(number: int) -> str:
    """The job_uid of a job of the fleet."""
    return f"{number:032x}"


class Fleet:
    """`num_jobs` jobs, each registered, with a confirmed plan."""

    def __init__(self, num_jobs: int) -> None:
        self.num_jobs = num_jobs
        self.num_bytes = FLEET_BYTES // num_jobs
        self.now_s = _START_S
        self.ledger = Ledger.new(POOL, epoch=1, seed=1, grace_until_s=0.0)
        for number in range(num_jobs):
            self.ledger.apply(self._register(number), self._later())
        for seq in (2, 3):
            for number in range(num_jobs):
                beat = Heartbeat(job_uid=uid_of(number), attempt=1, seq=seq, ack=seq - 1, step=seq)
                self.ledger.apply(beat, self._later())
        self.changes: Changes = self.ledger.take_changes()

    def _later(self) -> float:
        self.now_s += 10.0 / self.num_jobs
        return self.now_s

    def _register(self, number: int) -> Register:
        return Register(
            job_uid=uid_of(number),
            attempt=1,
            seq=1,
            ack=0,
            name=f"run-{number}",
            claim=f"{number + 2**64:032x}",
            num_gpus=256,
            num_bytes=self.num_bytes,
            stall_s=1.5,
            mtbf_s=32_400.0,
        )

    async def keep_in(self, store: Store) -> None:
        """Commit the fleet to an empty store."""
        head = Head(
            number=1,
            epoch=1,
            writer="fleet",
            boot_id=BOOT_ID,
            now_s=self.now_s,
            grace_s=POOL.grace_s,
            grace_until_s=0.0,
        )
        await store.commit(Batch(pool=POOL.name, head=head, changes=self.changes, log=()))

    def speakers(self, num_in_flight: int) -> "list[Speaker]":
        """Who speaks when so many requests are in flight: some save, the others have heartbeats, each for many jobs."""
        num = min(num_in_flight, self.num_jobs)
        num_savers = max(1, int(SHARE_OF_SAVES * num))
        savers = [Saver(uid_of(number), self.num_bytes) for number in range(num_savers)]
        beating = num - num_savers
        return savers + [
            Beating(range(num_savers + first, self.num_jobs, beating)) for first in range(beating)
        ]


class FleetClock(SystemClock):
    """Goes on where the fleet's own time stopped."""

    def __init__(self, now_s: float) -> None:
        self._offset_s = now_s - super().now()

    def now(self) -> float:
        return super().now() + self._offset_s


Said = tuple[Request, bytes]
"""A request, and the body that it was decoded from."""


class Speaker(ABC):
    """Says one thing after the other, each after the answer to the one before."""

    @abstractmethod
    def next(self) -> Said:
        """What to say now."""

    @abstractmethod
    def heard(self, answer: AnyAnswer) -> None:
        """The answer to it."""


class Beating(Speaker):
    """Heartbeats of its jobs in turn, worded before they are needed."""

    def __init__(self, numbers: range) -> None:
        self._worded = self._all(numbers)
        self._ready: deque[Said] = deque()

    def word(self, num: int) -> None:
        """Have the next `num` ready."""
        self._ready.extend(islice(self._worded, max(0, num - len(self._ready))))

    def next(self) -> Said:
        return self._ready.popleft() if self._ready else next(self._worded)

    def heard(self, answer: AnyAnswer) -> None:
        """Nothing follows from it."""

    @staticmethod
    def _all(numbers: range) -> Iterator[Said]:
        for seq in count(4):
            for number in numbers:
                beat = Heartbeat(job_uid=uid_of(number), attempt=1, seq=seq, ack=seq - 1, step=seq)
                yield beat, encode(beat)


@dataclass
class Saver(Speaker):
    """One save after the other, as fast as the answers come.

    The renewal comes first, while the lease is so short that it is not held.
    """

    uid: str
    num_bytes: int
    seq: int = 3
    ack: int = 3

    def __post_init__(self) -> None:
        self.fence = Fence(epoch=0, counter=0)
        self._acts = cycle((self._ask, self._renew, self._ready, self._release))

    def next(self) -> Said:
        self.seq += 1
        request = next(self._acts)({"job_uid": self.uid, "attempt": 1, "seq": self.seq, "ack": self.ack})
        return request, encode(request)

    def heard(self, answer: AnyAnswer) -> None:
        self.ack = answer.seq
        if isinstance(answer, Grant):
            self.fence = answer.fence

    def _ask(self, who: dict[str, object]) -> Request:
        return SlotRequest(
            **who, kind=Kind.WRITE, num_bytes=self.num_bytes, ready_in_s=0.0, max_bytes_per_s=R_MAX, age_s=1e5
        )

    def _ready(self, who: dict[str, object]) -> Request:
        return Ready(**who, fence=self.fence, lead_s=1.0)

    def _renew(self, who: dict[str, object]) -> Request:
        return Renew(**who, fence=self.fence, held_bytes_per_s=10**9, done_bytes=10**6, **_DONE)

    def _release(self, who: dict[str, object]) -> Request:
        return Release(
            **who,
            fence=self.fence,
            outcome=Outcome.COMMITTED,
            done_bytes=min(self.num_bytes, R_MAX),
            stall_s=1.5,
            lead_s=1.0,
            write_s=1.5,
            **_DONE,
        )
