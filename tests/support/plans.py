"""Checkpoint plans for tests: the documented one, and the same with something changed."""

import copy
import tomllib
from pathlib import Path

from rampmeter.review.figures import figures
from rampmeter.review.reading import as_plan
from rampmeter.review.rules import review

ROOT = Path(__file__).parents[2]
DOCUMENTED = ROOT / "docs" / "checkpoint-plan.toml"
FLAWED = ROOT / "tests" / "review" / "plans" / "flawed.toml"

_TABLES = tomllib.loads(DOCUMENTED.read_text())


def tables(**changes):
    """The documented plan with `section={key: value}`; a value of None takes the key out."""
    found = copy.deepcopy(_TABLES)
    for section, keys in changes.items():
        for key, value in keys.items():
            found[section].pop(key, None)
            if value is not None:
                found[section][key] = value
    return found


def reviewed(**changes):
    """The review of that plan."""
    plan = as_plan(tables(**changes))
    return review(plan, figures(plan))


def flaws(**changes):
    """Rule -> flaw of that plan."""
    return {finding.rule: finding.flaw for finding in reviewed(**changes).findings}
