"""Stands before a checkpoint writer's file system and meters what is opened for writing.

It has the methods of torch's FileSystemBase by passing them on, so that it fits any writer; it never opens, renames or
removes a file that it was not asked to. Digests are kept by file name and follow renames.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import torch

from rampmeter.gathering import GatheringStream
from rampmeter.hashing import HashedFile
from rampmeter.layout import METADATA_NAME
from rampmeter.stream import MeteredStream
from rampmeter.throttle import Throttle

_CALLS = frozenset({"mkdir", "exists", "rm_file"})
"""What goes into the storage without bytes: one that hangs must be told from a flush that computes."""


class MeteredFileSystem:
    """Stands before another file system; what is opened for writing comes back metered, all else is passed on."""

    def __init__(self, inner: Any, throttle: Throttle, on_first_byte: Callable[[], None]) -> None:
        self._inner = inner
        self._throttle = throttle
        self._on_first_byte: Callable[[], None] | None = on_first_byte
        self.hashed: dict[str, HashedFile] = {}
        self.first_error: BaseException | None = None

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """A stream as the inner file system opens it; metered if it is for writing."""
        if mode != "wb":
            with self._inner.create_stream(path, mode) as inner:
                yield inner
            return
        if self.first_error is not None:  # what is opened now would stand in the way of the removal
            raise self.first_error
        try:
            with self._metered_stream(path) as stream:
                yield stream
        except (
            BaseException
        ) as error:  # also of open, sync and close, which a further writing thread would swallow
            self._note_error(error)
            raise

    @contextlib.contextmanager
    def _metered_stream(self, path: str | os.PathLike[str]) -> Iterator[GatheringStream]:
        name = PurePath(path).name
        with self._opened(path, whole=_is_metadata(name)) as inner:
            metered = MeteredStream(
                inner,
                throttle=_unpaced() if _is_metadata(name) else self._throttle,
                on_first_write=_nothing if _is_metadata(name) else self._announce,
                on_error=self._note_error,
            )
            stream = GatheringStream(metered)
            with _without_torch_crc():
                yield stream
            file = stream.finish(name)
        self.hashed[name] = file

    @contextlib.contextmanager
    def _opened(self, path: str | os.PathLike[str], *, whole: bool) -> Iterator[Any]:
        """As the inner one opens and closes it; `whole`: all that is written in between is no time of the lease."""
        with contextlib.ExitStack() as ends:
            with self._throttle.in_storage():
                inner = ends.enter_context(self._inner.create_stream(path, "wb"))
            with self._throttle.in_storage() if whole else contextlib.nullcontext():
                yield inner
            with self._throttle.in_storage():
                ends.close()

    def _announce(self) -> None:
        """The first byte is in hand: says so once."""
        callback, self._on_first_byte = self._on_first_byte, None
        if callback is not None:
            callback()

    def _note_error(self, error: BaseException) -> None:
        if self.first_error is None:
            self.first_error = error
        self._throttle.abort("rank_failed")  # other writing threads of this rank stop within one chunk

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        with self._throttle.in_storage():
            self._inner.rename(path, new_path)
        file = self.hashed.pop(PurePath(path).name, None)
        if file is not None:
            name = PurePath(new_path).name
            self.hashed[name] = replace(file, name=name)

    def __getattr__(self, name: str) -> Any:
        """All that is not about writing: paths, directories, reading, and what special file systems add."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._inner, name)
        return self._watched(found) if name in _CALLS else found

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*args: Any, **kwargs: Any) -> Any:
            with self._throttle.in_storage():
                return call(*args, **kwargs)

        return calling


def _is_metadata(name: str) -> bool:
    return name.startswith(METADATA_NAME)


def _nothing() -> None:
    """The metadata's first byte tells nobody anything."""


def _unpaced() -> Throttle:
    """For the few KiB that no lease needs to know of."""
    throttle = Throttle()
    throttle.set_rate(None)
    return throttle


@contextlib.contextmanager
def _without_torch_crc() -> Iterator[None]:
    """torch's CRC32 costs a third of a write and is never checked; the switch is per thread and is put back."""
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)
