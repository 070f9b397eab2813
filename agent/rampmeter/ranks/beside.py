"""Whether the next save of a job is written by processes beside training, or on all ranks by a thread of it. Pure.

All ranks go the same way, since what writes must meet what writes: by processes only if each rank can, and if some
rank wishes it. Their process group is kept for as long as each writer is in it.
"""

from collections.abc import Mapping
from enum import StrEnum

from rampmeter.ranks.words import Beside


class Way(StrEnum):
    """How all ranks write a save."""

    THREAD = "thread"
    PROCESS = "process"  # the writers are in a group
    PROCESS_ANEW = "process_anew"  # they are to make one, with the number of the save


def way_of(told: Mapping[int, Beside], num_ranks: int) -> Way | None:
    """What follows from what the ranks have told last; None before the state of each was seen, at its first step."""
    if len(told) < num_ranks or not all(beside.is_known for beside in told.values()):
        return None
    if any(beside.obstacle for beside in told.values()):
        return Way.THREAD
    if not any(beside.is_wished for beside in told.values()):
        return Way.THREAD
    groups = {beside.group for beside in told.values()}
    return Way.PROCESS if len(groups) == 1 and groups != {0} else Way.PROCESS_ANEW


def obstacle_of(told: Mapping[int, Beside]) -> str | None:
    """What keeps the ranks from writing in processes although that is wished; the lowest rank that has one is named."""
    if not any(beside.is_wished for beside in told.values()):
        return None
    found = [f"rank {rank}: {beside.obstacle}" for rank, beside in sorted(told.items()) if beside.obstacle]
    return found[0] if found else None
