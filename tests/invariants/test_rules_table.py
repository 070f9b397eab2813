"""docs/ledger-rules.md names tests that exist, and every switched-back rule with what catches it."""

import re
from fnmatch import fnmatch
from pathlib import Path

from invariants import misread_levels, misread_restarts, misreadings
from invariants.soak import PROFILES
from invariants.test_switch_back import IN_TEST, IN_WORLD

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "ledger-rules.md").read_text()
READINGS = {
    name
    for module in (misreadings, misread_levels, misread_restarts)
    for name, value in vars(module).items()
    if getattr(value, "__module__", "") == module.__name__
}


def test_every_named_test_exists() -> None:
    """A renamed test must not leave the table behind."""
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"def (test_\w+)", sources))
    for name in re.findall(r"`(test_[\w*]+)`", TABLE):
        assert any(fnmatch(test, name) for test in known), name
    for path in re.findall(r"`(tests/[\w/.]+)`", TABLE):
        assert (ROOT / path).exists(), path


def test_every_misreading_is_planted() -> None:
    """None is only written down."""
    planted = [fault.reading.__name__ for fault in [*IN_WORLD, *IN_TEST]]
    assert len(planted) == len(set(planted))
    assert set(planted) == READINGS


def test_every_switched_back_rule_is_in_the_table() -> None:
    """With the kind of test that catches it, and the test's name; every profile that it speaks of is one."""
    for planted in IN_WORLD:
        assert re.search(rf"world: [^|]*`{planted.reading.__name__}`", TABLE), planted.reading.__name__
    for planted in IN_TEST:
        row = next(line for line in TABLE.splitlines() if f"`{planted.reading.__name__}`" in line)
        assert "test: " in row
        assert f"`{planted.test}`" in row
    assert set(re.findall(r'soak profile "([^"]+)"', TABLE)) <= set(PROFILES)
