"""Says when a directory that was given as a root is one level off, and which one was probably meant.

Begun one level too deep or too high, a job would find nothing and train from step 0 beside its own checkpoints. Only
names and job uids are looked at; nothing is changed, and a root that a job has begun in is never doubted for what
stands in it.
"""

import itertools
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rampmeter.core.errors import ConfigError
from rampmeter.files import exists
from rampmeter.layout import ATTEMPTS_NAME, JOB_UID_NAME, Root, StepName

_log = logging.getLogger("rampmeter")

_MOST_LOOKED_AT = 1000
_MOST_NAMED = 3


def misplaced(root: Root) -> str | None:
    """What stands there instead, with the path to name; None if nothing speaks against it. OSError if unreadable."""
    path = root.path.absolute()
    return _too_deep(path) or _too_high(root, path)


def _too_deep(path: Path) -> str | None:
    for place in (path, *path.parents):
        name = StepName.parse(place.name)
        if name is not None:
            what = "is" if place == path else "is inside"
            return f"{path} {what} the checkpoint of step {name.step}, no root: its root is {place.parent}"
    if path.name == ATTEMPTS_NAME and exists(path.parent / JOB_UID_NAME):
        return f"{path} holds the claims of a job: its root is {path.parent}"
    return None


def _too_high(root: Root, path: Path) -> str | None:
    try:
        if exists(path / JOB_UID_NAME) or root.step_names():
            return None
        with os.scandir(path) as entries:
            looked_at = [Path(entry.path) for entry in itertools.islice(entries, _MOST_LOOKED_AT)]
    except FileNotFoundError:
        return None
    found = sorted(place for place in looked_at if _is_root(place))
    if not found:
        return None
    named = ", ".join(str(place) for place in found[:_MOST_NAMED]) + (
        f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    )
    return f"{path} is no root but holds roots of jobs: name one of them ({named}), or a directory of its own"


def _is_root(place: Path) -> bool:
    try:
        return exists(place / JOB_UID_NAME)
    except OSError:
        return False


def refuse_misplaced(root: Root) -> None:
    """Before a job begins there. ConfigError says which root is meant; what may be meant so is told in the log."""
    why = misplaced(root)
    if why is not None:
        raise ConfigError(f"root: {why}")
    above = root_above(root)
    if above is not None:
        _log.warning("root: a new job begins in %s, inside of the root %s of another", root.path, above)


def root_above(root: Root) -> Path | None:
    """The directory above, if a job has begun there and none here."""
    path = root.path.absolute()
    try:
        is_begun = exists(path / JOB_UID_NAME) or bool(root.step_names())
        return path.parent if not is_begun and exists(path.parent / JOB_UID_NAME) else None
    except OSError:
        return None


def adoption(root: Root, foreign: Sequence[str]) -> str:
    """How one of these can be taken in: nothing is said where none is a directory of its own."""
    first = next((name for name in foreign if (root.path / name).is_dir()), None)
    return "" if first is None else f"take one in with `rampmeter checkpoints adopt {root.path / first}`, or "
