"""A restore beside oddities: thousands of leftovers, a shard that is cut off too late, a root that is relative."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import rampmeter
from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.layout import Root
from rampmeter.restore import restore
from rampmeter.verification import Verifier
from support.roots import put_leftover
from support.waiting import wait_for


def test_many_leftovers_are_one_line(root: Root, make_saver: Any, save: Any, make_run: Any, caplog) -> None:
    """With their number and the first three; a few are told of one by one."""
    run = make_run()
    assert save(make_saver(), 1, run.state).committed
    for step in range(10, 13):
        put_leftover(root, step, 1)
    assert len(restore(root, run.state).skipped) == 3
    for step in range(13, 50):
        put_leftover(root, step, 1)
    caplog.clear()
    found = restore(root, run.state)
    assert found.step == 1
    (line,) = found.skipped
    assert "skipped 40 directories" in line
    assert [line.count(f"step-000000{step}.") for step in (49, 48, 47, 46)] == [1, 1, 1, 0]
    assert [told for told in caplog.messages if "skipped" in told] == [line]


def test_a_shard_that_is_cut_off_after_it_was_verified_is_named(
    root: Root, make_saver: Any, save: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that names the file, and nothing of the state is touched."""
    assert save(make_saver(), 1, make_run().state).committed
    target = make_run()
    with torch.no_grad():
        for parameter in target.state["model"].parameters():
            parameter.fill_(7.0)
    verify_blocks = Verifier.verify_blocks

    def and_then_cut_off(self: Any, blocks: Any, **more: Any) -> None:
        verify_blocks(self, blocks, **more)
        for file in root.path.glob("step-*/*.distcp") if "__0_0.distcp" in blocks else ():
            os.truncate(file, file.stat().st_size // 2)

    monkeypatch.setattr(Verifier, "verify_blocks", and_then_cut_off)
    with pytest.raises(CorruptCheckpoint, match=r"__0_0\.distcp is \d+ bytes short"):
        restore(root, target.state)
    assert all(bool((parameter == 7.0).all()) for parameter in target.state["model"].parameters())


def test_a_relative_root_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training that changes its directory goes on saving into the root that it named at the start."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    state = {"weights": torch.ones(3)}
    with rampmeter.Checkpointer("run", interval_max_s=0.2, check_finite=False) as ckpt:
        os.chdir("elsewhere")
        steps = iter(range(1, 10**9))

        def saved() -> bool:
            ckpt.step(next(steps), state)
            return ckpt.last_save is not None

        wait_for(saved, what="a save")
        assert ckpt.last_save is not None
        assert ckpt.last_save.committed
    assert len(Root(tmp_path / "run").committed_steps()) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
