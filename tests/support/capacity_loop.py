"""A closed loop for capacity learning: simulated storage, writers that report, and the greedy fill of a ledger.

Small on purpose: answers arrive at once and the fill has no queue, so that what is seen is the learning alone.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from rampmeter_coordinator.model.capacity import Capacity
from rampmeter_coordinator.model.report import Report
from rampmeter_coordinator.sim.storage import Storage, Stream

GB = 10**9
STEP_S = 0.25
RENEWAL_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What is played: `truth` gives the storage's bytes/s at a time; `write_s` how long a write takes at its share."""

    truth: Callable[[float], float]
    num_writers: int
    ceiling_bytes_per_s: int = 400 * GB
    write_s: tuple[float, float] = (20.0, 120.0)
    lead_s: float = 12.0
    tail_s: float = 5.0
    cpu_bound_share: float = 0.15
    noise: float = 0.05
    declared: bool = True
    pipe_share: float = 1.2
    silent_bytes_per_s: int = 0
    num_jobs: int = 0  # that save again and again; 0 = every save is of a new job


@dataclass(slots=True, kw_only=True, eq=False)
class Writer:
    """One save: lead-in, bytes, tail. Holds a lease from its first byte to the end of its tail."""

    uid: str
    stream: Stream
    maximum: int | None
    ready_s: float
    leased: bool = False
    opened: bool = False
    ends_s: float | None = None
    granted: int = 0
    renew_s: float = 0.0
    told: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One step of what happened."""

    at_s: float
    truth: float
    cap: int
    granted: int
    written: float


class Loop:
    """Plays one scenario; `moments` is what an outside observer saw."""

    def __init__(self, play: Play, seed: int) -> None:
        self.play = play
        self.capacity = Capacity(play.ceiling_bytes_per_s)
        self.moments: list[Moment] = []
        self._rng = random.Random(seed)
        self._storage = Storage(play.truth(0.0), 0.0)
        self._writers: list[Writer] = []
        self._num_begun = 0

    def run(self, duration_s: float) -> list[Moment]:
        """Play from 0 on."""
        for step in range(int(duration_s / STEP_S)):
            self._step(step * STEP_S)
        return self.moments

    def _step(self, now_s: float) -> None:
        self._storage.set_capacity(self.play.truth(now_s), now_s)
        self._come_and_go(now_s)
        due = [writer for writer in self._writers if writer.leased and now_s >= writer.renew_s]
        for writer in due:
            self._renew(writer, now_s)
        self.capacity.passed(now_s, self._used(), self.play.silent_bytes_per_s)
        self._grant(now_s, due)
        self._storage.share()
        self.moments.append(
            Moment(
                at_s=now_s,
                truth=self._storage.capacity_bytes_per_s,
                cap=self.capacity.cap_bytes_per_s,
                granted=sum(w.granted for w in self._writers if w.opened and w.ends_s is None),
                written=self._storage.rate_bytes_per_s,
            )
        )

    def _used(self) -> int:
        return self.play.silent_bytes_per_s + sum(w.granted for w in self._writers if w.leased)

    # -- writers -----------------------------------------------------------------------------------------------

    def _come_and_go(self, now_s: float) -> None:
        for writer in list(self._writers):
            if writer.ends_s is None and writer.stream.is_done:
                self._storage.close(writer.stream, now_s)
                writer.ends_s = now_s + self.play.tail_s
            elif writer.ends_s is not None and now_s >= writer.ends_s:
                self._report(writer, now_s)
                self.capacity.left(writer.uid)
                self._writers.remove(writer)
        num_waiting = sum(1 for writer in self._writers if not writer.leased)
        for _ in range(self.play.num_writers // 4 + 2 - num_waiting):
            self._begin(now_s)

    def _begin(self, now_s: float) -> None:
        play, rng = self.play, self._rng
        self._num_begun += 1
        number = self._num_begun % play.num_jobs if play.num_jobs else self._num_begun
        rng = random.Random(number) if play.num_jobs else rng
        share = play.ceiling_bytes_per_s / play.num_writers
        pipe = share * play.pipe_share * rng.uniform(0.9, 1.1)
        stream = Stream(
            num_bytes=share * rng.uniform(*play.write_s),
            pipe_bytes_per_s=pipe,
        )
        if rng.random() < play.cpu_bound_share:
            stream.cpu_bytes_per_s = 0.3 * share
        first = now_s == 0.0
        self._writers.append(
            Writer(
                uid=f"job-{number}",
                stream=stream,
                maximum=int(share) if play.declared else None,
                ready_s=now_s + (rng.uniform(0.0, 5.0) if first else play.lead_s),
            )
        )

    def _renew(self, writer: Writer, now_s: float) -> None:
        """The next renewal goes out: with what was done since the last one."""
        self._report(writer, now_s)
        writer.renew_s = now_s + RENEWAL_S * self._rng.uniform(0.95, 1.0)

    def _report(self, writer: Writer, now_s: float) -> None:
        self._storage.advance(now_s)
        stream = writer.stream
        total = (stream.done_bytes, stream.throttled_s, stream.blocked_s, stream.busy_s)
        num_bytes, throttled_s, blocked_s, busy_s = (a - b for a, b in zip(total, writer.told, strict=True))
        noise = max(0.0, 1.0 + self._rng.gauss(0.0, self.play.noise))
        writer.told = total
        report = Report(
            bytes_per_s=writer.granted,
            num_bytes=int(num_bytes * noise),
            throttled_s=throttled_s,
            blocked_s=blocked_s,
            busy_s=busy_s,
        )
        self.capacity.reported(writer.uid, report, now_s)

    # -- the ledger's part ---------------------------------------------------------------------------------------

    def _grant(self, now_s: float, due: list[Writer]) -> None:
        """Leased writers in start order get what they want, then those whose first byte is in hand while room lasts."""
        rest = self.capacity.cap_bytes_per_s - self.play.silent_bytes_per_s
        targets: list[tuple[Writer, int]] = []
        ready = [w for w in self._writers if not w.leased and now_s >= w.ready_s]
        for writer in [w for w in self._writers if w.leased] + ready:
            wanted = self._wanted(writer)
            rate = max(0, min(wanted, rest))
            if rate < 0.1 * wanted and any(rate for _, rate in targets):
                rate = 0
            if rate == 0 and not writer.leased:
                break
            rest -= rate
            targets.append((writer, rate))
        for writer, rate in sorted(targets, key=lambda pair: pair[1] - pair[0].granted):
            worthwhile = rate >= writer.granted + 0.01 * self.play.ceiling_bytes_per_s
            if (
                rate < writer.granted
                or worthwhile
                or (rate > writer.granted and (writer in due or not writer.granted))
            ):
                self._answer(writer, rate, now_s)

    def _wanted(self, writer: Writer) -> int:
        cap = self.capacity.cap_bytes_per_s
        wanted = cap if writer.maximum is None else min(cap, writer.maximum)
        slow = self.capacity.slow_maximum(writer.uid)
        return wanted if slow is None else min(wanted, slow)

    def _answer(self, writer: Writer, rate: int, now_s: float) -> None:
        if not writer.leased:
            writer.leased, writer.opened = True, True
            self._storage.open(writer.stream, now_s)
        self._storage.allow(writer.stream, rate, now_s)
        self._renew(writer, now_s)
        writer.granted = rate
        self.capacity.granted(writer.uid, rate, now_s)
        self._report(writer, now_s)
