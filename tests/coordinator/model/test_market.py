"""When the price is asked for, what is in the question, and for how much a job counts on its word alone."""

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
from rampmeter_coordinator.model.pool import PoolConfig
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.model.state import PoolState
from rampmeter_coordinator.sim.population import mixed_fleet
from support.desk import Desk
from support.records import job, with_figures

POOL = PoolConfig(name="pool", capacity_bytes_per_s=1000, utilisation=1.0)
SOON_S = ASK_SOON_S + 0.01
LATER_S = ASK_ANYHOW_S + 0.01


class Stall:
    """A market without a ledger; its time is seconds from the begin."""

    def __init__(self, *jobs: Job, config: PoolConfig = POOL) -> None:
        self.state = PoolState(config, epoch=1, seed=1, grace_until_s=0.0)
        self.market = Market(self.state)
        for one in jobs:
            self.come(one)

    def come(self, one: Job) -> None:
        one.registered_s = one.contact_s = 0.0
        self.state.jobs[one.uid] = one
        self.market.registered(one)

    def grow(self, factor: float, *jobs: Job) -> None:
        for one in jobs:
            one.num_bytes = int((one.num_bytes or 0) * factor)
            self.market.committed(one)

    def price(self, now_s: float) -> float:
        """The price once a question, if there is one, is answered."""
        question = self.market.take_question(now_s)
        priced = None if question is None else question.answer()
        if priced is not None:
            self.state.set_price(priced.price_gpu_s_per_byte)
        return self.state.price

    def asks(self, now_s: float) -> bool:
        return self.market.take_question(now_s) is not None


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


# -- on its word alone -------------------------------------------------------------------------------------------------

GPUS, MTBF_S, BYTES = 256, 32_400.0, 1_400_000_000_000
BIG = PoolConfig(name="pool", capacity_bytes_per_s=10**11)


def example(name: str, **changes: object) -> Job:
    """The job of the worked examples, 200 of which need 3,500 s at 100 GB/s."""
    figures = {"num_gpus": GPUS, "mtbf_s": MTBF_S, "num_bytes": BYTES, "stall_s": 1.5, "write_s": 0.0}
    return job(name, **(figures | changes))


def intervals(stall: Stall, jobs: list[Job]) -> list[float]:
    return [planning.load_in(stall.state.config, one).interval_s(stall.state.price) for one in jobs]


ABSURD = [
    {"num_bytes": 10**18},
    {"interval_max_s": 1.0},
    {"interval_max_s": 1e-3, "num_bytes": 10**18},
    {"num_gpus": 10**6},
    {"num_gpus": 2**53 - 1},
    {"mtbf_s": 1e-3},
    {"stall_s": 0.0, "mtbf_s": 1e-3, "num_gpus": 10**6, "num_bytes": 10**18, "interval_max_s": 1e-3},
    {"stall_s": 1e10, "write_s": 1e10, "interval_min_s": 1e10},
]


@pytest.mark.parametrize("of_bytes", [0, 1])
def test_two_hundred_equal_newcomers_are_priced_as_what_they_are(of_bytes: int) -> None:
    """Nobody has saved yet, and still T is 3,500 s."""
    jobs = [example(str(number), of_bytes=of_bytes) for number in range(200)]
    stall = Stall(*jobs, config=BIG)
    stall.price(0.0)
    assert intervals(stall, jobs) == pytest.approx([3500.0] * 200, rel=0.005)


@pytest.mark.parametrize("capacity", [10**11, 10**12, 11 * 10**11, 2 * 10**12])
@pytest.mark.parametrize("of_bytes", [0, 1])
@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_an_absurd_newcomer_moves_nobody(claim: dict[str, float], of_bytes: int, capacity: int) -> None:
    """Whatever it claims: the others' intervals move by less than 5 %, whether they have saved or not."""
    jobs = [example(str(number), of_bytes=of_bytes) for number in range(200)]
    stall = Stall(*jobs, config=replace(BIG, capacity_bytes_per_s=capacity))
    stall.price(0.0)
    before = intervals(stall, jobs)
    stall.come(example("liar", **claim))
    stall.price(LATER_S)
    assert intervals(stall, jobs) == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_a_job_that_has_saved_is_not_believed_other_claims_at_once(claim: dict[str, float]) -> None:
    """A new attempt says something else of itself: it goes on counting for what it asked before."""
    jobs = [example(str(number), of_bytes=3) for number in range(200)]
    stall = Stall(*jobs, config=BIG)
    stall.price(0.0)
    before = intervals(stall, jobs[1:])
    with_figures(jobs[0], **claim)
    stall.market.registered(jobs[0])
    stall.price(LATER_S)
    assert intervals(stall, jobs[1:]) == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("load", [0.9, 0.995, 1.0, 1.05, 1.5, 3.0])
def test_an_absurd_newcomer_moves_nobody_in_a_mixed_fleet(load: float, seed: int) -> None:
    """Least of all where the price is about to leave 0: there small jobs feel each hundredth most."""
    jobs = [
        job(
            spec.uid,
            num_gpus=spec.num_gpus,
            num_bytes=spec.num_bytes,
            mtbf_s=spec.mtbf_s,
            stall_s=spec.stall_s,
            of_bytes=1,
        )
        for spec in mixed_fleet(200, seed)
    ]
    demand = interval.demand([planning.load_of(one) for one in jobs], 0.0)
    stall = Stall(*jobs, config=replace(POOL, capacity_bytes_per_s=int(demand / load)))
    stall.price(0.0)
    before = intervals(stall, jobs)
    stall.come(job("liar", num_bytes=10**18, num_gpus=10**6, mtbf_s=1e-3))
    stall.price(LATER_S)
    assert intervals(stall, jobs) == pytest.approx(before, rel=0.05)


def test_a_restart_with_the_same_figures_changes_nothing() -> None:
    """Whoever has saved under them is believed, also a giant, and also after a goodbye."""
    jobs = [example(str(number), of_bytes=3) for number in range(20)]
    giant = example("giant", num_bytes=40 * BYTES, num_gpus=10 * GPUS, of_bytes=3)
    stall = Stall(*jobs, giant, config=BIG)
    price = stall.price(0.0)
    stall.market.registered(giant)
    assert stall.price(LATER_S) == price
    giant.finished = True
    stall.market.left(giant)
    assert stall.price(2.0 * LATER_S) < 0.5 * price
    giant.finished = False
    stall.market.registered(giant)
    assert stall.price(3.0 * LATER_S) == pytest.approx(price, rel=0.01)


@pytest.mark.parametrize(("of_bytes", "is_believed"), [(0, False), (1, True)])
def test_after_a_restart_who_has_taught_nothing_is_a_newcomer(of_bytes: int, is_believed: bool) -> None:
    """Saves that could not be as they were told bear out nothing, however many: the others' intervals stay."""
    jobs = [example(str(number), of_bytes=1) for number in range(200)]
    stall = Stall(*jobs, config=BIG)
    before = stall.price(0.0)
    liar = example("liar", num_bytes=10**18, num_committed=7, of_bytes=of_bytes)
    stall.state.jobs[liar.uid] = liar
    stall.market = Market(stall.state)
    assert (stall.price(0.0) > 1.1 * before) is is_believed


@pytest.mark.parametrize("capacity", [10**9, 10**10, 10**11])
def test_the_figures_of_a_question_are_precise_enough(capacity: int) -> None:
    """Kept in 4 bytes, and still what jobs ask for at the price, by the scalar twin, fits within 1 + 1e-6."""
    specs = mixed_fleet(500, 3)
    jobs = [
        job(
            one.uid,
            num_gpus=one.num_gpus,
            num_bytes=one.num_bytes,
            mtbf_s=one.mtbf_s,
            stall_s=one.stall_s,
            of_bytes=1,
        )
        for one in specs
    ]
    stall = Stall(*jobs, config=replace(BIG, capacity_bytes_per_s=capacity))
    price = stall.price(0.0)
    assert price > 0.0
    budget = stall.state.config.budget_bytes_per_s
    asked = interval.demand([planning.load_of(one) for one in jobs], price)
    assert asked == pytest.approx(budget, rel=1e-6)
    assert asked <= budget * (1.0 + 1e-6)


def test_an_honest_giant_is_priced_in_full_after_its_first_save() -> None:
    """Until then it counts for a hundredth of the budget; after it as the scalar twin has it."""
    jobs = [example(str(number), of_bytes=1) for number in range(200)]
    giant = example("giant", num_bytes=100 * BYTES, num_gpus=20 * GPUS)
    stall = Stall(*jobs, config=BIG)
    before = stall.price(0.0)
    stall.come(giant)
    as_newcomer = stall.price(LATER_S)
    with_figures(giant, of_bytes=1)
    stall.market.committed(giant)
    in_full = stall.price(2.0 * LATER_S)
    loads = [planning.load_of(one) for one in (*jobs, giant)]
    assert in_full == pytest.approx(interval.solve_price(loads, 0.8e11), rel=1e-6)
    assert before < as_newcomer < 1.1 * before < in_full


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
