"""One restore after another at the read budget: when to ask, what may be read now, what to say next. Pure.

    IDLE -> WAITING <-> READING -> LOADING -> IDLE
               a lease that lapsed, is gone, or a coordinator that is back: rate 0, ask again, go on where it was

The GPUs of the job idle meanwhile, so it waits as long as somebody answers and no longer: where nobody does, reading
begins after a delay that is drawn once per attempt, so that jobs that lost the same coordinator do not begin together.
A safe rate is for writing and never used here. Decides nothing about saves: the pacer lets them wait meanwhile.
"""

import math
from enum import StrEnum

from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.lifecycle import Action, Governance
from rampmeter.core.messages import AnyAnswer, Fence, Gone, Grant, RateReason, Wait, WaitReason

RELEASE_TRIES_S = 30.0
"""A release that nobody hears is given up after this: the lease ends by itself."""


class ReadState(StrEnum):
    """`loading`: all bytes are verified and the lease is given back, but training does not run yet."""

    IDLE = "idle"
    WAITING = "waiting"
    READING = "reading"
    LOADING = "loading"


class ReadWait(StrEnum):
    """What a restore waits for of which the coordinator has said nothing."""

    FIRST_ANSWER = "first_answer"
    ROOM = "room"
    DELAY = "delay"
    OWN_SAVE = "own_save"


_S = ReadState


class Reading:
    """One per attempt. `local`: there is no coordinator. `delay_s`: how long silence is waited out before reading."""

    def __init__(self, *, local: bool, delay_s: float) -> None:
        self.state = _S.IDLE
        self.governance = Governance.LOCAL if local else Governance.LEASE
        self.num_bytes = 0
        self.num_ungoverned = 0
        """Restores that were read, or read to their end, without the right to."""
        self.owed: Fence | None = None
        """The lease that is to be given back."""
        self._local = local
        self._delay_s = delay_s
        self._lease_clock = LeaseClock()
        self._wanted_s = 0.0
        self._retry_at_s = 0.0
        self._release_by_s = 0.0
        self._silent_since_s: float | None = None
        self._heard = False
        self._is_counted = False
        self._told: WaitReason | RateReason | None = None

    # -- what training says ------------------------------------------------------------------------------------

    def begin(self, num_bytes: int, now_s: float) -> None:
        """Somebody wants to read so many bytes."""
        self.state, self.num_bytes, self._wanted_s = _S.WAITING, num_bytes, now_s
        self.governance = Governance.LOCAL if self._local else Governance.LEASE
        self._retry_at_s, self._told, self._is_counted = 0.0, None, False
        self.tick(now_s)

    def read_through(self, now_s: float) -> None:
        """Every byte was read: what follows needs no storage."""
        self._give_back(now_s)
        self.state = _S.LOADING

    def end(self, now_s: float) -> None:
        """The restore is over, one way or the other."""
        self._give_back(now_s)
        self.state = _S.IDLE

    def _give_back(self, now_s: float) -> None:
        if self.fence is not None:
            self._owe(self.fence, now_s)
        self._lease_clock.dropped()

    def _owe(self, fence: Fence, now_s: float) -> None:
        self.owed, self._release_by_s = fence, now_s + RELEASE_TRIES_S

    # -- what to do --------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """A restore is going on."""
        return self.state is not _S.IDLE

    @property
    def fence(self) -> Fence | None:
        """The fence of the lease that is held."""
        return self._lease_clock.fence

    def next_action(self, now_s: float) -> Action:
        """What to say now. Call `tick` first."""
        if self.owed is not None:
            return Action.RELEASE_READ
        if self.state is _S.WAITING and now_s >= self._retry_at_s:
            return Action.ASK_READ
        holds = self.state is _S.READING and self.governance is Governance.LEASE
        return Action.RENEW_READ if holds else Action.NOTHING

    def allowance(self, now_s: float) -> tuple[int | None, float | None]:
        """Bytes per second, and until when: None = unthrottled, or without end."""
        if self.state is not _S.READING:
            return 0, None
        if self.governance is not Governance.LEASE:
            return None, None
        held = self._lease_clock.allowance(now_s)
        return held.bytes_per_s, held.until_s

    def waits_for(self, now_s: float) -> WaitReason | RateReason | ReadWait | None:
        """Why nothing may be read now; None if something may, or nobody wants to."""
        if self.state not in (_S.WAITING, _S.READING) or self.allowance(now_s)[0] != 0:
            return None
        if self._silent_since_s is not None:
            return ReadWait.DELAY
        if not self._heard:
            return ReadWait.FIRST_ANSWER
        return self._told or ReadWait.ROOM

    def changes(self) -> tuple[float, ...]:
        """The times at which something changes by itself."""
        times = (self._retry_at_s, *self._lease_clock.changes())
        return (*times, self._unasked_at_s()) if self.state is _S.WAITING else times

    # -- time --------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        if self.owed is not None and now_s >= self._release_by_s:
            self.owed = None
        if self.state is _S.READING and self._lease_clock.lapsed(now_s):
            self._lapse(now_s)
        if self.state is _S.WAITING:
            self._consider_reading_unasked(now_s)

    def _lapse(self, now_s: float) -> None:
        """Read nothing, ask again."""
        self._lease_clock.dropped()
        self.state, self.governance = _S.WAITING, Governance.LEASE
        self._wanted_s, self._told = now_s, None

    def _consider_reading_unasked(self, now_s: float) -> None:
        if self._local:
            self.state = _S.READING
        elif now_s >= self._unasked_at_s():
            self.state, self.governance = _S.READING, Governance.UNGOVERNED
            self.num_ungoverned += not self._is_counted
            self._is_counted = True

    def _unasked_at_s(self) -> float:
        """The drawn delay counts from when it wanted to read, or from when answers ended to come if that is later."""
        if self._silent_since_s is None:
            return math.inf
        return max(self._wanted_s, self._silent_since_s) + self._delay_s

    # -- what the coordinator says -----------------------------------------------------------------------------

    def heard(self, now_s: float) -> None:
        """Somebody answers, whatever it was: from here nothing but a lease counts."""
        self._silent_since_s, self._heard = None, True
        if self.state is _S.READING and self.governance is Governance.UNGOVERNED:
            self._retry_at_s = 0.0
            self._lapse(now_s)

    def unheard(self, now_s: float) -> None:
        """Nobody answers. One that never did was away before anybody wanted to read."""
        if self._silent_since_s is None:
            self._silent_since_s = now_s if self._heard else -math.inf

    def answered(self, answer: AnyAnswer, first_sent_s: float, now_s: float) -> None:
        """Apply the answer to one of this restore's requests; call `heard` first."""
        if isinstance(answer, Grant):
            self._granted(answer, first_sent_s, now_s)
        elif isinstance(answer, Gone) and self.state is _S.READING:
            self._lapse(now_s)
        elif isinstance(answer, Wait):
            self._retry_at_s, self._told = now_s + answer.retry_after_s, answer.reason

    def _granted(self, grant: Grant, first_sent_s: float, now_s: float) -> None:
        if self.state not in (_S.WAITING, _S.READING):
            self._owe(grant.fence, now_s)  # it was over before the grant came: that is given back
            return
        self._lease_clock.granted(grant, first_sent_s)
        self.state, self.governance = _S.READING, Governance.LEASE
        self._told = grant.reason

    def released(self) -> None:
        """What was owed is given back."""
        self.owed = None
