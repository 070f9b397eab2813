"""Who judges: sums from outside what all living processes may use, and looks into the ledger after every command.

    used(t) <= max( largest budget in force in [t - longest lease, t],  safe rates in use at t )
    safe rates in use at t <= the largest capacity that was in force when they were issued

A lease is offered only out of what is left of the budget u * capacity after everything counted, silent jobs included,
and every lease that is older than their count has expired before they write: so leases and safe rates together stay
within the budget, or only safe rates are in use. Plans are issued only out of what is left of the capacity. After lost
memory the safe rates of processes that the new coordinator has not answered yet are left out: nobody can know them.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from invariants.leader import Leader
from invariants.process import Process
from rampmeter.core.messages import Fence, Kind
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.validating import BrokenInvariant


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What was seen, when, and how bad."""

    at_s: float
    what: str
    used: int = 0
    bound: int = 0


class Observer:
    """Keeps what it saw in `violations`."""

    def __init__(self, config: PoolConfig) -> None:
        self.violations: list[Violation] = []
        self.longest_lease_s = config.grace_s
        """The longest lease, and a margin, that any configuration so far could give out."""
        self._largest_capacity = config.capacity_bytes_per_s
        self._shared, self._tenant_cap = config.shared_reads, config.max_tenant_bytes_per_s
        self._budgets = [(0.0, config.budget_bytes_per_s, config.read_budget_bytes_per_s)]
        self._fences: dict[Fence, str] = {}
        self._highest = Fence(epoch=0, counter=0)

    def configured(self, now_s: float, config: PoolConfig) -> None:
        """From now on this configuration is in force."""
        self.longest_lease_s = max(self.longest_lease_s, config.grace_s)
        self._largest_capacity = max(self._largest_capacity, config.capacity_bytes_per_s)
        self._budgets.append((now_s, config.budget_bytes_per_s, config.read_budget_bytes_per_s))

    def look(self, now_s: float, processes: Iterable[Process]) -> None:
        """From outside: what may be used at this moment."""
        leased = reads = safe = 0
        for process in processes:
            rate, kind = process.usable()
            if kind is Kind.READ:
                reads += rate
            elif kind is Kind.WRITE:
                leased += rate
            elif not process.forgotten_by:
                safe += rate
        budget, read_budget = self._largest_budgets(now_s)
        if self._shared:
            leased, reads = leased + reads, 0
        if leased + safe > max(budget, safe):
            self.violated(now_s, "over the budget", leased + safe, max(budget, safe))
        if reads > read_budget:
            self.violated(now_s, "reads over their budget", reads, read_budget)
        if safe > self._largest_capacity:
            self.violated(now_s, "safe rates over the capacity", safe, self._largest_capacity)
        if self._tenant_cap is not None:
            self._look_at_tenants(now_s, processes, self._tenant_cap)

    def _look_at_tenants(self, now_s: float, processes: Iterable[Process], cap: int) -> None:
        """What the leases of one tenant allow, saves and restores apart where their budgets are."""
        used: Counter[tuple[str, Kind]] = Counter()
        for process in processes:
            rate, kind = process.usable()
            if kind is not None and process.job.tenant is not None:
                used[process.job.tenant, Kind.WRITE if self._shared else kind] += rate
        for (tenant, kind), rate in used.items():
            if rate > cap:
                self.violated(now_s, f"tenant {tenant} over its cap ({kind})", rate, cap)

    def _largest_budgets(self, now_s: float) -> tuple[int, int]:
        since_s = now_s - self.longest_lease_s
        while len(self._budgets) > 1 and self._budgets[1][0] < since_s:
            self._budgets.pop(0)
        if len(self._budgets) == 1:
            return self._budgets[0][1:]
        return max(writes for _, writes, _ in self._budgets), max(reads for _, _, reads in self._budgets)

    def look_inside(self, now_s: float, leader: Leader) -> None:
        """What must hold in a ledger after every command."""
        try:
            leader.ledger.validate(leader.now_s)
        except BrokenInvariant as broken:
            self.violated(now_s, str(broken))
        self._look_at_the_queue(now_s, leader)
        holders = leader.ledger._state.live.values()
        new = [job for job in holders if self._fences.get(job.lease.fence) != job.uid]
        self._look_at_fences(now_s, {job.lease.fence: job.uid for job in new})

    def _look_at_the_queue(self, now_s: float, leader: Leader) -> None:
        state, rates = leader.ledger._state, leader.ledger._leasing._rates
        asked_for = {state.config.lane(job.waiter.kind) for job in state.waiting.values() if job.waiter}
        for lane in asked_for:
            if not state.holders(lane) and rates.rest(lane, leader.now_s) > 0:
                self.violated(now_s, "somebody waits, nobody writes, there is room")

    def _look_at_fences(self, now_s: float, fences: dict[Fence, str]) -> None:
        """A fence belongs to one job for ever; a new one is higher than all before, in all lives."""
        for fence, uid in sorted(fences.items()):
            if fence not in self._fences and fence <= self._highest:
                self.violated(now_s, "a fence went back")
            if self._fences.setdefault(fence, uid) != uid:
                self.violated(now_s, "a fence belongs to two jobs")
            self._highest = max(self._highest, fence)

    def violated(self, now_s: float, what: str, used: int = 0, bound: int = 0) -> None:
        """Something was seen that must not be."""
        self.violations.append(Violation(at_s=now_s, what=what, used=used, bound=bound))
