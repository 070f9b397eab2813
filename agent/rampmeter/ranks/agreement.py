"""Agrees on one call of `step()` at which all ranks do the same, without any rank ever waiting for a collective.

Rank 0 proposes a call that lies ahead; each rank answers where it is; rank 0 commits if all can be there and were told
the same steps, else it aborts. The first verdict in the log stands, so all ranks read the same one. A rank that has
waited too long says abort itself; if a commit stands before that, the rank has missed the call and the save fails.
Pure: no thread, no store, no clock. Decides nothing about when a save is due, nor what happens in it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rampmeter.ranks.counter import CallCounter
from rampmeter.ranks.words import Answer, Event, EventKind, Purpose, as_line

LEAST_CALLS_AHEAD = 4
FEWEST_CALLS_AHEAD = 2
LONG_STEP_S = 1.0
LEAST_AHEAD_S = 0.040
LONGEST_WAIT_S = 5.0
"""How long `step()` waits at most for a verdict that is on its way."""


def calls_ahead(step_s: float | None, reach_s: float = LEAST_AHEAD_S) -> int:
    """How far ahead to propose: max(4 calls, `reach_s`), for steps of `step_s` seconds (None = unknown).

    Of steps of a second and more two are enough: ranks that train together are never two of them apart.
    """
    if step_s is None or step_s <= 0.0:
        return LEAST_CALLS_AHEAD
    if step_s >= LONG_STEP_S:
        return FEWEST_CALLS_AHEAD
    return max(LEAST_CALLS_AHEAD, math.ceil(reach_s / step_s))


def calls_late(step_s: float | None) -> int:
    """How many calls a rank may be behind rank 0 where all must be in the call at once: half of the longest wait.

    That is where they make a new process group, in which the training threads wait for each other.
    """
    if step_s is None or step_s <= 0.0:
        return LEAST_CALLS_AHEAD
    return max(1, math.floor(0.5 * LONGEST_WAIT_S / step_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """What all ranks do at this call."""

    number: int
    purpose: Purpose
    detail: str
    new_group: bool


class Voter:
    """A rank's part, also of rank 0: answers proposals and knows what is agreed. Not locked: its owner does that."""

    def __init__(self, counter: CallCounter) -> None:
        self.answer = Answer()
        self.missed: Agreed | None = None
        """What the others do and this rank does not, because its patience ended just before the verdict."""
        self._counter = counter
        self._open: Event | None = None
        self._is_committed = False
        self._given_up: Event | None = None

    @property
    def is_open(self) -> bool:
        """A proposal is neither done nor dropped."""
        return self._open is not None

    @property
    def concluded(self) -> int:
        """The newest proposal that is behind this rank: nothing of it is to come."""
        still_ahead = self._open or self._given_up
        return self.answer.number if still_ahead is None else still_ahead.number - 1

    def proposed(self, event: Event) -> None:
        """Read a proposal: get ready for its call and answer."""
        is_ahead = self._counter.arm(event.at_call)
        calls = self._counter.num_calls
        self.answer = Answer(
            number=event.number,
            num_calls=calls,
            step=self._counter.step_at(calls),
            passed=not is_ahead,
        )
        self._open, self._is_committed = event, False
        if not is_ahead:
            self._drop()

    def judged(self, event: Event) -> None:
        """Read a verdict. Only the first one of a proposal counts."""
        if self._given_up is not None and self._given_up.number == event.number:
            if event.kind is EventKind.COMMITTED:
                self.missed = _agreed(self._given_up)
            self._given_up = None
        if self._open is None or self._open.number != event.number or self._is_committed:
            return
        if event.kind is EventKind.COMMITTED:
            self._is_committed = True
        else:
            self._drop()

    @property
    def must_wait(self) -> bool:
        """At the armed call: the verdict is still on its way."""
        return self._open_here() is not None and not self._is_committed

    def take(self) -> Agreed | None:
        """At the armed call: what is agreed, once; None if nothing is."""
        event = self._open_here()
        if event is None or not self._is_committed:
            return None
        self._drop()
        return _agreed(event)

    def give_up(self, rank: int) -> Event | None:
        """At the armed call: the patience has ended. What to say in the log; None if a verdict has just come."""
        event = self._open_here()
        if event is None or self._is_committed:
            return None
        self._given_up = event
        self._drop()
        detail = f"rank {rank} waited {LONGEST_WAIT_S:g} s in call {event.at_call} for a verdict"
        return Event(kind=EventKind.ABORTED, number=event.number, rank=rank, detail=detail)

    def _open_here(self) -> Event | None:
        """What is open for the call that training is in: a later proposal may have come while it slept in this one."""
        is_here = self._open is not None and self._open.at_call == self._counter.num_calls
        return self._open if is_here else None

    def lost(self) -> None:
        """No verdict will come any more."""
        self._given_up = None
        self._drop()

    def _drop(self) -> None:
        self._open, self._is_committed = None, False
        self._counter.disarm()


def _agreed(event: Event) -> Agreed:
    return Agreed(number=event.number, purpose=event.purpose, detail=event.detail, new_group=event.new_group)


class Proposer:
    """Rank 0's further part: makes proposals, one at a time, and judges them."""

    def __init__(self, num_ranks: int, counter: CallCounter) -> None:
        self._num_ranks = num_ranks
        self._counter = counter
        self._number = 0
        self._open: Event | None = None
        self._verdict: Event | None = None
        self._answers: dict[int, Answer] = {}
        self._behind: set[int] = set()  # ranks of which nothing of it is to come
        self._earliest_call = 0  # a rank that is not there yet comes too late to make a new group
        self._num_calls_behind = 0  # so far others were ahead when a proposal came too late for them

    @property
    def is_open(self) -> bool:
        """A proposal is neither done nor dropped on all ranks."""
        return self._open is not None

    @property
    def awaits_answers(self) -> bool:
        """A proposal has no verdict yet."""
        return self._open is not None and self._verdict is None

    def propose(
        self, purpose: Purpose, detail: str, *, num_calls_ahead: int, num_calls_late: int, new_group: bool
    ) -> Event | None:
        """What to say in the log; None while another proposal is open.

        With a new group it is given up if a rank is more than `num_calls_late` calls behind rank 0.
        """
        if self._open is not None:
            return None
        self._number += 1
        self._answers, self._behind, self._verdict = {}, set(), None
        self._earliest_call = self._counter.num_calls - num_calls_late if new_group else 0
        self._open = Event(
            kind=EventKind.PROPOSED,
            number=self._number,
            purpose=purpose,
            at_call=self._counter.num_calls + self._num_calls_behind + num_calls_ahead,
            detail=as_line(detail),
            new_group=new_group,
        )
        return self._open

    def answered(self, rank: int, answer: Answer, concluded: int) -> None:
        """A rank's newest answer, and the newest proposal that is behind it."""
        if self._open is None or answer.number != self._open.number:
            return
        self._answers[rank] = answer
        if self._verdict is not None and concluded >= self._open.number:
            self._behind.add(rank)
        if len(self._behind) == self._num_ranks:
            self._open = None

    def judged(self, event: Event) -> Event | None:
        """Read a verdict, whoever said it; the proposal, if this is what commits it."""
        proposed = self._open
        if proposed is None or self._verdict is not None or proposed.number != event.number:
            return None
        self._verdict = event
        if event.kind is EventKind.COMMITTED:
            self._num_calls_behind = 0
            return proposed
        self._open = None
        return None

    def verdict(self, absent: Mapping[int, str]) -> Event | None:
        """What to say in the log; None as long as nothing can be said. `absent`: who takes part no more, and why."""
        if not self.awaits_answers or self._open is None:
            return None
        for rank, why in absent.items():
            return self._abort(rank, f"rank {rank} {why}")
        for rank, answer in sorted(self._answers.items()):
            objection = self._objection(rank, answer)
            if objection is not None:
                return self._abort(rank, objection)
        if len(self._answers) < self._num_ranks or self._is_behind_an_answer():
            return None
        return Event(kind=EventKind.COMMITTED, number=self._open.number)

    def _objection(self, rank: int, answer: Answer) -> str | None:
        if answer.passed:
            self._num_calls_behind = max(0, answer.num_calls - self._counter.num_calls)
            return f"rank {rank} was already in call {answer.num_calls}"
        if answer.num_calls < self._earliest_call:
            lag = self._counter.num_calls - answer.num_calls
            return f"rank {rank} is {lag} calls behind, too far to make a process group"
        mine = self._counter.step_at(answer.num_calls)
        if None not in (mine, answer.step) and mine != answer.step:
            return _differ(answer.num_calls, mine, rank, answer.step)
        return None

    def _is_behind_an_answer(self) -> bool:
        """Rank 0 has not come to the call of which a rank has told the step: it cannot compare yet."""
        return any(answer.num_calls > self._counter.num_calls for answer in self._answers.values())

    def _abort(self, rank: int, why: str) -> Event:
        assert self._open is not None
        detail = as_line(f"{why}; call {self._open.at_call} was proposed")
        return Event(kind=EventKind.ABORTED, number=self._open.number, rank=rank, detail=detail)


def _differ(call: int, mine: int | None, rank: int, theirs: int | None) -> str:
    return f"in call {call} rank 0 was at step {mine} and rank {rank} at step {theirs}"
