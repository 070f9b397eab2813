"""CPU time of one decision of the ledger, at 100 and at 10,000 jobs: what a coordinator does all day.

Nine heartbeats to one request of a save (ask, ready, renew, release), as in a pool of the given size with few writers
at a time; some jobs always wait. The conversation is recorded first and then replayed on a fresh ledger, timed as one
piece: reading the CPU clock costs more than a decision. The ledger alone: no JSON, no store.
"""

import time
from dataclasses import dataclass

from benchmarks.summary import Result, summary
from rampmeter.core.messages import (
    AnyAnswer,
    Grant,
    Heartbeat,
    Kind,
    Outcome,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pool import PoolConfig

NUM_RUNS = 9
NUM_COMMANDS = 20_000
NUM_SAVERS = 6
NUM_ROUNDS = 8
"""Heartbeats of everybody before the measurement: until plans have settled."""

FLEET_BYTES = 8 * 10**14
"""More than 2 TB/s carry without a price."""

MOST_BYTES = 10**11
"""No save tells of more than its lease can have allowed."""

DONE = {"throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}


@dataclass
class Agent:
    """Words the requests of one job."""

    uid: str
    seq: int = 0
    ack: int = 0
    fence: object = None

    def word(self, message: type[Request], **fields: object) -> Request:
        self.seq += 1
        return message(job_uid=self.uid, attempt=1, seq=self.seq, ack=self.ack, **fields)

    def heard(self, body: AnyAnswer | Refusal) -> None:
        self.ack = body.seq
        if isinstance(body, Grant):
            self.fence = body.fence


class Recording:
    """What a pool in which everybody is known, a few write and a few wait says in `num_commands` requests."""

    def __init__(self, num_jobs: int, num_commands: int) -> None:
        self.ledger = new_ledger()
        self.now_s, self.step_s = 1000.0, 15.0 / num_jobs
        self.num_bytes = FLEET_BYTES // num_jobs
        self.commands: list[tuple[Request, float]] = []
        self.agents = {f"{number:032x}": Agent(f"{number:032x}") for number in range(num_jobs)}
        self.everybody_is_known()
        savers, others = list(self.agents.values())[:NUM_SAVERS], list(self.agents.values())[NUM_SAVERS:]
        for agent in savers:
            self.apply(agent.word(SlotRequest, kind=Kind.WRITE, num_bytes=self.num_bytes, ready_in_s=1.0))
        self.num_before, turn = len(self.commands), 0
        while len(self.commands) < self.num_before + num_commands:
            for number in range(9):
                self.apply(others[(9 * turn + number) % len(others)].word(Heartbeat, step=turn))
            self.save(turn)
            turn += 1

    def everybody_is_known(self) -> None:
        figures = {"num_gpus": 256, "num_bytes": self.num_bytes, "stall_s": 1.5, "mtbf_s": 32_400.0}
        for agent in self.agents.values():
            self.apply(agent.word(Register, name="job", claim="0" * 32, **figures))
        for _ in range(NUM_ROUNDS):
            for agent in self.agents.values():
                self.apply(agent.word(Heartbeat, step=1))

    def apply(self, request: Request) -> None:
        """One command; whoever is answered applies it."""
        self.now_s += self.step_s
        self.commands.append((request, self.now_s))
        for reply in self.ledger.apply(request, self.now_s):
            if not isinstance(reply.body, Refusal):
                self.agents[reply.job_uid].heard(reply.body)

    def save(self, turn: int) -> None:
        """The holder of the lease says what comes next; after its release it asks again."""
        live = self.ledger.lease_views(self.now_s)
        if not live:
            return
        agent = self.agents[live[0].job_uid]
        phase = turn % 3
        if phase == 0:
            self.apply(agent.word(Ready, fence=agent.fence, lead_s=1.0))
        elif phase == 1:
            self.apply(
                agent.word(Renew, fence=agent.fence, held_bytes_per_s=10**12, done_bytes=10**9, **DONE)
            )
        else:
            done = {
                "done_bytes": min(self.num_bytes, MOST_BYTES),
                "outcome": Outcome.COMMITTED,
                "stall_s": 1.5,
                "lead_s": 1.0,
                "write_s": 1.5,
            }
            self.apply(agent.word(Release, fence=agent.fence, **done, **DONE))
            self.apply(agent.word(SlotRequest, kind=Kind.WRITE, num_bytes=self.num_bytes, ready_in_s=1.0))


def new_ledger() -> Ledger:
    """A pool of 2 TB/s without memory."""
    config = PoolConfig(name="pool", capacity_bytes_per_s=2 * 10**12)
    return Ledger.new(config, epoch=1, seed=1, grace_until_s=0.0)


def apply_us(num_jobs: int, num_commands: int = NUM_COMMANDS) -> float:
    """CPU microseconds of one `apply` among `num_jobs` jobs."""
    recording = Recording(num_jobs, num_commands)
    ledger = new_ledger()
    for request, now_s in recording.commands[: recording.num_before]:
        ledger.apply(request, now_s)
    timed = recording.commands[recording.num_before :]
    start_s = time.process_time()
    for request, now_s in timed:
        ledger.apply(request, now_s)
    return (time.process_time() - start_s) / len(timed) * 1e6


def measure() -> dict[str, Result]:
    """Microseconds of CPU per decision; the entry is that of the slower fleet."""
    runs = {size: [apply_us(size) for _ in range(NUM_RUNS)] for size in (100, 10_000)}
    slower = max(runs, key=lambda size: sum(runs[size]))
    return {"ledger.apply_us": summary(runs[slower], "us", num_jobs=slower)}
