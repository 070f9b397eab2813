"""Restores at the read budget of a real coordinator: paced, shared, given back, and never held up for ever."""

import signal
import sys
import threading
import time

import httpx
import pytest
import torch

import rampmeter
from rampmeter.core.pacer import Governance
from rampmeter.events import RestoreRateChanged
from support.restoring import MB, allowed, most_allowed, pool_settings, restoring, save, seed_for, state_of
from support.servers import serving
from support.waiting import wait_for

pytestmark = pytest.mark.system

BUDGET = 20 * MB
SIZE = 60 * MB


@pytest.fixture
def pool(tmp_path):
    """Settings of a coordinator with a read budget of 20 MB/s beside a write budget of 80 MB/s, and short leases."""
    return lambda read_capacity="25MB/s": pool_settings(tmp_path, read_capacity)


class Restore:
    """One job that restores, in a thread."""

    def __init__(self, root, url, **options):
        self.events, self.state = [], state_of(SIZE, 0.0)
        self.step = self.took_s = self.num_ungoverned = None
        self._root, self._url, self._options = root, url, options
        self._thread = threading.Thread(target=self._main)

    def _main(self):
        with rampmeter.Checkpointer(
            self._root, coordinator=self._url, on_event=self.events.append, **self._options
        ) as ckpt:
            begun_s = time.monotonic()
            self.step = ckpt.restore(self.state)
            self.took_s = time.monotonic() - begun_s
            self.num_ungoverned = ckpt.num_ungoverned

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join(90)
        assert not self._thread.is_alive()

    def wait_until_reading(self):
        wait_for(lambda: any(allowed(self.events)), what="a rate to read at")

    def governances(self):
        return [e.governance for e in self.events if isinstance(e, RestoreRateChanged) and e.bytes_per_s != 0]

    def is_loaded(self):
        return self.step == 1 and all(bool(torch.all(part == 1.0)) for part in self.state.values())


def leases(coordinator):
    return httpx.get(f"{coordinator.url}/v1/pools/default/leases").json()["leases"]


def test_a_restore_reads_at_the_read_budget_and_gives_its_lease_back(tmp_path, pool):
    """60 MB at 20 MB/s take about 3 s; the coordinator sees a lease to read, and none when training goes on."""
    save(tmp_path / "job", SIZE)
    with serving(tmp_path, "--fresh", **pool()) as coordinator:
        with Restore(tmp_path / "job", coordinator.url) as job:
            job.wait_until_reading()
            wait_for(lambda: leases(coordinator), what="the lease")
            (lease,) = leases(coordinator)
        assert (lease["kind"], lease["bytes_per_s"], lease["num_bytes"] >= SIZE) == ("read", BUDGET, True)
        wait_for(lambda: not leases(coordinator), what="the end of the lease")
        row = httpx.get(f"{coordinator.url}/v1/pools/default/jobs").json()["jobs"][0]
    assert job.is_loaded()
    assert 2.2 < job.took_s < 10.0
    assert set(job.governances()) == {Governance.LEASE}
    assert (job.num_ungoverned, row["num_ungoverned"]) == (0, 0)


def test_two_restores_at_once_stay_below_the_read_budget_together(tmp_path, pool):
    """Both get through, one after the other or side by side: 120 MB take 6 s."""
    save(tmp_path / "one", SIZE)
    save(tmp_path / "two", SIZE)
    with serving(tmp_path, "--fresh", **pool()) as coordinator:
        begun_s = time.monotonic()
        with (
            Restore(tmp_path / "one", coordinator.url) as one,
            Restore(tmp_path / "two", coordinator.url) as two,
        ):
            pass
        took_s = time.monotonic() - begun_s
    assert one.is_loaded()
    assert two.is_loaded()
    assert 0 < most_allowed(one.events, two.events) <= BUDGET
    assert 5.0 < took_s < 30.0


def test_where_no_coordinator_answers_a_restore_begins_after_its_delay_and_is_counted(tmp_path):
    """Nothing is read before; then all of it, unthrottled and ungoverned."""
    save(tmp_path / "job", SIZE)
    with Restore(tmp_path / "job", "http://127.0.0.1:9", seed=seed_for(2.0, 3.0)) as job:
        pass
    assert job.is_loaded()
    assert 2.0 <= job.took_s < 8.0
    assert allowed(job.events) == [None, 0]
    assert (job.governances(), job.num_ungoverned) == ([Governance.UNGOVERNED], 1)


def test_a_coordinator_that_dies_in_mid_restore_holds_it_up_for_its_lease_and_the_delay(tmp_path, pool):
    """At 2 MB/s it would take 30 s: it pauses when the lease lapses, then goes on where it was, without one."""
    save(tmp_path / "job", SIZE)
    with serving(tmp_path, "--fresh", **pool("2.5MB/s")) as coordinator:
        with Restore(tmp_path / "job", coordinator.url, seed=seed_for(2.0, 3.0)) as job:
            job.wait_until_reading()
            coordinator.process.kill()
            coordinator.process.wait()
    assert job.is_loaded()
    assert 2.0 < job.took_s < 28.0
    assert allowed(job.events) == [2 * MB, 0, None, 0]
    assert job.governances() == [Governance.LEASE, Governance.UNGOVERNED]
    assert job.num_ungoverned == 1


def test_with_the_switch_off_a_restore_is_immediate(tmp_path, pool, monkeypatch):
    """Nobody is asked and nothing is counted."""
    save(tmp_path / "job", SIZE)
    monkeypatch.setenv("RAMPMETER", "off")
    with serving(tmp_path, "--fresh", **pool("2MB/s")) as coordinator:
        with Restore(tmp_path / "job", coordinator.url) as job:
            pass
        assert httpx.get(f"{coordinator.url}/v1/pools/default/jobs").json()["jobs"] == []
    assert job.is_loaded()
    assert job.took_s < 3.0
    assert (job.governances(), job.num_ungoverned) == ([Governance.LOCAL], 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, -signal.SIGINT)])
def test_a_signal_ends_a_restore_and_its_lease(tmp_path, pool, number, code):
    """An announced end is no reason to read on: code 75, so that supervisors start it again; Ctrl-C is Ctrl-C."""
    save(tmp_path / "job", SIZE)
    with serving(tmp_path, "--fresh", **pool("2MB/s")) as coordinator:
        environ = {"RAMPMETER_COORDINATOR": coordinator.url, "PYTHONPATH": ":".join(sys.path)}
        with restoring(tmp_path / "job", SIZE, tmp_path / "job.log", **environ) as process:
            wait_for(lambda: leases(coordinator), what="the lease", limit_s=90)
            process.send_signal(number)
            assert process.wait(30.0) == code
        assert leases(coordinator) == []
    assert "restored 1" not in (tmp_path / "job.log").read_text()
