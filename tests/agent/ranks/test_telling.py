"""What of the common log reaches people."""

import logging

import pytest

from rampmeter.ranks.telling import Teller
from rampmeter.ranks.words import Event, EventKind

COMMITTED = Event(kind=EventKind.COMMITTED)
ABORTED = Event(kind=EventKind.ABORTED, rank=1, detail="rank 1 was already in call 9")
FAILED = Event(kind=EventKind.FAILED, rank=1, detail="OSError: no space")


def told(caplog: pytest.LogCaptureFixture, *events: Event, rank: int = 0) -> list[str]:
    teller = Teller(rank)
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        for event in events:
            teller.heard(event)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("events", "num_told"),
    [
        ([ABORTED], 0),
        ([ABORTED, COMMITTED, ABORTED], 0),
        ([ABORTED, ABORTED], 1),
        ([ABORTED] * 5, 1),
        ([ABORTED, ABORTED, COMMITTED, ABORTED, ABORTED], 2),
        ([FAILED, FAILED], 1),
        ([FAILED, COMMITTED, FAILED], 2),
    ],
)
def test_trouble_is_told_once_until_they_agree_again(
    caplog: pytest.LogCaptureFixture, events: list[Event], num_told: int
) -> None:
    """One proposal that came too late is no trouble."""
    assert len(told(caplog, *events)) == num_told


def test_only_rank_0_tells(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand ranks do not say the same."""
    assert not told(caplog, FAILED, ABORTED, ABORTED, rank=1)
    assert told(caplog, FAILED) == ["a save fails on all ranks, because of rank 1: OSError: no space"]
