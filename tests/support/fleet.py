"""Many agents in one process over real HTTP, and an observer who adds up what all of them may use.

An agent keeps the rules of the real one: the real lease clock says what it may use, one request is in flight, a request
that was not answered is sent again under its number, and its deadline counts from the first time that it was sent.
Holders keep one lease for ever; the others write a little, release, and ask again.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace

import httpx

from rampmeter.core.clock import SystemClock
from rampmeter.core.decode import decode_answer, encode
from rampmeter.core.leaseclock import LeaseClock
from rampmeter.core.messages import Gone, Grant, LeaseState, SlotRequest, Wait
from support.examples import PATHS
from support.jobs import Job
from support.waiting import LIMIT_S, until

CAPACITY = 1_000_000_000
BUDGET = 800_000_000
LOOK_S = 0.02
RETRY_S = 0.2
WRITE_S = 0.5
FOR_EVER_S = 10_000.0


@dataclass(frozen=True, slots=True)
class NewGrant:
    """A slot was granted, or got its first rate: when the answer came, and under which fence."""

    at_s: float
    fence: tuple[int, int]


@dataclass
class Agent(Job):
    """One job. `fences` are those of its leases, in order; `lapses` counts leases whose time was over while held;
    `lost` are those that the coordinator no longer knew although they still lived."""

    rate: int = 0
    holds: bool = False
    clock: LeaseClock = field(default_factory=LeaseClock)
    fences: list = field(default_factory=list)
    lapses: int = 0
    asked_for: bool = False
    done_bytes: float = 0.0
    wrote_s: float = 0.0
    looked_s: float = 0.0
    lost: list = field(default_factory=list)
    refused: list = field(default_factory=list)


class Fleet:
    """All agents, and what was seen of them. `urls`: the replicas, asked in turn where one does not answer."""

    def __init__(self, urls: list[str], *, holders: int, others: int) -> None:
        self.urls = urls
        self.slots: list[NewGrant] = []
        """Slot requests that were granted; most leases begin armed."""
        self.grants: list[NewGrant] = []
        """Slots that got their first rate."""
        self.worst = 0
        self.violations: list[tuple[float, int]] = []
        self._time = SystemClock()
        self._random = random.Random(5)
        share = BUDGET // 2 // max(holders, 1)
        self.agents = [Agent(rate=share, holds=True) for _ in range(holders)]
        self.agents += [Agent(rate=BUDGET // 6) for _ in range(others)]
        self._at = dict.fromkeys(range(len(self.agents)), 0)
        self._tasks: list[asyncio.Task] = []
        self._http: httpx.AsyncClient | None = None

    async def __aenter__(self):
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(30.0, connect=1.0),
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        )
        self._tasks = [asyncio.create_task(self._watch())]
        self._tasks += [asyncio.create_task(self._live(index)) for index in range(len(self.agents))]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()
        for error in ended:
            assert error is None or isinstance(error, asyncio.CancelledError), repr(error)

    @property
    def holders(self):
        """The agents that never release."""
        return [agent for agent in self.agents if agent.holds]

    def now_s(self):
        """The clock of all agents."""
        return self._time.now()

    def all_write(self):
        """Every holder has a rate."""
        return all(agent.clock.allowance(self.now_s()).bytes_per_s for agent in self.holders)

    def fence_now(self):
        """The highest fence that was granted."""
        return max((grant.fence for grant in self.grants), default=(0, 0))

    def new_slot_since(self, since_s, fence):
        """The first slot granted after `since_s` with a higher epoch than `fence`."""
        return _first_since(self.slots, since_s, fence)

    def new_grant_since(self, since_s, fence):
        """The first slot with a rate after `since_s` with a higher epoch than `fence`."""
        return _first_since(self.grants, since_s, fence)

    def check(self, *, may_lapse=False):
        """Nobody ever had more than there is; no lease that lived was lost; no holder's ran out, unless it may."""
        assert not self.violations, self.violations[:5]
        assert not [agent.lost for agent in self.agents if agent.lost]
        lapses = [(agent.fences, agent.lapses) for agent in self.holders if agent.lapses]
        assert may_lapse or not lapses, lapses[:5]

    # -- an agent's life -----------------------------------------------------------------------------------------

    async def _live(self, index):
        agent = self.agents[index]
        await self._ask(index, agent.register)
        if not agent.holds:  # small saves come first: the holders would never find room beside them
            await until(self.all_write, what="all holders to write", limit_s=2 * LIMIT_S)
        while True:
            answer = await self._ask(index, lambda: self._next_request(agent))
            if isinstance(answer, Wait):
                await asyncio.sleep(answer.retry_after_s * self._random.uniform(0.5, 1.0))
            elif not agent.holds and isinstance(answer, Grant) and answer.state is LeaseState.ACTIVE:
                await asyncio.sleep(WRITE_S * self._random.uniform(0.5, 1.5))
                self._written(agent)
                agent.clock.dropped()
                self._look()
                await self._ask(index, lambda: replace(agent.release(), **self._written(agent)))
                agent.fence = None

    def _next_request(self, agent):
        if agent.fence is None:
            seconds = FOR_EVER_S if agent.holds else WRITE_S
            return agent.slot(max_bytes_per_s=agent.rate, num_bytes=int(agent.rate * seconds))
        rate = agent.clock.allowance(self.now_s()).bytes_per_s
        return replace(agent.renew(held=rate), **self._written(agent))

    def _written(self, agent):
        """What it wrote under its lease until now: as fast as it may, asleep in its bucket otherwise."""
        now_s = self.now_s()
        passed_s, agent.looked_s = now_s - agent.looked_s, now_s
        rate = agent.clock.allowance(now_s).bytes_per_s
        if rate:
            agent.done_bytes += rate * passed_s
            agent.wrote_s += passed_s
        return {"done_bytes": int(agent.done_bytes), "throttled_s": agent.wrote_s}

    async def _ask(self, index, make):
        """Make a request and send it until it is answered; the answer to a register where that is wanted first."""
        agent, request, first_s = self.agents[index], make(), self.now_s()
        while True:
            answer, pause_s = await self._send(index, request)
            if answer is not None:
                self._apply(agent, request, answer, first_s)
                return answer
            if pause_s is not None:
                await asyncio.sleep(pause_s)
            elif agent.refused[-1] == "unknown_job":
                return await self._ask(index, agent.register)
            else:  # it was held when its coordinator died: its number is used up
                request, first_s = make(), self.now_s()

    async def _send(self, index, request):
        """(answer, None), or (None, seconds until the next try), or (None, None): not this one again."""
        url = self.urls[self._at[index] % len(self.urls)]
        try:
            response = await self._http.post(
                f"{url}/v1/pools/default/{PATHS[type(request)]}", content=encode(request)
            )
        except httpx.HTTPError:
            self._at[index] += 1
            return None, RETRY_S
        if response.status_code == 200:
            return decode_answer(response.content), None
        self.agents[index].refused.append(response.json()["reason"])
        if response.status_code == 503:
            return None, float(response.headers["retry-after"])
        return None, None

    def _apply(self, agent, request, answer, first_s):
        now_s = self.now_s()
        agent.acked = answer.seq
        if agent.clock.lapsed(now_s):
            agent.lapses += 1
        elif agent.fence is not None and _other_lease(answer, agent.fence):
            agent.lost.append(agent.fence)
        agent.clock.answered(now_s, answer.plan)
        if isinstance(answer, Grant):
            agent.clock.granted(answer, first_s)
            fence = (answer.fence.epoch, answer.fence.counter)
            if fence not in agent.fences:
                agent.fences.append(fence)
                agent.asked_for = isinstance(request, SlotRequest)
                agent.done_bytes, agent.wrote_s, agent.looked_s = 0.0, 0.0, now_s
                if agent.asked_for:
                    self.slots.append(NewGrant(at_s=now_s, fence=fence))
            if (
                agent.asked_for and answer.bytes_per_s
            ):  # not a lease that is re-created or only armed in grace
                agent.asked_for = False
                self.grants.append(NewGrant(at_s=now_s, fence=fence))
            agent.fence = answer.fence
        elif isinstance(answer, Gone):
            agent.clock.dropped()
            agent.fence = None
        self._look()

    # -- the observer --------------------------------------------------------------------------------------------

    async def _watch(self):
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self):
        now_s = self.now_s()
        used = sum(agent.clock.allowance(now_s).bytes_per_s for agent in self.agents)
        self.worst = max(self.worst, used)
        if used > BUDGET:
            self.violations.append((now_s, used))


def _first_since(grants, since_s, fence):
    return next((grant for grant in grants if grant.at_s > since_s and grant.fence[0] > fence[0]), None)


def _other_lease(answer, fence):
    """The coordinator knows nothing of this lease any more, or gave another one for it."""
    return isinstance(answer, Gone) or (isinstance(answer, Grant) and answer.fence != fence)
