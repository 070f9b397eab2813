"""Which way a save goes is the same on all ranks, whatever each of them can and wishes."""

from dataclasses import replace

import pytest

from rampmeter.ranks.beside import Way, obstacle_of, way_of
from rampmeter.ranks.words import Beside

ABLE = Beside(is_known=True)
EAGER = Beside(is_known=True, is_wished=True)
UNABLE = Beside(is_known=True, is_wished=True, obstacle="it was lost twice")
UNASKED = Beside(is_known=True, obstacle="its mode is thread")


def told(*besides: Beside) -> dict[int, Beside]:
    return dict(enumerate(besides))


@pytest.mark.parametrize(
    ("besides", "way"),
    [
        ((EAGER, EAGER), Way.PROCESS_ANEW),
        ((ABLE, EAGER), Way.PROCESS_ANEW),
        ((ABLE, ABLE), Way.THREAD),
        ((EAGER, UNABLE), Way.THREAD),
        ((UNABLE, EAGER), Way.THREAD),
        ((EAGER, UNASKED), Way.THREAD),
        ((UNASKED, UNASKED), Way.THREAD),
        ((EAGER, Beside()), None),
        ((EAGER,), None),
    ],
)
def test_processes_write_if_each_rank_can_and_one_wishes_it(
    besides: tuple[Beside, ...], way: Way | None
) -> None:
    """And nothing is decided before the state of each was seen."""
    assert way_of(told(*besides), 2) is way


@pytest.mark.parametrize(
    ("groups", "way"),
    [
        ((4, 4, 4), Way.PROCESS),
        ((0, 0, 0), Way.PROCESS_ANEW),
        ((4, 0, 4), Way.PROCESS_ANEW),
        ((4, 4, 9), Way.PROCESS_ANEW),
    ],
)
def test_a_group_is_kept_while_all_writers_are_in_it(groups: tuple[int, ...], way: Way) -> None:
    """One that is out of it, or in another one, and all make a new one."""
    assert way_of(told(*(replace(EAGER, group=group) for group in groups)), 3) is way


def test_what_keeps_from_it_is_named_where_that_is_wished() -> None:
    """The lowest rank's obstacle; none where nobody asked for processes."""
    assert obstacle_of(told(EAGER, UNABLE, UNABLE)) == "rank 1: it was lost twice"
    assert obstacle_of(told(UNASKED, EAGER)) == "rank 0: its mode is thread"
    assert obstacle_of(told(UNASKED, UNASKED)) is None
    assert obstacle_of(told(EAGER, EAGER)) is None
