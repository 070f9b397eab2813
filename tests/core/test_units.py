"""Sizes, rates and durations as people write them."""

import pytest

from rampmeter.core.errors import ConfigError
from rampmeter.core.units import (
    format_bytes,
    format_duration,
    format_money,
    format_rate,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_money,
    parse_rate,
)


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("0B", 0),
        ("1B", 1),
        ("1.4TB", 1_400_000_000_000),
        ("64MiB", 64 * 2**20),
        ("1 kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("2PB", 2 * 10**15),
        (" 3 GB ", 3 * 10**9),
        ("0.1GB", 100_000_000),
        (".5TB", 5 * 10**11),
    ],
)
def test_sizes(text, num_bytes):
    """Decimal units are decimal, binary ones binary, and fractions are exact."""
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize(
    ("text", "rate"), [("2TB/s", 2 * 10**12), ("100 GB/s", 10**11), ("1GiB/s", 2**30), ("5MB /s", 5 * 10**6)]
)
def test_rates(text, rate):
    """A rate is a size per second."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [
        ("9h", 32400),
        ("30s", 30),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("2d", 172800),
        ("5min", 300),
        ("1.5 h", 5400),
        (".5h", 1800),
    ],
)
def test_durations(text, duration_s):
    """A duration is one or several numbers with units."""
    assert parse_duration(text) == duration_s


@pytest.mark.parametrize(
    "text", ["", "1", "TB", "-1GB", "1e3GB", "1TB/s", "NaN", "inf", "1XB", "1iB", "1 T", "9" * 25 + "EB"]
)
def test_bad_sizes_are_refused_by_name(text):
    """A size that cannot be read is a ConfigError that quotes the input."""
    with pytest.raises(ConfigError, match="size") as caught:
        parse_bytes(text)
    assert f'"{text}"' in str(caught.value)


@pytest.mark.parametrize("text", ["", "1", "2TB", "2 per s", "-1GB/s", "2TB/min", "9" * 20 + "EB/s"])
def test_bad_rates_are_refused_by_name(text):
    """A rate that cannot be read is a ConfigError that quotes the input."""
    with pytest.raises(ConfigError, match="rate") as caught:
        parse_rate(text)
    assert f'"{text}"' in str(caught.value)


@pytest.mark.parametrize("text", ["", "9", "h", "-3s", "3 weeks", "1h 2x", "9" * 20 + "d"])
def test_bad_durations_are_refused_by_name(text):
    """A duration that cannot be read is a ConfigError that quotes the input."""
    with pytest.raises(ConfigError, match="duration") as caught:
        parse_duration(text)
    assert f'"{text}"' in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text", "hint"),
    [
        (parse_bytes, "100Gb", "12.5 GB"),
        (parse_rate, "100Gb/s", "12.5 GB/s"),
        (parse_rate, "100Gbit/s", "12.5 GB/s"),
        (parse_rate, "400 Gbps", "50 GB/s"),
        (parse_bytes, "8b", "1 B"),
    ],
)
def test_bits_are_refused_with_the_same_quantity_in_bytes(parse, text, hint):
    """Bits are refused, and the hint says the same quantity in bytes."""
    with pytest.raises(ConfigError, match=f"in bits: write bytes, here {hint}$"):
        parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (1.4e12, "1.4 TB"), (999_999, "1 MB"), (2.5e18, "2.5 EB")],
)
def test_format_bytes(value, text):
    """Bytes are shown with a decimal unit and three digits."""
    assert format_bytes(value) == text


def test_format_rate():
    """A rate is a size per second."""
    assert format_rate(2e12) == "2 TB/s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "250 ms"),
        (30, "30 s"),
        (720, "12 min"),
        (32400, "9 h"),
        (34200, "9 h 30 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_format_duration(value, text):
    """Durations are shown in the one or two units that people would use."""
    assert format_duration(value) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("405B", 405 * 10**9), ("1024", 1024), ("1.5 k", 1500), ("70M", 70 * 10**6), ("2T", 2 * 10**12)],
)
def test_counts(text, count):
    """Parameters come in billions."""
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "B", "405GB", "-3", "1e9", "9" * 20])
def test_no_counts(text):
    """Refused with the input."""
    with pytest.raises(ConfigError, match="count"):
        parse_count(text)


@pytest.mark.parametrize("text", ["256.5", "0.5", "1.0005K"])
def test_half_things_are_not_counted(text):
    """Nothing is rounded in silence."""
    with pytest.raises(ConfigError, match="no whole number"):
        parse_count(text)


@pytest.mark.parametrize(
    ("text", "amount"), [("2.40", 2.4), ("$0.75", 0.75), (".75", 0.75), (" 100 ", 100.0)]
)
def test_money(text, amount):
    """With or without the dollar sign."""
    assert parse_money(text) == amount


@pytest.mark.parametrize("text", ["", "$", "2,40", "2.4 EUR", "-1"])
def test_no_money(text):
    """Refused with the input."""
    with pytest.raises(ConfigError, match="money"):
        parse_money(text)


@pytest.mark.parametrize(
    ("amount", "text"), [(76_625.4, "$76,625"), (2.4, "$2.40"), (0.0, "$0.00"), (-248_000.0, "-$248,000")]
)
def test_money_as_text(amount, text):
    """Cents only where they matter."""
    assert format_money(amount) == text
