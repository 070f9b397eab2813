"""Real training loops metered by a real coordinator: grants, kill -9, lost memory, silence, replaced attempts."""

import shutil
import threading

import httpx
import pytest

import rampmeter
from rampmeter.core.pacer import Governance
from rampmeter.events import RateChanged, SaveEnded
from support.servers import serving
from support.training import Run
from support.waiting import wait_for

pytestmark = pytest.mark.system

SLOW = {"RAMPMETER_CAPACITY": "10MB/s", "RAMPMETER_STORE": "sqlite"}
BUDGET = 8_000_000
BIG = 16_000
"""Hidden units for a state of about 25 MB: a flush of 3 s at the budget."""

STEP_S = 0.05
"""The device works and the processor is free meanwhile: for the writer and for the coordinator."""


class Trainer:
    """A training loop in a thread, with its events."""

    def __init__(self, root, url, *, hidden=BIG, **options):
        self.events = []
        self.run = Run(hidden=hidden)
        self.stop = threading.Event()
        self.step = 0
        self.stopped_by_itself = False
        self._options = {"interval_max_s": 2.0, "num_gpus": 8} | options
        self._root, self._url = root, url
        self.thread = threading.Thread(target=self._main)

    def _main(self):
        with rampmeter.Checkpointer(
            self._root, coordinator=self._url, on_event=self.events.append, **self._options
        ) as ckpt:
            self.step = ckpt.restore(self.run.state) or 0
            while not self.stop.wait(STEP_S) and not ckpt.should_stop:
                self.run.train_one()
                self.step += 1
                ckpt.step(self.step, self.run.state)
            self.stopped_by_itself = ckpt.should_stop
            self.exit_code = ckpt.exit_code

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join(90)
        assert not self.thread.is_alive()

    def committed(self):
        return [e for e in list(self.events) if isinstance(e, SaveEnded) and e.reason is None]

    def rates(self):
        return [e for e in list(self.events) if isinstance(e, RateChanged)]

    def wait_for_commits(self, num, limit_s=60):
        wait_for(lambda: len(self.committed()) >= num, what=f"{num} commits", limit_s=limit_s)

    def wait_until_writing(self):
        wait_for(lambda: any(e.bytes_per_s for e in self.rates()[-1:]), what="a rate", limit_s=60)


def leases(coordinator):
    return httpx.get(f"{coordinator.url}/v1/pools/default/leases").json()["leases"]


def port_of(coordinator):
    return coordinator.url.rstrip("/").rpartition(":")[2]


def most_allowed(trainers):
    """The largest sum of rates that the trainers' writers were allowed at any instant."""
    changes = sorted(
        ((e.now_s, index, e.bytes_per_s or 0) for index, t in enumerate(trainers) for e in t.rates()),
        key=lambda change: change[0],
    )
    ends = [(e.now_s, i, 0) for i, t in enumerate(trainers) for e in t.events if isinstance(e, SaveEnded)]
    now = dict.fromkeys(range(len(trainers)), 0)
    most = 0
    for _, index, rate in sorted(changes + ends, key=lambda change: change[0]):
        now[index] = rate
        most = max(most, sum(now.values()))
    return most


def test_jobs_share_the_budget_and_all_of_them_commit(tmp_path):
    """Three loops at once: never more than u x capacity is allowed, everybody gets through."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        trainers = [Trainer(tmp_path / f"job{i}", coordinator.url, hidden=4000) for i in range(3)]
        with trainers[0], trainers[1], trainers[2]:
            for trainer in trainers:
                trainer.wait_for_commits(2)
    assert 0 < most_allowed(trainers) <= BUDGET
    assert {e.governance for t in trainers for e in t.committed()} == {Governance.LEASE}


def test_kill_9_in_the_middle_of_a_flush_loses_nothing(tmp_path):
    """Restarted on its data directory the coordinator honours the lease; the flush never stops for long."""
    with (
        serving(tmp_path, "--fresh", **SLOW) as coordinator,
        Trainer(tmp_path / "job", coordinator.url, hidden=2 * BIG) as trainer,
    ):  # a flush of 6 s, so that it outlasts the restart on a busy machine, too
        trainer.wait_until_writing()
        wait_for(lambda: leases(coordinator), what="the lease")
        fence = leases(coordinator)[0]["fence"]
        coordinator.process.kill()
        coordinator.process.wait()
        (tmp_path / "url").unlink()
        with serving(tmp_path, "--port", port_of(coordinator), **SLOW) as again:
            assert [lease["fence"] for lease in leases(again)] == [fence]
            trainer.wait_for_commits(2)
    assert {e.governance for e in trainer.committed()} == {Governance.LEASE}
    assert most_allowed([trainer]) <= BUDGET


def test_lost_memory_in_the_middle_of_a_flush_is_survived_in_grace(tmp_path):
    """A coordinator without its data: the holder tells what it holds, keeps it, and is never raised."""
    data, other = tmp_path / "a", tmp_path / "b"
    data.mkdir()
    other.mkdir()
    with serving(data, "--fresh", **SLOW) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, hidden=2 * BIG) as trainer:
            trainer.wait_until_writing()
            coordinator.process.kill()
            coordinator.process.wait()
            with serving(other, "--port", port_of(coordinator), **SLOW) as again:
                wait_for(lambda: leases(again), what="the lease told by its holder")
                lease = leases(again)[0]
                assert (lease["state"], lease["bytes_per_s"]) == ("active", BUDGET)
                trainer.wait_for_commits(1)
    assert trainer.committed()[0].governance is Governance.LEASE
    assert most_allowed([trainer]) <= BUDGET


def test_a_coordinator_that_never_answers_holds_up_no_checkpoint(tmp_path):
    """Saves go on ungoverned, and are counted as such."""
    with Trainer(tmp_path / "job", "http://127.0.0.1:9", hidden=128) as trainer:
        trainer.wait_for_commits(2)
    assert {e.governance for e in trainer.committed()} == {Governance.UNGOVERNED}


def test_a_newer_attempt_replaces_an_older_one_that_is_alive(tmp_path):
    """The older one stops saving and asks its loop to end."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, hidden=128) as older:
            older.wait_for_commits(1)
            with Trainer(tmp_path / "job", coordinator.url, hidden=128) as newer:
                wait_for(lambda: not older.thread.is_alive(), what="the end of the older attempt")
                newer.wait_for_commits(2)
    assert older.stopped_by_itself
    assert older.exit_code == 1


def test_the_root_decides_which_attempt_is_newest(tmp_path):
    """The coordinator remembers attempt 3 of a root whose claims were lost: the agent claims above it."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        for _ in range(3):
            with Trainer(tmp_path / "job", coordinator.url, hidden=128) as trainer:
                trainer.wait_for_commits(1)
        shutil.rmtree(tmp_path / "job" / "attempts")
        with Trainer(tmp_path / "job", coordinator.url, hidden=128) as trainer:
            trainer.wait_for_commits(1)
            jobs = httpx.get(f"{coordinator.url}/v1/pools/default/jobs").json()["jobs"]
        assert jobs[0]["attempt"] == 4
        assert ".a00004." in trainer.committed()[-1].directory


def test_figures_of_a_save_reach_the_coordinator(tmp_path):
    """Bytes, stall, write time and the committed step are in the job's row."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, hidden=4000) as trainer:
            trainer.wait_for_commits(1)

            def row():
                return httpx.get(f"{coordinator.url}/v1/pools/default/jobs").json()["jobs"][0]

            wait_for(lambda: row()["num_committed"] >= 1, what="the release")
            job = row()
    assert job["committed_step"] == trainer.committed()[0].step
    assert job["num_bytes"] > 4000 * 64 * 2 * 3 * 4
    assert 0 < job["stall_s"] < job["write_s"]


def test_goodbye_forgets_the_plan_only_if_somebody_heard_it(tmp_path):
    """The safe rate is given up with the goodbye; a job that nobody heard keeps it for its next attempt."""
    plan = tmp_path / "job" / "plan.json"
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        with Trainer(tmp_path / "job", coordinator.url, hidden=128) as trainer:
            trainer.wait_for_commits(1)
            assert plan.exists()
        assert not plan.exists()
        with Trainer(tmp_path / "job", coordinator.url, hidden=128) as trainer:
            trainer.wait_for_commits(1)
            coordinator.process.kill()
            coordinator.process.wait()
    assert plan.exists()
