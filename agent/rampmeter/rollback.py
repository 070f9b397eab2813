"""Remembers which checkpoint somebody chose by name, so that the next start does not go on with what was left behind.

Whoever goes back to an older step does not want the newer ones. Until an attempt from there has committed something of
its own, the order of checkpoints alone would take a crash back to them; so the choice stands under the root. It is in
force until a commit of its attempt or a later one exists, or the next choice. Nothing is ever deleted because of it.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from rampmeter.core.errors import RestoreError
from rampmeter.files import replace_file
from rampmeter.layout import Root, StepName

_log = logging.getLogger("rampmeter")
_RECORD_NAME = re.compile(r"(\d{5,})\.began-from")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Attempt `attempt` began from the checkpoint `name` because somebody said so."""

    attempt: int
    name: StepName

    @property
    def why(self) -> str:
        """Why a newer checkpoint is passed over."""
        return (
            f"attempt {self.attempt} went back to step {self.name.step} by name, and nothing was committed since; "
            "restore(step=...) chooses another"
        )


def note_choice(root: Root, choice: Choice) -> None:
    """Durable. A root that cannot be written is told of in the log: what was chosen is loaded all the same."""
    try:
        replace_file(_record(root, choice.attempt), f"{choice.name}\n".encode())
    except OSError as error:
        _log.warning(
            "that step %d was chosen could not be noted (%s): after a crash before the next commit, choose it again",
            choice.name.step,
            error,
        )


def withdraw_choice(root: Root, choice: Choice) -> None:
    """Its attempt has only looked: it ends well and has trained nothing."""
    try:
        _record(root, choice.attempt).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("the choice of step %d still stands: %s", choice.name.step, error)


def left_behind(root: Root) -> dict[StepName, str]:
    """The committed checkpoints that a start without a choice of its own does not go on with, and why.

    RestoreError if the root cannot be looked into.
    """
    try:
        commits = root.committed_steps()
        choice = _newest_choice(root)
    except OSError as error:
        raise RestoreError(f"cannot look for checkpoints in {root.path}: {error}") from error
    if choice is None or any(name.attempt >= choice.attempt for name in commits):
        return {}
    return {name: choice.why for name in commits if name > choice.name}


def _newest_choice(root: Root) -> Choice | None:
    try:
        found = [_RECORD_NAME.fullmatch(entry.name) for entry in (root.path / "attempts").iterdir()]
    except FileNotFoundError:
        return None
    attempt = max((int(match[1]) for match in found if match), default=None)
    return None if attempt is None else _read(root, attempt)


def _read(root: Root, attempt: int) -> Choice | None:
    file = _record(root, attempt)
    name = StepName.parse(file.read_text(encoding="ascii", errors="replace").strip())
    if name is None:
        _log.warning("%s does not name a checkpoint and is passed over", file)
        return None
    return Choice(attempt=attempt, name=name)


def _record(root: Root, attempt: int) -> Path:
    return root.path / "attempts" / f"{attempt:05d}.began-from"
