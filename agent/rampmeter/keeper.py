"""The agent's own thread: keeps the conversation with the coordinator going and carries rates to the writer.

Owns the pacer behind one lock; training and flush threads tell it what happened and never wait for the network. One
request is in flight at a time; when something more pressing is to be said, the one in flight is dropped and superseded.
Nothing that happens here reaches training as an exception.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rampmeter.client import Client
from rampmeter.core.clock import Clock
from rampmeter.core.errors import (
    CoordinatorUnavailable,
    ProtocolError,
    RampmeterError,
    RequestRefused,
    StaleAttempt,
)
from rampmeter.core.messages import AnyAnswer, EndReason, Fence, Plan, RefusalReason, Request
from rampmeter.core.pacer import Action, Governance, Pacer, PacerState
from rampmeter.events import CoordinatorHeard, Event, RateChanged, SaveEnded, StateChanged
from rampmeter.layout import Claim
from rampmeter.report import SaveReport
from rampmeter.speech import Speech
from rampmeter.throttle import Throttle

_log = logging.getLogger("rampmeter")

_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 15.0
_CLAIM_CHECK_S = 15.0
"""TTL / 2: how often a silent writer looks whether a newer attempt has claimed the root."""

_LONGEST_NAP_S = 60.0
_FAREWELL_S = 2.0
"""What saying goodbye may take at the end of the job."""

_HELD = frozenset({Action.ASK, Action.RENEW})
_PRESSING = frozenset({Action.ASK, Action.READY, Action.RENEW, Action.RELEASE})
"""A held request is dropped for any of these; all others are answered at once anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    """A request that was sent: the action that it stands for, and when it was first sent."""

    action: Action
    request: Request
    first_sent_s: float


class Keeper:
    """Runs from `start` to `close`. `speech` words the requests, `is_fenced` looks into the root for a newer claim."""

    def __init__(
        self,
        pacer: Pacer,
        speech: Speech,
        *,
        url: str | None,
        pool: str,
        clock: Clock,
        rng: random.Random,
        is_fenced: Callable[[], bool],
        on_event: Callable[[Event], None],
        on_plan: Callable[[Plan], None],
        reclaim: Callable[[int], Claim],
    ) -> None:
        self.wants_snapshot = False
        self.stopped = False
        self._pacer = pacer
        self._speech = speech
        self._url = url
        self._pool = pool
        self._clock = clock
        self._rng = rng
        self._is_fenced = is_fenced
        self._on_event = on_event
        self._on_plan = on_plan
        self._reclaim = reclaim
        self._end_reason = EndReason.FINISHED
        self._lock = threading.RLock()
        self._throttle: Throttle | None = None
        self._allowed: tuple[int | None, float | None] = (0, None)
        self._last_state = pacer.state
        self._reachable: bool | None = None
        self._failures = 0
        self._unanswered: _InFlight | None = None
        self._claim_checked_s = 0.0
        self._closing = False
        self._noticed = False
        self._hurried = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="rampmeter-keeper", daemon=True)

    # -- called by training and flush threads ------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, limit_s: float, reason: EndReason) -> None:
        """Say goodbye, as far as that works within `limit_s`, and end the thread."""
        self._end_reason = reason
        self._closing = True
        self._poke()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def begin_snapshot(self) -> Throttle | None:
        """Training is about to snapshot: the cell that will pace the flush, or None if it may not (any more)."""
        with self._lock:
            self._advance()
            if not self._pacer.wants_snapshot or self.stopped:
                return None
            self._pacer.begin_snapshot(self._clock.now())
            self._throttle, self._allowed = Throttle(clock=self._clock), (0, None)
            self._advance()
            return self._throttle

    def first_byte(self) -> None:
        """The flush holds its first byte and waits for a rate."""
        with self._lock:
            self._speech.note_first_byte(self._clock.now())
            self._pacer.first_byte_in_hand()
            self._advance()
        self._poke()

    def save_ended(self, report: SaveReport, own_period_s: Callable[[Speech], float]) -> None:
        """The flush has ended. `own_period_s` tells the job's own period from what was measured so far."""
        with self._lock:
            now_s = self._clock.now()
            snapshot_s = self._pacer.snapshot_s
            self._speech.note_report(report, now_s if snapshot_s is None else snapshot_s)
            self._emit_ended(report, now_s)
            self._pacer.set_own_period(own_period_s(self._speech))
            self._pacer.ended(now_s, committed=report.committed)
            self._throttle = None
            self._advance()
        self._poke()

    def restored(self, step: int) -> None:
        """Training goes on from a durable `step`."""
        with self._lock:
            self._speech.note_committed(step, self._clock.now())

    def size_known(self, num_bytes: int) -> None:
        """The cold-start figure for the bytes of a save: told to the coordinator by registering once more."""
        with self._lock:
            if self._speech.num_bytes is None:
                self._speech.num_bytes = num_bytes
                self._pacer.forgotten()
        self._poke()

    def notice(self) -> None:
        """The job is about to be ended: save as soon as possible. Safe in a signal handler: sets a flag only."""
        self._noticed = True
        self._poke()

    @property
    def fence(self) -> Fence | None:
        """The lease of the save in progress."""
        with self._lock:
            return self._pacer.lease_clock.fence

    @property
    def num_ungoverned(self) -> int:
        """Saves that were written without any right but the job's own."""
        return self._pacer.num_ungoverned

    # -- the thread --------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception:
            _log.exception("the keeper has stopped; saves go on ungoverned")
            with self._lock:
                self._pacer.unreachable(self._clock.now(), _LONGEST_BACKOFF_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._url is None:
            await self._converse(None)
            return
        async with Client(self._url, self._pool) as client:
            await self._converse(client)
            await self._farewell(client)

    async def _converse(self, client: Client | None) -> None:
        while not self._closing and not self.stopped:
            self._wake.clear()
            with self._lock:
                action = self._advance()
                wake_s = self._wake_at()
            if client is None or action is Action.NOTHING:
                await self._nap(wake_s)
            else:
                await self._say(client, action)
            await self._check_claim()

    def _advance(self) -> Action:
        """Let time pass for the pacer and carry what follows to training, to the flush and to whoever listens."""
        now_s = self._clock.now()
        if self._noticed and not self._hurried:
            self._hurried = True
            self._pacer.hurry(now_s)
        self._pacer.tick(now_s)
        state = self._pacer.state
        if state is not self._last_state:
            self._last_state = state
            if state is PacerState.ARMED:
                self._speech.note_armed(now_s)
            self._on_event(StateChanged(now_s=now_s, state=state))
        self.wants_snapshot = self._pacer.wants_snapshot and not self.stopped
        self._carry_rate(now_s)
        return self._pacer.next_action(now_s)

    def _carry_rate(self, now_s: float) -> None:
        """Tell the writer what it may use now, where that has changed."""
        if self._throttle is None:
            return
        governance = self._pacer.governance
        allowed: tuple[int | None, float | None] = (None, None)
        if governance in (Governance.LEASE, Governance.SAFE_RATE):
            allowance = self._pacer.lease_clock.allowance(now_s)
            allowed = (allowance.bytes_per_s, allowance.until_s)
        elif self._pacer.state is PacerState.WAITING:
            allowed = (0, None)
        if allowed != self._allowed:
            self._allowed = allowed
            self._throttle.set_rate(*allowed)
            self._on_event(
                RateChanged(now_s=now_s, bytes_per_s=allowed[0], until_s=allowed[1], governance=governance)
            )

    def _wake_at(self) -> float:
        wake_s = self._pacer.wake_at(self._clock.now())
        if self._pacer.governance is Governance.SAFE_RATE:
            wake_s = min(wake_s, self._claim_checked_s + _CLAIM_CHECK_S)
        return wake_s

    async def _nap(self, wake_s: float) -> None:
        """Sleep until something happens or is due."""
        timeout_s = min(max(0.001, wake_s - self._clock.now()), _LONGEST_NAP_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._wake.wait()

    def _poke(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake.set)

    async def _check_claim(self) -> None:
        """A silent writer reads the newest claim: nobody else can tell it that it was replaced."""
        with self._lock:
            now_s = self._clock.now()
            silent = self._pacer.governance is Governance.SAFE_RATE
            if not silent or now_s < self._claim_checked_s + _CLAIM_CHECK_S:
                return
            self._claim_checked_s = now_s
        if await asyncio.to_thread(self._is_fenced):
            self._stop("a newer attempt has claimed the root")

    def _stop(self, why: str) -> None:
        """This attempt is over: a newer one exists."""
        _log.error("this attempt of the job saves no more: %s", why)
        with self._lock:
            self.stopped, self.wants_snapshot = True, False
            if self._throttle is not None:
                self._throttle.abort("superseded")

    # -- one request -------------------------------------------------------------------------------------------

    async def _say(self, client: Client, action: Action) -> None:
        flight = self._unanswered
        if flight is None or flight.action is not action:
            with self._lock:
                now_s = self._clock.now()
                request = self._speech.word(action, self._pacer, self._throttle, now_s)
            flight = self._unanswered = _InFlight(action=action, request=request, first_sent_s=now_s)
        exchange = asyncio.ensure_future(client.exchange(flight.request))
        if await self._watch(exchange, flight):
            await self._conclude(exchange, flight)

    async def _watch(self, exchange: "asyncio.Future[AnyAnswer]", flight: _InFlight) -> bool:
        """Wait for the answer; False if something more pressing came up and the request was dropped."""
        while not exchange.done():
            self._wake.clear()
            with self._lock:
                action = self._advance()
                timeout_s = min(max(0.001, self._wake_at() - self._clock.now()), _LONGEST_NAP_S)
            if (
                self._closing
                or self.stopped
                or (flight.action in _HELD and action in _PRESSING - {flight.action})
            ):
                exchange.cancel()
                await asyncio.wait({exchange})
                self._unanswered = None  # its number is spent: whatever is said next supersedes it
                return False
            waker = asyncio.ensure_future(self._wake.wait())
            either: set[asyncio.Future[Any]] = {exchange, waker}
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            waker.cancel()
        return True

    async def _conclude(self, exchange: "asyncio.Future[AnyAnswer]", flight: _InFlight) -> None:
        try:
            answer = exchange.result()
        except CoordinatorUnavailable as error:
            self._not_answered(error, self._backoff(error.retry_after_s))
        except StaleAttempt as error:
            self._unanswered = None
            await self._stale(error)
        except RequestRefused as error:
            self._unanswered = None
            self._refused(error)
        except ProtocolError as error:
            self._unanswered = None
            self._not_answered(error, _LONGEST_BACKOFF_S)
        else:
            self._unanswered = None
            await self._apply(answer, flight)

    async def _apply(self, answer: AnyAnswer, flight: _InFlight) -> None:
        fence = getattr(answer, "fence", None)
        with self._lock:
            now_s = self._clock.now()
            self._speech.applied(answer.seq, fence.epoch if fence else 0)
            self._pacer.answered(answer, flight.first_sent_s, now_s)
            self._pacer.said(flight.action, now_s)
            self._failures = 0
            self._heard(reachable=True, detail="answers")
            self._advance()
        if answer.plan is not None:
            await asyncio.to_thread(self._on_plan, answer.plan)

    def _not_answered(self, error: RampmeterError, retry_after_s: float) -> None:
        with self._lock:
            self._failures += 1
            self._pacer.unreachable(self._clock.now(), retry_after_s)
            self._heard(reachable=False, detail=str(error))
            self._advance()

    def _refused(self, error: RequestRefused) -> None:
        if error.reason == RefusalReason.UNKNOWN_JOB:
            with self._lock:
                self._pacer.forgotten()
        elif error.reason not in (RefusalReason.SUPERSEDED, RefusalReason.OLD_SEQ):
            self._not_answered(error, _LONGEST_BACKOFF_S)

    async def _stale(self, error: StaleAttempt) -> None:
        """The root is the authority: stop if it has a newer claim, else claim above what the coordinator knows."""
        if await asyncio.to_thread(self._is_fenced):
            self._stop(str(error))
            return
        claim = await asyncio.to_thread(self._reclaim, error.stored_attempt + 1)
        with self._lock:
            self._speech.new_claim(claim)
            self._pacer.forgotten()

    def _backoff(self, retry_after_s: float | None) -> float:
        """Jitter after the cap, so that a crowd does not come back in the same second."""
        if retry_after_s is not None:
            return retry_after_s * (1.0 + 0.5 * self._rng.random())
        if self._failures == 0:  # a connection that the server was just closing: once more at once
            return 0.05 * self._rng.random()
        longest_s = min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(self._failures, 10))
        return longest_s * (0.5 + 0.5 * self._rng.random())

    def _heard(self, *, reachable: bool, detail: str) -> None:
        if reachable is self._reachable:
            return
        self._reachable = reachable
        log = _log.info if reachable else _log.warning
        log("coordinator %s: %s", "answers" if reachable else "does not answer", detail)
        self._on_event(CoordinatorHeard(now_s=self._clock.now(), reachable=reachable, detail=detail))

    def _emit_ended(self, report: SaveReport, now_s: float) -> None:
        self._on_event(
            SaveEnded(
                now_s=now_s,
                step=report.step,
                directory=report.directory,
                num_bytes=report.num_bytes,
                stall_s=report.stall_s,
                lead_s=report.lead_s,
                write_s=report.write_s,
                governance=self._pacer.governance,
                reason=report.reason,
            )
        )

    async def _farewell(self, client: Client) -> None:
        """Give back what is held and say goodbye; a coordinator that does not listen finds out by itself."""
        with contextlib.suppress(RampmeterError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                with self._lock:
                    if not self._pacer.registered:
                        return
                    now_s = self._clock.now()
                    last = self._pacer.next_action(now_s)
                    requests: list[Request] = []
                    if last is Action.RELEASE:
                        requests.append(self._speech.word(last, self._pacer, None, now_s))
                    requests.append(self._speech.farewell(self._end_reason))
                for request in requests:
                    await client.exchange(request)
