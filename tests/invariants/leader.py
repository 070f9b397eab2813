"""The coordinators of the adversarial world: what is kept, and one life of a coordinator on a clock of its own.

A reply goes out only after its commit was kept; a commit under an older epoch is refused, and whoever is refused stops.
"""

import copy
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rampmeter.core.messages import Fence, Request
from rampmeter_coordinator.model.commands import Changes, Command, Tick
from rampmeter_coordinator.model.ledger import Ledger, decide
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.shifting import ClockOffset, shift_records

if TYPE_CHECKING:
    from invariants.world import World

ROUNDING_S = 1e-6
"""A clock with an offset rounds differently: who is woken at a time finds that it has come."""

MAX_LOST = 40
"""So many commits can be taken back: what a replica did not get before it was promoted."""


class Store:
    """Records and epoch of one pool, and how to take the newest commits back."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.meta = b""
        self.epoch = 0
        self.fences: set[Fence] | None = None
        """Of the leases that were live at the newest commit; None once commits were lost."""
        self._undo: deque[dict[str, bytes | None]] = deque(maxlen=MAX_LOST)

    def claim(self) -> int:
        """A new epoch: commits under an older one are refused from now on."""
        self.epoch += 1
        return self.epoch

    def commit(self, epoch: int, changes: Changes) -> bool:
        """Keep the changes, unless a newer leader has claimed the pool."""
        if epoch < self.epoch:
            return False
        self._undo.append({uid: self.records.get(uid) for uid in changes.records})
        self._put(changes.records)
        self.meta = changes.meta
        return True

    def lose(self, num_commits: int) -> set[str]:
        """Take the newest commits back; returns the uids whose records went back."""
        lost: set[str] = set()
        self.fences = self.fences if num_commits == 0 else None
        for _ in range(min(num_commits, len(self._undo))):
            before = self._undo.pop()
            self._put(before)
            lost |= set(before)
        return lost

    def moved(self, offset: ClockOffset) -> None:
        """The kept times are those of another clock from now on."""
        self.records = shift_records(self.records, offset)
        self._undo.clear()

    def forget(self) -> None:
        """Everything is lost."""
        self.records, self.fences = {}, None
        self._undo.clear()

    def _put(self, records: Mapping[str, bytes | None]) -> None:
        for uid, record in records.items():
            if record is None:
                self.records.pop(uid, None)
            else:
                self.records[uid] = record


class Leader:
    """One life of a coordinator, on a clock of its machine: those of two machines have nothing in common."""

    def __init__(self, world: "World", config: PoolConfig, *, clock_offset_s: float) -> None:
        self.config, self.clock_offset_s = config, clock_offset_s
        self.alive = True
        self.frozen_until_s = 0.0
        self.dies_at_commit: bool | None = None
        """If not None: it dies at its next commit, and whether that is kept."""
        self._world = world
        self._wakes_s: float | None = None
        self.epoch = world.store.claim()
        self.ledger: Ledger

    @property
    def now_s(self) -> float:
        """Its clock."""
        return self._world.now_s + self.clock_offset_s

    def begin(self, *, grace_s: float, memory: bool) -> None:
        """Load what is kept, or begin without memory. Grace of 0: serves at once."""
        grace_until_s = self.now_s + grace_s if grace_s else 0.0
        about = {"epoch": self.epoch, "seed": self.epoch, "grace_until_s": grace_until_s}
        if memory and self._world.store.meta:
            store = self._world.store
            self.ledger = Ledger.load(self.config, records=store.records, meta=store.meta, **about)
            if store.fences is not None and store.fences != self._live_fences():
                self._world.violated("a lease was lost in a restart")
        else:
            self.ledger = Ledger.new(self.config, **about)

    def grace_left_s(self) -> float:
        """How long only holders are served yet."""
        return max(0.0, self.ledger._state.grace_until_s - self.now_s)

    def _live_fences(self) -> set[Fence]:
        return {job.lease.fence for job in self.ledger._state.live.values()}

    # -- commands ------------------------------------------------------------------------------------------------

    def hear(self, command: Command) -> None:
        """A command arrives: decided now, or when the machine goes on."""
        if self._world.now_s < self.frozen_until_s:
            self._world.at(self.frozen_until_s, lambda: self.hear(command))
        elif self.alive:
            self._apply(command)

    def hear_copy(self, request: Request) -> None:
        """A late copy: whatever is known already must change nothing, whatever was refused neither."""
        job = self._job(request)
        if not self.alive or self._world.now_s < self.frozen_until_s:
            return
        if job is None or (request.attempt, request.seq) > (job.attempt, job.seq):
            self.hear(request)
            return
        self._apply(Tick())
        if not self.alive:
            return
        before = _image(job)
        changed = self._apply(request)
        if changed - {job.uid} or _image(job) != before:
            self._world.violated("a copy of an old request has changed something")

    def _job(self, request: Request) -> Job | None:
        return self.ledger._state.jobs.get(request.job_uid) if self.alive else None

    def _apply(self, command: Command) -> set[str]:
        replies = decide(self.ledger, command, self.now_s)
        changes = self.ledger.take_changes()
        if self.dies_at_commit is False or not self._world.store.commit(self.epoch, changes):
            self._world.stopped(self)
            return set()
        self._world.store.fences = self._live_fences()
        if self.dies_at_commit:
            self._world.stopped(self)
            return set()
        for reply in replies:
            self._world.network.reply(reply, self.epoch)
        self._world.observer.look_inside(self._world.now_s, self)
        self._wake_up_in_time()
        return set(changes.records)

    def _wake_up_in_time(self) -> None:
        wake_s = self.ledger.wake_at_s()
        if wake_s is None or wake_s == self._wakes_s:
            return
        self._wakes_s = wake_s
        at_s = max(wake_s - self.clock_offset_s + ROUNDING_S, self._world.now_s)
        self._world.at(at_s, lambda: self._tick(wake_s))

    def _tick(self, wake_s: float) -> None:
        if self.alive and self._wakes_s == wake_s:
            self._wakes_s = None
            self.hear(Tick())
            if self._wakes_s is not None and self._wakes_s <= self.now_s:
                self._world.violated("a tick was asked for that had nothing to do")


def _image(job: Job) -> Job:
    """What must stay: all but the time at which something was last said to the job."""
    image = copy.deepcopy(job)
    image.answered_s = image.wake_s = 0.0
    image.old_shares = ()
    image.silent_bytes_per_s = image.issued_bytes_per_s = 0  # it follows the clock
    return image
