"""Proposals, answers and verdicts, one at a time."""

import pytest

from rampmeter.ranks.agreement import Proposer, Voter, calls_ahead, calls_late
from rampmeter.ranks.counter import CallCounter
from rampmeter.ranks.member import Member
from rampmeter.ranks.words import Answer, Event, EventKind, Purpose


def committed(number: int = 1) -> Event:
    return Event(kind=EventKind.COMMITTED, number=number)


def aborted(number: int = 1) -> Event:
    return Event(kind=EventKind.ABORTED, number=number)


def proposed(at_call: int, number: int = 1) -> Event:
    return Event(kind=EventKind.PROPOSED, number=number, at_call=at_call)


def counted(num_calls: int, first_step: int = 1) -> CallCounter:
    counter = CallCounter()
    for step in range(first_step, first_step + num_calls):
        counter.called(step)
    return counter


@pytest.mark.parametrize(
    ("step_s", "calls"),
    [(None, 4), (0.0, 4), (0.9, 4), (1.0, 2), (60.0, 2), (0.01, 4), (0.005, 8), (0.0001, 400)],
)
def test_how_far_ahead(step_s: float | None, calls: int) -> None:
    """Four calls, or 40 ms of them where steps are short; two where they are so long that four would be a long wait."""
    assert calls_ahead(step_s) == calls


def test_a_vote() -> None:
    """Ahead: answered with the call and step of now, waited for at its call, taken once after the commit."""
    counter = counted(3)
    voter = Voter(counter)
    voter.proposed(proposed(5))
    assert voter.answer == Answer(number=1, num_calls=3, step=3)
    assert voter.concluded == 0
    assert [counter.called(4), counter.called(5)] == [False, True]
    assert voter.must_wait
    voter.judged(committed())
    voter.judged(aborted())
    assert not voter.must_wait
    agreed = voter.take()
    assert agreed is not None
    assert (agreed.number, agreed.purpose) == (1, Purpose.SAVE)
    assert (voter.take(), voter.concluded, counter.called(6)) == (None, 1, False)


def test_too_late_is_passed() -> None:
    """A rank that is at the call already, or beyond it, says so and waits for nothing."""
    counter = counted(5)
    voter = Voter(counter)
    voter.proposed(proposed(5))
    assert voter.answer == Answer(number=1, num_calls=5, step=5, passed=True)
    assert not voter.must_wait
    assert (voter.take(), voter.give_up(0), voter.concluded) == (None, None, 1)


def test_an_abort_lets_training_go() -> None:
    """Whoever waits finds nothing to do, and later calls are not noticed."""
    counter = counted(3)
    voter = Voter(counter)
    voter.proposed(proposed(4))
    voter.judged(aborted())
    assert (counter.called(4), voter.must_wait, voter.take(), voter.concluded) == (False, False, None, 1)


def test_a_later_proposal_is_not_taken_at_an_earlier_call() -> None:
    """Training slept at call 4 while that was aborted and call 9 was proposed and committed: it goes on to call 9."""
    counter = counted(3)
    voter = Voter(counter)
    voter.proposed(proposed(4))
    assert counter.called(4)
    voter.judged(aborted())
    voter.proposed(proposed(9, number=2))
    assert (voter.must_wait, voter.give_up(0)) == (False, None)
    voter.judged(committed(2))
    assert voter.take() is None
    assert [counter.called(step) for step in range(5, 10)] == [False] * 4 + [True]
    agreed = voter.take()
    assert agreed is not None
    assert agreed.number == 2


def test_patience_ends_in_a_word_of_its_own() -> None:
    """A rank that gives up says abort; if that stands first, it has missed nothing."""
    counter = counted(3)
    voter = Voter(counter)
    voter.proposed(proposed(4))
    assert counter.called(4)
    event = voter.give_up(2)
    assert event is not None
    assert (event.kind, event.number, event.rank) == (EventKind.ABORTED, 1, 2)
    assert voter.concluded == 0
    voter.judged(event)
    voter.judged(committed())
    assert (voter.missed, voter.concluded) == (None, 1)


def test_a_commit_just_before_the_patience_ended_is_missed() -> None:
    """The others do it, this rank does not, and it knows."""
    counter = counted(3)
    voter = Voter(counter)
    voter.proposed(proposed(4))
    assert counter.called(4)
    event = voter.give_up(2)
    assert event is not None
    voter.judged(committed())
    voter.judged(event)
    assert voter.missed is not None
    assert (voter.missed.number, voter.concluded) == (1, 1)


class Ballot:
    """Rank 0 in call `num_calls` with one proposal for four calls later."""

    def __init__(self, num_ranks: int, num_calls: int = 10) -> None:
        self.counter = counted(num_calls)
        self.proposer = Proposer(num_ranks, self.counter)
        event = self.propose()
        assert event is not None
        assert event.at_call == num_calls + 4

    def propose(self) -> Event | None:
        return self.proposer.propose(Purpose.SAVE, "", num_calls_ahead=4, num_calls_late=3, new_group=False)

    def answer(self, rank: int, num_calls: int, step: int | None, *, passed: bool = False) -> None:
        answer = Answer(number=1, num_calls=num_calls, step=step, passed=passed)
        self.proposer.answered(rank, answer, 0)

    def verdict(self, **absent: str) -> tuple[EventKind, str] | None:
        event = self.proposer.verdict({int(rank[1:]): why for rank, why in absent.items()})
        return None if event is None else (event.kind, event.detail)


def test_all_can_so_it_is_committed() -> None:
    """The last answer decides."""
    ballot = Ballot(3)
    for rank, num_calls in enumerate((10, 9, 10)):
        assert ballot.verdict() is None
        ballot.answer(rank, num_calls, num_calls)
    assert ballot.verdict() == (EventKind.COMMITTED, "")


def test_one_has_passed_so_it_is_aborted() -> None:
    """Without waiting for the others, and naming it."""
    ballot = Ballot(3)
    ballot.answer(2, 15, 15, passed=True)
    assert ballot.verdict() == (EventKind.ABORTED, "rank 2 was already in call 15; call 14 was proposed")


def test_steps_that_differ_are_refused_naming_both() -> None:
    """In the same call two ranks were told different steps."""
    ballot = Ballot(2)
    ballot.answer(0, 10, 10)
    ballot.answer(1, 9, 8)
    assert ballot.verdict() == (
        EventKind.ABORTED,
        "in call 9 rank 0 was at step 9 and rank 1 at step 8; call 14 was proposed",
    )


def test_an_answer_from_ahead_is_compared_when_rank_0_gets_there() -> None:
    """Rank 1 told the step of call 12 while rank 0 was in call 10."""
    ballot = Ballot(2)
    ballot.answer(0, 10, 10)
    ballot.answer(1, 12, 13)
    assert ballot.verdict() is None
    ballot.counter.called(11)
    ballot.counter.called(12)
    verdict = ballot.verdict()
    assert verdict is not None
    assert verdict[0] is EventKind.ABORTED


def test_who_is_absent_ends_it() -> None:
    """A silent rank, or one that has left, is named."""
    ballot = Ballot(2)
    ballot.answer(0, 10, 10)
    assert ballot.verdict(r1="has left the training loop") == (
        EventKind.ABORTED,
        "rank 1 has left the training loop; call 14 was proposed",
    )


def test_one_proposal_at_a_time() -> None:
    """After a commit the next one waits until the call is behind all ranks; after an abort it may come at once."""
    ballot = Ballot(2)
    assert ballot.propose() is None
    ballot.proposer.judged(committed())
    for rank, concluded in ((0, 0), (1, 0), (0, 1)):
        ballot.proposer.answered(rank, Answer(number=1, num_calls=10, step=10), concluded)
        assert ballot.propose() is None
    ballot.proposer.answered(1, Answer(number=1, num_calls=10, step=10), 1)
    event = ballot.propose()
    assert event is not None
    assert event.number == 2
    ballot.proposer.judged(aborted(2))
    event = ballot.propose()
    assert event is not None
    assert event.number == 3


def test_the_first_verdict_stands() -> None:
    """A rank gave up before the commit was in the log: nothing is open any more."""
    ballot = Ballot(2)
    ballot.proposer.judged(aborted())
    ballot.proposer.judged(committed())
    assert ballot.propose() is not None


def test_a_missed_stop_is_a_late_stop() -> None:
    """All others leave the loop: a rank that lost its patience just before the commit must, too, but says nothing."""
    member = Member(1)
    for step in (1, 2, 3):
        member.counter.called(step)
    member.heard(Event(kind=EventKind.PROPOSED, number=1, at_call=4, purpose=Purpose.STOP))
    assert member.counter.called(4)
    assert member.conclude() is None
    assert not member.stopped
    assert member.to_say.popleft().kind is EventKind.ABORTED
    member.heard(committed())
    assert (member.stopped, len(member.to_say)) == (True, 0)


def test_a_rank_that_is_far_ahead_is_waited_for_the_next_time() -> None:
    """Rank 1 was six calls ahead: the next proposal is six calls later than it would be; after an agreement none is."""
    proposer = Proposer(2, counted(10))
    first = proposer.propose(Purpose.SAVE, "", num_calls_ahead=4, num_calls_late=3, new_group=False)
    assert first is not None
    assert first.at_call == 14
    proposer.answered(1, Answer(number=1, num_calls=16, step=16, passed=True), concluded=1)
    proposer.judged(proposer.verdict({}) or committed())
    second = proposer.propose(Purpose.SAVE, "", num_calls_ahead=4, num_calls_late=3, new_group=False)
    assert second is not None
    assert second.at_call == 20
    proposer.judged(committed(2))
    for rank in (0, 1):
        proposer.answered(rank, Answer(number=2, num_calls=20, step=20), concluded=2)
    third = proposer.propose(Purpose.SAVE, "", num_calls_ahead=4, num_calls_late=3, new_group=False)
    assert third is not None
    assert third.at_call == 14


@pytest.mark.parametrize(
    ("step_s", "calls"), [(None, 4), (0.0, 4), (0.01, 250), (1.0, 2), (2.5, 1), (60.0, 1)]
)
def test_how_late_a_rank_may_be_for_a_new_group(step_s: float | None, calls: int) -> None:
    """Two and a half seconds of calls: training waits for the others there. One call apart is no lag."""
    assert calls_late(step_s) == calls


@pytest.mark.parametrize(("new_group", "is_late"), [(True, True), (True, False), (False, True)])
def test_a_new_group_is_not_made_while_a_rank_is_far_behind(new_group: bool, is_late: bool) -> None:
    """It was stopped for long: training on all others would wait for it. Without a new group nobody waits."""
    proposer = Proposer(2, counted(2000))
    proposer.propose(Purpose.SAVE, "", num_calls_ahead=4, num_calls_late=100, new_group=new_group)
    proposer.answered(0, Answer(number=1, num_calls=2000, step=2000), concluded=0)
    calls = 1899 if is_late else 1900
    proposer.answered(1, Answer(number=1, num_calls=calls, step=calls), concluded=0)
    verdict = proposer.verdict({})
    assert verdict is not None
    assert (verdict.kind is EventKind.ABORTED) is (new_group and is_late)
    if verdict.kind is EventKind.ABORTED:
        assert verdict.detail.startswith("rank 1 is 101 calls behind, too far to make a process group")
