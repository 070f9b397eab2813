"""Proves that the bytes on disk are the bytes that were committed, before anybody uses them.

Only what is asked for is read: whole files or the blocks that a range touches. Nothing here repairs, skips or guesses;
the first thing that does not fit is raised as CorruptCheckpoint with the name of the file.
"""

import contextlib
import itertools
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rampmeter.core.errors import CorruptCheckpoint, DigestMismatch
from rampmeter.hashing import digest_bytes, digest_of, new_hasher, num_blocks
from rampmeter.layout import MANIFEST_NAME
from rampmeter.manifest import FileEntry, Manifest
from rampmeter.pushout import forget
from rampmeter.reading.pace import UNPACED, Pace

_READ_BYTES = 1024 * 1024
_NUM_THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRange:
    """A part of a file that somebody is about to read."""

    offset_bytes: int
    num_bytes: int


def check_known(manifest: Manifest) -> None:
    """CannotVerify if a digest is of an algorithm that this version does not know."""
    for algorithm in _algorithms(manifest):
        digest_bytes(algorithm)


def check_computable(manifest: Manifest) -> None:
    """CannotVerify if a digest cannot be computed on this machine."""
    for algorithm in _algorithms(manifest):
        new_hasher(algorithm)


def _algorithms(manifest: Manifest) -> list[str]:
    return sorted({manifest.blocks.algorithm, *(file.algorithm for file in manifest.files)})


class Verifier:
    """Checks one checkpoint's directory against its manifest. Thread-safe.

    past_cache: what this host holds in memory of a block is given up before it is read, so that storage is asked, and
    after it, so that what others read stays there.
    on_read: called with the bytes of each block that was read and fits, from the reading threads.
    pace: how fast it may read.
    num_threads: how many read at once; with 1 it is the caller itself, and no process waits for it at its end.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        *,
        past_cache: bool = False,
        on_read: Callable[[int], object] = lambda _num_bytes: None,
        pace: Pace = UNPACED,
        num_threads: int = _NUM_THREADS,
    ) -> None:
        self._directory = directory
        self._manifest = manifest
        self._past_cache = past_cache
        self._on_read = on_read
        self._pace = pace
        self._num_threads = num_threads
        self._local = threading.local()
        self._entries: dict[str, FileEntry] | None = None

    def verify_sizes(self) -> None:
        """All files are there with their sizes; no content is read."""
        blocks = self._manifest.blocks
        self._verify_size(blocks.name, blocks.num_bytes)
        for file in self._manifest.files:
            self._verify_size(file.name, file.num_bytes)

    def verify_size(self, name: str) -> None:
        """One file is there with its size."""
        self._verify_size(name, self._entry(name).num_bytes)

    def verify_file(self, name: str) -> None:
        """The whole content of one file."""
        self.verify_ranges({name: [ByteRange(offset_bytes=0, num_bytes=self._entry(name).num_bytes)]})

    def verify_all(self) -> None:
        """Sizes, and the whole content of every file."""
        self.verify_sizes()
        self.verify_ranges(
            {
                file.name: [ByteRange(offset_bytes=0, num_bytes=file.num_bytes)]
                for file in self._manifest.files
            }
        )

    def _entry(self, name: str) -> FileEntry:
        """Of a file that the checkpoint has: there may be a hundred thousand, and each is asked for."""
        if self._entries is None:
            self._entries = {file.name: file for file in self._manifest.files}
        entry = self._entries.get(name)
        if entry is None:
            raise CorruptCheckpoint(f"file {name} is not listed in {MANIFEST_NAME}")
        return entry

    def verify_ranges(self, ranges: Mapping[str, Iterable[ByteRange]]) -> None:
        """The blocks that these ranges touch."""
        self.verify_blocks(self.touched(ranges))

    def touched(self, ranges: Mapping[str, Iterable[ByteRange]]) -> dict[str, set[int]]:
        """The blocks of each file that these ranges touch, numbered from 0 in each; nothing is read."""
        return {name: self._touched_blocks(self._entry(name), parts) for name, parts in ranges.items()}

    def verify_blocks(
        self, blocks: Mapping[str, Iterable[int]], *, is_pointless: Callable[[], bool] = lambda: False
    ) -> None:
        """These blocks of each file, each read once; and the sizes of the files.

        `is_pointless` is asked before each block: from then on none is read, and nothing is proven.
        """
        expected = self._block_digests()
        work = []
        for name, indices in blocks.items():
            entry = self._entry(name)
            self._verify_size(name, entry.num_bytes)
            work += [(entry, index, expected[name][index]) for index in sorted(indices)]
        with self._readers() as read, self._pace.guarded():
            for _ in read(lambda item: None if is_pointless() else self._verify_block(*item), work):
                pass

    @contextlib.contextmanager
    def _readers(self) -> Iterator[Callable[..., Iterable[object]]]:
        if self._num_threads == 1:
            yield map
            return
        with ThreadPoolExecutor(self._num_threads, thread_name_prefix="rampmeter-verify") as pool:
            yield pool.map

    def _verify_size(self, name: str, expected_bytes: int) -> None:
        try:
            found = (self._directory / name).stat()
        except FileNotFoundError:
            raise CorruptCheckpoint(f"file {name} is missing") from None
        if not stat.S_ISREG(found.st_mode):
            raise CorruptCheckpoint(f"file {name} is no plain file")
        found_bytes = found.st_size
        if found_bytes != expected_bytes:
            raise CorruptCheckpoint(f"file {name} is {_difference(found_bytes - expected_bytes)}")

    def _touched_blocks(self, entry: FileEntry, parts: Iterable[ByteRange]) -> set[int]:
        size = self._manifest.block_bytes
        touched: set[int] = set()
        for part in parts:
            end_bytes = part.offset_bytes + part.num_bytes
            if end_bytes > entry.num_bytes:
                raise CorruptCheckpoint(f"file {entry.name} ends before what is stored in it")
            touched.update(range(part.offset_bytes // size, num_blocks(end_bytes, size)))
        return touched

    def _block_digests(self) -> dict[str, list[bytes]]:
        """The expected digests of each file's blocks, from the side file, which is verified first."""
        blocks = self._manifest.blocks
        self._verify_size(blocks.name, blocks.num_bytes)
        with (self._directory / blocks.name).open("rb") as stream:
            self._forget(stream.fileno(), 0, blocks.num_bytes)
            content = stream.read()
        if digest_of(content, blocks.algorithm) != blocks.digest:
            raise DigestMismatch(f"file {blocks.name} does not match its digest")
        width = digest_bytes(blocks.algorithm)
        digests = (content[at : at + width] for at in range(0, len(content), width))
        block_bytes = self._manifest.block_bytes
        return {
            file.name: list(itertools.islice(digests, num_blocks(file.num_bytes, block_bytes)))
            for file in self._manifest.files
        }

    def _verify_block(self, entry: FileEntry, index: int, expected: bytes) -> None:
        hasher = new_hasher(entry.algorithm)
        buffer = self._buffer()
        offset_bytes = index * self._manifest.block_bytes
        size_bytes = left_bytes = min(self._manifest.block_bytes, entry.num_bytes - offset_bytes)
        read = self._pace.reader(entry.name, index)
        with (self._directory / entry.name).open("rb", buffering=0) as stream:
            self._forget(stream.fileno(), offset_bytes, size_bytes)
            stream.seek(offset_bytes)
            while left_bytes and (count := read(stream, buffer[:left_bytes])):
                hasher.update(buffer[:count])
                left_bytes -= count
            self._forget(stream.fileno(), offset_bytes, size_bytes)
        if hasher.digest() != expected:
            raise DigestMismatch(f"file {entry.name} does not match its digest (block {index})")
        self._on_read(size_bytes - left_bytes)

    def _forget(self, descriptor: int, offset_bytes: int, num_bytes: int) -> None:
        if self._past_cache:
            forget(descriptor, offset_bytes, num_bytes)

    def _buffer(self) -> memoryview:
        """One reading buffer per thread: fresh memory for each read costs more than the hash."""
        if not hasattr(self._local, "buffer"):
            self._local.buffer = memoryview(bytearray(_READ_BYTES))
        buffer: memoryview = self._local.buffer
        return buffer


def _difference(surplus_bytes: int) -> str:
    count = abs(surplus_bytes)
    unit = "byte" if count == 1 else "bytes"
    return f"{count} {unit} {'too long' if surplus_bytes > 0 else 'short'}"
