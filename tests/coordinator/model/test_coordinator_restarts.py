"""What a restart of the coordinator must not forget: leases, times, answers. Times of another boot mean nothing."""

import dataclasses

import msgspec
import pytest

from rampmeter.core.messages import Grant, Noted, RefusalReason
from rampmeter_coordinator.model.commands import Refusal, Tick
from support.desk import Desk, busy_desk

T = 1000.0


def test_a_restart_with_memory_goes_on_where_it_was() -> None:
    """Leases, remaining times, counted shares, plans and totals are the same; who waited has to ask again."""
    desk = busy_desk(T)
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
