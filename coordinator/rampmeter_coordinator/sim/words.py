"""Words the requests of an attempt, as the agent's speech does, with what the world knows of it."""

from typing import TYPE_CHECKING, Any

from rampmeter.core.messages import (
    Heartbeat,
    Kind,
    Outcome,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)
from rampmeter.core.pacer import Action

if TYPE_CHECKING:
    from rampmeter_coordinator.sim.attempt import Attempt

DEADLINE_S = 120.0
"""From the notice of a preemption to the end."""


def envelope(attempt: "Attempt") -> dict[str, Any]:
    """What every request carries."""
    return {
        "job_uid": attempt.job.spec.uid,
        "attempt": attempt.number,
        "seq": attempt.seq,
        "ack": attempt.ack,
    }


def word(attempt: "Attempt", action: Action, now_s: float) -> Request:
    """The request that stands for `action`."""
    if action is Action.HEARTBEAT:
        return _heartbeat(attempt, now_s)
    if action is Action.REGISTER:
        return _register(attempt)
    if action is Action.ASK:
        return _ask(attempt, now_s)
    if action is Action.READY:
        return _ready(attempt, now_s)
    return _release(attempt, now_s) if action is Action.RELEASE else _renew(attempt, now_s)


def _heartbeat(attempt: "Attempt", now_s: float) -> Heartbeat:
    """A step is a second of work at full speed. A restored attempt tells from where it goes on."""
    training, load_s = attempt.job.training, attempt.load_s
    training.advance(now_s)
    return Heartbeat(
        **envelope(attempt),
        step=int(training.work_s),
        step_s=1.0,
        restored_step=None if load_s is None else int(attempt.restored_s),
        load_s=load_s,
        warm_up_s=None if load_s is None else 0.0,
    )


def _register(attempt: "Attempt") -> Register:
    spec, plan = attempt.job.spec, attempt.clock.plan
    return Register(
        **envelope(attempt),
        name=f"job-{spec.uid[-4:]}",
        claim=f"{attempt.number:032x}",
        num_gpus=spec.num_gpus,
        num_bytes=spec.num_bytes,
        stall_s=spec.stall_s,
        mtbf_s=None if spec.mtbf_s == float("inf") else spec.mtbf_s,
        restart_s=spec.restart_s,
        interval_max_s=spec.interval_max_s,
        safe_bytes_per_s=plan.safe_bytes_per_s if plan else 0,
    )


def _ask(attempt: "Attempt", now_s: float) -> SlotRequest:
    spec, transfer, training = attempt.job.spec, attempt.transfer, attempt.job.training
    training.advance(now_s)
    is_save = attempt.kind is Kind.WRITE
    num_bytes = spec.num_bytes - int(transfer.stream.done_bytes if transfer else 0)
    deadline_s = None if attempt.urgent_s is None else attempt.urgent_s + DEADLINE_S - now_s
    return SlotRequest(
        **envelope(attempt),
        kind=attempt.kind,
        num_bytes=max(0, num_bytes),
        age_s=training.age_s if is_save else None,
        ready_in_s=_lead_s(attempt) if is_save and not attempt.pacer.first_byte else 0.0,
        max_bytes_per_s=spec.pipe_bytes_per_s,
        started=attempt.pacer.first_byte,
        urgent=attempt.urgent_s is not None,
        deadline_s=deadline_s if deadline_s is None else max(1e-3, deadline_s),
    )


def _lead_s(attempt: "Attempt") -> float:
    return max(attempt.job.spec.lead_s, attempt.job.spec.stall_s)


def _ready(attempt: "Attempt", now_s: float) -> Ready:
    transfer, fence = attempt.transfer, attempt.clock.fence
    assert transfer is not None
    assert fence is not None
    return Ready(
        **envelope(attempt),
        fence=fence,
        lead_s=now_s - transfer.begun_s,
        num_bytes=attempt.job.spec.num_bytes,
    )


def _renew(attempt: "Attempt", now_s: float) -> Renew:
    fence, allowance = attempt.clock.fence, attempt.clock.allowance(now_s)
    assert fence is not None
    return Renew(
        **envelope(attempt),
        fence=fence,
        held_bytes_per_s=allowance.bytes_per_s if allowance.fence == fence else 0,
        num_bytes=attempt.job.spec.num_bytes,
        **_figures(attempt, now_s),
    )


def _release(attempt: "Attempt", now_s: float) -> Release:
    spec, transfer, fence = attempt.job.spec, attempt.transfer, attempt.pacer.save_fence
    assert transfer is not None
    assert fence is not None
    is_save = attempt.kind is Kind.WRITE and not transfer.is_aborted
    write_s, figures = transfer.commit_s - transfer.begun_s, _figures(attempt, now_s)
    return Release(
        **envelope(attempt),
        fence=fence,
        outcome=Outcome.ABORTED if transfer.is_aborted else Outcome.COMMITTED,
        step=int(transfer.work_s),
        stall_s=spec.stall_s if is_save else None,
        lead_s=_lead_s(attempt) if is_save else None,
        write_s=write_s if is_save else None,
        eps=_eps(attempt, write_s - figures["throttled_s"]) if is_save else None,
        **figures,
    )


def _eps(attempt: "Attempt", at_work_s: float) -> float:
    lost_s = attempt.job.slow_down_s
    return min(1.0, lost_s / at_work_s) if lost_s > 0.0 else 0.0


def _figures(attempt: "Attempt", now_s: float) -> dict[str, Any]:
    """Totals since the first byte, as they are now; nothing before it."""
    transfer = attempt.transfer
    if transfer is None:
        return {"done_bytes": 0, "throttled_s": 0.0, "blocked_s": 0.0, "busy_s": 0.0}
    attempt.job.world.storages[attempt.kind].advance(now_s)
    stream = transfer.stream
    return {
        "done_bytes": int(stream.done_bytes),
        "throttled_s": stream.throttled_s,
        "blocked_s": stream.blocked_s,
        "busy_s": stream.busy_s,
    }
