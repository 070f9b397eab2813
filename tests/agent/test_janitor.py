"""The janitor: deletions beside training, bounded, and finished by the next one if they are cut off."""

import threading

import pytest

from rampmeter.janitor import Janitor
from rampmeter.layout import Root
from rampmeter.removal import PAUSE_S, Standing, standing
from rampmeter.retention import Keep, read_keep
from support.roots import put_commit, put_leftover, steps_in

LIMIT_S = 60.0
KEEP = Keep(keep=2, keep_days=0)


def _janitor(root: Root, *, attempt: int = 1, fenced: bool = False, keep: Keep = KEEP) -> Janitor:
    return Janitor(root, keep, attempt=attempt, is_fenced=lambda: fenced, reading=lambda: None)


def test_it_sweeps_at_the_start_and_prunes_after_each_commit(root: Root) -> None:
    """Leftovers of earlier attempts go at once, old commits when newer ones come; what the job keeps is recorded."""
    put_leftover(root, 9, 1)
    root.claim_attempt()
    root.claim_attempt()
    janitor = _janitor(root, attempt=2)
    janitor.start()
    assert janitor.wait(LIMIT_S)
    assert root.step_names() == []
    for step in range(1, 6):
        put_commit(root, step)
        janitor.poke()
        assert janitor.wait(LIMIT_S)
        assert len(root.step_names()) <= KEEP.keep
    janitor.close(LIMIT_S)
    assert steps_in(root) == [5, 4]
    assert read_keep(root) == KEEP


def test_a_superseded_attempt_removes_nothing(root: Root) -> None:
    """What stays is the newer attempt's decision."""
    for step in range(5):
        put_commit(root, step)
    janitor = _janitor(root, fenced=True)
    janitor.start()
    assert janitor.wait(LIMIT_S)
    janitor.close(LIMIT_S)
    assert len(steps_in(root)) == 5


def test_it_pauses_between_two_files(root: Root) -> None:
    """At most 200 files a second, counted: before each file one pause of 5 ms."""
    for step in range(3):
        put_commit(root, step)
    janitor = _janitor(root)
    pauses = []

    class Waited(threading.Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            return False

    janitor._stop = Waited()
    janitor.start()
    assert janitor.wait(LIMIT_S)
    assert pauses == [PAUSE_S] * 4  # two shards, .metadata, BLOCKS
    janitor._stop.set()
    janitor.poke()


def test_a_stop_in_the_middle_leaves_the_rest_to_the_next_one(root: Root) -> None:
    """The process ends between two files; a later janitor, of whatever attempt, finishes."""
    names = [put_commit(root, step) for step in range(3)]
    janitor = _janitor(root)
    num_files = []

    class StopAfterTwo(threading.Event):
        def wait(self, _timeout=None):
            num_files.append(1)
            return len(num_files) > 2

    janitor._stop = StopAfterTwo()
    janitor.start()
    janitor._thread.join(LIMIT_S)
    assert standing(root.directory(names[0])) is Standing.DELETING
    second = _janitor(root)
    second.start()
    assert second.wait(LIMIT_S)
    second.close(LIMIT_S)
    assert root.step_names() == [names[2], names[1]]


@pytest.mark.parametrize("error", [RuntimeError("boom"), OSError(5, "Input/output error")])
def test_an_error_does_not_end_it(root: Root, monkeypatch, caplog, error: Exception) -> None:
    """One round fails, the next one works; only what nobody expected is told with its trace."""
    for step in range(3):
        put_commit(root, step)
    janitor = _janitor(root)
    failures = [error]

    def fenced() -> bool:
        if failures:
            raise failures.pop()
        return False

    monkeypatch.setattr(janitor, "_is_fenced", fenced)
    janitor.start()
    assert janitor.wait(LIMIT_S)
    assert len(steps_in(root)) == 3
    janitor.poke()
    assert janitor.wait(LIMIT_S)
    janitor.close(LIMIT_S)
    assert len(steps_in(root)) == 2
    assert "old checkpoints were not removed" in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, RuntimeError)


def test_closing_waits_no_longer_than_its_limit(root: Root) -> None:
    """A file system that hangs keeps nobody: the thread is a daemon and is left behind."""
    root.path.mkdir()
    hang = threading.Event()
    janitor = _janitor(root)
    janitor._is_fenced = lambda: hang.wait(LIMIT_S)
    janitor.start()
    assert not janitor.wait(0.01)
    janitor.close(0.01)
    assert janitor._thread.is_alive()
    assert janitor._thread.daemon
    hang.set()
    janitor._thread.join(LIMIT_S)


def test_a_root_without_room_for_the_record_is_no_error(root: Root, caplog) -> None:
    """Told in the log; retention goes on."""
    janitor = _janitor(root)
    janitor.start()
    assert "could not be recorded" in caplog.text
    assert janitor.wait(LIMIT_S)
    janitor.close(LIMIT_S)
