"""What listeners are told, from what the agent knows: the events of a save and of a plan. Decides nothing."""

from rampmeter.core.messages import Plan
from rampmeter.core.notice import GivenUp
from rampmeter.core.pacer import Governance
from rampmeter.events import PlanChanged, SaveEnded, SaveGivenUp
from rampmeter.report import SaveReport


def plan_changed(plan: Plan, now_s: float) -> PlanChanged:
    """The interval is another one, and why."""
    return PlanChanged(
        now_s=now_s,
        interval_s=plan.interval_s,
        own_period_s=plan.request_after_s,
        reason=plan.reason,
        price_gpu_s_per_byte=plan.price_gpu_s_per_byte,
        bid_gpu_s_per_byte=plan.bid_gpu_s_per_byte,
        live_price_gpu_s_per_byte=plan.live_price_gpu_s_per_byte,
    )


def save_given_up(given_up: GivenUp, now_s: float) -> SaveGivenUp:
    """A save is not made, or thrown away."""
    return SaveGivenUp(
        now_s=now_s, reason=given_up.reason, left_s=given_up.left_s, fits_bytes=given_up.fits_bytes
    )


def save_ended(report: SaveReport, governance: Governance, now_s: float) -> SaveEnded:
    """A save has ended, one way or the other."""
    return SaveEnded(
        now_s=now_s,
        step=report.step,
        directory=report.directory,
        num_bytes=report.num_bytes,
        stall_s=report.stall_s,
        lead_s=report.lead_s,
        write_s=report.write_s,
        governance=governance,
        reason=report.reason,
    )
