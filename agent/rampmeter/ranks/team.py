"""One rank's thread beside training that keeps in touch with the other ranks, and what training and flush ask of it.

Training calls `called` in each step, which compares two integers; only at an agreed call it waits for a verdict that is
on its way, and never longer than 5 s. No collective is run here. What is decided, and by whom, is in `member` and
`lead`; this is the shell that carries posts and events between them and the bulletin.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rampmeter.core.clock import Clock, SystemClock
from rampmeter.core.messages import FailReason
from rampmeter.ranks.agreement import LEAST_AHEAD_S, LONGEST_WAIT_S, Agreed, calls_ahead, calls_late
from rampmeter.ranks.attending import RankSave
from rampmeter.ranks.bulletin import Bulletin, RanksLost
from rampmeter.ranks.conducting import Conductor
from rampmeter.ranks.liveness import BEAT_S, SILENT_S, Silence, beat_s, missed_s
from rampmeter.ranks.member import Member
from rampmeter.ranks.pace import Pace
from rampmeter.ranks.rates import RateReader
from rampmeter.ranks.telling import Teller
from rampmeter.ranks.words import Beside, Event, EventKind, Post, Purpose, Stage
from rampmeter.throttle import Throttle

_log = logging.getLogger("rampmeter")

_IDLE_S = 0.020
_BUSY_S = 0.005
_RANKS_AT_FULL_PACE = 100
"""Above so many ranks each looks the less often, so that all looks together stay as many."""

_LEAVE_LIMIT_S = 5.0
_LAST_TURN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What rank 0 wants all ranks to do, and what it hands over with it."""

    purpose: Purpose
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What a team calls from its thread, without its lock.

    noticed   on every rank, with the first rank that had a notice
    wish      rank 0: asked often; what all ranks should do, None = nothing. Proposed again until it is agreed on
    ready     rank 0: with the bytes that all ranks are about to write, once in each save
    beside    on every rank, asked often: whether a process can write for it
    """

    noticed: Callable[[int], None] = lambda _rank: None
    wish: Callable[[], Wish | None] = lambda: None
    ready: Callable[[int], None] = lambda _num_bytes: None
    beside: Callable[[], Beside] = Beside


class Team:
    """One per rank."""

    def __init__(
        self,
        bulletin: Bulletin,
        *,
        rank: int,
        num_ranks: int,
        clock: Clock | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.lost: str | None = None
        """Why this rank hears the others no more; None while it does."""
        self._bulletin = bulletin
        self._rank = rank
        self._clock = clock or SystemClock()
        self._hooks = hooks or Hooks()
        self._pace = max(1.0, num_ranks / _RANKS_AT_FULL_PACE)
        self._beat_s = beat_s(num_ranks)
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._member = Member(rank)
        self._counter = self._member.counter
        self._save: RankSave | None = None
        self._teller = Teller(rank)
        self._has_notice = self._has_told_notice = self._has_heard_notice = False
        self._limit_is_over = False
        self._missed_s = missed_s(num_ranks)
        self._silence = Silence(self._clock.now())
        self._missing = ""
        self._rates = RateReader(rank)
        self._pace_of_calls = Pace(self._clock.now())
        self._round_s = self._posted_s = self._looked_s = self._clock.now()
        self._beat = 0
        self._last_post: Post | None = None
        self.conductor: Conductor | None = None
        if rank == 0:
            self.conductor = Conductor(
                bulletin,
                num_ranks=num_ranks,
                counter=self._counter,
                clock=self._clock,
                changed=self._changed,
                hurry=self._wake.set,
                on_ready=self._hooks.ready,
            )
        self._thread = threading.Thread(target=self._run, name="rampmeter-ranks", daemon=True)

    def start(self) -> None:
        """Start to keep in touch."""
        self._thread.start()

    def leave(self, limit_s: float = _LEAVE_LIMIT_S) -> bool:
        """This rank calls no more `step()`. Rank 0 stays for up to `limit_s` until all have said so."""
        with self._changed:
            self._member.leaving = True
        self._wake.set()
        self._thread.join(limit_s)
        self._limit_is_over = True
        self._thread.join(_LAST_TURN_S)
        return not self._thread.is_alive()

    # -- for training ------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """All ranks have agreed to leave the training loop."""
        return self._member.stopped

    def called(self, step: int | None) -> Agreed | None:
        """One call of `step()`, in which the caller said `step`; what all ranks do in this call, if anything.

        Of a save it must hear more: `begin_save` once the snapshot is taken, or `cannot_save`.
        """
        return self._at_agreed_call() if self._counter.called(step) else None

    def _at_agreed_call(self) -> Agreed | None:
        with self._changed:
            self._changed.wait_for(lambda: not self._member.must_wait, LONGEST_WAIT_S)
            agreed = self._member.conclude()
        self._wake.set()
        return agreed

    def begin_save(
        self,
        agreed: Agreed,
        step: int,
        throttle: Throttle,
        *,
        max_streams: int | None = None,
        is_ready: bool = True,
    ) -> RankSave:
        """This rank holds its snapshot of `step` for the agreed save; `throttle` is new and holds its writer.

        Rank 0's `max_streams` counts: how many ranks may write at once, None = all. Not ready: what writes it is still
        to be found, and the others wait for that.
        """
        with self._changed:
            stage = Stage.HOLDING if is_ready else Stage.JOINED
            attendance = self._member.begin(agreed, step, stage=stage)
            save = RankSave(self._member, attendance, throttle, changed=self._changed, hurry=self._wake.set)
            self._save = save
            if self.conductor is not None:
                self.conductor.begins(max_streams)
            if self.lost is not None:
                self._member.lost(self.lost)
            save.stop_if_failed()
        threading.Thread(target=self._watch, args=(save,), name="rampmeter-watch", daemon=True).start()
        self._wake.set()
        return save

    def cannot_save(self, agreed: Agreed, why: str, reason: FailReason) -> None:
        """This rank has no snapshot for the agreed save: it fails on all ranks."""
        with self._changed:
            self._member.cannot(agreed, why, reason)
        self._wake.set()

    def notice(self) -> None:
        """This rank was told that the job ends. Takes no lock, for it may be called inside a signal handler."""
        self._has_notice = True

    def propose(self, purpose: Purpose, *, detail: str = "") -> bool:
        """Rank 0: propose to all ranks to do this.

        False while another proposal is open, the last save has not ended everywhere, or a rank is silent or has left.
        """
        assert self.conductor is not None
        reach_s = max(LEAST_AHEAD_S, 3.0 * _IDLE_S * self._pace)
        step_s = self._pace_of_calls.step_s
        return self.lost is None and self.conductor.propose(
            purpose,
            detail,
            num_calls_ahead=calls_ahead(step_s, reach_s),
            num_calls_late=calls_late(step_s),
        )

    # -- where the ranks have lost each other ------------------------------------------------------------------

    def who_is_gone(self) -> str:
        """Which rank is heard no more, in words, as far as that shows within a moment; empty = none.

        Rank 0 knows of all and the others of rank 0. What this process slept through itself blames nobody.
        """
        begun_s = self._clock.now()
        while not (found := self._gone(begun_s)) and self._clock.now() < begun_s + 2.0 * self._missed_s:
            self._clock.sleep(BEAT_S)
        return found

    def _gone(self, since_s: float) -> str:
        is_unheard = self._clock.now() - max(self._round_s, since_s) >= self._missed_s
        with self._changed:
            if self.conductor is not None:
                return self.conductor.missing
            if self.lost is not None or is_unheard:
                return "rank 0 is heard no more"
            return self._silence.longest(self._missed_s) or self._missing

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._has_finished():
                self._wake.clear()
                self._tick()
                self._wake.wait(self._period_s())
        except RanksLost as error:
            self._lose(str(error))
        except Exception as error:
            _log.exception("the ranks of this job cannot save together any more")
            self._lose(f"{type(error).__name__}: {error}")

    def _tick(self) -> None:
        now_s = self._clock.now()
        self._write()
        self._read()
        self._post(now_s)
        self._look(now_s)
        if self.conductor is not None:
            self._pace_of_calls.look(now_s, self._counter.num_calls)
            with self._changed:
                self._teller.lags(self.conductor.lag(self._pace_of_calls.step_s))
            self._propose_wish()
            if self.conductor.conduct(now_s):
                self._read()
        self._round_s = self._clock.now()

    def _propose_wish(self) -> None:
        wish = None if self._member.is_voting or self._member.leaving else self._hooks.wish()
        if wish is not None:
            self.propose(wish.purpose, detail=wish.detail)

    def _period_s(self) -> float:
        with self._changed:
            waits = self._save is not None and (self._save.is_beginning or self._save.wants_rate)
            judges = self.conductor is not None and self.conductor.awaits_answers
            is_busy = self._member.is_voting or waits or judges or self._member.leaving
        return (_BUSY_S if is_busy else _IDLE_S) * self._pace

    def _has_finished(self) -> bool:
        """This rank has said that it leaves, and nobody needs it any more."""
        if self._last_post is None or not self._last_post.left:
            return self._limit_is_over
        return self.conductor is None or self.conductor.all_have_left or self._limit_is_over

    def _write(self) -> None:
        if self._has_notice and not self._has_told_notice:
            self._has_told_notice = True
            self._bulletin.append(Event(kind=EventKind.NOTICED, rank=self._rank))
        while self._member.to_say:
            self._bulletin.append(self._member.to_say.popleft())

    def _read(self) -> None:
        for event in self._bulletin.read_log():
            with self._changed:
                self._heard(event)
                self._changed.notify_all()
            if event.kind is EventKind.NOTICED and not self._has_heard_notice:
                self._has_heard_notice = True
                self._hooks.noticed(event.rank)

    def _heard(self, event: Event) -> None:
        self._member.heard(event)
        if self.conductor is not None:
            self.conductor.heard(event)
        if self._save is not None:
            self._save.stop_if_failed()
        self._teller.heard(event)

    def _post(self, now_s: float) -> None:
        """On each beat, and at once where there is news for rank 0."""
        beside = self._hooks.beside()
        with self._changed:
            save, num_read = self._save, self._bulletin.num_read
            if save is None:
                post = self._member.post(num_read=num_read, applied=0, beside=beside)
            else:
                flow = save.flow()
                post = self._member.post(num_read=num_read, applied=save.applied, flow=flow, beside=beside)
        is_news = self._last_post is None or _news_of(post) != _news_of(self._last_post)
        if is_news or now_s >= self._posted_s + self._beat_s:
            self._beat += 1
            self._bulletin.post(self._beat, post, is_news=is_news)
            self._last_post, self._posted_s = post, now_s

    def _look(self, now_s: float) -> None:
        """Read rank 0's word: each 0.25 s, and at once where a writer waits for its first rate."""
        with self._changed:
            save = self._save
            hurries = save is not None and save.wants_rate
        if not hurries and now_s < self._looked_s + BEAT_S:
            return
        self._looked_s = now_s
        word = self._bulletin.word()
        self._silence.listened({0: word.beat}, self._clock.now())
        with self._changed:
            self._missing = word.missing
            number, planned_bytes = (0, None) if save is None else (save.number, save.planned_bytes)
            rate = self._rates.read(word, now_s, number=number, planned_bytes=planned_bytes)
            if save is not None and rate is not None:
                save.follow(rate)

    # -- when rank 0 is heard no more --------------------------------------------------------------------------

    def _watch(self, save: RankSave) -> None:
        """A thread beside a save: the one that should hear of the others may itself hang with rank 0's store."""
        while not save.is_over.wait(BEAT_S):
            away_s = self._clock.now() - self._round_s
            why = self._silence.silent().get(0)
            if away_s >= SILENT_S:
                why = f"has not been heard for {away_s:.0f} s"
            if why is not None:
                self._lose_rank_0(save, f"rank 0 {why}")
                return

    def _lose_rank_0(self, save: RankSave, why: str) -> None:
        with self._changed:
            self._member.lose_rank_0(why)
            save.stop_if_failed()
            self._changed.notify_all()

    def _lose(self, why: str) -> None:
        with self._changed:
            self.lost = why
            self._member.lost(why)
            if self._save is not None:
                self._save.stop_if_failed()
            if not self._member.leaving:
                _log.warning("no more saves together with the other ranks: %s", why)
            self._changed.notify_all()


def _news_of(post: Post) -> tuple[object, ...]:
    """What rank 0 should hear at once; the rest can wait for the next beat."""
    share = post.share
    of_save = (share.number, share.stage, post.applied)
    return (post.answer, post.concluded, of_save, post.needs_group, post.left, post.beside)
