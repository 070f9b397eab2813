"""What rank 0 does for all beside being a rank: looks at the posts, says what follows from them, and tells the rate.

The shell around `lead`. Runs in the thread of rank 0's team and under its lock; `propose`, `set_rate` and
`have_applied` may be called from any thread.
"""

import threading
from collections.abc import Callable

from rampmeter.core.clock import Clock
from rampmeter.ranks.bulletin import Bulletin
from rampmeter.ranks.counter import CallCounter
from rampmeter.ranks.lead import Lead
from rampmeter.ranks.liveness import BEAT_S, beat_s
from rampmeter.ranks.words import Beside, Event, Purpose, Word
from rampmeter.throttle import FlowCounters

_LONG_AGO_S = float("-inf")


class Conductor:
    """One per job, on rank 0. `hurry` has the thread look at once.

    `on_ready` is called once in each save, without the lock, with the bytes that all ranks are about to write.
    """

    def __init__(
        self,
        bulletin: Bulletin,
        *,
        num_ranks: int,
        counter: CallCounter,
        clock: Clock,
        changed: threading.Condition,
        hurry: Callable[[], None],
        on_ready: Callable[[int], None],
    ) -> None:
        self._bulletin = bulletin
        self._num_ranks = num_ranks
        self._clock = clock
        self._changed = changed
        self._hurry = hurry
        self._on_ready = on_ready
        self._told_ready = 0  # number of the save
        self._beat_s = beat_s(num_ranks)
        self._lead = Lead(num_ranks, counter, clock.now())
        self._proposed: Event | None = None
        self._rate: tuple[int, int | None, float | None] = (0, 0, None)  # version, bytes per second, until
        self._max_streams: int | None = None
        self._said: tuple[int, int, int | None, int] | None = None
        self._said_s = self._gathered_s = _LONG_AGO_S
        self._num_news = 0
        self._beat = 0

    # -- for the rest of rank 0's agent ------------------------------------------------------------------------

    def propose(self, purpose: Purpose, detail: str, *, num_calls_ahead: int, num_calls_late: int) -> bool:
        """Propose to all ranks to do this so many calls ahead. False while another proposal is open."""
        with self._changed:
            event = self._lead.propose(
                purpose, detail, num_calls_ahead=num_calls_ahead, num_calls_late=num_calls_late
            )
            self._proposed = event or self._proposed
        self._hurry()
        return event is not None

    def set_rate(self, bytes_per_s: int | None, until_s: float | None) -> int:
        """What the job may write from now on; the version by which `have_applied` knows it."""
        with self._changed:
            version = self._rate[0] + 1
            self._rate = (version, bytes_per_s, until_s)
        self._hurry()
        return version

    def have_applied(self, version: int) -> bool:
        """Whether the writers of all ranks follow that rate or a newer one. A lowering may be confirmed only then."""
        with self._changed:
            gathering = self._lead.gathering
            return gathering is None or gathering.is_over or gathering.have_applied(version)

    @property
    def beside(self) -> dict[int, Beside]:
        """What each rank has told of a process that writes for it."""
        with self._changed:
            return self._lead.beside

    @property
    def total_bytes(self) -> int | None:
        """What all ranks write in the newest save; None until each is ready. The job is ready when this is known."""
        with self._changed:
            return None if self._lead.gathering is None else self._lead.gathering.total_bytes

    def counters(self) -> FlowCounters | None:
        """The flow of the whole job in the newest save, as far as the ranks have told."""
        with self._changed:
            return None if self._lead.gathering is None else self._lead.gathering.counters()

    # -- for the team's thread, under its lock -----------------------------------------------------------------

    def begins(self, max_streams: int | None) -> None:
        """Rank 0 begins a save of at most so many writers; nobody writes before it has a rate of its own."""
        self._rate = (self._rate[0] + 1, 0, None)
        self._max_streams = None if max_streams is None or max_streams >= self._num_ranks else max_streams

    def heard(self, event: Event) -> None:
        """Read an event of the log."""
        self._lead.heard(event)

    @property
    def awaits_answers(self) -> bool:
        """A proposal has no verdict yet."""
        return self._lead.awaits_answers

    @property
    def all_have_left(self) -> bool:
        """Nobody but rank 0 needs the store any more."""
        return self._lead.all_have_left()

    def lag(self, step_s: float | None) -> str:
        """Which rank calls `step()` too seldom, in words; empty = none. `step_s` are between two calls of rank 0."""
        return self._lead.lag(step_s)

    @property
    def missing(self) -> str:
        """Which rank is heard no more, in words; empty = none."""
        return self._lead.missing()

    # -- the thread's turn, without its lock -------------------------------------------------------------------

    def conduct(self, now_s: float) -> bool:
        """Look, and say what follows. Whether the log has grown."""
        with self._changed:
            event, self._proposed = self._proposed, None
        if event is not None:
            self._bulletin.append(event)
        self._gather(now_s)
        with self._changed:
            events = self._lead.next_events()
        for event in events:
            self._bulletin.append(event)
        self._tell_ready()
        self._say_word(now_s)
        return event is not None or bool(events)

    def _gather(self, now_s: float) -> None:
        num_news = self._bulletin.num_news()
        if num_news == self._num_news and now_s < self._gathered_s + self._beat_s:
            return
        self._num_news, self._gathered_s = num_news, now_s
        posts = self._bulletin.posts(self._num_ranks)
        with self._changed:
            self._lead.posted(posts, self._clock.now())
            num_read = self._lead.num_read_by_all
        self._bulletin.erase_before(num_read)

    def _tell_ready(self) -> None:
        with self._changed:
            gathering = self._lead.gathering
            if gathering is None or gathering.number == self._told_ready or gathering.is_over:
                return
            total_bytes = gathering.total_bytes
        if total_bytes is not None:
            self._told_ready = gathering.number
            self._on_ready(total_bytes)

    def _say_word(self, now_s: float) -> None:
        """A word is worked out only after the one before it is in the store: a look at the news lies between them."""
        with self._changed:
            version, bytes_per_s, until_s = self._rate
            gathering = self._lead.gathering
            number = 0 if gathering is None else gathering.number
            total_bytes = None if gathering is None else gathering.total_bytes
            max_streams = self._max_streams
            turn = 0 if gathering is None or max_streams is None else gathering.turn(max_streams)
            missing = self._lead.missing()
        content = (number, version, total_bytes, turn)
        if content == self._said and now_s < self._said_s + BEAT_S:
            return
        self._said, self._said_s = content, now_s
        self._beat += 1
        word = Word(
            beat=self._beat,
            number=number,
            version=version,
            bytes_per_s=bytes_per_s,
            left_s=None if until_s is None else max(0.0, until_s - self._clock.now()),
            total_bytes=total_bytes,
            max_streams=max_streams,
            turn=turn,
            missing=missing,
        )
        self._bulletin.say(word)
