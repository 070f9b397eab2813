"""The process group of the flush, and of nothing else: gloo, with a constant time-out whatever the bytes.

Ranks meet before they enter a collective, so its time-out need not cover a flush. A group in which a collective timed
out is dead for good and is replaced, by all ranks in the same agreed call of `step()` and on the training thread:
torch numbers groups per process, and a group made in the background could change places with one of the user's.
"""

import contextlib
import logging
from datetime import timedelta
from typing import TypeVar, cast

import torch.distributed as dist

_log = logging.getLogger("rampmeter")

COLLECTIVE_LIMIT_S = 30.0

T = TypeVar("T")


class FlushGroup:
    """One per rank. Made and replaced on the training thread of all ranks together."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit = timedelta(seconds=COLLECTIVE_LIMIT_S if limit_s is None else limit_s)
        self._group = self._new()

    @property
    def group(self) -> dist.ProcessGroup:
        """What the flush runs its collectives in."""
        return self._group

    def tell_all(self, value: T | None) -> T:
        """What rank 0 says, on all ranks. At the start only."""
        box: list[T | None] = [value]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return cast(T, box[0])

    def ask_all(self, value: T) -> list[T]:
        """What each rank says, on all ranks. At the start only."""
        box: list[T | None] = [None] * dist.get_world_size()
        dist.all_gather_object(box, value, group=self._group)
        return cast("list[T]", box)

    def close(self) -> None:
        """No more collectives. Whoever has taken down torch.distributed already has closed it."""
        with contextlib.suppress(Exception):
            dist.destroy_process_group(self._group)

    def renew(self) -> None:
        """Replace it by a new one."""
        old, self._group = self._group, self._new()
        _log.info("the process group of saves is a new one")
        dist.destroy_process_group(old)

    def _new(self) -> dist.ProcessGroup:
        return cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=self._limit))
