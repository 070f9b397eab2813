"""Rules switched back to a naive reading, one function each: small patches that a test puts in and takes out again.

A function or an attribute that is no longer there makes the patch fail loudly: it must be found anew, not dropped.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest

from invariants.leader import Store
from invariants.process import Process
from rampmeter.core.leaseclock import Allowance, LeaseClock
from rampmeter.core.messages import MARGIN_S, Fence, LeaseState, RateReason
from rampmeter_coordinator.model import admission, counting, holding, leasing, queueing, urgency
from rampmeter_coordinator.model import ledger as ledger_module
from rampmeter_coordinator.model.bandwidth import Bandwidth
from rampmeter_coordinator.model.capacity import Capacity
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.progress import Progress
from rampmeter_coordinator.model.rates import Rates
from rampmeter_coordinator.model.records import OldShare
from rampmeter_coordinator.model.report import Report
from rampmeter_coordinator.model.state import PoolState

Patch = pytest.MonkeyPatch
Misreading = Callable[[Patch], None]


# -- leases --------------------------------------------------------------------------------------------------------


def lowered_is_answered(patch: Patch) -> None:
    """Count the newest offer only."""
    patch.setattr(
        counting,
        "leased",
        lambda job, now_s: job.lease.offers[-1].bytes_per_s if job.lease and job.lease.offers else 0,
    )


def lowering_is_dropped_on_supersede(patch: Patch) -> None:
    """Whoever sends a newer request has surely applied the last answer."""
    confirm = counting.confirm
    patch.setattr(counting, "confirm", lambda job, ack: confirm(job, max(ack, job.answered_seq)))


def raise_before_lower(patch: Patch) -> None:
    """Give the target, whatever others may still be using."""
    patch.setattr(Rates, "offerable", lambda self, job, target, now_s: target)


def held_renewal_keeps_its_rate(patch: Patch) -> None:
    """A renewal is answered with the rate that it came with."""
    offerable = Rates.offerable

    def naive(self: Rates, job: Any, target: int, now_s: float) -> int:
        return max(counting.leased(job, now_s), offerable(self, job, target, now_s))

    patch.setattr(Rates, "offerable", naive)


def deadline_counts_from_the_answer(patch: Patch) -> None:
    """Without `held_s` an agent can only count from the receipt of the answer."""

    def naive(self: LeaseClock, grant: Any, first_sent_s: float) -> None:
        rate = grant.bytes_per_s if grant.state is LeaseState.ACTIVE else 0
        until_s = self._silent_since_s + grant.ttl_s - MARGIN_S
        self._lease = Allowance(bytes_per_s=rate, until_s=until_s, fence=grant.fence)

    patch.setattr(LeaseClock, "granted", naive)


def expiry_is_off_by_one_ttl(patch: Patch) -> None:
    """The agent counts one TTL too many."""
    granted = LeaseClock.granted

    def naive(self: LeaseClock, grant: Any, first_sent_s: float) -> None:
        granted(self, grant, first_sent_s + grant.ttl_s)

    patch.setattr(LeaseClock, "granted", naive)


def fresh_ttl_on_replay(patch: Patch) -> None:
    """A repeated request is decided anew in time only."""

    def naive(self: PoolState, job: Any, now_s: float) -> None:
        held_s = now_s - (job.answered_received_s or now_s)
        self._send(job, job.answered_seq, dataclasses.replace(job.last_answer, held_s=held_s))

    patch.setattr(PoolState, "replay", naive)


def replay_extends_the_lease(patch: Patch) -> None:
    """A repeated request is a renewal."""
    replay = PoolState.replay

    def naive(self: PoolState, job: Any, now_s: float) -> None:
        for offer in job.lease.offers if job.lease else ():
            offer.until_s = now_s + self.config.ttl_s
        replay(self, job, now_s)

    patch.setattr(PoolState, "replay", naive)


def fence_begins_anew_after_restart(patch: Patch) -> None:
    """The counter alone, without the epoch."""

    def naive(self: PoolState) -> Fence:
        self._counter += 1
        return Fence(epoch=0, counter=self._counter)

    patch.setattr(PoolState, "next_fence", naive)


def epoch_is_not_kept(patch: Patch) -> None:
    """Each coordinator claims the pool under the same epoch: its counter is used again."""

    def naive(self: Store) -> int:
        self.epoch = 1
        return self.epoch

    patch.setattr(Store, "claim", naive)


def older_attempt_is_dropped(patch: Patch) -> None:
    """A newer attempt frees at once what the older one holds."""
    patch.setattr(counting, "fence_off", lambda job, config, now_s: None)


def stale_attempt_is_served(patch: Patch) -> None:
    """A request of an older attempt counts like one of the newest."""
    refused = Ledger._who_refused

    def naive(self: Ledger, job: Any, request: Any) -> Any:
        return None if job is not None and request.attempt < job.attempt else refused(self, job, request)

    patch.setattr(Ledger, "_who_refused", naive)


def nobody_starts_below_a_tenth_of_its_own_maximum(patch: Patch) -> None:
    """A job that could write faster than the pool never gets a rate worth a start."""
    fill = admission.fill

    def naive(writers: Any, rest: int, config: PoolConfig) -> list[tuple[int, RateReason]]:
        shares = fill(writers, rest, config)
        return [
            share if share[0] >= writer.least_bytes_per_s else (0, RateReason.NO_ROOM)
            for writer, share in zip(writers, shares, strict=True)
        ]

    patch.setattr(admission, "wanted", lambda most, budget_bytes_per_s: most or budget_bytes_per_s)
    patch.setattr(admission, "fill", naive)


def arming_waits_for_whoever_is_armed(patch: Patch) -> None:
    """Nobody is armed while somebody is: a lead of 90 s keeps all others from starting."""
    has_room_for = queueing.Outlook.has_room_for

    def naive(self: Any, newcomer: Any) -> bool:
        return not any(w.from_s > self._now_s for w in self._writers) and has_room_for(self, newcomer)

    patch.setattr(queueing.Outlook, "has_room_for", naive)


# -- silence -------------------------------------------------------------------------------------------------------


def contact_is_any_receipt(patch: Patch) -> None:
    """A request alone is a sign of life."""
    request = Ledger._request

    def naive(self: Ledger, command: Any, now_s: float) -> Any:
        refusal = request(self, command, now_s)
        job = self._state.jobs.get(command.job_uid)
        if refusal is None and job is not None:
            job.contact_s = now_s
            self._state.refresh(job, now_s)
        return refusal

    patch.setattr(Ledger, "_request", naive)


def contact_is_stored_with_the_answer(patch: Patch) -> None:
    """Contact when an answer goes out, not when it is confirmed."""
    reply = PoolState.reply

    def naive(self: PoolState, job: Any, body: Any, received_s: float, now_s: float) -> None:
        job.contact_s = now_s
        reply(self, job, body, received_s, now_s)

    patch.setattr(PoolState, "reply", naive)


def safe_counted_only_when_usable(patch: Patch) -> None:
    """Count a silent job from the moment on at which it may write."""
    patch.setattr(counting, "silent_from", lambda job, config: (job.contact_s or 0.0) + config.safe_after_s)


def safe_right_after_the_lease(patch: Patch) -> None:
    """Let the safe rate begin one TTL and the margin after contact."""
    patch.setattr(PoolConfig, "safe_after_s", property(lambda self: self.ttl_s + MARGIN_S))
    patch.setattr(counting, "silent_from", lambda job, config: (job.contact_s or 0.0) + config.ttl_s)


def plan_of_shorter_leases_counts_as_late_as_all(patch: Patch) -> None:
    """After the TTL was raised the older, shorter plans are forgotten."""
    patch.setattr(
        counting,
        "silent_from",
        lambda job, config: 0.0 if job.contact_s is None else job.contact_s + config.safe_counted_after_s,
    )


def restart_is_contact(patch: Patch) -> None:
    """After a restart everybody counts as just heard of."""
    wake_up = PoolState.wake_up

    def naive(self: PoolState, now_s: float) -> list[Any]:
        for job in self.jobs.values():
            job.contact_s = now_s
        return wake_up(self, now_s)

    patch.setattr(PoolState, "wake_up", naive)


def no_claim_read_in_fallback(patch: Patch) -> None:
    """A silent agent never looks into the root."""
    patch.setattr(Process, "_stopped_by_claim", lambda self, now_s: False)


def safe_rates_raised_at_once(patch: Patch) -> None:
    """Plans are issued without a look at what others hold."""
    patch.setattr(Bandwidth, "safe_room_for", lambda self, job, **words: self.config.capacity_bytes_per_s)


def replay_heard_late_prolongs_nothing(patch: Patch) -> None:
    """The end of a safe rate is counted from the first time that its answer was sent."""
    replay = PoolState.replay

    def naive(self: PoolState, job: Any, now_s: float) -> None:
        answered_s = job.answered_s
        replay(self, job, now_s)
        job.answered_s = answered_s
        self.touch(job, now_s)

    patch.setattr(PoolState, "replay", naive)


def safe_rates_never_end(patch: Patch) -> None:
    """A dead job's share is counted for ever."""
    patch.setattr(counting, "silent_until", lambda job: math.inf)


# -- who is served, and what is learned ----------------------------------------------------------------------------


def start_within_60_s_whatever_the_lead(patch: Patch) -> None:
    """A lead of 90 s is thrown back for ever."""
    patch.setattr(holding, "_start_within", lambda job, waiter: 60.0)


def held_requests_hide_contact(patch: Patch) -> None:
    """Nobody is answered at once to confirm that it hears."""
    patch.setattr(counting, "needs_contact", lambda job, now_s: False)


def bid_of_a_stale_attempt(patch: Patch) -> None:
    """The age that an older attempt spoke of counts for the newer one too."""
    waiter, oldest = leasing._waiter, {}

    def naive(job: Any, request: Any, since_s: float, now_s: float) -> Any:
        made = waiter(job, request, since_s, now_s)
        made.unsaved_since_s = oldest[job.uid] = min(made.unsaved_since_s, oldest.get(job.uid, math.inf))
        return made

    patch.setattr(leasing, "_waiter", naive)


def every_urgent_save_fits(patch: Patch) -> None:
    """A notice is always granted, and takes what others need to be in time."""
    patch.setattr(urgency, "judge", lambda rescues, rooms, now_s: urgency.Verdict(fits_bytes={}))


def revoked_lease_is_free_at_once(patch: Patch) -> None:
    """What is taken back is given on before its holder knows of it."""
    patch.setattr(
        counting,
        "revoked",
        lambda job, now_s: OldShare(bytes_per_s=0, until_s=now_s, void_after_seq=job.answered_seq),
    )


def answers_of_a_lost_memory_are_believed(patch: Patch) -> None:
    """An ack of an answer that this memory never gave confirms something all the same."""
    patch.setattr(ledger_module, "_strange", lambda job, request: False)


def cut_to_zero(patch: Patch) -> None:
    """A writer that stands still gets nothing, and can never show that it goes on."""
    patch.setattr(Progress, "maximum", lambda self, ceiling_bytes_per_s: 0 if self.is_cut else None)


def a_stall_of_the_storage_is_the_writers_fault(patch: Patch) -> None:
    """Nobody moves, and all are cut for it."""
    patch.setattr(Progress, "moved_since", lambda self, stopped_s, since_s: True)


def hung_writer_is_a_capacity_sample(patch: Patch) -> None:
    """Blocked all the time and no byte written: storage must be slow."""
    reported = Capacity.reported

    def naive(self: Capacity, uid: str, report: Any, now_s: float) -> None:
        reported(self, uid, dataclasses.replace(report, num_bytes=max(1, report.num_bytes)), now_s)

    patch.setattr(Capacity, "reported", naive)


def cpu_bound_writer_is_a_capacity_sample(patch: Patch) -> None:
    """Whoever gets less than its grant was kept from it by storage."""
    patch.setattr(Report, "is_blocked", property(lambda self: True))
