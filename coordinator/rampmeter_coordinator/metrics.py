"""Every metric of the coordinator, by name.

Figures come from views at scrape time, so that they cannot drift from the state.
Labels are bounded by settings and code: pool, outcome, reason, state, route, status class. Never a job.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rampmeter_coordinator.engine import Engine
from rampmeter_coordinator.model.goodput import Cause
from rampmeter_coordinator.model.views import JobView, PoolView, Totals
from rampmeter_coordinator.replica import Replica

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0, 30.0)
_CLASSES = ("2xx", "4xx", "5xx")
_UNMATCHED = "unmatched"

_POOL_GAUGES: Sequence[tuple[str, str, Callable[[PoolView], float]]] = (
    ("jobs", "Jobs that the pool knows.", lambda v: v.num_jobs),
    ("jobs_waiting", "Jobs that wait for a slot.", lambda v: v.num_waiting),
    ("jobs_silent", "Jobs out of contact whose safe rate counts.", lambda v: v.num_silent),
    ("leases_active", "Live leases, armed or active.", lambda v: v.num_leases),
    ("capacity_bytes_per_second", "Configured capacity.", lambda v: v.capacity_bytes_per_s),
    ("budget_bytes_per_second", "The most that may be granted now.", lambda v: v.budget_bytes_per_s),
    ("read_granted_bytes_per_second", "Rates of restores.", lambda v: v.read_granted_bytes_per_s),
    ("granted_bytes_per_second", "Sum of the rates of live leases.", lambda v: v.granted_bytes_per_s),
    ("counted_bytes_per_second", "The most that may be in use now.", lambda v: v.counted_bytes_per_s),
    ("achieved_bytes_per_second", "What writers report to achieve.", lambda v: v.achieved_bytes_per_s),
    ("demand_bytes_per_second", "What all plans ask for on average.", lambda v: v.demand_bytes_per_s),
    ("price_gpu_seconds_per_byte", "The price that plans are made with.", lambda v: v.price_gpu_s_per_byte),
    ("live_price_gpu_seconds_per_byte", "The largest waiting bid.", lambda v: v.live_price_gpu_s_per_byte),
    ("shadow_bytes_per_second", "Rates of jobs that are not held to slots.", lambda v: v.shadow_bytes_per_s),
    ("grace_left_seconds", "Time in which only holders are served.", lambda v: v.grace_left_s),
)
_GOODPUT_GAUGES: Sequence[tuple[str, str, Callable[[PoolView], float | None]]] = (
    (
        "goodput_ratio",
        "Share of observed GPU time that was useful, measured, since the pool's memory begins.",
        lambda v: v.goodput.useful if v.goodput else None,
    ),
    (
        "uncoordinated_waste_ratio",
        "What the running jobs would lose if each wrote at its own period whenever it wants, by the model.",
        lambda v: v.uncoordinated.total if v.uncoordinated else None,
    ),
    (
        "aligned_waste_ratio",
        "What they would lose if all started their writes together, by the model.",
        lambda v: v.aligned.total if v.aligned else None,
    ),
    (
        "gpu_seconds_per_failure",
        "Believed, from what was seen and a prior.",
        lambda v: 3600.0 * v.gpu_hours_per_failure,
    ),
    ("mtbf_seconds", "M of the running jobs, weighted by GPUs.", lambda v: v.mtbf_s),
    ("restart_seconds", "R of the running jobs, weighted by GPUs.", lambda v: v.restart_s),
)
"""NaN where there is nothing to say yet: series that come and go are hard to alert on."""

_CAUSES = tuple(cause.value for cause in Cause)
_MODELLED = ("write", "rework", "restart")
_OUTCOMES: Sequence[tuple[str, Callable[[Totals], int]]] = (
    ("committed", lambda t: t.committed),
    ("failed", lambda t: t.failed),
    ("aborted", lambda t: t.aborted),
    ("expired", lambda t: t.expired),
    ("revoked", lambda t: t.revoked),
)
_TOTALS: Sequence[tuple[str, str, Callable[[Totals], int]]] = (
    ("written_bytes", "Bytes that jobs reported as written.", lambda t: t.written_bytes),
    ("leases_granted", "Leases granted.", lambda t: t.granted),
    ("slots_waited", "Slot requests answered with a wait.", lambda t: t.waited),
    ("shadow_slots_would_wait", "Slots of shadow mode that would have waited.", lambda t: t.would_wait),
    ("urgent_saves_refused", "Urgent saves that could not be in time.", lambda t: t.will_not_fit),
    (
        "interruptions",
        "Attempts replaced that had not finished, nor been cancelled.",
        lambda t: t.interruptions,
    ),
    ("failures", "Of these, those that had worked and did not end cleanly.", lambda t: t.failures),
    ("urgent_false_alarms", "Urgent saves after which the job went on.", lambda t: t.false_alarms),
    (
        "absurd_reports",
        "Reports of saves that cannot have been so, and claims that stand alone.",
        lambda t: t.absurd,
    ),
)


class LeaderCollector(Collector):
    """Whether this replica leads."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def collect(self) -> Iterable[Metric]:
        leads = GaugeMetricFamily("rampmeter_leader", "1 on the replica that leads, 0 on the others.")
        leads.add_metric((), float(self._replica.engine is not None))
        yield leads
        changes = CounterMetricFamily(
            "rampmeter_leader_changes", "How often this replica saw another one begin to lead."
        )
        changes.add_metric((), self._replica.leadership.num_changes)
        yield changes


class PoolCollector(Collector):
    """Asks the leader's engine for views whenever Prometheus asks; a standby has nothing to say of pools."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def collect(self) -> Iterable[Metric]:
        engine = self._replica.engine
        return () if engine is None else _PoolFigures(engine).collect()


class _PoolFigures:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        pools = self._engine.pools
        views = {pool: self._engine.pool_view(pool) for pool in pools}
        for name, text, read in _POOL_GAUGES:
            yield _gauge(name, text, {pool: read(view) for pool, view in views.items()})
        yield from self._from_accounts(views)
        yield from self._from_jobs(pools)
        yield from self._from_totals(pools)
        yield from self._from_counters(pools)

    @staticmethod
    def _from_accounts(views: dict[str, PoolView]) -> Iterator[Metric]:
        """Where GPU time went. Both counters are in GPU-seconds: their rates give the shares of any window."""
        for name, text, read in _GOODPUT_GAUGES:
            yield _gauge(name, text, {pool: _or_nan(read(view)) for pool, view in views.items()})
        observed = {pool: view.account_gpu_s.observed for pool, view in views.items()}
        yield _counter(
            "observed_gpu_seconds", "GPU time of jobs in contact, and of their restarts.", observed
        )
        lost = CounterMetricFamily("rampmeter_lost_gpu_seconds", "Of it lost.", labels=("pool", "cause"))
        measured = GaugeMetricFamily(
            "rampmeter_waste_ratio", "Share of observed GPU time that was lost.", labels=("pool", "cause")
        )
        modelled = GaugeMetricFamily(
            "rampmeter_modelled_waste_ratio",
            "What the plans of the running jobs cost, by the model.",
            labels=("pool", "cause"),
        )
        for pool, view in views.items():
            for cause in _CAUSES:
                measured.add_metric((pool, cause), _or_nan(getattr(view.goodput, cause, None)))
                lost.add_metric((pool, cause), getattr(view.account_gpu_s, cause))
            for cause in _MODELLED:
                modelled.add_metric((pool, cause), _or_nan(getattr(view.modelled, cause, None)))
        yield from (lost, measured, modelled)

    def _from_jobs(self, pools: Iterable[str]) -> Iterator[Metric]:
        jobs = {pool: [j for j in self._engine.job_views(pool) if not j.finished] for pool in pools}
        alive = {pool: [job for job in found if not job.lost] for pool, found in jobs.items()}
        ages = {pool: max((job.unsaved_s for job in found), default=0.0) for pool, found in alive.items()}
        text = "The most work that a running job would lose now: age of its newest checkpoint, or of the job."
        yield _gauge("checkpoint_age_max_seconds", text, ages)
        text = "Running jobs with nothing durable newer than 2 intervals and 3 write times."
        overdue = {pool: sum(map(_overdue, found)) for pool, found in alive.items()}
        yield _gauge("jobs_overdue", text, overdue)
        text = "Jobs that went silent without saying goodbye and are out of the demand."
        yield _gauge("jobs_lost", text, {p: len(found) - len(alive[p]) for p, found in jobs.items()})

    def _from_totals(self, pools: Iterable[str]) -> Iterator[Metric]:
        totals = {pool: self._engine.totals(pool) for pool in pools}
        for name, text, read in _TOTALS:
            yield _counter(name, text, {pool: read(found) for pool, found in totals.items()})
        ended = CounterMetricFamily(
            "rampmeter_leases_ended", "Leases ended, by outcome.", labels=("pool", "outcome")
        )
        for pool, found in totals.items():
            for outcome, read in _OUTCOMES:
                ended.add_metric((pool, outcome), read(found))
        yield ended
        saves = CounterMetricFamily(
            "rampmeter_failed_saves",
            "Saves that did not become checkpoints, by reason, also those that had no lease.",
            labels=("pool", "reason"),
        )
        for pool, found in totals.items():
            for reason, num_saves in found.failed_saves.items():
                saves.add_metric((pool, reason), num_saves)
        yield saves

    def _from_counters(self, pools: Iterable[str]) -> Iterator[Metric]:
        counters = {pool: self._engine.counters(pool) for pool in pools}
        held = {pool: found.num_held for pool, found in counters.items()}
        errors = {pool: found.num_store_errors for pool, found in counters.items()}
        refused = {pool: found.num_overloaded for pool, found in counters.items()}
        yield _gauge("requests_held", "Requests that wait for an answer.", held)
        yield _counter("store_errors", "Commits that the store did not confirm.", errors)
        broken = {pool: found.num_broken for pool, found in counters.items()}
        yield _counter("broken_invariants", "Checks that found the ledger at odds with itself.", broken)
        yield _counter("requests_overloaded", "Requests refused because too many waited.", refused)


class HttpMetrics:
    """Requests by route template and status class; durations of held requests include the hold."""

    def __init__(self, registry: CollectorRegistry, routes: Iterable[str]) -> None:
        requests = Counter(
            "rampmeter_http_requests", "HTTP requests.", ("route", "status"), registry=registry
        )
        durations = Histogram(
            "rampmeter_http_request_duration_seconds",
            "Time from request to the end of the answer.",
            ("route",),
            buckets=_BUCKETS,
            registry=registry,
        )
        known = sorted({*routes, _UNMATCHED})
        self._counts = {(route, cls): requests.labels(route, cls) for route in known for cls in _CLASSES}
        self._durations = {route: durations.labels(route) for route in known}

    def observe(self, route: str, status: int, duration_s: float) -> None:
        """One request is over. Status 0 means that nobody was there to answer to."""
        known = route if route in self._durations else _UNMATCHED
        status_class = "2xx" if 200 <= status < 400 else "5xx" if status >= 500 or status == 0 else "4xx"
        self._counts[known, status_class].inc()
        self._durations[known].observe(duration_s)


def build_registry(version: str) -> CollectorRegistry:
    """A registry with the figures of the process; pools and HTTP are added by whoever has them."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_BuildInfo(version))
    return registry


class _BuildInfo(Collector):
    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterable[Metric]:
        info = GaugeMetricFamily("rampmeter_build_info", "Always 1; the version.", labels=("version",))
        info.add_metric((self._version,), 1)
        yield info


def _overdue(job: JobView) -> bool:
    return job.unsaved_s > 2 * job.plan.interval_s + 3 * (job.write_s or 0.0)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _gauge(name: str, text: str, values: dict[str, float] | dict[str, int]) -> Metric:
    family = GaugeMetricFamily(f"rampmeter_{name}", text, labels=("pool",))
    for pool, value in values.items():
        family.add_metric((pool,), value)
    return family


def _counter(name: str, text: str, values: dict[str, int] | dict[str, float]) -> Metric:
    family = CounterMetricFamily(f"rampmeter_{name}", text, labels=("pool",))
    for pool, value in values.items():
        family.add_metric((pool,), value)
    return family
