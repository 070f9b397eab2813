"""The rules of docs/ledger-rules.md, each as the minimal history that broke an earlier reading of it."""

import pytest

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import (
    MARGIN_S,
    Fence,
    Gone,
    GoneReason,
    Grant,
    LeaseState,
    Noted,
    RateReason,
    Wait,
    WaitReason,
)
from support.desk import POOL, Desk

T = 1000.0


def test_rule_1_lowered_is_not_answered() -> None:
    """A lost lowering frees nothing: the other is raised only when it was confirmed or the old lease has expired."""
    desk = Desk()
    a = desk.writer(1, T)
    assert desk.rates(T) == {1: 1000}
    desk.restart(config=POOL.__class__(name="pool", capacity_bytes_per_s=500, utilisation=1.0))
    b = desk.known(2, T + 1)
    a.renew(T + 1, held=1000, lost=True)
    b.ask(T + 2, ready_in_s=0.0)
    assert isinstance(a.answer, Grant)
    assert a.answer.bytes_per_s <= 500
    assert desk.counted(T + 3) == 1000
    desk.tick(T + 11)
    assert desk.counted(T + 11) <= 500


def test_rule_1_a_raise_comes_only_after_the_lowering_was_confirmed() -> None:
    """What a writer gives up is given on when its next request says that it has applied the answer."""
    desk = Desk()
    a, b = desk.writer(1, T, max_bytes_per_s=600), desk.writer(2, T, max_bytes_per_s=600)
    assert desk.rates(T) == {1: 600, 2: 400}
    a.release(T + 1)
    assert desk.rates(T + 1) == {2: 400}
    b.renew(T + 1, held=400)
    assert desk.rates(T + 1) == {2: 600}
    assert b.last.bytes_per_s == 600


def test_rule_2_contact_is_two_sided() -> None:
    """Heartbeats that arrive are no contact while their answers do not: the safe rate counts from 59 s on."""
    desk = Desk()
    job = desk.known(1, T)
    for later_s in (15.0, 30.0, 45.0, 58.0):
        job.heartbeat(T + later_s, lost=True)
    safe = desk.ledger.job_views(T)[0].plan.safe_bytes_per_s
    assert safe > 0
    assert desk.counted(T + 58.0) == 0
    job.heartbeat(T + 60.0, lost=True)
    assert desk.counted(T + 60.0) == safe


def test_rule_3_a_silent_job_is_counted_before_it_may_write() -> None:
    """Every lease given before the safe rate counts has expired when the safe rate becomes usable."""
    desk = Desk()
    silent = desk.known(1, T)
    plan = desk.ledger.job_views(T)[0].plan
    clock = LeaseClock()
    clock.answered(T, plan)
    writer = desk.known(2, T + 57)
    writer.heartbeat(T + 57)
    writer.ask(T + 58.9, ready_in_s=0.0)
    writer.renew(T + 58.9, held=1000)
    assert isinstance(writer.last, Grant)
    assert writer.last.bytes_per_s == 1000
    usable_s = clock.safe_window()[0]
    assert T + 58.9 + writer.last.ttl_s <= usable_s
    desk.tick(T + 59)
    writer.renew(T + 59, held=1000)
    assert writer.last.bytes_per_s == 1000 - plan.safe_bytes_per_s
    assert silent.ack < silent.seq + 1


def test_rule_4_a_restart_is_no_contact() -> None:
    """A job that was silent before a restart is counted at once after it."""
    desk = Desk()
    desk.known(1, T)
    desk.tick(T + 61)
    before = desk.counted(T + 61)
    desk.restart()
    desk.tick(T + 62)
    assert before > 0
    assert desk.counted(T + 62) == before


def test_rule_4_an_unconfirmed_job_is_silent_from_the_start() -> None:
    """A job that brings a safe rate along counts with it until it has confirmed an answer."""
    desk = Desk()
    job = desk.job(1)
    job.register(T, safe_bytes_per_s=30)
    assert desk.counted(T) >= 30
    assert job.last.confirm
    job.heartbeat(T + 1)
    assert desk.counted(T + 1) == 0


def test_rule_5_a_grant_to_a_held_request_is_alive() -> None:
    """held_s moves the agent's deadline: first send + held_s + TTL - margin, never behind the ledger's own expiry."""
    desk = Desk()
    a, b = desk.writer(1, T), desk.known(2, T)
    a.renew(T, held=1000)
    b.heartbeat(T + 1)
    assert b.ask(T + 2, ready_in_s=0.0) is None
    a.release(T + 22)
    grant = b.hear()
    assert isinstance(grant, Grant)
    assert grant.held_s == pytest.approx(20.0)
    clock = LeaseClock()
    clock.granted(grant, T + 2)
    assert clock.allowance(T + 22.1).bytes_per_s == 1000
    assert not clock.lapsed(T + 30.9)
    assert clock.lapsed(T + 31.0)
    assert desk.ledger.lease_views(T + 22)[0].expires_in_s == 10.0


def test_rule_6_grace_serves_holders_and_raises_nobody() -> None:
    """The first to come back after lost memory keeps what it held and no more, until grace is over."""
    desk = Desk()
    a, b = desk.writer(1, T, max_bytes_per_s=95), desk.writer(2, T, max_bytes_per_s=200)
    desk.restart(forget=True, grace_until_s=T + 31)
    for job, held in ((a, 95), (b, 200)):
        assert job.renew(T + 2, held=held).status == 404
        job.register(T + 2)
        job.renew(T + 2, held=held)
        desk.tick(T + 7)
        assert job.hear().bytes_per_s == held
    a.renew(T + 8, held=95)
    desk.tick(T + 13)
    assert a.hear().bytes_per_s == 95
    a.renew(T + 30, held=95)
    desk.tick(T + 31)
    assert a.hear().bytes_per_s > 95


def test_rule_6_grace_raises_nobody_to_what_lost_commits_had_lowered() -> None:
    """The store is back where the first had all; by then it was lowered, and a second, in no store, had the rest."""
    desk = Desk()
    a = desk.writer(1, T)
    desk.restart(grace_until_s=T + 31)
    a.register(T + 2)
    a.renew(T + 2, held=300)
    desk.tick(T + 7)
    assert a.hear().bytes_per_s == 300
    a.renew(T + 8, held=300)
    assert desk.counted(T + 8) == 300
    b = desk.job(2)
    b.register(T + 9)
    b.renew(T + 9, held=700, fence=Fence(epoch=1, counter=2))
    desk.tick(T + 14)
    assert (a.hear().bytes_per_s, b.hear().bytes_per_s) == (300, 700)
    assert desk.counted(T + 14) == 1000


def test_rule_6_grace_raises_no_safe_rate() -> None:
    """A plan issued in grace allows at most what the job says it holds."""
    desk = Desk(grace_until_s=T + 31)
    job, newcomer = desk.job(1), desk.job(2)
    job.register(T, safe_bytes_per_s=20)
    newcomer.register(T)
    assert job.last.plan.safe_bytes_per_s == 20
    assert newcomer.last.plan.safe_bytes_per_s == 0
    job.heartbeat(T + 30)
    assert job.last.plan is None
    job.heartbeat(T + 31)
    assert job.last.plan.safe_bytes_per_s > 20


def test_rule_7_a_newer_attempt_does_not_free_the_older_ones_share() -> None:
    """The fenced attempt's lease counts until it expires; the newer one gets what is left."""
    desk = Desk()
    old = desk.writer(1, T)
    old.renew(T, held=1000)
    new = old.next_attempt()
    new.register(T + 5)
    new.heartbeat(T + 5)
    new.heartbeat(T + 5)
    new.ask(T + 6, ready_in_s=0.0)
    assert new.answer is None
    assert desk.counted(T + 6) == 1000
    desk.tick(T + 29.9)
    assert desk.rates(T + 29.9) == {}
    desk.tick(T + 30)
    new.hear()
    assert isinstance(new.last, Grant)
    assert new.last.bytes_per_s == 1000


def test_rule_7_the_safe_rate_of_a_fenced_attempt_counts_one_ttl_more() -> None:
    """A silent zombie may write until its next look at the claims in the root."""
    desk = Desk()
    old = desk.known(1, T)
    desk.tick(T + 61)
    safe = desk.counted(T + 61)
    new = old.next_attempt()
    new.register(T + 62)
    new.heartbeat(T + 62)
    assert desk.counted(T + 62 + 30) == safe
    desk.tick(T + 62 + 31)
    new.heartbeat(T + 62 + 31)
    new.heartbeat(T + 62 + 31)
    assert desk.counted(T + 62 + 31) == 0


def test_rule_8_safe_rates_in_sum_leave_a_tenth_of_the_budget() -> None:
    """A newcomer may get nothing at first; it gets its share when others have confirmed a smaller one."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=100, utilisation=1.0))
    jobs = [desk.known(number, T, num_bytes=100_000) for number in range(5)]
    plans = [view.plan for view in desk.ledger.job_views(T)]
    assert sum(plan.safe_bytes_per_s for plan in plans) <= 90
    for round_s in range(1, 20):
        for job in jobs:
            job.heartbeat(T + 3 * round_s)
            issued = sum(view.plan.safe_bytes_per_s for view in desk.ledger.job_views(T))
            assert issued <= 90


def test_rule_9_safe_rates_end() -> None:
    """A dead job's safe rate counts for safe_for_s and not for ever."""
    desk = Desk()
    desk.known(1, T)
    desk.tick(T + 61)
    assert desk.counted(T + 61) > 0
    desk.tick(T + 90 + 4 * 3600)
    assert desk.counted(T + 90 + 4 * 3600) > 0
    desk.tick(T + 90 + 4 * 3600 + 61)
    assert desk.counted(T + 90 + 4 * 3600 + 61) == 0


def test_rule_9_a_replay_heard_late_prolongs_it() -> None:
    """Silence begins with the receipt of the last answer, also of one that was sent again hours later."""
    desk = Desk()
    job = desk.known(1, T)
    job.heartbeat(T + 1, lost=True)
    job.again(T + 3 * 3600)
    desk.tick(T + 6 * 3600)
    assert desk.counted(T + 6 * 3600) > 0


def test_rule_11_not_ready_in_time_is_taken_back_later_each_time() -> None:
    """An armed lease is taken back after 60 s, after 120 s the next time, at most 16 times that."""
    desk = Desk()
    job = desk.known(1, T)
    now_s = T
    for within_s in (60.0, 120.0, 240.0, 480.0, 960.0, 960.0):
        job.ask(now_s, ready_in_s=5.0)
        assert isinstance(job.last, Grant), job.last
        assert job.last.start_within_s == pytest.approx(within_s)
        granted_s = now_s
        while isinstance(job.last, Grant):
            assert job.last.state is LeaseState.ARMED
            now_s += 5.0
            job.renew(now_s - 5.0)
            desk.tick(now_s)
            job.hear()
        assert now_s - granted_s == pytest.approx(within_s)
        assert isinstance(job.last, Gone)
        assert job.last.reason is GoneReason.NOT_READY


def test_rule_11_ready_waits_for_its_rate_without_time_out() -> None:
    """With the first byte in hand nothing is taken back."""
    desk = Desk()
    job, other = desk.known(1, T), desk.known(2, T)
    job.ask(T, ready_in_s=5.0)
    job.ready(T + 1)
    assert job.last.state is LeaseState.ACTIVE
    assert job.last.start_within_s is None
    assert other.ack > 0


def test_rule_11_a_long_lead_gets_twice_its_time() -> None:
    """start_within_s is twice the announced lead time where that is more than a minute."""
    desk = Desk()
    job = desk.known(1, T)
    job.ask(T, ready_in_s=90.0)
    assert job.last.start_within_s == pytest.approx(180.0)


def test_rule_14_with_everything_counted_the_wait_says_why() -> None:
    """Nothing live and nothing left: the waiter waits, and hears whether silent jobs or an old lease are the reason."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=100, utilisation=1.0))
    desk.known(1, T, num_bytes=100_000)
    desk.tick(T + 61)
    assert desk.counted(T + 61) == 90
    desk.restart(config=POOL.__class__(name="pool", capacity_bytes_per_s=50, utilisation=1.0))
    waiter = desk.known(2, T + 61)
    assert waiter.ask(T + 62) is None
    waiter.desk.tick(T + 62 + 25)
    assert isinstance(waiter.hear(), Wait)
    assert waiter.last.reason is WaitReason.SILENT_JOBS


def test_a_dead_job_leaves_the_others_enough_to_start() -> None:
    """Killed at the write floor it is silent for hours with a safe rate of the whole capacity; a tenth stays free."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=1000))
    desk.known(1, T, num_bytes=10_000_000)
    desk.tick(T + 61)
    other = desk.known(2, T + 61, num_bytes=10_000)
    other.ask(T + 62, ready_in_s=0.0)
    assert other.last.bytes_per_s == 80


def test_rule_14_somebody_starts_with_what_is_left() -> None:
    """Nothing live and a little left: that little is granted, whatever share of the wish it is."""
    desk = Desk(POOL.__class__(name="pool", capacity_bytes_per_s=50, utilisation=1.0))
    desk.known(1, T, num_bytes=2_500)
    desk.tick(T + 61)
    left = 50 - desk.counted(T + 61)
    assert 0 < left < 25
    waiter = desk.known(2, T + 61, num_bytes=1)
    waiter.ask(T + 62, ready_in_s=0.0, max_bytes_per_s=1000)
    assert waiter.last.bytes_per_s == left
    assert waiter.last.reason is RateReason.SHARED


def test_rule_15_waiters_are_armed_in_grace() -> None:
    """Rate 0 uses nothing: the lead-in need not wait for the end of grace, only the rate does."""
    desk = Desk(grace_until_s=T + 31)
    job = desk.known(1, T)
    job.ask(T + 1, ready_in_s=20.0)
    assert job.last.state is LeaseState.ARMED
    job.renew(T + 2)
    job.ready(T + 21)
    assert job.last.bytes_per_s == 0
    assert job.last.reason is RateReason.GRACE
    job.renew(T + 28)
    assert job.answer is None
    desk.tick(T + 31)
    assert job.hear().bytes_per_s == 1000


def test_rule_16_a_job_without_fresh_contact_is_answered_at_once() -> None:
    """Holding its request would let it count as silent: it is sent back at once, its next request confirms."""
    desk = Desk()
    job = desk.known(1, T)
    desk.tick(T + 61)
    counted = desk.counted(T + 61)
    job.seq += 1  # a request and its answer were lost meanwhile
    job.ask(T + 70, ready_in_s=0.0)
    assert isinstance(job.last, Wait)
    assert job.last.reason is WaitReason.CONFIRM
    assert job.last.retry_after_s == 0.0
    assert job.last.confirm
    job.ask(T + 70.1, ready_in_s=0.0)
    assert counted > 0
    assert isinstance(job.last, Grant)
    assert job.last.bytes_per_s == 1000


def test_times_fit_two_holds_and_a_round_trip_before_silence_counts() -> None:
    """2 x hold + a round trip < 2 TTL - margin, and heartbeats twice over too."""
    assert POOL.safe_counted_after_s > 2 * 25.0 + 5.0
    assert POOL.safe_counted_after_s > 2 * 15.0 * 1.2
    assert POOL.safe_counted_after_s + POOL.ttl_s + MARGIN_S <= POOL.safe_after_s


def test_an_answer_is_a_plan_only_while_it_is_not_confirmed() -> None:
    """The plan is sent again until a request confirms the answer that carried it."""
    desk = Desk()
    job = desk.job(1)
    assert job.register(T, lost=True).plan is not None
    assert job.heartbeat(T).plan is not None
    assert isinstance(job.heartbeat(T), Noted)
    assert job.last.plan is None
