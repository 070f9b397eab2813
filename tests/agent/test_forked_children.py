"""Children that training forks: signals end them as if we were not there, and they never save for their parent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.forked import Nursery, nursery

JOB = """
import multiprocessing, os, sys, threading, time, torch, rampmeter
from rampmeter.core.errors import RestoreError
root = {root!r}
state = {{"weights": torch.ones(3)}}
started = multiprocessing.get_context("fork").Event()

def wait_for_ever():
    started.set()
    threading.Event().wait()

with rampmeter.Checkpointer(root, interval_max_s=0.2, check_finite=False) as ckpt:
    ckpt.restore(state)
{body}
"""

TERMINATED = """
    child = multiprocessing.get_context("fork").Process(target=wait_for_ever)
    child.start()
    started.wait(30)
    child.terminate()
    child.join(30)
    print("ended by", child.exitcode, "noticed", ckpt.poll(), flush=True)
    child.kill()
"""

PARENT_SAVES = """
    steps = 0
    while ckpt.last_save is None:
        steps += 1
        ckpt.step(steps, state)
        time.sleep(0.01)
    print("parent committed", ckpt.last_save.committed, flush=True)
    print("beyond", sum(name.startswith("step-01") for name in os.listdir(root)), flush=True)
"""

SAVING = """
    pid = os.fork()
    if pid == 0:
        deadline_s = time.monotonic() + 1.5
        num_steps = 10**6
        while time.monotonic() < deadline_s:
            num_steps += 1
            ckpt.step(num_steps, state)
        try:
            ckpt.restore(state)
        except RestoreError as error:
            print("refused", flush=True)
        ckpt.close()
        print("closed", flush=True)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print("child", status, flush=True)
"""


@pytest.fixture(scope="module")
def programs() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


def test_a_child_ends_by_the_signal_that_it_is_sent(programs: Nursery, tmp_path: Path) -> None:
    """Process.terminate() ends a child that was forked after the start, and the job notices nothing."""
    program = programs.start(JOB.format(root=str(tmp_path / "root"), body=TERMINATED))
    assert program.wait() == 0
    assert program.lines == ["ended by -15 noticed False"]


def test_a_child_saves_nothing_and_its_parent_goes_on(programs: Nursery, tmp_path: Path) -> None:
    """Steps of a child commit nothing, its restore is refused, its close returns; the parent's saves go on."""
    program = programs.start(JOB.format(root=str(tmp_path / "root"), body=SAVING + PARENT_SAVES))
    assert program.wait() == 0
    assert program.lines == ["refused", "closed", "child 0", "parent committed True", "beyond 0"]


LOADING = """
    import signal
    import torch.utils.data as data

    class Numbers(data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, index):
            ckpt.step(10**6 + index, state)
            return index + 1000 * (signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL)

    while not ckpt._taking.wants_snapshot:
        time.sleep(0.001)
    loader = data.DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork",
                             persistent_workers=True, timeout=30)
    print("read", sum(int(batch.sum()) for batch in loader), flush=True)
    workers = loader._iterator._workers
    workers[0].terminate()
    workers[0].join(30)
    print("ended", workers[0].exitcode is not None, "noticed", ckpt.poll(), flush=True)
    del loader, workers
"""


def test_workers_of_a_data_loader_save_nothing_and_end_by_their_signal(
    programs: Nursery, tmp_path: Path
) -> None:
    """Forked by torch's DataLoader while the job runs: a dataset that steps saves nothing, and no signal is ours."""
    program = programs.start(JOB.format(root=str(tmp_path / "root"), body=LOADING + PARENT_SAVES))
    assert program.wait() == 0
    assert program.lines == ["read 120", "ended True noticed False", "parent committed True", "beyond 0"]
