"""Remembers which checkpoint somebody chose by name, so that no later start goes on with what was left behind.

Whoever goes back to an older step does not want the newer ones of before. The order of checkpoints alone would bring
them back: after a crash before the next commit, or if the commits since are damaged. So the choice stands under the
root, beside the claim of its attempt, for good. Each of those left behind can be chosen by name again, as long as it is
there: retention gives it the places that the history that goes on has not taken yet.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from rampmeter.core.errors import RestoreError
from rampmeter.files import NoPlainFile, read_small, replace_file
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
            f"attempt {self.attempt} went back to step {self.name.step} by name; "
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
    """The checkpoints that a start without a choice of its own does not go on with, and why.

    A choice leaves behind what is newer than the chosen one and older than its own attempt. A choice that was made in
    a history which was itself left behind no longer counts. RestoreError if the root cannot be looked into.
    """
    try:
        names, choices = root.step_names(), _choices(root)
    except OSError as error:
        raise RestoreError(
            f"cannot look for checkpoints in {root.path}: {error}; start again when it can be read"
        ) from error
    behind: dict[StepName, str] = {}
    newest_that_counts = max((choice.attempt for choice in choices), default=0)
    for choice in choices:
        if choice.attempt > newest_that_counts:
            continue
        newest_that_counts = choice.name.attempt
        for name in names:
            if name > choice.name and name.attempt < choice.attempt:
                behind.setdefault(name, choice.why)
    return behind


def _choices(root: Root) -> list[Choice]:
    """All that can be understood, the newest attempt's first."""
    try:
        found = [_RECORD_NAME.fullmatch(entry.name) for entry in (root.path / "attempts").iterdir()]
    except FileNotFoundError:
        return []
    attempts = sorted((int(match[1]) for match in found if match), reverse=True)
    return [choice for choice in (_read(root, attempt) for attempt in attempts) if choice is not None]


def _read(root: Root, attempt: int) -> Choice | None:
    file = _record(root, attempt)
    try:
        name = StepName.parse(read_small(file).decode("ascii", "replace").strip())
    except NoPlainFile:
        name = None
    if name is None:
        _log.warning("%s does not name a checkpoint and is passed over", file)
        return None
    return Choice(attempt=attempt, name=name)


def _record(root: Root, attempt: int) -> Path:
    return root.path / "attempts" / f"{attempt:05d}.began-from"
