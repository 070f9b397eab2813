"""Whether a state has jumped: by key, up and down, only against what has a counterpart; and how it is told."""

import math
import random
import sys

import pytest

from rampmeter.core.errors import CommitError, ConfigError
from rampmeter.manifest import KeyNorm
from rampmeter.norms import NormLimit, check_norms, checked_ratio, joined


def norms(**by_key: float) -> tuple[KeyNorm, ...]:
    return tuple(KeyNorm(key=key, norm=norm) for key, norm in by_key.items())


def jump(max_ratio: float, before: dict[str, float], now: dict[str, float]) -> str | None:
    """What is said of it; None if it is no jump."""
    try:
        check_norms(NormLimit(max_ratio=max_ratio, before=norms(**before)), 400, 300, norms(**now))
    except CommitError as error:
        return f"{error.reason}: {error}"
    return None


@pytest.mark.parametrize(
    ("now", "is_jump"), [(30.0, False), (30.1, True), (90.0, True), (3.34, False), (3.32, True), (0.0, True)]
)
def test_the_ratio_bounds_a_norm_in_both_directions(now: float, is_jump: bool) -> None:
    """From 10 with a ratio of 3: at most 30, at least 3.33; a state of zeros is lost as well."""
    assert (jump(3.0, {"model": 10.0}, {"model": now}) is not None) is is_jump


def test_one_key_cannot_hide_behind_another() -> None:
    """Weights that jump are found beside a key that is a million times larger, and named, as the farthest is."""
    before = {"large": 1e8, "model": 1.0, "other": 1.0}
    said = jump(10.0, before, {"large": 1.1e8, "model": 99.0, "other": 11.0})
    assert said is not None
    assert "state['model']" in said
    assert "other" not in said


def test_what_has_no_counterpart_is_not_compared() -> None:
    """A new key, one that was empty, one that is gone, a checkpoint without norms."""
    assert jump(2.0, {"old": 1.0, "empty": 0.0}, {"new": 50.0, "empty": 50.0}) is None
    assert jump(2.0, {}, {"model": 50.0}) is None


def test_it_says_both_norms_both_steps_and_how_to_go_on() -> None:
    """So that whoever reads the log can decide."""
    said = jump(10.0, {"model": 12.5}, {"model": 3.2e5})
    assert said is not None
    assert said.startswith("norm_jump: the norm of state['model'] ")
    for part in (
        "is 3.2e+05",
        "was 12.5",
        "step 300",
        "step 400",
        "max_norm_ratio=10",
        "larger max_norm_ratio",
    ):
        assert part in said, part


def test_norms_of_parts_make_that_of_the_whole() -> None:
    """However they are shared out, and also where squares are no doubles any more."""
    draw = random.Random(3)
    values = [draw.uniform(0.0, 1e200) for _ in range(50)]
    parts = [KeyNorm(key=draw.choice("ab"), norm=value) for value in values]
    whole = {part.key: part.norm for part in joined(parts)}
    halves = joined(joined(parts[:20]) + joined(parts[20:]))
    assert [part.key for part in halves] == ["a", "b"]
    for part in halves:
        exact = 1e200 * math.sqrt(sum((p.norm / 1e200) ** 2 for p in parts if p.key == part.key))
        assert part.norm == pytest.approx(whole[part.key], rel=1e-14)
        assert part.norm == pytest.approx(exact, rel=1e-14)
    assert joined(norms(a=1.7e308) * 2) == norms(a=sys.float_info.max)
    assert joined([]) == ()


@pytest.mark.parametrize("bad", [1, 1.0, 0, -3.0, math.inf, math.nan, True, "10"])
def test_a_ratio_is_a_number_above_one(bad: object) -> None:
    """Anything else is refused by name."""
    with pytest.raises(ConfigError, match="max_norm_ratio"):
        checked_ratio(bad)


def test_a_good_ratio_or_none_is_taken() -> None:
    """Whole numbers, too."""
    assert (checked_ratio(None), checked_ratio(10), checked_ratio(1.5)) == (None, 10.0, 1.5)
