"""The wire is imported from one place, whatever file a message stands in."""

import inspect
import pickle
import re
from pathlib import Path

import pytest

from rampmeter.core import answers, messages, requests, words
from rampmeter.core.decode import build
from support.examples import ANSWERS, REQUESTS

ROOT = Path(__file__).parents[2]
MESSAGES = REQUESTS | ANSWERS


@pytest.mark.parametrize("part", [answers, requests, words], ids=lambda part: part.__name__)
def test_every_class_of_the_wire_is_in_messages(part):
    """None is left where only its neighbours find it."""
    for name, cls in inspect.getmembers(part, inspect.isclass):
        if cls.__module__ == part.__name__ and not name.startswith("_"):
            assert name in messages.__all__
            assert getattr(messages, name) is cls


def test_nobody_imports_a_message_from_where_it_stands():
    """Two ways to one class would be one too many."""
    parts = re.compile(r"^(?:from|import) rampmeter\.core\.(?:answers|requests|words)\b", re.MULTILINE)
    found = {
        path.name
        for folder in ("agent", "coordinator", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if parts.search(path.read_text())
    }
    assert found == {"messages.py", "answers.py", "requests.py"}


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_message_is_the_same_in_another_process(cls):
    """Pickled by name, so the name must lead to it."""
    message = build(cls, MESSAGES[cls])
    assert pickle.loads(pickle.dumps(message)) == message
