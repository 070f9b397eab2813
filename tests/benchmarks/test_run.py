"""The command behind `make bench`: which suites it runs, and where their figures go."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import run
from benchmarks.promises import PROMISES, is_missed, promise_of
from benchmarks.summary import summary


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two suites that measure nothing, and where their figures go."""
    suites = {
        "one": lambda: {"one.us": summary([1.0], "us")},
        "two": lambda: {"two.us": summary([2.0], "us")},
    }
    for suite in suites.values():
        suite.__doc__ = "Nothing."
    path = tmp_path / "build" / "bench.json"
    monkeypatch.setattr(run, "SUITES", suites)
    monkeypatch.setattr(run, "OUTPUT", path)
    return path


@pytest.mark.parametrize(("named", "names"), [([], {"one.us", "two.us"}), (["two"], {"two.us"})])
def test_all_suites_run_where_none_is_named(
    output: Path, monkeypatch: pytest.MonkeyPatch, named: list[str], names: set[str]
) -> None:
    """And only those that are."""
    monkeypatch.setattr(sys, "argv", ["run.py", *named])
    assert run.main() == 0
    assert set(json.loads(output.read_text())) == names


def test_an_unknown_suite_is_refused_by_name(
    output: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured."""
    monkeypatch.setattr(sys, "argv", ["run.py", "one", "three"])
    with pytest.raises(SystemExit) as caught:
        run.main()
    assert caught.value.code == 2
    assert "no such suite: three" in capsys.readouterr().err
    assert not output.exists()


def entry(value: float) -> dict[str, object]:
    return summary([value])


@pytest.mark.parametrize(
    ("name", "kept", "missed"),
    [
        ("ledger.apply_us", 6.0, 6.01),
        ("engine.cpu_us_per_decision.sqlite.100", 25.0, 25.1),
        ("engine.cpu_us_per_decision.redis.100000", 25.0, 25.1),
        ("engine.size_ratio.memory", 1.5, 1.51),
        ("http.cpu_us_per_request.redis", 170.0, 170.1),
        ("agent.stall_ratio", 1.0, 1.001),
        ("agent.stall_reused_ratio", 1.05, 1.051),
        ("agent.step_idle_us", 20.0, 20.1),
        ("agent.loop_ratio", 0.98, 0.979),
        ("agent.flush_ratio.disk", 1.0, 1.001),
        ("agent.lease_error_ratio", 0.02, 0.021),
        ("restore.verified_ratio", 1.25, 1.251),
    ],
)
def test_each_bound_of_the_design_is_one(name: str, kept: float, missed: float) -> None:
    """The bound itself is kept, what is beyond it is missed; so is a figure that could not be worked out."""
    assert not is_missed(name, entry(kept))
    assert is_missed(name, entry(missed))
    assert is_missed(name, {"value": float("nan")})


def test_figures_without_a_promise_break_none() -> None:
    """Those that say where time goes, or hold our two ways against each other."""
    names = ["http.wake_ms", "engine.cpu_us_per_decision.memory.100", "agent.slowdown_ratio.large"]
    assert [promise_of(name) for name in names] == [None] * 3
    assert not any(is_missed(name, entry(1e9)) for name in names)
    assert len(PROMISES) == 12


@pytest.fixture
def measured(output: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One figure that keeps its promise and one that misses it, each in a suite of its own."""
    monkeypatch.setitem(run.SUITES, "one", lambda: {"ledger.apply_us": summary([5.5], "us")})
    monkeypatch.setitem(run.SUITES, "two", lambda: {"agent.loop_ratio": summary([0.9])})
    return output


def test_a_missed_promise_is_seen(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the exit code, by name, and each figure stands beside its promise; the figures are written all the same."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == 1
    shown = capsys.readouterr()
    (kept,) = [line for line in shown.err.splitlines() if "ledger.apply_us" in line]
    assert "5.5" in kept
    assert "<= 6" in kept
    (beside, last) = [line for line in shown.err.splitlines() if "agent.loop_ratio" in line]
    assert "0.9" in beside
    assert ">= 0.98" in beside
    assert last == "missed: agent.loop_ratio"
    assert shown.out == ""
    assert set(json.loads(measured.read_text())) == {"ledger.apply_us", "agent.loop_ratio"}


def test_a_run_answers_for_its_own_figures(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an earlier run has missed stays in the file and in the table; the exit code and --json are of this one."""
    monkeypatch.setattr(sys, "argv", ["run.py", "two"])
    assert run.main() == 1
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["run.py", "one", "--json"])
    assert run.main() == 0
    shown = capsys.readouterr()
    told = json.loads(shown.out)
    assert told.keys() == {"ledger.apply_us"}
    assert (told["ledger.apply_us"]["promise"], told["ledger.apply_us"]["kept"]) == ("<= 6", True)
    assert "agent.loop_ratio" in shown.err


def test_json_says_which_promise_is_missed(
    measured: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And which figure has none."""
    monkeypatch.setitem(run.SUITES, "one", lambda: {"http.wake_ms": summary([1.0], "ms")})
    monkeypatch.setattr(sys, "argv", ["run.py", "--json"])
    assert run.main() == 1
    told = json.loads(capsys.readouterr().out)
    assert {name: (entry["promise"], entry["kept"]) for name, entry in told.items()} == {
        "agent.loop_ratio": (">= 0.98", False),
        "http.wake_ms": (None, True),
    }
