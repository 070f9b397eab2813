"""Reports of more than can have been: counted, believed in nothing, and no honest one is taken for one."""

import dataclasses
from copy import copy
from typing import Any

import pytest

from rampmeter.core.fields import MAX_SECONDS, Number, Whole
from rampmeter.core.messages import Grant, Register, Release
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Desk, Talker
from support.examples import fields_of

T = 1000.0
GB = 10**9
POOL = PoolConfig(name="pool", capacity_bytes_per_s=2 * GB, utilisation=0.5, first_ttl_s=30.0)
HONEST = {"done_bytes": 10 * GB, "stall_s": 1.0, "lead_s": 1.0, "write_s": 10.0, "busy_s": 9.0, "eps": 0.02}


def writer(config: PoolConfig = POOL, **more: Any) -> Talker:
    """It holds 1 GB/s from T on and has 10 GB to write."""
    return Desk(config).writer(1, T, num_bytes=10 * GB, **more)


def absurd(job: Talker, now_s: float) -> int:
    """As counted for the pool, which here is the same as for the job."""
    (view,) = job.desk.ledger.job_views(now_s)
    assert view.num_absurd == job.desk.ledger.totals.absurd
    return view.num_absurd


def test_an_honest_save_at_full_rate_is_believed() -> None:
    """It took all of its time and wrote all that it might."""
    job = writer()
    job.release(T + 10, **HONEST)
    assert absurd(job, T + 10) == 0
    assert job.desk.ledger.job_views(T + 10)[0].figures.num_bytes.num_samples == 1


@pytest.mark.parametrize(
    "claim",
    [
        {"write_s": 13.0},
        {"stall_s": 13.0},
        {"lead_s": 13.0},
        {"throttled_s": 4.0},
        {"blocked_s": 4.0},
        {"busy_s": 13.0},
        {"done_bytes": 13 * GB},
        {"done_bytes": 0},
    ],
    ids=str,
)
def test_more_than_can_have_been_is_counted_and_teaches_nothing(claim: dict[str, Any]) -> None:
    """Ten seconds at 1 GB/s: the commit counts, the lease ends, no figure moves, not even those that could be true."""
    job = writer()
    before = job.desk.ledger.job_views(T)[0].figures
    job.release(T + 10, **(HONEST | claim))
    (view,) = job.desk.ledger.job_views(T + 10)
    assert absurd(job, T + 10) == 1
    assert view.figures == before
    assert (view.num_committed, job.desk.rates(T + 10)) == (1, {})
    assert job.desk.ledger.totals.written_bytes == 0


@pytest.mark.parametrize("claim", [{"write_s": 12.0}, {"stall_s": 12.0}, {"done_bytes": 12 * GB}], ids=str)
def test_clocks_and_round_trips_have_a_margin(claim: dict[str, Any]) -> None:
    """An agent's clock may be a little fast, and two seconds are no lie."""
    job = writer()
    job.release(T + 10, **(HONEST | claim))
    assert absurd(job, T + 10) == 0


def test_a_snapshot_is_not_older_than_its_grant() -> None:
    """Whatever the release says: else its job would bid as if it had saved nothing for ages."""
    job = writer()
    job.release(T + 10, **(HONEST | {"write_s": MAX_SECONDS}))
    assert job.desk.ledger.job_views(T + 10)[0].commit_age_s == 10.0


@pytest.mark.parametrize("claim", [{"done_bytes": 100 * GB}, {"blocked_s": 100.0}], ids=str)
def test_an_absurd_renewal_says_nothing_of_the_storage_nor_of_the_save(claim: dict[str, Any]) -> None:
    """The cap stays, the lease goes on, and what the release says of this save is not believed."""
    job = writer()
    for now_s, words in (
        (5, {"done_bytes": 4 * GB, "throttled_s": 5.0}),
        (10, {"done_bytes": 9 * GB, "throttled_s": 10.0}),
        (15, {"done_bytes": 9 * GB + 1, "throttled_s": 10.0} | claim),
    ):
        job.renew(T + now_s, **words)
        pool = job.desk.ledger.pool_view(T + now_s)
        job.desk.tick(T + now_s + 5)
        job.hear()
    assert (pool.budget_bytes_per_s, pool.achieved_bytes_per_s, pool.num_leases) == (GB, GB, 1)
    assert job.desk.ledger.pool_view(T + 20).budget_bytes_per_s == GB
    assert absurd(job, T + 20) == 1
    job.release(T + 110, **(HONEST | {"done_bytes": 100 * GB, "busy_s": 100.0}))
    assert job.desk.ledger.job_views(T + 110)[0].figures.num_bytes.num_samples == 0


def test_totals_only_grow() -> None:
    """Who reports less than before has lost count."""
    job = writer()
    job.renew(T + 5, done_bytes=5 * GB, busy_s=5.0)
    job.desk.tick(T + 10)
    job.hear()
    job.release(T + 11, **(HONEST | {"done_bytes": 4 * GB}))
    assert absurd(job, T + 11) == 1


def slow_writer() -> Talker:
    """It holds 100 MB/s for ten seconds, since it can do no more by itself."""
    return writer(max_bytes_per_s=GB // 10)


@pytest.mark.parametrize(("num_bytes", "verdict"), [(GB, 0), (2 * GB, 1)])
def test_bytes_are_held_against_the_rates_that_were_given(num_bytes: int, verdict: int) -> None:
    """Not against the capacity of the pool, which is twenty times as much."""
    job = slow_writer()
    job.release(T + 10, **(HONEST | {"done_bytes": num_bytes}))
    assert absurd(job, T + 10) == verdict


def test_bytes_that_are_counted_after_a_lowering_were_written_before_it() -> None:
    """A window is counted when it has left the host, and the rate may be lower by then."""
    job = writer()
    job.renew(T + 5, done_bytes=3 * GB, throttled_s=5.0)
    job.desk.known(2, T + 5, num_bytes=10 * GB).ask(T + 5, ready_in_s=0.0)
    job.desk.tick(T + 5)
    assert job.hear().bytes_per_s < 0.9 * GB
    job.renew(T + 6, done_bytes=3 * GB, throttled_s=6.0)
    words = {"done_bytes": 58 * GB // 10, "throttled_s": 6.2, "busy_s": 0.0, "write_s": 6.2}
    job.release(T + 6.2, **(HONEST | words))
    assert job.desk.ledger.totals.absurd == 0


def test_a_rate_that_came_with_the_grant_counts_also_if_ready_takes_it_back() -> None:
    """Who has its first byte in hand may write between its grant and the answer to its ready."""
    job = writer()
    (record,) = job.desk.ledger._state.jobs.values()
    job.ready(T + 2)
    record.lease.offers[-1].bytes_per_s = 0
    job.renew(T + 4, done_bytes=3 * GB, busy_s=4.0)
    assert absurd(job, T + 4) == 0


def test_a_rate_counts_until_its_lowering_was_heard() -> None:
    """An answer may be on its way for as long as it likes."""
    job = writer()
    (record,) = job.desk.ledger._state.jobs.values()
    job.renew(T + 5, done_bytes=5 * GB, busy_s=5.0)
    job.desk.tick(T + 10)
    record.lease.offers[-1].bytes_per_s = 0
    job.hear()
    job.renew(T + 11, done_bytes=10 * GB, busy_s=11.0)
    assert absurd(job, T + 11) == 0


def test_a_save_that_went_on_under_a_second_lease_took_all_of_its_time() -> None:
    """Its time counts from the first grant, its bytes are those of both leases."""
    job = writer()
    job.renew(T + 5, done_bytes=5 * GB, busy_s=5.0)
    job.desk.tick(T + 100)
    job.hear()
    job.heartbeat(T + 100)
    job.heartbeat(T + 100)
    assert isinstance(job.ask(T + 100, ready_in_s=0.0, started=True, num_bytes=5 * GB), Grant)
    job.renew(T + 102, done_bytes=7 * GB, busy_s=102.0)
    job.release(T + 105, **(HONEST | {"write_s": 105.0, "busy_s": 104.0}))
    assert absurd(job, T + 105) == 0
    assert job.desk.ledger.job_views(T + 105)[0].write_s == 105.0


def test_a_save_whose_lease_was_taken_back_before_it_was_ready_has_begun() -> None:
    """It asks again with its snapshot, though without a first byte, and is no new save."""
    desk = Desk(POOL)
    job = desk.known(1, T, num_bytes=10 * GB)
    job.ask(T, ready_in_s=50.0)
    for now_s in range(1005, 1130, 5):
        desk.tick(now_s)
        job.hear()
        job.heartbeat(now_s)
        desk.tick(now_s)
    assert isinstance(job.ask(T + 130, ready_in_s=0.0), Grant)
    job.release(T + 140, **(HONEST | {"write_s": 139.0, "lead_s": 129.0}))
    assert absurd(job, T + 140) == 0


@pytest.mark.parametrize(
    "asked", [{"started": True}, {"urgent": True, "deadline_s": 100.0}], ids=["started", "urgent"]
)
def test_a_save_that_began_unseen_is_not_held_against_a_time(asked: dict[str, Any]) -> None:
    """While the coordinator was silent; or after a notice, which does not wait for a grant."""
    desk = Desk(POOL)
    job = desk.known(1, T, num_bytes=10 * GB)
    job.ask(T, ready_in_s=0.0, **asked)
    job.release(T + 10, **(HONEST | {"write_s": 300.0}))
    assert absurd(job, T + 10) == 0


def test_a_lease_that_was_re_created_is_not_held_against_its_second_life() -> None:
    """Grace after lost memory: its save is older than all that is known."""
    job = writer()
    job.desk.restart(forget=True, epoch=2, grace_until_s=T + 131)
    job.register(T + 100)
    job.renew(T + 100, held=GB, done_bytes=95 * GB, busy_s=95.0)
    job.desk.tick(T + 106)
    assert isinstance(job.hear(), Grant)
    job.release(T + 107, **(HONEST | {"done_bytes": 102 * GB, "write_s": 107.0, "busy_s": 102.0}))
    assert absurd(job, T + 107) == 0


def test_times_of_another_boot_are_held_against_nobody() -> None:
    """What was written while the machine was away has no begin."""
    job = Desk(POOL).writer(1, T + 500_000.0, num_bytes=200 * GB)
    job.desk.restart(epoch=2, grace_until_s=T + 31)
    job.renew(T + 1, held=GB, done_bytes=95 * GB, busy_s=95.0)
    job.desk.tick(T + 7)
    job.hear()
    job.release(T + 8, **(HONEST | {"done_bytes": 101 * GB, "write_s": 103.0, "busy_s": 102.0}))
    assert absurd(job, T + 8) == 0


def test_in_shadow_mode_a_job_may_be_faster_than_its_pool_is_said_to_be() -> None:
    """It is granted what it can do by itself; that is what its bytes are held against."""
    job = writer(dataclasses.replace(POOL, enforced_share=0.0), max_bytes_per_s=100 * GB)
    job.release(T + 10, **(HONEST | {"done_bytes": 1000 * GB}))
    assert absurd(job, T + 10) == 0


def test_what_is_known_of_absurd_reports_survives_a_restart() -> None:
    """And so do the figures and their samples."""
    job = writer()
    job.release(T + 10, **(HONEST | {"write_s": 99.0}))
    job.ask(T + 20, ready_in_s=0.0)
    job.release(T + 30, **HONEST)
    before = job.desk.ledger.job_views(T + 30)[0]
    job.desk.restart()
    after = job.desk.ledger.job_views(T + 30)[0]
    assert (after.num_absurd, after.figures) == (1, before.figures)
    assert absurd(job, T + 30) == 1


# -- nobody else is moved ----------------------------------------------------------------------------------------------

NUM_JOBS = 200
SCARCE = PoolConfig(name="pool", capacity_bytes_per_s=100 * GB, first_ttl_s=30.0)
TB14 = 1_400 * GB
EQUAL = {"num_gpus": 256, "num_bytes": TB14, "stall_s": 1.5, "mtbf_s": 32_400.0}
SAVE_S = 17.5
SETTLED_S = T + NUM_JOBS * SAVE_S + 80.0
"""All have saved, been heard again, and are in the price."""

MEASURED = {"done_bytes", "throttled_s", "blocked_s", "busy_s", "stall_s", "lead_s", "write_s"}
"""Their largest values cannot have been."""


def crowd() -> tuple[Desk, list[Talker]]:
    """200 equal jobs under a price, each of which has saved once and is heard of all the time."""
    desk = Desk(SCARCE)
    jobs = [desk.job(number, **EQUAL) for number in range(NUM_JOBS)]
    for number, job in enumerate(jobs):
        now_s = T + number * SAVE_S
        job.register(now_s)
        for other in jobs[: number + 1] if number % 2 else (job,):
            other.heartbeat(now_s)
        save(job, now_s)
    for at_s in (60.0, 45.0, 30.0, 15.0, 0.0):
        for job in jobs:
            job.heartbeat(SETTLED_S - at_s)
    return desk, jobs


def save(job: Talker, now_s: float, **claim: Any) -> None:
    """All of the pool for 17.5 s."""
    job.heartbeat(now_s)
    assert isinstance(job.ask(now_s, ready_in_s=0.0), Grant)
    words = {"done_bytes": TB14, "stall_s": 1.5, "lead_s": 1.0, "write_s": SAVE_S, "eps": 0.0}
    job.release(now_s + SAVE_S, **(words | claim))


def claims() -> list[tuple[type, str, Any]]:
    """Every field of a release and of a registration at both ends of what the wire allows."""
    found: list[tuple[type, str, Any]] = []
    for kind in (Release, Register):
        own = [f for f in fields_of(kind) if f.path not in ("job_uid", "attempt", "seq", "ack")]
        for field in own:
            marker = field.hint.__metadata__[0] if hasattr(field.hint, "__metadata__") else None
            if isinstance(marker, Whole | Number) and "." not in field.path:
                found += [(kind, field.path, marker.ge), (kind, field.path, marker.le)]
    return [*found, (Register, "synchronous", True), (Register, "survives", "site")]


def copied(desk: Desk, jobs: list[Talker]) -> tuple[Desk, list[Talker]]:
    """The same once more."""
    twin = Desk(SCARCE)
    twin.records, twin.meta = dict(desk.records), desk.meta
    twin.restart()
    twins = [copy(job) for job in jobs]
    for job in twins:
        job.desk = twin
    return twin, twins


@pytest.fixture(scope="module")
def crowded() -> tuple[Desk, list[Talker]]:
    return crowd()


@pytest.mark.parametrize(("kind", "name", "value"), claims(), ids=lambda v: getattr(v, "__name__", str(v)))
def test_an_absurd_report_moves_nobody_elses_interval(
    crowded: tuple[Desk, list[Talker]], kind: type, name: str, value: Any
) -> None:
    """Of a job that has saved before, in every field in turn, and the save after it: by 5 % at most."""
    desk, jobs = copied(*crowded)
    now_s = SETTLED_S
    liar, others = jobs[0], jobs[1:]
    price = desk.ledger.pool_view(now_s).price_gpu_s_per_byte
    assert price > 1e-8
    if kind is Register:
        liar.register(now_s, **{name: value})
        save(liar, now_s)
    else:
        save(liar, now_s, **{name: value})
        is_absurd = name in MEASURED and (value > 0 or name == "done_bytes")
        assert desk.ledger.totals.absurd == int(is_absurd)
    now_s += SAVE_S
    for at_s in (now_s, now_s + 6.0, now_s + 12.0):
        for job in others[:3]:
            job.heartbeat(at_s)
    load = planning.load_of(desk.ledger._state.jobs[others[0].uid])
    then_s, now_s = load.interval_s(price), load.interval_s(desk.ledger.pool_view(now_s).price_gpu_s_per_byte)
    assert then_s / 1.05 <= now_s <= then_s * 1.05
