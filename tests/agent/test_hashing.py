"""Digests: independent of how the bytes arrive, aligned blocks, and a fallback without xxhash."""

import zlib

import pytest
import xxhash

from rampmeter import hashing
from rampmeter.core.errors import ConfigError
from rampmeter.hashing import FileHasher, digest_of, new_hasher, num_blocks


def _hash(content: bytes, cut: int, **kwargs: object) -> hashing.HashedFile:
    hasher = FileHasher(**kwargs)  # type: ignore[arg-type]
    for start in range(0, len(content), cut):
        hasher.update(memoryview(content)[start : start + cut])
    return hasher.finish("f")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 32, 100])
@pytest.mark.parametrize("cut", [1, 3, 16, 17, 1000])
def test_digests_do_not_depend_on_the_pieces(size: int, cut: int) -> None:
    """File and block digests are those of the content, however it was cut into writes."""
    content = bytes(range(size))
    file = _hash(content, cut, block_bytes=16)
    blocks = [content[at : at + 16] for at in range(0, size, 16)]
    assert file.num_bytes == size
    assert file.digest == xxhash.xxh3_128(content).hexdigest()
    assert file.blocks == b"".join(xxhash.xxh3_128(block).digest() for block in blocks)
    assert len(file.blocks) == 16 * num_blocks(size, 16)


def test_crc32_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallback gives zlib's checksum for the file and for each block."""
    content = bytes(100)
    file = _hash(content, 7, algorithm="crc32", block_bytes=64)
    assert file.digest == zlib.crc32(content).to_bytes(4, "big").hex()
    assert file.blocks == b"".join(
        zlib.crc32(part).to_bytes(4, "big") for part in (content[:64], content[64:])
    )


def test_missing_xxhash_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint hashed with xxhash cannot be verified without it, and the error says what to install."""
    monkeypatch.setattr(hashing, "xxhash", None)
    with pytest.raises(ConfigError, match="pip install xxhash"):
        new_hasher("xxh3_128")
    assert digest_of(b"abc", "crc32") == "352441c2"


def test_unknown_algorithms_are_refused() -> None:
    """An algorithm that nobody knows is named."""
    with pytest.raises(ConfigError, match="md4"):
        hashing.digest_bytes("md4")
