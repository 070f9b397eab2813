"""How much of a pool is in use at most: the sums over all jobs that a decision needs, kept up in constant time.

No decision walks over all jobs: what silent jobs may use and what was issued as safe rates are running sums; only those
who hold a lease, a few, are looked at one by one. Decides nothing: `rates`, `queueing` and `registry` do.
"""

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.capacity import Capacity
from rampmeter_coordinator.model.pool import SILENT_SHARE, PoolConfig
from rampmeter_coordinator.model.progress import Progress
from rampmeter_coordinator.model.records import Job

SMALLEST_ROOM = 0.001
"""Shares of what silent jobs may use below this are not handed out."""


class Bandwidth:
    """The jobs of one pool, who holds a lease, who waits, and what they may use in sum. Rates in bytes/s."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.lanes = tuple(dict.fromkeys(map(config.lane, (Kind.WRITE, Kind.READ))))
        self.jobs: dict[str, Job] = {}
        self.live: dict[str, Job] = {}
        """Whoever holds a lease, in the order of the grants. Changed by `hold` and `let_go` only."""
        self._held: dict[Kind, dict[str, Job]] = {lane: {} for lane in Kind}
        self.last_ended: dict[Kind, Progress] = {}
        """Of each lane the newest lease that was released after bytes; forgotten on a restart, which cuts nobody."""
        self.waiting: dict[str, Job] = {}
        self.with_old_shares: dict[str, Job] = {}
        self.unsettled = True
        """Something has changed that may mean a grant, a raise or a lowering for somebody."""
        self.must_walk = False
        """Somebody may have to be granted, though no rate has changed."""
        self.capacity = Capacity(config.budget_bytes_per_s)
        self._read_budget_bytes_per_s = config.read_budget_bytes_per_s
        self._brought: dict[Kind, int] = {}
        self._brought_until_s = 0.0
        self._silent_sum = 0
        self._issued_sum = 0

    # -- budgets -----------------------------------------------------------------------------------------------

    def enforces(self, job: Job) -> bool:
        """Whether the job has to wait for its slot; the others are granted at once and are in no sum."""
        share = self.config.enforced_share
        return share >= 1.0 or int(job.uid[:8], 16) < share * 2.0**32

    def budget(self, lane: Kind) -> int:
        """The most that may be granted in sum from this lane now: for writes the learned cap."""
        if lane is Kind.WRITE:
            return self.capacity.cap_bytes_per_s
        return self._read_budget_bytes_per_s

    def sustained(self, lane: Kind) -> int:
        """What the storage sustains for this lane, as far as is known: B = cap / u."""
        return int(self.budget(lane) / self.config.utilisation)

    def take_stock(self, now_s: float) -> None:
        """Leases that no budget of this life gave: of other settings, or as holders told them after lost memory."""
        self._brought = {
            lane: sum(counting.leased(job, now_s) for job in self.holders(lane)) for lane in self.lanes
        }
        self._brought_until_s = max(map(counting.lease_until, self.live.values()), default=0.0)

    def highest_ceiling(self, lane: Kind, now_s: float) -> int:
        """The most that leases of this lane may have in sum: the budget, or what was there before it was in force."""
        ours = self.config.budget_bytes_per_s if lane is Kind.WRITE else self.config.read_budget_bytes_per_s
        return max(ours, self._brought.get(lane, 0)) if now_s < self._brought_until_s else ours

    def learn(self, now_s: float) -> None:
        """Time goes on for the learned cap; a pool that is not at its ceiling probes for more."""
        cap = self.capacity.cap_bytes_per_s
        if cap == self.capacity.ceiling_bytes_per_s:
            return
        wake_s = self.capacity.wake_at_s()
        if wake_s is not None and now_s < wake_s:
            return
        counted = self.counted(Kind.WRITE, now_s)
        leased = sum(counting.leased(job, now_s) for job in self.holders(Kind.WRITE))
        self.capacity.passed(now_s, counted, max(0, counted - leased))
        self.unsettled |= cap != self.capacity.cap_bytes_per_s

    # -- in use ------------------------------------------------------------------------------------------------

    def hold(self, job: Job) -> None:
        """The job has a lease."""
        assert job.lease is not None
        self.live[job.uid] = job
        if self.enforces(job):
            self._held[self.config.lane(job.lease.kind)][job.uid] = job

    def let_go(self, job: Job) -> None:
        """The job's lease, if it has one, is over."""
        self.live.pop(job.uid, None)
        for held in self._held.values():
            held.pop(job.uid, None)
        job.lease = None

    def holders(self, lane: Kind) -> list[Job]:
        """Jobs that hold a lease of this lane, in the order in which they were granted."""
        return list(self._held[lane].values())

    def counted(self, lane: Kind, now_s: float) -> int:
        """The most that all jobs together may be using of this lane now."""
        used = self.old_counted(lane, now_s)
        if lane is Kind.WRITE:
            used += self._silent_sum
        for job in self._held[lane].values():
            leased = counting.leased(job, now_s)
            silent = job.silent_bytes_per_s if lane is Kind.WRITE else 0
            if leased > silent:
                used += leased - silent
        return used

    def counted_without(self, job: Job, lane: Kind, now_s: float) -> int:
        """The same without what this job's own newest attempt may use."""
        silent = job.silent_bytes_per_s if lane is Kind.WRITE else 0
        return self.counted(lane, now_s) - max(counting.leased(job, now_s), silent)

    @property
    def silent_sum(self) -> int:
        """What silent jobs may use."""
        return self._silent_sum

    def silent_elsewhere(self, lane: Kind) -> int:
        """What silent jobs without a lease of this lane may use of it: safe rates are for writing."""
        if lane is not Kind.WRITE or not self._silent_sum:
            return 0
        silent = self._silent_sum
        for job in self._held[lane].values():
            silent -= job.silent_bytes_per_s
        return silent

    def old_counted(self, lane: Kind, now_s: float) -> int:
        """What fenced attempts and revoked leases may still use of this lane."""
        if not self.with_old_shares:
            return 0
        return sum(
            share.bytes_per_s
            for job in self.with_old_shares.values()
            for share in job.old_shares
            if now_s < share.until_s and self.config.lane(share.kind) is lane
        )

    # -- safe rates --------------------------------------------------------------------------------------------

    @property
    def issued_too_much(self) -> bool:
        """More safe rates are out than silent jobs may use: the budget has fallen since."""
        return self._issued_sum > self._safe_sum

    @property
    def has_safe_room(self) -> bool:
        """Some of what silent jobs may use is not issued to anybody: enough to be worth a new plan."""
        return self._issued_sum < (1.0 - SMALLEST_ROOM) * self._safe_sum

    def safe_room_for(self, job: Job, *, only_as_before: bool) -> int:
        """The largest safe rate that the job may be issued now without the sum passing what silent jobs may use.

        only_as_before: nobody is raised, for jobs that have not come back yet hold shares that we do not know of.
        """
        own = job.issued_bytes_per_s
        room = max(0, self._safe_sum - (self._issued_sum - own))
        return min(room, own) if only_as_before else room

    @property
    def _safe_sum(self) -> int:
        return int(SILENT_SHARE * self.capacity.cap_bytes_per_s)

    # -- keeping up --------------------------------------------------------------------------------------------

    def recount(self, job: Job, now_s: float) -> tuple[float, float]:
        """Bring the sums up to date for this job. Returns [from, until) in which it counts as silent."""
        if job.old_shares:
            self._recount_old_shares(job, now_s)
        from_s, until_s = counting.silence(job, self.config)
        issued = counting.issued_safe(job) if now_s < until_s else 0
        silent = issued if from_s <= now_s else 0
        if silent != job.silent_bytes_per_s:
            self._silent_sum += silent - job.silent_bytes_per_s
            job.silent_bytes_per_s = silent
            self.unsettled = True
        if issued != job.issued_bytes_per_s:
            self._issued_sum += issued - job.issued_bytes_per_s
            job.issued_bytes_per_s = issued
        return from_s, until_s

    def is_steady(self, job: Job) -> bool:
        """Whether a sign of life moves no sum: the job is in contact, and holds what was issued and nothing else."""
        return (
            job.lease is None
            and not job.finished
            and not job.safe_offers
            and not job.silent_bytes_per_s
            and job.plan.safe_bytes_per_s == job.issued_bytes_per_s
            and not job.old_shares
        )

    def _recount_old_shares(self, job: Job, now_s: float) -> None:
        counting.forget_past(job, now_s)
        self.unsettled = True
        if job.old_shares:
            self.with_old_shares[job.uid] = job
        else:
            self.with_old_shares.pop(job.uid, None)

    def drop(self, job: Job) -> None:
        """A job is forgotten; only for jobs that may not use anything."""
        del self.jobs[job.uid]
        self._silent_sum -= job.silent_bytes_per_s
        self._issued_sum -= job.issued_bytes_per_s
