"""How long a launcher waits between telling a job to go and killing it, against how long the last save takes. Pure.

Launchers do not tell their grace to the job, except where a variable carries it: what is assumed is their default.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rampmeter.core.units import format_duration

DEFAULT_GRACE_S = 30.0
"""torchrun (`--shutdown-timeout`), Slurm (`KillWait`) and Kubernetes (`terminationGracePeriodSeconds`) alike."""

MARGIN = 1.2
"""A save takes longer when everybody is told to go at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Who ends this job, after how long, and how to make that longer; `{s}` stands for whole seconds."""

    name: str
    grace_s: float
    remedy: str


def launchers(environment: Mapping[str, str]) -> list[Launcher]:
    """All that stand above this process: each of them kills by its own clock."""
    found = []
    if "TORCHELASTIC_RUN_ID" in environment:
        found.append(
            Launcher(
                name="torchrun",
                grace_s=_seconds(environment.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT")),
                remedy="torchrun --shutdown-timeout={s}",
            )
        )
    if "SLURM_JOB_ID" in environment:
        found.append(
            Launcher(
                name="Slurm",
                grace_s=DEFAULT_GRACE_S,
                remedy="sbatch --signal=TERM@{s}, and GraceTime={s} of the partition for preemptions",
            )
        )
    if "KUBERNETES_SERVICE_HOST" in environment:
        found.append(
            Launcher(
                name="Kubernetes",
                grace_s=DEFAULT_GRACE_S,
                remedy="terminationGracePeriodSeconds: {s} in the pod's spec",
            )
        )
    return found


def _seconds(text: str | None) -> float:
    try:
        return float(text) if text else DEFAULT_GRACE_S
    except ValueError:
        return DEFAULT_GRACE_S


def too_short(environment: Mapping[str, str], save_s: float) -> list[str]:
    """For each launcher that would kill the job in the middle of a save of `save_s`: that, and what to change."""
    wanted_s = MARGIN * save_s
    return [
        f"the save before an announced end takes about {format_duration(save_s)}, but {launcher.name} kills "
        f"{format_duration(launcher.grace_s)} after its notice unless it is told otherwise: "
        f"{launcher.remedy.format(s=int(wanted_s) + 1)} (and RAMPMETER_NOTICE_S={int(wanted_s) + 1})"
        for launcher in launchers(environment)
        if launcher.grace_s < wanted_s
    ]
