"""The error tree: what one rank raises, another one can raise."""

import importlib
import inspect
import pickle
import pkgutil

import pytest

import rampmeter
from rampmeter.core.errors import RampmeterError, StaleAttempt


def _all_kinds() -> list[type[RampmeterError]]:
    """Every error of the agent and of the commands, by importing all of it."""
    for module in pkgutil.walk_packages(rampmeter.__path__, "rampmeter."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, new = [], [RampmeterError]
    while new:
        kind = new.pop()
        new += kind.__subclasses__()
        if kind.__module__.startswith("rampmeter."):  # those of the coordinator never leave its process
            found.append(kind)
    return sorted(set(found), key=lambda kind: kind.__qualname__)


@pytest.mark.parametrize("kind", _all_kinds(), ids=lambda kind: kind.__qualname__)
def test_every_error_survives_pickling(kind: type[RampmeterError]) -> None:
    """Class, message and fields are those of the original, whatever its constructor asks for."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    fields = {item.name: f"the {item.name}" for item in parameters if item.kind is item.KEYWORD_ONLY}
    error = kind("what happened", **fields)
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert (str(found), found.args, vars(found)) == ("what happened", ("what happened",), vars(error))


def test_fields_that_the_constructor_sets_by_itself_survive() -> None:
    """A refusal that is a kind of another one keeps the fields of both."""
    error = StaleAttempt("old", status=409, reason="stale_attempt", stored_attempt=7)
    found = pickle.loads(pickle.dumps(error))
    assert (found.status, found.reason, found.field, found.stored_attempt) == (409, "stale_attempt", None, 7)
