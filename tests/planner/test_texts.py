"""What people read: one golden text per example, and sentences that depend on what was found."""

import json
import shlex
import subprocess
import sys

import pytest

from rampmeter import cli
from support.write_plan_texts import GOLDEN, text_again


def flat(text):
    """Without line breaks."""
    return " ".join(text.split())


TEXTS = sorted(GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("path", TEXTS, ids=[path.stem for path in TEXTS])
def test_the_examples_say_what_they_said(path):
    """Each file begins with its command; tests/support/write_plan_texts.py writes them anew."""
    assert text_again(path) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TEXTS, ids=[path.stem for path in TEXTS])
def test_the_examples_fit_a_terminal_and_answer_first(path):
    """80 columns, plain text, and the answer in the first sentence."""
    _command, text = path.read_text(encoding="utf-8").split("\n\n", 1)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith(("Checkpoint every", "With a checkpoint every"))
    assert "\x1b" not in text


def test_a_run_that_loses_more_than_all_is_called_so(say, plan):
    """No hours, no prices, no division by zero: and every other question is answered as far as it can be."""
    options = (
        "--gpus 8 --stall 2min --mtbf 10min --restart 20min --run-hours 20 --price-per-gpu-hour 2 --spot-price 1 "
        "--spot-mtbf 4min --strategies --size 4GB --jobs 5 --capacity 1GB/s --change restart=1min --keep 3 --sweep"
    )
    assert say(options).startswith("This run hardly gets on")
    found = plan(options)
    assert found["goodput"] == 0.0
    assert not {"wall_h", "wasted_cost", "cost_per_useful_gpu_hour", "spot"} & set(found)
    assert found["changes"][0]["goodput"] > 0.0


def test_a_loss_without_restarts_says_so_at_once(say):
    """Who gives no restart time must not take the loss for all of it."""
    bare = "--stall 1.5s --mtbf 9h"
    assert "99.0 % is useful; restarts are not counted." in flat(say(bare))
    assert "98.1 % is useful. Why:" in flat(say(f"{bare} --restart 5min"))


def test_the_best_of_what_was_asked_beside_is_part_of_the_answer(say):
    """The best way to write and the best change, if they are better than the plan."""
    asked = "--stall 4min --mtbf 9h --restart 14min"
    text = flat(say(f"{asked} --strategies --change restart=10min --change stall=1min")).split(" Why: ")[0]
    assert text.endswith(
        "Written sharded + asynchronous, 3.6 % would be lost. With stall=1min, 8.7 % would be lost."
    )
    text = flat(say(f"{asked} --change checkpoint-every=10min --change stall=5min")).split(" Why: ")[0]
    assert text.endswith("85.2 % is useful.")


def test_what_is_not_quite_nothing_or_all_is_not_shown_as_if_it_were(say):
    """A failure in ten years."""
    text = flat(say("--stall 1s --mtbf 3650d --gpus 8 --sweep"))
    assert text.startswith("Checkpoint every 6.98 h: < 0.1 % of the run is lost, > 99.9 % is useful;")
    assert "writing checkpoints < 0.01 % 50 %" in text
    assert "restarting 0.00 % 0 %" in text


def test_booked_hours_are_called_booked(say):
    """They are no average."""
    assert "wall clock, booked 720.0 h" in flat(say("--stall 1s --mtbf 9h --gpus 8 --wall-hours 720"))


def test_ways_to_write_without_hours_have_no_empty_column(say):
    """What is lost of the run in hours or money needs its length."""
    bare = "--stall 1s --mtbf 9h --gpus 8 --price-per-gpu-hour 2 --strategies"
    assert "stall interval lost useful room" in flat(say(bare))
    assert "stall interval lost useful lost $ room" in flat(say(f"{bare} --run-hours 9"))


def test_gpus_that_wait_for_capacity_are_paid_for_and_it_is_said(say):
    """Who gives them back meanwhile pays less."""
    bill = "--stall 1s --mtbf 9h --restart 5min --gpus 8 --price-per-gpu-hour 2 --run-hours 9"
    assert "GPUs are paid for while the job waits" in flat(say(f"{bill} --wait 5min"))
    assert "while the job waits" not in flat(say(bill))


def test_a_run_that_hardly_gets_on_on_spot_still_ends_on_demand(say, plan):
    """Spot loses, and nothing is divided by its goodput of 0."""
    options = (
        "--gpus 8 --stall 1s --mtbf 10h --restart 20min --run-hours 20 --price-per-gpu-hour 2 --spot-price 1 "
        "--spot-mtbf 10min"
    )
    text = flat(say(options))
    assert "On spot the run hardly gets on." in text
    assert "no figure" in text
    assert "here it does not win" in text
    assert "\n\n\n" not in say(options)
    assert not plan(options)["spot"]["wins"]


def test_an_interval_that_leaves_nothing_is_to_blame_itself(say):
    """Not the failures: at another interval nearly all is useful."""
    text = flat(say("--stall 1s --mtbf 9h --checkpoint-every 500ms"))
    assert text.startswith(
        "With a checkpoint every 500 ms this run hardly gets on: next to nothing is left for training."
    )
    assert "The best interval is 4.24 min, with 0.8 % lost: change to it." in text


def test_an_asked_interval_must_have_room_for_the_write(say, plan):
    """1.25 writes of 150 s are 187.5 s; below that the loss is no promise."""
    asked = "--stall 1s --write 150s --mtbf 9h --checkpoint-every"
    assert "writes queue up" in flat(say(f"{asked} 187s"))
    assert not plan(f"{asked} 187s")["write_fits_interval"]
    assert "writes queue up" not in flat(say(f"{asked} 188s"))
    assert plan(f"{asked} 188s")["write_fits_interval"]


def test_a_loss_that_cannot_be_had_is_no_reason_to_stay(say):
    """60 s look better than the 187.5 s that 150 s of writing need."""
    text = flat(say("--stall 200ms --write 150s --mtbf 45min --checkpoint-every 60s"))
    assert "change to it" in text
    assert "not the problem" not in text


def test_where_the_write_decides_a_faster_write_is_the_lever(say):
    """And what the curve shows on the left of the best interval cannot be had."""
    text = flat(say("--stall 200ms --write 150s --mtbf 45min --sweep"))
    assert "The write time decides" in text
    assert "four times cheaper" not in text
    assert "Below 3.12 min background writes queue up" in text
    assert "queue up" not in flat(say("--stall 1.5s --mtbf 9h --sweep"))


def test_what_coming_back_is_made_of_is_said(say):
    """10 min of restart and 5 of waiting, of which a tenth fails, are 16.7 min."""
    text = flat(say("--stall 1s --mtbf 9h --restart 10min --wait 5min --failed-recoveries 0.1"))
    assert "coming back takes 16.7 min with waiting for capacity and attempts that fail." in text


def test_long_times_are_in_days(say):
    """From ten days on."""
    assert "a failure comes every 10 d" in flat(say("--stall 1s --mtbf 240h"))
    assert "a failure comes every 239 h" in flat(say("--stall 1s --mtbf 239h"))


def test_a_price_without_hours_is_answered(say):
    """What a useful GPU-hour costs needs no length of the run."""
    text = flat(say("--stall 1s --mtbf 9h --gpus 8 --price-per-gpu-hour 2"))
    assert "A useful GPU-hour costs $2.02 instead of $2.00." in text


def test_a_run_shorter_than_its_interval_needs_no_checkpoint(say):
    """One GPU for an hour: a failure in 2,083 days."""
    short = "--stall 4min --gpus 1 --run-hours"
    assert "what it saves at its end is enough" in flat(say(f"{short} 1"))
    assert "at its end" not in flat(say(f"{short} 1000"))


def test_dear_spot_is_called_dearer(say):
    """It may also cost more per useful hour and end all the same."""
    text = flat(
        say(
            "--gpus 8 --stall 1s --mtbf 100h --restart 20min --run-hours 20 --price-per-gpu-hour 2 --spot-price 1.9 "
            "--spot-mtbf 2h"
        )
    )
    assert "On spot a useful GPU-hour is 16 % dearer." in text
    assert "here it does not win" in text


@pytest.mark.parametrize(
    ("every", "says"),
    [
        ("5s", "checkpoint less often, or make it cheaper"),
        ("300s", "Only a cheaper checkpoint or fewer failures"),
        ("3h", "checkpoint more often"),
    ],
)
def test_what_to_do_about_the_largest_loss(say, every, says):
    """Too often, right, too rarely."""
    assert says in flat(say(f"--stall 1.5s --mtbf 9h --checkpoint-every {every}"))


def test_a_notice_that_is_too_short_is_worth_nothing(say):
    """A save of 500 s does not fit into 120 s; without a size it is unknown."""
    spot = "--stall 1s --mtbf 9h --gpus 8 --price-per-gpu-hour 2 --spot-price 1 --spot-mtbf 2h --notice 120s"
    assert "does not fit" in flat(say(f"{spot} --size 5TB --bandwidth 10GB/s"))
    assert "unknown" in say(spot)


def test_an_asynchronous_write_that_is_too_long_is_held_back(say, plan):
    """Writes would queue: the interval is held at 1.25 write times, and it is said."""
    options = "--stall 50000s --mtbf 30s --strategies"
    assert plan(options)["strategies"][2]["interval_s"] == pytest.approx(1.25 * 50_000 / 16)
    assert not plan(options)["strategies"][2]["ends_before_next"]
    assert "held" in say(options)


MANY = "--stall 1.5s --size 1.4TB --mtbf 9h --gpus 256 --jobs 200"


def test_a_storage_that_is_too_small_for_its_jobs_is_called_so(say):
    """No interval of four days and no loss of 540 % as if that were an answer."""
    text = say(f"{MANY} --capacity 1GB/s")
    assert "With 200 such jobs on 1 GB/s hardly one would get on: the storage is too small for them." in flat(
        text
    )
    assert "a price of 345,679 GPU-seconds" in flat(text)
    assert "coordination saves" not in text
    assert "are as good here" not in text


def test_what_coordination_saves_is_said_in_gpus_and_money(say):
    """3.78 % of 200 x 256 GPUs, and of what they cost in 730 hours."""
    text = flat(say(f"{MANY} --capacity 200GB/s"))
    assert "when a write ends the next is due" in text
    assert "saves 3.78 % of every run: 1,933 of their 51,200 GPUs. Here" in text
    assert ": 1,933 of their 51,200 GPUs, $3,386,523 a month. Here" in flat(
        say(f"{MANY} --capacity 200GB/s --price-per-gpu-hour 2.40")
    )
    assert "never stop writing" not in flat(say(f"{MANY} --capacity 2TB/s"))


def test_a_bar_that_is_shorter_than_the_best_one_is_explained(say):
    """Ten minutes of cost in an hour: the first-order formula and the exact optimum part."""
    assert "another bar is shorter" in flat(say("--stall 10min --mtbf 60min --sweep"))
    assert "another bar" not in flat(say("--stall 10min --mtbf 9h --sweep"))
    assert "another bar" not in flat(say("--stall 200ms --write 150s --mtbf 45min --sweep"))


def test_where_nobody_waits_random_starts_are_as_good(say):
    """A storage that is far from busy needs no coordination, and the text does not pretend."""
    text = flat(say("--stall 1.5s --size 1GB --mtbf 9h --gpus 8 --jobs 2 --capacity 1TB/s"))
    assert "the price of a byte is 0" in text
    assert "Starts at random are as good here" in text


def test_the_command_imports_nothing_heavy():
    """It runs on a base install: no torch, numpy or matplotlib before --png."""
    command = shlex.split(
        "plan --stall 1.5s --size 1.4TB --mtbf 9h --gpus 256 --jobs 200 --capacity 1TB/s --sweep --json"
    )
    code = (
        "import sys; from rampmeter import cli; code = cli.main(sys.argv[1:]); "
        "sys.exit(code or len({'torch', 'numpy', 'matplotlib', 'httpx', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sweep"]


@pytest.mark.parametrize("command", ["plan", "review", "probe"])
def test_help_fits_a_terminal(capsys, monkeypatch, command):
    """Of 80 columns, for the three commands that need nothing but the base install."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_help_shows_examples_that_can_be_pasted(capsys):
    """Each is answered."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["plan", "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    examples = said.split("Examples:\n")[1].split("\n\n")[0].replace("\\\n", " ").splitlines()
    assert len(examples) == 4
    for example in examples:
        assert cli.main(shlex.split(example)[1:]) == 0
