"""Requests with figures from the edges of the wire, in any order: the pool goes on, and says what can be read."""

import dataclasses
import random
from enum import StrEnum
from functools import cache
from typing import Any, get_type_hints

import pytest

from rampmeter.core.decode import decode_answer
from rampmeter.core.fields import MAX_BYTES, MAX_SECONDS
from rampmeter.core.messages import (
    Finish,
    Grant,
    Heartbeat,
    Ready,
    Register,
    Release,
    Renew,
    Request,
    SlotRequest,
    Wait,
    WaitReason,
)
from rampmeter_coordinator.model.commands import Refusal
from rampmeter_coordinator.model.encoding import encode
from support.desk import POOL, Desk, Talker

T = 1000.0
NUM_JOBS = 12
NUM_STEPS = 500
KINDS = (Register, Heartbeat, SlotRequest, SlotRequest, SlotRequest, Ready, Renew, Renew, Release, Finish)
POOLS = {
    "plain": POOL,
    "one byte a second": dataclasses.replace(POOL, capacity_bytes_per_s=1),
    "10 PB/s": dataclasses.replace(POOL, capacity_bytes_per_s=10**16),
    "all limits": dataclasses.replace(
        POOL, max_writers=1, max_streams=1, max_tenant_bytes_per_s=300, shared_reads=True
    ),
    "half in shadow": dataclasses.replace(POOL, enforced_share=0.5),
    "leases of 3 s": dataclasses.replace(POOL, ttl_s=3.0, first_ttl_s=1.0, safe_for_s=0.0),
}


class Stranger(Talker):
    """Says anything that the wire allows, most of it senseless; keeps to its numbers, so that it is listened to."""

    def __init__(self, desk: Desk, number: int, draw: random.Random) -> None:
        super().__init__(desk, number, {})
        self._draw = draw

    def speak(self, now_s: float) -> None:
        """One request, drawn."""
        kind = Register if self.seq == 0 else self._draw.choice(KINDS)
        self.say(kind, now_s, **_drawn(kind, self, self._draw))


@cache
def _hints(kind: type[Request]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _drawn(kind: type[Request], talker: Talker, draw: random.Random) -> dict[str, Any]:
    """Every field that the envelope does not have: the least, the most, or something ordinary; optional ones or not."""
    hints = _hints(kind)
    fixed = {"claim": f"{1:032x}", "fence": talker.fence, "name": "job", "tenant": draw.choice("ab")}
    words = {}
    for field in dataclasses.fields(kind)[4:]:
        if field.default is not dataclasses.MISSING and draw.random() < 0.4:
            continue
        words[field.name] = fixed.get(field.name) or _value(hints[field.name], draw)
    return words


def _value(hint: Any, draw: random.Random) -> Any:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return draw.choice(list(hint))
    marker = hint.__metadata__[0]
    if not hasattr(marker, "ge"):
        return draw.random() < 0.3
    ordinary = draw.choice((1, 10, 100, 1000, 10_000))
    value = draw.choice((marker.ge, marker.le, ordinary, ordinary))
    return type(marker.ge)(value)


@pytest.mark.parametrize("name", POOLS)
def test_whatever_the_wire_allows_breaks_nothing_and_is_answered_in_its_bounds(name: str) -> None:
    """No error, no broken invariant, no answer that an agent would refuse, no time that a tick leaves in the past."""
    draw = random.Random(name)
    desk, now_s = Desk(POOLS[name]), T
    strangers = [Stranger(desk, number << 124 | number, draw) for number in range(NUM_JOBS)]
    num_grants = 0
    for _ in range(NUM_STEPS):
        now_s += draw.choice((0.0, 0.01, 1.0, 1.0, 5.0, 40.0))
        draw.choice(strangers).speak(now_s)
        desk.tick(now_s)
        wake_at_s = desk.ledger.wake_at_s()
        assert wake_at_s is None or wake_at_s > now_s
        desk.ledger.validate(now_s)
        for stranger in strangers:
            stranger.hear()
        answers = [body for body in desk.replies.values() if not isinstance(body, Refusal)]
        for answer in answers:
            decode_answer(encode(answer))
        num_grants += sum(isinstance(answer, Grant) for answer in answers)
        desk.replies.clear()
    assert num_grants > NUM_STEPS / 50


def test_the_longest_lead_time_gets_a_start_within_that_can_be_said() -> None:
    """Twice the largest duration of the wire is none: the agent would refuse the grant, again and again."""
    desk = Desk()
    grant = desk.known(1, T).ask(T, ready_in_s=MAX_SECONDS)
    assert isinstance(grant, Grant)
    assert grant.start_within_s == MAX_SECONDS


def test_a_turn_that_never_comes_has_an_eta_that_can_be_said() -> None:
    """Behind 10^18 bytes at a byte per second."""
    desk = Desk(POOLS["one byte a second"])
    desk.writer(1, T, num_bytes=MAX_BYTES)
    waiters = [desk.known(number, T, num_bytes=MAX_BYTES) for number in range(2, 22)]
    said = [waiter.ask(T, ready_in_s=0.0) for waiter in waiters]
    etas = [body.eta_s for body in said if isinstance(body, Wait) and body.reason is WaitReason.QUEUE]
    assert etas
    assert set(etas) == {MAX_SECONDS}
