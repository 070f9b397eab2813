"""The published numbers, each from one command line. Tolerance 0.5 %, as the sources round."""

import pytest

TOLERANCE = 0.005
ON_DEMAND = "--mtbf 9h --restart 14min --gpus 256 --price-per-gpu-hour 2.40 --run-hours 720"
SPOT = f"--stall 1.5s {ON_DEMAND} --spot-price 0.75 --spot-mtbf 45min"
LLAMA = "--params 405B --bytes-per-param 16"
REVIEW = "--params 70B --bytes-per-param 14 --bandwidth 5GB/s --mtbf 24h --gpus 1024 --wall-hours 720"
MANY = "--stall 1.5s --size 1.4TB --mtbf 9h --gpus 256 --jobs 200"


def near(value):
    """Within the tolerance of all these numbers."""
    return pytest.approx(value, rel=TOLERANCE)


def test_a_synchronous_checkpoint_of_four_minutes(plan):
    """C 240 s, M 9 h, R 14 min: 14.76 % of 720 hours on 256 GPUs."""
    found = plan(f"--stall 240s {ON_DEMAND}")
    lost = found["waste"]
    assert found["interval_s"] == near(3_943.6)
    assert lost["write"] == near(0.0609)
    assert lost["rework"] + lost["restart"] == near(0.0868)
    assert lost["total"] == near(0.1476)
    assert found["goodput"] == near(0.8524)
    assert found["wall_h"] == near(844.7)
    assert found["wasted_cost"] == near(76_625)
    assert found["wasted_gpu_h"] == near(76_625 / 2.4)
    assert found["cost_per_useful_gpu_hour"] == near(2.4 / 0.8524)
    assert found["dominant"] == "write"


@pytest.mark.parametrize(
    ("stall", "interval_s", "lost", "wasted"),
    [("15s", 985.9, 0.0564, 26_418), ("1.5s", 311.8, 0.0355, 16_305)],
)
def test_a_cheaper_checkpoint(plan, stall, interval_s, lost, wasted):
    """A hundredth of the cost is a quarter of the loss: the square root, and the restarts."""
    found = plan(f"--stall {stall} {ON_DEMAND}")
    assert found["interval_s"] == near(interval_s)
    assert found["waste"]["total"] == near(lost)
    assert found["wasted_cost"] == near(wasted)


def test_the_three_ways_to_write_side_by_side(plan):
    """The same three numbers from one call."""
    ways = plan(f"--stall 240s {ON_DEMAND} --strategies")["strategies"]
    assert [way["stall_s"] for way in ways] == near([240.0, 15.0, 1.5])
    assert [way["interval_s"] for way in ways] == near([3_943.6, 985.9, 311.8])
    assert [way["waste"]["total"] for way in ways] == near([0.1476, 0.0564, 0.0355])
    assert ways[2]["write_s"] == 15.0
    assert all(way["ends_before_next"] for way in ways)


def test_spot_against_on_demand(plan):
    """M 45 min: a third of the time is lost, mostly to restarts, and it is less than half the price all the same."""
    found = plan(SPOT)
    there = found["spot"]
    assert there["interval_s"] == near(90.0)
    assert there["waste"]["rework"] + there["waste"]["restart"] == near(0.3278)
    assert there["waste"]["total"] == near(0.3444)
    assert there["dominant"] == "restart"
    assert there["cost_per_useful_gpu_hour"] == near(1.144)
    assert found["cost_per_useful_gpu_hour"] == near(2.488)
    assert there["cost"]["total"] == near(210_875)
    assert found["cost"]["total"] == near(458_673)
    assert there["break_even_goodput"] == near(0.301)
    assert there["wins"]


def test_where_spot_stops_winning(plan):
    """There the goodput is the break-even: a restart of twice the time, or twice as many interruptions."""
    there = plan(SPOT)["spot"]
    slow = plan(f"{SPOT} --spot-restart {there['restart_limit_s']}s")["spot"]
    often = plan(SPOT.replace("45min", f"{there['mtbf_limit_s']}s"))["spot"]
    assert slow["goodput"] == pytest.approx(there["break_even_goodput"], rel=1e-6)
    assert often["goodput"] == pytest.approx(there["break_even_goodput"], rel=1e-5)
    assert there["restart_limit_s"] / 840.0 == pytest.approx(2.0, abs=0.2)
    assert 2_700.0 / there["mtbf_limit_s"] == pytest.approx(2.0, abs=0.2)


def test_coming_back_faster_on_spot(plan):
    """Ten minutes less of restart are worth more than all that checkpoints can give."""
    change = plan(f"{SPOT} --change restart=4min")["changes"][0]
    assert change["spot_goodput"] == near(0.878)
    assert change["spot_cost_per_useful_gpu_hour"] == near(0.854)


def test_a_clean_notice(plan):
    """With 120 s of warning the write of 15 s fits; redone work and the write tax go, restarts stay: 68.9 %."""
    notice = plan(f"{SPOT} --size 1.4TB --bandwidth 93.4GB/s --notice 120s")["spot"]["notice"]
    assert notice["fits"]
    assert notice["save_s"] == near(15.0)
    assert notice["goodput"] == near(0.689)


def test_llama_405b(plan):
    """6.5 TB at 2 TB/s every 4.5 minutes; 69 % of the loss is the restart."""
    found = plan(f"{LLAMA} --bandwidth 2TB/s --mtbf 3.1h --restart 10min")
    assert found["size_bytes"] == near(6.48e12)
    assert found["stall_s"] == near(3.24)
    assert found["interval_s"] / 60 == near(4.48)
    assert found["waste"]["total"] == pytest.approx(0.078, abs=0.0005)
    assert found["waste"]["restart"] / found["waste"]["total"] == near(0.69)
    assert found["dominant"] == "restart"


@pytest.mark.parametrize(
    ("change", "useful"),
    [("restart=2min", 0.965), ("mtbf=24h", 0.984), ("bandwidth=20GB/s", 0.705), ("bandwidth=10GB/s", 0.605)],
)
def test_llama_405b_with_one_figure_changed(plan, change, useful):
    """A faster restart, a failure a day, a hundredth and a two-hundredth of the bandwidth."""
    found = plan(f"{LLAMA} --bandwidth 2TB/s --mtbf 3.1h --restart 10min --change {change}")
    assert found["changes"][0]["goodput"] == near(useful)


def test_a_failure_a_day(plan):
    """1.6 % lost."""
    lost = plan(f"{LLAMA} --bandwidth 2TB/s --mtbf 24h --restart 10min")["waste"]["total"]
    assert lost == pytest.approx(0.016, abs=0.0005)


def test_the_two_hourly_plan_of_a_design_review(plan):
    """980 GB at 5 GB/s: 6.9 % of a month on 1,024 GPUs; Young would save nothing, a stall of 5 s most of it."""
    found = plan(f"{REVIEW} --checkpoint-every 2h --change stall=5s")
    change = found["changes"][0]
    assert found["size_bytes"] == 980_000_000_000
    assert found["stall_s"] == 196.0
    assert found["waste"]["total"] == near(0.0689)
    assert found["wasted_gpu_h"] == near(51_000)
    assert found["best_interval_s"] / 60 == near(97.0)
    assert change["interval_s"] / 60 == near(15.5)
    assert change["waste"]["total"] == near(0.0108)
    assert change["saved_gpu_h"] == near(43_000)


def test_what_is_kept(plan):
    """All 360 checkpoints are 353 TB, the last 3 and one a day 32 TB."""
    everything, *few = plan(f"{REVIEW} --checkpoint-every 2h --keep 3 --daily")["retention"]
    assert everything["num_checkpoints"] == 360
    assert everything["num_bytes"] == near(353e12)
    assert sum(line["num_bytes"] for line in few) == near(32.34e12)


def test_no_more_is_kept_than_is_written(plan):
    """A run of 10 hours at 4.24 min: 141 checkpoints, whatever the wish."""
    options = "--stall 1s --mtbf 9h --size 1TB --gpus 8 --run-hours 10"
    everything, *kept = plan(f"{options} --keep 1000 --hot 900 --warm 150 --cold-every 1s")["retention"]
    assert [line["num_checkpoints"] for line in (everything, *kept)] == [141] * 5
    assert {line["num_bytes"] for line in kept} == {141 * 10**12}


def test_hot_warm_and_cold(plan):
    """1.4 TB x (2 hot + 6 warm) = 11.2 TB, 60 cold ones = 84 TB."""
    options = (
        "--stall 1.5s --size 1.4TB --mtbf 9h --gpus 256 --run-hours 720 --hot 2 --warm 6 --cold-every 12h"
    )
    _, hot, warm, cold = plan(options)["retention"]
    assert hot["num_bytes"] + warm["num_bytes"] == 11.2e12
    assert (cold["num_checkpoints"], cold["num_bytes"]) == (60, 84e12)


@pytest.mark.parametrize(
    ("capacity", "interval_s", "price"),
    [
        ("2TB/s", 311.8, 0.0),
        ("1TB/s", 350.0, None),
        ("500GB/s", 700.0, None),
        ("200GB/s", 1_750.0, 8.368e-9),
        ("100GB/s", 3_500.0, 3.4294e-8),
    ],
)
def test_two_hundred_jobs_on_one_storage(plan, capacity, interval_s, price):
    """Slower storage stretches every interval once 80 % of it are asked for."""
    found = plan(f"{MANY} --capacity {capacity}")
    together = found["shared"]
    assert found["interval_s"] == near(311.8)
    assert together["interval_s"] == near(interval_s)
    if price is not None:
        assert together["price"] == near(price)


def test_two_hundred_jobs_on_a_slow_storage_lose_five_percent(plan):
    """On 100 GB/s 5.44 % without restart, exactly on the budget; at its own interval a herd would lose 13 %."""
    together = plan(f"{MANY} --capacity 100GB/s --bandwidth 93333333333B/s")["shared"]
    assert together["waste_total"] == near(0.0544)
    assert together["demand_bytes_per_s"] == near(80e9)
    assert together["aligned"]["write_s"] == 2_800.0
    assert together["aligned"]["waste_total"] == near(0.1302)
    assert together["waste_with_write"] == near(0.0550)


def test_all_at_once_on_a_fast_storage(plan):
    """280 TB on 2 TB/s are 140 s instead of 15."""
    together = plan(f"{MANY} --capacity 2TB/s --bandwidth 93333333333B/s")["shared"]
    assert together["aligned"]["write_s"] == 140.0
    assert together["random_phases"]["write_s"] == near(15.0)


@pytest.mark.parametrize(
    ("options", "interval_s"),
    [
        ("--stall 200ms --write 150s --mtbf 45min", 187.5),
        ("--stall 15s --mtbf 9h", 985.9),
        ("--stall 150s --mtbf 9h", 3_117.7),
        ("--stall 1.5s --eps 0.02 --write 15s --mtbf 9h", 341.0),
        ("--stall 1.5s --eps 0.02 --write 150s --mtbf 9h", 540.0),
    ],
)
def test_write_times(plan, options, interval_s):
    """The write floor; a synchronous write; and what a slow background write does through eps."""
    assert plan(options)["interval_s"] == near(interval_s)


@pytest.mark.parametrize(
    ("seen", "mtbf_h"),
    [("", 195.3), ("--failures 2 --gpu-hours 100000", 195.3), ("--failures 5 --gpu-hours 100000", 97.7)],
)
def test_failures_seen_so_far(plan, seen, mtbf_h):
    """256 GPUs: the prior, and the prior corrected."""
    assert plan(f"--stall 1.5s --gpus 256 {seen}")["mtbf_s"] / 3600 == near(mtbf_h)


def test_a_synchronous_write_needs_no_floor(plan):
    """It cannot overtake itself: a write as long as the time between failures is made once in 0.84 of that time."""
    found = plan("--size 1TB --bandwidth 1GB/s --mtbf 1000s")
    assert found["interval_s"] == near(841.4)
