"""Which checkpoint is read back, and what reading it back has shown. Looks into the root, and may block there.

The newest one that is not known to be damaged, unless it is proven already. After a damaged one the next older one,
whatever it was once proven to be: what storage has done to one it may have done to others.
"""

from collections.abc import Collection

from rampmeter.core.errors import CannotVerify, CorruptCheckpoint, FormatTooNew
from rampmeter.core.proving import Outcome
from rampmeter.layout import Root, StepName
from rampmeter.manifest import Manifest, check_identity, read_manifest
from rampmeter.marks import Mark, has_mark
from rampmeter.reading.pace import Pace
from rampmeter.verification import Verifier


def choose(root: Root, damaged: Collection[StepName], *, older_than: StepName | None) -> StepName | None:
    """None if nothing needs to be read back. `older_than`: the newest one before this, proven or not."""
    names = (
        name
        for name in root.committed_steps()
        if name not in damaged and not has_mark(root.directory(name), Mark.DAMAGED)
    )
    name = next((name for name in names if older_than is None or name < older_than), None)
    if name is None or (older_than is None and has_mark(root.directory(name), Mark.PROVEN)):
        return None
    return name


def manifest_of(root: Root, name: StepName) -> Manifest:
    """CorruptCheckpoint if it is damaged itself."""
    manifest = read_manifest(root.directory(name))
    check_identity(manifest, name)
    return manifest


def read_back(root: Root, name: StepName, manifest: Manifest, pace: Pace) -> None:
    """Every byte, from storage, in the calling thread. CorruptCheckpoint naming the file that is not as committed."""
    verifier = Verifier(root.directory(name), manifest, past_cache=True, pace=pace, num_threads=1)
    verifier.verify_all()


def outcome_of(root: Root, name: StepName, error: Exception) -> Outcome:
    """What it means that reading it back has raised. Others than these are not ours to judge, and raised again."""
    if not isinstance(error, CorruptCheckpoint | CannotVerify | FormatTooNew | OSError):
        raise error
    if not root.is_committed(name):
        return Outcome.VANISHED
    return Outcome.DAMAGED if isinstance(error, CorruptCheckpoint | FileNotFoundError) else Outcome.UNREADABLE
