"""This process as one of the ranks of a job, for the training loop: what all do in this call, and how to take part.

Rank 0 hands over with a proposal what a save needs to be one save on all ranks. Decides nothing: when a save is due is
the pacer's business on rank 0, and the call in which it is made that of the team.
"""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch.distributed as dist

from rampmeter.core.clock import Clock
from rampmeter.core.messages import FailReason
from rampmeter.layout import StepName
from rampmeter.ranks.agreement import Agreed
from rampmeter.ranks.beside import Way, obstacle_of, way_of
from rampmeter.ranks.bulletin import Bulletin
from rampmeter.ranks.group import FlushGroup
from rampmeter.ranks.jobflow import JobFlow
from rampmeter.ranks.opening import Opened
from rampmeter.ranks.team import Hooks, Team, Wish
from rampmeter.ranks.words import Purpose
from rampmeter.throttle import Throttle
from rampmeter.together import Joined, Party, Rank, Together

_log = logging.getLogger("rampmeter")

REPLACED = "replaced"
PREEMPTED = "preempted"
"""Why all ranks leave their training loop."""

_ANY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveWord:
    """What all ranks must know of a save. max_streams: how many writers its lease allows inside the job, None = any."""

    attempt: int
    nonce: str
    max_streams: int | None
    way: Way

    @classmethod
    def fresh(cls, attempt: int, max_streams: int | None, way: Way) -> Self:
        """Of a save that is about to be proposed."""
        return cls(attempt=attempt, nonce=secrets.token_hex(4), max_streams=max_streams, way=way)

    def __str__(self) -> str:
        return f"{self.attempt} {self.nonce} {self.max_streams or _ANY} {self.way}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What `str` made."""
        attempt, nonce, max_streams, way = text.split(" ")
        return cls(attempt=int(attempt), nonce=nonce, max_streams=int(max_streams) or None, way=Way(way))

    def name(self, step: int) -> StepName:
        """Of the checkpoint."""
        return StepName(attempt=self.attempt, step=step, nonce=self.nonce)


class Crew:
    """One per rank. The methods are for the training thread; hooks are called from the team's."""

    def __init__(self, opened: Opened, *, clock: Clock) -> None:
        self.stopped_for: str | None = None
        """Why all ranks leave their loop; None while they do not."""
        self._opened = opened
        self._group = opened.group
        self._clock = clock
        self._told_obstacle: str | None = None
        self.rank = Rank(number=opened.rank, num_ranks=opened.num_ranks, group=lambda: self._group.group)

    def start(self, hooks: Hooks) -> None:
        """Start to keep in touch with the others."""
        self._team = Team(
            Bulletin(self._opened.store, self.rank.number),
            rank=self.rank.number,
            num_ranks=self.rank.num_ranks,
            clock=self._clock,
            hooks=hooks,
        )
        self._team.start()

    @contextmanager
    def group_of_its_own(self) -> Iterator[dist.ProcessGroup]:
        """For a restore, during which a save may still be in flight in the group of saves. On all ranks at once."""
        group = FlushGroup()
        try:
            yield group.group
        finally:
            group.close()

    def who_is_gone(self) -> str:
        """Which rank is heard no more, in words; empty = none. For whoever has lost the others in a restore."""
        return self._team.who_is_gone()

    def leave(self) -> None:
        """This rank calls no more `step()`."""
        self._team.leave()
        self._group.close()

    def notice(self) -> None:
        """This rank was told that the job ends. May be called inside a signal handler."""
        self._team.notice()

    @property
    def is_leader(self) -> bool:
        """Rank 0: speaks for the job."""
        return self.rank.number == 0

    @property
    def stopped(self) -> bool:
        """All ranks have agreed to leave the training loop."""
        return self._team.stopped

    @property
    def is_lost(self) -> bool:
        """This rank hears the others no more: nothing will be agreed on."""
        return self._team.lost is not None

    def called(self, step: int | None) -> Agreed | None:
        """One call of `step()`, with no number if None; a save that all ranks make in this call, if there is one."""
        agreed = self._team.called(step)
        if agreed is None:
            return None
        has_group = self._renew_group() if agreed.new_group else True
        if agreed.purpose is Purpose.STOP:
            self.stopped_for = agreed.detail
            return None
        if not has_group:
            self.cannot_save(agreed, "it could not make a new process group", FailReason.RANK_FAILED)
            return None
        return agreed

    def _renew_group(self) -> bool:
        """False if a rank was lost meanwhile: nothing of that is training's business, and the next save asks again."""
        try:
            self._group.renew()
        except Exception as error:
            first_line = str(error).partition("\n")[0]
            _log.warning(
                "rank %d could not make a new process group for saves: %s", self.rank.number, first_line
            )
            return False
        return True

    def cannot_save(self, agreed: Agreed, why: str, reason: FailReason) -> None:
        """This rank has no snapshot for it."""
        self._team.cannot_save(agreed, why, reason)

    def job_flow(self, throttle: Throttle) -> JobFlow:
        """Rank 0: what steers the writers of all ranks in a save whose own writer has `throttle`."""
        assert self._team.conductor is not None
        return JobFlow(self._team.conductor, throttle)

    def together(self, agreed: Agreed, step: int, throttle: Throttle, flow: JobFlow | None) -> Together:
        """How this rank takes part in the agreed save of `step`; `flow` on rank 0."""

        word = SaveWord.parse(agreed.detail)
        party = self._party(word.way, agreed.number)

        def join() -> Joined:
            save = self._team.begin_save(
                agreed, step, throttle, max_streams=word.max_streams, is_ready=party is None
            )
            if flow is not None:
                flow.joined(save)
            return save

        return Together(
            name=word.name(step),
            join=join,
            cannot=partial(self._team.cannot_save, agreed),
            flow=throttle.counters if flow is None else flow.counters,
            party=party,
        )

    def _party(self, way: Way, number: int) -> Party | None:
        if way is Way.THREAD:
            return None
        store = self._opened.store
        return Party(
            rank=self.rank.number,
            num_ranks=self.rank.num_ranks,
            group=number if way is Way.PROCESS_ANEW else None,
            host=store.host,
            port=store.port,
        )

    def way(self, *, in_a_hurry: bool = False) -> Way | None:
        """Rank 0: how all ranks should write the next save; None before that is known.

        What keeps processes from it is told once. In a hurry those are not waited for that may still be starting.
        """
        assert self._team.conductor is not None
        told = self._team.conductor.beside
        obstacle = obstacle_of(told)
        if obstacle is not None and obstacle != self._told_obstacle:
            self._told_obstacle = obstacle
            _log.warning(
                "on all ranks saves are written in a thread of training, not in a process beside it: %s",
                obstacle,
            )
        way = way_of(told, self.rank.num_ranks)
        return Way.THREAD if in_a_hurry and way is Way.PROCESS_ANEW else way


def save_wish(attempt: int, max_streams: int | None, way: Way = Way.THREAD) -> Wish:
    """Rank 0: all ranks should save."""
    return Wish(purpose=Purpose.SAVE, detail=str(SaveWord.fresh(attempt, max_streams, way)))


def stop_wish(why: str) -> Wish:
    """Rank 0: all ranks should leave their training loop."""
    return Wish(purpose=Purpose.STOP, detail=why)
