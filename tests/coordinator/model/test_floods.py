"""Whoever makes names up gets nothing for it: what a pool keeps is bounded by its number of jobs."""

import random
import tracemalloc

from rampmeter.core.messages import Finish, Heartbeat, Noted, RefusalReason, Register
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig

T = 1000.0
MAX_JOBS = 50


def made_up(draw: random.Random) -> Register:
    """An attempt of a job that nobody knows."""
    uid = f"{draw.getrandbits(128):032x}"
    return Register(job_uid=uid, attempt=1, seq=1, ack=0, name=uid, claim=uid, num_gpus=8, num_bytes=10**9)


def full_pool() -> tuple[Ledger, list[Register]]:
    """A pool that has as many jobs as it may have, all alive."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=10**9, max_jobs=MAX_JOBS)
    ledger = Ledger.new(config, epoch=1, seed=1, grace_until_s=0.0)
    known = [made_up(random.Random(number)) for number in range(MAX_JOBS)]
    for register in known:
        ledger.apply(register, T)
    return ledger, known


def test_fifty_thousand_made_up_jobs_leave_nothing_in_a_full_pool() -> None:
    """Each is refused with a reason; no job, no record to store and no memory comes of it."""
    ledger, known = full_pool()
    ledger.take_changes()
    draw = random.Random(99)
    for _ in range(1000):  # whatever is made once has been made
        ledger.apply(made_up(draw), T)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(50_000):
        (reply,) = ledger.apply(made_up(draw), T + number * 1e-6)
        assert reply.body.reason is RefusalReason.TOO_MANY_JOBS
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 20_000
    assert ledger.take_changes().records == {}
    now_s = T + 0.1
    ledger.apply(Finish(job_uid=known[0].job_uid, attempt=1, seq=2, ack=1, reason="finished"), now_s)
    (reply,) = ledger.apply(made_up(draw), now_s)
    assert isinstance(reply.body, Noted)


def test_a_flood_changes_nothing_for_those_who_are_there() -> None:
    """The jobs of a full pool are the same after it."""
    ledger, known = full_pool()
    draw = random.Random(3)
    for _ in range(100):
        ledger.apply(made_up(draw), T)
    assert {view.job_uid for view in ledger.job_views(T + 5)} == {register.job_uid for register in known}


def test_finished_jobs_make_room_for_others_and_nothing_is_kept_of_them() -> None:
    """Ten times as many jobs as there is room for, one after the other: their records go when others come."""
    ledger, known = full_pool()
    records = dict(ledger.take_changes().records)
    draw, alive = random.Random(7), list(known)
    for number in range(10 * MAX_JOBS):
        now_s = T + 1 + number
        gone = alive.pop(0)
        ledger.apply(Heartbeat(job_uid=gone.job_uid, attempt=1, seq=2, ack=1, step=1), now_s)
        ledger.apply(Finish(job_uid=gone.job_uid, attempt=1, seq=3, ack=2, reason="finished"), now_s)
        alive.append(made_up(draw))
        (reply,) = ledger.apply(alive[-1], now_s)
        assert isinstance(reply.body, Noted)
        records |= ledger.take_changes().records
        records = {uid: raw for uid, raw in records.items() if raw is not None}
        assert len(records) <= MAX_JOBS
    assert len(ledger.job_views(now_s)) == MAX_JOBS
