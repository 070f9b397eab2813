"""Reads a checkpoint that torch.distributed.checkpoint has written without us: which files it has, and how long.

`.metadata` is a pickle. It is read without torch, and nothing that it names is ever imported or called: every class in
it becomes an empty shell that only remembers its attributes.
"""

import io
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.files import exists, read_small
from rampmeter.layout import METADATA_NAME

_SHARD_OF_RANK = re.compile(r"__(\d{1,9})_\d+\.distcp")
_STEP = re.compile(r"(?:.*[^0-9])?(\d{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A file that the checkpoint cannot do without. `least_bytes`: the end of the last item stored in it."""

    name: str
    least_bytes: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCheckpoint:
    """What `.metadata` says. `.metadata` itself is the first of the files; `items` are the names of what is saved."""

    files: tuple[ForeignFile, ...]
    items: tuple[str, ...]


class _Shell:
    """Stands for any object in the pickle."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass

    def add(self, value: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.__dict__.update((str(name), value) for name, value in part.items())


class _ShellUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        return type(global_name, (_Shell,), {"__module__": module_name})

    def persistent_load(self, _pid: Any, /) -> Any:
        return _Shell()


def read_foreign(directory: Path) -> ForeignCheckpoint:
    """What a finished checkpoint consists of; CorruptCheckpoint says what is missing. OSError if it cannot be read."""
    content = _metadata(directory)
    try:
        # Nothing of the pickle is executed: see _ShellUnpickler.
        found = _ShellUnpickler(io.BytesIO(content)).load()
        places = [
            (str(place.relative_path), int(place.offset) + int(place.length))
            for place in found.storage_data.values()
        ]
        items = tuple(sorted(str(name) for name in found.state_dict_metadata))
    except Exception as error:  # a damaged pickle raises anything
        raise CorruptCheckpoint(
            f"{METADATA_NAME} in {directory} cannot be understood: it is damaged, or not of "
            "torch.distributed.checkpoint's FileSystemWriter"
        ) from error
    return ForeignCheckpoint(files=(_own_file(len(content)), *_files(directory, places)), items=items)


def _metadata(directory: Path) -> bytes:
    file = directory / METADATA_NAME
    try:
        return read_small(file)
    except FileNotFoundError:
        pass
    if exists(directory / f"{METADATA_NAME}.tmp") or any(directory.glob("*.distcp")):
        raise CorruptCheckpoint(f"{directory} is half written: its last file, {METADATA_NAME}, is not there")
    raise CorruptCheckpoint(
        f"{directory} was not written by torch.distributed.checkpoint: it has no {METADATA_NAME}; load it yourself and "
        "pass fresh=True to `restore`"
    )


def _own_file(num_bytes: int) -> ForeignFile:
    return ForeignFile(name=METADATA_NAME, least_bytes=num_bytes, rank=0)


def _files(directory: Path, places: list[tuple[str, int]]) -> list[ForeignFile]:
    ends: dict[str, int] = {}
    for name, end_bytes in places:
        ends[name] = max(end_bytes, ends.get(name, 0))
    for name in ends:
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise CorruptCheckpoint(f"{METADATA_NAME} in {directory} names a file outside of it: {name!r}")
    return [ForeignFile(name=name, least_bytes=ends[name], rank=_rank(name)) for name in sorted(ends)]


def _rank(name: str) -> int:
    found = _SHARD_OF_RANK.fullmatch(name)
    return 0 if found is None else int(found[1])


def step_in_name(name: str) -> int | None:
    """The step in a directory's name such as `step_500`, `checkpoint-500` or `global_step500`."""
    found = _STEP.fullmatch(name)
    return None if found is None else int(found[1])
