"""When the price is asked for, what is in the question, and what its answer changes."""

from dataclasses import replace

import pytest

from rampmeter.core import interval
from rampmeter.core.messages import PlanReason
from rampmeter_coordinator.model import bidding, planning
from rampmeter_coordinator.model.commands import Command, Priced, Reply
from rampmeter_coordinator.model.ledger import Ledger
from rampmeter_coordinator.model.market import (
    ASK_ANYHOW_S,
    ASK_SOON_S,
    ASK_SOON_S_PER_JOB,
    LOOK_FOR_LOST_S,
    Market,
)
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState
from support.desk import Desk
from support.records import job
from support.stall import POOL, Stall

SOON_S = ASK_SOON_S + 0.01
LATER_S = ASK_ANYHOW_S + 0.01


def ten_jobs() -> list[Job]:
    """They ask for more than there is."""
    return [job(str(number), num_bytes=100_000, of_bytes=1) for number in range(10)]


def scarce() -> tuple[Stall, list[Job]]:
    """Ten jobs, and the price found at 0 s."""
    jobs = ten_jobs()
    stall = Stall(*jobs)
    assert stall.price(0.0) > 0.0
    return stall, jobs


# -- when ------------------------------------------------------------------------------------------------------------


def test_what_has_moved_noticeably_brings_a_new_price_soon() -> None:
    """Not before a second is over: questions are not free."""
    stall, jobs = scarce()
    price = stall.state.price
    stall.grow(3.0, *jobs)
    assert stall.price(ASK_SOON_S - 0.01) == price
    assert stall.price(SOON_S) > 2.0 * price


def test_whatever_has_moved_is_in_the_price_after_a_few_seconds() -> None:
    """One job of ten that writes 10 % more is below what is noticeable."""
    stall, jobs = scarce()
    stall.grow(1.1, jobs[0])
    assert not stall.asks(SOON_S)
    assert stall.asks(LATER_S)


def test_where_nothing_moves_nothing_is_asked() -> None:
    """However long that is."""
    stall, jobs = scarce()
    stall.grow(1.0, *jobs)
    assert not any(stall.asks(LATER_S + 10.0 * number) for number in range(50))


def test_many_small_moves_are_noticed_together() -> None:
    """Each is 0.5 % of the budget."""
    stall, jobs = scarce()
    for one in jobs[:3]:
        stall.grow(1.1, one)
        assert not stall.asks(SOON_S)
    stall.grow(1.1, *jobs[3:6])
    assert stall.asks(SOON_S)


@pytest.mark.parametrize(("share", "soon"), [(0.97, True), (0.99, False)])
def test_the_budget_is_an_input_like_any_other(share: float, soon: bool) -> None:
    """It follows what storage was seen to sustain."""
    stall, _ = scarce()
    stall.state.capacity.cap_bytes_per_s = int(share * 1000)
    assert stall.asks(SOON_S) is soon
    assert soon or stall.asks(LATER_S)


def test_a_large_pool_asks_less_often() -> None:
    """An answer costs CPU by the number of jobs."""
    jobs = [job(f"{number}", num_bytes=100, of_bytes=1) for number in range(30_000)]
    stall = Stall(*jobs)
    assert stall.asks(0.0)
    stall.grow(100.0, *jobs)
    soon_s = ASK_SOON_S_PER_JOB * len(jobs)
    assert not stall.asks(soon_s - 0.01)
    assert stall.asks(soon_s)


def test_a_price_that_moves_by_less_than_a_hundredth_stays() -> None:
    """It would move no interval out of its dead band, and every plan would be looked at again."""
    stall, jobs = scarce()
    price = stall.state.price
    stall.grow(1.003, *jobs)
    assert stall.price(LATER_S) == price


def test_on_a_storage_that_takes_nothing_no_price_fits() -> None:
    """Nobody is told to ask as if it were free."""
    stall, _ = scarce()
    stall.state.capacity.cap_bytes_per_s = 0
    assert stall.price(LATER_S) == interval.HIGHEST_PRICE


# -- who -------------------------------------------------------------------------------------------------------------


def test_a_finished_job_asks_for_nothing() -> None:
    """And one that is forgotten leaves its row to the next one."""
    stall, jobs = scarce()
    for one in jobs[1:6]:
        one.finished = True
        stall.market.left(one)
    for one in jobs[6:]:
        stall.market.forgotten(one)
    alone = Stall(job("alone", num_bytes=100_000, of_bytes=1))
    assert stall.price(SOON_S) == pytest.approx(alone.price(0.0), rel=1e-6)
    stall.come(job("new", num_bytes=100_000, of_bytes=1))
    assert {one.row for one in stall.state.jobs.values()} == set(range(10))


def test_a_lost_job_asks_for_nothing_until_it_is_heard_again() -> None:
    """Both are found within a minute or so, without a word of the job."""
    stall, jobs = scarce()
    price = stall.state.price
    now_s = 5000.0
    for one in jobs[1:]:
        one.answered_s = now_s
    assert stall.price(now_s) < price
    jobs[0].answered_s = now_s
    assert not stall.asks(now_s + LATER_S)
    assert stall.price(now_s + LOOK_FOR_LOST_S) == pytest.approx(price, rel=1e-6)


def test_to_look_for_the_lost_changes_nothing_of_a_job() -> None:
    """No reply may depend on when a question is asked."""
    stall, jobs = scarce()
    for one in jobs:
        one.planned_price = stall.state.price
    for now_s in (1000.0, 1100.0, 2000.0):  # all are lost, half of them are back, and lost again
        before = repr(jobs)
        question = stall.market.take_question(now_s)
        assert question is not None
        assert question.asked.num_bytes.size == (5 if now_s == 1100.0 else 0)
        assert repr(jobs) == before
        for one in jobs[:5]:
            one.answered_s = 1000.0


def test_a_restart_finds_everybody_again() -> None:
    """The finished and those of unknown size ask for nothing."""
    jobs = [*ten_jobs(), job("unknown"), job("over", num_bytes=10**9, finished=True)]
    state = PoolState(POOL, epoch=1, seed=1, grace_until_s=0.0)
    state.jobs = {one.uid: one for one in jobs}
    for one in jobs:
        one.registered_s = one.contact_s = 0.0
    question = Market(state).take_question(0.0)
    assert question is not None
    assert question.asked.num_bytes.tolist() == [100_000.0] * 10


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_base_price_holds_from_the_first_plan_on() -> None:
    """Also while storage is idle; scarce storage may cost more."""
    config = replace(POOL, base_price_gpu_s_per_byte=0.01)
    stall = Stall(job("alone", num_bytes=1000), config=config)
    assert stall.state.price == stall.price(0.0) == 0.01
    assert Stall(*ten_jobs(), config=config).price(0.0) == pytest.approx(Stall(*ten_jobs()).price(0.0))


def test_an_overhead_budget_is_in_the_question() -> None:
    """T >= C / p is part of the minimum: who may not ask oftener leaves room for the others."""
    stingy = replace(POOL, max_stall_share=0.0001)
    assert Stall(*ten_jobs(), config=stingy).price(0.0) == 0.0 < Stall(*ten_jobs()).price(0.0)


# -- through the ledger ------------------------------------------------------------------------------------------------


def test_only_the_answer_changes_what_jobs_are_told() -> None:
    """A question that nobody answers has no consequence."""
    desk = Desk()
    one = desk.known(1, 0.0, num_bytes=1000)
    desk.ledger._state.capacity.cap_bytes_per_s = 900
    assert desk.ledger.take_question(100.0) is not None
    assert one.heartbeat(101.0).plan is None
    desk.apply(Priced(price_gpu_s_per_byte=1.0), 102.0)
    plan = one.heartbeat(103.0).plan
    assert (plan.price_gpu_s_per_byte, plan.reason) == (1.0, PlanReason.PRICE)
    assert desk.ledger.pool_view(103.0).price_gpu_s_per_byte == 1.0


def test_a_restart_keeps_the_price() -> None:
    """Nobody is told a plan for a free storage meanwhile."""
    desk = Desk()
    jobs = [desk.known(number, 0.0, num_bytes=10**6) for number in range(5)]
    for now_s in range(10, 60, 10):
        for one in jobs:
            one.heartbeat(now_s)
    price = desk.ledger.pool_view(60.0).price_gpu_s_per_byte
    assert price > 0.0
    desk.restart()
    assert desk.ledger.pool_view(61.0).price_gpu_s_per_byte == price
    assert [one.heartbeat(62.0).plan for one in jobs] == [None] * 5


def test_a_plan_says_what_the_job_bids_and_what_is_bid() -> None:
    """With the age of its newest durable state, or since it registered; beside the highest bid that waits."""
    desk = Desk()
    desk.writer(1, 0.0, num_bytes=10**6)
    waiter = desk.known(2, 0.0, num_bytes=10_000)
    waiter.ask(4.0, age_s=2000.0)
    late = desk.job(3, num_bytes=20_000)
    late.register(5.0)
    plan = late.last.plan
    highest = planning.load_of(desk.ledger._state.jobs[waiter.uid]).bid(2001.0)
    assert (plan.bid_gpu_s_per_byte, plan.live_price_gpu_s_per_byte) == (0.0, pytest.approx(highest))
    desk.ledger.apply(Priced(price_gpu_s_per_byte=0.5), 1004.0)
    late.heartbeat(1005.0)
    bid = planning.load_of(desk.ledger._state.jobs[late.uid]).bid(1000.0)
    assert late.last.plan.bid_gpu_s_per_byte == pytest.approx(bid)
    assert bid > 0.0


def test_what_many_are_told_at_once_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a walk over all waiters for each of them."""
    desk, looks = Desk(), []
    monkeypatch.setattr(bidding, "live_price", lambda jobs, now_s: looks.append(now_s) or 0.0)
    for number in range(50):
        desk.job(number).register(0.01 * number)
    assert len(looks) == 1


def test_what_is_answered_on_the_spot_is_a_command_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that `decide` applied give the same replies again."""
    heard: list[tuple[Command, float, tuple[Reply, ...]]] = []
    apply = Ledger.apply

    def listen(self: Ledger, command: Command, now_s: float) -> tuple[Reply, ...]:
        heard.append((command, now_s, apply(self, command, now_s)))
        return heard[-1][-1]

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "apply", listen)
        desk = Desk()
        for number in range(20):
            desk.known(number, 3.0 * number, num_bytes=10**6)
    again = Ledger.new(desk.config, epoch=1, seed=7, grace_until_s=0.0)
    assert [again.apply(command, now_s) for command, now_s, _ in heard] == [said for *_, said in heard]
    assert Priced in {type(command) for command, *_ in heard}
