"""What the figures of `make bench` were promised to be, in one table: design 7. Whatever is not in it is no promise.

A figure is judged by its value, the median of its runs: its interval says how far the machine may have moved it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.summary import Result


@dataclass(frozen=True, slots=True)
class AtMost:
    """The figure is no larger."""

    bound: float

    def is_kept(self, value: float) -> bool:
        return value <= self.bound

    def __str__(self) -> str:
        return f"<= {self.bound:g}"


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The figure is no smaller."""

    bound: float

    def is_kept(self, value: float) -> bool:
        return value >= self.bound

    def __str__(self) -> str:
        return f">= {self.bound:g}"


Promise = AtMost | AtLeast

PROMISES: Mapping[str, Promise] = {
    "ledger.apply_us": AtMost(6.0),
    "engine.cpu_us_per_decision.sqlite.*": AtMost(25.0),
    "engine.cpu_us_per_decision.redis.*": AtMost(25.0),
    "engine.size_ratio.*": AtMost(1.5),
    "http.cpu_us_per_request.*": AtMost(170.0),
    "agent.stall_ratio": AtMost(1.0),
    "agent.stall_reused_ratio": AtMost(1.05),
    "agent.step_idle_us": AtMost(20.0),
    "agent.loop_ratio": AtLeast(0.98),
    "agent.flush_ratio.*": AtMost(1.0),
    "agent.lease_error_ratio": AtMost(0.02),
    "restore.verified_ratio": AtMost(1.25),
}
"""By the name of a figure in build/bench.json, or the pattern of several."""


def promise_of(name: str) -> Promise | None:
    """What was promised of a figure; None = nothing."""
    found = [promise for pattern, promise in PROMISES.items() if fnmatchcase(name, pattern)]
    return found[0] if found else None


def is_missed(name: str, entry: Result) -> bool:
    """Whether the figure breaks a promise. One that is no number does."""
    promise = promise_of(name)
    return promise is not None and not promise.is_kept(entry["value"])
