"""The demo's training: reproducible, and of the size that it says."""

from dataclasses import replace

import pytest
import torch

from rampmeter.core.clock import ManualClock
from rampmeter_coordinator.demo.model import Training
from rampmeter_coordinator.demo.scenario import MIB, scenario

PLAY = scenario(act_s=36.0, seed=0)
SMALL = replace(PLAY.jobs[0], state_bytes=MIB)


def _training(seed=1):
    return Training(replace(SMALL, seed=seed), PLAY, ManualClock())


@pytest.mark.parametrize("job", PLAY.jobs, ids=lambda job: job.name)
def test_states_are_as_large_as_they_say(job):
    """Parameters and Adam's two moments are within 3 % of the size of the job."""
    num_parameters = sum(p.numel() for p in Training(job, PLAY, ManualClock()).model.parameters())
    assert 12 * num_parameters == pytest.approx(job.state_bytes, rel=0.03)


def test_the_same_seed_gives_the_same_losses():
    """Bit for bit, dropout included."""
    first = _training()
    expected = [first.train_one() for _ in range(3)]
    second = _training()
    assert [second.train_one() for _ in range(3)] == expected


def test_another_seed_gives_other_losses():
    """Weights and data depend on it."""
    assert _training(1).train_one() != _training(2).train_one()


def test_a_step_takes_the_time_of_the_device():
    """However fast the machine computes."""
    clock = ManualClock()
    training = Training(SMALL, PLAY, clock)
    before_s = clock.now()
    training.train_one()
    assert clock.now() - before_s == pytest.approx(PLAY.step_s)


def test_a_copy_to_the_host_takes_the_time_of_its_bytes():
    """State divided by the speed of the copy."""
    clock = ManualClock()
    training = Training(SMALL, PLAY, clock)
    before_s = clock.now()
    training.copy_out()
    assert clock.now() - before_s == pytest.approx(MIB / PLAY.copy_bytes_per_s)


def test_the_digest_sees_every_part():
    """A weight, a moment, the position and the random state each change it."""
    training = _training()
    training.train_one()
    digests = {training.digest()}
    with torch.no_grad():
        next(training.model.parameters())[0, 0] += 1
    digests.add(training.digest())
    next(iter(training.optimizer.state.values()))["exp_avg"][0, 0] += 1
    digests.add(training.digest())
    training.data.position += 1
    digests.add(training.digest())
    torch.rand(1)
    digests.add(training.digest())
    assert len(digests) == 5
