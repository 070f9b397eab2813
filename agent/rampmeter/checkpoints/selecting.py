"""Finds the checkpoints that somebody means. What is ambiguous is refused with the names to choose from."""

from collections.abc import Sequence
from pathlib import PurePath

from rampmeter.checkpoints.survey import Found, Survey
from rampmeter.core.errors import ConfigError
from rampmeter.layout import StepName

NEWEST = "newest"


def select(found: Survey, words: Sequence[str]) -> list[Found]:
    """The checkpoints named by a step, a directory or `newest`, each once. ConfigError names the word at fault.

    A step means a committed checkpoint; what was never committed is named by its directory.
    """
    chosen = {item.name: item for item in (_one(found, word) for word in words)}
    return list(chosen.values())


def _one(found: Survey, word: str) -> Found:
    if word == NEWEST:
        matches = [item for item in found.found if item.condition.is_committed][:1]
    elif word.isdecimal() and word.isascii():
        matches = [
            item for item in found.found if item.name.step == int(word) and item.condition.is_committed
        ]
    else:
        name = _directory_name(word)
        matches = [item for item in found.found if item.name == name]
    if not matches:
        raise ConfigError(
            f"WHICH: there is no checkpoint {word!r} in {found.root.path}; "
            "`rampmeter checkpoints ls` lists what is there"
        )
    if len(matches) > 1:
        names = ", ".join(str(item.name) for item in matches)
        raise ConfigError(f"WHICH: several attempts have a step {word}, name one of {names}")
    return matches[0]


def _directory_name(word: str) -> StepName:
    """Also of a path to it, as a shell completes it."""
    name = StepName.parse(PurePath(word).name)
    if name is None:
        raise ConfigError(f"WHICH: {word!r} is neither a step, nor the name of a checkpoint, nor `{NEWEST}`")
    return name
