"""Memory of one job that is registered, has its plan and has sent a heartbeat, in a pool of 100,000: the ledger alone.

Counted by tracemalloc, everything that the ledger holds on to, its sums and timers included.
"""

import gc
import tracemalloc

from benchmarks.summary import Result, summary
from rampmeter.core.messages import Heartbeat, Register
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig

NUM_JOBS = 100_000


def bytes_per_job(num_jobs: int = NUM_JOBS) -> float:
    """What `num_jobs` jobs take, by job."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=2 * 10**12, max_jobs=num_jobs)
    ledger = Ledger.new(config, epoch=1, seed=1, grace_until_s=0.0)
    gc.collect()
    tracemalloc.start()
    now_s = 1000.0
    for number in range(num_jobs):
        now_s += 10.0 / num_jobs
        ledger.apply(_register(number), now_s)
    for number in range(num_jobs):
        now_s += 10.0 / num_jobs
        ledger.apply(Heartbeat(job_uid=f"{number:032x}", attempt=1, seq=2, ack=1, step=1000 + number), now_s)
    ledger.take_changes()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / num_jobs


def _register(number: int) -> Register:
    return Register(
        job_uid=f"{number:032x}",
        attempt=1,
        seq=1,
        ack=0,
        name=f"run-{number}",
        claim=f"{number + 2**64:032x}",
        num_gpus=256,
        num_bytes=8 * 10**9 + number,
        stall_s=1.5 + number / 1e6,
        mtbf_s=32_400.0 + number,
    )


def measure() -> dict[str, Result]:
    """Bytes per job."""
    return {"ledger.bytes_per_job": summary([bytes_per_job()], "bytes", num_jobs=NUM_JOBS)}
