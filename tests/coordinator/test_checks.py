"""The ledger's check of itself in a serving engine: by sample, loud, and never in the way."""

import asyncio
import logging
from dataclasses import replace

from coordinator.test_engine import POOL, engine_over, registered
from rampmeter.core.messages import Noted
from support.stores import TestedStore


def test_a_pool_at_odds_with_itself_is_told_of_and_goes_on(caplog):
    """A running sum that has drifted is seen at the next check, counted and logged; requests are answered."""

    async def run():
        async with engine_over(TestedStore(), pools=(replace(POOL, check_every_s=0.0),)) as engine:
            (job,) = await registered(engine)
            assert engine.counters("lustre").num_broken == 0
            engine._runners["lustre"].opened.ledger._state._silent_sum += 1
            assert isinstance(await job.tell(engine, job.heartbeat()), Noted)
            return engine.counters("lustre").num_broken

    with caplog.at_level(logging.CRITICAL):
        assert asyncio.run(run()) == 1
    assert "pool lustre: silent jobs count 1, but their records say 0" in caplog.text


def test_nothing_is_checked_unless_it_is_wished():
    """It looks at every job: the operator decides how often."""

    async def run():
        async with engine_over(TestedStore()) as engine:
            (job,) = await registered(engine)
            engine._runners["lustre"].opened.ledger._state._silent_sum += 1
            await job.tell(engine, job.heartbeat())
            return engine.counters("lustre").num_broken

    assert asyncio.run(run()) == 0
