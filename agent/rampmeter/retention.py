"""Decides which checkpoints stay, and lets the others be removed.

Of the committed ones stay: the newest few, the last one of each of the newest days, milestones, what is pinned, the
newest that was read back whole, so that something proven is always there, and the one that is being read back. The
newest always stays. One before it that was found damaged has only the places that whole ones leave free.
What cannot be judged neither counts nor goes. All that is of the history that training goes on with; one
that was left behind (`rollback`) has only the places that this one leaves free, so it pushes nothing out and goes by
itself. Uncommitted directories go only if nobody can still be writing them. A failed deletion is logged and tried again
next time; it never raises. How a checkpoint is removed is `removal`'s business.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from rampmeter.core.errors import CannotVerify, ConfigError, CorruptCheckpoint, FormatTooNew, RestoreError
from rampmeter.files import NoPlainFile, read_small, replace_file
from rampmeter.layout import Root, StepName
from rampmeter.manifest import Manifest, read_manifest
from rampmeter.marks import Mark, has_mark
from rampmeter.removal import Breathe, Standing, remove, remove_leftover, standing
from rampmeter.rollback import left_behind
from rampmeter.verification import check_known

_log = logging.getLogger("rampmeter")

Removing = Callable[[Path, Breathe], bool]

_RECORD_NAME = "retention.json"
_DATE_CHARS = len("2026-11-30")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What stays beside pinned and proven ones. ConfigError names the argument that is out of range.

    keep             so many of the newest; one less while one that is being read back stays beside a proven one
    keep_days        the last one of each of so many days (UTC) on which there are any, the newest first; 0 = none.
                     Bounded, because a run of a year would else keep 365 of them
    milestone_steps  the first one at or after each multiple of so many steps, for ever; None = no milestones
    """

    keep: int = 3
    keep_days: int = 7
    milestone_steps: int | None = None

    def __post_init__(self) -> None:
        _whole("keep", self.keep, 1)
        _whole("keep_days", self.keep_days, 0)
        if self.milestone_steps is not None:
            _whole("milestone_steps", self.milestone_steps, 1)


def _whole(argument: str, value: int, least: int) -> None:
    if type(value) is not int or value < least:
        raise ConfigError(f"{argument} must be an integer of at least {least}")


class Reason(StrEnum):
    """Why a checkpoint stays."""

    LAST = "last"
    DAILY = "daily"
    MILESTONE = "milestone"
    PINNED = "pinned"
    PROVEN = "proven"
    READING = "reading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What retention looks at in a committed checkpoint.

    day          the UTC date of its commit
    left_behind  somebody went back to an older one by name: no start goes on from this one
    damaged      reading it has shown that it is
    """

    name: StepName
    day: str
    pinned: bool
    proven: bool
    left_behind: bool = False
    damaged: bool = False


def day_of(manifest: Manifest) -> str:
    """The UTC date of a commit, as its host saw it."""
    return manifest.created[:_DATE_CHARS]


def why_kept(
    commits: Collection[Kept], keep: Keep, reading: StepName | None = None
) -> dict[StepName, list[Reason]]:
    """For each commit why it stays; an empty list says that it goes. In the order in which checkpoints count.

    `reading` is being read back now. What was left behind counts after all others.

    The last of a day and the first of a milestone stay what they are while others come and go, so nothing that was
    kept for one of them is let go because a later round chose another.
    """
    in_order = sorted(commits, key=lambda commit: (not commit.left_behind, commit.name), reverse=True)
    reasons: dict[StepName, list[Reason]] = {commit.name: [] for commit in in_order}
    whole = [commit for commit in in_order if not commit.damaged]
    damaged = [commit for commit in in_order if commit.damaged]
    last = {commit.name for commit in in_order[:1] + (whole + damaged)[: keep.keep]}
    for commit in in_order:
        if commit.name in last:
            reasons[commit.name].append(Reason.LAST)
    for name in _last_of_days(whole, keep.keep_days):
        reasons[name].append(Reason.DAILY)
    for name in _milestones(whole, keep.milestone_steps):
        reasons[name].append(Reason.MILESTONE)
    for commit in in_order:
        if commit.pinned:
            reasons[commit.name].append(Reason.PINNED)
    proven = next((commit.name for commit in whole if commit.proven), None)
    if proven is not None:
        reasons[proven].append(Reason.PROVEN)
    if reading in reasons and not reasons[reading]:
        _hold(reading, reasons)
    return reasons


def _hold(reading: StepName, reasons: Mapping[StepName, list[Reason]]) -> None:
    """Let it stay until it is read through: what is removed too soon each time is never proven.

    There is one place beside the newest for a proof. If the last proof has it, this one takes the place of the oldest
    of the newest; where only one of these is kept, it goes.
    """
    if [Reason.PROVEN] in reasons.values():
        others = [why for why in reasons.values() if Reason.LAST in why][1:]
        if not others:
            return
        others[-1].remove(Reason.LAST)
    reasons[reading].append(Reason.READING)


def _last_of_days(in_order: Sequence[Kept], num_days: int) -> list[StepName]:
    """Days on which only what was left behind was made come after all others."""
    last: dict[str, Kept] = {}
    for commit in in_order:
        last.setdefault(commit.day, commit)
    days = sorted(last, key=lambda day: (not last[day].left_behind, day), reverse=True)
    return [last[day].name for day in days[:num_days]]


def _milestones(commits: Iterable[Kept], every: int | None) -> list[StepName]:
    """The lowest step in each stretch from one multiple to the next; of one step, the newest attempt's.

    One that was left behind stands for its stretch until this history has come by there.
    """
    if every is None:
        return []
    first: dict[int, StepName] = {}
    for commit in sorted(
        commits, key=lambda commit: (commit.left_behind, commit.name.step, -commit.name.attempt)
    ):
        if commit.name.step >= every:
            first.setdefault(commit.name.step // every, commit.name)
    return list(first.values())


def read_commits(root: Root, days: MutableMapping[StepName, str]) -> list[Kept]:
    """The committed checkpoints that can be read, newest first. OSError or RestoreError if the root cannot be.

    What has a damaged manifest, digests of an unknown kind or a newer format, or is not to be looked into is left out:
    it neither counts nor goes. `days` remembers the dates of those seen before, since a manifest never changes and may
    be long.
    """
    behind = left_behind(root)
    found = [_read_commit(root, name, days, behind) for name in root.committed_steps()]
    return [commit for commit in found if commit is not None]


def _read_commit(
    root: Root, name: StepName, days: MutableMapping[StepName, str], behind: Collection[StepName]
) -> Kept | None:
    directory = root.directory(name)
    try:
        if name not in days:
            manifest = read_manifest(directory)
            check_known(manifest)
            days[name] = day_of(manifest)
        return Kept(
            name=name,
            day=days[name],
            pinned=has_mark(directory, Mark.PINNED),
            proven=has_mark(directory, Mark.PROVEN),
            left_behind=name in behind,
            damaged=has_mark(directory, Mark.DAMAGED),
        )
    except FileNotFoundError:  # removed meanwhile
        return None
    except (CorruptCheckpoint, CannotVerify, FormatTooNew, OSError) as error:
        root.odd.tell(name, str(error))
        return None


def prune(
    root: Root,
    keep: Keep,
    breathe: Breathe,
    *,
    days: MutableMapping[StepName, str] | None = None,
    reading: StepName | None = None,
) -> list[StepName]:
    """Remove the commits that `keep` lets go, oldest first; what was removed.

    `days` as in `read_commits`, `reading` as in `why_kept`.
    """
    try:
        commits = read_commits(root, {} if days is None else days)
    except (OSError, RestoreError) as error:
        _log.warning("no checkpoint was removed: cannot look into %s: %s", root.path, error)
        return []
    reasons = why_kept(commits, keep, reading)
    return [name for name in reversed(reasons) if not reasons[name] and _tried(root, name, remove, breathe)]


def sweep(root: Root, attempt: int, breathe: Breathe) -> list[StepName]:
    """Finish deletions that were cut off, and remove uncommitted directories of attempts before `attempt`.

    What this attempt or a newer one has not committed may be on its way. In a root where a newer format stands nothing
    is swept: what is half a checkpoint to us may be a whole one to its writer.
    """
    try:
        found = _standings(root)
        going = [name for name, where in found.items() if may_sweep(name, where, attempt)]
        if going and any(is_newer_format(root, name) for name in found):
            _log.warning("nothing was swept: a newer rampmeter has written into %s", root.path)
            return []
    except OSError as error:
        _log.warning("nothing was swept: cannot look into %s: %s", root.path, error)
        return []
    return [
        name
        for name in going
        if _tried(root, name, remove_leftover if found[name] is Standing.UNCOMMITTED else remove, breathe)
    ]


def _standings(root: Root) -> dict[StepName, Standing]:
    """Of all that can be looked into. OSError if the root cannot be listed."""
    found = {}
    for name in root.step_names():
        try:
            found[name] = standing(root.directory(name))
        except OSError as error:
            root.odd.tell(name, str(error))
    return found


def may_sweep(name: StepName, where: Standing, attempt: int) -> bool:
    """Whether nobody can miss a directory that is no checkpoint, now that `attempt` is the newest."""
    if where is Standing.UNCOMMITTED:
        return name.attempt < attempt
    return where is not Standing.COMMITTED


def is_newer_format(root: Root, name: StepName) -> bool:
    """Whether a commit is of a format that this reader does not know; no where it cannot be read."""
    try:
        read_manifest(root.directory(name))
    except FormatTooNew:
        return True
    except CorruptCheckpoint:
        return False
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            root.odd.tell(name, str(error))
        return False
    return False


def _tried(root: Root, name: StepName, removing: Removing, breathe: Breathe) -> bool:
    try:
        return removing(root.directory(name), breathe)
    except OSError as error:
        root.odd.tell(name, f"it could not be removed: {error}")
        return False


def write_keep(root: Root, keep: Keep) -> None:
    """Record under the root what its job keeps, for `rampmeter checkpoints prune`. OSError if that fails."""
    replace_file(root.path / _RECORD_NAME, json.dumps(asdict(keep)).encode())


def read_keep(root: Root) -> Keep | None:
    """What the job of this root keeps; None if none has said so. ConfigError if the record is damaged."""
    file = root.path / _RECORD_NAME
    try:
        found = json.loads(read_small(file))
        return Keep(**{field: found[field] for field in Keep.__dataclass_fields__})
    except FileNotFoundError:
        return None
    except (NoPlainFile, ValueError, KeyError, TypeError, ConfigError):
        raise ConfigError(f"{file} cannot be understood: delete it; the job writes it anew") from None
