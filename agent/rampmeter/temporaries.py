"""Temporary files that killed processes left under a root: which of them nobody can still want, and their removal.

What must appear whole is written as `.NAME.<uuid>.tmp` and renamed (`files`); whoever is killed in between leaves that
behind. One goes only if it is older than a whole attempt: written before the last but one began, by the times that the
file system gives to both. No clock of ours is read, for that of a file server or of another machine is another one; an
hour is left for machines that stamp their files themselves. And it was there at an earlier look, which no living
process's is. Only names that are written under a root count; those inside a checkpoint go with it.
"""

import itertools
import logging
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from rampmeter.files import meant_name
from rampmeter.layout import Root
from rampmeter.removal import Breathe
from rampmeter.retention import is_newer_format

_log = logging.getLogger("rampmeter")

MARGIN_S = 3600.0
MOST_LOOKED_AT = 1000
"""In one round; the next one goes on."""

_IN_ROOT = re.compile(r"JOB_UID|LATEST|plan\.json|retention\.json")
_IN_ATTEMPTS = re.compile(r"\d{5,}(\.began-from)?")


def is_abandoned(written_s: float, claims_s: list[float]) -> bool:
    """Whether a file is older than a whole attempt. `claims_s`: when the attempts began, the newest first.

    The earlier of the last two counts: a machine whose clock is ahead makes nothing old.
    """
    return len(claims_s) >= 2 and written_s + MARGIN_S < min(claims_s[:2])


def old_temporaries(root: Root) -> list[Path]:
    """Those that nobody can still want. OSError if the root cannot be looked into."""
    claims_s = [file.stat().st_mtime for file in root.claim_files()[:2]]
    if len(claims_s) < 2:
        return []
    found = itertools.islice(_temporaries(root), MOST_LOOKED_AT)
    return [path for path in found if _is_old(path, claims_s)]


def sweep_temporaries(root: Root, seen: set[Path], breathe: Breathe) -> list[Path]:
    """Remove those that are old and were there at the look before this one; what was removed.

    `seen` is what that look has found, and then what this one has. Where a newer format stands nothing is swept.
    """
    try:
        going = old_temporaries(root)
        if going and any(is_newer_format(root, name) for name in root.step_names()):
            return []
    except OSError as error:
        _log.warning("no temporary file was removed: cannot look into %s: %s", root.path, error)
        return []
    before = set(seen)
    seen.clear()
    seen.update(going)
    return [path for path in going if path in before and _removed(path, breathe)]


def _temporaries(root: Root) -> Iterator[Path]:
    for directory, own in ((root.path, _IN_ROOT), (root.path / "attempts", _IN_ATTEMPTS)):
        for path in directory.iterdir():
            name = meant_name(path.name)
            if name is not None and own.fullmatch(name):
                yield path


def _is_old(path: Path, claims_s: list[float]) -> bool:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and is_abandoned(found.st_mtime, claims_s)


def _removed(path: Path, breathe: Breathe) -> bool:
    breathe()
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("%s could not be removed: %s", path, error)
        return False
    return True
