"""A world on a manual clock: time, a network, a storage for each direction, and the real ledger.

Things happen in the order of their times, and at one time in the order in which they were arranged; nothing happens by
itself. Whoever wants to measure adds a watcher: between two events nothing changes, so sums over time are exact.
"""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from rampmeter.core.messages import AnyAnswer, Kind, Request
from rampmeter_coordinator.model.commands import Command, Disconnected, Refusal, Tick
from rampmeter_coordinator.model.ledger import Ledger, decide
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.sim.storage import Storage

START_S = 1000.0

Watcher = Callable[[float, float], None]
"""Called with (from_s, to_s) after a time in which nothing changed."""


class Speaker(Protocol):
    """An attempt of a job: polled when time has passed for it, hears the answers to what it sent."""

    wake_s: float
    """When it wants to be polled next; kept by the world."""

    def poll(self) -> None: ...

    def hear(self, seq: int, body: AnyAnswer | Refusal) -> None: ...


class World:
    """`run_until` some time, then look. `delay_s` is one way between a job and the coordinator."""

    def __init__(
        self,
        config: PoolConfig,
        *,
        seed: int,
        true_bytes_per_s: float | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """`true_bytes_per_s` is what the storage carries in each direction; the configured capacity if left out."""
        carries = float(config.capacity_bytes_per_s if true_bytes_per_s is None else true_bytes_per_s)
        self.config = config
        self.now_s = START_S
        self.num_events = 0
        self.ledger = Ledger.new(config, epoch=1, seed=seed, grace_until_s=0.0)
        self.storages = {kind: Storage(carries, START_S) for kind in Kind}
        self.watchers: list[Watcher] = []
        self._delay_s = delay_s
        self._queue: list[tuple[float, int, Callable[[], None] | Speaker]] = []
        self._at_once: deque[Callable[[], None]] = deque()
        self._order = itertools.count()
        self._open: dict[tuple[str, int, int], Speaker] = {}
        self._tick_s = math.inf
        self._ends_s = math.inf

    # -- time --------------------------------------------------------------------------------------------------

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Have something happen."""
        if at_s <= self.now_s:
            self._at_once.append(happen)
        else:
            heapq.heappush(self._queue, (at_s, next(self._order), happen))

    def wake(self, speaker: Speaker, at_s: float) -> None:
        """Poll it at `at_s`, and not at the time that was arranged before."""
        at_s = max(at_s, self.now_s)
        if at_s != speaker.wake_s:
            speaker.wake_s = at_s
            heapq.heappush(self._queue, (at_s, next(self._order), speaker))

    def run_until(self, end_s: float) -> None:
        """Let time pass; `end_s` counts from the start of the world."""
        end_s += START_S
        self._settle()
        while self._queue and self._queue[0][0] <= end_s:
            at_s, _, happen = heapq.heappop(self._queue)
            if callable(happen):
                self._pass(at_s)
                happen()
            elif happen.wake_s != at_s:
                continue
            else:
                self._pass(at_s)
                happen.wake_s = math.inf
                happen.poll()
            self._settle()
        self._pass(end_s)

    def _pass(self, at_s: float) -> None:
        self.num_events += 1
        if at_s > self.now_s:
            for watch in self.watchers:
                watch(self.now_s, at_s)
            self.now_s = at_s

    def _settle(self) -> None:
        """What happens at once, until nothing more does; then the storages share anew."""
        while self._at_once:
            self._at_once.popleft()()
        if any(storage.changed for storage in self.storages.values()):
            self._share()

    def _share(self) -> None:
        for storage in self.storages.values():
            if storage.changed:
                storage.advance(self.now_s)
                storage.share()
        ends_s = max(self.now_s, min(storage.next_end_s() for storage in self.storages.values()))
        if ends_s != self._ends_s and ends_s < math.inf:
            heapq.heappush(self._queue, (ends_s, next(self._order), lambda: self._streams_end(ends_s)))
        self._ends_s = ends_s

    def _streams_end(self, at_s: float) -> None:
        if at_s != self._ends_s:
            return
        self._ends_s = math.inf
        for storage in self.storages.values():
            storage.advance(at_s)
            storage.changed = True
            for stream in [stream for stream in storage.streams if stream.is_done]:
                storage.close(stream, at_s)
                if stream.on_end is not None:
                    self.at(at_s, stream.on_end)

    # -- network -----------------------------------------------------------------------------------------------

    def send(self, speaker: Speaker, request: Request) -> None:
        """Carry a request to the ledger, and its answer back whenever that comes."""
        self._open[request.job_uid, request.attempt, request.seq] = speaker
        self.at(self.now_s + self._delay_s, lambda: self.apply(request))

    def hang_up(self, request: Request) -> None:
        """The client waits no more for this answer, or has died: its connection is closed."""
        if self._open.pop((request.job_uid, request.attempt, request.seq), None) is not None:
            gone = Disconnected(job_uid=request.job_uid, attempt=request.attempt, seq=request.seq)
            self.at(self.now_s + self._delay_s, lambda: self.apply(gone))

    def apply(self, command: Command) -> None:
        """The ledger decides; its replies go out, and it is woken when it wants to be."""
        for reply in decide(self.ledger, command, self.now_s):
            speaker = self._open.pop((reply.job_uid, reply.attempt, reply.seq), None)
            if speaker is not None:
                self.at(
                    self.now_s + self._delay_s,
                    lambda speaker=speaker, reply=reply: speaker.hear(reply.seq, reply.body),  # type: ignore[misc]
                )
        wake_s = self.ledger.wake_at_s()
        if wake_s is not None and wake_s < self._tick_s:
            self._tick_s = max(wake_s, self.now_s)
            self.at(self._tick_s, lambda at_s=self._tick_s: self._tick(at_s))  # type: ignore[misc]

    def _tick(self, at_s: float) -> None:
        if at_s == self._tick_s:
            self._tick_s = math.inf
            self.apply(Tick())
