"""Decides which checkpoints go, and removes them so that half a deletion is never mistaken for a checkpoint.

Runs after a commit. The newest committed checkpoint and protected ones never go; uncommitted directories go only if
nobody can still be writing them. A failed deletion is logged and tried again next time; it never raises.
"""

import logging
from collections.abc import Collection

from rampmeter.core.errors import ConfigError, CorruptCheckpoint, FormatTooNew
from rampmeter.files import remove_tree, sync_directory
from rampmeter.layout import MANIFEST_NAME, Root, StepName
from rampmeter.manifest import read_manifest

_log = logging.getLogger("rampmeter")


def prune(root: Root, keep: int, *, protected: Collection[str] = ()) -> list[StepName]:
    """Remove all but the newest `keep` checkpoints and those in `protected` (directory names).

    Order is (attempt, step). A checkpoint whose manifest cannot be read neither counts nor goes, and one of a newer
    format is not ours to delete. Returns what was removed; ConfigError if `keep` < 1.
    """
    if keep < 1:
        raise ConfigError(f"keep must be at least 1 (got {keep}): the newest checkpoint always stays")
    try:
        readable = [name for name in root.committed_steps() if _is_readable(root, name)]
    except OSError as error:
        _log.warning("no checkpoint was removed: cannot look into %s: %s", root.path, error)
        return []
    old = [name for name in readable[keep:] if str(name) not in protected]
    return [name for name in reversed(old) if _delete(root, name)]


def sweep(root: Root, attempt: int, *, in_flight: Collection[str] = ()) -> list[StepName]:
    """Remove uncommitted directories of attempts before `attempt`, and of this one if not in `in_flight`.

    Directories of a newer attempt are never touched: this process is the stale one then.
    """
    try:
        candidates = [
            name
            for name in root.step_names()
            if name.attempt <= attempt and str(name) not in in_flight and not root.is_committed(name)
        ]
    except OSError as error:
        _log.warning("nothing was swept: cannot look into %s: %s", root.path, error)
        return []
    return [name for name in candidates if _delete(root, name)]


def _is_readable(root: Root, name: StepName) -> bool:
    try:
        read_manifest(root.directory(name))
    except (CorruptCheckpoint, FormatTooNew) as error:
        _log.warning("%s is left alone: %s", name, error)
        return False
    return True


def _delete(root: Root, name: StepName) -> bool:
    """The manifest first, durably: from then on the rest is a leftover, whatever happens to it."""
    directory = root.directory(name)
    try:
        (directory / MANIFEST_NAME).unlink(missing_ok=True)
        sync_directory(directory)
        remove_tree(directory)
    except OSError as error:
        _log.warning("%s could not be removed: %s", name, error)
        return False
    return True
