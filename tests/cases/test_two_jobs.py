"""Two jobs where there should be one, and a coordinator that has forgotten which of them is the newer."""

import logging
from pathlib import Path

import httpx
import pytest

from rampmeter.core.messages import FailReason
from rampmeter.events import SaveEnded
from rampmeter.layout import Root
from support.case_state import loaded
from support.servers import Coordinator, serving
from support.train_thread import TrainThread
from support.waiting import wait_for

KEEP_ALL = {"keep": 1000}


def jobs_of(coordinator: Coordinator) -> list[dict[str, object]]:
    """The rows of the pool."""
    rows: list[dict[str, object]] = httpx.get(f"{coordinator.url}/v1/pools/default/jobs").json()["jobs"]
    return rows


@pytest.mark.system
def test_two_jobs_of_one_name_in_two_roots_do_not_know_each_other(tmp_path: Path) -> None:
    """The identity is in the root: both save, neither is stopped, the coordinator has two rows."""
    with serving(tmp_path, "--fresh") as coordinator:
        roots = [tmp_path / user / "run7" for user in ("one", "two")]
        with TrainThread(roots[0], coordinator.url) as one, TrainThread(roots[1], coordinator.url) as two:
            one.wait_for_saves(2)
            two.wait_for_saves(2)
            one.wait_for_saves(1)
            names = [row["name"] for row in jobs_of(coordinator)]
    assert names == ["run7", "run7"]
    assert (one.exit_code, two.exit_code) == (0, 0)
    for root, job in zip(roots, (one, two), strict=True):
        found = loaded(Root(root))
        assert found is not None
        assert found.step == job.saved[-1].step


@pytest.mark.system
@pytest.mark.parametrize("with_coordinator", [True, False], ids=["metered", "local"])
def test_two_jobs_in_one_root(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, with_coordinator: bool
) -> None:
    """The older is told and stops, with an exit code that is an error; nothing that was committed is lost."""
    root = Root(tmp_path / "root")
    caplog.set_level(logging.WARNING)
    with serving(tmp_path, "--fresh") as coordinator:
        url = coordinator.url if with_coordinator else None
        with TrainThread(root.path, url, **KEEP_ALL) as older:
            older.wait_for_saves(2)
            with TrainThread(root.path, url, **KEEP_ALL) as newer:
                older.wait_for_its_end()
                newer.wait_for_saves(2)
    assert (older.exit_code, newer.exit_code) == (1, 0)
    assert "this attempt of the job saves no more" in caplog.text
    assert newer.began_from in {event.step for event in older.saved}
    committed = {str(name) for name in root.committed_steps()}
    assert committed == {event.directory for event in older.saved + newer.saved}
    failed = [e.reason for e in older.events if isinstance(e, SaveEnded) and e.reason is not None]
    assert set(failed) <= {FailReason.SUPERSEDED, FailReason.ENOENT}
    assert len(failed) <= 1, "it does not go on writing what cannot count"
    found = loaded(root)
    assert found is not None
    assert found.step == newer.saved[-1].step


@pytest.mark.system
def test_a_coordinator_that_forgot_the_attempts_learns_them_from_the_roots(tmp_path: Path) -> None:
    """Its store is gone: the live attempt goes on under its number, the next claims above it; none comes twice."""
    root, numbers = Root(tmp_path / "root"), []
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with serving(first, "--fresh") as coordinator:
        for _ in range(2):
            with TrainThread(root.path, coordinator.url) as job:
                job.wait_for_saves(1)
        with TrainThread(root.path, coordinator.url) as job:
            job.wait_for_saves(1)
            coordinator.process.kill()
            coordinator.process.wait()
            port = coordinator.address.rpartition(":")[2]
            with serving(second, "--fresh", "--port", port) as again:
                wait_for(lambda: jobs_of(again), what="the job at the new coordinator")
                numbers.append(jobs_of(again)[0]["attempt"])
                job.wait_for_saves(1)
                with TrainThread(root.path, again.url) as following:
                    job.wait_for_its_end()
                    following.wait_for_saves(1)
                    numbers.append(jobs_of(again)[0]["attempt"])
    assert numbers == [3, 4]
    assert job.exit_code == 1
    assert following.began_from in {event.step for event in job.saved}
    assert root.committed_steps()[0].attempt == 4


@pytest.mark.system
def test_an_older_attempt_that_a_coordinator_takes_for_the_newest_commits_nothing(tmp_path: Path) -> None:
    """It is granted its slot, for the newer one has not been heard of; the root knows better, and it ends."""
    root = Root(tmp_path / "root")
    with serving(tmp_path, "--fresh") as coordinator:
        with TrainThread(root.path, coordinator.url) as older:
            older.wait_for_saves(1)
            claim = root.claim_attempt()
            older.wait_for_its_end()
            (row,) = jobs_of(coordinator)
    assert row["attempt"] == 1
    assert older.exit_code == 1
    assert all(name.attempt < claim.number for name in root.step_names())
    failed = [
        event.reason for event in older.events if isinstance(event, SaveEnded) and event.reason is not None
    ]
    assert failed == [FailReason.SUPERSEDED]
