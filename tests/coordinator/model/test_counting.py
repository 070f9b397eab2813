"""What one job may be using at most."""

import math

import pytest
from msgspec.structs import replace

from rampmeter.core.messages import Fence, Kind, LeaseState, Noted, RateReason
from rampmeter_coordinator.model import counting
from rampmeter_coordinator.model.particulars import Save, Turn
from rampmeter_coordinator.model.planning import blank_plan
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Held, Job, Lease, Offer, OldShare, SafeOffer

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1000)


def make_job(*offers: tuple[int, int, float], safe: tuple[tuple[int, int], ...] = ()) -> Job:
    """A job with lease offers (seq, rate, until) and safe offers (seq, rate)."""
    job = Job(
        uid="a",
        name="a",
        attempt=1,
        claim=bytes(16),
        num_gpus=1,
        registered_s=0.0,
        plan=blank_plan(POOL),
        contact_s=0.0,
        safe_offers=tuple(
            SafeOffer(seq=seq, number=seq, bytes_per_s=rate, after_s=90.0, for_s=600.0) for seq, rate in safe
        ),
    )
    if offers:
        job.lease = Lease(
            fence=Fence(epoch=1, counter=1),
            kind=Kind.WRITE,
            state=LeaseState.ACTIVE,
            granted_s=0.0,
            offers=[Offer(seq=seq, bytes_per_s=rate, until_s=until_s) for seq, rate, until_s in offers],
            reason=RateReason.FULL,
        )
    return job


def test_unconfirmed_offers_count_with_the_larger() -> None:
    """Lowered or raised, the larger counts until one is confirmed or over."""
    job = make_job((3, 100, 30.0), (4, 40, 35.0))
    assert counting.leased(job, 29.9) == 100
    assert counting.leased(job, 30.0) == 40
    assert counting.leased(job, 35.0) == 0
    assert counting.lease_until(job) == 35.0


@pytest.mark.parametrize(("ack", "rate"), [(3, 100), (4, 40), (9, 40), (2, 0)])
def test_a_confirmation_leaves_one_offer(ack: int, rate: int) -> None:
    """The newest that was applied stays; the ones behind it are void, whatever they allowed."""
    job = make_job((3, 100, 30.0), (4, 40, 35.0))
    counting.confirm(job, ack)
    assert counting.leased(job, 0.0) == rate


def test_the_safe_rate_of_a_confirmed_newest_plan_is_in_the_plan_alone() -> None:
    """No offer is kept of it; an older plan's stays one, and a number that goes back confirms nothing."""
    job = make_job(safe=((1, 30), (2, 50)))
    job.plan = replace(job.plan, number=2, safe_bytes_per_s=50)
    counting.confirm(job, 0)
    assert counting.issued_safe(job) == 50
    counting.confirm(job, 1)
    assert [offer.bytes_per_s for offer in job.safe_offers] == [30]
    assert counting.issued_safe(job) == 30
    job.safe_offers += (counting.safe_offer(3, job.plan),)
    counting.confirm(job, 3)
    assert job.safe_offers == ()
    assert counting.issued_safe(job) == 50
    assert counting.silent_until(job) == 60.0 + job.plan.safe_after_s + job.plan.safe_for_s


def test_what_was_held_before_the_first_plan_is_not_taken_for_a_plan() -> None:
    """A newcomer's word counts until it has confirmed an answer with a plan."""
    job = make_job()
    job.safe_offers = (SafeOffer(seq=0, number=0, bytes_per_s=30, after_s=90.0, for_s=600.0),)
    counting.confirm(job, 0)
    assert counting.issued_safe(job) == 30


def test_only_the_newest_answer_is_contact() -> None:
    """Contact is when the request came whose answer is now confirmed, not when it was answered or confirmed."""
    job = make_job()
    job.answered_seq, job.answered_received_s = 7, 50.0
    job.answer = Noted(seq=7, held_s=0.0, confirm=False)
    counting.confirm(job, 6)
    assert job.contact_s == 0.0
    counting.confirm(job, 7)
    assert job.contact_s == 50.0


def test_a_silent_job_counts_with_its_largest_safe_rate() -> None:
    """From 2 TTL - margin after contact on, until its plan has surely ended."""
    job = make_job(safe=((1, 30), (2, 50)))
    assert counting.counted(job, POOL, 58.9) == 0
    assert counting.counted(job, POOL, 59.0) == 50
    assert counting.counted(job, POOL, 60.0 + 90.0 + 600.0 - 0.1) == 50
    assert counting.counted(job, POOL, 60.0 + 90.0 + 600.0) == 0


def test_a_plan_of_shorter_leases_counts_earlier() -> None:
    """After the lease time was raised, an agent with an old plan may write earlier than a new one: count it earlier."""
    job = make_job(safe=((1, 30),))
    longer = PoolConfig(name="pool", capacity_bytes_per_s=1000, ttl_s=60.0)
    assert counting.silent_from(job, longer) == 90.0 - 60.0 - 1.0


def test_lease_and_safe_rate_are_never_used_together() -> None:
    """A job counts with the larger of both, and with what older attempts hold beside it."""
    job = make_job((1, 70, 100.0), safe=((1, 30),))
    assert counting.counted(job, POOL, 60.0) == 70
    job.old_shares = (OldShare(bytes_per_s=5, until_s=61.0),)
    assert counting.counted(job, POOL, 60.0) == 75
    assert counting.counted(job, POOL, 61.0) == 70


def test_a_finished_job_has_promised_to_be_silent() -> None:
    """Its safe rate counts no more; old attempts did not promise anything."""
    job = make_job(safe=((1, 30),))
    job.finished = True
    job.old_shares = (OldShare(bytes_per_s=5, until_s=100.0),)
    assert counting.counted(job, POOL, 60.0) == 5


def test_fencing_keeps_what_the_older_attempt_may_use() -> None:
    """Its lease until it expires, its safe rate for one TTL and the margin more."""
    job = make_job((1, 70, 100.0), safe=((1, 30),))
    counting.fence_off(job, POOL, 60.0)
    assert job.old_shares == (
        OldShare(bytes_per_s=70, until_s=100.0),
        OldShare(bytes_per_s=30, until_s=91.0),
    )
    counting.forget_past(job, 91.0)
    assert [share.bytes_per_s for share in job.old_shares] == [70]


def test_a_record_of_another_boot_is_read_carefully() -> None:
    """What was held may be held to the end of grace, and the next confirmation is no contact."""
    job = make_job((1, 70, 100_000.0), safe=((1, 30),))
    job.answered_seq, job.answered_received_s, job.contact_s = 1, 99_000.0, 98_000.0
    counting.rebase(job, 10.0, 41.0)
    assert counting.leased(job, 40.9) == 70
    assert counting.leased(job, 41.0) == 0
    assert job.lease is not None
    assert job.lease.ready_by_s == 70.0
    assert counting.is_silent(job, POOL, 10.0)
    counting.confirm(job, 1)
    assert counting.is_silent(job, POOL, 10.0)


def test_whatever_ends_by_itself_is_next_in_its_turn() -> None:
    """An old share, the hold of a request, offers and the times of an armed lease: none is passed over."""
    job = make_job((1, 0, 30.0), (2, 0, 60.0))
    assert job.lease is not None
    job.lease.ready_at_s, job.lease.ready_by_s = 40.0, 50.0
    job.held = Held(seq=3, received_s=0.0, until_s=10.0)
    job.old_shares = (OldShare(bytes_per_s=1, until_s=20.0),)
    times, now_s = [], 0.0
    while now_s < math.inf:
        now_s = counting.ends_next_s(job, now_s)
        times.append(now_s)
    assert times == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, math.inf]


def test_another_boot_forgets_the_queue_and_when_a_save_began() -> None:
    """Its times mean nothing here: nobody has been in the queue since then, and the save began unseen."""
    job = make_job()
    job.turn = Turn(asked_s=70.0, queued_since_s=60.0, save=Save(kind=Kind.WRITE, begun_s=65.0))
    counting.rebase(job, 10.0, 41.0)
    assert counting.waits_since(job, 10.0) is None
    assert job.turn.save == Save(kind=Kind.WRITE, begun_s=None)
