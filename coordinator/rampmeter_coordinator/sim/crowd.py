"""Jobs that want to write nearly always, about so many at a time: soon after one has saved it asks again.

Their pipes share the budget evenly, so that the number of writers comes out; each save takes a while, with a lead-in
and a tail, and some are bound by their CPUs.
"""

import math
import random

from rampmeter_coordinator.sim.job import Job, JobSpec
from rampmeter_coordinator.sim.world import START_S, World

WRITE_S = (20.0, 120.0)
LEAD_S, TAIL_S = 12.0, 5.0
CPU_BOUND_SPEED = 0.3
NUM_GPUS = 65_536
"""So many that a job wants to save again as soon as its plan allows it."""


def crowd(
    world: World,
    num_writers: int,
    num_jobs: int,
    rng: random.Random,
    *,
    seed: int,
    cpu_bound_share: float = 0.0,
) -> list[Job]:
    """They start within the first ten seconds. With twice as many as can write at a time some rest now and then."""
    jobs = []
    share = world.config.budget_bytes_per_s / num_writers
    for number in range(num_jobs):
        cpu_bound = rng.random() < cpu_bound_share
        spec = JobSpec(
            uid=f"{number + 1:032x}",
            num_gpus=NUM_GPUS,
            num_bytes=int(share * rng.uniform(*WRITE_S)),
            stall_s=0.01,
            lead_s=LEAD_S,
            tail_s=TAIL_S,
            pipe_bytes_per_s=int(share),
            cpu_bytes_per_s=CPU_BOUND_SPEED * share if cpu_bound else math.inf,
        )
        job = Job(world, spec, seed)
        world.at(START_S + rng.uniform(0.0, 10.0), job.start)
        jobs.append(job)
    return jobs
