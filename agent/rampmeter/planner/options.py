"""The options of `rampmeter plan`, and what they say. Every refusal is a ConfigError that names the option.

Values stay text until here, so that a change (`--change restart=2m`) is read just as the option itself.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rampmeter.core.errors import ConfigError
from rampmeter.core.fields import MAX_BYTES
from rampmeter.core.interval import HIGHEST_PRICE, mtbf
from rampmeter.core.units import (
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_money,
    parse_rate,
)
from rampmeter.planner.job import Job
from rampmeter.planner.money import Run
from rampmeter.planner.retention import Keep
from rampmeter.planner.shared import Storage
from rampmeter.planner.spot import SpotTerms

CHANGEABLE = (
    "stall", "size", "params", "bytes-per-param", "bandwidth", "write", "eps", "mtbf", "restart", "wait",
    "failed-recoveries", "checkpoint-every",
)  # fmt: skip
"""The options of the job: what `--change` may name."""

_MOST_JOBS = 100_000
_MOST_GPUS = 10**9
_ROUNDED = 0.9
"""Figures that fit but for their rounding contradict nothing."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """All that was asked. None = not asked for."""

    job: Job
    mtbf_is_prior: bool
    failures_seen: bool
    run: Run
    spot: SpotTerms | None
    storage: Storage | None
    keep: Keep


def read(args: argparse.Namespace) -> Question:
    """What the options say."""
    run = _run(args)
    terms = _spot(args)
    if terms and run.price_per_gpu_hour is None:
        raise ConfigError("option --spot-price: give --price-per-gpu-hour too, the price on demand")
    job = read_job(args)
    keep = _keep(args)
    _refuse_unused(args, run, keep)
    storage = _storage(args, job)
    if keep.anything and job.num_bytes is None:
        raise ConfigError(
            "option --size: what is kept has an unknown size; give --size, or --params and --bytes-per-param"
        )
    if keep.anything and run.hours is None:
        raise ConfigError("option --run-hours: what is kept depends on how long the run is; give --run-hours")
    return Question(
        job=job,
        mtbf_is_prior=args.mtbf is None,
        failures_seen=args.failures is not None,
        run=run,
        spot=terms,
        storage=storage,
        keep=keep,
    )


def _refuse_unused(args: argparse.Namespace, run: Run, keep: Keep) -> None:
    """What was said must change the answer: an option that needs another one is not passed over in silence."""
    priced = run.price_per_gpu_hour is not None and run.hours is not None
    if args.bytes_per_param is not None and args.params is None:
        raise ConfigError("option --bytes-per-param: give --params too")
    if args.bandwidth is not None and args.size is None and args.params is None:
        raise ConfigError("option --bandwidth: how much is written? give --size, or --params")
    if run.manual_cost and not priced:
        raise ConfigError("option --manual-cost: give --price-per-gpu-hour and --run-hours too")
    if run.price_per_tb_month and not (priced and keep.anything):
        raise ConfigError(
            "option --price-per-tb-month: say what is kept, for example --keep 3 --daily, and give "
            "--price-per-gpu-hour and --run-hours"
        )


def read_job(args: argparse.Namespace) -> Job:
    """The job alone."""
    num_bytes = _size(args)
    rate = _value(args, "bandwidth", _positive(parse_rate))
    stall_s = _value(args, "stall", _positive(parse_duration))
    given_write_s = _value(args, "write", _positive(parse_duration))
    write_s = _write_s(given_write_s, num_bytes, rate)
    if stall_s is None and write_s is None:
        raise ConfigError(
            "option --stall: what does a checkpoint cost? give --stall, or --size and --bandwidth"
        )
    eps = _value(args, "eps", _number(0.0, 1.0))
    if eps and write_s is None:
        raise ConfigError(
            "option --eps: slows training while it writes; give --write, or --size and --bandwidth"
        )
    base_price = _value(args, "base_price", _number(0.0, HIGHEST_PRICE)) or 0.0
    if base_price and num_bytes is None:
        raise ConfigError("option --base-price: a price per byte needs --size")
    synchronous = stall_s is None
    num_gpus = _value(args, "gpus", _count(_MOST_GPUS)) or 1
    return Job(
        stall_s=(write_s or 0.0) if stall_s is None else stall_s,
        synchronous=synchronous,
        write_s=write_s,
        count_write=given_write_s is not None,
        eps=eps or 0.0,
        mtbf_s=_mtbf(args, num_gpus),
        restart_s=_value(args, "restart", parse_duration) or 0.0,
        wait_s=_value(args, "wait", parse_duration) or 0.0,
        failed_share=_value(args, "failed_recoveries", _number(0.0, 0.99)) or 0.0,
        num_gpus=num_gpus,
        num_bytes=num_bytes,
        max_bytes_per_s=rate,
        base_price=base_price,
        every_s=_value(args, "checkpoint_every", _positive(parse_duration)),
    )


def _write_s(given_s: float | None, num_bytes: int | None, rate: int | None) -> float | None:
    """The given time, or that of moving the bytes. A given one may be longer, but nobody writes faster than he can."""
    if num_bytes is None or rate is None:
        return given_s
    moved_s = num_bytes / rate
    if given_s is None:
        return moved_s
    if given_s < _ROUNDED * moved_s:
        raise ConfigError(
            f"option --write: {format_bytes(num_bytes)} at {format_rate(rate)} take {format_duration(moved_s)}; give "
            "either --write or --bandwidth"
        )
    return given_s


def _size(args: argparse.Namespace) -> int | None:
    num_bytes = _value(args, "size", _positive(parse_bytes))
    num_params = _value(args, "params", _positive(parse_count))
    if num_params is None:
        return num_bytes
    if num_bytes is not None:
        raise ConfigError("option --params: give either --size or --params, not both")
    if args.bytes_per_param is None:
        raise ConfigError(
            "option --bytes-per-param: give it with --params; 14 for Adam in mixed precision (2 + 4 + 4 + 4), "
            "16 with gradients"
        )
    total = num_params * (_value(args, "bytes_per_param", _number(0.001, 1000.0)) or 0.0)
    if total > MAX_BYTES:
        raise ConfigError("option --params: the checkpoint would be too large")
    return round(total)


def _mtbf(args: argparse.Namespace, num_gpus: int) -> float:
    failures = _value(args, "failures", _number(0.0, 1e9))
    gpu_hours = _value(args, "gpu_hours", _number(0.0, 1e15))
    if (failures is None) != (gpu_hours is None):
        raise ConfigError("option --failures: give --failures and --gpu-hours together")
    given_s = _value(args, "mtbf", _positive(parse_duration))
    if given_s is not None and failures is not None:
        raise ConfigError("option --mtbf: give either --mtbf or --failures with --gpu-hours, not both")
    if given_s is not None:
        return given_s
    if args.gpus is None:
        raise ConfigError(
            "option --mtbf: how often does the job fail? give --mtbf, or --gpus for the usual rate"
        )
    return mtbf(num_gpus, failures or 0.0, gpu_hours or 0.0)


def _run(args: argparse.Namespace) -> Run:
    useful_h = _value(args, "run_hours", _number(1e-3, 1e7))
    booked_h = _value(args, "wall_hours", _number(1e-3, 1e7))
    if useful_h is not None and booked_h is not None:
        raise ConfigError("option --wall-hours: give either --run-hours or --wall-hours, not both")
    price = _value(args, "price_per_gpu_hour", _positive(parse_money))
    if (price is not None or useful_h is not None or booked_h is not None) and args.gpus is None:
        raise ConfigError("option --gpus: how many GPUs does the job have? hours and prices are per GPU")
    return Run(
        hours=booked_h if useful_h is None else useful_h,
        booked=booked_h is not None,
        price_per_gpu_hour=price,
        manual_cost=_value(args, "manual_cost", parse_money) or 0.0,
        price_per_tb_month=_value(args, "price_per_tb_month", parse_money) or 0.0,
    )


def _spot(args: argparse.Namespace) -> SpotTerms | None:
    price = _value(args, "spot_price", _positive(parse_money))
    if price is None:
        if args.spot_mtbf or args.spot_restart or args.spot_wait or args.notice:
            raise ConfigError("option --spot-price: what does a GPU-hour of spot capacity cost?")
        return None
    mtbf_s = _value(args, "spot_mtbf", _positive(parse_duration))
    if mtbf_s is None:
        raise ConfigError(
            "option --spot-mtbf: how often is spot capacity taken away? give the mean time between"
        )
    restart = "restart" if args.spot_restart is None else "spot_restart"
    wait = "wait" if args.spot_wait is None else "spot_wait"
    return SpotTerms(
        price_per_gpu_hour=price,
        mtbf_s=mtbf_s,
        restart_s=_value(args, restart, parse_duration) or 0.0,
        wait_s=_value(args, wait, parse_duration) or 0.0,
        notice_s=_value(args, "notice", _positive(parse_duration)),
    )


def _storage(args: argparse.Namespace, job: Job) -> Storage | None:
    num_jobs = _value(args, "jobs", _count(_MOST_JOBS))
    capacity = _value(args, "capacity", _positive(parse_rate))
    if (num_jobs is None) != (capacity is None):
        missing = "--capacity" if capacity is None else "--jobs"
        raise ConfigError(f"option {missing}: give --jobs and --capacity together")
    if num_jobs is None or capacity is None:
        return None
    if job.num_bytes is None:
        raise ConfigError(
            "option --size: what share of the storage a job asks for depends on it; give --size"
        )
    if args.gpus is None:
        raise ConfigError("option --gpus: a price per byte weighs GPUs against bytes; give --gpus")
    return Storage(num_jobs=num_jobs, capacity_bytes_per_s=capacity)


def _keep(args: argparse.Namespace) -> Keep:
    return Keep(
        last=_value(args, "keep", _count(10**6)) or 0,
        daily=args.daily,
        hot=_value(args, "hot", _count(10**6)) or 0,
        warm=_value(args, "warm", _count(10**6)) or 0,
        cold_every_s=_value(args, "cold_every", _positive(parse_duration)),
    )


def _value(args: argparse.Namespace, name: str, parse: Callable[[str], T]) -> T | None:
    text: str | None = getattr(args, name)
    if text is None:
        return None
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"option --{name.replace('_', '-')}: {error}") from error


def _positive(parse: Callable[[str], T]) -> Callable[[str], T]:
    def checked(text: str) -> T:
        value = parse(text)
        if not value:
            raise ConfigError("must be more than 0")
        return value

    return checked


def _count(most: int) -> Callable[[str], int]:
    def checked(text: str) -> int:
        value = parse_count(text)
        if not 1 <= value <= most:
            raise ConfigError(f"must be from 1 to {most:,}")
        return value

    return checked


def _number(least: float, most: float) -> Callable[[str], float]:
    def checked(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ConfigError(
                f'"{text}" is no number: write digits only, without a unit, % or commas'
            ) from None
        if not least <= value <= most:
            raise ConfigError(f"must be from {least:g} to {most:g}")
        return value

    return checked
