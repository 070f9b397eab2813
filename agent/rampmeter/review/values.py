"""Single values of a plan's file: a reader gives a checked value, or raises ConfigError that begins with its place."""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from rampmeter.core.errors import ConfigError
from rampmeter.core.units import parse_bytes, parse_count, parse_duration, parse_rate

MAX_WHOLE = 10**9

Reader = Callable[[object, str], Any]
Word = TypeVar("Word", bound=StrEnum)


def text(value: object, place: str) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{place}: must be text")
    return " ".join(value.split())


def flag(value: object, place: str) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{place}: must be true or false")
    return value


def whole(least: int) -> Reader:
    """A reader of integers from `least` on."""

    def read(value: object, place: str) -> int:
        if type(value) is not int or not least <= value <= MAX_WHOLE:
            raise ConfigError(f"{place}: must be an integer from {least} to {MAX_WHOLE}")
        return value

    return read


def price(value: object, place: str) -> float:
    """A price that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{place}: must be a number, for example 2.40")
    if not (math.isfinite(value) and 0 <= value <= 1e9):
        raise ConfigError(f"{place}: must be a number from 0 to 1e9")
    return float(value)


def size(value: object, place: str) -> int:
    """Bytes above 0, such as "980GB"."""
    return _above_0(_with_unit(value, place, parse_bytes, "980GB"), place)


def rate(value: object, place: str) -> int:
    """Bytes per second above 0, such as "5GB/s"."""
    return _above_0(_with_unit(value, place, parse_rate, "5GB/s"), place)


def count(value: object, place: str) -> int:
    """A large number above 0, such as "70B"."""
    return _above_0(_with_unit(value, place, parse_count, "70B"), place)


def duration(value: object, place: str) -> float:
    """Seconds above 0, such as "2h"."""
    return _above_0(_with_unit(value, place, parse_duration, "2h"), place)


def one_of(words: type[Word]) -> Reader:
    """A reader of one of these words."""

    def read(value: object, place: str) -> Word:
        if not isinstance(value, str) or value not in list(words):
            raise ConfigError(f"{place}: must be {_listed(words)}")
        return words(value)

    return read


def some_of(words: type[Word]) -> Reader:
    """A reader of a list of these words, each at most once; the list may be empty."""

    def read(value: object, place: str) -> tuple[Word, ...]:
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            raise ConfigError(f"{place}: must be a list of {_listed(words)}")
        if any(item not in list(words) for item in value):
            raise ConfigError(f"{place}: may only hold {_listed(words)}")
        if len(set(value)) < len(value):
            raise ConfigError(f"{place}: names something twice")
        return tuple(words(item) for item in value)

    return read


def _listed(words: type[StrEnum]) -> str:
    return " or ".join(f'"{word}"' for word in words)


Quantity = TypeVar("Quantity", int, float)


def _with_unit(value: object, place: str, parse: Callable[[str], Quantity], example: str) -> Quantity:
    if not isinstance(value, str):
        raise ConfigError(f'{place}: must be in quotes, for example "{example}"')
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from None


def _above_0(value: Quantity, place: str) -> Quantity:
    if value <= 0:
        raise ConfigError(f"{place}: must be above 0")
    return value
