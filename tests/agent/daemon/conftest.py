"""One writer process for many tests: starting one takes seconds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rampmeter.daemon.guardian import Guardian
from rampmeter.layout import Root
from support.hired import CLOCK, GATE, Desk
from support.trainers import Trainers


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


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainers]:
    trainers = Trainers(tmp_path_factory.mktemp("trainers"))
    yield trainers
    trainers.end()


@pytest.fixture
def trainers(process: Trainers, tmp_path: Path) -> Trainers:
    process.root = Root(tmp_path / "root")
    return process
