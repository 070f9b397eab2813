"""Attempts of a job at a desk, hour by hour: it calls in, makes steps, saves, and dies or leaves."""

from typing import Any

from rampmeter.core.messages import EndReason, Finish, Grant
from rampmeter_coordinator.model.records import Job
from support.desk import Desk, Talker

CALLS_EVERY_S = 50.0
"""Seldom enough to be fast, and never so seldom that a job counts as not heard of."""


def record(desk: Desk, job: Talker) -> Job:
    """The job as the ledger remembers it."""
    return desk.ledger._state.jobs[job.uid]


class Life:
    """One job. A step takes a second; `now_s` is how far it has lived, `saved_step` what is durable."""

    def __init__(self, desk: Desk, number: int, now_s: float, **figures: Any) -> None:
        self.desk, self.now_s = desk, now_s
        self.talker = desk.job(number, **figures)
        self.step = self.saved_step = 0
        self.talker.register(now_s)

    @property
    def record(self) -> Job:
        return record(self.desk, self.talker)

    def call(self, **words: Any) -> None:
        """A heartbeat."""
        self.talker.heartbeat(self.now_s, step=self.step, **words)

    def work(self, for_s: float) -> "Life":
        """Make a step each second and call in; the last call is at the end."""
        until_s = self.now_s + for_s
        self.call()
        while self.now_s < until_s:
            passed_s = min(CALLS_EVERY_S, until_s - self.now_s)
            self.now_s += passed_s
            self.step += int(passed_s)
            self.call()
        return self

    def save(self, write_s: float = 10.0, *, urgent: bool = False, **words: Any) -> None:
        """A slot at once, the snapshot, and training goes on while it is written."""
        self.talker.ask(self.now_s, ready_in_s=0.0, urgent=urgent)
        assert isinstance(self.talker.last, Grant), self.talker.last
        step = self.step
        self.now_s += write_s
        self.step += int(write_s)
        figures = {"write_s": write_s, "step": step, "stall_s": 1.0, "done_bytes": 1_000}
        self.talker.release(self.now_s, **(figures | words))
        self.saved_step = step

    def leave(self, reason: EndReason) -> None:
        """Say goodbye."""
        self.talker.say(Finish, self.now_s, reason=reason)

    def again(self, down_s: float, **words: Any) -> None:
        """The next attempt registers, `down_s` after the last contact."""
        self.now_s += down_s
        self.talker = self.talker.next_attempt()
        self.talker.register(self.now_s, **words)

    def start(self, load_s: float, warm_up_s: float, **words: Any) -> None:
        """It has restored what was saved and made its first step."""
        self.now_s += load_s + warm_up_s
        self.step = self.saved_step + 1
        told = {"restored_step": self.saved_step, "load_s": load_s, "warm_up_s": warm_up_s} | words
        self.call(**told)
