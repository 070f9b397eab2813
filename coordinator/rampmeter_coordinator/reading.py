"""Single settings, wherever they come from: a value, where it was found, and how to read it.

Every reader either gives a checked value or raises ConfigError that begins with the place to fix.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from rampmeter.core.errors import ConfigError
from rampmeter.core.units import parse_duration, parse_rate

_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off", "")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value as it was found. `origin` names the option, the variable, or file and key."""

    value: object
    origin: str

    def refuse(self, expected: str) -> ConfigError:
        """The error for a value that is not `expected`."""
        return ConfigError(f"{self.origin}: must be {expected}")


def text(given: Given) -> str:
    """Text that is not empty."""
    if not isinstance(given.value, str) or not given.value.strip():
        raise given.refuse("text")
    return given.value.strip()


def path(given: Given) -> Path:
    """A path; `~` is the home directory."""
    return Path(text(given)).expanduser()


def http_url(given: Given) -> str:
    """The URL of a coordinator, such as "http://10.0.0.5:8000"."""
    value = text(given).rstrip("/")
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise given.refuse('a URL of scheme, host and port, for example "http://10.0.0.5:8000"')
    return value


def flag(given: Given) -> bool:
    """true or false; in variables also 1, yes, on and 0, no, off."""
    if isinstance(given.value, bool):
        return given.value
    word = given.value.strip().lower() if isinstance(given.value, str) else None
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise given.refuse("true or false")


def whole(least: int, most: int) -> Callable[[Given], int]:
    """A reader of integers within bounds."""

    def read(given: Given) -> int:
        value = given.value
        if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
            value = int(value)
        if type(value) is not int or not least <= value <= most:
            raise given.refuse(f"an integer from {least} to {most}")
        return value

    return read


def number(least: float, most: float) -> Callable[[Given], float]:
    """A reader of numbers within bounds."""

    def read(given: Given) -> float:
        value = _number(given.value)
        if value is None or not least <= value <= most:
            raise given.refuse(f"a number from {least:g} to {most:g}")
        return value

    return read


def share(given: Given) -> float:
    """A number above 0, at most 1."""
    value = _number(given.value)
    if value is None or not 0 < value <= 1:
        raise given.refuse("a number above 0 and at most 1")
    return value


def share_or_none(given: Given) -> float:
    """A number from 0 to 1."""
    value = _number(given.value)
    if value is None or not 0 <= value <= 1:
        raise given.refuse("a number from 0 to 1")
    return value


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def one_of(*words: str) -> Callable[[Given], str]:
    """A reader of one of these words."""

    def read(given: Given) -> str:
        if not isinstance(given.value, str) or given.value.lower() not in words:
            raise given.refuse(" or ".join(words))
        return given.value.lower()

    return read


def rate(given: Given) -> int:
    """A rate above 0, such as "2TB/s"."""
    value = _with_unit(given, parse_rate, 'a rate in quotes, for example "2TB/s"')
    if value == 0:
        raise given.refuse("above 0")
    return value


def duration(least_s: float, most_s: float) -> Callable[[Given], float]:
    """A reader of durations within bounds, such as "30s"."""

    def read(given: Given) -> float:
        value = _with_unit(given, parse_duration, 'a duration in quotes, for example "30s"')
        if not least_s <= value <= most_s:
            raise given.refuse(f"from {least_s:g} s to {most_s:g} s")
        return value

    return read


def _with_unit(given: Given, parse: Callable[[str], T], expected: str) -> T:
    if not isinstance(given.value, str):
        raise given.refuse(expected)
    try:
        return parse(given.value)
    except ConfigError as error:
        raise ConfigError(f"{given.origin}: {error}") from None
