"""What a rank's training loop sees of the others, with a team and a group made by hand."""

from dataclasses import replace
from typing import Any

import pytest

from rampmeter.core.clock import ManualClock
from rampmeter.core.messages import FailReason
from rampmeter.ranks.agreement import Agreed
from rampmeter.ranks.beside import Way
from rampmeter.ranks.crew import Crew, SaveWord, save_wish, stop_wish
from rampmeter.ranks.opening import Opened
from rampmeter.ranks.words import Beside, Purpose
from rampmeter.taking import Taking
from rampmeter.throttle import Throttle
from rampmeter.together import Party


class Group:
    """Can be made anew, or not."""

    group = None
    host, port = "store", 7  # it also stands for the store

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.num_renewed = 0

    def renew(self) -> None:
        if self._error is not None:
            raise self._error
        self.num_renewed += 1


class Team:
    """Agrees on what it is told to."""

    def __init__(self, agreed: Agreed | None) -> None:
        self._agreed = agreed
        self.refused: list[tuple[Agreed, str, FailReason]] = []

    def called(self, _step: int) -> Agreed | None:
        return self._agreed

    def cannot_save(self, agreed: Agreed, why: str, reason: FailReason) -> None:
        self.refused.append((agreed, why, reason))


def crew_of(group: Group, team: Team) -> Crew:
    fake: Any = group
    opened = Opened(rank=1, num_ranks=2, group=fake, store=fake, job_uid="a" * 32, claim=fake)
    crew = Crew(opened, clock=ManualClock())
    crew._team = team  # type: ignore[assignment]
    return crew


def agreed_on(wish: Any, *, new_group: bool) -> Agreed:
    return Agreed(number=3, purpose=wish.purpose, detail=wish.detail, new_group=new_group)


def test_a_group_that_cannot_be_made_costs_the_save_and_not_the_training() -> None:
    """Nothing raises into the loop; all ranks hear that this one has no snapshot."""
    agreed = agreed_on(save_wish(7, None), new_group=True)
    team = Team(agreed)
    crew = crew_of(Group(RuntimeError("Timed out waiting 30000ms\nadvice")), team)
    assert crew.called(40) is None
    assert [(said[0], said[2]) for said in team.refused] == [(agreed, FailReason.RANK_FAILED)]


@pytest.mark.parametrize(("new_group", "num_renewed"), [(False, 0), (True, 1)])
def test_a_group_is_made_anew_where_that_is_agreed(new_group: bool, num_renewed: int) -> None:
    """Before anything else in that call."""
    group = Group()
    agreed = agreed_on(save_wish(7, None), new_group=new_group)
    assert crew_of(group, Team(agreed)).called(40) is agreed
    assert group.num_renewed == num_renewed


def test_all_leave_for_the_reason_that_rank_0_gave() -> None:
    """A stop is no save."""
    crew = crew_of(Group(), Team(agreed_on(stop_wish("preempted"), new_group=False)))
    assert crew.called(40) is None
    assert crew.stopped_for == "preempted"


@pytest.mark.parametrize("max_streams", [None, 1, 12])
def test_what_is_handed_over_comes_out_as_it_went_in(max_streams: int | None) -> None:
    """The checkpoint has the same name on all ranks."""
    wish = save_wish(7, max_streams)
    word = SaveWord.parse(wish.detail)
    assert (wish.purpose, word.attempt, word.max_streams) == (Purpose.SAVE, 7, max_streams)
    assert str(word.name(40)) == f"step-00000040.a00007.{word.nonce}"


class Conductor:
    """Has heard this of the ranks."""

    def __init__(self, *besides: Beside) -> None:
        self.beside = dict(enumerate(besides))


def test_what_keeps_processes_from_writing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the next save is wished for; another reason is told again."""
    able = Beside(is_known=True, is_wished=True)
    team: Any = Team(None)
    crew = crew_of(Group(), team)
    for obstacle in ("it is slow", "it is slow", "it is gone"):
        team.conductor = Conductor(able, replace(able, obstacle=obstacle))
        assert crew.way() is Way.THREAD
    assert [record.message.rpartition("beside it: ")[2] for record in caplog.records] == [
        "rank 1: it is slow",
        "rank 1: it is gone",
    ]
    team.conductor = Conductor(able, able)
    assert crew.way() is Way.PROCESS_ANEW


def test_in_a_hurry_no_rank_waits_for_a_process_that_may_not_be_there() -> None:
    """Those that have met are there; whoever was replaced since has not."""
    met = Beside(is_known=True, is_wished=True, group=3)
    team: Any = Team(None)
    crew = crew_of(Group(), team)
    for second, way in ((met, Way.PROCESS), (replace(met, group=0), Way.THREAD)):
        team.conductor = Conductor(met, second)
        assert crew.way(in_a_hurry=True) is way


@pytest.mark.parametrize(("way", "group"), [(Way.PROCESS, None), (Way.PROCESS_ANEW, 3)])
def test_a_new_group_of_writers_has_the_number_of_its_save(way: Way, group: int | None) -> None:
    """No group had it before, and all ranks know it; nothing is made on the training thread."""
    made = Group()
    agreed = agreed_on(save_wish(7, None, way), new_group=False)
    throttle = Throttle(clock=ManualClock())
    party = crew_of(made, Team(agreed)).together(agreed, 40, throttle, None).party
    assert party == Party(rank=1, num_ranks=2, group=group, host="store", port=7)
    assert made.num_renewed == 0
    in_threads = agreed_on(save_wish(7, None), new_group=False)
    assert crew_of(made, Team(agreed)).together(in_threads, 40, throttle, None).party is None


def test_a_call_without_a_number_of_the_step_fails_the_agreed_save() -> None:
    """On this rank nothing can be saved in it; all others must not wait for its share."""
    agreed = agreed_on(save_wish(7, None), new_group=False)
    team = Team(agreed)
    nobody: Any = None
    taking = Taking(
        nobody,
        lookout=nobody,
        watch=nobody,
        clock=ManualClock(),
        tell=nobody,
        crew=crew_of(Group(), team),
    )
    taking.take(None, {}, agreed)
    assert team.refused == [(agreed, "step() was called without a number of the step", FailReason.BAD_STATE)]
