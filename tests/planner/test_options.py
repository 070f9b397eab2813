"""Wrong calls are refused with exit code 2, and the message names the option and what to do."""

import random

import pytest

ALONE = "--stall 1.5s --mtbf 9h"


@pytest.mark.parametrize(
    ("options", "option", "says"),
    [
        ("", "--stall", "give --stall, or --size and --bandwidth"),
        ("--size 1TB --mtbf 9h", "--stall", "give --stall, or --size and --bandwidth"),
        ("--stall 1.5s", "--mtbf", "--gpus for the usual rate"),
        ("--stall soon --mtbf 9h", "--stall", '"soon" is no duration'),
        ("--stall 1.5s --mtbf 0s", "--mtbf", "more than 0"),
        ("--stall 0s --mtbf 9h", "--stall", "more than 0"),
        (f"{ALONE} --write 0s", "--write", "more than 0"),
        ("--size 1.4Tb --bandwidth 2TB/s --mtbf 9h", "--size", "175 GB"),
        ("--size 0B --bandwidth 2TB/s --mtbf 9h", "--size", "more than 0"),
        ("--size 1TB --bandwidth 2TB --mtbf 9h", "--bandwidth", "is no rate"),
        ("--params 405B --bandwidth 2TB/s --mtbf 9h", "--bytes-per-param", "give it with --params"),
        ("--params 405B --size 1TB --bandwidth 2TB/s --mtbf 9h", "--params", "not both"),
        (
            "--params 405B --bytes-per-param many --bandwidth 2TB/s --mtbf 9h",
            "--bytes-per-param",
            "no number",
        ),
        ("--params 9000T --bytes-per-param 1000 --bandwidth 2TB/s --mtbf 9h", "--params", "too large"),
        (f"{ALONE} --gpus 0", "--gpus", "from 1"),
        (f"{ALONE} --gpus 256.5", "--gpus", "no whole number"),
        (f"{ALONE} --write 10s --eps 2%", "--eps", "without a unit"),
        (f"{ALONE} --gpus 8 --run-hours 720h", "--run-hours", "without a unit"),
        (f"{ALONE} --bytes-per-param 14", "--bytes-per-param", "give --params too"),
        (f"{ALONE} --bandwidth 5GB/s", "--bandwidth", "give --size"),
        (f"{ALONE} --manual-cost 50", "--manual-cost", "give --price-per-gpu-hour"),
        (f"{ALONE} --gpus 8 --price-per-gpu-hour 2 --manual-cost 50", "--manual-cost", "--run-hours"),
        (
            f"{ALONE} --gpus 8 --price-per-gpu-hour 2 --run-hours 9 --price-per-tb-month 20",
            "--price-per-tb-month",
            "what is kept",
        ),
        (f"{ALONE} --gpus 2.5 --run-hours nan", "--run-hours", "must be from"),
        (f"{ALONE} --eps 0.02", "--eps", "give --write"),
        (f"{ALONE} --write 10s --eps 2", "--eps", "from 0 to 1"),
        (f"{ALONE} --base-price 1e-9", "--base-price", "needs --size"),
        (f"{ALONE} --failures 3", "--failures", "together"),
        (f"{ALONE} --gpus 8 --failures 3 --gpu-hours 1000", "--mtbf", "not both"),
        (f"{ALONE} --run-hours 720", "--gpus", "how many GPUs"),
        (f"{ALONE} --price-per-gpu-hour 2.40", "--gpus", "how many GPUs"),
        (f"{ALONE} --gpus 8 --run-hours 720 --wall-hours 720", "--wall-hours", "not both"),
        (f"{ALONE} --gpus 8 --price-per-gpu-hour free", "--price-per-gpu-hour", "no amount of money"),
        (f"{ALONE} --spot-mtbf 1h", "--spot-price", "what does"),
        (f"{ALONE} --notice 2min", "--spot-price", "what does"),
        (f"{ALONE} --spot-price 1 --spot-mtbf 1h", "--spot-price", "give --price-per-gpu-hour too"),
        (f"{ALONE} --gpus 8 --price-per-gpu-hour 2 --spot-price 1", "--spot-mtbf", "how often"),
        (f"{ALONE} --jobs 200", "--capacity", "together"),
        (f"{ALONE} --capacity 1TB/s", "--jobs", "together"),
        (f"{ALONE} --gpus 8 --jobs 200 --capacity 1TB/s", "--size", "give --size"),
        (f"{ALONE} --size 1TB --jobs 200 --capacity 1TB/s", "--gpus", "give --gpus"),
        (f"{ALONE} --size 1TB --gpus 8 --jobs 1M --capacity 1TB/s", "--jobs", "to 100,000"),
        (f"{ALONE} --keep 3", "--size", "unknown size"),
        (f"{ALONE} --size 1TB --keep 3", "--run-hours", "how long"),
        (f"{ALONE} --failed-recoveries 1", "--failed-recoveries", "from 0 to 0.99"),
        (f"{ALONE} --checkpoint-every 0s", "--checkpoint-every", "more than 0"),
        (f"{ALONE} --change restart", "--change", "NAME=VALUE"),
        (f"{ALONE} --change jobs=3", "--change", "NAME one of"),
        (
            f"{ALONE} --change restart=slow",
            "--change",
            'with restart=slow: option --restart: "slow" is no duration',
        ),
        (f"{ALONE} --write 10s --size 1TB --bandwidth 1GB/s", "--write", "1 TB at 1 GB/s take 17 min"),
    ],
)
def test_a_wrong_call_names_the_option(refused, options, option, says):
    """One line, for people."""
    message = refused(options)
    assert message.startswith(f"rampmeter plan: option {option}: ")
    assert says in message
    assert message.count("\n") == 1


def test_nothing_is_printed_beside_a_picture_that_cannot_be_written(refused, tmp_path):
    """A refused call has one line, on stderr."""
    assert "cannot write" in refused(f"{ALONE} --png {tmp_path}/missing/sweep.png")
    assert "cannot write" in refused(f"{ALONE} --json --png {tmp_path}/missing/sweep.png")


def test_a_synchronous_write_is_counted_once(plan):
    """It is the stall; nothing is trained meanwhile that a failure could take."""
    assert plan("--write 4min --mtbf 9h")["waste"] == plan("--stall 4min --mtbf 9h")["waste"]


def test_a_write_time_that_fits_but_for_rounding_is_taken(plan):
    """1.4 TB at 93 GB/s are 15.05 s; 15 s contradict nothing, and a longer write may wait for something else."""
    moved = f"{ALONE} --size 1.4TB --bandwidth 93GB/s --write"
    assert plan(f"{moved} 15s")["write_s"] == 15.0
    assert plan(f"{moved} 60s")["write_s"] == 60.0


def test_figures_may_begin_with_the_point(plan):
    """As people write prices and half hours."""
    spot = "--stall .5s --mtbf .5d --gpus 8 --price-per-gpu-hour 2 --spot-price .75 --spot-mtbf 1h"
    found = plan(spot)
    assert (found["stall_s"], found["mtbf_s"]) == (0.5, 43_200.0)
    assert found["spot"]["break_even_goodput"] == pytest.approx(0.375 * found["goodput"])


def test_bytes_is_another_name_of_size(plan):
    """Both are promised."""
    options = f"{ALONE} --gpus 256 --jobs 200 --capacity 100GB/s"
    assert plan(f"{options} --bytes 1.4TB") == plan(f"{options} --size 1.4TB")


def test_only_a_given_write_time_counts_as_loss(plan):
    """`--size` and `--bandwidth` tell it, too, for the checks: the interval and the loss stay."""
    bare = plan(ALONE)
    known = plan(f"{ALONE} --size 1.4TB --bandwidth 93.4GB/s")
    given = plan(f"{ALONE} --write 15s")
    assert known["waste"] == bare["waste"]
    assert given["waste"]["rework"] == pytest.approx(bare["waste"]["rework"] + 15 / 32_400)


def test_a_base_price_lengthens_the_interval(plan):
    """C grows by price times bytes per GPU."""
    found = plan(f"{ALONE} --size 1.4TB --gpus 256 --base-price 3.4294e-8")
    assert found["interval_s"] == pytest.approx(3_500, rel=1e-3)
    assert found["reason"] == "price"


def test_what_was_not_asked_is_absent(plan):
    """The keys of a bare call."""
    assert set(plan(ALONE)) == {
        "interval_s",
        "waste",
        "goodput",
        "dominant",
        "best_interval_s",
        "reason",
        "write_fits_interval",
        "stall_s",
        "mtbf_s",
        "restart_s",
    }


def test_the_keys_that_programs_rely_on(plan):
    """All of them, by their names."""
    found = plan(
        f"{ALONE} --size 1.4TB --gpus 256 --price-per-gpu-hour 2.40 --run-hours 720 --jobs 200 --capacity 100GB/s"
    )
    assert set(found["waste"]) == {"write", "rework", "restart", "total"}
    assert {"wall_h", "wasted_gpu_h", "wasted_cost", "cost_per_useful_gpu_hour"} <= set(found)
    assert {"price", "interval_s", "demand_bytes_per_s", "waste_total"} <= set(found["shared"])


ANY = {
    "--stall": ["1ms", "30s", "3d", "9000000000s"],
    "--mtbf": ["1ms", "9h", "9000000000s"],
    "--restart": ["0s", "1h", "9000000000s"],
    "--write": ["1ms", "1h"],
    "--eps": ["0", "1"],
    "--size": ["1B", "1.4TB", "900PB"],
    "--bandwidth": ["1B/s", "10000TB/s"],
    "--base-price": ["0", "1e6"],
    "--checkpoint-every": ["1ms", "100d"],
    "--failed-recoveries": ["0", "0.99"],
    "--run-hours": ["0.001", "1e7"],
    "--price-per-gpu-hour": ["0.0001", "1000000"],
    "--capacity": ["1B/s", "10000TB/s"],
    "--jobs": ["1", "100"],
    "--spot-price": ["0.0001", "1000000"],
    "--spot-mtbf": ["1ms", "9000000000s"],
    "--keep": ["3"],
    "--change": ["restart=1ms", "stall=9000000000s"],
}
NEEDED = ("--stall", "--mtbf", "--size", "--price-per-gpu-hour", "--run-hours")
TOGETHER = {
    "--jobs": "--capacity",
    "--capacity": "--jobs",
    "--spot-price": "--spot-mtbf",
    "--spot-mtbf": "--spot-price",
    "--eps": "--write",
}


@pytest.mark.parametrize("seed", range(40))
def test_any_figures_give_a_finite_answer(say, seed):
    """From a millisecond to centuries: text and figures, never an error, NaN or infinity."""
    draw = random.Random(seed)
    picked = {*NEEDED, *(name for name in ANY if draw.random() < 0.5)}
    picked |= {TOGETHER[name] for name in picked if name in TOGETHER}
    if "--write" in picked:
        picked -= {"--bandwidth"}  # two figures of one thing may contradict each other
    options = " ".join(f"{name} {draw.choice(ANY[name])}" for name in sorted(picked))
    for ending in ("--strategies --sweep", "--strategies --sweep --json"):
        text = say(f"{options} --gpus 8 {ending}")
        assert not {"nan", "inf", "NaN", "Infinity", "-Infinity"} & set(text.replace(",", " ").split())
