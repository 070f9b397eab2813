"""How jobs end, with real processes."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from rampmeter.manifest import read_manifest
from support.servers import serving, without_settings

pytestmark = pytest.mark.system

TESTS = str(Path(__file__).parent.parent)
SLOW = {"RAMPMETER_CAPACITY": "10MB/s"}

FORGETFUL = """
import sys
sys.path.insert(0, {tests!r})
import rampmeter
from rampmeter.events import SaveStarted
from support.training import Run
started = []
run, step = Run(hidden=8000), 0
ckpt = rampmeter.Checkpointer({root!r}, coordinator={url!r}, interval_max_s=1.0, on_event=started.append).__enter__()
while not any(isinstance(event, SaveStarted) for event in started):
    run.train_one()
    step += 1
    ckpt.step(step, run.state)
sys.exit(3)
"""


def run_job(script, root, url):
    """The script as a process of its own; its exit code."""
    text = script.format(tests=TESTS, root=str(root), url=url)
    return subprocess.run(
        [sys.executable, "-c", text], timeout=100, check=False, env=without_settings()
    ).returncode


def jobs_of(url):
    return httpx.get(f"{url}/v1/pools/default/jobs").json()["jobs"]


def test_a_job_that_forgets_to_close_still_commits_and_says_goodbye(tmp_path):
    """sys.exit in the middle of a flush: committed, lease given back, job finished, exit code kept."""
    with serving(tmp_path, "--fresh", **SLOW) as coordinator:
        assert run_job(FORGETFUL, tmp_path / "job", coordinator.url) == 3
        (job,) = jobs_of(coordinator.url)
        assert job["finished"]
        assert not httpx.get(f"{coordinator.url}/v1/pools/default/leases").json()["leases"]
    (directory,) = (tmp_path / "job").glob("step-*")
    assert read_manifest(directory).step >= 1
