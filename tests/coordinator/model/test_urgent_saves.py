"""A notice of preemption at the ledger's desk: others make room at once where that helps; false alarms are noted."""

from rampmeter.core.messages import EndReason, Finish, Grant, RateReason, Wait, WaitReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Desk, Talker

T = 1000.0


def on_line(job: Talker, now_s: float) -> None:
    """The writer's renewal is held: it can be told at once."""
    rate = job.desk.rates(now_s)[int(job.uid, 16)]
    job.renew(now_s, held=rate)
    if job.answer is not None:
        job.renew(now_s, held=rate)
    assert job.answer is None


def urgent(job: Talker, now_s: float, deadline_s: float = 60.0, **more: object) -> None:
    job.ask(now_s, ready_in_s=0.0, urgent=True, deadline_s=deadline_s, age_s=100.0, **more)


def rate_of(job: Talker) -> int:
    assert isinstance(job.last, Grant), job.last
    return job.last.bytes_per_s


def will_not_fit(job: Talker) -> int:
    """How much would, of a save that was sent home."""
    assert isinstance(job.last, Wait), job.last
    assert job.last.reason is WaitReason.WILL_NOT_FIT
    assert job.last.fits_bytes is not None
    return job.last.fits_bytes


def test_others_make_room_within_one_round_trip() -> None:
    """They are told in the step of the request; their next word frees what they had, and that is given on."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    urgent(saver, T + 1)
    assert rate_of(saver) == 0
    holder.hear()
    assert (rate_of(holder), holder.last.reason) == (0, RateReason.NO_ROOM)
    saver.renew(T + 1.1, held=0)
    saver.hear()
    saver.renew(T + 1.1, held=0)
    assert saver.answer is None
    assert desk.counted(T + 1.1) == 1000
    holder.renew(T + 1.2, held=0)
    saver.hear()
    assert (rate_of(saver), saver.last.reason) == (1000, RateReason.FULL)
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}


def test_who_made_room_goes_on_when_the_urgent_save_has_ended() -> None:
    """In the step of its release."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    urgent(saver, T + 1)
    holder.hear()
    on_line(holder, T + 1.1)
    saver.renew(T + 1.2, held=0)
    saver.hear()
    saver.release(T + 5)
    assert desk.rates(T + 5) == {1: 1000}


def test_only_as_much_room_is_made_as_the_save_can_use() -> None:
    """It can use 300: the holder keeps 700."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    urgent(saver, T + 1, max_bytes_per_s=300)
    holder.hear()
    holder.renew(T + 1.1, held=700)
    saver.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 700, 2: 300}


def test_a_save_that_cannot_be_in_time_displaces_nobody() -> None:
    """6 s are 4 s of writing after a round trip and the commit: 4000 of 10,000 bytes would fit; it is told at once."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    urgent(saver, T + 1, deadline_s=6.0)
    assert will_not_fit(saver) == 4000
    assert holder.answer is None
    assert desk.rates(T + 1) == {1: 1000}
    assert desk.ledger.totals.will_not_fit == 1


def test_it_may_ask_again_for_what_fits() -> None:
    """And is granted that."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    urgent(saver, T + 1, deadline_s=6.0)
    urgent(saver, T + 1, deadline_s=6.0, num_bytes=will_not_fit(saver))
    assert isinstance(saver.last, Grant)


def test_room_of_a_writer_that_cannot_be_told_comes_when_its_lease_expires() -> None:
    """Its first TTL of 10 s: a deadline of 20 s leaves 9 s of writing, one of 21 s is enough for all 10,000 bytes."""
    desk = Desk()
    saver = desk.known(2, T)
    desk.writer(1, T)
    urgent(saver, T, deadline_s=20.0)
    assert will_not_fit(saver) == 9000
    urgent(saver, T, deadline_s=21.0)
    assert rate_of(saver) == 0
    saver.renew(T + 1, held=0)
    on_line(saver, T + 9.9)
    assert desk.rates(T + 9.9) == {1: 1000, 2: 0}
    desk.tick(T + 10)
    assert desk.rates(T + 10) == {2: 1000}


def test_a_lead_time_is_part_of_the_deadline() -> None:
    """The first byte in 8 s, a round trip after it, the commit: 12 s leave 2 s."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    saver.ask(T, ready_in_s=8.0, urgent=True, deadline_s=12.0)
    assert will_not_fit(saver) == 2000


def test_an_earlier_deadline_goes_before_an_urgent_save_that_writes() -> None:
    """Where both are in time."""
    desk = Desk()
    first, second = desk.known(1, T), desk.known(2, T)
    urgent(first, T, deadline_s=60.0)
    on_line(first, T)
    urgent(second, T + 1, deadline_s=20.0)
    first.hear()
    first.renew(T + 1.1, held=0)
    second.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}


def test_an_urgent_save_that_was_granted_is_never_made_late() -> None:
    """It needs its 10 s until the deadline: one with an earlier deadline is sent home, however much it has at risk."""
    desk = Desk()
    first, second = desk.known(1, T), desk.known(2, T, num_gpus=4096)
    urgent(first, T, deadline_s=12.0)
    on_line(first, T)
    urgent(second, T, deadline_s=11.9)
    assert will_not_fit(second) < 10_000
    assert desk.rates(T) == {1: 1000}


def test_an_urgent_save_that_is_late_anyway_still_has_its_claim() -> None:
    """It wrote nothing for 8 s: until its own time is over at 11 s it comes first, and only then the newcomer."""
    desk = Desk()
    first, second = desk.known(1, T), desk.known(2, T)
    urgent(first, T, deadline_s=12.0)
    first.renew(T + 4, held=1000)
    on_line(first, T + 8)
    urgent(second, T + 8, deadline_s=11.5, num_bytes=8000)
    assert will_not_fit(second) == 7500
    assert desk.rates(T + 8) == {1: 1000}


def test_an_urgent_save_writes_beside_max_writers() -> None:
    """The one place is its own."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_writers=1))
    saver, holder = desk.known(2, T), desk.writer(1, T, max_bytes_per_s=100)
    on_line(holder, T)
    urgent(saver, T + 1, max_bytes_per_s=500)
    holder.hear()
    assert (rate_of(holder), holder.last.reason) == (0, RateReason.MAX_WRITERS)
    holder.renew(T + 1.1, held=0)
    saver.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 0, 2: 500}


def test_a_tenants_cap_is_part_of_the_forecast() -> None:
    """At 100 bytes/s for its tenant 10,000 bytes are not written in 60 s."""
    desk = Desk(
        PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_tenant_bytes_per_s=100)
    )
    saver = desk.known(1, T, tenant="a")
    urgent(saver, T, deadline_s=61.0)
    assert will_not_fit(saver) == 6000


def test_a_notice_without_a_deadline_goes_first_and_always_fits() -> None:
    """It is as urgent as it can be told."""
    desk = Desk()
    saver, holder = desk.known(2, T), desk.writer(1, T)
    on_line(holder, T)
    saver.ask(T, ready_in_s=0.0, urgent=True, num_bytes=10**9)
    holder.hear()
    assert rate_of(holder) == 0


# -- false alarms --------------------------------------------------------------------------------------------------


def false_alarm(desk: Desk, job: Talker, now_s: float) -> None:
    """An urgent save after which the attempt asks for its next one as if nothing had been."""
    urgent(job, now_s)
    job.release(now_s + 1)
    job.ask(now_s + 2, ready_in_s=0.0)
    job.release(now_s + 3)


def test_who_goes_on_after_an_urgent_save_is_believed_no_more() -> None:
    """It is counted, and the attempt's next urgent save waits like all others."""
    desk = Desk()
    saver, other = desk.known(1, T), desk.known(2, T)
    false_alarm(desk, saver, T)
    assert desk.ledger.totals.false_alarms == 1
    other.ask(T + 4, ready_in_s=0.0)
    on_line(other, T + 4)
    urgent(saver, T + 5)
    assert saver.answer is None
    assert other.answer is None


def test_a_new_attempt_is_believed_again() -> None:
    """What its elder did is not held against it."""
    desk = Desk()
    saver, other = desk.known(1, T), desk.known(2, T)
    false_alarm(desk, saver, T)
    newer = saver.next_attempt()
    newer.register(T + 4)
    newer.heartbeat(T + 4)
    newer.heartbeat(T + 4)
    other.ask(T + 4, ready_in_s=0.0)
    on_line(other, T + 4)
    urgent(newer, T + 5)
    other.hear()
    assert rate_of(other) == 0


def test_an_attempt_that_ends_after_its_urgent_save_was_right() -> None:
    """By its goodbye or by the next attempt; and a save that lapsed and goes on is the same one."""
    desk = Desk()
    ended, replaced, lapsed = desk.known(1, T), desk.known(2, T), desk.known(3, T)
    urgent(ended, T)
    ended.release(T + 1)
    ended.say(Finish, T + 2, reason=EndReason.PREEMPTED)
    urgent(replaced, T + 3)
    replaced.release(T + 4)
    newer = replaced.next_attempt()
    newer.register(T + 5)
    newer.heartbeat(T + 5)
    newer.ask(T + 6, ready_in_s=0.0)
    newer.release(T + 7)
    urgent(lapsed, T + 8)
    lapsed.ask(T + 20, started=True, urgent=True, deadline_s=40.0)
    assert isinstance(lapsed.last, Grant)
    assert desk.ledger.totals.false_alarms == 0
