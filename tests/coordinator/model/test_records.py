"""What a restart must not forget: records round trip, times go on, another boot is read carefully."""

import dataclasses

import pytest

from rampmeter.core.messages import Gone, Grant, Outcome, RefusalReason
from rampmeter_coordinator.model.commands import Refusal, Tick
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.records import INFINITY, Job
from support.desk import POOL, Desk

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
        stored = dataclasses.replace(job, waiter=None, held=None, wake_s=INFINITY, planned_price=None)
        assert Job.from_bytes(desk.records[uid]) == stored


def test_unknown_keys_of_a_newer_writer_are_dropped() -> None:
    """A record with more in it can be read."""
    raw = next(iter(busy_desk().records.values()))
    assert Job.from_bytes(raw[:-1] + b',"from_the_future":1}').to_bytes() == raw


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
