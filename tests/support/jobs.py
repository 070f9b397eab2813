"""A job as the coordinator sees it: numbers its requests and confirms each answer, as the agent does."""

from dataclasses import dataclass, field
from itertools import count

from rampmeter.core.messages import (
    Finish,
    Heartbeat,
    Kind,
    Outcome,
    Ready,
    Register,
    Release,
    Renew,
    SlotRequest,
)

_numbers = count(1)
NUM_BYTES = 10**9


def new_uid():
    """A job_uid that no other job of this test run has."""
    return f"{next(_numbers):032x}"


@dataclass
class Job:
    """Makes requests. `seq` is the newest number used, `acked` the newest answer that it heard."""

    uid: str = field(default_factory=new_uid)
    attempt: int = 1
    seq: int = 0
    acked: int = 0
    fence: object = None

    def _next(self):
        self.seq += 1
        return {"job_uid": self.uid, "attempt": self.attempt, "seq": self.seq, "ack": self.acked}

    async def tell(self, engine, request, pool="lustre"):
        """Send a request, hear the answer."""
        answer = await engine.submit(pool, request)
        self.acked = answer.seq
        self.fence = getattr(answer, "fence", self.fence)
        return answer

    def register(self, **more):
        """Present itself."""
        return Register(**self._next(), name="run7", claim=self.uid, num_gpus=8, num_bytes=NUM_BYTES, **more)

    def heartbeat(self, step=1, **more):
        """A sign of life."""
        return Heartbeat(**self._next(), step=step, **more)

    def slot(self, **more):
        """Ask, with the first byte in hand unless told otherwise."""
        asked = {"kind": Kind.WRITE, "num_bytes": NUM_BYTES, "age_s": 9000.0, "ready_in_s": 0.0} | more
        return SlotRequest(**self._next(), **asked)

    def ready(self):
        """The first byte is in hand."""
        return Ready(**self._next(), fence=self.fence, lead_s=1.0)

    def renew(self, held=0, done=0):
        """Go on with the lease."""
        figures = {"throttled_s": 1.0, "blocked_s": 0.0, "busy_s": 0.0}
        return Renew(**self._next(), fence=self.fence, held_bytes_per_s=held, done_bytes=done, **figures)

    def release(self, done=NUM_BYTES):
        """End the save."""
        figures = {"throttled_s": 1.0, "blocked_s": 0.0, "busy_s": 0.0}
        return Release(
            **self._next(), fence=self.fence, outcome=Outcome.COMMITTED, done_bytes=done, step=1, **figures
        )

    def finish(self):
        """Say goodbye."""
        return Finish(**self._next(), reason="finished")
