"""The waiters of one pool: who is granted, who stays on the line, who is sent home until later, and why.

Only connected waiters are granted, so the first in order are always held; those whose turn is far away are told when to
ask again. Others may pass a head that does not fit, until it starves: then nobody does. A walk along the queue looks at
the first of it only, however many wait; once a second everybody is looked at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from rampmeter.core.messages import Kind, WaitReason
from rampmeter_coordinator.model import bidding, counting, precedence
from rampmeter_coordinator.model.admission import Writer
from rampmeter_coordinator.model.answering import Answering
from rampmeter_coordinator.model.arming import Outlook, ahead_s
from rampmeter_coordinator.model.hopeless import Hopeless
from rampmeter_coordinator.model.line import Line
from rampmeter_coordinator.model.pool import HOLD_SLOT_S
from rampmeter_coordinator.model.rates import Rates, in_hand, lead_of
from rampmeter_coordinator.model.records import Job, Waiter
from rampmeter_coordinator.model.rescuing import Rescuing
from rampmeter_coordinator.model.state import PoolState

ALWAYS_HELD = 8
"""At least this many waiters are held on an open connection, so that there is always somebody to grant to."""

MAX_LOOKS = 16
"""So many different wishes that do not fit end a walk: what is left then is too little for nearly everybody."""

MAX_RETRY_S = 60.0

STALE_S = 5.0
"""A look at the queue, which looks ahead, is good for newcomers for so long, if nothing but newcomers came."""

_LOOK_AGAIN_S = 0.1
"""The shortest time between two looks at who can be armed where nothing else has happened."""

Grant = Callable[[Job, Waiter, float], None]


@dataclass(slots=True, kw_only=True)
class _Look:
    """What a walk along one queue has found so far: good for newcomers until something moves, or it is stale.

    num_idle   leases with their first byte in hand and no rate. As many as write are reserve enough, whatever the
               forecast says: nobody else is let in until they write, for their snapshots only get older
    behind     the outlook of background reads, which has the others of them in it, too: everybody else looks past them
    """

    lane: Kind
    at_s: float
    outlook: Outlook
    behind: Outlook
    max_held: int
    all_wait: WaitReason | None
    num_idle: int
    may_pass: bool = True
    may_pass_behind: bool = True
    position: int = 0

    def outlook_for(self, waiter: Waiter) -> Outlook:
        """Those that come before it, at least."""
        return self.behind if waiter.background else self.outlook

    def lets(self, waiter: Waiter) -> bool:
        """Whether it may be granted, if there is room."""
        return self.may_pass and (self.may_pass_behind or not waiter.background)

    def comes_next(self, newcomer: Writer, waiter: Waiter) -> None:
        """This one has its place before all that are asked about from now on."""
        if self.behind is self.outlook and waiter.background:
            self.behind = self.outlook.forked()
        self.behind.comes_next(newcomer)
        if self.behind is not self.outlook and not waiter.background:
            self.outlook.comes_next(newcomer)


class Queueing:
    """Serves the waiters of one pool; `grant` gives a lease."""

    def __init__(self, state: PoolState, rates: Rates, answering: Answering, grant: Grant) -> None:
        self._state = state
        self._rates = rates
        self._answering = answering
        self._grant = grant
        self._rescuing = Rescuing(state, rates)
        self._lines = {lane: Line() for lane in state.lanes}
        self._seen: dict[Kind, _Look] = {}

    def live_price(self, now_s: float) -> float:
        """As `bidding.live_price`."""
        return bidding.live_price(self._state.waiting.values(), now_s)

    # -- newcomers ---------------------------------------------------------------------------------------------

    def joins(self, job: Job, waiter: Waiter, now_s: float) -> bool:
        """Take a newcomer into its line. True if that changes nothing for anybody: no walk is called for.

        With no room in sight it waits with the others, or is sent home; the next walk sorts them.
        """
        lane = self._state.config.lane(waiter.kind)
        line = self._lines[lane]
        index = line.add(job, waiter, self._state.budget(lane), now_s)
        look = self._seen.get(lane)
        if look is None or not look.at_s <= now_s <= look.at_s + STALE_S:
            return False
        if waiter.deadline_at_s is not None or waiter.started:
            return False
        newcomer = self._rates.newcomer(job, waiter, lane, now_s + lead_of(job, waiter))
        if look.lets(waiter) and self._fits(job, waiter, newcomer, look, now_s):
            return False
        self._look_again_for(newcomer, look.outlook_for(waiter), now_s)
        self._stays_or_goes(job, waiter, look, line.num_before(index, look.max_held), now_s)
        return True

    # -- walks -------------------------------------------------------------------------------------------------

    def serve(self, now_s: float) -> bool:
        """Grant to those who fit, in order; send those home whose turn is far away.

        True if the walk ended because enough are ready: once they have rates there may be room for more.
        """
        state = self._state
        state.look_again_s = math.inf
        self._seen.clear()
        if not state.waiting:
            return False
        enough_are_ready = False
        for lane, line in self._lines.items():
            if line.is_empty:
                continue
            is_sorted = self._sort(lane, now_s)
            self._serve_urgent(lane, now_s)
            look = self._seen[lane] = self._walk(lane, now_s, to_the_end=is_sorted)
            enough_are_ready |= look.num_idle >= look.max_held
        return enough_are_ready

    def _sort(self, lane: Kind, now_s: float) -> bool:
        """Sort the line where it is time, or where restores and saves stand in one line, whose order is no number."""
        line, config = self._lines[lane], self._state.config
        if not config.shared_reads and not line.is_old(now_s):
            return False
        jobs = [
            job for job in self._state.waiting.values() if job.waiter and config.lane(job.waiter.kind) is lane
        ]
        line.sort(jobs, self._state.budget(lane), now_s)
        return True

    def _walk(self, lane: Kind, now_s: float, *, to_the_end: bool) -> _Look:
        line, look, hopeless = self._lines[lane], self._new_look(lane, now_s), Hopeless()
        if to_the_end:
            line.backlog_bytes = self._backlog(lane)
        for job, waiter in line:
            if look.lets(waiter) and self._is_granted(job, waiter, look, hopeless, now_s):
                continue
            if to_the_end:
                self._stays_or_goes(job, waiter, look, look.position, now_s)
            elif not look.lets(waiter):
                break
            waiter.reason = self._reason(job, waiter, look, now_s)
            look.position += 1
        return look

    def _is_granted(self, job: Job, waiter: Waiter, look: _Look, hopeless: Hopeless, now_s: float) -> bool:
        newcomer = self._rates.newcomer(job, waiter, look.lane, now_s + lead_of(job, waiter))
        if not hopeless.covers(newcomer):
            if self._fits(job, waiter, newcomer, look, now_s):
                self._grant(job, waiter, now_s)
                look.comes_next(newcomer, waiter)
                if not waiter.background:
                    look.num_idle += in_hand(waiter)
                    look.may_pass = look.num_idle < look.max_held
                return True
            hopeless.add(newcomer)
        self._look_again_for(newcomer, look.outlook_for(waiter), now_s)
        look.comes_next(newcomer, waiter)
        is_early = look.position < 2 * look.max_held
        if waiter.background:
            look.may_pass_behind = is_early
            return False
        starves = bidding.is_starving(job, waiter, now_s)
        look.may_pass = not starves and hopeless.num_wishes < MAX_LOOKS and is_early
        return False

    def _new_look(self, lane: Kind, now_s: float) -> _Look:
        everybody, rest = self._state.holders(lane), self._rates.rest(lane, now_s)
        holders = _without_background(everybody)
        num_writing = num_ready = 0
        for job in holders:
            num_writing += counting.leased(job, now_s) > 0
            num_ready += job.lease is not None and job.lease.ready
        num_idle = num_ready - num_writing
        outlook = behind = self._outlook_of(self._rates.in_order(holders, lane, now_s), rest, now_s)
        if len(holders) < len(everybody):
            behind = self._outlook_of(self._rates.in_order(everybody, lane, now_s), rest, now_s)
        return _Look(
            lane=lane,
            at_s=now_s,
            outlook=outlook,
            behind=behind,
            max_held=max(ALWAYS_HELD, 2 * num_writing),
            all_wait=self._why_all_wait(lane, rest, now_s),
            num_idle=num_idle,
            may_pass=num_idle < max(1, num_writing),
        )

    def _fits(self, job: Job, waiter: Waiter, newcomer: Writer, look: _Look, now_s: float) -> bool:
        """Whether room appears in time; a blocked read looks past those whom it would pause."""
        outlook, lane = look.outlook_for(waiter), look.lane
        if waiter.kind is Kind.READ and lane is Kind.WRITE and not waiter.background:
            holders = _without_background(self._state.holders(lane))
            ahead = precedence.ahead_of_waiter(holders, job, waiter, self._state.budget(lane), now_s)
            outlook = self._outlook_of(ahead, self._rates.rest(lane, now_s), now_s)
        return outlook.has_room_for(newcomer)

    def _outlook_of(self, holders: list[Job], rest_bytes_per_s: int, now_s: float) -> Outlook:
        """Those who write or will. Who is armed and late blocks nobody: it may come at any time, or never."""
        writers = [
            self._rates.writer(job, now_s)
            for job in holders
            if job.lease is not None and (job.lease.ready or (job.lease.ready_at_s or 0.0) >= now_s)
        ]
        return Outlook(writers, rest_bytes_per_s, self._state.config, now_s)

    def _look_again_for(self, newcomer: Writer, outlook: Outlook, now_s: float) -> None:
        """When the first of the writers ends within its lead time. What else changes is heard of, or expires."""
        at_s = outlook.first_end_s - (newcomer.from_s - now_s) - ahead_s(newcomer)
        if now_s < at_s < math.inf:
            self._state.look_again_s = min(self._state.look_again_s, max(at_s, now_s + _LOOK_AGAIN_S))

    # -- waits -------------------------------------------------------------------------------------------------

    def _stays_or_goes(self, job: Job, waiter: Waiter, look: _Look, position: int, now_s: float) -> None:
        """The first of a queue are held, and who comes soon; others are told when to ask again."""
        line = self._lines[look.lane]
        waiter.reason = self._reason(job, waiter, look, now_s)
        eta_s = line.backlog_bytes / max(1, self._state.budget(look.lane))
        line.backlog_bytes += waiter.num_bytes or 0
        if position >= look.max_held and eta_s > HOLD_SLOT_S:
            retry_s = min(MAX_RETRY_S, eta_s / 2.0) * (0.8 + 0.4 * self._state.rng.random())
            self._answering.wait(job, retry_s, waiter.reason, now_s, eta_s=eta_s)

    def _backlog(self, lane: Kind) -> int:
        """Bytes that the live leases have still to write; unknown ones count 0."""
        leases = [job.lease for job in self._state.holders(lane) if job.lease is not None]
        return sum(max(0, (lease.num_bytes or 0) - lease.done_bytes) for lease in leases)

    def _why_all_wait(self, lane: Kind, rest_bytes_per_s: int, now_s: float) -> WaitReason | None:
        """A reason that holds for everybody, if there is one."""
        if self._state.in_grace:
            return WaitReason.GRACE
        if rest_bytes_per_s <= 0:
            return WaitReason.OLD_LEASE if self._state.old_counted(lane, now_s) else WaitReason.SILENT_JOBS
        return None

    def _reason(self, job: Job, waiter: Waiter, look: _Look, now_s: float) -> WaitReason:
        if look.all_wait is not None:
            return look.all_wait
        if waiter.num_bytes is None:
            return WaitReason.SIZE_UNKNOWN
        config = self._state.config
        if config.max_writers is not None and len(self._state.holders(look.lane)) >= config.max_writers:
            return WaitReason.MAX_WRITERS
        tenant = job.terms.tenant
        if tenant is not None and config.max_tenant_bytes_per_s is not None:
            holders = self._state.holders(look.lane)
            of_tenant = sum(
                counting.leased(other, now_s) for other in holders if other.terms.tenant == tenant
            )
            if of_tenant >= config.max_tenant_bytes_per_s:
                return WaitReason.TENANT_CAP
        return WaitReason.QUEUE

    # -- deadlines ---------------------------------------------------------------------------------------------

    def _serve_urgent(self, lane: Kind, now_s: float) -> None:
        """Grant urgent saves that can be in time at once, tell the others."""
        urgent = self._urgent(lane)
        if not urgent:
            return
        fits_bytes = self._rescuing.judge([job for job, _ in urgent], lane, now_s).fits_bytes
        for job, waiter in urgent:
            if job.uid not in fits_bytes:
                self._grant(job, waiter, now_s)
                continue
            self._state.count("will_not_fit")
            self._answering.wait(job, 0.0, WaitReason.WILL_NOT_FIT, now_s, fits_bytes=fits_bytes[job.uid])

    def _urgent(self, lane: Kind) -> list[tuple[Job, Waiter]]:
        """They stand first, except behind restores in a line that both share."""
        found = []
        for job, waiter in self._lines[lane]:
            if waiter.deadline_at_s is not None:
                found.append((job, waiter))
            elif not self._state.config.shared_reads:
                break
        return found


def _without_background(holders: list[Job]) -> list[Job]:
    return [job for job in holders if job.lease is not None and not job.lease.background]
