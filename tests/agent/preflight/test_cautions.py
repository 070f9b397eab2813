"""What is no obstacle now and will cost something later: short graces and files that the group cannot read."""

from dataclasses import replace

import pytest

from rampmeter.preflight.grace import launchers, too_short
from rampmeter.preflight.sharing import Owner, cautions

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none"}
SLURM = {"SLURM_JOB_ID": "4711"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environment", "flag"),
    [
        (TORCHRUN, "torchrun --shutdown-timeout=121"),
        (SLURM, "sbatch --signal=TERM@121"),
        (KUBERNETES, "terminationGracePeriodSeconds: 121"),
    ],
)
def test_a_save_that_is_longer_than_the_grace_names_the_flag(environment: dict[str, str], flag: str) -> None:
    """100 s and a fifth: 121 s to be typed, for the launcher and for the agent."""
    (text,) = too_short(environment, 100.0)
    assert flag in text
    assert "RAMPMETER_NOTICE_S=121" in text


def test_each_launcher_kills_by_its_own_clock() -> None:
    """torchrun inside Slurm: both have to be told."""
    assert [found.name for found in launchers(TORCHRUN | SLURM)] == ["torchrun", "Slurm"]
    assert len(too_short(TORCHRUN | SLURM, 100.0)) == 2


def test_what_fits_and_what_nobody_kills_is_not_spoken_of() -> None:
    """25 s and a fifth are the 30 s that every launcher gives; without a launcher nothing is known."""
    assert too_short(TORCHRUN | SLURM | KUBERNETES, 25.0) == []
    assert len(too_short(TORCHRUN, 25.1)) == 1
    assert too_short({}, 1000.0) == []


@pytest.mark.parametrize(("text", "num"), [("120", 0), ("60", 1), ("soon", 1), ("", 1)])
def test_torchrun_may_have_been_told_by_its_variable(text: str, num: int) -> None:
    """TORCH_ELASTIC_SHUTDOWN_TIMEOUT reaches the workers; what is no number is not believed."""
    assert len(too_short(TORCHRUN | {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": text}, 99.0)) == num


SHARED = Owner(mode=0o42770, group=500, process_group=100, umask=0o007)


def test_a_root_of_a_group_is_well_shared_with_setgid_and_a_mild_umask() -> None:
    """Nothing to say; nor where the root is one person's own."""
    assert cautions(SHARED) == []
    assert cautions(replace(SHARED, mode=0o40700, umask=0o077)) == []
    assert cautions(replace(SHARED, umask=None)) == []


def test_a_umask_that_hides_checkpoints_from_the_group_is_named() -> None:
    """With the one that would do."""
    (text,) = cautions(replace(SHARED, umask=0o077))
    assert "umask 0077 hides" in text
    assert "umask 0027" in text


def test_files_of_another_group_than_the_root_are_named() -> None:
    """Without setgid new files belong to the group of the process."""
    (text,) = cautions(replace(SHARED, mode=0o40770))
    assert "chmod g+s" in text
