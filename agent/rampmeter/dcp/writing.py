"""How our streams and digests get into a checkpoint writer, and what is checked before it may be committed.

The extension point is the attribute `fs` of a file-system writer: it sees every byte of every file once, in order.
Digests ride on the WriteResults that DCP gathers anyway; the commit happens in `finish`, so that a failure of it
reaches all ranks.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    Metadata,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from rampmeter.commit import WrittenFile
from rampmeter.core.errors import CommitError
from rampmeter.course import Course
from rampmeter.hashing import HashedFile
from rampmeter.layout import METADATA_NAME
from rampmeter.manifest import KeyNorm
from rampmeter.metered_fs import MeteredFileSystem
from rampmeter.norms import joined
from rampmeter.throttle import Throttle

_OBJECT_BYTES = 64 * 1024
"""What one value that is no tensor counts for in a rank's share of the rate: its size is known when it is written."""


Finish: TypeAlias = Callable[[Sequence[WrittenFile], Sequence[str], Sequence[KeyNorm]], None]


@dataclass(frozen=True)
class HashedResult(WriteResult):
    """A WriteResult that carries its rank's digests and norms to the coordinator rank."""

    files: tuple[HashedFile, ...] = ()
    unchecked: tuple[str, ...] = ()
    norms: tuple[KeyNorm, ...] = ()


class MeteredWriter:
    """Mixin to stand before any writer with an `fs` attribute; see `metered`. Never overwrites a checkpoint.

    `max_streams` bounds its writing threads; a writer without `thread_count` has one. None = as many as it has.
    `course` is told what this rank is about to write, and holds it up before DCP's gather until all ranks are there.
    `on_first_byte` is called once with the bytes of all tensors that this rank is about to write.
    `finish` is called with all written files, the names of unchecked tensors and the norms by key, on the coordinator
    rank, when all bytes are durable: it commits, and what it raises fails the save on all ranks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        throttle: Throttle,
        finish: Finish,
        course: Course,
        on_first_byte: Callable[[int], None] = lambda _num_bytes: None,
        max_streams: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(path, *args, **kwargs)  # type: ignore[call-arg]
        self.overwrite = False
        if max_streams is not None and hasattr(self, "thread_count"):
            self.thread_count: int = max(1, min(self.thread_count, max_streams))
        self._finish = finish
        self._course = course
        self._planned_bytes = 0
        self._metered = MeteredFileSystem(
            cast(Any, self).fs, throttle, lambda: on_first_byte(self._planned_bytes)
        )
        self.fs = self._metered

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes this rank's files; raises the first error of their streams, not what was made of it above."""
        self._planned_bytes = sum(_tensor_bytes(item) for item in plan.items)
        try:
            self._course.ready(self._planned_bytes + _OBJECT_BYTES * _num_objects(plan))
            results = self._write(plan, planner)
            self._course.done()
        except BaseException as error:
            self._course.failed(error)
            raise
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._with_findings(results, planner))
        return future

    def _with_findings(self, results: list[WriteResult], planner: SavePlanner) -> list[WriteResult]:
        """What this rank knows of all that it wrote rides on the first of its results."""
        if not results:
            return results
        first = HashedResult(
            results[0].index,
            results[0].size_in_bytes,
            results[0].storage_data,
            files=tuple(self._metered.hashed.values()),
            unchecked=tuple(getattr(planner, "unchecked", ())),
            norms=tuple(getattr(planner, "norms", ())),
        )
        return [first, *results[1:]]

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        try:
            results: list[WriteResult] = super().write_data(plan, planner).wait()  # type: ignore[misc]
        except BaseException:
            if self._metered.first_error is not None:
                raise self._metered.first_error from None
            raise
        if self._metered.first_error is not None:  # of a further writing thread, which torch does not report
            raise self._metered.first_error
        _check_against_plan(plan, results)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Writes `.metadata`, then hands all files over to be committed."""
        super().finish(metadata=metadata, results=results)  # type: ignore[misc]
        written: list[WrittenFile] = []
        unchecked: list[str] = []
        norms: list[KeyNorm] = []
        for rank, rank_results in enumerate(results):
            for result in rank_results:
                if isinstance(result, HashedResult):
                    written += [WrittenFile(rank=rank, file=file) for file in result.files]
                    unchecked += result.unchecked
                    norms += result.norms
        _check_against_files(results, {item.file.name: item.file for item in written})
        written.append(WrittenFile(rank=0, file=self._metered.hashed[METADATA_NAME]))
        self._finish(written, unchecked, joined(norms))


def _num_objects(plan: SavePlan) -> int:
    return sum(item.type == WriteItemType.BYTE_IO for item in plan.items)


def _tensor_bytes(item: WriteItem) -> int:
    return 0 if item.type == WriteItemType.BYTE_IO else item.tensor_storage_size() or 0


def _check_against_plan(plan: SavePlan, results: list[WriteResult]) -> None:
    """Every item of this rank's plan has a result: a writing thread that ended early leaves none, and says nothing."""
    lacking = {item.index for item in plan.items} - {result.index for result in results}
    if lacking:
        name = min(index.fqn for index in lacking)
        raise CommitError(
            f"{len(lacking)} items were never written, {name} among them", reason="size_mismatch"
        )


def _check_against_files(results: list[list[WriteResult]], files: dict[str, HashedFile]) -> None:
    """Every item that DCP believes written lies inside a file that went through our streams."""
    for result in (item for rank_results in results for item in rank_results):
        place = result.storage_data
        file = files.get(place.relative_path)
        if file is None or place.offset + place.length > file.num_bytes:
            raise CommitError(
                f"file {place.relative_path} does not hold {result.index.fqn} as planned",
                reason="size_mismatch",
            )


@cache
def metered(writer_class: type) -> type:
    """A writer class like `writer_class` whose files are paced, hashed and pushed out."""
    return type(f"Metered{writer_class.__name__}", (MeteredWriter, writer_class), {})


def metered_writer(
    directory: Path,
    *,
    throttle: Throttle,
    finish: Finish,
    course: Course,
    on_first_byte: Callable[[int], None],
    writer_class: type | None = None,
    max_streams: int | None = None,
) -> FileSystemWriter:
    """The writer for a directory: `writer_class`, or torch's own for mounted file systems."""
    kind = cast("Callable[..., FileSystemWriter]", metered(writer_class or FileSystemWriter))
    return kind(
        directory,
        throttle=throttle,
        finish=finish,
        course=course,
        on_first_byte=on_first_byte,
        max_streams=max_streams,
    )
