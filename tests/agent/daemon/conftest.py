"""One writer process for many tests: starting one takes seconds."""

import os
from collections.abc import Iterator

import pytest

from rampmeter.daemon import guardian as guardian_module
from rampmeter.daemon.guardian import Guardian
from rampmeter.layout import Root
from support.hired import CLOCK, GATE, Desk


@pytest.fixture(scope="session")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guardian]:
    """Replaces its writer as often as tests end it."""
    os.environ[GATE] = str(tmp_path_factory.mktemp("gate") / "gate")
    before = guardian_module._MOST_LOSSES
    guardian_module._MOST_LOSSES = 1000
    guardian = Guardian(CLOCK)
    guardian.warm_up()
    yield guardian
    guardian.close()
    guardian_module._MOST_LOSSES = before


@pytest.fixture
def desk(root: Root, guardian: Guardian) -> Iterator[Desk]:
    desk = Desk(root, guardian)
    yield desk
    desk.arena.close()
