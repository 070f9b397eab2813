"""Why a job says that it ends, and what it measured by then: real training loops without a coordinator."""

import contextlib
import signal

import pytest

import rampmeter
from rampmeter.core.messages import EndReason, Survives
from rampmeter.core.pacer import Action
from rampmeter.figures import Figures
from rampmeter.keeper import Keeper
from rampmeter.stepwatch import StepWatch
from support.training import Run


@pytest.fixture
def said(monkeypatch):
    """The reasons with which keepers are closed."""
    reasons = []
    close = Keeper.close

    def note(self, limit_s, reason):
        reasons.append(reason)
        close(self, limit_s, reason)

    monkeypatch.setattr(Keeper, "close", note)
    return reasons


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, EndReason.FINISHED),
        (KeyboardInterrupt(), EndReason.CANCELLED),
        (SystemExit(0), EndReason.FINISHED),
        (SystemExit(1), EndReason.FAILED),
        (ValueError("mine"), EndReason.FAILED),
    ],
)
def test_leaving_the_with_statement_says_why(tmp_path, said, error, reason):
    """As the exception has it, which goes on its way."""
    with contextlib.suppress(type(error) if error else ()), rampmeter.Checkpointer(tmp_path):
        if error is not None:
            raise error
    assert said == [reason]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), SystemExit(75)])
def test_after_a_notice_the_job_was_preempted_however_it_leaves(tmp_path, said, error):
    """A supervisor that ends a job sends both, the notice and then something else."""
    with contextlib.suppress(type(error) if error else ()), rampmeter.Checkpointer(tmp_path):
        signal.raise_signal(signal.SIGUSR1)
        if error is not None:
            raise error
    assert said == [EndReason.PREEMPTED]


def test_a_bad_tier_is_named_at_the_start(tmp_path):
    """Before anything is touched."""
    with pytest.raises(rampmeter.ConfigError, match="survives must be `node` or `site`"):
        rampmeter.Checkpointer(tmp_path / "root", survives="rack")
    assert not (tmp_path / "root").exists()


def test_what_checkpoints_are_for_comes_from_the_call(tmp_path):
    """The registration tells it on."""
    with rampmeter.Checkpointer(tmp_path, survives="site") as ckpt:
        assert ckpt._taking.voice.speech.settings.survives is Survives.SITE


def test_a_restart_is_measured_as_it_happens(tmp_path):
    """Loading and the rest of the way to the first step; going back by name is told as such."""
    run, step = Run(), 0
    with rampmeter.Checkpointer(tmp_path, interval_max_s=1.0, mtbf_s=1e6) as ckpt:
        while len(list(tmp_path.glob("step-*/MANIFEST.json"))) < 2:
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
    older, newest = sorted(int(path.name.split(".")[0][5:]) for path in tmp_path.glob("step-*"))[-2:]
    for wanted, rolled_back in ((None, False), (older, True)):
        again = Run()
        with rampmeter.Checkpointer(tmp_path) as ckpt:
            restored = ckpt.restore(again.state, step=wanted)
            again.train_one()
            ckpt.step(restored + 1, again.state)
            took_s = ckpt._clock.now() - ckpt._taking.voice.desk._pacer.started_s
            beat, _ = ckpt._taking.voice.desk.word(Action.HEARTBEAT)
        assert (beat.restored_step, beat.rolled_back) == (wanted or newest, rolled_back)
        assert min(beat.load_s, beat.warm_up_s) > 0.0
        assert beat.load_s + beat.warm_up_s <= took_s


def test_each_flush_is_timed_from_the_end_of_its_stall_on(tmp_path, monkeypatch):
    """The snapshot, then the flush, then its end: what training stands still for is before the flush."""
    run, step, seen = Run(), 0, []

    def noted(name, call):
        def note(self, **fields):
            seen.append((name, self._clock.now()))
            return call(self, **fields)

        return note

    for name in ("snapshot_begins", "flush_begins", "flush_ended"):
        monkeypatch.setattr(StepWatch, name, noted(name, getattr(StepWatch, name)))
    with rampmeter.Checkpointer(tmp_path, interval_max_s=1.0) as ckpt:
        while ckpt.last_save is None:
            run.train_one()
            step += 1
            ckpt.step(step, run.state)
        report = ckpt.last_save
    assert [name for name, _ in seen][:3] == ["snapshot_begins", "flush_begins", "flush_ended"]
    assert seen[1][1] - seen[0][1] >= report.stall_s


def test_a_job_alone_chooses_its_period_by_what_flushes_cost_it(tmp_path):
    """M of 10^6 s, no stall, a tenth lost beside 50 s at work: sqrt(2 x 5 x 10^6)."""
    figures = Figures()
    figures.stall_s, figures.write_s, figures.at_work_s, figures.eps = 0.0, 60.0, 50.0, 0.1
    with rampmeter.Checkpointer(tmp_path, mtbf_s=1e6) as ckpt:
        assert ckpt._taking.voice._own_period(figures) == pytest.approx(1e7**0.5)
