"""Verification: every kind of damage is found and named, and only what is asked for is read."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.hashing import FileHasher, digest_of
from rampmeter.manifest import BlocksEntry, FileEntry, Manifest
from rampmeter.verification import ByteRange, Verifier

BLOCK = 1000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Verifier:
    """Three files of 2500, 0 and 1000 bytes in blocks of 1000, with their digests."""
    files, blocks = [], b""
    for name, size in [("a", 2500), ("empty", 0), ("b", 1000)]:
        content = os.urandom(size)
        (tmp_path / name).write_bytes(content)
        hasher = FileHasher(block_bytes=BLOCK)
        hasher.update(memoryview(content))
        done = hasher.finish(name)
        files.append(
            FileEntry(name=name, num_bytes=size, digest=done.digest, algorithm=done.algorithm, rank=0)
        )
        blocks += done.blocks
    (tmp_path / "BLOCKS").write_bytes(blocks)
    manifest = object.__new__(Manifest)
    entry = BlocksEntry(name="BLOCKS", num_bytes=len(blocks), digest=digest_of(blocks), algorithm="xxh3_128")
    for name, value in {"files": tuple(files), "blocks": entry, "block_bytes": BLOCK}.items():
        object.__setattr__(manifest, name, value)
    return Verifier(tmp_path, manifest)


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_whole_checkpoint_passes(checkpoint: Verifier) -> None:
    """Nothing is found where nothing is wrong."""
    checkpoint.verify_all()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: os.truncate(d / "a", 2499), "file a is 1 byte short"),
        (lambda d: os.truncate(d / "a", 0), "file a is 2500 bytes short"),
        (lambda d: (d / "b").write_bytes(bytes(1003)), "file b is 3 bytes too long"),
        (lambda d: (d / "b").unlink(), "file b is missing"),
        (lambda d: os.truncate(d / "BLOCKS", 10), "file BLOCKS is"),
        (lambda d: _flip(d / "BLOCKS", 5), "file BLOCKS does not match"),
        (lambda d: _flip(d / "a", 0), r"file a does not match its digest \(block 0\)"),
        (lambda d: _flip(d / "a", 2499), r"file a does not match its digest \(block 2\)"),
        (lambda d: _flip(d / "b", 500), "file b does not match"),
    ],
)
def test_damage_is_found_and_named(
    checkpoint: Verifier, tmp_path: Path, damage: object, message: str
) -> None:
    """Each kind of damage is refused with the file and what is wrong with it."""
    damage(tmp_path)  # type: ignore[operator]
    with pytest.raises(CorruptCheckpoint, match=message):
        checkpoint.verify_all()


def test_only_touched_blocks_are_read(checkpoint: Verifier, tmp_path: Path) -> None:
    """Damage in a block that nobody asked for does not stop a reader of the others."""
    _flip(tmp_path / "a", 1500)
    checkpoint.verify_ranges({"a": [ByteRange(offset_bytes=0, num_bytes=1000)]})
    checkpoint.verify_ranges({"a": [ByteRange(offset_bytes=2000, num_bytes=500)], "b": []})
    for offset_bytes, num_bytes in [(999, 2), (1000, 1), (1999, 1), (0, 2500)]:
        with pytest.raises(CorruptCheckpoint):
            checkpoint.verify_ranges({"a": [ByteRange(offset_bytes=offset_bytes, num_bytes=num_bytes)]})


def test_a_range_past_the_end_is_damage(checkpoint: Verifier) -> None:
    """Metadata that points past the end of a file is refused before it is read."""
    with pytest.raises(CorruptCheckpoint, match="ends before"):
        checkpoint.verify_ranges({"a": [ByteRange(offset_bytes=2000, num_bytes=501)]})


def test_unlisted_files_are_refused(checkpoint: Verifier) -> None:
    """A file that the manifest does not list cannot be verified."""
    with pytest.raises(CorruptCheckpoint, match="not listed"):
        checkpoint.verify_file("c")


def test_what_ranges_touch_is_numbered_in_each_file(checkpoint: Verifier) -> None:
    """A block is touched by its first byte as by its last."""
    parts = [ByteRange(offset_bytes=999, num_bytes=2), ByteRange(offset_bytes=2400, num_bytes=100)]
    assert checkpoint.touched({"a": parts, "b": []}) == {"a": {0, 1, 2}, "b": set()}


def test_reading_ends_when_it_has_become_pointless(checkpoint: Verifier, tmp_path: Path) -> None:
    """Damage that would have been found is not looked for any more; sizes still are."""
    _flip(tmp_path / "a", 1500)
    checkpoint.verify_blocks({"a": [1]}, is_pointless=lambda: True)
    os.truncate(tmp_path / "b", 999)
    with pytest.raises(CorruptCheckpoint, match="1 byte short"):
        checkpoint.verify_blocks({"b": [0]}, is_pointless=lambda: True)


def test_files_are_not_looked_for_one_by_one(checkpoint: Verifier) -> None:
    """With a hundred thousand of them the list is not gone through again for each: a few times in all."""

    class Counted(tuple[FileEntry, ...]):
        num_rounds = 0

        def __iter__(self) -> Iterator[FileEntry]:
            Counted.num_rounds += 1
            return super().__iter__()

    prototype = checkpoint._manifest.files[1]
    files = Counted(dataclasses.replace(prototype, name=f"{number}") for number in range(200))
    object.__setattr__(checkpoint._manifest, "files", files)
    ranges = {file.name: [ByteRange(offset_bytes=0, num_bytes=0)] for file in files}
    Counted.num_rounds = 0
    assert len(checkpoint.touched(ranges)) == 200
    assert Counted.num_rounds <= 1
