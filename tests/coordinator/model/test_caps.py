"""Caps at the ledger's desk: what one tenant may have at any instant, how many may write, and leases taken back."""

import random

from rampmeter.core.messages import Gone, GoneReason, Grant, RateReason, WaitReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Desk, Talker

T = 1000.0
CAPPED = PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_tenant_bytes_per_s=400)


def told(job: Talker) -> tuple[int, RateReason]:
    assert isinstance(job.last, Grant), job.last
    return job.last.bytes_per_s, job.last.reason


def reason_of(job: Talker, now_s: float) -> WaitReason | None:
    return next(view.wait_reason for view in job.desk.ledger.job_views(now_s) if view.job_uid == job.uid)


def test_a_tenants_jobs_share_its_cap() -> None:
    """The second gets what the first leaves of it; those of another tenant and of none get what is left."""
    desk = Desk(CAPPED)
    jobs = [desk.known(number, T, tenant=tenant) for number, tenant in enumerate(("a", "a", "b", None), 1)]
    for job, most in zip(jobs, (300, 300, 300, 300), strict=True):
        job.ask(T, ready_in_s=0.0, max_bytes_per_s=most)
    assert desk.rates(T) == {1: 300, 2: 100, 3: 300, 4: 300}
    assert told(jobs[1]) == (100, RateReason.TENANT_CAP)
    assert told(jobs[2]) == (300, RateReason.FULL)


def test_a_tenant_at_its_cap_waits_and_others_pass() -> None:
    """The reason is the cap; its next job starts when one of its own ends."""
    desk = Desk(CAPPED)
    first, second = desk.known(1, T, tenant="a"), desk.known(2, T, tenant="a")
    other = desk.known(3, T, tenant="b")
    first.ask(T, ready_in_s=0.0)
    assert told(first) == (400, RateReason.TENANT_CAP)
    second.ask(T, ready_in_s=0.0, age_s=150.0)
    assert reason_of(second, T) is WaitReason.TENANT_CAP
    other.ask(T, ready_in_s=0.0)
    assert desk.rates(T) == {1: 400, 3: 400}
    first.release(T + 1)
    assert desk.rates(T + 1) == {2: 400, 3: 400}


def test_a_tenant_has_no_more_than_its_cap_while_a_lowering_is_on_its_way() -> None:
    """The urgent save of the same tenant waits until the other one has confirmed that it stopped."""
    desk = Desk(CAPPED)
    first, second = desk.known(1, T, tenant="a"), desk.known(2, T, tenant="a")
    first.ask(T, ready_in_s=0.0)
    first.renew(T, held=400)
    first.renew(T, held=400)
    second.ask(T + 1, ready_in_s=0.0, urgent=True, deadline_s=60.0)
    assert told(second)[0] == 0
    first.hear()
    assert told(first)[0] == 0
    second.renew(T + 1.1, held=0)
    second.renew(T + 1.1, held=0)
    assert of_tenants(desk, T + 1.1) == {"a": 400}
    first.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 0, 2: 400}


def test_a_fenced_attempt_counts_in_the_cap_of_its_tenant() -> None:
    """The new attempt has nothing while the older one may still write at the cap."""
    desk = Desk(CAPPED)
    first = desk.known(1, T, tenant="a")
    first.ask(T, ready_in_s=0.0)
    newer = first.next_attempt()
    for speak in (newer.register, newer.heartbeat, newer.heartbeat):
        speak(T + 1)
    newer.ask(T + 2, ready_in_s=0.0)
    assert desk.rates(T + 2).get(1, 0) == 0
    desk.tick(T + 10)
    newer.hear()
    if isinstance(newer.last, Grant):
        newer.renew(T + 10, held=0)
    assert desk.rates(T + 10) == {1: 400}


def test_a_cap_below_what_is_worth_a_start_starts_its_first_job_anyhow() -> None:
    """A cap of 5 of 1000: slow, but never nothing while nobody else writes."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_tenant_bytes_per_s=5))
    job = desk.known(1, T, tenant="a")
    job.ask(T, ready_in_s=0.0)
    assert told(job) == (5, RateReason.TENANT_CAP)


def of_tenants(desk: Desk, now_s: float) -> dict[str, int]:
    """What the leases of each tenant may use, as counted."""
    tenants = {job.uid: job.terms.tenant for job in desk.ledger._state.jobs.values()}
    sums: dict[str, int] = {}
    for view in desk.ledger.lease_views(now_s):
        tenant = tenants[view.job_uid]
        if tenant is not None:
            sums[tenant] = sums.get(tenant, 0) + view.bytes_per_s
    return sums


def test_caps_hold_at_every_instant_of_any_history() -> None:
    """Saves of two tenants in random order, some urgent, some answers lost: no tenant is ever above its cap."""
    config = PoolConfig(
        name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_tenant_bytes_per_s=400, max_writers=3
    )
    for seed in range(8):
        rng, desk = random.Random(seed), Desk(config)
        jobs = [desk.known(number, T, tenant="ab"[number % 2]) for number in range(8)]
        now_s, num_saves = T, 0
        for _ in range(400):
            now_s += rng.uniform(0.05, 1.0)
            desk.tick(now_s)
            num_saves += _speak(rng.choice(jobs), rng, now_s)
            assert all(sum_ <= 400 for sum_ in of_tenants(desk, now_s).values())
            assert desk.counted(now_s) <= 1000
        assert num_saves > 10


def _speak(job: Talker, rng: random.Random, now_s: float) -> bool:
    """The job's next word; True if that ends a save."""
    lost = rng.random() < 0.1
    answer = job.hear() if not lost else job.last
    if isinstance(answer, Grant) and answer.bytes_per_s and rng.random() < 0.4:
        job.release(now_s)
        return True
    if isinstance(answer, Grant):
        job.renew(now_s, held=answer.bytes_per_s, lost=lost)
    elif answer is not None:
        urgent = {"urgent": True, "deadline_s": 60.0} if rng.random() < 0.2 else {}
        job.ask(now_s, ready_in_s=0.0, max_bytes_per_s=rng.choice([None, 100, 300]), lost=lost, **urgent)
    return False


# -- how many may write --------------------------------------------------------------------------------------------


def test_max_writers_counts_those_who_write_not_those_who_are_armed() -> None:
    """One has its lead time of 90 s before it: another writes meanwhile, and then gives its place up."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_writers=1))
    slow, quick = desk.known(1, T), desk.known(2, T)
    slow.ask(T, ready_in_s=90.0, max_bytes_per_s=100)
    quick.ask(T, ready_in_s=0.0, max_bytes_per_s=100)
    assert desk.rates(T) == {1: 0, 2: 100}
    quick.renew(T + 1, held=100)
    quick.renew(T + 1, held=100)
    slow.ready(T + 2)
    slow.hear()
    quick.hear()
    assert told(quick) == (0, RateReason.MAX_WRITERS)


def test_the_number_of_streams_travels_with_the_lease() -> None:
    """The agent opens no more writers than the operator allows."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_streams=4))
    job = desk.writer(1, T)
    assert job.last.max_streams == 4


# -- leases that are taken back ------------------------------------------------------------------------------------


def revoked(desk: Desk, job: Talker, now_s: float) -> None:
    """The operator takes the lease back."""
    ledger = desk.ledger
    ledger._holding.revoke(ledger._state.jobs[job.uid], GoneReason.REVOKED, now_s)
    desk.tick(now_s)


def test_a_revoked_lease_counts_until_the_agent_confirms() -> None:
    """The holder is told at once; a waiter has its room when the holder has spoken again, in the same step."""
    desk = Desk()
    waiter, holder = desk.known(2, T), desk.writer(1, T)
    holder.renew(T, held=1000)
    holder.renew(T, held=1000)
    waiter.ask(T, ready_in_s=0.0)
    revoked(desk, holder, T + 1)
    assert isinstance(holder.hear(), Gone)
    assert holder.last.reason is GoneReason.REVOKED
    assert not isinstance(waiter.answer, Grant)
    assert reason_of(waiter, T + 1) is WaitReason.OLD_LEASE
    assert desk.counted(T + 1) == 1000
    holder.heartbeat(T + 2)
    assert desk.rates(T + 2) == {2: 1000}


def test_a_revoked_lease_counts_until_it_would_have_expired() -> None:
    """The holder is not heard of: its first TTL of 10 s."""
    desk = Desk()
    waiter, holder = desk.known(2, T), desk.writer(1, T)
    waiter.ask(T, ready_in_s=0.0)
    revoked(desk, holder, T + 1)
    desk.tick(T + 9.9)
    assert not isinstance(waiter.answer, Grant)
    desk.tick(T + 10)
    assert desk.rates(T + 10) == {2: 1000}


def test_a_word_that_was_on_its_way_confirms_no_revocation() -> None:
    """A renewal with the `ack` of before says nothing of it; it is answered `gone`."""
    desk = Desk()
    waiter, holder = desk.known(2, T), desk.writer(1, T)
    waiter.ask(T, ready_in_s=0.0)
    revoked(desk, holder, T + 1)
    holder.renew(T + 1.1, held=1000, lost=True)
    assert isinstance(holder.answer, Gone)
    assert desk.counted(T + 1.1) == 1000
    assert not isinstance(waiter.answer, Grant)
    holder.hear()
    holder.heartbeat(T + 1.2)
    assert desk.rates(T + 1.2) == {2: 1000}
