"""Which rank verifies which blocks: each needed one once, by a rank that needs it, in equal shares."""

import random

import numpy as np
import pytest

from rampmeter.blocks import BlockMap, loads, share_out
from rampmeter.manifest import FileEntry, Manifest


def _map(**sizes: int) -> BlockMap:
    """Of files with so many bytes, in blocks of 100."""
    manifest = object.__new__(Manifest)
    files = tuple(
        FileEntry(name=name, num_bytes=size, digest="", algorithm="crc32", rank=0)
        for name, size in sizes.items()
    )
    object.__setattr__(manifest, "files", files)
    object.__setattr__(manifest, "block_bytes", 100)
    return BlockMap(manifest)


def _bits(*numbers: int, count: int = 20) -> bytes:
    bits = np.zeros(count, dtype=np.uint8)
    bits[list(numbers)] = 1
    return np.packbits(bits).tobytes()


def test_blocks_are_numbered_in_the_order_of_the_files() -> None:
    """Empty files have none; the last block of a file is as short as it is."""
    blocks = _map(a=250, empty=0, b=100, also_empty=0, c=1)
    assert blocks.sizes_bytes == (100, 100, 50, 100, 1)
    assert blocks.named([4, 0, 3, 2]) == {"a": [0, 2], "b": [0], "c": [0]}
    assert blocks.named([]) == {}


def test_a_bitmap_has_one_bit_for_each_block() -> None:
    """Compact: what all ranks tell each other is an eighth of a byte per block."""
    blocks = _map(a=250, empty=0, b=100, c=700)
    assert len(blocks.bitmap({})) == 2
    assert blocks.bitmap({"a": {0, 2}, "b": [0], "empty": set()}) == _bits(0, 2, 3, count=11)


def test_what_one_rank_needs_alone_it_verifies_itself() -> None:
    """And what nobody needs, nobody does."""
    owners = share_out([_bits(0, 1), _bits(5), _bits()], [100] * 20)
    assert owners.tolist() == [0, 0, -1, -1, -1, 1] + [-1] * 14


def test_shared_blocks_go_to_those_who_have_less_to_do() -> None:
    """Rank 0 has four blocks of its own, so the shared ones go to rank 1."""
    owners = share_out([_bits(0, 1, 2, 3, 10, 11, 12), _bits(10, 11, 12)], [100] * 20)
    assert owners.tolist()[10:13] == [1, 1, 1]


def test_shares_are_of_bytes() -> None:
    """A short block does not count as much as a long one."""
    owners = share_out([_bits(0, 1, 2, count=3), _bits(0, 1, 2, count=3)], [100, 60, 40])
    assert owners.tolist() == [0, 1, 1]


@pytest.mark.parametrize("seed", range(20))
def test_each_needed_block_has_one_owner_that_needs_it(seed: int) -> None:
    """Whatever the needs; where all need all, nobody has more than his share and one block."""
    rng = random.Random(seed)
    num_ranks, count = rng.randint(1, 9), rng.randint(1, 70)
    density = rng.choice([0.1, 0.5, 1.0])
    needs = [{block for block in range(count) if rng.random() <= density} for _ in range(num_ranks)]
    sizes = [rng.randint(1, 100) for _ in range(count)]
    owners = share_out([_bits(*need, count=count) for need in needs], sizes)
    for block, owner in enumerate(owners.tolist()):
        assert (owner == -1) == (not any(block in need for need in needs))
        assert owner == -1 or block in needs[owner]
    if density == 1.0:
        assert max(loads(owners, sizes, num_ranks)) <= sum(sizes) / num_ranks + 100


def test_the_loads_of_the_ranks_are_the_bytes_that_they_verify() -> None:
    """A block that nobody needs counts for nobody; a rank may have none."""
    assert loads(np.array([1, -1, 0, 1]), [5, 7, 11, 13], 3) == [11, 18, 0]
