"""Histories that fork: by a step that was chosen by name, by an attempt that stood still, by two jobs in one place."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter import checkpointer, retention
from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.core.messages import EndReason
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.retention import Keep, prune
from rampmeter.saving import Saver
from support.crash_victim import KEEP, make_state, restored_step, save_one
from support.forked import Nursery, nursery
from support.waiting import wait_for

NOTHING = {"interval_min_s": 1000.0}
"""A job that is never due: what it commits, a test commits."""


def attempt(root: Root, *steps: int) -> None:
    """An attempt that commits these steps."""
    saver = Saver(root, root.claim_attempt(), job="case")
    for step in steps:
        assert save_one(saver, step)
    saver.close(0.0)


def go_back(root: Root, step: int, *, train: bool = True) -> None:
    """An attempt that begins from `step` by name, and is gone before its first commit."""
    state = make_state(-1.0)
    ckpt = rampmeter.Checkpointer(root.path, keep=9, **NOTHING).__enter__()  # type: ignore[arg-type]
    assert ckpt.restore({"parts": state}, step=step) == step
    if train:
        ckpt.step(step + 1, {"parts": state})
    ckpt.close(reason=EndReason.FAILED if train else EndReason.FINISHED)


class TestGoingBack:
    """Steps 100, 200, 300; somebody goes back to 100."""

    @pytest.fixture(autouse=True)
    def history(self, root: Root) -> None:
        attempt(root, 100, 200, 300)

    def test_a_crash_before_the_next_commit_does_not_bring_the_old_future_back(self, root: Root) -> None:
        """100 again, with the reason, however often; the others are still there."""
        go_back(root, 100)
        for _ in range(2):
            state = make_state(-1.0)
            found = restore(root, {"parts": state})
            assert found is not None
            assert (found.step, found.rolled_back) == (100, False)
            assert [text.split(" (")[0] for text in found.skipped] == ["skipped step 300", "skipped step 200"]
            assert "attempt 2 went back to step 100 by name" in found.skipped[0]
            root.claim_attempt()
        assert [name.step for name in root.committed_steps()] == [300, 200, 100]

    def test_a_crash_after_the_next_commit_goes_on_from_it(self, root: Root) -> None:
        """Whatever the old future had reached."""
        go_back(root, 100)
        attempt(root, 150)
        found = restore(root, {"parts": make_state(-1.0)})
        assert found is not None
        assert (found.step, found.skipped) == (150, ())

    def test_damage_after_the_next_commit_does_not_bring_it_back_either(self, root: Root) -> None:
        """The fallback is what was chosen, then what was before it; also after a second choice on the way."""
        go_back(root, 200)
        attempt(root, 250, 260)
        go_back(root, 250)
        attempt(root, 255)
        steps = []
        while len(steps) < 4:
            steps.append(restored_step(root))
            self._damage(root, steps[-1])
        assert steps == [255, 250, 200, 100]

    def test_choosing_what_was_left_behind_brings_its_whole_history_back(self, root: Root) -> None:
        """The choice that had left it behind counts no more; what was trained meanwhile is left behind instead."""
        go_back(root, 100)
        attempt(root, 150)
        go_back(root, 300)
        steps = []
        while len(steps) < 3:
            steps.append(restored_step(root))
            self._damage(root, steps[-1])
        assert steps == [300, 200, 100]

    def test_choosing_another_step_is_the_new_choice(self, root: Root) -> None:
        """Also the newest of all, and one that an attempt after the first choice committed."""
        go_back(root, 100)
        go_back(root, 300)
        assert restored_step(root) == 300
        go_back(root, 200)
        assert restored_step(root) == 200
        attempt(root, 250, 260)
        go_back(root, 250)
        assert restored_step(root) == 250

    def test_who_has_only_looked_has_chosen_nothing(self, root: Root) -> None:
        """Restored by name, trained nothing, ended well."""
        go_back(root, 100, train=False)
        assert restored_step(root) == 300

    @pytest.mark.timeout(30)
    def test_who_has_only_looked_ends_although_the_root_hangs(
        self, root: Root, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The record of the choice stays, then."""
        goes_on = threading.Event()
        monkeypatch.setattr(checkpointer, "withdraw_choice", lambda *_: goes_on.wait())
        go_back(root, 100, train=False)
        goes_on.set()
        assert restored_step(root) == 100

    def test_a_chosen_one_that_is_damaged_is_not_replaced_by_the_old_future(self, root: Root) -> None:
        """The one before it, and where there is none an error that names the choice: nobody starts at 0."""
        go_back(root, 200)
        self._damage(root, 200)
        assert restored_step(root) == 100
        self._damage(root, 100)
        state = make_state(-1.0)
        with pytest.raises(CorruptCheckpoint, match="attempt 2 went back to step 200 by name"):
            restore(root, {"parts": state})
        found = restore(root, {"parts": state}, step=300)
        assert found is not None

    @staticmethod
    def _damage(root: Root, step: int | None) -> None:
        (name,) = (name for name in root.step_names() if name.step == step)
        (root.directory(name) / "__0_0.distcp").write_bytes(b"")

    def test_nobody_starts_at_0_because_the_chosen_one_is_gone(self, root: Root) -> None:
        """Removed by hand, and only what was left behind is there: an error that names the choice."""
        go_back(root, 100)
        (chosen,) = (name for name in root.step_names() if name.step == 100)
        shutil.rmtree(root.directory(chosen))
        with pytest.raises(CorruptCheckpoint, match="attempt 2 went back to step 100 by name"):
            restore(root, {"parts": make_state(-1.0)})

    def test_a_record_that_cannot_be_understood_decides_nothing(self, root: Root) -> None:
        """The order does."""
        go_back(root, 100)
        (root.path / "attempts" / "00002.began-from").write_bytes(b"\xff")
        assert restored_step(root) == 300

    def test_going_back_in_the_middle_of_a_run_is_a_new_attempt(self, root: Root) -> None:
        """What the run had saved before is not newer than what it saves from there on, whatever its steps."""
        state = make_state(-1.0)
        with rampmeter.Checkpointer(root.path, keep_days=0, keep=9, interval_max_s=0.001, seed=1) as ckpt:
            assert ckpt.restore({"parts": state}) == 300
            train_until_saved(ckpt, state, 1_000_000)
            assert ckpt.restore({"parts": state}, step=200) == 200
            assert restored_step(root) == 200
            train_until_saved(ckpt, state, 201)
        names = root.committed_steps()
        assert names[0].step < 1_000_000 <= names[1].step
        assert names[0].attempt == 3
        assert {name.attempt for name in names} == {1, 2, 3}
        assert restored_step(root) == names[0].step


def train_until_saved(ckpt: rampmeter.Checkpointer, state: dict[str, Any], step: int) -> int:
    """Train from `step` on, until a step is committed."""
    before = ckpt.last_save
    while ckpt.last_save is before or ckpt.last_save is None or not ckpt.last_save.committed:
        for tensor in state.values():
            tensor.fill_(step)
        ckpt.step(step, {"parts": state})
        step += 1
    return ckpt.last_save.step


STOPPED = """
from rampmeter.layout import Root
from rampmeter.saving import Saver
from support import points
from support.crash_victim import save_one
root = Root({path!r})
saver = Saver(root, root.claim_attempt(), job="victim")
save_one(saver, 1)
points.stop_before(root.path, {name!r}, {occurrence})
save_one(saver, 2)
"""

BETWEEN_CLAIM_CHECK_AND_POINTER = (
    "open .MANIFEST.json.tmp",
    "write .MANIFEST.json.tmp",
    "sync .MANIFEST.json.tmp",
    "rename MANIFEST.json",
    "sync step 2",
    "open .LATEST.tmp",
    "write .LATEST.tmp",
    "sync .LATEST.tmp",
    "rename LATEST",
    "sync root 2",
)
"""Of a second one of its name; the first is before the check."""


@pytest.fixture(scope="module")
def sleepers() -> Iterator[Nursery]:
    torch.set_num_threads(1)
    with nursery() as found:
        yield found


@contextmanager
def standing_still(sleepers: Nursery, text: str) -> Iterator[None]:
    """The program has stopped itself; at the end of the block it goes on to its end."""
    program = sleepers.start(text)
    state = Path(f"/proc/{program.pid}/stat")
    try:
        wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", what="the stop")
        yield
    finally:
        assert program.pid is not None
        os.kill(program.pid, signal.SIGCONT)
    assert program.wait() == 0


@pytest.mark.parametrize("is_swept", [True, False], ids=["swept", "not yet swept"])
def test_an_attempt_that_wakes_up_at_its_commit_disturbs_nobody(
    root: Root, sleepers: Nursery, is_swept: bool, tmp_path: Path
) -> None:
    """At each point from the claim check to the pointer: its successor has started, saved and let go in between."""
    for number, point in enumerate(BETWEEN_CLAIM_CHECK_AND_POINTER):
        root = Root(tmp_path / str(number))
        name, occurrence = point.removesuffix(" 2"), 1 + point.endswith(" 2")
        text = STOPPED.format(path=str(root.path), name=name, occurrence=occurrence)
        with standing_still(sleepers, text):
            assert restored_step(root) == (1 if number <= 3 else 2), point
            claim = root.claim_attempt()
            if is_swept:
                retention.sweep(root, claim.number, lambda: None)
            saver = Saver(root, claim, job="successor")
            for step in (11, 12, 13):
                assert save_one(saver, step)
                prune(root, Keep(keep=KEEP, keep_days=0), lambda: None)
        assert restored_step(root) == 13, point
        latest = root.read_latest()
        assert latest is not None
        assert (latest.attempt, latest.step) == (2, 13), point
        assert [name.step for name in root.committed_steps() if name.attempt == 2] == [13, 12]
        retention.sweep(root, claim.number, lambda: None)
        prune(root, Keep(keep=KEEP, keep_days=0), lambda: None)
        assert root.step_names() == root.committed_steps()
        assert [name.step for name in root.step_names()][:KEEP] == [13, 12]
