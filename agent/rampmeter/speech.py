"""Words the requests of one attempt: numbers them, acknowledges what was applied, and carries what was measured.

Facts come in from training (steps, a restore), from the saver (reports) and from the pacer (where the save stands).
Sends nothing.
"""

from dataclasses import dataclass

from rampmeter.config import JobSettings
from rampmeter.core.messages import (
    EndReason,
    FailReason,
    Finish,
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
from rampmeter.core.pacer import Action, Pacer
from rampmeter.envelope import Envelope
from rampmeter.failing import ABORTED
from rampmeter.figures import Figures
from rampmeter.flow import Flow
from rampmeter.layout import Claim
from rampmeter.report import SaveReport
from rampmeter.stepwatch import StepWatch
from rampmeter.throttle import FlowCounters

DEFAULT_LEAD_S = 1.0

_SHORTEST_S = 1e-3
"""The wire's shortest duration; a lead time of 0 would say that the first byte is in hand."""

_NOTHING_YET = FlowCounters(done_bytes=0, throttled_s=0.0, blocked_s=0.0, busy_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """State was loaded in `load_s` seconds, up to `ended_s`. rolled_back: by name, although newer steps were there."""

    step: int
    rolled_back: bool
    load_s: float
    ended_s: float


class Speech:
    """Used under the desk's lock."""

    def __init__(self, settings: JobSettings, job_uid: str, claim: Claim, watch: StepWatch) -> None:
        self.claim = claim
        self.settings = settings
        self.watch = watch
        self.figures = Figures()
        self.report: SaveReport | None = None
        self._job_uid = job_uid
        self._seq = 0
        self._ack = 0
        self._seen_epoch = 0
        self._sampled: tuple[int, float] | None = None
        self._step_s: float | None = None
        self._eps: float | None = None
        self._begun_from: Restoration | None = None
        self._restored: Restoration | None = None
        self._armed_s: float | None = None
        self._lead_s: float | None = None
        self._committed_step: int | None = None
        self._committed_s: float | None = None
        self._registered_bytes: int | None = None
        self._num_failed = 0
        self._last_failure = FailReason.NONE

    # -- facts -------------------------------------------------------------------------------------------------

    def note_committed(self, step: int, snapshot_s: float) -> None:
        """`step` is durable; its snapshot was taken at `snapshot_s`."""
        self._committed_step, self._committed_s = step, snapshot_s

    def note_restored(self, restored: Restoration) -> None:
        """Training goes on from there. Only what came before the first step was part of the restart."""
        self._restored = restored
        if self.watch.first_step_s is None:
            self._begun_from = restored
        self.note_committed(restored.step, restored.ended_s)

    def note_armed(self, now_s: float) -> None:
        """The right to go on has come; the lead time begins."""
        self._armed_s = now_s

    def note_first_byte(self, now_s: float, num_bytes: int) -> None:
        """The lead time ends, and the size of this save is known; of one without tensors nothing is."""
        self.figures.num_bytes = num_bytes or self.figures.num_bytes
        if self._armed_s is not None:
            self._lead_s = now_s - self._armed_s

    def note_report(self, report: SaveReport, snapshot_s: float) -> None:
        """A save has ended; only a committed one teaches."""
        self.report = report
        self._eps = self.watch.flush_ended(committed=report.committed, at_work_s=report.at_work_s)
        if not report.committed:
            self.note_failed(report.reason or FailReason.UNKNOWN)
            return
        self.figures.learn(report, self._eps)
        self.note_committed(report.step, snapshot_s)

    def note_failed(self, reason: FailReason) -> None:
        """A save that was due did not become a checkpoint."""
        self._num_failed += 1
        self._last_failure = reason

    def applied(self, seq: int, seen_epoch: int) -> None:
        """The answer to `seq` was applied."""
        self._ack = seq
        self._seen_epoch = max(self._seen_epoch, seen_epoch)

    def need_s(self, pacer: Pacer, flow: Flow | None, now_s: float) -> float:
        """From a grant now to durable at the job's own full speed; 0 as long as its size or speed is unknown."""
        num_bytes = self._bytes_left(flow)
        max_bytes_per_s = self.figures.max_bytes_per_s
        if num_bytes is None or not max_bytes_per_s:
            return 0.0
        return self._ready_in_s(pacer, now_s) + num_bytes / max_bytes_per_s

    def _bytes_left(self, flow: Flow | None) -> int | None:
        done_bytes = flow.counters().done_bytes if flow else 0
        num_bytes = self.figures.num_bytes
        return None if num_bytes is None else max(0, num_bytes - done_bytes)

    def _ready_in_s(self, pacer: Pacer, now_s: float) -> float:
        """0 with the first byte in hand; what is left of the measured lead time where the snapshot exists."""
        if pacer.first_byte:
            return 0.0
        lead_s = self._lead_s or DEFAULT_LEAD_S
        if pacer.holds_snapshot and self._armed_s is not None:
            lead_s -= now_s - self._armed_s
        return max(_SHORTEST_S, lead_s)

    def new_claim(self, claim: Claim) -> None:
        """Speak as a newer attempt: its numbers begin anew."""
        self.claim, self._seq, self._ack = claim, 0, 0

    # -- words -------------------------------------------------------------------------------------------------

    def word(self, action: Action, pacer: Pacer, flow: Flow | None, now_s: float) -> Request:
        """The request that stands for `action`, with the next number."""
        envelope = self.envelope()
        if action is Action.REGISTER:
            return self._register(envelope, pacer)
        if action is Action.ASK:
            return self._ask(envelope, pacer, flow, now_s)
        if action is Action.HEARTBEAT:
            return self._heartbeat(envelope, pacer, now_s)
        if action is Action.RELEASE:
            return self._release(envelope, pacer)
        return self._of_lease(action, envelope, pacer, flow, now_s)

    @property
    def has_told_size(self) -> bool:
        """The newest registration was worded with the size that is known now."""
        return self._registered_bytes == self.figures.num_bytes

    def farewell(self, reason: EndReason) -> Finish:
        """The attempt ends."""
        return Finish(**self.envelope(), reason=reason)

    def envelope(self) -> Envelope:
        """The next number."""
        self._seq += 1
        return Envelope(job_uid=self._job_uid, attempt=self.claim.number, seq=self._seq, ack=self._ack)

    def _register(self, envelope: Envelope, pacer: Pacer) -> Register:
        settings, figures, plan = self.settings, self.figures, pacer.lease_clock.plan
        self._registered_bytes = figures.num_bytes
        return Register(
            **envelope,
            name=settings.name,
            claim=self.claim.nonce,
            tenant=settings.tenant,
            num_gpus=settings.num_gpus,
            num_bytes=figures.num_bytes,
            stall_s=figures.stall_s,
            write_s=figures.write_s,
            mtbf_s=settings.mtbf_s,
            restart_s=settings.restart_s,
            interval_min_s=settings.interval_min_s,
            interval_max_s=settings.interval_max_s,
            survives=settings.survives,
            seen_epoch=self._seen_epoch,
            safe_bytes_per_s=plan.safe_bytes_per_s if plan else 0,
        )

    def _heartbeat(self, envelope: Envelope, pacer: Pacer, now_s: float) -> Heartbeat:
        self._time_a_step(now_s)
        restored, begun_from = self._restored, self._begun_from
        return Heartbeat(
            **envelope,
            step=self.watch.step,
            step_s=self._step_s,
            committed_step=self._committed_step,
            commit_age_s=None if self._committed_s is None else now_s - self._committed_s,
            num_skipped=pacer.num_skipped,
            num_failed=self._num_failed,
            last_failure=self._last_failure,
            num_ungoverned=pacer.num_ungoverned + pacer.reading.num_ungoverned,
            restored_step=restored.step if restored else None,
            rolled_back=restored.rolled_back if restored else False,
            load_s=begun_from.load_s if begun_from else None,
            warm_up_s=self._warm_up_s(pacer),
        )

    def _warm_up_s(self, pacer: Pacer) -> float | None:
        """From the start to the first step, without the restore: what training prepares before and after it."""
        if self.watch.first_step_s is None:
            return None
        load_s = self._begun_from.load_s if self._begun_from else 0.0
        return max(0.0, self.watch.first_step_s - pacer.started_s - load_s)

    def _ask(self, envelope: Envelope, pacer: Pacer, flow: Flow | None, now_s: float) -> SlotRequest:
        notice = pacer.notice
        durable_s = pacer.started_s if self._committed_s is None else self._committed_s
        return SlotRequest(
            **envelope,
            kind=Kind.WRITE,
            num_bytes=self._bytes_left(flow),
            age_s=now_s - durable_s,
            ready_in_s=self._ready_in_s(pacer, now_s),
            max_bytes_per_s=self.figures.max_bytes_per_s,
            started=pacer.first_byte,
            urgent=notice is not None,
            deadline_s=None if notice is None else max(_SHORTEST_S, notice.deadline_at_s - now_s),
        )

    def _of_lease(
        self, action: Action, envelope: Envelope, pacer: Pacer, flow: Flow | None, now_s: float
    ) -> Ready | Renew:
        fence = pacer.lease_clock.fence
        assert fence is not None
        if action is Action.READY:
            lead_s = self._lead_s or 0.0
            return Ready(**envelope, fence=fence, lead_s=lead_s, num_bytes=self.figures.num_bytes)
        counters = flow.counters() if flow else _NOTHING_YET
        held = pacer.lease_clock.allowance(now_s)
        return Renew(
            **envelope,
            fence=fence,
            held_bytes_per_s=held.bytes_per_s if held.fence == fence else 0,
            done_bytes=counters.done_bytes,
            throttled_s=counters.throttled_s,
            blocked_s=counters.blocked_s,
            busy_s=counters.busy_s,
            num_bytes=self.figures.num_bytes,
        )

    def _release(self, envelope: Envelope, pacer: Pacer) -> Release:
        report = self.report
        assert report is not None
        assert pacer.save_fence is not None
        return Release(
            **envelope,
            fence=pacer.save_fence,
            outcome=_outcome(report),
            done_bytes=report.counters.done_bytes,
            throttled_s=report.counters.throttled_s,
            blocked_s=report.counters.blocked_s,
            busy_s=report.counters.busy_s,
            step=report.step,
            stall_s=report.stall_s,
            lead_s=self._lead_s,
            write_s=report.write_s if report.committed else None,
            eps=self._eps,
            num_failed=self._num_failed,
            last_failure=self._last_failure,
        )

    def _time_a_step(self, now_s: float) -> None:
        step = self.watch.step
        if self._sampled is not None and step > self._sampled[0]:
            self._step_s = (now_s - self._sampled[1]) / (step - self._sampled[0])
        self._sampled = step, now_s


def _outcome(report: SaveReport) -> Outcome:
    if report.committed:
        return Outcome.COMMITTED
    return Outcome.ABORTED if report.reason in ABORTED else Outcome.FAILED
