"""The agent's own thread: keeps the conversation with the coordinator going.

One request is in flight at a time; when something more pressing is to be said, the one that the coordinator holds is
dropped and superseded. A request that was not answered is sent again unchanged, so that it is handled once; an urgent
one is worded anew, because its deadline has come nearer. Nothing that happens here reaches training as an exception,
and nothing that fails here ends the conversation.
"""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rampmeter.aside import aside
from rampmeter.client import Client
from rampmeter.core.errors import (
    CoordinatorUnavailable,
    ProtocolError,
    RampmeterError,
    RequestRefused,
    StaleAttempt,
)
from rampmeter.core.messages import AnyAnswer, EndReason, Plan, RefusalReason, Request, SlotRequest
from rampmeter.core.pacer import Action
from rampmeter.desk import Desk
from rampmeter.layout import Claim

_log = logging.getLogger("rampmeter")

THREAD_NAME = "rampmeter-keeper"
_FIRST_BACKOFF_S = 0.5
_LONGEST_BACKOFF_S = 15.0
_LONGEST_BACKOFF_WITH_LEASE_S = 0.5
"""Who holds a lease keeps others waiting, or waits itself with a snapshot in hand. Only a few do at any time."""

_LONGEST_NAP_S = 60.0
_SHORTEST_NAP_S = 0.001
_LONGEST_PAUSE_S = 5.0
"""After something of ours or a look into the root has failed: well below a lease, and no busy loop."""

_FORGET_S = 1.0
_FAREWELL_S = 2.0
"""What saying goodbye may take at the end of the job."""

_HELD = frozenset({Action.ASK, Action.RENEW, Action.ASK_READ, Action.RENEW_READ, Action.RENEW_REREAD})
_OF_A_LEASE = frozenset(
    {
        Action.READY,
        Action.RENEW,
        Action.RELEASE,
        Action.RENEW_READ,
        Action.RELEASE_READ,
        Action.RENEW_REREAD,
        Action.RELEASE_REREAD,
    }
)
_PRESSING = _OF_A_LEASE | {Action.ASK, Action.ASK_READ}
"""A held request is dropped for any other of these; all other requests are answered at once anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    """A request that was sent: the action that it stands for, and when it was first sent."""

    action: Action
    request: Request
    first_sent_s: float


class Keeper:
    """Runs from `start` to `close`. `is_fenced` and `reclaim` look into the root and may block."""

    def __init__(
        self,
        *,
        url: str | None,
        pool: str,
        rng: random.Random,
        is_fenced: Callable[[], bool],
        reclaim: Callable[[int], Claim],
        on_plan: Callable[[Plan | None], None],
    ) -> None:
        self._url = url
        self._pool = pool
        self._rng = rng
        self._is_fenced = is_fenced
        self._reclaim = reclaim
        self._on_plan = on_plan
        self._num_failures = 0
        self._last_trouble = ""
        self._unanswered: _InFlight | None = None
        self._closing = False
        self._end_reason = EndReason.FINISHED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name=THREAD_NAME, daemon=True)

    def start(self, desk: Desk) -> None:
        """Start the thread that speaks for `desk`."""
        self._desk = desk
        logging.getLogger("httpx").addFilter(_is_not_ours)
        self._thread.start()

    def close(self, limit_s: float, reason: EndReason) -> None:
        """Say goodbye, as far as that works within `limit_s`, and end the thread."""
        self._end_reason = reason
        self._closing = True
        self.poke()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def poke(self) -> None:
        """Something happened: look again. From any thread."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._wake.set)

    # -- the thread --------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception:
            _log.exception("the agent's own thread has ended; nothing more will be saved")

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._url is None:
            await self._converse(None)
            return
        try:
            async with Client(self._url, self._pool) as client:
                await self._converse(client)
                await self._farewell(client)
        except Exception as error:
            _log.exception("the conversation with the coordinator has ended")
            self._desk.not_answered(_LONGEST_NAP_S, str(error))
            # Time goes on: a restore that waits for an answer does not wait for ever.
            await self._converse(None)

    async def _converse(self, client: Client | None) -> None:
        while not self._closing and not self._desk.stopped:
            try:
                await self._take_turn(client)
            except Exception as error:
                self._note_trouble(error)
                await self._nap(self._jittered(_LONGEST_PAUSE_S))

    async def _take_turn(self, client: Client | None) -> None:
        self._wake.clear()
        action = self._desk.advance()
        if client is None or action is Action.NOTHING:
            await self._nap(self._nap_s())
        else:
            await self._say(client, action)
        await self._check_claim()

    def _note_trouble(self, error: Exception) -> None:
        """Say it once: what goes on failing is tried every few seconds."""
        trouble = f"{type(error).__name__}: {error}"
        if trouble == self._last_trouble:
            return
        self._last_trouble = trouble
        if isinstance(error, OSError):
            _log.warning("the root cannot be used, trying again: %s", error)
        else:
            _log.error("unexpected error beside training, trying again", exc_info=error)

    async def _nap(self, limit_s: float) -> None:
        """Sleep until something happens, or `limit_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    def _nap_s(self) -> float:
        return min(max(_SHORTEST_NAP_S, self._desk.wake_in()), _LONGEST_NAP_S)

    async def _check_claim(self) -> None:
        if not self._desk.claim_check_is_due():
            return
        if await aside(self._is_fenced):
            self._desk.stop("a newer attempt has claimed the root")
        else:
            self._desk.claim_checked()

    # -- one request -------------------------------------------------------------------------------------------

    async def _say(self, client: Client, action: Action) -> None:
        flight = self._unanswered
        if flight is None or flight.action is not action or _is_urgent(flight.request):
            request, now_s = self._desk.word(action)
            flight = self._unanswered = _InFlight(action=action, request=request, first_sent_s=now_s)
        exchange = asyncio.ensure_future(client.exchange(flight.request))
        try:
            is_answered = await self._watch(exchange, flight)
        finally:
            exchange.cancel()
            await asyncio.wait({exchange})
        if is_answered:
            await self._conclude(exchange, flight)
        else:
            self._unanswered = None  # its number is spent: whatever is said next supersedes it

    async def _watch(self, exchange: "asyncio.Future[AnyAnswer]", flight: _InFlight) -> bool:
        """Wait for the answer; False if the request was dropped for something more pressing."""
        while not exchange.done():
            self._wake.clear()
            action = self._desk.advance()
            other = action is not flight.action or self._desk.has_become_urgent(flight.request)
            if self._closing or self._desk.stopped or (other and _gives_way(flight.action, action)):
                return False
            await self._check_claim()
            waker = asyncio.ensure_future(self._wake.wait())
            either: set[asyncio.Future[Any]] = {exchange, waker}
            await asyncio.wait(either, timeout=self._nap_s(), return_when=asyncio.FIRST_COMPLETED)
            waker.cancel()
        return True

    async def _conclude(self, exchange: "asyncio.Future[AnyAnswer]", flight: _InFlight) -> None:
        try:
            answer = exchange.result()
        except CoordinatorUnavailable as error:
            self._desk.not_answered(self._backoff(flight.action, error.retry_after_s), str(error))
            self._num_failures += 1
            return
        except RampmeterError as error:
            self._unanswered = None
            await self._refused(error)
            return
        self._unanswered, self._num_failures = None, 0
        self._desk.answered(flight.action, answer, flight.first_sent_s)
        if answer.plan is not None:
            await aside(self._on_plan, answer.plan)

    async def _refused(self, error: RampmeterError) -> None:
        if isinstance(error, StaleAttempt):
            await self._stale(error)
        elif isinstance(error, RequestRefused) and error.reason == RefusalReason.UNKNOWN_JOB:
            self._desk.forgotten()
        elif isinstance(error, RequestRefused) and error.reason in _OVERTAKEN:
            pass  # a newer request of ours has taken its place; there is nothing to repeat
        else:
            assert isinstance(error, RequestRefused | ProtocolError)
            self._desk.not_answered(self._jittered(_LONGEST_BACKOFF_S), str(error))

    async def _stale(self, error: StaleAttempt) -> None:
        """The root is the authority: stop if it has a newer claim, else claim above what the coordinator knows."""
        if await aside(self._is_fenced):
            self._desk.stop(str(error))
        else:
            self._desk.forgotten(await aside(self._reclaim, error.stored_attempt + 1))

    def _backoff(self, action: Action, retry_after_s: float | None) -> float:
        """Seconds until the next try. Jitter after the cap: a crowd does not come back in the same second."""
        if retry_after_s is not None:
            return retry_after_s * (1.0 + 0.5 * self._rng.random())
        if self._num_failures == 0:  # perhaps the server was just closing the connection: once more at once
            return 0.05 * self._rng.random()
        longest_s = _LONGEST_BACKOFF_WITH_LEASE_S if action in _OF_A_LEASE else _LONGEST_BACKOFF_S
        return self._jittered(min(longest_s, _FIRST_BACKOFF_S * 2.0 ** min(self._num_failures, 10)))

    def _jittered(self, longest_s: float) -> float:
        return longest_s * (0.5 + 0.5 * self._rng.random())

    async def _farewell(self, client: Client) -> None:
        """Give back what is held and say goodbye; a coordinator that does not listen finds out by itself.

        Goodbye gives up the safe rate, so the plan is forgotten before it is said, and kept after all if nobody heard.
        """
        words, plan = self._desk.last_words(self._end_reason), self._desk.plan
        if words and not await self._forget_plan():
            words = words[:-1]
        try:
            async with asyncio.timeout(_FAREWELL_S):
                for request in words:
                    await client.exchange(request)
        except (RampmeterError, TimeoutError):
            if plan is not None:
                await aside(self._on_plan, plan)

    async def _forget_plan(self) -> bool:
        """False if storage hangs: then what the plan allows is not given up, but runs out."""
        try:
            async with asyncio.timeout(_FORGET_S):
                await aside(self._on_plan, None)
        except TimeoutError:
            return False
        return True


def _gives_way(in_flight: Action, action: Action) -> bool:
    """A held request is dropped for something more pressing, and one to read as soon as nobody wants that any more."""
    if in_flight is Action.ASK_REREAD:
        return action is not Action.HEARTBEAT
    return in_flight is Action.ASK_READ or (in_flight in _HELD and action in _PRESSING)


def _is_urgent(request: Request) -> bool:
    return isinstance(request, SlotRequest) and request.urgent


_OVERTAKEN = frozenset({RefusalReason.SUPERSEDED, RefusalReason.OLD_SEQ})


def _is_not_ours(record: logging.LogRecord) -> bool:
    """httpx logs every request at INFO; ours would drown a training log."""
    return record.threadName != THREAD_NAME
