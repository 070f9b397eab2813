"""What a job reads in its own log of its checkpoints: in words that need no knowledge of the product.

Prices are said per TB, in the unit that people count: hours (or seconds) of one GPU.
"""

import logging

from rampmeter.core.looking import LOOK_AGAIN_S
from rampmeter.core.messages import Plan, PlanReason
from rampmeter.core.notice import GivenUp
from rampmeter.core.units import format_bytes, format_duration
from rampmeter.preflight.shortage import Shortage
from rampmeter.report import SaveReport

_log = logging.getLogger("rampmeter")

_BYTES_PER_TB = 1e12


def log_saved(report: SaveReport) -> None:
    """What went wrong is logged where it happened."""
    if report.committed:
        _log.info(
            "step %d is saved: %s in %s, training stood still for %s",
            report.step,
            format_bytes(report.num_bytes),
            format_duration(report.write_s),
            format_duration(report.stall_s),
        )


def log_given_up(given_up: GivenUp, num_bytes: int | None) -> None:
    """A save that was due is not written."""
    if given_up.left_s is None:
        _log.info(
            "a save is given up: jobs whose GPUs idle need the storage; the next place is asked for at once"
        )
        return
    fits = "no place came in time"
    if given_up.fits_bytes is not None:
        size = "" if num_bytes is None else f" of {format_bytes(num_bytes)}"
        fits = f"the storage has room for {format_bytes(given_up.fits_bytes)}{size}"
    _log.warning(
        "no save before the announced end in %s: %s; the next attempt goes on from the newest checkpoint "
        "(if the notice is longer than that, set notice_s or RAMPMETER_NOTICE_S)",
        format_duration(max(0.0, given_up.left_s)),
        fits,
    )


def log_held_back(shortage: Shortage) -> None:
    """A save that is due cannot be made."""
    _log.warning(
        "the checkpoint that is due is not begun (%s): %s; looking again every %s",
        shortage.reason,
        shortage.detail,
        format_duration(LOOK_AGAIN_S),
    )


def log_goes_on(shortage: Shortage) -> None:
    """What held it back is gone."""
    _log.warning("the checkpoint that was held back (%s) is asked for now", shortage.reason)


def log_plan(plan: Plan, wish_s: float | None) -> None:
    """The interval has changed, and why. `wish_s` is the interval_max_s of the job."""
    _log.info("next checkpoints every %s: %s", format_duration(plan.interval_s), _why(plan, wish_s))


def _why(plan: Plan, wish_s: float | None) -> str:
    alone = f"alone on this storage it would be every {format_duration(plan.request_after_s)}"
    if plan.reason is PlanReason.OWN_PERIOD:
        return "the storage has room for it, and for this job this is where the least work is lost"
    if plan.reason is PlanReason.PRICE:
        return f"{alone}, but it is shared and has no room for all jobs that often; {_market(plan)}"
    if plan.reason is PlanReason.WRITE_FLOOR:
        return "to write one takes nearly that long, and the next must not begin before it is through"
    if plan.reason is PlanReason.MINIMUM:
        return "more often would lose less work, but is not allowed (interval_min_s, or a limit of the pool)"
    if plan.reason is PlanReason.BUDGET:
        wished = "" if wish_s is None else f" {format_duration(wish_s)}"
        return (
            f"the wished{wished} (interval_max_s) cannot be had while the storage is shared; {_market(plan)}"
        )
    return "the coordinator gives a reason that this release does not know"


def _market(plan: Plan) -> str:
    """What room costs, and what this job and the others would give for it."""
    price, bid, live = plan.price_gpu_s_per_byte, plan.bid_gpu_s_per_byte, plan.live_price_gpu_s_per_byte
    others = f"the highest bid that waits is {_for_a_tb(live)}" if live > 0.0 else "no other job waits"
    return f"room for 1 TB costs {_for_a_tb(price)}, this job bids {_for_a_tb(bid)} for it now, {others}"


def _for_a_tb(gpu_s_per_byte: float) -> str:
    gpu_s = gpu_s_per_byte * _BYTES_PER_TB
    return f"{gpu_s / 3600.0:.3g} GPU-hours" if gpu_s >= 3600.0 else f"{gpu_s:.3g} GPU-seconds"


def log_reachable(pool: str, *, reachable: bool, detail: str) -> None:
    """The coordinator answers again, or no longer."""
    if reachable:
        _log.info("the coordinator answers (pool %s)", pool)
    else:
        _log.warning("no usable answer from the coordinator (pool %s): %s", pool, detail)
