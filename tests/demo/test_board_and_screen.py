"""What the live screen says."""

import io

import pytest
from rich.console import Console

from rampmeter_coordinator.demo.acts import Stage
from rampmeter_coordinator.demo.board import Board, Doing
from rampmeter_coordinator.demo.history import (
    Chunk,
    Committed,
    CoordinatorBack,
    CoordinatorKilled,
    Ended,
    Killed,
    Queued,
    Restored,
    Saving,
    Started,
)
from rampmeter_coordinator.demo.scenario import scenario
from rampmeter_coordinator.demo.screen import LineScreen, LiveScreen, introduction
from support.histories import losses

PLAY = scenario(act_s=36.0, seed=0)
JOB = PLAY.jobs[0]
_WHO = {"at_s": 9.0, "job": JOB.name, "life": 1}


def _board(*records):
    board = Board.of(PLAY)
    board.take(records)
    return board


@pytest.mark.parametrize(
    ("records", "doing"),
    [
        ([], Doing.STARTING),
        ([Started(**_WHO)], Doing.READY),
        (losses(JOB.name, 1, [2.0]), Doing.TRAINING),
        ([Queued(**_WHO)], Doing.QUEUED),
        ([Queued(**_WHO), Saving(**_WHO, step=1)], Doing.WRITING),
        ([Saving(**_WHO, step=1), Committed(**_WHO, step=1, write_s=1.0)], Doing.TRAINING),
        ([Killed(**_WHO)], Doing.KILLED),
        ([Ended(**_WHO)], Doing.DONE),
    ],
)
def test_a_row_says_what_its_job_does(records, doing):
    """The newest record decides."""
    assert _board(*records).rows[JOB.name].doing is doing


def test_steps_do_not_hide_a_write():
    """Training goes on while a checkpoint is written; the row keeps saying so."""
    board = _board(Saving(**_WHO, step=1), *losses(JOB.name, 2, [1.0]))
    assert board.rows[JOB.name].doing is Doing.WRITING


def test_a_write_shows_its_share():
    """Half of the state is in the storage."""
    chunk = Chunk(**_WHO, begin_s=8.0, num_bytes=JOB.state_bytes // 2)
    board = _board(Saving(**_WHO, step=1), chunk)
    assert board.rows[JOB.name].written == pytest.approx(0.5)
    assert board.num_writers == 1


def test_the_coordinators_death_is_seen_until_it_is_back():
    """Down from its kill to its return."""
    who = {"at_s": 9.0, "job": "coordinator", "life": 1}
    board = _board(CoordinatorKilled(**who))
    assert board.coordinator_down
    board.take([CoordinatorBack(**who)])
    assert not board.coordinator_down


def _stage(metered=True):
    resumed = Restored(at_s=9.0, job=JOB.name, life=2, step=7)
    records = [resumed, *losses(JOB.name, 8, [0.5], life=2), Queued(at_s=9.0, job="demo-2", life=1)]
    return Stage(metered=metered, begin_s=5.0, end_s=41.0, records=records)


def test_lines_say_the_act_the_time_and_who_does_what():
    """For logs: the act once, then one short line now and then."""
    out = io.StringIO()
    with LineScreen(Console(file=out, width=80, color_system=None), PLAY) as screen:
        screen.update(_stage(), 10.0)
        screen.update(_stage(), 10.1)
    assert out.getvalue().splitlines() == [
        "Act 2 of 2, metered: the same jobs ask for their turn; one will be killed",
        "  5 of 36 s: 4 starting, 1 training, 1 waiting for a turn (training on)",
    ]


def test_the_live_table_fits_80_columns():
    """Nothing is cut off or wrapped on an ordinary terminal."""
    out = io.StringIO()
    console = Console(file=out, width=80, height=40, force_terminal=True, color_system=None)
    with LiveScreen(console, PLAY) as screen:
        screen.update(_stage(), 10.0)
    text = out.getvalue()
    assert "training (resumed at step 7)" in text
    assert "waits for its turn, trains on" in text


def test_the_introduction_says_what_is_emulated_and_where_to_look():
    """Nobody should take the storage for a real one."""
    text = str(introduction(PLAY, "http://127.0.0.1:1"))
    assert "EMULATED  the shared storage: 100 MB/s in all" in text
    assert "http://127.0.0.1:1" in text
    assert max(len(line) for line in text.splitlines()) <= 80
