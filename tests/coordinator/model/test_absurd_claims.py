"""M, GPUs and wishes that stand alone: they move nobody, are counted, and no kind of honest job is taken for one."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs as struct

from rampmeter.core import interval
from rampmeter_coordinator.model import planning
from rampmeter_coordinator.model.asked import Asked
from rampmeter_coordinator.model.commands import Priced
from rampmeter_coordinator.model.market import ASK_ANYHOW_S, Market
from rampmeter_coordinator.model.pricing import solve
from rampmeter_coordinator.model.records import Job
from rampmeter_coordinator.sim.population import mixed_fleet
from support.desk import Desk, Talker
from support.records import job
from support.stall import BIG, GPUS, MTBF_S, Stall, example, intervals

LATER_S = ASK_ANYHOW_S + 0.01
LOADS = [0.5, 0.9, 0.995, 1.0, 1.05, 1.5, 3.0]
SHORT_M = {"mtbf_s": 1e-3}
ABSURD: list[dict[str, Any]] = [
    SHORT_M,
    {"mtbf_s": 5.0},
    {"mtbf_s": 600.0},
    {"num_gpus": 100 * GPUS},
    {"num_gpus": 2**53},
    {"num_gpus": 2**53, "mtbf_s": None},
    {"num_gpus": 2**53, "mtbf_s": 1e-3},
    {"interval_max_s": 1.0},
    {"num_gpus": 2**53, "mtbf_s": 1e-3, "interval_max_s": 1e-3},
]


def honest_fleet(num_jobs: int, seed: int) -> list[Job]:
    """The mixed fleet of the simulator; all have saved."""
    figures = ("num_gpus", "num_bytes", "mtbf_s", "stall_s")
    specs = mixed_fleet(num_jobs, seed)
    return [job(spec.uid, of_bytes=1, **{name: getattr(spec, name) for name in figures}) for spec in specs]


def claims(one: Job, **claim: Any) -> Job:
    """The job as it is, but for what it says."""
    names = ("num_gpus", "num_bytes", "mtbf_s", "stall_s")
    return job(one.uid, of_bytes=1, **({name: getattr(one, name) for name in names} | claim))


def fresh(jobs: list[Job]) -> list[Job]:
    """The same jobs where no market has seen them."""
    return [struct.replace(one, row=-1) for one in jobs]


def told(jobs: list[Job], load: float, honest: list[Job]) -> list[float]:
    """What all are told on a storage for which the honest ones ask `load` times of what it can give."""
    demand = interval.demand([planning.load_of(one) for one in honest], 0.0)
    capacity = int(demand / load / BIG.utilisation)
    stall = Stall(*fresh(jobs), config=replace(BIG, capacity_bytes_per_s=capacity))
    stall.price(0.0)
    return intervals(stall, jobs)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("num_jobs", [3, 30, 200])
@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_an_absurd_claim_of_one_of_many_equals_moves_nobody(
    claim: dict[str, Any], num_jobs: int, load: float
) -> None:
    """It has saved, so its bytes and times are known: what cannot be measured counts as with the others."""
    honest = [example(str(number), of_bytes=1) for number in range(num_jobs)]
    liar = example("0", of_bytes=1, **claim)
    assert told([liar, *honest[1:]], load, honest)[1:] == pytest.approx(
        told(honest, load, honest)[1:], rel=1e-3
    )


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_an_absurd_claim_moves_nobody_in_a_mixed_fleet(claim: dict[str, Any], seed: int, load: float) -> None:
    """By 5 % at most, whoever it is that claims it: what is usual is near enough to what it should have said."""
    honest = honest_fleet(300, seed)
    before = told(honest, load, honest)
    for number in range(0, 300, 60):
        jobs = [*honest]
        jobs[number] = claims(honest[number], **claim)
        after = told(jobs, load, honest)
        del after[number]
        assert after == pytest.approx(before[:number] + before[number + 1 :], rel=0.05)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("num_saved", [1, 2])
@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_the_first_to_save_is_no_measure_of_itself(
    claim: dict[str, Any], num_saved: int, load: float
) -> None:
    """Where a pool has just begun, what newcomers say is heard: the others' intervals stay as they were."""
    honest = [example(str(number), of_bytes=int(number < num_saved)) for number in range(30)]
    liar = example("0", of_bytes=1, **claim)
    assert told([liar, *honest[1:]], load, honest)[1:] == pytest.approx(
        told(honest, load, honest)[1:], rel=1e-3
    )


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("wish", [{}, {"interval_max_s": 1.0}], ids=str)
def test_two_words_together_are_not_a_hundred_times_off(wish: dict[str, float], load: float) -> None:
    """GPUs and M, neither of them ten times beyond the others': more GPUs excuse no M that is short twice over."""
    honest = [example(str(number), of_bytes=1) for number in range(30)]
    liar = example("0", of_bytes=1, num_gpus=int(9.9 * GPUS), mtbf_s=MTBF_S / 9.9**2, **wish)
    assert told([liar, *honest[1:]], load, honest)[1:] == pytest.approx(
        told(honest, load, honest)[1:], rel=1e-3
    )


@pytest.mark.parametrize("num_saved", [0, 1, 2, 3])
@pytest.mark.parametrize("num_jobs", [3, 5, 30, 200])
def test_no_honest_fleet_is_doubted_while_few_have_saved(num_jobs: int, num_saved: int) -> None:
    """It is priced exactly from its first question on."""
    for seed in range(10):
        asked = Asked.of(planning.load_of(one) for one in honest_fleet(num_jobs, seed))
        asked.believed_bytes_per_s[num_saved:] = 0.0
        assert asked.doubting() is asked


@pytest.mark.parametrize("num_jobs", [5, 30, 200, 1000])
def test_no_honest_fleet_is_doubted(num_jobs: int) -> None:
    """Jobs of very different size, GPU-hours per failure a factor of two off and stalls of 0.3 to 8 s."""
    for seed in range(10):
        asked = Asked.of(planning.load_of(one) for one in honest_fleet(num_jobs, seed))
        assert asked.doubting() is asked


@pytest.mark.parametrize(("num_spot", "is_believed"), [(1, False), (4, False), (5, True), (100, True)])
def test_what_several_say_is_a_kind_of_job(num_spot: int, is_believed: bool) -> None:
    """Spot jobs with an M of half an hour among reserved ones with 9 h: the price is exact from a fiftieth on."""
    spot = [example(f"spot{number}", of_bytes=1, mtbf_s=1800.0) for number in range(num_spot)]
    jobs = [*spot, *(example(str(number), of_bytes=1) for number in range(200 - num_spot))]
    stall = Stall(*jobs, config=BIG)
    exact = interval.solve_price([planning.load_of(one) for one in jobs], BIG.budget_bytes_per_s)
    assert (stall.price(0.0) == pytest.approx(exact, rel=1e-5)) is is_believed


@pytest.mark.parametrize(("times", "is_doubted"), [(9.0, False), (11.0, True)])
@pytest.mark.parametrize("word", ["mtbf_s", "num_gpus", "interval_max_s"])
def test_a_word_may_be_true_up_to_ten_times(word: str, times: float, is_doubted: bool) -> None:
    """Further off it is doubted: M, GPUs, and the C of which a wish is the own period."""
    own = example("0")
    said = {
        "mtbf_s": {"mtbf_s": 32_400.0 / times},
        "num_gpus": {"num_gpus": int(GPUS * times), "mtbf_s": 32_400.0 / times},
        "interval_max_s": {"interval_max_s": planning.load_of(own).own_period_s / times**0.5},
    }
    loads = [planning.load_of(one) for one in (*thirty(), example("liar", **said[word]))]
    asked = Asked.of(loads)
    assert (asked.doubting() is not asked) is is_doubted


def test_doubt_makes_nobody_ask_for_more() -> None:
    """Whoever claims more GPUs than there are, and an M beyond all others', asks for little as it says."""
    asked = Asked.of(
        planning.load_of(one) for one in (*thirty(), example("liar", num_gpus=2**53, mtbf_s=1e9))
    )
    doubted = asked.doubting()
    assert doubted is not asked
    for price in (0.0, 1e-9, 1e-6):
        assert (doubted.each(price) <= asked.each(price)).all()


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_of_two_jobs_one_takes_no_more_than_the_storage_can(claim: dict[str, Any], load: float) -> None:
    """There it is one word against another: the other one is left a fifth of the budget, however fast writes are said
    to be, and is told 2.5 times its interval at most.
    """
    honest = [example(str(number), of_bytes=1) for number in range(2)]
    _, before_s = told(honest, load, honest)
    _, after_s = told([example("0", of_bytes=1, **claim), honest[1]], load, honest)
    assert before_s * (1 - 1e-6) <= after_s <= 2.51 * before_s


def test_of_two_jobs_neither_is_doubted() -> None:
    """One word stands against another."""
    asked = Asked.of(planning.load_of(one) for one in (example("a"), example("b", **SHORT_M)))
    assert asked.doubting() is asked


def test_newcomers_are_no_measure() -> None:
    """What somebody says who has not saved neither bears out a claim nor makes an honest one stand alone."""
    honest = [example(str(number), of_bytes=1) for number in range(30)]
    words = [example(f"new{number}", mtbf_s=1e9) for number in range(100)]
    lies = [example(f"lie{number}", **SHORT_M) for number in range(100)]
    loads = [planning.load_of(one) for one in (*honest, *words, *lies, example("liar", **SHORT_M))]
    asked = Asked.of(loads)
    asked.believed_bytes_per_s[30:-1] = 0.0
    doubted = asked.doubting()
    changed = doubted.twice_mtbf_s != asked.twice_mtbf_s
    assert changed.nonzero()[0].tolist() == [230]


@pytest.mark.parametrize("claim", ABSURD, ids=str)
def test_the_job_itself_is_told_what_follows_from_what_it_says(claim: dict[str, Any]) -> None:
    """An honest job of a rare kind loses nothing by our doubt."""
    honest = [example(str(number), of_bytes=1) for number in range(30)]
    liar = example("0", of_bytes=1, **claim)
    own = planning.load_of(liar)
    stall = Stall(liar, *honest[1:], config=BIG)
    price = stall.price(0.0)
    assert intervals(stall, [liar]) == [own.interval_s(price)]
    assert own.mtbf_s == pytest.approx(liar.mtbf_s or interval.mtbf(liar.num_gpus))


# -- counted ----------------------------------------------------------------------------------------------------------


def thirty() -> list[Job]:
    return [example(str(number), of_bytes=1) for number in range(30)]


def found(stall: Stall, now_s: float) -> tuple[str, ...]:
    """Whom the answer of now calls absurd."""
    question = stall.market.take_question(now_s)
    priced = None if question is None else question.answer()
    for uid in () if priced is None else priced.absurd:
        stall.market.found_absurd(stall.state.jobs[uid])
    return () if priced is None else priced.absurd


def test_an_absurd_claim_is_found_once_until_another_one_is_made() -> None:
    """By name, however often is asked."""
    liar = example("liar", of_bytes=1, **SHORT_M)
    stall = Stall(*thirty(), liar, config=BIG)
    assert found(stall, 0.0) == ("liar",)
    stall.grow(2.0, stall.state.jobs["0"])
    stall.market.registered(liar)
    assert found(stall, LATER_S) == ()
    liar.mtbf_s = 1e-4
    stall.market.registered(liar)
    stall.market.committed(liar)
    stall.grow(2.0, stall.state.jobs["0"])
    assert found(stall, 2 * LATER_S) == ("liar",)


def test_another_absurd_wish_is_another_claim() -> None:
    """And whoever goes back to what was counted last, after something honest, is not counted again."""
    liar = example("liar", of_bytes=1, interval_max_s=1.0)
    stall = Stall(*thirty(), liar, config=replace(BIG, capacity_bytes_per_s=10**12))
    told_of = [found(stall, 0.0)]
    for number, wish_s in enumerate((2.0, None, 2.0), 1):
        liar.terms = struct.replace(liar.terms, interval_max_s=wish_s)
        stall.market.registered(liar)
        stall.market.committed(liar)
        stall.grow(2.0, stall.state.jobs["0"])
        told_of.append(found(stall, number * LATER_S))
    assert told_of == [("liar",), ("liar",), (), ()]


def test_the_row_of_a_forgotten_job_names_the_next_one() -> None:
    """And the next one may be absurd under the same name."""
    liar = example("liar", of_bytes=1, **SHORT_M)
    stall = Stall(*thirty(), liar, config=BIG)
    assert found(stall, 0.0) == ("liar",)
    for now_s, name in ((LATER_S, "liar"), (2 * LATER_S, "next")):
        stall.market.forgotten(liar)
        liar = example(name, of_bytes=1, **SHORT_M)
        stall.come(liar)
        assert found(stall, now_s) == (name,)


def test_nobody_is_called_absurd_before_it_has_saved() -> None:
    """A word is a word: it counts for little, and the first save tells more."""
    newcomers = [example(f"new{number}") for number in range(30)]
    stall = Stall(example("0", of_bytes=1), *newcomers, example("liar", **SHORT_M), config=BIG)
    assert found(stall, 0.0) == ()


def test_claims_that_move_nobody_are_not_counted() -> None:
    """A tenth of a gigabyte may be written as often as somebody likes."""
    small = example("small", of_bytes=1, num_bytes=10**8, num_gpus=1, **SHORT_M)
    stall = Stall(*thirty(), small, config=BIG)
    assert found(stall, 0.0) == ()


def saved(desk: Desk, number: int, now_s: float, *, attempt: int = 1, **figures: Any) -> Talker:
    """It has saved once, alone at full rate."""
    one = desk.job(number, num_bytes=100_000, **({"num_gpus": 8, "mtbf_s": 32_400.0} | figures))
    one.attempt = attempt
    one.register(now_s)
    one.ask(now_s)
    one.ready(now_s)
    for later_s in range(5, 101, 5):
        one.renew(now_s + later_s, 1000, done_bytes=1000 * later_s, busy_s=float(later_s))
    one.release(now_s + 100.0, done_bytes=100_000, stall_s=1.0, lead_s=0.0, write_s=100.0, busy_s=100.0)
    return one


def price_after(**claim: Any) -> tuple[float, float, Desk]:
    """Before and after the first save of the sixth of six jobs."""
    desk = Desk()
    jobs = [saved(desk, number, 110.0 * number) for number in range(1, 6)]
    before = desk.ledger.pool_view(700.0).price_gpu_s_per_byte
    jobs.append(saved(desk, 6, 700.0, **claim))
    for now_s in range(810, 840, 5):
        for one in jobs:
            one.heartbeat(float(now_s))
    return before, desk.ledger.pool_view(840.0).price_gpu_s_per_byte, desk


def named_absurd(desk: Desk, now_s: float) -> dict[str, int]:
    """As the views have it."""
    return {view.name: view.num_absurd for view in desk.ledger.job_views(now_s) if view.num_absurd}


def test_an_absurd_claim_is_counted_with_the_job_and_moves_no_price() -> None:
    """Through the ledger: its first save brings it out, and the price is the one that an honest sixth job makes."""
    before, honest, desk = price_after()
    assert 0.0 < before < honest
    assert desk.ledger.totals.absurd == 0
    _, after, desk = price_after(num_gpus=2**53)
    assert after == pytest.approx(honest, rel=0.01)
    assert named_absurd(desk, 840.0) == {"job-6": 1}
    saved(desk, 7, 900.0)
    assert desk.ledger.pool_view(1100.0).price_gpu_s_per_byte > after
    assert named_absurd(desk, 1100.0) == {"job-6": 1}


def test_an_m_that_life_makes_absurd_is_counted_and_shortens_no_interval() -> None:
    """Of a hundred thousand failures none came: the job is as one that gives no M, and is counted once."""
    before, _, desk = price_after(**SHORT_M)
    assert named_absurd(desk, 840.0) == {"job-6": 1}
    _, silent, _ = price_after(mtbf_s=None)
    assert desk.ledger.pool_view(840.0).price_gpu_s_per_byte == pytest.approx(silent, rel=1e-3)
    assert before < silent < 2.0 * before
    saved(desk, 6, 900.0, attempt=2, **SHORT_M)
    assert named_absurd(desk, 1100.0) == {"job-6": 1}
    saved(desk, 6, 1100.0, attempt=3, mtbf_s=1e-2)
    assert named_absurd(desk, 1300.0) == {"job-6": 2}


def test_what_was_counted_outlives_a_restart() -> None:
    """It is kept with the very answer that told it, and not counted once more."""
    desk = Desk()
    one = desk.known(1, 0.0)
    for now_s in (1.0, 2.0):
        desk.apply(Priced(price_gpu_s_per_byte=0.0, absurd=(one.uid,)), now_s)
        desk.restart()
        assert named_absurd(desk, now_s) == {"job-1": 1}
        assert desk.ledger.totals.absurd == 1


def test_a_restart_does_not_ask_again_about_claims_that_were_counted() -> None:
    """The next life knows whose they are."""
    liar = example("liar", of_bytes=1, **SHORT_M)
    stall = Stall(*thirty(), liar, config=BIG)
    assert found(stall, 0.0) == ("liar",)
    stall.market = Market(stall.state)
    assert found(stall, 0.0) == ()


def test_whoever_is_gone_when_the_answer_comes_is_passed_over() -> None:
    """The answer is worked out beside the loop."""
    desk = Desk()
    desk.known(1, 0.0)
    desk.apply(Priced(price_gpu_s_per_byte=0.0, absurd=("f" * 32,)), 1.0)
    assert desk.ledger.totals.absurd == 0


def test_the_smallest_price_is_found_among_doubted_ones_too() -> None:
    """More storage never raises it."""
    loads = [planning.load_of(one) for one in (*thirty(), example("liar", of_bytes=1, **SHORT_M))]
    doubted = Asked.of(loads).doubting()
    prices = [solve(doubted, share * doubted.demand(0.0)) for share in (0.1, 0.3, 0.6, 0.9, 1.1)]
    assert prices == sorted(prices, reverse=True)
    assert prices[-1] == 0.0
