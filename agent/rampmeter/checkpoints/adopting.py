"""`adopt`: makes a commit of a checkpoint that torch.distributed.checkpoint has written without us.

Its files are hashed where they are; digests and manifest are put beside them; then one rename of the directory into the
root makes it count. Killed before the rename, it is the foreign checkpoint that it was, and may be adopted again. It
gets the attempt 0, before all attempts of the job: it never becomes the future of a job that has commits of its own,
and a job that runs is not fenced. It is pinned, since nobody else may hold these bytes.
"""

import argparse
import errno
import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rampmeter.checkpoints.foreign import ForeignCheckpoint, read_foreign, step_in_name
from rampmeter.checkpoints.hashing_in import check_files, hash_files
from rampmeter.checkpoints.survey import read_directory, read_root
from rampmeter.checkpoints.telling import as_json, count, wrapped
from rampmeter.checkpoints.verb import FINE, WRONG, Verb, add_dry_run, add_json, say
from rampmeter.checkpoints.verifying import shown_progress
from rampmeter.core.clock import wall_time
from rampmeter.core.errors import ConfigError, CorruptCheckpoint, FormatTooNew
from rampmeter.core.units import format_bytes
from rampmeter.files import exists, replace_file, sync_directory
from rampmeter.hashing import BLOCK_BYTES, DEFAULT_ALGORITHM, HashedFile, digest_of
from rampmeter.layout import BLOCKS_NAME, MANIFEST_NAME, Root, StepName
from rampmeter.manifest import (
    FORMAT,
    BlocksEntry,
    Extras,
    FileEntry,
    Manifest,
    Timings,
    Versions,
)
from rampmeter.marks import Mark, put_mark
from rampmeter.printing import print_answer

_ATTEMPT = 0
_NONCE_CHARS = 16
_UNKNOWN = "unknown"
_NO_TIMINGS = Timings(
    stage_s=0.0, stall_s=0.0, lead_s=0.0, write_s=0.0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Adoption:
    """What was done. `name` is None if it was only asked about."""

    root: Root
    step: int
    name: StepName | None
    num_files: int
    num_bytes: int


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the checkpoint to take in; it is moved, not copied")
    parser.add_argument(
        "--root", metavar="ROOT", help="where it becomes a checkpoint (default: the directory that DIR is in)"
    )
    parser.add_argument(
        "--step", type=int, metavar="N", help="its step, if the name of DIR does not end with it"
    )
    add_dry_run(parser)
    add_json(parser)


def _adopt(args: argparse.Namespace) -> int:
    directory = _read_directory(args.directory)
    root = read_root(str(directory.parent) if args.root is None else args.root)
    step = _step(args.step, directory)
    _check_place(directory, root)
    try:
        foreign = read_foreign(directory)
        total_bytes = check_files(directory, foreign)
        name = None
        if not args.dry_run:
            with shown_progress(total_bytes) as progress:
                hashed = hash_files(directory, foreign, progress.add)
            name = _take_in(directory, root, step, foreign, hashed)
    except (CorruptCheckpoint, FormatTooNew) as error:
        say(str(error))
        return WRONG
    done = _Adoption(root=root, step=step, name=name, num_files=len(foreign.files), num_bytes=total_bytes)
    print_answer(as_json(_as_json(done)) if args.json else _as_text(done))
    return FINE


def _read_directory(text: str) -> Path:
    if not text:
        raise ConfigError("DIR is empty: name the checkpoint to take in")
    directory = Path(text).absolute()
    if directory.is_symlink():
        raise ConfigError(f"DIR: {directory} is a symbolic link: name what it points to")
    read_directory(str(directory))
    if StepName.parse(directory.name) is not None:
        raise ConfigError(f"DIR: {directory} is named like a checkpoint of rampmeter's own")
    if exists(directory / "JOB_UID"):
        raise ConfigError(f"DIR: {directory} is the root of a job, not a checkpoint")
    return directory


def _step(given: int | None, directory: Path) -> int:
    step = step_in_name(directory.name) if given is None else given
    if step is None:
        raise ConfigError(f"option --step: {directory.name} does not end with a step, so say which it is")
    if not 0 <= step < 10**18:
        raise ConfigError("option --step: must be a number from 0 on")
    return step


def _check_place(directory: Path, root: Root) -> None:
    if root.path.absolute().is_relative_to(directory):
        raise ConfigError(f"option --root: {root.path} is inside of {directory}")
    if directory.stat().st_dev != root.path.stat().st_dev:
        raise ConfigError(
            f"{directory} is on another file system than {root.path}: copy it below {root.path} first"
        )


def _take_in(
    directory: Path, root: Root, step: int, foreign: ForeignCheckpoint, hashed: Sequence[HashedFile]
) -> StepName:
    """Two that adopt one directory at once agree on its name, and one of the renames finds it gone."""
    name = StepName(step=step, attempt=_ATTEMPT, nonce=_nonce(hashed))
    target = root.directory(name)
    blocks = b"".join(file.blocks for file in hashed)
    manifest = _manifest(root, name, foreign, hashed, blocks).to_json()
    try:
        replace_file(directory / BLOCKS_NAME, blocks)
        put_mark(directory, Mark.PINNED)
        replace_file(directory / MANIFEST_NAME, manifest)
        directory.rename(target)
    except FileNotFoundError:
        raise CorruptCheckpoint(f"{directory} is gone: somebody else adopts or removes it") from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise CorruptCheckpoint(f"the same checkpoint is there already, as {target}") from None
        raise
    if (target / MANIFEST_NAME).read_bytes() != manifest:  # of another one, which said another step
        replace_file(target / MANIFEST_NAME, manifest)
    sync_directory(directory.parent)
    sync_directory(root.path)
    return name


def _nonce(hashed: Sequence[HashedFile]) -> str:
    """Made from the contents, so that all who adopt them find the same."""
    told = "".join(f"{file.name}\0{file.num_bytes}\0{file.digest}\0" for file in hashed)
    return hashlib.sha256(told.encode()).hexdigest()[:_NONCE_CHARS]


def _manifest(
    root: Root,
    name: StepName,
    foreign: ForeignCheckpoint,
    hashed: Sequence[HashedFile],
    blocks: bytes,
) -> Manifest:
    """What is not known of a foreign checkpoint is said to be unknown; none of its values was checked."""
    files = tuple(
        FileEntry(
            name=file.name,
            num_bytes=file.num_bytes,
            digest=file.digest,
            algorithm=file.algorithm,
            rank=source.rank,
        )
        for file, source in zip(hashed, foreign.files, strict=True)
    )
    return Manifest(
        format=FORMAT,
        job_uid=root.ensure_job_uid(),
        job=_UNKNOWN,
        step=name.step,
        attempt=name.attempt,
        nonce=name.nonce,
        parent=None,
        world_size=1 + max(file.rank for file in files),
        layout="dcp",
        created=wall_time(),
        files=files,
        blocks=BlocksEntry(
            name=BLOCKS_NAME,
            num_bytes=len(blocks),
            digest=digest_of(blocks),
            algorithm=DEFAULT_ALGORITHM,
        ),
        block_bytes=BLOCK_BYTES,
        total_bytes=sum(file.num_bytes for file in files),
        extras=Extras(data_position=False, rng=False),
        config=None,
        code_commit=None,
        container_digest=None,
        timings=_NO_TIMINGS,
        lease=None,
        versions=Versions(rampmeter=version("rampmeter"), torch=_UNKNOWN, python=platform.python_version()),
        unchecked=foreign.items,
    )


def _as_json(done: _Adoption) -> dict[str, object]:
    return {
        "root": str(done.root.path),
        "dry_run": done.name is None,
        "step": done.step,
        "directory": None if done.name is None else str(done.name),
        "num_files": done.num_files,
        "num_bytes": done.num_bytes,
    }


def _as_text(done: _Adoption) -> str:
    held = f"{count(done.num_files, 'file')}, {format_bytes(done.num_bytes)}"
    if done.name is None:
        return f"would become step {done.step} of {done.root.path}: {held}\n"
    advice = (
        "It is pinned, and older than all that the job saves itself. A state that is restored from it must have the "
        "names that its writer gave."
    )
    return f"step {done.step} is adopted as {done.root.directory(done.name)}: {held}\n\n{wrapped(advice)}\n"


ADOPT = Verb(
    name="adopt",
    summary="make a commit of a checkpoint of torch.distributed.checkpoint",
    help="""\
Make a commit of a checkpoint that torch.distributed.checkpoint has written by
itself: hash its files, then move its directory into the root. Refuses what is
half written or still being written. It is pinned, and older than all that the
job saves itself.

Example:
  rampmeter checkpoints adopt /lustre/run7/step_4000 --dry-run
""",
    add_arguments=_arguments,
    run=_adopt,
)
