"""One attempt of a job in the adversarial world: keeps the rules of the protocol with the real lease clock.

One request in flight, `ack` = last answer applied, the same number when it is sent again, a newer number supersedes.
Lease: asked for, armed, lead-in, ready, written at the allowed rate, released; lapsed or gone: asked for again. Silent:
the safe rate when it is usable, after a look at the newest claim. What may be used now is `usable`. Its clock has an
offset and a drift of its own; only what begins with `world` is the world's time.
"""

import math
import random
from typing import TYPE_CHECKING

from invariants.save import Job, Save
from invariants.words import words_of
from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import (
    AnyAnswer,
    Finish,
    Gone,
    GoneReason,
    Grant,
    Heartbeat,
    Kind,
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
        self._save = Save(Kind.READ if restore else Kind.WRITE, job.num_bytes, job.lead_s, now_s)
        self._ends_s: float | None = None
        """An announced end: the save before it is urgent."""
        self._snapshot_s = now_s
        self._save_fence = self._release_fence = self._asked_fence = None
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
            return allowance.bytes_per_s, self._save.kind
        if self.attempt < self.job.newest_claim:
            self._usable_until_s = 0.0
        if allowance.bytes_per_s and self._stopped_by_claim(now_s):
            return 0, None
        return allowance.bytes_per_s, None

    def noticed(self, in_s: float) -> None:
        """Its end was announced: it saves before, and says that this is urgent."""
        self._ends_s = self.now_s + in_s
        if self._save.kind is Kind.WRITE and not self._save.active:
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
        rate, kind = self.usable()
        if rate and kind is None and not self._save.active and now_s >= self._due_s:
            self._save.begin(now_s)  # silence, and the safe rate is usable: goes on without a grant
        if self._save.advance(now_s):
            self._saved(now_s)
        hung = self._world.now_s < self.hung_until_s
        most, share = self.job.max_bytes_per_s, self._world.storage_share
        self._save.go_on(self.usable()[0], most, share, hung=hung)

    def _saved(self, now_s: float) -> None:
        self._due_s = now_s + (self.clock.plan.request_after_s if self.clock.plan else 60.0)
        self._release_fence, self._save_fence = self._save_fence, None
        if self._save.kind is Kind.WRITE:
            self.job.saved_s.append(self._world.now_s)
            self._snapshot_s = self._save.started_s
        self._save.kind = Kind.WRITE
        self.clock.dropped()
        self.look_anew()

    def _next_s(self, now_s: float) -> float:
        times = [self._due_s, self._not_before_s, self._save.byte_in_hand_s, self._save.ends_s(now_s)]
        times += [self._heard_s + 15.0, self._sent_s + self._timeout_s(), *self.clock.changes()]
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
        return self._save.active or self._urgent()

    def _urgent(self) -> bool:
        return self._ends_s is not None and self._save.kind is Kind.WRITE

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
            return Ready if now_s >= self._save.byte_in_hand_s and not self._told_ready else Renew
        if self._save.active or now_s >= self._due_s:
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
        words = words_of(self, kind, now_s)
        self._in_flight = kind(
            job_uid=self.job.uid, attempt=self.attempt, seq=self._seq, ack=self._ack, **words
        )
        self._first_sent_s = self._sent_s = now_s
        self._world.network.send(self, self._in_flight)

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
            if not self._save.active:
                self._save.begin(now_s)
        elif isinstance(body, Gone):
            self.clock.dropped()
            if body.reason is GoneReason.MAKE_ROOM:  # this save is given up
                self._save.give_up()
                self._due_s, self._save_fence = now_s + 60.0, None
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
