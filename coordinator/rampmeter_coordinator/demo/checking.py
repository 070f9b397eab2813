"""Restores a job's newest checkpoint in a process that has never seen the job: what is on disk, and nothing else."""

from dataclasses import replace
from pathlib import Path

from rampmeter.core.clock import SystemClock
from rampmeter.restore import restore
from rampmeter_coordinator.demo.model import Training
from rampmeter_coordinator.demo.scenario import JobSpec, Scenario


def restored_digest(job: JobSpec, root: Path, scenario: Scenario) -> tuple[int, str]:
    """The step of the newest checkpoint under `root` and the digest of the state that it holds; step 0 = none.

    The state starts from other weights, so that an equal digest can only come from the checkpoint.
    """
    training = Training(replace(job, seed=job.seed + 1), scenario, SystemClock())
    found = restore(root, training.parts())
    return (0, "") if found is None else (found.step, training.digest())
