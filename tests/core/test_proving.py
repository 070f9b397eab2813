"""When a checkpoint is read back: by hand, with times as arguments."""

import math

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.core.proving import EVERY_COMMITS, Outcome, Proving

START = 1000.0


def proving(every_s=3600.0, commits=0):
    found = Proving(every_s, now_s=START)
    for _ in range(commits):
        found.committed()
    return found


def read_back(found, outcome, now_s):
    found.begun()
    found.ended(outcome, now_s)
    return found


def test_without_a_commit_there_is_nothing_to_prove():
    """However long the attempt runs."""
    assert proving().due_in_s(START + 1e6) == math.inf


def test_it_is_due_after_the_period():
    """Counted from the start of the attempt, and from the end of the one before."""
    found = proving(commits=1)
    assert found.due_in_s(START + 1000.0) == 2600.0
    assert found.due_in_s(START + 3600.0) == 0.0
    read_back(found, Outcome.WHOLE, START + 4000.0).committed()
    assert found.due_in_s(START + 4000.0) == 3600.0


def test_it_is_due_after_ten_commits_if_that_is_sooner():
    """Not after nine; and they are counted anew from then on."""
    found = proving(commits=EVERY_COMMITS - 1)
    assert found.due_in_s(START) == 3600.0
    found.committed()
    assert found.due_in_s(START) == 0.0
    read_back(found, Outcome.WHOLE, START + 1.0).committed()
    assert found.due_in_s(START + 1.0) == 3600.0


def test_what_was_committed_while_one_was_read_back_is_news():
    """It is newer than the one that is proven now."""
    found = proving(commits=EVERY_COMMITS)
    found.begun()
    found.committed()
    found.ended(Outcome.WHOLE, START + 10.0)
    assert found.due_in_s(START + 10.0) == 3600.0


@pytest.mark.parametrize("outcome", [Outcome.DAMAGED, Outcome.VANISHED])
def test_another_has_its_turn_at_once(outcome):
    """Once: when that has been read back too, the period counts again."""
    found = read_back(proving(commits=1), outcome, START + 10.0)
    assert found.due_in_s(START + 10.0) == 0.0
    assert read_back(found, Outcome.WHOLE, START + 20.0).due_in_s(START + 20.0) == math.inf


def test_what_could_not_be_read_is_tried_again_after_the_period():
    """Without another commit, and not in a tight loop."""
    found = read_back(proving(commits=1), Outcome.UNREADABLE, START + 10.0)
    assert found.due_in_s(START + 10.0) == 3600.0


def test_none_is_never():
    """Nor after ten commits."""
    found = proving(None, commits=EVERY_COMMITS)
    assert (found.is_on, found.due_in_s(START + 1e6)) == (False, math.inf)


@pytest.mark.parametrize("every_s", [0, -1.0, math.inf, math.nan, "3600", True])
def test_a_period_that_is_none_is_refused_by_name(every_s):
    """At the start of the job, not an hour later."""
    with pytest.raises(ConfigError, match="verify_every_s"):
        proving(every_s)
