"""One attempt of a job in the adversarial world: keeps the rules of the protocol with the real lease clock.

One request in flight, `ack` = last answer applied, the same number when it is sent again, a newer number supersedes.
Lease: asked for, armed, lead-in, ready, written at the allowed rate, released; lapsed or gone: asked for again. Silent:
the safe rate when it is usable, after a look at the newest claim. What may be used now is `usable`. Its clock has an
offset and a drift of its own; only what begins with `world` is the world's time.
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
    GoneReason,
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
DRIFT = 5e-4
ROUNDING_S = 1e-6
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
    tenant: str | None = None
    newest_claim: int = 0
    claimed_s: dict[int, float] = field(default_factory=dict)
    saved_s: list[float] = field(default_factory=list)


class Process:
    """Born training; `poll` whenever something may have changed."""

    def __init__(
        self, world: "World", job: Job, rng: random.Random, remembered: Plan | None, *, restore: bool = False
    ) -> None:
        self.job, self.attempt, self.clock = job, job.newest_claim, LeaseClock()
        self.alive, self.finishing = True, False
        self.frozen_until_s = self.hung_until_s = self.cut_up_until_s = self.cut_down_until_s = 0.0
        self._usable: tuple[int, Kind | None] = (0, None)
        self._usable_until_s = 0.0
        self.forgotten_by = 0
        """The epoch of a leader that does not know what this process was told, until it has answered; 0 = known."""
        self._world, self._rng = world, rng
        self._clock_rate, self._clock_offset_s = 1.0 + rng.uniform(-DRIFT, DRIFT), rng.uniform(0.0, 1e5)
        now_s = self.now_s
        self._seq = self._ack = 0
        self._in_flight: Request | None = None
        self._first_sent_s = self._sent_s = self._not_before_s = self._heard_s = 0.0
        self._registered = self._told_ready = False
        self._due_s = now_s if restore else now_s + rng.uniform(0.0, 60.0)
        self._kind = Kind.READ if restore else Kind.WRITE
        self._ends_s: float | None = None
        """An announced end: the save before it is urgent."""
        self._saving = False
        self._byte_in_hand_s = math.inf
        self._done_bytes = self._started_s = 0.0
        self._spent = {"throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}
        self._advanced_s = self._snapshot_s = now_s
        self._save_fence = self._release_fence = self._asked_fence = None
        self._rate_before = 0
        if remembered is not None:
            self.clock.remember(remembered, now_s)

    @property
    def now_s(self) -> float:
        """Its clock."""
        return self._world.now_s * self._clock_rate + self._clock_offset_s

    def _world_s(self, at_s: float) -> float:
        return (at_s - self._clock_offset_s) / self._clock_rate

    # -- what it may use -----------------------------------------------------------------------------------------

    def usable(self) -> tuple[int, Kind | None]:
        """Bytes/s that may be used now, and what the lease is for; None: by the safe rate."""
        if not self.alive or self.finishing:
            return 0, None
        if self._world.now_s >= self._usable_until_s:
            self._usable = self._usable_now()
        return self._usable

    def look_anew(self) -> None:
        """Something has happened to this process or its job: what it may use has to be worked out again."""
        self._usable_until_s = 0.0

    def _usable_now(self) -> tuple[int, Kind | None]:
        now_s = self.now_s
        allowance = self.clock.allowance(now_s)
        coming_s = min((at_s for at_s in self.clock.changes() if at_s > now_s), default=math.inf)
        self._usable_until_s = self._world_s(coming_s) - ROUNDING_S
        if allowance.fence is not None:
            return allowance.bytes_per_s, self._kind
        if self.attempt < self.job.newest_claim:
            self._usable_until_s = 0.0
        if allowance.bytes_per_s and self._stopped_by_claim(now_s):
            return 0, None
        return allowance.bytes_per_s, None

    def noticed(self, in_s: float) -> None:
        """Its end was announced: it saves before, and says that this is urgent."""
        self._ends_s = self.now_s + in_s
        if self._kind is Kind.WRITE and not self._saving:
            self._due_s = self.now_s
        self.poll()

    def _stopped_by_claim(self, now_s: float) -> bool:
        """It looks for a newer claim before the first byte at the safe rate and every 15 s while it writes on."""
        newer_s = [at_s for number, at_s in self.job.claimed_s.items() if number > self.attempt]
        if not newer_s:
            return False
        start_s = self._world_s(self.clock.safe_window()[0])
        looks = math.ceil(max(0.0, min(newer_s) - start_s) / CLAIM_CHECK_S)
        return self._world_s(now_s) >= start_s + looks * CLAIM_CHECK_S

    # -- time ----------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Write on, talk if there is something to say, and come back when the next thing happens."""
        if not self.alive or self._world.now_s < self.frozen_until_s:
            return
        now_s = self.now_s
        self._write(now_s)
        self._talk(now_s)
        self.look_anew()
        self._world.poll_at(self, self._world_s(self._next_s(now_s)) + ROUNDING_S)

    def _write(self, now_s: float) -> None:
        self.look_anew()
        rate, by_lease = self.usable()
        if rate and by_lease is None and not self._saving and now_s >= self._due_s:
            self._begin(now_s)  # silence, and the safe rate is usable: goes on without a grant
        since_s, self._advanced_s = max(self._advanced_s, self._byte_in_hand_s), now_s
        if self._saving and now_s > since_s:
            speed, spent_as = self._speed(self._rate_before)
            self._done_bytes = min(self._done_bytes + (now_s - since_s) * speed, self.job.num_bytes)
            self._spent[spent_as] += now_s - since_s
        if self._saving and self._done_bytes >= self.job.num_bytes - 0.5:
            self._saved(now_s)
        self._rate_before = 0 if self._hung() else self.usable()[0]

    def _saved(self, now_s: float) -> None:
        self._saving, self._due_s = (
            False,
            now_s + (self.clock.plan.request_after_s if self.clock.plan else 60),
        )
        self._release_fence, self._save_fence = self._save_fence, None
        if self._kind is Kind.WRITE:
            self.job.saved_s.append(self._world.now_s)
            self._snapshot_s = self._started_s
        self._kind = Kind.WRITE
        self.clock.dropped()
        self.look_anew()

    def _hung(self) -> bool:
        return self._world.now_s < self.hung_until_s

    def _speed(self, rate: int) -> tuple[float, str]:
        """How fast it really writes at this rate, and where its time goes."""
        if self._hung():
            return 0.0, "blocked_s"
        own = min(rate, self.job.max_bytes_per_s or 10**9)
        if self._world.storage_share < 1.0:
            return own * self._world.storage_share, "blocked_s"
        return float(own), "busy_s" if own < rate else "throttled_s"

    def _begin(self, now_s: float) -> None:
        self._saving, self._done_bytes, self._byte_in_hand_s = True, 0.0, now_s + self.job.lead_s
        self._started_s = now_s
        self._spent = dict.fromkeys(self._spent, 0.0)

    def _next_s(self, now_s: float) -> float:
        times = [self._due_s, self._not_before_s, self._byte_in_hand_s, *self.clock.safe_window()]
        times += [self._heard_s + 15.0, self._sent_s + self._timeout_s()]
        if self.clock.fence is not None:
            times.append(self.clock._lease.until_s)
        speed = self._speed(self._rate_before)[0]
        if self._saving and speed:
            left_s = (self.job.num_bytes - self._done_bytes) / speed
            times.append(max(now_s, self._byte_in_hand_s) + left_s)
        return min((t for t in times if t > now_s), default=now_s + 15.0)

    # -- talk ----------------------------------------------------------------------------------------------------

    def _talk(self, now_s: float) -> None:
        wanted = self._wanted(now_s)
        if self._in_flight is not None:
            if now_s >= self._sent_s + self._timeout_s():
                self._again(now_s)
                return
            pressing = wanted in (Ready, Release, Finish) or (wanted is SlotRequest and self._presses())
            if not pressing or (wanted is type(self._in_flight) and not self._becomes_urgent()):
                return
        if wanted is not None and now_s >= self._not_before_s:
            self._say(wanted, now_s)

    def _presses(self) -> bool:
        return self._saving or self._urgent()

    def _urgent(self) -> bool:
        return self._ends_s is not None and self._kind is Kind.WRITE

    def _becomes_urgent(self) -> bool:
        return isinstance(self._in_flight, SlotRequest) and self._urgent() and not self._in_flight.urgent

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
        self._world.network.hang_up(self, self._in_flight)
        if self._rng.random() < 0.5:
            self._sent_s = now_s
            self._world.network.send(self, self._in_flight)
            return
        self._in_flight = None
        self._talk(now_s)

    def _say(self, kind: type[Request], now_s: float) -> None:
        if self._in_flight is not None:
            self._world.network.hang_up(self, self._in_flight)
        if kind is SlotRequest:
            self.clock.dropped()  # whoever asks holds nothing
        self._seq += 1
        words = self._words(kind, now_s)
        self._in_flight = kind(
            job_uid=self.job.uid, attempt=self.attempt, seq=self._seq, ack=self._ack, **words
        )
        self._first_sent_s = self._sent_s = now_s
        self._world.network.send(self, self._in_flight)

    def _words(self, kind: type[Request], now_s: float) -> dict[str, Any]:
        in_hand = self._saving and now_s >= self._byte_in_hand_s
        done = {"done_bytes": int(self._done_bytes), **self._spent}
        if kind is Register:
            held = self.clock.plan.safe_bytes_per_s if self.clock.plan else 0
            figures = {"num_gpus": 8, "num_bytes": self.job.num_bytes, "stall_s": 1.0, "mtbf_s": 3600.0}
            claim = f"{self.attempt:032x}"
            tenant = self.job.tenant
            return {"name": "job", "claim": claim, "safe_bytes_per_s": held, "tenant": tenant, **figures}
        if kind is Heartbeat:
            return {"step": 1}
        if kind is SlotRequest:
            return self._slot_words(now_s, started=in_hand)
        if kind is Ready:
            return {"fence": self.clock.fence, "lead_s": self.job.lead_s}
        if kind is Renew:
            held = self.usable()[0]
            return {"fence": self.clock.fence, "held_bytes_per_s": held, **done}
        if kind is Release:
            return {"fence": self._release_fence, "outcome": Outcome.COMMITTED, "write_s": 1.0, **done}
        return {"reason": EndReason.FINISHED}

    def _slot_words(self, now_s: float, *, started: bool) -> dict[str, Any]:
        words: dict[str, Any] = {"kind": self._kind, "started": started, "num_bytes": self.job.num_bytes}
        words["ready_in_s"] = max(0.0, self._byte_in_hand_s - now_s) if self._saving else self.job.lead_s
        words["max_bytes_per_s"] = self.job.max_bytes_per_s
        words["age_s"] = max(0.0, now_s - self._snapshot_s)
        if self._urgent():
            words |= {"urgent": True, "deadline_s": max(0.1, self._ends_s - now_s)}
        return words

    # -- answers -------------------------------------------------------------------------------------------------

    def hear(self, seq: int, body: AnyAnswer | Refusal | None) -> bool:
        """An answer, a refusal, or None: nobody is there. True if it is an answer to the request in flight, applied."""
        now_s = self.now_s
        if not self.alive or self._in_flight is None or self._in_flight.seq != seq:
            return False
        self._write(now_s)
        self._talk(now_s)  # a save that ends at this very moment is told first: the answer is void then
        self.look_anew()
        if self._in_flight is None or self._in_flight.seq != seq:
            return False
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
            self._look_at_rate(request, body)
            self._save_fence = body.fence
            if not isinstance(request, Renew):
                self._told_ready = isinstance(request, Ready) or request.ready_in_s == 0.0
            if not self._saving:
                self._begin(now_s)
        elif isinstance(body, Gone):
            self.clock.dropped()
            if body.reason is GoneReason.MAKE_ROOM:  # this save is given up
                self._saving, self._due_s, self._save_fence = False, now_s + 60.0, None
        elif isinstance(body, Wait):
            self._not_before_s = now_s + body.retry_after_s
        elif isinstance(request, Register):
            self._registered = True
        elif isinstance(request, Release):
            self._release_fence = None
        elif isinstance(request, Finish):
            self.alive = False
        self._write(now_s)

    def _look_at_rate(self, request: Request, grant: Grant) -> None:
        """No lease that was asked for with a maximum may ever have more; one made anew after lost memory knows none."""
        if isinstance(request, SlotRequest):
            self._asked_fence = grant.fence
        most = self.job.max_bytes_per_s
        if grant.fence == self._asked_fence and most is not None and not 0 <= grant.bytes_per_s <= most:
            self._world.violated(f"granted {grant.bytes_per_s}, but wanted at most {most}")
