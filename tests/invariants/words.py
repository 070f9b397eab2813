"""What a process of the adversarial world says: the fields of its requests, honest about what it did."""

from typing import TYPE_CHECKING, Any

from rampmeter.core.messages import (
    EndReason,
    Heartbeat,
    Outcome,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
)

if TYPE_CHECKING:
    from invariants.process import Process


def words_of(process: "Process", kind: type[Request], now_s: float) -> dict[str, Any]:
    """The fields of a request of this kind beside its envelope, said at `now_s` of the process's clock."""
    in_hand = process._save.in_hand(now_s)
    done = {"done_bytes": int(process._save.done_bytes), **process._save.spent}
    if kind is Register:
        held = process.clock.plan.safe_bytes_per_s if process.clock.plan else 0
        figures = {"num_gpus": 8, "num_bytes": process.job.num_bytes, "stall_s": 1.0, "mtbf_s": 3600.0}
        claim = f"{process.attempt:032x}"
        tenant = process.job.tenant
        return {"name": "job", "claim": claim, "safe_bytes_per_s": held, "tenant": tenant, **figures}
    if kind is Heartbeat:
        return {"step": 1}
    if kind is SlotRequest:
        return _slot_words(process, now_s, started=in_hand)
    if kind is Ready:
        return {"fence": process.clock.fence, "lead_s": process.job.lead_s}
    if kind is Renew:
        held = process.usable()[0]
        return {"fence": process.clock.fence, "kind": process._save.kind, "held_bytes_per_s": held, **done}
    if kind is Release:
        return {"fence": process._release_fence, "outcome": Outcome.COMMITTED, "write_s": 1.0, **done}
    return {"reason": EndReason.FINISHED}


def _slot_words(process: "Process", now_s: float, *, started: bool) -> dict[str, Any]:
    words: dict[str, Any] = {
        "kind": process._save.kind,
        "started": started,
        "num_bytes": process.job.num_bytes,
    }
    words["ready_in_s"] = (
        max(0.0, process._save.byte_in_hand_s - now_s) if process._save.active else process.job.lead_s
    )
    words["max_bytes_per_s"] = process.job.max_bytes_per_s
    words["age_s"] = max(0.0, now_s - process._snapshot_s)
    if process._urgent():
        words |= {"urgent": True, "deadline_s": max(0.1, process._ends_s - now_s)}
    return words
