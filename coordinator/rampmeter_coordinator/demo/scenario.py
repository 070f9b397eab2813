"""What the demo plays: the jobs, the storage, the emulated devices. Values only.

The numbers are chosen so that Young's interval is about 8 s, a herd of six needs about 4 s to write, and six jobs leave
two cores room to breathe.
"""

import math
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
NUM_LAYERS = 5
_BYTES_PER_PARAMETER = 12  # float32: the weight and Adam's two moments
_STATE_MIB = (52, 54, 55, 56, 57, 58)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One training job. `seed` fixes its weights, its data and its dropout."""

    name: str
    state_bytes: int
    seed: int

    @property
    def layer_width(self) -> int:
        """Width of the square layers that hold `state_bytes` together with Adam's moments."""
        return math.isqrt(self.state_bytes // (_BYTES_PER_PARAMETER * NUM_LAYERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Both acts play the same scenario.

    mtbf_s           M that every job is told: its node fails about that often
    step_s           emulated time of one training step on the device
    copy_bytes_per_s emulated speed of the copy from device to host: what a snapshot stalls training for
    interval_max_s   the longest interval that a metered job wishes for, before anything was measured too
    """

    jobs: tuple[JobSpec, ...]
    capacity_bytes_per_s: int
    mtbf_s: float
    step_s: float
    copy_bytes_per_s: int
    num_gpus: int
    interval_max_s: float
    act_s: float

    @property
    def total_state_bytes(self) -> int:
        return sum(job.state_bytes for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one process is to be. `storage` is the file of the emulated storage; without a `url` nobody meters it."""

    job: JobSpec
    life: int
    root: Path
    history: Path
    storage: Path
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """The word to start, the same for all jobs of an act. Both times are CLOCK_BOOTTIME seconds.

    Whoever resumes trains on past the end until `least_step`: what it lost must be seen again.
    """

    start_s: float
    end_s: float
    least_step: int = 0


def scenario(*, act_s: float, seed: int) -> Scenario:
    """The demo's scenario, with all randomness fixed by `seed`."""
    jobs = tuple(
        JobSpec(name=f"demo-{number}", state_bytes=mib * MIB, seed=1000 * seed + number)
        for number, mib in enumerate(_STATE_MIB, 1)
    )
    return Scenario(
        jobs=jobs,
        capacity_bytes_per_s=100_000_000,
        mtbf_s=180.0,
        step_s=0.4,
        copy_bytes_per_s=400_000_000,
        num_gpus=8,
        interval_max_s=8.0,
        act_s=act_s,
    )
