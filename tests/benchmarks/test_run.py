"""The command behind `make bench`: which suites it runs, and where their figures go."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import run
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
    run.main()
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
