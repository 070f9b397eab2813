"""Whether this process leads, and who does instead: the lease that the store keeps, asked for again and again.

Decides nothing about pools. It may say "this process leads" only while the lease that it was given lasts on its own
clock, counted from before it asked; it can err only towards "nobody leads". Two that both believe to lead could still
not both write: the epoch of every commit sees to that.
"""

import asyncio
import logging
from uuid import uuid4

from rampmeter.core.clock import Clock
from rampmeter_coordinator.clocks import ClockSamples
from rampmeter_coordinator.errors import StoreUnavailable
from rampmeter_coordinator.store.protocol import Candidate, Lead, Store

LEASE_S = 3.0
RENEW_S = 1.0
POLL_S = 0.25
STAND_BACK_S = 1.0
_LIMIT_S = 1.0
"""A question without an answer for this long is given up."""

_LEAST_LIMIT_S = 0.05

log = logging.getLogger(__name__)


class OtherLeader:
    """Another process that leads. `over` is set once it does not, as far as is known here."""

    def __init__(self, holder: str, url: str) -> None:
        self.holder = holder
        self.url = url
        self.over = asyncio.Event()


class Leadership:
    """Asks when told to (`poll`); `leads` and `other` say what is known at this moment."""

    def __init__(self, store: Store, clock: Clock, *, url: str, boot_id: str) -> None:
        self.samples = ClockSamples()
        self.heard = False
        """The store answered when it was last asked."""
        self.trouble = ""
        """Why it last did not."""
        self.num_changes = 0
        """How often another process than before was seen to lead."""
        self._store = store
        self._clock = clock
        self._url = url
        self._boot_id = boot_id
        self._holder = uuid4().hex
        self._until_s = 0.0
        self._other: OtherLeader | None = None
        self._other_until_s = 0.0
        self._last_holder = ""
        self._stands_back_until_s = 0.0
        self._news = asyncio.Event()

    @property
    def leads(self) -> bool:
        """The own lease lasts."""
        return self._clock.now() < self._until_s

    @property
    def other(self) -> OtherLeader | None:
        """Who else leads; None if that is this process, nobody, or not known since a lease's length."""
        if self._other is not None and self._clock.now() >= self._other_until_s:
            self._forget_other()
        return self._other

    @property
    def wait_s(self) -> float:
        """How long to wait before the next poll."""
        return RENEW_S if self.leads else POLL_S

    async def poll(self) -> bool:
        """Ask the store; False if it did not answer. What was known stays known until its time is over."""
        sent_s = self._clock.now()
        if sent_s < self._stands_back_until_s:
            return self.heard
        try:
            async with asyncio.timeout(self._limit_s(sent_s)):
                if self._must_stand_back():
                    await self._store.resign(
                        self._holder
                    )  # changes nothing, but tells whether the store is back
                    self._stands_back_until_s = self._clock.now() + STAND_BACK_S
                else:
                    lead = await self._store.lead(self._candidate(sent_s), LEASE_S)
                    self._note(lead, sent_s)
        except (StoreUnavailable, TimeoutError) as error:
            self._not_heard(error)
            return False
        self.heard = True
        return True

    def news(self) -> asyncio.Event:
        """Set when who leads changes from now on, or who led begins to serve."""
        return self._news

    def tell(self) -> None:
        """Who leads has changed: wake whoever waits for that."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def resign(self) -> None:
        """Lead no more, so that another may at once. A store that does not answer lets the lease run out."""
        self._until_s = 0.0
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._store.resign(self._holder)
        except (StoreUnavailable, TimeoutError):
            return

    def _not_heard(self, error: Exception) -> None:
        trouble = str(error) or f"no answer within {_LIMIT_S:g} s"
        if self.heard or not self.trouble:
            log.warning("the store does not say who leads: %s", trouble)
        self.heard, self.trouble = False, trouble

    def _candidate(self, now_s: float) -> Candidate:
        return Candidate(holder=self._holder, url=self._url, boot_id=self._boot_id, now_s=now_s)

    def _must_stand_back(self) -> bool:
        """The store was away and another process led before: it knows whether commits were lost, so it comes first."""
        return not self.heard and self._last_holder not in ("", self._holder)

    def _limit_s(self, now_s: float) -> float:
        """Not beyond the own lease: its end must be noticed when it comes."""
        left_s = self._until_s - now_s
        return _LIMIT_S if left_s <= 0 else min(_LIMIT_S, max(left_s, _LEAST_LIMIT_S))

    def _note(self, lead: Lead, sent_s: float) -> None:
        leader, now_s = lead.leader, self._clock.now()
        if leader.holder != self._last_holder:
            self.num_changes += self._last_holder != ""
            self._last_holder = leader.holder
        if leader.holder == self._holder:
            self._until_s = sent_s + lead.ttl_s
            self._forget_other()
            return
        self._until_s = 0.0
        self.samples.note(leader, now_s)
        if self._other is None or self._other.holder != leader.holder:
            self._forget_other()
            self._other = OtherLeader(leader.holder, leader.url)
            self.tell()
        self._other_until_s = now_s + lead.ttl_s

    def _forget_other(self) -> None:
        if self._other is not None:
            self._other.over.set()
            self._other = None
