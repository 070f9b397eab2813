"""Roots with checkpoints in them, made without torch: small files, real digests, real manifests."""

import dataclasses
import random
from pathlib import Path

from rampmeter.commit import FlushRecord, SaveRecord, WrittenFile, commit
from rampmeter.hashing import FileHasher
from rampmeter.layout import MANIFEST_NAME, METADATA_NAME, Claim, Root, StepName
from rampmeter.manifest import Extras, Timings, read_manifest
from rampmeter.provenance import Provenance

NO_TIMINGS = Timings(
    stage_s=0.0, stall_s=0.0, lead_s=0.0, write_s=0.0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0
)


def put_commit(
    root: Root, step: int, *, claim: Claim | None = None, created: str | None = None, **changes
) -> StepName:
    """Commit a checkpoint of two shards by the newest claim (or `claim`, which must be it)."""
    job_uid = root.ensure_job_uid()
    claim = claim or root.newest_claim() or root.claim_attempt()
    name = StepName.fresh(step=step, attempt=claim.number)
    directory = root.directory(name)
    directory.mkdir()
    written = tuple(
        WrittenFile(rank=rank, file=_written(directory / file, step))
        for rank, file in ((0, "__0_0.distcp"), (1, "__1_0.distcp"), (0, METADATA_NAME))
    )
    record = SaveRecord(
        job_uid=job_uid,
        job="run7",
        name=name,
        claim=claim,
        parent=None,
        world_size=2,
        extras=Extras(data_position=True, rng=True),
        provenance=Provenance(config={"lr": 0.1}, code_commit="abc123", container_digest=None),
        torch_version="2.13.0",
    )
    commit(root, record, FlushRecord(written=written, unchecked=(), timings=NO_TIMINGS, lease=None))
    if created is not None:
        changes["created"] = created
    if changes:
        change_manifest(root, name, **changes)
    return name


def _written(path: Path, seed: int):
    content = random.Random(f"{path.name} {seed}").randbytes(3000)
    path.write_bytes(content)
    hasher = FileHasher()
    hasher.update(memoryview(content))
    return hasher.finish(path.name)


def change_manifest(root: Root, name: StepName, **changes) -> None:
    """Write the manifest anew with other fields, as if it had been committed so."""
    directory = root.directory(name)
    manifest = dataclasses.replace(read_manifest(directory), **changes)
    (directory / MANIFEST_NAME).write_bytes(manifest.to_json())


def put_leftover(root: Root, step: int, attempt: int) -> StepName:
    """A directory that was never committed."""
    name = StepName.fresh(step=step, attempt=attempt)
    directory = root.directory(name)
    directory.mkdir(parents=True)
    for number in range(3):
        (directory / f"__{number}_0.distcp").write_bytes(b"half")
    return name


def steps_in(root: Root) -> list[int]:
    """The committed steps, newest first."""
    return [name.step for name in root.committed_steps()]


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x20
    path.write_bytes(content)


def nothing() -> None:
    """No pause between two files."""
