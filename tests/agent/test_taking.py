"""What a Checkpointer says of things that are no obstacle now and will cost something later: each once, in time."""

import logging
import os
from collections.abc import Iterator

import pytest
import torch

import rampmeter
from rampmeter.core.units import format_duration
from support.waiting import wait_for

STATE = {"t": torch.ones(1000)}


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        yield


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """Nobody but the owner reads what this process writes."""
    before = os.umask(0o077)
    yield
    os.umask(before)


def told(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if word in record.getMessage()]


@pytest.mark.usefixtures("strict_umask")
def test_a_umask_that_hides_checkpoints_from_the_group_is_told_at_the_start(tmp_path, caplog):
    """Before the first step: whoever shares the root would find nothing in it that can be read."""
    tmp_path.chmod(0o2770)
    with rampmeter.Checkpointer(tmp_path):
        (text,) = told(caplog, "umask")
    assert "umask 0077 hides checkpoints" in text
    assert f"group {tmp_path.stat().st_gid}" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory to a group that it is not in")
def test_a_root_of_another_group_is_told_at_the_start(tmp_path, caplog):
    """What is written there would belong to the group of the process."""
    os.chown(tmp_path, -1, os.getegid() + 1)
    tmp_path.chmod(0o770)
    with rampmeter.Checkpointer(tmp_path):
        (text,) = told(caplog, "g+s")
    assert f"shared with group {os.getegid() + 1}" in text


@pytest.mark.parametrize(("grace", "times"), [("0", 1), ("3600", 0)])
def test_a_grace_that_is_shorter_than_a_save_is_told_once_the_save_is_known(
    tmp_path, caplog, monkeypatch, grace, times
):
    """With the first commit, with the time that it took, and not again with the second."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "here")
    monkeypatch.setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", grace)
    with rampmeter.Checkpointer(tmp_path, interval_max_s=0.1) as ckpt:
        assert told(caplog, "--shutdown-timeout") == []
        first = next_save(ckpt, 1)
        texts = told(caplog, "--shutdown-timeout")
        assert len(texts) == times
        assert all(f"takes about {format_duration(first.at_work_s)}" in text for text in texts)
        next_save(ckpt, first.step + 1)
    assert told(caplog, "--shutdown-timeout") == texts


def next_save(ckpt, step):
    """Train from `step` on until a save has ended and was committed; its report."""
    before, steps = ckpt.last_save, iter(range(step, 10**9))

    def is_over():
        ckpt.step(next(steps), STATE)
        return ckpt.last_save is not before and ckpt._taking._settled.is_set()

    wait_for(is_over, what="a save")
    assert ckpt.last_save.committed
    return ckpt.last_save
