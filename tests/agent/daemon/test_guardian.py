"""Saves by a real writer process: what they write, how they are steered, what becomes of them when it is lost."""

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rampmeter.core.errors import CommitError, LeaseLost
from rampmeter.daemon import watch
from rampmeter.daemon.guardian import Guardian
from rampmeter.daemon.hired import HiredWriter
from rampmeter.layout import Root
from rampmeter.manifest import read_manifest
from rampmeter.restore import restore
from rampmeter.throttle import Throttle
from support.hired import CLOCK, GATE, Desk, HeldBeforeCommit
from support.processes import is_running, rss_bytes
from support.small_disk import may_mount, small_disk
from support.waiting import wait_for

MIB = 1024 * 1024
LIMIT_S = 200.0
SOON_S = 0.4
LARGE = {"t": torch.ones(4 * MIB)}


class OnlyHere:
    """A class of training that the writer never imports."""

    def __init__(self, value: int) -> None:
        self.value = value


OnlyHere.__module__ = "__main__"
OnlyHere.__qualname__ = "OnlyHere"


def at_rate(bytes_per_s: int | None, until_s: float | None = None) -> Throttle:
    throttle = Throttle()
    throttle.set_rate(bytes_per_s, until_s)
    return throttle


def failed(future: Any, limit_s: float = LIMIT_S) -> str:
    """The reason for which a save failed."""
    error = future.exception(limit_s)
    assert isinstance(error, CommitError), error
    return error.reason


def no_checkpoint(root: Root) -> bool:
    return root.committed_steps() == []


def test_what_is_restored_is_what_was_saved(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit: parameters, moments, views, plain values, values of classes that the writer does not have."""
    monkeypatch.setattr("__main__.OnlyHere", OnlyHere, raising=False)
    model = nn.Sequential(*(nn.Linear(7, 7) for _ in range(150)))
    optim = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 7)).square().mean().backward()
    optim.step()
    table = torch.randn(64, 64)
    state = {
        "model": model,
        "optim": optim,
        "table": table,
        "rows": table[::2],
        "numbers": [1, 2],
        "mine": OnlyHere(5),
    }
    expected = {key: value.clone() for key, value in model.state_dict().items()}
    moments = [t.clone() for slots in optim.state.values() for t in slots.values()]
    kept = table.clone()
    name = desk.begin(7, state).result(LIMIT_S)
    with torch.no_grad():
        for tensor in [*model.parameters(), table, *(t for s in optim.state.values() for t in s.values())]:
            tensor.zero_()
    state["mine"], state["numbers"] = None, None
    restored = restore(desk.root, state)
    assert restored is not None
    assert restored.step == 7
    torch.testing.assert_close(dict(model.state_dict()), expected, rtol=0, atol=0)
    assert all(
        torch.equal(a, b)
        for a, b in zip(moments, (t for s in optim.state.values() for t in s.values()), strict=True)
    )
    assert torch.equal(state["table"], kept)
    assert torch.equal(state["rows"], kept[::2])
    assert (state["numbers"], state["mine"].value) == ([1, 2], 5)  # type: ignore[attr-defined]
    manifest = read_manifest(desk.root.directory(name))
    assert 0 < manifest.timings.stage_s < manifest.timings.lead_s < manifest.timings.write_s
    assert desk.root.read_latest() == name
    assert desk.first_bytes == [
        sum(t.nbytes for t in expected.values()) + sum(t.nbytes for t in moments) + kept.nbytes * 3 // 2
    ]


def test_the_writer_follows_the_rate(desk: Desk) -> None:
    """Armed it writes nothing; then as fast as it may; a pause stops it at once; what it counts is known here."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes == [16 * MIB], what="the first byte in hand")
    assert throttle.counters().done_bytes == 0
    before_s = CLOCK.now()
    throttle.set_rate(8 * MIB)
    wait_for(lambda: throttle.counters().done_bytes >= 4 * MIB, what="4 MiB")
    assert CLOCK.now() - before_s > 0.4
    throttle.set_rate(0)
    CLOCK.sleep(0.1)  # a look and a chunk
    paused_bytes = throttle.counters().done_bytes
    CLOCK.sleep(SOON_S)
    assert throttle.counters().done_bytes == paused_bytes < 8 * MIB
    throttle.set_rate(None)
    future.result(LIMIT_S)
    counters = throttle.counters()
    assert counters.done_bytes > 16 * MIB
    assert counters.throttled_s > SOON_S + 0.4


def test_a_rate_counts_as_followed_when_the_writer_obeys_it(desk: Desk, guardian: Guardian) -> None:
    """Not before: what was lowered may still be in use by a writer that has not looked."""
    throttle = at_rate(2 * MIB)
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    wait_for(lambda: throttle.is_followed, what="the writer to follow")
    assert guardian.pid is not None
    os.kill(guardian.pid, signal.SIGSTOP)
    throttle.set_rate(MIB)
    CLOCK.sleep(0.2)
    assert not throttle.is_followed
    os.kill(guardian.pid, signal.SIGCONT)
    wait_for(lambda: throttle.is_followed, what="the writer to follow")
    throttle.set_rate(None)
    future.result(LIMIT_S)


def test_a_lapsed_lease_pauses_the_writer_too(desk: Desk) -> None:
    """Nobody needs to tell it: the deadline went over with the rate."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    throttle.set_rate(4 * MIB, CLOCK.now() + 1.0)
    CLOCK.sleep(1.2)
    lapsed_bytes = throttle.counters().done_bytes
    CLOCK.sleep(SOON_S)
    assert 0 < throttle.counters().done_bytes == lapsed_bytes <= 4 * MIB
    throttle.set_rate(None)
    future.result(LIMIT_S)


def test_values_that_are_not_finite_cost_no_byte(desk: Desk, guardian: Guardian) -> None:
    """The writer looks at them while it plans, and goes on living."""
    throttle = Throttle()  # no rate is needed for that
    assert failed(desk.begin(1, {"t": torch.tensor([1.0, float("nan")])}, throttle)) == "not_finite"
    assert (throttle.counters().done_bytes, desk.first_bytes) == (0, [])
    pid = guardian.pid
    assert desk.begin(2, {"t": torch.tensor(float("inf"))}, check_finite=False).result(LIMIT_S)
    assert guardian.pid == pid


def test_an_abort_stops_it_within_a_chunk(desk: Desk, guardian: Guardian) -> None:
    """With the reason that was given, and the same writer makes the next save."""
    throttle = at_rate(4 * MIB)
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: throttle.counters().done_bytes >= MIB, what="some bytes")
    pid = guardian.pid
    throttle.abort("revoked")
    before_s = CLOCK.now()
    assert failed(future) == "revoked"
    assert CLOCK.now() - before_s < 2.0
    assert throttle.counters().done_bytes < 8 * MIB
    assert no_checkpoint(desk.root)
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid == pid


def test_signals_that_announce_the_end_are_not_for_the_writer(desk: Desk, guardian: Guardian) -> None:
    """They reach all processes of a job; the save that follows them is written by this one."""
    desk.begin(1, LARGE).result(LIMIT_S)
    pid = guardian.pid
    assert pid is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        os.kill(pid, number)
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid == pid


def test_a_newer_attempt_fences_the_writer(desk: Desk) -> None:
    """The claim is looked at where the commit is made."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    desk.root.claim_attempt()
    throttle.set_rate(None)
    assert failed(future) == "superseded"
    assert no_checkpoint(desk.root)


@pytest.mark.skipif(not may_mount(), reason="mounting a small file system needs root")
def test_a_full_disk_costs_only_this_save(tmp_path: Path, guardian: Guardian) -> None:
    """The reason is the storage's, word for word as from a thread."""
    with small_disk(tmp_path / "small", 8 * MIB) as disk:
        desk = Desk(Root(disk / "root"), guardian)
        future = desk.begin(1, LARGE)
        assert failed(future) == "enospc"
        assert "No space left" in str(future.exception())
        for directory in disk.glob("root/step-*"):
            for file in directory.iterdir():
                file.unlink()
        desk.begin(2, {"t": torch.ones(1000)}).result(LIMIT_S)


def test_a_root_that_is_gone_is_told_as_such(desk: Desk) -> None:
    """No directory, no claim: the words for people come over as they are."""
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    (desk.root.path / "attempts").rename(desk.root.path / "elsewhere")
    throttle.set_rate(None)
    assert failed(future) == "enoent"
    assert "attempts is gone" in str(future.exception())


# -- a writer that is lost -------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the watch, shorter than in the product."""
    monkeypatch.setattr(watch, "SILENT_S", 1.0)
    monkeypatch.setattr(watch, "STANDSTILL_S", 1.0)
    monkeypatch.setattr(watch, "OBEDIENCE_S", 1.0)


@pytest.fixture
def gate(guardian: Guardian) -> Path:
    """Known to the writer from its start on."""
    return Path(os.environ[GATE])


def _armed(desk: Desk) -> tuple[Any, Throttle]:
    throttle = Throttle()
    future = desk.begin(1, LARGE, throttle)
    wait_for(lambda: desk.first_bytes, what="the first byte in hand")
    return future, throttle


def _writing(desk: Desk) -> tuple[Any, Throttle]:
    future, throttle = _armed(desk)
    throttle.set_rate(2 * MIB)
    wait_for(lambda: throttle.counters().done_bytes > 0, what="some bytes")
    return future, throttle


def _before_the_commit(desk: Desk) -> tuple[Any, Throttle]:
    Path(os.environ[GATE]).touch()
    throttle = at_rate(None)
    future = desk.begin(1, LARGE, throttle, writer_class=HeldBeforeCommit)
    wait_for(lambda: throttle.counters().done_bytes >= 16 * MIB, what="all bytes")
    return future, throttle


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("bring", [_armed, _writing, _before_the_commit])
def test_a_writer_that_is_killed_or_stopped_costs_one_save(
    desk: Desk, guardian: Guardian, bring: Any, number: signal.Signals, gate: Path
) -> None:
    """At any stage it is noticed within the limits, nothing is committed, and another one makes the next save."""
    desk.begin(0, {"t": torch.ones(1)}).result(LIMIT_S)
    desk.first_bytes.clear()
    pid = guardian.pid
    assert pid is not None
    future, _ = bring(desk)
    before_s = CLOCK.now()
    os.kill(pid, number)
    assert failed(future) == "writer_lost"
    assert CLOCK.now() - before_s < 3.0
    assert not is_running(pid)
    gate.unlink(missing_ok=True)
    assert [name.step for name in desk.root.committed_steps()] == [0]
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid != pid
    assert [name.step for name in desk.root.committed_steps()] == [2, 0]


@pytest.mark.usefixtures("impatient")
def test_a_writer_that_dies_between_two_saves_costs_none(desk: Desk, guardian: Guardian) -> None:
    """The save waits for the next one."""
    desk.begin(1, LARGE).result(LIMIT_S)
    pid, writer = guardian.pid, guardian._writer
    assert pid is not None
    assert writer is not None
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not writer.is_alive, what="its end")
    desk.begin(2, LARGE).result(LIMIT_S)
    assert guardian.pid != pid


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("is_aborted", [True, False])
def test_a_writer_that_hangs_in_the_storage_is_ended(
    desk: Desk, guardian: Guardian, gate: Path, is_aborted: bool
) -> None:
    """It beats and does nothing: the save is lost with the reason `no_progress`, the lease is not held by it."""
    future, throttle = _before_the_commit(desk)
    pid = guardian.pid
    if is_aborted:
        throttle.abort("revoked")
    assert failed(future) == "no_progress"
    gate.unlink()
    assert pid is not None
    assert not is_running(pid)
    desk.begin(2, LARGE).result(LIMIT_S)


def test_nothing_grows_from_save_to_save(desk: Desk, guardian: Guardian) -> None:
    """Thirty saves cost no state more than the first ten, and no thread or descriptor more, on either side."""
    state = {f"t{i}": torch.ones(MIB // 8) for i in range(16)}
    for step in range(30):
        desk.begin(step, state).result(LIMIT_S)
        if step == 10:
            early_bytes, early_held = _memory_of(guardian), _held_by(guardian)
    for before_bytes, after_bytes in zip(early_bytes, _memory_of(guardian), strict=True):
        assert after_bytes <= before_bytes + 8 * MIB
    wait_for(  # a thread that has ended stands in /proc for a moment
        lambda: all(now <= early for now, early in zip(_held_by(guardian), early_held, strict=True)),
        what="the last threads to be gone",
        limit_s=5.0,
    )


def _memory_of(guardian: Guardian) -> list[int]:
    assert guardian.pid is not None
    return [rss_bytes(os.getpid()), rss_bytes(guardian.pid)]


def _held_by(guardian: Guardian) -> list[int]:
    """Descriptors and threads of both processes."""
    held = [f"/proc/{pid}/{what}" for pid in ("self", guardian.pid) for what in ("fd", "task")]
    return [len(list(Path(path).iterdir())) for path in held]


def test_a_state_that_grows_is_written_whole(desk: Desk) -> None:
    """The writer is handed the larger memory, and lets go of the other."""
    desk.begin(1, {"t": torch.ones(10)}).result(LIMIT_S)
    large = torch.arange(100_000)
    desk.begin(2, {"t": large}).result(LIMIT_S)
    state = {"t": torch.zeros_like(large)}
    restore(desk.root, state)
    assert torch.equal(state["t"], large)


# -- lives of guardians ----------------------------------------------------------------------------------------


class NoWriter:
    """What cannot be started."""

    def __init__(self) -> None:
        raise OSError(12, "Cannot allocate memory")


def test_after_two_losses_there_is_no_writer_any_more(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    """One warning says so, with the reason."""
    guardian = Guardian(CLOCK, NoWriter)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        guardian.warm_up()
        wait_for(lambda: not guardian.is_usable, what="two failed starts")
        guardian.warm_up()
        assert failed(Desk(root, guardian).begin(1, LARGE)) == "writer_lost"
    (record,) = caplog.records
    assert "in a thread of training from now on" in record.message
    assert "Cannot allocate memory" in record.message
    guardian.close()


class SlowStart(HiredWriter):
    """Is not ready for as long as it is asked."""

    def has_started(self, limit_s: float) -> bool:
        CLOCK.sleep(limit_s)
        return False


def test_an_abort_ends_the_wait_for_a_writer_that_starts(root: Root) -> None:
    """Starting may take a minute on a slow file system; a save that is given up does not wait for it."""
    guardian = Guardian(CLOCK, SlowStart)
    throttle = Throttle()
    future = Desk(root, guardian).begin(1, LARGE, throttle)
    throttle.abort("revoked")
    error = future.exception(2.0)
    assert isinstance(error, LeaseLost)
    assert str(error) == "revoked"
    guardian.close()


def test_closing_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is still starting, idle or stopped."""
    monkeypatch.setattr("rampmeter.daemon.guardian.END_LIMIT_S", 0.2)
    hired: list[HiredWriter] = []

    def hire() -> HiredWriter:
        hired.append(HiredWriter())
        return hired[-1]

    starting = Guardian(CLOCK, hire)
    starting.warm_up()
    wait_for(lambda: hired, what="the start")
    starting.close()
    wait_for(lambda: not hired[0].is_alive, what="its end")
    stopped = Guardian(CLOCK, hire)
    stopped.warm_up()
    wait_for(lambda: stopped.pid, what="the start")
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGSTOP)
    stopped.close()
    assert not hired[1].is_alive
