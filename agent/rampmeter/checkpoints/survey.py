"""Reads a root and says of each directory in it what it is. Opens no shard, changes nothing, raises for nothing found.

Sizes are compared with the manifest; contents are `verifying`'s business, and what was found there is told.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rampmeter.core.errors import CannotVerify, ConfigError, CorruptCheckpoint, FormatTooNew, RestoreError
from rampmeter.files import NoPlainFile, read_small
from rampmeter.layout import Root, StepName
from rampmeter.manifest import Manifest, check_identity, read_manifest
from rampmeter.marks import Mark, damage_found, has_mark
from rampmeter.misplaced import misplaced, root_above
from rampmeter.removal import Standing, standing
from rampmeter.rollback import left_behind
from rampmeter.verification import Verifier, check_known


class Condition(StrEnum):
    """What a directory is. `whole`: all files are there with their sizes."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    NEWER_FORMAT = "newer_format"
    UNVERIFIABLE = "unverifiable"  # its digests are of a kind that this version does not know
    UNREADABLE = "unreadable"
    UNCOMMITTED = "uncommitted"
    HALF_REMOVED = "half_removed"

    @property
    def is_committed(self) -> bool:
        """Whether it was a checkpoint once, and nobody has removed it."""
        return self not in (Condition.UNCOMMITTED, Condition.HALF_REMOVED)

    @property
    def is_wrong(self) -> bool:
        """Whether somebody who counts on this checkpoint should know."""
        return self in (
            Condition.DAMAGED,
            Condition.NEWER_FORMAT,
            Condition.UNVERIFIABLE,
            Condition.UNREADABLE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One directory named like a checkpoint of ours. `why` is empty for a whole one.

    left_behind: somebody went back to an older one by name, so that no start goes on from this one.
    was_read: it is called damaged because of what reading it has shown; by its sizes it is whole.
    """

    name: StepName
    condition: Condition
    why: str = ""
    manifest: Manifest | None = None
    pinned: bool = False
    proven: bool = False
    left_behind: bool = False
    was_read: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A root at one moment. `found` is in the order in which checkpoints count, newest first.

    job_uid: None where no job has begun. newest_attempt: 0 where none has.
    """

    root: Root
    job_uid: str | None
    newest_attempt: int
    found: tuple[Found, ...]
    foreign: tuple[str, ...]

    @property
    def newest_whole(self) -> StepName | None:
        """The one that a restore would take, as far as sizes tell; of those left behind only if there is no other."""
        whole = [item for item in self.found if item.condition is Condition.WHOLE]
        return next((item.name for item in sorted(whole, key=lambda item: item.left_behind)), None)


def read_root(text: str) -> Root:
    """ConfigError unless it is a directory that can be read, and one that can be a root."""
    path = read_directory(text)
    try:
        elsewhere = misplaced(Root(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if elsewhere is not None:
        raise ConfigError(f"ROOT: {elsewhere}")
    return Root(path)


def read_directory(text: str) -> Path:
    """ConfigError unless it is a directory that can be read."""
    if not text:
        raise ConfigError("ROOT is empty: name the directory that holds a job's checkpoints")
    path = Path(text)
    try:
        next(path.iterdir(), None)
    except FileNotFoundError:
        above = root_above(Root(path))
        hint = "" if above is None else f"; {above} is the root of a job"
        raise ConfigError(f"{path}: there is no such directory{hint}") from None
    except NotADirectoryError:
        raise ConfigError(f"{path}: is no directory") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return path


def survey(root: Root) -> Survey:
    """What stands under a root now. ConfigError if it cannot be listed."""
    try:
        newest = root.newest_claim()
        behind = left_behind(root)
        return Survey(
            root=root,
            job_uid=_job_uid(root),
            newest_attempt=0 if newest is None else newest.number,
            found=tuple(replace(look(root, name), left_behind=name in behind) for name in root.step_names()),
            foreign=tuple(root.foreign_checkpoints()),
        )
    except OSError as error:
        raise ConfigError(f"{root.path} cannot be read: {error.strerror}: {error.filename}") from None
    except RestoreError as error:
        raise ConfigError(str(error)) from None


def _job_uid(root: Root) -> str | None:
    try:
        return read_small(root.path / "JOB_UID").decode("ascii", "replace").strip() or None
    except (FileNotFoundError, NoPlainFile):
        return None


def look(root: Root, name: StepName) -> Found:
    """What one directory is."""
    directory = root.directory(name)
    try:
        where = standing(directory)
        if where is Standing.COMMITTED:
            return _look_inside(name, directory)
        directory.stat()
    except (FormatTooNew, CorruptCheckpoint, OSError) as error:
        return _cannot_be_read(name, error)
    if where is Standing.UNCOMMITTED:
        why = "no manifest: being written, or left by a crash"
        return Found(name=name, condition=Condition.UNCOMMITTED, why=why)
    return Found(
        name=name, condition=Condition.HALF_REMOVED, why="its removal has begun and was not finished"
    )


def _cannot_be_read(name: StepName, error: Exception) -> Found:
    if isinstance(error, FormatTooNew):
        return Found(name=name, condition=Condition.NEWER_FORMAT, why=str(error))
    if isinstance(error, FileNotFoundError):
        return Found(name=name, condition=Condition.HALF_REMOVED, why="it was removed just now")
    if isinstance(error, OSError):
        return Found(name=name, condition=Condition.UNREADABLE, why=f"{error.strerror}: {error.filename}")
    return Found(name=name, condition=Condition.DAMAGED, why=str(error))


def _look_inside(name: StepName, directory: Path) -> Found:
    manifest = read_manifest(directory)
    damage = damage_found(directory)
    condition, why = Condition.WHOLE if damage is None else Condition.DAMAGED, damage or ""
    was_read = damage is not None
    try:
        check_identity(manifest, name)
        Verifier(directory, manifest).verify_sizes()
        check_known(manifest)
    except CorruptCheckpoint as error:
        condition, why, was_read = Condition.DAMAGED, str(error), False
    except CannotVerify as error:
        condition, why, was_read = Condition.UNVERIFIABLE, str(error), False
    return Found(
        name=name,
        condition=condition,
        why=why,
        manifest=manifest,
        pinned=has_mark(directory, Mark.PINNED),
        proven=has_mark(directory, Mark.PROVEN),
        was_read=was_read,
    )
