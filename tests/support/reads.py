"""Reads at the ledger's desk: how they are asked for, and what they are told."""

from typing import Any

from rampmeter.core.messages import Grant, Kind, RateReason
from rampmeter_coordinator.model.pool import PoolConfig
from support.desk import Talker

SHARED = PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0, shared_reads=True)


def read(job: Talker, now_s: float, **more: Any) -> None:
    """A restore asks for its slot."""
    job.ask(now_s, kind=Kind.READ, **({"ready_in_s": 0.0} | more))


def on_line(job: Talker, now_s: float, **progress: Any) -> None:
    """The holder's renewal is held: it can be told at once."""
    rate = job.desk.rates(now_s)[int(job.uid, 16)]
    job.renew(now_s, held=rate, **progress)
    if job.answer is not None:
        job.renew(now_s, held=rate, **progress)
    assert job.answer is None


def told(job: Talker) -> tuple[int, RateReason]:
    """The rate that the job was told last, and why."""
    assert isinstance(job.last, Grant), job.last
    return job.last.bytes_per_s, job.last.reason
