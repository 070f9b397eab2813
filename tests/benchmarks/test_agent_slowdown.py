"""The figures of steps beside a flush: which there are, and that the sides take turns."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from benchmarks import agent_slowdown
from benchmarks.agent_slowdown import Beside, measure, one_round, ratio


def test_both_ways_of_ours_are_held_against_both_of_plain_dcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With real saves of a tiny state, whose files are gone afterwards; `auto` is the pair that a user has."""
    monkeypatch.setattr(agent_slowdown, "STATES", {"tiny": (3, 100)})
    found = measure(tmp_path, num_rounds=2)
    pairs = [
        f".{ours}_over_plain_{theirs}" for ours in ("thread", "process") for theirs in ("thread", "process")
    ]
    assert found.keys() == {f"agent.slowdown_ratio.tiny{pair}" for pair in ["", *pairs]}
    assert all(entry["runs"] == 2 and entry["value"] > 0.0 for entry in found.values())
    assert found["agent.slowdown_ratio.tiny"] == found["agent.slowdown_ratio.tiny.thread_over_plain_thread"]
    assert list(tmp_path.iterdir()) == []


def test_each_round_begins_with_another_side(tmp_path: Path) -> None:
    """What one leaves behind for the next is spread over all; the answers are in the order of the sides."""
    begun: list[int] = []

    def side(index: int) -> agent_slowdown.Begin:
        def begin(_number: int) -> "Future[None]":
            begun.append(index)
            done: Future[None] = Future()
            done.set_result(None)
            return done

        return begin

    for number in range(3):
        one_round(tmp_path, [side(0), side(1), side(2)], number)
    assert begun == [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_rounds_are_paired() -> None:
    """A round in which the machine was twice as slow for both says the same as the others."""
    theirs = (Beside(step_s=1.0, flush_s=4.0), Beside(step_s=2.0, flush_s=6.0))
    ours = (Beside(step_s=1.5, flush_s=2.0), Beside(step_s=3.0, flush_s=8.0))
    found = ratio(ours, theirs, 0.5)
    assert (found["value"], found["low"], found["high"]) == (1.5, 1.5, 1.5)
    assert (found["ours_over_quiet"], found["plain_over_quiet"]) == (4.5, 3.0)
    assert (found["ours_flush_s"], found["plain_flush_s"]) == (5.0, 5.0)
