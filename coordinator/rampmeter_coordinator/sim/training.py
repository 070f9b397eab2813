"""What training does with its time: work done, work that is durable, and what is lost by cause. Decides nothing.

Work is measured in seconds at full speed. Rework is kept twice: as it happened, and as its expectation, the integral
of (age of the durable state) / M over the time that training is up. A failure comes with rate 1/M whatever the age, so
both have the same mean, and the second has hardly any noise (the compensator of the failures' point process).
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self


class Phase(StrEnum):
    """What training is doing."""

    RUNNING = "running"
    STALLED = "stalled"
    DOWN = "down"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Seconds of one job by what became of them. `later.minus(earlier)` is a window.

    stall_s             training stood still for snapshots
    slowed_s            steps slowed down by flushes
    rework_s            work lost in failures
    expected_rework_s   what failures would have cost in the mean
    restart_s           from the end of an attempt to the start of the next
    restore_s           from there to training: waiting for the state and reading it
    restore_wait_s      of that, of restores that have ended, what they took beyond their read alone
    """

    observed_s: float = 0.0
    stall_s: float = 0.0
    slowed_s: float = 0.0
    rework_s: float = 0.0
    expected_rework_s: float = 0.0
    restart_s: float = 0.0
    restore_s: float = 0.0
    restore_wait_s: float = 0.0
    num_failures: int = 0
    num_resumed: int = 0

    def minus(self, earlier: Self) -> "Sums":
        """What was added since."""
        return Sums(**{f.name: getattr(self, f.name) - getattr(earlier, f.name) for f in fields(self)})


class Training:
    """One job's training, down at first; `advance` before anything is read."""

    def __init__(self, *, mtbf_s: float, now_s: float) -> None:
        self.phase = Phase.DOWN
        self.work_s = 0.0
        self.durable_s = 0.0
        """Work that the newest durable state holds."""
        self._mtbf_s = mtbf_s
        self._at_s = now_s
        self._lost = dict.fromkeys(Phase, 0.0)
        self._observed_s = self._slowed_s = self._restore_wait_s = self._rework_s = (
            self._expected_rework_s
        ) = 0.0
        self._num_failures = self._num_resumed = 0

    @property
    def age_s(self) -> float:
        """The work that a failure now would cost."""
        return self.work_s - self.durable_s

    @property
    def is_up(self) -> bool:
        return self.phase not in (Phase.DOWN, Phase.RESTORING)

    def advance(self, now_s: float) -> None:
        """Let time pass up to now."""
        duration_s = now_s - self._at_s
        if duration_s <= 0.0:
            return
        self._at_s = now_s
        self._observed_s += duration_s
        works = self.phase is Phase.RUNNING
        self._lost[self.phase] += 0.0 if works else duration_s
        if self.is_up:
            before_s = self.age_s
            self.work_s += duration_s if works else 0.0
            self._expected_rework_s += duration_s * (before_s + self.age_s) / 2.0 / self._mtbf_s

    def enter(self, phase: Phase, now_s: float) -> None:
        """Training does something else from now on."""
        if phase is not self.phase:
            self.advance(now_s)
            self._num_resumed += self.phase is Phase.RESTORING
            self.phase = phase

    def slowed(self, lost_s: float, now_s: float) -> None:
        """A flush has slowed training down by this much in all."""
        self.advance(now_s)
        self.work_s -= lost_s
        self._slowed_s += lost_s

    def restored(self, waited_s: float) -> None:
        """A restore has ended that took this much longer than its read alone."""
        self._restore_wait_s += waited_s

    def saved(self, work_s: float) -> None:
        """A snapshot of `work_s` is durable."""
        self.durable_s = max(self.durable_s, work_s)

    def fall_back(self, now_s: float, *, failed: bool) -> None:
        """The attempt is over: what is not durable is lost."""
        self.advance(now_s)
        self._rework_s += self.age_s
        self._num_failures += failed
        self.work_s = self.durable_s
        self.phase = Phase.DOWN

    def sums(self, now_s: float) -> Sums:
        """All so far."""
        self.advance(now_s)
        return Sums(
            observed_s=self._observed_s,
            stall_s=self._lost[Phase.STALLED],
            slowed_s=self._slowed_s,
            rework_s=self._rework_s,
            expected_rework_s=self._expected_rework_s,
            restart_s=self._lost[Phase.DOWN],
            restore_s=self._lost[Phase.RESTORING],
            restore_wait_s=self._restore_wait_s,
            num_failures=self._num_failures,
            num_resumed=self._num_resumed,
        )
