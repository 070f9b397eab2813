"""Steps are timed beside flushes and, now and then, between them; the rest of the time nobody reads a clock."""

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.stepwatch import StepWatch


class CountingClock(ManualClock):
    """Counts how often it is read."""

    num_reads = 0

    def now(self):
        self.num_reads += 1
        return super().now()


class Training:
    """Steps on a clock made by hand; a keeper looks in after each of them."""

    def __init__(self):
        self.clock = CountingClock()
        self.watch = StepWatch(self.clock)
        self.step = 0

    def train(self, num_steps, step_s, *, asked=True):
        for _ in range(num_steps):
            self.clock.advance(step_s)
            self.step += 1
            self.watch.see(self.step)
            if asked:
                self.watch.ask(self.clock.now())

    def save(self, num_steps, step_s, *, stall_s=0.0, at_work_s=None, committed=True):
        """A snapshot that takes `stall_s`, then a flush beside so many steps; eps."""
        self.watch.snapshot_begins()
        self.clock.advance(stall_s)
        self.watch.flush_begins()
        self.train(num_steps, step_s)
        at_work_s = num_steps * step_s if at_work_s is None else at_work_s
        return self.watch.flush_ended(committed=committed, at_work_s=at_work_s)


def test_eps_is_what_steps_beside_the_flush_take_longer():
    """1.1 s instead of 1 s a step, over 11 s."""
    training = Training()
    training.train(100, 1.0)
    assert training.save(10, 1.1) == pytest.approx(1.0 / 11.0)


def test_the_stall_of_the_snapshot_is_in_neither_side():
    """Training stood still for 30 s: that is the stall, told by itself."""
    training = Training()
    training.train(100, 1.0)
    for _ in range(8):
        assert training.save(10, 1.0, stall_s=30.0) == pytest.approx(0.0, abs=1e-9)
        training.train(12, 1.0)


def test_flushes_are_measured_against_what_is_between_them():
    """With as much time in flushes as out of them, a step alone is still a step alone."""
    training = Training()
    training.train(30, 1.0)
    for _ in range(10):
        training.train(12, 1.0)
        figure = training.save(12, 1.5)
    assert figure == pytest.approx(1.0 / 3.0)


def test_a_step_that_a_flush_ends_in_is_on_neither_side():
    """It may be long, as here, and belongs to both."""
    training = Training()
    for _ in range(5):
        training.train(10, 1.0)
        training.watch.snapshot_begins()
        training.watch.flush_begins()
        training.train(10, 1.1)
        training.clock.advance(50.0)
        figure = training.watch.flush_ended(committed=True, at_work_s=61.0)
        training.train(1, 50.0)
    assert figure == pytest.approx(1.0 / 11.0)


def test_what_is_between_two_flushes_is_one_stretch_where_nobody_asks():
    """Training beside a keeper that sleeps: from the first step after a flush to the next snapshot."""
    training = Training()
    for _ in range(4):
        training.train(10, 1.0, asked=False)
        figure = training.save(10, 1.1)
    assert figure == pytest.approx(1.0 / 11.0)


def test_short_steps_are_timed_together():
    """Steps of 1 ms of which each hundredth is held up for 20 ms: that is the slow-down, not an outlier."""
    training = Training()
    training.train(20_000, 0.001)
    training.watch.snapshot_begins()
    training.watch.flush_begins()
    for _ in range(20):
        training.train(99, 0.001)
        training.train(1, 0.021)
    figure = training.watch.flush_ended(committed=True, at_work_s=2.4)
    assert figure == pytest.approx(0.4 / 2.4, rel=0.02)


def test_steps_that_are_counted_by_tens_are_timed_as_well():
    """A loop that calls only now and then is as good: what counts is how far it came."""
    training = Training()
    for _ in range(30):
        training.step += 9
        training.train(1, 10.0)
    training.watch.snapshot_begins()
    training.watch.flush_begins()
    for _ in range(5):
        training.step += 9
        training.train(1, 11.0)
    assert training.watch.flush_ended(committed=True, at_work_s=55.0) == pytest.approx(1.0 / 11.0)


def test_a_save_that_failed_says_nothing_and_does_no_harm():
    """The next one is measured as if it had not been."""
    training = Training()
    training.train(100, 1.0)
    assert training.save(10, 5.0, committed=False) is None
    training.train(20, 1.0)
    assert training.save(10, 1.1) == pytest.approx(1.0 / 11.0)


def test_a_flush_that_ends_before_the_next_step_gives_no_figure():
    """Nothing was seen beside it."""
    training = Training()
    training.train(100, 1.0)
    assert training.save(0, 1.0, at_work_s=0.2) is None


def test_going_back_to_an_older_step_spoils_no_figure():
    """After a restore in the middle of a run steps count from there, not from when it has caught up."""
    training = Training()
    training.step = 1000
    training.train(4, 1.0)
    training.step = 20
    training.train(40, 1.0)
    assert training.save(10, 1.1) == pytest.approx(1.0 / 11.0)


def test_a_step_that_does_not_advance_the_clock_or_the_count_divides_by_nothing():
    """A loop that calls twice for a step, and a clock that stands still."""
    training = Training()
    training.train(50, 0.0)
    for _ in range(20):
        training.watch.see(training.step)
    assert training.save(10, 0.0, at_work_s=1.0) is None
    assert training.save(0, 0.0, at_work_s=1.0) is None


def test_an_idle_step_reads_no_clock():
    """Between two looks of the keeper, however many steps there are."""
    training = Training()
    training.train(100, 0.001)
    before = training.clock.num_reads
    training.train(1000, 0.001, asked=False)
    assert training.clock.num_reads - before <= 1


def test_a_keeper_that_looks_in_often_has_no_more_steps_timed():
    """One in five seconds: 12 in a minute, of 600 looks."""
    training = Training()
    training.train(100, 0.1)
    before = training.clock.num_reads
    training.train(600, 0.1)
    assert 600 + 10 <= training.clock.num_reads - before <= 600 + 13  # the loop reads it once a step to ask


def test_the_first_step_is_timed_without_being_asked():
    """It ends the restart."""
    training = Training()
    assert training.watch.first_step_s is None
    training.train(3, 2.0, asked=False)
    assert training.watch.first_step_s == 1002.0
