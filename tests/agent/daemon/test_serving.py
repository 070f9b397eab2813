"""What a writer process makes of the end of a save, seen without a process."""

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from torch.distributed.checkpoint.api import CheckpointException

from rampmeter.core.errors import CommitError
from rampmeter.core.messages import FailReason
from rampmeter.daemon import serving
from rampmeter.daemon.cell import Cell
from rampmeter.daemon.parcel import Outcome
from rampmeter.daemon.records import new_memory
from rampmeter.daemon.tidings import TidingsCell

NUMBER = 7
BROKEN = RuntimeError("Connection closed by peer")
REFUSED = CheckpointException("plan", {1: (CommitError("a NaN", reason="not_finite"), None)})  # type: ignore[dict-item]


class Order:
    number, party = 1, None


@pytest.fixture
def writer() -> Iterator[serving._Writer]:
    """In a group of writers."""
    cells = [new_memory(), new_memory()]
    near, far = socket.socketpair()
    with near, far:
        writer = serving._Writer(near, Cell(cells[0]), TidingsCell(cells[1]), os.getppid())
        writer._circle.number = NUMBER
        yield writer
    for cell in cells:
        os.close(cell)


@pytest.mark.parametrize(
    ("error", "is_committed", "outcome"),
    [
        (None, False, Outcome(group=NUMBER)),
        (REFUSED, False, Outcome(reason=FailReason.NOT_FINITE, detail="a NaN", group=NUMBER)),
        (BROKEN, False, Outcome(reason=FailReason.UNKNOWN, detail=str(BROKEN))),
        (BROKEN, True, Outcome()),
    ],
)
def test_a_group_is_left_where_it_broke_and_a_commit_stands(
    writer: serving._Writer,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    is_committed: bool,
    outcome: Outcome,
) -> None:
    """What one writer raises all hear in the group, which stays; after the commit nothing fails a save any more."""

    def run(self: Any) -> None:
        self.is_committed = is_committed
        if error is not None:
            raise error

    monkeypatch.setattr(
        serving.Flush, "__init__", lambda self, *_, **__: setattr(self, "is_committed", False)
    )
    monkeypatch.setattr(serving.Flush, "run", run)
    assert writer._flush(Order(), {}) == outcome  # type: ignore[arg-type]
