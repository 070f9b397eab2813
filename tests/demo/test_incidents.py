"""When the demo kills."""

from rampmeter_coordinator.demo.history import Loss
from rampmeter_coordinator.demo.incidents import Incidents
from rampmeter_coordinator.demo.scenario import scenario
from support.histories import save

PLAY = scenario(act_s=36.0, seed=0)
VICTIM = PLAY.jobs[2]


def _trained_until(at_s):
    return Loss(at_s=at_s, job=VICTIM.name, life=1, step=9, loss="0x0p+0")


def _incidents(**options):
    return Incidents(victim=VICTIM.name, scenario=PLAY, **options)


def test_a_job_dies_only_with_a_checkpoint_to_go_back_to():
    """Without a commit it lives on, however late it is."""
    assert not _incidents().kills_job([_trained_until(30.0)], 0.9)


def test_a_job_dies_with_some_work_to_lose():
    """Four seconds after its commit, between two saves."""
    records = [*save(VICTIM.name, 1.0, 2.0), _trained_until(6.0)]
    assert _incidents().kills_job(records, 0.4)


def test_a_job_does_not_die_right_after_its_commit():
    """There would be nothing to see."""
    records = [*save(VICTIM.name, 1.0, 2.0), _trained_until(2.5)]
    assert not _incidents().kills_job(records, 0.4)


def test_late_a_job_dies_between_two_saves_whatever_there_is_to_lose():
    """One that dies while it writes would keep all others waiting until its lease has run out."""
    saved = [*save(VICTIM.name, 1.0, 2.0), _trained_until(2.5)]
    writes = [*saved, *save(VICTIM.name, 3.0, 4.0, durable=False)]
    assert not _incidents().kills_job(writes, 0.65)
    assert _incidents().kills_job(saved, 0.65)
    assert _incidents().kills_job(writes, 0.8)


def test_a_job_is_killed_once():
    """The second life is left alone."""
    incidents, records = _incidents(), [*save(VICTIM.name, 1.0, 2.0), _trained_until(6.0)]
    assert incidents.kills_job(records, 0.4)
    assert not incidents.kills_job(records, 0.5)


def test_the_coordinator_dies_under_a_running_write():
    """Half of a write is in the storage."""
    records = save(VICTIM.name, 1.0, 2.0, num_bytes=VICTIM.state_bytes // 2, durable=False)
    incidents = _incidents(with_coordinator=True)
    assert incidents.kills_job([*save(VICTIM.name, 1.0, 2.0), _trained_until(6.0)], 0.5)
    assert incidents.kills_coordinator(records, 0.65)


def test_the_coordinator_lives_until_the_job_has_died():
    """A job that dies while nobody listens cannot give back its lease before."""
    records = save(VICTIM.name, 1.0, 2.0, num_bytes=VICTIM.state_bytes // 2, durable=False)
    assert not _incidents(with_coordinator=True).kills_coordinator(records, 0.65)
    assert _incidents(with_coordinator=True).kills_coordinator(records, 0.8)


def test_the_coordinator_lives_unless_it_was_asked_for():
    """Without the option nothing happens to it."""
    records = save(VICTIM.name, 1.0, 2.0, num_bytes=VICTIM.state_bytes // 2, durable=False)
    assert not _incidents().kills_coordinator(records, 0.9)


def test_act_1_has_no_incidents():
    """Without a victim nobody dies."""
    assert not Incidents().kills_job([*save("demo-3", 1.0, 2.0), _trained_until(6.0)], 0.9)
