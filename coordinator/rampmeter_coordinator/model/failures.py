"""How often jobs of a pool fail, and so M of each of them.

Failures per GPU-hour have a Gamma prior, one failure in 50,000 GPU-hours, pooled over the jobs: after k failures in t
GPU-hours M = (50,000 + t) / ((1 + k) n) hours for a job of n GPUs (`core.interval.mtbf`). A job that gives its own M is
its own prior, with its own k and t, and weighs as much as five failures: with the weight of one, chance alone cost a
simulated fleet whose jobs gave their M exactly .01 % of its GPU time. A word by which the job should have failed far
more often than it did is refuted: the pool's rate stands in its place where that is lower. Once the pool has seen
enough to doubt a word far above its rate, a multiple of what the pool shows is the most that is believed.

Old evidence fades, so that a bad week shows. No job counts for more than three failures, nor for the GPU-hours of more
than three: what it has more of both is scaled down together, so that a job that fails all the time does not make the
others save more often, one that claims a million GPUs does not make them save never, and an honest giant still shows
its rate. Failures of several jobs at once that chance does not explain are one event: it counts once for the pool and
once for each job. Whose checkpoints here are only for such events (`survives: site`) has an M of its own: by time, not
by GPU-hours, from one event in 30 days. Decides no interval.
"""

import math
from typing import Any

from msgspec import Struct

from rampmeter.core import interval as formulas
from rampmeter.core.interval import PRIOR_GPU_HOURS_PER_FAILURE
from rampmeter.core.messages import Survives
from rampmeter_coordinator.model.history import PRIOR, Belief, History
from rampmeter_coordinator.model.records import Job

HALF_LIFE_S = 14 * 86_400.0
MOST_FAILURES = 3.0
"""Of one job, in the sums of the pool, at any time."""

WEIGHT_OF_WORD = 5.0
"""What a user says of M is worth so many failures."""

REFUTED = 5.0
"""So many failures expected for each that came, and one: a true word comes to this in one job of 150 (e^-5), and the
next failure lets it be believed again."""

ABSURD = 10.0 * REFUTED

ENOUGH_TO_DOUBT = 3.0
"""From so many failures on the pool's rate is held against what a user believes ..."""

MOST_ABOVE_POOL = 4.0
"""... and a job is believed to be so many times as sturdy as the others at most."""

SITE_PRIOR_S = 30 * 86_400.0

AT_ONCE_S = 60.0
"""Failures dated this close to the first of them may be one event ..."""

CHANCE = 0.05
"""... and are one where so many so close had less than this chance, at the believed rate."""

REMEMBERED_S = 6 * 3600.0
MAX_EVENTS = 64
"""Jobs register again within hours of an event, if at all."""

MOST_GPUS = 100_000
"""What one job may add to the GPUs of which failures are expected, and to what the pool has used and lost."""

NOTICEABLE = 0.02
LOOK_EVERY_S = 60.0


def mtbf_s(job: Job) -> float:
    """M of this job, in seconds, as it is believed now."""
    belief, history = job.belief, job.history
    if history is not None and history.survives is Survives.SITE:
        prior_s = SITE_PRIOR_S if job.mtbf_s is None else job.mtbf_s
        return (prior_s + belief.site_s) / (1.0 + belief.num_site)
    pooled_s = formulas.mtbf(job.num_gpus, belief.num_failures, belief.gpu_hours)
    if job.mtbf_s is None:
        return pooled_s
    own_s = job.mtbf_s
    if history is not None:
        own_s = (WEIGHT_OF_WORD * own_s + _ran_s(job, history)) / (WEIGHT_OF_WORD + history.num_failures)
        own_s = max(own_s, pooled_s) if _is_refuted(job, history, REFUTED) else own_s
    return min(own_s, MOST_ABOVE_POOL * pooled_s) if belief.num_failures >= ENOUGH_TO_DOUBT else own_s


def is_absurd(job: Job) -> bool:
    """What the job says of M is not only refuted by its life but has nothing to do with it."""
    return job.history is not None and _is_refuted(job, job.history, ABSURD)


def _is_refuted(job: Job, history: History, num_expected: float) -> bool:
    if job.mtbf_s is None or history.survives is Survives.SITE:
        return False
    return _ran_s(job, history) > num_expected * job.mtbf_s * (1.0 + history.num_failures)


def _ran_s(job: Job, history: History) -> float:
    return history.gpu_hours * 3600.0 / job.num_gpus


class Event(Struct, omit_defaults=True, kw_only=True):
    """Failures of different jobs at about one time. `pooled` are the jobs whose failure counts for the pool."""

    date_s: float
    num_jobs: int = 0
    pooled: list[str]
    is_one: bool = False
    """Chance does not explain them: they have one cause."""


class Failures:
    """The evidence of one pool."""

    def __init__(self) -> None:
        self.num_failures = self.gpu_hours = 0.0
        self.num_site = self.site_s = 0.0
        """Events that took several jobs at once, and the time in which at least one job ran; both faded."""
        self._as_of_s = self._site_until_s = -math.inf
        self._look_again_s = -math.inf
        self._events: list[Event] = []
        self.belief = PRIOR
        """What all jobs are told: the evidence as it was when it last moved noticeably."""

    # -- memory ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """For the store."""
        return {
            "num_failures": self.num_failures,
            "gpu_hours": self.gpu_hours,
            "num_site": self.num_site,
            "site_s": self.site_s,
            "as_of_s": self._as_of_s if self._as_of_s > -math.inf else None,
            "site_until_s": self._site_until_s if self._site_until_s > -math.inf else None,
            "events": [[e.date_s, e.num_jobs, e.pooled, e.is_one] for e in self._events],
        }

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> "Failures":
        """What `to_dict` gave; of an earlier release nothing."""
        found = cls()
        for name in ("num_failures", "gpu_hours", "num_site", "site_s"):
            setattr(found, name, float(kept.get(name, 0.0)))
        found._as_of_s = _or_never(kept.get("as_of_s"))
        found._site_until_s = _or_never(kept.get("site_until_s"))
        found._events = [
            Event(date_s=date_s, num_jobs=num_jobs, pooled=pooled, is_one=is_one)
            for date_s, num_jobs, pooled, is_one in kept.get("events", ())
        ]
        found.belief = found._newest()
        return found

    def shift(self, by_s: float) -> None:
        """The times are of another clock, whose offset is known."""
        self._as_of_s += by_s
        self._site_until_s += by_s
        for event in self._events:
            event.date_s += by_s

    def rebase(self, now_s: float) -> None:
        """The times are of another boot: the evidence is as old as it was, dates mean nothing."""
        self._as_of_s = now_s if self._as_of_s > -math.inf else -math.inf
        self._site_until_s = -math.inf
        self._events = []

    # -- evidence ----------------------------------------------------------------------------------------------

    def ran(self, history: History, num_gpus: int, from_s: float, until_s: float, now_s: float) -> None:
        """A job was heard of from `from_s` to `until_s`."""
        self._weigh(history, now_s, gpu_hours=num_gpus * (until_s - from_s) / 3600.0)
        self.site_s += max(0.0, until_s - max(from_s, self._site_until_s))
        self._site_until_s = max(self._site_until_s, until_s)

    def failed(
        self, job: Job, history: History, date_s: float, expected_per_s: float, now_s: float
    ) -> list[str]:
        """The job failed at `date_s`; failures at `expected_per_s` are nothing unusual.

        Returns the jobs whose failures count for the pool no more, since they turned out to be part of one event.
        """
        self._fade(now_s)
        event = self._event_of(job.uid, date_s, now_s)
        event.num_jobs += 1
        taken_back: list[str] = []
        if not event.is_one and event.num_jobs > 1:
            event.is_one = _chance(event.num_jobs - 1, 2.0 * AT_ONCE_S * expected_per_s) < CHANCE
            if event.is_one:
                self.num_site += 1.0
                taken_back, event.pooled = event.pooled[1:], event.pooled[:1]
        counts = not event.is_one
        if counts:
            event.pooled.append(job.uid)
        self._weigh(history, now_s, num_failures=1.0, num_pooled=float(counts))
        return taken_back

    def take_back(self, history: History, date_s: float, now_s: float) -> None:
        """A failure of `date_s` was part of an event that another job stands for."""
        self._weigh(history, now_s, num_pooled=-min(history.num_pooled, faded(now_s - date_s)))

    def _event_of(self, uid: str, date_s: float, now_s: float) -> Event:
        self._events = [event for event in self._events if now_s - event.date_s < REMEMBERED_S][-MAX_EVENTS:]
        near = [e for e in self._events if abs(e.date_s - date_s) <= AT_ONCE_S and uid not in e.pooled]
        if near:
            return min(near, key=lambda e: abs(e.date_s - date_s))
        event = Event(date_s=date_s, pooled=[])
        self._events.append(event)
        return event

    def _weigh(
        self,
        history: History,
        now_s: float,
        *,
        num_failures: float = 0.0,
        num_pooled: float = 0.0,
        gpu_hours: float = 0.0,
    ) -> None:
        """Add to a job's evidence, and let it count in the sums for as much as it may."""
        self._fade(now_s)
        kept = faded(now_s - history.credited_s)
        self.num_failures = max(0.0, self.num_failures - kept * history.share * history.num_pooled)
        self.gpu_hours = max(0.0, self.gpu_hours - kept * history.share * history.gpu_hours)
        history.num_failures = kept * history.num_failures + num_failures
        history.num_pooled = kept * history.num_pooled + num_pooled
        history.gpu_hours = kept * history.gpu_hours + gpu_hours
        history.credited_s = now_s
        history.share = self._share_of(history)
        self.num_failures += history.share * history.num_pooled
        self.gpu_hours += history.share * history.gpu_hours

    def _share_of(self, history: History) -> float:
        """What of a job's evidence may count, seen from that of all others."""
        others = (PRIOR_GPU_HOURS_PER_FAILURE + self.gpu_hours) / (1.0 + self.num_failures)
        most_gpu_hours = MOST_FAILURES * min(PRIOR_GPU_HOURS_PER_FAILURE, others)
        return min(
            1.0,
            MOST_FAILURES / max(history.num_pooled, MOST_FAILURES),
            most_gpu_hours / max(history.gpu_hours, most_gpu_hours),
        )

    def _fade(self, now_s: float) -> None:
        kept = faded(now_s - self._as_of_s) if self._as_of_s > -math.inf else 1.0
        self.num_failures *= kept
        self.gpu_hours *= kept
        self.num_site *= kept
        self.site_s *= kept
        self._as_of_s = now_s

    # -- belief ------------------------------------------------------------------------------------------------

    @property
    def gpu_hours_per_failure(self) -> float:
        """As it is believed now, prior included."""
        return _per_failure(self._newest())

    def is_news(self, now_s: float) -> bool:
        """Whether the evidence has moved noticeably, which makes it the new belief. Looked at now and then only."""
        if now_s < self._look_again_s:
            return False
        self._look_again_s = now_s + LOOK_EVERY_S
        newest = self._newest()
        moves = (
            (_per_failure(self.belief), _per_failure(newest)),
            (_per_site_event(self.belief), _per_site_event(newest)),
        )
        if all(abs(after - before) <= NOTICEABLE * before for before, after in moves):
            return False
        self.belief = newest
        return True

    def _newest(self) -> Belief:
        return Belief(
            num_failures=self.num_failures,
            gpu_hours=self.gpu_hours,
            num_site=self.num_site,
            site_s=self.site_s,
        )


def faded(age_s: float) -> float:
    """What of evidence of this age still counts."""
    return math.exp2(-max(0.0, age_s) / HALF_LIFE_S)


def _per_failure(belief: Belief) -> float:
    return (PRIOR_GPU_HOURS_PER_FAILURE + belief.gpu_hours) / (1.0 + belief.num_failures)


def _per_site_event(belief: Belief) -> float:
    return (SITE_PRIOR_S + belief.site_s) / (1.0 + belief.num_site)


def _chance(num_events: int, expected: float) -> float:
    """Of seeing so many or more where so many are expected (Poisson)."""
    term = math.exp(-expected)
    fewer = 0.0
    for number in range(num_events):
        fewer += term
        term *= expected / (number + 1)
    return max(0.0, 1.0 - fewer)


def _or_never(at_s: float | None) -> float:
    return -math.inf if at_s is None else at_s
