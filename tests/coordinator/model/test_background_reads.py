"""Reads in the background: after all others, out of the way of all others, and idle GPUs of nobody."""

from typing import Any

from rampmeter.core.messages import Grant, Kind, RateReason, Wait
from support import reads
from support.desk import Desk, Talker
from support.reads import SHARED, on_line

T = 1000.0


def read(job: Talker, now_s: float, **more: Any) -> None:
    """A restore of some size asks for its slot."""
    reads.read(job, now_s, **({"num_bytes": 10_000} | more))


def read_back(job: Talker, now_s: float, **more: Any) -> None:
    """A checkpoint is to be read back beside training."""
    read(job, now_s, **({"background": True} | more))


def told(job: Talker) -> tuple[int, RateReason]:
    """After it has listened."""
    job.hear()
    return reads.told(job)


def test_alone_it_has_all_of_the_read_budget() -> None:
    """What nobody else wants is there to be used, and the lease says what it is for."""
    desk = Desk()
    job = desk.known(1, T)
    read_back(job, T)
    assert told(job) == (1000, RateReason.FULL)
    (lease,) = desk.ledger.lease_views(T)
    assert (lease.kind, lease.background) == (Kind.READ, True)


def test_it_is_paused_for_a_restore_and_goes_on_behind_it() -> None:
    """The restore is granted in the same step; the other lease stays, at rate 0, and has its rate again afterwards."""
    desk = Desk()
    job, restore = desk.known(1, T), desk.known(2, T)
    read_back(job, T, num_bytes=10**6)
    on_line(job, T, done_bytes=100)
    read(restore, T + 1)
    assert told(restore)[0] == 0  # nothing before the other one has confirmed
    assert told(job) == (0, RateReason.PAUSED)
    on_line(restore, T + 1.1)
    job.renew(T + 1.2, held=0, done_bytes=200)
    assert told(restore)[0] == 1000
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}
    job.hear()
    on_line(job, T + 2, done_bytes=200)
    restore.release(T + 5)
    assert told(job) == (1000, RateReason.FULL)


def test_a_restore_that_comes_later_does_not_wait_behind_a_paused_one() -> None:
    """A paused lease has its first byte in hand and no rate, and is no reason to let nobody else in."""
    desk = Desk()
    job, first, second, third = (desk.known(number, T) for number in (1, 2, 3, 4))
    read_back(job, T)
    read(first, T + 1, max_bytes_per_s=500)
    on_line(job, T + 1.1)
    on_line(first, T + 1.1)
    read_back(third, T + 1.2, max_bytes_per_s=500)
    read(second, T + 2, max_bytes_per_s=500)
    assert isinstance(second.answer, Grant)
    job.hear()
    job.renew(T + 2.1, held=0)
    second.renew(T + 2.1, held=0)
    assert desk.rates(T + 2.1) == {1: 0, 2: 500, 3: 500}


def test_whoever_waits_for_a_restore_is_served_first() -> None:
    """Also if it asked last and is the smaller job."""
    desk = Desk()
    holder, job, restore = desk.known(1, T), desk.known(2, T, num_gpus=4096), desk.known(3, T, num_gpus=1)
    read(holder, T)
    read_back(job, T, num_bytes=100)
    read(restore, T + 1, num_bytes=10**6)
    holder.release(T + 2)
    assert isinstance(restore.answer, Grant)
    assert not isinstance(job.answer, Grant)
    restore.hear()
    restore.release(T + 3)
    assert isinstance(job.answer, Grant)


def test_a_restore_goes_to_the_head_of_the_line_at_once() -> None:
    """Also in the second in which the line is not sorted anew."""
    desk = Desk()
    holder, job, restore = desk.known(1, T), desk.known(2, T, num_gpus=4096), desk.known(3, T, num_gpus=1)
    read(holder, T)
    read_back(job, T + 0.1, num_bytes=100)
    read(restore, T + 0.2, num_bytes=10**6)
    holder.release(T + 0.3)
    assert isinstance(restore.answer, Grant)
    assert not isinstance(job.answer, Grant)


def test_several_have_their_turns_in_the_order_in_which_they_asked() -> None:
    """The first one takes what there is; nobody has a claim to be before another."""
    desk = Desk()
    first, second = desk.known(2, T, num_gpus=1), desk.known(1, T, num_gpus=4096)
    read_back(first, T)
    read_back(second, T + 1, num_bytes=10)
    assert desk.rates(T + 1) == {2: 1000}
    first.release(T + 2)
    assert desk.rates(T + 2) == {1: 1000}


def test_on_a_shared_budget_saves_go_first_too() -> None:
    """A save that could be paused for a restore is not paused for this, and this is paused for any save."""
    desk = Desk(SHARED)
    job, saver = desk.known(1, T, num_gpus=4096), desk.known(2, T, num_bytes=10**6)
    read_back(job, T)
    on_line(job, T, done_bytes=100)
    saver.ask(T + 1, ready_in_s=0.0)
    assert isinstance(saver.answer, Grant)
    assert told(job) == (0, RateReason.PAUSED)
    on_line(saver, T + 1.1)
    job.renew(T + 1.2, held=0, done_bytes=100)
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}


def test_on_a_shared_budget_it_waits_for_saves_that_are_being_written() -> None:
    """However many GPUs its job has."""
    desk = Desk(SHARED)
    saver, job = desk.writer(1, T, num_bytes=10**6), desk.known(2, T, num_gpus=4096)
    read_back(job, T, num_bytes=10)
    assert job.answer is None
    assert desk.rates(T) == {1: 1000}
    saver.release(T + 1)
    assert isinstance(job.answer, Grant)


def test_in_a_line_that_is_shared_it_stands_behind_the_saves() -> None:
    """A restore of so many GPUs would stand before this one."""
    desk = Desk(SHARED)
    holder, job, saver = desk.writer(1, T), desk.known(2, T, num_gpus=4096), desk.known(3, T, num_gpus=1)
    read_back(job, T, num_bytes=10)
    saver.ask(T + 1, ready_in_s=0.0, age_s=1.0)
    holder.release(T + 2)
    assert isinstance(saver.answer, Grant)
    assert not isinstance(job.answer, Grant)


def test_no_save_is_given_up_for_it() -> None:
    """A synchronous one that has hardly begun would be for a restore."""
    desk = Desk(SHARED)
    job = desk.known(2, T, num_gpus=64)
    saver = desk.known(1, T, num_bytes=100_000, synchronous=True, write_s=100.0)
    read_back(job, T, num_bytes=50_000, ready_in_s=5.0)
    saver.ask(T, ready_in_s=0.0)
    on_line(saver, T, done_bytes=100)
    job.ready(T + 1)
    assert saver.answer is None
    assert desk.rates(T + 1) == {1: 1000, 2: 0}


def test_nobody_idles_while_it_waits() -> None:
    """The same wait of a restore is charged to its job."""
    waits = {}
    for background in (False, True):
        desk = Desk()
        holder, job = desk.known(1, T), desk.known(2, T)
        read(holder, T)
        read(job, T, background=background)
        holder.release(T + 20)
        job.hear()
        (view,) = [view for view in desk.ledger.job_views(T + 20) if view.job_uid == job.uid]
        waits[background] = view.account_s.waiting
    assert waits == {False: 20.0, True: 0.0}


def test_a_save_after_it_has_not_waited_since_then() -> None:
    """What a job waits for in the background is no part of the wait for its next save."""
    desk = Desk()
    holder, job = desk.known(1, T), desk.known(2, T, synchronous=True)
    read(holder, T)
    read_back(job, T)
    job.ask(T + 20)
    assert isinstance(job.last, Grant)
    (view,) = [view for view in desk.ledger.job_views(T + 20) if view.job_uid == job.uid]
    assert view.account_s.waiting == 0.0


def test_after_lost_memory_it_is_still_in_the_background() -> None:
    """Its renewal says so: a restore that comes then goes first."""
    desk = Desk()
    job, restore = desk.known(1, T), desk.known(2, T)
    read_back(job, T)
    desk.restart(grace_until_s=T + 40, forget=True)
    for talker in (job, restore):
        talker.register(T + 1)
    job.renew(T + 2, held=1000, kind=Kind.READ, background=True)
    (lease,) = desk.ledger.lease_views(T + 2)
    assert (lease.background, lease.bytes_per_s) == (True, 1000)


def test_a_restart_with_memory_knows_it_too() -> None:
    """It is in the record."""
    desk = Desk()
    job = desk.known(1, T)
    read_back(job, T)
    desk.restart()
    (lease,) = desk.ledger.lease_views(T + 1)
    assert lease.background


def test_a_save_is_never_in_the_background() -> None:
    """The word means nothing beside `write`: it is queued and ranked like any other."""
    desk = Desk()
    holder, first, second = desk.writer(1, T), desk.known(2, T, num_gpus=512), desk.known(3, T)
    first.ask(T, ready_in_s=0.0, age_s=1000.0, background=True)
    second.ask(T, ready_in_s=0.0, age_s=10.0)
    holder.release(T + 1)
    assert isinstance(first.answer, Grant)
    assert not isinstance(second.answer, Grant | Wait)
