"""Never over capacity, judged by an outside observer of what all living processes may use; `make soak` runs longer."""

from invariants.soak import PROFILES, campaign
from invariants.world import CALM, World

NUM_EVENTS = 120_000


def test_random_runs_with_every_fault_stay_within_the_bound() -> None:
    """No event of 120,000 shows more in use than the bound, a starved job, a deadlock or a fence that went back."""
    report = campaign(NUM_EVENTS)
    assert report.num_events >= NUM_EVENTS
    assert report.num_runs >= len(PROFILES)
    assert report.violations == ()


def test_a_calm_world_saves_on_and_on() -> None:
    """Without faults every job saves again and again, so that the other test does not pass for lack of writers."""
    world = World(1, CALM)
    world.run(1500.0)
    assert world.violations == []
    assert all(len(job.saved_s) >= 3 for job in world.jobs)
