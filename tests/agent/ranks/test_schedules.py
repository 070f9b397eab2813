"""Random schedules of whole jobs without threads: what ranks do, read, post and suffer comes in any order.

Whatever happens, all ranks have the same verdict for the same call, or the save fails on all; nobody waits for ever; a
rank that dies anywhere is noticed; and a job all of whose ranks live can save again.
"""

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from rampmeter.core.messages import FailReason
from rampmeter.ranks.agreement import Agreed
from rampmeter.ranks.lead import Lead
from rampmeter.ranks.member import Member
from rampmeter.ranks.words import Event, EventKind, Post, Purpose, Stage

TURN_S = 0.25
PATIENCE_TURNS = 20
SETTLING_TURNS = 160
ROUGH_TURNS = 120


@dataclass
class Rank:
    """One rank: its member, how far it has read, and what it is doing."""

    member: Member
    first_step: int = 0
    num_read: int = 0
    beat: int = 0
    lives: bool = True
    has_left: bool = False
    waits: int | None = None  # turns that training has waited at an agreed call
    pending: Agreed | None = None
    took: dict[int, int] = field(default_factory=dict)  # number of a save: the call in which it was taken
    met: set[int] = field(default_factory=set)
    failed: dict[int, tuple[int, str]] = field(default_factory=dict)
    posted: Post | None = None

    @property
    def step(self) -> int:
        return self.first_step + self.member.counter.num_calls


class World:
    """A job: its ranks, the log and what is posted."""

    def __init__(self, rng: random.Random, num_ranks: int, first_steps: list[int]) -> None:
        self.rng = rng
        self.ranks = [Rank(Member(i), first_step=first_steps[i]) for i in range(num_ranks)]
        self.log: list[Event] = []
        self.lead = Lead(num_ranks, self.ranks[0].member.counter, 0.0)
        self.now_s = 0.0
        self.is_rough = False

    # -- what a rank may do ------------------------------------------------------------------------------------

    def call(self, rank: Rank) -> None:
        is_free = rank.waits is None and rank.pending is None
        if (
            is_free
            and not rank.has_left
            and not rank.member.stopped
            and rank.member.counter.called(rank.step + 1)
        ):
            rank.waits = 0

    def conclude(self, rank: Rank) -> None:
        if rank.waits is None or (rank.member.must_wait and rank.waits < PATIENCE_TURNS):
            return
        rank.waits = None
        agreed = rank.member.conclude()
        if agreed is not None and agreed.purpose is Purpose.SAVE:
            rank.took[agreed.number] = rank.member.counter.num_calls
            rank.pending = agreed

    def lose_patience(self, rank: Rank) -> None:
        if rank.waits is not None:
            rank.waits = PATIENCE_TURNS
            self.conclude(rank)

    def begin(self, rank: Rank) -> None:
        if rank.pending is None:
            return
        agreed, rank.pending = rank.pending, None
        if self.is_rough and self.rng.random() < 0.15:
            rank.member.cannot(agreed, "the state cannot be staged", FailReason.BAD_STATE)
            return
        rank.member.begin(agreed, rank.step)

    def write(self, rank: Rank) -> None:
        """The flush gets on by one stage."""
        save = rank.member.attendance
        if save is None or save.stage is Stage.ENDED:
            return
        if save.failure is not None:
            rank.failed[save.number] = (save.failure.rank, save.failure.why)
            save.stage = Stage.ENDED
        elif save.is_met:
            rank.met.add(save.number)
            save.stage = Stage.ENDED
        elif save.stage is Stage.HOLDING and save.is_open:
            save.stage, save.planned_bytes = Stage.READY, 10
        elif save.stage is Stage.READY:
            save.stage = Stage.DONE

    def fail(self, rank: Rank) -> None:
        save = rank.member.attendance
        if save is not None and save.stage is Stage.READY and not save.is_settled:
            rank.member.fail(save.number, "no space left on device")

    def read(self, rank: Rank, num_events: int) -> None:
        for event in self.log[rank.num_read : rank.num_read + num_events]:
            rank.num_read += 1
            rank.member.heard(event)
            if rank is self.ranks[0]:
                self.lead.heard(event)

    def say(self, rank: Rank) -> None:
        while rank.member.to_say:
            self.log.append(rank.member.to_say.popleft())

    def post(self, rank: Rank) -> None:
        rank.beat += 1
        rank.posted = rank.member.post(num_read=rank.num_read, applied=0)

    def leave(self, rank: Rank) -> None:
        if rank.waits is None and rank.pending is None:
            rank.has_left = rank.member.leaving = True

    def die(self, rank: Rank) -> None:
        rank.lives = False

    def propose(self, purpose: Purpose = Purpose.SAVE) -> bool:
        event = self.lead.propose(purpose, "", num_calls_ahead=4, num_calls_late=10**6)
        if event is not None:
            self.log.append(event)
        return event is not None

    def conduct(self) -> None:
        posts = {i: (rank.beat, rank.posted) for i, rank in enumerate(self.ranks) if rank.posted is not None}
        self.lead.posted(posts, self.now_s)
        self.log += self.lead.next_events()

    # -- how a job goes ----------------------------------------------------------------------------------------

    def be_rough(self, *, deadly: bool) -> None:
        """Anything, in any order; training runs apart as no real job's does."""
        self.is_rough = True
        common = [self.call, self.conclude, self.begin, self.write, self.say, self.post]
        for _ in range(ROUGH_TURNS * len(self.ranks)):
            rank = self.rng.choice(self.ranks)
            chance = self.rng.random()
            if not rank.lives:
                continue
            if rank.waits is not None and chance < 0.06:
                self.lose_patience(rank)
            elif chance < 0.35:
                self.read(rank, self.rng.randint(1, 3))
            elif chance < 0.55 and rank is self.ranks[0]:
                self.rng.choice([self.propose, self.conduct, self.conduct])()
            elif chance > 0.998 and deadly:
                self.rng.choice([self.leave, self.die])(rank)
            elif chance > 0.98:
                self.fail(rank)
            else:
                self.rng.choice(common)(rank)

    def settle(self) -> None:
        """Everybody who lives gets its turn again and again; training is in step, and time passes."""
        self.is_rough = False
        for turn in range(SETTLING_TURNS):
            self.now_s += TURN_S
            for rank in self.living():
                self.take_turn(rank)
            if self.ranks[0].lives:
                self.conduct()
            elif turn == SETTLING_TURNS // 2:
                for rank in self.living():
                    rank.member.lost("the store of rank 0 is gone")

    def take_turn(self, rank: Rank) -> None:
        if rank.waits is not None:
            rank.waits += 1
        training = [other.member.counter.num_calls for other in self.living() if not other.has_left]
        if rank.member.counter.num_calls <= min(training, default=0):
            self.call(rank)
        for act in (self.conclude, self.begin, self.say):
            act(rank)
        self.read(rank, len(self.log))
        self.write(rank)
        self.say(rank)
        self.post(rank)

    def living(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.lives]

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self) -> None:
        for rank in self.living():
            assert rank.waits is None
            assert rank.pending is None
            save = rank.member.attendance
            assert save is None or save.stage is Stage.ENDED, "a save never ends"
        for number in {number for rank in self.ranks for number in rank.took}:
            self.check_save(number)

    def check_save(self, number: int) -> None:
        verdicts = [e.kind for e in self.log if e.number == number and e.kind in _VERDICTS]
        assert verdicts[0] is EventKind.COMMITTED
        assert len({rank.took[number] for rank in self.ranks if number in rank.took}) == 1
        is_met = [number in rank.met for rank in self.living() if number in rank.took]
        if any(is_met):
            assert all(number in rank.took for rank in self.ranks)
            assert len({rank.took[number] + rank.first_step for rank in self.ranks}) == 1
        if self.ranks[0].lives:
            assert len(set(is_met)) <= 1
            assert len({rank.failed[number] for rank in self.living() if number in rank.failed}) <= 1


_VERDICTS = (EventKind.COMMITTED, EventKind.ABORTED)


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 10**9), num_ranks=st.integers(1, 4), deadly=st.booleans())
def test_one_verdict_or_none_saves(seed: int, num_ranks: int, deadly: bool) -> None:
    """After any past the job comes to rest, in agreement; and if all its ranks live, it saves again."""
    world = World(random.Random(seed), num_ranks, [0] * num_ranks)
    world.be_rough(deadly=deadly)
    world.settle()
    world.check()
    if all(rank.lives and not rank.has_left for rank in world.ranks):
        assert world.propose()
        world.settle()
        world.check()
        number = max(world.ranks[0].took)
        assert all(number in rank.met for rank in world.ranks)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**9), num_ranks=st.integers(2, 4))
def test_ranks_at_different_steps_never_save(seed: int, num_ranks: int) -> None:
    """They count calls alike and steps differently: no save is met on any rank, whatever is tried."""
    world = World(random.Random(seed), num_ranks, [0] * (num_ranks - 1) + [1])
    world.be_rough(deadly=False)
    world.settle()
    world.check()
    assert not any(rank.met for rank in world.ranks)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**9), num_ranks=st.integers(2, 4))
def test_all_stop_at_the_same_call(seed: int, num_ranks: int) -> None:
    """A stop is agreed on like a save: all living ranks leave the loop, and nobody steps on alone."""
    world = World(random.Random(seed), num_ranks, [0] * num_ranks)
    world.be_rough(deadly=False)
    world.settle()
    assert world.propose(Purpose.STOP)
    world.settle()
    assert not any(rank.member.must_wait for rank in world.ranks)
    assert all(rank.member.stopped for rank in world.ranks)
    assert len({rank.member.counter.num_calls for rank in world.ranks}) == 1
