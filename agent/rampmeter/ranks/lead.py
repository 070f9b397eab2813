"""Rank 0's decisions for all ranks, from what they post: verdicts, openings and failures.

Puts agreement, meeting and silence together. Pure: no thread, no store; `now_s` is an argument.
"""

from collections.abc import Mapping

from rampmeter.ranks.agreement import Proposer
from rampmeter.ranks.counter import CallCounter
from rampmeter.ranks.lagging import lag
from rampmeter.ranks.liveness import Silence, missed_s
from rampmeter.ranks.meeting import Gathering
from rampmeter.ranks.words import VERDICTS, Beside, Event, Post, Purpose, Stage


class Lead:
    """One per job, on rank 0. Not locked: its owner does that."""

    def __init__(self, num_ranks: int, counter: CallCounter, now_s: float) -> None:
        self.gathering: Gathering | None = None
        self._num_ranks = num_ranks
        self._proposer = Proposer(num_ranks, counter)
        self._silence = Silence(now_s)
        self._posts: dict[int, Post] = {}

    @property
    def awaits_answers(self) -> bool:
        """A proposal has no verdict yet."""
        return self._proposer.awaits_answers

    def propose(
        self, purpose: Purpose, detail: str, *, num_calls_ahead: int, num_calls_late: int
    ) -> Event | None:
        """What to say in the log; None while nobody could agree.

        That is while another proposal is open, the last save has not ended everywhere, or a rank is absent or not
        there yet.
        """
        if len(self._posts) < self._num_ranks or self.absent():
            return None
        if purpose is Purpose.SAVE and self._is_saving():
            return None
        needs_group = purpose is Purpose.SAVE and any(post.needs_group for post in self._posts.values())
        return self._proposer.propose(
            purpose,
            detail,
            num_calls_ahead=num_calls_ahead,
            num_calls_late=num_calls_late,
            new_group=needs_group,
        )

    def _is_saving(self) -> bool:
        """Who is in a save tells so; who has not begun it keeps its proposal open."""
        shares = (post.share for post in self._posts.values())
        return any(share.stage not in (Stage.NONE, Stage.ENDED) for share in shares)

    def posted(self, posts: Mapping[int, tuple[int, Post]], now_s: float) -> None:
        """All ranks' beats and newest posts, looked at now."""
        beats = {rank: posts[rank][0] if rank in posts else 0 for rank in range(self._num_ranks)}
        self._silence.listened(beats, now_s)
        for rank, (_, post) in posts.items():
            self._posts[rank] = post
            self._proposer.answered(rank, post.answer, post.concluded)
            if self.gathering is not None:
                self.gathering.posted(rank, post)

    def heard(self, event: Event) -> None:
        """Read an event, whoever said it."""
        if event.kind in VERDICTS:
            begun = self._proposer.judged(event)
            if begun is not None and begun.purpose is Purpose.SAVE:
                self.gathering = Gathering(number=begun.number, num_ranks=self._num_ranks)
        if self.gathering is not None:
            self.gathering.heard(event)

    def next_events(self) -> list[Event]:
        """What to say in the log now."""
        absent = self.absent()
        found = [self._proposer.verdict(absent)]
        if self.gathering is not None:
            found.append(self.gathering.next_event(absent))
        return [event for event in found if event is not None]

    def absent(self) -> dict[int, str]:
        """Who takes part no more, and why."""
        left = {rank: "has left the training loop" for rank, post in self._posts.items() if post.left}
        return {**self._silence.silent(), **left}

    def missing(self) -> str:
        """Who is heard no more and has not said that it leaves, in words; empty = nobody."""
        left = {rank for rank, post in self._posts.items() if post.left}
        return self._silence.longest(missed_s(self._num_ranks), but=left)

    def lag(self, step_s: float | None) -> str:
        """Which rank calls `step()` too seldom, in words; empty = none. `step_s` are between two calls of rank 0."""
        here = {rank: post.num_calls for rank, post in self._posts.items() if not post.left}
        return lag(here, step_s) if len(here) == self._num_ranks else ""

    @property
    def beside(self) -> dict[int, Beside]:
        """What each rank has told of a process that writes for it."""
        return {rank: post.beside for rank, post in self._posts.items()}

    def all_have_left(self) -> bool:
        """Nobody but rank 0 needs the store any more."""
        return all(self._posts[rank].left for rank in self._posts if rank != 0)

    @property
    def num_read_by_all(self) -> int:
        """So many events were read by every rank and are of no more use."""
        if len(self._posts) < self._num_ranks:
            return 0
        return min(post.num_read for post in self._posts.values())
