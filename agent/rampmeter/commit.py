"""Turns written files into a checkpoint: the last step, and the only one that makes it count.

Order: sizes on disk, block digests, directory synced, newest claim still ours, norms near the parent's where that was
asked for, manifest, pointer. Until the manifest
is in place the directory is a leftover that a later sweep removes; a failure here never leaves a manifest behind.
"""

import logging
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rampmeter.core.clock import Clock, SystemClock, wall_time
from rampmeter.core.errors import CommitError
from rampmeter.files import replace_file, sync_directory
from rampmeter.hashing import BLOCK_BYTES, DEFAULT_ALGORITHM, HashedFile, digest_of
from rampmeter.layout import BLOCKS_NAME, MANIFEST_NAME, Claim, Root, StepName
from rampmeter.manifest import (
    FORMAT,
    BlocksEntry,
    Extras,
    FileEntry,
    KeyNorm,
    LeaseRecord,
    Manifest,
    Timings,
    Versions,
)
from rampmeter.norms import NormLimit, check_norms
from rampmeter.provenance import Provenance

_log = logging.getLogger("rampmeter")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRecord:
    """What is known about a save before its first byte; fixed at the snapshot."""

    job_uid: str
    job: str
    name: StepName
    claim: Claim
    parent: StepName | None
    world_size: int
    extras: Extras
    provenance: Provenance
    torch_version: str
    norm_limit: NormLimit | None = None
    """None = norms are neither computed nor compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file as its rank wrote and hashed it."""

    rank: int
    file: HashedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRecord:
    """What is known once all bytes are durable."""

    written: tuple[WrittenFile, ...]
    unchecked: tuple[str, ...]
    timings: Timings
    lease: LeaseRecord | None
    norms: tuple[KeyNorm, ...] = ()


def commit(root: Root, record: SaveRecord, flush: FlushRecord, *, clock: Clock | None = None) -> Manifest:
    """Commit the save; CommitError or OSError if it must not or cannot count, and then it does not."""
    clock = clock or SystemClock()
    directory = root.directory(record.name)
    for item in flush.written:
        _check_size(directory / item.file.name, item.file)
    blocks = b"".join(item.file.blocks for item in flush.written)
    replace_file(directory / BLOCKS_NAME, blocks, clock=clock)
    sync_directory(root.path)
    manifest = _manifest(record, flush, blocks)
    _require_newest_claim(root, record.claim)
    if record.norm_limit is not None and record.parent is not None:
        check_norms(record.norm_limit, record.name.step, record.parent.step, flush.norms)
    _put_manifest(root, record.name, manifest, clock)
    try:
        _point_at_newest(root, record.name)
    except OSError as error:
        _log.warning("checkpoint %s is committed, but the pointer stayed behind: %s", record.name, error)
    return manifest


def _point_at_newest(root: Root, name: StepName) -> None:
    """A newer attempt may have committed while this one stood still: who moves the pointer last has looked since."""
    pointed = None
    while (newest := next(iter(root.committed_steps()), name)) != pointed:
        root.replace_latest(newest)
        pointed = newest


def _check_size(path: Path, file: HashedFile) -> None:
    found_bytes = path.stat().st_size
    if found_bytes != file.num_bytes:
        raise CommitError(
            f"file {file.name} has {found_bytes} bytes on disk, {file.num_bytes} were written",
            reason="size_mismatch",
        )


def _require_newest_claim(root: Root, claim: Claim) -> None:
    newest = root.newest_claim()
    if newest is None:
        raise CommitError(
            f"{root.path / 'attempts'} is gone: the root was removed, replaced or unmounted under the running job; "
            "bring it back, or start the job again for a new one",
            reason="enoent",
        )
    if newest != claim:
        raise CommitError(
            f"attempt {claim.number} was superseded: the newest claim is attempt {newest.number}",
            reason="superseded",
        )


def _put_manifest(root: Root, name: StepName, manifest: Manifest, clock: Clock) -> None:
    path = root.directory(name) / MANIFEST_NAME
    try:
        replace_file(path, manifest.to_json(), clock=clock)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _manifest(record: SaveRecord, flush: FlushRecord, blocks: bytes) -> Manifest:
    files = tuple(
        FileEntry(
            name=item.file.name,
            num_bytes=item.file.num_bytes,
            digest=item.file.digest,
            algorithm=item.file.algorithm,
            rank=item.rank,
        )
        for item in flush.written
    )
    algorithm = files[0].algorithm if files else DEFAULT_ALGORITHM
    return Manifest(
        format=FORMAT,
        job_uid=record.job_uid,
        job=record.job,
        step=record.name.step,
        attempt=record.name.attempt,
        nonce=record.name.nonce,
        parent=None if record.parent is None else str(record.parent),
        world_size=record.world_size,
        layout="dcp",
        created=wall_time(),
        files=files,
        blocks=BlocksEntry(
            name=BLOCKS_NAME,
            num_bytes=len(blocks),
            digest=digest_of(blocks, algorithm),
            algorithm=algorithm,
        ),
        block_bytes=BLOCK_BYTES,
        total_bytes=sum(file.num_bytes for file in files),
        extras=record.extras,
        config=record.provenance.config,
        code_commit=record.provenance.code_commit,
        container_digest=record.provenance.container_digest,
        timings=flush.timings,
        lease=flush.lease,
        versions=Versions(
            rampmeter=version("rampmeter"), torch=record.torch_version, python=platform.python_version()
        ),
        unchecked=flush.unchecked,
        norms=None if record.norm_limit is None else flush.norms,
    )
