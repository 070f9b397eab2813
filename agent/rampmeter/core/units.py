"""Sizes, rates, durations, counts and money as people write them, and back. Nothing else reads or writes such text.

Decimal units are decimal (`TB` = 10^12 bytes), binary ones binary (`TiB` = 2^40). Bits are refused with the same
quantity in bytes, because storage and network people mean different things by "100G". A number without a unit is
refused too. Every error is a ConfigError that quotes the input.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

from rampmeter.core.errors import ConfigError
from rampmeter.core.fields import MAX_BYTES, MAX_BYTES_PER_S, MAX_COUNT, MAX_SECONDS

_PREFIXES = "KMGTPE"
_SIZES: Mapping[str, int] = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(_PREFIXES, 1)},
}
_DURATIONS: Mapping[str, Decimal] = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_COUNTS: Mapping[str, int] = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_NUMBER = r"(\d{1,30}(?:\.\d{1,30})?|\.\d{1,30})"
_SIZE = re.compile(rf"{_NUMBER}\s*([kKMGTPE]?i?B)")
_BITS = re.compile(rf"{_NUMBER}\s*([kKMGTPE]?)(?:b|bit|bits|bps)(?:/s)?")
_COUNT = re.compile(rf"{_NUMBER}\s*([kKMBT]?)")
_MONEY = re.compile(rf"\$?\s*{_NUMBER}")
_DURATION_PART = re.compile(rf"{_NUMBER}\s*(ms|min|[smhd])\s*")


def parse_bytes(text: str) -> int:
    """`"1.4TB"` or `"64MiB"` as bytes."""
    return _size(text, text.strip(), what="size", example="1.4TB", most=MAX_BYTES)


def parse_rate(text: str) -> int:
    """`"2TB/s"` as bytes per second."""
    number = text.strip()
    if not number.endswith("/s"):
        _refuse_bits(text, number, per="/s")
        raise ConfigError(f'"{text}" is no rate: write a size per second, for example "2TB/s"')
    return _size(text, number.removesuffix("/s"), what="rate", example="2TB/s", most=MAX_BYTES_PER_S)


def parse_duration(text: str) -> float:
    """`"9h"`, `"30s"` or `"1h30m"` as seconds."""
    rest, total = text.strip(), Decimal(0)
    while part := _DURATION_PART.match(rest):
        total += Decimal(part[1]) * _DURATIONS[part[2]]
        rest = rest[part.end() :]
    if rest or not text.strip():
        raise ConfigError(f'"{text}" is no duration: write a number and ms, s, m, h or d, for example "9h"')
    if total > MAX_SECONDS:
        raise ConfigError(f'"{text}" is too long a duration')
    return float(total)


def parse_count(text: str) -> int:
    """`"405B"` or `"1024"` as a number of things: K, M, B and T are thousands, millions, billions and trillions."""
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f'"{text}" is no count: write a number, with K, M, B or T if it is large, for example "405B"'
        )
    value = Decimal(match[1]) * _COUNTS[match[2].upper()]
    if value != int(value):
        raise ConfigError(f'"{text}" is no whole number')
    if value > MAX_COUNT:
        raise ConfigError(f'"{text}" is too large a count')
    return int(value)


def parse_money(text: str) -> float:
    """`"2.40"` or `"$2.40"` as an amount."""
    match = _MONEY.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f'"{text}" is no amount of money: write a number, for example "2.40"')
    return float(match[1])


def format_money(amount: float) -> str:
    """An amount of money: `$76,625`, with cents below a hundred: `$2.40`."""
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    return f"{sign}${size:,.2f}" if size < 100 else f"{sign}${size:,.0f}"


def format_bytes(num_bytes: float) -> str:
    """Bytes with a decimal unit and three digits: `1.40 TB`."""
    value, unit = float(num_bytes), "B"
    for prefix in _PREFIXES:
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, f"{prefix}B"
    return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """A rate with a decimal unit: `2 TB/s`."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_duration(duration_s: float) -> str:
    """Seconds as people say them: `250 ms`, `30 s`, `12 min`, `9 h 30 min`, `3 d 4 h`."""
    if duration_s < 1:
        return f"{duration_s * 1000:.0f} ms"
    if duration_s < 120:
        return f"{duration_s:.3g} s"
    minutes = round(duration_s / 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return _two_parts(minutes, 60, "h", "min")
    return _two_parts(round(minutes / 60), 24, "d", "h")


def _two_parts(count: int, per: int, big: str, small: str) -> str:
    whole, rest = divmod(count, per)
    return f"{whole} {big} {rest} {small}" if rest else f"{whole} {big}"


def _size(text: str, number: str, *, what: str, example: str, most: int) -> int:
    match = _SIZE.fullmatch(number.strip())
    if match is None:
        _refuse_bits(text, number, per="/s" if what == "rate" else "")
        raise ConfigError(f'"{text}" is no {what}: write a number and a unit, for example "{example}"')
    unit = match[2].replace("k", "K")
    if unit not in _SIZES:
        raise ConfigError(f'"{text}" is no {what}: write a number and a unit, for example "{example}"')
    value = int(Decimal(match[1]) * _SIZES[unit])
    if value > most:
        raise ConfigError(f'"{text}" is too large a {what}')
    return value


def _refuse_bits(text: str, number: str, *, per: str) -> None:
    match = _BITS.fullmatch(number)
    if match is None:
        return
    in_bytes = Decimal(match[1]) * 1000 ** (1 + _PREFIXES.index(match[2].upper()) if match[2] else 0) / 8
    raise ConfigError(f'"{text}" is in bits: write bytes, here {format_bytes(float(in_bytes))}{per}')
