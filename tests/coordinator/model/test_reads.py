"""Restores at the ledger's desk: a budget of their own, or a shared one on which idle GPUs weigh against saves."""

from dataclasses import replace

from rampmeter.core.messages import Gone, GoneReason, Grant, RateReason, WaitReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import POOL, Desk
from support.reads import SHARED, on_line, read, told

T = 1000.0


# -- a budget of their own -----------------------------------------------------------------------------------------


def test_restores_and_saves_do_not_take_from_each_other() -> None:
    """A restore reads at all of the read budget while a save writes at all of the other, whoever comes first."""
    desk = Desk()
    reader, late_reader, late_writer = desk.known(2, T), desk.known(3, T), desk.known(4, T)
    desk.writer(1, T)
    read(reader, T)
    assert desk.rates(T) == {1: 1000, 2: 1000}
    read(late_reader, T)
    late_writer.ask(T, ready_in_s=0.0)
    assert not isinstance(late_reader.answer, Grant)
    assert not isinstance(late_writer.answer, Grant)
    reader.release(T + 1)
    assert desk.rates(T + 1) == {1: 1000, 3: 1000}
    assert not isinstance(late_writer.answer, Grant)


def test_the_read_budget_is_as_large_as_the_operator_says() -> None:
    """u of the read capacity; of the write capacity where none is given."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, read_capacity_bytes_per_s=5000))
    reader, writer = desk.known(1, T), desk.known(2, T)
    read(reader, T)
    writer.ask(T, ready_in_s=0.0)
    assert desk.rates(T) == {1: 4000, 2: 800}
    plain = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000))
    reader = plain.known(1, T)
    read(reader, T)
    assert plain.rates(T) == {1: 800}


def test_silent_jobs_take_nothing_of_the_read_budget() -> None:
    """A safe rate is for writing."""
    desk = Desk()
    reader = desk.known(2, T)
    desk.known(1, T, num_bytes=80_000)
    reader.heartbeat(T + 40)
    reader.heartbeat(T + 60)
    assert desk.counted(T + 60) > 0
    read(reader, T + 60)
    assert desk.rates(T + 60) == {2: 1000}


def test_a_fenced_restore_counts_in_its_own_budget() -> None:
    """Until its lease has expired the next restore waits, a save does not."""
    desk = Desk()
    reader, next_reader, writer = desk.known(1, T), desk.known(2, T), desk.known(3, T)
    read(reader, T)
    reader.next_attempt().register(T + 1)
    read(next_reader, T + 2)
    assert not isinstance(next_reader.answer, Grant)
    assert desk.ledger.job_views(T + 2)[1].wait_reason is WaitReason.OLD_LEASE
    writer.ask(T + 2, ready_in_s=0.0)
    assert isinstance(writer.answer, Grant)
    desk.tick(T + 10)
    assert isinstance(next_reader.answer, Grant)


def test_the_restore_that_frees_most_gpus_soonest_is_served_first() -> None:
    """64 GPUs in 100 s before 8 GPUs in 50 s, though these asked first and are as old."""
    desk = Desk()
    holder, few, many = desk.known(1, T), desk.known(2, T), desk.known(3, T, num_gpus=64)
    read(holder, T)
    read(few, T, num_bytes=50_000)
    read(many, T + 1, num_bytes=100_000)
    holder.release(T + 2)
    assert isinstance(many.answer, Grant)
    assert not isinstance(few.answer, Grant)


def test_a_waiting_restore_does_not_hold_down_a_save_of_unknown_size() -> None:
    """It wants other room."""
    desk = Desk()
    reader, waiting = desk.known(2, T), desk.known(3, T)
    unknown = desk.writer(1, T, num_bytes=None)
    on_line(unknown, T)
    read(reader, T)
    read(waiting, T)
    assert unknown.answer is None
    assert desk.rates(T) == {1: 1000, 2: 1000}


def test_the_number_of_writers_is_no_bound_for_restores() -> None:
    """One may write; two read."""
    desk = Desk(PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, max_writers=1))
    readers = [desk.known(2, T), desk.known(3, T)]
    desk.writer(1, T)
    for reader in readers:
        read(reader, T, max_bytes_per_s=400)
    assert desk.rates(T) == {1: 1000, 2: 400, 3: 400}


def test_an_urgent_save_leaves_restores_alone() -> None:
    """And a save that makes room for it has no room; it is not paused for a restore."""
    desk = Desk()
    reader, saver, holder = desk.known(2, T), desk.known(3, T), desk.writer(1, T)
    read(reader, T)
    on_line(reader, T)
    on_line(holder, T, done_bytes=10)
    saver.ask(T + 1, ready_in_s=0.0, urgent=True, deadline_s=60.0)
    assert reader.answer is None
    holder.hear()
    assert told(holder) == (0, RateReason.NO_ROOM)


# -- a shared budget -----------------------------------------------------------------------------------------------


def test_on_a_shared_budget_all_of_them_have_one_sum() -> None:
    """A restore gets what a save leaves over, and the other way round."""
    desk = Desk(SHARED)
    reader, writer = desk.known(2, T), desk.known(3, T)
    desk.writer(1, T, max_bytes_per_s=600)
    read(reader, T, max_bytes_per_s=300)
    writer.ask(T, ready_in_s=0.0)
    assert desk.rates(T) == {1: 600, 2: 300, 3: 100}
    assert desk.counted(T) == 1000


def test_a_save_that_is_cheap_to_pause_pauses_for_a_restore() -> None:
    """Young work of 8 GPUs against 64 idle ones: rate 0, the lease stays; it goes on when the restore has ended."""
    desk = Desk(SHARED)
    reader, saver = desk.known(2, T, num_gpus=64), desk.known(1, T, num_bytes=10**6)
    read(reader, T, num_bytes=10_000, ready_in_s=5.0)
    saver.ask(T, ready_in_s=0.0)
    on_line(saver, T, done_bytes=100)
    reader.ready(T + 1)
    saver.hear()
    assert told(saver) == (0, RateReason.PAUSED)
    on_line(saver, T + 1.1, done_bytes=100)
    reader.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}
    reader.hear()
    reader.release(T + 5)
    assert desk.rates(T + 5) == {1: 1000}


def test_a_waiting_restore_is_granted_where_saves_would_be_paused_for_it() -> None:
    """All of the budget is taken: it is granted all the same, the save is told in that step and then pauses."""
    desk = Desk(SHARED)
    reader = desk.known(2, T, num_gpus=64)
    saver = desk.writer(1, T, num_bytes=10**6)
    on_line(saver, T, done_bytes=100)
    read(reader, T + 1, num_bytes=10_000)
    assert told(reader)[0] == 0
    saver.hear()
    assert told(saver) == (0, RateReason.PAUSED)
    on_line(reader, T + 1.1)
    saver.renew(T + 1.2, held=0, done_bytes=200)
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}


def test_a_restore_waits_for_a_save_that_is_dear_to_pause() -> None:
    """A large job with hours of work at risk and a second to go, against one GPU."""
    desk = Desk(SHARED)
    reader = desk.known(2, T, num_gpus=1)
    saver = desk.known(1, T, num_gpus=4096, num_bytes=10_000)
    saver.heartbeat(T, commit_age_s=7200.0)
    saver.ask(T, ready_in_s=0.0)
    on_line(saver, T, done_bytes=8000)
    read(reader, T + 0.1, num_bytes=100_000)
    assert saver.answer is None
    assert reader.answer is None
    assert desk.rates(T + 0.1) == {1: 1000}


def test_a_synchronous_save_that_has_hardly_begun_is_given_up_for_a_restore() -> None:
    """Its GPUs wait for it too: `make_room`; the restore has its rate when the end is confirmed, not before."""
    desk = Desk(SHARED)
    reader = desk.known(2, T, num_gpus=64)
    saver = desk.known(1, T, num_bytes=100_000, synchronous=True, write_s=100.0)
    read(reader, T, num_bytes=50_000, ready_in_s=5.0)
    saver.ask(T, ready_in_s=0.0)
    on_line(saver, T, done_bytes=100)
    reader.ready(T + 1)
    saver.hear()
    assert isinstance(saver.last, Gone)
    assert saver.last.reason is GoneReason.MAKE_ROOM
    assert desk.counted(T + 1.1) == 1000
    on_line(reader, T + 1.1)
    saver.ask(T + 1.2)
    assert desk.rates(T + 1.2) == {2: 1000}


def test_on_a_shared_budget_an_overdue_save_goes_before_a_restore() -> None:
    """One GPU waits for a long read; the save is many intervals late."""
    desk = Desk(SHARED)
    holder, reader, saver = desk.known(1, T), desk.known(2, T, num_gpus=1), desk.known(3, T, num_gpus=64)
    read(holder, T, num_bytes=10**6)
    read(reader, T, num_bytes=10**6)
    saver.ask(T, ready_in_s=0.0, age_s=1000.0)
    holder.release(T + 1)
    assert isinstance(saver.answer, Grant)
    assert not isinstance(reader.answer, Grant)


def test_restores_take_no_writers_place_on_a_shared_budget() -> None:
    """One may write: it does so beside two restores, whoever came first; the next save waits."""
    desk = Desk(replace(SHARED, max_writers=1))
    readers, writers = [desk.known(1, T), desk.known(2, T)], [desk.known(3, T), desk.known(4, T)]
    read(readers[0], T, max_bytes_per_s=200)
    for writer in writers:
        writer.ask(T, ready_in_s=0.0, max_bytes_per_s=200)
    read(readers[1], T, max_bytes_per_s=200)
    assert desk.rates(T) == {1: 200, 2: 200, 3: 200}
    assert desk.ledger.job_views(T)[3].wait_reason is WaitReason.MAX_WRITERS


def test_an_urgent_save_displaces_a_restore_on_a_shared_budget() -> None:
    """Idle GPUs wait a little longer, lost work is lost."""
    desk = Desk(SHARED)
    saver, reader = desk.known(2, T), desk.known(1, T, num_gpus=4096)
    read(reader, T)
    on_line(reader, T)
    saver.ask(T + 1, ready_in_s=0.0, urgent=True, deadline_s=60.0)
    reader.hear()
    reader.renew(T + 1.1, held=0)
    saver.renew(T + 1.2, held=0)
    assert desk.rates(T + 1.2) == {1: 0, 2: 1000}


def test_reads_are_not_in_the_sums_of_writes() -> None:
    """What is counted as written by others stays what it was; the pool view shows both."""
    desk = Desk(POOL)
    reader = desk.known(1, T)
    read(reader, T)
    assert desk.counted(T) == 0


def test_the_end_of_a_restore_is_no_save() -> None:
    """Nothing is learned of it: no size, no write time, no step, no age of the newest checkpoint."""
    desk = Desk()
    job = desk.known(1, T, num_bytes=10_000)
    (before,) = desk.ledger.job_views(T)
    read(job, T, num_bytes=500)
    job.release(T + 5, done_bytes=500, step=7)
    (after,) = desk.ledger.job_views(T + 5)
    assert (after.num_bytes, after.num_committed, after.committed_step) == (10_000, 0, None)
    assert (after.write_s, after.commit_age_s) == (before.write_s, None)
    assert desk.ledger.totals.committed == 0
