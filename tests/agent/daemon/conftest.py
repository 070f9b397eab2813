"""One writer process for many tests: starting one takes seconds."""

import os
from collections.abc import Iterator

import pytest

from rampmeter.daemon.guardian import Guardian
from rampmeter.layout import Root
from support.hired import CLOCK, GATE, Desk


class PatientGuardian(Guardian):
    """Replaces its writer as often as tests end it."""

    @property
    def is_usable(self) -> bool:
        return not self._closed


@pytest.fixture(scope="session")
def guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guardian]:
    os.environ[GATE] = str(tmp_path_factory.mktemp("gate") / "gate")
    guardian = PatientGuardian(CLOCK)
    guardian.warm_up()
    yield guardian
    guardian.close()


@pytest.fixture
def desk(root: Root, guardian: Guardian) -> Iterator[Desk]:
    desk = Desk(root, guardian)
    yield desk
    desk.arena.close()
