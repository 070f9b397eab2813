"""Notices and a real coordinator: a save that can be in time is written under a lease, one that cannot is not begun."""

import signal

import httpx
import pytest

import rampmeter
from rampmeter.core.notice import GiveUp
from rampmeter.core.pacer import Governance
from rampmeter.events import SaveEnded, SaveGivenUp, SaveStarted
from support.servers import serving
from support.training import Run
from support.waiting import wait_for

pytestmark = pytest.mark.system

SLOW = {"RAMPMETER_CAPACITY": "10MB/s"}
BIG = 16_000
"""Hidden units for a state of about 25 MB: a flush of 3 s at the budget."""


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def preempted(root, url, notice_s):
    """A job that is told to go: its events and what it exits with."""
    events, run, step = [], Run(hidden=BIG), 0
    with rampmeter.Checkpointer(
        root,
        coordinator=url,
        tenant="red",
        notice_s=notice_s,
        interval_min_s=1000.0,
        seed=1,
        on_event=events.append,
    ) as ckpt:
        ckpt.restore(run.state)
        wait_for(lambda: knows_size(url), what="the registration with the size")
        signal.raise_signal(signal.SIGUSR1)
        while not ckpt.should_stop:
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
            assert step < 100_000
    return events, ckpt.exit_code


def knows_size(url):
    jobs = httpx.get(f"{url}/v1/pools/default/jobs").json()["jobs"]
    return jobs and jobs[0].get("num_bytes")


def test_a_save_that_cannot_be_in_time_is_not_begun(tmp_path):
    """3 s of writing in a notice of 2 s: no byte is written, training stops at once, supervisors start it again."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        events, exit_code = preempted(tmp_path / "job", coordinator.url, notice_s=2.0)
    (given_up,) = of_kind(events, SaveGivenUp)
    assert given_up.reason is GiveUp.WILL_NOT_FIT
    assert 0 <= given_up.fits_bytes < 20_000_000
    assert 0 < given_up.left_s < 2.0
    assert of_kind(events, SaveStarted) == []
    assert not list((tmp_path / "job").glob("step-*"))
    assert exit_code == 75


def test_a_save_that_can_be_in_time_is_written_under_a_lease(tmp_path):
    """The same job with a notice of a minute."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        events, exit_code = preempted(tmp_path / "job", coordinator.url, notice_s=60.0)
    (ended,) = of_kind(events, SaveEnded)
    assert (ended.reason, ended.governance, exit_code) == (None, Governance.LEASE, 75)
    assert of_kind(events, SaveGivenUp) == []
