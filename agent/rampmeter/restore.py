"""Finds the newest checkpoint that is whole, and loads it.

Order is (attempt, step), newest first; the pointer is only a hint and decides nothing. What is damaged is skipped with
a reason and the one before is taken; what was asked for by step is never replaced. "Not permitted" and "damaged" are
never taken for "nothing there": training must not start at 0 because a disk was away. What cannot be verified here is
skipped in the same way; a newer format ends the restore. A mark that says that one is damaged is not believed: what is
read is verified anyway. Of several ranks rank 0 alone looks; all try what it says, and what is damaged for one is
damaged for all. Each error names the root, the step and a way on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from rampmeter import dcp
from rampmeter.core.errors import CannotVerify, CorruptCheckpoint, ForeignCheckpoints, RestoreError
from rampmeter.layout import Root, StepName
from rampmeter.loading import load_state
from rampmeter.manifest import KeyNorm, Manifest, check_identity, read_manifest
from rampmeter.marks import note_damaged, note_proven
from rampmeter.misplaced import adoption, misplaced
from rampmeter.ranks.peers import Peers
from rampmeter.reading.slot import Slot, unpaced
from rampmeter.rollback import left_behind
from rampmeter.state import State
from rampmeter.verification import Verifier, check_computable

_log = logging.getLogger("rampmeter")

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredCheckpoint:
    """What was loaded. `skipped` says why newer ones were not; `values` holds the state's plain values.

    norms: those of its manifest.
    rolled_back: an older step was chosen by name, although the newest committed checkpoint is further.
    """

    step: int
    directory: str
    skipped: tuple[str, ...]
    rolled_back: bool
    values: dict[str, Any]
    norms: tuple[KeyNorm, ...]


def restore(
    root: Root | str | Path,
    state: State,
    *,
    step: int | None = None,
    fresh: bool = False,
    group: dist.ProcessGroup | None = None,
    slot: Slot = unpaced,
    who_is_gone: Callable[[], str] = lambda: "",
) -> RestoredCheckpoint | None:
    """Load the newest whole checkpoint into `state`, or exactly `step`; None if there is none at all.

    RestoreError (or one of its kinds) if checkpoints exist but none can be loaded, if `step` cannot be, or if the
    state does not fit. `fresh` ignores checkpoints of other writers in the root. `slot` is entered before the bytes of
    a checkpoint are read and says how fast they may be.

    All ranks of `group` (gloo; None = a process that is alone) call this together and get the same answer or the same
    error. The `step` and `fresh` of rank 0 count. The group is used for nothing else meanwhile. `who_is_gone` as in
    Peers.
    """
    root = root if isinstance(root, Root) else Root(root)
    peers = Peers(group, who_is_gone)
    skips = _Skips(peers)
    step, candidates, behind = peers.from_first(partial(_candidates, root, step, fresh=fresh))
    for name in candidates:
        try:
            if not peers.from_first(partial(root.is_committed, name)):
                skips.add_leftover(name)
                continue
            if name in behind:
                skips.add_damaged(
                    name, behind[name]
                )  # if nothing else can be loaded, training must not start at 0
                continue
            manifest, values = _load(root, name, state, peers, slot)
        except (CorruptCheckpoint, CannotVerify, OSError) as error:
            if isinstance(error, CorruptCheckpoint) and peers.rank == 0:
                note_damaged(root.directory(name), error)
            if step is not None:
                raise _about(root, name, error, f"; {_others(root)}") from error
            skips.add_damaged(name, _why(error), is_unverifiable=isinstance(error, CannotVerify))
        except RestoreError as error:
            raise _about(root, name, error) from error
        else:
            skips.tell_leftovers()
            return RestoredCheckpoint(
                step=name.step,
                directory=str(name),
                skipped=tuple(skips.reasons),
                rolled_back=step is not None and peers.from_first(partial(_is_passed, root, name)),
                values=values,
                norms=manifest.norms or (),
            )
    skips.tell_leftovers()
    if step is not None:
        raise RestoreError(f"no committed checkpoint of step {step} in {root.path}; {_others(root)}")
    skips.refuse_nothing(root)
    return None


class _Skips:
    """Why checkpoints are not taken. The same on all ranks; rank 0 says it."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._leftovers: list[StepName] = []
        self.reasons: list[str] = []
        self.num_damaged = 0
        self.num_unverifiable = 0

    def add_leftover(self, name: StepName) -> None:
        """One that was never committed. There may be thousands: a few are told of one by one, more in one line."""
        self._leftovers.append(name)

    def tell_leftovers(self) -> None:
        """Before anything else is told, so that the order is that of the checkpoints."""
        leftovers, self._leftovers = self._leftovers, []
        if len(leftovers) <= _MOST_NAMED:
            for name in leftovers:
                self._add(f"skipped step {name.step} ({name}): it was never committed")
            return
        named = ", ".join(str(name) for name in leftovers[:_MOST_NAMED])
        self._add(f"skipped {len(leftovers)} directories that were never committed: {named} and others")

    def _add(self, reason: str) -> None:
        self.reasons.append(reason)
        if self._peers.rank == 0:
            _log.warning("%s", reason)

    def add_damaged(self, name: StepName, why: str, *, is_unverifiable: bool = False) -> None:
        """One that was committed: it is no start from nothing."""
        self.tell_leftovers()
        self._add(f"skipped step {name.step} ({name}): {why}")
        self.num_damaged += 1
        self.num_unverifiable += is_unverifiable

    def refuse_nothing(self, root: Root) -> None:
        """Raise if there were checkpoints, of which none could be loaded."""
        if not self.num_damaged:
            return
        kind = CannotVerify if self.num_unverifiable else CorruptCheckpoint
        raise kind(
            f"no checkpoint in {root.path} can be loaded: {'; '.join(self.reasons)}. Mend that, choose one with "
            "restore(step=...), or begin anew in another root"
        )


def _candidates(
    root: Root, step: int | None, *, fresh: bool
) -> tuple[int | None, list[StepName], dict[StepName, str]]:
    """What rank 0 tells all: the step that was chosen by name, what may be tried, and what is passed over, and why."""
    try:
        elsewhere = misplaced(root)
        foreign = [] if fresh else root.foreign_checkpoints()
        names = root.step_names()
    except OSError as error:
        raise RestoreError(
            f"cannot look for checkpoints in {root.path}: {_why(error)}; start again when it can be read"
        ) from error
    if elsewhere is not None:
        raise RestoreError(elsewhere)
    if foreign:
        raise ForeignCheckpoints(
            f"{root.path} holds checkpoints of another writer ({', '.join(foreign[:3])}): {adoption(root, foreign)}"
            "load one yourself and pass fresh=True to go on from it or to start without them, or choose another root"
        )
    behind = left_behind(root) if step is None else {}
    return step, [name for name in names if step is None or name.step == step], behind


def _is_passed(root: Root, name: StepName) -> bool:
    """Whether the newest committed checkpoint is of a later step; no where that cannot be seen."""
    try:
        newest = next(iter(root.committed_steps()), name)
    except OSError:
        return False
    return newest.step > name.step


def _load(
    root: Root, name: StepName, state: State, peers: Peers, slot: Slot
) -> tuple[Manifest, dict[str, Any]]:
    directory = root.directory(name)
    manifest = peers.from_first(lambda: _manifest_of(directory, name))
    with slot(manifest.total_bytes) as pace:
        loaded = load_state(state, dcp.VerifiedReader(directory, manifest, pace=pace), peers)
    if loaded.is_whole and peers.rank == 0:
        note_proven(directory, whole=True)
    return manifest, loaded.values


def _manifest_of(directory: Path, name: StepName) -> Manifest:
    """Its manifest; all files that it lists are there with their sizes."""
    manifest = read_manifest(directory)
    check_identity(manifest, name)
    check_computable(manifest)
    Verifier(directory, manifest).verify_sizes()
    return manifest


def _why(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"{error}: this user may not read there; look at owner, group and mode"
    return str(error)


def _about(root: Root, name: StepName, error: RestoreError | OSError, then: str = "") -> RestoreError:
    """The error with what it is about, and of the same kind: where bytes are damaged is for the marks alone."""
    kind = type(error) if isinstance(error, RestoreError) else RestoreError
    kind = CorruptCheckpoint if issubclass(kind, CorruptCheckpoint) else kind
    return kind(f"step {name.step} ({root.directory(name)}) cannot be loaded: {_why(error)}{then}")


def _others(root: Root) -> str:
    return f"`rampmeter checkpoints ls {root.path}` lists what is there, and restore() without a step takes the newest"
