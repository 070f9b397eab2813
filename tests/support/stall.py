"""A market without a ledger, and the job of the worked examples."""

from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.market import Market
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState
from support.records import job

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0)
GPUS, MTBF_S, BYTES = 256, 32_400.0, 1_400_000_000_000
BIG = PoolConfig(name="pool", capacity_bytes_per_s=10**11)


class Stall:
    """A market without a ledger; its time is seconds from the begin."""

    def __init__(self, *jobs: Job, config: PoolConfig = POOL) -> None:
        self.state = PoolState(config, epoch=1, seed=1, grace_until_s=0.0)
        self.market = Market(self.state)
        for one in jobs:
            self.come(one)

    def come(self, one: Job) -> None:
        one.registered_s = one.contact_s = 0.0
        self.state.jobs[one.uid] = one
        self.market.registered(one)

    def grow(self, factor: float, *jobs: Job) -> None:
        for one in jobs:
            one.num_bytes = int((one.num_bytes or 0) * factor)
            self.market.committed(one)

    def price(self, now_s: float) -> float:
        """The price once a question, if there is one, is answered."""
        question = self.market.take_question(now_s)
        priced = None if question is None else question.answer()
        if priced is not None:
            self.state.set_price(priced.price_gpu_s_per_byte)
        return self.state.price

    def asks(self, now_s: float) -> bool:
        return self.market.take_question(now_s) is not None


def example(name: str, **changes: object) -> Job:
    """The job of the worked examples, 200 of which need 3,500 s at 100 GB/s."""
    figures = {"num_gpus": GPUS, "mtbf_s": MTBF_S, "num_bytes": BYTES, "stall_s": 1.5, "write_s": 0.0}
    return job(name, **(figures | changes))


def intervals(stall: Stall, jobs: list[Job]) -> list[float]:
    return [planning.load_in(stall.state.config, one).interval_s(stall.state.price) for one in jobs]
