"""One save through DCP: staged now, written in a thread; and what its errors mean."""

from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any

import torch
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import save

from rampmeter.core.clock import Clock
from rampmeter.core.errors import LeaseLost, RankFailed
from rampmeter.core.messages import FailReason
from rampmeter.flushthread import in_thread_of_its_own
from rampmeter.savable import blaming

_PLAIN_PARTS = "save what it is made of as plain tensors"


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
        with blaming(state_dict, _stage_alone, cannot_be="copied", instead=_PLAIN_PARTS):
            staged = super().stage(state_dict, **kwargs)
        self.last_stage_s = self._clock.now() - before_s
        return staged


def _stage_alone(value: Any) -> object:
    return StateDictStager().stage({"value": value})


def start_save(
    state_dict: dict[str, Any],
    *,
    writer: FileSystemWriter,
    planner: SavePlanner,
    stager: DefaultStager,
    process_group: torch.distributed.ProcessGroup | None,
    single_process: bool,
    before: Callable[[], object] = lambda: None,
) -> ThreadFuture[Any]:
    """Stage now, write in a thread. Returns when training may go on; the future fails with `cause_of` inside.

    `before` is called first thing in the thread: if it raises, no rank is waited for in a collective.
    """
    staged = stager.stage(state_dict)

    def flush() -> Any:
        before()
        return save(
            staged,
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

    What a rank raises between collectives DCP hands to all ranks in one, wrapped; RankFailed as it is came before them.
    """
    return error is not None and not isinstance(error, (CheckpointException, RankFailed))
