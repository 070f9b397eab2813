"""Re-reads that take longer than the newest checkpoints stay: they come to an end, and the disk within its bound."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter.core.clock import ManualClock
from rampmeter.core.proving import Outcome, Proving
from rampmeter.events import SaveEnded
from rampmeter.layout import Root, StepName
from rampmeter.retention import Keep, Kept, Reason, why_kept
from support.waiting import wait_for

INTERVAL_S = 600.0
TURN_S = 10.0


def kept(step: int, *, proven: bool = False, pinned: bool = False, day: str = "2026-11-30") -> Kept:
    return Kept(name=StepName(step=step, attempt=1, nonce="0" * 8), day=day, pinned=pinned, proven=proven)


def staying(commits: list[Kept], reading: int, **keep: int) -> dict[int, list[str]]:
    """Steps that stay while one is read back, and why."""
    reasons = why_kept(commits, Keep(**({"keep_days": 0} | keep)), kept(reading).name)
    return {name.step: [str(reason) for reason in why] for name, why in reasons.items() if why}


# -- which ones stay -------------------------------------------------------------------------------------------


def test_it_has_the_place_for_a_proof_where_that_is_free() -> None:
    """Nothing is proven yet, or what is stays for another reason: all of the newest stay beside it."""
    commits = [kept(step) for step in range(1, 8)]
    assert staying(commits, 2, keep=3) == {7: ["last"], 6: ["last"], 5: ["last"], 2: ["reading"]}
    assert staying(commits, 2, keep=1) == {7: ["last"], 2: ["reading"]}
    pinned = [kept(1, proven=True, pinned=True), *commits[1:]]
    assert staying(pinned, 2, keep=2) == {
        7: ["last"],
        6: ["last"],
        2: ["reading"],
        1: ["pinned", "proven"],
    }


def test_beside_a_proof_it_takes_the_place_of_the_oldest_of_the_newest() -> None:
    """Which goes, unless it stays for its day; the newest never does, so with keep=1 the one that is read goes."""
    commits = [kept(1, proven=True, day="2026-11-28"), *(kept(step) for step in range(2, 8))]
    assert staying(commits, 3, keep=3) == {7: ["last"], 6: ["last"], 3: ["reading"], 1: ["proven"]}
    assert staying(commits, 3, keep=1) == {7: ["last"], 1: ["proven"]}
    days = [replace(commit, day="2026-11-29") if commit.name.step == 6 else commit for commit in commits]
    assert staying(days, 3, keep=2, keep_days=2) == {
        7: ["last", "daily"],
        6: ["daily"],
        3: ["reading"],
        1: ["proven"],
    }


def test_one_that_stays_anyway_changes_nothing() -> None:
    """Among the newest, pinned, proven, or removed by somebody else."""
    commits = [kept(1, proven=True), kept(2, pinned=True), *(kept(step) for step in range(3, 8))]
    for reading in (1, 2, 6, 7, 99):
        assert staying(commits, reading, keep=2) == {7: ["last"], 6: ["last"], 2: ["pinned"], 1: ["proven"]}


# -- days of a job ---------------------------------------------------------------------------------------------


@dataclass
class Storage:
    """A job that saves every ten minutes, and reads back at so many seconds a checkpoint."""

    keep: Keep
    read_s: float
    clock: ManualClock = field(default_factory=ManualClock)
    there: list[Kept] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    reading: StepName | None = None

    def live(self, num_saves: int) -> None:
        self.proving = Proving(1800.0, now_s=self.clock.now())
        for step in range(1, num_saves + 1):
            until_s = self.clock.now() + INTERVAL_S
            while self.clock.now() < until_s:
                self.clock.advance(TURN_S)
                self.read()
            self.commit(step)

    def commit(self, step: int) -> None:
        self.there.append(kept(step))
        self.proving.committed()
        before = max((commit.name for commit in self.there if commit.proven), default=None)
        reasons = why_kept(self.there, self.keep, self.reading)
        self.there = [commit for commit in self.there if reasons[commit.name]]
        names = [commit.name for commit in self.there]
        assert kept(step).name in names
        assert before is None or before in names
        assert len(names) <= self.keep.keep + 1, "and one more while the next is written: keep + 2"
        if self.reading is not None and self.reading not in names:
            self.end(Outcome.VANISHED)

    def read(self) -> None:
        if self.reading is not None and self.clock.now() >= self.through_s:
            read = self.reading
            self.there = [replace(one, proven=one.proven or one.name == read) for one in self.there]
            self.end(Outcome.WHOLE)
        if self.reading is None and self.there and self.proving.due_in_s(self.clock.now()) <= 0.0:
            self.proving.begun()
            self.reading, self.through_s = self.there[-1].name, self.clock.now() + self.read_s

    def end(self, outcome: Outcome) -> None:
        self.reading = None
        self.outcomes.append(outcome)
        self.proving.ended(outcome, self.clock.now())


@pytest.mark.parametrize("keep", [2, 3, 5])
@pytest.mark.parametrize("num_intervals", [0.5, 2.0, 7.3, 31.0])
def test_every_re_read_comes_to_its_end(keep: int, num_intervals: float) -> None:
    """None begins anew, however many saves it takes; each is as long after the one before as it should be."""
    storage = Storage(keep=Keep(keep=keep, keep_days=0), read_s=num_intervals * INTERVAL_S)
    storage.live(300)
    assert set(storage.outcomes) == {Outcome.WHOLE}
    expected = 300 * INTERVAL_S / (storage.read_s + 1800.0 + INTERVAL_S)
    assert len(storage.outcomes) >= int(expected) - 1


def test_with_one_checkpoint_the_first_re_read_comes_to_its_end() -> None:
    """Then a proof is always there; a newer one has no place beside it and the newest."""
    storage = Storage(keep=Keep(keep=1, keep_days=0), read_s=3.3 * INTERVAL_S)
    storage.live(50)
    assert storage.outcomes[0] is Outcome.WHOLE
    assert Outcome.VANISHED in storage.outcomes
    assert any(commit.proven for commit in storage.there)
    assert not any(Reason.READING in why for why in why_kept(storage.there, storage.keep).values())


# -- as a training script has it -------------------------------------------------------------------------------


def test_a_job_that_goes_on_saving_keeps_what_it_reads_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a byte a second: long after it would have been let go it is still there, beside the newest two."""
    monkeypatch.setattr("rampmeter.reading.counter.local_rate", lambda *_: 1)
    ended: list[SaveEnded] = []
    root, state, steps = Root(tmp_path), {"w": torch.zeros(1000)}, itertools.count(1)
    options: dict[str, Any] = {"keep": 2, "keep_days": 0, "verify_every_s": 0.01, "interval_max_s": 0.1}
    options["on_event"] = lambda event: isinstance(event, SaveEnded) and ended.append(event)
    with rampmeter.Checkpointer(tmp_path, seed=1, **options) as ckpt:
        rereader = ckpt._started._rereader
        assert rereader is not None

        def train_until(is_done: Callable[[], object], what: str) -> None:
            wait_for(lambda: (ckpt.step(next(steps), state), is_done())[1], what=what, limit_s=60.0)

        train_until(rereader.reading, "a re-read")
        reading = rereader.reading()
        num_before = len(ended)
        train_until(lambda: len(ended) >= num_before + 5, "five more saves")
        wait_for(lambda: len(root.committed_steps()) <= 3, what="what is let go")
        assert (rereader.reading(), reading in root.committed_steps()[2:]) == (reading, True)
