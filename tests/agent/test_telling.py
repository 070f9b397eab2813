"""What an agent tells of its restart, of its slow-down and of what its checkpoints are for."""

import time
from dataclasses import replace

import pytest

from rampmeter.core.messages import Fence, Register, Release
from rampmeter.core.pacer import Action
from support.answers import grant, noted, plan
from support.scene import REPORT, SETTINGS, Scene


def beat(scene):
    return scene.desk.word(Action.HEARTBEAT)[0]


def restart(heartbeat):
    return heartbeat.restored_step, heartbeat.rolled_back, heartbeat.load_s, heartbeat.warm_up_s


def train(scene, num_steps, step_s=1.0):
    for _ in range(num_steps):
        scene.clock.advance(step_s)
        scene.watch.see(scene.watch.step + 1)
        scene.desk.advance()


# -- fences -----------------------------------------------------------------------------------------------------------


def test_a_registration_tells_the_highest_epoch_that_was_seen():
    """So that a coordinator that has forgotten it gives out nothing below it; a lower one that came since is none."""
    scene = Scene()
    scene.register()
    assert scene.desk.word(Action.REGISTER)[0].seen_epoch == 0
    for epoch in (7, 3):
        scene.desk.answered(Action.ASK, grant(fence=Fence(epoch=epoch, counter=1)), scene.clock.now())
        scene.desk.forgotten()
        assert scene.desk.word(Action.REGISTER)[0].seen_epoch == 7


# -- the restart -----------------------------------------------------------------------------------------------------


def test_nothing_is_told_of_a_restart_before_it_is_known():
    """No restore yet, no step yet."""
    scene = Scene()
    scene.register()
    assert restart(beat(scene)) == (None, False, None, None)


def test_load_and_warm_up_are_all_of_the_start():
    """Loaded in 30 s, known at once; what training did 5 s before and 12 s after it is the warm-up."""
    scene = Scene()
    scene.clock.advance(35.0)
    scene.desk.restored(40, load_s=30.0, rolled_back=False)
    assert restart(beat(scene)) == (40, False, 30.0, None)
    scene.clock.advance(12.0)
    scene.watch.see(41)
    scene.clock.advance(100.0)
    assert restart(beat(scene)) == (40, False, 30.0, 17.0)


def test_the_warm_up_of_a_fresh_start_counts_from_the_start():
    """There was nothing to load."""
    scene = Scene()
    scene.clock.advance(7.0)
    scene.watch.see(1)
    assert restart(beat(scene)) == (None, False, None, 7.0)


def test_it_is_told_with_every_heartbeat():
    """One that is lost costs nothing."""
    scene = Scene()
    scene.clock.advance(30.0)
    scene.desk.restored(40, load_s=30.0, rolled_back=True)
    scene.clock.advance(2.0)
    scene.watch.see(41)
    assert {restart(beat(scene)) for _ in range(3)} == {(40, True, 30.0, 2.0)}


def test_going_back_in_the_middle_of_a_run_is_no_restart():
    """The step that it goes on from is told; load and warm-up stay those of the start."""
    scene = Scene()
    scene.clock.advance(30.0)
    scene.desk.restored(40, load_s=30.0, rolled_back=False)
    train(scene, 5)
    scene.desk.restored(20, load_s=3.0, rolled_back=True)
    assert restart(beat(scene)) == (20, True, 30.0, 1.0)


def test_a_step_of_the_wall_clock_does_not_matter(monkeypatch):
    """Durations are of a clock that never steps."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    scene = Scene()
    scene.clock.advance(30.0)
    scene.desk.restored(40, load_s=30.0, rolled_back=False)
    scene.clock.advance(2.0)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    scene.watch.see(41)
    assert restart(beat(scene)) == (40, False, 30.0, 2.0)


# -- the slow-down ---------------------------------------------------------------------------------------------------


def saved(scene, *, step_s, report=REPORT):
    """A save beside whose flush 20 steps of `step_s` are made; its release."""
    scene.clock.advance(100.0)
    scene.say(lambda seq: grant(seq, ttl_s=1000.0))
    scene.begin_snapshot()
    scene.clock.advance(0.25)
    scene.watch.flush_begins()
    scene.desk.first_byte(5000)
    scene.say(lambda seq: grant(seq, rate=9, ttl_s=1000.0))
    train(scene, 20, step_s)
    counters = replace(report.counters, throttled_s=12.0)
    scene.desk.save_ended(replace(report, write_s=22.0, counters=counters), lambda _: 100.0)
    return scene.say(noted)


def test_a_release_tells_what_training_lost_by_the_flush():
    """20 steps of 1.1 s instead of 1 s while it was at work for 10 of its 22 s."""
    scene = Scene()
    scene.register()
    train(scene, 50)
    release = saved(scene, step_s=1.1)
    assert isinstance(release, Release)
    assert release.eps == pytest.approx(0.2)
    assert scene.speech.figures.eps > 0.02


def test_a_snapshot_ends_what_was_timed_before_it():
    """Told by whoever may take it, once."""
    scene, told = Scene(), []
    scene.watch.snapshot_begins = lambda: told.append(scene.clock.now())
    scene.register()
    scene.begin_snapshot()
    assert told == []
    scene.clock.advance(60.0)
    scene.say(grant)
    scene.begin_snapshot()
    scene.begin_snapshot()
    assert told == [scene.clock.now()]


def test_a_release_without_figure_tells_none():
    """No steps between flushes were seen: nothing is told, and the prior stays."""
    scene = Scene()
    scene.register()
    assert saved(scene, step_s=1.1).eps is None
    assert scene.speech.figures.eps == 0.02


def test_an_aborted_save_tells_no_slow_down():
    """Nor does the release of the next one tell that of an older one."""
    scene = Scene()
    scene.register()
    train(scene, 50)
    assert saved(scene, step_s=1.1).eps is not None
    assert saved(scene, step_s=1.1, report=replace(REPORT, committed=False, reason="enospc")).eps is None


# -- the tier --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("survives", ["node", "site"])
def test_the_failures_that_its_checkpoints_are_for_are_told_with_the_registration(survives):
    """As the call said it."""
    scene = Scene()
    scene.speech.settings = replace(SETTINGS, survives=survives)
    registration = scene.say(lambda seq: noted(seq, plan=plan()))
    assert isinstance(registration, Register)
    assert registration.survives == survives
