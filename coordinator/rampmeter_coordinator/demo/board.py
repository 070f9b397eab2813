"""What each job is doing right now, from the records so far. A fold without I/O; the screens draw it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from rampmeter_coordinator.demo.history import (
    Chunk,
    Committed,
    CoordinatorBack,
    CoordinatorKilled,
    Ended,
    Failed,
    Killed,
    Loss,
    Queued,
    Record,
    Restored,
    Saving,
    Started,
)
from rampmeter_coordinator.demo.scenario import Scenario

_SMOOTHING = 0.15
"""Weight of the newest loss in what is shown."""


class Doing(StrEnum):
    """What a row says."""

    STARTING = "starting"
    READY = "ready"
    TRAINING = "training"
    QUEUED = "waits for its turn, trains on"
    WRITING = "writes, trains on"
    KILLED = "killed, starting again"
    DONE = "done"


_NEXT: dict[type[Record], Doing] = {
    Started: Doing.READY,
    Queued: Doing.QUEUED,
    Failed: Doing.TRAINING,
    Killed: Doing.KILLED,
    Ended: Doing.DONE,
}


@dataclass(slots=True, kw_only=True)
class Row:
    """One job. `loss` is smoothed for the eye; `written` is the share of the save in flight that is in the storage."""

    name: str
    state_bytes: int
    doing: Doing = Doing.STARTING
    step: int = 0
    loss: float | None = None
    written_bytes: int = 0
    committed_step: int | None = None
    resumed_step: int | None = None

    @property
    def written(self) -> float:
        return min(1.0, self.written_bytes / self.state_bytes)


@dataclass(slots=True, kw_only=True)
class Board:
    """All jobs of the act that is being played."""

    rows: dict[str, Row] = field(default_factory=dict)
    coordinator_down: bool = False

    @classmethod
    def of(cls, scenario: Scenario) -> "Board":
        """Before anything has happened."""
        return cls(rows={job.name: Row(name=job.name, state_bytes=job.state_bytes) for job in scenario.jobs})

    @property
    def num_writers(self) -> int:
        """Jobs that are writing to the storage now."""
        return sum(row.doing is Doing.WRITING and row.written_bytes > 0 for row in self.rows.values())

    def take(self, records: Iterable[Record]) -> None:
        """See what is new."""
        for record in records:
            if isinstance(record, CoordinatorKilled | CoordinatorBack):
                self.coordinator_down = isinstance(record, CoordinatorKilled)
            else:
                self._take_of_job(self.rows[record.job], record)

    def _take_of_job(self, row: Row, record: Record) -> None:
        match record:
            case Loss():
                _trained(row, record)
            case Chunk():
                row.written_bytes += record.num_bytes
            case Saving():
                row.doing, row.written_bytes = Doing.WRITING, 0
            case Committed():
                row.doing, row.committed_step = Doing.TRAINING, record.step
            case Restored():
                row.resumed_step = record.step if record.life > 1 else None
            case _:
                row.doing = _NEXT.get(type(record), row.doing)


def _trained(row: Row, record: Loss) -> None:
    loss = float.fromhex(record.loss)
    row.step = record.step
    row.loss = loss if row.loss is None else row.loss + _SMOOTHING * (loss - row.loss)
    if row.doing in (Doing.STARTING, Doing.READY):
        row.doing = Doing.TRAINING
