"""Shadow mode at the ledger's desk: nobody waits, nothing is in the sums, and it is counted what would have been."""

import random
from dataclasses import replace

from rampmeter.core.messages import GoneReason, Grant, Kind, LeaseState, RateReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Desk, Talker

T = 1000.0
SHADOW = PoolConfig(name="pool", capacity_bytes_per_s=1250, enforced_share=0.0)
HALF = replace(SHADOW, enforced_share=0.5)

SHADOWED, ENFORCED = 0xFF << 120, 0x01 << 120
"""The first eight digits of a uid decide: these are above and below a half."""


def told(job: Talker) -> tuple[LeaseState, int, RateReason]:
    assert isinstance(job.last, Grant), job.last
    return job.last.state, job.last.bytes_per_s, job.last.reason


def test_everybody_is_granted_at_once_at_its_full_rate() -> None:
    """The capacity where none is known; as many as come; saves and restores alike."""
    desk = Desk(SHADOW)
    jobs = [desk.known(number, T) for number in range(1, 6)]
    for job in jobs:
        job.ask(T, ready_in_s=0.0)
        assert told(job) == (LeaseState.ACTIVE, 1250, RateReason.SHADOW)
    jobs[0].ask(T + 1, ready_in_s=0.0, max_bytes_per_s=300)
    assert told(jobs[0]) == (LeaseState.ACTIVE, 300, RateReason.SHADOW)
    jobs[1].ask(T + 1, ready_in_s=0.0, kind=Kind.READ)
    assert told(jobs[1])[2] is RateReason.SHADOW


def test_a_lead_time_is_kept() -> None:
    """Armed first, the full rate with the first byte."""
    desk = Desk(SHADOW)
    job = desk.known(1, T)
    job.ask(T, ready_in_s=5.0)
    assert told(job)[:2] == (LeaseState.ARMED, 0)
    job.ready(T + 5)
    assert told(job) == (LeaseState.ACTIVE, 1250, RateReason.SHADOW)


def test_a_renewal_keeps_the_rate() -> None:
    """Whoever else writes."""
    desk = Desk(SHADOW)
    jobs = [desk.known(number, T) for number in range(1, 4)]
    for job in jobs:
        job.ask(T, ready_in_s=0.0)
    jobs[0].renew(T + 1, held=1250)
    assert told(jobs[0])[1:] == (1250, RateReason.SHADOW)


def test_who_would_have_waited_is_counted() -> None:
    """The first would have had the pool, the second nothing; with room for both nobody would have waited."""
    desk = Desk(SHADOW)
    for number in (1, 2):
        desk.known(number, T).ask(T, ready_in_s=0.0)
    assert desk.ledger.totals.would_wait == 1
    roomy = Desk(SHADOW)
    for number in (1, 2):
        roomy.known(number, T).ask(T, ready_in_s=0.0, max_bytes_per_s=500)
    assert roomy.ledger.totals.would_wait == 0
    roomy.known(3, T).ask(T, ready_in_s=0.0, kind=Kind.READ)
    assert roomy.ledger.totals.would_wait == 0


def test_shadow_jobs_take_nothing_from_those_that_are_held_to_the_budget() -> None:
    """One writes at all of the capacity; the enforced one has all of the budget beside it."""
    desk = Desk(HALF)
    shadowed, enforced = desk.known(SHADOWED, T), desk.known(ENFORCED, T)
    shadowed.ask(T, ready_in_s=0.0)
    assert told(shadowed)[2] is RateReason.SHADOW
    enforced.ask(T, ready_in_s=0.0)
    assert told(enforced) == (LeaseState.ACTIVE, 1000, RateReason.FULL)
    assert desk.counted(T) == 1000


def test_a_shadow_jobs_new_attempt_takes_nothing_either() -> None:
    """What its older attempt may still write was in no sum before."""
    desk = Desk(HALF)
    shadowed, enforced = desk.known(SHADOWED, T), desk.known(ENFORCED, T)
    shadowed.ask(T, ready_in_s=0.0)
    shadowed.next_attempt().register(T + 1)
    enforced.ask(T + 1, ready_in_s=0.0)
    assert isinstance(enforced.last, Grant)
    assert enforced.last.bytes_per_s >= 800


def test_a_shadow_lease_that_is_taken_back_takes_nothing_either() -> None:
    """Nothing of it counts until its holder has confirmed."""
    desk = Desk(HALF)
    shadowed, enforced = desk.known(SHADOWED, T), desk.known(ENFORCED, T)
    shadowed.ask(T, ready_in_s=0.0)
    ledger = desk.ledger
    ledger._holding.revoke(ledger._state.jobs[shadowed.uid], GoneReason.REVOKED, T + 1)
    enforced.ask(T + 1, ready_in_s=0.0)
    assert told(enforced) == (LeaseState.ACTIVE, 1000, RateReason.FULL)


def test_enforced_jobs_wait_for_each_other_only() -> None:
    """The second enforced one waits, a shadow one never."""
    desk = Desk(HALF)
    first, second, shadowed = desk.known(ENFORCED, T), desk.known(ENFORCED + 1, T), desk.known(SHADOWED, T)
    for job in (first, second, shadowed):
        job.ask(T, ready_in_s=0.0)
    assert isinstance(first.answer, Grant)
    assert second.answer is None
    assert isinstance(shadowed.answer, Grant)


def test_the_share_is_that_of_random_uids_and_grows_one_way() -> None:
    """About half of 200 at .5; whoever is enforced at a share is enforced at every larger one."""
    rng = random.Random(1)
    uids = [rng.getrandbits(128) for _ in range(200)]
    enforced = {share: {uid for uid in uids if waits(uid, share)} for share in (0.0, 0.25, 0.5, 1.0)}
    assert len(enforced[0.0]) == 0
    assert 30 < len(enforced[0.25]) < 70
    assert 80 < len(enforced[0.5]) < 120
    assert len(enforced[1.0]) == 200
    assert enforced[0.25] < enforced[0.5]


def waits(uid: int, share: float) -> bool:
    """Whether a job with this uid is held to the budget, also after a restart and with a new attempt."""
    desk = Desk(replace(SHADOW, enforced_share=share))
    job = desk.job(uid)
    job.register(T)
    job.ask(T, ready_in_s=0.0)
    assert isinstance(job.last, Grant)
    return job.last.reason is not RateReason.SHADOW


def test_a_job_stays_on_its_side() -> None:
    """After a restart of the coordinator and with a new attempt of its own."""
    for uid, reason in ((SHADOWED, RateReason.SHADOW), (ENFORCED, RateReason.FULL)):
        desk = Desk(HALF)
        job = desk.known(uid, T)
        job.release(T)
        desk.restart()
        job.ask(T + 1, ready_in_s=0.0)
        assert told(job)[2] is reason
        job.release(T + 2)
        newer = job.next_attempt()
        newer.register(T + 3)
        newer.heartbeat(T + 3)
        newer.ask(T + 3, ready_in_s=0.0)
        assert told(newer)[2] is reason
