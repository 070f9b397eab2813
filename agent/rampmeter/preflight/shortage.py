"""Decides whether a save can be made with what is left, and says what lacks. Pure."""

from dataclasses import dataclass
from pathlib import Path

from rampmeter.core.messages import FailReason
from rampmeter.core.units import format_bytes
from rampmeter.preflight.host import Room

MEMORY_PER_STAGED_BYTE = 1.1
"""The copy of the state, and what serialising it takes beside that."""

NUM_FILES = 8
"""Files that one save makes at most beside the shards of further writing threads: directory, shard, metadata, blocks,
manifest and pointer, some of them under a temporary name first."""

NUM_DESCRIPTORS = 32
"""Files, directories and connections that may be open at once while a save is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a save takes. num_bytes: None = unknown. staged_bytes: buffers that do not exist yet."""

    num_bytes: int | None
    staged_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """Why a save cannot be made now."""

    reason: FailReason
    detail: str


def shortage(room: Room, need: Need, root: Path) -> Shortage | None:
    """The first thing that lacks; what is unknown lacks not."""
    return (
        _of_space(room, need, root)
        or _of_inodes(room, root)
        or shortage_of_memory(room.memory_bytes, need)
        or _of_descriptors(room)
    )


def _of_space(room: Room, need: Need, root: Path) -> Shortage | None:
    if room.free_bytes is None or room.free_bytes >= (need.num_bytes or 1):
        return None
    size = "" if need.num_bytes is None else f" of {format_bytes(need.num_bytes)}"
    detail = (
        f"the storage of {root} has {format_bytes(room.free_bytes)} left for a checkpoint{size}: "
        "free space, or keep fewer checkpoints"
    )
    return Shortage(reason=FailReason.ENOSPC, detail=detail)


def _of_inodes(room: Room, root: Path) -> Shortage | None:
    if room.free_inodes is None or room.free_inodes >= NUM_FILES:
        return None
    detail = f"the storage of {root} has room for {room.free_inodes} more files: remove some, however small"
    return Shortage(reason=FailReason.ENOSPC, detail=detail)


def shortage_of_memory(memory_bytes: int | None, need: Need) -> Shortage | None:
    """Whether the buffers that do not exist yet would be too much: the kernel would end the job, not the save."""
    wanted_bytes = int(MEMORY_PER_STAGED_BYTE * need.staged_bytes)
    if memory_bytes is None or memory_bytes >= wanted_bytes:
        return None
    detail = (
        f"the host has {format_bytes(memory_bytes)} of memory left, the copy of the state takes "
        f"{format_bytes(wanted_bytes)}: ask for more memory per node, or fewer loader workers"
    )
    return Shortage(reason=FailReason.ENOMEM, detail=detail)


def _of_descriptors(room: Room) -> Shortage | None:
    if room.free_descriptors is None or room.free_descriptors >= NUM_DESCRIPTORS:
        return None
    detail = (
        f"the process may open {room.free_descriptors} more files, a save may need {NUM_DESCRIPTORS}: "
        "raise `ulimit -n`, or close some"
    )
    return Shortage(reason=FailReason.EMFILE, detail=detail)
