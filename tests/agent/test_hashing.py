"""Digests: independent of how the bytes arrive, aligned blocks, and a fallback without xxhash."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import torch
import xxhash

from rampmeter import hashing
from rampmeter.core.errors import ConfigError
from rampmeter.hashing import FileHasher, digest_of, new_hasher, num_blocks
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.restore import restore

WITHOUT_XXHASH = """
import json, sys
sys.modules["xxhash"] = None
import torch
from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle

root, told = Root(sys.argv[1]), []
saver = Saver(root, root.claim_attempt(), job="test")
for step in (1, 2):
    throttle = Throttle()
    throttle.set_rate(None)
    report = saver.begin(step, {"t": torch.full((1000,), float(step))}, throttle).result(200.0)
    told.append(report.reason)
saver.close(0.0)
loaded = {"t": torch.zeros(1000)}
told += [restore(root, loaded).step, float(loaded["t"].sum())]
(shard,) = root.directory(root.committed_steps()[0]).glob("*.distcp")
content = bytearray(shard.read_bytes())
content[content.index(torch.full((10,), 2.0).numpy().tobytes())] ^= 1
shard.write_bytes(content)
told.append(restore(root, loaded).step)
try:
    restore(root, loaded, step=2)
except CorruptCheckpoint:
    told.append("refused")
print(json.dumps(told))
"""


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


def test_a_job_without_xxhash_saves_and_verifies_with_crc32(root: Root) -> None:
    """The manifest names what was used, a flipped bit is found there, and whoever has xxhash can restore it, too."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WITHOUT_XXHASH, str(root.path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(done.stdout) == [None, None, 2, 2000.0, 1, "refused"]
    directory = root.directory(root.committed_steps()[1])
    manifest = read_manifest(directory)
    assert {file.algorithm for file in manifest.files} == {manifest.blocks.algorithm} == {"crc32"}
    for file in manifest.files:
        assert file.digest == f"{zlib.crc32(Path(directory / file.name).read_bytes()):08x}"
    state = {"t": torch.zeros(1000)}
    found = restore(root, state)
    assert found is not None
    assert (found.step, float(state["t"].sum())) == (1, 1000.0)


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
