"""The object that a training loop holds, without a coordinator: a complete local checkpointer."""

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import rampmeter
from rampmeter.core.errors import ConfigError, SavesFailing
from rampmeter.core.messages import FailReason
from rampmeter.core.pacer import Governance
from rampmeter.events import Restored, SaveEnded, SaveHeldBack
from rampmeter.layout import Root
from rampmeter.retention import Keep, read_keep
from support.roots import put_leftover
from support.training import Run, tensors
from support.waiting import wait_for

OFTEN = {"interval_max_s": 1.0, "mtbf_s": 1e6}
SRC = str(Path(__file__).parent.parent)


def train_until(ckpt, run, step, condition, limit_steps=20_000):
    """Train until `condition` holds; returns the step."""
    for _ in range(limit_steps):
        if condition():
            return step
        run.train_one()
        step += 1
        ckpt.step(step, run.state)
    raise AssertionError(f"the condition did not come true within {limit_steps} steps")


def committed(events):
    return [e for e in events if isinstance(e, SaveEnded) and e.reason is None]


def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path):
    """Weights, moments, schedule, dropout masks and data order go on as if nothing had happened."""
    events, first = [], Run()
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, **OFTEN) as ckpt:
        assert ckpt.restore(first.state) is None
        train_until(ckpt, first, 0, lambda: len(committed(events)) >= 2)
    for _ in range(50):
        first.train_one()
    second = Run(seed=99)
    with rampmeter.Checkpointer(tmp_path, **OFTEN) as ckpt:
        step = ckpt.restore(second.state)
    for _ in range(len(first.losses) - step):
        second.train_one()
    assert second.losses == first.losses[step:]
    assert all(torch.equal(a, b) for a, b in zip(tensors(first), tensors(second), strict=True))


def test_local_saves_are_no_ungoverned_saves(tmp_path):
    """Without a coordinator nobody is missed."""
    events, run = [], Run()
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, **OFTEN) as ckpt:
        train_until(ckpt, run, 0, lambda: committed(events))
        assert ckpt.num_ungoverned == 0
    assert {e.governance for e in committed(events)} == {Governance.LOCAL}


def test_keep_bounds_what_stays_on_disk(tmp_path):
    """keep = 2: two checkpoints after four."""
    events, run = [], Run()
    with rampmeter.Checkpointer(tmp_path, keep=2, keep_days=0, on_event=events.append, **OFTEN) as ckpt:
        train_until(ckpt, run, 0, lambda: len(committed(events)) >= 4)
    assert len(list(tmp_path.glob("step-*"))) == 2


def test_what_stays_is_the_jobs_choice_and_on_record(tmp_path):
    """Days and milestones beside the newest; who prunes by hand finds it; leftovers of earlier attempts go."""
    put_leftover(Root(tmp_path), 9, 0)
    with rampmeter.Checkpointer(tmp_path, keep=5, keep_days=2, milestone_steps=100):
        pass
    assert read_keep(Root(tmp_path)) == Keep(keep=5, keep_days=2, milestone_steps=100)
    assert not list(tmp_path.glob("step-*"))


@pytest.mark.parametrize("name", ["keep", "milestone_steps"])
def test_keeping_nothing_is_refused_at_the_start(tmp_path, name):
    """Named, before anything is touched."""
    with pytest.raises(rampmeter.ConfigError, match=name):
        rampmeter.Checkpointer(tmp_path / "root", **{name: 0})
    assert not (tmp_path / "root").exists()


def test_a_callable_state_is_called_only_for_saves(tmp_path):
    """Once for the size, then once per save."""
    events, run, calls = [], Run(), []

    def state():
        calls.append(1)
        return run.state

    step = 0
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, **OFTEN) as ckpt:
        while not committed(events):
            run.train_one()
            step += 1
            ckpt.step(step, state)
    assert len(calls) == 1 + len(committed(events))


def test_restore_tells_and_names_what_it_loaded(tmp_path):
    """An event for whoever watches."""
    events, run = [], Run()
    with rampmeter.Checkpointer(tmp_path, on_event=events.append, **OFTEN) as ckpt:
        train_until(ckpt, run, 0, lambda: committed(events))
    again = []
    with rampmeter.Checkpointer(tmp_path, on_event=again.append, **OFTEN) as ckpt:
        step = ckpt.restore(Run().state)
    assert [(e.step, e.skipped) for e in again if isinstance(e, Restored)] == [(step, ())]


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3)])
def test_a_listener_that_raises_does_no_harm(tmp_path, error):
    """What on_event raises is logged; saves go on."""
    run, calls = Run(), []

    def listener(event):
        calls.append(event)
        raise error

    with rampmeter.Checkpointer(tmp_path, on_event=listener, **OFTEN) as ckpt:
        train_until(ckpt, run, 0, lambda: ckpt.last_save is not None)
        assert ckpt.last_save.committed


def test_it_is_for_one_with_statement(tmp_path):
    """A second one is refused before anything is begun, and the first is not disturbed by it."""
    with rampmeter.Checkpointer(tmp_path, **OFTEN) as ckpt:
        with pytest.raises(ConfigError, match="make a new one"), ckpt:
            pass
        train_until(ckpt, Run(), 0, lambda: ckpt.last_save is not None)
    num_threads = threading.active_count()
    with pytest.raises(ConfigError, match="make a new one"):
        ckpt.__enter__()
    assert threading.active_count() == num_threads


def test_a_state_that_cannot_be_had_does_not_reach_training(tmp_path):
    """A callable that raises fails the save and nothing else; the next save works."""
    run, broken = Run(), [True]

    def state():
        if broken:
            raise ValueError("mine")
        return run.state

    step = 0
    with rampmeter.Checkpointer(tmp_path, **OFTEN) as ckpt:
        while ckpt.last_save is None or not ckpt.last_save.committed:
            run.train_one()
            step += 1
            ckpt.step(step, state)
            if ckpt.last_save is not None and broken:
                assert ckpt.last_save.reason == "bad_state"
                broken.clear()
            assert step < 20_000


def test_a_state_of_the_wrong_kind_is_named(tmp_path, caplog):
    """A list is no state: the log says what one is."""
    with rampmeter.Checkpointer(tmp_path) as ckpt:
        ckpt.step(1, [])
    assert "state must be a dict or return one, not list" in caplog.text


@pytest.mark.parametrize("stands", ["nothing", "an empty directory"])
def test_a_root_that_is_taken_away_gets_no_save_and_says_so(tmp_path, caplog, stands):
    """Nothing is committed into what stands in its place, training goes on, and the message says what to do."""
    root, run, events = tmp_path / "root", Run(), []
    with rampmeter.Checkpointer(root, on_event=events.append, **OFTEN) as ckpt:
        shutil.rmtree(root)
        if stands != "nothing":
            root.mkdir()
        failed = (SaveEnded, SaveHeldBack)
        train_until(ckpt, run, 0, lambda: any(isinstance(event, failed) for event in events))
    assert {event.reason for event in events if isinstance(event, failed)} == {FailReason.ENOENT}
    assert "bring it back" in caplog.text
    assert not list(root.glob("step-*"))


def test_claims_that_cannot_be_read_for_a_while_end_nothing(tmp_path, caplog):
    """Without a coordinator a writer reads the claims first: it waits until it can, and then the save is committed."""
    claims, away, run = tmp_path / "attempts", tmp_path / "away", Run()
    with rampmeter.Checkpointer(tmp_path, coordinator="http://127.0.0.1:9", **OFTEN) as ckpt:
        claims.rename(away)
        claims.write_text("no directory")
        train_until(ckpt, run, 0, lambda: "the root cannot be used" in caplog.text, limit_steps=10**6)
        claims.unlink()
        away.rename(claims)
        train_until(ckpt, run, 0, lambda: ckpt.last_save is not None, limit_steps=10**6)
        assert ckpt.last_save.committed


def test_an_evaluation_is_left_for_the_save_of_a_notice(tmp_path):
    """`poll` is true from the notice on, `should_stop` only once the save has ended."""
    run = Run()
    with rampmeter.Checkpointer(tmp_path, interval_min_s=1000.0) as ckpt:
        assert not ckpt.poll()
        signal.raise_signal(signal.SIGUSR1)
        assert (ckpt.poll(), ckpt.should_stop) == (True, False)
        train_until(ckpt, run, 0, lambda: ckpt.should_stop)
        assert ckpt.last_save.committed


def test_without_with_the_message_says_what_to_do(tmp_path):
    """A checkpointer that nobody has entered names the `with` statement."""
    ckpt = rampmeter.Checkpointer(tmp_path)
    for use in (lambda: ckpt.step(1, {}), lambda: ckpt.restore({})):
        with pytest.raises(rampmeter.ConfigError, match="use `with rampmeter"):
            use()


def test_a_step_after_the_end_saves_nothing(tmp_path):
    """A save that was granted but not begun when the job was closed is not begun any more."""
    run = Run()
    with rampmeter.Checkpointer(tmp_path) as ckpt:
        signal.raise_signal(signal.SIGUSR1)
        wait_for(lambda: ckpt._taking.voice.desk.wants_snapshot, what="the right to save")
    ckpt.step(1, run.state)
    assert ckpt.last_save is None


def test_works_in_a_thread_without_signals(tmp_path):
    """C108: outside the main thread signals are left alone and saving works."""
    before = signal.getsignal(signal.SIGTERM)
    result = []

    def work():
        events, run = [], Run()
        with rampmeter.Checkpointer(tmp_path, on_event=events.append, **OFTEN) as ckpt:
            train_until(ckpt, run, 0, lambda: committed(events))
        result.append(len(committed(events)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert result
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_handlers_are_put_back(tmp_path):
    """After the job the process is as it was before."""
    before = signal.getsignal(signal.SIGTERM)
    with rampmeter.Checkpointer(tmp_path):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_thread_is_left(tmp_path):
    """The keeper ends with the job."""
    with rampmeter.Checkpointer(tmp_path):
        wait_for(lambda: any(t.name == "rampmeter-keeper" for t in threading.enumerate()), what="the keeper")
    assert not any(t.name == "rampmeter-keeper" for t in threading.enumerate())


@pytest.mark.parametrize("root", ["", "/proc/nothing/here"])
def test_a_root_that_cannot_be_used_is_named_at_the_start(root):
    """ConfigError, before training has begun."""
    with pytest.raises(rampmeter.ConfigError, match="root"), rampmeter.Checkpointer(root):
        pass


PREEMPTED = """
import os, signal, sys
sys.path.insert(0, {src!r})
from support.training import Run
import rampmeter
run, step = Run(), 0
with rampmeter.Checkpointer({root!r}, interval_min_s=1000.0) as ckpt:
    while not ckpt.should_stop:
        run.train_one(); step += 1
        ckpt.step(step, run.state)
        if step == 30:
            os.kill(os.getpid(), signal.SIGTERM)
        assert step < 100_000
sys.exit(ckpt.exit_code)
"""


def test_sigterm_saves_once_more_and_exits_75(tmp_path):
    """A notice: one save at once, should_stop, an exit code that supervisors requeue."""
    script = PREEMPTED.format(src=SRC, root=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], timeout=120, check=False)
    assert done.returncode == 75
    with rampmeter.Checkpointer(tmp_path) as ckpt:
        assert ckpt.restore(Run().state) >= 30


LIGHT = """
import sys, threading, time
start = time.perf_counter()
import rampmeter
took = time.perf_counter() - start
heavy = {"torch", "pydantic", "fastapi", "redis", "numpy", "httpx"} & set(sys.modules)
assert not heavy, heavy
assert threading.active_count() == 1
print(took)
"""


def test_import_is_light():
    """No torch, pydantic, fastapi or redis, no thread."""
    subprocess.run([sys.executable, "-c", LIGHT], timeout=60, check=True)


def test_the_first_use_draws_no_random_number():
    """It imports other people's modules, of which some draw one: a run without checkpoints must be the same run."""
    script = "import random, rampmeter; random.seed(1); before = random.getstate(); rampmeter.Checkpointer; "
    check = script + "assert random.getstate() == before"
    subprocess.run([sys.executable, "-c", check], timeout=120, check=True)


def test_public_names_are_what_all_says():
    """__all__ and the real surface are the same."""
    assert all(hasattr(rampmeter, name) for name in rampmeter.__all__)
    assert list(rampmeter.__all__) == sorted(rampmeter.__all__)


def _fail_until(num_failed, root, **options):
    """Train with a state that no save takes, until so many have failed; the reasons of those that did."""
    events, run, step = [], Run(), 0
    state = run.state | {"bad": torch.tensor([float("nan")])}
    reasons = []
    with rampmeter.Checkpointer(root, on_event=events.append, interval_max_s=0.1, **options) as ckpt:
        while len(reasons) < num_failed:
            run.train_one()
            step += 1
            ckpt.step(step, state)
            reasons = [event.reason for event in events if isinstance(event, SaveEnded)]
    return reasons


def test_saves_that_fail_raise_only_if_asked_to(tmp_path):
    """With raise_after=2 the second failure in a row ends training, with its reason; without it nothing does."""
    assert _fail_until(4, tmp_path / "a") == [FailReason.NOT_FINITE] * 4
    with pytest.raises(SavesFailing, match=r"2 saves in a row have failed, .* with `not_finite`"):
        _fail_until(4, tmp_path / "b", raise_after=2)


@pytest.mark.parametrize("raise_after", [0, -1, 1.5, True, "2"])
def test_raise_after_is_a_whole_number(tmp_path, raise_after):
    """Refused at the start, by name."""
    with pytest.raises(ConfigError, match="raise_after"):
        rampmeter.Checkpointer(tmp_path, raise_after=raise_after)
