"""What a review says: flaws with their severity, what is good, what to ask. Values only."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad, worst first.

    critical  a restart gives no run, or silently another run than the one that was planned
    high      found out when it is too late, or at least 1 % of the run, or a job that stands still
    medium    at least 0.2 % of the run, or money, or nobody who knows
    low       worth a line
    """

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def rank(self) -> int:
        """0 = worst."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """One thing that is wrong.

    changes_run     it corrupts or silently changes the run; else it wastes something
    lost_gpu_hours  what it costs over the run where that can be worked out; saved_bytes likewise
    """

    severity: Severity
    changes_run: bool
    what: str
    why: str
    cost: str
    change: str
    lost_gpu_hours: float | None = None
    saved_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A flaw and the rule that found it, by its stable name."""

    rule: str
    flaw: Flaw


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Findings worst first, then what is good, then what the plan does not say."""

    findings: tuple[Finding, ...]
    good: tuple[str, ...]
    questions: tuple[str, ...]
