"""The only module that touches torch.distributed.checkpoint: how our streams, digests and checks get into DCP.

The extension point is the attribute `fs` of a file-system writer: it sees every byte of every file once, in order.
Digests ride on the WriteResults that DCP gathers anyway; the commit happens in `finish`, so that a failure of it
reaches all ranks. This module decides nothing about leases, commits or restore order, and runs no collective itself.
"""

import io
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor
from torch.futures import Future

from rampmeter.commit import WrittenFile
from rampmeter.core.clock import Clock
from rampmeter.core.errors import CommitError, LeaseLost, RankFailed
from rampmeter.core.messages import FailReason
from rampmeter.course import Course
from rampmeter.daemon.parcel import Sealed
from rampmeter.finite import check_finite
from rampmeter.flushthread import in_thread_of_its_own
from rampmeter.hashing import HashedFile
from rampmeter.layout import METADATA_NAME
from rampmeter.manifest import Manifest
from rampmeter.metered_fs import MeteredFileSystem
from rampmeter.reading.pace import UNPACED, Pace
from rampmeter.statekeys import LEAD, RESERVED
from rampmeter.throttle import Throttle
from rampmeter.verification import ByteRange, Verifier

__all__ = [
    "BytesStorageMetadata",
    "CheckedSavePlanner",
    "DTensor",
    "Metadata",
    "MeteredWriter",
    "PlannedLoad",
    "ReusedStager",
    "StateDictOptions",
    "Stateful",
    "TensorStorageMetadata",
    "VerifiedReader",
    "cause_of",
    "ends_group",
    "get_model_state_dict",
    "get_optimizer_state_dict",
    "is_plain",
    "local_part",
    "metered",
    "metered_writer",
    "save_here",
    "set_model_state_dict",
    "set_optimizer_state_dict",
    "start_save",
]

_OBJECT_BYTES = 64 * 1024
"""What one value that is no tensor counts for in a rank's share of the rate: its size is known when it is written."""

# A single process saves without a process group on purpose, at every interval.
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable")


@dataclass(frozen=True)
class HashedResult(WriteResult):
    """A WriteResult that carries its rank's digests to the coordinator rank."""

    files: tuple[HashedFile, ...] = ()
    unchecked: tuple[str, ...] = ()


class MeteredWriter:
    """Mixin to stand before any writer with an `fs` attribute; see `metered`. Never overwrites a checkpoint.

    `max_streams` bounds its writing threads; a writer without `thread_count` has one. None = as many as it has.
    `course` is told what this rank is about to write, and holds it up before DCP's gather until all ranks are there.
    `on_first_byte` is called once with the bytes of all tensors that this rank is about to write.
    `finish` is called with all written files and the names of unchecked tensors, on the coordinator rank, when all
    bytes are durable: it commits, and what it raises fails the save on all ranks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        throttle: Throttle,
        finish: Callable[[Sequence[WrittenFile], Sequence[str]], None],
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
        files = tuple(self._metered.hashed.values())
        unchecked = tuple(getattr(planner, "unchecked", ()))
        future: Future[list[WriteResult]] = Future()
        future.set_result(_attach(results, files, unchecked))
        return future

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
        for rank, rank_results in enumerate(results):
            for result in rank_results:
                if isinstance(result, HashedResult):
                    written += [WrittenFile(rank=rank, file=file) for file in result.files]
                    unchecked += result.unchecked
        _check_against_files(results, {item.file.name: item.file for item in written})
        written.append(WrittenFile(rank=0, file=self._metered.hashed[METADATA_NAME]))
        self._finish(written, unchecked)


def _num_objects(plan: SavePlan) -> int:
    return sum(item.type == WriteItemType.BYTE_IO for item in plan.items)


def _tensor_bytes(item: WriteItem) -> int:
    return 0 if item.type == WriteItemType.BYTE_IO else item.tensor_storage_size() or 0


def _attach(
    results: list[WriteResult], files: tuple[HashedFile, ...], unchecked: tuple[str, ...]
) -> list[WriteResult]:
    if not results:
        return results
    first = HashedResult(
        results[0].index,
        results[0].size_in_bytes,
        results[0].storage_data,
        files=files,
        unchecked=unchecked,
    )
    return [first, *results[1:]]


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
    finish: Callable[[Sequence[WrittenFile], Sequence[str]], None],
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


@dataclass(frozen=True)
class LeadItem(WriteItem):
    """An item of which, when several ranks have it, the copy of the lowest rank is written."""


class CheckedSavePlanner(DefaultSavePlanner):
    """Looks at the staged values while planning: a NaN is found before any byte is written.

    `before_plan` is called first thing on the flush thread. Every rank checks all that it holds, its own shards of
    DTensors, whether or not it will be the one that writes it. Of what is no tensor, and of the tensors that the state
    dict names under `LEAD`, the copy of the lowest rank counts; torch would take that of any rank.
    """

    def __init__(self, *, check: bool = True, before_plan: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._check = check
        self._before_plan = before_plan
        self._lead: frozenset[tuple[Any, ...]] = frozenset()
        self.unchecked: list[str] = []

    def set_up_planner(
        self,
        state_dict: dict[str, Any],
        storage_meta: StorageMeta | None = None,
        is_coordinator: bool = False,
    ) -> None:
        self._before_plan()
        own = dict(state_dict.get(RESERVED, {}))
        self._lead = frozenset(own.pop(LEAD, ()))
        if own:
            state_dict = {**state_dict, RESERVED: own}
        super().set_up_planner(state_dict, storage_meta, is_coordinator)

    def create_local_plan(self) -> SavePlan:
        plan = super().create_local_plan()
        plan = replace(plan, items=[self._marked(item) for item in plan.items])
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                continue
            tensor = cast(torch.Tensor, self.resolve_data(item)).detach()
            if not self._check or not check_finite(item.index.fqn, tensor):
                self.unchecked.append(item.index.fqn)
        return plan

    def transform_object(self, write_item: WriteItem, object: Any) -> Any:  # noqa: A002 - as it is called by torch
        if isinstance(object, Sealed):
            return io.BytesIO(object.content)
        return super().transform_object(write_item, object)

    def _marked(self, item: WriteItem) -> WriteItem:
        path = cast("dict[str, tuple[Any, ...]]", self.mappings).get(item.index.fqn)
        if item.type != WriteItemType.BYTE_IO and path not in self._lead:
            return item
        return LeadItem(**vars(item))

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """Runs on the coordinator rank, with the plans of all ranks."""
        planned: set[MetadataIndex] = set()
        kept = []
        for plan in all_plans:
            items = [item for item in plan.items if item.index not in planned]
            kept.append(replace(plan, items=items))
            planned |= {item.index for item in items if isinstance(item, LeadItem)}
        return super().create_global_plan(kept)

    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        """What another rank writes, another rank names as unchecked."""
        plan = super().finish_plan(new_plan)
        written = {item.index.fqn for item in plan.items}
        self.unchecked = [name for name in self.unchecked if name in written]
        return plan


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether all of its values are here: no DTensor, nor another kind that may be spread over ranks."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class VerifiedReader(FileSystemReader):
    """Reads one checkpoint: `.metadata` is verified before it is unpickled, shards by whom `verifier` is asked to."""

    def __init__(self, directory: Path, manifest: Manifest, *, pace: Pace = UNPACED) -> None:
        super().__init__(directory)
        self.manifest = manifest
        self.verifier = Verifier(directory, manifest, pace=pace)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self.verifier.verify_file(METADATA_NAME)
        return super().read_metadata(*args, **kwargs)


class PlannedLoad:
    """What one rank will read into `state_dict`, in place. Making it reads nothing; runs no collective."""

    def __init__(self, state_dict: dict[str, Any], reader: VerifiedReader, metadata: Metadata) -> None:
        self._reader = reader
        self._planner = DefaultLoadPlanner()
        self._planner.set_up_planner(state_dict, metadata)
        reader.set_up_storage_reader(metadata, is_coordinator=False)
        self._plan = self._planner.create_local_plan()

    @property
    def ranges(self) -> dict[str, list[ByteRange]]:
        """The parts of each file that it reads: to be verified before."""
        found: dict[str, list[ByteRange]] = {}
        for item in self._plan.items:
            place = self._reader.storage_data[item.storage_index]
            part = ByteRange(offset_bytes=place.offset, num_bytes=place.length)
            found.setdefault(place.relative_path, []).append(part)
        return found

    def read(self) -> None:
        """Read it; what an error leaves is half read."""
        self._reader.read_data(self._planner.finish_plan(self._plan), self._planner).wait()


class ReusedStager(DefaultStager):
    """A stager to keep for the whole run: its buffers are the price of the first save only."""

    def __init__(self, clock: Clock) -> None:
        with_device = torch.cuda.is_available()
        super().__init__(
            StagingOptions(
                use_pinned_memory=with_device,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=with_device,
            )
        )
        self._clock = clock
        self.last_stage_s = 0.0

    def stage(self, state_dict: dict[str, Any], **kwargs: Any) -> Any:
        before_s = self._clock.now()
        staged = super().stage(state_dict, **kwargs)
        self.last_stage_s = self._clock.now() - before_s
        return staged


def start_save(
    state_dict: dict[str, Any],
    *,
    writer: FileSystemWriter,
    planner: SavePlanner,
    stager: DefaultStager,
    process_group: torch.distributed.ProcessGroup | None,
    single_process: bool,
) -> ThreadFuture[Any]:
    """Stage now, write in a thread. Returns when training may go on; the future fails with `cause_of` inside."""
    flush = partial(
        save,
        stager.stage(state_dict),
        storage_writer=writer,
        planner=planner,
        process_group=process_group,
        no_dist=single_process,
    )
    return in_thread_of_its_own(flush)


def save_here(
    state_dict: dict[str, Any], *, writer: FileSystemWriter, planner: SavePlanner, single_process: bool
) -> None:
    """Write what is staged already, in the calling thread; fails with `cause_of` inside."""
    save(state_dict, storage_writer=writer, planner=planner, no_dist=single_process)


def cause_of(error: BaseException) -> BaseException:
    """What went wrong if DCP wrapped it, else `error`: of the rank that failed, not of those that stopped for it."""
    if not isinstance(error, CheckpointException) or not error.failures:
        return error
    causes = [error.failures[rank][0] for rank in sorted(error.failures)]
    return next((cause for cause in causes if not _is_of_another_rank(cause)), causes[0])


def _is_of_another_rank(error: BaseException) -> bool:
    """Whether a rank stopped only because another one has failed: while it waited, or while it wrote."""
    return isinstance(error, RankFailed) or (
        isinstance(error, LeaseLost) and str(error) == FailReason.RANK_FAILED
    )


def ends_group(error: BaseException | None) -> bool:
    """Whether a save ended in a collective that failed or timed out: its process group is of no use any more.

    What a rank raises between collectives DCP hands to all ranks in one, wrapped.
    """
    return error is not None and not isinstance(error, CheckpointException)
