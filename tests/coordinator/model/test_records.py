"""What a restart must not forget: records round trip, times go on, another boot is read carefully."""

import dataclasses
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rampmeter.core.fields import MAX_COUNT
from rampmeter.core.messages import Gone, Grant, Noted, Outcome, PlanReason, RefusalReason
from rampmeter_coordinator.model.commands import Refusal, Tick
from rampmeter_coordinator.model.history import PRIOR
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.particulars import NO_MISHAPS, NO_TERMS, Mishaps, shared_terms
from rampmeter_coordinator.model.records import INFINITY, Job, Planned, SafeOffer
from rampmeter_coordinator.model.state import MAX_SEEN_EPOCH, fence_epoch_of
from support.desk import POOL, Desk
from support.lives import record

T = 1000.0


def busy_desk() -> Desk:
    """A writer, a job armed, one waiting, one fenced with a newer attempt, one finished, one that has saved."""
    desk = Desk()
    saved = desk.writer(6, T)
    saved.release(T, done_bytes=7_000, step=5, stall_s=1.2, write_s=12.0, lead_s=3.0)
    desk.writer(1, T, max_bytes_per_s=300)
    desk.known(2, T).ask(T, ready_in_s=20.0, max_bytes_per_s=300)
    fenced = desk.writer(4, T, max_bytes_per_s=300)
    fenced.next_attempt().register(T + 1, safe_bytes_per_s=20)
    desk.known(5, T).finish(T + 1)
    desk.known(3, T + 1).ask(T + 1, ready_in_s=0.0)
    return desk


def test_every_record_round_trips() -> None:
    """Bytes to record to bytes gives the same bytes, and the same record but for what lives on a connection."""
    desk = busy_desk()
    for raw in desk.records.values():
        assert Job.from_bytes(raw).to_bytes() == raw
    for uid, job in desk.ledger._state.jobs.items():
        assert Job.from_bytes(desk.records[uid]) == durable(job)


def durable(job: Job) -> Job:
    """What a store keeps of a job."""
    passing = {"waiter": None, "held": None, "wake_s": INFINITY, "load": None, "planned_price": None}
    passing |= {"row": -1, "belief": PRIOR, "silent_bytes_per_s": 0, "issued_bytes_per_s": 0}
    return msgspec.structs.replace(job, **passing)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of this type may hold, within the bounds of the wire."""
    if hint is float:
        return st.floats(min_value=1e-3, max_value=1e6)
    if hint is int:
        return st.integers(min_value=1, max_value=10**9)
    if hint in (str, bool):
        return st.text(max_size=40) if hint is str else st.booleans()
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    if isinstance(hint, type):
        return st.builds(hint, **{name: values_of(found) for name, found in get_type_hints(hint).items()})
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values_of(args[0])
    if origin is Literal:
        return st.sampled_from(args)
    if origin in (list, tuple):
        return st.lists(values_of(args[0]), max_size=3).map(origin)
    return st.one_of(st.none() if arg is type(None) else values_of(arg) for arg in args)


@given(values_of(Job))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_whatever_a_record_holds_comes_back(job: Job) -> None:
    """Any job, with any lease, answer and history: written, read and written again it is the same, and unharmed."""
    before = repr(job)
    raw = job.to_bytes()
    assert repr(job) == before
    assert Job.from_bytes(raw) == durable(job)
    assert Job.from_bytes(raw).to_bytes() == raw


def test_unknown_keys_of_a_newer_writer_are_dropped() -> None:
    """A record with more in it can be read, also where the more is further inside."""
    for raw in busy_desk().records.values():
        record = msgspec.msgpack.decode(raw)
        record["from_the_future"] = 1
        record["plan"]["from_the_future"] = [1]
        assert Job.from_bytes(msgspec.msgpack.encode(record)).to_bytes() == raw


FIRST_FORM = (
    b'{"uid":"00000000000000000000000000000001","name":"job-1","attempt":1,"claim":"00000000000000000000000000000001",'
    b'"num_gpus":8,"registered_s":1000.0,"plan":{"number":1,"interval_s":84.85,"phase_offset_s":27.5,'
    b'"request_after_s":84.85,"safe_bytes_per_s":147,"safe_after_s":90.0,"safe_for_s":14400.0,"heartbeat_s":15.0,'
    b'"reason":"own_period","price_gpu_s_per_byte":0.0},"num_bytes":10000,"mtbf_s":3600.0,"synchronous":false,"seq":4,'
    b'"answered_seq":4,"answered_received_s":1010.0,"answered_s":1010.0,'
    b'"answer":{"seq":4,"held_s":0.0,"confirm":false,"answer":"noted"},"contact_s":1000.0,"safe_offers":'
    b'[{"seq":1,"number":1,"bytes_per_s":147,"after_s":90.0,"for_s":14400.0}],"old_shares":[],"learned":{"stall_s":1.0,'
    b'"num_samples":0},"step":1,"num_committed":0,"num_failed":0,"num_skipped":0,"num_ungoverned":0,'
    b'"num_not_ready":0,"ended_reason":"expired","asked_s":0.0,"finished":false}'
)


def test_records_of_the_first_release_can_be_read() -> None:
    """What the first coordinator wrote means the same today."""
    plan = Planned(
        number=1,
        interval_s=84.85,
        phase_offset_s=27.5,
        request_after_s=84.85,
        safe_bytes_per_s=147,
        safe_after_s=90.0,
        safe_for_s=14400.0,
        reason=PlanReason.OWN_PERIOD,
        price_gpu_s_per_byte=0.0,
    )
    assert Job.from_bytes(FIRST_FORM) == Job(
        uid=f"{1:032x}",
        name="job-1",
        attempt=1,
        claim=bytes(15) + b"\1",
        num_gpus=8,
        registered_s=1000.0,
        plan=plan,
        num_bytes=10_000,
        mtbf_s=3600.0,
        seq=4,
        answered_seq=4,
        answered_received_s=1010.0,
        answered_s=1010.0,
        answer=Noted(seq=4, held_s=0.0, confirm=False),
        contact_s=1000.0,
        safe_offers=(SafeOffer(seq=1, number=1, bytes_per_s=147, after_s=90.0, for_s=14400.0),),
        stall_s=1.0,
        step=1,
    )


def beside(raw: bytes) -> bytes:
    """A record as it was written before there were parts: what is in them stands beside everything else."""
    record = msgspec.msgpack.decode(raw)
    for part in ("terms", "mishaps", "turn"):
        record |= record.pop(part, {})
    known = record.get("evidence", {})
    record |= {
        name: known.pop(name) for name in ("num_committed", "write_s", "at_work_s", "lead_s") if name in known
    }
    return msgspec.msgpack.encode(record)


def test_records_without_parts_can_be_read_with_all_that_is_in_them() -> None:
    """What an older coordinator wrote of a job that has saved, has waited and was in trouble is not forgotten."""
    desk = busy_desk()
    job = desk.known(
        7, T, tenant="a", interval_min_s=3.0, interval_max_s=900.0, synchronous=True, write_s=7.0
    )
    job.heartbeat(T, num_failed=1, num_skipped=2, num_ungoverned=3)
    assert all(
        name in msgspec.msgpack.decode(beside(desk.records[job.uid])) for name in ("tenant", "num_skipped")
    )
    for raw in desk.records.values():
        assert Job.from_bytes(beside(raw)) == Job.from_bytes(raw)


def test_the_first_release_knew_write_times_too() -> None:
    """What it had learned, and what had happened, is read into the parts of today."""
    raw = FIRST_FORM.replace(b'"stall_s":1.0', b'"stall_s":1.0,"write_s":20.0,"at_work_s":15.0,"lead_s":2.0')
    raw = raw.replace(b'"num_committed":0,"num_failed":0', b'"num_committed":4,"num_failed":5')
    raw = raw.replace(b'"synchronous":false', b'"synchronous":true').replace(
        b'"asked_s":0.0', b'"asked_s":900.0'
    )
    job = Job.from_bytes(raw)
    assert (job.known.write_s, job.known.at_work_s, job.known.lead_s) == (20.0, 15.0, 2.0)
    assert (job.known.num_committed, job.mishaps.num_failed, job.terms.synchronous) == (4, 5, True)
    assert job.turn is not None
    assert job.turn.asked_s == 900.0


def test_parts_are_shared_or_absent_where_there_is_nothing_to_say() -> None:
    """Not a byte for what a job does not have, in memory or in the store; jobs that were set alike share what they
    share.
    """
    desk = Desk()
    plain, others = (
        record(desk, desk.known(1, T)),
        [record(desk, desk.known(n, T, tenant="a")) for n in (2, 3)],
    )
    assert (plain.terms, plain.mishaps, plain.turn, plain.evidence) == (NO_TERMS, NO_MISHAPS, None, None)
    assert plain.terms is NO_TERMS
    assert plain.mishaps is NO_MISHAPS
    assert not {"terms", "mishaps", "turn", "evidence"} & set(msgspec.msgpack.decode(desk.records[plain.uid]))
    assert others[0].terms is others[1].terms


def test_mishaps_are_over_where_a_heartbeat_counts_none() -> None:
    """As after a new attempt; the shared record stands in again."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(T, num_failed=2)
    assert record(desk, job).mishaps == Mishaps(num_failed=2)
    job.heartbeat(T)
    assert record(desk, job).mishaps is NO_MISHAPS


def test_a_restart_with_memory_goes_on_where_it_was() -> None:
    """Leases, remaining times, counted shares, plans and totals are the same; who waited has to ask again."""
    desk = busy_desk()
    before = desk.ledger
    desk.restart()
    desk.tick(T + 2)
    before.apply(Tick(), T + 2)
    assert desk.ledger.lease_views(T + 2) == before.lease_views(T + 2)
    assert desk.ledger.totals == before.totals
    for new, old in zip(desk.ledger.job_views(T + 2), before.job_views(T + 2), strict=True):
        assert dataclasses.replace(old, wait_reason=None) == new
    assert desk.counted(T + 2) == before.pool_view(T + 2).counted_bytes_per_s


def test_no_fresh_ttl_from_a_restart() -> None:
    """A lease has the time left that it had."""
    desk = Desk()
    desk.writer(1, T)
    desk.restart()
    desk.tick(T + 4)
    assert desk.ledger.lease_views(T + 4)[0].expires_in_s == pytest.approx(6.0)
    desk.tick(T + 10)
    assert desk.ledger.lease_views(T + 10) == []


def test_what_ran_out_while_the_coordinator_was_down_is_over() -> None:
    """A lease that expired meanwhile blocks nobody after the restart."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T + 1)
    desk.restart()
    waiter.heartbeat(T + 90)
    waiter.ask(T + 90, ready_in_s=0.0)
    assert isinstance(waiter.last, Grant)
    assert set(desk.rates(T + 90)) == {2}


def test_the_last_answer_survives_a_restart() -> None:
    """The retry of a request that was answered before the crash gets that answer."""
    desk = Desk()
    job = desk.writer(1, T)
    answer = job.last
    desk.restart()
    assert job.again(T + 3) == answer


def test_an_answer_that_only_notes_is_not_kept_and_comes_back_all_the_same() -> None:
    """Retries of a heartbeat get its answer, before a restart and after, though no record has it."""
    desk = Desk()
    job = desk.known(1, T)
    answer = job.heartbeat(T + 1)
    assert answer == Noted(seq=answer.seq, held_s=0.0, confirm=False)
    assert "answer" not in msgspec.msgpack.decode(desk.records[job.uid])
    assert job.again(T + 2) == answer
    desk.restart()
    assert job.again(T + 3) == answer


def test_an_answer_that_asks_for_a_confirmation_is_kept() -> None:
    """Its retry asks for it too, after a restart as before."""
    desk = Desk()
    job = desk.known(1, T)
    answer = job.heartbeat(T + 50)
    assert answer == Noted(seq=answer.seq, held_s=0.0, confirm=True)
    desk.restart()
    assert job.again(T + 51) == answer


def test_a_request_held_at_the_crash_must_be_asked_anew() -> None:
    """Its number is spent: an answer would count from a first send of long ago."""
    desk = Desk()
    desk.writer(1, T)
    waiter = desk.known(2, T)
    waiter.ask(T, ready_in_s=0.0)
    desk.restart()
    refusal = waiter.again(T + 12)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is RefusalReason.OLD_SEQ
    waiter.ask(T + 12, ready_in_s=0.0)
    assert isinstance(waiter.last, Grant)


def test_fences_grow_over_restarts() -> None:
    """The epoch is compared first: the counter may begin anew."""
    desk = Desk()
    first = desk.writer(1, T).fence
    desk.restart(epoch=2)
    assert desk.writer(2, T + 11).fence > first


def test_a_fence_is_above_all_that_the_agent_has_seen() -> None:
    """Also where that life is forgotten and the clock was set back since; those who come later are above it, too."""
    desk = Desk(epoch=9)
    job = desk.writer(1, T, max_bytes_per_s=95)
    old = job.fence
    desk.restart(forget=True, epoch=4, grace_until_s=T + 31)
    job.register(T + 1, seen_epoch=old.epoch)
    job.renew(T + 1, held=95)
    desk.tick(T + 6)
    assert isinstance(job.hear(), Grant)
    assert job.fence > old
    job.release(T + 31)
    assert desk.writer(2, T + 31).fence > job.fence


def test_an_epoch_of_this_life_is_nothing_to_outgrow() -> None:
    """Whoever registers again under the same coordinator tells its own epoch, or a lower one."""
    desk = Desk(epoch=9)
    job = desk.writer(1, T)
    for seen_epoch in (0, 8, 9):
        job.register(T + 1, seen_epoch=seen_epoch)
        assert fence_epoch_of(desk.meta) == 9


def test_an_epoch_that_cannot_be_is_not_believed() -> None:
    """One job must not use up the numbers that all the restarts to come need; who is refused says nothing at all."""
    desk = Desk(epoch=9)
    job = desk.known(1, T)
    for seen_epoch in (MAX_COUNT, MAX_SEEN_EPOCH):
        assert isinstance(job.register(T, seen_epoch=seen_epoch), Noted)
    assert isinstance(job.register(T, seen_epoch=12, claim="f" * 32), Refusal)
    assert fence_epoch_of(desk.meta) == 9
    job.register(T, seen_epoch=MAX_SEEN_EPOCH - 1)
    assert fence_epoch_of(desk.meta) == MAX_SEEN_EPOCH


def test_lost_memory_re_creates_a_holder_under_a_new_fence() -> None:
    """In grace a renewal with a rate in it brings the lease back; after grace it does not."""
    desk = Desk()
    job = desk.writer(1, T, max_bytes_per_s=95)
    old = job.fence
    desk.restart(forget=True, epoch=2, grace_until_s=T + 31)
    job.register(T + 1)
    job.renew(T + 1, held=95)
    desk.tick(T + 6)
    assert isinstance(job.hear(), Grant)
    assert job.fence > old
    late = Desk(grace_until_s=0.0).known(2, T)
    late.renew(T, held=95)
    assert isinstance(late.last, Gone)


def test_another_boot_counts_what_was_held_until_grace_ends() -> None:
    """Its times mean nothing here: recorded rates count to the end of grace, and nobody has contact."""
    desk = Desk()
    job = desk.writer(1, T + 500_000)
    desk.restart(epoch=2, grace_until_s=T + 31)
    desk.tick(T)
    assert desk.counted(T + 30) == 1000
    desk.tick(T + 31)
    assert desk.rates(T + 31) == {}
    assert desk.counted(T + 31) == desk.ledger.job_views(T)[0].plan.safe_bytes_per_s > 0
    assert job.ack == job.seq


def test_after_another_boot_one_confirmation_is_not_yet_contact() -> None:
    """The first confirms an answer of before: only the second one proves that answers arrive."""
    desk = Desk()
    job = desk.known(1, T + 500_000)
    desk.restart(epoch=2, grace_until_s=T + 31)
    job.heartbeat(T)
    assert desk.counted(T) > 0
    assert job.last.confirm
    job.heartbeat(T + 0.1)
    assert desk.counted(T + 0.1) == 0


def test_grace_that_goes_on_does_not_shorten_leases_given_in_it() -> None:
    """A second restart shortly before the end of grace: what was renewed in grace counts for its whole time."""
    desk = Desk()
    job = desk.writer(1, T, max_bytes_per_s=500)
    desk.restart(forget=True, epoch=2, grace_until_s=T + 31)
    job.register(T + 1)
    job.renew(T + 28, held=500)
    desk.tick(T + 30)
    assert isinstance(job.hear(), Grant) or job.answer is None
    desk.restart(epoch=3, grace_until_s=T + 31)
    desk.tick(T + 30.5)
    desk.tick(T + 31.5)
    assert desk.counted(T + 31.5) == 500
    assert desk.counted(T + 55) == 500


def test_deleted_jobs_are_deleted_from_the_store() -> None:
    """A forgotten job's record is changed to None."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=1000, max_jobs=1))
    desk.known(1, T).finish(T)
    desk.known(2, T + 1)
    assert [int(uid, 16) for uid in desk.records] == [2]


def test_changes_are_told_once() -> None:
    """What was taken is not told again; only jobs that changed are."""
    desk = Desk()
    desk.known(1, T)
    job = desk.known(2, T)
    assert desk.ledger.take_changes().records == {}
    ledger: Ledger = desk.ledger
    ledger.apply(job.sent, T)
    assert set(ledger.take_changes().records) == {job.uid}


def test_an_aborted_save_is_remembered_as_nothing() -> None:
    """Only committed saves teach."""
    desk = Desk()
    job = desk.writer(1, T)
    job.release(T + 1, Outcome.ABORTED, done_bytes=5, stall_s=9.0, write_s=9.0)
    view = desk.ledger.job_views(T + 1)[0]
    assert (view.num_committed, view.write_s, view.num_bytes) == (0, None, 10_000)


def test_terms_of_another_kind_are_another_record() -> None:
    """A whole number of seconds is written as it was told, whatever another job told before."""
    whole: int = 5
    assert repr(shared_terms(None, 5.0, None, False)) != repr(shared_terms(None, whole, None, False))
