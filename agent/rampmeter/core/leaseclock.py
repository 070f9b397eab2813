"""What an agent may use, and until when: the agent's half of "never over capacity".

Decides the usable rate from answers and the passing of time; the keeper only carries it to the writer. It must never
say more than the coordinator counts: a lease ends MARGIN_S before the coordinator's own expiry, counted from the first
send of the request that brought it; silence is counted from the receipt of the last answer; a safe rate begins only
when every lease given out before has expired.
"""

from dataclasses import dataclass

from rampmeter.core.lifecycle import Governance
from rampmeter.core.messages import MARGIN_S, Fence, Grant, LeaseState, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The right to write at `bytes_per_s` until `until_s`; `lease` is None for a safe rate."""

    bytes_per_s: int
    until_s: float
    fence: Fence | None


NOTHING = Allowance(bytes_per_s=0, until_s=0.0, fence=None)


class LeaseClock:
    """Holds at most one lease and the newest plan. All times are readings of one Clock, in seconds."""

    __slots__ = ("_lease", "_plan", "_silent_since_s")

    def __init__(self) -> None:
        self._lease: Allowance | None = None
        self._plan: Plan | None = None
        self._silent_since_s: float | None = None

    @property
    def plan(self) -> Plan | None:
        """The newest plan, also one remembered from an earlier life."""
        return self._plan

    @property
    def fence(self) -> Fence | None:
        """The fence of the lease that is held, live or lapsed."""
        return self._lease.fence if self._lease else None

    def remember(self, plan: Plan, now_s: float) -> None:
        """Take a plan kept on disk; silence begins now, as if its answer had just come."""
        self._plan = plan
        self._silent_since_s = now_s

    def answered(self, now_s: float, plan: Plan | None) -> None:
        """Any answer that was applied: silence begins anew, and with it the wait for the safe rate."""
        self._silent_since_s = now_s
        self._plan = plan or self._plan

    def granted(self, grant: Grant, first_sent_s: float) -> None:
        """A lease, new or renewed. `first_sent_s` is when the request that it answers was first sent."""
        until_s = first_sent_s + grant.held_s + grant.ttl_s - MARGIN_S
        rate = grant.bytes_per_s if grant.state is LeaseState.ACTIVE else 0
        self._lease = Allowance(bytes_per_s=rate, until_s=until_s, fence=grant.fence)

    def dropped(self) -> None:
        """The lease is released or gone."""
        self._lease = None

    def lapsed(self, now_s: float) -> bool:
        """A lease is held whose time is over."""
        return self._lease is not None and now_s >= self._lease.until_s

    def allowance(self, now_s: float) -> Allowance:
        """What may be used now: the lease while it lives, else the safe rate while it is usable, else nothing."""
        if self._lease is not None and now_s < self._lease.until_s:
            return self._lease
        start, end = self.safe_window()
        if self._plan is None or not start <= now_s < end:
            return NOTHING
        return Allowance(bytes_per_s=self._plan.safe_bytes_per_s, until_s=end, fence=None)

    def safe_window(self) -> tuple[float, float]:
        """[start, end) in which the safe rate is usable if no answer comes; empty without a plan."""
        if self._plan is None or self._silent_since_s is None:
            return (0.0, 0.0)
        start = self._silent_since_s + self._plan.safe_after_s
        return (start, start + self._plan.safe_for_s)

    def right_in_silence(self, now_s: float) -> Governance | None:
        """By what right a save goes on while nobody answers; None = by none yet.

        The safe rate before anything else, once it is usable; where there is none, or not any more, the job's own.
        """
        if self._plan is None:
            return Governance.UNGOVERNED
        start_s, end_s = self.safe_window()
        if now_s < start_s:
            return None
        is_safe = self._plan.safe_bytes_per_s > 0 and now_s < end_s
        return Governance.SAFE_RATE if is_safe else Governance.UNGOVERNED

    def changes(self) -> tuple[float, ...]:
        """The times at which the allowance changes by itself."""
        ends = () if self._lease is None else (self._lease.until_s,)
        return (*ends, *self.safe_window())
