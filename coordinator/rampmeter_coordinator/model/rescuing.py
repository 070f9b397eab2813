"""What `urgency` needs to know of a pool: the urgent saves, and when which room appears. Decides nothing.

Room is free now, or comes from writers on the line one round trip after the first byte of the urgent save, or, from all
others, when their leases expire.
"""

import math
from collections.abc import Sequence

from rampmeter.core.messages import Kind
from rampmeter_coordinator.model import counting, urgency
from rampmeter_coordinator.model.rates import Rates, lead_of
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState
from rampmeter_coordinator.model.urgency import Rescue, Room, Verdict


class Rescuing:
    """Looks at one pool."""

    def __init__(self, state: PoolState, rates: Rates) -> None:
        self._state = state
        self._rates = rates

    def judge(self, waiting: Sequence[Job], lane: Kind, now_s: float) -> Verdict:
        """Which of the urgent saves that wait can be in time."""
        rescues = self.rescues(waiting, lane, now_s)
        first_byte_s = min(rescue.from_s for rescue in rescues)
        return urgency.judge(rescues, self.rooms(lane, first_byte_s, now_s), now_s)

    def rescues(self, waiting: Sequence[Job], lane: Kind, now_s: float) -> list[Rescue]:
        """The urgent saves that wait and those that hold a lease of the lane."""
        return [*self._waiting(waiting, lane, now_s), *self._granted(lane, now_s)]

    def _waiting(self, waiting: Sequence[Job], lane: Kind, now_s: float) -> list[Rescue]:
        rescues = []
        for job in waiting:
            waiter = job.waiter
            assert waiter is not None
            assert waiter.deadline_at_s is not None
            rescues.append(
                Rescue(
                    uid=job.uid,
                    num_bytes=float(waiter.num_bytes or 0),
                    wanted_bytes_per_s=self._capped(
                        job, self._rates.newcomer(job, waiter, lane, now_s).wanted_bytes_per_s
                    ),
                    from_s=now_s + lead_of(job, waiter),
                    deadline_at_s=waiter.deadline_at_s,
                    at_risk_gpu_s=job.num_gpus * (now_s - waiter.unsaved_since_s),
                    granted=False,
                )
            )
        return rescues

    def _granted(self, lane: Kind, now_s: float) -> list[Rescue]:
        rescues = []
        for job in self._state.holders(lane):
            lease = job.lease
            if lease is not None and lease.deadline_at_s is not None:
                writer = self._rates.writer(job, now_s)
                rescues.append(
                    Rescue(
                        uid=job.uid,
                        num_bytes=writer.bytes_left if writer.bytes_left < math.inf else 0.0,
                        wanted_bytes_per_s=self._capped(job, writer.wanted_bytes_per_s),
                        from_s=max(now_s, writer.from_s),
                        deadline_at_s=lease.deadline_at_s,
                        at_risk_gpu_s=math.inf,
                        granted=True,
                    )
                )
        return rescues

    def _capped(self, job: Job, wanted_bytes_per_s: int) -> int:
        cap = self._state.config.max_tenant_bytes_per_s
        return wanted_bytes_per_s if cap is None or job.terms.tenant is None else min(cap, wanted_bytes_per_s)

    def rooms(self, lane: Kind, first_byte_s: float, now_s: float) -> list[Room]:
        """Free now; from writers on the line one round trip after the first byte; else when their leases expire."""
        state = self._state
        free = max(0, state.budget(lane) - state.counted(lane, now_s))
        rooms = [Room(at_s=now_s, bytes_per_s=free)]
        for job in state.holders(lane):
            rate = counting.leased(job, now_s)
            if rate and job.lease is not None:
                if job.lease.deadline_at_s is not None:
                    back_s = now_s
                elif job.held is not None:
                    back_s = first_byte_s + urgency.ROUND_TRIP_S
                else:
                    back_s = counting.lease_until(job)
                rooms.append(Room(at_s=back_s, bytes_per_s=rate))
        rooms += [
            Room(at_s=share.until_s, bytes_per_s=share.bytes_per_s)
            for job in state.with_old_shares.values()
            for share in job.old_shares
            if state.config.lane(share.kind) is lane
        ]
        return rooms
