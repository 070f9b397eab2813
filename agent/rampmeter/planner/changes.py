"""What if one figure were another: each change answered at its own best interval, beside the plan as it is."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from rampmeter.core.errors import ConfigError
from rampmeter.planner.answer import Answer, answer
from rampmeter.planner.money import Duration, duration
from rampmeter.planner.options import CHANGEABLE, read
from rampmeter.planner.spot import there

_INSTEAD: Mapping[str, tuple[str, ...]] = {
    "mtbf": ("failures", "gpu_hours"),
    "size": ("params", "bytes_per_param"),
}
"""What a changed figure makes void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed figure, as it was written, and what it gives; `on_spot` the same on spot capacity."""

    text: str
    found: Answer
    time: Duration | None
    on_spot: Answer | None
    spot_cost_per_useful_gpu_hour: float | None

    def saved_h(self, before: Duration) -> float:
        """Hours of the whole job: fewer for the same work, or more work in the same time."""
        if self.time is None:
            return 0.0
        return (before.wall_h - self.time.wall_h) + (self.time.useful_h - before.useful_h)


def changes(args: argparse.Namespace) -> list[Change]:
    """One for each `--change`."""
    return [_change(args, text) for text in args.change]


def _change(args: argparse.Namespace, text: str) -> Change:
    name, equals, value = text.partition("=")
    if not equals or name not in CHANGEABLE:
        raise ConfigError(
            f'option --change: "{text}" must be NAME=VALUE, for example restart=2m, with NAME one of '
            f"{', '.join(CHANGEABLE)}"
        )
    try:
        asked = read(_with(args, name, value))
    except ConfigError as error:
        raise ConfigError(f"option --change: with {text}: {error}") from error
    found = answer(asked.job)
    on_spot = answer(there(asked.job, asked.spot)) if asked.spot else None
    return Change(
        text=text,
        found=found,
        time=duration(asked.job, found, asked.run),
        on_spot=on_spot,
        spot_cost_per_useful_gpu_hour=(
            asked.spot.price_per_gpu_hour / on_spot.goodput
            if asked.spot and on_spot and on_spot.goodput
            else None
        ),
    )


def _with(args: argparse.Namespace, name: str, value: str) -> argparse.Namespace:
    """The options with the change in place. An interval that was asked is not kept: the change brings its own best."""
    void = dict.fromkeys(("checkpoint_every", *_INSTEAD.get(name, ())))
    return argparse.Namespace(**{**vars(args), **void, name.replace("-", "_"): value})
