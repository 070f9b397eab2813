"""docs/ledger-rules.md names tests that exist, and every switched-back rule."""

import re
from fnmatch import fnmatch
from pathlib import Path

from invariants.soak import PROFILES
from invariants.test_switch_back import RULES

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "ledger-rules.md").read_text()


def test_every_named_test_exists() -> None:
    """A renamed test must not leave the table behind."""
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    known = set(re.findall(r"def (test_\w+)", sources))
    for name in re.findall(r"`(test_[\w*]+)`", TABLE):
        assert any(fnmatch(test, name) for test in known), name


def test_every_switched_back_rule_is_in_the_table() -> None:
    """And every profile that it speaks of is one."""
    for rule, _, _ in RULES:
        assert f"`{rule.__name__}`" in TABLE
    assert set(re.findall(r'soak profile "([^"]+)"', TABLE)) <= set(PROFILES)
