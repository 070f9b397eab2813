"""A checkpoint that is read back, with a real HTTP server that answers as a test says."""

import random
import threading

import pytest

import rampmeter
from rampmeter.core.clock import SystemClock
from rampmeter.core.errors import ConfigError
from rampmeter.events import ReadBack, SaveEnded
from support.answers import grant, noted, plan
from support.restoring import MB, state_of
from support.waiting import wait_for

SIZE = 4 * MB
SOON = next(seed for seed in range(10_000) if random.Random(seed).random() < 0.001)
PLAN = {"interval_s": 1000.0, "phase_offset_s": 999.0, "request_after_s": 1000.0}


def url_of(server):
    return f"http://127.0.0.1:{server.server_address[1]}"


def said(server, path):
    return [body for at, body in list(server.said) if at == path]


class Job:
    """Trains until it is told to stop; what it heard."""

    def __init__(self, root, server, **options):
        self.events = []
        options = {"seed": SOON, "verify_every_s": 0.2} | options
        self.ckpt = rampmeter.Checkpointer(
            root, coordinator=url_of(server), on_event=self.events.append, **options
        )
        self._state, self._step = state_of(SIZE), 0

    def train_until(self, is_done, what):
        def step():
            self._step += 1
            self.ckpt.step(self._step, self._state)
            return is_done()

        wait_for(step, what=what, limit_s=60)

    def heard(self, kind):
        return [event for event in list(self.events) if isinstance(event, kind)]


def test_what_was_saved_is_asked_for_in_the_background_and_read_at_its_lease(serve, tmp_path):
    """A lease of its own after that of the save; renewals and release are those of a read."""

    def answers(path, body):
        if path in ("slots", "leases/ready", "leases/renew"):
            held.wait(0.05)
            return grant(body["seq"], rate=4 * MB)
        return noted(body["seq"], plan=plan(**PLAN))

    held, server = threading.Event(), serve(answers)
    job = Job(tmp_path, server)
    with job.ckpt:
        job.train_until(lambda: job.heard(ReadBack), "the end of the re-read")
        wait_for(lambda: len(said(server, "leases/release")) >= 2, what="both releases")
    write, *reads = said(server, "slots")
    assert (write["kind"], write["background"]) == ("write", False)
    assert {(ask["kind"], ask["background"], ask["urgent"]) for ask in reads} == {("read", True, False)}
    release = said(server, "leases/release")[
        -1
    ]  # a busy machine may lose the lease, and ask for another, meanwhile
    assert (release["outcome"], release["done_bytes"]) == ("committed", reads[0]["num_bytes"])
    assert any(renew["background"] and renew["kind"] == "read" for renew in said(server, "leases/renew"))
    assert [event.damage for event in job.heard(ReadBack)] == [None]


def test_a_slot_that_is_waited_for_gives_way_to_a_save(serve, tmp_path):
    """The held request is dropped when the next save is due, and that asks at once."""
    release = threading.Event()

    def answers(path, body):
        if path == "slots" and body["background"]:
            release.wait(20.0)
        if path in ("slots", "leases/ready", "leases/renew"):
            return grant(body["seq"], rate=10**9)
        return noted(body["seq"], plan=plan(interval_s=3.0, phase_offset_s=2.5, request_after_s=3.0))

    server = serve(answers)
    job = Job(tmp_path, server)
    with job.ckpt:
        job.train_until(lambda: len(job.heard(SaveEnded)) == 2, "the second save")
    release.set()
    kinds = [(ask["kind"], ask["background"]) for ask in said(server, "slots")]
    assert kinds[:3] == [("write", False), ("read", True), ("write", False)]
    assert all(event.reason is None for event in job.heard(SaveEnded))


@pytest.mark.parametrize("notice", [False, True])
def test_the_end_of_the_job_waits_for_nothing_of_it(serve, tmp_path, notice):
    """Paused by the coordinator in the middle: close comes back at once, and nothing is marked."""

    def answers(path, body):
        if path == "slots" and body["background"]:
            return grant(body["seq"], rate=1000)
        if path in ("slots", "leases/ready", "leases/renew"):
            held.wait(0.05)
            return grant(body["seq"], rate=1000 if body.get("background") else 10**9)
        return noted(body["seq"], plan=plan(**PLAN))

    held, server, clock = threading.Event(), serve(answers), SystemClock()
    job = Job(tmp_path, server)
    with job.ckpt:
        reads = lambda: [ask for ask in said(server, "slots") if ask["background"]]  # noqa: E731
        job.train_until(reads, "the slot in the background")
        if notice:
            job.ckpt._on_notice("SIGTERM")
            job.train_until(lambda: job.ckpt.should_stop, "the save before the end")
        begun_s = clock.now()
    assert clock.now() - begun_s < 10.0
    assert len(job.heard(SaveEnded)) == 1 + notice
    assert all(event.reason is None for event in job.heard(SaveEnded))
    assert job.heard(ReadBack) == []
    assert not list(tmp_path.glob("*/PROVEN"))


def test_a_bad_period_is_refused_at_the_start(tmp_path):
    """By the name of the argument."""
    with pytest.raises(ConfigError, match="verify_every_s"):
        rampmeter.Checkpointer(tmp_path, verify_every_s=0)
