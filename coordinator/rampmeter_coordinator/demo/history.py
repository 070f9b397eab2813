"""The record of a demo: what each process did, as JSON lines with CLOCK_BOOTTIME stamps.

Every process writes its own file, one line a record, each in one system call, so that a kill loses at most the line
that was being written. All figures of the demo are computed from these records by `observer`, and from nothing else.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Something that one life of one job did at `at_s`. A job that is started again has life 2."""

    at_s: float
    job: str
    life: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Record):
    """The process is ready to train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Record):
    """The process has left its training loop on its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Record):
    """The process was sent SIGKILL. Written by whoever killed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(Record):
    """The loss of training step `step` (the first is 1), exact: a hexadecimal float."""

    step: int
    loss: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled(Record):
    """Training was blocked by its checkpoint for `duration_s`, up to `at_s`."""

    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest(Record):
    """The digest of the whole training state after `step`."""

    step: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(Record):
    """A checkpoint is due and the job asks for its turn; training goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving(Record):
    """A save of the state after `step` has begun."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk(Record):
    """`num_bytes` went into the storage between `begin_s` and `at_s`."""

    begin_s: float
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Record):
    """The save of `step` is durable, `write_s` after its snapshot."""

    step: int
    write_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Record):
    """The save of `step` came to nothing."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed(Record):
    """What this process may write from now on: `bytes_per_s` until `until_s`; None = without bound, without end."""

    bytes_per_s: int | None
    until_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored(Record):
    """The state of `step` was loaded; 0 = there was no checkpoint."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorKilled(Record):
    """The coordinator was sent SIGKILL; `job` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorBack(Record):
    """The coordinator answers again."""


RecordT = TypeVar("RecordT", bound=Record)

_KINDS = {
    kind.__name__: kind
    for kind in (
        Started,
        Ended,
        Killed,
        Loss,
        Stalled,
        Digest,
        Queued,
        Saving,
        Chunk,
        Committed,
        Failed,
        Allowed,
        Restored,
        CoordinatorKilled,
        CoordinatorBack,
    )
}


class HistoryWriter:
    """Appends the records of one process. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, record: Record) -> None:
        line = json.dumps({"kind": type(record).__name__, **asdict(record)})
        os.write(self._descriptor, f"{line}\n".encode())

    def close(self) -> None:
        os.close(self._descriptor)


class HistoryReader:
    """Follows all history files of a directory while they grow."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read_bytes: dict[Path, int] = {}

    def new_records(self) -> list[Record]:
        """What was written since the last call, oldest first within each file."""
        return [record for path in sorted(self._directory.glob("*.jsonl")) for record in self._news(path)]

    def _news(self, path: Path) -> Iterator[Record]:
        with path.open("rb") as file:
            file.seek(self._read_bytes.get(path, 0))
            news = file.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole)
        for line in whole.splitlines():
            yield parse(json.loads(line))


def parse(line: dict[str, Any]) -> Record:
    """A record from its JSON form."""
    fields = dict(line)
    record: Record = _KINDS[fields.pop("kind")](**fields)
    return record


def of_kind(records: list[Record], kind: type[RecordT]) -> list[RecordT]:
    """The records of one kind, in order of time."""
    return sorted((r for r in records if isinstance(r, kind)), key=lambda record: record.at_s)
