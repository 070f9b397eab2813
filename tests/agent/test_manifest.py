"""The manifest: complete, strict, versioned, and never believed when damaged."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rampmeter import manifest as manifest_module
from rampmeter.core.errors import CorruptCheckpoint, FormatTooNew
from rampmeter.manifest import (
    BlocksEntry,
    Extras,
    FileEntry,
    KeyNorm,
    LeaseRecord,
    Manifest,
    Timings,
    Versions,
    read_manifest,
)


def _manifest(**changes: Any) -> Manifest:
    manifest = Manifest(
        format=1,
        job_uid="0" * 32,
        job="run7",
        step=4000,
        attempt=3,
        nonce="deadbeef",
        parent="step-00003000.a00003.deadbeef",
        world_size=1,
        layout="dcp",
        created="2026-01-01T00:00:00.000Z",
        files=(FileEntry(name="__0_0.distcp", num_bytes=3, digest="ab", algorithm="crc32", rank=0),),
        blocks=BlocksEntry(name="BLOCKS", num_bytes=4, digest="cd", algorithm="crc32"),
        block_bytes=16 * 1024 * 1024,
        total_bytes=3,
        extras=Extras(data_position=True, rng=True),
        config={"lr": 0.1, "layers": [1, 2]},
        code_commit=None,
        container_digest=None,
        timings=Timings(
            stage_s=0.1, stall_s=0.2, lead_s=0.3, write_s=1.0, throttled_s=0.4, blocked_s=0.3, busy_s=0.1
        ),
        lease=LeaseRecord(fence_epoch=1, fence_counter=2, bytes_per_s=50_000_000),
        versions=Versions(rampmeter="0.1.0", torch="2.13.0", python="3.11.7"),
        unchecked=("model.f8",),
    )
    return dataclasses.replace(manifest, **changes)


def _edited(change: Any) -> bytes:
    """The document of a manifest after `change`, with a fresh digest as an honest writer would put it."""
    document = json.loads(_manifest().to_json())
    del document["manifest_sha256"]
    change(document)
    return json.dumps({**document, "manifest_sha256": manifest_module._digest(document)}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lease": None, "config": None, "parent": None},
        {"files": ()},
        {"norms": (KeyNorm(key="model", norm=12.5), KeyNorm(key="ema", norm=1e300))},
    ],
)
def test_round_trip(changes: dict[str, Any]) -> None:
    """What was written is what is read."""
    manifest = _manifest(**changes)
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_every_flipped_bit_is_noticed() -> None:
    """No single damaged bit yields another manifest: it is refused, or it hit white space."""
    manifest = _manifest()
    content = manifest.to_json()
    for position in range(len(content)):
        for bit in (0x01, 0x10, 0x80):
            damaged = bytearray(content)
            damaged[position] ^= bit
            try:
                found = Manifest.from_json(bytes(damaged))
            except CorruptCheckpoint:
                continue
            assert found == manifest, position


def _fields(kind: Any, prefix: str = "") -> list[str]:
    names = []
    for field in dataclasses.fields(kind):
        names.append(prefix + field.name)
        nested = {"blocks": BlocksEntry, "extras": Extras, "timings": Timings, "versions": Versions}.get(
            field.name
        )
        names += _fields(nested, field.name + ".") if nested else []
    return names


@pytest.mark.parametrize("path", [name for name in _fields(Manifest) if name not in ("format", "norms")])
def test_missing_fields_are_refused_by_name(path: str) -> None:
    """Each field must be there, also inside the parts."""

    def remove(document: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            document = document[parent]
        del document[last]

    with pytest.raises(CorruptCheckpoint, match=path.replace(".", r"\.")):
        Manifest.from_json(_edited(remove))


def test_manifests_from_before_there_were_norms_are_read() -> None:
    """A field that came later may be missing; where it is there it must be right."""
    assert Manifest.from_json(_edited(lambda document: document.pop("norms"))) == _manifest()
    half = [{"key": "model"}]
    with pytest.raises(CorruptCheckpoint, match=r"norms\[0\]\.norm"):
        Manifest.from_json(_edited(lambda document: document.update(norms=half)))


@pytest.mark.parametrize(
    ("path", "value"), [("step", "4000"), ("step", True), ("files", {}), ("job", None), ("timings", 3)]
)
def test_wrong_types_are_refused_by_name(path: str, value: Any) -> None:
    """A value of another type is damage, not something to convert."""
    with pytest.raises(CorruptCheckpoint, match=path):
        Manifest.from_json(_edited(lambda document: document.update({path: value})))


def test_unknown_fields_are_ignored() -> None:
    """A later minor version may add fields."""
    assert Manifest.from_json(_edited(lambda d: d.update(colour="blue"))) == _manifest()


def test_higher_formats_are_refused_by_number() -> None:
    """A manifest of a later major format says which, even if nothing else of it is known."""
    with pytest.raises(FormatTooNew, match="format 2"):
        Manifest.from_json(_edited(lambda d: d.update(format=2)))
    with pytest.raises(FormatTooNew, match="format 9"):
        Manifest.from_json(b'{"format": 9}')


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\x00" * 100, b"{}", b'{"format": 1}'])
def test_garbage_is_corrupt(content: bytes) -> None:
    """Whatever is no manifest is refused as damage that names the file."""
    with pytest.raises(CorruptCheckpoint, match=r"MANIFEST\.json"):
        Manifest.from_json(content)


def test_an_uncommitted_directory_has_no_manifest(tmp_path: Path) -> None:
    """Not there is told apart from damaged."""
    with pytest.raises(FileNotFoundError):
        read_manifest(tmp_path)
