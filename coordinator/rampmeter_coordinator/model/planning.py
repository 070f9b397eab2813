"""What a job is told so that it can plan: interval, phase, safe rate and the reason. Pure.

A plan is a forecast, never a permission: the lease decides who writes. The sum of issued safe rates leaves a
tenth of the budget free, so a newcomer may get less than its share at first and the rest with a later heartbeat.
"""

from dataclasses import replace as raised

from msgspec.structs import replace

from rampmeter.core import interval as formulas
from rampmeter.core.fields import MAX_SECONDS
from rampmeter.core.interval import Load
from rampmeter.core.messages import Plan, PlanReason
from rampmeter_coordinator.model import counting, estimates, failures
from rampmeter_coordinator.model.pool import HEARTBEAT_S, PoolConfig
from rampmeter_coordinator.model.records import Job, Planned

DEFAULT_STALL_S = 1.0
"""Believed stall of a job that never saved and gave none."""

SAFE_SHARE = 0.8
"""r = b / (0.8 T): at its safe rate a job writes for 0.8 of its interval."""

DEAD_BAND = 1.2
"""A new interval inside [old / 1.2, old * 1.2] is not sent: it costs at most 1.7 % of the overhead."""

LOST_AFTER_S = 600.0


def load_of(job: Job) -> Load:
    """The job as pricing and bids see it: measured figures, cold-start ones until there are. Kept until they change.

    C is the stall and eps times the time at work of a write, eps measured; the write time of a synchronous job. Unknown
    bytes ask for nothing until the first save tells.
    """
    if job.load is None:
        stall_s = DEFAULT_STALL_S if job.stall_s is None else job.stall_s
        known, terms = job.known, job.terms
        write_s = known.write_s if terms.synchronous or known.at_work_s is None else known.at_work_s
        num_gpus, mtbf_s = estimates.borne_out(job, failures.mtbf_s(job))
        job.load = Load(
            num_bytes=job.num_bytes or 0,
            num_gpus=num_gpus,
            cost_s=formulas.cost(
                stall_s, write_s or 0.0, estimates.eps_of(job), synchronous=terms.synchronous
            ),
            mtbf_s=mtbf_s,
            write_s=known.write_s or 0.0,
            minimum_s=terms.interval_min_s or 0.0,
            wish_s=terms.interval_max_s,
        )
    return job.load


def load_in(config: PoolConfig, job: Job) -> Load:
    """The load under the pool's overhead budget p: T >= C / p is part of the minimum, which a bid does not look at."""
    load = load_of(job)
    if config.max_stall_share is None:
        return load
    return raised(load, minimum_s=max(load.minimum_s, load.cost_s / config.max_stall_share))


def is_lost(job: Job, now_s: float) -> bool:
    """Silent for so long that its demand counts no more."""
    return now_s - counting.last_heard_s(job) > max(3.0 * job.plan.interval_s, LOST_AFTER_S)


def blank_plan(config: PoolConfig) -> Planned:
    """The plan number 0 of a job that has none yet; `replanned` makes the first one of it."""
    return Planned(
        number=0,
        interval_s=formulas.MIN_INTERVAL_S,
        phase_offset_s=0.0,
        request_after_s=formulas.MIN_INTERVAL_S,
        safe_bytes_per_s=0,
        safe_after_s=config.safe_after_s,
        safe_for_s=config.safe_for_s,
        reason=PlanReason.OWN_PERIOD,
        price_gpu_s_per_byte=0.0,
    )


def told(plan: Planned, *, bid: float = 0.0, live_price: float = 0.0) -> Plan:
    """The plan as the job is told it, beside its bid and the largest waiting one of this moment."""
    return Plan(
        number=plan.number,
        interval_s=plan.interval_s,
        phase_offset_s=plan.phase_offset_s,
        request_after_s=plan.request_after_s,
        safe_bytes_per_s=plan.safe_bytes_per_s,
        safe_after_s=plan.safe_after_s,
        safe_for_s=plan.safe_for_s,
        heartbeat_s=HEARTBEAT_S,
        reason=plan.reason,
        price_gpu_s_per_byte=plan.price_gpu_s_per_byte,
        bid_gpu_s_per_byte=min(bid, formulas.HIGHEST_PRICE),
        live_price_gpu_s_per_byte=min(live_price, formulas.HIGHEST_PRICE),
    )


def replanned(job: Job, price: float, safe_room_bytes_per_s: int, config: PoolConfig) -> Planned:
    """The job's plan under new figures; the same object where nothing that matters has changed.

    `safe_room_bytes_per_s` bounds its safe rate, so that the sum of all that are issued leaves room to start.
    """
    load = load_in(config, job)
    interval_s, reason = min(load.interval_s(price), MAX_SECONDS), formulas.reason_for(load, price)
    old = job.plan
    if old.number and old.interval_s / DEAD_BAND <= interval_s <= old.interval_s * DEAD_BAND:
        interval_s, reason = old.interval_s, old.reason
    safe_bytes_per_s = min(wanted_safe_rate(job, interval_s), safe_room_bytes_per_s)
    same_times = (old.safe_after_s, old.safe_for_s) == (config.safe_after_s, config.safe_for_s)
    same = same_times and interval_s == old.interval_s and safe_bytes_per_s == old.safe_bytes_per_s
    if old.number and same:
        return old
    times = old if same_times else blank_plan(config)  # not a new float in every plan
    return replace(
        old,
        number=old.number + 1,
        interval_s=interval_s,
        phase_offset_s=old.phase_offset_s * interval_s / old.interval_s,
        request_after_s=min(interval_s, load.own_period_s),
        safe_bytes_per_s=safe_bytes_per_s,
        safe_after_s=times.safe_after_s,
        safe_for_s=times.safe_for_s,
        reason=reason,
        price_gpu_s_per_byte=price,
    )


def wanted_safe_rate(job: Job, interval_s: float) -> int:
    """The safe rate that goes with an interval, before the sum of all is looked at."""
    return int((job.num_bytes or 0) / (SAFE_SHARE * interval_s))
