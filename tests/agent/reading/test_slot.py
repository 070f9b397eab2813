"""Real restores through a slot: each checkpoint has one, each byte is paid for once, and it ends whatever happens."""

import contextlib

import pytest

from rampmeter.core.errors import CorruptCheckpoint, RestoreError
from rampmeter.layout import MANIFEST_NAME
from rampmeter.manifest import read_manifest
from rampmeter.reading.slot import read_slot, unpaced
from rampmeter.restore import restore
from rampmeter.throttle import Throttle
from support.roots import flip


class Desk:
    """Keeps what was said to it; its cells have no limit."""

    def __init__(self):
        self.said, self.taken_bytes = [], []

    def begin_read(self, num_bytes):
        self.throttle = Throttle()
        self.throttle.set_rate(None)
        self.said.append(num_bytes)
        return self.throttle

    def read_through(self):
        self.said.append("through")

    def end_read(self):
        self.said.append("end")
        self.taken_bytes.append((self.throttle._taken_bytes, self.throttle.counters().done_bytes))

    def slot(self, num_bytes):
        return read_slot(self, num_bytes)


@pytest.fixture
def saved(root, make_run, make_saver, save):
    """Checkpoints of steps 1 and 2, and their sizes."""
    run, saver, sizes = make_run(), make_saver(), {}
    for step in (1, 2):
        run.train(2)
        report = save(saver, step, run.state)
        sizes[step] = read_manifest(root.path / report.directory).total_bytes
    return sizes


def shard_of(root, step):
    (directory,) = root.path.glob(f"step-*{step}.a*")
    return next(directory.glob("*.distcp"))


def test_every_byte_of_a_checkpoint_is_paid_for_once(root, saved, make_run):
    """Plain values, modules and optimizers are verified in two rounds; the second finds its blocks in memory."""
    desk = Desk()
    found = restore(root, make_run(seed=9).state, slot=desk.slot)
    assert found.step == 2
    assert desk.said == [saved[2], "through", "end"]
    assert desk.taken_bytes == [(saved[2], saved[2])]


def test_each_candidate_has_a_slot_of_its_own(root, saved, make_run):
    """A damaged one gives its slot back before the next is tried."""
    flip(shard_of(root, 2))
    desk = Desk()
    assert restore(root, make_run(seed=9).state, slot=desk.slot).step == 1
    assert [word for word in desk.said if word != "through"] == [saved[2], "end", saved[1], "end"]


def test_a_checkpoint_that_cannot_be_read_needs_no_slot(root, saved, make_run):
    """Its manifest or the size of a file says so."""
    (directory,) = root.path.glob("step-*2.a*")
    (directory / MANIFEST_NAME).write_bytes(b"{}")
    with shard_of(root, 1).open("ab") as shard:
        shard.write(b"x")
    desk = Desk()
    with pytest.raises(CorruptCheckpoint):
        restore(root, make_run().state, slot=desk.slot)
    assert desk.said == []


def test_a_state_that_does_not_fit_gives_the_slot_back(root, saved, make_run):
    """Found in `.metadata`, which is among what is paid for."""
    desk = Desk()
    with pytest.raises(RestoreError, match="does not match"):
        restore(root, {"other": make_run().model}, slot=desk.slot)
    assert desk.said == [saved[2], "end"]


def test_an_interrupted_restore_gives_the_slot_back(root, saved, make_run):
    """Whatever ends it, Ctrl-C too."""
    desk = Desk()
    with pytest.raises(KeyboardInterrupt), desk.slot(10):
        raise KeyboardInterrupt
    assert desk.said == [10, "end"]


def test_without_a_slot_nobody_is_asked(root, saved, make_run):
    """The default."""
    with unpaced(10) as pace, contextlib.nullcontext():
        assert pace.reader("a", 0) is pace.reader("b", 1)
    assert restore(root, make_run(seed=9).state).step == 2
