"""Records moved to another machine's clock: every time there is, each to its careful side."""

import msgspec
import pytest

from rampmeter.core.messages import Fence, Grant, Kind, LeaseState, RateReason
from rampmeter_coordinator.model import counting, particulars, records
from rampmeter_coordinator.model.history import Belief, History
from rampmeter_coordinator.model.particulars import Claims, Evidence, Save, Terms, Turn
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job, Lease, Offer, OldShare, Planned, SafeOffer
from rampmeter_coordinator.model.shifting import EARLIER, LATER, ClockOffset, shift, shift_records
from support.records import planned

POOL = PoolConfig(name="lustre", capacity_bytes_per_s=10**9)
OFFSET = ClockOffset(earlier_s=4995.0, later_s=5000.2)
DURATIONS = {
    Job: {"mtbf_s", "stall_s"},
    Terms: {"interval_min_s", "interval_max_s"},
    SafeOffer: {"after_s", "for_s"},
    Planned: {"interval_s", "phase_offset_s", "request_after_s", "safe_after_s", "safe_for_s"},
    Lease: {"throttled_s", "blocked_s", "busy_s"},
    Evidence: {"mtbf_s", "write_s", "at_work_s", "lead_s"},
    Claims: {"mtbf_s", "wish_s"},
    Belief: {"site_s"},
    History: {
        "step_s",
        "believed_restart_s",
        "down_s",
        "load_s",
        "warm_up_s",
        "startup_s",
        "queued_s",
        "unheard_s",
    },
}
NOT_STORED = {"wake_s"}


def a_job():
    """A job with a lease, an old share, and everything that can have a time."""
    offers = [Offer(seq=3, bytes_per_s=5, until_s=130.0), Offer(seq=4, bytes_per_s=9, until_s=135.0)]
    lease = Lease(
        fence=Fence(epoch=1, counter=1),
        kind=Kind.WRITE,
        state=LeaseState.ACTIVE,
        granted_s=100.0,
        offers=offers,
        reason=RateReason.FULL,
        ready_by_s=160.0,
        reported_s=104.0,
    )
    return Job(
        uid="0" * 32,
        name="run7",
        attempt=1,
        claim=bytes(16),
        num_gpus=8,
        registered_s=90.0,
        plan=planned(),
        lease=lease,
        answered_s=105.0,
        answered_received_s=104.5,
        contact_s=99.0,
        safe_offers=(counting.safe_offer(4, planned()),),
        old_shares=(OldShare(bytes_per_s=7, until_s=120.0),),
        snapshot_s=95.0,
        turn=Turn(asked_s=96.0, save_since_s=94.0, save=Save(kind=Kind.WRITE, begun_s=93.0)),
        history=History(credited_s=97.0, down_s=30.0),
    )


def test_every_time_of_a_record_has_a_side():
    """A field that is added later must be put on one of the lists, or be a duration."""
    for cls in [*vars(records).values(), *vars(particulars).values()]:
        stored = isinstance(cls, type) and issubclass(cls, msgspec.Struct)
        if not stored or cls in (records.Held, records.Waiter):
            continue
        times = {name for name in cls.__struct_fields__ if name.endswith("_s") and "bytes_per" not in name}
        known = {*LATER.get(cls, ()), *EARLIER.get(cls, ()), *DURATIONS.get(cls, ()), *NOT_STORED}
        assert times <= known, cls.__name__


def test_what_is_in_use_ends_later_and_contact_was_earlier():
    """The bound above moves what counts as in use, the bound below what was confirmed; absent times stay absent."""
    job = a_job()
    shift(job, OFFSET)
    assert [offer.until_s for offer in job.lease.offers] == pytest.approx([5130.2, 5135.2])
    assert job.old_shares[0].until_s == pytest.approx(5120.2)
    assert job.contact_s == pytest.approx(5094.0)
    assert job.answered_received_s == pytest.approx(5099.5)
    assert job.lease.deadline_at_s is job.turn.queued_since_s is None
    assert (job.turn.asked_s, job.turn.save_since_s) == pytest.approx((5091.0, 5089.0))
    assert job.turn.save.begun_s == pytest.approx(5088.0)
    assert counting.silent_until(job) >= counting.silent_until(a_job()) + 5000.0
    assert counting.silent_from(job, POOL) <= counting.silent_from(a_job(), POOL) + 5000.0


def test_stored_records_move_and_nothing_else_changes():
    """Bytes to bytes; the answer that is kept for replays has durations only and stays as it is."""
    job = a_job()
    job.answer = Grant(
        seq=4,
        held_s=0.5,
        confirm=False,
        fence=job.lease.fence,
        state=LeaseState.ACTIVE,
        bytes_per_s=9,
        ttl_s=30.0,
        reason=RateReason.FULL,
    )
    moved = Job.from_bytes(shift_records({job.uid: job.to_bytes()}, OFFSET)[job.uid])
    shift(job, OFFSET)
    assert moved.to_bytes() == job.to_bytes()
    assert moved.answer == job.answer
