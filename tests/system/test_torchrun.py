"""DDP under `torchrun`, as users start it: a crash of one rank, a resume of all, and the run that nothing happened to."""

import subprocess
import sys
from pathlib import Path

import pytest

from rampmeter.layout import Root
from support.servers import without_settings

pytestmark = pytest.mark.system

SCRIPT = Path(__file__).parents[1] / "support" / "ddp_training.py"
NUM_STEPS = 150
DIES_AT = 110
LIMIT_S = 120


def torchrun(root: Path, losses: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, "--max-restarts=1", SCRIPT, root, losses, str(NUM_STEPS)],
        env=without_settings() | {"OMP_NUM_THREADS": "1"} | environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def losses_of(file: Path) -> list[tuple[int, str]]:
    return [(int(line.split()[0]), line.split()[1]) for line in file.read_text().splitlines()]


def test_a_run_that_lost_a_rank_ends_as_the_one_that_did_not(tmp_path: Path) -> None:
    """All ranks start again, go on from the newest checkpoint, and every loss is the same, bit for bit."""
    quiet = torchrun(tmp_path / "quiet", tmp_path / "quiet.txt")
    assert quiet.returncode == 0, quiet.stderr
    crashed = torchrun(tmp_path / "crashed", tmp_path / "crashed.txt", DIE_AT_STEP=str(DIES_AT))
    assert crashed.returncode == 0, crashed.stderr
    expected, found = losses_of(tmp_path / "quiet.txt"), losses_of(tmp_path / "crashed.txt")
    assert [step for step, _ in expected] == list(range(1, NUM_STEPS + 1))
    cut = next(index for index, (step, _) in enumerate(found) if index and step <= found[index - 1][0])
    resumed_from = found[cut][0] - 1
    assert 0 < resumed_from < DIES_AT, "it went on from a checkpoint"
    assert found[:cut] == expected[:cut]
    assert found[cut:] == expected[resumed_from:]
    attempts = {name.attempt for name in Root(tmp_path / "crashed").committed_steps()}
    assert 2 in attempts, "the second start has saved as well"
