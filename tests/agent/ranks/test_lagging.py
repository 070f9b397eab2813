"""A rank that calls `step()` less often than rank 0 is told of, once, with what to do."""

import logging
from pathlib import Path

import pytest

from rampmeter.ranks.lagging import FEWEST_CALLS, LONGEST_LAG_S, lag
from rampmeter.ranks.telling import Teller
from support.rank_programs import Ranks

STEP_S = 0.5
JUST_ENOUGH = int(LONGEST_LAG_S / STEP_S)


def test_who_is_twenty_seconds_of_calls_behind_is_named() -> None:
    """The one that is farthest behind, with both counts."""
    told = lag({0: 100, 1: 100 - JUST_ENOUGH, 2: 90}, STEP_S)
    assert told == (
        f"rank 1 has called step() {100 - JUST_ENOUGH} times and rank 0 100 times: "
        "until all ranks call it equally often nothing is saved"
    )


@pytest.mark.parametrize(
    ("num_calls", "step_s"),
    [
        ({0: 100, 1: 101 - JUST_ENOUGH}, STEP_S),
        ({0: 100, 1: 300}, STEP_S),
        ({0: FEWEST_CALLS - 1, 1: 0}, 3600.0),
        ({0: 100, 1: 0}, None),
        ({}, STEP_S),
    ],
)
def test_ranks_that_may_only_be_slow_are_not_named(num_calls: dict[int, int], step_s: float | None) -> None:
    """A little behind, ahead of rank 0, a few long steps behind, at a pace that is not known."""
    assert lag(num_calls, step_s) == ""


def test_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """However long it goes on."""
    teller = Teller(0)
    with caplog.at_level(logging.WARNING, logger="rampmeter"):
        for trouble in ("", "rank 1 lags", "", "rank 1 lags"):
            teller.lags(trouble)
    assert [record.getMessage() for record in caplog.records] == ["rank 1 lags"]


def test_a_job_in_which_only_rank_0_calls_step_is_told_so(ranks: Ranks, tmp_path: Path) -> None:
    """`if rank == 0: ckpt.step(...)` saves nothing: that must not stay unsaid until the end."""
    told, _ = ranks.answers(
        2,
        tmp_path,
        """
import logging, time
import rampmeter
from rampmeter.ranks import lagging
lagging.LONGEST_LAG_S = 1.0
answer = []
handler = logging.Handler(logging.WARNING)
handler.emit = lambda record: answer.append(record.getMessage())
logging.getLogger("rampmeter").addHandler(handler)
over, step, end_s = root.path / "over", 0, time.monotonic() + 30.0
with rampmeter.Checkpointer(root.path / "run", interval_max_s=0.1, seed=1) as ckpt:
    ckpt.restore({"weights": torch.ones(10)})
    while time.monotonic() < end_s and not over.exists():
        if rank == 0:
            step += 1
            ckpt.step(step, {"weights": torch.ones(10)})
        if any("has called step()" in line for line in answer):
            over.touch()
        time.sleep(0.01)
""",
    )
    lines = [line for line in told if "has called step()" in line]
    assert len(lines) == 1
    assert lines[0].startswith("rank 1 has called step() 0 times and rank 0 ")
