"""Finds the newest checkpoint that is whole, and loads it.

Order is (attempt, step), newest first; the pointer is only a hint and decides nothing. What is damaged is skipped with
a reason and the one before is taken; what was asked for by step is never replaced. "Not permitted" and "damaged" are
never taken for "nothing there": training must not start at 0 because a disk was away.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rampmeter import dcp
from rampmeter.core.errors import CorruptCheckpoint, ForeignCheckpoints, RestoreError
from rampmeter.layout import Root, StepName
from rampmeter.loading import load_state
from rampmeter.manifest import check_identity, read_manifest
from rampmeter.marks import note_proven
from rampmeter.rollback import left_behind
from rampmeter.state import State
from rampmeter.verification import Verifier

_log = logging.getLogger("rampmeter")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCheckpoint:
    """What was loaded. `skipped` says why newer ones were not; `values` holds the state's plain values.

    rolled_back: an older step was chosen by name, although the newest committed checkpoint is further.
    """

    step: int
    directory: str
    skipped: tuple[str, ...]
    rolled_back: bool
    values: dict[str, Any]


def restore(
    root: Root | str | Path,
    state: State,
    *,
    step: int | None = None,
    fresh: bool = False,
    world_size: int = 1,
) -> RestoredCheckpoint | None:
    """Load the newest whole checkpoint into `state`, or exactly `step`; None if there is none at all.

    RestoreError (or one of its kinds) if checkpoints exist but none can be loaded, if `step` cannot be, or if the
    state does not fit. `fresh` ignores checkpoints of other writers in the root.
    """
    root = root if isinstance(root, Root) else Root(root)
    candidates = _candidates(root, step, fresh=fresh)
    behind = left_behind(root) if step is None else {}
    skipped: list[str] = []
    num_damaged = 0
    for name in candidates:
        try:
            if not root.is_committed(name):
                skipped.append(_note_skip(name, "it was never committed"))
                continue
            if name in behind:
                skipped.append(_note_skip(name, behind[name]))
                num_damaged += 1  # if nothing else can be loaded, training must not start at 0
                continue
            values = _load(root, name, state, world_size)
        except (CorruptCheckpoint, OSError) as error:
            if isinstance(error, CorruptCheckpoint):
                note_proven(root.directory(name), whole=False)
            if step is not None:
                raise _explicit(name, error) from error
            skipped.append(_note_skip(name, str(error)))
            num_damaged += 1
        else:
            return RestoredCheckpoint(
                step=name.step,
                directory=str(name),
                skipped=tuple(skipped),
                rolled_back=step is not None and _is_passed(root, name),
                values=values,
            )
    if step is not None:
        raise RestoreError(f"no committed checkpoint of step {step} in {root.path}")
    if num_damaged:
        raise CorruptCheckpoint(f"no checkpoint in {root.path} can be loaded: {'; '.join(skipped)}")
    return None


def _candidates(root: Root, step: int | None, *, fresh: bool) -> list[StepName]:
    try:
        foreign = [] if fresh else root.foreign_checkpoints()
        names = root.step_names()
    except OSError as error:
        raise RestoreError(f"cannot look for checkpoints in {root.path}: {error}") from error
    if foreign:
        raise ForeignCheckpoints(
            f"{root.path} holds checkpoints of another writer ({', '.join(foreign[:3])}): take one in with "
            f"`rampmeter checkpoints adopt {root.path / foreign[0]}`, or load one yourself and pass fresh=True to go "
            "on from it or to start without them, or choose another root"
        )
    return [name for name in names if step is None or name.step == step]


def _is_passed(root: Root, name: StepName) -> bool:
    """Whether the newest committed checkpoint is of a later step; no where that cannot be seen."""
    try:
        newest = next((other for other in root.step_names() if root.is_committed(other)), name)
    except OSError:
        return False
    return newest.step > name.step


def _load(root: Root, name: StepName, state: State, world_size: int) -> dict[str, Any]:
    directory = root.directory(name)
    manifest = read_manifest(directory)
    check_identity(manifest, name)
    Verifier(directory, manifest).verify_sizes()
    if manifest.world_size != world_size:
        _log.warning(
            "step %d was saved by %d ranks and is loaded by %d: tensors are equal, random states are not",
            name.step,
            manifest.world_size,
            world_size,
        )
    reader = dcp.VerifiedReader(directory, manifest)
    values = load_state(state, reader, single_process=world_size == 1)
    if manifest.world_size == world_size == 1:  # then all of it was read
        note_proven(directory, whole=True)
    return values


def _note_skip(name: StepName, why: str) -> str:
    reason = f"skipped step {name.step} ({name}): {why}"
    _log.warning("%s", reason)
    return reason


def _explicit(name: StepName, error: Exception) -> RestoreError:
    message = f"step {name.step} ({name}) cannot be loaded: {error}"
    return CorruptCheckpoint(message) if isinstance(error, CorruptCheckpoint) else RestoreError(message)
