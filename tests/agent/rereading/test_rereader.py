"""The thread that reads checkpoints back, with real checkpoints and a desk that only hands out cells."""

import logging
import os
import threading
from pathlib import Path

import pytest
import torch

from rampmeter import verification
from rampmeter.core.clock import SystemClock
from rampmeter.core.proving import Proving
from rampmeter.events import ReadBack
from rampmeter.janitor import Janitor
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.marks import Mark, damage_found, has_mark, put_mark, take_mark
from rampmeter.removal import remove
from rampmeter.rereading.choosing import choose
from rampmeter.rereading.rereader import Rereader
from rampmeter.retention import Keep
from rampmeter.saving import Saver
from rampmeter.throttle import Throttle
from support.roots import steps_in
from support.waiting import wait_for

LIMIT_S = 60.0


class Desk:
    """Cells of one rate; what was said, in order."""

    def __init__(self, rate=None):
        self.rate, self.said, self.throttle = rate, [], Throttle()

    def begin_reread(self, num_bytes):
        self.said.append(("begin", num_bytes))
        self.throttle = Throttle()
        self.throttle.set_rate(self.rate)
        return self.throttle

    def end_reread(self):
        self.said.append("end")

    def found_damaged(self):
        self.said.append("damaged")

    def reread_no_more(self, reason):
        self.throttle.abort(reason)


class Scene:
    """A root with checkpoints, and its rereader, always due after a commit."""

    def __init__(self, path, steps, *, rate=None, every_s=0.01, fenced=False):
        self.root, self.desk, self.events = Root(path), Desk(rate), []
        self.root.ensure_job_uid()
        self.saver = Saver(self.root, self.root.claim_attempt(), job="test")
        for step in range(1, steps + 1):
            self.save(step)
        self.rereader = Rereader(
            self.root,
            self.desk,
            Proving(every_s, now_s=SystemClock().now()),
            clock=SystemClock(),
            is_fenced=lambda: fenced,
            tell=self.events.append,
        )

    def save(self, step):
        throttle = Throttle()
        throttle.set_rate(None)
        state = {"part": torch.full((100_000,), float(step))}
        assert self.saver.begin(step, state, throttle).result(LIMIT_S).committed

    def directory(self, step):
        (name,) = [name for name in self.root.committed_steps() if name.step == step]
        return self.root.directory(name)

    def damage(self, step):
        """Flip one bit in the middle of the shard."""
        file = next(self.directory(step).glob("*.distcp"))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        return file.name

    def proven(self):
        return [n.step for n in self.root.committed_steps() if has_mark(self.root.directory(n), Mark.PROVEN)]

    def begin(self):
        """A commit is told; from the first one on the thread runs."""
        if self.rereader._thread.ident is None:
            self.rereader.start()
        self.rereader.committed()

    def read_back(self, *, num=1):
        """Let it work until so many were read back; what was told."""
        self.begin()
        wait_for(lambda: len(self.events) >= num, what="the end of the re-read")
        return [(event.step, event.damage) for event in self.events]

    def close(self):
        self.rereader.stop()
        self.rereader._thread.join(LIMIT_S)
        assert not self.rereader._thread.is_alive()
        self.saver.close(LIMIT_S)


@pytest.fixture
def scenes(tmp_path):
    """Makes scenes that are closed."""
    made = []

    def make(steps=2, **more):
        made.append(Scene(tmp_path / f"root{len(made)}", steps, **more))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


def test_the_newest_is_read_back_and_marked(scenes):
    """All of its bytes, through one cell that is given back; the older one is left alone."""
    scene = scenes()
    assert scene.read_back() == [(2, None)]
    assert scene.proven() == [2]
    num_bytes = read_manifest(scene.directory(2)).total_bytes
    assert scene.desk.said[0] == ("begin", num_bytes)
    assert scene.desk.said[1] == "end"
    assert scene.desk.throttle.counters().done_bytes == num_bytes


def test_a_flipped_bit_is_found_and_told_and_the_one_before_is_read_back(scenes, caplog):
    """Named by step and file, and counted; the mark of the older one is the newest proof then."""
    scene = scenes()
    name = scene.damage(2)
    with caplog.at_level(logging.ERROR):
        (first, damage), second = scene.read_back(num=2)
    assert (first, second) == (2, (1, None))
    assert name in damage
    assert scene.proven() == [1]
    assert scene.desk.said.count("damaged") == 1
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "step 2" in record.getMessage()
    assert name in record.getMessage()


def test_what_was_proven_once_loses_its_mark_if_it_is_damaged_now(scenes):
    """Storage that has damaged the newer one is asked again for the older."""
    scene = scenes(3)
    put_mark(scene.directory(2), Mark.PROVEN)
    scene.damage(3)
    scene.damage(2)
    told = scene.read_back(num=3)
    assert [(step, damage is None) for step, damage in told] == [(3, False), (2, False), (1, True)]
    assert scene.proven() == [1]


def test_a_finding_is_known_to_the_next_attempt(scenes):
    """It reads the damaged one no more, and retention does not count on it."""
    scene = scenes()
    scene.damage(2)
    scene.read_back(num=2)
    assert "does not match" in damage_found(scene.directory(2))
    take_mark(scene.directory(1), Mark.PROVEN)
    assert choose(scene.root, set(), older_than=None).step == 1


def test_where_none_is_left_that_is_said(scenes, caplog):
    """And nothing is read back again and again."""
    scene = scenes(1)
    scene.damage(1)
    scene.read_back()
    wait_for(lambda: "there is no checkpoint before step 1" in caplog.text, what="the message")
    assert len(scene.events) == 1


def test_a_newest_one_that_is_proven_is_left_alone(scenes):
    """Nothing is asked for."""
    scene = scenes()
    put_mark(scene.directory(2), Mark.PROVEN)
    scene.begin()
    wait_for(lambda: scene.rereader._proving._num_commits == 0, what="the look")
    scene.save(3)
    assert scene.read_back() == [(3, None)]


def test_one_that_is_removed_meanwhile_is_not_damaged(scenes):
    """Somebody has removed it while it was read: the newest is next."""
    scene = scenes(1, rate=200_000)
    scene.begin()
    wait_for(lambda: scene.desk.throttle.counters().done_bytes > 0, what="the first byte")
    directory = scene.directory(1)
    scene.save(2)
    scene.desk.rate = None
    remove(directory, lambda: None)
    scene.desk.throttle.set_rate(None)
    wait_for(lambda: scene.events, what="the end of the re-read")
    assert [(event.step, event.damage) for event in scene.events][-1] == (2, None)
    assert "damaged" not in scene.desk.said


def test_a_slow_one_is_finished_although_saves_go_on(scenes):
    """Retention lets others go; the last proof and the one that is read stay until it is through and marked."""
    scene, said_while_reading = scenes(2, rate=0), []
    put_mark(scene.directory(1), Mark.PROVEN)
    scene.rereader._tell = lambda event: said_while_reading.append(
        (event.step, scene.rereader.reading().step)
    )
    scene.begin()
    wait_for(lambda: scene.desk.said, what="the begin")
    keep = Keep(keep=2, keep_days=0)
    janitor = Janitor(scene.root, keep, attempt=1, is_fenced=lambda: False, reading=scene.rereader.reading)
    janitor.start()
    for step in range(3, 7):
        scene.save(step)
        janitor.poke()
        assert janitor.wait(LIMIT_S)
        assert len(scene.root.step_names()) <= keep.keep + 1
    assert steps_in(scene.root) == [6, 2, 1]
    scene.desk.throttle.set_rate(None)
    wait_for(lambda: scene.rereader.reading() is None, what="the end of the re-read")
    janitor.poke()
    janitor.close(LIMIT_S)
    assert said_while_reading == [(2, 2)]
    assert (steps_in(scene.root), scene.proven()) == ([6, 2], [2])


def test_a_superseded_attempt_reads_nothing(scenes):
    """The newer one does."""
    scene = scenes(fenced=True)
    scene.begin()
    scene.rereader._thread.join(LIMIT_S)
    assert (scene.desk.said, scene.proven()) == ([], [])


def test_storage_that_reports_an_error_is_no_damage(scenes, monkeypatch, caplog):
    """Nothing is known then: said once, and tried again."""
    scene, tries = scenes(), []

    def refuse(*_args):
        tries.append(1)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("rampmeter.rereading.rereader.read_back", refuse)
    scene.begin()
    wait_for(lambda: len(tries) >= 3, what="another try")
    assert "damaged" not in scene.desk.said
    assert caplog.text.count("no checkpoint could be read back") == 1
    assert scene.proven() == []


def test_it_ends_at_once_in_the_middle_of_a_checkpoint(scenes):
    """At rate 0 it would wait for ever; nothing is marked and nothing told."""
    scene = scenes(rate=0)
    scene.begin()
    wait_for(lambda: scene.desk.said, what="the begin")
    scene.rereader.stop()
    scene.rereader._thread.join(LIMIT_S)
    assert not scene.rereader._thread.is_alive()
    assert (scene.events, scene.proven()) == ([], [])


def test_storage_that_hangs_holds_up_nobody(scenes, monkeypatch):
    """Stop and join come back while the read has not; what it would find afterwards is not marked."""
    scene, hangs, goes_on = scenes(), threading.Event(), threading.Event()
    original = verification.Verifier._verify_block

    def hang(*args):
        hangs.set()
        goes_on.wait(LIMIT_S)
        return original(*args)

    monkeypatch.setattr(verification.Verifier, "_verify_block", hang)
    scene.begin()
    assert hangs.wait(LIMIT_S)
    clock = SystemClock()
    begun_s = clock.now()
    scene.rereader.stop()
    scene.rereader.join()
    assert clock.now() - begun_s < 5.0
    assert scene.rereader._thread.is_alive()
    assert scene.rereader._thread.daemon
    goes_on.set()
    scene.rereader._thread.join(LIMIT_S)
    assert (scene.events, scene.proven()) == ([], [])


def test_it_reads_in_its_own_thread_and_past_the_page_cache(scenes, monkeypatch):
    """No pool, whose threads an interpreter waits for at its end; each block is forgotten before and after it."""
    scene, forgotten, threads = scenes(1), [], set()
    original = os.posix_fadvise

    def forget(descriptor, offset, count, advice):
        if advice == os.POSIX_FADV_DONTNEED:
            threads.add(threading.current_thread().name)
            forgotten.append(Path(f"/proc/self/fd/{descriptor}").readlink().suffix)
        original(descriptor, offset, count, advice)

    monkeypatch.setattr(os, "posix_fadvise", forget)
    scene.read_back()
    assert threads == {"rampmeter-reread"}
    assert forgotten.count(".distcp") == 2


def test_switched_off_there_is_no_thread(scenes):
    """And stopping that is harmless."""
    scene = scenes(every_s=None)
    scene.begin()
    scene.rereader.stop()
    scene.rereader.join()
    assert scene.rereader._thread.ident is None
    scene.rereader._thread = threading.Thread(target=lambda: None)
    scene.rereader._thread.start()


def test_what_is_told_is_an_event(scenes):
    """With the directory's name."""
    scene = scenes(1)
    scene.read_back()
    (event,) = scene.events
    assert isinstance(event, ReadBack)
    assert event.directory == scene.directory(1).name


def test_nothing_is_marked_or_told_after_the_end(scenes, monkeypatch):
    """The last byte was read when the job was closed."""
    scene = scenes(1)
    monkeypatch.setattr("rampmeter.rereading.rereader.read_back", lambda *_args: scene.rereader.stop())
    scene.begin()
    scene.rereader._thread.join(LIMIT_S)
    assert (scene.events, scene.proven()) == ([], [])
