"""When a writer counts as lost: by what it tells, and only over time in which somebody looked."""

from dataclasses import replace

import pytest

from rampmeter.core.messages import FailReason
from rampmeter.daemon.tidings import NOTHING_YET, Stage, Tidings
from rampmeter.daemon.watch import OBEDIENCE_S, SILENT_S, STANDSTILL_S, Watch
from rampmeter.ranks.group import COLLECTIVE_LIMIT_S

TURN_S = 0.5
WRITING = Tidings(number=1, stage=Stage.WRITING)


def found(watch_for_s, tell=lambda _turn: WRITING, *, gap_s=TURN_S, has_rate=True, aborted=False):
    """After how many seconds of looking something is wrong, and what; None if nothing is."""
    watch = Watch(0.0)
    for turn in range(1, int(watch_for_s / gap_s) + 1):
        trouble = watch.look(turn * gap_s, tell(turn), has_rate=has_rate, aborted=aborted)
        if trouble is not None:
            return turn * gap_s, trouble.reason
    return None


def beating(turn):
    return replace(WRITING, beat=turn)


def writing(turn):
    return replace(beating(turn), counters=replace(NOTHING_YET, done_bytes=turn))


def test_a_writer_that_works_is_left_alone() -> None:
    """However long it takes."""
    assert found(3600.0, writing) is None


@pytest.mark.parametrize("has_rate", [True, False])
@pytest.mark.parametrize("told", [None, WRITING])
def test_silence_is_a_loss(has_rate: bool, told: Tidings | None) -> None:
    """With a rate or without, from the first moment or from some later one."""
    after_s, reason = found(60.0, lambda _turn: told, has_rate=has_rate)
    assert SILENT_S <= after_s <= SILENT_S + 2 * TURN_S
    assert reason is FailReason.WRITER_LOST


def test_standing_still_is_a_loss_only_with_a_rate() -> None:
    """It beats and writes nothing: with a rate the storage hangs, without one it waits."""
    after_s, reason = found(1000.0, beating)
    assert STANDSTILL_S <= after_s <= STANDSTILL_S + 2 * TURN_S
    assert reason is FailReason.NO_PROGRESS
    assert found(1000.0, beating, has_rate=False) is None


def test_a_pause_in_between_starts_no_new_count_and_adds_none() -> None:
    """Time at a rate of 0 does not count."""
    watch = Watch(0.0)
    for turn in range(1, 4000):
        has_rate = turn % 2 == 0
        if watch.look(turn * TURN_S, beating(turn), has_rate=has_rate, aborted=False):
            break
    assert turn * TURN_S == pytest.approx(2 * STANDSTILL_S, abs=2.0)


def test_who_does_not_stop_is_stuck() -> None:
    """A writer stops within a chunk; one that is in the storage does not."""
    after_s, reason = found(60.0, beating, has_rate=False, aborted=True)
    assert OBEDIENCE_S <= after_s <= OBEDIENCE_S + 2 * TURN_S
    assert reason is FailReason.NO_PROGRESS


def test_a_trainer_that_was_stopped_blames_nobody() -> None:
    """Ten minutes in which nobody looked are one look."""
    assert found(1200.0, lambda _turn: None, gap_s=600.0) is None


def test_waiting_for_other_ranks_is_no_standing_still() -> None:
    """Its bytes are durable; that of the others takes as long as it takes, as long as it beats."""
    assert found(1000.0, lambda turn: replace(beating(turn), stage=Stage.DURABLE)) is None
    assert found(60.0, lambda _turn: replace(WRITING, stage=Stage.DURABLE)) is not None


def test_a_writer_in_a_collective_is_not_taken_for_disobedient() -> None:
    """That ends by its own limit; one that hangs beyond it is ended."""
    watch, turn = Watch(0.0, is_alone=False), 0
    while watch.look(turn * TURN_S, beating(turn), has_rate=False, aborted=True) is None:
        turn += 1
    assert OBEDIENCE_S + COLLECTIVE_LIMIT_S <= turn * TURN_S <= OBEDIENCE_S + COLLECTIVE_LIMIT_S + 2 * TURN_S
