"""One attempt of a job in the adversarial world: keeps the rules of the protocol with the real lease clock.

One request in flight, `ack` = last answer applied, the same number when it is sent again, a newer number supersedes.
Lease: asked for, armed, lead-in, ready, written at the allowed rate, released; lapsed or gone: asked for again. Silent:
the safe rate when it is usable, after a look at the newest claim. What may be used now is `usable`.
"""

import math
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import (
    AnyAnswer,
    EndReason,
    Finish,
    Gone,
    Grant,
    Heartbeat,
    Kind,
    Outcome,
    Plan,
    Ready,
    RefusalReason,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
    Wait,
)
from rampmeter_coordinator.model.commands import Refusal

if TYPE_CHECKING:
    from invariants.world import World

CLAIM_CHECK_S = 15.0
BACKOFF_S = 1.0
TIMEOUT_S = {SlotRequest: 30.0}
"""What a client waits for an answer: the longest hold and 5 s; 10 s for all but slot requests."""


@dataclass(slots=True, kw_only=True)
class Job:
    """What the attempts of one job have in common."""

    uid: str
    num_bytes: int
    max_bytes_per_s: int | None
    lead_s: float
    newest_claim: int = 0
    claimed_s: dict[int, float] = field(default_factory=dict)
    saved_s: list[float] = field(default_factory=list)


class Process:
    """Born training; `poll` whenever something may have changed."""

    def __init__(self, world: "World", job: Job, rng: random.Random, remembered: Plan | None) -> None:
        self.job, self.attempt, self.clock = job, job.newest_claim, LeaseClock()
        self.alive, self.finishing, self.frozen_until_s = True, False, 0.0
        self.cut_up_until_s = self.cut_down_until_s = 0.0
        self.forgotten = False
        """A coordinator without memory has come since the last answer."""
        self._world, self._rng = world, rng
        self._seq = self._ack = 0
        self._in_flight: Request | None = None
        self._first_sent_s = self._sent_s = self._not_before_s = self._heard_s = 0.0
        self._registered = self._told_ready = False
        self._due_s = world.now_s + rng.uniform(0.0, 60.0)
        self._saving = False
        self._byte_in_hand_s = math.inf
        self._done_bytes = 0.0
        self._advanced_s = world.now_s
        self._save_fence = self._release_fence = None
        self._rate_before = 0
        if remembered is not None:
            self.clock.remember(remembered, world.now_s)

    # -- what it may use -----------------------------------------------------------------------------------------

    def usable(self, now_s: float) -> tuple[int, bool]:
        """Bytes/s that the writer may use now, and whether it is by a lease."""
        if not self.alive or self.finishing:
            return 0, True
        allowance = self.clock.allowance(now_s)
        if allowance.fence is None and allowance.bytes_per_s and self._stopped_by_claim(now_s):
            return 0, False
        return allowance.bytes_per_s, allowance.fence is not None

    def _stopped_by_claim(self, now_s: float) -> bool:
        """It looks for a newer claim before the first byte at the safe rate and every 15 s while it writes on."""
        newer_s = [at_s for number, at_s in self.job.claimed_s.items() if number > self.attempt]
        if not newer_s:
            return False
        start_s = self.clock.safe_window()[0]
        looks = math.ceil(max(0.0, min(newer_s) - start_s) / CLAIM_CHECK_S)
        return now_s >= start_s + looks * CLAIM_CHECK_S

    # -- time ----------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Write on, talk if there is something to say, and come back when the next thing happens."""
        now_s = self._world.now_s
        if not self.alive or now_s < self.frozen_until_s:
            return
        self._write(now_s)
        self._talk(now_s)
        self._world.poll_at(self, self._next_s(now_s))

    def _write(self, now_s: float) -> None:
        rate, by_lease = self.usable(now_s)
        if rate and not by_lease and not self._saving and now_s >= self._due_s:
            self._begin(now_s)  # silence, and the safe rate is usable: goes on without a grant
        since_s, self._advanced_s = max(self._advanced_s, self._byte_in_hand_s), now_s
        if self._saving and now_s > since_s:
            self._done_bytes += (now_s - since_s) * min(self._rate_before, self.job.max_bytes_per_s or 10**9)
        if self._saving and self._done_bytes >= self.job.num_bytes:
            self._saving, self._due_s = (
                False,
                now_s + (self.clock.plan.request_after_s if self.clock.plan else 60),
            )
            self._release_fence, self._save_fence = self._save_fence, None
            self.job.saved_s.append(now_s)
            self.clock.dropped()
        self._rate_before = self.usable(now_s)[0]

    def _begin(self, now_s: float) -> None:
        self._saving, self._done_bytes, self._byte_in_hand_s = True, 0.0, now_s + self.job.lead_s

    def _next_s(self, now_s: float) -> float:
        times = [self._due_s, self._not_before_s, self._byte_in_hand_s, *self.clock.safe_window()]
        times += [self._heard_s + 15.0, self._sent_s + self._timeout_s(), self.frozen_until_s]
        if self.clock.fence is not None:
            times.append(self.clock._lease.until_s)
        rate = min(self._rate_before, self.job.max_bytes_per_s or 10**9)
        if self._saving and rate:
            left_s = (self.job.num_bytes - self._done_bytes) / rate
            times.append(max(now_s, self._byte_in_hand_s) + left_s + 1e-6)
        return min((t for t in times if t > now_s), default=now_s + 15.0)

    # -- talk ----------------------------------------------------------------------------------------------------

    def _talk(self, now_s: float) -> None:
        wanted = self._wanted(now_s)
        if self._in_flight is not None:
            if now_s >= self._sent_s + self._timeout_s():
                self._again(now_s)
                return
            pressing = wanted in (Ready, Release, Finish) or (wanted is SlotRequest and self._saving)
            if not pressing or wanted is type(self._in_flight):
                return
        if wanted is not None and now_s >= self._not_before_s:
            self._say(wanted, now_s)

    def _timeout_s(self) -> float:
        return TIMEOUT_S.get(type(self._in_flight), 10.0) if self._in_flight else math.inf

    def _wanted(self, now_s: float) -> type[Request] | None:
        if self.clock.lapsed(now_s):
            self.clock.dropped()
        if self.finishing:
            return Finish
        if not self._registered:
            return Register
        if self._release_fence is not None:
            return Release
        if self.clock.fence is not None:
            return Ready if now_s >= self._byte_in_hand_s and not self._told_ready else Renew
        if self._saving or now_s >= self._due_s:
            return SlotRequest
        return Heartbeat if now_s >= self._heard_s + 15.0 else None

    def _again(self, now_s: float) -> None:
        """No answer in time: the same request once more, or a fresh one in its place."""
        self._world.hang_up(self, self._in_flight)
        if self._rng.random() < 0.5:
            self._sent_s = now_s
            self._world.send(self, self._in_flight)
            return
        self._in_flight = None
        self._talk(now_s)

    def _say(self, kind: type[Request], now_s: float) -> None:
        if self._in_flight is not None:
            self._world.hang_up(self, self._in_flight)
        if kind is SlotRequest:
            self.clock.dropped()  # whoever asks holds nothing
        self._seq += 1
        words = self._words(kind, now_s)
        self._in_flight = kind(
            job_uid=self.job.uid, attempt=self.attempt, seq=self._seq, ack=self._ack, **words
        )
        self._first_sent_s = self._sent_s = now_s
        self._world.send(self, self._in_flight)

    def _words(self, kind: type[Request], now_s: float) -> dict[str, Any]:
        in_hand = self._saving and now_s >= self._byte_in_hand_s
        done = {"done_bytes": int(self._done_bytes), "throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}
        if kind is Register:
            held = self.clock.plan.safe_bytes_per_s if self.clock.plan else 0
            figures = {"num_gpus": 8, "num_bytes": self.job.num_bytes, "stall_s": 1.0, "mtbf_s": 3600.0}
            claim = f"{self.attempt:032x}"
            return {"name": "job", "claim": claim, "safe_bytes_per_s": held, **figures}
        if kind is Heartbeat:
            return {"step": 1}
        if kind is SlotRequest:
            ready_in_s = max(0.0, self._byte_in_hand_s - now_s) if self._saving else self.job.lead_s
            asked = {"max_bytes_per_s": self.job.max_bytes_per_s, "num_bytes": self.job.num_bytes}
            return {"kind": Kind.WRITE, "ready_in_s": ready_in_s, "started": in_hand, **asked}
        if kind is Ready:
            return {"fence": self.clock.fence, "lead_s": self.job.lead_s}
        if kind is Renew:
            held = self.usable(now_s)[0]
            return {"fence": self.clock.fence, "held_bytes_per_s": held, **done}
        if kind is Release:
            return {"fence": self._release_fence, "outcome": Outcome.COMMITTED, "write_s": 1.0, **done}
        return {"reason": EndReason.FINISHED}

    # -- answers -------------------------------------------------------------------------------------------------

    def hear(self, seq: int, body: AnyAnswer | Refusal | None) -> bool:
        """An answer, a refusal, or None: nobody is there. True if it is an answer to the request in flight, applied."""
        now_s = self._world.now_s
        if not self.alive or self._in_flight is None or self._in_flight.seq != seq:
            return False
        self._write(now_s)
        request, self._in_flight = self._in_flight, None
        if body is None:
            self._unreachable(request, now_s)
        elif isinstance(body, Refusal):
            self._refused(body, now_s)
        else:
            self._applied(request, body, now_s)
        self.poll()
        return body is not None and not isinstance(body, Refusal)

    def _unreachable(self, request: Request, now_s: float) -> None:
        self._not_before_s = now_s + BACKOFF_S
        if self._rng.random() < 0.5:  # the same one again, in a while
            self._in_flight, self._sent_s = request, now_s + BACKOFF_S - self._timeout_of(request)

    @staticmethod
    def _timeout_of(request: Request) -> float:
        return TIMEOUT_S.get(type(request), 10.0)

    def _refused(self, refusal: Refusal, now_s: float) -> None:
        if refusal.reason is RefusalReason.UNKNOWN_JOB:
            self._registered = False
            self.alive = not self.finishing
        elif refusal.reason is RefusalReason.STALE_ATTEMPT:
            self.alive = False
        elif refusal.reason not in (RefusalReason.OLD_SEQ, RefusalReason.SUPERSEDED):
            self._world.violated(f"refused: {refusal.reason} (field {refusal.field})")

    def _applied(self, request: Request, body: AnyAnswer, now_s: float) -> None:
        self._ack, self._heard_s = body.seq, now_s
        self.clock.answered(now_s, body.plan)
        if isinstance(body, Grant):
            self.clock.granted(body, self._first_sent_s)
            self._save_fence = body.fence
            if not isinstance(request, Renew):
                self._told_ready = isinstance(request, Ready) or request.ready_in_s == 0.0
            if not self._saving:
                self._begin(now_s)
        elif isinstance(body, Gone):
            self.clock.dropped()
        elif isinstance(body, Wait):
            self._not_before_s = now_s + body.retry_after_s
        elif isinstance(request, Register):
            self._registered = True
        elif isinstance(request, Release):
            self._release_fence = None
        elif isinstance(request, Finish):
            self.alive = False
        self._write(now_s)
