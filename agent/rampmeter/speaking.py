"""Who speaks for a job: the conversation with the coordinator, the claim of the attempt, the plan that is kept.

One per job: in a job of many ranks rank 0 has it. Puts pacer, desk, speech and keeper together, and asks them nothing
that they could decide themselves.
"""

import logging
import random
from collections.abc import Callable

from rampmeter.config import JobSettings
from rampmeter.core import interval, phase
from rampmeter.core.clock import Clock
from rampmeter.core.decode import decode, encode
from rampmeter.core.errors import ProtocolError
from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import EndReason, Plan
from rampmeter.core.pacer import Pacer
from rampmeter.desk import Desk
from rampmeter.events import Event
from rampmeter.figures import Figures
from rampmeter.keeper import Keeper
from rampmeter.layout import Claim, Root
from rampmeter.preflight.lookout import Look
from rampmeter.report import SaveReport
from rampmeter.speech import Speech
from rampmeter.stepwatch import StepWatch

_log = logging.getLogger("rampmeter")

DEFAULT_STALL_S = 1.0
_FAREWELL_LIMIT_S = 5.0


class Spokesman:
    """From `start` to `close`. `on_claim` hears of a newer claim where the coordinator wanted one."""

    def __init__(
        self,
        root: Root,
        settings: JobSettings,
        *,
        job_uid: str,
        claim: Claim,
        clock: Clock,
        rng: random.Random,
        watch: StepWatch,
        look: Look,
        tell: Callable[[Event], None],
        on_claim: Callable[[Claim], None],
    ) -> None:
        self.claim = claim
        self._root = root
        self._settings = settings
        self._on_claim = on_claim
        self.speech = Speech(settings, job_uid, claim, watch)
        self._keeper = Keeper(
            url=settings.coordinator,
            pool=settings.pool,
            rng=rng,
            is_fenced=self.is_fenced,
            reclaim=self._reclaim,
            on_plan=self._keep_plan,
        )
        self.desk = Desk(
            self._make_pacer(clock.now(), rng),
            self.speech,
            clock=clock,
            on_event=tell,
            poke=self._keeper.poke,
            look=look,
        )

    def _make_pacer(self, now_s: float, rng: random.Random) -> Pacer:
        is_local = self._settings.coordinator is None
        lease_clock = LeaseClock()
        kept = self._kept_plan()
        if kept is not None and not is_local:
            lease_clock.remember(kept, now_s)
        return Pacer(
            lease_clock,
            now_s=now_s,
            draw=rng.random(),
            own_period_s=self._own_period(self.speech.figures),
            local=is_local,
            looks_first=True,
            read_unasked_s=phase.read_unasked_in(rng),
        )

    def start(self) -> None:
        """Begin to speak."""
        self._keeper.start(self.desk)

    def close(self, reason: EndReason) -> None:
        """Say goodbye."""
        self._keeper.close(_FAREWELL_LIMIT_S, reason)

    def save_over(self, report: SaveReport) -> None:
        """A save has ended: its lease can be given back, and what it taught counts from now on."""
        self.desk.save_ended(report, self._own_period)

    def is_fenced(self) -> bool:
        """Whether a newer attempt has claimed the root. Looks there, and may block."""
        newest = self._root.newest_claim()
        return newest is not None and newest.number > self.claim.number

    def claim_anew(self) -> None:
        """Training goes back: what this attempt has saved before must not be newer than what it saves from now on."""
        self._reclaim(self.claim.number + 1)

    def _reclaim(self, at_least: int) -> Claim:
        self.claim = self._root.claim_attempt(at_least)
        self._on_claim(self.claim)
        return self.claim

    def _own_period(self, figures: Figures) -> float:
        """The interval that the job would choose alone, from what was measured so far."""
        settings = self._settings
        stall_s = DEFAULT_STALL_S if figures.stall_s is None else figures.stall_s
        load = interval.Load(
            num_bytes=figures.num_bytes or 0,
            num_gpus=settings.num_gpus,
            cost_s=interval.cost(stall_s, figures.at_work_s or 0.0, figures.eps, synchronous=False),
            mtbf_s=settings.mtbf_s or interval.mtbf(settings.num_gpus),
            write_s=figures.write_s or 0.0,
            minimum_s=settings.interval_min_s or 0.0,
            wish_s=settings.interval_max_s,
        )
        return load.own_period_s

    # -- the plan under the root -------------------------------------------------------------------------------

    def _kept_plan(self) -> Plan | None:
        try:
            content = self._root.read_plan_bytes()
            return None if content is None else decode(Plan, content)
        except (OSError, ProtocolError) as error:
            _log.warning("the plan kept under the root is of no use: %s", error)
            return None

    def _keep_plan(self, plan: Plan | None) -> None:
        """Keep the plan for a start without coordinator; None = forget it."""
        try:
            if plan is None:
                self._root.remove_plan()
            else:
                self._root.write_plan_bytes(encode(plan))
        except OSError as error:
            _log.warning("the plan could not be kept under the root: %s", error)
