"""The observer on hand-made histories."""

import pytest

from rampmeter_coordinator.demo import observer
from rampmeter_coordinator.demo.history import Chunk, Committed, Failed, Killed, Restored, Stalled, of_kind
from support.histories import allowed, losses, save


def test_writers_are_counted_between_first_and_last_byte():
    """Two overlapping saves are two writers exactly while they overlap."""
    saves = observer.flushes(save("a", 0.0, 4.0) + save("b", 2.0, 6.0))
    assert observer.writers_over_time(saves) == [(0.0, 1.0), (2.0, 2.0), (4.0, 1.0), (6.0, 0.0)]


def test_a_save_that_follows_at_once_is_no_second_writer():
    """One save ends at the instant where the next begins: still one writer."""
    saves = observer.flushes(save("a", 0.0, 4.0) + save("b", 4.0, 6.0))
    assert observer.peak(observer.writers_over_time(saves)) == 1


def test_chunks_belong_to_the_save_before_them():
    """Two saves of one job keep their own bytes and their own ends."""
    saves = observer.flushes(save("a", 0.0, 2.0, num_bytes=10) + save("a", 5.0, 9.0, num_bytes=30, step=2))
    assert [(s.step, s.begin_s, s.end_s, s.num_bytes) for s in saves] == [
        (1, 0.0, 2.0, 10),
        (2, 5.0, 9.0, 30),
    ]


def test_a_save_that_never_was_durable_has_no_write_time():
    """A write that was cut off counts as a writer, not as a write time."""
    saves = observer.flushes(save("a", 0.0, 2.0, durable=False))
    assert len(saves) == 1
    assert observer.write_times(saves) == []


def test_write_time_counts_from_the_snapshot():
    """Waiting between snapshot and first byte is part of the write time."""
    saves = observer.flushes(save("a", 3.0, 5.0, snapshot_s=1.0))
    assert observer.write_times(saves) == [4.0]


def test_bandwidth_spreads_a_chunk_over_its_time():
    """100 bytes over 2 s are 50 bytes/s in each of the two bins, and nothing is lost."""
    chunk = Chunk(at_s=3.0, job="a", life=1, begin_s=1.0, num_bytes=100)
    assert observer.bandwidth_over_time([chunk], 0.0, 4.0, 1.0) == [0.0, 50.0, 50.0, 0.0]


def test_a_right_ends_with_its_time():
    """After `until_s` an agent may use nothing."""
    steps = observer.allowed_over_time([allowed("a", 1.0, 70, until_s=3.0)])
    assert steps == [(1.0, 70.0), (3.0, 0.0)]


def test_a_new_right_replaces_the_old_one():
    """A lowered rate counts from its own instant, not beside the old one."""
    steps = observer.allowed_over_time(
        [allowed("a", 1.0, 70, until_s=9.0), allowed("a", 2.0, 30, until_s=4.0)]
    )
    assert steps == [(1.0, 70.0), (2.0, 30.0), (4.0, 0.0)]


@pytest.mark.parametrize(
    "end",
    [
        Committed(at_s=3.0, job="a", life=1, step=1, write_s=1.0),
        Failed(at_s=3.0, job="a", life=1, step=1, reason="enospc"),
        Killed(at_s=3.0, job="a", life=1),
    ],
)
def test_a_right_ends_with_the_save_or_the_process(end):
    """Who has finished, failed or died uses nothing any more."""
    steps = observer.allowed_over_time([allowed("a", 1.0, 70, until_s=9.0), end])
    assert steps[-1] == (3.0, 0.0)


def test_two_rights_at_once_are_seen_as_over_granted():
    """The sum of what agents may use is taken over every instant, however short the overlap."""
    records = [allowed("a", 1.0, 80, until_s=5.0), allowed("b", 4.999, 80, until_s=9.0)]
    assert observer.peak(observer.allowed_over_time(records)) == 160


def test_an_unbounded_right_is_over_any_capacity_and_ends_cleanly():
    """None = unthrottled is far above every capacity, and the sum comes back to zero."""
    steps = observer.allowed_over_time([allowed("a", 1.0, None, until_s=2.0)])
    assert steps == [(1.0, observer.UNBOUNDED), (2.0, 0.0)]


def test_the_herd_offers_the_whole_capacity_for_each_writer():
    """Six writers without rights offer six times what the storage can take."""
    records = [record for job in "abcdef" for record in save(job, 0.0, 6.0)]
    assert observer.peak(observer.offered_over_time(records, 100, metered=False)) == 6.0


def test_metered_writers_offer_what_they_are_allowed():
    """Offered load is the granted rate while the save writes, and nothing before its first byte."""
    records = [allowed("a", 0.0, 80, until_s=9.0), *save("a", 1.0, 3.0)]
    assert observer.offered_over_time(records, 100, metered=True) == [(1.0, 0.8), (3.0, 0.0)]


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (0.95, 3.85), (1.0, 4.0)])
def test_percentiles_are_interpolated(share, value):
    """Between two values lies a part of both."""
    assert observer.percentile([1.0, 2.0, 3.0, 4.0], share) == pytest.approx(value)


def test_rework_is_the_mean_age_of_the_newest_durable_snapshot():
    """Saves each 10 s that take 2 s: the age runs from 2 to 12, T/2 + W = 7 on average."""
    records = losses("a", 1, range(100))
    for start_s in range(0, 101, 10):
        records += save("a", float(start_s), start_s + 2.0, step=start_s + 1)
    found = observer.lost(records, 2.0, 92.0, mtbf_s=100.0)
    assert found.rework == pytest.approx(7.0 / 100.0)


def test_stall_is_a_share_of_the_time_trained():
    """Half a second in ten is 5 %."""
    records = [*losses("a", 1, range(10)), Stalled(at_s=5.0, job="a", life=1, duration_s=0.5)]
    assert observer.lost(records, 0.0, 10.0, mtbf_s=1e9).stall == pytest.approx(0.05)


def test_the_dead_time_of_a_killed_job_is_no_training_time():
    """Two lives of 2 s and 3 s around 5 s of death: the stall is a share of 5 s."""
    records = [
        *losses("a", 1, range(3)),
        Stalled(at_s=1.0, job="a", life=1, duration_s=0.5),
        Killed(at_s=2.0, job="a", life=1),
        Restored(at_s=7.0, job="a", life=2, step=1),
        *losses("a", 2, range(3), life=2, begin_s=7.5),
    ]
    assert observer.lost(records, 0.0, 10.0, mtbf_s=1e9).stall == pytest.approx(0.1)


def test_steps_lost_are_those_after_the_restored_one():
    """Killed after step 9, resumed from step 5: four steps."""
    records = [
        *losses("a", 1, range(9)),
        Killed(at_s=9.0, job="a", life=1),
        Restored(at_s=10.0, job="a", life=2, step=5),
    ]
    assert observer.steps_lost(records) == 4


def test_a_killed_job_that_never_resumed_has_no_count():
    """Nothing is said about steps where nothing was restored."""
    assert observer.steps_lost([*losses("a", 1, range(9)), Killed(at_s=9.0, job="a", life=1)]) is None


def test_equal_losses_in_all_lives_are_bit_exact():
    """The killed life and the resumed one are both compared, redone steps included."""
    reference = losses("a", 1, [0.5, 0.4, 0.3, 0.2])
    other = losses("a", 1, [0.5, 0.4, 0.3]) + losses("a", 2, [0.4, 0.3, 0.2], life=2)
    assert observer.same_losses(reference, other, "a") is True


def test_one_bit_of_one_loss_is_noticed():
    """The smallest difference that a float can have is a difference."""
    reference = losses("a", 1, [0.5, 0.4])
    other = losses("a", 1, [0.5]) + losses("a", 2, [0.4000000000000001], life=2)
    assert observer.same_losses(reference, other, "a") is False


def test_nothing_after_the_restore_is_no_proof():
    """Without a single step after the restore there is nothing to compare."""
    assert observer.same_losses(losses("a", 1, [0.5]), losses("a", 1, [0.5]), "a") is None


def test_step_time_is_the_median_gap_within_a_life():
    """The gap between two lives is no step."""
    records = losses("a", 1, range(4)) + losses("a", 3, range(4), life=2, begin_s=100.0)
    assert observer.step_time(records) == 1.0


def test_records_of_a_kind_come_in_order_of_time():
    """Files of several processes are read one after the other; time puts them in order."""
    late, early = save("a", 5.0, 6.0), save("b", 1.0, 2.0)
    assert [chunk.begin_s for chunk in of_kind(late + early, Chunk)] == [1.0, 1.5, 5.0, 5.5]


@pytest.mark.parametrize(
    ("rights", "num_broken"),
    [
        ([allowed("a", 1.0, 50, until_s=9.0)], 0),
        ([allowed("a", 1.0, 50, until_s=4.0), allowed("a", 3.5, 50, until_s=9.0)], 0),
        ([allowed("a", 1.0, 50, until_s=4.0)], 1),
        ([allowed("a", 1.0, 50, until_s=9.0), allowed("a", 4.0, 0)], 1),
        ([allowed("a", 4.0, 50, until_s=9.0)], 0),
    ],
)
def test_a_lease_is_honoured_if_its_rate_lasts_until_the_save_is_durable(rights, num_broken):
    """Held at the kill and renewed in time, or run out, taken away, and not held at all."""
    assert observer.leases_broken([*rights, *save("a", 1.0, 6.0)], 3.0) == num_broken


def test_a_save_that_fails_after_the_kill_has_lost_its_lease():
    """Whatever the rate was."""
    failed = Failed(at_s=5.0, job="a", life=1, step=1, reason="lease_lost")
    records = [allowed("a", 1.0, 50, until_s=9.0), *save("a", 1.0, 6.0, durable=False), failed]
    assert observer.leases_broken(records, 3.0) == 1
