"""Where the threads of an agent meet: the pacer, the words for the coordinator and the writer's cell, behind one lock.

Training and flush threads say here what happened; the keeper's thread asks what to say next and brings the answers.
Nothing here waits: no network, no file, no other thread. `on_event` is called under the lock and must be quick.
"""

import logging
import threading
from collections.abc import Callable

from rampmeter import telling
from rampmeter.confirming import LOOK_AGAIN_S, Confirming
from rampmeter.core.clock import Clock
from rampmeter.core.lifecycle import OF_A_REREAD, OF_A_RESTORE
from rampmeter.core.messages import AnyAnswer, EndReason, Plan, Request, SlotRequest
from rampmeter.core.notice import GivenUp, GiveUp
from rampmeter.core.pacer import Action, Governance, Pacer, PacerState
from rampmeter.events import CoordinatorHeard, Event, RateChanged, SaveHeldBack, StateChanged
from rampmeter.figures import Figures
from rampmeter.flow import Flow, Permit
from rampmeter.joblog import log_given_up, log_goes_on, log_held_back, log_plan, log_reachable, log_saved
from rampmeter.layout import Claim
from rampmeter.parting import Parting
from rampmeter.preflight.lookout import HANGS, Look
from rampmeter.preflight.shortage import Shortage
from rampmeter.reading.counter import ReadCounter
from rampmeter.reading.turns import ReadTurns
from rampmeter.report import SaveReport
from rampmeter.rereading.turns import RereadTurns
from rampmeter.speech import Restoration, Speech

_log = logging.getLogger("rampmeter")

CLAIM_CHECK_S = 15.0
"""TTL / 2: how often a writer that hears no coordinator looks whether a newer attempt has claimed the root."""

_LEAVE_S = 10.0
"""Before the announced end: what leaving takes if storage hangs."""

_WITHOUT_LEASE = frozenset({Governance.SAFE_RATE, Governance.UNGOVERNED})


class Desk:
    """One per attempt. `poke` wakes the keeper's thread; `look` is asked where the pacer wants a look."""

    def __init__(
        self,
        pacer: Pacer,
        speech: Speech,
        *,
        clock: Clock,
        on_event: Callable[[Event], None],
        poke: Callable[[], None],
        look: Look | None = None,
    ) -> None:
        self.wants_snapshot = False
        self.stopped = False
        self.ends_unsaved = False
        """The save before the announced end is given up."""
        self._pacer = pacer
        self._speech = speech
        self._clock = clock
        self._on_event = on_event
        self._poke = poke
        self._look = look
        self._reads = ReadTurns(pacer.reading, pool=speech.settings.pool, clock=clock, on_event=on_event)
        self._rereads = RereadTurns(pacer.rereading, clock=clock)
        self._held_back: Shortage | None = None
        self._lock = threading.RLock()
        self.reader = ReadCounter(
            pacer,
            speech,
            reads=self._reads,
            rereads=self._rereads,
            clock=clock,
            lock=self._lock,
            advance=self.advance,
            poke=poke,
        )
        self._flow: Flow | None = None
        self._confirming = Confirming()
        self._allowed: tuple[int | None, float | None] = (0, None)
        self._last_state = pacer.state
        self._reachable: bool | None = None
        self._claim_checked_s = float("-inf")
        self.parting = Parting(speech.settings.notice_s, clock)
        self._last_given_up: GivenUp | None = None

    # -- said by training and flush threads --------------------------------------------------------------------

    def begin_snapshot(self, flow: Flow) -> Permit | None:
        """Training is about to snapshot, for a save that is steered by `flow`; None if it may not."""
        with self._lock:
            self.advance()
            if not self.wants_snapshot:
                return None
            self._speech.watch.snapshot_begins()
            self._pacer.begin_snapshot(self._clock.now())
            self._flow, self._allowed = flow, (0, None)
            self.advance()
            return Permit(fence=self._pacer.lease_clock.fence, max_streams=self._pacer.max_streams)

    def first_byte(self, num_bytes: int) -> None:
        """The flush holds the first byte of `num_bytes` and waits for a rate."""
        with self._lock:
            self._speech.note_first_byte(self._clock.now(), num_bytes)
            self._pacer.first_byte_in_hand()
            self.advance()
        self._poke()

    def save_ended(self, report: SaveReport, own_period_s: Callable[[Figures], float]) -> None:
        """The flush has ended. `own_period_s` tells the job's own period from what was measured so far."""
        with self._lock:
            now_s = self._clock.now()
            snapshot_s = self._pacer.snapshot_s
            self._speech.note_report(report, now_s if snapshot_s is None else snapshot_s)
            log_saved(report)
            self._on_event(telling.save_ended(report, self._pacer.governance, now_s))
            self._pacer.set_own_period(own_period_s(self._speech.figures))
            self._pacer.ended(now_s, committed=report.committed)
            if self._pacer.notice is None:
                self.parting.save_over(report)
            self._flow = None
            self.advance()
        self._poke()

    def restored(self, step: int, *, load_s: float, rolled_back: bool) -> None:
        """Training goes on from a durable `step`, which has just been loaded in `load_s` seconds."""
        _log.info("training goes on from the checkpoint of step %d", step)
        with self._lock:
            now_s = self._clock.now()
            self._speech.note_restored(
                Restoration(step=step, rolled_back=rolled_back, load_s=load_s, ended_s=now_s)
            )

    def stall_known(self, stall_s: float) -> None:
        """The cold-start figure for the stall of a save; `size_known` tells it on."""
        with self._lock:
            self._speech.figures.believe_stall(stall_s)

    def size_known(self, num_bytes: int) -> None:
        """The cold-start figure for the bytes of a save: told to the coordinator by registering once more."""
        with self._lock:
            if self._speech.figures.believe_size(num_bytes):
                self._pacer.forgotten()
        self._poke()

    def notice(self, what: str = "a notice") -> None:
        """The job is about to be ended: save soon. Takes no lock, for it may be called inside a signal handler."""
        self.parting.announced(what)
        self._poke()

    def looked(self, found: Shortage | None) -> None:
        """Whether the save that is due can be made, and what lacks if not."""
        with self._lock:
            self._note_looked(found)
            self.advance()
        self._poke()

    def stop(self, why: str) -> None:
        """This attempt is over: a newer one exists."""
        _log.error("this attempt of the job saves no more: %s", why)
        with self._lock:
            self.stopped, self.wants_snapshot = True, False
            if self._flow is not None:
                self._flow.abort("superseded")
            self._reads.stop("superseded")
            self._rereads.stop("superseded")

    @property
    def plan(self) -> Plan | None:
        """The newest plan."""
        with self._lock:
            return self._pacer.lease_clock.plan

    @property
    def max_streams(self) -> int | None:
        """How many writers the lease in hand allows inside the job; None = any."""
        return self._pacer.max_streams

    @property
    def ends_soon(self) -> bool:
        """The announced end is near, and its save is being written: leaving loses no more, and `close` waits for it."""
        notice = self._pacer.notice
        return (
            notice is not None
            and self._pacer.holds_snapshot
            and self._clock.now() >= notice.deadline_at_s - _LEAVE_S
        )

    @property
    def owes_a_save(self) -> bool:
        """A notice has come, and the save for it has not ended."""
        with self._lock:
            return self._pacer.notice is not None

    @property
    def num_ungoverned(self) -> int:
        """Saves and restores that had no right to but the job's own."""
        return self._pacer.num_ungoverned + self._pacer.reading.num_ungoverned

    # -- said by the keeper's thread ---------------------------------------------------------------------------

    def advance(self) -> Action:
        """Let time pass and carry what follows to training, to the writer and to whoever listens; what to say next."""
        with self._lock:
            now_s = self._clock.now()
            self._speech.watch.ask(now_s)
            self._hurry_if_noticed(now_s)
            if self._pacer.notice is not None:
                self._pacer.set_need(self._speech.need_s(self._pacer, self._flow, now_s))
            self._pacer.tick(now_s)
            self._look_if_due(now_s)
            self._note_given_up(now_s)
            self._note_state(now_s)
            self.wants_snapshot = self._pacer.wants_snapshot and not self.stopped
            self._carry_rate(now_s)
            leaving = self.parting.is_announced
            self._reads.carry(now_s, leaving=leaving, saving=self._pacer.holds_snapshot)
            self._rereads.carry(now_s, leaving=leaving)
            self._confirm()
            action = self._pacer.next_action(now_s)
            return Action.NOTHING if self._confirming.delays(action, now_s) else action

    def wake_in(self) -> float:
        """Seconds until `advance` may have something new; infinity if nothing is coming."""
        with self._lock:
            now_s = self._clock.now()
            wake_s = min(self._pacer.wake_at(now_s), self._reads.wake_at(now_s))
            if self._confirming.is_open:
                wake_s = min(wake_s, now_s + LOOK_AGAIN_S)
            if self._writes_without_lease():
                wake_s = min(wake_s, self._claim_checked_s + CLAIM_CHECK_S)
            return max(0.0, wake_s - now_s)

    def word(self, action: Action) -> tuple[Request, float]:
        """The request that stands for `action`, and the time at which it is sent."""
        with self._lock:
            now_s = self._clock.now()
            if action in OF_A_RESTORE:
                return self._reads.word(action, self._speech.envelope(), now_s), now_s
            if action in OF_A_REREAD:
                return self._rereads.word(action, self._speech.envelope(), now_s), now_s
            return self._speech.word(action, self._pacer, self._flow, now_s), now_s

    def has_become_urgent(self, request: Request) -> bool:
        """A notice came after this request for a slot was worded."""
        return isinstance(request, SlotRequest) and self.owes_a_save and not request.urgent

    def answered(self, action: Action, answer: AnyAnswer, first_sent_s: float) -> None:
        """The answer to `action` has come."""
        fence = getattr(answer, "fence", None)
        with self._lock:
            now_s = self._clock.now()
            self._confirming.answered(answer.seq, fence.epoch if fence else 0, now_s)
            before = self._pacer.lease_clock.plan
            of_read, of_reread = action in OF_A_RESTORE, action in OF_A_REREAD
            self._pacer.answered(answer, first_sent_s, now_s, of_read=of_read, of_reread=of_reread)
            self._pacer.said(action, now_s)
            if action is Action.REGISTER and not self._speech.has_told_size:
                self._pacer.forgotten()  # it became known while this was on its way
            self._note_plan(before, now_s)
            self._heard(now_s, reachable=True, detail="answers")
            self.advance()

    def not_answered(self, retry_after_s: float, detail: str) -> None:
        """Nothing usable came back; the keeper tries again after `retry_after_s`."""
        with self._lock:
            now_s = self._clock.now()
            self._pacer.unreachable(now_s, retry_after_s)
            self._heard(now_s, reachable=False, detail=detail)
            self.advance()

    def forgotten(self, claim: Claim | None = None) -> None:
        """The coordinator does not know this attempt: register again, with `claim` where a new one was needed."""
        with self._lock:
            if claim is not None:
                self._speech.new_claim(claim)
            self._pacer.forgotten()

    def last_words(self, reason: EndReason) -> list[Request]:
        """What is left to say at the end of the job: the lease that is still held, and goodbye."""
        with self._lock:
            if not self._pacer.registered:
                return []
            now_s = self._clock.now()
            words: list[Request] = []
            last = self._pacer.next_action(now_s)
            if last in (Action.RELEASE, Action.RELEASE_READ, Action.RELEASE_REREAD):
                words.append(self.word(last)[0])
            return [*words, self._speech.farewell(reason)]

    def claim_check_is_due(self) -> bool:
        """A save goes on without a lease: nobody but the root can tell that this attempt was replaced."""
        with self._lock:
            is_old = self._clock.now() >= self._claim_checked_s + CLAIM_CHECK_S
            return is_old and self._writes_without_lease()

    def claim_checked(self) -> None:
        """The newest claim was read and is still ours."""
        with self._lock:
            self._claim_checked_s = self._clock.now()
            self.advance()

    # -- inside ------------------------------------------------------------------------------------------------

    def _confirm(self) -> None:
        is_followed = (self._flow is None or self._flow.is_followed) and self._reads.is_followed
        if self._confirming.is_open and is_followed:
            self._speech.applied(*self._confirming.take())

    def _writes_without_lease(self) -> bool:
        return self._flow is not None and self._pacer.governance in _WITHOUT_LEASE

    def _hurry_if_noticed(self, now_s: float) -> None:
        ends_at_s = self.parting.begins(is_saving=self._pacer.holds_snapshot)
        if ends_at_s is not None:
            self._pacer.hurry(now_s, deadline_at_s=ends_at_s)

    def _look_if_due(self, now_s: float) -> None:
        if self._look is not None and self._pacer.wants_look(now_s):
            self._pacer.look_first.begins(now_s)
            if not self._look(self._speech.figures.num_bytes, self.looked):
                self._note_looked(HANGS)

    def _note_looked(self, found: Shortage | None) -> None:
        """A save that lacks something is told of once, and counts as failed once, however long it is late."""
        before, self._held_back = self._held_back, found
        self._pacer.look_first.cleared |= found is None
        if found is None and before is not None:
            log_goes_on(before)
        if found is None or (before is not None and before.reason is found.reason):
            return
        if before is None:
            self._speech.note_failed(found.reason)
        log_held_back(found)
        self._on_event(SaveHeldBack(now_s=self._clock.now(), reason=found.reason, detail=found.detail))

    def _note_given_up(self, now_s: float) -> None:
        """Tell the writer, training, the log and whoever listens, once."""
        given_up = self._pacer.given_up
        if given_up is None or given_up is self._last_given_up:
            return
        self._last_given_up = given_up
        if self._flow is not None:
            self._flow.abort(given_up.reason)
        if given_up.reason is not GiveUp.MAKE_ROOM:
            self.ends_unsaved = True
            self.parting.given_up()
        log_given_up(given_up, self._speech.figures.num_bytes)
        self._on_event(telling.save_given_up(given_up, now_s))

    def _note_plan(self, before: Plan | None, now_s: float) -> None:
        """A job hears why its interval is another one; nothing where it is not."""
        plan = self._pacer.lease_clock.plan
        if plan is None or (before is not None and before.interval_s == plan.interval_s):
            return
        log_plan(plan, self._speech.settings.interval_max_s)
        self._on_event(telling.plan_changed(plan, now_s))

    def _note_state(self, now_s: float) -> None:
        state = self._pacer.state
        if state is self._last_state:
            return
        self._last_state = state
        if state is PacerState.ARMED and not self._pacer.holds_snapshot:
            self._speech.note_armed(now_s)
        self._on_event(StateChanged(now_s=now_s, state=state))

    def _carry_rate(self, now_s: float) -> None:
        """Tell the writer what it may use now, where that has changed."""
        if self._flow is None:
            return
        allowed = self._allowed_now(now_s)
        if allowed == self._allowed:
            return
        self._allowed = allowed
        self._flow.set_rate(*allowed)
        rate, until_s = allowed
        governance = self._pacer.governance
        self._on_event(RateChanged(now_s=now_s, bytes_per_s=rate, until_s=until_s, governance=governance))

    def _allowed_now(self, now_s: float) -> tuple[int | None, float | None]:
        governance = self._pacer.governance
        if governance is Governance.LOCAL:
            return None, None
        if governance in _WITHOUT_LEASE and now_s >= self._claim_checked_s + 2.0 * CLAIM_CHECK_S:
            return 0, None  # the newest claim is read before the first byte
        if governance is Governance.UNGOVERNED:
            return None, None
        allowance = self._pacer.lease_clock.allowance(now_s)
        return allowance.bytes_per_s, allowance.until_s

    def _heard(self, now_s: float, *, reachable: bool, detail: str) -> None:
        if reachable is self._reachable:
            return
        self._reachable = reachable
        log_reachable(self._speech.settings.pool, reachable=reachable, detail=detail)
        self._on_event(CoordinatorHeard(now_s=now_s, reachable=reachable, detail=detail))
