"""All or nothing on all ranks: what one rank finds is the answer of every rank, and no rank ever waits for ever."""

import os
from pathlib import Path
from typing import Any

import pytest

from rampmeter.layout import Root
from support.rank_programs import Ranks
from support.roots import flip, put_leftover

SAVE = """
training = Training("ddp", seed=1)
for step in (1, 2):
    training.train(1)
    commit_together(root, step, training.state, group)
"""

LOAD = """
training = Training(kind, seed=2)
training.train(1)
before = held(training)
state = training.state
CHANGE
try:
    found = restore(root, state, step=step, group=group)
    answer = None if found is None else [found.step, found.directory, list(found.skipped), found.rolled_back]
except Exception as error:
    answer = [type(error).__name__, str(error)]
    assert held(training) == before, "touched"
    assert training.loader.value == 2001 + 10 * rank
"""


@pytest.fixture
def saved(ranks: Ranks, tmp_path: Path) -> Root:
    """Steps 1 and 2, saved by two ranks."""
    ranks.answers(2, tmp_path, SAVE)
    return Root(tmp_path)


def _load(
    ranks: Ranks, root: Root, change: str = "", *, num: int = 2, kind: str = "ddp", step: int | None = None
) -> Any:
    """What all ranks say, which is the same; on each of them `change` has been done before. Rank 0 alone warns."""
    outcomes = ranks.run(num, root.path, LOAD.replace("CHANGE", change), kind=kind, step=step)
    answers = [outcome.get("answer", outcome) for outcome in outcomes]
    assert all(answer == answers[0] for answer in answers), answers
    assert all(not outcome["log"] for outcome in outcomes[1:])
    return answers[0]


def _file(root: Root, step: int, name: str) -> Path:
    return root.directory(next(item for item in root.step_names() if item.step == step)) / name


@pytest.mark.parametrize("name", ["__0_0.distcp", "__1_0.distcp", ".metadata", "BLOCKS", "MANIFEST.json"])
def test_a_changed_byte_anywhere_sends_all_ranks_to_the_checkpoint_before(
    ranks: Ranks, saved: Root, name: str
) -> None:
    """Whoever has read it: the reason is the same on all ranks, and rank 0 has said it."""
    flip(_file(saved, 2, name))
    step, _directory, skipped, rolled_back = _load(ranks, saved)
    assert (step, rolled_back) == (1, False)
    assert len(skipped) == 1
    assert name in skipped[0]


def test_a_damaged_step_that_was_asked_for_is_the_same_error_on_all_ranks(ranks: Ranks, saved: Root) -> None:
    """No other step instead; step 1 by its number goes back on purpose."""
    flip(_file(saved, 2, "__1_0.distcp"))
    error, message = _load(ranks, saved, step=2)
    assert error == "CorruptCheckpoint"
    assert "step 2" in message
    assert "__1_0.distcp does not match its digest" in message
    assert _load(ranks, saved, step=1)[0::3] == [1, True]
    assert _load(ranks, saved, step=9)[0] == "RestoreError"


def test_all_damaged_is_an_error_on_all_ranks(ranks: Ranks, saved: Root) -> None:
    """Not a start from nothing, on no rank."""
    for step in (1, 2):
        os.truncate(_file(saved, step, "__1_0.distcp"), 10)
    error, message = _load(ranks, saved)
    assert error == "CorruptCheckpoint"
    assert "step 2" in message
    assert "step 1" in message


ONE_RANK_CANNOT_READ = """
from rampmeter.verification import Verifier
verify = Verifier.verify_file
def cannot(self, name):
    if "step-00000002" in str(self._directory) and rank == 1:
        raise PermissionError(13, "Permission denied", name)
    verify(self, name)
Verifier.verify_file = cannot
"""

ONE_RANK_FAILS_READING = """
from rampmeter import dcp
read = dcp.PlannedLoad.read
def fails(self):
    if "step-00000002" in str(self._reader.path) and rank == 1:
        raise OSError(5, "Input/output error")
    read(self)
dcp.PlannedLoad.read = fails
"""


@pytest.mark.parametrize(
    ("change", "why"),
    [(ONE_RANK_CANNOT_READ, "Permission denied"), (ONE_RANK_FAILS_READING, "Input/output error")],
)
def test_what_one_rank_cannot_read_no_rank_takes(ranks: Ranks, saved: Root, change: str, why: str) -> None:
    """The reason names what that rank met."""
    step, _directory, skipped, _rolled_back = _load(ranks, saved, change)
    assert step == 1
    assert why in skipped[0]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("training = Training('single', seed=2, width=5 + 4 * (rank == 0)); state = training.state; "
         "training.train(1); before = held(training)", "RestoreError", r"0.weight has shape [16, 9]"),
        ("state = dict(state); state.update({'ema': 1} if rank else {})", "RestoreError", "ema) (rank 1)"),
        ("state = dict(state); rank or state.pop('loader')", "RestoreError", "loader) (rank 0)"),
        ("whole = state\ndef state():\n    return whole if rank else 1 / 0", "ConfigError", "ZeroDivisionError"),
        ("whole = state\ndef state():\n    assert rank == 0\n    return whole", "ConfigError", "AssertionError"),
    ],
)  # fmt: skip
def test_a_state_that_does_not_fit_on_one_rank_is_refused_on_all(
    ranks: Ranks, saved: Root, change: str, error: str, message: str
) -> None:
    """Nothing is touched on any rank, no older checkpoint is tried, and nothing hangs."""
    found = _load(ranks, saved, change)
    assert found[0] == error
    assert message in found[1]


def test_an_object_that_refuses_its_part_on_one_rank_fails_all(ranks: Ranks, saved: Root) -> None:
    """The part is named, on every rank."""
    program = """
training = Training("ddp", seed=2)
if rank == 1:
    training.loader.load_state_dict = lambda state: 1 / 0
restore(root, training.state, group=group)
"""
    for outcome in ranks.run(2, saved.path, program):
        assert outcome["error"] == "RestoreError"
        assert "state['loader'] refused" in outcome["message"]
        assert "(rank 1)" in outcome["message"]


def test_nothing_there_is_nothing_on_all_ranks(ranks: Ranks, tmp_path: Path) -> None:
    """An empty root, and one with leftovers only; a root that is no directory is an error."""
    root = Root(tmp_path / "root")
    assert _load(ranks, root, num=3) is None
    put_leftover(root, 3, 1)
    assert _load(ranks, root, num=3) is None
    (tmp_path / "file").write_text("x")
    assert _load(ranks, Root(tmp_path / "file"), num=3)[0] == "RestoreError"


def test_foreign_checkpoints_stop_all_ranks(ranks: Ranks, saved: Root) -> None:
    """Rank 0 alone has looked."""
    (saved.path / "model.pt").write_bytes(b"x")
    assert _load(ranks, saved)[0] == "ForeignCheckpoints"


def test_the_step_that_rank_0_asks_for_is_that_of_all(ranks: Ranks, saved: Root) -> None:
    """Ranks that were started with other arguments do not go apart."""
    assert _load(ranks, saved, "step = None if rank else 1")[0::3] == [1, True]


def test_only_rank_0_looks_at_the_root(ranks: Ranks, saved: Root) -> None:
    """What another rank would see there decides nothing."""
    change = """
if rank:
    def blind(self, *_):
        raise PermissionError(13, "Permission denied")
    Root.step_names = Root.foreign_checkpoints = Root.is_committed = blind
"""
    assert _load(ranks, saved, change)[0] == 2


def test_a_slow_rank_is_waited_for_beyond_the_time_out_of_the_group(ranks: Ranks, saved: Root) -> None:
    """Storage may take longer to read than ranks may be silent."""
    change = """
import datetime, time
import torch.distributed as dist
from rampmeter.verification import Verifier
group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=2))
verify = Verifier.verify_blocks
def slow(self, blocks, **kwargs):
    time.sleep(4 * rank if kwargs else 0)
    verify(self, blocks, **kwargs)
Verifier.verify_blocks = slow
"""
    assert _load(ranks, saved, change)[0] == 2


def test_a_rank_that_dies_ends_the_restore_of_the_others(ranks: Ranks, saved: Root) -> None:
    """They are told that they have lost each other."""
    program = """
import os
from rampmeter.verification import Verifier
if rank == 1:
    Verifier.verify_blocks = lambda *_args, **_kwargs: os._exit(1)
restore(root, Training("single", seed=2).state, group=group)
"""
    outcomes = ranks.run(3, saved.path, program)
    assert outcomes[1]["error"] == "died"
    for rank in (0, 2):
        assert outcomes[rank]["error"] == "RestoreError"
        assert "lost each other" in outcomes[rank]["message"]


def test_a_rank_that_has_failed_spares_the_others_their_reading(ranks: Ranks, saved: Root) -> None:
    """Rank 0 would verify for a minute; it stops when rank 1 has found the damage."""
    change = """
import time
from rampmeter.core.errors import CorruptCheckpoint
from rampmeter.verification import Verifier
verify = Verifier.verify_blocks
def slow(self, blocks, *, is_pointless=None):
    if is_pointless is not None and "step-00000002" in str(self._directory):
        if rank == 1:
            raise CorruptCheckpoint("found it")
        end = time.monotonic() + 50
        while not is_pointless() and time.monotonic() < end:
            time.sleep(0.01)
        assert time.monotonic() < end
    verify(self, blocks)
Verifier.verify_blocks = slow
"""
    step, _directory, skipped, _rolled_back = _load(ranks, saved, change)
    assert step == 1
    assert "found it (rank 1)" in skipped[0]
