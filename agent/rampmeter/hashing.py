"""Digests of files as they are written and as they are read: one for the file, one for each 16 MiB block.

Blocks are aligned at offset 0, so that whoever reads a part of a file can verify that part alone.
xxh3_128 where xxhash is installed, else crc32; the manifest names which. These digests find damage, not forgery.
"""

import zlib
from dataclasses import dataclass
from typing import Protocol

from rampmeter.core.errors import CannotVerify

try:
    import xxhash
except ImportError:
    xxhash = None  # type: ignore[assignment]

BLOCK_BYTES = 16 * 1024 * 1024
DEFAULT_ALGORITHM = "crc32" if xxhash is None else "xxh3_128"
_DIGEST_BYTES = {"crc32": 4, "xxh3_128": 16}
_NAMED_CHARS = 40


class Hasher(Protocol):
    """What we need of a running digest."""

    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


class _Crc32:
    """zlib's checksum with the interface of a digest."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: memoryview, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def new_hasher(algorithm: str) -> Hasher:
    """A fresh digest. CannotVerify if this machine cannot compute `algorithm`."""
    digest_bytes(algorithm)
    if algorithm == "crc32":
        return _Crc32()
    if xxhash is None:
        raise CannotVerify(f"cannot compute its {algorithm} digests here: pip install xxhash")
    hasher: Hasher = xxhash.xxh3_128()
    return hasher


def digest_bytes(algorithm: str) -> int:
    """Length of one raw digest; CannotVerify if the algorithm is unknown."""
    if algorithm not in _DIGEST_BYTES:
        raise CannotVerify(
            f"its digests are of the algorithm {algorithm[:_NAMED_CHARS]!r}, which this rampmeter does not know: "
            "upgrade rampmeter to the version that wrote it"
        )
    return _DIGEST_BYTES[algorithm]


def digest_of(data: bytes, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """The digest of bytes in hand, as hex."""
    hasher = new_hasher(algorithm)
    hasher.update(memoryview(data))
    return hasher.digest().hex()


def num_blocks(num_bytes: int, block_bytes: int = BLOCK_BYTES) -> int:
    """How many block digests a file of this size has; an empty file has none."""
    return -(-num_bytes // block_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedFile:
    """A file that was written through us. `blocks` are the raw block digests, one after the other."""

    name: str
    num_bytes: int
    digest: str
    algorithm: str
    blocks: bytes


class FileHasher:
    """Digests one file's bytes in the order in which they are written. Not thread-safe: one stream owns it."""

    def __init__(self, algorithm: str = DEFAULT_ALGORITHM, block_bytes: int = BLOCK_BYTES) -> None:
        self._algorithm = algorithm
        self._block_bytes = block_bytes
        self._file = new_hasher(algorithm)
        self._block = new_hasher(algorithm)
        self._blocks = bytearray()
        self._room_bytes = block_bytes
        self.num_bytes = 0

    def update(self, data: memoryview) -> None:
        """Take the next bytes of the file; `data` must be contiguous bytes."""
        self._file.update(data)
        self.num_bytes += len(data)
        while len(data) >= self._room_bytes:
            self._block.update(data[: self._room_bytes])
            data = data[self._room_bytes :]
            self._end_block()
        if data:
            self._block.update(data)
            self._room_bytes -= len(data)

    def finish(self, name: str) -> HashedFile:
        """The digests of all bytes taken so far, for the file called `name`."""
        if self._room_bytes < self._block_bytes:
            self._end_block()
        return HashedFile(
            name=name,
            num_bytes=self.num_bytes,
            digest=self._file.digest().hex(),
            algorithm=self._algorithm,
            blocks=bytes(self._blocks),
        )

    def _end_block(self) -> None:
        self._blocks += self._block.digest()
        self._block = new_hasher(self._algorithm)
        self._room_bytes = self._block_bytes
