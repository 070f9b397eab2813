"""Numbers the blocks of a checkpoint, and shares out which rank verifies which. Pure; reads no file."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rampmeter.hashing import num_blocks
from rampmeter.manifest import Manifest

_PER_BYTE = 8


class BlockMap:
    """All blocks in the order of the manifest's files: the same numbers on all ranks."""

    def __init__(self, manifest: Manifest) -> None:
        self._first: dict[str, int] = {}
        sizes: list[int] = []
        for file in manifest.files:
            self._first[file.name] = len(sizes)
            count = num_blocks(file.num_bytes, manifest.block_bytes)
            sizes += [
                min(manifest.block_bytes, file.num_bytes - index * manifest.block_bytes)
                for index in range(count)
            ]
        self.sizes_bytes: tuple[int, ...] = tuple(sizes)

    def bitmap(self, touched: Mapping[str, Iterable[int]]) -> bytes:
        """One bit per block: set for these blocks of these files."""
        bits = np.zeros(len(self.sizes_bytes), dtype=np.uint8)
        for name, indices in touched.items():
            bits[[self._first[name] + index for index in indices]] = 1
        return np.packbits(bits).tobytes()

    def named(self, numbers: Iterable[int]) -> dict[str, list[int]]:
        """The blocks of these numbers, by file."""
        wanted = sorted(numbers)
        found: dict[str, list[int]] = {}
        names = list(self._first)
        firsts = np.array(list(self._first.values()))
        for number in wanted:
            # An empty file begins where the next one does: the last of them holds the block.
            name = names[int(np.searchsorted(firsts, number, side="right")) - 1]
            found.setdefault(name, []).append(number - self._first[name])
        return found


def share_out(bitmaps: Sequence[bytes], sizes_bytes: Sequence[int]) -> NDArray[np.int64]:
    """For each block the rank that verifies it; -1 for a block that no rank needs. `bitmaps` are by rank.

    A block is verified by a rank that needs it: it reads it anyway. What several need goes to the one that has the
    fewest bytes so far, after all that a rank must do alone.
    """
    needs = np.stack(
        [np.frombuffer(bitmap, dtype=np.uint8) for bitmap in bitmaps], axis=1
    )  # a row per eight blocks
    owners = np.full(len(sizes_bytes), -1, dtype=np.int64)
    loads_bytes = np.zeros(len(bitmaps), dtype=np.int64)
    shared: list[int] = []
    for block, size_bytes in enumerate(sizes_bytes):
        ranks = _needing(needs, block)
        if len(ranks) == 1:
            owners[block] = ranks[0]
            loads_bytes[ranks[0]] += size_bytes
        elif len(ranks) > 1:
            shared.append(block)
    for block in shared:
        ranks = _needing(needs, block)
        owners[block] = rank = ranks[np.argmin(loads_bytes[ranks])]
        loads_bytes[rank] += sizes_bytes[block]
    return owners


def loads(owners: NDArray[np.int64], sizes_bytes: Sequence[int], num_ranks: int) -> list[int]:
    """The bytes that each rank verifies."""
    found = [0] * num_ranks
    for owner, size_bytes in zip(owners.tolist(), sizes_bytes, strict=True):
        if owner >= 0:
            found[owner] += size_bytes
    return found


def _needing(needs: NDArray[np.uint8], block: int) -> NDArray[np.int64]:
    """The ranks whose bit of this block is set."""
    bit = _PER_BYTE - 1 - block % _PER_BYTE
    return np.flatnonzero(needs[block // _PER_BYTE] >> bit & 1)
