"""One pool at work: collect commands, decide, keep the batch, then reply. Never a reply before its commit.

Everything of a pool happens here in one task, so that the ledger needs no lock. While a batch is being kept, the next
one collects. A batch that the store did not confirm stays as it is and is sent again before anything new is decided:
memory is never ahead of the store by more than one batch, and everybody is told 503 meanwhile.

The one thing that is not decided here is the price of a pool: a question for it goes to a thread, one at a time, and
its answer comes back as a command.
"""

import asyncio
import logging
import random
from dataclasses import dataclass

from rampmeter.core.clock import Clock
from rampmeter.core.messages import RefusalReason, Request
from rampmeter_coordinator.codec import encode_command, encode_replies
from rampmeter_coordinator.errors import Fenced, LostCommits, Refused, StoreUnavailable
from rampmeter_coordinator.model.commands import Command, Disconnected, Refusal, Reply, Tick
from rampmeter_coordinator.model.encoding import encode
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.pricing import Question
from rampmeter_coordinator.model.validating import BrokenInvariant
from rampmeter_coordinator.opening import OpenPool, Reopen
from rampmeter_coordinator.store.protocol import Batch, LogRow, Store
from rampmeter_coordinator.waiters import Key, Waiters, Waiting, key_of

MAX_INBOX = 4096
_MAX_QUIET_ROWS = 100
_RETRY_S = 0.5
_NAP_S = 5.0
"""The longest sleep: the loop's timers stand still while the machine is suspended, the ledger's clock does not."""

Replies = list[tuple[Reply, bytes]]
"""Replies of one batch, each with its body as JSON."""

_TICK = (Tick(), encode_command(Tick()))

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a runner has seen: requests that wait now, commits not confirmed, requests refused for lack of room, and
    checks of the ledger that found a contradiction.
    """

    num_held: int
    num_store_errors: int
    num_overloaded: int
    num_broken: int


class PoolRunner:
    """The ledger of one pool, its inbox, and everybody who waits for its answers."""

    def __init__(
        self, opened: OpenPool, store: Store, clock: Clock, *, reopen: Reopen, max_inbox: int = MAX_INBOX
    ) -> None:
        self.opened = opened
        self.fenced = False
        self._num_store_errors = 0
        self._num_overloaded = 0
        self._num_broken = 0
        self._checked_s = clock.now()
        self._store = store
        self._clock = clock
        self._reopen = reopen
        self._max_inbox = max_inbox
        self._inbox: list[tuple[Command, bytes]] = []
        """Commands, and each as it will be logged."""
        self._waiters = Waiters(self._gone)
        self._probes: list[asyncio.Future[None]] = []
        self._pending: Batch | None = None
        """What was decided and is not known to be kept."""
        self._quiet_rows: list[LogRow] = []
        """Ticks that changed no record: not worth a commit, but the next one logs them, for a replay needs them."""
        self._store_ok = True
        self._draining = False
        self._deposed = False
        self._pricing: asyncio.Task[None] | None = None
        """A question for the price that is being answered."""
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._random = random.Random(opened.head.epoch)
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"pool {opened.config.name}")
        self._task.add_done_callback(self._ended)

    @property
    def counters(self) -> Counters:
        """The figures of this moment."""
        return Counters(
            num_held=len(self._waiters),
            num_store_errors=self._num_store_errors,
            num_overloaded=self._num_overloaded,
            num_broken=self._num_broken,
        )

    def submit(self, request: Request, body: bytes | bytearray = b"") -> Waiting:
        """Hand in a request. Await the answer, or cancel if the client has gone. Raises Refused at once or later.

        `body`: what it was decoded from, if it was.
        """
        if self._draining or self._deposed or self.fenced or not self._store_ok:
            raise self._unavailable()
        if len(self._inbox) >= self._max_inbox:
            self._num_overloaded += 1
            raise self._refused(
                RefusalReason.OVERLOADED, "too many requests wait for a decision; try again later"
            )
        waiting = self._waiters.add(request)
        self._put(request, body)
        return waiting

    async def probe(self) -> None:
        """Return when a commit has gone through, made for this purpose. Raises Refused or StoreUnavailable."""
        if self._draining or self._deposed or self.fenced:
            raise self._unavailable()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._probes.append(future)
        self._wake.set()
        await future

    async def close(self, limit_s: float) -> None:
        """Stop taking requests, keep what was decided, answer everybody who still waits. Takes `limit_s` at most."""
        self._draining = True
        self._wake.set()
        await asyncio.wait({self._task}, timeout=limit_s)
        self._stop()

    def depose(self) -> None:
        """Stop at once: another coordinator may lead. What is not known to be kept is never answered."""
        self._deposed = True
        self._stop()

    def _stop(self) -> None:
        self._task.cancel()
        if self._pricing is not None:
            self._pricing.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._refuse_everybody()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A pool whose task has ended although nobody wanted that must not go on silently: it is opened again."""
        if self._draining or self._deposed or self.fenced:
            return
        error = "cancelled" if task.cancelled() else task.exception()
        log.critical("pool %s: its task has ended: %r", self.opened.config.name, error)
        self.fenced = True
        self._refuse_everybody()

    async def _run(self) -> None:
        while not self.fenced:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._turn()
            except Exception:
                log.exception("pool %s: unexpected error", self.opened.config.name)
                self._refuse_everybody()
            if self._draining and not self._inbox:
                return
            self._ask_for_price()
            self._arm_timer()

    async def _turn(self) -> None:
        if self._pending is not None:
            await self._keep(self._pending, [])
            return
        commands = self._take_inbox()
        if not commands and not self._probes:
            return
        batch, replies = self._decide(commands)
        if batch is not None:
            await self._keep(batch, replies)

    def _ask_for_price(self) -> None:
        if self._pricing is None:
            question = self.opened.ledger.take_question(self._clock.now())
            if question is not None:
                answering = self._answer(question, self.opened.ledger)
                self._pricing = asyncio.get_running_loop().create_task(answering)

    async def _answer(self, question: Question, ledger: Ledger) -> None:
        """Solve beside the loop: with very many jobs that takes long enough to be felt by those who wait."""
        try:
            priced = await asyncio.to_thread(question.answer)
        except Exception:
            log.exception("pool %s: the price could not be worked out", self.opened.config.name)
        else:
            if priced is not None and ledger is self.opened.ledger:
                self._put(priced)
        finally:
            self._pricing = None

    def _take_inbox(self) -> list[tuple[Command, bytes]]:
        commands, self._inbox = self._inbox, []
        wake_at_s = self.opened.ledger.wake_at_s()
        if wake_at_s is not None and wake_at_s <= self._clock.now():
            commands.insert(0, _TICK)
        return commands

    def _decide(self, commands: list[tuple[Command, bytes]]) -> tuple[Batch | None, Replies]:
        now_s = self._clock.now()
        replies: Replies = []
        rows = []
        for command, logged in commands:
            said = [(reply, encode(reply.body)) for reply in self._apply(command, now_s)]
            replies += said
            rows.append(LogRow(now_s=now_s, command=logged, replies=encode_replies(said)))
        self._check(now_s)
        changes = self.opened.ledger.take_changes()
        unchanged = not changes.records and changes.meta == self.opened.meta
        only_ticks = all(item is _TICK for item in commands)
        rows = self._quiet_rows + rows
        if unchanged and only_ticks and not replies and not self._probes and len(rows) < _MAX_QUIET_ROWS:
            self._quiet_rows = rows
            return None, []
        self._quiet_rows = []
        return self.opened.batch(changes, tuple(rows), now_s), replies

    def _check(self, now_s: float) -> None:
        """By sample, where the operator wishes it: a pool that contradicts itself goes on, and is told of loudly."""
        every_s = self.opened.config.check_every_s
        if every_s is None or now_s < self._checked_s + every_s:
            return
        self._checked_s = now_s
        try:
            self.opened.ledger.validate(now_s)
        except BrokenInvariant as error:
            self._num_broken += 1
            log.critical("%s; please report this, with the log of decisions", error)

    def _apply(self, command: Command, now_s: float) -> tuple[Reply, ...]:
        try:
            return self.opened.ledger.apply(command, now_s)
        except Exception:
            log.exception("pool %s: %s failed", self.opened.config.name, type(command).__name__)
            if isinstance(command, Request):
                refused = Refused(
                    Refusal(reason=RefusalReason.INTERNAL, status=500, detail="an internal error")
                )
                self._waiters.refuse(key_of(command), refused)
            return ()

    async def _keep(self, batch: Batch, replies: Replies) -> None:
        self._pending = batch
        try:
            await self._store.commit(batch)
        except StoreUnavailable as error:
            self._not_kept(batch, replies, error)
        except Fenced as error:
            self.fenced = True
            log.error("%s; this coordinator no longer serves the pool", error)  # noqa: TRY400
            self._refuse_everybody()
        except LostCommits as error:
            log.error("%s; loading the pool again, with grace", error)  # noqa: TRY400
            await self._load_again()
        else:
            self._kept(batch, replies)

    def _kept(self, batch: Batch, replies: Replies) -> None:
        if not self._store_ok:
            log.warning("pool %s: the store keeps commits again", batch.pool)
        self._pending, self._store_ok = None, True
        self.opened = self.opened.after(batch)
        for reply, raw in replies:
            self._waiters.answer(reply, raw)
        for probe in self._take_probes():
            probe.set_result(None)

    def _not_kept(self, batch: Batch, replies: Replies, error: StoreUnavailable) -> None:
        if self._store_ok:
            log.error("pool %s: the store keeps no commits: %s", batch.pool, error)
        self._num_store_errors += 1
        self._store_ok = False
        for reply, _ in replies:
            self._waiters.refuse(key_of(reply), self._unavailable())
        for command, _ in self._inbox:
            if isinstance(command, Request):
                self._waiters.refuse(key_of(command), self._unavailable())
        self._inbox = [item for item in self._inbox if not isinstance(item[0], Request)]
        for probe in self._take_probes():
            probe.set_exception(error)

    async def _load_again(self) -> None:
        self._refuse_everybody()
        try:
            self.opened = await self._reopen(self.opened)
        except StoreUnavailable:
            # The pending batch will meet the same store again, and with it the same verdict.
            self._num_store_errors += 1
            self._store_ok = False
        else:
            self._pending, self._store_ok = None, True
            self._quiet_rows = []

    def _refuse_everybody(self) -> None:
        self._inbox.clear()
        self._waiters.refuse_all(self._unavailable)
        for probe in self._take_probes():
            probe.set_exception(self._unavailable())

    def _take_probes(self) -> list[asyncio.Future[None]]:
        probes, self._probes = self._probes, []
        return [probe for probe in probes if not probe.done()]

    def _unavailable(self) -> Refused:
        if self._draining:
            return self._refused(RefusalReason.DRAINING, "this coordinator is shutting down")
        if self._deposed:
            return self._refused(RefusalReason.NO_LEADER, "this coordinator leads no more")
        if self.fenced:
            return self._refused(RefusalReason.REPLACED, "another coordinator serves this pool now")
        return self._refused(RefusalReason.STORE_UNAVAILABLE, "the store keeps no commits at the moment")

    def _refused(self, reason: RefusalReason, detail: str) -> Refused:
        # Spread over some seconds: whoever is refused together must not come back together.
        return Refused(
            Refusal(reason=reason, status=503, detail=detail), retry_after_s=self._random.randint(1, 5)
        )

    def _gone(self, key: Key) -> None:
        job_uid, attempt, seq = key
        if not self._draining and not self._deposed:
            self._put(Disconnected(job_uid=job_uid, attempt=attempt, seq=seq))

    def _put(self, command: Command, body: bytes | bytearray = b"") -> None:
        self._inbox.append((command, encode_command(command, body)))
        self._wake.set()

    def _arm_timer(self) -> None:
        """Wake up when the ledger wants it. An earlier timer stays: waking up for nothing costs less than a new one."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + self._nap_s()
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._timer = None  # not told by its time: a loop may ring a moment before it
        self._wake.set()

    def _nap_s(self) -> float:
        if self._pending is not None:
            return _RETRY_S
        wake_at_s = self.opened.ledger.wake_at_s()
        if wake_at_s is None:
            return _NAP_S
        return min(max(wake_at_s - self._clock.now(), 0.001), _NAP_S)
