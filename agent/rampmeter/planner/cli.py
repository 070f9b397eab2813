"""`rampmeter plan`: reads the options, answers, prints. Exit codes: 0 answered, 2 a wrong option."""

import argparse
import json
from pathlib import Path

from rampmeter.planner.as_json import as_json
from rampmeter.planner.drawing import PLAIN_FILL
from rampmeter.planner.findings import find
from rampmeter.planner.picture import draw
from rampmeter.planner.report import report
from rampmeter.printing import print_answer

_HELP = """\
Say how often to checkpoint, what is lost and why, and what would help. A model:
it measures nothing and asks nobody.

Examples:
  rampmeter plan --stall 4min --mtbf 9h --restart 14min
  rampmeter plan --size 1.4TB --bandwidth 5GB/s --gpus 256 --strategies
  rampmeter plan --stall 1.5s --size 1.4TB --mtbf 9h --gpus 256 \\
      --jobs 200 --capacity 200GB/s
  rampmeter plan --stall 1.5s --mtbf 9h --restart 14min --gpus 256 \\
      --price-per-gpu-hour 2.40 --spot-price 0.75 --spot-mtbf 45min

Sizes, rates and durations are written with units: 1.4TB, 2TB/s, 9h, 1.5s. A
SHARE is a fraction: 0.02 is 2 %. Nothing but the cost of a checkpoint and the
time between failures must be known.
"""


class PlanCommand:
    """Fulfils rampmeter.cli.Command."""

    name = "plan"
    help = _HELP

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _checkpoint(parser.add_argument_group("what a checkpoint costs"))
        _failures(parser.add_argument_group("failures"))
        _run(parser.add_argument_group("the run and its price"))
        _comparisons(parser.add_argument_group("compare"))
        _storage(parser.add_argument_group("many jobs on one storage"))
        _retention(parser.add_argument_group("what is kept"))
        _output(parser.add_argument_group("output"))

    def run(self, args: argparse.Namespace) -> int:
        findings = find(args)
        if args.png is not None:  # first: what is refused prints nothing
            draw(Path(args.png), findings)
        text = json.dumps(as_json(findings), indent=2) if args.json else report(findings)
        print_answer(f"{text}\n", plain=PLAIN_FILL)
        return 0


Group = argparse._ArgumentGroup  # noqa: SLF001 - the only name that argparse has for it


def _checkpoint(group: Group) -> None:
    group.add_argument(
        "--stall", metavar="TIME", help="training blocked by a checkpoint; if not given, the whole write"
    )
    group.add_argument("--size", "--bytes", metavar="SIZE", help="size of a checkpoint, all ranks together")
    group.add_argument("--params", metavar="N", help="parameters of the model instead of --size: 405B")
    group.add_argument(
        "--bytes-per-param", metavar="N", help="14 for Adam in mixed precision, 16 with gradients"
    )
    group.add_argument("--bandwidth", metavar="RATE", help="what the job can write, all ranks together")
    group.add_argument(
        "--write",
        metavar="TIME",
        help="from snapshot to durable; given here it also counts as loss: a failure in that time falls back one "
        "checkpoint more",
    )
    group.add_argument("--eps", metavar="SHARE", help="slow-down of training while it writes (default 0)")
    group.add_argument(
        "--base-price", metavar="P", help="price of a written byte, in GPU-seconds (default 0)"
    )
    group.add_argument(
        "--checkpoint-every", metavar="TIME", help="judge this interval instead of looking for the best"
    )


def _failures(group: Group) -> None:
    group.add_argument("--mtbf", metavar="TIME", help="mean time between failures of the whole job")
    group.add_argument("--failures", metavar="K", help="instead of --mtbf: failures seen so far ...")
    group.add_argument(
        "--gpu-hours",
        metavar="H",
        help="... in so many GPU-hours; one failure in 50,000 GPU-hours is added to what was seen",
    )
    group.add_argument("--restart", metavar="TIME", help="from a failure until training goes on (default 0)")
    group.add_argument(
        "--wait", metavar="TIME", help="waiting for new capacity before each restart (default 0)"
    )
    group.add_argument(
        "--failed-recoveries", metavar="SHARE", help="how many recoveries fail and are repeated (default 0)"
    )


def _run(group: Group) -> None:
    group.add_argument("--gpus", metavar="N", help="GPUs of the job")
    group.add_argument("--run-hours", metavar="H", help="useful hours that the run needs")
    group.add_argument("--wall-hours", metavar="H", help="instead: hours for which it is booked")
    group.add_argument("--price-per-gpu-hour", metavar="$", help="price of a GPU-hour on demand")
    group.add_argument(
        "--manual-cost", metavar="$", help="price of a person's work per failed recovery (default 0)"
    )
    group.add_argument("--price-per-tb-month", metavar="$", help="price of kept checkpoints (default 0)")


def _comparisons(group: Group) -> None:
    group.add_argument(
        "--strategies",
        action="store_true",
        help="one synchronous writer, 16 shards, 16 shards written in the background with 10%% of the stall",
    )
    group.add_argument(
        "--change",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="the answer if one option of the first two groups were another: restart=2m; repeatable",
    )
    group.add_argument("--spot-price", metavar="$", help="price of a GPU-hour on spot capacity")
    group.add_argument("--spot-mtbf", metavar="TIME", help="mean time between interruptions there")
    group.add_argument("--spot-restart", metavar="TIME", help="the restart on spot (default: --restart)")
    group.add_argument("--spot-wait", metavar="TIME", help="waiting for spot capacity (default: --wait)")
    group.add_argument("--notice", metavar="TIME", help="warning before an interruption on spot")


def _storage(group: Group) -> None:
    group.add_argument("--jobs", metavar="N", help="so many such jobs share one storage")
    group.add_argument("--capacity", metavar="RATE", help="what it can write, for all of them")


def _retention(group: Group) -> None:
    group.add_argument("--keep", metavar="N", help="the newest N checkpoints")
    group.add_argument("--daily", action="store_true", help="one a day for the whole run")
    group.add_argument("--hot", metavar="N", help="the newest N on fast storage")
    group.add_argument("--warm", metavar="N", help="the newest N on shared storage")
    group.add_argument("--cold-every", metavar="TIME", help="one in this time is kept for good")


def _output(group: Group) -> None:
    group.add_argument("--sweep", action="store_true", help="draw the loss over the interval")
    group.add_argument(
        "--png", metavar="FILE", help="the same as a picture; needs pip install 'rampmeter[demo]'"
    )
    group.add_argument("--json", action="store_true", help="print nothing but the figures, as JSON")
