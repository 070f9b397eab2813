"""A ledger at a desk: requests are handed in one by one with a time written on them, answers are picked up by hand."""

from typing import Any

from rampmeter.core.messages import (
    AnyAnswer,
    EndReason,
    Fence,
    Finish,
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
from rampmeter_coordinator.model.commands import Command, Disconnected, Refusal, Tick
from rampmeter_coordinator.model.ledger import Ledger, decide
from rampmeter_coordinator.model.pool import PoolConfig

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0)

Body = AnyAnswer | Refusal | None

_DONE = {"done_bytes": 0, "throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}


class Desk:
    """One ledger and every reply that it gave, by (job_uid, attempt, seq)."""

    def __init__(self, config: PoolConfig = POOL, *, grace_until_s: float = 0.0, epoch: int = 1) -> None:
        self.config = config
        self.ledger = Ledger.new(config, epoch=epoch, seed=7, grace_until_s=grace_until_s)
        self.replies: dict[tuple[str, int, int], AnyAnswer | Refusal] = {}
        self.records: dict[str, bytes] = {}
        self.meta = b""

    def apply(self, command: Command, now_s: float) -> None:
        """Hand in a command; what it changes is kept."""
        for reply in decide(self.ledger, command, now_s):
            self.replies[reply.job_uid, reply.attempt, reply.seq] = reply.body
        changes = self.ledger.take_changes()
        for uid, record in changes.records.items():
            if record is None:
                self.records.pop(uid, None)
            else:
                self.records[uid] = record
        self.meta = changes.meta

    def tick(self, now_s: float) -> None:
        """Time passes."""
        self.apply(Tick(), now_s)

    def restart(
        self,
        *,
        epoch: int = 2,
        grace_until_s: float = 0.0,
        config: PoolConfig | None = None,
        forget: bool = False,
    ) -> None:
        """The coordinator starts again, with what was kept or without."""
        self.config = config or self.config
        if forget:
            self.records = {}
            self.ledger = Ledger.new(self.config, epoch=epoch, seed=7, grace_until_s=grace_until_s)
            return
        self.ledger = Ledger.load(
            self.config,
            epoch=epoch,
            seed=7,
            records=self.records,
            meta=self.meta,
            grace_until_s=grace_until_s,
        )

    def counted(self, now_s: float) -> int:
        """What the ledger believes may be in use."""
        return self.ledger.pool_view(now_s).counted_bytes_per_s

    def rates(self, now_s: float) -> dict[int, int]:
        """Job number -> rate of its lease."""
        return {int(view.job_uid, 16): view.bytes_per_s for view in self.ledger.lease_views(now_s)}

    def job(self, number: int, **figures: Any) -> "Talker":
        """The agent of a job that has not spoken yet."""
        return Talker(self, number, figures)

    def known(self, number: int, now_s: float, **figures: Any) -> "Talker":
        """A job that has registered and has confirmed contact."""
        job = self.job(number, **figures)
        job.register(now_s)
        job.heartbeat(now_s)
        job.heartbeat(now_s)
        return job

    def writer(
        self, number: int, now_s: float, max_bytes_per_s: int | None = None, **figures: Any
    ) -> "Talker":
        """A job that holds an active lease and has confirmed it."""
        job = self.known(number, now_s, **figures)
        job.ask(now_s, ready_in_s=0.0, max_bytes_per_s=max_bytes_per_s)
        assert isinstance(job.last, Grant), job.last
        return job


class Talker:
    """One attempt. Every method sends one request; an answer given at once is applied unless `lost`."""

    def __init__(self, desk: Desk, number: int, figures: dict[str, Any]) -> None:
        self.desk, self.uid, self.attempt = desk, f"{number:032x}", 1
        self.seq = self.ack = 0
        self.fence = Fence(epoch=0, counter=0)
        self.last: Body = None
        self.figures = {
            "name": f"job-{number}",
            "num_gpus": 8,
            "num_bytes": 10_000,
            "stall_s": 1.0,
            "mtbf_s": 3600.0,
        }
        self.figures |= figures

    def say(self, message: type[Request], now_s: float, *, lost: bool = False, **fields: Any) -> Body:
        """Send a request with the next number."""
        self.seq += 1
        envelope = {"job_uid": self.uid, "attempt": self.attempt, "seq": self.seq, "ack": self.ack}
        self.sent = message(**(envelope | fields))
        self.desk.apply(self.sent, now_s)
        return self.answer if lost else self.hear()

    def again(self, now_s: float) -> Body:
        """Send the same request once more and look at what comes back, without applying it."""
        self.desk.replies.pop((self.uid, self.attempt, self.seq), None)
        self.desk.apply(self.sent, now_s)
        return self.answer

    @property
    def answer(self) -> Body:
        """What was said to the newest request so far."""
        return self.desk.replies.get((self.uid, self.attempt, self.seq))

    def hear(self) -> Body:
        """Apply the answer to the newest request, if there is one by now."""
        self.last = self.answer
        if self.last is not None and not isinstance(self.last, Refusal):
            self.ack = self.seq
        if isinstance(self.last, Grant):
            self.fence = self.last.fence
        return self.last

    def register(self, now_s: float, *, lost: bool = False, **fields: Any) -> Body:
        claim = f"{self.attempt:032x}"
        return self.say(Register, now_s, lost=lost, **({"claim": claim} | self.figures | fields))

    def heartbeat(self, now_s: float, *, lost: bool = False, **fields: Any) -> Body:
        return self.say(Heartbeat, now_s, lost=lost, **({"step": 1} | fields))

    def ask(self, now_s: float, *, lost: bool = False, **fields: Any) -> Body:
        return self.say(SlotRequest, now_s, lost=lost, **({"kind": Kind.WRITE} | fields))

    def ready(self, now_s: float, *, lost: bool = False) -> Body:
        return self.say(Ready, now_s, lost=lost, fence=self.fence, lead_s=1.0)

    def renew(self, now_s: float, held: int = 0, *, lost: bool = False, **fields: Any) -> Body:
        words = {"fence": self.fence, "held_bytes_per_s": held} | _DONE | fields
        return self.say(Renew, now_s, lost=lost, **words)

    def release(self, now_s: float, outcome: Outcome = Outcome.COMMITTED, **fields: Any) -> Body:
        written = {"done_bytes": self.figures["num_bytes"] or 1} if outcome is Outcome.COMMITTED else {}
        words = {"fence": self.fence, "outcome": outcome} | _DONE | written | fields
        return self.say(Release, now_s, **words)

    def finish(self, now_s: float, *, lost: bool = False) -> Body:
        return self.say(Finish, now_s, lost=lost, reason=EndReason.FINISHED)

    def hang_up(self, now_s: float) -> None:
        """The client of the newest request goes."""
        self.desk.apply(Disconnected(job_uid=self.uid, attempt=self.attempt, seq=self.seq), now_s)

    def next_attempt(self) -> "Talker":
        """A newer start of the same job."""
        newer = Talker(self.desk, int(self.uid, 16), self.figures)
        newer.attempt = self.attempt + 1
        return newer


def busy_desk(now_s: float) -> Desk:
    """A writer, a job armed, one waiting, one fenced with a newer attempt, one finished, one that has saved."""
    desk = Desk()
    saved = desk.writer(6, now_s)
    saved.release(now_s, done_bytes=7_000, step=5, stall_s=1.2, write_s=12.0, lead_s=3.0)
    desk.writer(1, now_s, max_bytes_per_s=300)
    desk.known(2, now_s).ask(now_s, ready_in_s=20.0, max_bytes_per_s=300)
    fenced = desk.writer(4, now_s, max_bytes_per_s=300)
    fenced.next_attempt().register(now_s + 1, safe_bytes_per_s=20)
    desk.known(5, now_s).finish(now_s + 1)
    desk.known(3, now_s + 1).ask(now_s + 1, ready_in_s=0.0)
    return desk
