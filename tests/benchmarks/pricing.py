"""CPU time of a price for 10,000 jobs: what one question costs beside the event loop of a coordinator.

The mixed fleet of the simulator on a storage that carries a third of what it asks for at own periods; all jobs
believed, and all of them newcomers, which costs more. The search begins without a guess, as after a restart.
"""

import time

import numpy as np

from benchmarks.summary import Result, summary
from rampmeter.core.interval import Load
from rampmeter_coordinator.model.asked import Asked
from rampmeter_coordinator.model.pricing import Question
from rampmeter_coordinator.sim.population import mixed_fleet

NUM_JOBS = 10_000
NUM_RUNS = 21
WRITE_S = 30.0
LOAD = 3.0


def asked_by(num_jobs: int, *, believed: bool) -> Asked:
    """What a fleet asks for; `believed`: every job has saved."""
    loads = (
        Load(
            num_bytes=spec.num_bytes,
            num_gpus=spec.num_gpus,
            cost_s=spec.stall_s,
            mtbf_s=spec.mtbf_s,
            write_s=WRITE_S,
        )
        for spec in mixed_fleet(num_jobs, seed=1)
    )
    asked = Asked.of(loads)
    asked.believed_bytes_per_s[:] = np.inf if believed else 0.0
    return asked


def asked_at(asked: Asked, load: float) -> Question:
    """What a coordinator asks after a restart: no price is in force."""
    num_jobs = asked.num_bytes.size
    return Question(
        asked=asked,
        budget_bytes_per_s=int(asked.demand(0.0) / load),
        base_price=0.0,
        price=0.0,
        rows=np.arange(num_jobs),
        uids=tuple(f"{number:032x}" for number in range(num_jobs)),
        known=frozenset(),
    )


def cpu_ms(asked: Asked) -> float:
    """CPU milliseconds of one answer, as a coordinator gives it: doubt, price, and whose claims are absurd."""
    question = asked_at(asked, LOAD)
    start_s = time.thread_time()
    answer = question.answer()
    spent_s = time.thread_time() - start_s
    assert answer is not None
    assert answer.price_gpu_s_per_byte > 0.0
    return spent_s * 1e3


def measure() -> dict[str, Result]:
    """Milliseconds of CPU; the entry is that of the slower of both."""
    runs = [
        [cpu_ms(asked) for _ in range(NUM_RUNS)]
        for asked in (asked_by(NUM_JOBS, believed=believed) for believed in (True, False))
    ]
    return {"pricing.cpu_ms_per_10000_jobs": summary(max(runs, key=sum), "ms", num_jobs=NUM_JOBS)}
