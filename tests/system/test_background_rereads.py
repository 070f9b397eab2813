"""Checkpoints that are read back beside training, with a real coordinator: after restores and saves, and to the end."""

import random
import threading
import time

import httpx
import pytest
import torch

import rampmeter
from rampmeter.events import ReadBack, SaveEnded
from rampmeter.layout import Root
from rampmeter.marks import Mark, has_mark
from support.restoring import MB, pool_settings, save, state_of
from support.servers import serving
from support.waiting import wait_for

pytestmark = pytest.mark.system

SIZE = 60 * MB
STEP_S = 0.05
SOON = next(seed for seed in range(10_000) if random.Random(seed).random() < 0.001)
"""With this seed the first save is due in the first second."""

ONCE = {"interval_min_s": 1000.0, "seed": SOON, "verify_every_s": 0.5}


@pytest.fixture
def pool(tmp_path):
    """Settings of a coordinator with a write budget of 80 MB/s and a read budget beside it."""
    return lambda read_capacity="12.5MB/s": pool_settings(tmp_path, read_capacity)


class Trainer:
    """A job that trains, in a thread, and says what it heard."""

    def __init__(self, root, url, **options):
        self.root, self.events, self.step = Root(root), [], 0
        self._url, self._options = url, options
        self._state, self._stop = state_of(SIZE), threading.Event()
        self._thread = threading.Thread(target=self._main)

    def _main(self):
        with rampmeter.Checkpointer(
            self.root.path, coordinator=self._url, on_event=self.events.append, **self._options
        ) as ckpt:
            while not self._stop.wait(STEP_S):
                self.step += 1
                ckpt.step(self.step, self._state)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()

    def commits(self):
        return [
            event.step for event in list(self.events) if isinstance(event, SaveEnded) and not event.reason
        ]

    def read_back(self):
        return [event for event in list(self.events) if isinstance(event, ReadBack)]

    def proven(self):
        return [n.step for n in self.root.committed_steps() if has_mark(self.root.directory(n), Mark.PROVEN)]


def asked(coordinator, what):
    return httpx.get(f"{coordinator.url}/v1/pools/default/{what}").json()[what]


def background(coordinator):
    """The leases in the background, as rate and reason."""
    found = asked(coordinator, "leases")
    return [(lease["bytes_per_s"], lease["reason"]) for lease in found if lease["background"]]


def test_the_restore_of_another_job_goes_first_and_the_read_back_is_finished_later(tmp_path, pool):
    """6 s of reading are paused for another 6 s, not thrown away; then the mark is there."""
    save(tmp_path / "other", SIZE, fill=2.0)
    with serving(tmp_path, "--fresh", **pool()) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, **ONCE) as job:
            wait_for(lambda: any(rate for rate, _ in background(coordinator)), what="its rate", limit_s=60)
            state, seen = state_of(SIZE, 0.0), []
            restore = threading.Thread(target=_restore, args=(tmp_path / "other", coordinator.url, state))
            restore.start()
            while restore.is_alive():
                seen += background(coordinator)
                time.sleep(0.1)
            assert job.proven() == []
            assert (0, "paused") in seen
            wait_for(job.read_back, what="the end of the re-read", limit_s=60)
            wait_for(lambda: not asked(coordinator, "leases"), what="the end of the lease")
        (event,) = job.read_back()
        (row,) = [row for row in asked(coordinator, "jobs") if row["name"] == "job"]
    assert all(bool(torch.all(part == 2.0)) for part in state.values())
    assert (event.damage, [event.step]) == (None, job.commits())
    assert job.proven() == job.commits()
    assert (row["num_failed"], row["num_committed"]) == (0, 1)


def _restore(root, url, state):
    with rampmeter.Checkpointer(root, coordinator=url) as ckpt:
        assert ckpt.restore(state) == 1


def test_saves_of_the_job_itself_go_first(tmp_path, pool):
    """It takes 3 s and a save is due every 2 s: none is late for it, and it is read to its end in the gaps."""
    options = {"interval_max_s": 2.0, "verify_every_s": 0.5, "keep": 20, "seed": SOON}
    with serving(tmp_path, "--fresh", **pool("25MB/s")) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, **options) as job:
            wait_for(job.read_back, what="the end of the re-read", limit_s=90)
            first = job.read_back()[0]
            assert first.damage is None
            assert len(job.commits()) >= 2
            assert first.step < job.commits()[-1]
            (row,) = asked(coordinator, "jobs")
    assert first.step in job.proven()
    assert row["num_failed"] == 0


def test_a_flipped_byte_is_found_and_told(tmp_path, pool):
    """By file and step, to whoever listens and to the coordinator; the older checkpoint is proven in its place."""
    root = save(tmp_path / "job", MB)
    with serving(tmp_path, "--fresh", **pool("100MB/s")) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, **(ONCE | {"verify_every_s": 3.0})) as job:
            wait_for(job.commits, what="the commit", limit_s=60)
            newest = root.committed_steps()[0]
            shard = next(root.directory(newest).glob("*.distcp"))
            with shard.open("r+b") as stream:
                stream.seek(MB)
                byte = stream.read(1)
                stream.seek(MB)
                stream.write(bytes([byte[0] ^ 1]))
            wait_for(lambda: len(job.read_back()) == 2, what="two that were read back", limit_s=60)
            wait_for(lambda: asked(coordinator, "jobs")[0]["num_failed"], what="the count", limit_s=60)
            (row,) = asked(coordinator, "jobs")
    damaged, whole = job.read_back()
    assert (damaged.step, damaged.directory) == (newest.step, str(newest))
    assert shard.name in damaged.damage
    assert (whole.step, whole.damage) == (1, None)
    assert job.proven() == [1]
    assert (row["num_failed"], row["last_failure"]) == (1, "damaged")


def test_without_a_coordinator_it_is_read_back_at_a_modest_rate(tmp_path):
    """Twice the time of its save, and two seconds at least."""
    with Trainer(tmp_path / "job", None, **ONCE) as job:
        wait_for(job.commits, what="the commit", limit_s=60)
        wait_for(job.read_back, what="the end of the re-read", limit_s=60)
    ended = next(event for event in job.events if isinstance(event, SaveEnded))
    assert job.read_back()[0].now_s - ended.now_s >= 2.0
    assert job.proven() == job.commits()
